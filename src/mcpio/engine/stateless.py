"""Requests of 2026-07-28 in the engine: admission by their envelope, and listening."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, Final

from mcpio.codec import Codec, codec
from mcpio.engine.envelope import Envelope, EnvelopeReader
from mcpio.engine.gates import (
    LISTEN,
    Admission,
    Capabilities,
    admission,
    offered,
    read_params,
    why_not_asked,
    why_not_sent,
    without_changes,
)
from mcpio.engine.options import Options
from mcpio.engine.payloads import check_meta, coalescing_key, encode, encode_error, internal_error, not_json, to_json
from mcpio.engine.pending import IncomingDialogue, IncomingRequest
from mcpio.engine.table import RequestInput, Role
from mcpio.errors import ErrorCode, LocalProtocolError, RequestError
from mcpio.events import IncomingId, RequestContext
from mcpio.framing.json import JsonError, dumps, loads
from mcpio.framing.jsonrpc import Request, encode_result
from mcpio.methods import METHODS, TASK_EXTENSION_METHODS, Method, declares, why_no_input
from mcpio.revisions import Revision
from mcpio.types.base import META_SERVER_INFO, META_SUBSCRIPTION_ID, TASKS_EXTENSION, CacheableResult
from mcpio.types.features import (
    Implementation,
    ServerCapabilities,
    SubscriptionFilter,
    SubscriptionsListenResult,
    at_least,
)

if TYPE_CHECKING:
    from mcpio.engine.snapshot import ListeningState


# ------------------------------------------------------------------------------------------------------------ stateless
# The stateless era: requests carry their own context, and results name their type (2026-07-28).

_COMPLETE: Final = "complete"
_TASK: Final = "task"
_INPUT_REQUIRED: Final = "input_required"
_LOG: Final = "notifications/message"
_RESERVED_CODES: Final = range(-32099, -32019)
"""Codes that the specification keeps for itself (XERR-02)."""
_REQUIRED_DATA: Final[Mapping[int, Mapping[str, type]]] = {
    ErrorCode.HEADER_MISMATCH: {},
    ErrorCode.MISSING_CLIENT_CAPABILITY: {"requiredCapabilities": dict},
    ErrorCode.UNSUPPORTED_VERSION: {"supported": list, "requested": str},
}
"""The defined ones among them, with the members that their data must have."""
_GONE_CODES: Final = (ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.URL_ELICITATION_REQUIRED)


class StatelessServer:
    """Says which stateless requests are served, and shapes their results. It knows no peer and no request."""

    __slots__ = (
        "_custom",
        "_identity",
        "_offered",
        "_revisions",
        "_table",
        "capabilities",
        "codec",
        "declared",
        "envelopes",
        "form",
    )

    encoder: Final = None
    """Dialects are for the handshake era."""
    listening: Final = None

    def __init__(self, info: Implementation, capabilities: ServerCapabilities, options: Options) -> None:
        self._revisions = options.revisions
        self._custom = options.custom_methods
        if declares(capabilities, ("extensions", TASKS_EXTENSION)):
            # Their names are those of methods of 2025-11-25, with other params: the program reads these itself.
            self._custom |= TASK_EXTENSION_METHODS
        revision = options.stateless_revisions[0]
        self.codec: Codec = codec(revision)
        self.capabilities: ServerCapabilities = capabilities
        self.declared: ServerCapabilities = capabilities
        self._offered = offered(Role.SERVER, revision, capabilities)
        if not options.limits.has_listeners:
            # What is declared has clients listen for it.
            self.capabilities = without_changes(capabilities)
            self._offered -= {LISTEN}
        self._identity: dict[str, Any] | None = encode(self.codec, info) if options.identify else None
        self.form: Hashable = (revision, to_json(dumps, self._identity))
        self.envelopes: EnvelopeReader = EnvelopeReader(options.revisions)
        self._table = admission(Role.SERVER, (revision,), self._offered, self._custom)

    # Admission

    def row(self, name: str, refusal: str | None = None) -> Admission:
        """Return how requests of a method are served; ``refusal`` is why none is at present.

        Raises RequestError with the answer to one that is not served.
        """
        row = self._table.get(name)
        if row is not None and refusal is not None:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"Invalid request: {refusal}", {"reason": refusal})
        if row is None or row.refusal is not None:
            raise RequestError(ErrorCode.METHOD_NOT_FOUND, f"Method not found: {name:.100}")
        return row

    def admit(
        self,
        message: Request,
        row: Admission,
        envelope: Envelope,
        id: IncomingId,
        via: Hashable,
        principal: Hashable,
        size: int,
        odd: list[str],
    ) -> tuple[IncomingRequest, Any]:
        """Return the record of a request, and its typed form.

        Raises RequestError with the answer to one that cannot be read.
        """
        request = read_params(message, row, self.codec, self.declared, odd)
        token = message.params["_meta"].get("progressToken")  # which was checked with the envelope
        name, revision = message.method, envelope.revision
        dialogue: IncomingDialogue = self
        if name == LISTEN:
            dialogue = Listening(self, message.params.get("notifications") or {})
        context = RequestContext(
            revision.era, revision, envelope.capabilities, envelope.info, envelope.log_level, principal, via
        )
        record = IncomingRequest(id, message.id, name, row.method, token, via, size, dialogue, context, message.raw)
        return record, request

    def discovery(self, message: Request, instructions: str | None) -> bytes:
        """Return the answer to ``server/discover`` (VER-03).

        Raises RequestError, with the fault of this side as its cause, if what is declared cannot be encoded.
        """
        from mcpio.types.features import DiscoverResult  # loaded with the first use, as every feature

        names = tuple(revision.name for revision in sorted(self._revisions, reverse=True))
        try:
            result = self._identified(encode(self.codec, DiscoverResult(names, self.capabilities, instructions)))
            return to_json(encode_result, message.id, result)
        except LocalProtocolError as fault:
            raise internal_error(fault) from fault

    # Answers

    def write_result(self, request: IncomingRequest, result: Any) -> Mapping[str, Any]:
        """Return the result of an incoming request as an object. Raises ``LocalProtocolError`` for a wrong one."""
        method = request.method
        if method is None:
            if not isinstance(result, Mapping):
                raise LocalProtocolError(f"the result of {request.name} must be a mapping, not {type(result).__name__}")
            check_meta(result)
            members = {"resultType": _COMPLETE, **result}
        elif isinstance(result, method.result_type):
            members = encode(self.codec, result)
            if members["resultType"] != _COMPLETE:
                # Other values belong to extensions, whose results have other types (ENV-10).
                fault = f"result_type must be {_COMPLETE!r}, not {result.result_type!r}"
                raise LocalProtocolError(f"the result of {request.name}: {fault}")
            if members.get("ttlMs", 0) < 0:
                raise LocalProtocolError(f"ttl_ms must be 0 or more, not {result.ttl_ms}")
        elif getattr(result, "result_type", None) == _TASK:
            members = self._created_task(request, result)
        else:
            members = self._input_required(request, method, result)
        # As ``_identified``, without its call.
        if self._identity is not None:
            members["_meta"] = {META_SERVER_INFO: self._identity, **members.get("_meta", {})}
        return members

    def write_raw_result(self, request: IncomingRequest, result: bytes) -> bytes:
        """Return the JSON text of a result that is passed on, with the members that it lacks (ENV-10, CACHE-01)."""
        try:
            members = loads(result)
        except JsonError as error:
            raise not_json(error) from error
        if not isinstance(members, dict):
            raise LocalProtocolError(f"a result must be a JSON object, not {members!r:.100}")
        method = request.method
        needed: dict[str, Any] = {"resultType": _COMPLETE}
        if members.get("resultType") == _INPUT_REQUIRED:
            _check_may_ask(request)
        elif method is not None and issubclass(method.result_type, CacheableResult):
            needed |= {"ttlMs": 0, "cacheScope": "private"}
        return result if needed.keys() <= members.keys() else dumps({**needed, **members})

    def check_error(self, request: IncomingRequest, error: RequestError) -> None:
        """Raise ``LocalProtocolError`` for an error that must not answer an incoming request (XERR-02, XERR-03)."""
        code: Any = getattr(error, "code", None)
        if code in _GONE_CODES:
            raise LocalProtocolError(f"error {code} does not exist in revision {self.codec.revision}")
        if code not in _RESERVED_CODES:
            return
        members = _REQUIRED_DATA.get(code)
        if members is None:
            raise LocalProtocolError(f"error {code} has no meaning yet: the protocol reserves -32020 to -32099")
        for name, kind in members.items():
            if not isinstance(error.data, Mapping) or not isinstance(error.data.get(name), kind):
                raise LocalProtocolError(f"the data of error {code} need the member {name}")

    def notification(
        self, request: IncomingRequest, method: Method | None, params: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Return the params of a notification that belongs to a request; ``None`` if the client does not want it.

        Raises ``LocalProtocolError`` for one that must not be sent: only log messages belong to a request (PAT-02),
        and methods that are not the protocol's.
        """
        if method is None:
            return params
        fault = why_not_sent(method, Role.SERVER, self.codec.revision, self.capabilities, None)
        if fault is not None:
            raise LocalProtocolError(fault)
        if method.name != _LOG:
            raise LocalProtocolError(f"{method.name} does not belong to a request: it is for subscriptions")
        # Without a level the client wants none (GONE-04).
        level: Any = request.context.log_level
        return params if level is not None and at_least(params["level"], level) else None

    def coalescing_key(self, request: IncomingRequest, method: Method | None, params: Mapping[str, Any]) -> None:
        """Return ``None``: each log message counts."""

    def _created_task(self, request: IncomingRequest, result: Any) -> dict[str, Any]:
        """Return the answer to a call that continues as a task (XTASK-01, XTASK-04)."""
        if request.name != "tools/call":
            raise LocalProtocolError(f"{request.name} cannot become a task: only tools/call can")
        if not declares(request.context.capabilities, ("extensions", TASKS_EXTENSION)):
            raise LocalProtocolError(f"the client did not declare the extension {TASKS_EXTENSION}")
        return encode(self.codec, result)

    def _input_required(self, request: IncomingRequest, method: Method, result: Any) -> dict[str, Any]:
        from mcpio.types.base import InputRequiredResult  # few servers ask

        if not isinstance(result, InputRequiredResult):
            wanted, got = method.result_type.__name__, type(result).__name__
            raise LocalProtocolError(f"the result of {request.name} must be a {wanted}, not a {got}")
        _check_may_ask(request)
        members = encode(self.codec, result)
        fault = _fault_in_input_required(members, self.codec.revision, request.context.capabilities)
        if fault is not None:
            raise LocalProtocolError(f"the result of {request.name}: {fault}")
        return members

    def _identified(self, members: dict[str, Any]) -> dict[str, Any]:
        """Add the name and version of this server, unless the result has them already (ENV-06)."""
        if self._identity is not None:
            members["_meta"] = {META_SERVER_INFO: self._identity, **members.get("_meta", {})}
        return members


def _fault_in_input_required(members: Mapping[str, Any], revision: Revision, client: Capabilities) -> str | None:
    """Return the fault in an ``InputRequiredResult``, or ``None`` (MRTR-02 to MRTR-04).

    It must not ask for what the capabilities of the client lack.
    """
    if members.get("inputRequests") is None and members.get("requestState") is None:
        return "inputRequests or requestState must be there"
    for key, question in (members.get("inputRequests") or {}).items():
        method = METHODS[question["method"]]
        if not declares(client, method.capability):
            return f"inputRequests.{key:.100}: the client did not declare {'.'.join(method.capability)}"
        fault = why_not_asked(method.name, question.get("params") or {}, revision, client)
        if fault is not None:
            return f"inputRequests.{key:.100}: {fault}"
    return None


def _check_may_ask(request: IncomingRequest) -> None:
    if request.method is None or not request.method.may_ask:
        raise LocalProtocolError(why_no_input(request.name))


# ------------------------------------------------------------------------------------------------------------ listening
# Subscriptions of stateless clients: a request that runs on, and the notifications that belong to it (SUB-01).

_FLAGS: Final = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}
_UPDATED: Final = "notifications/resources/updated"
_RESOURCES: Final = "resourceSubscriptions"
_TASK_REPORTS: Final = "notifications/tasks"
_TASKS: Final = "taskIds"


class Listening:
    """The state of one subscription: the requested and the honoured filter, and the id on its messages."""

    __slots__ = ("_server", "asked", "codec", "honoured")

    asked: Mapping[str, Any]
    """The filter of the request."""
    honoured: Mapping[str, Any] | None
    """The part of it that was acknowledged; ``None`` before that."""
    encoder: Final = None
    form: Final[Hashable] = None

    def __init__(self, server: StatelessServer, asked: Mapping[str, Any]) -> None:
        self._server = server
        self.codec = server.codec
        self.asked = asked
        self.honoured = None

    @property
    def listening(self) -> ListeningState:
        """The state of the subscription, as a snapshot has it."""
        from mcpio.engine.snapshot import ListeningState  # few connections are ever written out

        return ListeningState(asked=dict(self.asked), honoured=None if self.honoured is None else dict(self.honoured))

    def acknowledgement(self, request: IncomingRequest, honoured: SubscriptionFilter) -> dict[str, Any]:
        """Return the params of the first message of the subscription (SUB-02). Changes nothing."""
        if self.honoured is not None:
            raise LocalProtocolError(f"the subscription {request.id!r} was acknowledged before")
        if not isinstance(honoured, SubscriptionFilter):
            raise LocalProtocolError(f"what is honoured must be a SubscriptionFilter, not a {type(honoured).__name__}")
        members = encode(self.codec, honoured)
        for name, value in members.items():
            wanted = self.asked.get(name)
            more = sorted(frozenset(value).difference(wanted or ())) if isinstance(value, list) else value
            if more and not (more is True and wanted is True):
                raise LocalProtocolError(f"{name}: {more!r:.100} was not asked for")
        return self._stamped(request, {"notifications": members})

    def notification(
        self, request: IncomingRequest, method: Method | None, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the params of a notification, with the id of its subscription (ENV-09).

        Raises ``LocalProtocolError`` for one that was not acknowledged (SUB-03, SUB-06).
        """
        if self.honoured is None:
            raise LocalProtocolError(f"acknowledge the subscription {request.id!r} first")
        if method is not None:
            fault = why_not_sent(method, Role.SERVER, self.codec.revision, self._server.capabilities, None)
            if fault is not None:
                raise LocalProtocolError(fault)
            if method.name in _FLAGS:
                honoured = self.honoured.get(_FLAGS[method.name]) is True
            elif method.name == _TASK_REPORTS:
                honoured = params["taskId"] in self.honoured.get(_TASKS, ())
            else:
                # The resource may lie within one that was subscribed to, which the caller knows.
                honoured = method.name == _UPDATED and bool(self.honoured.get(_RESOURCES))
            if not honoured:
                raise LocalProtocolError(f"the subscription {request.id!r} does not honour {method.name}")
        return self._stamped(request, params)

    def coalescing_key(self, request: IncomingRequest, method: Method | None, params: Mapping[str, Any]) -> Hashable:
        """Return the key that equal notifications coalesce by: within their subscription, since each gets its own."""
        # Of a task only the last state counts.
        is_task = method is not None and method.name == _TASK_REPORTS
        key = (_TASK_REPORTS, params["taskId"]) if is_task else coalescing_key(method, params)
        return None if key is None else (request.id, key)

    def write_result(self, request: IncomingRequest, result: Any) -> Mapping[str, Any]:
        """Return the result that ends the subscription (SUB-08)."""
        if not isinstance(result, SubscriptionsListenResult):
            wanted = SubscriptionsListenResult.__name__
            raise LocalProtocolError(
                f"the result of subscriptions/listen must be a {wanted}, not a {type(result).__name__}"
            )
        self._check_acknowledged(request)
        return self._stamped(request, self._server.write_result(request, result))

    def write_raw_result(self, request: IncomingRequest, result: bytes) -> bytes:
        """Return the JSON text of the result that ends the subscription."""
        self._check_acknowledged(request)
        members = loads(self._server.write_raw_result(request, result))
        check_meta(members)
        stamped = self._stamped(request, members)
        return result if stamped == members else dumps(stamped)

    def closing_answer(self, request: IncomingRequest) -> tuple[RequestInput, bytes]:
        """Return the answer that ends the subscription because this side closes (SUB-08)."""
        if self.honoured is None:
            data = {"reason": "closing"}
            text = encode_error(
                request.wire_id, RequestError(ErrorCode.INVALID_REQUEST, "Invalid request: closing", data)
            )
            return RequestInput.SEND_ERROR, text
        result = self.write_result(request, SubscriptionsListenResult())
        return RequestInput.SEND_RESULT, encode_result(request.wire_id, result)

    def check_error(self, request: IncomingRequest, error: RequestError) -> None:
        """Raise ``LocalProtocolError`` for an error that must not answer the request."""
        self._server.check_error(request, error)

    def _check_acknowledged(self, request: IncomingRequest) -> None:
        if self.honoured is None:
            raise LocalProtocolError(f"acknowledge the subscription {request.id!r} first, or answer with an error")

    def _stamped(self, request: IncomingRequest, members: Mapping[str, Any]) -> dict[str, Any]:
        return {**members, "_meta": {**(members.get("_meta") or {}), META_SUBSCRIPTION_ID: request.wire_id}}
