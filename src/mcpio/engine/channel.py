"""The life of a channel: what is fed, what is pulled, the clock and the end. It knows no methods.

The obligation under every method that can produce output: *after touching the connection, drain the events, write the
chunks, re-arm the deadline.*
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from typing import Any, ClassVar, Final, Protocol

from mcpio.engine.inbox import Inbox
from mcpio.engine.ledger import Held
from mcpio.engine.limits import Limits, seconds
from mcpio.engine.outbox import Outbox, Outgoing
from mcpio.engine.table import TABLE, Input, Phase, Role
from mcpio.engine.timers import Timers
from mcpio.errors import LocalProtocolError
from mcpio.events import CloseReason, ConnectionClosed, Event
from mcpio.framing.lines import Overlong

__all__ = ["Channel", "Observer"]

ANY: Final = object()
"""Whatever exchange it may be."""

LAST_WRITE = 1.0
"""Seconds that a client whose server has ended waits for its last write, which the server may never read."""

CLOSE_TIMER = 0
"""The timer key of the closing grace. Requests have positive keys."""

STALL_TIMER = -2
"""The timer key of a peer that leaves more than ``Limits.queued_bytes`` unread."""

STALL: Final = 30.0
"""Seconds that such a peer has to read some of it."""

READ_RATE: Final = 4096
"""Bytes a second that a peer has to read of what the transport is writing."""

# By names of their own where every message passes: before Python 3.12 an enumeration finds its members by a slow path.
_CLOSING, _CLOSED = Phase.CLOSING, Phase.CLOSED


class Observer(Protocol):
    """Hears of what passes a connection. ``mcpio.observe`` has the ones that programs use."""

    def tell(self, what: str, *arguments: Any) -> None:
        """Hear of one thing, by its name."""


_ROWS = {
    (role, phase): {each: to for (who, where, each), to in TABLE.items() if (who, where) == (role, phase)}
    for role in Role
    for phase in Phase
}


class Channel(ABC):
    """Input, output, time and end of one connection. Subclasses give the messages their meaning."""

    __slots__ = (
        "_cause",
        "_end_received",
        "_events",
        "_heard_at",
        "_held",
        "_inbox",
        "_limits",
        "_now",
        "_outbox",
        "_phase",
        "_ready",
        "_reason",
        "_row",
        "_stalled_at",
        "_taps",
        "_timers",
        "received_bytes",
        "sent_bytes",
    )

    role: ClassVar[Role]

    _phase: Phase
    _row: dict[Input, Phase]
    _taps: tuple[Observer, ...] | None

    received_bytes: int
    """How many bytes were fed, since the connection was made or restored. Of text, its characters count."""
    sent_bytes: int
    """How many bytes of messages were pulled to be written, since then."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held = Held()
        self._taps = None  # see ``tap``
        self._inbox = Inbox(limits)
        self._outbox = Outbox(limits.queued_logs)
        self._timers: Timers[int] = Timers()
        self._events: list[Event] = []
        self._ready: list[Event] = []  # older than those of _events, the oldest last
        self._now = float("-inf")
        self._enter(Phase.NEW)
        self._reason = CloseReason.CLOSED
        self._cause: BaseException | None = None
        self._stalled_at: int | None = None  # what was sent when the peer was last seen not to read
        self._end_received = False
        self._heard_at = float("-inf")
        self.received_bytes = self.sent_bytes = 0

    # Feed

    def receive_data(self, data: bytes | None, now: float) -> None:
        """Take in bytes of a line-framed channel, or ``None`` for the end of file. Never raises for the peer's bytes.

        Empty bytes do nothing, and input after the end is ignored. ``now`` is in seconds on the caller's monotonic
        clock. Drain the events, write the chunks, re-arm the deadline.
        """
        self._advance(now)
        inbox = self._inbox
        if inbox.ended or self._phase is _CLOSED:
            return
        if data:
            self._heard_at = self._now
            self.received_bytes += len(data)
            inbox.add_data(data)
        elif data is None:
            inbox.end()

    def receive_message(self, text: bytes | str | None, now: float, *, via: Hashable = None) -> None:
        """Take in one whole JSON text of a channel with message boundaries, or ``None`` for its end.

        ``via`` names the exchange that brought it, where the transport has exchanges, and comes back on every event
        that the message causes. Drain the events, write the messages, re-arm the deadline.
        """
        self._advance(now)
        if self._inbox.ended or self._phase is _CLOSED:
            return
        if text is None:
            self._inbox.end()
        else:
            self._heard_at = self._now
            self.received_bytes += len(text)
            self._inbox.add_message(text, via)

    def connection_lost(self, cause: BaseException | None, now: float) -> None:
        """Note that the channel broke. What was fed before still counts; nothing more goes out.

        Drain the events, re-arm the deadline.
        """
        self._advance(now)
        while self._parse_one():
            pass
        self._finish(Input.RECV_LOSS, CloseReason.LOST, cause)

    # Pull

    def next_event(self) -> Event | None:
        """Return the next event, or ``None`` for "feed me".

        At most one message is parsed, so whatever came before a fault is delivered before it.
        """
        ready = self._ready
        if not ready:
            events = self._events
            while not events:
                # A request that is put aside has no event yet.
                if not self._parse_one():
                    return None
            if len(events) == 1:
                return events.pop()
            # Taking the first of a list moves all others: with many, that is the square of their number.
            events.reverse()
            self._ready, self._events = events, ready
            ready = events
        return ready.pop()

    def events(self) -> Iterator[Event]:
        """Drain: give every event until the connection wants to be fed."""
        while (event := self.next_event()) is not None:
            yield event

    def data_to_send(self, max_bytes: int = 65536) -> list[bytes | None]:
        """Return chunks to write, in order, about ``max_bytes`` in all. An empty list means there is nothing.

        ``None`` among them is a half-close (a close, where the channel has none), given once and last. Pull only when
        the previous chunks are written: what is not pulled still belongs to the engine, and its policies and limits
        apply to it.
        """
        outbox = self._outbox
        chunks: list[bytes | None] = []
        size = 0
        while outbox.size and size < max_bytes and (message := outbox.pop()) is not None:
            chunks.append(message.text + b"\n")
            size += len(message.text)
        self.sent_bytes += size
        if self._phase is _CLOSING and self._end_due():
            chunks.append(None)
        return chunks

    def next_message(self, *, via: Hashable = ANY) -> Outgoing | None:
        """Return the next message of a channel with message boundaries, or ``None`` for "nothing".

        ``via`` asks for one that goes by that exchange, or by none where it is ``None``: for transports whose exchanges
        have room at different times. Pull only when the previous one is written. When ``None`` comes and ``closed`` is
        true, or a ``ConnectionClosed`` was reported, the channel is to be closed.
        """
        message = self._outbox.pop() if via is ANY else self._outbox.pop_by(via)
        if message is None:
            self._end_due()
        else:
            self.sent_bytes += len(message.text)
        return message

    def pending_exchanges(self) -> list[Hashable]:
        """Return the exchanges that ``next_message`` has something for, ``None`` among them for what goes by none."""
        return self._outbox.vias()

    def set_unwritten(self, size: int) -> None:
        """Note how many bytes the transport has pulled and not written yet: they count as output.

        For transports that buffer more than they write at once. Drain the events: requests may have room again.
        """
        self._held.unwritten = size

    # Time

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` is due, on the caller's clock, or ``None``. Every call may change it."""
        return self._timers.next()

    def handle_timeout(self, now: float) -> None:
        """Let deadlines up to ``now`` expire, after parsing what was fed before. Early or repeated calls do nothing.

        Drain the events, write the chunks, re-arm the deadline.
        """
        self._advance(now)
        while self._parse_one():
            pass
        for key in self._timers.pop_expired(now):
            if key == STALL_TIMER:
                self._check_stall()
            elif key == CLOSE_TIMER:
                self._finish(Input.SEND_ABORT, self._reason, self._cause)
            elif self._phase is not _CLOSED:
                self._expire(key)

    # The end

    def close(self, now: float, grace: float | None = 5.0) -> None:
        """Close in order: no new requests; answers to what runs go out, for at most ``grace`` seconds.

        ``None`` sets no limit. Requests of our own end as lost at once. Legal in every phase, any number of times;
        ``LocalProtocolError`` only for a ``grace`` that is no number of 0 or more.
        Drain the events, write the chunks, re-arm the deadline.
        """
        try:
            limit = seconds(grace)
        except ValueError as error:
            raise LocalProtocolError(str(error)) from None
        self._advance(now)
        if self._phase is not _CLOSED:
            self._begin_closing(Input.SEND_CLOSE, CloseReason.CLOSED, limit)

    def abort(self, cause: BaseException | None = None, *, reason: CloseReason = CloseReason.ABORTED) -> None:
        """Close at once: nothing more goes out. Legal in every phase, any number of times. Drain the events."""
        self._finish(Input.SEND_ABORT, reason, cause)

    # Look

    @property
    def phase(self) -> Phase:
        """Where the handshake session stands."""
        return self._phase

    @property
    def wants_read(self) -> bool:
        """Whether to read from the channel now. False means "not now": only ``closed`` ends a loop."""
        inbox = self._inbox
        if inbox.ended or self._phase is _CLOSED:
            return False
        if not self._is_full():
            # Requests that were put aside come first: drain the events.
            return not inbox.has_deferred
        # Two sides that both stopped reading while both wait for answers would wait for ever, and what frees a peer
        # whose requests take too much may be a cancellation. Requests that come meanwhile are put aside.
        needs_more = self._awaits_answers or self._held.requests > self._limits.peer_bytes // 2
        return needs_more and inbox.deferred_bytes <= self._limits.queued_bytes

    @property
    def input_ended(self) -> bool:
        """Whether the peer sends nothing more. What it sent before may still wait to be acted on."""
        return self._inbox.ended

    @property
    def wants_write(self) -> bool:
        """Whether ``data_to_send`` or ``next_message`` has something to give."""
        return bool(self._outbox) or self._end_is_due

    @property
    def closed(self) -> bool:
        """Whether everything is over: the last event was given. Write what was pulled, then close the channel."""
        return self._phase is _CLOSED and not self.has_events

    @property
    def has_events(self) -> bool:
        """Whether events wait that ``next_event`` gives without being fed, requests that were put aside among them."""
        return bool(self._events or self._ready) or self.has_room_for_deferred

    @property
    def has_room(self) -> bool:
        """Whether more output may be made.

        Requests of our own may while no more than half of ``Limits.queued_bytes`` of them waits, and anything while no
        more than half of ``Limits.peer_bytes`` does.
        """
        outbox, limits = self._outbox, self._limits
        pulled = self._held.unwritten + self._held.own
        room_to_ask = outbox.own_bytes + pulled <= limits.queued_bytes // 2
        return room_to_ask and outbox.size + pulled <= limits.peer_bytes // 2

    @property
    def has_room_for_deferred(self) -> bool:
        """Whether requests that were put aside may go on: ``next_event`` gives them."""
        return self._inbox.has_deferred and not self._is_full()

    @property
    def end(self) -> ConnectionClosed | None:
        """How it ended, as the last event says; ``None`` before that."""
        return ConnectionClosed(self._reason, self._cause) if self._phase is _CLOSED else None

    @property
    def last_received_at(self) -> float | None:
        """When something came in last, on the caller's clock; ``None`` before that."""
        return None if self._heard_at == float("-inf") else self._heard_at

    @property
    def held(self) -> Held:
        """The bytes held for the peer. Its transport keeps ``own`` and ``replay`` up to date, and ``set_unwritten``."""
        held = self._held
        held.input, held.output = self._inbox.size, self._outbox.size
        return held

    @property
    def queued_bytes(self) -> int:
        """How many bytes of messages wait to be pulled, by their size in memory."""
        return self._outbox.size

    @property
    def dropped_logs(self) -> int:
        """How many log messages were dropped because the peer did not read."""
        return self._outbox.dropped_logs

    # For subclasses

    @abstractmethod
    def _receive_text(self, text: bytes | str, via: Hashable) -> None:
        """Act on one JSON text: at least one event must follow."""

    @abstractmethod
    def _receive_overlong(self, overlong: Overlong, via: Hashable) -> None:
        """Act on a message over the limit: at least one event must follow."""

    @abstractmethod
    def _receive_deferred(self, text: bytes | str, via: Hashable) -> None:
        """Act on a request that was put aside: at least one event must follow."""

    @abstractmethod
    def _expire(self, id: int) -> None:
        """Act on the deadline of one of our own requests."""

    @abstractmethod
    def _lose_outgoing(self, reason: CloseReason, cause: BaseException | None) -> None:
        """End every request of our own as lost."""

    @abstractmethod
    def _drop_incoming(self) -> None:
        """Forget the peer's requests: no answer can reach it."""

    @property
    @abstractmethod
    def _owes_answers(self) -> bool:
        """Whether a request of the peer's is still running."""

    @property
    @abstractmethod
    def _awaits_answers(self) -> bool:
        """Whether a request of our own is still running."""

    def _step(self, what: Input) -> None:
        """Move to the next phase. The caller has made sure, by ``_allows`` or by the table, that there is one."""
        phase = self._row[what]
        if phase is not self._phase:
            self._enter(phase)

    def _enter(self, phase: Phase) -> None:
        """Assign the phase, here and nowhere else: where the table leads, or where a snapshot was taken."""
        self._phase = phase
        self._row = _ROWS[self.role, phase]

    def _allows(self, what: Input) -> bool:
        return what in self._row

    def _begin_closing(self, what: Input, reason: CloseReason, grace: float | None) -> None:
        """Stop asking. Give what still runs ``grace`` seconds; ``None`` sets no limit."""
        if self._phase is not _CLOSING:
            self._reason = reason
            self._lose_outgoing(reason, self._cause)
        self._step(what)
        if grace is not None:
            due = self._timers.get(CLOSE_TIMER)
            self._timers.set(CLOSE_TIMER, self._now + grace if due is None else min(due, self._now + grace))

    def _finish(self, what: Input, reason: CloseReason, cause: BaseException | None) -> None:
        """End now, whatever is unsent or unanswered. The event of this is the last one: report the others before."""
        if self._phase is _CLOSED:
            return
        self._step(what)
        self._lose_outgoing(reason, cause)
        self._drop_incoming()
        self._outbox.clear()
        self._inbox.clear()
        self._timers.clear(CLOSE_TIMER)
        self._timers.clear(STALL_TIMER)
        self._reason, self._cause = reason, cause
        self._events.append(ConnectionClosed(reason, cause))

    def _is_full(self) -> bool:
        """Whether the peer's requests must wait: for it to read its answers, or for those that run to end."""
        outbox, held, limits = self._outbox, self._held, self._limits
        waiting = outbox.size - outbox.own_bytes + held.unwritten
        return waiting > limits.high_water or held.requests > limits.peer_bytes // 2

    def _check_outbox(self) -> None:
        """Give up on a peer that lets the output grow without bound. This may be the end: see ``_finish``.

        A peer may ask for more than it has read so far, so responses of handlers beyond ``Limits.queued_bytes`` only
        start a clock, and reading some of them stops it. Nothing else may wait that long.
        """
        outbox, limits = self._outbox, self._limits
        size = outbox.size + self._held.unwritten
        if size <= limits.queued_bytes:
            return
        others = outbox.size - outbox.response_bytes
        if self.role is Role.CLIENT:
            # A transport of a server holds responses, or a piece of a stream; that of a client, what it tells.
            others += self._held.unwritten
        if others > limits.queued_bytes or size > limits.peer_bytes:
            self._finish(Input.SEND_ABORT, CloseReason.SLOW_CONSUMER, None)
        elif self._timers.get(STALL_TIMER) is None:
            self._stalled_at = None
            self._timers.set(STALL_TIMER, self._now)

    def _check_stall(self) -> None:
        """End a connection whose peer reads nothing of much output; otherwise look again later."""
        unwritten = self._held.unwritten
        if self._outbox.size + unwritten <= self._limits.queued_bytes or self._phase is _CLOSED:
            return
        if self._stalled_at == self.sent_bytes - unwritten:
            self._finish(Input.SEND_ABORT, CloseReason.SLOW_CONSUMER, None)
            return
        # The clock starts here: whoever filled the output may have had an older time.
        self._stalled_at = self.sent_bytes - unwritten
        self._timers.set(STALL_TIMER, self._now + STALL + unwritten / READ_RATE)

    # Inside

    def _advance(self, now: float) -> None:
        if now > self._now:
            self._now = now

    def _parse_one(self) -> bool:
        """Parse one message, or note the end of the input; tell whether there was anything."""
        if self._phase is _CLOSED:
            return False
        inbox = self._inbox
        item = inbox.next()
        if item is not None:
            text, via = item
            if isinstance(text, Overlong):
                self._receive_overlong(text, via)
            else:
                self._receive_text(text, via)
            return True
        if inbox.deferred_bytes and not self._is_full():
            deferred = inbox.next_deferred()
            self._receive_deferred(deferred.text, deferred.via)
            return True
        if inbox.ended and not self._end_received and not inbox.has_deferred:
            self._end_received = True
            self._receive_end()
            return True
        return False

    def _receive_end(self) -> None:
        # What a server still runs is answered before it closes. A client has nobody to answer to: what it pulled before
        # may still be written, and nobody need read it.
        is_client = self.role is Role.CLIENT
        self._begin_closing(Input.RECV_END, CloseReason.END_OF_FILE, LAST_WRITE if is_client else None)
        if is_client:
            self._drop_incoming()
            self._outbox.clear()

    @property
    def _end_is_due(self) -> bool:
        return self._phase is _CLOSING and not self._outbox and not self._owes_answers and not self._inbox.has_deferred

    def _end_due(self) -> bool:
        """Once everything owed is out, end: true then, and only then."""
        if not self._end_is_due:
            return False
        self._finish(Input.SEND_END, self._reason, self._cause)
        return True
