"""HTTP through the Trio driver, over memory streams and in virtual time; clients that say just what they are told."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from math import inf
from typing import Any

import attrs
import h11
import pytest
import trio
import trio.testing
from httpwire import Case, Exchange, Wire

from mcpio import Server
from mcpio.auth import ResourceServer
from mcpio.http.model import Body, End, HttpOptions, RequestHead, Reset, ResponseHead
from mcpio.trio import HttpListening, SocketPeer, serve_http

PARSERS = ("h11", "httptools")

Pair = tuple[trio.abc.Stream, trio.abc.Stream]


class MemoryListener(trio.abc.Listener[trio.abc.Stream]):
    """Accepts memory streams."""

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[trio.abc.Stream](inf)

    def connect(self, pair: Callable[[], Pair] = trio.testing.memory_stream_pair) -> trio.abc.Stream:
        """Return the client's end of a new connection."""
        near, far = pair()
        self._send.send_nowait(far)
        return near

    async def accept(self) -> trio.abc.Stream:
        """Wait for a connection."""
        return await self._receive.receive()

    async def aclose(self) -> None:
        """Accept no more."""
        self._receive.close()
        await trio.lowlevel.checkpoint()


@attrs.frozen
class MemorySite:
    """A server that listens in memory."""

    listener: MemoryListener
    listening: HttpListening
    scope: trio.CancelScope
    """Cancelled, the server ends, and the test goes on."""

    def connect(self, pair: Callable[[], Pair] = trio.testing.memory_stream_pair) -> RawHttp:
        """Return a client."""
        return RawHttp(self.listener.connect(pair))


@contextlib.asynccontextmanager
async def memory_site(server: Server, **how: Any) -> AsyncIterator[MemorySite]:
    """Serve a server for a block, with the options of ``serve_http``."""
    listener = MemoryListener()
    scope = trio.CancelScope()

    async def serve(*, task_status: Any) -> None:
        with scope:
            await serve_http(server, listeners=[listener], task_status=task_status, **how)

    async with trio.open_nursery() as nursery:
        yield MemorySite(listener, await nursery.start(serve), scope)
        nursery.cancel_scope.cancel()


def in_virtual_time(main: Callable[..., Awaitable[None]], *args: Any) -> None:
    """Run ``main`` with a clock that jumps as soon as nothing moves."""
    trio.run(main, *args, clock=trio.testing.MockClock(autojump_threshold=0))


@attrs.frozen
class Heard:
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class RawHttp:
    """A client that says just what it is told to, and reads what comes."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.session: dict[str, str] = {}
        self._data = b""

    async def say(self, data: bytes) -> None:
        """Send bytes."""
        await self.stream.send_all(data)

    async def hear(self, *, has_body: bool = True) -> Heard:
        """Read a response that has a length or is chunked. ``EOFError`` when the server closes before."""
        head, _, _ = (await self.until(b"\r\n\r\n")).partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        status = int(first.split(" ")[1])
        if not has_body or status < 200:
            return Heard(status, headers, b"")
        if headers.get("transfer-encoding") == "chunked":
            return Heard(status, headers, b"".join([chunk async for chunk in self.chunks()]))
        if "content-length" in headers:
            return Heard(status, headers, await self._take(int(headers["content-length"])))
        return Heard(status, headers, b"" if status == 204 else await self.rest())

    async def chunks(self) -> AsyncIterator[bytes]:
        """Read the chunks of a body, to its end."""
        while size := int(await self.until(b"\r\n"), 16):
            yield (await self._take(size + 2))[:-2]
        await self.until(b"\r\n")

    async def until(self, mark: bytes) -> bytes:
        """Read to a mark, and with it."""
        while mark not in self._data:
            await self._read()
        return await self._take(self._data.index(mark) + len(mark))

    async def rest(self) -> bytes:
        """Read to the end of the connection."""
        with contextlib.suppress(EOFError):
            while True:
                await self._read()
        data, self._data = self._data, b""
        return data

    async def _take(self, size: int) -> bytes:
        while len(self._data) < size:
            await self._read()
        data, self._data = self._data[:size], self._data[size:]
        return data

    async def _read(self) -> None:
        try:
            data = await self.stream.receive_some(65536)
        except trio.BrokenResourceError:
            data = b""
        if not data:
            raise EOFError(f"the server closed the connection after {self._data!r}")
        self._data += data

    # MCP

    async def post(self, message: Any, **headers: str) -> Heard:
        """POST a message and read the response."""
        await self.say(self.posted(message, **headers))
        return await self.hear()

    def posted(self, message: Any, **headers: str) -> bytes:
        """Return the bytes of a POST of a message, which are the body where they are bytes."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        usual = {"content-type": "application/json", "content-length": f"{len(body)}"}
        return self.head("POST", **{**usual, **headers}) + body

    def head(self, method: str, **headers: str) -> bytes:
        """Return the head of a request of the endpoint; names with ``_`` for ``-``."""
        usual = {"host": "localhost", "accept": "application/json, text/event-stream"}
        fields = {**usual, **self.session, **{name.replace("_", "-"): value for name, value in headers.items()}}
        lines = [f"{method} /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    async def initialize(self, **headers: str) -> Heard:
        """Shake hands in a new session."""
        info = {"name": "c", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        heard = await self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}, **headers)
        if "mcp-session-id" in heard.headers:
            self.session = {"mcp-session-id": heard.headers["mcp-session-id"]}
            assert (await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, **headers)).status == 202
        return heard

    def call(self, tool: str, id: Any = 1, **arguments: Any) -> dict[str, Any]:
        """Return the message that calls a tool."""
        return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


# The cases of tests/http


def authorized(auth: ResourceServer | None) -> dict[str, Any]:
    """Return the argument that says who sends requests."""
    return {"principal": user} if auth is None else {"auth": auth}


@attrs.frozen
class OverTrio:
    """Runs cases through ``serve_http``, with one of its parsers."""

    parser: str

    def run(self, case: Case) -> None:
        """Run one."""
        in_virtual_time(case, self.serve)

    @contextlib.asynccontextmanager
    async def serve(
        self, server: Server, options: HttpOptions, *, auth: ResourceServer | None = None
    ) -> AsyncIterator[Wire]:
        """Serve a server."""
        how: dict[str, Any] = {"options": options, "parser": self.parser, **authorized(auth)}
        async with trio.open_nursery() as nursery, memory_site(server, **how) as site:
            yield TrioWire(site, nursery)
            nursery.cancel_scope.cancel()


class Asked(Exchange):
    """One request, on a connection of its own."""

    stream: trio.abc.Stream


@attrs.frozen
class SiteWire:
    """What is the same for every ``Wire`` to a server that listens in memory."""

    site: MemorySite

    async def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        await trio.sleep(seconds)
        await self.settle()

    async def settle(self) -> None:
        """Let happen what needs no time."""
        await trio.testing.wait_all_tasks_blocked()

    async def close(self, grace: float) -> None:
        """Begin to end the server."""
        self.site.listening.host.close(grace)
        await self.settle()


@attrs.frozen
class TrioWire(SiteWire):
    """A ``Wire`` whose requests are connections."""

    nursery: trio.Nursery

    async def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Exchange:
        """Make a request. Its body comes in two pieces."""
        exchange, http = Asked(), h11.Connection(h11.CLIENT)
        exchange.stream = self.site.listener.connect()
        fields = [*({"host": "localhost", "content-length": f"{len(body)}"} | {**headers}).items()]
        head = http.send(h11.Request(method=method, target=path, headers=fields)) or b""
        half = len(body) // 2
        await exchange.stream.send_all(head + (http.send(h11.Data(data=body[:half])) or b""))
        await self.settle()
        await exchange.stream.send_all(http.send(h11.Data(data=body[half:])) or b"")
        http.send(h11.EndOfMessage())
        self.nursery.start_soon(_read, exchange, http)
        await self.settle()
        return exchange

    async def leave(self, exchange: Exchange) -> None:
        """Break a request off."""
        assert isinstance(exchange, Asked)
        await exchange.stream.aclose()
        await self.settle()


async def _read(exchange: Asked, http: h11.Connection) -> None:
    while not exchange.is_over and not exchange.is_broken:
        event = http.next_event()
        if event is h11.NEED_DATA:
            try:
                http.receive_data(bytes(await exchange.stream.receive_some(65536)))
            except trio.ClosedResourceError:
                exchange.take(Reset(0))
        elif isinstance(event, h11.Response):
            exchange.take(ResponseHead(0, event.status_code, tuple(event.headers)))
        elif isinstance(event, h11.Data):
            exchange.take(Body(0, bytes(event.data)))
        elif isinstance(event, h11.EndOfMessage):
            exchange.take(End(0))


def user(head: RequestHead, peer: SocketPeer) -> str | None:
    """Return whose a request is, as the cases have it."""
    assert peer.certificate is None
    return next((value.decode("latin-1") for name, value in head.headers if name == b"x-user"), None)


each_parser = pytest.mark.parametrize("parser", PARSERS)
