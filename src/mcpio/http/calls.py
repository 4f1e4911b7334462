"""Stateless requests over HTTP: each is one call, and its response is where its output goes (2026-07-28).

The first fault of a request decides (ERA-13). Nothing of a call is left after its answer.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from mcpio.engine.channel import Kind, Outbox, Timers
from mcpio.engine.envelope import EnvelopeReader, unsupported_version
from mcpio.engine.limits import Held, Limits
from mcpio.engine.stateless_engine import StatelessEngine
from mcpio.errors import ErrorCode, MessageTooLarge, RequestError
from mcpio.events import CancelReceived, Event, IncomingId
from mcpio.framing import jsonrpc
from mcpio.framing.sse import encode_comment, encode_event
from mcpio.http.checks import Rejection, accepts_events
from mcpio.http.model import Headers, HttpOptions, ParamHeader, check_mirrors, check_param_fields
from mcpio.http.sessions import JSON, Exchange, Response
from mcpio.http.streams import EVENT_STREAM, Streams, TimerKind
from mcpio.revisions import Revision

NO_EVENTS: Final = Rejection(406, "Not acceptable: a subscription is a stream: Accept must list text/event-stream")
_UNDECIDED, _STREAMING = Response.UNDECIDED, Response.STREAMING
_CALL = TimerKind.CALL
_END_OF_CALLS = (TimerKind.CALLS, 0, 0)
_LISTEN: Final = "subscriptions/listen"


class Call:
    """One call that runs: the carrier of its messages."""

    __slots__ = ("_calls", "_held", "exchange", "id", "is_answered", "outbox", "refused", "sent_at", "size")

    exchange: Any
    """The exchange that brought it; ``None`` once its response is complete, or broken off: then its request is over."""
    id: IncomingId
    """The engine's key of its request."""
    is_answered: bool
    """Whether its last message was sent."""
    outbox: Outbox | None
    """The messages that wait for the client to read; ``None`` until there is one beside the answer."""
    refused: frozenset[str]
    """The scopes that its token lacks, where its error says so."""
    sent_at: float
    """When something of a stream was sent last."""
    size: int
    """Bytes that its parameters take."""

    def __init__(self, calls: Calls, exchange: Exchange) -> None:
        self._calls = calls
        self._held: Held | None = None
        self.exchange = exchange
        self.id = _NO_ID
        self.is_answered = False
        self.outbox = None
        self.refused = _NO_SCOPES
        self.sent_at = 0.0
        self.size = 0

    def __repr__(self) -> str:
        # The exchange's name in recordings.
        return f"call {int(self.id)}"

    # The carrier

    def answer(self, text: bytes, *, is_error: bool) -> None:
        """Send the answer: as the whole response, or as the last event of a stream."""
        self.is_answered = True
        exchange = self.exchange
        if exchange.is_direct and exchange.response is _UNDECIDED and exchange.answers != "sse" and not is_error:
            # In the call that brought it, as most requests are.
            exchange.respond(200, _JSON_ONLY, text)
            exchange.call = self.exchange = None
            self._calls.begun.pop(self, None)
        elif self.outbox is not None:
            self.outbox.put(text, Kind.RESPONSE, last=True)
            exchange.wake()
        elif exchange.response is _UNDECIDED:
            self._respond(exchange, text, is_error=is_error)
        else:
            exchange.send(encode_event(text, type="message"))
            exchange.finish()
            self._calls.release(self)
        if exchange.answer is None:
            # On a connection of many requests it may wait long to be pulled.
            self._calls.settle(exchange)

    def put(self, text: bytes, kind: int, key: Hashable) -> None:
        """Send a notification as an event; one that the client does not take is dropped."""
        exchange = self.exchange
        if exchange.answers == "json":
            return
        if self.outbox is None:
            self.outbox = Outbox(self._calls.limits.queued_logs)
        self.outbox.put(text, kind, key=key)
        if exchange.response is _UNDECIDED:
            self._calls.begin(self, exchange)
        exchange.wake()
        self._calls.check(self, exchange)

    @property
    def takes_notifications(self) -> bool:
        """Whether the client takes events."""
        takes: bool = self.exchange.answers != "json"
        return takes

    @property
    def held(self) -> Held:
        """The bytes held for it."""
        held = self._held
        if held is None:
            held = self._held = Held()
        held.requests = self.size
        held.output = 0 if self.outbox is None else self.outbox.size
        held.unwritten = self.exchange.size
        return held

    # For the server

    @property
    def weight(self) -> int:
        """Bytes that it holds, in addition to those of its exchange."""
        waiting = 0 if self.outbox is None else self.outbox.size
        return self.size + waiting + (0 if self._held is None else self._held.subscriptions)

    def pull(self, max_bytes: int) -> None:
        """Move about ``max_bytes`` of what waits to the exchange."""
        exchange, outbox = self.exchange, self.outbox
        if outbox is None:
            return
        room = max_bytes - exchange.size
        while room > 0 and (message := outbox.pop()) is not None:
            piece = encode_event(message.text, type="message")
            exchange.send(piece)
            room -= len(piece)
            self.sent_at = self._calls.now
        if outbox.size:
            exchange.wake()
        elif self.is_answered:
            exchange.finish()
            self._calls.release(self)

    def note_taken(self, exchange: Exchange) -> None:
        """Record that an adapter took some of the output."""
        self._calls.settle(exchange)
        self._calls.on_room()

    def lose(self, reason: str = "the client disconnected") -> None:
        """Cancel it, because its exchange is over."""
        self._calls.lose(self, reason)

    def _respond(self, exchange: Exchange, text: bytes, *, is_error: bool) -> None:
        status, headers = 200, _JSON_ONLY
        if is_error and self.refused:
            status, headers = 403, (JSON, *self._calls.challenge(self.refused))
        elif is_error and jsonrpc.error_code_in(text) == ErrorCode.MISSING_CLIENT_CAPABILITY:
            status = 400  # of a handler's errors, the only one that has another status (SHTTP-08)
        if status == 200 and exchange.answers == "sse":
            exchange.respond(status, EVENT_STREAM, encode_event(text, type="message"))
        else:
            exchange.respond(status, headers, text)
        self._calls.release(self)


class Calls:
    """All calls of one server. Events of a call name this in the place of a session."""

    id: Final = None
    key: Final = 0
    """Sessions have keys from 1."""

    limits: Limits
    """The limits of each call."""
    begun: dict[Call, None]
    """The calls that were admitted in this turn. Most are answered within it, and need no timer."""
    on_room: Callable[[], None]
    """Called when the output of a call may have become less."""

    def __init__(
        self,
        engine: StatelessEngine,
        *,
        options: HttpOptions,
        limits: Limits,
        revisions: tuple[Revision, ...],
        param_headers: Callable[[str], tuple[ParamHeader, ...]],
        streams: Streams,
        timers: Timers[tuple[int, int, int]],
        events: deque[Any],
        settle: Callable[[Exchange], None],
        overloaded: Rejection,
    ) -> None:
        """``settle`` updates the count of an exchange in the ledger; ``overloaded`` answers a call that is given up."""
        self.connection = engine
        self.limits = limits
        self._options = options
        self._revisions = revisions
        self._param_headers = param_headers
        self._streams = streams
        self._timers = timers
        self._events = events
        self.settle = settle
        self._overloaded = overloaded
        self._envelopes = EnvelopeReader(revisions)
        self.begun = {}
        self._waiting: dict[int, Call] = {}
        self.on_room = _nothing

    @property
    def now(self) -> float:
        """The time that the caller gave last."""
        return self._streams.now

    @property
    def challenge(self) -> Callable[[frozenset[str]], Headers]:
        """Returns the header fields that ask for a token with more scopes."""
        return self._streams.challenge

    # A request

    def post(self, exchange: Exchange, body: bytes, message: jsonrpc.Message, refusal: Rejection | None) -> None:
        """Serve a POST of the stateless era; ``refusal`` is why no request can run now."""
        version = exchange.request.version
        if not isinstance(message, jsonrpc.Request):
            self._post_other(exchange, message, version)
            return
        call = Call(self, exchange)
        try:
            envelope = self._envelopes.read(message.params, header=() if version is None else (version,))
            check_mirrors(message, exchange.fields)
            if message.method == _LISTEN and refusal is None:
                refusal = None if accepts_events(exchange.request) else NO_EVENTS
                exchange.answers = "sse"
            if refusal is not None:
                exchange.reject(refusal, message.id)
                return
        except RequestError as fault:
            _refuse(exchange, fault, message.id, 400)
            return
        check = None
        if message.method == "tools/call" and (name := message.params.get("name")).__class__ is str:
            # Last, by what the tool says (HDR-09).
            headers = self._param_headers(name)
            if headers:
                check = partial(check_param_fields, headers, message.params.get("arguments"), exchange.fields)
        try:
            event = self.connection.receive(message, body, envelope, call, exchange.principal, self._streams.now, check)
        except RequestError as fault:
            # No handler has seen it (SHTTP-08, SHTTP-09).
            _refuse(exchange, fault, message.id, _STATUSES.get(fault.code, 200))
            return
        if event is not None:
            call.id = event.id
            exchange.call = call
            self.begun[call] = None
            self._events.append((self, event))

    def _post_other(self, exchange: Exchange, message: jsonrpc.Message, version: str | None) -> None:
        if isinstance(message, jsonrpc.Notification):
            # Nothing that it says could be about another exchange (P7), and its fields may be missing (SHTTP-04).
            if version is None or any(version == revision.name for revision in self._revisions):
                exchange.respond(202, ())
            else:
                _refuse(exchange, unsupported_version(version, self._revisions), None, 400)
        elif isinstance(message, jsonrpc.Malformed):
            id = message.id if message.answerable else None
            exchange.reject(Rejection(400, message.reason, message.code), id)
        else:
            exchange.reject(Rejection(400, "Invalid request: a POST is one request or notification"))

    # While a call runs

    def wait(self) -> None:
        """Have the calls that were not answered within this turn wait: for the stream to begin, and counted."""
        started, self.begun = self.begun, {}
        for call in started:
            exchange = call.exchange
            if exchange is not None:
                self._waiting[call.id] = call
                call.size = self.connection.size_of(call.id)
                self.settle(exchange)
                if exchange.response is _UNDECIDED and exchange.answers != "json":
                    # A stream gains nothing by an early beginning, and takes the status from a late refusal.
                    self._expect(call)

    def begin(self, call: Call, exchange: Exchange) -> None:
        """Make the response a stream of events."""
        exchange.begin_stream(EVENT_STREAM)
        self._waiting[call.id] = call
        self._expect(call)

    def check(self, call: Call, exchange: Exchange) -> None:
        """End a call whose client leaves too much unread."""
        waiting = exchange.size + (0 if call.outbox is None else call.outbox.size)
        if waiting > self.limits.queued_bytes:
            self.cut(call)
        else:
            self.settle(exchange)

    def release(self, call: Call) -> None:
        """Let go of a call whose response is complete, or broken off."""
        call.exchange.call = call.exchange = None
        if self._waiting.pop(call.id, None) is not None:
            self._timers.clear((_CALL, call.id, 0))
        if call.outbox is not None:
            self.connection.dropped_logs += call.outbox.dropped_logs

    def lose(self, call: Call, reason: str) -> None:
        """Cancel a call whose exchange is over (SHTTP-06)."""
        self.release(call)
        event = self.connection.cancel(call.id, reason)
        if event is not None:
            self._events.append((self, event))

    def cut(self, call: Call) -> None:
        """Break off a call whose client reads too slowly."""
        exchange = call.exchange
        self.lose(call, "the client reads too slowly")
        exchange.cut(self._overloaded)
        self.settle(exchange)

    # Time

    def handle_timeout(self, key: int) -> None:
        """Begin the stream of a call that takes long, or break the silence of a stream."""
        call = self._waiting.get(key)
        if call is None:
            return  # an earlier deadline ended it
        exchange = call.exchange
        if exchange.response is _UNDECIDED:
            self.begin(call, exchange)
            return
        longest = self._options.keep_alive or 0.0
        if call.sent_at + longest <= self.now:
            if not exchange.items and not (call.outbox is not None and call.outbox.size):
                # What waits for the client to read is not silence.
                exchange.send(encode_comment())
                exchange.wake()
            call.sent_at = self.now
        self._timers.set((_CALL, key, 0), call.sent_at + longest)

    def _expect(self, call: Call) -> None:
        call.sent_at = self.now
        if self._options.keep_alive is not None:
            self._timers.set((_CALL, call.id, 0), self.now + self._options.keep_alive)

    # The end

    def close(self, grace: float | None) -> None:
        """End the subscriptions, and after ``grace`` seconds all calls."""
        for event in self.connection.close():
            self._events.append((self, event))
        if grace is not None:
            due = self._timers.get(_END_OF_CALLS)
            limit = self.now + grace
            self._timers.set(_END_OF_CALLS, limit if due is None else min(due, limit))

    def end(self, rejection: Rejection) -> None:
        """End the calls that still run: with ``rejection``, or where a stream has begun, with that error in it."""
        self.wait()
        for call in tuple(self._waiting.values()):
            exchange = call.exchange
            if exchange.response is _UNDECIDED:
                self.lose(call, _CLOSING)
                exchange.reject(rejection)
            else:
                self._end_stream(call, exchange, RequestError(ErrorCode.INTERNAL_ERROR, rejection.message))
            self.settle(exchange)

    def _end_stream(self, call: Call, exchange: Exchange, error: RequestError) -> None:
        """End a stream after all that waits in it, with the error unless the call was answered."""
        if not call.is_answered:
            with suppress(MessageTooLarge):
                self.connection.send_error(call.id, error)
                self._events.append((self, CancelReceived(call.id, _CLOSING, {})))
        call.pull(sys.maxsize)
        if call.exchange is not None:  # the error was too large
            self.lose(call, _CLOSING)
            exchange.finish()

    def next_event(self) -> Event | None:
        """Return the last event, once the server is closing and every call is over."""
        engine = self.connection
        if not engine.is_closing or engine.is_serving or self._waiting or engine.closed:
            return None
        self._timers.clear(_END_OF_CALLS)
        engine.finish()
        return engine.end


_CLOSING: Final = "the server is closing"
_NO_ID: Final = IncomingId(0)
_NO_SCOPES: Final[frozenset[str]] = frozenset()
_JSON_ONLY: Final[Headers] = (JSON,)

_STATUSES: Final[Mapping[int | None, int]] = {
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.METHOD_NOT_FOUND: 404,
    ErrorCode.HEADER_MISMATCH: 400,
}
"""By code: the status of an answer that an engine gave to a stateless request. Others have 200."""


def _refuse(exchange: Exchange, fault: RequestError, id: int | str | None, status: int) -> None:
    exchange.respond(status, _JSON_ONLY, jsonrpc.encode_error(id, fault.code, fault.message, fault.data))


def _nothing() -> None:
    """Wake nobody: no handler waits for room."""
