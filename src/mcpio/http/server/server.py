"""Streamable HTTP as a machine: requests by meaning in, events and responses by meaning out, and no I/O.

The obligation after every call that is not a mere look: *drain the events, write what the exchanges have to send,
re-arm the deadline.*
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from mcpio.engine.ledger import LARGEST_FACTOR, Ledger, parsed_size
from mcpio.engine.limits import Limits, seconds
from mcpio.errors import LocalProtocolError
from mcpio.http.checks import (
    HEALTH_CHECKS,
    Checks,
    ParsedRequest,
    Rejection,
    acceptable_answers,
    cors_headers,
    first_failure,
    preflight_headers,
    too_large,
)
from mcpio.http.model import Body, End, RequestHead, RequestItem, ResponseItem
from mcpio.http.options import HttpOptions
from mcpio.http.server.endpoint import CLOSING, TOO_MANY_REQUESTS, Connect, Endpoint, Mcp
from mcpio.http.server.registry import OVERLOADED, SLACK, HttpEvent, Sessions
from mcpio.http.server.sessions import JSON, Exchange, HttpSession

if TYPE_CHECKING:
    from mcpio.http.durable.records import SessionEffect

__all__ = ["HttpEvent", "HttpServer"]

NewSessions: TypeAlias = Callable[..., Sessions]


class HttpServer:
    """Any number of clients of one server, over HTTP. It owns the engine of each session.

    Items go in by ``receive``; ``next_event`` gives what happened and in which session; ``next_ready`` says which
    exchange has something to send, and ``responses_to_send`` gives it. After acting on the connection of a session,
    call ``flush``. It reads no clock and waits for nothing.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        entropy: Callable[[int], bytes],
        options: HttpOptions | None = None,
        limits: Limits | None = None,
        ledger: Ledger | None = None,
        on_given_up: Callable[[], None] = lambda: None,
        on_room: Callable[[HttpSession], None] = lambda _: None,
        new_sessions: NewSessions = Sessions,
    ) -> None:
        """``connect`` makes the engine for a client with that principal; ``entropy`` gives unguessable bytes.

        ``ledger`` counts what is held for all clients, and may be shared with other transports: without one there is
        one for this server, of ``Limits.total_bytes``. Where it has something of this server's freed it calls
        ``on_given_up``: drain the events, as after any other call. ``on_room`` takes a session whose output may have
        become less, for callers that hold answers back while ``connection.has_room`` is false.

        With ``new_sessions=partial(DurableSessions, hooks)``, sessions outlive the process: carry out what
        ``next_effect`` gives, too. Raises ValueError if options name one path twice, or if durable sessions are wanted
        without resumable streams.
        """
        self._options = options or HttpOptions()
        self._limits = limits or Limits()
        ledger = ledger or Ledger(self._limits.total_bytes)
        self._sessions = new_sessions(
            self._options, self._limits, entropy, ledger, on_given_up, on_room, self._admit_again
        )
        self._exchanges: dict[Hashable, Exchange] = {}
        self._ready: dict[Hashable, None] = {}
        self._endpoints = self._all_endpoints(connect)

    # Feed

    def receive(self, item: RequestItem, now: float) -> None:
        """Take in what came of a request. Never raises for what a client sends.

        What belongs to no open exchange is ignored: its response was complete before the request was. Raises
        ``LocalProtocolError`` for the head of an exchange that is open already.
        """
        self._sessions.advance(now)
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
            self._lose(exchange, item.cause)

    # Pull

    def next_event(self) -> tuple[HttpSession, HttpEvent] | None:
        """Return what happened next, and in which session, or ``None`` for "feed me"."""
        return self._sessions.next_event()

    def next_ready(self) -> Hashable | None:
        """Return an exchange that has something to send, or ``None``. Each is named once until it has more."""
        if not self._ready:
            return None
        exchange = next(iter(self._ready))
        del self._ready[exchange]
        return exchange

    def responses_to_send(self, exchange: Hashable, max_bytes: int = 65536) -> list[ResponseItem]:
        """Return what to send of a response, in order, about ``max_bytes`` of it. An empty list: nothing now.

        Pull only when what was pulled before is written: the rest is counted, and while there is much of it further
        requests of its client wait. After ``End`` the exchange is over.
        """
        found = self._exchanges.get(exchange)
        if found is None:
            return []
        self._ready.pop(exchange, None)
        if found.is_held:
            return []
        self._sessions.streams.pull(found, max_bytes)
        items = found.take(max_bytes)
        if found.is_over:
            self._forget(found)
        else:
            self._settle(found)
        return items

    # Time

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` is due, on the caller's clock, or ``None``. Every call may change it."""
        return self._sessions.next_deadline()

    def handle_timeout(self, now: float) -> None:
        """Let deadlines up to ``now`` expire. Early or repeated calls do nothing."""
        self._sessions.advance(now)
        self._sessions.handle_timeout(now)

    # The store, where sessions outlive the process

    def next_effect(self) -> SessionEffect | None:
        """Return what the store is to do next, or ``None``. Drain the events before: what they caused belongs to it."""
        return self._sessions.next_effect()

    def store_done(self, token: int, value: Any, now: float) -> None:
        """Take in what the store answered to an effect: a value, or the exception that it raised.

        Answers come in the order of the effects; that to a token that was answered is ignored.
        """
        self._sessions.advance(now)
        self._sessions.store_done(token, value)

    # Act

    def flush(self, session: HttpSession, now: float) -> None:
        """Take note of what was done to the connection of a session."""
        self._sessions.advance(now)
        self._sessions.flush(session)

    def interrupt(self, session: HttpSession, via: Hashable, now: float, *, retry: float | None = None) -> bool:
        """End the exchange that carries the answer to a request, so that the client comes back for it (HTTP-19).

        ``via`` is that of the request; ``retry`` is how many seconds the client is to wait. Returns whether it was
        done: a client that cannot come back is left alone.
        """
        self._sessions.advance(now)
        stream = None if via is None else session.stream_of(via)
        return stream is not None and self._sessions.streams.interrupt(session, stream, retry)

    def end_session(self, session: HttpSession, now: float) -> None:
        """End a session at once. Its client gets 404 from then on (SESS-05)."""
        self._sessions.advance(now)
        self._sessions.end(session)

    def close(self, now: float, grace: float | None = 5.0) -> None:
        """Close in order: nothing new is served; what runs is answered, for at most ``grace`` seconds; streams end.

        ``LocalProtocolError`` for a ``grace`` that is no number of 0 or more.
        """
        try:
            limit = seconds(grace)
        except ValueError as error:
            raise LocalProtocolError(str(error)) from None
        self._sessions.advance(now)
        self._sessions.close(limit)

    # Look

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called, no session is left, and everything was pulled and stored."""
        sessions = self._sessions
        is_over = not sessions.all and not self._exchanges and not sessions.events
        return sessions.is_closing and is_over and sessions.is_stored

    @property
    def sessions(self) -> tuple[HttpSession, ...]:
        """The sessions that are open now, the oldest first, with those that are one request only."""
        return self._sessions.all

    # Requests

    def _all_endpoints(self, connect: Connect) -> dict[str, Endpoint]:
        options, limits, sessions = self._options, self._limits, self._sessions
        found: list[tuple[str, Endpoint]] = [(options.path, Mcp(connect, options, limits, sessions))]
        if options.health is not None:
            found.append((options.health, _Health(options)))
        if options.legacy is not None:
            from mcpio.http.server.legacy import LegacyListening, LegacyPosting  # few servers have it

            found.append((options.legacy[0], LegacyListening(connect, options, sessions, options.legacy)))
            found.append((options.legacy[1], LegacyPosting(options, limits, sessions)))
        endpoints = dict(found)
        if len(endpoints) < len(found):
            raise ValueError(f"one path for two things: {', '.join(path for path, _ in found)}")
        return endpoints

    def _begin(self, head: RequestHead) -> None:
        if head.exchange in self._exchanges:
            raise LocalProtocolError(f"the exchange {head.exchange!r} is open already")
        request = ParsedRequest(head)
        exchange = self._exchanges[head.exchange] = Exchange(
            head.exchange,
            request,
            head.principal,
            headers=cors_headers(request, self._options),
            answers=acceptable_answers(request, self._options),
            ready=self._ready,
        )
        rejection = self._admit(exchange)
        if rejection is not None:
            exchange.reject(rejection)
        if exchange.session is None:
            self._sessions.settle_alone(exchange)

    def _admit(self, exchange: Exchange) -> Rejection | None:
        endpoint = self._endpoints.get(exchange.request.path)
        if endpoint is None:
            return Rejection(404, f"Not found: {exchange.request.path:.100}")
        if len(self._exchanges) > self._limits.exchanges:
            return TOO_MANY_REQUESTS
        rejection = first_failure(exchange.request, endpoint.rules)
        if rejection is not None or exchange.request.method == "OPTIONS":
            return rejection
        return CLOSING if self._sessions.is_closing else endpoint.admit(exchange)

    def _take(self, exchange: Exchange, data: bytes) -> None:
        if exchange.is_answered:
            return
        exchange.add_to_body(data)
        session = exchange.session
        if len(exchange.body) > self._limits.message_bytes:
            exchange.drop_body()
            exchange.reject(too_large(self._limits.message_bytes))
        elif len(exchange.body) <= SLACK:
            pass  # as mostly: what an exchange takes beside its body is more
        elif session is None or not self._sessions.is_open(session):
            self._sessions.settle_alone(exchange)
        elif self._sessions.is_too_heavy(session):
            exchange.drop_body()
            exchange.reject(OVERLOADED)
        else:
            self._sessions.settle(session)

    def _complete(self, exchange: Exchange) -> None:
        if exchange.is_complete or exchange.is_answered:
            return
        exchange.is_complete = True
        if exchange.is_waiting:
            return
        if exchange.request.method == "OPTIONS":
            exchange.respond(204, preflight_headers(self._options))
        else:
            self._serve(exchange)

    def _serve(self, exchange: Exchange) -> None:
        size, most = len(exchange.body), self._limits.peer_bytes
        if size * LARGEST_FACTOR > most and parsed_size(exchange.body) > most:
            # A text whose values would take more memory than that is as good as too long.
            exchange.drop_body()
            exchange.reject(too_large(self._limits.message_bytes))
        else:
            self._endpoints[exchange.request.path].serve(exchange)

    def _admit_again(self, exchange: Exchange, rejection: Rejection | None) -> None:
        """Go on with an exchange that waited for its session, unless it was answered or lost meanwhile."""
        exchange.is_waiting = False
        if exchange.is_answered or self._exchanges.get(exchange.id) is not exchange:
            return
        rejection = rejection or self._endpoints[exchange.request.path].admit(exchange)
        if rejection is not None:
            exchange.reject(rejection)
        elif exchange.is_complete:
            self._serve(exchange)

    def _lose(self, exchange: Exchange, cause: BaseException | None) -> None:
        """Take note that a client is gone in the middle. Whatever it asked for goes on (HTTP-24)."""
        session, stream = exchange.session, exchange.stream
        if session is not None:
            self._sessions.streams.detach(session, exchange)
        self._forget(exchange)
        if session is not None and session.is_legacy and stream is not None:
            self._sessions.lose(session, cause)

    def _settle(self, exchange: Exchange) -> None:
        """Account for what an exchange holds, and see to what follows from that."""
        session = exchange.session
        if session is not None and self._sessions.is_open(session):
            self._sessions.go_on(session)
        else:
            self._sessions.settle_alone(exchange)

    def _forget(self, exchange: Exchange) -> None:
        del self._exchanges[exchange.id]
        self._ready.pop(exchange.id, None)
        self._sessions.forget_alone(exchange)
        if exchange.session is not None:
            self._sessions.leave(exchange.session, exchange)


class _Health:
    """Tells whoever watches over servers that this one is there."""

    def __init__(self, options: HttpOptions) -> None:
        self.rules = Checks(HEALTH_CHECKS, ("GET", "HEAD"), options, 0)

    def admit(self, exchange: Exchange) -> Rejection | None:
        """Ask no more than the rules do."""
        return None

    def serve(self, exchange: Exchange) -> None:
        """Say that all is well."""
        exchange.respond(200, (JSON, _NOT_CACHED), b'{"status":"ok"}')


_NOT_CACHED: Final = (b"cache-control", b"no-store")
