"""The sessions of one server: how they begin, what follows from what their engines did, and how they end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from mcpio.engine.ledger import Ledger
from mcpio.engine.limits import Limits
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase
from mcpio.engine.timers import Timers
from mcpio.errors import ErrorCode
from mcpio.events import CancelReceived, CloseReason, Event, IgnoreReason, MessageIgnored, RequestReceived
from mcpio.http.checks import Rejection
from mcpio.http.options import HttpOptions
from mcpio.http.server.sessions import Exchange, HttpSession, SessionClosed, SessionOpened
from mcpio.http.server.streams import Streams, TimerKind

if TYPE_CHECKING:
    from mcpio.http.durable.records import SessionEffect

__all__ = ["NO_SESSION", "OVERLOADED", "SLACK", "HttpEvent", "Sessions"]

HttpEvent: TypeAlias = "Event | SessionOpened | SessionClosed"
"""What happens in a session: what its connection reports, and that it began or is over."""

ID_BYTES: Final = 16
"""Bytes of entropy in the id of a session (SESS-02)."""

# By names of their own where every request passes: see the same in ``mcpio.engine.channel``.
_CLOSING, _CLOSED = Phase.CLOSING, Phase.CLOSED
_ENGINE, _IDLE = TimerKind.ENGINE, TimerKind.IDLE

NO_SESSION: Final = Rejection(404, "Session not found: it is over, or was never there")

OVERLOADED: Final = Rejection(
    503, "Service unavailable: too much is held for clients", ErrorCode.INTERNAL_ERROR, ((b"retry-after", b"5"),)
)

SLACK: Final = 8192
"""Bytes by which the ledger rounds up: most requests change less, so it need not hear of them."""

LIGHT: Final = 65536
"""Up to this much the ledger need not hear at once that less is held."""


class Sessions:
    """The sessions of one server, those included that are one request only."""

    events: deque[tuple[HttpSession, HttpEvent]]
    """What happened, for the caller to take."""
    is_closing: bool
    """Whether no new ones begin."""

    def __init__(
        self,
        options: HttpOptions,
        limits: Limits,
        entropy: Callable[[int], bytes],
        ledger: Ledger,
        on_given_up: Callable[[], None],
        on_room: Callable[[HttpSession], None],
        admit_again: Callable[[Exchange, Rejection | None], None],
    ) -> None:
        """``ledger`` counts what is held for clients; ``on_given_up`` is called when it has something freed.

        ``on_room`` takes a session whose output may have become less.
        """
        self._on_room = on_room
        self._admit_again = admit_again
        self._ledger = ledger
        self._on_given_up = on_given_up
        self._options = options
        self._limits = limits
        self._entropy = entropy
        self._by_key: dict[int, HttpSession] = {}
        # In the order of their last use: whoever has to make room looks at the first.
        self._by_id: dict[str, HttpSession] = {}
        self._next_key = 1
        self.timers: Timers[tuple[int, int, int]] = Timers()
        self.streams: Streams = Streams(options, limits, self.timers)
        self.events = deque()
        self.is_closing = False
        # Those with requests that wait for what the handlers of others do.
        self._deferring: dict[HttpSession, None] = {}

    def advance(self, now: float) -> None:
        """Take note of the time."""
        streams = self.streams
        if now > streams.now:
            streams.now = now

    def next_event(self) -> tuple[HttpSession, HttpEvent] | None:
        """Return what happened next, or ``None``."""
        while not self.events and self._deferring:
            session = next(iter(self._deferring))
            del self._deferring[session]
            self.flush(session)
        return self.events.popleft() if self.events else None

    # Begin

    def begin(self, connection: ServerConnection, principal: Hashable) -> HttpSession:
        """Begin a session. As long as it has no id, it ends with its request."""
        session = self._enrol(connection, principal)
        self.events.append((session, SessionOpened()))
        return session

    def _enrol(self, connection: ServerConnection, principal: Hashable) -> HttpSession:
        session = HttpSession(self._next_key, connection, principal, self.streams.now)
        self._next_key += 1
        connection.can_reach = partial(self.streams.can_reach, session)
        self._by_key[session.key] = session
        self._record(session, session.weight)
        return session

    @property
    def is_overloaded(self) -> bool:
        """Whether so much is held for clients that none is taken in that is new."""
        return self._ledger.is_nearly_full

    def make_room(self) -> bool:
        """Whether there may be one more with an id: the one that was idle for longest ends for it, if need be (P6)."""
        if len(self._by_id) < self._limits.sessions:
            return True
        for session in self._by_id.values():
            if session.is_idle:
                self.end(session)
                return True
        return False

    def name(self, session: HttpSession) -> str:
        """Give a session the id that its client is to use from now on (SESS-01, SESS-02)."""
        id = session.id = self._entropy(ID_BYTES).hex()
        self._by_id[id] = session
        self._arm_idle(session)
        return id

    # Use

    def find(self, id: str, principal: Hashable) -> HttpSession | None:
        """Return the session of that id, if it is that principal's (SESS-05, SESS-09)."""
        session = self._by_id.get(id)
        return None if session is None or session.principal != principal else session

    def look_up(self, exchange: Exchange) -> bool:
        """Look elsewhere for the session that an exchange names; return whether there is something to wait for."""
        del exchange
        return False

    def enter(self, session: HttpSession, exchange: Exchange) -> None:
        """Take note that an exchange belongs to a session."""
        exchange.session = session
        session.exchanges[exchange] = None
        session.exchange_bytes += exchange.cost
        session.held.bodies += len(exchange.body)
        if exchange.settled:
            # From now on it is counted with its session.
            exchange.settled = 0
            self._ledger.settle(exchange, 0, _nothing)

    def leave(self, session: HttpSession, exchange: Exchange) -> None:
        """Take note that an exchange of a session is over."""
        del session.exchanges[exchange]
        session.exchange_bytes -= exchange.cost
        if not session.exchanges:
            session.exchanges = {}  # one that held something is larger than an idle session should be
        exchange.drop_body()
        exchange.drop_items()
        session.used_at = self.streams.now
        if session.id is not None and session.id in self._by_id:
            self._by_id[session.id] = self._by_id.pop(session.id)
        self.go_on(session)

    def go_on(self, session: HttpSession) -> None:
        """See to what follows from what the adapters took."""
        if not self.is_open(session):
            return
        session.tell_unwritten()
        if session.may_end or session.connection.has_room_for_deferred:
            self.flush(session)
        else:
            if session.settled > LIGHT:
                self.settle(session)
            self._on_room(session)

    def is_open(self, session: HttpSession) -> bool:
        """Whether a session is not over."""
        return session.key in self._by_key

    def drain(self, session: HttpSession) -> list[Event]:
        """Pass on what the engine of a session reports, note whom it is to answer, and return it.

        Of the requests that waited for room, one at a time: what its handler does decides whether the next may go on.
        """
        connection = session.connection
        next_event = connection.next_event
        events: list[Event] = []
        was_cancelled = False
        while (event := next_event()) is not None:
            events.append(event)
            self.events.append((session, event))
            if isinstance(event, RequestReceived):
                stream = session.stream_of(event.context.via)
                if stream is not None:
                    stream.requests.add(event.id)
                if connection.has_room_for_deferred:
                    self._deferring[session] = None
                    break
            elif isinstance(event, CancelReceived) or (
                isinstance(event, MessageIgnored) and event.reason is IgnoreReason.NOT_STARTED
            ):
                was_cancelled = True
        if was_cancelled:
            self.streams.end_unasked(session)
        return events

    def flush(self, session: HttpSession) -> None:
        """See to what follows from what was done to the connection of a session."""
        if not self.is_open(session):
            return
        connection = session.connection
        session.tell_unwritten()
        self.drain(session)
        self.streams.advance(session)
        if connection.phase is _CLOSING:
            self._see_out(session)
        if connection.has_events and (connection.phase is _CLOSED or session not in self._deferring):
            self.drain(session)
        if connection.phase is _CLOSED:
            self._forget(session)
        elif session.id is None and session.is_idle:
            self.end(session)
        else:
            self._arm_engine(session)
            self.settle(session)
            self._on_room(session)

    # What is held

    def settle(self, session: HttpSession) -> None:
        """Tell the ledger what is held for a client, where that has changed. It may be the end of some session."""
        session.tell_unwritten()
        weight = session.weight
        if weight > self._limits.peer_bytes and self.streams.forget_sent(session):
            weight = session.weight
        if not 0 <= session.settled - weight <= 2 * SLACK:
            self._record(session, weight)

    def settle_alone(self, exchange: Exchange) -> None:
        """Tell the ledger what an exchange holds that belongs to no session, or to one that is over."""
        weight = exchange.cost + len(exchange.body) + exchange.size
        if not 0 <= exchange.settled - weight <= 2 * SLACK:
            exchange.settled = weight + SLACK
            self._ledger.settle(exchange, exchange.settled, partial(self._give_up_alone, exchange))

    def forget_alone(self, exchange: Exchange) -> None:
        """Tell the ledger that an exchange is over."""
        if exchange.settled:
            self._ledger.settle(exchange, 0, _nothing)

    def is_too_heavy(self, session: HttpSession) -> bool:
        """Whether as much is held for a client as for one may be."""
        return session.weight > self._limits.peer_bytes

    def _record(self, session: HttpSession, weight: int) -> None:
        session.settled = weight + SLACK
        self._ledger.settle(session, session.settled, partial(self._give_up, session))

    def _give_up(self, session: HttpSession) -> None:
        """Free what is held for a client: what can be done without, or else all of it."""
        session.settled = 0
        if self.streams.forget_sent(session):
            self._record(session, session.weight)
        else:
            self.end(session, CloseReason.OVERLOADED)
        self._on_given_up()

    def _give_up_alone(self, exchange: Exchange) -> None:
        exchange.settled = 0
        exchange.drop_body()
        exchange.cut(OVERLOADED)
        self._on_given_up()

    # End

    def end(self, session: HttpSession, reason: CloseReason = CloseReason.ABORTED) -> None:
        """End a session at once (SESS-05)."""
        session.connection.abort(reason=reason)
        self.flush(session)

    def lose(self, session: HttpSession, cause: BaseException | None) -> None:
        """Take note that the channel of a session of 2024-11-05 broke, which is its end."""
        session.connection.connection_lost(cause, self.streams.now)
        self.flush(session)

    def close(self, grace: float | None) -> None:
        """Begin nothing new; end every session in order, within ``grace`` seconds."""
        self.is_closing = True
        for session in self.all:
            self._close(session, grace)

    def closed_response(self, session: HttpSession) -> Rejection:
        """Return what to answer to a request for a session that is over."""
        del session
        return NO_SESSION

    def _close(self, session: HttpSession, grace: float | None) -> None:
        session.connection.close(self.streams.now, grace)
        self.streams.abandon(session)
        self.flush(session)

    def _see_out(self, session: HttpSession) -> None:
        """Let a session that is closing end as soon as everything is out."""
        self.streams.drop_unheard(session)
        if not session.connection.pending_exchanges():
            # Asking for more is how the engine hears of it.
            session.connection.next_message()

    def _forget(self, session: HttpSession) -> None:
        """Forget a session whose connection has ended."""
        del self._by_key[session.key]
        if session.id is not None:
            del self._by_id[session.id]
        self._ledger.settle(session, 0, _nothing)
        self._deferring.pop(session, None)
        end = session.connection.end
        # What its client does not read is not kept for it.
        delivers = end is None or end.reason not in (CloseReason.SLOW_CONSUMER, CloseReason.OVERLOADED)
        for exchange in self.streams.end(session, delivers=delivers):
            exchange.reject(self.closed_response(session))
        for exchange in session.exchanges:
            if exchange.size and not delivers:
                exchange.cut(self.closed_response(session))
            self.settle_alone(exchange)
        for due in (_ENGINE, _IDLE):
            self.timers.clear((due, session.key, 0))
        session.connection.can_reach = None
        self.events.append((session, SessionClosed()))

    # Time

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` is due, or ``None``."""
        return self.timers.next()

    def handle_timeout(self, now: float) -> None:
        """Let deadlines up to ``now`` expire."""
        for due, key, number in self.timers.pop_expired(now):
            session = self._by_key.get(key)
            if session is None:
                continue  # it ended on the way
            if due == _IDLE:
                self._expire(session)
                continue
            if due == _ENGINE:
                session.connection.handle_timeout(now)
            else:
                self.streams.handle_timeout(due, session, number)
            self.flush(session)

    def _expire(self, session: HttpSession) -> None:
        idle = self._options.session_idle
        if idle is not None and session.is_idle and session.used_at + idle <= self.streams.now:
            self.end(session)
        else:
            self._arm_idle(session)

    def _arm_idle(self, session: HttpSession) -> None:
        # One deadline at a time, looked at again when it comes: a session that is used need not set it anew.
        if self._options.session_idle is not None:
            since = session.used_at if session.is_idle else self.streams.now
            self.timers.set((_IDLE, session.key, 0), since + self._options.session_idle)

    def _arm_engine(self, session: HttpSession) -> None:
        key, deadline = (_ENGINE, session.key, 0), session.connection.next_deadline()
        if deadline is None:
            self.timers.clear(key)
        elif deadline != self.timers.get(key):
            self.timers.set(key, deadline)

    # What outlives the process: see ``DurableSessions``

    def next_effect(self) -> SessionEffect | None:
        """Return what a store is to do next, or ``None``."""
        return None

    def store_done(self, token: int, value: Any) -> None:
        """Take in what a store answered."""

    @property
    def is_stored(self) -> bool:
        """Whether no store has anything left to do."""
        return True

    # Look

    @property
    def unnamed(self) -> int:
        """How many have no id. Without sessions, they are the requests that run."""
        return len(self._by_key) - len(self._by_id)

    @property
    def all(self) -> tuple[HttpSession, ...]:
        """Those that are not over, the oldest first."""
        return tuple(self._by_key.values())


def _nothing() -> None:
    """Give up what is over."""
