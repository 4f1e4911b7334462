"""Streamable HTTP as a machine, for clients: messages become requests, and what comes back becomes messages.

The obligation after every call that is not a mere look: *drain the events, make the requests, re-arm the deadline.*
"""

from __future__ import annotations

from collections import deque
from typing import Final, TypeAlias

import attrs

from mcpio.engine.client import ClientConnection
from mcpio.engine.outbox import Outgoing
from mcpio.engine.table import Phase
from mcpio.engine.timers import Timers
from mcpio.errors import AuthorizationRequired, ConnectionLost, McpError, UnexpectedResponse
from mcpio.events import Event, OutgoingId
from mcpio.framing import jsonrpc
from mcpio.framing.sse import ServerSentEvent, SseParser
from mcpio.http.calls import Call, Purpose, header, media_type
from mcpio.http.client_options import HttpClientOptions
from mcpio.http.location import Location
from mcpio.http.model import Body, End, RequestHead, RequestItem, Reset, ResponseHead, ResponseItem

__all__ = ["HttpClient", "HttpClientEvent", "SessionLost"]


@attrs.frozen
class SessionLost:
    """The server does not know the session any more (SESS-06). What waited has failed; a new client may begin anew."""


HttpClientEvent: TypeAlias = "Event | SessionLost"
"""What ``next_event`` gives: what the connection reports, and that its session was lost."""

FAREWELL: Final = 5.0
"""Seconds to wait for the answer to the end of a session (SESS-08)."""

STRAGGLE: Final = 2.0
"""Seconds that a stream may stay open after everything that it owed came, before it is cut off."""

FALLBACK: Final = (400, 404, 405)
"""What a server says to ``initialize`` that may know only the transport of 2024-11-05 (FALL-07)."""


class HttpClient:
    """One client of one server, over HTTP. It owns the engine.

    Act on ``connection``; ``requests_to_send`` then gives what to ask of the server, and ``receive`` takes what comes
    back. Each exchange is a request of its own, and any number may be open at once. It reads no clock and waits for
    nothing.
    """

    def __init__(
        self, connection: ClientConnection, location: Location, *, options: HttpClientOptions | None = None
    ) -> None:
        self.connection = connection
        self._location = location
        self._options = options or HttpClientOptions()
        self._max_bytes = connection.options.limits.message_bytes
        self._calls: dict[int, Call] = {}
        self._next_call = 1
        self._items: deque[RequestItem] = deque()
        self._lost: deque[SessionLost] = deque()
        self._told: deque[Outgoing] = deque()
        self._owed: list[Call] = []
        self._undelivered = 0
        self._again: dict[int, Call] = {}
        self._timers: Timers[int] = Timers()
        self._now = float("-inf")
        self._target = location.target
        self._session_id: str | None = None
        self._is_legacy = False
        self._first = b""
        self._is_settled = False
        self._said_goodbye = False
        self._extra = tuple((name.lower().encode(), value.encode()) for name, value in self._options.headers.items())

    # Pull

    def next_event(self) -> HttpClientEvent | None:
        """Return what happened next, or ``None`` for "feed me"."""
        event = self.connection.next_event()
        return event if event is not None else self._lost.popleft() if self._lost else None

    def requests_to_send(self, now: float) -> list[RequestItem]:
        """Return what to ask of the server, in order: whole requests, and ``Reset`` for those to break off.

        Drain the events before. A request may go out at once; any number may be under way.
        """
        self._advance(now)
        self._see_what_is_owed()
        while not self._is_held and (message := self.connection.next_message()) is not None:
            if message.asked or not self._is_settled:
                self._post(message)
            else:
                # One after the other, so that they arrive in their order.
                self._told.append(message)
        if self._told and not self._is_telling:
            self._post(self._told.popleft())
        self._cut_stragglers()
        if self.connection.phase is Phase.CLOSED and not self._told and not self._is_telling:
            self._say_goodbye()
        items = list(self._items)
        self._items.clear()
        return items

    # Feed

    def receive(self, item: ResponseItem, now: float) -> None:
        """Take in what came of a response. Never raises for what a server sends.

        ``Reset`` says that the exchange broke, or that there was no connection for it. What belongs to no open exchange
        is ignored.
        """
        self._advance(now)
        call = self._calls.get(item.exchange) if isinstance(item.exchange, int) else None
        if call is None:
            return
        if isinstance(item, ResponseHead):
            self._take_head(call, item)
        elif isinstance(item, Body):
            self._take_body(call, item.data)
        else:
            self._forget(call)
            if isinstance(item, End) and call.head is not None:
                self._complete(call, call.head)
            else:
                self._break(call, item.cause if isinstance(item, Reset) else None)

    # Time

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` is due, on the caller's clock, or ``None``. Every call may change it."""
        own, engine = self._timers.next(), self.connection.next_deadline()
        return own if engine is None else engine if own is None else min(own, engine)

    def handle_timeout(self, now: float) -> None:
        """Let deadlines up to ``now`` expire. Early or repeated calls do nothing."""
        self._advance(now)
        self.connection.handle_timeout(now)
        for number in self._timers.pop_expired(now):
            waiting = self._again.pop(number, None)
            if waiting is not None:
                self._request(waiting)
            elif number in self._calls:
                self._cut(self._calls[number])

    # Look

    @property
    def closed(self) -> bool:
        """Whether everything is over: the connection has ended, and the server was told."""
        return self.connection.closed and self._said_goodbye and not self._calls and not self._items

    @property
    def undelivered(self) -> int:
        """How many notifications and responses the server did not take."""
        return self._undelivered

    # Requests

    @property
    def _is_held(self) -> bool:
        """Whether nothing may go out now: nothing overtakes the handshake, or the address where it is to go."""
        if self._is_legacy and not self._target:
            return True
        return not self._is_settled and any(call.is_handshake for call in self._calls.values())

    @property
    def _is_telling(self) -> bool:
        return any(call.purpose is Purpose.TELL for call in self._calls.values())

    def _post(self, message: Outgoing) -> None:
        purpose = Purpose.ASK if message.asked else Purpose.TELL
        call = self._new_call(purpose, text=message.text, asked=message.asked)
        call.is_handshake = not self._is_settled
        self._request(call)

    def _new_call(
        self, purpose: Purpose, *, text: bytes = b"", asked: tuple[OutgoingId, ...] = (), resumes: str | None = None
    ) -> Call:
        call = Call(self._next_call, purpose, self._target, text=text, asked=asked, resumes=resumes)
        self._next_call += 1
        return call

    def _request(self, call: Call) -> None:
        """Make a request: for the first time, or again somewhere else."""
        self._calls[call.number] = call
        call.begin(self._session_id)
        headers = [*self._extra, *call.headers()]
        revision = self.connection.revision
        if revision is not None:
            headers.append((b"mcp-protocol-version", revision.name.encode()))
        self._items.append(RequestHead(call.number, call.purpose.method, call.target, headers))
        if call.text:
            self._items.append(Body(call.number, call.text))
        self._items.append(End(call.number))

    def _listen(self) -> None:
        if self._options.listen and not self._is_legacy:
            self._request(self._new_call(Purpose.LISTEN))

    # Responses, as they come

    def _take_head(self, call: Call, head: ResponseHead) -> None:
        call.head = head
        id = header(head, b"mcp-session-id")
        if call.is_handshake and call.asked and head.status == 200 and id is not None:
            if not id or not all("!" <= character <= "~" for character in id):
                self._fail(call, UnexpectedResponse(200, "a session id that is no visible ASCII", id))
                self._cut(call)
                return
            self._session_id = id
        if head.status == 200 and media_type(head) == "text/event-stream":
            call.parser = SseParser(self._max_bytes)

    def _take_body(self, call: Call, data: bytes) -> None:
        if call.parser is None:
            call.size += len(data)
            call.body.append(data)
        else:
            for event in call.parser.receive(data):
                self._take_event(call, event)
        if call.size > self._max_bytes or (call.parser is not None and call.parser.is_too_large):
            self._fail(call, UnexpectedResponse(200, f"an answer of more than {self._max_bytes} bytes"))
            self._cut(call)

    def _take_event(self, call: Call, event: ServerSentEvent) -> None:
        call.tries = 0
        if event.retry is not None:
            call.retry = event.retry / 1000
        if call.purpose is Purpose.LEGACY and event.type == "endpoint":
            self._take_endpoint(call, event.data or "")
        elif event.data and event.type == "message":
            # One without data tells its id only: it is no message (RESUME-07).
            self.connection.receive_message(event.data, self._now)

    def _complete(self, call: Call, head: ResponseHead) -> None:
        """Act on a whole response."""
        if call.purpose is Purpose.END:
            return
        if head.status in _REDIRECTS:
            self._follow(call, head)
        elif head.status == 404 and call.session_id is not None:
            self._lose_session()
        elif head.status in (401, 403):
            challenge = header(head, b"www-authenticate") or "no challenge"
            self._fail(call, AuthorizationRequired(f"the server answered with status {head.status}: {challenge}"))
        elif not 200 <= head.status < 300:
            self._reject(call, head)
        elif call.purpose is Purpose.TELL:
            if call.is_handshake:
                self._is_settled = True
                self._listen()
        elif call.parser is not None:
            self._owed.append(call)
        elif call.purpose is Purpose.ASK and call.body and media_type(head) == "application/json":
            self.connection.receive_message(b"".join(call.body), self._now)
            self._owed.append(call)
        elif not (call.purpose is Purpose.ASK and self._is_legacy):
            self._fail(call, _unexpected(call, head))

    def _reject(self, call: Call, head: ResponseHead) -> None:
        """Act on a status that says that the server did not do it."""
        body = b"".join(call.body)
        if call.asked and media_type(head) == "application/json" and _answers(body, call.asked):
            self.connection.receive_message(body, self._now)
            self._owed.append(call)
        elif call.is_handshake and call.asked and head.status in FALLBACK and self._options.fall_back:
            self._fall_back(call, head)
        elif call.purpose is not Purpose.LISTEN:
            # Not to let anybody listen is a server's right (HTTP-27).
            self._fail(call, _unexpected(call, head))

    def _follow(self, call: Call, head: ResponseHead) -> None:
        """Go where the server points, within its origin (HTTP-38)."""
        location = self._location.join(header(head, b"location") or "")
        keeps_method = head.status in (307, 308) or call.purpose.method == "GET"
        call.redirects += 1
        if location is None or not keeps_method or call.redirects > self._options.redirects:
            self._fail(call, _unexpected(call, head))
            return
        if head.status == 308:
            self._target = location.target
        call.target = location.target
        self._request(call)

    def _fail(self, call: Call, error: McpError) -> None:
        """End what a request was for."""
        if call.purpose is Purpose.LEGACY or (call.is_handshake and not call.asked):
            self.connection.connection_lost(error, self._now)
        elif call.purpose is Purpose.TELL:
            self._undelivered += 1
        for id in call.asked:
            self.connection.fail_request(id, error, self._now)

    def _lose_session(self) -> None:
        if self._session_id is None:
            return
        self._session_id = None
        self._lost.append(SessionLost())
        self.connection.connection_lost(ConnectionLost("the server does not know the session any more"), self._now)

    # Streams that break

    def _break(self, call: Call, cause: BaseException | None) -> None:
        """Act on an exchange that broke."""
        if call.purpose in _STREAMS and (call.last_id is not None or call.purpose is not Purpose.ASK):
            self._take_up(call, cause)
        elif call.purpose is not Purpose.END:
            self._fail(call, _lost(call, cause))

    def _see_what_is_owed(self) -> None:
        """Look, now that its messages were acted on, whether a response brought everything that it should have."""
        owed, self._owed = self._owed, []
        for call in owed:
            if call.purpose is Purpose.LEGACY:
                self._fail(call, _lost(call, None))
            elif call.purpose is Purpose.LISTEN or any(map(self.connection.awaits, call.asked)):
                if call.last_id is not None or call.purpose is Purpose.LISTEN:
                    self._take_up(call, None)
                else:
                    self._fail(call, _lost(call, None))

    def _take_up(self, call: Call, cause: BaseException | None) -> None:
        """Come back for the rest of a stream, in a while (RESUME-03, HTTP-21)."""
        if self.connection.phase in (Phase.CLOSING, Phase.CLOSED):
            return
        if call.tries >= self._options.reconnect_tries:
            self._fail(call, _lost(call, cause))
            return
        purpose = Purpose.LISTEN if call.purpose is Purpose.LISTEN else Purpose.RESUME
        again = self._new_call(purpose, asked=call.asked, resumes=call.last_id)
        again.retry = call.retry
        delay = call.retry
        if delay is None:
            options = self._options
            delay = min(options.reconnect_after * 2.0**call.tries, options.reconnect_at_most)
        again.tries = call.tries + 1
        self._again[again.number] = again
        self._timers.set(again.number, self._now + delay)

    def _cut_stragglers(self) -> None:
        """Give streams that brought everything a moment to end by themselves, then end them."""
        for call in self._calls.values():
            if not call.asked or call.parser is None or self._timers.get(call.number) is not None:
                continue
            if not any(map(self.connection.awaits, call.asked)):
                self._timers.set(call.number, self._now + STRAGGLE)

    def _cut(self, call: Call) -> None:
        if call.number in self._calls:
            self._forget(call)
            self._items.append(Reset(call.number))

    def _forget(self, call: Call) -> None:
        del self._calls[call.number]
        self._timers.clear(call.number)

    # The transport of 2024-11-05

    def _fall_back(self, call: Call, head: ResponseHead) -> None:
        """Try the older transport, which begins by listening (FALL-07)."""
        self._is_legacy, self._session_id = True, None
        listening = self._new_call(Purpose.LEGACY, asked=call.asked)
        self._first = call.text
        self._target = ""
        self._request(listening)

    def _take_endpoint(self, call: Call, reference: str) -> None:
        """Learn where messages go (FALL-01, FALL-02)."""
        location = self._location.join(reference)
        if self._target:
            return
        if location is None:
            self._fail(call, UnexpectedResponse(200, "an endpoint of another origin", reference))
            self._cut(call)
            return
        self._target = location.target
        first, asked = self._first, call.asked
        call.asked = ()
        self._request(self._new_call(Purpose.ASK, text=first, asked=asked))

    # The end

    def _say_goodbye(self) -> None:
        """Break off what is under way, and end the session at the server (SESS-08, HTTP-36)."""
        if self._said_goodbye:
            return
        self._said_goodbye = True
        for number in self._again:
            self._timers.clear(number)
        self._again.clear()
        for call in tuple(self._calls.values()):
            self._cut(call)
        if self._session_id is not None:
            farewell = self._new_call(Purpose.END)
            self._request(farewell)
            self._timers.set(farewell.number, self._now + FAREWELL)

    def _advance(self, now: float) -> None:
        self._now = max(now, self._now)


def _unexpected(call: Call, head: ResponseHead) -> UnexpectedResponse:
    text = b"".join(call.body)[:_QUOTE].decode(errors="replace")
    return UnexpectedResponse(head.status, f"{media_type(head) or 'nothing'} in answer to {call.purpose.value}", text)


def _lost(call: Call, cause: BaseException | None) -> ConnectionLost:
    error = ConnectionLost(f"the exchange for {call.purpose.value} broke off")
    error.__cause__ = cause
    return error


def _answers(body: bytes, asked: tuple[OutgoingId, ...]) -> bool:
    """Whether a body is the answer to one of these requests."""
    message = jsonrpc.parse(body)
    return isinstance(message, jsonrpc.Error | jsonrpc.Result) and message.id in asked


_REDIRECTS: Final = (301, 302, 303, 307, 308)
_STREAMS: Final = (Purpose.ASK, Purpose.RESUME, Purpose.LISTEN)
_QUOTE: Final = 200
