"""Streamable HTTP as a machine, for clients: messages become requests, and what comes back becomes messages.

The obligation after every call that is not a mere look: *drain the events, make the requests, re-arm the deadline.*
"""

from __future__ import annotations

from collections import deque
from typing import Final, TypeAlias

from mcpio.engine.client import ClientConnection
from mcpio.engine.ledger import MESSAGE_COST
from mcpio.engine.outbox import BACKLOG, Outgoing
from mcpio.engine.table import Phase
from mcpio.errors import ConnectionLost, LocalProtocolError, McpError, UnexpectedResponse
from mcpio.events import Event, Negotiated, OutgoingId, RequestFailed, ResponseReceived
from mcpio.framing.sse import ServerSentEvent, SseParser
from mcpio.http.client.events import ListeningEnded, MessageRefused, SessionLost, TransportEvent
from mcpio.http.client.exchange import REDIRECTS, ClientExchange, Purpose, header, media_type, takes_any_event_type
from mcpio.http.client.exchanges import LEAVING, ClientExchanges
from mcpio.http.client.options import HttpClientOptions
from mcpio.http.location import Location
from mcpio.http.model import Body, End, RequestItem, Reset, ResponseHead, ResponseItem

__all__ = ["HttpClient", "HttpClientEvent"]

HttpClientEvent: TypeAlias = Event | TransportEvent
"""What ``next_event`` gives: what the connection reports, and what only this transport knows."""

FAREWELL: Final = 5.0
"""Seconds in all for the last messages, and for the end of a session (SESS-08)."""

STRAGGLE: Final = 2.0
"""Seconds that a response may go on after everything that it owed came, before it is cut off."""

HEARING: Final = 0.5
"""Seconds that requests wait for the server to let us listen: what it says before that may be lost."""

FALLBACK: Final = (400, 404, 405)
"""What a server says to ``initialize`` that may know only the transport of 2024-11-05 (FALL-07)."""


class HttpClient:
    """One client of one server, over HTTP. It owns the engine.

    Act on ``connection``; ``requests_to_send`` then gives what to ask of the server, and ``receive`` takes what comes
    back. Each exchange is a request of its own, and any number may be open at once. It reads no clock and waits for
    nothing. Requests of the protocol go side by side; notifications and answers one after the other, so that they
    arrive in their order; and nothing overtakes the handshake.
    """

    _session_id: str | None
    _has_asked: bool
    _is_open: bool
    _opened_at: float

    def __init__(
        self,
        connection: ClientConnection,
        location: Location,
        *,
        options: HttpClientOptions | None = None,
        session_id: str | None = None,
    ) -> None:
        """``session_id`` is for a connection in operation, which goes on in that session: see ``save``."""
        self.connection = connection
        self._location = location
        self._options = options or HttpClientOptions()
        self._limits = connection.options.limits
        self._exchanges = ClientExchanges(location.target, self._options.headers)
        self._events: deque[TransportEvent] = deque()
        self._asks = _Queue()
        self._tells = _Queue()
        self._asked: dict[OutgoingId, ClientExchange] = {}
        self._owing: list[ClientExchange] = []
        self._telling: ClientExchange | None = None
        self._hearing: ClientExchange | None = None
        self._is_deaf = False
        self._is_legacy = False
        self._before_endpoint: tuple[ClientExchange, McpError] | None = None
        self._is_leaving = self._has_left = False
        self._fruitless = 0
        self._any_event_type = takes_any_event_type(connection.options.profiles)
        self._forget_session()
        self._session_id = session_id

    # Pull

    def next_event(self) -> HttpClientEvent | None:
        """Return what happened next, or ``None`` for "feed me"."""
        event = self.connection.next_event()
        if event is None:
            return self._events.popleft() if self._events else None
        if isinstance(event, ResponseReceived | RequestFailed | Negotiated):
            self._settle(event)
        return event

    def requests_to_send(self, now: float) -> list[RequestItem]:
        """Return what to ask of the server, in order: whole requests, and ``Reset`` for those to break off.

        Drain the events before, and after: to find that nothing is left to send may be what ends the connection.
        """
        self._exchanges.now = max(now, self._exchanges.now)
        self._see_what_is_owed()
        while (message := self.connection.next_message()) is not None:
            (self._asks if message.asked else self._tells).append(message)
        if self._exchanges.target:
            self._send_what_may_go()
        # While much of it waits, the server's requests do too. Our own requests are no answers that it has to read.
        self.connection.set_unwritten(self._tells.size)
        self.connection.held.own = self._asks.size
        if self.connection.phase is Phase.CLOSED:
            self._leave()
        return self._exchanges.pop_items()

    # Feed

    def receive(self, item: ResponseItem, now: float) -> None:
        """Take in what came of a response. Never raises for what a server sends.

        ``Reset`` says that the exchange broke, or that there was no connection for it. Its cause becomes the error of
        whoever waits where it is an ``McpError``. What belongs to no open exchange is ignored.
        """
        self._exchanges.now = max(now, self._exchanges.now)
        call = self._exchanges.get(item.exchange)
        if call is None:
            return
        if isinstance(item, ResponseHead):
            self._take_head(call, item)
        elif isinstance(item, Body):
            self._take_body(call, item.data)
        else:
            self._exchanges.forget(call)
            if isinstance(item, End) and call.head is not None:
                self._complete(call, call.head)
            else:
                self._break(call, item.cause if isinstance(item, Reset) else None)
            if self._has_left and not len(self._exchanges):
                self._exchanges.timers.clear(LEAVING)

    def wants_read(self, exchange: object) -> bool:
        """Whether to read on in the response of an exchange now. False means "not now": ask again after each turn.

        A server whose streams bring more to answer than it takes is not heard until it has taken some of it. While
        unfinished messages take half of ``Limits.peer_bytes``, only the longest of them is read to its end.
        """
        call = self._exchanges.get(exchange)
        if call is None or call.purpose in (Purpose.TELL, Purpose.END) or self.connection.phase is Phase.CLOSED:
            return True
        # What is sent does not wait for what streams bring, so streams need not be read while answers are awaited.
        is_full = self._tells.size > self._limits.high_water or not self.connection.wants_read
        if call.parser is not None and is_full:
            return False
        collected = call.collected_bytes
        if collected <= BACKLOG or self._exchanges.collected_bytes <= self._limits.peer_bytes // 2:
            return True
        return call is self._exchanges.longest

    # Time

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` is due, on the caller's clock, or ``None``. Every call may change it."""
        own, engine = self._exchanges.timers.next(), self.connection.next_deadline()
        return own if engine is None else engine if own is None else min(own, engine)

    def handle_timeout(self, now: float) -> None:
        """Let deadlines up to ``now`` expire. Early or repeated calls do nothing."""
        self._exchanges.now = max(now, self._exchanges.now)
        self.connection.handle_timeout(now)
        for number in self._exchanges.timers.pop_expired(now):
            if number == LEAVING:
                self._tells.clear()
                self._exchanges.cut_all()
            elif (due := self._exchanges.pop_due(number)) is not None:
                self._request(due)
            elif (call := self._exchanges.get(number)) is not None:
                self._let_expire(call)

    # Look

    @property
    def closed(self) -> bool:
        """Whether everything is over: the connection has ended, and the server was told."""
        return self.connection.closed and self._has_left and self._exchanges.is_idle

    def save(self) -> str | None:
        """Return the session, to go on elsewhere, as the server names it: a secret (SESS-09). ``None`` without one.

        ``LocalProtocolError`` while messages are on their way to the server, and by the transport of 2024-11-05.
        """
        if self._is_legacy:
            raise LocalProtocolError("by the transport of 2024-11-05 a session ends with its stream")
        if self._tells or self._asks or self._is_telling:
            raise LocalProtocolError("write the output before taking a snapshot")
        return self._session_id

    # Requests

    def _send_what_may_go(self) -> None:
        if self._tells and not self._is_telling:
            self._post(self._tells.popleft())
        settled = not self._tells and not self._is_telling
        if not self._is_open and settled and self.connection.phase is Phase.OPERATING:
            # ``notifications/initialized`` has arrived.
            self._is_open = True
            self._opened_at = self._exchanges.now
            if self._options.listen and not self._is_legacy:
                self._hearing = self._listen()
                self._exchanges.timers.set(self._hearing.number, self._exchanges.now + HEARING)
        while self._asks and self._may_ask:
            self._post(self._asks.popleft())

    @property
    def _is_telling(self) -> bool:
        return self._telling in self._exchanges

    @property
    def _may_ask(self) -> bool:
        if not self._is_open:
            return not self._has_asked
        return self._hearing not in self._exchanges and len(self._exchanges) < self._options.max_requests

    def _post(self, message: Outgoing) -> None:
        if not message.asked:
            self._telling = self._exchanges.new(Purpose.TELL, text=message.text)
            self._request(self._telling)
        elif any(map(self.connection.is_pending, message.asked)):  # others were given up before they could go
            call = self._exchanges.new(Purpose.ASK, text=message.text, asked=message.asked)
            call.is_handshake = not self._is_open
            self._has_asked = True
            self._asked.update(dict.fromkeys(message.asked, call))
            self._request(call)

    def _listen(self) -> ClientExchange:
        self._is_deaf = False
        call = self._exchanges.new(Purpose.LISTEN)
        self._request(call)
        return call

    def _request(self, call: ClientExchange) -> None:
        """Make a request: for the first time, or again somewhere else."""
        revision = None if call.is_handshake else self.connection.revision
        self._exchanges.make(call, self._session_id, None if revision is None else revision.name)
        if call is self._telling:
            self._exchanges.timers.set(call.number, self._exchanges.now + self._options.tell_timeout)

    # Responses, as they come

    def _take_head(self, call: ClientExchange, head: ResponseHead) -> None:
        call.head = head
        if call is self._hearing:
            self._hearing = None
            self._exchanges.timers.clear(call.number)
        encoding = header(head, b"content-encoding") or "identity"
        opens = call.is_handshake and call.purpose is Purpose.ASK and not self._is_legacy
        if opens and head.status == 200 and not self._take_session_id(call, head):
            return
        if call is self._telling and 200 <= head.status < 300:
            # That was all to know. Whatever follows must not hold up the next one.
            self._telling = None
            self._exchanges.timers.set(call.number, self._exchanges.now + STRAGGLE)
        elif head.status == 200 and encoding.strip().lower() != "identity":
            self._refuse(call, head, f"a response in the encoding {encoding!r:.60}, which was not asked for")
        elif head.status == 200 and media_type(head) == "text/event-stream" and call.purpose is not Purpose.TELL:
            call.parser = SseParser(self._limits.message_bytes)
            call.was_open = True

    def _take_session_id(self, call: ClientExchange, head: ResponseHead) -> bool:
        """Note the session that the server opens (SESS-01, SESS-02)."""
        id = header(head, b"mcp-session-id")
        if id is not None and not (id and all("!" <= character <= "~" for character in id)):
            self._refuse(call, head, f"the session id {id!r:.60}, which is no visible ASCII")
            return False
        self._session_id = id
        return True

    def _take_body(self, call: ClientExchange, data: bytes) -> None:
        most = self._limits.message_bytes
        if call.parser is not None:
            for event in call.parser.receive(data):
                self._take_event(call, event)
        elif call.purpose is not Purpose.TELL or call is self._telling:
            call.body += data
        if call.head is not None and (len(call.body) > most or (call.parser is not None and call.parser.is_too_large)):
            self._refuse(call, call.head, f"a response of more than {most} bytes")

    def _take_event(self, call: ClientExchange, event: ServerSentEvent) -> None:
        call.tries = 0
        if event.retry is not None:
            call.retry = event.retry / 1000
        if call.purpose is Purpose.LEGACY and event.type == "endpoint":
            self._take_endpoint(call, event.data or "")
        elif event.data and (event.type == "message" or self._any_event_type):
            # One without data tells its id only: it is no message (RESUME-07).
            self.connection.receive_message(event.data, self._exchanges.now)

    def _refuse(self, call: ClientExchange, head: ResponseHead, reason: str) -> None:
        """Give up on a response in the middle of it."""
        self._exchanges.cut(call)
        self._fail(call, call.unexpected(head, reason))

    def _settle(self, event: ResponseReceived | RequestFailed | Negotiated) -> None:
        """Note that one of our requests has its outcome."""
        call = None if event.id is None else self._asked.pop(event.id, None)
        if call is None:
            return
        call.owed -= 1
        if isinstance(event, ResponseReceived):
            self._fruitless = 0
            if self._is_deaf:
                self._listen()
        if not call.owed:
            self._exchanges.end_soon(call, STRAGGLE)

    # Responses, when they are whole

    def _complete(self, call: ClientExchange, head: ResponseHead) -> None:
        if call.purpose is Purpose.END:
            return  # 405 is as good as any other: there is nobody left to care (SESS-08)
        if head.status in REDIRECTS:
            self._follow(call, head)
        elif head.status == 404 and self._is_session_gone(call):
            self._lose_session()
        elif head.status in (401, 403):
            self._fail(call, call.unauthorized(head))
        elif not 200 <= head.status < 300:
            self._reject(call, head)
        elif call.parser is not None:
            self._owing.append(call)
        elif call.purpose is Purpose.ASK and call.body and media_type(head) == "application/json":
            self.connection.receive_message(call.text_received, self._exchanges.now)
            self._owing.append(call)
        elif call.purpose is not Purpose.TELL and not (call.purpose is Purpose.ASK and self._is_legacy):
            self._fail(call, call.unexpected(head))

    def _is_session_gone(self, call: ClientExchange) -> bool:
        """Whether 404 says so (SESS-06). Some servers say it to whoever wants to listen, and mean 405 (HTTP-27)."""
        named = call.session_id is not None and call.session_id == self._session_id
        return named and (call.purpose is not Purpose.LISTEN or call.was_open)

    def _reject(self, call: ClientExchange, head: ResponseHead) -> None:
        """Act on a status that says that the server did not do it."""
        is_temporary = head.status >= 500 or head.status == 429
        if call.holds_answer(head):
            self.connection.receive_message(call.text_received, self._exchanges.now)
            self._owing.append(call)
        elif call.is_handshake and head.status in FALLBACK and self._options.fall_back and not self._is_legacy:
            self._fall_back(call, call.refusal(head))
        elif call.purpose is Purpose.RESUME or (call.purpose is Purpose.LISTEN and call.was_open):
            self._take_up(call, call.unexpected(head), is_worth_it=is_temporary)
        elif call.purpose is not Purpose.LISTEN:
            # Not to let anybody listen is a server's right (HTTP-27).
            self._fail(call, call.refusal(head))

    def _follow(self, call: ClientExchange, head: ResponseHead) -> None:
        """Go where the server points, within its origin (HTTP-38)."""
        location = call.leads_to(head, self._location) if call.redirects < self._options.redirects else None
        if location is None:
            said = f"a redirect that is not followed, to {header(head, b'location') or ''!r:.200}"
            self._fail(call, call.unexpected(head, said))
            return
        call.redirects += 1
        if head.status == 308 and call.target == self._exchanges.target:
            self._exchanges.target = location.target
        call.target = location.target
        self._request(call)

    def _fail(self, call: ClientExchange, error: McpError) -> None:
        """End what a request was for."""
        if call.purpose is Purpose.RESUME and isinstance(error, UnexpectedResponse):
            error = call.lost(error)
        if call.purpose is Purpose.TELL:
            self._events.append(MessageRefused(error))
        elif call.purpose is Purpose.LISTEN:
            self._is_deaf = call.was_open
            self._events.append(ListeningEnded(error))
        for id in call.asked:
            self.connection.fail_request(id, error, self._exchanges.now)
        if call.purpose is Purpose.LEGACY:
            self._lose_legacy(call, error)
        elif call.is_handshake:
            self.connection.connection_lost(error, self._exchanges.now)

    # Sessions

    def _lose_session(self) -> None:
        """Act on a session that the server does not know any more (SESS-06)."""
        self._exchanges.cut_all()
        self._owing.clear()
        self._asked.clear()
        self._asks.clear()
        self._tells.clear()
        options = self._options
        if self._exchanges.now - self._opened_at >= options.reconnect_at_most:
            self._fruitless = 0
        self._forget_session()
        if not options.reinitialize or self._fruitless >= options.reconnect_tries:
            error = ConnectionLost("the server does not know the session any more")
            self.connection.connection_lost(error, self._exchanges.now)
            self._events.append(SessionLost(None))
            return
        self.connection.reset_session(self._exchanges.now)
        wait = self._options.delay(self._fruitless - 1) if self._fruitless else 0.0
        self._fruitless += 1
        self._events.append(SessionLost(wait))

    def _forget_session(self) -> None:
        self._session_id = None
        self._has_asked = self._is_open = self._is_deaf = False
        self._opened_at = self._exchanges.now

    # Streams that break

    def _break(self, call: ClientExchange, cause: BaseException | None) -> None:
        """Act on an exchange that broke."""
        if call.purpose in (Purpose.RESUME, Purpose.LISTEN) or (
            call.purpose is Purpose.ASK and call.last_id is not None
        ):
            self._take_up(call, cause)
        elif call.purpose is not Purpose.END and (call.purpose is not Purpose.TELL or call is self._telling):
            self._fail(call, call.lost(cause))

    def _see_what_is_owed(self) -> None:
        """Look, now that its messages were acted on, whether a response brought everything that it should have."""
        owing, self._owing = self._owing, []
        for call in owing:
            if call.purpose is Purpose.LEGACY:
                self._fail(call, call.lost(None))
            elif call.purpose is Purpose.LISTEN or any(map(self.connection.is_pending, call.asked)):
                if call.purpose is not Purpose.ASK or call.last_id is not None:
                    self._take_up(call, None)
                else:
                    self._fail(call, call.without_answer())

    def _take_up(self, call: ClientExchange, cause: BaseException | None, *, is_worth_it: bool = True) -> None:
        """Come back for the rest of a stream, in a while (RESUME-03, RESUME-06, HTTP-21)."""
        if self.connection.phase in (Phase.CLOSING, Phase.CLOSED):
            return
        if self._exchanges.now - call.began >= self._options.reconnect_at_most:
            call.tries = 0  # some are cut off for being quiet
        if not is_worth_it or call.tries >= self._options.reconnect_tries:
            self._fail(call, call.lost(cause))
            return
        purpose = Purpose.LISTEN if call.purpose is Purpose.LISTEN else Purpose.RESUME
        again = self._exchanges.new(purpose, asked=call.asked, resumes=call.last_id)
        again.owed, again.retry, again.tries = call.owed, call.retry, call.tries + 1
        again.was_open, again.is_handshake = call.was_open, call.is_handshake
        self._asked.update({id: again for id in call.asked if id in self._asked})
        self._exchanges.make_later(again, self._options.delay(call.tries, call.retry))

    def _let_expire(self, call: ClientExchange) -> None:
        if call is self._hearing:
            self._hearing = None
            return
        self._exchanges.cut(call)
        if call is self._telling:
            limit = self._options.tell_timeout
            self._fail(call, ConnectionLost(f"the server took no note of it within {limit:g} s"))

    # The transport of 2024-11-05

    def _fall_back(self, call: ClientExchange, error: McpError) -> None:
        """Try the older transport, which begins by listening (FALL-07). ``error`` stands if that leads nowhere."""
        self._is_legacy, self._session_id = True, None
        listening = self._exchanges.new(Purpose.LEGACY)
        self._before_endpoint = call, error
        self._request(listening)
        self._exchanges.target = ""

    def _take_endpoint(self, call: ClientExchange, reference: str) -> None:
        """Learn where messages go (FALL-01, FALL-02)."""
        if self._before_endpoint is None or call.head is None:
            return  # a second one
        location = self._location.at(call.target).join(reference)
        if location is None:
            self._refuse(call, call.head, f"an endpoint of another origin: {reference!r:.200}")
            return
        first, _ = self._before_endpoint
        self._before_endpoint = None
        self._exchanges.target = first.target = location.target
        self._request(first)

    def _lose_legacy(self, call: ClientExchange, error: McpError) -> None:
        """Act on the end of the stream that carries everything."""
        if self._before_endpoint is not None:
            first, refusal = self._before_endpoint
            # Where there is no stream, the first answer says more; where there is one, what is wrong with it does.
            error = error if call.was_open else refusal
            for id in first.asked:
                self.connection.fail_request(id, error, self._exchanges.now)
        self.connection.connection_lost(error, self._exchanges.now)

    # The end

    def _leave(self) -> None:
        """Break off what is under way, let the last messages out, and end the session (SESS-08, HTTP-36)."""
        if not self._is_leaving:
            self._is_leaving = True
            self._asks.clear()
            self._exchanges.cut_all(but=self._telling)
            if not self._exchanges.target:
                self._tells.clear()
            self._exchanges.timers.set(LEAVING, self._exchanges.now + FAREWELL)
        if self._has_left or self._tells or self._is_telling:
            return
        self._has_left = True
        self._exchanges.cut_all()
        if self._exchanges.timers.get(LEAVING) is None:
            return
        if self._session_id is not None:
            self._request(self._exchanges.new(Purpose.END))
        else:
            self._exchanges.timers.clear(LEAVING)


class _Queue:
    """Messages that wait for their turn to be sent, with their size in memory."""

    __slots__ = ("_messages", "size")

    def __init__(self) -> None:
        self._messages: deque[Outgoing] = deque()
        self.size = 0

    def append(self, message: Outgoing) -> None:
        if self.size > BACKLOG:
            # orjson gives short texts in buffers of a KiB: see ``Outbox``, where they do not wait for long enough.
            message.text = bytes(memoryview(message.text))
        self._messages.append(message)
        self.size += len(message.text) + MESSAGE_COST

    def popleft(self) -> Outgoing:
        message = self._messages.popleft()
        self.size -= len(message.text) + MESSAGE_COST
        return message

    def clear(self) -> None:
        self._messages.clear()
        self.size = 0

    def __bool__(self) -> bool:
        return bool(self._messages)
