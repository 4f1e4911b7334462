"""The connections of a client to one origin: each carries one exchange at a time, and is reused."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Awaitable, Callable
from typing import Final

import attrs
import h11
import trio

from mcpio._drivers import report
from mcpio.engine.limits import seconds
from mcpio.errors import ConnectFailed, ConnectionLost, LocalProtocolError, McpError, RemoteProtocolError
from mcpio.http.location import Location
from mcpio.http.model import Body, End, RequestHead, Reset, ResponseHead, ResponseItem
from mcpio.trio._fd_streams import RECEIVE_SIZE
from mcpio.trio._http.proxy import Proxy, open_tunnel
from mcpio.trio._net.listening import TCP_KEEP_ALIVE, keep_tcp_alive
from mcpio.trio._nurseries import reason_of
from mcpio.trio._timekeeper import Signal
from mcpio.trio._transport import BROKEN

__all__ = ["HttpClientTimeouts", "HttpPool"]

KEEP: Final = 60.0
"""Seconds after which an unused connection is closed."""

SAFE: Final = ("GET", "DELETE")
"""The methods that may be repeated when it is unknown whether the request arrived."""


@attrs.frozen(kw_only=True)
class HttpClientTimeouts:
    """How long a server may take, in seconds; ``None`` for ever. Timeouts of requests hold beside these."""

    connect: float | None = attrs.field(default=10.0, converter=seconds)
    """For connecting, TLS included."""
    head: float | None = attrs.field(default=None, converter=seconds)
    """From a request to the head of its response. A server that answers with JSON sends it with the answer."""
    idle: float | None = attrs.field(default=None, converter=seconds)
    """From one piece of a response to the next, for servers that keep quiet streams alive with comments."""


class ClientExchange:
    """One exchange: its request, and the scope that cancels it."""

    __slots__ = ("body", "head", "id", "scope")

    def __init__(self, head: RequestHead) -> None:
        self.id = head.exchange
        self.head = head
        self.body = b""
        self.scope = trio.CancelScope()


class HttpPool:
    """Carries exchanges over as many connections as they need at the same time."""

    def __init__(
        self,
        location: Location,
        *,
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
            start: Starts the task of a connection.
            receive: Takes an item of a response.
            on_input: Called when everything that one read brought was received. By the end of a response, its
                connection is free for what the caller sends next.
            wants_read: Says whether to read on in an exchange; ``resume`` has it asked again.
            ssl_context: Settings for HTTPS.
            timeouts: How long the server may take.
            proxy: The proxy between here and the server.

        """
        self.location = location
        self.timeouts = timeouts
        self.receive = receive
        self.on_input = on_input
        self._wants_read = wants_read
        self._paused = trio.lowlevel.ParkingLot()
        self._start = start
        self._proxy = proxy
        if ssl_context is None and location.scheme == "https":
            ssl_context = ssl.create_default_context()
        self._ssl_context = ssl_context if location.scheme == "https" else None
        self._exchanges: dict[object, ClientExchange] = {}
        self._unused: list[_PooledConnection] = []

    def add(self, head: RequestHead) -> None:
        """Begin an exchange. ``run`` carries it when it is complete."""
        self._exchanges[head.exchange] = ClientExchange(head)

    def add_body(self, body: Body) -> None:
        """Set the body of an exchange."""
        self._exchanges[body.exchange].body = body.data

    def run(self, id: object) -> None:
        """Carry an exchange that is complete, on an unused connection or a new one."""
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
        if self._paused:
            self._paused.unpark_all()

    # For the connections

    async def wait_for_room(self, exchange: ClientExchange) -> None:
        """Wait until there is room for more of a response."""
        while not self._wants_read(exchange.id):
            await self._paused.park()

    def finish(self, exchange: ClientExchange, connection: _PooledConnection) -> None:
        """Forget an exchange that is over, and let others use its connection."""
        self._exchanges.pop(exchange.id, None)
        self._unused.append(connection)

    def remove(self, connection: _PooledConnection) -> None:
        """Forget an unused connection."""
        self._unused.remove(connection)

    async def open(self) -> trio.abc.Stream:
        """Return a new connection. Raises ConnectFailed with the reason as its cause."""
        place, limit = self.location.place, self.timeouts.connect
        with trio.CancelScope() as scope:
            if limit is not None:
                scope.deadline = trio.current_time() + limit
            try:
                return await self._open()
            except (*BROKEN, h11.ProtocolError, UnicodeError) as error:
                raise ConnectFailed(f"cannot connect to {place}: {reason_of(error)}") from error
        message = f"cannot connect to {place} within {limit:g} s"
        raise ConnectFailed(message) from TimeoutError(message)

    async def _open(self) -> trio.abc.Stream:
        to = self.location if self._proxy is None else self._proxy
        stream: trio.abc.Stream
        if self.location.unix is not None:
            stream = await trio.open_unix_socket(self.location.unix)
        else:
            stream = await trio.open_tcp_stream(to.host, to.port)
        try:
            # Streams may be quiet for hours: without this, a server that vanished would never be noticed.
            keep_tcp_alive(stream, TCP_KEEP_ALIVE)
            if self._ssl_context is None:
                return stream
            if self._proxy is not None:
                await open_tunnel(stream, self.location, self._proxy)
            secured = trio.SSLStream(
                stream, self._ssl_context, server_hostname=self.location.host, https_compatible=True
            )
            await secured.do_handshake()
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return secured

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
        self._stream: trio.abc.Stream | None = None
        self._http = h11.Connection(h11.CLIENT)
        self._next: ClientExchange | None = None
        self._has_next = Signal()
        # Of the exchange under way: whether all of the request was sent, and whether anything came back.
        self._is_sent = self._has_response = False

    def take(self, exchange: ClientExchange) -> None:
        """Carry an exchange next."""
        self._next = exchange
        self._has_next.set()

    async def run(self) -> None:
        """Carry exchanges until there are none for a while, or until cancelled."""
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
                with trio.move_on_after(KEEP):
                    while self._next is None:
                        await self._has_next.wait()
            self._pool.remove(self)
        finally:
            with trio.CancelScope(shield=True):
                await self._close()

    async def _carry(self, exchange: ClientExchange) -> ResponseItem:
        """Carry one exchange. Returns its last item, which the machine has not received."""
        error: McpError
        try:
            if self._stream is not None and _is_stale(self._stream):
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
        except BROKEN as fault:
            error = ConnectionLost(f"the connection to {self._pool.location.place} broke: {reason_of(fault)}")
            error.__cause__ = fault
        except Exception as fault:
            # Unexpected, such as a fault of a proxy or a library. It ends this exchange and no other.
            report("an HTTP exchange failed", fault)
            error = ConnectionLost(f"the exchange with {self._pool.location.place} failed: {reason_of(fault)}")
            error.__cause__ = fault
        await self._close()
        return Reset(exchange.id, error)

    async def _try_reused(self, stream: trio.abc.Stream, exchange: ClientExchange) -> bool:
        """Try a connection that was used before; return whether it worked, or a new one is worth a try.

        The server may have closed it at the same moment. A request that was not sent completely, or that may be
        repeated, is sent again if nothing came back.
        """
        try:
            await self._exchange(stream, exchange)
        except (*BROKEN, ConnectionLost):
            if self._has_response or (self._is_sent and exchange.head.method not in SAFE):
                raise
            return False
        return True

    async def _exchange(self, stream: trio.abc.Stream, exchange: ClientExchange) -> None:
        self._is_sent = self._has_response = False
        try:
            await stream.send_all(self._pool.encode(self._http, exchange))
        except BROKEN:
            # A server that rejects a request before its end closes the connection, and may have sent the reason.
            with contextlib.suppress(*BROKEN, ConnectionLost):
                await self._read(stream, exchange)
                await self._close()
                return
            raise
        self._is_sent = True
        await self._read(stream, exchange)

    async def _read(self, stream: trio.abc.Stream, exchange: ClientExchange) -> None:
        pool, http, receive = self._pool, self._http, self._pool.receive
        # Some servers send the head of a quiet stream with its first comment.
        limit = pool.timeouts.idle if exchange.head.method == "GET" else pool.timeouts.head
        while True:
            event = _next_event(http)
            if event is h11.NEED_DATA:
                pool.on_input()
                await pool.wait_for_room(exchange)
                data = await _receive_some(stream, limit)
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
            await trio.aclose_forcefully(stream)


def _next_event(http: h11.Connection) -> object:
    """Return the next event. Raises ConnectionLost at an early end, RemoteProtocolError for malformed HTTP."""
    try:
        return http.next_event()
    except h11.RemoteProtocolError as error:
        _, has_ended = http.trailing_data
        if has_ended:
            raise ConnectionLost("the server closed the connection") from error
        raise RemoteProtocolError(f"the server's response is malformed HTTP: {error}") from error


async def _receive_some(stream: trio.abc.Stream, limit: float | None) -> bytes:
    """Return the next bytes, ``b""`` at the end. Raises ConnectionLost after ``limit`` seconds."""
    if limit is None:
        return bytes(await stream.receive_some(RECEIVE_SIZE))
    with trio.move_on_after(limit):
        return bytes(await stream.receive_some(RECEIVE_SIZE))
    raise ConnectionLost(f"the server sent nothing for {limit:g} s")


def _is_stale(stream: trio.abc.Stream) -> bool:
    """Whether an idle connection is readable: the only thing that comes unasked is its end."""
    inner = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
    return isinstance(inner, trio.SocketStream) and inner.socket.is_readable()
