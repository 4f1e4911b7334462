"""An HTTP server that a test plays by hand, over memory streams: every byte of what it sends is the test's."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio
import trio.testing

__all__ = ["RawRequest", "RawSite", "Wire", "json_response", "result_of", "serve_listeners"]


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

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def close(self) -> None:
        await trio.aclose_forcefully(self.stream)


PLAIN = {
    "content": [{"type": "text", "text": "done"}],
    "tools": [{"name": "x", "inputSchema": {"type": "object"}}],
}

Handler = Callable[[RawRequest, Wire], Awaitable[None]]


class RawSite:
    """Answers requests as ``handler`` says; what it leaves to ``answer`` is answered as by a plain server of MCP."""

    def __init__(self, nursery: trio.Nursery, handler: Handler | None = None, *, session: str | None = None) -> None:
        self.requests: list[RawRequest] = []
        self.opened: list[tuple[str, int]] = []
        self.wires: list[Wire] = []
        self.session = session
        self.handler = handler or self.answer
        self._nursery = nursery

    def install(self, monkeypatch: pytest.MonkeyPatch) -> RawSite:
        """Be what every connection leads to."""
        monkeypatch.setattr(trio, "open_tcp_stream", self.open)
        return self

    async def open(self, host: str, port: int) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        self.opened.append((host, port))
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self.serve, theirs)
        return ours

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serve one connection."""
        wire = Wire(stream)
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
            except (trio.BrokenResourceError, trio.ClosedResourceError):
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


def serve_listeners(
    monkeypatch: pytest.MonkeyPatch,
    play: Callable[[RawSite], Awaitable[None]],
    handler: Callable[[RawSite, RawRequest, Wire], Awaitable[None]] | None = None,
    session: str | None = None,
) -> RawSite:
    """Play a server until ``play`` returns. Time passes by itself where nothing else happens."""
    sites: list[RawSite] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            site = RawSite(nursery, session=session).install(monkeypatch)
            sites.append(site)
            if handler is not None:
                site.handler = lambda request, wire: handler(site, request, wire)
            with trio.fail_after(1000):
                await play(site)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0), strict_exception_groups=True)
    return sites[0]


def result_of(request: RawRequest, result: Any) -> Any:
    """Return the message that answers a request."""
    return {"jsonrpc": "2.0", "id": request.json["id"], "result": result}


def json_response(message: Any, *headers: str, status: str = "200 OK") -> bytes:
    """Return a whole response with JSON in it."""
    body = json.dumps(message).encode()
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body
