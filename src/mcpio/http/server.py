"""The server's machine: requests go in, responses and the events of all sessions come out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from posixpath import dirname, relpath
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import attrs

from mcpio._checks import called, checked, chosen, required
from mcpio.auth.grant import Grant
from mcpio.engine.channel import Timers
from mcpio.engine.gates import without_changes
from mcpio.engine.limits import LARGEST_FACTOR, Ledger, Limits, check_time, parsed_size, seconds, takes_too_much
from mcpio.engine.server import ServerConnection
from mcpio.engine.stateless_engine import StatelessEngine
from mcpio.engine.table import Phase
from mcpio.errors import (
    ErrorCode,
    InvalidMessage,
    LocalProtocolError,
    MessageTooLarge,
    RemoteProtocolError,
    RequestError,
)
from mcpio.events import (
    CancelReceived,
    CloseReason,
    Event,
    IgnoreReason,
    IncomingId,
    MessageIgnored,
    ProtocolViolated,
    RequestFailed,
    RequestReceived,
)
from mcpio.framing import json, jsonrpc
from mcpio.http.calls import Call, Calls
from mcpio.http.checks import (
    HEALTH_CHECKS,
    LEGACY_CHECKS,
    MCP_CHECKS,
    PUBLIC_CHECKS,
    Admissions,
    Checks,
    Rejection,
    preflight_headers,
    too_large,
)
from mcpio.http.model import (
    HANDSHAKE_NAMES,
    Answer,
    Body,
    Cors,
    End,
    Headers,
    HttpOptions,
    Page,
    ParamHeader,
    RequestHead,
    RequestItem,
    Reset,
    ResponseItem,
    check_bytes,
    era_of,
)
from mcpio.http.sessions import (
    JSON,
    LISTENING,
    Exchange,
    HttpSession,
    Lookup,
    Response,
    SessionClosed,
    SessionOpened,
    Stream,
)
from mcpio.http.streams import Streams, TimerKind, is_running, session_headers
from mcpio.revisions import REV_2025_03_26, REVISIONS, Era, Revision
from mcpio.types.features import ServerCapabilities

if TYPE_CHECKING:
    from mcpio.auth.resource_server import ResourceServer
    from mcpio.http.sessions import SessionEffect

HttpEvent: TypeAlias = "Event | SessionOpened | SessionClosed"
"""An event of a session: an event of its connection, its start or its end."""

Connect: TypeAlias = Callable[[Hashable], ServerConnection]
"""Makes the engine for a client with that principal."""

ID_BYTES: Final = 16
"""Bytes of entropy in the id of a session (SESS-02)."""

SLACK: Final = 8192
"""Granularity of the ledger in bytes: most requests change less, so that no update is needed."""

ONE_READ: Final = 65536
"""The longest body, in bytes, that is acted on before it is counted. Adapters read about as much at once."""

LIGHT: Final = 65536
"""Weight of a session up to which a decrease need not be reported to the ledger at once."""

LATER: Final[Headers] = ((b"retry-after", b"5"),)
SOON: Final[Headers] = ((b"retry-after", b"1"),)

NO_SESSION: Final = Rejection(404, "Session not found: it is over, or was never there")
SESSION_REQUIRED: Final = Rejection(400, "Invalid request: Mcp-Session-Id is required: initialize first")
OVERLOADED: Final = Rejection(503, "Service unavailable: too much is held for clients", ErrorCode.INTERNAL_ERROR, LATER)
CLOSING: Final = Rejection(503, "Service unavailable: the server is closing", ErrorCode.INTERNAL_ERROR)
CUT_OFF: Final = Rejection(500, "Internal error: the request was cut off", ErrorCode.INTERNAL_ERROR)
NO_EVENTS: Final = Rejection(406, "Not acceptable: a subscription is a stream: Accept must list text/event-stream")
STORE_FAILED: Final = Rejection(503, "Service unavailable: sessions cannot be stored", ErrorCode.INTERNAL_ERROR, SOON)
TOO_MANY_REQUESTS: Final = Rejection(503, "Service unavailable: too many requests", ErrorCode.INTERNAL_ERROR, LATER)
TOO_MANY_SESSIONS: Final = Rejection(503, "Service unavailable: too many sessions", ErrorCode.INTERNAL_ERROR, LATER)
TOO_MANY_STREAMS: Final = Rejection(
    503, "Service unavailable: too many requests in this session", ErrorCode.INTERNAL_ERROR, LATER
)

# Short names where every request passes: a member of an enumeration costs two look-ups.
_CLOSING, _CLOSED = _ENDING = Phase.CLOSING, Phase.CLOSED
_ENGINE, _IDLE, _EXPIRY = TimerKind.ENGINE, TimerKind.IDLE, TimerKind.EXPIRY
_CALL, _CALLS = TimerKind.CALL, TimerKind.CALLS
_UNDECIDED, _ENDED = Response.UNDECIDED, Response.ENDED
_WAITING = Lookup.WAITING
_GIVEN_UP = (CloseReason.SLOW_CONSUMER, CloseReason.OVERLOADED)


class Durability(Protocol):
    """The hook for sessions that outlive the process. ``mcpio.http.durable`` has the one implementation.

    A server without one pays a comparison with ``None`` where a session begins, closes or ends, and nothing where a
    message passes.
    """

    def attach(
        self, server: HttpServer, options: HttpOptions, limits: Limits, timers: Timers[tuple[int, int, int]]
    ) -> Streams:
        """Serve ``server``; return its streams. Raises ValueError if its options let no client resume."""

    def look_up(self, exchange: Exchange) -> bool:
        """Load the session that an exchange names; return whether the exchange has to wait for it."""

    def admit_next(self) -> bool:
        """Admit the next request whose session the store has answered for; return whether there was one."""

    def begun(self, session: HttpSession) -> None:
        """Start storing a session: it has its id now."""

    def used(self, session: HttpSession) -> None:
        """Record that a session is still in use."""

    def flushed(self, session: HttpSession) -> None:
        """Hand over a session that has come to rest, while the server closes."""

    def close(self, session: HttpSession, grace: float | None) -> bool:
        """Prepare to hand a session over within ``grace`` seconds; return whether it is a stored one."""

    def forgetting(self, session: HttpSession) -> None:
        """Handle the end of a session, before its exchanges end."""

    def forgotten(self, session: HttpSession) -> None:
        """Handle the end of a session, after its exchanges have ended."""

    def closed_response(self, session: HttpSession) -> Rejection | None:
        """Return the answer to requests for a session that was handed over, ``None`` for the usual one."""

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` is due, or ``None``."""

    def handle_timeout(self, now: float) -> None:
        """Handle the deadlines up to ``now``."""

    def next_effect(self) -> SessionEffect | None:
        """Return the next effect for the store, or ``None``."""

    def store_done(self, token: int, value: Any) -> None:
        """Process the store's answer to an effect."""

    @property
    def is_stored(self) -> bool:
        """Whether the store has no effects left to perform."""


class Endpoint:
    """One path: its checks of a request's head, and the two functions that serve it."""

    __slots__ = ("admit", "checks", "serve")

    def __init__(
        self, checks: Checks, admit: Callable[[Exchange], Rejection | None], serve: Callable[[Exchange, bytes], None]
    ) -> None:
        """``admit`` may refuse a request by its head and session; ``serve`` acts on the whole request."""
        self.checks = checks
        self.admit = admit
        self.serve = serve


class HttpServer:
    """Any number of clients of one server, over HTTP. It owns the engine of each session.

    ``receive`` takes a part of a request, ``serve`` a whole one. ``next_event`` gives what happened and in
    which session; ``next_ready`` names an exchange that has something to send, and ``responses_to_send`` gives it.
    After acting on the connection of a session outside of an event of it, call ``touch``. The machine reads no clock
    and waits for nothing.
    """

    streams: Streams
    """The streams of all sessions, which also keep the time."""
    events: deque[tuple[HttpSession | Calls, HttpEvent]]
    """The events that the caller has not taken yet."""
    calls: Calls | None
    """The stateless requests that run; ``None`` before the first of them."""
    is_closing: bool
    """Whether no new sessions begin."""
    epoch: float | None
    """The Unix time at ``now == 0``, for streams that end with the tokens of their clients; ``None``: they do not."""

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
        on_advice: Callable[[str], None] = lambda _: None,
        durable: Durability | None = None,
        protected: ResourceServer | None = None,
        revisions: tuple[Revision, ...] = REVISIONS,
        param_headers: Callable[[str], tuple[ParamHeader, ...]] = lambda _: (),
        stateless: Callable[[], StatelessEngine] | None = None,
    ) -> None:
        """Create a server without sessions.

        Args:
            connect: Makes the engine for a client.
            entropy: Gives unguessable bytes.
            options: Choices of the server.
            limits: Limits on a client, memory included.
            ledger: Counts the memory held for all clients, and may be shared with other transports. By default there is
                one for this server, of ``Limits.total_bytes``.
            on_given_up: Called when the ledger had something of this server's freed: drain the events.
            on_room: Takes a session whose output may have become less, for callers that hold answers back while
                ``connection.has_room`` is false.
            on_advice: Called with a report for the operator on each refused request.
            durable: Makes sessions outlive the process: carry out what ``next_effect`` gives, too.
            protected: The authorization of its clients. Its metadata is served, and its challenges are sent; the
                adapter authenticates each request, and puts the principal into its head.
            revisions: Those that the engines of ``connect`` speak. One endpoint serves both eras.
            param_headers: Returns which arguments of a tool header fields have to repeat.
            stateless: Makes the engine of all requests without a session, when the first comes. By default it serves
                what ``connect(None)`` does.

        Raises:
            ValueError: If options name one path twice, or sessions are to be durable that cannot be resumed.

        """
        functions = {
            "connect": connect,
            "entropy": entropy,
            "on_given_up": on_given_up,
            "on_room": on_room,
            "on_advice": on_advice,
            "param_headers": param_headers,
        }
        for name, function in functions.items():
            called(name, function)
        if protected is not None:
            called("protected", getattr(protected, "document", protected))
        self._connect = connect
        self._entropy = entropy
        self._options = options = chosen("options", options, HttpOptions)
        self._limits = limits = chosen("limits", limits, Limits)
        self.epoch = None
        self._ledger = checked("ledger", ledger, Ledger) or Ledger(limits.total_bytes)
        self._on_given_up = on_given_up
        self._on_room = on_room
        self._on_advice = on_advice
        self._durable = durable
        self._revisions = revisions
        self._eras = frozenset(revision.era for revision in revisions)
        self._serves_stateless = Era.STATELESS in self._eras
        self._param_headers = param_headers
        self._stateless = None if stateless is None else called("stateless", stateless)
        self.calls = None
        self._surely_fits = limits.peer_bytes // LARGEST_FACTOR
        self._short = min(limits.message_bytes, max(SLACK, min(ONE_READ, limits.peer_bytes // 64)))

        self._sessions: dict[int, HttpSession] = {}
        # In the order of their last use: to make room, the first that is idle ends.
        self._named: dict[str, HttpSession] = {}
        # Sessions whose clients left with a request running, in the order in which they left. Some have changed since.
        self._abandoned: dict[HttpSession, None] = {}
        self._next_key = 1
        self._exchanges: dict[Hashable, Exchange] = {}
        self._ready: dict[Hashable, None] = {}
        self.events = deque()
        self.is_closing = False

        # The marks of this turn, on which ``next_event`` acts.
        self._touched: dict[HttpSession, None] = {}
        # Sessions with requests that wait until the handlers of others have acted.
        self._deferring: dict[HttpSession, None] = {}
        # Streams of this turn. Most are answered within it, and then need no timer.
        self._begun: list[tuple[HttpSession, Stream]] = []

        timers: Timers[tuple[int, int, int]] = Timers()
        self._timers = timers
        self.streams = (
            Streams(options, limits, timers) if durable is None else durable.attach(self, options, limits, timers)
        )
        self.streams.protected = protected
        self._endpoints = self._all_endpoints(protected)
        self._admissions: Admissions[Endpoint] = Admissions(self._endpoints, options)

    def _all_endpoints(self, protected: ResourceServer | None) -> dict[str, Endpoint]:
        """Return the endpoints by path. Raises ValueError if two of them have one path."""
        options, longest = self._options, self._limits.message_bytes
        methods: tuple[str, ...] = ("POST",)
        if options.sessions and Era.HANDSHAKE in self._eras:
            methods = ("POST", "GET", "DELETE") if options.listening else ("POST", "DELETE")
        mcp = Checks(MCP_CHECKS, methods, options, longest, self._serves_stateless)
        endpoints_by_path = [(options.path, Endpoint(mcp, self._admit_mcp, self._mcp))]
        if options.health is not None:
            health = Checks(HEALTH_CHECKS, ("GET", "HEAD"), options, 0)
            endpoints_by_path.append((options.health, Endpoint(health, lambda _: None, _health)))
        files = Checks(PUBLIC_CHECKS, ("GET", "HEAD"), options, 0)
        for path, page in options.pages.items():
            endpoints_by_path.append((path, Endpoint(files, lambda _: None, partial(_page, page))))
        if options.legacy is not None:
            listen, post = options.legacy
            listening = Checks(LEGACY_CHECKS, ("GET",), options, 0)
            posting = Checks(LEGACY_CHECKS, ("POST",), options, longest)
            # The address as seen from the other path: the client need not know what this is mounted under.
            serve = partial(self._legacy_listening, relpath(post, dirname(listen)))
            endpoints_by_path.append((listen, Endpoint(listening, self._admit_legacy_listening, serve)))
            endpoints_by_path.append((post, Endpoint(posting, self._admit_legacy_posting, self._legacy_posting)))
        if protected is not None and protected.resource is not None:
            # A browser's page fetches the metadata before it can know what the server allows it (AUTH-09).
            public = Checks(PUBLIC_CHECKS, ("GET", "HEAD"), attrs.evolve(options, cors=Cors()), 0)
            tell = partial(_metadata, json.dumps(protected.document()))
            paths = protected.metadata_paths(options.path)
            endpoints_by_path += [(path, Endpoint(public, lambda _: None, tell)) for path in paths]
        endpoints = dict(endpoints_by_path)
        if len(endpoints) < len(endpoints_by_path):
            raise ValueError(f"each path must be given once: {', '.join(path for path, _ in endpoints_by_path)}")
        return endpoints

    # Feed

    def receive(self, item: RequestItem, now: float) -> None:
        """Process an item of a request: its head, a piece of its body, its end. Never raises for a client's input.

        Items of no open exchange are ignored: the response was complete before the request was. Raises
        LocalProtocolError for the head of an exchange that is open already.
        """
        self._set_time(now)
        if isinstance(item, RequestHead):
            new = self._begin(item)
            new.keep_fields()
            if new.session is None:
                self._settle_alone(new)
            return
        if item.__class__ not in _ITEMS:
            raise TypeError(f"receive() must get a RequestHead, Body, End or Reset, not {item!r:.100}")
        exchange = self._exchanges.get(item.exchange)
        if exchange is None:
            return
        if isinstance(item, Body):
            self._take(exchange, item.data)
        elif isinstance(item, End):
            self._complete(exchange)
        else:
            self._lose(exchange, item.cause)

    def serve(self, head: RequestHead, body: bytes, now: float, *, is_direct: bool = True) -> Exchange:
        """Process a whole request, as if its head, body and end were received one after the other.

        Drain the events; then ``answer_of`` has the answer, if that is short and complete by then. Unless ``is_direct``
        it comes by ``responses_to_send`` in any case.
        """
        if now.__class__ is float and self.streams.now <= now < _NEVER:
            self.streams.now = now  # without a call, for each request
        else:
            self._set_time(now)
        if head.__class__ is not RequestHead or body.__class__ is not bytes:
            required("head", head, RequestHead)
            check_bytes("body", body)
        exchange = self._begin(head, is_direct=is_direct)
        if exchange.response is not _UNDECIDED:
            pass  # rejected by its head
        elif len(body) > self._short or exchange.lookup is _WAITING or head.method == "OPTIONS":
            exchange.keep_fields()
            self._take(exchange, body)
            self._complete(exchange)
        else:
            # Short enough that no limit can be in its way: it need not be counted before it is acted on.
            exchange.is_complete = True
            self._serve(exchange, body)
        if exchange.lookup is _WAITING:
            self._settle_alone(exchange)
        return exchange

    def answer_of(self, exchange: Exchange) -> Answer | None:
        """Return the answer to a request that ``serve`` took. Call it once, after the events were drained.

        ``None`` says that the rest comes by ``next_ready`` and ``responses_to_send``, as for any other request. After
        an answer the exchange is over; drain the events again.
        """
        if exchange.stream is not None and exchange.response is _UNDECIDED:
            self._answer_from(exchange, exchange.stream)
        elif exchange.answer is not None:
            self._forget_exchange(exchange)
        exchange.is_direct = False
        return exchange.answer

    def only_event(self, exchange: Exchange) -> tuple[HttpSession | Calls, HttpEvent] | None:
        """Return the request that ``serve`` took, if nothing else is to be acted on; otherwise drain.

        Act on it, then call ``answer_of``.
        """
        session, events = exchange.session, self.events
        if len(events) != 1 or self._deferring or self._durable is not None:
            return None
        if session is None:
            return None if exchange.call is None else events.popleft()
        if exchange.stream is None or self._touched or events[0][1].__class__ is not RequestReceived:
            return None
        self._touched[session] = None
        return events.popleft()

    def _answer_from(self, exchange: Exchange, stream: Stream) -> None:
        """Answer an exchange with the output of its engine, if the session then needs no further processing."""
        session: Any = exchange.session
        is_usual = exchange.session_id is not None and exchange.answers != "sse" and not stream.refused
        if not is_usual or self._durable is not None or session not in self._touched:
            return
        text = session.connection.take_answer(stream.via)
        if text is None:
            return
        exchange.respond(200, _JSON_ONLY, text)
        del session.streams[stream.number]
        if not session.streams:
            session.streams = {}  # one that held something is larger than an idle session should be
        stream.exchange = exchange.stream = None
        if exchange.answer is not None:
            # The session is as it was before the request.
            self._begun.clear()
            del self._touched[session], self._exchanges[exchange.id]
            self._leave(exchange, session)
            self._settle(session)

    # Pull

    def next_event(self) -> tuple[HttpSession | Calls, HttpEvent] | None:
        """Return what happened next, and in which session or in which of the ``calls``; ``None`` for "feed me".

        Act on the event before the next call, which looks at the connection of that session again.
        """
        events, touched = self.events, self._touched
        # In this order: an event is acted on before its session is looked at again, and every session before a request
        # that waited for room: what the others send decides whether there is room.
        while True:
            if events:
                item = events.popleft()
                if isinstance(item[0], HttpSession):
                    touched[item[0]] = None
                return item
            if touched:
                session = next(iter(touched))
                del touched[session]
                self._flush(session)
            elif self._deferring:
                session = next(iter(self._deferring))
                del self._deferring[session]
                self._flush(session)
            elif self._durable is None or not self._durable.admit_next():
                break
        if self.calls is not None and self.calls.begun:
            self.calls.wait()
        if self._begun:
            # Only now: the handlers of this turn have acted, and most of these streams have no exchange any more.
            for session, stream in self._begun:
                if stream.exchange is not None:
                    self.streams.expect_answer(session, stream)
            self._begun = []
        if self.calls is not None and self.is_closing and (end := self.calls.next_event()) is not None:
            return self.calls, end
        return None

    def next_ready(self) -> Hashable | None:
        """Return an exchange that has something to send, or ``None``. Each is named once until it has more."""
        if not self._ready:
            return None
        exchange = next(iter(self._ready))
        del self._ready[exchange]
        return exchange

    def responses_to_send(self, exchange: Hashable, max_bytes: int = 65536) -> list[ResponseItem]:
        """Return output of a response, in order, about ``max_bytes`` of it; an empty list if none is ready.

        Pull only when what was pulled before is written: the rest is counted, and while there is much of it further
        requests of its client wait. After ``End`` the exchange is over.
        """
        entry = self._exchanges.get(exchange)
        if entry is None:
            return []
        self._ready.pop(exchange, None)
        if entry.gate and entry.is_held:
            return []  # the store has not answered yet, and will name it again
        if entry.stream is not None:
            self.streams.pull(entry, max_bytes)
        elif entry.call is not None:
            entry.call.pull(max_bytes)
        items = entry.take(max_bytes)
        if entry.response is _ENDED and not entry.items:
            self._forget_exchange(entry)
        else:
            self._settle_exchange(entry)
        return items

    @property
    def has_news(self) -> bool:
        """Whether a drain may find something: an event, a mark, an exchange with output, or that all calls are over."""
        return bool(self.events or self._touched or self._ready or self._deferring or self.is_closing)

    # Time

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` is due, on the caller's clock, or ``None``. Drain the events before."""
        due = self._timers.next()
        if self._durable is not None:
            stored = self._durable.next_deadline()
            return stored if due is None else due if stored is None else min(due, stored)
        return due

    def handle_timeout(self, now: float) -> None:
        """Handle the deadlines up to ``now``. Early or repeated calls do nothing."""
        for session in tuple(self._touched):
            # It may have a new deadline, which may have come. The mark stays: ``next_event`` owes it a look.
            self._flush(session)
        self._set_time(now)
        for kind, key, number in self._timers.pop_expired(now):
            if self.calls is not None and kind == _CALL:
                self.calls.handle_timeout(key)
                continue
            if self.calls is not None and kind == _CALLS:
                self.calls.end(CLOSING)
                continue
            overdue = self._sessions.get(key)
            if overdue is None:
                continue  # an earlier deadline ended it
            if kind == _IDLE:
                self._expire(overdue)
                continue
            if kind == _EXPIRY:
                self._end_listening(overdue)
                continue
            if kind == _ENGINE:
                overdue.engine_due = None
                self._fail_overdue(overdue, now)
                overdue.connection.handle_timeout(now)
            else:
                self.streams.handle_timeout(kind, overdue, number)
            self._flush(overdue)
        if self._durable is not None:
            self._durable.handle_timeout(now)

    def _fail_overdue(self, session: HttpSession, now: float) -> None:
        """Answer the running requests of a session whose grace is over with an error, where their streams have begun.

        A stream that ended without an answer would make its client ask for it again and again, of a server that is
        gone. The other exchanges still have a status, and get it when the session ends.
        """
        connection = session.connection
        due = connection.close_deadline
        if due is None or due > now:
            return
        error = RequestError(ErrorCode.INTERNAL_ERROR, (CLOSING if self.is_closing else CUT_OFF).message)
        for request in connection.unanswered:
            stream = session.stream_of(request.via)
            if stream is not None and stream.exchange is not None and stream.exchange.response is Response.STREAMING:
                with suppress(MessageTooLarge):
                    connection.send_error(request.id, error)
        self.streams.advance(session)
        self.streams.fill(session)

    # The store, where sessions outlive the process

    def next_effect(self) -> SessionEffect | None:
        """Return the next effect for the store, or ``None``. Drain the events first: they may add effects."""
        return None if self._durable is None else self._durable.next_effect()

    def store_done(self, token: int, value: Any, now: float) -> None:
        """Process the store's answer to an effect: a value, or the exception that it raised.

        Answers come in the order of the effects; an answer to a token that was answered is ignored.
        """
        self._set_time(now)
        if self._durable is not None:
            self._durable.store_done(token, value)

    # Act

    def touch(self, session: HttpSession | Calls, now: float) -> None:
        """Mark that something was done to the connection of a session. The next drain acts on it."""
        self._set_time(now)
        if isinstance(session, HttpSession):
            self._touched[session] = None

    def interrupt(self, session: HttpSession | Calls, via: Hashable, now: float, *, retry: float | None = None) -> bool:
        """End the exchange that carries the answer to a request, so that the client comes back for it (HTTP-19).

        ``via`` is that of the request; ``retry`` is how many seconds the client is to wait. Returns whether it was
        done: a client that cannot come back is left alone.
        """
        self._set_time(now)
        stream = None if via is None or isinstance(session, Calls) else session.stream_of(via)
        return stream is not None and self.streams.interrupt(session, stream, retry)  # type: ignore[arg-type]  # it has one

    def refuse(self, session: HttpSession | Calls, via: Hashable, id: IncomingId, scopes: frozenset[str]) -> None:
        """Set status 403 and a challenge for scopes on a response, unless it has begun (AUTH-34).

        Call it before the error is sent that answers the request. A batch is refused so if all of its requests are,
        with the scopes of all: a client that sends it again repeats nothing that was done.
        """
        if isinstance(via, Call):
            via.refused = scopes
            return
        stream = None if via is None or isinstance(session, Calls) else session.stream_of(via)
        if stream is not None:
            stream.refused = {**stream.refused, id: scopes}

    def end_session(self, session: HttpSession, now: float) -> None:
        """End a session at once. Its client gets 404 from then on (SESS-05)."""
        self._set_time(now)
        self.end(session)

    def close(self, now: float, grace: float | None = 5.0) -> None:
        """Close gracefully: refuse new requests, answer running ones for at most ``grace`` seconds, end the streams.

        Raises LocalProtocolError if ``grace`` is not a number of 0 or more.
        """
        try:
            limit = seconds("grace", grace)
        except ValueError as error:
            raise LocalProtocolError(str(error)) from None
        self._set_time(now)
        self.is_closing = True
        if self.calls is not None:
            self.calls.close(limit)
        for session in self.sessions:
            if self._durable is None or not self._durable.close(session, limit):
                session.connection.close(now, grace=limit)
                self.streams.abandon(session)
            self._flush(session)

    # Look

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called, no session is left, and everything was pulled and stored."""
        is_over = not self._sessions and not self._exchanges and not self.events
        is_over = is_over and (self.calls is None or self.calls.connection.closed)
        return self.is_closing and is_over and (self._durable is None or self._durable.is_stored)

    @property
    def sessions(self) -> tuple[HttpSession, ...]:
        """The sessions that are open now, the oldest first, with those that are one request only."""
        return tuple(self._sessions.values())

    # Requests

    def _set_time(self, now: float) -> None:
        if now.__class__ is not float or not now < _NEVER:
            check_time(now)
        if now > self.streams.now:
            self.streams.now = now

    def _begin(self, head: RequestHead, *, is_direct: bool = False) -> Exchange:
        """Open an exchange for a request head, and reject it now if that needs no body."""
        if head.exchange in self._exchanges:
            raise LocalProtocolError(f"the exchange {head.exchange!r} is open already")
        admission, session_id, last_event_id, size = self._admissions.of(head)
        exchange = self._exchanges[head.exchange] = Exchange(
            head.exchange,
            admission.request,
            head.principal,
            fields=head.headers,
            headers=admission.cors,
            answers=admission.answers,
            ready=self._ready,
            session_id=session_id,
            last_event_id=last_event_id,
            size=size,
            is_direct=is_direct,
        )
        endpoint, rejection = admission.endpoint, admission.rejection
        if endpoint is not None:
            if len(self._exchanges) > self._limits.exchanges:
                rejection = TOO_MANY_REQUESTS
            elif rejection is None and admission.request.method != "OPTIONS":
                # A preflight request has no credentials, and touches no session.
                rejection = CLOSING if self.is_closing else endpoint.admit(exchange)
        if rejection is not None:
            exchange.reject(rejection)
            if rejection.advice:
                self._on_advice(rejection.advice)
        return exchange

    def admit_again(self, exchange: Exchange, rejection: Rejection | None) -> None:
        """Continue an exchange that waited for its session, unless it was answered or lost since."""
        exchange.lookup = Lookup.DONE
        if exchange.response is not _UNDECIDED or self._exchanges.get(exchange.id) is not exchange:
            return
        rejection = rejection or self._endpoints[exchange.request.path].admit(exchange)
        if rejection is not None:
            exchange.reject(rejection)
        elif exchange.is_complete:
            self._serve(exchange, exchange.take_body())

    def _take(self, exchange: Exchange, data: bytes) -> None:
        """Take a piece of a request's body. The piece that exceeds a limit rejects the request, and frees the body."""
        if exchange.response is not _UNDECIDED:
            return
        exchange.add_to_body(data)
        session = exchange.session
        if len(exchange.body) > self._limits.message_bytes:
            exchange.drop_body()
            exchange.reject(too_large(self._limits.message_bytes))
        elif len(exchange.body) <= SLACK:
            pass  # the usual case: what an exchange takes beside its body is more
        elif session is None or not self.is_open(session):
            self._settle_alone(exchange)
        elif session.weight > self._limits.peer_bytes:
            exchange.drop_body()
            exchange.reject(OVERLOADED)
        else:
            self._settle(session)

    def _complete(self, exchange: Exchange) -> None:
        if exchange.is_complete or exchange.response is not _UNDECIDED:
            return
        exchange.is_complete = True
        if exchange.lookup is _WAITING:
            return
        if exchange.request.method == "OPTIONS":
            checks = self._endpoints[exchange.request.path].checks
            exchange.respond(204, preflight_headers(checks, exchange.fields))
        else:
            self._serve(exchange, exchange.take_body())

    def _serve(self, exchange: Exchange, body: bytes) -> None:
        if len(body) > self._surely_fits and takes_too_much(body, self._limits):
            # The values of this text would take more memory than one client may.
            exchange.reject(too_large(self._limits.message_bytes))
        else:
            self._endpoints[exchange.request.path].serve(exchange, body)
        exchange.fields = ()  # nothing reads them from now on, and the response may be a stream that lasts for hours

    def _lose(self, exchange: Exchange, cause: BaseException | None) -> None:
        """Handle a client that disconnected. In a session, its requests continue (HTTP-24, SHTTP-06)."""
        session, stream = exchange.session, exchange.stream
        if exchange.call is not None:
            exchange.call.lose()
        elif session is not None:
            if session.is_legacy and stream is not None:
                # A session of 2024-11-05 ends with its channel.
                session.connection.connection_lost(cause, self.streams.now)
            self.streams.detach(session, exchange)
            self._touched[session] = None  # requests of ours that went by the exchange may have failed
        self._forget_exchange(exchange)

    def _forget_exchange(self, exchange: Exchange) -> None:
        """Release everything that an exchange holds, after its response or its loss."""
        del self._exchanges[exchange.id]
        self._ready.pop(exchange.id, None)
        if exchange.settled:
            self._ledger.settle(exchange, 0, _nothing)
        session = exchange.session
        if session is None:
            return
        self._leave(exchange, session)
        if exchange.body:
            exchange.drop_body()
        if exchange.items:
            exchange.drop_items()
        if exchange.gate and session.journal is not None:
            # The client left before the store answered: a response put in its place would never be taken.
            session.journal.gated.pop(exchange, None)
        self._output_taken(session)
        if self._durable is not None and self.is_closing:
            self._flush(session)

    def _leave(self, exchange: Exchange, session: HttpSession) -> None:
        """Detach an exchange that is over from its session."""
        del session.exchanges[exchange]
        session.exchange_bytes -= exchange.cost
        if not session.exchanges:
            session.exchanges = {}  # one that held something is larger than an idle session should be
            if session.connection.is_serving and self.is_open(session):
                self._abandoned.pop(session, None)
                self._abandoned[session] = None
        session.used_at = self.streams.now
        if session.id is not None and session.id in self._named:
            # To the end: ``make_room`` ends the first one that is idle.
            self._named[session.id] = self._named.pop(session.id)

    # The endpoint of MCP: POST, GET and DELETE

    def _admit_mcp(self, exchange: Exchange) -> Rejection | None:
        """Require that the session is open and belongs to the caller (SESS-04, SESS-05, SESS-09)."""
        id, request = exchange.session_id, exchange.request
        is_open = request.method == "POST" and request.version not in HANDSHAKE_NAMES
        if self._serves_stateless and is_open and not exchange.is_complete:
            # The body tells whether the session means anything.
            return OVERLOADED if self._ledger.is_nearly_full else None
        if id is None or not self._options.sessions:
            if request.method != "POST":
                return SESSION_REQUIRED
            return OVERLOADED if self._ledger.is_nearly_full else None
        session = self._named.get(id)
        if session is None or session.principal != exchange.principal:
            # One answer for both: a caller does not learn which ids of others exist.
            if self._durable is not None and self._durable.look_up(exchange):
                return None
            return NO_SESSION
        if session.is_legacy:
            return NO_SESSION
        # DELETE passes this limit and the next one: it is how a client frees what it holds.
        if session.journal is not None and session.is_stuck and request.method != "DELETE":
            return STORE_FAILED
        if request.version is not None:
            revision = session.connection.revision
            if revision is not None and request.version != revision.name:
                return Rejection(400, f"Invalid request: this session speaks {revision}, not {request.version}")
        if len(session.exchanges) >= self._limits.streams and request.method != "DELETE":
            return TOO_MANY_STREAMS
        self._enter(session, exchange)
        return None

    def _enter(self, session: HttpSession, exchange: Exchange) -> None:
        """Attach an exchange to a session."""
        exchange.session = session
        session.exchanges[exchange] = None
        session.exchange_bytes += exchange.cost
        session.held.bodies += len(exchange.body)
        if exchange.settled:
            # From now on it is counted with its session.
            exchange.settled = 0
            self._ledger.settle(exchange, 0, _nothing)

    def _mcp(self, exchange: Exchange, body: bytes) -> None:
        """Dispatch a request: a message (POST), a listening stream (GET), or the end of a session (DELETE)."""
        message = None
        if self._serves_stateless and exchange.request.method == "POST":
            message = jsonrpc.parse(body, self._limits.message_values)
            if era_of(message, exchange.request.version, self._eras) is Era.STATELESS:
                if not self.is_closing and not self._options.sessions:
                    self._make_room_alone()  # otherwise every session has an id, and counts by it
                refusal = CLOSING if self.is_closing else None
                (self.calls or self._begin_calls()).post(exchange, body, message, refusal)
                return
            if exchange.session is None and not self._find_session(exchange, body):
                return
        session = exchange.session
        if session is None:
            # Only a POST needs none.
            self._post_first(exchange, body, message or jsonrpc.parse(body, self._limits.message_values))
        elif session.key not in self._sessions:
            # It ended while the request came.
            exchange.reject(self.closed_response(session))
        elif exchange.request.method == "POST":
            # The check of the head counted open exchanges. A broken stream has none, but can still be resumed, and is
            # held until then: so streams are counted here.
            if len(session.streams) >= self._limits.streams:
                exchange.reject(TOO_MANY_STREAMS)
            else:
                self._post(exchange, session, body, message)
        elif exchange.request.method == "GET":
            self.streams.listen(session, exchange)
            self._expect_expiry(session, exchange)
            self._flush(session)
        else:
            exchange.respond(204, session_headers(session, exchange))
            self.end(session)

    def _begin_calls(self) -> Calls:
        """Return the calls of this server, at the first stateless request."""
        self.calls = Calls(
            _engine_of(self._connect(None)) if self._stateless is None else self._stateless(),
            options=self._options,
            limits=self._limits,
            revisions=self._revisions,
            param_headers=self._param_headers,
            streams=self.streams,
            timers=self._timers,
            events=self.events,
            settle=self._settle_alone,
            overloaded=OVERLOADED,
        )
        if self.is_closing:
            self.calls.close(None)
        return self.calls

    def _find_session(self, exchange: Exchange, body: bytes) -> bool:
        """Look up the session that a whole request names; return whether to continue with it now."""
        rejection = self._admit_mcp(exchange)
        if rejection is not None:
            exchange.reject(rejection)
        elif exchange.lookup is _WAITING:
            exchange.add_to_body(body)
        return exchange.response is _UNDECIDED and exchange.lookup is not _WAITING

    def _post_first(self, exchange: Exchange, body: bytes, message: jsonrpc.Message) -> None:
        """Handle a message without a session, which may begin one."""
        session = self._begin_session(exchange, message)
        if isinstance(session, Rejection):
            exchange.reject(session, _id_to_answer(message))
        else:
            session.declared = parsed_size(body)
            self._enter(session, exchange)
            self._post(exchange, session, body, message)

    def _begin_session(self, exchange: Exchange, message: jsonrpc.Message) -> HttpSession | Rejection:
        """Create a session for a request that names none, or return why that is impossible."""
        is_initialize = isinstance(message, jsonrpc.Request) and message.method == "initialize"
        if isinstance(message, jsonrpc.Malformed):
            return Rejection(400, message.reason, message.code)
        if self._options.sessions and not is_initialize:
            return SESSION_REQUIRED
        if self.is_closing:
            return CLOSING
        version = exchange.request.version
        # A client whose handshake we did not see and that names no revision speaks the one without the field (HTTP-32).
        revision = REV_2025_03_26 if version is None else Revision.parse(version)
        if (not is_initialize or version is not None) and revision not in self._revisions:
            return Rejection(400, f"Invalid request: revision {revision or version} is not served here")
        # Last, since it may end an idle session.
        if self._options.sessions:
            if not self.make_room():
                return TOO_MANY_SESSIONS
        else:
            self._make_room_alone()
        connection = self._connect(exchange.principal)
        connection.capabilities = _within_reach(connection.capabilities, self._options)
        if not is_initialize and revision is not None:
            connection.skip_handshake(revision)
        return self._open(connection, exchange.principal)

    def _post(self, exchange: Exchange, session: HttpSession, body: bytes, message: jsonrpc.Message | None) -> None:
        """Hand a message to the engine, and decide by its events how the response begins."""
        connection, streams = session.connection, self.streams
        stream = streams.open(session, exchange)
        connection.receive_message(body, streams.now, via=stream.via, principal=exchange.principal, parsed=message)
        event = connection.next_event()
        if isinstance(event, RequestReceived) and body.startswith(b"{") and event.context.via == stream.via:
            # The usual case: one request, not a batch of 2025-03-26, nor an earlier one that waited for room. The next
            # step depends on its answer, so the caller acts first.
            stream.requests.add(event.id)
            self.events.append((session, event))
            if exchange.answers == "sse":
                streams.begin(session, stream)
            else:
                self._begun.append((session, stream))
            return
        events = self._drain(session, event)
        # Room for a message may be room for requests that waited before: those are not of this exchange.
        events = [event for event in events if not isinstance(event, RequestReceived) or _is_request(event, stream)]
        stream.is_deferred = connection.has_deferred(stream.via)
        faults = [fault for event in events if (fault := _fault_in(event)) is not None]
        if session.id is None and self._options.sessions and connection.revision is not None:
            self.assign_id(session)  # before the response begins: its head carries the id
        # A batch with one acceptable message is answered like any other, with its errors inside.
        if faults and len(faults) == len(events):
            self._refuse(exchange, session, stream, faults[0])
        elif not is_running(session, stream) and not connection.has_output(stream.via):
            # Notifications and responses (HTTP-09).
            exchange.respond(202, session_headers(session, exchange))
            streams.close(session, stream)
        elif exchange.answers == "sse":
            streams.begin(session, stream)
        else:
            self._begun.append((session, stream))
        self._flush(session)

    def _refuse(self, exchange: Exchange, session: HttpSession, stream: Stream, fault: RemoteProtocolError) -> None:
        """Reject an invalid or unacceptable message (HTTP-10, HTTP-13)."""
        answer = session.connection.next_message(via=stream.via)
        self.streams.close(session, stream)
        if answer is not None:
            exchange.respond(400, (JSON, *session_headers(session, exchange)), answer.text)
        else:
            exchange.reject(Rejection(400, str(fault), fault.code))

    # The transport of 2024-11-05, for clients that know no other: one path to listen, one to POST to (FALL-05).
    # A session begins when its client listens and ends with that. All output goes there, answers too (FALL-01).

    def _admit_legacy_listening(self, _: Exchange) -> Rejection | None:
        return OVERLOADED if self._ledger.is_nearly_full else None

    def _legacy_listening(self, address: str, exchange: Exchange, _: bytes) -> None:
        """Create a session with an unguessable id (FALL-03)."""
        if self.is_closing:
            exchange.reject(CLOSING)
        elif not self.make_room():
            exchange.reject(TOO_MANY_SESSIONS)
        else:
            session = self._open(self._connect(exchange.principal), exchange.principal)
            session.is_legacy = True
            self._enter(session, exchange)
            self.streams.open_channel(session, exchange, f"{address}?{_KEY}={self.assign_id(session)}")
            self._expect_expiry(session, exchange)
            self._flush(session)

    def _admit_legacy_posting(self, exchange: Exchange) -> Rejection | None:
        fields = dict(field.partition("=")[::2] for field in exchange.request.query.split("&"))
        session = self._named.get(fields.get(_KEY, ""))
        if session is None or session.principal != exchange.principal or not session.is_legacy:
            return NO_SESSION
        if len(session.exchanges) >= self._limits.streams:
            return TOO_MANY_STREAMS
        self._enter(session, exchange)
        return None

    def _legacy_posting(self, exchange: Exchange, body: bytes) -> None:
        """Process a message. Its answer is sent on the client's listening stream (FALL-03)."""
        session = exchange.session
        if session is None or not self.is_open(session):
            exchange.reject(NO_SESSION)
            return
        session.connection.receive_message(body, self.streams.now, principal=exchange.principal)
        exchange.respond(202, ())
        self._flush(session)

    # Sessions: how they begin

    def _open(self, connection: ServerConnection, principal: Hashable) -> HttpSession:
        """Create a session. Until it has an id, it ends with its request."""
        session = self.adopt(connection, principal)
        self.events.append((session, SessionOpened()))
        return session

    def adopt(self, connection: ServerConnection, principal: Hashable, id: str | None = None) -> HttpSession:
        """Make a session of a connection: a new one, or the stored one under ``id``."""
        session = HttpSession(self._next_key, connection, principal, self.streams.now)
        self._next_key += 1
        connection.can_reach = partial(self.streams.can_reach, session)  # a cycle, which ``_forget`` breaks
        self._sessions[session.key] = session
        if id is not None:
            session.id = id
            self._named[id] = session
        return session

    def make_room(self) -> bool:
        """Return whether one more session with an id may start, after ending another if necessary (P6).

        First a session goes whose client left with a request running and can no longer get the answer; otherwise the
        one that is idle for longest, whether or not a request is running.
        """
        if len(self._named) < self._limits.sessions or self._end_abandoned():
            return True
        for session in self._named.values():
            if session.is_idle:
                self.end(session)
                return True
        return False

    def _make_room_alone(self) -> None:
        """End a request without a session whose client has left, if otherwise one more were too many.

        To leave is no cancellation, so it is no way round the limit either. All others have an exchange, and ``_admit``
        limits these.
        """
        calls = 0 if self.calls is None else self.calls.connection.serving
        if len(self._sessions) - len(self._named) + calls >= self._limits.exchanges:
            self._end_abandoned()

    def _end_abandoned(self) -> bool:
        """End the session whose client left first, if the answer to its request has no way out; cancel the handler.

        Returns whether one ended.
        """
        window = self._options.resume_within if self._options.resumes else 0.0
        while window is not None and self._abandoned:
            session = next(iter(self._abandoned))
            is_abandoned = session.is_idle and not session.is_at_rest
            if is_abandoned and session.used_at + window > self.streams.now:
                break
            del self._abandoned[session]
            if is_abandoned:
                self.end(session)
                return True
        return False

    def assign_id(self, session: HttpSession) -> str:
        """Give a session the id that its client must use from now on (SESS-01, SESS-02)."""
        id = session.id = self._entropy(ID_BYTES).hex()
        self._named[id] = session
        self.arm_idle(session)
        if self._durable is not None:
            self._durable.begun(session)
        return id

    def has_session(self, id: str) -> bool:
        """Whether a session of that id is open here."""
        return id in self._named

    def is_open(self, session: HttpSession) -> bool:
        """Whether a session is not over."""
        return session.key in self._sessions

    # Sessions: the consequences of their engines' events

    def _flush(self, session: HttpSession) -> None:
        """Process changes of a session's connection."""
        if session.key not in self._sessions:
            return
        connection = session.connection
        # First: the engine holds requests back while much is unwritten.
        if session.unwritten != session.held.unwritten:
            connection.set_unwritten(session.unwritten)
        if (event := connection.next_event()) is not None:
            self._drain(session, event)
        self.streams.advance(session)
        phase = connection.phase
        if phase is _CLOSING:
            # It ends as soon as everything is out.
            self.streams.drop_unheard(session)
            if not connection.pending_exchanges():
                connection.next_message()  # the engine learns by this that nothing is left
            phase = connection.phase
        # Requests of ours that cannot reach the client have just failed. A session in ``_deferring`` waits its turn: to
        # drain it here would take the next deferred request before the handler of the last one has acted.
        if connection.has_events and (phase is _CLOSED or session not in self._deferring):
            self._drain(session, connection.next_event())
            phase = connection.phase
        if phase is _CLOSED:
            self._forget(session)
        elif session.id is None and session.is_at_rest:
            connection.abort()
            self._drain(session, connection.next_event())
            self._forget(session)
        else:
            due = connection.next_deadline()
            if due != session.engine_due:
                self._arm_engine(session, due)
            self._settle(session)
            self._on_room(session)
            if self._durable is not None and self.is_closing:
                self._durable.flushed(session)

    def _drain(self, session: HttpSession, event: Event | None) -> list[Event]:
        """Queue the engine's events, beginning with ``event``; note the requests to answer. Returns the events.

        Requests that waited for room come one at a time: what the handler of one does decides whether the next may.
        """
        if event is None:
            return []
        connection = session.connection
        events: list[Event] = []
        was_cancelled = False
        while event is not None:
            events.append(event)
            self._note(session, event)
            if isinstance(event, RequestReceived):
                if connection.has_room_for_deferred:
                    self._deferring[session] = None
                    break
            elif isinstance(event, CancelReceived) or (
                isinstance(event, MessageIgnored) and event.reason is IgnoreReason.NOT_STARTED
            ):
                was_cancelled = True
            event = connection.next_event()
        if was_cancelled:
            self.streams.end_unasked(session)
        return events

    def _note(self, session: HttpSession, event: Event) -> None:
        self.events.append((session, event))
        if isinstance(event, RequestReceived):
            stream = session.stream_of(event.context.via)
            # On the one stream of a 2024-11-05 session they would add up.
            if stream is not None and stream.number != LISTENING:
                stream.requests.add(event.id)

    def _output_taken(self, session: HttpSession) -> None:
        """Record that an adapter took output of a session."""
        if session.key not in self._sessions:
            return
        connection = session.connection
        if session.unwritten != session.held.unwritten:
            connection.set_unwritten(session.unwritten)
        if session.id is None or connection.phase in _ENDING or connection.has_room_for_deferred:
            self._flush(session)
        else:
            if session.settled > LIGHT:
                self._settle(session)
            self._on_room(session)

    # The memory of sessions

    def _settle(self, session: HttpSession) -> None:
        """Update the memory held for a client in the ledger, if it has changed. This may end a session."""
        if session.unwritten != session.held.unwritten:
            session.connection.set_unwritten(session.unwritten)
        weight = session.weight
        if weight > self._limits.peer_bytes and self.streams.forget_sent(session):
            weight = session.weight
        # The ledger has ``SLACK`` more than the weight was: changes within that, either way, need no update.
        if not 0 <= session.settled - weight <= 2 * SLACK:
            self._record(session, weight)

    def _settle_exchange(self, exchange: Exchange) -> None:
        session = exchange.session
        if session is not None and session.key in self._sessions:
            self._output_taken(session)
        elif exchange.call is not None:
            exchange.call.note_taken(exchange)
        else:
            self._settle_alone(exchange)

    def _settle_alone(self, exchange: Exchange) -> None:
        """Update the memory held for an exchange without a session in the ledger."""
        weight = exchange.cost + len(exchange.body) + exchange.size
        if exchange.call is not None:
            weight += exchange.call.weight
        if not 0 <= exchange.settled - weight <= 2 * SLACK:
            exchange.settled = weight + SLACK
            self._ledger.settle(exchange, exchange.settled, self._give_up_alone)

    def _record(self, session: HttpSession, weight: int) -> None:
        session.settled = weight + SLACK
        self._ledger.settle(session, session.settled, self._give_up)

    def _give_up(self, session: HttpSession) -> None:
        """Free memory held for a client: first the dispensable part, then all of it."""
        session.settled = 0  # the ledger has forgotten it already
        if self.streams.forget_sent(session):
            self._record(session, session.weight)
        else:
            self.end(session, CloseReason.OVERLOADED)
        self._on_given_up()

    def _give_up_alone(self, exchange: Exchange) -> None:
        exchange.settled = 0
        exchange.drop_body()
        if exchange.call is not None:
            exchange.call.lose("too much is held for clients")
        exchange.cut(OVERLOADED)
        self._on_given_up()

    @property
    def is_overloaded(self) -> bool:
        """Whether too much memory is held to accept new clients."""
        return self._ledger.is_nearly_full

    # Sessions: how they end

    def end(self, session: HttpSession, reason: CloseReason = CloseReason.ABORTED) -> None:
        """End a session at once (SESS-05)."""
        session.connection.abort(reason=reason)
        self._flush(session)

    def closed_response(self, session: HttpSession) -> Rejection:
        """Return the answer to a request for a session that has ended, or to one that had none and was cut off."""
        if session.id is not None:
            return (None if self._durable is None else self._durable.closed_response(session)) or NO_SESSION
        # Not 404, which would send clients back to initialize: they may take the server for an older one (ERA-06).
        if session.connection.end is not None and session.connection.end.reason in _GIVEN_UP:
            return OVERLOADED
        return CLOSING if self.is_closing else CUT_OFF

    def _forget(self, session: HttpSession) -> None:
        """Forget a session whose connection has ended."""
        if self._durable is not None:
            self._durable.forgetting(session)
        del self._sessions[session.key]
        if session.id is not None:
            del self._named[session.id]
            self._timers.clear((_IDLE, session.key, 0))
            self._timers.clear((_EXPIRY, session.key, 0))
        if session.engine_due is not None:
            self._arm_engine(session, None)
        # Before the exchanges: each of them is counted alone from here on, and must not be counted twice.
        self._ledger.settle(session, 0, _nothing)
        self._deferring.pop(session, None)
        self._abandoned.pop(session, None)
        end = session.connection.end
        # A client that does not read is not waited for.
        delivers = end is None or end.reason not in _GIVEN_UP
        for exchange in self.streams.end(session, delivers=delivers):
            answer = self.closed_response(session)
            # A client may take 404 for proof that nothing ran, and send the request again in a new session.
            ran = answer is NO_SESSION and exchange.request.method == "POST"
            exchange.reject((CLOSING if self.is_closing else CUT_OFF) if ran else answer)
        for exchange in session.exchanges:
            if exchange.size and not delivers:
                exchange.cut(self.closed_response(session))
            self._settle_alone(exchange)
        session.connection.can_reach = None  # the application may keep the connection for a while
        self.events.append((session, SessionClosed()))
        if self._durable is not None:
            self._durable.forgotten(session)

    # Sessions: their deadlines

    def _expire(self, session: HttpSession) -> None:
        idle = self._options.session_idle
        if idle is not None and session.is_idle and session.used_at + idle <= self.streams.now:
            self.end(session)
        else:
            self.arm_idle(session)
            if self._durable is not None:
                self._durable.used(session)

    def arm_idle(self, session: HttpSession) -> None:
        """Start the timer after which an unused session ends."""
        # One deadline at a time, looked at again when it comes: a session that is used need not set it anew.
        if self._options.session_idle is not None:
            since = session.used_at if session.is_idle else self.streams.now
            self._timers.set((_IDLE, session.key, 0), since + self._options.session_idle)

    def _expect_expiry(self, session: HttpSession, exchange: Exchange) -> None:
        """End a listening stream when its token expires."""
        grant, stream = exchange.principal, exchange.stream
        if stream is None or stream.number != LISTENING:
            return
        if self.epoch is None or not isinstance(grant, Grant) or grant.expires_at is None:
            # The exchange before this one may have been that of a token that expires.
            self._timers.clear((_EXPIRY, session.key, LISTENING))
            return
        # Some tokens are accepted a little longer: such a client must not come back without a pause.
        due = max(grant.expires_at - self.epoch, self.streams.now + 1.0)
        self._timers.set((_EXPIRY, session.key, LISTENING), due)

    def _end_listening(self, session: HttpSession) -> None:
        """End the stream on which a client listens: it comes back with a new token. A 2024-11-05 session ends."""
        if session.is_legacy:
            self.end(session)
        else:
            self.streams.expire(session)
            self._flush(session)

    def _arm_engine(self, session: HttpSession, due: float | None) -> None:
        session.engine_due = due
        if due is None:
            self._timers.clear((_ENGINE, session.key, 0))
        else:
            self._timers.set((_ENGINE, session.key, 0), due)


def _engine_of(connection: ServerConnection) -> StatelessEngine:
    """Return an engine of stateless requests with the offer of a connection."""
    return StatelessEngine(
        connection.info, connection.capabilities, instructions=connection.instructions, options=connection.options
    )


def _nothing(_: Any) -> None:
    """Free nothing: a holder that is being forgotten."""


def _metadata(document: bytes, exchange: Exchange, _: bytes) -> None:
    """Answer with the protected resource metadata (RFC 9728 §3.2)."""
    # Without ``Origin`` too: a browser that opened the address gives what it cached to a page, which could not read it.
    public = ((b"access-control-allow-origin", b"*"),) if exchange.request.origin is None else ()
    exchange.respond(200, (JSON, (b"cache-control", b"max-age=3600"), *public), document)


def _health(exchange: Exchange, _: bytes) -> None:
    """Answer the health check."""
    exchange.respond(200, (JSON, _NOT_CACHED), b'{"status":"ok"}')


def _page(page: Page, exchange: Exchange, _: bytes) -> None:
    """Answer with a page."""
    exchange.respond(200, (*page.headers, (b"x-content-type-options", b"nosniff")), page.body)


def _id_to_answer(message: jsonrpc.Message) -> int | str | None:
    """Return the id for an error in answer to a message, ``None`` for none (RPC-12, RPC-13)."""
    if isinstance(message, jsonrpc.Request):
        return message.id
    return message.id if isinstance(message, jsonrpc.Malformed) and message.answerable else None


def _fault_in(event: Event) -> RemoteProtocolError | None:
    """Return why a message was not accepted, or ``None``: it was malformed, or an unexpected response."""
    if isinstance(event, ProtocolViolated):
        return event.error
    if isinstance(event, RequestFailed) and isinstance(event.error, InvalidMessage):
        return RemoteProtocolError(f"Invalid request: {event.error}", code=ErrorCode.INVALID_REQUEST)
    return None


def _is_request(event: Any, stream: Stream) -> bool:
    return isinstance(event, RequestReceived) and event.context.via == stream.via


def _within_reach(declared: ServerCapabilities, options: HttpOptions) -> ServerCapabilities:
    """Return the capabilities that the transport can keep; the engine refuses what belongs to the others.

    Without listening, nothing can be said outside a request: no change of a list, no update of a resource. Without
    sessions, a log level is forgotten with the request that sets it.
    """
    if options.sessions and options.listening:
        return declared
    return attrs.evolve(without_changes(declared), logging=declared.logging if options.sessions else None)


_JSON_ONLY: Final[Headers] = (JSON,)
_NEVER: Final = float("inf")
_ITEMS: Final = frozenset([Body, End, Reset])
_KEY: Final = "session_id"
_NOT_CACHED: Final = (b"cache-control", b"no-store")
