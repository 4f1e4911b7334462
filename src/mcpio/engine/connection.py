"""A connection: the verbs that both roles have, and the dispatch of incoming messages.

Every verb validates first, then mutates, then emits: after a ``LocalProtocolError`` nothing has changed (P3). Input is
parsed one message at a time, when the caller pulls an event, so that everything before a fault is delivered (P2).

The obligation, after every call that is not a mere look: *drain the events, write the chunks, re-arm the deadline.*
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import attrs

from mcpio._checks import chosen, is_count
from mcpio.codec import BoundedOddities, codec
from mcpio.engine.answers import LOG, Answers, Observer
from mcpio.engine.channel import (
    ANSWERS,
    CLOSE_TIMER,
    KEEP,
    KEEP_ALIVE_TIMER,
    LAST_WRITE,
    QUOTE,
    STALL_TIMER,
    Channel,
    Outgoing,
    head,
)
from mcpio.engine.channel import Kind as Queued
from mcpio.engine.envelope import progress_token
from mcpio.engine.gates import LISTEN, NOT_FOUND, Admission, Capabilities, addressed_to, admission, read_params
from mcpio.engine.handshake import Handshake, created_task
from mcpio.engine.limits import (
    DEFAULT,
    LARGEST_FACTOR,
    Default,
    Held,
    Timeout,
    check_time,
    request_size,
    seconds,
    takes_too_much,
)
from mcpio.engine.options import KEEP_ALIVE, Options, Silence
from mcpio.engine.payloads import (
    check_declared,
    coalescing_key,
    encode,
    is_notification,
    method_to_send,
    payload_of,
    related_task_of,
    with_progress_token,
    with_related_task,
)
from mcpio.engine.pending import (
    NOT_YET,
    IncomingDialogue,
    IncomingRequest,
    IncomingRequests,
    OutgoingRequest,
    OutgoingRequests,
    Pending,
    Unanswered,
)
from mcpio.engine.table import LIFE_TABLE, TABLE, Input, Life, Phase, RequestInput, RequestState, Role
from mcpio.errors import (
    ConnectionLost,
    ErrorCode,
    InvalidMessage,
    LocalProtocolError,
    McpError,
    MessageTooLarge,
    NoBackChannel,
    OutputFull,
    RemoteProtocolError,
    RequestCancelled,
    RequestError,
    RequestTimeout,
)
from mcpio.events import (
    Answered,
    CancelReceived,
    CloseReason,
    ConnectionClosed,
    Event,
    IgnoreReason,
    IncomingId,
    Initialized,
    MessageIgnored,
    NoiseReceived,
    NotificationReceived,
    OutgoingId,
    Peer,
    ProgressReceived,
    ProtocolViolated,
    RequestContext,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
)
from mcpio.framing import jsonrpc
from mcpio.framing.lines import Overlong
from mcpio.methods import METHODS, TASK_EXTENSION_METHODS, Kind, Method, declares, method_of
from mcpio.revisions import LATEST_HANDSHAKE, REV_2025_11_25, Era, Revision
from mcpio.types.base import META_PROTOCOL_VERSION, META_RELATED_TASK, CustomNotification, RawRequest
from mcpio.types.features import (
    CancelledNotification,
    DiscoverRequest,
    Implementation,
    PingRequest,
    ProgressNotification,
)

if TYPE_CHECKING:
    from mcpio.engine.dialect import Batches, DialectDecoder, JoinedAnswers, Step
    from mcpio.engine.snapshot import IncomingState, SessionState
    from mcpio.engine.tasks import OutgoingTasks

__all__ = ["ANY", "Connection", "ConnectionStats"]

ANY: Final = object()
"""Any exchange."""

_GRACE: Final = 5.0
"""Seconds for pending answers when the peer causes the close: the default of ``close``."""
_TITLES: Final = {ErrorCode.PARSE_ERROR: "Parse error", ErrorCode.INVALID_PARAMS: "Invalid params"}
_ASK_STATELESSLY: Final = "a client without a session is asked by an InputRequiredResult, as the answer to its request"
_STATELESS_WAYS: Final = {Input.SEND_REQUEST: _ASK_STATELESSLY, Input.SEND_PING: "only a session has pings"}
_AFTERLIFE: Final = {Life.CLOSING: Phase.CLOSING, Life.CLOSED: Phase.CLOSED}

# Looked up once, since every message needs them: before Python 3.12 an enumeration finds its members by a slow path.
_NEVER: Final = float("inf")
_OPEN, _CLOSING, _CLOSED = Life.OPEN, Life.CLOSING, Life.CLOSED
_OPERATING = Phase.OPERATING
_RECV_RESULT, _SEND_RESULT = RequestInput.RECV_RESULT, RequestInput.SEND_RESULT


@attrs.frozen
class ConnectionStats:
    """Counters of a connection, since it was made or restored."""

    received_bytes: int
    """How many bytes were fed. Of text, its characters count."""
    sent_bytes: int
    """How many bytes of messages were pulled to be written."""
    queued_bytes: int
    """How many bytes of messages wait to be pulled, by their size in memory."""
    dropped_logs: int
    """How many log messages were dropped because the peer did not read."""


class Connection(Answers):
    """One end of a conversation. See ``ClientConnection`` and ``ServerConnection``."""

    __slots__ = (
        "_admission",
        "_batches",
        "_bounded",
        "_capabilities",
        "_channel",
        "_decoder",
        "_events",
        "_handshake",
        "_outgoing",
        "_ready",
        "_sendable",
        "_sender",
        "_silence",
        "_tasks",
        "can_reach",
        "info",
    )

    _incoming: IncomingRequests
    role: ClassVar[Role]
    _capabilities_type: ClassVar[type[Any]]
    _peer_capabilities_type: ClassVar[type[Any]]

    info: Implementation
    """The name and version of this side."""
    instructions: str | None = None
    """For servers: a hint for the client's model, sent with the answer to ``initialize``."""
    can_reach: Callable[[Hashable], bool] | None
    """For transports with exchanges: tells whether an outgoing message can get out by an exchange (its ``via``), or by
    none (``None``), now or later (P11). No part of a snapshot."""

    def __init__(
        self,
        info: Implementation,
        capabilities: Capabilities,
        *,
        options: Options | None = None,
        can_reach: Callable[[Hashable], bool] | None = None,
    ) -> None:
        options = chosen("options", options, Options)
        if can_reach is not None and not callable(can_reach):
            raise TypeError(f"can_reach must be a function of an exchange, not {can_reach!r:.60}")
        check_declared(info, capabilities, self._capabilities_type)
        self.info = info
        self._capabilities = capabilities
        self.can_reach = can_reach
        self._options = options
        self._channel = channel = Channel(options.limits, self.role)
        self._outgoing = OutgoingRequests(channel.timers, options.limits)
        self._incoming = IncomingRequests(channel.held)
        # Made when a message needs them, since most connections never do.
        self._handshake: Handshake | None = None
        self._batches: Batches | None = None
        self._tasks: OutgoingTasks | None = None
        self._silence = None if options.keep_alive is None else Silence(options.keep_alive)
        self._decoder: DialectDecoder | None = None
        if options.profiles:
            from mcpio.engine.dialect import DialectDecoder

            hook, most = options.on_tasks_create, options.limits.batch_items
            self._decoder = DialectDecoder(options.profiles, self.role is Role.SERVER, hook, most)
        self._bounded: BoundedOddities | None = None  # while a large text is processed
        self._events: list[Event] = []
        self._ready: list[Event] | None = None  # older than those of _events, the oldest last
        # The principal of the message that is being acted on, or KEEP for that of the connection.
        self._sender: Hashable = KEEP
        self._observers: tuple[Observer, ...] | None = None
        self._admission: Mapping[str, Admission] = self._admitted()
        # The request that was allowed out last, until anything changes that this depends on. One name: idle engines
        # are small, and most callers repeat themselves.
        self._sendable: Method | None = None

    # Feed

    def receive_data(self, data: bytes | None, now: float) -> None:
        """Feed bytes of a line-framed channel, or ``None`` for the end of file. Never raises for the peer's bytes.

        Empty bytes do nothing, and input after the end is ignored. ``now`` is in seconds on the caller's monotonic
        clock. Drain the events, write the chunks, re-arm the deadline.
        """
        was_open = self._channel.receive_data(data, now)
        # Ignored input is not observed, so that a recording has only what counts.
        if self._observers and was_open and data != b"":
            data = None if data is None else bytes(data)  # the caller may write into its buffer again
            self._tell("received", data)
            self._tell_call("receive_data", data=data)

    def receive_message(
        self,
        text: bytes | str | None,
        now: float,
        *,
        via: Hashable = None,
        principal: Hashable = KEEP,
        parsed: jsonrpc.Message | None = None,
    ) -> None:
        """Feed one whole JSON text of a channel with message boundaries, or ``None`` for its end.

        ``via`` names the exchange that brought it, where the transport has exchanges, and comes back on every event
        that the message causes. ``principal`` is who sent it, for transports that authenticate each message: a token
        may change within a session. By default it is the principal of the connection. ``parsed`` is
        ``jsonrpc.parse(text)``, for transports that had to look into the text already. Drain the events, write the
        messages, re-arm the deadline.
        """
        was_open = self._channel.receive_message(text, now, via, principal, parsed)
        if self._observers and was_open:
            self._tell_call("receive_message", text=text, via=via)

    def connection_lost(self, cause: BaseException | None, now: float) -> None:
        """Report that the channel broke. Input fed earlier is still processed; no more output is sent.

        With ``Options.reopens`` a client loses only the session with it, as ``reset_session`` says, and goes on: with
        another channel, or by this verb once more, to end. Drain the events, re-arm the deadline.
        """
        if cause is not None and not isinstance(cause, BaseException):
            raise LocalProtocolError(f"cause must be an exception or None, not {cause!r:.60}")
        self._channel.advance(now)
        self._receive_all()
        self._lose_channel(cause)
        if self._observers:
            self._tell_call("connection_lost", cause=cause)

    # Pull

    def next_event(self) -> Event | None:
        """Return the next event, or ``None`` for "feed me".

        At most one message is parsed, so whatever came before a fault is delivered before it.
        """
        ready = self._ready
        if not ready:
            events = self._events
            while not events:
                # A deferred request has no event yet.
                if not self._receive_next():
                    if self._observers:
                        self._tell_call("next_event")
                    return None
            if len(events) > 1:
                # Taking the first of a list moves all others: with many, that is the square of their number.
                events.reverse()
                self._ready, self._events = events, []
            ready = events
        event = ready.pop()
        if not ready:
            self._ready = None
        if self._observers:
            self._tell("event", event)
        return event

    def events(self) -> Iterator[Event]:
        """Drain: yield every event until the connection wants to be fed."""
        while (event := self.next_event()) is not None:
            yield event

    def data_to_send(self, max_bytes: int = 65536) -> list[bytes | None]:
        """Return chunks to write, in order, about ``max_bytes`` in total; empty if no output waits.

        ``None`` among them is a half-close (a close, where the channel has none), given once and last. Pull only when
        the previous chunks are written: what is not pulled still belongs to the engine, and its policies and limits
        apply to it.
        """
        if (max_bytes.__class__ is not int or max_bytes < 0) and not is_count(max_bytes):  # a call costs more
            raise LocalProtocolError(f"max_bytes must be a number of bytes, not {max_bytes!r:.60}")
        channel = self._channel
        chunks = channel.pull(max_bytes)
        if channel.life is _CLOSING and self._end_if_due():
            chunks.append(None)
        if chunks and self._observers:
            for chunk in chunks:
                self._tell("sent", chunk)
                if chunk is not None:
                    self._tell("message_sent", chunk[:-1], None)
            self._tell_call("data_to_send", max_bytes=max_bytes, chunks=tuple(chunks))
        return chunks

    def next_message(self, *, via: Hashable = ANY) -> Outgoing | None:
        """Return the next message of a channel with message boundaries, or ``None`` if no message waits.

        ``via`` asks for one that goes by that exchange, or by none where it is ``None``: for transports whose exchanges
        have room at different times. Pull only when the previous one is written. When ``None`` comes and ``closed`` is
        true, or a ``ConnectionClosed`` was reported, the channel is to be closed.
        """
        channel = self._channel
        message = channel.outbox.pop() if via is ANY else channel.outbox.pop_by(via)
        if message is not None:
            channel.sent_bytes += len(message.text)
        has_ended = message is None and self._end_if_due()
        if self._observers:
            if message is not None:
                self._tell("message_sent", message.text, message.via)
            if message is not None or has_ended:
                which = {} if via is ANY else {"via": via}
                self._tell_call("next_message", text=None if message is None else message.text, **which)
        return message

    def take_answer(self, via: Hashable) -> bytes | None:
        """Remove and return the answer to the request of an exchange, if nothing else is to be done.

        That is, if it is the only output, no event waits, and the connection goes on as before the request. Otherwise
        ``None``: drain the events, and take what there is by ``next_message``.
        """
        channel = self._channel
        if self._observers or self._ready or self._events or channel.life is not _OPEN or channel.inbox.deferred_bytes:
            return None
        message = channel.outbox.pop_only(via)
        if message is None:
            return None
        channel.sent_bytes += len(message.text)
        return message.text

    def pending_exchanges(self) -> list[Hashable]:
        """Return the exchanges that ``next_message`` has output for; ``None`` is the output without an exchange."""
        return self._channel.outbox.vias()

    def has_output(self, via: Hashable) -> bool:
        """Return whether ``next_message`` has something for an exchange, or for none where ``via`` is ``None``."""
        return self._channel.outbox.has(via)

    def take_news(self) -> Iterable[Hashable]:
        """Return the exchanges that got a message since the last call; ``None`` for messages without an exchange.

        For transports with many exchanges: those whose clients do not read need not be looked at again and again.
        """
        return self._channel.outbox.take_news()

    def set_unwritten(self, size: int) -> None:
        """Set how many bytes the transport has pulled and not written yet: they count as output.

        For transports that buffer more than they write at once. Drain the events: requests may have room again.
        """
        if (size.__class__ is not int or size < 0) and not is_count(size):  # a call costs more
            raise LocalProtocolError(f"size must be a number of bytes, not {size!r:.60}")
        held = self._channel.held
        before, held.unwritten = held.unwritten, size
        # Observers hear of it where it may decide whether requests wait.
        if self._observers and size != before and max(size, before) > self._channel.limits.high_water:
            self._tell_call("set_unwritten", size=size)

    # Time

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` is due, on the caller's clock, or ``None``. Every call may change it."""
        return self._channel.timers.next()

    def handle_timeout(self, now: float) -> None:
        """Handle deadlines up to ``now``, after parsing the earlier input. Early or repeated calls do nothing.

        Drain the events, write the chunks, re-arm the deadline.
        """
        channel = self._channel
        self._channel.advance(now)
        self._receive_all()
        # An earlier one may have ended the connection, or the session, so each branch looks whether it still counts.
        for key in channel.timers.pop_expired(now):
            if key == STALL_TIMER:
                if channel.is_stalled():
                    self._finish(Input.SEND_ABORT, CloseReason.SLOW_CONSUMER, None)
            elif key == CLOSE_TIMER:
                self._finish(Input.SEND_ABORT, channel.reason, channel.cause)
            elif channel.life is not _CLOSED:
                if key == KEEP_ALIVE_TIMER:
                    self._check_silence()
                else:
                    self._expire(key)
        if self._observers:
            self._tell_call("handle_timeout")

    # The end

    def close(self, now: float, *, grace: float | None = 5.0) -> None:
        """Close gracefully: no new requests; pending answers go out, for at most ``grace`` seconds.

        ``None`` sets no limit. Outgoing requests fail as lost at once. Legal in every phase, any number of times.
        Raises ``LocalProtocolError`` only for a ``grace`` that is not a number of 0 or more.
        Drain the events, write the chunks, re-arm the deadline.
        """
        try:
            limit = seconds("grace", grace)
        except ValueError as error:
            raise LocalProtocolError(str(error)) from None
        self._channel.advance(now)
        self._begin_closing(Input.SEND_CLOSE, CloseReason.CLOSED, limit)
        if self._observers:
            self._tell_call("close", grace=grace)

    def abort(self, cause: BaseException | None = None, *, reason: CloseReason = CloseReason.ABORTED) -> None:
        """Close at once, and send nothing more. Legal in every phase, any number of times. Drain the events."""
        self._finish(Input.SEND_ABORT, reason, cause)
        if self._observers:
            self._tell_call("abort", cause=cause, close_reason=reason.name)

    # Outgoing requests

    def send_request(
        self,
        request: Any,
        now: float,
        *,
        timeout: Timeout | float | Default | None = DEFAULT,
        cookie: Any = None,
        related_to: IncomingId | None = None,
        progress: bool = False,
    ) -> OutgoingId:
        """Send a request. Exactly one ``ResponseReceived`` or ``RequestFailed`` will carry the id that is returned.

        The method follows from the request's type; a ``CustomRequest`` names its own. One with ``task`` asks to become
        a task, where the peer declared that it takes that (2025-11-25): its result is then a ``CreateTaskResult``, or
        the plain one from a peer that does not run it as a task (TASK-03), and progress goes on until the task is over.
        ``timeout`` is in seconds, or a ``Timeout``, or ``None`` for no limit. ``cookie`` comes back in the events of
        this request. ``related_to`` is the peer's running request on whose behalf this one is sent. ``progress`` asks
        for ``ProgressReceived``.

        Raises ``LocalProtocolError``, and changes nothing, where the phase, the revision, the capabilities or the
        limits forbid it; ``OutputFull`` while too many requests wait to be written; and ``NoBackChannel`` once the
        connection is closing: no answer can come any more (P11).
        Drain the events, write the chunks, re-arm the deadline.
        """
        limit = self._options.request_timeout if timeout is DEFAULT else self._timeout(timeout)
        self._check_room()
        parent = None if related_to is None else self._asking(related_to)
        method, name, params = self._checked_request(request)
        if self.can_reach is not None:
            self._check_route(parent)
        id = OutgoingId(self._outgoing.next)
        made, carried, text = self._new_request(id, name, method, params, cookie, parent, progress)
        self._send_request(made, carried, text, limit, now)
        if self._observers:
            self._tell_call(
                "send_request",
                method=name,
                params=params,
                timeout=timeout,
                cookie=cookie,
                related_to=related_to,
                progress=progress,
            )
        return made.id

    def send_batch(
        self, items: Iterable[Any], now: float, *, related_to: IncomingId | None = None
    ) -> tuple[OutgoingId | None, ...]:
        """Send requests and notifications in one array, which only 2025-03-26 has (BATCH-01).

        An item is a payload, or a ``BatchItem`` that gives a request its timeout, its cookie or progress. Returns the
        ids of the requests, and ``None`` in the places of notifications. Each request then has its own outcome
        (BATCH-07), however the peer answers. ``related_to`` is the peer's running request that all belong to. Raises as
        ``send_request`` does, and then nothing was sent.
        Drain the events, write the chunks, re-arm the deadline.
        """
        from mcpio.engine.dialect import as_item

        batch = [as_item(item) for item in items]
        parent = None if related_to is None else self._asking(related_to)
        self._check_batch(len(batch))
        self._check_room()
        self._check_route(parent)
        requests: list[tuple[OutgoingRequest, Timeout]] = []
        texts: list[bytes] = []
        ids: list[OutgoingId | None] = []
        messages: list[dict[str, Any]] = []
        for item in batch:
            id = None if is_notification(item.payload) else OutgoingId(self._outgoing.next + len(requests))
            ids.append(id)
            if id is None:
                _, name, params = self._checked_notification(item.payload)
                texts.append(self._notification_text(self._dialogue, name, params))
            else:
                method, name, params = self._checked_request(item.payload, len(requests))
                request, _, text = self._new_request(id, name, method, params, item.cookie, parent, item.progress)
                requests.append((request, self._timeout(item.timeout)))
                texts.append(text)
            more = {"timeout": item.timeout, "cookie": item.cookie, "progress": item.progress}
            messages.append({"method": name, "params": params, "waits": id is not None, **more})
        batch_text = self._fitting(b"[" + b",".join(texts) + b"]")
        # All checks are behind: only now are the ids given out, and the timeouts started.
        self._channel.advance(now)
        for request, timeout in requests:
            self._outgoing.add(request, timeout, self._channel.now)
        self._channel.outbox.put(
            batch_text,
            Queued.REQUEST if requests else Queued.NOTIFICATION,
            via=None if parent is None else parent.via,
            related=related_to,
            requests=tuple(request.id for request, _ in requests),
        )
        self._check_outbox()
        if self._observers:
            self._tell_call("send_batch", items=messages, related_to=related_to)
        return tuple(ids)

    def cancel_request(self, id: OutgoingId, reason: str | None = None) -> bool:
        """Cancel an outgoing request: it fails with ``RequestCancelled``, and the peer is notified.

        One that asks for a task is cancelled with the task, by ``tasks/cancel``, where the peer takes that, as soon as
        the task has an id (CANC-04): also after its outcome, which was that id, if the task goes on.
        Returns whether anything was cancelled; a request that is over is left alone. Raises ``LocalProtocolError`` for
        an id that was never given out, and for ``initialize`` (LIFE-19).
        Drain the events, write the chunks, re-arm the deadline.
        """
        was_running = self._cancel(id, reason)
        if self._observers:
            self._tell_call("cancel_request", id=id, reason=reason)
        return was_running

    def fail_request(self, id: OutgoingId, error: McpError, now: float) -> bool:
        """Fail an outgoing request with ``error``: for transports that know that no answer to it can come any more.

        The peer is not told. Returns whether it was still running. Drain the events, re-arm the deadline.
        """
        if not isinstance(error, McpError):
            raise LocalProtocolError(f"error must be an McpError, not {error!r:.60}")
        self._channel.advance(now)
        request = self._outgoing.get(id)
        if request is not None:
            self._fail(request, RequestInput.RECV_LOSS, error)
        if self._observers:
            self._tell_call("fail_request", id=id, error=error)
        return request is not None

    def send_notification(self, notification: Any, *, related_to: IncomingId | None = None) -> None:
        """Send a notification; ``related_to`` is the peer's request that it belongs to.

        Progress and cancellation have other verbs; but progress of a task, whose request is answered, goes here:
        a ``ProgressNotification`` with the task in its ``_meta`` (PROG-07). Dropped quietly when the peer cancelled
        that request. Raises ``LocalProtocolError``, and changes nothing, where the phase, the revision or the
        capabilities forbid it, and ``NoBackChannel`` on a closed connection (P11). Drain the events, write the chunks.
        """
        parent = None if related_to is None else self._to_answer(related_to)
        if parent is not None and parent.context.era is Era.STATELESS:
            self._notify_within(parent, notification)
            return
        if parent is None and related_to is not None and self._options.stateless_revisions:
            return  # the request may have been a stateless one, and then the session has no say
        method, name, params = self._checked_notification(notification)
        marked = params if parent is None or parent.task is None else with_related_task(params, parent.task)
        text = self._notification_text(self._dialogue, name, marked)
        if parent is not None or related_to is None:
            self._check_route(parent)
            self._channel.outbox.put(
                text,
                Queued.LOG if name == LOG else Queued.NOTIFICATION,
                via=None if parent is None else parent.via,
                related=related_to,
                key=coalescing_key(method, params),
            )
            self._check_outbox()
        if self._observers:
            self._tell_call("send_notification", method=name, params=params, related_to=related_to)

    # Look

    @property
    def phase(self) -> Phase:
        """The phase of the handshake session while the connection is open; then ``CLOSING`` or ``CLOSED``."""
        life = self._channel.life
        if life is not _OPEN:
            return _AFTERLIFE[life]
        return Phase.NEW if self._handshake is None else self._handshake.phase

    @property
    def revision(self) -> Revision | None:
        """The revision of the handshake session, ``None`` before it is settled."""
        handshake = self._handshake
        return None if handshake is None or handshake.context is None else handshake.context.revision

    @property
    def _spoken(self) -> Revision | None:
        """The revision that the peer speaks, as far as its messages have said."""
        return self.revision

    @property
    def peer(self) -> Peer | None:
        """The peer's name, version and capabilities; ``None`` before the handshake."""
        handshake = self._handshake
        if handshake is None or handshake.context is None:
            return None
        return Peer(handshake.context.info, handshake.context.capabilities, handshake.instructions)

    @property
    def capabilities(self) -> Any:
        """The capabilities of this side: ``ClientCapabilities`` or ``ServerCapabilities``. A change holds at once."""
        return self._capabilities

    @capabilities.setter
    def capabilities(self, capabilities: Any) -> None:
        check_declared(self.info, capabilities, self._capabilities_type)
        self._capabilities = capabilities
        if self._handshake is not None:
            self._handshake.declare(capabilities)
            self._renew_gates()
        if self._observers:
            self._tell_call("capabilities", capabilities=encode(codec(LATEST_HANDSHAKE), capabilities))

    @property
    def options(self) -> Options:
        """The options that the caller chose for this connection."""
        return self._options

    @property
    def pending(self) -> Pending:
        """The requests that have no outcome yet."""
        return Pending(
            tuple(request.id for request in self._outgoing),
            tuple(request.id for request in self._incoming),
            tuple(request.id for request in self._tasks or ()),
        )

    @property
    def unanswered(self) -> tuple[Unanswered, ...]:
        """The peer's requests that wait for an answer: after ``restore``, the caller must run or fail each."""
        return tuple(Unanswered(each.id, each.name, each.via, each.context, each.raw) for each in self._incoming)

    def is_pending(self, id: OutgoingId | IncomingId) -> bool:
        """Return whether a request has no outcome yet: one of ours, or one of the peer's by an ``IncomingId``."""
        table = self._incoming if id.__class__ is IncomingId else self._outgoing
        return table.get(id) is not None

    def has_deferred(self, via: Hashable) -> bool:
        """Return whether a request that came by an exchange waits for room."""
        return self._channel.inbox.is_deferred(via)

    @property
    def wants_read(self) -> bool:
        """Whether to read from the channel now. False means "not now": only ``closed`` ends a loop."""
        return self._channel.wants_read(self._outgoing)

    @property
    def input_ended(self) -> bool:
        """Whether the input has ended. Messages from before may still wait to be parsed."""
        return self._channel.inbox.ended

    @property
    def wants_write(self) -> bool:
        """Whether ``data_to_send`` or ``next_message`` has something to give."""
        channel = self._channel
        return channel.outbox.size > 0 or (channel.life is _CLOSING and self._end_is_due())

    @property
    def closed(self) -> bool:
        """Whether the last event was returned. Write the output that was pulled, then close the channel."""
        return self._channel.life is _CLOSED and not self.has_events

    @property
    def has_events(self) -> bool:
        """Whether ``next_event`` has events to give without being fed; requests that were put aside count."""
        if self._events or self._ready:
            return True
        channel = self._channel
        return channel.inbox.deferred_bytes > 0 and not channel.is_full()

    @property
    def has_room(self) -> bool:
        """Whether more output may be made.

        Outgoing requests may while no more than half of ``Limits.queued_bytes`` of them waits, and anything while no
        more than half of ``Limits.peer_bytes`` does.
        """
        return self._channel.has_room

    @property
    def has_room_for_deferred(self) -> bool:
        """Whether deferred requests may continue: ``next_event`` returns them."""
        return self._channel.has_room_for_deferred

    @property
    def close_deadline(self) -> float | None:
        """When a closing connection gives up the requests that still run; ``None`` for never, or while it is open."""
        return self._channel.timers.get(CLOSE_TIMER)

    @property
    def end(self) -> ConnectionClosed | None:
        """The last event, which says how the connection ended; ``None`` before that."""
        channel = self._channel
        return ConnectionClosed(channel.reason, channel.cause) if channel.life is _CLOSED else None

    @property
    def last_received_at(self) -> float | None:
        """When something came in last, on the caller's clock; ``None`` before that."""
        received_at = self._channel.received_at
        return None if received_at == float("-inf") else received_at

    @property
    def held(self) -> Held:
        """The bytes held for the peer. Its transport keeps ``own`` and ``replay`` up to date, and ``set_unwritten``."""
        channel = self._channel
        held = channel.held
        held.input, held.output = channel.inbox.size, channel.outbox.size
        return held

    def held_for(self, id: IncomingId) -> Held:
        """Return the bytes held on behalf of a request: on a connection, those held for its peer."""
        del id
        return self.held

    @property
    def stats(self) -> ConnectionStats:
        """The counters of this connection, as they are now."""
        channel = self._channel
        outbox = channel.outbox
        return ConnectionStats(channel.received_bytes, channel.sent_bytes, outbox.size, outbox.dropped_logs)

    # State as a value (P12)

    def snapshot(self, now: float, *, cookies: Callable[[Any], int | str | None] | None = None) -> dict[str, Any]:
        """Return the session as a value that JSON can hold (P12).

        Deadlines are kept as remaining seconds. ``cookies`` returns what is to stand for a cookie. An ``IncomingId``
        becomes its number. Raises ``LocalProtocolError`` while events or output are undrained, after the end, and when
        a cookie or a ``via`` is neither a string nor an integer.
        """
        from mcpio.engine.snapshot import dump  # few connections are ever written out

        channel = self._channel
        check_time(now)
        if channel.life is _CLOSED:
            raise LocalProtocolError("a closed connection has no state worth keeping")
        if self.has_events or channel.inbox.pending or (channel.inbox.ended and not channel.end_received):
            raise LocalProtocolError("drain the events before taking a snapshot")
        if self.wants_write:
            raise LocalProtocolError("write the output before taking a snapshot")
        _check_scalars([request.via for request in (*self._outgoing, *self._incoming)], "via")
        state = self._save(now)
        if cookies is not None:
            state = state.with_cookies(cookies)
        state = state.with_cookies(_plain_id)
        _check_scalars(state.cookies, "cookie")
        return dump(state)

    @classmethod
    def restore(
        cls,
        snapshot: Mapping[str, Any],
        now: float,
        *,
        options: Options | None = None,
        principal: Hashable = None,
        can_reach: Callable[[Hashable], bool] | None = None,
    ) -> Self:
        """Return a connection that continues from ``snapshot``; ``now`` is on the new caller's clock.

        Outgoing requests keep their ids, cookies and remaining time; those of the peer are in ``unanswered``, with the
        events to run them again.
        Raises ``LocalProtocolError`` for a snapshot that is malformed, of the other role, or from a newer version.
        """
        from mcpio.engine.snapshot import load  # few connections are ever written out

        state = load(snapshot)
        if state.role != cls.role.value:
            raise LocalProtocolError(f"a snapshot of a {state.role} cannot be restored as a {cls.role.value}")
        try:
            own = codec(LATEST_HANDSHAKE).decode
            connection = cls(
                own(state.info, Implementation),
                own(state.capabilities, cls._capabilities_type),
                options=options or Options(),
                can_reach=can_reach,
            )
            connection._load(state, now, principal)
        except (InvalidMessage, KeyError, ValueError, OverflowError) as error:
            raise LocalProtocolError(f"malformed snapshot: {error}") from error
        return connection

    def _save(self, now: float) -> SessionState:
        """Return the state for a snapshot. Times are relative to ``now``, since another process has another clock."""
        from mcpio.engine.snapshot import SessionState  # few connections are ever written out

        own, handshake, channel = codec(LATEST_HANDSHAKE), self._handshake, self._channel
        context = self._context
        settled = own if handshake is None else handshake.codec
        outgoing, retired = self._outgoing.save(now)
        close_at = channel.timers.get(CLOSE_TIMER)
        return SessionState(
            role=self.role.value,
            phase=self.phase.name,
            revision=None if context is None else context.revision.name,
            info=encode(own, self.info),
            capabilities=encode(own, self.capabilities),
            instructions=self.instructions,
            peer_info=None if context is None else encode(settled, context.info),
            peer_capabilities=None if context is None else encode(settled, context.capabilities),
            peer_instructions=None if handshake is None else handshake.instructions,
            log_level=None if context is None else context.log_level,
            outgoing=outgoing,
            retired=retired,
            next_outgoing=self._outgoing.next,
            incoming=self._incoming.save(),
            finished=self._incoming.save_finished(),
            answered=self._incoming.save_answered(),
            next_incoming=int(self._incoming.next_id),
            unfinished=channel.inbox.unfinished.hex(),
            skipping=channel.inbox.skipping,
            ended=channel.inbox.ended,
            reason=channel.reason.name,
            close_left=None if close_at is None else close_at - now,
            dropped_logs=channel.outbox.dropped_logs,
            tasks=[] if self._tasks is None else self._tasks.save(now),
            batches=[] if self._batches is None else self._batches.save(),
            spoken=None if context is not None or self._spoken is None else self._spoken.name,
        )

    def _load(self, state: SessionState, now: float, principal: Hashable) -> None:
        """Restore the state of a snapshot into a new connection. ``restore`` converts the exceptions."""
        channel = self._channel
        channel.advance(now)
        channel.reason = CloseReason[state.reason]
        phase = Phase[state.phase]
        if phase is Phase.CLOSING:
            channel.life = _CLOSING
        if phase is not Phase.NEW or state.peer_instructions is not None:
            dialogue = self._dialogue
            dialogue.instructions = state.peer_instructions
            # A closing session takes up nothing that its phase would decide.
            dialogue.phase = Phase.NEW if phase is Phase.CLOSING else phase
        if state.revision is not None:
            revision = self._dialogue.revision_of(state.revision)
            decode = codec(revision).decode
            peer = decode(state.peer_capabilities or {}, self._peer_capabilities_type)
            info = decode(state.peer_info or {}, Implementation)
            self._settle(RequestContext(revision.era, revision, peer, info, state.log_level, principal, None))
            if self.role is Role.CLIENT and phase in (Phase.NEW, Phase.INITIALIZING):
                # That session is lost: only the next one is watched.
                channel.timers.clear(KEEP_ALIVE_TIMER)
        if state.outgoing:
            self._outgoing.load(state.outgoing, now, self._dialogue)
        self._outgoing.load_ids(state.next_outgoing, state.retired)
        self._incoming.load(state.incoming, self._dialogue_and_context)
        self._incoming.load_ids(state.next_incoming, state.finished, state.answered)
        channel.inbox.load(bytes.fromhex(state.unfinished), skipping=state.skipping)
        channel.inbox.ended = channel.end_received = state.ended
        channel.outbox.dropped_logs = state.dropped_logs
        if state.tasks:
            from mcpio.engine.tasks import OutgoingTasks

            self._tasks = OutgoingTasks(channel.limits.outgoing_tasks)
            self._tasks.load(state.tasks, self._dialogue)
        if state.batches:
            from mcpio.engine.dialect import Batches

            self._batches = Batches()
            self._batches.load(state.batches)
        if state.close_left is not None:
            channel.timers.set(CLOSE_TIMER, now + state.close_left)
        self._renew_gates()

    def _dialogue_and_context(self, state: IncomingState) -> tuple[IncomingDialogue, RequestContext]:
        """Return the dialogue and the context of a running request from a snapshot."""
        dialogue = self._dialogue
        context: Any = self._context_for(state.via)  # a peer whose requests run is known
        return dialogue, context

    def _tell(self, what: str, *arguments: Any) -> None:
        for observer in self._observers or ():
            observer.tell(what, *arguments, self._channel.now)

    # Life and phase

    @property
    def _dialogue(self) -> Handshake:
        """The handshake session, made now if no message needed it before."""
        handshake = self._handshake
        if handshake is None:
            encoder = None
            if self._options.emit_profile is not None:
                from mcpio.engine.dialect import DialectEncoder

                encoder = DialectEncoder(self._options.emit_profile)
            handshake = self._handshake = Handshake(self.role, encoder)
        return handshake

    @property
    def _context(self) -> RequestContext | None:
        return None if self._handshake is None else self._handshake.context

    def _allows(self, what: Input) -> bool:
        life = self._channel.life
        if life is not _OPEN:
            return (life, what) in LIFE_TABLE
        phase = Phase.NEW if self._handshake is None else self._handshake.phase
        return (self.role, phase, what) in TABLE

    def _step(self, what: Input) -> None:
        """Move the handshake to its next phase. The caller has checked that a next phase exists."""
        self._dialogue.step(what)
        self._renew_gates()

    def _settle(self, context: RequestContext) -> None:
        """Switch to the negotiated handshake session."""
        self._dialogue.settle(context, self._capabilities)
        self._renew_gates()
        self._watch_silence()

    def _watch_silence(self) -> None:
        """Start the first interval of keep-alive. A stateless server has none: it sends no requests."""
        silence, channel = self._silence, self._channel
        if silence is not None:
            silence.begin(channel.now)
            channel.timers.set(KEEP_ALIVE_TIMER, channel.now + silence.policy.interval)

    def _renew_gates(self) -> None:
        """Find anew what may come in and go out, since the life, the phase or the capabilities have changed."""
        self._admission, self._sendable = self._admitted(), None

    def _admitted(self) -> Mapping[str, Admission]:
        """Return the table of the requests that are served now."""
        options, handshake, life = self._options, self._handshake, self._channel.life
        refusal = None if life is _OPEN else "closing"
        if handshake is None or handshake.context is None:
            refusal, revisions = refusal or "not initialized", options.handshake_revisions
            custom = options.custom_methods if revisions else frozenset[str]()
            return admission(self.role, revisions, custom=custom, refusal=refusal)
        if refusal is None:
            early = options.strict_initialized and handshake.phase is Phase.INITIALIZING
            served = not early and (self.role, handshake.phase, Input.RECV_REQUEST) in TABLE
            refusal = None if served else "not initialized"
        return handshake.admission(options.custom_methods, refusal)

    def _begin_closing(self, what: Input, reason: CloseReason, grace: float | None) -> None:
        """Send no more requests. Requests that still run have ``grace`` seconds; ``None`` sets no limit."""
        channel = self._channel
        if channel.life is _CLOSED:
            return
        if channel.life is _OPEN:
            channel.reason = reason
            self._lose_outgoing(reason, channel.cause)
            self._end_subscriptions()
        channel.begin_closing(what, grace)
        self._renew_gates()

    def _end_subscriptions(self) -> None:
        """End the peer's subscriptions, which would otherwise run as long as the connection is open."""

    def _end_subscription(self, request: IncomingRequest, what: RequestInput) -> None:
        """Notify the peer on a channel that its subscription has ended, after the answer to it."""

    def _finish(self, what: Input, reason: CloseReason, cause: BaseException | None) -> None:
        """Close now, with output unsent and requests unanswered. This appends the last event: report others first."""
        channel = self._channel
        if channel.life is _CLOSED:
            return
        channel.finish(what, reason, cause)
        self._renew_gates()
        self._lose_outgoing(reason, cause)
        self._drop_incoming()
        self._events.append(ConnectionClosed(reason, cause))

    def _give_up(self, reason: CloseReason, cause: RequestTimeout) -> None:
        """End because the peer does not answer (LIFE-19, PING-05)."""
        self._finish(Input.SEND_ABORT, reason, cause)

    def _lose_channel(self, cause: BaseException | None) -> None:
        self._finish(Input.RECV_LOSS, CloseReason.LOST, cause)

    def _end_is_due(self) -> bool:
        """Return whether a closing connection has answered and written everything."""
        channel = self._channel
        owes_nothing = not len(self._incoming) and not channel.inbox.deferred_bytes
        return not channel.outbox.size and owes_nothing

    def _end_if_due(self) -> bool:
        """Close once everything is answered and written; return whether that happened now."""
        if self._channel.life is not _CLOSING or not self._end_is_due():
            return False
        self._finish(Input.SEND_END, self._channel.reason, self._channel.cause)
        return True

    def _check_outbox(self) -> None:
        """End the connection if the peer lets its output grow without bound. This may be the end: see ``_finish``."""
        channel = self._channel
        size = channel.outbox.size + channel.held.unwritten
        if size > channel.limits.queued_bytes and channel.is_overflowing(size):
            self._finish(Input.SEND_ABORT, CloseReason.SLOW_CONSUMER, None)

    def _lose_outgoing(self, reason: CloseReason, cause: BaseException | None) -> None:
        """Fail every outgoing request as lost."""
        for request in self._outgoing:
            error = ConnectionLost(f"{request.name}: the connection ended ({reason.value})")
            error.__cause__ = cause
            self._fail(request, RequestInput.RECV_LOSS, error)
            # From here on every answer is late: which ones are need not be remembered.
            self._outgoing.forget(request.id)
        self._tasks = None

    def _drop_incoming(self) -> None:
        """Forget the incoming requests: no answer can reach the peer."""
        for request in self._incoming:
            self._incoming.finish(request, RequestInput.RECV_LOSS)
        self._batches = None

    # Deadlines

    def _expire(self, id: int) -> None:
        """Time out an outgoing request."""
        request = self._outgoing.get(id)
        if request is None:
            return  # it was lost a moment ago, with a peer that was given up
        total = request.total_at is not None and request.total_at <= self._channel.now
        limit = request.total if total else request.idle
        error = RequestTimeout(request.name, limit or 0.0, "total" if total else "idle")
        self._fail(request, RequestInput.RECV_TIMEOUT, error)
        if request.name == "initialize":
            self._give_up(CloseReason.HANDSHAKE_FAILED, error)  # it must not be cancelled (LIFE-19)
            return
        with suppress(MessageTooLarge):  # Of a tiny limit: there is no call of the program to raise it from (P2).
            self._send_cancelled(request, self._cancellation(request, "timeout"))

    def _check_silence(self) -> None:
        """Ping a silent peer, or give up on it (PING-02, PING-03).

        Stateless revisions have no ping, and every server of one answers ``server/discover`` (VER-03).
        """
        silence, channel = self._silence, self._channel
        # Over HTTP silence is normal: a client need not keep a stream open, and without one a ping reaches no client.
        if silence is None or self.can_reach is not None:
            return
        if self._outgoing.are_held:
            # While a person logs in, pings would wait like all requests, and prove nothing.
            channel.timers.set(KEEP_ALIVE_TIMER, channel.now + silence.policy.interval)
            return
        question = DiscoverRequest() if self._dialogue.codec.revision.era is Era.STATELESS else PingRequest()
        due = silence.waits_until(channel.received_at, channel.now)
        if due is not None:
            channel.timers.set(KEEP_ALIVE_TIMER, due)
        elif silence.is_unresponsive:
            error = RequestTimeout(method_of(question).name, silence.policy.timeout, "total")
            self._give_up(CloseReason.UNRESPONSIVE, error)
        elif self._allows(Input.SEND_PING):
            # Before the request, which may fill the output over its limit, and so be the end.
            channel.timers.set(KEEP_ALIVE_TIMER, silence.pinged(channel.now))
            with suppress(LocalProtocolError):  # Too many requests wait already: their answers tell as much.
                self._check_room()
                method, name, params = self._checked_request(question)
                id, limit = OutgoingId(self._outgoing.next), Timeout(silence.policy.timeout)
                ping, carried, text = self._new_request(id, name, method, params, KEEP_ALIVE, None, progress=False)
                self._send_request(ping, carried, text, limit, channel.now)

    # Incoming messages

    def _receive_all(self) -> None:
        while self._receive_next():
            pass

    def _receive_next(self) -> bool:
        """Process one message, or the end of the input; return whether any was waiting."""
        channel = self._channel
        if channel.life is _CLOSED:
            return False
        inbox = channel.inbox
        item = inbox.next()
        if item is not None:
            text, via, self._sender, parsed = item
            if isinstance(text, Overlong):
                if self._observers:
                    self._tell("message_received", text.head, via)
                self._receive_overlong(text, via)
                return True
            if self._observers:
                # One type on every transport. A channel may pass text that UTF-8 cannot write: replaced, as in errors.
                self._tell("message_received", text.encode(errors="replace") if isinstance(text, str) else text, via)
            limits = channel.limits
            # Cheap looks first: nearly every message passes them all. They may be too strict, never too lax: the last
            # takes each byte for the most memory it can cost. Running requests may take half of ``peer_bytes``.
            if (
                len(text) > limits.message_items
                or self._decoder is not None
                or inbox.deferred_bytes
                or channel.outbox.size + channel.held.unwritten > limits.high_water
                or (len(text) * LARGEST_FACTOR + channel.held.requests) * 2 > limits.peer_bytes
            ):
                self._receive_text(text, via, parsed)
                return True
            message = parsed or jsonrpc.parse(text, limits.message_values)
            if message.__class__ is jsonrpc.Request:
                self._receive_request(message, text, via)
            elif message.__class__ is jsonrpc.Result:
                self._receive_result(message, via)
            else:
                self._receive(message, text, via)
            return True
        # Only after all other input: answers and cancellations that came later may be what makes room.
        if inbox.deferred_bytes and not channel.is_full():
            deferred = inbox.next_deferred()
            self._sender = deferred.principal
            self._receive_whole(deferred.text, deferred.via, None)
            return True
        if inbox.ended and not channel.end_received and not inbox.deferred_bytes:
            channel.end_received = True
            self._receive_end()
            return True
        return False

    def _receive_end(self) -> None:
        # What a server still runs is answered before it closes. A client closes at once, since nothing can answer it;
        # what it pulled before may still be written, and need not be read.
        is_client = self.role is Role.CLIENT
        self._begin_closing(Input.RECV_END, CloseReason.END_OF_FILE, LAST_WRITE if is_client else None)
        if is_client:
            self._drop_incoming()
            self._channel.outbox.clear()

    def _receive_text(self, text: bytes | str, via: Hashable, parsed: jsonrpc.Message | None) -> None:
        """Process a text that may be too large, may have to be deferred, or may be in a dialect."""
        channel = self._channel
        if takes_too_much(text, channel.limits):
            self._receive_overlong(Overlong(len(text), head(text).encode(errors="replace")), via)
            return
        if channel.inbox.deferred_bytes or channel.is_full():  # requests that wait already go first
            parsed = parsed or jsonrpc.parse(text, channel.limits.message_values)
            if self._defer(parsed, text, via):
                return
        self._receive_whole(text, via, parsed)

    def _receive_whole(self, text: bytes | str, via: Hashable, parsed: jsonrpc.Message | None) -> None:
        limits = self._channel.limits
        if len(text) > limits.message_items:
            # One count for all items of the text, in a batch too.
            self._bounded = BoundedOddities(limits.message_items)
        message = parsed or jsonrpc.parse(text, limits.message_values)
        try:
            if self._decoder is None:
                self._receive(message, text, via)
                return
            for step in self._decoder.read(message, text, self._name_of):
                self._take(step, text, via)
        finally:
            self._bounded = None

    def _oddities(self) -> list[str]:
        """Return an empty list for the oddities of a message, which counts the items of a large one."""
        if self._bounded is None:
            return []
        self._bounded.clear()
        return self._bounded

    def _defer(self, message: jsonrpc.Message, text: bytes | str, via: Hashable) -> bool:
        """Defer a message that would start work; return whether it was. Answers and cancellations may free memory."""
        inbox = self._channel.inbox
        if isinstance(message, jsonrpc.Batch):
            if not any(isinstance(jsonrpc.classify(item), jsonrpc.Request) for item in message.items):
                return False
            inbox.defer(None, text, via, self._sender)
            return True
        if not isinstance(message, jsonrpc.Request) or message.method == "ping":
            return False
        inbox.defer(message.id, text, via, self._sender)
        return True

    def _receive(self, message: jsonrpc.Message, text: bytes | str, via: Hashable) -> None:
        match message:
            case jsonrpc.Request():
                self._receive_request(message, text, via)
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

    def _receive_malformed(self, message: jsonrpc.Malformed, text: bytes | str, via: Hashable) -> None:
        """Take a message that is malformed: fail the request that it answers, or tell the peer, or report it."""
        # Where the input ends inside an answer, the loss of the connection is what ended the request.
        is_cut = message.raw is None and self._channel.inbox.is_cut
        request = None if is_cut else self._request_of(message.answers)
        if request is not None:
            error = InvalidMessage("", f"the answer is malformed: {message.reason}")
            self._fail_unreadable(request, error, message.raw)
        elif message.code == ErrorCode.PARSE_ERROR and self.role is Role.CLIENT:
            # Text that a server prints beside its messages is no reason to write to it (STDIO-05, STDIO-12).
            size = len(text if isinstance(text, bytes) else text.encode(errors="replace"))
            self._events.append(NoiseReceived(head(text), size))
        elif message.answerable:
            raw = head(text) if message.raw is None else message.raw
            self._rebuke(message.code, message.reason, raw, via, to=message.id)
        else:
            self._violate(message.code, message.reason, message.raw, via)

    def _receive_overlong(self, overlong: Overlong, via: Hashable) -> None:
        """Take a message beyond ``Limits.message_bytes``, of which only the head was kept."""
        channel = self._channel
        fault = f"a message is longer than {channel.limits.message_bytes} bytes"
        request = self._request_of(jsonrpc.answered_id(overlong.head))
        if request is not None:
            self._fail_unreadable(request, InvalidMessage("", fault), None)
        else:
            quoted = overlong.head.decode(errors="replace")[:QUOTE]
            self._rebuke(self._code("message too large"), fault, quoted, via)
        # One bad HTTP message says nothing about the next one. A peer that breaks the limit of a channel is not read
        # further, unless ``resync`` skips the line; the refusal above and answers to running requests still go out.
        if not channel.limits.resync and via is None and channel.life is not _CLOSED:
            channel.inbox.clear()
            channel.inbox.ended = channel.end_received = True
            self._begin_closing(Input.RECV_END, CloseReason.MESSAGE_TOO_LARGE, _GRACE)

    def _request_of(self, id: object) -> OutgoingRequest | None:
        """Return the outgoing request of that id on the wire. ``1``, ``"1"`` and ``1.0`` differ (RPC-08)."""
        return self._outgoing.get(id) if id.__class__ is int else None

    def _name_of(self, id: object) -> str | None:
        request = self._request_of(id)
        return None if request is None else request.name

    def _fail_unreadable(self, request: OutgoingRequest, error: InvalidMessage, raw: Any) -> None:
        """Fail an outgoing request whose answer came, but cannot be read: no other will come."""
        self._fail(request, RequestInput.RECV_ERROR, error, raw)

    # Incoming requests

    def _receive_request(self, message: jsonrpc.Request, text: bytes | str, via: Hashable) -> None:
        """Take a request: refuse it, answer it here, or report it. Every check comes before the request is recorded."""
        name, params, incoming = message.method, message.params, self._incoming
        meta, row, dialogue = params.get("_meta"), self._admission.get(name), self._handshake
        has_envelope = meta.__class__ is dict and META_PROTOCOL_VERSION in meta
        if row is None or has_envelope:
            is_served = self._is_served(message, text, via)
            if row is None or is_served:
                return
        method, refusal, _ = row
        if refusal is not None or dialogue is None:
            self._refuse(message, self._refusal(refusal, name), via)
            return
        # Before the params are decoded, so that a flood of requests costs little. Cheap looks first: most run alone.
        limits = self._channel.limits
        if (incoming.running is not None or not limits.incoming_requests) and (
            why := self._why_not_beside(message, via)
        ):
            self._refuse(message, why, via)
            return
        odd = self._oddities()
        try:
            request = read_params(message, row, dialogue.codec, self._capabilities, odd)
            token = None if meta is None else progress_token(meta)
        except RequestError as error:
            self._refuse(message, error, via)
            return
        # All checks are behind.
        if dialogue.phase is not _OPERATING:
            self._step(Input.RECV_REQUEST)
        context: Any = dialogue.context if via is None and self._sender is KEEP else self._context_for(via)
        size = request_size(text, limits, self._channel.held.requests)
        record = IncomingRequest(
            IncomingId(incoming.next), message.id, name, method, token, via, size, dialogue, context, message.raw
        )
        if meta.__class__ is dict and META_RELATED_TASK in meta:
            record.task = _related_task(name, meta, dialogue.codec.revision)
        # In other revisions the member is an unknown one, and means nothing.
        wants_task = method is not None and method.task_capability and getattr(request, "task", None) is not None
        record.wants_task = bool(wants_task)
        if odd:
            self._report_odd(name, odd, message.raw, via)
        self._begin(record, request, message)

    def _begin(self, record: IncomingRequest, request: Any, message: jsonrpc.Request) -> None:
        """Record a request that was admitted, and report it."""
        incoming = self._incoming
        # An exchange brings its own ids, so only those of a single channel can be used twice.
        reused = record.via is None and incoming.finished is not None and record.wire_id in incoming.finished
        incoming.add(record)
        self._events.append(RequestReceived(record.id, request, record.context, message.raw, reused))

    def _why_not_beside(self, message: jsonrpc.Request, via: Hashable) -> RequestError | None:
        """Return why a request cannot run now, or ``None``: its id is in use, or too many run."""
        if self._incoming.is_running(message.id, via):
            return _in_use()
        limit = self._channel.limits.incoming_requests
        if len(self._incoming) < limit:
            return None
        data = {"reason": "too many requests", "limit": limit}
        return RequestError(ErrorCode.INTERNAL_ERROR, "Too many requests at once", data)

    def _is_served(self, message: jsonrpc.Request, text: bytes | str, via: Hashable) -> bool:
        """Serve a request that has an envelope or no row; return whether that is done."""
        del text
        if message.method == "ping" and self._incoming.is_running(message.id, via):
            self._refuse(message, _in_use(), via)
        elif message.method == "ping":
            self._events.append(Answered(message.method, None, message.raw, via))
            self._answer(jsonrpc.encode_result(message.id, {}), via)
        elif message.method == "initialize":
            self._receive_initialize(message, via)
        elif message.method in self._admission:
            return False  # this side speaks no revision with envelopes
        else:
            self._refuse(message, self._refusal(NOT_FOUND, message.method), via)
        return True

    def _receive_initialize(self, message: jsonrpc.Request, via: Hashable) -> None:
        """Refuse ``initialize``: only a server serves it."""
        self._refuse(message, RequestError(ErrorCode.METHOD_NOT_FOUND, "Method not found: this is the client"), via)

    def _refusal(self, reason: str | None, name: str) -> RequestError:
        if reason is None or reason == NOT_FOUND:
            return RequestError(ErrorCode.METHOD_NOT_FOUND, f"Method not found: {name:.100}")
        return RequestError(self._code(reason), f"Invalid request: {reason}", {"reason": reason})

    def _refuse(self, message: jsonrpc.Request, error: RequestError, via: Hashable) -> None:
        self._events.append(Answered(message.method, error, message.raw, via))
        self._answer_error(message.id, error, via)

    # Responses

    def _receive_result(self, message: jsonrpc.Result, via: Hashable) -> None:
        """Take a result. An unreadable one fails its request, since no other answer will come."""
        request = self._outgoing.get(message.id) if message.id.__class__ is int else None
        if request is None:
            self._receive_stray(message, via)
            return
        odd = self._oddities()
        try:
            result = request.dialogue.read_result(request, message.result, odd)
        except (InvalidMessage, RemoteProtocolError) as error:
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

    def _note_task(self, request: OutgoingRequest, result: Any) -> None:
        """Keep a request whose task continues, because its progress is still reported (PROG-07)."""
        from mcpio.engine.tasks import OutgoingTasks
        from mcpio.types.tasks import CreateTaskResult

        if isinstance(result, CreateTaskResult):
            if self._tasks is None:
                self._tasks = OutgoingTasks(self._channel.limits.outgoing_tasks)
            self._tasks.add(request, result.task.task_id)

    def _receive_error(self, message: jsonrpc.Error, via: Hashable) -> None:
        if message.id is None:
            self._events.append(MessageIgnored(IgnoreReason.CONNECTION_ERROR, message.raw, via))
            return
        request = self._request_of(message.id)
        if request is None:
            self._receive_stray(message, via)
            return
        error = request.dialogue.read_error(request, message)
        self._fail(request, RequestInput.RECV_ERROR, error, message.raw)

    def _receive_stray(self, message: jsonrpc.Result | jsonrpc.Error, via: Hashable) -> None:
        """Distinguish an answer that crossed our cancellation from a violation by the peer (CANC-07)."""
        request_id = message.id if isinstance(message.id, int) else 0
        state = self._outgoing.state_of(request_id)
        # Our requests are given up when the connection begins to close; their answers may be under way.
        is_closing = self._channel.life is _CLOSING
        if state not in (None, RequestState.ANSWERED) or (state is not None and is_closing):
            self._events.append(MessageIgnored(IgnoreReason.LATE_RESPONSE, message.raw, via))
            if message.__class__ is jsonrpc.Result and (task_id := created_task(message.result)) is not None:
                self._outgoing.forget(request_id)
                self._cancel_task(task_id)
            return
        if state is not None and via is not None and self.role is Role.SERVER:
            # An HTTP client cannot know whether an answer arrived whose POST broke off.
            self._events.append(MessageIgnored(IgnoreReason.REPEATED_RESPONSE, message.raw, via))
            return
        what = "was never sent" if state is None else "was answered before"
        self._violate(
            ErrorCode.INVALID_REQUEST, f"a response to id {message.id!r:.100}, which {what}", message.raw, via
        )

    # Notifications

    def _receive_notification(self, message: jsonrpc.Notification, via: Hashable) -> None:
        """Take a notification. A wrong one is reported and never answered, since notifications have no response."""
        method = METHODS.get(message.method)
        if message.method == "notifications/cancelled":
            self._receive_cancelled(message, via)
        elif message.method == "notifications/progress":
            self._receive_progress(message, via)
        elif method is not None and method.kind is Kind.REQUEST:
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
                context: Any = self._context_for(via)
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
        """Return the typed notification, or report its fault and return ``None`` (RPC-13)."""
        if method is None:
            return CustomNotification(message.method, message.params)
        settled = codec(LATEST_HANDSHAKE) if self._handshake is None else self._handshake.codec
        odd = self._oddities()
        try:
            notification = settled.decode(message.params, method.params_type, odd)
        except InvalidMessage as error:
            self._violate(ErrorCode.INVALID_PARAMS, f"{message.method}: {error}", message.raw, via)
            return None
        if odd:
            self._report_odd(message.method, odd, message.raw, via)
        return notification

    def _receive_cancelled(self, message: jsonrpc.Notification, via: Hashable) -> None:
        """Take ``notifications/cancelled`` for a request of the peer that runs, or that was deferred."""
        cancelled: CancelledNotification | None = self._decode_notification(message, METHODS[message.method], via)
        if cancelled is None:
            return
        named = [] if cancelled.request_id is None else self._incoming.named(cancelled.request_id, via)
        inbox = self._channel.inbox
        # A deferred request has no event yet, so its cancellation has none either; nor is it answered (CANC-05).
        if not named and cancelled.request_id is not None and inbox.drop_deferred(cancelled.request_id, via):
            self._ignore(IgnoreReason.NOT_STARTED, message, via)
            return
        # Several exchanges may have brought the same id (P7): to cancel none is better than to cancel the wrong one.
        if len(named) != 1:
            reason = IgnoreReason.AMBIGUOUS_REQUEST if named else IgnoreReason.UNKNOWN_REQUEST
            self._ignore(reason, message, via)
            return
        request = named[0]
        self._incoming.finish(request, RequestInput.RECV_CANCEL)
        self._events.append(CancelReceived(request.id, cancelled.reason, message.raw))
        if self._batches is not None and request.id in self._batches:
            self._release(self._batches.settle(request.id, None))

    def _receive_progress(self, message: jsonrpc.Notification, via: Hashable) -> None:
        """Take progress of our request, or of the task that it became. Raises nothing: wrong progress is reported."""
        report: ProgressNotification | None = self._decode_notification(message, METHODS[message.method], via)
        if report is None:
            return
        token = report.progress_token
        request = self._request_of(token)
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
        self._outgoing.touch(request, self._channel.now)
        self._events.append(
            ProgressReceived(request.id, report.progress, report.total, report.message, request.cookie, message.raw)
        )

    # Batches and dialects

    def _receive_batch(self, batch: jsonrpc.Batch, text: bytes | str, via: Hashable) -> None:
        """Take a batch, where the revision or an option allows one. An exchange gets one joined answer."""
        revision, limits = self.revision, self._channel.limits
        if revision is None or not (revision.has_batches or self._takes_batches):
            fault = "a JSON array is no message in this revision"
        elif not batch.items:
            fault = "the batch is empty"
        elif len(batch.items) > limits.batch_items:
            fault = f"the batch has more than {limits.batch_items} items"
        elif self._options.join_batch_answers or via is not None:
            # An exchange has one answer (BATCH-06).
            self._receive_joined(batch, text, via)
            return
        else:
            self._receive_items(batch, text, via)
            return
        self._rebuke(ErrorCode.INVALID_REQUEST, fault, head(text), via)

    @property
    def _takes_batches(self) -> bool:
        return self._options.accept_batches or (self._decoder is not None and self._decoder.takes_batches)

    def _receive_items(self, batch: jsonrpc.Batch, text: bytes | str, via: Hashable) -> None:
        """Take the items of a batch in order. Stops when an item ends the connection."""
        # Each item counts as a share of the whole.
        text = text[: len(text) // len(batch.items)]
        messages = [step for item in batch.items for step in self._understood(jsonrpc.classify(item))]
        has_calls = any(isinstance(message, jsonrpc.Request | jsonrpc.Notification) for message in messages)
        for message in messages:
            before = self._incoming.next_id
            if isinstance(message, jsonrpc.Batch):
                self._rebuke(ErrorCode.INVALID_REQUEST, "a batch within a batch", list(message.items), via)
            elif has_calls and isinstance(message, jsonrpc.Result | jsonrpc.Error):
                # One batch holds calls or responses (BATCH-04). The request that this one answers waits on.
                self._rebuke(ErrorCode.INVALID_REQUEST, "a response in a batch of requests", message.raw, via)
            else:
                self._take(message, text, via)
            if self._channel.life is _CLOSED:
                return
            if self._batches is not None:
                self._batches.admit(range(before, self._incoming.next_id))

    def _receive_joined(self, batch: jsonrpc.Batch, text: bytes | str, via: Hashable) -> None:
        from mcpio.engine.dialect import Batches

        batches = self._batches = self._batches or Batches()
        batches.begin(via)
        self._receive_items(batch, text, via)
        answers = batches.end()
        # An item may have ended the connection, and nothing is sent after the last event.
        if self._channel.life is not _CLOSED:
            self._release(answers)

    def _release(self, answers: JoinedAnswers | None) -> None:
        """Send the answers to a batch if they are all there. This may be the end."""
        outbox = self._channel.outbox
        held = 0 if self._batches is None else self._batches.size
        if not self._batches:
            self._batches = None
        if answers is not None:
            # Behind what the requests had to say on the way: a response never overtakes that (P14).
            lane = answers.ids[0] if answers.ids else ANSWERS
            outbox.join_lanes(answers.ids, lane)
            outbox.put(answers.text, Queued.RESPONSE, via=answers.via, last=True, lane=lane)
            self._check_outbox()
        elif outbox.size + held > self._channel.limits.queued_bytes:
            self._finish(Input.SEND_ABORT, CloseReason.SLOW_CONSUMER, None)

    def _understood(self, message: jsonrpc.Message) -> list[Step]:
        return [message] if self._decoder is None else self._decoder.translate(message, self._name_of)

    def _take(self, step: Step, text: bytes | str, via: Hashable) -> None:
        """Process a step of a dialect's message or of a batch, unless an earlier one ended the connection."""
        if self._channel.life is _CLOSED:
            return
        if step is None:
            self._begin_closing(Input.SEND_CLOSE, CloseReason.CLOSED, _GRACE)
        elif isinstance(step, tuple):
            self._refuse(*step, via)
        else:
            self._receive(step, text, via)

    # Reports and automatic answers

    def _answer(self, text: bytes, via: Hashable) -> None:
        """Send an automatic response. Report first: this may be the end."""
        if self._batches is not None and self._batches.collect(text):
            return
        # Messages of one exchange must not wait for those of another.
        lane = ANSWERS if via is None else (ANSWERS, via)
        self._channel.outbox.put(text, Queued.RESPONSE, via=via, last=True, lane=lane)
        self._check_outbox()

    def _answer_error(self, wire_id: int | str | None, error: RequestError, via: Hashable, raw: Any = None) -> None:
        # Before 2025-11-25 an error without a request has a null id, from then on none (RPC-12). Where neither the
        # message nor an earlier one says the revision, the oldest that this side speaks counts.
        with_null = (
            wire_id is None and (_revision_said(raw) or self._spoken or min(self._options.revisions)) < REV_2025_11_25
        )
        text = jsonrpc.encode_error(wire_id, error.code, error.message, error.data, with_null_id=with_null)
        self._answer(text, via)

    def _code(self, reason: str) -> int:
        """Return the code for an invalid request: that of a dialect, where it has one for the reason."""
        return ErrorCode.INVALID_REQUEST if self._decoder is None else self._decoder.code(reason)

    def _report_odd(self, what: str, odd: list[str], raw: Mapping[str, Any], via: Hashable) -> None:
        """Report the members that a message is read without because their type is wrong (CONT-04)."""
        more = f" (and {len(odd) - 1} more)" if len(odd) > 1 else ""
        self._violate(ErrorCode.INVALID_PARAMS, f"{what} is read without a member: {odd[0]}{more}", raw, via)

    def _violate(self, code: int, fault: str, raw: Any, via: Hashable) -> None:
        """Report a violation by the peer that gets no answer."""
        self._events.append(ProtocolViolated(RemoteProtocolError(fault, code=code), raw, via))

    def _rebuke(self, code: int, fault: str, raw: Any, via: Hashable, *, to: int | str | None = None) -> None:
        """Report a violation by the peer, and answer it: under that id, or under none."""
        self._violate(code, fault, raw, via)
        self._answer_error(to, RequestError(code, f"{_TITLES.get(code, 'Invalid request')}: {fault}"), via, raw)

    def _ignore(self, reason: IgnoreReason, message: jsonrpc.Notification, via: Hashable) -> None:
        self._events.append(MessageIgnored(reason, message.raw, via))

    def _fail(self, request: OutgoingRequest, what: RequestInput, error: McpError, raw: Any = None) -> None:
        """Fail an outgoing request: its one outcome."""
        self._outgoing.finish(request, what)
        self._events.append(RequestFailed(request.id, error, request.cookie, raw))

    def _context_for(self, via: Hashable) -> RequestContext | None:
        """Return the context of the message that is being received, which came by ``via``."""
        context, sender = self._context, self._sender
        if context is None or (via is None and sender is KEEP):
            return context
        principal = context.principal if sender is KEEP else sender
        era, revision, peer = context.era, context.revision, context.capabilities
        return RequestContext(era, revision, peer, context.info, context.log_level, principal, via)

    # Outgoing messages: checks, which change nothing

    def _checked_request(self, request: Any, waiting: int = 0) -> tuple[Method | None, str, dict[str, Any]]:
        """Return method, name and params of a request that may be sent now, after ``waiting`` others."""
        method = method_to_send(request, Kind.REQUEST)
        name: str = request.method if method is None else method.name
        if name in TASK_EXTENSION_METHODS and isinstance(request, RawRequest):
            stateless = self._dialogue.codec.revision.era is Era.STATELESS
            method = None if stateless else method  # the extension's request of that name is a custom one
        if method is None or method is not self._sendable:
            self._check_phase(Input.SEND_PING if name == "ping" else Input.SEND_REQUEST)
            if method is not None:
                self._dialogue.check_sent(method, self._capabilities)
        dialogue = self._handshake or self._dialogue
        waiting += len(self._outgoing)
        if waiting >= self._channel.limits.outgoing_requests:
            raise LocalProtocolError(f"{waiting} requests wait for an answer already")
        if method is None and name in METHODS and METHODS[name].exists_in(dialogue.codec.revision):
            raise LocalProtocolError(f"{name} is a method of the protocol: send its own type")
        params = encode(dialogue.codec, request)
        if method is not None:
            dialogue.check_params(method, params)
        return method, name, params

    def _checked_notification(self, notification: Any) -> tuple[Method | None, str, dict[str, Any]]:
        """Return method, name and params of a notification that may be sent now."""
        method = method_to_send(notification, Kind.NOTIFICATION)
        name: str = notification.method if method is None else method.name
        self._check_phase(Input.SEND_LOG if name == LOG else Input.SEND_NOTIFICATION)
        dialogue = self._dialogue
        if method is not None:
            dialogue.check_sent(method, self._capabilities)
        return method, name, encode(dialogue.codec, notification)

    def _check_phase(self, what: Input) -> None:
        if not self._allows(what):
            phase = self.phase
            if self._channel.life is not _OPEN:
                raise NoBackChannel(f"cannot {what.value}: the connection is {phase.value}")
            advice = ""
            if self.role is Role.SERVER and phase is Phase.NEW and self._options.stateless_revisions:
                # Without a handshake, all that goes out belongs to a request of the client (PAT-01, PAT-02).
                advice = f": {_STATELESS_WAYS.get(what, 'give related_to=, the request or subscription it belongs to')}"
            raise LocalProtocolError(f"cannot {what.value} in phase {phase.value} as a {self.role.value}{advice}")

    def _check_batch(self, size: int) -> None:
        self._check_phase(Input.SEND_PING)
        revision, most = self.revision, self._channel.limits.batch_items
        if revision is None or not revision.has_batches:
            raise LocalProtocolError("batches are for sessions of 2025-03-26: send the messages one by one")
        if not 1 <= size <= most:
            raise LocalProtocolError(f"a batch must have 1 to {most} items, not {size}")

    def _check_route(self, parent: IncomingRequest | None) -> None:
        if self.can_reach is not None and not self.can_reach(None if parent is None else parent.via):
            what = "the request that it belongs to" if parent is not None else "a message that belongs to no request"
            raise NoBackChannel(f"the transport has no way to the peer for {what}, and none can come")

    def _check_room(self) -> None:
        """Refuse an outgoing request while many wait to be written."""
        held, limit = self._channel.held, self._channel.limits.queued_bytes // 2
        waiting = self._channel.outbox.own_bytes + held.own + held.unwritten
        if waiting > limit:
            raise OutputFull(waiting, limit)

    def _running(self, id: IncomingId) -> IncomingRequest:
        request = self._incoming.get(id)
        if request is None:
            raise LocalProtocolError(
                f"the peer's request {id!r} is not running: it was answered or cancelled, or never came"
            )
        return request

    def _asking(self, related_to: IncomingId) -> IncomingRequest:
        """Return the peer's running request on whose behalf another request is sent."""
        parent = self._running(related_to)
        if parent.context.era is Era.STATELESS:
            # A session beside it may take requests, but its client is another one (ERA-14, PAT-01).
            raise LocalProtocolError(f"{parent.name} is stateless: ask its client by an InputRequiredResult")
        return parent

    def _to_answer(self, id: IncomingId) -> IncomingRequest | None:
        """Return the running request of that id, or ``None`` when its answer is not wanted any more."""
        request = self._incoming.get(id)
        if request is not None:
            return request
        key: object = id  # a caller may have mistaken it
        if not isinstance(key, int) or not 1 <= key < self._incoming.next_id:
            raise LocalProtocolError(f"the peer never sent a request {id!r}")
        if self._channel.life is not _CLOSED and self._incoming.was_answered(id):
            raise LocalProtocolError(f"the peer's request {id!r} was answered before")
        return None

    def _timeout(self, timeout: Timeout | float | Default | None) -> Timeout:
        if isinstance(timeout, Default):
            return self._options.request_timeout
        try:
            return timeout if isinstance(timeout, Timeout) else Timeout(seconds("timeout", timeout))
        except ValueError as error:
            raise LocalProtocolError(str(error)) from None

    def _new_request(
        self,
        id: OutgoingId,
        name: str,
        method: Method | None,
        params: dict[str, Any],
        cookie: Any,
        parent: IncomingRequest | None,
        progress: bool,
    ) -> tuple[OutgoingRequest, dict[str, Any], bytes]:
        """Return a request, the params that it carries, and its text. Changes nothing."""
        if progress or "_meta" in params:
            params = with_progress_token(params, id if progress else None)
        if parent is not None and parent.task is not None:
            params = with_related_task(params, parent.task)
        # ``initialize`` makes the session, but only once its own text could be written.
        session = self._handshake
        carried = params if session is None else session.stamped(params, self._capabilities)
        text = self._json(jsonrpc.encode_request, int(id), name, carried or None)
        request = OutgoingRequest(id, name, method, cookie, session or self._dialogue)
        if "_meta" in params:
            request.belongs_to = related_task_of(params)
        if "task" in params and method is not None and method.task_capability:
            request.task = ""
        if progress:
            request.progress = NOT_YET
        if parent is not None:
            request.related, request.via = parent.id, parent.via
        return request, carried, text

    # Outgoing messages: changes, after all checks

    def _send_request(
        self, request: OutgoingRequest, params: dict[str, Any], text: bytes, timeout: Timeout, now: float
    ) -> None:
        channel = self._channel
        if now.__class__ is float and channel.now <= now < _NEVER:
            channel.now = now  # without a call, for each request
        else:
            channel.advance(now)
        if request.method is not self._sendable and self.phase is _OPERATING:
            self._sendable = request.method  # its checks are behind; the requests of an opening have others
        self._outgoing.add(request, timeout, channel.now)
        requests, call = (request.id,), (request.name, params)
        channel.outbox.put(text, Queued.REQUEST, via=request.via, related=request.related, requests=requests, call=call)
        self._check_outbox()

    def _cancel(self, id: OutgoingId, reason: str | None) -> bool:
        request = self._outgoing.get(id)
        if request is None:
            key: object = id  # a caller may have mistaken it
            if not isinstance(key, int) or self._outgoing.state_of(key) is None:
                raise LocalProtocolError(f"there never was a request {id!r}")
            return self._give_up_task(id)
        if request.name == "initialize":
            raise LocalProtocolError("initialize cannot be cancelled: close the connection instead")
        text = self._cancellation(request, reason)
        self._fail(request, RequestInput.SEND_CANCEL, RequestCancelled(request.name, reason))
        self._send_cancelled(request, text)
        return True

    def _cancellation(self, request: OutgoingRequest, reason: str | None) -> bytes | None:
        """Return the notice that a request is given up; ``None`` for one that is to become a task (CANC-04)."""
        if request.task is not None:
            return None
        params = encode(self._dialogue.codec, payload_of(CancelledNotification, request.id, reason))
        if request.belongs_to is not None:
            params = with_related_task(params, request.belongs_to)
        return self._json(jsonrpc.encode_notification, "notifications/cancelled", params)

    def _send_cancelled(self, request: OutgoingRequest, text: bytes | None) -> None:
        if text is None:
            return
        # In the lane of the request, so that it never overtakes it, but not by an exchange that is over.
        parent = None if request.related is None else self._incoming.get(request.related)
        via, related = (None, None) if parent is None else (parent.via, parent.id)
        self._channel.outbox.put(text, Queued.NOTIFICATION, via=via, related=related, lane=request.related)
        self._check_outbox()

    def _give_up_task(self, id: OutgoingId) -> bool:
        request = None if self._tasks is None else self._tasks.pop(id)
        if request is None:
            return False
        self._cancel_task(request.task or "")
        return True

    def _cancel_task(self, task_id: str) -> None:
        """Cancel a task at the peer, if it takes that (CANC-04). No event follows."""
        context = self._context
        if context is None or not declares(context.capabilities, ("tasks", "cancel")):
            return
        if self._allows(Input.SEND_REQUEST):
            text = jsonrpc.encode_request(int(self._outgoing.use_up()), "tasks/cancel", {"taskId": task_id})
            self._channel.outbox.put(text, Queued.REQUEST)
            self._check_outbox()

    def _put(self, request: IncomingRequest, text: bytes, kind: int, key: Hashable = None) -> None:
        self._channel.outbox.put(text, kind, via=request.via, related=request.id, key=key)
        self._check_outbox()

    def _respond(self, request: IncomingRequest, what: RequestInput, text: bytes) -> None:
        """Send the answer to a request, and forget the request. Raises MessageTooLarge."""
        # It may raise, so it comes before any change: the caller can still answer with an error.
        self._fitting(text)
        self._incoming.finish(request, what)
        if self._batches is not None and request.id in self._batches:
            self._release(self._batches.settle(request.id, text))
        else:
            channel = self._channel
            channel.outbox.put(text, Queued.RESPONSE, via=request.via, related=request.id, last=True)
            if request.name == LISTEN:
                self._end_subscription(request, what)
            # The look that ``_check_outbox`` begins with, without its calls: few peers leave so much unread.
            if channel.outbox.size + channel.held.unwritten > channel.limits.queued_bytes:
                self._check_outbox()
        if self._observers:
            self._tell_call("respond", id=request.id, text=text)


def _related_task(name: str, meta: dict[str, Any], revision: Revision) -> str | None:
    """Return the task that a request belongs to, for its answer to say the same (TASK-28)."""
    if revision is not REV_2025_11_25 or name.startswith("tasks/"):
        return None
    related = meta[META_RELATED_TASK]
    task_id = related.get("taskId") if isinstance(related, dict) else None
    return task_id if isinstance(task_id, str) else None


def _revision_said(raw: Any) -> Revision | None:
    """Return the revision that a malformed message names: in its envelope, or as that of a handshake."""
    params = raw.get("params") if isinstance(raw, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    name = meta.get(META_PROTOCOL_VERSION) if isinstance(meta, dict) else None
    if isinstance(params, dict) and raw.get("method") == "initialize":
        name = params.get("protocolVersion")
    return Revision.parse(name) if isinstance(name, str) else None


def _in_use() -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, "Invalid request: this id is in use by a running request")


def _plain_id(cookie: Any) -> Any:
    """Return the number of an id, which JSON can hold; any other cookie as it is."""
    return int(cookie) if cookie.__class__ in (IncomingId, OutgoingId) else cookie


def _check_scalars(values: Iterable[object], what: str) -> None:
    for value in values:
        if value is not None and value.__class__ not in (int, str):
            raise LocalProtocolError(f"in a snapshot, a {what} must be a string or an integer, not {value!r:.100}")
