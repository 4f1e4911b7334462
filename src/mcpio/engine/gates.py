"""Which messages may be sent and received, by phase, capability and revision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

import attrs

from mcpio.codec import Codec
from mcpio.engine.envelope import invalid_params
from mcpio.engine.table import Role
from mcpio.errors import (
    ErrorCode,
    InvalidMessage,
    LocalProtocolError,
    RemoteProtocolError,
    RequestError,
    SamplingRejected,
    URLElicitationRequired,
)
from mcpio.methods import METHODS, Direction, Kind, Method, declares, method_of
from mcpio.revisions import REV_2025_11_25, Revision
from mcpio.types.base import TASKS_EXTENSION, CustomRequest
from mcpio.types.features import ClientCapabilities, ServerCapabilities

if TYPE_CHECKING:
    from mcpio.framing import jsonrpc


# ---------------------------------------------------------------------------------------------------------------- gates
# Gates: the rules of direction, revision and capabilities (CAP-05, LIFE-14), and the errors that answer requests.
# The capability of a method stands in its row of ``METHODS``. What a request needs beyond that depends on its params
# and is checked here, by the same rules for incoming and outgoing requests. The checks read params in their wire form,
# so a request that a gateway passes on is judged like one of ours. ``engine.admission`` applies them to what comes in.

Capabilities: TypeAlias = ClientCapabilities | ServerCapabilities
C = TypeVar("C", ClientCapabilities, ServerCapabilities)

Rule: TypeAlias = Callable[[Mapping[str, Any], Revision, Capabilities | None], str | None]
"""Returns the fault in params that a client of these capabilities is to serve, or ``None``."""

UNKNOWN_CLIENT: Final = ClientCapabilities()
"""The capabilities of a client whose handshake this engine never saw. It is asked for nothing; but error -32042 may
answer its requests, since that needs no way back. Compared by identity: a client that declares nothing is known."""


def why_not_sent(
    method: Method, role: Role, revision: Revision, own: Capabilities, peer: Capabilities | None
) -> str | None:
    """Return the fault in an outgoing message, or ``None``. ``peer`` is ``None`` before the handshake."""
    path = sendable(role, revision).get(method.name)
    if path is None:
        if not addressed_to(method, Role.SERVER if role is Role.CLIENT else Role.CLIENT):
            return f"{method.name} is not for a {role.value} to send"
        return f"{method.name} does not exist in revision {revision}"
    if path:
        holder, whose = (own, "this side") if method.holder == "sender" else (peer, "the peer")
        if holder is None or not declares(holder, path):
            return f"{method.name} needs the capability {'.'.join(path)}, which {whose} did not declare"
    return None


@lru_cache
def sendable(role: Role, revision: Revision) -> Mapping[str, tuple[str, ...]]:
    """Return the methods that a role may send in a revision, each with the capability that it requires."""
    receiver = Role.SERVER if role is Role.CLIENT else Role.CLIENT
    rows = [method for method in METHODS.values() if addressed_to(method, receiver) and method.exists_in(revision)]
    return {method.name: method.capability_in(revision) for method in rows}


def in_handshake(capabilities: C) -> C:
    """Return capabilities of this side for the handshake era: its tasks are no extension (XTASK-16)."""
    extensions = capabilities.extensions
    if not extensions or TASKS_EXTENSION not in extensions:
        return capabilities
    rest = {name: value for name, value in extensions.items() if name != TASKS_EXTENSION}
    return attrs.evolve(capabilities, extensions=rest or None)


def without_changes(capabilities: ServerCapabilities) -> ServerCapabilities:
    """Return capabilities of a server that has no way to notify clients of changes."""
    tools, prompts, resources = capabilities.tools, capabilities.prompts, capabilities.resources
    return attrs.evolve(
        capabilities,
        tools=tools and attrs.evolve(tools, list_changed=None),
        prompts=prompts and attrs.evolve(prompts, list_changed=None),
        resources=resources and attrs.evolve(resources, list_changed=None, subscribe=None),
    )


def why_no_task(method: Method, revision: Revision, peer: Capabilities | None) -> str | None:
    """Return the fault in an outgoing request that asks for a task, or ``None`` (TASK-02, TASK-05)."""
    if revision is not REV_2025_11_25:
        return f"{method.name} can be a task in revision {REV_2025_11_25} only, not in {revision}"
    if peer is None or not declares(peer, method.task_capability):
        needed = ".".join(method.task_capability)
        return f"{method.name} as a task needs the capability {needed}, which the peer did not declare"
    return None


def why_not_asked(name: str, params: Mapping[str, Any], revision: Revision, client: Capabilities | None) -> str | None:
    """Return the fault in a request from a server to a client of these capabilities, or ``None``.

    ``includeContext`` is refused here and not in ``why_not_served``: servers SHOULD NOT ask for it undeclared, but a
    client may ignore it, and many servers of earlier revisions send it to every client (SAMP-07).
    """
    wants = params.get("includeContext") if name == "sampling/createMessage" else None
    if wants not in (None, "none") and revision >= REV_2025_11_25 and not declares(client, ("sampling", "context")):
        return _undeclared(f"includeContext {wants!r:.100}", "sampling.context")
    return why_not_served(name, params, revision, client)


def why_not_served(name: str, params: Mapping[str, Any], revision: Revision, client: Capabilities | None) -> str | None:
    """Return why a client of these capabilities must not serve a request, or ``None``; the answer is then -32602.

    Neither peer may send such a request, so this holds for what goes out as well.
    """
    rule = RULES.get(name)
    return None if rule is None else rule(params, revision, client)


def check_question(request: Any, client: Capabilities, codec: Codec) -> None:
    """Raise ``RemoteProtocolError`` for a question in a message that a client of these capabilities must not be asked.

    (MRTR-04.)
    """
    method = method_of(request)
    if not declares(client, method.capability):
        fault: str | None = f"the capability {method.capability[0]} was not declared"
    else:
        fault = why_not_served(method.name, codec.encode(request), codec.revision, client)
    if fault is not None:
        raise RemoteProtocolError(f"the server asks {method.name}, which this client does not serve: {fault}")


def addressed_to(method: Method, role: Role) -> bool:
    """Return whether ``role`` receives messages of that method."""
    return method.direction is Direction.BOTH or (method.direction is Direction.TO_SERVER) == (role is Role.SERVER)


# Errors that answer requests


def decoded_error(code: int, message: str, data: Any, method: str, codec: Codec) -> RequestError:
    """Return the error that answers a request of ``method``, as the class of its code.

    A -32042 whose data cannot be read, or in a revision without it, is a plain ``RequestError``.
    """
    if code == ErrorCode.USER_REJECTED and method == "sampling/createMessage":
        return SamplingRejected(message, data)
    if code == ErrorCode.URL_ELICITATION_REQUIRED:
        try:
            return URLElicitationRequired(_elicitations(data, codec), message, data)
        except (InvalidMessage, ValueError):
            pass
    return RequestError(code, message, data)


def check_error(error: RequestError, peer: Capabilities | None, codec: Codec) -> None:
    """Raise ``LocalProtocolError`` for an error that must not answer a request of ``peer``.

    -32042 needs a peer that declared ``elicitation.url``, or whose capabilities are unknown, and data that names
    addresses (ELIC-17).
    """
    if getattr(error, "code", None) != ErrorCode.URL_ELICITATION_REQUIRED:
        return
    if peer is not UNKNOWN_CLIENT and not declares(peer, ("elicitation", "url")):
        raise LocalProtocolError("error -32042 needs the capability elicitation.url, which the peer did not declare")
    try:
        named = _elicitations(error.data, codec)
    except InvalidMessage as fault:
        raise LocalProtocolError(f"the data of error -32042: {fault}") from None
    if not named:
        raise LocalProtocolError("the data of error -32042: elicitations: names none")


def _elicitations(data: Any, codec: Codec) -> tuple[Any, ...]:
    from mcpio.types.asking import URLElicitationRequiredData  # the types of a feature load with its first use

    return codec.decode(data, URLElicitationRequiredData).elicitations


# Rules


def _undeclared(what: str, capability: str) -> str:
    return f"{what} needs the capability {capability}, which the client did not declare"


def _fault_in_elicitation(params: Mapping[str, Any], _: Revision, client: Capabilities | None) -> str | None:
    """Check the mode against the capabilities (ELIC-01, ELIC-02), and that an address is one (ELIC-14)."""
    mode = params.get("mode", "form")
    if mode not in ("form", "url") or not declares(client, ("elicitation", mode)):
        return _undeclared(f"mode {mode!s:.100}", f"elicitation.{mode!s:.100}")
    if mode == "url":
        from mcpio.web_address import web_address  # few sessions elicit by URL

        try:
            web_address(str(params.get("url")))
        except ValueError as error:
            return str(error)
    return None


def _fault_in_sampling(params: Mapping[str, Any], revision: Revision, client: Capabilities | None) -> str | None:
    """Check that tools were declared (SAMP-05, SAMP-06), and that their results follow their uses."""
    if revision < REV_2025_11_25:
        return None  # earlier revisions ignore these members
    for member in ("tools", "toolChoice"):
        if params.get(member) is not None and not declares(client, ("sampling", "tools")):
            return _undeclared(member, "sampling.tools")
    return _fault_in_messages(params.get("messages"))


def _fault_in_messages(messages: Any) -> str | None:
    """Check that the next message answers each use of a tool, and contains nothing else.

    (SAMP-09, SAMP-10, TOOL-24.) The first two reasons are worded as the specification's examples are.
    """
    unanswered: set[Any] = set()
    for message in _objects(messages):
        content = message.get("content")
        blocks = _objects(content if isinstance(content, list) else [content])
        results = [block for block in blocks if block.get("type") == "tool_result"]
        if results and (message.get("role") != "user" or len(results) < len(blocks)):
            return "Tool results mixed with other content"
        answered = {str(block.get("toolUseId")) for block in results}
        if answered != unanswered:
            return "Tool result missing in request" if unanswered - answered else "Tool result without a tool use"
        unanswered = {str(block.get("id")) for block in blocks if block.get("type") == "tool_use"}
    return "Tool result missing in request" if unanswered else None


def _objects(items: Any) -> list[Mapping[str, Any]]:
    """Return the objects of a list. A raw request may contain anything."""
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, (list, tuple)) else []


RULES: Final[Mapping[str, Rule]] = {
    "elicitation/create": _fault_in_elicitation,
    "sampling/createMessage": _fault_in_sampling,
}
"""Method -> the rule for its params, beyond the capability of the method."""


# ------------------------------------------------------------------------------------------------------------ admission
# Which requests a connection admits, as one table: method name -> its method, or why it is refused.
# The table depends on the role, the revision, this side's capabilities and the phase. It is the same for every
# connection that agrees in these, so all of them share one. Print one to see what a server serves:
#     >>> from mcpio.engine.gates import admission, offered
#     >>> from mcpio.engine.table import Role
#     >>> from mcpio.revisions import REV_2025_11_25
#     >>> from mcpio.types import ServerCapabilities, ToolsCapability
#     >>> served = offered(Role.SERVER, REV_2025_11_25, ServerCapabilities(tools=ToolsCapability()))
#     >>> table = admission(Role.SERVER, (REV_2025_11_25,), served)
#     >>> [name for name, row in table.items() if row.refusal is None]
#     ['tools/list', 'tools/call']

LISTEN: Final = "subscriptions/listen"
DISCOVER: Final = "server/discover"

NOT_FOUND: Final = "not found"
"""The refusal of a method that this side did not declare. The others are reasons that go into the error's data."""


class Admission(NamedTuple):
    """One row: what happens to a request of one method."""

    method: Method | None
    """The method, ``None`` for one that the program registered by name (``Options.custom_methods``)."""
    refusal: str | None
    """Why every such request is refused; ``None`` where it is served."""
    rule: Rule | None
    """The check of its params against this side's capabilities, where the method has one."""


# Bounded, since programs may register methods and change capabilities as often as they like.
@lru_cache(maxsize=256)
def admission(
    role: Role,
    revisions: tuple[Revision, ...],
    served: frozenset[str] = frozenset(),
    custom: frozenset[str] = frozenset(),
    refusal: str | None = None,
) -> Mapping[str, Admission]:
    """Return the table for the requests that exist in one of ``revisions``. A method without a row is unknown.

    ``served`` are the methods that this side's capabilities offer, ``custom`` those that the program registered.
    ``refusal`` is why every request is refused now, for phases that serve none: before the handshake, and while the
    connection is closing (LIFE-11, LIFE-22).
    """
    table = {name: Admission(None, refusal, None) for name in custom - _ALWAYS}
    for name, method in METHODS.items():
        if _is_received(method, role) and any(method.exists_in(revision) for revision in revisions):
            table[name] = Admission(method, refusal or (None if name in served else NOT_FOUND), RULES.get(name))
    return table


def offered(role: Role, revision: Revision, own: Capabilities) -> frozenset[str]:
    """Return the requests to ``role`` whose capability ``own`` declares."""
    names = frozenset(
        name
        for name, method in METHODS.items()
        if _is_received(method, role)
        and method.exists_in(revision)
        and (not (path := method.capability_in(revision)) or declares(own, path))
    )
    return _one_of_equals(names)


def read_params(message: jsonrpc.Request, row: Admission, codec: Codec, own: Capabilities, odd: list[str]) -> Any:
    """Return the typed request of a message.

    Members that the request is read without are added to ``odd``. Raises RequestError with the answer to params that
    cannot be read, or that need what ``own`` does not declare.
    """
    method, params = row.method, message.params
    try:
        request: Any = (
            CustomRequest(message.method, params) if method is None else codec.decode(params, method.params_type, odd)
        )
    except InvalidMessage as error:
        raise invalid_params(error) from None
    fault = None if row.rule is None else row.rule(params, codec.revision, own)
    if fault is not None:
        raise RequestError(ErrorCode.INVALID_PARAMS, f"Invalid params: {fault}")
    return request


@lru_cache(maxsize=256)
def _one_of_equals(names: frozenset[str]) -> frozenset[str]:
    """Return the first of equal sets, so that thousands of sessions hold one."""
    return names


def _is_received(method: Method, role: Role) -> bool:
    # Every phase answers pings, and initialize is the handshake itself.
    return method.kind is Kind.REQUEST and method.name not in _ALWAYS and addressed_to(method, role)


_ALWAYS: Final = frozenset({"ping", "initialize"})
