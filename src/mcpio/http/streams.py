"""How messages get out: each on exactly one stream, as one JSON body or as events, once or again after a break.

Messages wait in the engine, where its policies and limits hold, until the exchange that carries their stream has room.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import IntEnum
from typing import Final

from mcpio.engine.limits import Limits
from mcpio.engine.outbox import Outgoing
from mcpio.engine.timers import Timers
from mcpio.events import IncomingId
from mcpio.framing.sse import encode_comment, encode_event
from mcpio.http.model import Headers
from mcpio.http.options import HttpOptions
from mcpio.http.replay import ReplayBuffer, SentEvent, event_id, parse_event_id
from mcpio.http.sessions import LISTENING, Exchange, HttpSession, Stream
from mcpio.revisions import REV_2025_11_25

__all__ = ["JSON", "Due", "Streams", "session_headers"]

JSON: Final = (b"content-type", b"application/json")

EVENT_STREAM: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    # Proxies that buffer would hold back each event until the answer is there.
    (b"x-accel-buffering", b"no"),
)


class Due(IntEnum):
    """What a deadline is about."""

    ENGINE = 0
    """The engine of a session."""
    ANSWER = 1
    """An answer that is not ready: it becomes a stream."""
    COMMENT = 2
    """A stream that is quiet."""
    RESUMPTION = 3
    """A stream that nothing carries."""
    SENT = 4
    """What was sent and is kept."""
    IDLE = 5
    """A session that nobody uses."""


class Streams:
    """The streams of all sessions of one server."""

    def __init__(self, options: HttpOptions, limits: Limits, timers: Timers[tuple[int, int, int]]) -> None:
        self._options = options
        self._limits = limits
        self._timers = timers
        self.ready: dict[Hashable, None] = {}
        """The exchanges that have something to send."""
        self.now = float("-inf")
        """The time, kept by the server."""

    # A POST

    def open(self, session: HttpSession, exchange: Exchange, *, is_batch: bool) -> Stream:
        """Return a new stream for what a POST asks."""
        stream = Stream(session.next_stream, exchange, is_batch=is_batch)
        session.next_stream += 1
        session.streams[stream.number] = exchange.stream = stream
        if self._options.sse_after is not None and self._options.answers == "auto":
            self._arm(Due.ANSWER, session, stream, self._options.sse_after)
        return stream

    def close(self, session: HttpSession, stream: Stream) -> None:
        """Forget a stream. What was sent on it may still be asked for again."""
        session.streams.pop(stream.number, None)
        for due in (Due.ANSWER, Due.COMMENT, Due.RESUMPTION):
            self._timers.clear((due, session.key, stream.number))

    def advance(self, session: HttpSession) -> None:
        """Move on what waits in the engine of a session."""
        for via in session.connection.waiting():
            stream = session.stream_of(via)
            if stream is not None:
                self._advance(session, stream)
            elif via is not None:
                # Its exchange broke, and cannot be taken up again.
                _discard(session, via)

    def cancel(self, session: HttpSession, id: IncomingId) -> None:
        """Take note that a request of the client's gets no answer. A stream that waits for no other ends (CANC-10)."""
        for stream in tuple(session.streams.values()):
            if id in stream.running:
                stream.running.discard(id)
                if not stream.running:
                    self._advance(session, stream)

    def can_reach(self, session: HttpSession, via: Hashable) -> bool:
        """Whether a message can get to a client, now or later: by the exchange ``via``, or by none (HTTP-37, P11)."""
        if via is None:
            return session.id is not None and self._options.listening
        if self._options.answers == "json":
            listening = session.streams.get(LISTENING)
            return listening is not None and listening.exchange is not None
        stream = session.stream_of(via)
        return stream is not None and (stream.exchange is not None or stream.is_resumable)

    def drop_undeliverable(self, session: HttpSession) -> None:
        """Drop what belongs to no request, unless somebody listens: the session is about to end."""
        stream = session.streams.get(LISTENING)
        if stream is None or stream.exchange is None:
            _discard(session, None)

    def _advance(self, session: HttpSession, stream: Stream) -> None:
        exchange = stream.exchange
        if exchange is None:
            return
        if not exchange.is_stream and not self._answer(session, stream, exchange):
            return
        self.ready[exchange.id] = None

    def _answer(self, session: HttpSession, stream: Stream, exchange: Exchange) -> bool:
        """Decide how the response begins, as soon as that can be told; return whether it can."""
        answers = self._options.answers
        if answers == "sse" and stream.running:
            self._begin(session, stream, exchange)
            return True
        while (message := session.connection.next_message(via=stream.number)) is not None:
            _note(stream, message)
            if message.last and answers != "sse":
                stream.answers.append(message.text)
            elif answers != "json":
                self._begin(session, stream, exchange)
                self._put(session, stream, message.text)
                return True
            else:
                self._put_aside(session, message)
        if stream.running:
            return False
        self._finish_in_one_piece(session, stream, exchange)
        return True

    def _put_aside(self, session: HttpSession, message: Outgoing) -> None:
        """Find another way for what the client does not want to be streamed: by listening, where it does."""
        listening = session.streams.get(LISTENING)
        if listening is not None and listening.exchange is not None:
            self._put(session, listening, message.text)
            self.ready[listening.exchange.id] = None
        else:
            session.undelivered += 1

    def _finish_in_one_piece(self, session: HttpSession, stream: Stream, exchange: Exchange) -> None:
        texts = stream.answers
        if not texts:
            # Its requests were cancelled: there is nothing to answer, and HTTP wants a response (CANC-10).
            exchange.respond(200, (*EVENT_STREAM, *session_headers(session, exchange)))
        else:
            body = b"[" + b",".join(texts) + b"]" if stream.is_batch else texts[0]
            exchange.respond(200, (JSON, *session_headers(session, exchange)), body)
        self.close(session, stream)

    def begin(self, session: HttpSession, stream: Stream) -> None:
        """Answer with events from now on, whatever is still to come."""
        exchange = stream.exchange
        if exchange is not None and not exchange.is_stream:
            self._begin(session, stream, exchange)
            self.ready[exchange.id] = None

    def _begin(self, session: HttpSession, stream: Stream, exchange: Exchange) -> None:
        self._timers.clear((Due.ANSWER, session.key, stream.number))
        exchange.begin_stream((*EVENT_STREAM, *session_headers(session, exchange)))
        self._arm_comment(session, stream)
        revision = session.connection.revision
        stream.is_resumable = self._options.resumable and session.id is not None and revision is not None
        if _comes_back(session, self._options):
            # Without a message in it, so that a client can go on from the very beginning (HTTP-18). Clients of older
            # revisions may take it for a message.
            self._put(session, stream, b"")
        for text in stream.answers:
            self._put(session, stream, text)
        stream.answers = []

    # Events

    def pull(self, exchange: Exchange, max_bytes: int) -> None:
        """Have an exchange take what its stream has for it."""
        session, stream = exchange.session, exchange.stream
        if session is None or stream is None or not exchange.is_stream or exchange.is_answered:
            return
        connection, via = session.connection, None if stream.number == LISTENING else stream.number
        size = sum(map(len, stream.unsent))
        while size < max_bytes and (message := connection.next_message(via=via)) is not None:
            _note(stream, message)
            size += self._put(session, stream, message.text)
        if stream.unsent:
            exchange.send(b"".join(stream.unsent))
            stream.unsent.clear()
            self._arm_comment(session, stream)
        if via is not None and not stream.running and not _has_waiting(session, via):
            exchange.finish()
            self.close(session, stream)
        elif _has_waiting(session, via):
            self.ready[exchange.id] = None

    def _put(self, session: HttpSession, stream: Stream, text: bytes) -> int:
        """Make an event of a message, and keep it where it may be asked for again; return its size."""
        if not stream.is_resumable:
            data = encode_event(text, type="message")
        else:
            number = stream.next_number
            stream.next_number += 1
            data = encode_event(text, type="message" if text else None, id=event_id(stream.number, number))
            if session.replay is None:
                session.replay = ReplayBuffer(self._limits.replay_events, self._limits.replay_bytes)
            session.replay.append(SentEvent(stream.number, number, data, self.now))
            self._arm_sent(session)
        stream.unsent.append(data)
        return len(data)

    # Listening, and going on after a break

    def listen(self, session: HttpSession, exchange: Exchange) -> None:
        """Carry what belongs to no request; or, for a client that names the last event it saw, what came after that.

        Of an event that is not known any more, nothing comes again, and the client just listens (RESUME-05).
        """
        seen = parse_event_id(exchange.facts.last_event_id or "")
        missed = None if seen is None or session.replay is None else session.replay.after(*seen)
        if seen is None or missed is None:
            self._carry(session, self._listening(session), exchange)
            return
        stream = self._listening(session) if seen[0] == LISTENING else session.streams.get(seen[0])
        if stream is None:
            # It was over, but for what the client missed of it.
            exchange.begin_stream((*EVENT_STREAM, *session_headers(session, exchange)))
            for event in missed:
                exchange.send(event.data)
            exchange.finish()
            self.ready[exchange.id] = None
            return
        stream.unsent.clear()
        stream.unsent.extend(event.data for event in missed)
        self._carry(session, stream, exchange, is_resumption=True)

    def _listening(self, session: HttpSession) -> Stream:
        stream = session.streams.get(LISTENING)
        if stream is None:
            stream = session.streams[LISTENING] = Stream(LISTENING, None)
        return stream

    def _carry(self, session: HttpSession, stream: Stream, exchange: Exchange, *, is_resumption: bool = False) -> None:
        """Let ``exchange`` carry a stream; what carried it before ends (HTTP-29)."""
        if stream.exchange is not None:
            stream.exchange.finish()
            self.ready[stream.exchange.id] = None
            stream.exchange.stream = None
        self._timers.clear((Due.RESUMPTION, session.key, stream.number))
        stream.exchange, exchange.stream = exchange, stream
        if is_resumption:
            exchange.begin_stream((*EVENT_STREAM, *session_headers(session, exchange)))
            self._arm_comment(session, stream)
        else:
            stream.unsent.clear()
            self._begin(session, stream, exchange)
        self.ready[exchange.id] = None

    def detach(self, session: HttpSession, exchange: Exchange) -> None:
        """Take note that the exchange that carried a stream broke. That is no cancellation (HTTP-24)."""
        stream = exchange.stream
        if stream is None:
            return
        stream.exchange = exchange.stream = None
        stream.unsent.clear()
        self._timers.clear((Due.COMMENT, session.key, stream.number))
        if stream.number == LISTENING:
            return
        if not stream.is_resumable:
            self.close(session, stream)
        elif self._options.resume_within is not None:
            self._arm(Due.RESUMPTION, session, stream, self._options.resume_within)

    def interrupt(self, session: HttpSession, stream: Stream, retry: float | None) -> bool:
        """End the exchange of a stream, but not the stream: the client is to come for the rest (HTTP-19, HTTP-20).

        ``retry`` is how many seconds it is to wait before that. Returns whether the stream can be taken up again.
        """
        exchange = stream.exchange
        if exchange is None or exchange.is_answered or not _comes_back(session, self._options):
            return False
        self.begin(session, stream)
        if retry is not None:
            stream.unsent.append(b"retry: %d\n\n" % round(retry * 1000))
        exchange.send(b"".join(stream.unsent))
        exchange.finish()
        self.ready[exchange.id] = None
        self.detach(session, exchange)
        return True

    # The end

    def end(self, session: HttpSession) -> list[Exchange]:
        """End every stream of a session; return the exchanges that had no response yet."""
        unanswered = []
        for stream in tuple(session.streams.values()):
            exchange = stream.exchange
            self.close(session, stream)
            if exchange is None:
                continue
            exchange.stream = None
            if exchange.is_stream:
                if stream.unsent:
                    exchange.send(b"".join(stream.unsent))
                exchange.finish()
                self.ready[exchange.id] = None
            else:
                unanswered.append(exchange)
        self._timers.clear((Due.SENT, session.key, 0))
        return unanswered

    # Deadlines

    def handle_timeout(self, due: int, session: HttpSession, number: int) -> None:
        """Act on a deadline of a stream, or of what was sent."""
        stream = session.streams.get(number)
        if due == Due.SENT:
            self._forget_sent(session)
        elif stream is None:
            return
        elif due == Due.ANSWER:
            self.begin(session, stream)
        elif due == Due.RESUMPTION:
            self.close(session, stream)
            _discard(session, number)
        elif stream.exchange is not None:
            stream.unsent.append(encode_comment())
            self.ready[stream.exchange.id] = None

    def _forget_sent(self, session: HttpSession) -> None:
        kept, window = session.replay, self._options.resume_within
        if kept is None or window is None:
            return
        kept.expire(self.now - window)
        if kept.oldest is None:
            session.replay = None
        else:
            self._timers.set((Due.SENT, session.key, 0), kept.oldest + window)

    def _arm(self, due: Due, session: HttpSession, stream: Stream, seconds: float) -> None:
        self._timers.set((due, session.key, stream.number), self.now + seconds)

    def _arm_comment(self, session: HttpSession, stream: Stream) -> None:
        if self._options.keep_alive is not None:
            self._arm(Due.COMMENT, session, stream, self._options.keep_alive)

    def _arm_sent(self, session: HttpSession) -> None:
        window = self._options.resume_within
        if window is not None and self._timers.get((Due.SENT, session.key, 0)) is None:
            self._timers.set((Due.SENT, session.key, 0), self.now + window)


def session_headers(session: HttpSession, exchange: Exchange) -> Headers:
    """Return the header field that tells a client the name of its session, in answer to ``initialize`` (SESS-01)."""
    if session.id is None or exchange.facts.session_id is not None:
        return ()
    return ((b"mcp-session-id", session.id.encode()),)


def _comes_back(session: HttpSession, options: HttpOptions) -> bool:
    """Whether a client knows that a stream may be cut on purpose, and takes it up again (HTTP-18, HTTP-19)."""
    revision = session.connection.revision
    return options.resumable and session.id is not None and revision is not None and revision >= REV_2025_11_25


def _note(stream: Stream, message: Outgoing) -> None:
    if message.last and message.related is not None:
        stream.running.discard(message.related)


def _has_waiting(session: HttpSession, via: Hashable) -> bool:
    return via in session.connection.waiting()


def _discard(session: HttpSession, via: Hashable) -> None:
    while session.connection.next_message(via=via) is not None:
        session.undelivered += 1
