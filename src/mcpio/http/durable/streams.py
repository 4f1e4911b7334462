"""The streams of durable sessions: each event is in the store before an exchange gets it.

Their messages do not wait in the engine, which could not be saved then, but in the session's journal, from where they
are stored.
"""

from __future__ import annotations

from mcpio.engine.outbox import Outgoing
from mcpio.framing.sse import encode_event
from mcpio.http.durable.journal import journal_of
from mcpio.http.server.replay import SentEvent, event_id, parse_event_id
from mcpio.http.server.sessions import LISTENING, Exchange, HttpSession, Response, Stream
from mcpio.http.server.streams import Streams
from mcpio.http.session_records import StoredEvent

__all__ = ["DurableStreams"]


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
        if journal is None or message.last or message.asked or journal.has_room:
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
