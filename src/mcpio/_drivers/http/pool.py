"""The connections of a client to one origin: each carries one exchange at a time, and is reused."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Awaitable, Callable
from typing import Final

import attrs
import h11

from mcpio._drivers import report
from mcpio._drivers.event_loop import ByteStream, EventLoop, reason_of
from mcpio._drivers.http.proxy import Proxy, open_tunnel
from mcpio.engine.limits import seconds
from mcpio.errors import ConnectFailed, ConnectionLost, LocalProtocolError, McpError, RemoteProtocolError
from mcpio.http.location import Location
from mcpio.http.model import Body, End, RequestHead, Reset, ResponseHead, ResponseItem

__all__ = ["HttpClientTimeouts", "HttpPool"]

KEEP: Final = 60.0
"""Seconds after which an unused connection is closed."""

RECEIVE_SIZE: Final = 65536
"""Bytes requested by one read."""


@attrs.frozen(kw_only=True)
class HttpClientTimeouts:
    """Time limits for a server, in seconds; ``None`` for no limit. Timeouts of requests apply as well."""

    connect: float | None = attrs.field(default=10.0, converter=seconds)
    """For connecting, TLS included."""
    head: float | None = attrs.field(default=None, converter=seconds)
    """From a request to the head of its response. A server that answers with JSON sends it with the answer."""
    idle: float | None = attrs.field(default=None, converter=seconds)
    """From one piece of a response to the next, for servers that keep quiet streams alive with comments."""


class ClientExchange:
    """One exchange: its request, and the scope that cancels it."""

    __slots__ = ("body", "head", "id", "may_read", "scope")

    def __init__(self, head: RequestHead, loop: EventLoop) -> None:
        self.id = head.exchange
        self.head = head
        self.body = b""
        self.may_read = loop.signal()
        self.scope = loop.scope()


class HttpPool:
    """Carries exchanges over as many connections as they need at the same time."""

    def __init__(
        self,
        location: Location,
        *,
        loop: EventLoop,
        start: Callable[[Callable[[], Awaitable[None]]], None],
        receive: Callable[[ResponseItem], None],
        on_input: Callable[[], None],
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
            receive: Takes an item of a response.
            on_input: Called when everything that one read brought was received. When a response has ended, its
                connection is already free for the caller's next request.
            wants_read: Says whether to read on in an exchange; ``resume`` has it asked again.
            ssl_context: Settings for HTTPS.
            timeouts: How long the server may take.
            proxy: The proxy between here and the server.

        """
        self.location = location
        self.timeouts = timeouts
        self.receive = receive
        self.on_input = on_input
        self.loop = loop
        self._unopenable: tuple[type[Exception], ...] = (*loop.broken, h11.ProtocolError, UnicodeError)
        self._wants_read = wants_read
        self._paused: set[ClientExchange] = set()
        self._start = start
        self._proxy = proxy
        if ssl_context is None and location.scheme == "https":
            ssl_context = ssl.create_default_context()
        self._ssl_context = ssl_context if location.scheme == "https" else None
        self._exchanges: dict[object, ClientExchange] = {}
        self._unused: list[_PooledConnection] = []

    def add(self, head: RequestHead) -> None:
        """Start an exchange. ``run`` sends it when it is complete."""
        self._exchanges[head.exchange] = ClientExchange(head, self.loop)

    def add_body(self, body: Body) -> None:
        """Set the body of an exchange."""
        self._exchanges[body.exchange].body = body.data

    def run(self, id: object) -> None:
        """Send a complete exchange, on an unused connection or a new one."""
        exchange = self._exchanges[id]
        if self._unused:
            self._unused.pop().take(exchange)
        else:
            connection = _PooledConnection(self)
            connection.take(exchange)
            self._start(connection.run)

    def cancel(self, id: object) -> None:
        """Break off an exchange."""
        exchange = self._exchanges.pop(id, None)
        if exchange is not None:
            exchange.scope.cancel()

    def resume(self) -> None:
        """Ask again whether to read on in exchanges that had to wait."""
        for exchange in self._paused:
            exchange.may_read.set()

    # For the connections

    async def wait_for_room(self, exchange: ClientExchange) -> None:
        """Wait until more of a response may be read."""
        while not self._wants_read(exchange.id):
            self._paused.add(exchange)
            try:
                await exchange.may_read.wait()
            finally:
                self._paused.discard(exchange)

    def finish(self, exchange: ClientExchange, connection: _PooledConnection) -> None:
        """Drop an exchange that has ended, and let others use its connection."""
        self._exchanges.pop(exchange.id, None)
        self._unused.append(connection)

    def remove(self, connection: _PooledConnection) -> None:
        """Forget an unused connection."""
        self._unused.remove(connection)

    async def open(self) -> ByteStream:
        """Return a new connection. Raises ConnectFailed with the reason as its cause."""
        place, limit = self.location.place, self.timeouts.connect
        with self.loop.scope(limit):
            try:
                return await self._open()
            except self._unopenable as error:
                raise ConnectFailed(f"cannot connect to {place}: {reason_of(error)}") from error
        message = f"cannot connect to {place} within {limit:g} s"
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
        headers = [(b"host", self.location.authority.encode()), *head.headers]
        target = head.target
        if self._proxy is not None and self._ssl_context is None:
            target = self.location.at(target).url
            headers += self._proxy.headers
        parts = [http.send(h11.Request(method=head.method, target=target, headers=headers))]
        if exchange.body:
            parts.append(http.send(h11.Data(data=exchange.body)))
        parts.append(http.send(h11.EndOfMessage()))
        return b"".join(part or b"" for part in parts)


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
        # Of the exchange under way: whether all of the request was sent, and whether anything came back.
        self._is_sent = self._has_response = False

    def take(self, exchange: ClientExchange) -> None:
        """Assign the next exchange."""
        self._next = exchange
        self._has_next.set()

    async def run(self) -> None:
        """Process exchanges until none comes for a while, or until cancelled."""
        try:
            while (exchange := self._next) is not None:
                self._next = None
                last = None
                with exchange.scope:
                    last = await self._carry(exchange)
                if last is None:
                    await self._close()
                # Free the connection first, so that requests caused by the end of this response can use it.
                self._pool.finish(exchange, self)
                if last is not None:
                    self._pool.receive(last)
                    self._pool.on_input()
                with self._loop.scope(KEEP):
                    while self._next is None:
                        await self._has_next.wait()
            self._pool.remove(self)
        finally:
            async with self._loop.last_moment(None):
                await self._close()

    async def _carry(self, exchange: ClientExchange) -> ResponseItem:
        """Process one exchange. Returns its last item, which the machine has not received yet."""
        error: McpError
        try:
            if self._stream is not None and self._loop.is_readable(self._stream):
                await self._close()
            if self._stream is None or not await self._try_reused(self._stream, exchange):
                await self._close()
                self._stream = await self._pool.open()
                self._http = h11.Connection(h11.CLIENT)
                await self._exchange(self._stream, exchange)
            await self._release()
            return End(exchange.id)
        except McpError as fault:
            error = fault
        except h11.LocalProtocolError as fault:
            error = LocalProtocolError(f"cannot be encoded as an HTTP request: {fault}")
        except self._loop.broken as fault:
            error = ConnectionLost(f"the connection to {self._pool.location.place} broke: {reason_of(fault)}")
            error.__cause__ = fault
        except Exception as fault:
            # Unexpected, such as a fault of a proxy or a library. It ends this exchange and no other.
            report("an HTTP exchange failed", fault)
            error = ConnectionLost(f"the exchange with {self._pool.location.place} failed: {reason_of(fault)}")
            error.__cause__ = fault
        await self._close()
        return Reset(exchange.id, error)

    async def _try_reused(self, stream: ByteStream, exchange: ClientExchange) -> bool:
        """Try a connection that was used before; return whether it worked, or a new one is worth a try.

        The server may have closed it at the same moment. A request that was not sent completely, or that may be
        repeated, is sent again if nothing came back.
        """
        try:
            await self._exchange(stream, exchange)
        except self._cut_off:
            if self._has_response or (self._is_sent and not exchange.head.may_repeat):
                raise
            return False
        return True

    async def _exchange(self, stream: ByteStream, exchange: ClientExchange) -> None:
        self._is_sent = self._has_response = False
        try:
            await stream.send_all(self._pool.encode(self._http, exchange))
        except self._loop.broken:
            # A server that rejects a request before its end closes the connection, and may have sent the reason.
            with contextlib.suppress(*self._cut_off):
                await self._read(stream, exchange)
                await self._close()
                return
            raise
        self._is_sent = True
        await self._read(stream, exchange)

    async def _read(self, stream: ByteStream, exchange: ClientExchange) -> None:
        pool, http, receive = self._pool, self._http, self._pool.receive
        # Some servers send the head of a quiet stream with its first comment.
        limit = pool.timeouts.idle if exchange.head.method == "GET" else pool.timeouts.head
        while True:
            event = _next_event(http)
            if event is h11.NEED_DATA:
                pool.on_input()
                await pool.wait_for_room(exchange)
                data = await self._receive_some(stream, limit)
                self._has_response |= bool(data)
                http.receive_data(data)
            elif isinstance(event, h11.Response):
                limit = pool.timeouts.idle
                receive(ResponseHead(exchange.id, event.status_code, tuple(event.headers)))
            elif isinstance(event, h11.Data):
                receive(Body(exchange.id, bytes(event.data)))
            elif isinstance(event, h11.EndOfMessage):
                return
            elif not isinstance(event, h11.InformationalResponse):
                raise ConnectionLost("the server closed the connection")

    async def _receive_some(self, stream: ByteStream, limit: float | None) -> bytes:
        """Return the next bytes, ``b""`` at the end. Raises ConnectionLost after ``limit`` seconds."""
        if limit is None:
            return bytes(await stream.receive_some(RECEIVE_SIZE))
        with self._loop.scope(limit):
            return bytes(await stream.receive_some(RECEIVE_SIZE))
        raise ConnectionLost(f"the server sent nothing for {limit:g} s")

    async def _release(self) -> None:
        """Keep the connection for the next exchange if both sides agree."""
        is_over = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        # Bytes after the response cannot belong to the next one.
        if is_over and not self._http.trailing_data[0]:
            self._http.start_next_cycle()
        else:
            await self._close()

    async def _close(self) -> None:
        if self._stream is not None:
            stream, self._stream = self._stream, None
            await self._loop.abort(stream)


def _next_event(http: h11.Connection) -> object:
    """Return the next event. Raises ConnectionLost at an early end, RemoteProtocolError for malformed HTTP."""
    try:
        return http.next_event()
    except h11.RemoteProtocolError as error:
        _, has_ended = http.trailing_data
        if has_ended:
            raise ConnectionLost("the server closed the connection") from error
        raise RemoteProtocolError(f"the server's response is malformed HTTP: {error}") from error
