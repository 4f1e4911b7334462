"""The sessions of a server that outlive its process: begun or taken up again, and left to the next process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from mcpio.engine.ledger import Ledger
from mcpio.engine.limits import Limits, seconds
from mcpio.engine.timers import Timers
from mcpio.errors import ErrorCode, McpError, RequestError
from mcpio.http.checks import Rejection
from mcpio.http.durable.journal import Journal
from mcpio.http.durable.queue import DurableHooks, Found, StoreQueue
from mcpio.http.durable.records import SessionEffect
from mcpio.http.durable.streams import DurableStreams
from mcpio.http.options import HttpOptions
from mcpio.http.server.endpoint import STORE_FAILED, TOO_MANY_SESSIONS
from mcpio.http.server.registry import OVERLOADED, HttpEvent, Sessions
from mcpio.http.server.sessions import LISTENING, Exchange, HttpSession, SessionOpened, Stream

__all__ = ["DurableSessions"]

LEFT: Final = Rejection(
    503, "Service unavailable: the server is restarting", ErrorCode.INTERNAL_ERROR, ((b"retry-after", b"1"),)
)


class DurableSessions(Sessions):
    """The sessions of one server, of which those with an id are kept in a store."""

    def __init__(
        self,
        keeping: DurableHooks,
        options: HttpOptions,
        limits: Limits,
        entropy: Callable[[int], bytes],
        ledger: Ledger,
        on_given_up: Callable[[], None],
        on_room: Callable[[HttpSession], None],
        admit_again: Callable[[Exchange, Rejection | None], None],
    ) -> None:
        """Keep sessions. ``ValueError`` for options without streams that can be taken up again.

        ``admit_again`` takes an exchange that waited for its session, and the answer where it waited in vain.
        """
        if not options.resumes:
            raise ValueError("a store of sessions needs sessions, resumable streams and listening")
        super().__init__(options, limits, entropy, ledger, on_given_up, on_room, admit_again)
        self.streams: DurableStreams = DurableStreams(options, limits, self.timers)
        self._keeping = keeping
        # By the key of a session that is to be left to the next process by then.
        self._deadlines: Timers[int] = Timers()
        self._left: set[HttpSession] = set()
        self._found: deque[Exchange] = deque()
        self._storing = StoreQueue(
            keeping,
            options,
            limits,
            release=self._release,
            refuse=self._refuse,
            loaded=self._take_up,
            unreachable=self._turn_away,
        )

    # The store

    def next_effect(self) -> SessionEffect | None:
        """Return what the store is to do next, or ``None``. All events were drained before."""
        return self._storing.next_effect(self.streams.now)

    def store_done(self, token: int, value: Any) -> None:
        """Take in what the store answered."""
        self._storing.store_done(token, value, self.streams.now)

    def look_up(self, exchange: Exchange) -> bool:
        """Ask the store for the session that an exchange names; return whether its answer is to be waited for."""
        key = exchange.request.session_id
        if exchange.was_looked_up or key is None or key in self._by_id:
            return False
        exchange.is_waiting = exchange.was_looked_up = self._storing.look_up(exchange, key, self.streams.now)
        return exchange.is_waiting

    def next_event(self) -> tuple[HttpSession, HttpEvent] | None:
        """Return what happened next, or ``None``.

        Requests that waited for a session come to it when the caller has seen that it is there: what was asked of the
        process before this one is told from what is asked of this one.
        """
        while not self.events and self._found:
            self._admit_again(self._found.popleft(), None)
        return super().next_event()

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` is due."""
        due = (super().next_deadline(), self._storing.next_deadline(), self._deadlines.next())
        return min((each for each in due if each is not None), default=None)

    def handle_timeout(self, now: float) -> None:
        """Let deadlines up to ``now`` expire."""
        super().handle_timeout(now)
        self._storing.handle_timeout(now)
        for key in self._deadlines.pop_expired(now):
            self._leave_to_next(self._by_key[key])

    @property
    def is_stored(self) -> bool:
        """Whether the store has nothing left to do."""
        return self._storing.is_idle

    def closed_response(self, session: HttpSession) -> Rejection:
        """Return what to answer to a request for a session that is over, here at least."""
        return LEFT if self.is_closing and session.journal is not None else super().closed_response(session)

    # What the base class asks

    def name(self, session: HttpSession) -> str:
        """Give a session the id that its client is to use from now on, as soon as the store has it."""
        id = super().name(session)
        if not session.is_legacy and session.principal.__class__ in (str, int, type(None)):
            self._storing.open(session, id, is_new=True)
        return id

    def flush(self, session: HttpSession) -> None:
        """See to what follows from what was done to the connection of a session."""
        super().flush(session)
        journal = session.journal
        if journal is not None and self.is_open(session) and self.is_closing and session.is_idle:
            self._leave_to_next(session)

    def leave(self, session: HttpSession, exchange: Exchange) -> None:
        """Take note that an exchange of a session is over."""
        super().leave(session, exchange)
        if self.is_closing:
            self.flush(session)

    def _close(self, session: HttpSession, grace: float | None) -> None:
        if session.journal is None:
            super()._close(session, grace)
            return
        # Its client is to find it again, in the next process. What runs may still be answered here.
        listening = session.streams.get(LISTENING)
        if listening is not None and listening.exchange is not None:
            exchange = listening.exchange
            self.streams.detach(session, exchange)
            exchange.finish()
        limit = seconds(grace)
        if limit is not None:
            self._deadlines.set(session.key, self.streams.now + limit)
        self.flush(session)

    def _forget(self, session: HttpSession) -> None:
        journal, is_left = session.journal, session in self._left
        if journal is not None and not is_left:
            # It is over. Nobody can ask for its events again, so they need not wait for the store.
            for exchange in journal.gated:
                exchange.gate = journal.mark()
            journal.let_events_go()
        super()._forget(session)
        self._deadlines.clear(session.key)
        if is_left:
            self._left.discard(session)
            self._storing.leave(session)
        else:
            self._storing.end(session)

    def _expire(self, session: HttpSession) -> None:
        super()._expire(session)
        if session.journal is not None and self.is_open(session):
            # The store is to see that it is in use.
            session.journal.mark()

    # Inside

    def _leave_to_next(self, session: HttpSession) -> None:
        """Let go of a session, and leave it in the store. What is not stored has not happened."""
        _turn_back(session.journal, LEFT)
        self._left.add(session)
        self.end(session)

    def _release(self, session: HttpSession, journal: Journal) -> None:
        """Let go out what the store has by now."""
        for exchange in [each for each in journal.gated if each.gate <= journal.stored]:
            del journal.gated[exchange]
            exchange.wake()
        for stream in session.streams.values():
            if stream.exchange is not None and journal.first(stream) is not None:
                stream.exchange.wake()

    def _refuse(self, session: HttpSession, journal: Journal) -> None:
        """Answer that the store failed, to whoever waits for an answer in one piece."""
        _turn_back(journal, STORE_FAILED)
        if journal.is_new and self.is_open(session):
            # Its client has not heard of it.
            self.end(session)

    def _turn_away(self, waiting: list[Exchange], rejection: Rejection = STORE_FAILED) -> None:
        for exchange in waiting:
            self._admit_again(exchange, rejection)

    def _take_up(self, found: Found | None, waiting: list[Exchange]) -> None:
        """Go on with a session that the store knew, and with those who waited for it."""
        if self.is_closing:
            self._turn_away(waiting, LEFT)
            return
        if found is not None and not self.make_room():
            self._turn_away(waiting, TOO_MANY_SESSIONS)
            return
        if found is not None and self.is_overloaded:
            self._turn_away(waiting, OVERLOADED)
            return
        if found is not None:
            try:
                self._restore(found)
            except McpError as error:
                self._keeping.report("a stored session cannot be taken up", error)
        self._found.extend(waiting)

    def _restore(self, found: Found) -> None:
        record, principal = found.record, found.record.owner
        connection = self._keeping.restore(record.saved, principal, self.streams.now)
        session = self._enrol(connection, principal)
        session.id = found.key
        self._by_id[found.key] = session
        journal = self._storing.open(session, found.key, is_new=False)
        session.next_stream = max(record.next_stream, LISTENING + 1)
        for each in record.streams:
            stream = session.streams[each.number] = Stream(each.number, None, session)
            stream.is_resumable = True
            stream.next_number = each.next_number
            journal.lane(stream).sent = each.sent
            stream.requests = {request.id for request in connection.unanswered if request.via == stream.via}
            self.streams.wait_for_client(session, stream)
        for event in found.stored.events:
            self.streams.put_again(session, event)
        self._fail_the_unheard(session)
        self._arm_idle(session)
        self.events.append((session, SessionOpened(record.saved)))

    def _fail_the_unheard(self, session: HttpSession) -> None:
        """Answer the requests whose answers nobody can come for: their clients have been told that they are lost."""
        connection = session.connection
        for request in connection.unanswered:
            if session.stream_of(request.via) is None:
                error = RequestError(ErrorCode.INTERNAL_ERROR, "Interrupted: ask again", {"reason": "interrupted"})
                connection.send_error(request.id, error)


def _turn_back(journal: Journal | None, rejection: Rejection) -> None:
    """Put a rejection in the place of the responses that wait for the store."""
    gated = {} if journal is None else journal.gated
    for exchange in tuple(gated):
        del gated[exchange]
        exchange.take_back()
        exchange.reject(rejection)
