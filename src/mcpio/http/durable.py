"""Sessions that outlive the process of their server."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import attrs

from mcpio.auth.grant import Grant
from mcpio.engine.channel import Outgoing, Timers
from mcpio.engine.limits import Limits
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase
from mcpio.errors import ErrorCode, McpError, RequestError
from mcpio.framing.sse import encode_event
from mcpio.http.checks import Rejection
from mcpio.http.model import HttpOptions
from mcpio.http.server import OVERLOADED, STORE_FAILED, TOO_MANY_SESSIONS, HttpServer
from mcpio.http.sessions import (
    EVENT_COST,
    LISTENING,
    Exchange,
    HttpSession,
    Lookup,
    Response,
    SentEvent,
    SessionDelete,
    SessionEffect,
    SessionLoad,
    SessionOpened,
    SessionRecord,
    SessionSave,
    SessionSweep,
    StoredEvent,
    StoredSession,
    Stream,
    StreamRecord,
    dump_session,
    event_id,
    load_session,
    parse_event_id,
)
from mcpio.http.streams import Streams

# -------------------------------------------------------------------------------------------------------------- journal
# The journal of a durable session: its stored state, and output that is stored before it is sent.

EVERYTHING: Final = 1 << 62
"""A mark after all others."""


@attrs.frozen
class HeldEvent:
    """An event that no exchange has taken."""

    event: StoredEvent
    mark: int
    """The mark that the store must reach before the event may be sent."""


class Lane:
    """The events of one stream that no exchange has taken, in order."""

    __slots__ = ("held", "leaves", "retry", "sent")

    def __init__(self, sent: int = 0) -> None:
        self.held: deque[HeldEvent] = deque()
        self.sent: int = sent
        """The number of the last event that an exchange took."""
        self.leaves: bool = False
        """Whether the exchange ends as soon as the client has an event to resume from."""
        self.retry: float | None = None
        """Seconds that the client is to wait then."""


class Journal:
    """The stored state of one session. Output has a mark, and may be sent once the store has reached it."""

    __slots__ = (
        "_changed",
        "_forgotten",
        "_held_bytes",
        "_held_count",
        "_lanes",
        "_limits",
        "_mark",
        "_saved_at",
        "_saved_value",
        "_session",
        "_unstored",
        "_writing",
        "gated",
        "is_failing",
        "is_new",
        "stored",
    )

    stored: int
    """The mark that the store has reached."""
    gated: dict[Exchange, None]
    """Exchanges whose JSON responses wait for the store."""
    is_new: bool
    """Whether the store does not know the session yet."""
    is_failing: bool
    """Whether the last write failed."""

    def __init__(self, session: HttpSession, changed: Callable[[], None], limits: Limits, *, is_new: bool) -> None:
        """Call ``changed`` when something must be stored. ``session`` counts the waiting bytes."""
        self._session = session
        self._changed = changed
        self._limits = limits
        self._mark = self.stored = 0
        self._lanes: dict[int, Lane] = {}
        self._held_count = self._held_bytes = 0
        self._unstored: deque[StoredEvent] = deque()
        self._forgotten: dict[tuple[int, int], None] = {}
        self._writing: tuple[int, int, tuple[tuple[int, int], ...]] | None = None
        self._saved_value: Any = None
        self._saved_at = float("-inf")
        self.gated = {}
        self.is_new = is_new
        self.is_failing = False

    # The session

    def mark(self) -> int:
        """Return the mark for output that depends on the present state of the session."""
        self._mark += 1
        self._changed()
        return self._mark

    def lane(self, stream: Stream) -> Lane:
        """Return the lane of a stream."""
        lane = self._lanes.get(stream.number)
        if lane is None:
            lane = self._lanes[stream.number] = Lane()
        return lane

    def put(self, stream: Stream, data: bytes) -> None:
        """Append an event, which waits for the store and for an exchange."""
        event = StoredEvent(stream.number, stream.next_number, data)
        stream.next_number += 1
        self._unstored.append(event)
        self.put_again(stream, event, self.mark())

    def put_again(self, stream: Stream, event: StoredEvent, mark: int = 0) -> None:
        """Append an event that was loaded from the store."""
        self.lane(stream).held.append(HeldEvent(event, mark))
        self._count(1, event)

    def first(self, stream: Stream) -> StoredEvent | None:
        """Return the next event of a stream, if it may be sent."""
        held = self.lane(stream).held
        return held[0].event if held and held[0].mark <= self.stored else None

    def take(self, stream: Stream) -> StoredEvent | None:
        """Remove and return the next event of a stream, if it may be sent."""
        event = self.first(stream)
        if event is not None:
            lane = self.lane(stream)
            lane.held.popleft()
            lane.sent = event.number
            self._count(-1, event)
        return event

    def drop(self, stream: Stream) -> None:
        """Drop the waiting events of a stream that has ended."""
        for each in self._lanes.pop(stream.number, Lane()).held:
            self._count(-1, each.event)
            self.forget(each.event.stream, each.event.number)

    def forget(self, stream: int, number: int) -> None:
        """Mark an event to be dropped from the store with the next write."""
        self._forgotten[stream, number] = None

    @property
    def has_room(self) -> bool:
        """Whether optional messages are still accepted (P6)."""
        return self._held_count < self._limits.replay_events and self._held_bytes < self._limits.replay_bytes

    def _count(self, sign: int, event: StoredEvent) -> None:
        size = sign * (len(event.data) + EVENT_COST)
        self._held_count += sign
        self._held_bytes += size
        self._session.unwritten += size

    # The store

    @property
    def is_writing(self) -> bool:
        """Whether a write is under way."""
        return self._writing is not None

    @property
    def has_more(self) -> bool:
        """Whether something is not stored yet."""
        return self._mark > self.stored

    def write(
        self, session: HttpSession, saved: Mapping[str, Any], moment: float, refresh: float
    ) -> tuple[bytes, tuple[StoredEvent, ...], tuple[tuple[int, int], ...]] | None:
        """Return the record to write, events to append and events to drop; ``None`` if the store is up to date.

        ``saved`` is the session as JSON. An unchanged record is written again ``refresh`` seconds after the last time.
        Raises LocalProtocolError if JSON cannot express it.
        """
        # A stream without events cannot be resumed.
        streams = tuple(
            StreamRecord(each.number, each.next_number, self.lane(each).sent)
            for each in session.streams.values()
            if each.next_number > 1
        )
        # Without ``sent``, which every event changes: ``DurableStreams.listen`` makes up for one that is too low.
        value = (_lasting(saved), [(each.number, each.next_number) for each in streams])
        if not self._unstored and value == self._saved_value and moment - self._saved_at < refresh:
            self.reach(self._mark)
            return None
        owner: Any = session.principal  # one that can be stored, or there would be no journal
        text = dump_session(SessionRecord(owner, session.next_stream, streams, saved))
        # Both stay until ``written``: a write that fails is repeated with all of them.
        events, forgotten = tuple(self._unstored), tuple(self._forgotten)
        self._writing = (self._mark, len(events), forgotten)
        self._saved_value, self._saved_at = value, moment
        return text, events, forgotten

    def written(self) -> None:
        """Record that the store has what ``write`` returned last."""
        if self._writing is not None:
            mark, count, forgotten = self._writing
            self._writing = None
            for _ in range(count):
                self._unstored.popleft()
            for each in forgotten:
                self._forgotten.pop(each, None)
            self.is_new = self.is_failing = False
            self.reach(mark)

    def failed(self) -> None:
        """Record that the write failed or that its outcome is unknown."""
        self._writing = self._saved_value = None  # the store may have either state: the next write is a whole one
        self.is_failing = True

    def reach(self, mark: int = EVERYTHING) -> None:
        """Release the output up to a mark."""
        self.stored = max(self.stored, mark)

    def let_events_go(self) -> None:
        """Release all events: the session has ended, so no client can resume their streams."""
        for lane in self._lanes.values():
            lane.held = deque(HeldEvent(each.event, 0) for each in lane.held)


def journal_of(session: HttpSession) -> Journal | None:
    """Return the journal of a session, which the server knows only in part."""
    journal: Any = session.journal
    typed: Journal | None = journal
    return typed


def _lasting(saved: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a session as JSON without the counters that change with each request and may restart."""
    engine = saved.get("engine")
    if not isinstance(engine, Mapping):
        return saved
    return {**saved, "engine": {name: value for name, value in engine.items() if name not in _COUNTERS}}


_COUNTERS: Final = frozenset({"next_incoming", "answered"})


# -------------------------------------------------------------------------------------------------------------- streams
# The streams of durable sessions: each event is in the store before an exchange gets it.
# Their messages do not wait in the engine, which could not be saved then, but in the session's journal, from where they
# are stored.


class DurableStreams(Streams):
    """The streams of all sessions of one server, some of which are durable and have a journal."""

    def advance(self, session: HttpSession) -> None:
        """Move on all messages that wait in the engine of a session."""
        if session.journal is not None and session.connection.has_output(None):
            self._listening(session).is_resumable = True
        super().advance(session)

    def close(self, session: HttpSession, stream: Stream) -> None:
        """Forget a stream and all of its events."""
        super().close(session, stream)
        if (journal := journal_of(session)) is not None:
            journal.drop(stream)

    def listen(self, session: HttpSession, exchange: Exchange) -> None:
        """Attach an exchange to a stream, after the last event that the client received."""
        journal, seen = journal_of(session), parse_event_id(exchange.last_event_id or "")
        stream = None if seen is None else session.streams.get(seen[0])
        if journal is not None and seen is not None and stream is not None:
            # The process before this one may have sent more than it could record.
            while (event := journal.first(stream)) is not None and event.number <= seen[1]:
                journal.take(stream)
                self._keep_sent(session, stream, event)
        super().listen(session, exchange)

    def interrupt(self, session: HttpSession, stream: Stream, retry: float | None) -> bool:
        """End the exchange of a stream, as soon as the client has an event to resume from."""
        journal, exchange = journal_of(session), stream.exchange
        if journal is None or exchange is None or not self._may_interrupt(session, exchange):
            return super().interrupt(session, stream, retry)
        self.begin(session, stream)
        lane = journal.lane(stream)
        if lane.sent:
            return super().interrupt(session, stream, retry)
        lane.leaves, lane.retry = True, retry
        return True

    def end(self, session: HttpSession, *, delivers: bool) -> list[Exchange]:
        """End every stream of a session after all that may be sent; return the exchanges without a response."""
        if session.journal is not None and delivers:
            for stream in session.streams.values():
                while self._fill(session, stream):
                    pass
        return super().end(session, delivers=delivers)

    def put_again(self, session: HttpSession, event: StoredEvent) -> None:
        """Restore an event from the store: to be sent if its stream continues, or else as already sent."""
        journal, stream = journal_of(session), session.streams.get(event.stream)
        if journal is not None and stream is not None and event.number > journal.lane(stream).sent:
            journal.put_again(stream, event)
        else:
            self._keep_sent(session, stream, event)

    def wait_for_client(self, session: HttpSession, stream: Stream) -> None:
        """Start the time that the client has to resume a stream."""
        if stream.number != LISTENING and self._options.resume_within is not None:
            self._arm(session, stream, self._options.resume_within)

    # Methods of the base class

    def _advance(self, session: HttpSession, stream: Stream) -> None:
        if session.journal is None:
            super()._advance(session, stream)
            return
        exchange = stream.exchange
        if exchange is not None and exchange.response is Response.UNDECIDED:
            self._answer(session, stream, exchange)
        if stream.is_resumable:
            while (message := self._take(session, stream)) is not None:
                self._hold(session, stream, message)
        if exchange is not None:
            exchange.wake()

    def _put(self, session: HttpSession, stream: Stream, text: bytes) -> None:
        journal = journal_of(session)
        if journal is None or not stream.is_resumable:
            super()._put(session, stream, text)
            return
        id = event_id(stream.number, stream.next_number)
        journal.put(stream, encode_event(text, type="message" if text else None, id=id))

    def _fill(self, session: HttpSession, stream: Stream) -> bool:
        journal = journal_of(session)
        if journal is None or not stream.is_resumable:
            return super()._fill(session, stream)
        event = journal.take(stream)
        if event is None:
            return False
        stream.events.append(SentEvent(event.stream, event.number, event.data))
        return True

    def _has_more(self, session: HttpSession, stream: Stream) -> bool:
        journal, exchange = journal_of(session), stream.exchange
        if journal is None:
            return super()._has_more(session, stream)
        lane = journal.lane(stream)
        if lane.leaves and lane.sent:
            lane.leaves = False
            super().interrupt(session, stream, lane.retry)
            return True
        if exchange is not None and journal.first(stream) is not None:
            exchange.wake()
        return bool(lane.held)

    def _forget_event(self, session: HttpSession, event: SentEvent) -> None:
        if (journal := journal_of(session)) is not None:
            journal.forget(event.stream, event.number)

    def _hold(self, session: HttpSession, stream: Stream, message: Outgoing) -> None:
        """Add a message to the journal; drop an optional one while too much waits (P6)."""
        journal = journal_of(session)
        if journal is None or message.last or message.requests or journal.has_room:
            self._put(session, stream, message.text)
        else:
            self._give_up(session, message)

    def _keep_sent(self, session: HttpSession, stream: Stream | None, event: StoredEvent) -> None:
        """Keep an event that the client received, or that an earlier process sent."""
        sent = SentEvent(event.stream, event.number, event.data, self.now)
        if stream is None or stream.number == LISTENING:
            self._remember(session, (sent,))
        else:
            stream.events.append_sent(sent)
            self._arm_sent(session)


# ---------------------------------------------------------------------------------------------------------------- queue
# The queue of store effects of durable sessions: their order, and the continuation of each.
# Output commit: nothing that depends on a session is sent before the store has that state. So the next process knows
# all that a client has seen, and no client has seen what it does not know.

RETRY_AFTER: Final = 1.0
"""Seconds before a failed write is tried again."""

LOOKUP_TIMEOUT: Final = 10.0
"""Seconds that a request waits for the store to look up its session."""

KEY_LENGTH: Final = 32
"""Characters of a session id."""

Loaded: TypeAlias = Callable[["LoadedSession | None", list[Exchange]], None]
"""Takes a session that was looked up, or ``None``, and the exchanges that wait for it."""


@attrs.define(kw_only=True)
class DurableHooks:
    """How sessions become values and back, for a server with durable sessions."""

    save: Callable[[HttpSession], Mapping[str, Any]]
    """Returns a session as a value that JSON can express. It is called when all events were drained. Raises McpError
    if the session cannot be saved."""
    restore: Callable[[Mapping[str, Any], Hashable, float], ServerConnection]
    """Returns the restored connection, given the value, the principal and the time. Raises McpError if it cannot be
    restored; the session then counts as unknown."""
    report: Callable[[str, BaseException], None]
    """Reports a fault to the operator."""
    epoch: float = 0.0
    """Unix time in seconds at ``now == 0``. It may be corrected: clocks drift, or stand still for a while."""


@attrs.frozen
class LoadedSession:
    """A session that was loaded from the store."""

    key: str
    stored: StoredSession
    record: SessionRecord


@attrs.frozen
class _Entry:
    """A session to store."""

    session: HttpSession
    key: str
    journal: Journal


class StoreQueue:
    """The effects for the store, in their order, and the answers that are outstanding."""

    def __init__(
        self,
        hooks: DurableHooks,
        options: HttpOptions,
        limits: Limits,
        *,
        release: Callable[[HttpSession, Journal], None],
        refuse: Callable[[HttpSession, Journal], None],
        loaded: Loaded,
        unreachable: Callable[[list[Exchange]], None],
    ) -> None:
        """Create an empty queue.

        Args:
            hooks: How sessions become values and back.
            options: Choices of the server.
            limits: Limits on waiting exchanges and effects.
            release: Called when the store has more of a session.
            refuse: Called when a session could not be stored.
            loaded: Called when a session was looked up.
            unreachable: Called with exchanges that the store left without an answer.
        """
        self._hooks = hooks
        self._options = options
        self._limits = limits
        self._release = release
        self._refuse = refuse
        self._loaded = loaded
        self._unreachable = unreachable
        self._effects: deque[tuple[SessionEffect, _Entry | None]] = deque()
        self._answers: dict[int, tuple[SessionEffect, _Entry | None]] = {}
        # By the key of the session, as the server calls it.
        self._entries: dict[int, _Entry] = {}
        self._changed: dict[int, None] = {}
        self._waiting: dict[str, list[Exchange]] = {}
        self._loads = 0
        self._next_token = 1
        self._retries: Timers[int] = Timers()
        # By the token of the effect.
        self._lookups: Timers[int] = Timers()
        self._has_swept = False

    # For the server

    def open(self, session: HttpSession, id: str, *, is_new: bool) -> Journal:
        """Start storing a session under its id. Its principal must be an ``Owner``."""
        journal = session.journal = Journal(session, partial(self._note, session.key), self._limits, is_new=is_new)
        self._entries[session.key] = _Entry(session, id, journal)
        return journal

    def end(self, session: HttpSession) -> None:
        """Delete a session that has ended. Output that reveals the end waits until the store has deleted it."""
        entry = self.leave(session)
        if entry is None:
            return
        if entry.journal.is_new and not entry.journal.is_writing:
            # The store has never heard of it. It need not, however many of them a flood brings while it is slow.
            entry.journal.reach()
            self._release(session, entry.journal)
        else:
            self._effects.append((SessionDelete(self._take_token(), entry.key), entry))

    def leave(self, session: HttpSession) -> _Entry | None:
        """Drop a session here, and keep it in the store."""
        self._changed.pop(session.key, None)
        self._retries.clear(session.key)
        return self._entries.pop(session.key, None)

    def look_up(self, exchange: Exchange, key: str, now: float) -> bool:
        """Ask the store for the session that an exchange names; return whether that makes sense."""
        if len(key) != KEY_LENGTH or not set(key) <= _HEXADECIMAL:
            return False
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append(exchange)
            return True
        if self._loads >= self._limits.exchanges:
            # The exchanges of most of them are gone.
            self._unreachable([exchange])
            return True
        self._loads += 1
        self._waiting[key] = [exchange]
        token = self._take_token()
        self._effects.append((SessionLoad(token, key), None))
        self._lookups.set(token, now + LOOKUP_TIMEOUT)
        return True

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` is due, or ``None``."""
        due = (self._retries.next(), self._lookups.next())
        return min((each for each in due if each is not None), default=None)

    def handle_timeout(self, now: float) -> None:
        """Retry failed writes; turn away exchanges that the store has left waiting."""
        for key in self._retries.pop_expired(now):
            self._changed[key] = None
        expired = set(self._lookups.pop_expired(now))
        for effect, _ in (*self._effects, *self._answers.values()) if expired else ():
            if isinstance(effect, SessionLoad) and effect.token in expired:
                self._unreachable(self._waiting.pop(effect.key, []))

    # For the driver of the store

    def next_effect(self, now: float) -> SessionEffect | None:
        """Return the next effect for the store, or ``None``."""
        if now == float("-inf"):
            return None  # no call has told the time yet
        if not self._has_swept:
            self._has_swept = True
            idle = self._options.session_idle
            before = None if idle is None else self._hooks.epoch + now - 2 * idle
            self._effects.appendleft((SessionSweep(self._take_token(), before, self._limits.sessions), None))
        # A session whose record is as the store has it gives no effect: look at the next one.
        while not self._effects and self._changed:
            key = next(iter(self._changed))
            del self._changed[key]
            self._save(self._entries[key], now)
        if not self._effects:
            return None
        effect, entry = self._effects.popleft()
        self._answers[effect.token] = (effect, entry)
        return effect

    def store_done(self, token: int, value: Any, now: float) -> None:
        """Process the store's answer: a value, or the exception that it raised."""
        pending = self._answers.pop(token, None)
        if pending is None:
            return
        effect, entry = pending
        if isinstance(effect, SessionLoad):
            self._loads -= 1
            # Past its deadline the requests that waited for it were turned away. Others may wait for a later look-up of
            # the same session by now, and must not get this answer: the session may have been deleted in between.
            if self._lookups.get(token) is not None:
                self._lookups.clear(token)
                self._loaded_answer(effect, value, now)
        elif entry is None:
            return
        elif isinstance(value, BaseException):
            self._fail(entry, now)
        elif isinstance(effect, SessionSave):
            entry.journal.written()
            if entry.journal.has_more:
                self._note(entry.session.key)
            self._release(entry.session, entry.journal)
        else:
            entry.journal.reach()
            self._release(entry.session, entry.journal)

    @property
    def is_idle(self) -> bool:
        """Whether no effect waits or is under way."""
        return not self._effects and not self._answers and not self._changed

    # Inside

    def _note(self, key: int) -> None:
        entry = self._entries.get(key)
        # One write at a time: further changes go together in the next. A failed one is retried after a delay.
        if entry is not None and not entry.journal.is_writing and not entry.journal.is_failing:
            self._changed[key] = None

    def _save(self, entry: _Entry, now: float) -> None:
        """Write the changes of one session, or release its output if there are none. A failure is retried later."""
        session, journal = entry.session, entry.journal
        if session.connection.phase is Phase.CLOSING:
            # It is about to end for good: nothing of it can be resumed.
            journal.reach()
            self._release(session, journal)
            return
        idle = self._options.session_idle
        moment = self._hooks.epoch + now
        try:
            saved = self._hooks.save(session)
            written = journal.write(session, saved, moment, float("inf") if idle is None else idle / 4)
        except McpError as error:
            self._hooks.report("a session cannot be stored", error)
            self._fail(entry, now)
            return
        if written is None:
            self._release(session, journal)
        else:
            self._effects.append((SessionSave(self._take_token(), entry.key, written[0], moment, *written[1:]), entry))

    def _fail(self, entry: _Entry, now: float) -> None:
        entry.journal.failed()
        # A session that has ended is not deleted again: its client, whose DELETE got 503, may go on with it by now.
        # Where it was not the client that ended it, the next sweep finds the record.
        if entry.session.key in self._entries:
            self._retries.set(entry.session.key, now + RETRY_AFTER)
        self._refuse(entry.session, entry.journal)

    def _loaded_answer(self, effect: SessionLoad, value: Any, now: float) -> None:
        waiting = self._waiting.pop(effect.key)
        if isinstance(value, BaseException):
            self._unreachable(waiting)
            return
        loaded: LoadedSession | None = None
        if value is not None:
            try:
                loaded = self._read(effect.key, value, now)
            except McpError as error:
                # It may be of another version, which finds it again after a downgrade, until it is swept.
                self._hooks.report("a stored session cannot be read", error)
        self._loaded(loaded, waiting)

    def _read(self, key: str, stored: Any, now: float) -> LoadedSession | None:
        """Return a loaded session, ``None`` if it was idle for too long. Raises InvalidMessage if it is invalid."""
        record = load_session(key, stored)
        idle = self._options.session_idle
        is_idle = idle is not None and stored.at + idle <= self._hooks.epoch + now
        return None if is_idle else LoadedSession(key, stored, record)

    def _take_token(self) -> int:
        token = self._next_token
        self._next_token += 1
        return token


_HEXADECIMAL: Final = frozenset("0123456789abcdef")


# ------------------------------------------------------------------------------------------------------------- sessions
# Durable sessions: created, restored, and handed over at shutdown.
# ``DurableSessions`` is the hook that ``HttpServer`` takes for them: ``HttpServer(…, durable=DurableSessions(hooks))``.

RESTARTING: Final = Rejection(
    503, "Service unavailable: the server is restarting", ErrorCode.INTERNAL_ERROR, ((b"retry-after", b"1"),)
)


class DurableSessions:
    """Keeps the sessions of one server in a store: those that have an id, and a principal that can be written down."""

    _server: HttpServer
    _limits: Limits
    _queue: StoreQueue
    _streams: DurableStreams

    def __init__(self, hooks: DurableHooks) -> None:
        """``hooks`` make a session a value, and back."""
        self._hooks = hooks
        # By the key of a session that is to be handed over by then.
        self._deadlines: Timers[int] = Timers()
        self._handed_over: set[HttpSession] = set()
        # Exchanges whose session the store has answered for.
        self._ready: deque[Exchange] = deque()

    def attach(
        self, server: HttpServer, options: HttpOptions, limits: Limits, timers: Timers[tuple[int, int, int]]
    ) -> DurableStreams:
        """Serve ``server``; return its streams. Raises ValueError if its options let no client resume."""
        if not options.resumes:
            raise ValueError("options of a server with a store must allow sessions, resumable streams and listening")
        self._server = server
        self._streams = DurableStreams(options, limits, timers)
        self._queue = StoreQueue(
            self._hooks,
            options,
            limits,
            release=self._release,
            refuse=self._refuse,
            loaded=self._resume,
            unreachable=self._turn_away,
        )
        return self._streams

    # The store

    def next_effect(self) -> SessionEffect | None:
        """Return the next effect for the store, or ``None``. All events were drained before."""
        return self._queue.next_effect(self._streams.now)

    def store_done(self, token: int, value: Any) -> None:
        """Process the store's answer to an effect."""
        self._queue.store_done(token, value, self._streams.now)

    def look_up(self, exchange: Exchange) -> bool:
        """Load the session that an exchange names; return whether the exchange has to wait for it."""
        id = exchange.session_id
        if exchange.lookup is not Lookup.NONE or id is None or self._server.has_session(id):
            return False
        is_waiting = self._queue.look_up(exchange, id, self._streams.now)
        # Where too many wait, the queue has turned it away already.
        if is_waiting and exchange.lookup is Lookup.NONE:
            exchange.lookup = Lookup.WAITING
        return is_waiting

    def admit_next(self) -> bool:
        """Admit the next request whose session the store has answered for; return whether there was one.

        Call it after the events of the restored session: so the caller can tell the requests that an earlier process
        received from new ones.
        """
        if not self._ready:
            return False
        self._server.admit_again(self._ready.popleft(), None)
        return True

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` is due."""
        due = (self._queue.next_deadline(), self._deadlines.next())
        return min((each for each in due if each is not None), default=None)

    def handle_timeout(self, now: float) -> None:
        """Handle the deadlines up to ``now``."""
        self._queue.handle_timeout(now)
        sessions = {session.key: session for session in self._server.sessions}
        for key in self._deadlines.pop_expired(now):
            self._hand_over(sessions[key])

    @property
    def is_stored(self) -> bool:
        """Whether the store has no effects left to perform."""
        return self._queue.is_idle

    # The life of a session

    def begun(self, session: HttpSession) -> None:
        """Store a new session. Its client hears of its id when the store has it."""
        is_lasting = session.principal.__class__ in (str, int, type(None), Grant)
        if session.id is not None and not session.is_legacy and is_lasting:
            self._queue.open(session, session.id, is_new=True)

    def used(self, session: HttpSession) -> None:
        """Record in the store that a session is in use."""
        if session.journal is not None and self._server.is_open(session):
            session.journal.mark()

    def flushed(self, session: HttpSession) -> None:
        """Hand over a session that has come to rest, while the server closes."""
        if session.journal is not None and session.is_at_rest:
            self._hand_over(session)

    def close(self, session: HttpSession, grace: float | None) -> bool:
        """Prepare to hand a session over within ``grace`` seconds; return whether it is a stored one.

        Its client is to find it again, in the next process. Running requests may still be answered here.
        """
        if session.journal is None:
            return False
        listening = session.streams.get(LISTENING)
        if listening is not None and listening.exchange is not None:
            exchange = listening.exchange
            self._streams.detach(session, exchange)
            exchange.finish()
        if grace is not None:
            self._deadlines.set(session.key, self._streams.now + grace)
        return True

    def forgetting(self, session: HttpSession) -> None:
        """Release output that waits for the store, if the session has ended: its streams cannot be resumed."""
        journal = journal_of(session)
        if journal is not None and session not in self._handed_over:
            for exchange in journal.gated:
                exchange.gate = journal.mark()
            journal.let_events_go()

    def forgotten(self, session: HttpSession) -> None:
        """Delete a session from the store, unless it was handed over."""
        self._deadlines.clear(session.key)
        if session in self._handed_over:
            self._handed_over.discard(session)
            self._queue.leave(session)
        else:
            self._queue.end(session)

    def closed_response(self, session: HttpSession) -> Rejection | None:
        """Return the answer to requests for a session that was handed over, ``None`` for the usual one."""
        return RESTARTING if self._server.is_closing and session.journal is not None else None

    def _hand_over(self, session: HttpSession) -> None:
        """Leave a session to the next process. Output that is not stored was never sent."""
        _turn_back(journal_of(session), RESTARTING)
        self._handed_over.add(session)
        self._server.end(session)

    # Consequences of the store's answers

    def _release(self, session: HttpSession, journal: Journal) -> None:
        """Release the output that is stored by now."""
        for exchange in [each for each in journal.gated if each.gate <= journal.stored]:
            del journal.gated[exchange]
            exchange.wake()  # ``responses_to_send`` gave nothing of it before
        for stream in session.streams.values():
            if stream.exchange is not None and journal.first(stream) is not None:
                stream.exchange.wake()

    def _refuse(self, session: HttpSession, journal: Journal) -> None:
        """Answer that the store failed, where an answer in one piece waits for it."""
        _turn_back(journal, STORE_FAILED)
        if journal.is_new and self._server.is_open(session):
            # Its client does not know its id: the answer to ``initialize`` has just been replaced.
            self._server.end(session)

    def _turn_away(self, waiting: list[Exchange], rejection: Rejection = STORE_FAILED) -> None:
        for exchange in waiting:
            self._server.admit_again(exchange, rejection)

    def _resume(self, loaded: LoadedSession | None, waiting: list[Exchange]) -> None:
        """Continue a stored session, and the requests that waited for it."""
        if self._server.is_closing:
            self._turn_away(waiting, RESTARTING)
            return
        if loaded is not None and not self._server.make_room():
            self._turn_away(waiting, TOO_MANY_SESSIONS)
            return
        if loaded is not None and self._server.is_overloaded:
            self._turn_away(waiting, OVERLOADED)
            return
        if loaded is not None:
            try:
                self._restore(loaded)
            except McpError as error:
                self._hooks.report("a stored session cannot be taken up", error)
        self._ready.extend(waiting)

    def _restore(self, loaded: LoadedSession) -> None:
        """Open a session from its record, and its streams, each waiting for its client to return."""
        record, principal = loaded.record, loaded.record.owner
        connection = self._hooks.restore(record.saved, principal, self._streams.now)
        session = self._server.adopt(connection, principal, loaded.key)
        journal = self._queue.open(session, loaded.key, is_new=False)
        session.next_stream = max(record.next_stream, LISTENING + 1)
        for each in record.streams:
            stream = session.streams[each.number] = Stream(each.number, None, session)
            stream.is_resumable = True
            stream.next_number = each.next_number
            journal.lane(stream).sent = each.sent
            stream.requests = {request.id for request in connection.unanswered if request.via == stream.via}
            self._streams.wait_for_client(session, stream)
        for event in loaded.stored.events:
            self._streams.put_again(session, event)
        _fail_unreachable(session)
        self._server.arm_idle(session)
        self._server.events.append((session, SessionOpened(record.saved)))


def _fail_unreachable(session: HttpSession) -> None:
    """Answer the requests whose streams are lost: their clients already got an error."""
    connection = session.connection
    for request in connection.unanswered:
        if session.stream_of(request.via) is None:
            error = RequestError(ErrorCode.INTERNAL_ERROR, "Interrupted: ask again", {"reason": "interrupted"})
            connection.send_error(request.id, error)


def _turn_back(journal: Journal | None, rejection: Rejection) -> None:
    """Replace the responses that wait for the store by a rejection."""
    gated = {} if journal is None else journal.gated
    for exchange in tuple(gated):
        del gated[exchange]
        exchange.take_back()
        exchange.reject(rejection)
