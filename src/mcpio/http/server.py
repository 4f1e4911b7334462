"""Streamable HTTP as a machine: requests by meaning in, events and responses by meaning out, and no I/O.

The obligation after every call that is not a mere look: *drain the events, write what the exchanges have to send,
re-arm the deadline.*
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final, TypeAlias

from mcpio.engine.limits import Limits
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase
from mcpio.engine.timers import Timers
from mcpio.errors import ErrorCode, RemoteProtocolError
from mcpio.events import CancelReceived, Event, ProtocolViolated, RequestReceived
from mcpio.framing import jsonrpc
from mcpio.http.checks import Facts, Rejection, first_broken, rejection_body, too_large
from mcpio.http.cors import cors_headers, preflight_headers
from mcpio.http.model import Body, Denied, End, Headers, RequestHead, RequestItem, ResponseItem
from mcpio.http.options import HttpOptions
from mcpio.http.sessions import Exchange, HttpSession, SessionClosed, SessionOpened, Stream
from mcpio.http.streams import JSON, Due, Streams, session_headers
from mcpio.revisions import REV_2025_03_26, Revision

__all__ = ["HttpEvent", "HttpServer"]

HttpEvent: TypeAlias = "Event | SessionOpened | SessionClosed"
"""What ``next_event`` gives beside the session: what its connection reports, and that it began or is over."""

ID_BYTES: Final = 16
"""Bytes of entropy in the id of a session (SESS-02)."""


class HttpServer:
    """Any number of clients of one server, over HTTP. It owns the engine of each session.

    Items go in by ``receive``; ``next_event`` gives what happened and in which session; ``next_ready`` says which
    exchange has something to send, and ``responses_to_send`` gives it. After acting on the connection of a session,
    call ``flush``. It reads no clock and waits for nothing.
    """

    def __init__(
        self,
        connect: Callable[[Hashable], ServerConnection],
        *,
        entropy: Callable[[int], bytes],
        options: HttpOptions | None = None,
        limits: Limits | None = None,
    ) -> None:
        """``connect`` makes the engine for a client with that principal; ``entropy`` gives unguessable bytes."""
        self._connect = connect
        self._entropy = entropy
        self._options = options or HttpOptions()
        self._limits = limits or Limits()
        self._timers: Timers[tuple[int, int, int]] = Timers()
        self._streams = Streams(self._options, self._limits, self._timers)
        self._exchanges: dict[Hashable, Exchange] = {}
        self._sessions: dict[int, HttpSession] = {}
        self._by_id: dict[str, HttpSession] = {}
        self._next_key = 1
        self._events: deque[tuple[HttpSession, HttpEvent]] = deque()
        self._closing = False

    # Feed

    def receive(self, item: RequestItem, now: float) -> None:
        """Take in what came of a request. Never raises for what a client sends.

        What belongs to no open exchange is ignored: its response was complete before the request was.
        """
        self._advance(now)
        if isinstance(item, RequestHead):
            self._begin(item)
            return
        exchange = self._exchanges.get(item.exchange)
        if exchange is None:
            return
        if isinstance(item, Body):
            self._take(exchange, item.data)
        elif isinstance(item, End):
            self._complete(exchange)
        else:
            self._lose(exchange)

    # Pull

    def next_event(self) -> tuple[HttpSession, HttpEvent] | None:
        """Return what happened next, and in which session, or ``None`` for "feed me"."""
        return self._events.popleft() if self._events else None

    def next_ready(self) -> Hashable | None:
        """Return an exchange that has something to send, or ``None``. Each is named once until it has more."""
        ready = self._streams.ready
        if not ready:
            return None
        exchange = next(iter(ready))
        del ready[exchange]
        return exchange

    def responses_to_send(self, exchange: Hashable, max_bytes: int = 65536) -> list[ResponseItem]:
        """Return what to send of a response, in order, about ``max_bytes`` of it. An empty list: nothing now.

        Pull only when what was pulled before is written. After ``End`` or ``Reset`` the exchange is over.
        """
        found = self._exchanges.get(exchange)
        if found is None:
            return []
        self._streams.ready.pop(exchange, None)
        self._streams.pull(found, max_bytes)
        items = list(found.items)
        found.items.clear()
        if found.is_answered:
            self._forget(found)
        elif found.session is not None and found.session.connection.phase is Phase.CLOSING:
            self.flush(found.session, self._streams.now)
        return items

    # Time

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` is due, on the caller's clock, or ``None``. Every call may change it."""
        return self._timers.next()

    def handle_timeout(self, now: float) -> None:
        """Let deadlines up to ``now`` expire. Early or repeated calls do nothing."""
        self._advance(now)
        for due, key, number in self._timers.pop_expired(now):
            session = self._sessions.get(key)
            if session is None:
                continue
            if due == Due.ENGINE:
                session.connection.handle_timeout(now)
                self.flush(session, now)
            elif due == Due.IDLE:
                self._expire(session)
            else:
                self._streams.handle_timeout(due, session, number)

    # Act

    def flush(self, session: HttpSession, now: float) -> None:
        """Take note of what was done to the connection of a session."""
        self._advance(now)
        if session.key not in self._sessions:
            return
        connection = session.connection
        self._drain(session)
        self._streams.advance(session)
        if connection.phase is Phase.CLOSING:
            # What belongs to no request has no reader any more, unless somebody listens.
            self._streams.drop_undeliverable(session)
            if not connection.waiting():
                # Asking for more is how the engine hears that everything is out.
                connection.next_message()
            self._drain(session)
        if connection.phase is Phase.CLOSED:
            self._end(session)
            return
        deadline = connection.next_deadline()
        if deadline is None:
            self._timers.clear((Due.ENGINE, session.key, 0))
        else:
            self._timers.set((Due.ENGINE, session.key, 0), deadline)
        if session.id is None and session.is_idle:
            connection.abort()
            self.flush(session, now)

    def interrupt(self, session: HttpSession, via: Hashable, now: float, *, retry: float | None = None) -> bool:
        """End the exchange that carries the answer to a request, so that the client comes back for it (HTTP-19).

        ``via`` is that of the request; ``retry`` is how many seconds the client is to wait. Returns whether it was
        done: a client that cannot come back is left alone.
        """
        self._advance(now)
        stream = session.streams.get(via) if isinstance(via, int) else None
        return stream is not None and self._streams.interrupt(session, stream, retry)

    def end_session(self, session: HttpSession, now: float) -> None:
        """End a session at once. Its client gets 404 from then on (SESS-05)."""
        session.connection.abort()
        self.flush(session, now)

    def close(self, now: float, grace: float | None = 5.0) -> None:
        """Close in order: nothing new is served; what runs is answered, for at most ``grace`` seconds; streams end."""
        self._advance(now)
        self._closing = True
        for session in tuple(self._sessions.values()):
            session.connection.close(now, grace)
            self.flush(session, now)

    # Look

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called, no session is left, and everything was pulled."""
        return self._closing and not self._sessions and not self._exchanges and not self._events

    @property
    def sessions(self) -> tuple[HttpSession, ...]:
        """The sessions that are open now, the oldest first, with those that are one request only."""
        return tuple(self._sessions.values())

    # Requests

    def _begin(self, head: RequestHead) -> None:
        facts = Facts(head)
        exchange = Exchange(head.exchange, facts, head.principal, cors_headers(facts, self._options))
        self._exchanges[exchange.id] = exchange
        rejection = self._first_broken(exchange)
        if rejection is not None:
            self._reject(exchange, rejection)

    def _first_broken(self, exchange: Exchange) -> Rejection | None:
        """Climb the ladder as far as the head goes."""
        facts, options = exchange.facts, self._options
        if facts.path == options.health:
            return None if facts.method == "GET" else _GET_ONLY
        if facts.path != options.path:
            return Rejection(404, f"Not found: {facts.path:.100}")
        rejection = first_broken(facts, options, self._limits.message_bytes)
        if rejection is None and isinstance(exchange.principal, Denied) and facts.method != "OPTIONS":
            denied = exchange.principal
            rejection = Rejection(denied.status, denied.message, headers=denied.headers)
        if rejection is None and options.sessions and facts.method != "OPTIONS":
            rejection = self._find_session(exchange)
        if rejection is None and self._closing:
            rejection = Rejection(503, "Service unavailable: the server is closing", ErrorCode.INTERNAL_ERROR)
        return rejection

    def _find_session(self, exchange: Exchange) -> Rejection | None:
        """Require that the session that is named is one of ours, and of whoever asks (SESS-04, SESS-05, SESS-09)."""
        facts = exchange.facts
        if facts.session_id is None:
            return None if facts.method == "POST" else _SESSION_REQUIRED
        session = self._by_id.get(facts.session_id)
        if session is None or session.principal != exchange.principal:
            return _NO_SESSION
        revision = session.connection.revision
        if facts.version is not None and revision is not None and facts.version != revision.name:
            return Rejection(400, f"Invalid request: this session speaks {revision}, not {facts.version}")
        self._enter(exchange, session)
        return None

    def _enter(self, exchange: Exchange, session: HttpSession) -> None:
        exchange.session = session
        session.exchanges += 1

    def _take(self, exchange: Exchange, data: bytes) -> None:
        if exchange.is_answered:
            return
        exchange.size += len(data)
        if exchange.size > self._limits.message_bytes:
            exchange.body.clear()
            self._reject(exchange, too_large(self._limits.message_bytes))
        else:
            exchange.body.append(data)

    def _complete(self, exchange: Exchange) -> None:
        if exchange.is_answered or exchange.stream is not None:
            return
        method, session = exchange.facts.method, exchange.session
        if exchange.facts.path == self._options.health:
            exchange.respond(200, (JSON, _NOT_CACHED), b'{"status":"ok"}')
        elif method == "POST":
            self._post(exchange)
        elif method == "OPTIONS":
            exchange.respond(204, preflight_headers(exchange.facts, self._options))
        elif session is not None and method == "GET":
            self._streams.listen(session, exchange)
            self._streams.advance(session)
        elif session is not None:
            exchange.respond(204, session_headers(session, exchange))
            self.end_session(session, self._streams.now)
        self._streams.ready[exchange.id] = None

    def _post(self, exchange: Exchange) -> None:
        body = b"".join(exchange.body)
        exchange.body.clear()
        if exchange.session is None:
            rejection = self._open_session(exchange, jsonrpc.parse(body))
            if rejection is not None:
                self._reject(exchange, rejection)
        if exchange.session is not None:
            self._feed(exchange, exchange.session, body)

    def _feed(self, exchange: Exchange, session: HttpSession, body: bytes) -> None:
        """Hand a message to the engine, and tell from what becomes of it what the response is."""
        connection = session.connection
        stream = self._streams.open(session, exchange, is_batch=body.lstrip().startswith(b"["))
        connection.receive_message(body, self._streams.now, via=stream.number)
        faults, others = self._drain(session)
        if session.id is None and self._options.sessions and connection.revision is not None:
            self._name(session)
        if faults and not others:
            self._refuse(exchange, session, stream, faults[0])
        elif not stream.running and stream.number not in connection.waiting():
            # Notifications and responses (HTTP-09).
            exchange.respond(202, session_headers(session, exchange))
            self._streams.close(session, stream)
        self.flush(session, self._streams.now)

    def _refuse(self, exchange: Exchange, session: HttpSession, stream: Stream, fault: RemoteProtocolError) -> None:
        """Answer what is no message, or none that can be accepted (HTTP-10, HTTP-13)."""
        answer = session.connection.next_message(via=stream.number)
        self._streams.close(session, stream)
        if answer is not None:
            exchange.respond(400, (JSON, *session_headers(session, exchange)), answer.text)
        else:
            self._reject(exchange, Rejection(400, str(fault), fault.code))

    # Sessions

    def _open_session(self, exchange: Exchange, message: jsonrpc.Message) -> Rejection | None:
        """Begin a session for a request that names none, or say why not."""
        is_initialize = isinstance(message, jsonrpc.Request) and message.method == "initialize"
        if isinstance(message, jsonrpc.Malformed):
            return Rejection(400, message.reason, message.code)
        if self._options.sessions and not is_initialize:
            return _SESSION_REQUIRED
        if self._options.sessions and len(self._by_id) >= self._limits.sessions and not self._evict():
            return Rejection(503, "Service unavailable: too many sessions", ErrorCode.INTERNAL_ERROR, _LATER)
        connection = self._connect(exchange.principal)
        if not is_initialize:
            # Of a client that needs no session, the handshake was another request, or there was none (HTTP-32).
            version = exchange.facts.version
            revision = REV_2025_03_26 if version is None else Revision.parse(version)
            if revision is None or revision not in connection.options.revisions:
                return Rejection(400, f"Invalid request: revision {revision} is not served here")
            connection.assume(revision)
        session = HttpSession(self._next_key, connection, exchange.principal, self._streams.now)
        self._next_key += 1
        connection.can_reach = partial(self._streams.can_reach, session)
        self._sessions[session.key] = session
        self._enter(exchange, session)
        self._events.append((session, SessionOpened()))
        return None

    def _name(self, session: HttpSession) -> None:
        """Give a session that has shaken hands the name that its client is to use (SESS-01)."""
        session.id = self._entropy(ID_BYTES).hex()
        self._by_id[session.id] = session
        self._arm_idle(session)

    def _evict(self) -> bool:
        """Make room by ending the session that was idle for longest; tell whether there was one."""
        for session in self._by_id.values():
            if session.is_idle:
                self.end_session(session, self._streams.now)
                return True
        return False

    def _drain(self, session: HttpSession) -> tuple[list[RemoteProtocolError], bool]:
        """Pass on what the engine reports; return the faults among it, and whether there was anything else."""
        faults: list[RemoteProtocolError] = []
        others = False
        while (event := session.connection.next_event()) is not None:
            self._events.append((session, event))
            if isinstance(event, ProtocolViolated):
                faults.append(event.error)
                continue
            others = True
            if isinstance(event, RequestReceived):
                stream = session.stream_of(event.context.via)
                if stream is not None:
                    stream.running.add(event.id)
            elif isinstance(event, CancelReceived):
                self._streams.cancel(session, event.id)
        return faults, others

    def _expire(self, session: HttpSession) -> None:
        idle = self._options.session_idle
        if idle is None:
            return
        if session.is_idle and session.used_at + idle <= self._streams.now:
            self.end_session(session, self._streams.now)
        else:
            self._arm_idle(session)

    def _arm_idle(self, session: HttpSession) -> None:
        # One deadline at a time, looked at again when it comes: a session that is used need not set it anew.
        if self._options.session_idle is not None:
            since = session.used_at if session.is_idle else self._streams.now
            self._timers.set((Due.IDLE, session.key, 0), since + self._options.session_idle)

    def _end(self, session: HttpSession) -> None:
        """Forget a session whose connection has ended."""
        del self._sessions[session.key]
        if session.id is not None:
            self._by_id.pop(session.id, None)
        for exchange in self._streams.end(session):
            self._reject(exchange, _NO_SESSION)
        for due in (Due.ENGINE, Due.IDLE):
            self._timers.clear((due, session.key, 0))
        session.connection.can_reach = None
        self._events.append((session, SessionClosed()))

    # Exchanges

    def _reject(self, exchange: Exchange, rejection: Rejection) -> None:
        exchange.respond(rejection.status, (JSON, *rejection.headers), rejection_body(rejection))
        self._streams.ready[exchange.id] = None

    def _lose(self, exchange: Exchange) -> None:
        """Take note that a client is gone in the middle. Whatever it asked for goes on (HTTP-24)."""
        if exchange.session is not None:
            self._streams.detach(exchange.session, exchange)
        self._streams.ready.pop(exchange.id, None)
        self._forget(exchange)

    def _forget(self, exchange: Exchange) -> None:
        del self._exchanges[exchange.id]
        session = exchange.session
        if session is not None:
            session.exchanges -= 1
            session.used_at = self._streams.now
            if session.id is None:
                self.flush(session, self._streams.now)
            elif session.id in self._by_id:
                # In the order of their last use: whoever has to make room looks at the first.
                self._by_id[session.id] = self._by_id.pop(session.id)

    def _advance(self, now: float) -> None:
        self._streams.now = max(now, self._streams.now)


_GET_ONLY: Final = Rejection(405, "Method not allowed", headers=((b"allow", b"GET"),))
_NOT_CACHED: Final = (b"cache-control", b"no-store")
_LATER: Headers = ((b"retry-after", b"5"),)
_SESSION_REQUIRED: Final = Rejection(400, "Invalid request: Mcp-Session-Id is required: initialize first")
_NO_SESSION: Final = Rejection(404, "Session not found: it is over, or was never there")
