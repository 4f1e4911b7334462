"""Streams of an HTTP server's answers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Final

from mcpio.auth.grant import format_scopes
from mcpio.auth.payloads import bearer_challenge
from mcpio.engine.channel import Outgoing, Timers
from mcpio.engine.limits import Limits
from mcpio.errors import NoBackChannel
from mcpio.framing.sse import encode_comment, encode_event
from mcpio.http.checks import Rejection
from mcpio.http.model import Headers, HttpOptions, header_fields
from mcpio.http.sessions import (
    JSON,
    LISTENING,
    Exchange,
    HttpSession,
    ReplayBuffer,
    Response,
    SentEvent,
    Stream,
    event_id,
    parse_event_id,
)
from mcpio.revisions import REV_2025_11_25

if TYPE_CHECKING:
    from mcpio.auth.resource_server import ResourceServer

EVENT_STREAM: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    # Proxies that buffer would hold back each event until the answer is there.
    (b"x-accel-buffering", b"no"),
)


NOT_KEPT: Final = Rejection(410, "Gone: what comes after this event is not kept")
"""Not 404, which means to clients that the session has ended."""


class TimerKind(IntEnum):
    """The kinds of deadlines; a timer is named by its kind, the key of its session and the number of its stream."""

    ENGINE = 0
    """The engine of a session."""
    STREAM = 1
    """The next deadline of a stream: to begin events because the answer is slow (``sse_after``), to break the silence
    by a comment (``keep_alive``), or, without an exchange, to be forgotten (``resume_within``)."""
    SENT = 2
    """The oldest event that is kept after it was sent."""
    IDLE = 3
    """A session that is not used."""
    EXPIRY = 4
    """The token of a client that listens."""
    CALL = 5
    """A stateless call that was not answered yet, or whose stream is quiet. It is named in the place of a session."""
    CALLS = 6
    """The end of all stateless calls of a server that closes."""


# Short names where every request passes: a member of an enumeration costs two look-ups.
_STREAM, _SENT = TimerKind.STREAM, TimerKind.SENT
_UNDECIDED, _STREAMING = Response.UNDECIDED, Response.STREAMING


class Streams:
    """The streams of all sessions of one server."""

    now: float
    """The time, which ``HttpServer`` sets."""
    protected: ResourceServer | None
    """Authorizes clients; ``None`` without authorization here."""

    def __init__(self, options: HttpOptions, limits: Limits, timers: Timers[tuple[int, int, int]]) -> None:
        self.now = float("-inf")
        self._options = options
        self._limits = limits
        self._timers = timers
        self.protected = None

    # A POST

    def open(self, session: HttpSession, exchange: Exchange) -> Stream:
        """Return a new stream for the answers to a POST."""
        stream = Stream(session.next_stream, exchange, session)
        session.next_stream += 1
        session.streams[stream.number] = exchange.stream = stream
        stream.sent_at = self.now
        return stream

    def expect_answer(self, session: HttpSession, stream: Stream) -> None:
        """Start the timer after which the response becomes a stream, answered or not (``sse_after``)."""
        exchange = stream.exchange
        limit = self._options.sse_after
        if limit is not None and exchange is not None and exchange.answers != "json" and not exchange.items:
            stream.has_timer = True
            self._timers.set((_STREAM, session.key, stream.number), stream.sent_at + limit)

    def finish(self, session: HttpSession, stream: Stream) -> None:
        """Forget a stream that is complete, and keep its events for a client that resumes."""
        events = stream.events.clear() if stream.is_resumable else ()
        self.close(session, stream)
        if events:
            self._remember(session, events)

    def close(self, session: HttpSession, stream: Stream) -> None:
        """Forget a stream and all of its events."""
        if stream.is_resumable or stream.events.unsent_bytes:
            # Most streams are answered in one piece, and never had an event.
            for event in stream.events.clear():
                self._forget_event(session, event)
        session.streams.pop(stream.number, None)
        if not session.streams:
            session.streams = {}  # one that held something is larger than an idle session should be
        if stream.exchange is not None:
            # Without a reference cycle, both are freed at once.
            stream.exchange.stream = None
            stream.exchange = None
        if stream.has_timer:
            self._disarm(session, stream)
        if stream.via is not None and session.connection.has_output(stream.via):
            self._discard(session, stream.via)

    def advance(self, session: HttpSession) -> None:
        """Move on the messages that wait in the engine of a session.

        Requests among them that can no longer reach the client fail, so there may be new events.
        """
        streams = session.streams
        for via in session.connection.take_news():
            stream = streams.get(LISTENING if via is None else via)  # type: ignore[call-overload]  # ours are integers
            if stream is not None:
                self._advance(session, stream)
            elif via is not None:
                # Its exchange broke, and cannot be resumed.
                self._discard(session, via)

    def end_unasked(self, session: HttpSession) -> None:
        """End the streams whose requests were all cancelled: no further output follows on them (CANC-10)."""
        for stream in tuple(session.streams.values()):
            # A stream without requests carries the cancellation itself, and gets 202.
            has_asked = stream.is_deferred or stream.requests
            if stream.number != LISTENING and has_asked and not is_running(session, stream):
                self._advance(session, stream)

    def can_reach(self, session: HttpSession, via: Hashable) -> bool:
        """Return whether a message can reach the client, now or later, by the exchange ``via`` (HTTP-37, P11)."""
        stream = session.stream_of(via)
        if via is None:
            return session.is_legacy or (session.id is not None and self._options.listening)
        if stream is None:
            return False
        if stream.exchange is not None and stream.exchange.answers == "json":
            return self._listener(session) is not None
        return stream.exchange is not None or stream.is_resumable

    def _advance(self, session: HttpSession, stream: Stream) -> None:
        exchange = stream.exchange
        if exchange is None:
            return
        if exchange.response is _STREAMING:
            exchange.wake()
        else:
            self._answer(session, stream, exchange)

    def _answer(self, session: HttpSession, stream: Stream, exchange: Exchange) -> None:
        """Decide how the response begins, as soon as the first message is there."""
        while (message := self._take(session, stream)) is not None:
            if message.last and exchange.answers != "sse":
                headers = (JSON, *session_headers(session, exchange))
                # Of a batch, only if all were refused: 403 makes the client send all of it again.
                if stream.refused and stream.refused.keys() >= stream.requests:
                    scopes = frozenset[str]().union(*stream.refused.values())
                    exchange.respond(403, (*headers, *self.challenge(scopes)), message.text)
                else:
                    exchange.respond(200, headers, message.text)
                self.close(session, stream)
                return
            if exchange.answers != "json":
                self._begin(session, stream, exchange)
                self._put(session, stream, message.text)
                return
            self._put_aside(session, message)
        if not is_running(session, stream):
            # All of its requests were cancelled. HTTP still requires a response, so an empty stream ends it (CANC-10).
            exchange.respond(200, (*EVENT_STREAM, *session_headers(session, exchange)))
            self.close(session, stream)

    def challenge(self, scopes: frozenset[str]) -> Headers:
        """Return the header field that tells a client to get a token with more scopes (AUTH-34)."""
        if self.protected is None:
            text = str(bearer_challenge(realm="mcp", error="insufficient_scope", scope=format_scopes(scopes)))
            return ((b"www-authenticate", text.encode()),)
        return header_fields(self.protected.insufficient(scopes).headers)

    def begin(self, session: HttpSession, stream: Stream) -> None:
        """Make the response a stream of events, if it is still undecided."""
        exchange = stream.exchange
        if exchange is not None and exchange.response is _UNDECIDED:
            self._begin(session, stream, exchange)

    def _begin(self, session: HttpSession, stream: Stream, exchange: Exchange) -> None:
        self._disarm(session, stream)
        exchange.begin_stream((*EVENT_STREAM, *session_headers(session, exchange)))
        self._expect_silence(session, stream)
        stream.is_resumable = self._options.resumes and session.id is not None and not session.is_legacy
        if self._comes_back(session):
            # An event without data gives the client an id to resume from (HTTP-18). Clients of older revisions may take
            # it for a message.
            self._put(session, stream, b"")

    def _comes_back(self, session: HttpSession) -> bool:
        """Return whether the client resumes streams that are cut on purpose (HTTP-18, HTTP-19)."""
        revision = session.connection.revision
        return (
            self._options.resumes
            and session.id is not None
            and not session.is_legacy
            and revision is not None
            and revision >= REV_2025_11_25
        )

    # Events

    def pull(self, exchange: Exchange, max_bytes: int) -> None:
        """Move about ``max_bytes`` of a stream to its exchange."""
        session, stream = exchange.session, exchange.stream
        if session is None or stream is None or exchange.response is not _STREAMING:
            return
        pieces: list[bytes] = []
        room = max_bytes - exchange.size
        events = stream.events
        while room > 0 and (events.unsent_bytes or self._fill(session, stream)):
            piece, event = events.take(room)
            pieces.append(piece)
            room -= len(piece)
            self._note_sent(session, stream, event)
        if pieces:
            exchange.send(b"".join(pieces))
            stream.sent_at = self.now
        if events.unsent_bytes:
            exchange.wake()
        # ``_has_more`` first: a message that waits keeps the stream open though its request is answered.
        elif not self._has_more(session, stream) and stream.number != LISTENING and not is_running(session, stream):
            exchange.finish()
            self.finish(session, stream)

    def _fill(self, session: HttpSession, stream: Stream) -> bool:
        """Make an event of the next message of a stream; return whether one was waiting."""
        message = self._take(session, stream)
        if message is None:
            return False
        self._put(session, stream, message.text)
        return True

    def _note_sent(self, session: HttpSession, stream: Stream, event: SentEvent | None) -> None:
        """Keep an event that an exchange took, if the stream can be resumed; ``None`` is a part of an event.

        A stream keeps all of its events until it is over. The listening stream never is, so its events go to the
        bounded buffer at once.
        """
        if event is None:
            return
        event.sent_at = self.now
        if not stream.is_resumable:
            stream.events.drop(event)
        elif stream.number == LISTENING:
            stream.events.drop(event)
            self._remember(session, (event,))
        else:
            self._arm_sent(session)

    def _hand_over(self, session: HttpSession, stream: Stream, exchange: Exchange) -> None:
        """Move all that waits on a stream to its exchange, which is about to end."""
        while stream.events.unsent_bytes:
            piece, event = stream.events.take(float("inf"))
            exchange.send(piece)
            self._note_sent(session, stream, event)

    def _has_more(self, session: HttpSession, stream: Stream) -> bool:
        """Return whether messages wait for a stream, and wake its exchange if so."""
        is_waiting = session.connection.has_output(stream.via)
        if is_waiting and stream.exchange is not None:
            stream.exchange.wake()
        return is_waiting

    def _take(self, session: HttpSession, stream: Stream) -> Outgoing | None:
        """Pull the next message of a stream from the engine; requests that cannot reach the client fail."""
        while (message := session.connection.next_message(via=stream.via)) is not None:
            if not message.requests or session.id is not None:
                return message
            self._give_up(session, message)
        return None

    def _put(self, session: HttpSession, stream: Stream, text: bytes) -> None:
        """Queue a message as an event."""
        del session  # ``DurableStreams`` finds the journal by it
        if not stream.is_resumable:
            stream.events.append(SentEvent(stream.number, 0, encode_event(text, type="message")))
            return
        number = stream.next_number
        stream.next_number += 1
        data = encode_event(text, type="message" if text else None, id=event_id(stream.number, number))
        stream.events.append(SentEvent(stream.number, number, data))

    def _remember(self, session: HttpSession, events: Sequence[SentEvent]) -> None:
        """Keep events of an ended stream, or of the listening one, within the limits."""
        if session.replay is None:
            forgotten = partial(self._forget_event, session)
            limits = self._limits
            session.replay = ReplayBuffer(limits.replay_events, limits.replay_bytes, session.held, forgotten)
        session.replay.extend(events)
        self._arm_sent(session)

    def _forget_event(self, session: HttpSession, event: SentEvent) -> None:
        """Handle the loss of a kept event. Durable sessions update the store."""

    def forget_sent(self, session: HttpSession) -> bool:
        """Forget all events that were sent, to free memory; return whether there were any."""
        forgotten = partial(self._forget_event, session)
        is_forgotten = session.replay is not None
        if session.replay is not None:
            session.replay.clear()
            session.replay = None
        for stream in session.streams.values():
            is_forgotten |= stream.events.forget_sent(forgotten)
        return is_forgotten

    def _put_aside(self, session: HttpSession, message: Outgoing) -> None:
        """Send a message on the listening stream, since a JSON response has no place for it; or drop it."""
        listening = self._listener(session)
        if listening is None or listening.exchange is None or listening.events.unsent_bytes > self._limits.high_water:
            self._give_up(session, message)
        else:
            self._put(session, listening, message.text)
            listening.exchange.wake()

    def _give_up(self, session: HttpSession, message: Outgoing) -> None:
        """Drop a message that cannot reach the client, and fail its requests (P4)."""
        session.undelivered += 1
        for id in message.requests:
            error = NoBackChannel("the client was not there to be asked: the request went by no stream that it reads")
            session.connection.fail_request(id, error, self.now)

    def _discard(self, session: HttpSession, via: Hashable) -> None:
        while (message := session.connection.next_message(via=via)) is not None:
            self._give_up(session, message)

    # Listening and resuming

    def listen(self, session: HttpSession, exchange: Exchange) -> None:
        """Attach the listening stream, or the stream to resume after the last event that the client received.

        Events that are no longer kept are not repeated: a client gets those that are kept, and those to come. If
        nothing of the stream is left, it is told so (RESUME-05).
        """
        seen = parse_event_id(exchange.last_event_id or "")
        number, position = (LISTENING, 0) if seen is None else seen
        if number == LISTENING:
            self._listen(session, exchange, position)
            return
        stream = session.streams.get(number)
        if stream is None:
            stream = self._reopen(session, exchange, number, position)
        elif 1 <= position < stream.next_number:
            stream.events.rewind(position)
        else:
            stream = None
        if stream is not None:
            self._carry(session, stream, exchange, is_resumption=True)
        elif exchange.response is _UNDECIDED:
            exchange.reject(NOT_KEPT)

    def _listen(self, session: HttpSession, exchange: Exchange, position: int) -> None:
        stream = self._listening(session)
        is_resumption = 1 <= position < stream.next_number
        if is_resumption and session.replay is not None:
            stream.events.put_back(session.replay.take(LISTENING, position))
        self._carry(session, stream, exchange, is_resumption=is_resumption)

    def _reopen(self, session: HttpSession, exchange: Exchange, number: int, position: int) -> Stream | None:
        """Return a stream that was over, with its events after ``position``; ``None`` if none are kept."""
        replay = session.replay
        if replay is None or number not in replay:
            return None
        events = replay.take(number, position)
        if not events:
            # The client has seen all of it: a stream that ends at once says so.
            exchange.begin_stream((*EVENT_STREAM, *session_headers(session, exchange)))
            exchange.finish()
            return None
        stream = session.streams[number] = Stream(number, None, session)
        stream.is_resumable = True
        stream.next_number = events[-1].number + 1
        stream.events.put_back(events)
        return stream

    def open_channel(self, session: HttpSession, exchange: Exchange, endpoint: str) -> None:
        """Send all output of a 2024-11-05 session, after the address for the client's POSTs."""
        self._carry(session, self._listening(session), exchange)
        exchange.send(encode_event(endpoint.encode(), type="endpoint"))

    def _listening(self, session: HttpSession) -> Stream:
        stream = session.streams.get(LISTENING)
        if stream is None:
            stream = session.streams[LISTENING] = Stream(LISTENING, None, session)
        return stream

    def _listener(self, session: HttpSession) -> Stream | None:
        """Return the listening stream, if an exchange carries it."""
        stream = session.streams.get(LISTENING)
        return None if stream is None or stream.exchange is None else stream

    def _carry(self, session: HttpSession, stream: Stream, exchange: Exchange, *, is_resumption: bool = False) -> None:
        """Attach ``exchange`` to a stream; the previous exchange ends (HTTP-29)."""
        if stream.exchange is not None:
            stream.exchange.finish()
            stream.exchange.stream = None
            stream.events.rewind()  # an event that went out in part is sent whole by the new exchange
        self._disarm(session, stream)
        stream.exchange, exchange.stream = exchange, stream
        if is_resumption:
            exchange.begin_stream((*EVENT_STREAM, *session_headers(session, exchange)))
            self._expect_silence(session, stream)
        else:
            self._begin(session, stream, exchange)

    def detach(self, session: HttpSession, exchange: Exchange) -> None:
        """Keep a stream whose exchange broke, if it can be resumed. This does not cancel its requests (HTTP-24)."""
        stream = exchange.stream
        if stream is None:
            return
        stream.exchange = exchange.stream = None
        stream.events.rewind()
        self._disarm(session, stream)
        if stream.number == LISTENING:
            return  # it lasts as long as its session; without an exchange its messages wait in the engine
        if not stream.is_resumable:
            self.close(session, stream)
        elif self._options.resume_within is not None:
            self._arm(session, stream, self._options.resume_within)

    def interrupt(self, session: HttpSession, stream: Stream, retry: float | None) -> bool:
        """End the exchange of a stream, but not the stream: the client resumes it (HTTP-19, HTTP-20).

        ``retry`` is how many seconds the client waits before that. Returns whether the stream can be resumed.
        """
        exchange = stream.exchange
        if exchange is None or not self._may_interrupt(session, exchange):
            return False
        self.begin(session, stream)
        self._hand_over(session, stream, exchange)
        if retry is not None:
            exchange.send(b"retry: %d\n\n" % round(retry * 1000))
        exchange.finish()
        self.detach(session, exchange)
        return True

    def expire(self, session: HttpSession) -> None:
        """End the exchange of the listening stream, if any: its client may resume it."""
        stream = self._listener(session)
        if stream is not None and stream.exchange is not None:
            exchange = stream.exchange
            self._hand_over(session, stream, exchange)
            exchange.finish()
            self.detach(session, exchange)

    def _may_interrupt(self, session: HttpSession, exchange: Exchange) -> bool:
        return exchange.response is not Response.ENDED and exchange.answers != "json" and self._comes_back(session)

    # The end

    def drop_unheard(self, session: HttpSession) -> None:
        """Drop the messages of the listening stream if the client does not listen: the session is about to end."""
        if self._listener(session) is None:
            self._discard(session, None)

    def abandon(self, session: HttpSession) -> None:
        """Forget the streams that no exchange carries: they can no longer be resumed."""
        for stream in tuple(session.streams.values()):
            if stream.exchange is None:
                self.close(session, stream)

    def fill(self, session: HttpSession) -> None:
        """Make events of all messages that wait for streams which have begun: their session is about to end."""
        for stream in session.streams.values():
            if stream.exchange is not None and stream.exchange.response is _STREAMING:
                while self._fill(session, stream):
                    pass

    def end(self, session: HttpSession, *, delivers: bool) -> list[Exchange]:
        """End every stream of a session; return the exchanges that had no response yet.

        With ``delivers``, their waiting events go out first.
        """
        unanswered = []
        for stream in tuple(session.streams.values()):
            exchange = stream.exchange
            if exchange is not None and exchange.response is _STREAMING:
                if delivers:
                    self._hand_over(session, stream, exchange)
                exchange.finish()
            elif exchange is not None:
                unanswered.append(exchange)
            self.close(session, stream)
        self._timers.clear((_SENT, session.key, 0))
        return unanswered

    # Deadlines

    def handle_timeout(self, due: int, session: HttpSession, number: int) -> None:
        """Handle a deadline of a stream, or of sent events. This may add events."""
        stream = session.streams.get(number)
        if due == _SENT:
            self._forget_sent(session)
        elif stream is None:
            return
        elif stream.exchange is None:
            self.close(session, stream)
        elif stream.exchange.response is _UNDECIDED:
            self.begin(session, stream)
        else:
            self._break_silence(session, stream, stream.exchange)

    def _break_silence(self, session: HttpSession, stream: Stream, exchange: Exchange) -> None:
        """Send a comment on a stream that has been quiet, so that no proxy takes it for dead."""
        longest = self._options.keep_alive or 0.0
        if stream.sent_at + longest <= self.now:
            if not stream.events.unsent_bytes and not exchange.items:
                # Events that wait for the client to read are not silence.
                exchange.send(encode_comment())
                exchange.wake()
            stream.sent_at = self.now
        self._timers.set((_STREAM, session.key, stream.number), stream.sent_at + longest)

    def _forget_sent(self, session: HttpSession) -> None:
        """Forget events sent too long ago. Streams that no exchange carries have their own deadline."""
        replay, window = session.replay, self._options.resume_within or 0.0
        oldest: list[float | None] = []
        if replay is not None:
            replay.expire(self.now, window)
            oldest.append(replay.oldest)
            if replay.oldest is None:
                session.replay = None
        for stream in session.streams.values():
            if stream.exchange is not None:
                stream.events.forget_sent(partial(self._forget_event, session), self.now, window)
                oldest.append(stream.events.oldest)
        due = min((each for each in oldest if each is not None), default=None)
        if due is not None:
            self._timers.set((_SENT, session.key, 0), due + window)

    def _arm(self, session: HttpSession, stream: Stream, seconds: float) -> None:
        stream.has_timer = True
        self._timers.set((_STREAM, session.key, stream.number), self.now + seconds)

    def _disarm(self, session: HttpSession, stream: Stream) -> None:
        stream.has_timer = False
        self._timers.clear((_STREAM, session.key, stream.number))

    def _expect_silence(self, session: HttpSession, stream: Stream) -> None:
        # One deadline at a time, checked again when it comes: sending an event need not set it anew.
        stream.sent_at = self.now
        if self._options.keep_alive is not None:
            self._arm(session, stream, self._options.keep_alive)

    def _arm_sent(self, session: HttpSession) -> None:
        window = self._options.resume_within
        if window is not None and self._timers.get((_SENT, session.key, 0)) is None:
            self._timers.set((_SENT, session.key, 0), self.now + window)


def is_running(session: HttpSession, stream: Stream) -> bool:
    """Return whether a request that came by a stream is still to be answered."""
    if stream.is_deferred:
        stream.is_deferred = session.connection.has_deferred(stream.via)
    return stream.is_deferred or any(map(session.connection.is_pending, stream.requests))


def session_headers(session: HttpSession, exchange: Exchange) -> Headers:
    """Return the header field with the id of a session, for the answer to ``initialize`` (SESS-01)."""
    if session.id is None or session.is_legacy or exchange.session_id is not None:
        return ()
    return ((b"mcp-session-id", session.id.encode()),)
