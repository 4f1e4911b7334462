"""An HTTP server that a test plays by hand, over memory streams: every byte of what it sends is the test's.

``serve_site`` plays it on each event loop, in virtual time; ``RawSite`` alone is for Trio.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import attrs
import pytest
import trio
import trio.testing
from eachloop import EachLoop, Here, each_virtual_loop

from mcpio._drivers.event_loop import EventLoop
from mcpio.asyncio._event_loop import Signal
from mcpio.trio._event_loop import TrioEventLoop

__all__ = [
    "RawRequest",
    "RawSite",
    "ServeSite",
    "Site",
    "Wire",
    "each_virtual_loop",
    "json_response",
    "result_of",
    "serve_site",
]


@attrs.frozen
class RawRequest:
    """One request, as it came."""

    connection: int
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def rpc_method(self) -> str | None:
        return self.json.get("method") if self.body else None


class Wire:
    """The server's end of one connection."""

    def __init__(self, stream: Any, loop: EventLoop) -> None:
        self.stream = stream
        self._loop = loop

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def close(self) -> None:
        await self._loop.abort(self.stream)


PLAIN = {
    "content": [{"type": "text", "text": "done"}],
    "tools": [{"name": "x", "inputSchema": {"type": "object"}}],
}

Handler = Callable[[RawRequest, Wire], Awaitable[None]]


class RawSite:
    """Answers requests as ``handler`` says; what it leaves to ``answer`` is answered as by a plain server of MCP."""

    def __init__(
        self,
        nursery: trio.Nursery,
        handler: Handler | None = None,
        *,
        session: str | None = None,
        loop: EventLoop | None = None,
    ) -> None:
        self.requests: list[RawRequest] = []
        self.opened: list[tuple[str, int]] = []
        self.wires: list[Wire] = []
        self.session = session
        self.handler = handler or self.answer
        self.dial: Callable[[str, int], Awaitable[Any]] = self.open
        """What connects clients to it, where it is installed."""
        self._nursery = nursery
        self._loop = loop or TrioEventLoop()

    def install(self, monkeypatch: pytest.MonkeyPatch) -> RawSite:
        """Be what every connection leads to."""

        async def open_stream(_: EventLoop, host: str, port: int, *more: object) -> Any:
            return await self.dial(host, port)

        monkeypatch.setattr(type(self._loop), "open_stream", open_stream)
        return self

    async def open(self, host: str, port: int) -> Any:
        await self._loop.checkpoint()
        self.opened.append((host, port))
        ours, theirs = self.memory_streams()
        self._nursery.start_soon(self.serve, theirs)
        return ours

    def memory_streams(self) -> tuple[Any, Any]:
        """Return two ends that are connected."""
        return trio.testing.memory_stream_pair()

    async def serve(self, stream: Any) -> None:
        """Serve one connection."""
        wire = Wire(stream, self._loop)
        self.wires.append(wire)
        number = len(self.wires)
        buffer = b""
        while True:
            try:
                while b"\r\n\r\n" not in buffer:
                    data = await stream.receive_some()
                    if not data:
                        return
                    buffer += data
                head, _, buffer = buffer.partition(b"\r\n\r\n")
                first, *lines = head.decode().split("\r\n")
                method, target, _ = first.split(" ")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                size = int(headers.get("content-length", "0"))
                while len(buffer) < size:
                    buffer += await stream.receive_some()
                body, buffer = buffer[:size], buffer[size:]
                request = RawRequest(number, method, target, headers, body)
                self.requests.append(request)
                await self.handler(request, wire)
            except self._loop.broken:
                return

    async def answer(self, request: RawRequest, wire: Wire) -> None:
        """Answer as a plain server does: JSON to requests, 405 to whoever wants to listen."""
        if request.method == "GET":
            await wire.send(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n")
        elif request.method == "DELETE":
            await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        elif "id" not in request.json or "method" not in request.json:
            await wire.send(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
        elif request.rpc_method == "initialize":
            info = {"name": "s", "version": "1"}
            capabilities = {"tools": {}, "resources": {"subscribe": True}, "logging": {}}
            result = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
            more = () if self.session is None else (f"Mcp-Session-Id: {self.session}",)
            await wire.send(json_response(result_of(request, result), *more))
        else:
            await wire.send(json_response(result_of(request, PLAIN)))

    def methods(self) -> list[str]:
        """Return what was asked, in order: the method of the message, or of HTTP where there is none."""
        return [request.rpc_method or request.method for request in self.requests]


class Site(RawSite, Here):
    """The same on any event loop, with what a test needs of that loop."""

    def __init__(self, here: Here, session: str | None) -> None:
        vars(self).update(vars(here))
        # It starts tasks as a nursery does.
        super().__init__(self, session=session, loop=here.loop)  # type: ignore[arg-type]  # starts tasks as a nursery

    def start_soon(self, call: Callable[..., Any], *args: Any) -> None:
        self.runtime.spawn(call(*args))

    def memory_streams(self) -> tuple[Any, Any]:
        if self.is_trio:
            return super().memory_streams()
        there, back = _Pipe(), _Pipe()
        return _MemoryStream(there, back), _MemoryStream(back, there)


class _Pipe:
    """One direction between two ends on asyncio."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_ended = self.is_closed = False
        self.moved = Signal()


class _MemoryStream:
    """One end of two that are connected, on asyncio."""

    is_readable = False

    def __init__(self, out: _Pipe, back: _Pipe) -> None:
        self._out, self._back = out, back
        self._is_closed = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await asyncio.sleep(0)
        while not (self._back.data or self._back.is_ended or self._is_closed):
            await self._back.moved.wait()
        if self._is_closed:
            raise ConnectionAbortedError("this end is closed")
        data = bytes(self._back.data[:max_bytes])
        del self._back.data[:max_bytes]
        return data

    async def send_all(self, data: bytes | memoryview) -> None:
        await asyncio.sleep(0)
        if self._is_closed or self._out.is_closed:
            raise BrokenPipeError("an end is closed")
        self._out.data += data
        self._out.moved.set()

    async def send_eof(self) -> None:
        self._out.is_ended = True
        self._out.moved.set()

    async def aclose(self) -> None:
        self._is_closed = self._out.is_ended = self._back.is_closed = True
        self._out.moved.set()
        self._back.moved.set()
        await asyncio.sleep(0)

    abort = aclose


class ServeSite(Protocol):
    def __call__(
        self,
        play: Callable[[Site], Awaitable[None]],
        handler: Callable[[Site, RawRequest, Wire], Awaitable[None]] | None = None,
        session: str | None = None,
    ) -> Site:
        """Play a server until ``play`` returns. Time passes by itself where nothing else happens."""


@pytest.fixture
def serve_site(each_virtual_loop: EachLoop, monkeypatch: pytest.MonkeyPatch) -> ServeSite:
    def serve(play: Any, handler: Any = None, session: str | None = None) -> Site:
        sites: list[Site] = []

        async def main(here: Here) -> None:
            site = Site(here, session)
            sites.append(site)
            site.install(monkeypatch)
            if handler is not None:
                site.handler = lambda request, wire: handler(site, request, wire)
            await play(site)

        each_virtual_loop.run(main, virtual=True)
        return sites[0]

    return serve


def result_of(request: RawRequest, result: Any) -> Any:
    """Return the message that answers a request."""
    return {"jsonrpc": "2.0", "id": request.json["id"], "result": result}


def json_response(message: Any, *headers: str, status: str = "200 OK") -> bytes:
    """Return a whole response with JSON in it."""
    body = json.dumps(message).encode()
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body
