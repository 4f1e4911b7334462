"""Durable sessions: created, restored, and handed over at shutdown.

``DurableSessions`` is the hook that ``HttpServer`` takes for them: ``HttpServer(…, durable=DurableSessions(hooks))``.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from mcpio.auth.grant import Grant
from mcpio.engine.limits import Limits
from mcpio.engine.timers import Timers
from mcpio.errors import ErrorCode, McpError, RequestError
from mcpio.http.checks import Rejection
from mcpio.http.durable.journal import Journal, journal_of
from mcpio.http.durable.queue import DurableHooks, LoadedSession, StoreQueue
from mcpio.http.durable.streams import DurableStreams
from mcpio.http.options import HttpOptions
from mcpio.http.server.server import OVERLOADED, STORE_FAILED, TOO_MANY_SESSIONS, HttpServer
from mcpio.http.server.sessions import LISTENING, Exchange, HttpSession, Lookup, SessionOpened, Stream
from mcpio.http.session_records import SessionEffect

__all__ = ["DurableSessions"]

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
        self._found: deque[Exchange] = deque()

    def attach(
        self, server: HttpServer, options: HttpOptions, limits: Limits, timers: Timers[tuple[int, int, int]]
    ) -> DurableStreams:
        """Serve ``server``; return its streams. Raises ValueError if its options let no client resume."""
        if not options.resumes:
            raise ValueError("a store of sessions needs sessions, resumable streams and listening")
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
        if not self._found:
            return False
        self._server.admit_again(self._found.popleft(), None)
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

    def _resume(self, found: LoadedSession | None, waiting: list[Exchange]) -> None:
        """Continue a stored session, and the requests that waited for it."""
        if self._server.is_closing:
            self._turn_away(waiting, RESTARTING)
            return
        if found is not None and not self._server.make_room():
            self._turn_away(waiting, TOO_MANY_SESSIONS)
            return
        if found is not None and self._server.is_overloaded:
            self._turn_away(waiting, OVERLOADED)
            return
        if found is not None:
            try:
                self._restore(found)
            except McpError as error:
                self._hooks.report("a stored session cannot be taken up", error)
        self._found.extend(waiting)

    def _restore(self, found: LoadedSession) -> None:
        record, principal = found.record, found.record.owner
        connection = self._hooks.restore(record.saved, principal, self._streams.now)
        session = self._server.adopt(connection, principal, found.key)
        journal = self._queue.open(session, found.key, is_new=False)
        session.next_stream = max(record.next_stream, LISTENING + 1)
        for each in record.streams:
            stream = session.streams[each.number] = Stream(each.number, None, session)
            stream.is_resumable = True
            stream.next_number = each.next_number
            journal.lane(stream).sent = each.sent
            stream.requests = {request.id for request in connection.unanswered if request.via == stream.via}
            self._streams.wait_for_client(session, stream)
        for event in found.stored.events:
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
