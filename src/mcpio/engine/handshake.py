"""The handshake session of a connection: its phase, its outcome, and the form of its messages."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, Final

from mcpio.codec import Codec, codec
from mcpio.engine.gates import (
    RULES,
    Admission,
    Capabilities,
    admission,
    check_error,
    decoded_error,
    offered,
    why_no_task,
    why_not_asked,
    why_not_sent,
)
from mcpio.engine.payloads import check_meta, encode, is_created_task, with_related_task
from mcpio.engine.pending import IncomingRequest, OutgoingRequest
from mcpio.engine.table import TABLE, Input, Phase, Role
from mcpio.errors import LocalProtocolError, RequestError
from mcpio.events import RequestContext
from mcpio.framing import jsonrpc
from mcpio.methods import Method
from mcpio.revisions import HANDSHAKE_REVISIONS, LATEST_HANDSHAKE, Revision

if TYPE_CHECKING:
    from mcpio.engine.dialect import DialectEncoder

__all__ = ["Handshake", "created_task"]

_BY_NAME: Final = {revision.name: revision for revision in HANDSHAKE_REVISIONS}


class Handshake:
    """One handshake session, from one side. A connection makes it when its first message needs it."""

    __slots__ = ("_offered", "_role", "codec", "context", "encoder", "instructions", "phase")

    listening: Final = None
    """Subscriptions of this era are no requests that run on."""
    phase: Phase
    """Assigned by ``step`` and by a snapshot, and nowhere else. The life of the connection is not its business."""
    context: RequestContext | None
    """The outcome of the handshake; ``None`` before that."""
    codec: Codec
    """The codec of the negotiated revision; before that, of this side's newest."""
    instructions: str | None
    """A server's hint for the client's model."""
    encoder: DialectEncoder | None
    """Writes in a dialect, where ``Options.emit_profile`` asks for one."""

    def __init__(self, role: Role, encoder: DialectEncoder | None) -> None:
        self._role = role
        self._offered: frozenset[str] = frozenset()
        self.encoder = encoder
        self.phase = Phase.NEW
        self.context = self.instructions = None
        self.codec = codec(LATEST_HANDSHAKE)

    def step(self, what: Input) -> None:
        """Move to the next phase. The caller has checked that a row exists."""
        self.phase = TABLE[self._role, self.phase, what]

    def revision_of(self, name: str) -> Revision:
        """Return the revision of a snapshot. Raises KeyError for one that the handshake cannot settle."""
        return _BY_NAME[name]

    def settle(self, context: RequestContext, own: Capabilities) -> None:
        """Switch to the negotiated session; ``own`` are the capabilities of this side."""
        self.context = context
        self.codec = codec(context.revision)
        self.declare(own)

    def declare(self, own: Capabilities) -> None:
        """Set the capabilities of this side."""
        self._offered = offered(self._role, self.codec.revision, own)

    @property
    def peer_capabilities(self) -> Any:
        """The capabilities of the peer; ``None`` before the handshake."""
        return None if self.context is None else self.context.capabilities

    def admission(self, custom: frozenset[str], refusal: str | None) -> Mapping[str, Admission]:
        """Return the table of the requests that the peer may send now."""
        return admission(self._role, (self.codec.revision,), self._offered, custom, refusal)

    # Outgoing messages

    def check_sent(self, method: Method, own: Capabilities) -> None:
        """Raise ``LocalProtocolError`` if the revision or the capabilities forbid an outgoing message."""
        peer = None if self.context is None else self.context.capabilities
        fault = why_not_sent(method, self._role, self.codec.revision, own, peer)
        if fault is not None:
            raise LocalProtocolError(fault)

    def check_params(self, method: Method, params: Mapping[str, Any]) -> None:
        """Raise ``LocalProtocolError`` if the peer's capabilities forbid a request with these params."""
        if method.name in RULES:
            fault = why_not_asked(method.name, params, self.codec.revision, self.peer_capabilities)
            if fault is not None:
                raise LocalProtocolError(f"{method.name}: {fault}")
        if "task" in params and method.task_capability:
            fault = why_no_task(method, self.codec.revision, self.peer_capabilities)
            if fault is not None:
                raise LocalProtocolError(fault)

    def stamped(self, params: dict[str, Any], own: Capabilities) -> dict[str, Any]:
        """Return the params of an outgoing request with the context that it carries: none in this era."""
        return params

    @property
    def form(self) -> Hashable:
        """The revision, which decides the form of results; ``None`` in a dialect, which may change it."""
        return self.codec.revision if self.encoder is None else None

    def write_result(self, request: IncomingRequest, result: Any) -> Mapping[str, Any]:
        """Return the result of an incoming request as an object. Raises ``LocalProtocolError`` for a wrong one."""
        method = request.method
        if method is None:
            if not isinstance(result, Mapping):
                raise LocalProtocolError(f"the result of {request.name} must be a mapping, not {type(result).__name__}")
            check_meta(result)
            members: Mapping[str, Any] = result
        elif isinstance(result, method.result_type) or (request.wants_task and is_created_task(result)):
            members = encode(self.codec, result)
        else:
            wanted, got = method.result_type.__name__, type(result).__name__
            raise LocalProtocolError(f"the result of {request.name} must be a {wanted}, not a {got}")
        if request.task is not None:
            members = with_related_task(members, request.task)
        return members if self.encoder is None else self.encoder.result(request.name, members)

    def write_raw_result(self, request: IncomingRequest, result: bytes) -> bytes:
        """Return the JSON text of a result that is passed on: just as it is."""
        return result

    def check_error(self, request: IncomingRequest, error: RequestError) -> None:
        """Raise ``LocalProtocolError`` for an error that must not answer an incoming request."""
        check_error(error, request.context.capabilities, self.codec)

    # Incoming messages

    def read_result(self, request: OutgoingRequest, result: dict[str, Any], odd: list[str]) -> Any:
        """Return the typed result of an outgoing request. Raises and adds to ``odd`` as ``Codec.decode``."""
        method = request.method
        if method is None:
            return result
        wanted = method.result_type
        if request.task is not None and created_task(result) is not None:
            # A receiver may ignore that a task was asked for: the result itself tells (TASK-03).
            from mcpio.types.tasks import CreateTaskResult

            wanted = CreateTaskResult
        return self.codec.decode(result, wanted, odd)

    def read_error(self, request: OutgoingRequest, message: jsonrpc.Error) -> RequestError:
        """Return the error that answers an outgoing request, as the class of its code."""
        return decoded_error(message.code, message.message, message.data, request.name, self.codec)


def created_task(result: Mapping[str, Any]) -> str | None:
    """Return the id of the task that a result says was created, ``None`` for a result of another kind (TASK-09)."""
    task = result.get("task")
    task_id = task.get("taskId") if isinstance(task, dict) else None
    return task_id if isinstance(task_id, str) else None
