"""One HTTP/1.1 connection of a server: h11 on one side, the HTTP machine on the other, and nothing decided here."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate
from time import time
from typing import Any, Final, TypeAlias

import attrs
import h11
import trio

from mcpio.app.hosting import HttpHost
from mcpio.engine.limits import seconds
from mcpio.http.model import Body, End, RequestHead, Reset, ResponseHead, ResponseItem
from mcpio.trio._timekeeper import Signal

__all__ = ["HttpConnection", "HttpTimeouts"]

RECEIVE: Final = 65536
"""How many bytes to ask for at once."""

LINGER: Final = 1.0
"""Seconds to go on reading from a client that was answered before its request was complete, so that it can read the
answer: closing while bytes come in would throw the answer away."""

BROKEN: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)

Identify: TypeAlias = Callable[[h11.Request], Any]
"""Returns the principal of a request."""


@attrs.frozen(kw_only=True)
class HttpTimeouts:
    """How long a client may take, in seconds; ``None`` for ever."""

    head: float | None = attrs.field(default=10.0, converter=seconds)
    """From the first byte of a request, or the first of a connection, to the end of its head."""
    body: float | None = attrs.field(default=30.0, converter=seconds)
    """From one piece of a body to the next."""
    idle: float | None = attrs.field(default=75.0, converter=seconds)
    """From one request of a connection to the next."""
    write: float | None = attrs.field(default=60.0, converter=seconds)
    """From one piece of a response to the next: a client that reads nothing is cut off."""


class HttpConnection:
    """Serves the requests of one connection, one after the other."""

    def __init__(
        self, stream: trio.abc.Stream, host: HttpHost, *, name: int, timeouts: HttpTimeouts, head_bytes: int
    ) -> None:
        self._stream = stream
        self._host = host
        self._timeouts = timeouts
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=head_bytes)
        self._name = name
        self._requests = 0
        self.exchange: tuple[int, int] | None = None
        """The exchange that is open."""
        self._is_head = False
        self._is_closing = False
        self._is_writing = False
        self._wake = Signal()
        self._complete = trio.Event()
        self.principal: Any = None

    # From the host

    def wake(self) -> None:
        """Take note that the response has something to send."""
        self._wake.set()

    def close_when_idle(self) -> None:
        """Serve what is being served, and nothing after it."""
        self._is_closing = True
        if self.exchange is None:
            self._scope.cancel()

    # The tasks

    async def run(self) -> None:
        """Serve until the connection ends; nothing that the client does raises here."""
        self._scope = trio.CancelScope()
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    await self._read()
                    nursery.cancel_scope.cancel()
        finally:
            if self.exchange is not None:
                self._host.receive(Reset(self.exchange))
                self.exchange = None
            with trio.CancelScope(shield=True, deadline=trio.current_time() + LINGER):
                await trio.aclose_forcefully(self._stream)

    async def _read(self) -> None:
        try:
            while await self._read_request():
                pass
        except BROKEN:
            return

    async def _read_request(self) -> bool:
        """Read one request and see its response out; return whether another may follow."""
        http, deadline = self._http, self._timeouts.head if self._requests == 0 else self._timeouts.idle
        while True:
            try:
                event = http.next_event()
            except h11.RemoteProtocolError as error:
                await self._refuse(error.error_status_hint, str(error))
                return False
            if event is h11.NEED_DATA:
                if http.they_are_waiting_for_100_continue:
                    await self._send(http.send(h11.InformationalResponse(status_code=100, headers=[])))
                if not await self._receive(deadline):
                    return False
                if self.exchange is None:
                    deadline = self._timeouts.head
            elif isinstance(event, h11.Request):
                self._begin(event)
                deadline = self._timeouts.body
                if await self._is_answered_early():
                    return False
            elif isinstance(event, h11.Data):
                self._host.receive(Body(self.exchange, bytes(event.data)))
                if await self._is_answered_early():
                    return False
            elif isinstance(event, h11.EndOfMessage):
                self._host.receive(End(self.exchange))
                return await self._see_out()
            else:
                return False  # the client closed the connection

    def _begin(self, request: h11.Request) -> None:
        self._requests += 1
        self.exchange = (self._name, self._requests)
        self._is_head = request.method == b"HEAD"
        self._complete = trio.Event()
        headers = request.headers
        method, target = request.method.decode("latin-1"), request.target.decode("latin-1")
        self._host.receive(RequestHead(self.exchange, method, target, tuple(headers), self.principal))

    async def _receive(self, timeout: float | None) -> bool:
        """Feed what comes; return whether anything may still come."""
        with trio.CancelScope() as scope:
            if timeout is not None:
                scope.deadline = trio.current_time() + timeout
            data = await self._stream.receive_some(RECEIVE)
            self._http.receive_data(bytes(data))
            return True
        if self._http.their_state is h11.SEND_BODY:
            await self._refuse(408, "the body of the request took too long")
        elif self._http.trailing_data[0] or self._requests == 0:
            await self._refuse(408, "the head of the request took too long")
        return False

    async def _see_out(self) -> bool:
        """Wait for the end of the response; return whether another request may follow."""
        await self._send_responses()
        while not self._complete.is_set():
            if self._http.trailing_data[0]:
                # The next request is here already. It waits its turn.
                await self._complete.wait()
                break
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, nursery.cancel_scope)
                await self._complete.wait()
                nursery.cancel_scope.cancel()
        if self._is_closing or self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def _watch(self, scope: trio.CancelScope) -> None:
        """Notice a client that goes away while it waits."""
        data = await self._stream.receive_some(RECEIVE)
        if not data:
            self._scope.cancel()
            return
        self._http.receive_data(bytes(data))

    async def _is_answered_early(self) -> bool:
        """Whether the response is complete before the request is: the connection is no good for another."""
        await self._send_responses()
        if not self._complete.is_set():
            return False
        with trio.move_on_after(LINGER):
            if isinstance(self._stream, trio.SocketStream):
                await self._stream.send_eof()
            while await self._stream.receive_some(RECEIVE):
                pass
        return True

    # Writing

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            try:
                await self._send_responses()
            except BROKEN:
                self._scope.cancel()
                return

    async def _send_responses(self) -> None:
        """Send what there is of the response. One task at a time does."""
        if self._is_writing:
            return
        self._is_writing = True
        try:
            while self.exchange is not None:
                items = self._host.responses_to_send(self.exchange)
                if not items:
                    return
                await self._send(b"".join(self._encode(item) for item in items))
                if self.exchange is None:
                    self._complete.set()
        finally:
            self._is_writing = False

    def _encode(self, item: ResponseItem) -> bytes:
        if isinstance(item, ResponseHead):
            headers = [*item.headers, (b"date", _date())]
            if self._is_closing or self._http.their_state is not h11.DONE:
                headers.append((b"connection", b"close"))
            return self._http.send(h11.Response(status_code=item.status, headers=headers)) or b""
        if isinstance(item, Body):
            return b"" if self._is_head else self._http.send(h11.Data(data=item.data)) or b""
        self.exchange = None
        if isinstance(item, End):
            return self._http.send(h11.EndOfMessage()) or b""
        self._scope.cancel()
        return b""

    async def _refuse(self, status: int, message: str) -> None:
        """Answer what is no HTTP, or came too slowly."""
        if self.exchange is not None:
            self._host.receive(Reset(self.exchange))
            self.exchange = None
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        body = message.encode()
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
        response = h11.Response(status_code=status, headers=[*headers, (b"connection", b"close")])
        parts = [self._http.send(response), self._http.send(h11.Data(data=body)), self._http.send(h11.EndOfMessage())]
        await self._send(b"".join(part or b"" for part in parts))

    async def _send(self, data: bytes | None) -> None:
        if not data:
            return
        with trio.CancelScope() as scope:
            if self._timeouts.write is not None:
                scope.deadline = trio.current_time() + self._timeouts.write
            await self._stream.send_all(data)
            return
        self._scope.cancel()


def _date() -> bytes:
    """Return the time as HTTP has it."""
    now = int(time())
    if _last[0] != now:
        _last[:] = [now, formatdate(now, usegmt=True).encode()]
    date: bytes = _last[1]
    return date


_last: list[Any] = [0, b""]
