"""Which requests a connection admits, as one table: method name -> its method, or why it is refused.

The table depends on the role, the revision, this side's capabilities and the phase. It is the same for every
connection that agrees in these, so all of them share one. Print one to see what a server serves:

    >>> from mcpio.engine.admission import admission, offered
    >>> from mcpio.engine.table import Role
    >>> from mcpio.revisions import REV_2025_11_25
    >>> from mcpio.types import ServerCapabilities, ToolsCapability
    >>> served = offered(Role.SERVER, REV_2025_11_25, ServerCapabilities(tools=ToolsCapability()))
    >>> table = admission(Role.SERVER, (REV_2025_11_25,), served)
    >>> [name for name, row in table.items() if row.refusal is None]
    ['tools/list', 'tools/call']
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mcpio.engine.envelope import invalid_params, progress_token
from mcpio.engine.gates import RULES, Capabilities, Rule, addressed_to
from mcpio.engine.table import Role
from mcpio.errors import ErrorCode, InvalidMessage, RequestError
from mcpio.methods import METHODS, Kind, Method, declares
from mcpio.revisions import Revision
from mcpio.types.custom import CustomRequest

if TYPE_CHECKING:
    from mcpio.codec import Codec
    from mcpio.framing import jsonrpc

__all__ = ["NOT_FOUND", "Admission", "admission", "offered", "read_params"]

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


def read_params(
    message: jsonrpc.Request, row: Admission, codec: Codec, own: Capabilities, odd: list[str]
) -> tuple[Any, int | str | None]:
    """Return the typed request of a message, and its progress token.

    Members that the request is read without are added to ``odd``. Raises RequestError with the answer to params that
    cannot be read, or that need what ``own`` does not declare.
    """
    method, params = row.method, message.params
    try:
        request: Any = (
            CustomRequest(message.method, params) if method is None else codec.decode(params, method.params_type, odd)
        )
        token = progress_token(params["_meta"]) if "_meta" in params else None
    except InvalidMessage as error:
        raise invalid_params(error) from None
    fault = None if row.rule is None else row.rule(params, codec.revision, own)
    if fault is not None:
        raise RequestError(ErrorCode.INVALID_PARAMS, f"Invalid params: {fault}")
    return request, token


@lru_cache(maxsize=256)
def _one_of_equals(names: frozenset[str]) -> frozenset[str]:
    """Return the first of equal sets, so that thousands of sessions hold one."""
    return names


def _is_received(method: Method, role: Role) -> bool:
    # Every phase answers pings, and initialize is the handshake itself.
    return method.kind is Kind.REQUEST and method.name not in _ALWAYS and addressed_to(method, role)


_ALWAYS: Final = frozenset({"ping", "initialize"})
