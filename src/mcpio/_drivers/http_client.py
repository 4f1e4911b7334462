# ruff: noqa: SLF001 - sessions have methods for drivers that programs have no use for
"""The actor of an HTTP client, and its pool of connections."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, TypedDict

import attrs
import h11

from mcpio._checks import check_options, checked, chosen
from mcpio._drivers import report
from mcpio._drivers.actor import EVENTS_PER_TURN, WORK_PER_TURN, name_stubborn_handlers
from mcpio._drivers.event_loop import ByteStream, Deadlines, EventLoop, reason_of
from mcpio._drivers.fetch import Proxy, find_proxy, open_tunnel
from mcpio._drivers.login import LoginDriver, LoginOptions, LoginSetup, clock_of, declare_extension, with_key
from mcpio._drivers.setup import ClientSetupOptions, FaultLog, SessionSetup, prepare_client
from mcpio.app.client import Client, ClientOptions
from mcpio.app.reconnection import SessionReconnector
from mcpio.app.runtime import Runtime, checked_callback, checked_grace
from mcpio.auth.effects import ApiKey
from mcpio.engine.limits import is_time, without_limit
from mcpio.errors import ConnectFailed, ConnectionLost, LocalProtocolError, McpError, RemoteProtocolError
from mcpio.http.client import (
    HttpClient,
    HttpClientOptions,
    ListeningEnded,
    ListeningResumed,
    Location,
    MessageRefused,
    SessionLost,
    TransportEvent,
)
from mcpio.http.model import Body, End, RequestHead, RequestItem, Reset, ResponseHead, ResponseItem

# ----------------------------------------------------------------------------------------------------------------- pool
# The connections of a client to one origin: each carries one exchange at a time, and is reused.

KEEP: Final = 60.0
"""Seconds after which an unused connection is closed."""

RECEIVE_SIZE: Final = 65536
"""Bytes requested by one read."""


@attrs.frozen(kw_only=True)
class HttpClientTimeouts:
    """Time limits for a server, in seconds; ``None`` for no limit. Timeouts of requests apply as well."""

    connect: float | None = attrs.field(default=10.0, converter=without_limit, validator=is_time)
    """For connecting, TLS included."""
    head: float | None = attrs.field(default=None, converter=without_limit, validator=is_time)
    """From a request to the head of its response. A server that answers with JSON sends it with the answer."""
    idle: float | None = attrs.field(default=None, converter=without_limit, validator=is_time)
    """From one piece of a response to the next, for servers that keep quiet streams alive with comments."""


class ClientExchange:
    """One exchange: its request, and the scope that cancels it."""

    __slots__ = ("body", "head", "id", "scope")

    def __init__(self, head: RequestHead, body: bytes, loop: EventLoop) -> None:
        self.id = head.exchange
        self.head = head
        self.body = body
        self.scope = loop.scope()


class HttpPool:
    """Carries exchanges over as many connections as they need at the same time."""

    def __init__(
        self,
        location: Location,
        *,
        loop: EventLoop,
        start: Callable[[Coroutine[Any, Any, None]], object],
        fail: Callable[[BaseException], None],
        receive: Callable[[Sequence[ResponseItem]], None],
        wants_read: Callable[[object], bool],
        ssl_context: ssl.SSLContext | None,
        timeouts: HttpClientTimeouts,
        proxy: Proxy | None = None,
    ) -> None:
        """Connect to ``location``.

        Args:
            location: The server.
            loop: The running event loop.
            start: Starts the task of a connection.
            fail: Takes an exception that ends such a task.
            receive: Takes the items of a response that one read brought, if any. When the response has ended, its
                connection is already free for the caller's next request.
            wants_read: Says whether to read on in an exchange; ``resume`` has it asked again.
            ssl_context: Settings for HTTPS.
            timeouts: How long the server may take.
            proxy: The proxy between here and the server.

        """
        self.location = location
        self.timeouts = timeouts
        self.receive = receive
        self.loop = loop
        self._unopenable: tuple[type[Exception], ...] = (*loop.broken, h11.ProtocolError, UnicodeError)
        self.wants_read = wants_read
        self.paused: set[Any] = set()
        self._authority = location.authority.encode()
        self._start = start
        self.fail = fail
        self._proxy = proxy
        if ssl_context is None and location.scheme == "https":
            ssl_context = ssl.create_default_context()
        self._ssl_context = ssl_context if location.scheme == "https" else None
        self._exchanges: dict[object, ClientExchange] = {}
        self._unused: list[_PooledConnection] = []

    def send(self, head: RequestHead, body: bytes) -> None:
        """Send a request, on an unused connection or a new one."""
        exchange = self._exchanges[head.exchange] = ClientExchange(head, body, self.loop)
        if self._unused:
            # The one used last, so that connections that a burst opened stay unused until they are closed.
            self._unused.pop().take(exchange)
        else:
            connection = _PooledConnection(self)
            connection.take(exchange)
            self._start(connection.run())

    def cancel(self, id: object) -> None:
        """Break off an exchange."""
        exchange = self._exchanges.pop(id, None)
        if exchange is not None:
            exchange.scope.cancel()

    def resume(self) -> None:
        """Ask again whether to read on in exchanges that had to wait."""
        for may_read in self.paused:
            may_read.set()

    # For the connections

    async def wait_for_room(self, exchange: ClientExchange) -> None:
        """Wait until more of a response may be read."""
        may_read = self.loop.signal()
        self.paused.add(may_read)
        try:
            while not self.wants_read(exchange.id):
                await may_read.wait()
        finally:
            self.paused.discard(may_read)

    def finish(self, exchange: ClientExchange, connection: _PooledConnection) -> None:
        """Drop an exchange that has ended, and let others use its connection."""
        self._exchanges.pop(exchange.id, None)
        self._unused.append(connection)

    def remove(self, connection: _PooledConnection) -> None:
        """Forget an unused connection."""
        self._unused.remove(connection)

    async def open(self) -> ByteStream:
        """Return a new connection. Raises ConnectFailed with the reason as its cause."""
        origin, limit = self.location.place, self.timeouts.connect
        with self.loop.scope(limit):
            try:
                return await self._open()
            except self._unopenable as error:
                raise ConnectFailed(f"cannot connect to {origin}: {reason_of(error)}") from error
        # Only an expired scope leads here: it swallows its own cancellation.
        message = f"cannot connect to {origin} within {limit:g} s"
        raise ConnectFailed(message) from TimeoutError(message)

    async def _open(self) -> ByteStream:
        loop, location, proxy = self.loop, self.location, self._proxy
        to = location if proxy is None else proxy
        stream = await loop.open_stream(to.host, to.port, location.unix)
        try:
            if self._ssl_context is None:
                return stream
            if proxy is not None:
                await open_tunnel(stream, location, proxy)
            return await loop.start_tls(stream, self._ssl_context, location.host)
        except BaseException:
            await loop.abort(stream)
            raise

    def encode(self, http: h11.Connection, exchange: ClientExchange) -> bytes:
        """Return a request as bytes. h11 rejects a header value that would be read as several fields (HTTP-35)."""
        head = exchange.head
        headers = [(b"host", self._authority), *head.headers]
        target = head.target
        if self._proxy is not None and self._ssl_context is None:
            target = self.location.at(target).url
            headers += self._proxy.headers
        text = http.send(h11.Request(method=head.method, target=target, headers=headers)) or b""
        if exchange.body:
            text += http.send(h11.Data(data=exchange.body)) or b""
        return text + (http.send(h11.EndOfMessage()) or b"")


class _PooledConnection:
    """One connection at a time, and the exchanges that it carries one after the other."""

    def __init__(self, pool: HttpPool) -> None:
        self._pool = pool
        self._loop = pool.loop
        self._cut_off: tuple[type[Exception], ...] = (*pool.loop.broken, ConnectionLost)
        self._stream: ByteStream | None = None
        self._http = h11.Connection(h11.CLIENT)
        self._next: ClientExchange | None = None
        self._has_next = pool.loop.signal()
        # Of the exchange under way: whether anything came back, and what the machine has not received of it.
        self._has_response = False
        self._items: list[ResponseItem] = []

    def take(self, exchange: ClientExchange) -> None:
        """Assign the next exchange."""
        self._next = exchange
        self._has_next.set()

    async def run(self) -> None:
        """Process exchanges until none comes for a while, or until cancelled."""
        try:
            while (exchange := self._next) is not None:
                self._next = None
                is_over = False
                with exchange.scope:
                    try:
                        await self._exchange(exchange)
                        self._items.append(End(exchange.id))
                    except Exception as fault:
                        await self._close()
                        self._items.append(Reset(exchange.id, self._failure(fault)))
                    is_over = True
                if not is_over:
                    # Cancelled: the rest of the response may still come, where that of the next exchange is expected.
                    await self._close()
                # Free the connection first, so that requests caused by the end of this response can use it.
                self._pool.finish(exchange, self)
                items, self._items = self._items, []
                if is_over:
                    self._pool.receive(items)
                with self._loop.scope(KEEP):
                    while self._next is None:
                        await self._has_next.wait()
            self._pool.remove(self)
        except self._loop.runtime.cancellation:
            raise
        except BaseException as error:
            self._pool.fail(error)
        finally:
            async with self._loop.last_moment(None):
                await self._close()

    def _failure(self, fault: Exception) -> McpError:
        """Return the error for the exception that ended an exchange."""
        if isinstance(fault, McpError):
            return fault
        if isinstance(fault, h11.LocalProtocolError):
            return LocalProtocolError(f"cannot be encoded as an HTTP request: {fault}")
        if isinstance(fault, self._loop.broken):
            error = ConnectionLost(f"the connection to {self._pool.location.place} broke: {reason_of(fault)}")
        else:
            # Unexpected, such as a fault of a proxy or a library. It ends this exchange and no other.
            report("an HTTP exchange failed", fault)
            error = ConnectionLost(f"the exchange with {self._pool.location.place} failed: {reason_of(fault)}")
        error.__cause__ = fault
        return error

    async def _exchange(self, exchange: ClientExchange) -> None:
        """Send a request and read the response, on a new connection if that in use had been closed.

        The server may have closed a connection that was used before at the same moment. A request that was not sent
        completely, or that may be repeated, is sent again if nothing came back. Leaves the last items in ``_items``.
        """
        if self._stream is not None and self._loop.is_readable(self._stream):
            # Between two responses there is nothing to read but the end, or bytes that belong to no request.
            await self._close()
        while True:
            is_reused = self._stream is not None
            if self._stream is None:
                self._stream = await self._pool.open()
                self._http = h11.Connection(h11.CLIENT)
            stream = self._stream
            is_sent = self._has_response = False
            try:
                try:
                    await stream.send_all(self._pool.encode(self._http, exchange))
                    is_sent = True
                except self._loop.broken:
                    # A server that rejects a request before its end closes the connection, and may have sent why.
                    with contextlib.suppress(*self._cut_off):
                        await self._read(stream, exchange)
                        await self._close()
                        return
                    raise
                await self._read(stream, exchange)
            except self._cut_off:
                if not is_reused or self._has_response or (is_sent and not exchange.head.may_repeat):
                    raise
                await self._close()
            else:
                http = self._http
                # Bytes after the response cannot belong to the next one.
                if http.our_state is h11.DONE and http.their_state is h11.DONE and not http.trailing_data[0]:
                    http.start_next_cycle()
                else:
                    await self._close()
                return

    async def _read(self, stream: ByteStream, exchange: ClientExchange) -> None:
        """Read a response; its last items stay in ``_items``. Raises ConnectionLost if it breaks off."""
        pool, http = self._pool, self._http
        # Some servers send the head of a quiet stream with its first comment.
        limit = pool.timeouts.idle if exchange.head.method == "GET" else pool.timeouts.head
        has_begun = False
        while True:
            if not pool.wants_read(exchange.id):
                await pool.wait_for_room(exchange)
            data = await (stream.receive_some(RECEIVE_SIZE) if limit is None else self._receive_within(stream, limit))
            self._has_response |= bool(data)
            http.receive_data(bytes(data))
            while True:
                try:
                    event = http.next_event()
                except h11.RemoteProtocolError as error:
                    if not data:
                        where = " in the middle of its response" if has_begun else ""
                        raise ConnectionLost(f"the server closed the connection{where}") from error
                    raise RemoteProtocolError(f"the server's response is malformed HTTP: {error}") from error
                if event is h11.NEED_DATA:
                    break
                if isinstance(event, h11.Data):
                    self._items.append(Body(exchange.id, bytes(event.data)))
                elif isinstance(event, h11.EndOfMessage):
                    return
                elif isinstance(event, h11.Response):
                    has_begun, limit = True, pool.timeouts.idle
                    self._items.append(ResponseHead(exchange.id, event.status_code, tuple(event.headers)))
                elif not isinstance(event, h11.InformationalResponse):
                    raise ConnectionLost("the server closed the connection")
            items, self._items = self._items, []
            pool.receive(items)

    async def _receive_within(self, stream: ByteStream, limit: float) -> bytes:
        """Return the next bytes, ``b""`` at the end. Raises ConnectionLost after ``limit`` seconds."""
        with self._loop.scope(limit):
            return bytes(await stream.receive_some(RECEIVE_SIZE))
        raise ConnectionLost(f"the server sent nothing for {limit:g} s")

    async def _close(self) -> None:
        if self._stream is not None:
            stream, self._stream = self._stream, None
            await self._loop.abort(stream)


# ----------------------------------------------------------------------------------------------------------- http actor
# The HTTP client that the drivers of all event loops share: its options, and the actor that runs it.

_TRANSPORT_EVENTS: Final = (SessionLost, MessageRefused, ListeningEnded, ListeningResumed)

LAST_WORDS: Final = 0.5
"""Seconds for telling the server that a cancelled block ends the session."""


class TransportOptions(TypedDict, total=False):
    """Options of the transport."""

    http: HttpClientOptions | None
    """Header fields, listening, resumption of broken streams, and reopening of lost sessions."""
    on_session_lost: Callable[[], None] | None
    """Called when the server has forgotten the session. Pending calls fail with ConnectionLost; unless ``http`` says
    otherwise, the client then opens another session. A plain function, not a coroutine function."""
    ssl_context: ssl.SSLContext | None
    """Settings for HTTPS; ``None`` trusts the authorities of the system."""
    timeouts: HttpClientTimeouts | None
    """How long the server may take."""
    proxy: str | None
    """The URL of an HTTP proxy."""
    trust_env: bool
    """Whether to use the proxy of the environment without ``proxy``: ``HTTP_PROXY``, ``HTTPS_PROXY``, ``ALL_PROXY``
    and ``NO_PROXY``, in lower case too."""


class HttpConnectOptions(TransportOptions, LoginOptions, ClientOptions, ClientSetupOptions, total=False):
    """The keyword arguments of ``open_http`` and ``connect_http``: of the transport, authorization, and the client."""


@attrs.frozen
class HttpSetup:
    """The checked arguments of ``connect_http``."""

    session: SessionSetup
    location: Location
    proxy: Proxy | None
    transport: TransportOptions
    of_client: Any
    """``ClientOptions``."""
    session_id: str | None
    """The id of a saved session, ``None`` for a new one."""
    login: LoginSetup | None
    """How the client is authorized; ``None`` without authorization."""

    @classmethod
    def check(cls, url: str, options: Any, now: float) -> HttpSetup:
        """Return the setup of a client. Raises ValueError for a malformed URL or option, and TypeError for its kind.

        Raises LocalProtocolError for a snapshot that cannot be continued.
        """
        rest: dict[str, Any] = dict(options)
        check_options(rest, HttpConnectOptions.__annotations__)
        transport: Any = {name: rest.pop(name) for name in TransportOptions.__annotations__ if name in rest}
        of_login: Any = {name: rest.pop(name) for name in LoginOptions.__annotations__ if name in rest}
        of_client: Any = {name: rest.pop(name) for name in ClientOptions.__annotations__ if name in rest}
        checked_callback("on_session_lost", transport.get("on_session_lost"), "()")
        location = Location.parse(url)
        proxy = find_proxy(location, transport.get("proxy"), trust_env=transport.get("trust_env", False))
        if isinstance(of_login.get("auth"), ApiKey):
            transport["http"] = with_key(chosen("http", transport.get("http"), HttpClientOptions), of_login["auth"])
        login = LoginSetup.check(
            url,
            of_login,
            ssl_context=transport.get("ssl_context"),
            proxy=transport.get("proxy"),
            trust_env=transport.get("trust_env", False),
        )
        declare_extension(of_client, of_login.get("auth"))
        session = prepare_client(of_client, now, **rest)
        return cls(session, location, proxy, transport, of_client, _session_id(session), login)

    def client(self, actor: HttpActor) -> Client:
        """Create the client of an actor."""
        connection: Any = self.session.connection
        client = Client(connection, actor, **self.of_client)
        actor.attach(client, SessionReconnector(client, self.transport.get("on_session_lost")))
        self.session.resume(client)
        return client


def _session_id(setup: SessionSetup) -> str | None:
    """Return the id of a saved session, ``None`` for a new one. Raises LocalProtocolError for a malformed id."""
    id = None if setup.saved is None else setup.saved.transport.get("session_id")
    if id is not None and not (isinstance(id, str) and id and all("!" <= character <= "~" for character in id)):
        raise LocalProtocolError(f"malformed snapshot: no session id: {id!r:.60}")
    return id


async def carry_over_http(loop: EventLoop, setup: HttpSetup, *, started: Callable[[Client], object]) -> None:
    """Run one client until it has ended. ``started`` is called with it before it runs."""
    # The tasks that carry messages outlive a cancellation of the block, to end the session on the server.
    async with loop.group() as handlers, AsyncExitStack() as steps, loop.lasting() as carriers:
        deadlines = loop.timekeeper(carriers)
        steps.callback(deadlines.stop)
        actor = HttpActor(setup, loop, deadlines, handlers, carriers)
        client = setup.client(actor)
        steps.push_async_callback(name_stubborn_handlers, loop, client)
        steps.callback(actor.over.set)
        started(client)
        await actor.run()


class HttpActor:
    """The ``Driver`` of one client: it runs until its connection has ended and the server was notified.

    ``now`` is the loop's, and ``wake`` only marks that a turn is due. A turn acts on everything that is marked: ``run``
    takes one for a mark, and the task of a connection takes one for its input, which saves a turn of the loop. Turns
    are never nested.
    """

    def __init__(
        self, setup: HttpSetup, loop: EventLoop, deadlines: Deadlines, runtime: Runtime, carriers: Runtime
    ) -> None:
        """``runtime`` runs the handlers, and ``carriers`` the tasks that carry messages."""
        self.runtime = runtime
        self.now = loop.now
        self._work = loop.signal()
        self.wake: Callable[[], Any] = self._work.set
        self._carriers = carriers
        connection: Any = setup.session.connection
        transport = setup.transport
        login = setup.login
        authorizer = None if login is None else login.authorizer(runtime, loop.now(), interaction=login.interaction)
        self._machine = HttpClient(
            connection,
            setup.location,
            options=chosen("http", transport.get("http"), HttpClientOptions),
            session_id=setup.session_id,
            authorizer=authorizer,
        )
        self._login: LoginDriver | None = None
        self._now = loop.now
        if authorizer is not None and login is not None:
            self._now = clock_of(authorizer, loop, runtime)
            self._login = LoginDriver(authorizer, login, loop, runtime, self._start, self.wake)
        self._pool = HttpPool(
            setup.location,
            loop=loop,
            start=carriers.spawn,
            fail=self._fail,
            receive=self._receive,
            wants_read=self._wants_read,
            ssl_context=checked("ssl_context", transport.get("ssl_context"), ssl.SSLContext),
            timeouts=chosen("timeouts", transport.get("timeouts"), HttpClientTimeouts),
            proxy=setup.proxy,
        )
        self._loop = loop
        self._faults = FaultLog(loop.now)
        self._deadlines = deadlines
        self._left = EVENTS_PER_TURN
        self._has_more = self._is_over = False
        self._failure: BaseException | None = None
        self._scope = loop.scope()
        self.over = loop.event()

    def attach(self, client: Client, reconnector: SessionReconnector) -> None:
        """Set the client that handles events, and what replaces its lost sessions."""
        self._client = client
        self._machine.param_headers = client._param_headers
        self._reconnector = reconnector
        self._client._reconnector = reconnector

    # The driver of the session

    @property
    def has_session(self) -> bool:
        """Whether the server keeps a session: see ``HttpClient.has_session``."""
        return self._machine.has_session

    def save_transport(self) -> dict[str, Any]:
        """Return the transport's part of a snapshot. Raises as ``HttpClient.save`` does."""
        return {"session_id": self._machine.save()}

    def report(self, message: str, error: BaseException | None) -> None:
        """Write to the log named ``mcpio``."""
        report(message, error)

    def handle_timeout(self) -> None:
        """Expire deadlines. The timekeeper calls this."""
        self._machine.handle_timeout(self._now())
        self.wake()

    def close(self, grace: float) -> None:
        """Close gracefully, at the loop's next turn. Raises LocalProtocolError for an invalid ``grace``."""
        limit = checked_grace(grace)
        self.runtime.call_soon(lambda: self._close(limit))

    async def wait_closed(self) -> None:
        """Wait until the connection has ended, the server was notified, and no task is left."""
        await self.over.wait()

    async def run(self) -> None:
        """Run until the connection has ended. A cancelled block ends the session at once, and tells the server.

        Raises an exception of a callback that ends the program, such as SystemExit.
        """
        try:
            with self._scope:
                await self._take_turns()
        finally:
            await self._end()
        if self._failure is not None:
            raise self._failure

    async def _take_turns(self) -> None:
        self._turn()
        # A mark that comes during a turn is kept by the signal, and costs one more turn that may find nothing.
        while not self._is_over:
            await self._work.wait()
            self._turn()

    async def _end(self) -> None:
        """Release everything, in bounded time."""
        async with AsyncExitStack() as steps:  # the last is taken first
            if self._login is not None:
                steps.push_async_callback(self._login.aclose)
            steps.callback(self._finish_events)
            steps.callback(self._machine.connection.abort)
            async with self._loop.last_moment(LAST_WORDS):
                # The callers of requests are cancelled in this turn of the loop: their cancellations go out first.
                await self.runtime.sleep(0)  # to the next turn
                self._close(0.0)
                await self._take_turns()

    # Inside

    def _start(self, task: Callable[[], Awaitable[None]]) -> None:
        """Start a task that outlives the cancellation of ``run``."""
        self._carriers.spawn(self._guard(task))

    async def _guard(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task. What it raises, but for a cancellation, ends the session."""
        try:
            await task()
        except self.runtime.cancellation:
            raise
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Record the exception of a task. It ends the session, and ``run`` raises it."""
        self._failure = self._failure or error
        self._scope.cancel()

    def _receive(self, items: Sequence[ResponseItem]) -> None:
        self._machine.receive_all(items, self._now())
        self._turn()

    def _wants_read(self, exchange: object) -> bool:
        # What was read is acted on before more is: one read may hold thousands of events.
        return not self._has_more and self._machine.wants_read(exchange)

    def _close(self, grace: float | None) -> None:
        self._machine.connection.close(self._now(), grace=grace)
        self.wake()

    def _turn(self) -> None:
        """Handle events and give all requests to the pool, until nothing is left; then arm the deadline.

        A turn handles only so many events: ``_has_more`` says that some are left, and another turn is due.
        """
        began, self._left = self._now(), EVENTS_PER_TURN
        self._handle_events(began)
        while self._left:
            if items := self._machine.requests_to_send(began):
                self._send(items)
            if self._login is not None:
                self._authorize(self._login)
            # To find that nothing is left to send may end the connection, which is an event.
            if not (self._machine.has_events and self._handle_events(began)):
                break
        self._has_more = not self._left
        if self._has_more:
            self.wake()
        if self._pool.paused:
            self._pool.resume()
        self._client._settle()
        self._deadlines.arm(self, self._machine.next_deadline())
        self._is_over = self._machine.closed
        if self._is_over:
            self.wake()  # run may wait while the task of a connection takes the last turn

    def _authorize(self, login: LoginDriver) -> None:
        while (effect := self._machine.next_effect()) is not None:
            login.perform(effect)
        if login.tell():
            # Private results are those of one user, and tools may be those of some scopes (CACHE-05).
            self._client._miss_changes()

    def _send(self, items: list[RequestItem]) -> None:
        head, body = None, b""
        for item in items:
            if isinstance(item, RequestHead):
                head, body = item, b""
            elif isinstance(item, Body):
                body = item.data
            elif isinstance(item, Reset):
                self._pool.cancel(item.exchange)
            elif head is not None:
                self._pool.send(head, body)

    def _finish_events(self) -> None:
        """Take turns until the last event was handled, because no task is left to take them."""
        self._turn()
        while self._has_more:
            self._turn()

    def _handle_events(self, began: float) -> bool:
        """Handle the events that the turn still may; return whether there were any."""
        has_acted = False
        while self._left and (event := self._machine.next_event()) is not None:
            has_acted = True
            self._left -= 1
            if not self._left & 7 and self._loop.now() - began > WORK_PER_TURN:
                self._left = 0
            try:
                if isinstance(event, _TRANSPORT_EVENTS):
                    self._handle(event)
                else:
                    self._client._handle(event)
            except Exception as error:
                report("a session failed", error)
                self._machine.connection.abort(error)
        return has_acted

    def _handle(self, event: TransportEvent) -> None:
        if isinstance(event, SessionLost):
            self._faults.report("the server does not know the session any more", None)
            self._reconnector.begin(event.again_in)
        elif isinstance(event, MessageRefused):
            self._faults.report("the server did not take a message", event.error)
        elif isinstance(event, ListeningEnded):
            self._faults.report("messages outside of requests are no longer received", event.error)
            self._client._note_stream(event.error if event.is_lost else None)
        else:
            self._client._note_stream(None)
