"""The connections of a client to one origin: each carries one exchange at a time, and is used again."""

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
from mcpio.trio._http.proxy import Proxy, open_tunnel
from mcpio.trio._net.listening import BROKEN, TCP_KEEP_ALIVE, keep_tcp_alive
from mcpio.trio._nurseries import reason_of
from mcpio.trio._stdio.fd_streams import RECEIVE_SIZE
from mcpio.trio._timekeeper import Signal

__all__ = ["HttpClientTimeouts", "HttpPool"]

KEEP: Final = 60.0
"""Seconds that a connection is kept without a use for it."""

SAFE: Final = ("GET", "DELETE")
"""The methods that may be repeated where nobody knows whether they arrived."""


@attrs.frozen(kw_only=True)
class HttpClientTimeouts:
    """How long a server may take, in seconds; ``None`` for ever. The timeouts of requests hold beside these."""

    connect: float | None = attrs.field(default=10.0, converter=seconds)
    """Until a connection stands, with TLS."""
    head: float | None = attrs.field(default=None, converter=seconds)
    """From a request to the head of its response. A server that answers with JSON sends it with the answer."""
    idle: float | None = attrs.field(default=None, converter=seconds)
    """From one piece of a response to the next, for servers that keep quiet streams alive by comments."""


class ClientExchange:
    """One exchange: what to send, and whether it was given up."""

    __slots__ = ("body", "exchange", "head", "scope")

    def __init__(self, head: RequestHead) -> None:
        self.exchange = head.exchange
        self.head = head
        self.body = b""
        self.scope = trio.CancelScope()


class HttpPool:
    """Carries exchanges over as many connections as they need at once."""

    def __init__(
        self,
        location: Location,
        *,
        start: Callable[[Callable[[], Awaitable[None]]], None],
        receive: Callable[[ResponseItem], None],
        wake: Callable[[], None],
        wants_read: Callable[[object], bool],
        ssl_context: ssl.SSLContext | None,
        timeouts: HttpClientTimeouts,
        proxy: Proxy | None = None,
    ) -> None:
        """``start`` starts the task of a connection. ``receive`` takes what comes back, and ``wake`` acts on it.

        ``wants_read`` says whether to read on in an exchange; ``resume`` has it asked again. None of them waits. What
        came at once is acted on at once: where it was a whole response, its connection is free by then.
        """
        self.location = location
        self.timeouts = timeouts
        self.receive = receive
        self.wake = wake
        self._wants_read = wants_read
        self._paused = trio.lowlevel.ParkingLot()
        self._start = start
        self._proxy = proxy
        if ssl_context is None and location.scheme == "https":
            ssl_context = ssl.create_default_context()
        self._ssl_context = ssl_context if location.scheme == "https" else None
        self._jobs: dict[object, ClientExchange] = {}
        self._spare: list[_Worker] = []

    def add(self, head: RequestHead) -> None:
        """Begin an exchange; ``run`` starts it when it is whole."""
        self._jobs[head.exchange] = ClientExchange(head)

    def add_body(self, body: Body) -> None:
        """Give an exchange its body."""
        self._jobs[body.exchange].body = body.data

    def run(self, exchange: object) -> None:
        """Carry an exchange that is whole."""
        job = self._jobs[exchange]
        if self._spare:
            self._spare.pop().take(job)
        else:
            worker = _Worker(self)
            worker.take(job)
            self._start(worker.run)

    def cut(self, exchange: object) -> None:
        """Break an exchange off."""
        job = self._jobs.pop(exchange, None)
        if job is not None:
            job.scope.cancel()

    def resume(self) -> None:
        """Look again whether to read on where that had to wait."""
        if self._paused:
            self._paused.unpark_all()

    # For the workers

    async def room(self, job: ClientExchange) -> None:
        """Wait until there is room for more of a response."""
        while not self._wants_read(job.exchange):
            await self._paused.park()

    def finish(self, job: ClientExchange, worker: _Worker) -> None:
        """Forget an exchange that is over, and remember that there is a connection to spare."""
        self._jobs.pop(job.exchange, None)
        self._spare.append(worker)

    def dismiss(self, worker: _Worker) -> None:
        """Forget a connection that nobody needs."""
        self._spare.remove(worker)

    async def open(self) -> trio.abc.Stream:
        """Return a new connection. Raises ``ConnectFailed``; the cause says why."""
        place, limit = self.location.place, self.timeouts.connect
        with trio.CancelScope() as scope:
            if limit is not None:
                scope.deadline = trio.current_time() + limit
            try:
                return await self._open()
            except (*BROKEN, h11.ProtocolError, UnicodeError) as error:
                raise ConnectFailed(f"cannot connect to {place}: {reason_of(error)}") from error
        said = f"cannot connect to {place}: nothing came of it within {limit:g} s"
        raise ConnectFailed(said) from TimeoutError(said)

    async def _open(self) -> trio.abc.Stream:
        to = self.location if self._proxy is None else self._proxy
        stream: trio.abc.Stream
        if self.location.unix is not None:
            stream = await trio.open_unix_socket(self.location.unix)
        else:
            stream = await trio.open_tcp_stream(to.host, to.port)
        try:
            # On streams where nobody says anything for hours.
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

    def request(self, http: h11.Connection, job: ClientExchange) -> bytes:
        """Return a request as bytes. h11 refuses what would be more than one field (HTTP-35)."""
        head = job.head
        headers = [(b"host", self.location.authority.encode()), *head.headers]
        target = head.target
        if self._proxy is not None and self._ssl_context is None:
            target = self.location.at(target).url
            headers += self._proxy.headers
        parts = [http.send(h11.Request(method=head.method, target=target, headers=headers))]
        if job.body:
            parts.append(http.send(h11.Data(data=job.body)))
        parts.append(http.send(h11.EndOfMessage()))
        return b"".join(part or b"" for part in parts)


class _Worker:
    """One connection at a time, and the exchanges that it carries one after the other."""

    def __init__(self, pool: HttpPool) -> None:
        self._pool = pool
        self._stream: trio.abc.Stream | None = None
        self._http = h11.Connection(h11.CLIENT)
        self._has_response = self._is_sent = False
        self._job: ClientExchange | None = None
        self._wake = Signal()

    def take(self, job: ClientExchange) -> None:
        """Carry this next."""
        self._job = job
        self._wake.set()

    async def run(self) -> None:
        """Carry exchanges until there are none for a while, or until cancelled."""
        try:
            while (job := self._job) is not None:
                self._job = None
                last = None
                with job.scope:
                    last = await self._carry(job)
                if last is None:
                    await self._drop()
                # First, so that what follows from the last of it may go by this connection.
                self._pool.finish(job, self)
                if last is not None:
                    self._pool.receive(last)
                    self._pool.wake()
                with trio.move_on_after(KEEP):
                    while self._job is None:
                        await self._wake.wait()
            self._pool.dismiss(self)
        finally:
            with trio.CancelScope(shield=True):
                await self._drop()

    async def _carry(self, job: ClientExchange) -> ResponseItem:
        """Carry one exchange. Returns the last of it, which the machine was not told yet."""
        error: McpError
        try:
            if self._stream is not None and _is_stale(self._stream):
                await self._drop()
            if self._stream is None or not await self._succeeds_with(self._stream, job):
                await self._drop()
                self._stream = await self._pool.open()
                self._http = h11.Connection(h11.CLIENT)
                await self._exchange(self._stream, job)
            await self._release()
            return End(job.exchange)
        except McpError as fault:
            error = fault
        except h11.LocalProtocolError as fault:
            error = LocalProtocolError(f"no HTTP request can say this: {fault}")
        except BROKEN as fault:
            error = ConnectionLost(f"the connection to {self._pool.location.place} broke: {reason_of(fault)}")
            error.__cause__ = fault
        except Exception as fault:
            # Nobody expects it, such as a proxy's or a library's fault. It costs this exchange, and no other.
            report("an HTTP exchange failed", fault)
            error = ConnectionLost(f"the exchange with {self._pool.location.place} failed: {reason_of(fault)}")
            error.__cause__ = fault
        await self._drop()
        return Reset(job.exchange, error)

    async def _succeeds_with(self, stream: trio.abc.Stream, job: ClientExchange) -> bool:
        """Try a connection that was used before. Its end may be on its way, and then another is worth a try.

        That is so where the whole request was not sent, or it may be repeated, and nothing came back.
        """
        try:
            await self._exchange(stream, job)
        except (*BROKEN, ConnectionLost):
            if self._has_response or (self._is_sent and job.head.method not in SAFE):
                raise
            return False
        return True

    async def _exchange(self, stream: trio.abc.Stream, job: ClientExchange) -> None:
        self._has_response = self._is_sent = False
        try:
            await stream.send_all(self._pool.request(self._http, job))
        except BROKEN:
            # A server that does not want all of it closes, and may have said why.
            with contextlib.suppress(*BROKEN, ConnectionLost):
                await self._read(stream, job)
                await self._drop()
                return
            raise
        self._is_sent = True
        await self._read(stream, job)

    async def _read(self, stream: trio.abc.Stream, job: ClientExchange) -> None:
        pool, http, receive = self._pool, self._http, self._pool.receive
        # Some send the head of a stream that nothing was said on with the first comment.
        limit = pool.timeouts.idle if job.head.method == "GET" else pool.timeouts.head
        while True:
            event = _next_event(http)
            if event is h11.NEED_DATA:
                pool.wake()
                await pool.room(job)
                data = await _some(stream, limit)
                self._has_response |= bool(data)
                http.receive_data(data)
            elif isinstance(event, h11.Response):
                limit = pool.timeouts.idle
                receive(ResponseHead(job.exchange, event.status_code, tuple(event.headers)))
            elif isinstance(event, h11.Data):
                receive(Body(job.exchange, bytes(event.data)))
            elif isinstance(event, h11.EndOfMessage):
                return
            elif not isinstance(event, h11.InformationalResponse):
                raise ConnectionLost("the server closed the connection")

    async def _release(self) -> None:
        """Keep the connection for the next exchange, where both sides want that."""
        is_over = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        # What came beyond the response is none to the next request.
        if is_over and not self._http.trailing_data[0]:
            self._http.start_next_cycle()
        else:
            await self._drop()

    async def _drop(self) -> None:
        if self._stream is not None:
            stream, self._stream = self._stream, None
            await trio.aclose_forcefully(stream)


def _next_event(http: h11.Connection) -> object:
    """Return what came next. ``ConnectionLost`` for an early end, ``RemoteProtocolError`` for what is no HTTP."""
    try:
        return http.next_event()
    except h11.RemoteProtocolError as error:
        _, has_ended = http.trailing_data
        if has_ended:
            raise ConnectionLost("the server closed the connection") from error
        raise RemoteProtocolError(f"what the server answers is no HTTP: {error}") from error


async def _some(stream: trio.abc.Stream, limit: float | None) -> bytes:
    """Return the next bytes, none at the end. ``ConnectionLost`` when they take too long."""
    if limit is None:
        return bytes(await stream.receive_some(RECEIVE_SIZE))
    with trio.move_on_after(limit):
        return bytes(await stream.receive_some(RECEIVE_SIZE))
    raise ConnectionLost(f"nothing came from the server for {limit:g} s")


def _is_stale(stream: trio.abc.Stream) -> bool:
    """Whether something came on an idle connection: what comes unasked is its end."""
    inner = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
    return isinstance(inner, trio.SocketStream) and inner.socket.is_readable()
