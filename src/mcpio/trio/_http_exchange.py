"""The connections of a client to one origin: each carries one exchange at a time, and is used again."""

from __future__ import annotations

import select
import ssl
from collections import deque
from collections.abc import Callable
from typing import Final

import attrs
import h11
import trio

from mcpio.engine.limits import seconds
from mcpio.http.location import Location
from mcpio.http.model import Body, End, RequestHead, Reset, ResponseHead, ResponseItem
from mcpio.trio._timekeeper import Signal

__all__ = ["HttpClientTimeouts", "HttpPool"]

RECEIVE: Final = 65536
"""How many bytes to ask for at once."""

BROKEN: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError, h11.ProtocolError, ssl.SSLError)


@attrs.frozen(kw_only=True)
class HttpClientTimeouts:
    """How long a server may take, in seconds; ``None`` for ever. The timeouts of requests hold beside these."""

    connect: float | None = attrs.field(default=10.0, converter=seconds)
    """Until a connection stands, with TLS."""
    head: float | None = attrs.field(default=90.0, converter=seconds)
    """From a request to the head of its response."""
    idle: float | None = attrs.field(default=300.0, converter=seconds)
    """From one piece of a response to the next. Servers keep quiet streams alive by comments."""


class Job:
    """One exchange: what to send, and whether it was given up."""

    __slots__ = ("body", "exchange", "head", "scope")

    def __init__(self, head: RequestHead) -> None:
        self.exchange = head.exchange
        self.head = head
        self.body = b""
        self.scope = trio.CancelScope()


class HttpPool:
    """Carries exchanges over as many connections as they need at once, up to ``most``; further ones wait."""

    def __init__(
        self,
        location: Location,
        nursery: trio.Nursery,
        *,
        receive: Callable[[ResponseItem], None],
        ssl_context: ssl.SSLContext | None,
        timeouts: HttpClientTimeouts,
        most: int,
    ) -> None:
        """``receive`` takes what comes back. It does not wait, and is called between checkpoints."""
        self._location = location
        self._nursery = nursery
        self._receive = receive
        self._timeouts = timeouts
        self._most = most
        if ssl_context is None and location.scheme == "https":
            ssl_context = ssl.create_default_context()
        self._ssl_context = ssl_context
        self._jobs: dict[object, Job] = {}
        self._waiting: deque[Job] = deque()
        self._idle: list[_Worker] = []
        self._workers = 0

    def add(self, head: RequestHead) -> None:
        """Begin an exchange; ``run`` starts it when it is whole."""
        self._jobs[head.exchange] = Job(head)

    def add_body(self, body: Body) -> None:
        """Give an exchange its body."""
        self._jobs[body.exchange].body = body.data

    def run(self, exchange: object) -> None:
        """Carry an exchange that is whole."""
        job = self._jobs[exchange]
        if self._idle:
            self._idle.pop().take(job)
        elif self._workers < self._most:
            self._workers += 1
            worker = _Worker(self, self._receive)
            worker.take(job)
            self._nursery.start_soon(worker.run)
        else:
            self._waiting.append(job)

    def cut(self, exchange: object) -> None:
        """Break an exchange off."""
        job = self._jobs.pop(exchange, None)
        if job is not None:
            job.scope.cancel()
            if job in self._waiting:
                self._waiting.remove(job)

    # For the workers

    def finish(self, job: Job) -> None:
        """Forget an exchange that is over."""
        self._jobs.pop(job.exchange, None)

    def next_job(self, worker: _Worker) -> Job | None:
        """Return what waits for a connection, or remember that there is one to spare."""
        if self._waiting:
            return self._waiting.popleft()
        self._idle.append(worker)
        return None

    async def open(self) -> trio.abc.Stream:
        """Return a new connection. Raises ``OSError``, or ``trio.BrokenResourceError`` for TLS that fails."""
        location, limit = self._location, self._timeouts.connect
        with trio.CancelScope() as scope:
            if limit is not None:
                scope.deadline = trio.current_time() + limit
            stream: trio.abc.Stream = await trio.open_tcp_stream(location.host, location.port)
            if self._ssl_context is None:
                return stream
            secured = trio.SSLStream(stream, self._ssl_context, server_hostname=location.host, https_compatible=True)
            try:
                await secured.do_handshake()
            except BaseException:
                await trio.aclose_forcefully(stream)
                raise
            return secured
        raise OSError(f"no connection to {location.authority} within {limit} s")

    @property
    def host(self) -> bytes:
        """What the ``Host`` field says."""
        return self._location.authority.encode()

    @property
    def timeouts(self) -> HttpClientTimeouts:
        """How long a server may take."""
        return self._timeouts


class _Worker:
    """One connection at a time, and the exchanges that it carries one after the other."""

    def __init__(self, pool: HttpPool, receive: Callable[[ResponseItem], None]) -> None:
        self._pool = pool
        self._receive = receive
        self._stream: trio.abc.Stream | None = None
        self._http = h11.Connection(h11.CLIENT)
        self._job: Job | None = None
        self._wake = Signal()

    def take(self, job: Job) -> None:
        """Carry this next."""
        self._job = job
        self._wake.set()

    async def run(self) -> None:
        """Carry exchanges until cancelled. Never raises."""
        try:
            while True:
                while self._job is None:
                    await self._wake.wait()
                job, self._job = self._job, None
                with job.scope:
                    await self._carry(job)
                if job.scope.cancelled_caught:
                    await self._drop()
                self._pool.finish(job)
                self._job = self._pool.next_job(self)
        finally:
            with trio.CancelScope(shield=True):
                await self._drop()

    async def _carry(self, job: Job) -> None:
        try:
            if self._stream is None or not _is_usable(self._stream):
                await self._drop()
                self._stream = await self._pool.open()
                self._http = h11.Connection(h11.CLIENT)
            await self._stream.send_all(self._request(job))
            await self._read(self._stream, job)
        except BROKEN as error:
            await self._drop()
            self._receive(Reset(job.exchange, error))

    def _request(self, job: Job) -> bytes:
        head, send = job.head, self._http.send
        headers = [(b"host", self._pool.host), *head.headers]
        parts = [send(h11.Request(method=head.method, target=head.target, headers=headers))]
        if job.body:
            parts.append(send(h11.Data(data=job.body)))
        parts.append(send(h11.EndOfMessage()))
        return b"".join(part or b"" for part in parts)

    async def _read(self, stream: trio.abc.Stream, job: Job) -> None:
        http, limit = self._http, self._pool.timeouts.head
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                await self._feed(stream, limit)
            elif isinstance(event, h11.Response):
                limit = self._pool.timeouts.idle
                self._receive(ResponseHead(job.exchange, event.status_code, tuple(event.headers)))
            elif isinstance(event, h11.Data):
                self._receive(Body(job.exchange, bytes(event.data)))
            elif isinstance(event, h11.EndOfMessage):
                await self._release()
                self._receive(End(job.exchange))
                return
            elif not isinstance(event, h11.InformationalResponse):
                raise trio.BrokenResourceError("the server closed the connection")

    async def _feed(self, stream: trio.abc.Stream, limit: float | None) -> None:
        with trio.CancelScope() as scope:
            if limit is not None:
                scope.deadline = trio.current_time() + limit
            data = await stream.receive_some(RECEIVE)
            self._http.receive_data(bytes(data))
            return
        raise OSError(f"nothing came from the server for {limit} s")

    async def _release(self) -> None:
        """Keep the connection for the next exchange, where both sides want that."""
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        else:
            await self._drop()

    async def _drop(self) -> None:
        if self._stream is not None:
            stream, self._stream = self._stream, None
            await trio.aclose_forcefully(stream)


def _is_usable(stream: trio.abc.Stream) -> bool:
    """Whether nothing came on an idle connection: what comes unasked is its end."""
    inner = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
    if not isinstance(inner, trio.SocketStream):
        return True
    poll = select.poll()
    poll.register(inner.socket.fileno(), select.POLLIN)
    return not poll.poll(0)
