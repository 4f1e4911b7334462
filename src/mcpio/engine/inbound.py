"""What comes in: each message becomes at least one event, and gets an answer where one is due."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any

from mcpio.codec import Codec, codec
from mcpio.engine.channel import Channel
from mcpio.engine.failures import decoded_error
from mcpio.engine.gates import Capabilities, addressed_to, offers, receivable, why_not_served
from mcpio.engine.inbox import QUOTE, head
from mcpio.engine.ledger import LARGEST_FACTOR, REQUEST_COST, TYPICAL_FACTOR, parsed_size
from mcpio.engine.options import Options
from mcpio.engine.outbox import ANSWERS, Kind
from mcpio.engine.pending import IncomingRequest, IncomingRequests, OutgoingRequest, OutgoingRequests
from mcpio.engine.table import Input, Phase, RequestInput, RequestState, Role
from mcpio.errors import ErrorCode, InvalidMessage, McpError, RemoteProtocolError, RequestError
from mcpio.events import (
    Answered,
    CancelReceived,
    CloseReason,
    IgnoreReason,
    Initialized,
    MessageIgnored,
    NoiseReceived,
    NotificationReceived,
    ProgressReceived,
    ProtocolViolated,
    RequestContext,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
)
from mcpio.framing import jsonrpc
from mcpio.framing.lines import Overlong
from mcpio.methods import METHODS, Method, declares
from mcpio.methods import Kind as MessageKind
from mcpio.revisions import LATEST_HANDSHAKE, REV_2025_11_25, Revision
from mcpio.types.custom import CustomNotification, CustomRequest
from mcpio.types.lifecycle import CancelledNotification, Implementation, ProgressNotification
from mcpio.types.meta import META_RELATED_TASK

if TYPE_CHECKING:
    from mcpio.engine.batches import Batches, JoinedAnswers
    from mcpio.engine.dialect import DialectDecoder, DialectEncoder
    from mcpio.engine.outgoing_tasks import OutgoingTasks

__all__ = ["Inbound"]

# Found once, since every message needs them: see the same in ``channel``.
_RECV_REQUEST, _RECV_RESULT = Input.RECV_REQUEST, RequestInput.RECV_RESULT

_TITLES = {ErrorCode.PARSE_ERROR: "Parse error", ErrorCode.INVALID_PARAMS: "Invalid params"}


class Inbound(Channel):
    """The receiving half of a connection, and the state that both halves share."""

    __slots__ = (
        "_accent",
        "_batches",
        "_codec",
        "_context",
        "_incoming",
        "_instructions",
        "_options",
        "_outgoing",
        "_receivable",
        "_tasks",
        "_translator",
        "can_reach",
        "capabilities",
        "info",
        "instructions",
    )

    info: Implementation
    """Who this side is."""
    capabilities: Any
    """What this side declares: ``ClientCapabilities`` or ``ServerCapabilities``."""
    instructions: str | None
    """For servers: a hint for the client's model, sent with the answer to ``initialize``."""
    can_reach: Callable[[Hashable], bool] | None
    """For transports with exchanges: tells whether a message of our own can get out by an exchange (its ``via``), or by
    none (``None``), now or later (P11). No part of a snapshot."""

    def __init__(self, info: Implementation, capabilities: Capabilities, options: Options) -> None:
        super().__init__(options.limits)
        self.can_reach = None
        self.info = info
        self.capabilities = capabilities
        self.instructions = None
        self._options = options
        self._outgoing = OutgoingRequests(self._timers, options.limits.retired_ids)
        self._incoming = IncomingRequests(self._held)
        self._tasks: OutgoingTasks | None = None
        self._codec: Codec = codec(LATEST_HANDSHAKE)
        self._context: RequestContext | None = None
        self._receivable: Mapping[str, tuple[Method, tuple[str, ...]]] = {}
        self._instructions: str | None = None
        self._batches: Batches | None = None
        self._translator: DialectDecoder | None = None
        self._accent: DialectEncoder | None = None
        if options.profiles or options.emit_profile is not None:
            self._set_dialects(options)

    @property
    def revision(self) -> Revision | None:
        """The revision of the handshake session, ``None`` before it is settled."""
        return None if self._context is None else self._context.revision

    def has_deferred(self, via: Hashable) -> bool:
        """Whether a request that came by an exchange waits for room."""
        return self._inbox.is_deferred(via)

    @property
    def options(self) -> Options:
        """What the caller chose for this connection."""
        return self._options

    def _set_instructions(self, own: str | None, peer: str | None) -> None:
        self.instructions = own
        self._instructions = peer

    def _settle(self, context: RequestContext) -> None:
        """Enter the handshake session that the two sides agreed on."""
        self._context = context
        self._codec = codec(context.revision)
        self._receivable = receivable(self.role, context.revision)

    # By kind of message

    def _receive_text(self, text: bytes | str, via: Hashable) -> None:
        if len(text) * LARGEST_FACTOR > self._limits.peer_bytes and parsed_size(text) > self._limits.peer_bytes:
            self._receive_overlong(Overlong(len(text), head(text).encode(errors="replace")), via)
        elif not ((self._inbox.has_deferred or self._is_full()) and self._defer(text, via)):
            # Requests that wait already go first.
            self._receive_deferred(text, via)

    def _receive_deferred(self, text: bytes | str, via: Hashable) -> None:
        if self._translator is not None:
            self._receive_translated(self._translator, text, via)
            return
        message = jsonrpc.parse(text)
        if message.__class__ is jsonrpc.Request:
            self._receive_request(message, via, self._size_of(text))
        else:
            self._receive(message, text, via)

    def _size_of(self, text: bytes | str) -> int:
        """Return how many bytes a request takes while it runs. It is looked at closely where much runs already."""
        size = REQUEST_COST + TYPICAL_FACTOR * len(text)
        if self._held.requests + size > self._limits.peer_bytes // 8:
            size = REQUEST_COST + parsed_size(text)
        return size

    def _defer(self, text: bytes | str, via: Hashable) -> bool:
        """Put aside what would run something; return whether it was. Answers and cancellations may make room."""
        message = jsonrpc.parse(text)
        if isinstance(message, jsonrpc.Batch):
            if not any(isinstance(jsonrpc.classify(item), jsonrpc.Request) for item in message.items):
                return False
            self._inbox.defer(None, text, via)
            return True
        if not isinstance(message, jsonrpc.Request) or message.method == "ping":
            return False
        self._inbox.defer(message.id, text, via)
        return True

    def _receive(self, message: jsonrpc.Message, text: bytes | str, via: Hashable) -> None:
        match message:
            case jsonrpc.Request():
                self._receive_request(message, via, self._size_of(text))
            case jsonrpc.Result():
                self._receive_result(message, via)
            case jsonrpc.Notification():
                self._receive_notification(message, via)
            case jsonrpc.Error():
                self._receive_error(message, via)
            case jsonrpc.Batch():
                self._receive_batch(message, text, via)
            case _:
                self._receive_malformed(message, text, via)

    @abstractmethod
    def _receive_batch(self, batch: jsonrpc.Batch, text: bytes | str, via: Hashable) -> None:
        """Act on an array, which is a message in some revisions only."""

    @abstractmethod
    def _receive_translated(self, translator: DialectDecoder, text: bytes | str, via: Hashable) -> None:
        """Act on a text that may be in the words of a dialect."""

    @abstractmethod
    def _set_dialects(self, options: Options) -> None:
        """Begin to understand and to speak dialects."""

    @abstractmethod
    def _release(self, answers: JoinedAnswers | None) -> None:
        """Send the answers to a batch if they are all there. This may be the end."""

    def _receive_malformed(self, message: jsonrpc.Malformed, text: bytes | str, via: Hashable) -> None:
        # Where the input ends inside an answer, the loss of the connection is what ended the request.
        is_cut = message.raw is None and self._inbox.is_cut
        request = None if is_cut else self._request_of(message.answers)
        if request is not None:
            error = InvalidMessage("", f"the answer is malformed: {message.reason}")
            self._fail_unreadable(request, error, message.raw)
        elif message.code == ErrorCode.PARSE_ERROR and self.role is Role.CLIENT:
            # What a server prints beside its messages is no reason to write to it (STDIO-05, STDIO-12).
            size = len(text if isinstance(text, bytes) else text.encode(errors="replace"))
            self._events.append(NoiseReceived(head(text), size))
        elif message.answerable:
            raw = head(text) if message.raw is None else message.raw
            self._rebuke(message.code, message.reason, raw, via, to=message.id)
        else:
            self._violate(message.code, message.reason, message.raw, via)

    def _request_of(self, id: object) -> OutgoingRequest | None:
        """Return our running request of that id on the wire. ``1``, ``"1"`` and ``1.0`` differ (RPC-08)."""
        return self._outgoing.get(id) if id.__class__ is int else None

    def _fail_unreadable(self, request: OutgoingRequest, error: InvalidMessage, raw: Any) -> None:
        """End a request of our own whose answer came, but cannot be read: no other will come."""
        self._fail(request, RequestInput.RECV_ERROR, error, raw)

    def _receive_overlong(self, overlong: Overlong, via: Hashable) -> None:
        fault = f"a message is longer than {self._limits.message_bytes} bytes"
        request = self._request_of(jsonrpc.answered_id(overlong.head))
        if request is not None:
            self._fail_unreadable(request, InvalidMessage("", fault), None)
        else:
            head = overlong.head.decode(errors="replace")[:QUOTE]
            self._rebuke(self._code("message too large"), fault, head, via)
        if not self._limits.resync and via is None and self._phase is not Phase.CLOSED:
            self._inbox.clear()
            self._inbox.ended = self._end_received = True
            self._begin_closing(Input.RECV_END, CloseReason.MESSAGE_TOO_LARGE, grace=5.0)

    # Requests

    def _receive_request(self, message: jsonrpc.Request, via: Hashable, size: int) -> None:
        """Act on a request; ``size`` is how many bytes it takes while it runs."""
        name = message.method
        if name == "ping":
            self._step(Input.RECV_PING)
            self._events.append(Answered(name, None, message.raw, via))
            self._answer(jsonrpc.encode_result(message.id, {}), via)
            return
        if name == "initialize":
            self._receive_initialize(message, via)
            return
        row = self._receivable.get(name)
        method = None if row is None else row[0]
        refusal = self._why_refused(message, row, via)
        if refusal is not None:
            self._refuse(message, refusal, via)
            return
        odd: list[str] = []
        try:
            params = message.params
            request = (
                CustomRequest(name, params) if method is None else self._codec.decode(params, method.params_type, odd)
            )
            token = _progress_token(params)
        except InvalidMessage as error:
            self._refuse(message, invalid_params(error), via)
            return
        fault = why_not_served(name, params, self._codec.revision, self.capabilities)
        if fault is not None:
            self._refuse(message, RequestError(ErrorCode.INVALID_PARAMS, f"Invalid params: {fault}"), via)
            return
        self._step(_RECV_REQUEST)
        incoming = self._incoming
        record = IncomingRequest(incoming.next_id, message.id, name, method, token, via, size)
        meta = params.get("_meta")
        if meta.__class__ is dict and META_RELATED_TASK in meta:
            record.task = self._related_task(name, meta)
        if method is not None and method.task_capability:
            # In other revisions the member is an unknown one, and means nothing.
            record.wants_task = getattr(request, "task", None) is not None
        reused = incoming.was_used(message.id, via)
        incoming.add(record)
        context: Any = self._context if via is None else self._context_for(via)
        if odd:
            self._report_odd(name, odd, message.raw, via)
        self._events.append(RequestReceived(record.id, request, context, message.raw, reused))

    def _related_task(self, name: str, meta: dict[str, Any]) -> str | None:
        """Return the task that a request belongs to, for its answer to say the same (TASK-28)."""
        if self.revision is not REV_2025_11_25 or name.startswith("tasks/"):
            return None
        related = meta[META_RELATED_TASK]
        task_id = related.get("taskId") if isinstance(related, dict) else None
        return task_id if isinstance(task_id, str) else None

    def _why_refused(
        self, message: jsonrpc.Request, row: tuple[Method, tuple[str, ...]] | None, via: Hashable
    ) -> RequestError | None:
        """Return the error for a request that is not run, or ``None``."""
        name = message.method
        known = row is not None or (self._context is None and self._may_become_known(name))
        if not known and name not in self._options.custom_methods:
            return _not_found(name)
        early = self._options.strict_initialized and self._phase is Phase.INITIALIZING
        if early or _RECV_REQUEST not in self._row:
            reason = "closing" if self._phase is Phase.CLOSING else "not initialized"
            return RequestError(self._code(reason), f"Invalid request: {reason}", {"reason": reason})
        if row is not None and not offers(self.capabilities, row[1]):
            return _not_found(name)
        if self._incoming.is_running(message.id if via is None else (via, message.id)):
            return RequestError(ErrorCode.INVALID_REQUEST, "Invalid request: this id is in use by a running request")
        limit = self._limits.incoming_requests
        if len(self._incoming) >= limit:
            data = {"reason": "too many requests", "limit": limit}
            return RequestError(ErrorCode.INTERNAL_ERROR, "Too many requests at once", data)
        return None

    def _may_become_known(self, name: str) -> bool:
        """Whether a method could be served, once a revision is settled (LIFE-11, LIFE-22)."""
        return any(name in receivable(self.role, revision) for revision in self._options.revisions)

    def _refuse(self, message: jsonrpc.Request, error: RequestError, via: Hashable) -> None:
        self._events.append(Answered(message.method, error, message.raw, via))
        self._answer_error(message.id, error, via)

    @abstractmethod
    def _receive_initialize(self, message: jsonrpc.Request, via: Hashable) -> None:
        """Act on ``initialize``: only a server serves it, and only once."""

    # Responses

    def _receive_result(self, message: jsonrpc.Result, via: Hashable) -> None:
        request = self._outgoing.get(message.id) if message.id.__class__ is int else None
        if request is None:
            self._receive_stray(message, via)
            return
        odd: list[str] = []
        try:
            result = (
                message.result if request.method is None else self._decode_result(message, request, request.method, odd)
            )
        except InvalidMessage as error:
            self._fail(request, RequestInput.RECV_ERROR, error, message.raw)
            return
        self._outgoing.finish(request, _RECV_RESULT)
        if odd:
            self._report_odd(f"the result of {request.name}", odd, message.raw, via)
        self._events.append(ResponseReceived(request.id, result, request.cookie, message.raw))
        if request.task is not None:
            self._note_task(request, result)
        elif self._tasks is not None:
            self._tasks.observe(result)

    def _decode_result(self, message: jsonrpc.Result, request: OutgoingRequest, method: Method, odd: list[str]) -> Any:
        wanted = method.result_type
        if request.task is not None and created_task(message.result) is not None:
            # A receiver may ignore that a task was asked for: the result itself tells (TASK-03).
            from mcpio.types.tasks import CreateTaskResult

            wanted = CreateTaskResult
        return self._codec.decode(message.result, wanted, odd)

    def _note_task(self, request: OutgoingRequest, result: Any) -> None:
        """Keep a request in mind whose task goes on: its progress still comes (PROG-07)."""
        from mcpio.engine.outgoing_tasks import OutgoingTasks
        from mcpio.types.tasks import CreateTaskResult

        if isinstance(result, CreateTaskResult):
            if self._tasks is None:
                self._tasks = OutgoingTasks(self._limits.outgoing_tasks)
            self._tasks.add(request, result.task.task_id)

    def _receive_error(self, message: jsonrpc.Error, via: Hashable) -> None:
        if message.id is None:
            self._events.append(MessageIgnored(IgnoreReason.CONNECTION_ERROR, message.raw, via))
            return
        request = self._request_of(message.id)
        if request is None:
            self._receive_stray(message, via)
            return
        error = decoded_error(message, request.name, self._codec)
        self._fail(request, RequestInput.RECV_ERROR, error, message.raw)

    def _receive_stray(self, message: jsonrpc.Result | jsonrpc.Error, via: Hashable) -> None:
        """Tell an answer that crossed our cancellation from one that is the peer's fault (CANC-07)."""
        request_id = message.id if isinstance(message.id, int) else 0
        state = self._outgoing.state_of(request_id)
        # Our requests are given up when the connection begins to close; their answers may be under way.
        if state not in (None, RequestState.ANSWERED) or (state is not None and self._phase is Phase.CLOSING):
            self._events.append(MessageIgnored(IgnoreReason.LATE_RESPONSE, message.raw, via))
            if message.__class__ is jsonrpc.Result and (task_id := created_task(message.result)) is not None:
                self._outgoing.forget(request_id)
                self._cancel_task(task_id)
            return
        what = "was never sent" if state is None else "was answered before"
        self._violate(
            ErrorCode.INVALID_REQUEST, f"a response to id {message.id!r:.100}, which {what}", message.raw, via
        )

    def _cancel_task(self, task_id: str) -> None:
        """Ask for the end of a task that nobody here wants (CANC-04), if the peer takes that. Nobody hears of it."""
        context = self._context
        if context is None or not declares(context.capabilities, ("tasks", "cancel")):
            return
        if self._allows(Input.SEND_REQUEST):
            text = jsonrpc.encode_request(int(self._outgoing.use_up()), "tasks/cancel", {"taskId": task_id})
            self._outbox.put(text, Kind.REQUEST)
            self._check_outbox()

    # Notifications

    def _receive_notification(self, message: jsonrpc.Notification, via: Hashable) -> None:
        method = METHODS.get(message.method)
        if message.method == "notifications/cancelled":
            self._receive_cancelled(message, via)
        elif message.method == "notifications/progress":
            self._receive_progress(message, via)
        elif method is not None and method.kind is MessageKind.REQUEST:
            self._violate(ErrorCode.INVALID_REQUEST, f"{message.method} came without an id", message.raw, via)
        elif method is not None and not addressed_to(method, self.role):
            self._ignore(IgnoreReason.WRONG_DIRECTION, message, via)
        elif message.method == "notifications/initialized":
            self._receive_initialized(message, via)
        elif self._context is None:
            self._ignore(IgnoreReason.NOT_INITIALIZED, message, via)
        else:
            notification = self._decode_notification(message, method, via)
            if notification is not None:
                context = self._context_for(via)
                self._events.append(NotificationReceived(notification, context, message.raw))
                if self._tasks is not None:
                    self._tasks.observe(notification)

    def _receive_initialized(self, message: jsonrpc.Notification, via: Hashable) -> None:
        if self._allows(Input.RECV_INITIALIZED):
            self._step(Input.RECV_INITIALIZED)
            self._events.append(Initialized(message.raw))
        else:
            self._ignore(IgnoreReason.NOT_INITIALIZED, message, via)

    def _decode_notification(self, message: jsonrpc.Notification, method: Method | None, via: Hashable) -> Any:
        """Return the typed notification, or report what is wrong with it and return ``None`` (RPC-13)."""
        if method is None:
            return CustomNotification(message.method, message.params)
        odd: list[str] = []
        try:
            notification = self._codec.decode(message.params, method.params_type, odd)
        except InvalidMessage as error:
            self._violate(ErrorCode.INVALID_PARAMS, f"{message.method}: {error}", message.raw, via)
            return None
        if odd:
            self._report_odd(message.method, odd, message.raw, via)
        return notification

    def _receive_cancelled(self, message: jsonrpc.Notification, via: Hashable) -> None:
        cancelled: CancelledNotification | None = self._decode_notification(message, METHODS[message.method], via)
        if cancelled is None:
            return
        named = [] if cancelled.request_id is None else self._incoming.named(cancelled.request_id, via)
        if not named and cancelled.request_id is not None and self._inbox.drop_deferred(cancelled.request_id, via):
            self._ignore(IgnoreReason.NOT_STARTED, message, via)
            return
        if len(named) != 1:
            reason = IgnoreReason.AMBIGUOUS_REQUEST if named else IgnoreReason.UNKNOWN_REQUEST
            self._ignore(reason, message, via)
            return
        self._incoming.finish(named[0], RequestInput.RECV_CANCEL)
        self._events.append(CancelReceived(named[0].id, cancelled.reason, message.raw))
        if self._batches is not None and named[0].id in self._batches:
            self._release(self._batches.settle(named[0].id, None))

    def _receive_progress(self, message: jsonrpc.Notification, via: Hashable) -> None:
        report: ProgressNotification | None = self._decode_notification(message, METHODS[message.method], via)
        if report is None:
            return
        token = report.progress_token
        request = self._outgoing.get(token) if token.__class__ is int else None
        if request is None and token.__class__ is int and self._tasks is not None:
            request = self._tasks.get(token)
        if request is None or request.progress is None:
            used = token.__class__ is int and self._outgoing.state_of(int(token)) not in (None, RequestState.RUNNING)
            self._ignore(IgnoreReason.LATE_PROGRESS if used else IgnoreReason.UNKNOWN_TOKEN, message, via)
            return
        if not report.progress > request.progress:
            fault = f"progress went from {request.progress!r:.30} to {report.progress!r:.30}: it must increase"
            self._violate(ErrorCode.INVALID_PARAMS, fault, message.raw, via)
            return
        request.progress = report.progress
        self._outgoing.touch(request, self._now)
        self._events.append(
            ProgressReceived(request.id, report.progress, report.total, report.message, request.cookie, message.raw)
        )

    # Shared with the sending half

    def _answer(self, text: bytes, via: Hashable) -> None:
        """Send a response that no handler gives. Report first: this may be the end."""
        if self._batches is not None and self._batches.collect(text):
            return
        # What goes by one exchange must not wait for what goes by another.
        lane = ANSWERS if via is None else (ANSWERS, via)
        self._outbox.put(text, Kind.RESPONSE, via=via, last=True, lane=lane)
        self._check_outbox()

    def _answer_error(self, wire_id: int | str | None, error: RequestError, via: Hashable) -> None:
        # Before 2025-11-25 an error without a request has a null id, from then on none (RPC-12).
        with_null = self.revision is None or self.revision < REV_2025_11_25
        text = jsonrpc.encode_error(wire_id, error.code, error.message, error.data, with_null_id=with_null)
        self._answer(text, via)

    def _code(self, reason: str) -> int:
        """Return the code for an invalid request: that of a dialect, where it has one for the reason."""
        return ErrorCode.INVALID_REQUEST if self._translator is None else self._translator.code(reason)

    def _report_odd(self, what: str, odd: list[str], raw: Mapping[str, Any], via: Hashable) -> None:
        """Report the members that a message is read without because their type is wrong (CONT-04)."""
        more = f" (and {len(odd) - 1} more)" if len(odd) > 1 else ""
        self._violate(ErrorCode.INVALID_PARAMS, f"{what} is read without a member: {odd[0]}{more}", raw, via)

    def _violate(self, code: int, fault: str, raw: Any, via: Hashable) -> None:
        """Report a fault of the peer's that gets no answer."""
        self._events.append(ProtocolViolated(RemoteProtocolError(fault, code=code), raw, via))

    def _rebuke(self, code: int, fault: str, raw: Any, via: Hashable, *, to: int | str | None = None) -> None:
        """Report a fault of the peer's, and answer it: to that id, or to nothing in particular."""
        self._violate(code, fault, raw, via)
        self._answer_error(to, RequestError(code, f"{_TITLES.get(code, 'Invalid request')}: {fault}"), via)

    def _ignore(self, reason: IgnoreReason, message: jsonrpc.Notification, via: Hashable) -> None:
        self._events.append(MessageIgnored(reason, message.raw, via))

    def _fail(self, request: OutgoingRequest, what: RequestInput, error: McpError, raw: Any = None) -> None:
        """Give one of our own requests its one outcome: a failure."""
        self._outgoing.finish(request, what)
        self._events.append(RequestFailed(request.id, error, request.cookie, raw))

    def _context_for(self, via: Hashable) -> RequestContext:
        context = self._context
        if context is None or via is None:
            return context  # type: ignore[return-value]  # callers have checked that the session is negotiated
        return RequestContext(
            context.era,
            context.revision,
            context.capabilities,
            context.info,
            context.log_level,
            context.principal,
            via,
        )


def _progress_token(params: dict[str, Any]) -> int | str | None:
    """Return the token that the peer wants progress under, of just the type it has on the wire (PROG-01, PROG-05)."""
    meta = params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    if token is None or token.__class__ is int or token.__class__ is str:
        return token
    raise InvalidMessage("_meta.progressToken", f"expected a string or an integer, not {token!r:.100}")


def created_task(result: Mapping[str, Any]) -> str | None:
    """Return the id of the task that a result says was created, ``None`` for a result of another kind (TASK-09)."""
    task = result.get("task")
    task_id = task.get("taskId") if isinstance(task, dict) else None
    return task_id if isinstance(task_id, str) else None


def invalid_params(error: InvalidMessage) -> RequestError:
    path = f"params.{error.path}" if error.path else "params"
    return RequestError(ErrorCode.INVALID_PARAMS, f"Invalid params: {path}: {error.reason}", {"path": path})


def _not_found(name: str) -> RequestError:
    return RequestError(ErrorCode.METHOD_NOT_FOUND, f"Method not found: {name:.100}")
