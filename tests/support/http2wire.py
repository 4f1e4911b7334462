"""HTTP/2 through the Trio driver, over memory streams and in virtual time: a client on h2 that does as it is told."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import attrs
import h2.events
import trio
import trio.testing
from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
from h2.errors import ErrorCodes
from h2.settings import SettingCodes, Settings
from httpwire import Case, Exchange, Wire
from triowire import MemorySite, SiteWire, authorized, in_virtual_time, memory_site

from mcpio import Context, Limits, Options, Server
from mcpio.auth import ResourceServer
from mcpio.http.model import Body, End, HttpOptions, Reset, ResponseHead

POST = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
PSEUDO = [(":method", "GET"), (":scheme", "http"), (":path", "/mcp")]


class Asked(Exchange):
    """One request, by the number of its stream."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.informed = 0
        """How many responses came before the one that counts."""
        self.code: int | None = None
        """Why the server reset it."""
        self.ended = trio.Event()
        """Whether the response is complete, or broke off."""


class Http2Client:
    """One connection. It says just what it is told to, reads whatever comes, and opens windows unless told not to."""

    def __init__(self, stream: trio.abc.Stream, *, opens_windows: bool = True) -> None:
        self.stream = stream
        self.opens_windows = opens_windows
        self.http = H2Connection(
            H2Configuration(client_side=True, validate_outbound_headers=False, normalize_outbound_headers=False)
        )
        self.asked: dict[int, Asked] = {}
        self.farewells: list[int] = []
        """The codes of the GOAWAY frames that came."""
        self.pongs = 0
        self.is_closed = False
        self._data = b""
        self._sending = trio.Lock()

    async def begin(self, nursery: trio.Nursery, settings: Mapping[SettingCodes, int] | None = None) -> Http2Client:
        """Say the preface, and read from now on."""
        self.http.local_settings = Settings(client=True, initial_values=dict(settings or {}))
        self.http.initiate_connection()
        nursery.start_soon(self.read)
        await self.flush()
        return self

    async def ask(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"", *, ends: bool = True
    ) -> Asked:
        """Make a request. Its body comes in two pieces, as far as the windows let it."""
        host = {":authority": "localhost"} if "host" not in headers and ":authority" not in headers else {}
        pseudo = {":method": method, ":scheme": "http", ":path": path, **host}
        asked = await self.head({**pseudo, **headers}.items(), ends=ends and not body)
        half = len(body) // 2
        await self.settle()
        await self.pour(asked, body[:half])
        await self.pour(asked, body[half:], ends=ends)
        return asked

    async def head(self, fields: Iterable[tuple[str, str]], *, ends: bool = False) -> Asked:
        """Begin a request with just these fields."""
        asked = self.expect(self.http.get_next_available_stream_id())
        self.http.send_headers(asked.number, list(fields), end_stream=ends)
        await self.flush()
        return asked

    def expect(self, number: int) -> Asked:
        """Take in the response to what is asked on a stream."""
        asked = self.asked[number] = Asked(number)
        return asked

    async def pour(self, asked: Asked, body: bytes, *, ends: bool = False) -> int:
        """Send some of a body, as far as the windows let it and nothing else is said; return how much that was."""
        sent = 0
        while sent < len(body) and not asked.is_over and not asked.is_broken:
            size = min(self.http.local_flow_control_window(asked.number), 16384, len(body) - sent)
            if not size:
                break
            is_last = ends and sent + size == len(body)
            self.http.send_data(asked.number, body[sent : sent + size], end_stream=is_last)
            sent += size
            await self.flush()
            await self.settle()
        return sent

    async def reset(self, asked: Asked) -> None:
        """Break a request off."""
        asked.is_broken = True
        self.http.reset_stream(asked.number, ErrorCodes.CANCEL)
        await self.flush()

    async def say(self, data: bytes) -> None:
        """Send bytes."""
        with contextlib.suppress(trio.BrokenResourceError):
            async with self._sending:
                await self.stream.send_all(data)

    async def flush(self) -> None:
        """Send what h2 has to say."""
        if data := self.http.data_to_send():
            await self.say(data)

    async def settle(self) -> None:
        """Let happen what needs no time."""
        await trio.testing.wait_all_tasks_blocked()

    async def read(self) -> None:
        """Take in what comes, to the end."""
        while not self.is_closed:
            try:
                data = bytes(await self.stream.receive_some(65536))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
            self.is_closed = not data
            self._data += data
            for frame in self._frames():
                for event in self.http.receive_data(frame):
                    self._take(event)
            await self.flush()
        for asked in self.asked.values():
            if not asked.is_over:
                asked.take(Reset(0))

    def _frames(self) -> Iterable[bytes]:
        while len(self._data) >= 9 and len(self._data) >= (size := 9 + int.from_bytes(self._data[:3], "big")):
            frame, self._data = self._data[:size], self._data[size:]
            yield frame

    def _take(self, event: Any) -> None:
        asked = self.asked.get(getattr(event, "stream_id", None) or 0)
        if isinstance(event, h2.events.ConnectionTerminated):
            self.farewells.append(int(event.error_code or 0))
            # What was asked before is answered after it, which h2 does not know.
            self.http.state_machine.state = ConnectionState.CLIENT_OPEN
        elif isinstance(event, h2.events.PingAckReceived):
            self.pongs += 1
        elif asked is None or asked.is_broken:
            return
        elif isinstance(event, h2.events.InformationalResponseReceived):
            asked.informed += 1
        elif isinstance(event, h2.events.ResponseReceived):
            (_, status), *fields = event.headers
            asked.take(ResponseHead(0, int(status), fields))
        elif isinstance(event, h2.events.DataReceived):
            asked.take(Body(0, event.data))
            if self.opens_windows:
                self.http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            asked.take(End(0))
            asked.ended.set()
        elif isinstance(event, h2.events.StreamReset):
            asked.code = int(event.error_code)
            asked.ended.set()
            if not asked.is_over:
                asked.take(Reset(0))


@contextlib.asynccontextmanager
async def http2_site(server: Server, **how: Any) -> AsyncIterator[tuple[MemorySite, trio.Nursery]]:
    """Serve a server for a block, and give a nursery for clients."""
    async with trio.open_nursery() as nursery, memory_site(server, http2=True, **how) as site:
        yield site, nursery
        nursery.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def http2_client(server: Server, **how: Any) -> AsyncIterator[Http2Client]:
    """Serve a server for a block, and give a client that is connected."""
    async with http2_site(server, **how) as (site, nursery):
        yield await Http2Client(site.listener.connect()).begin(nursery)


# What is served and asked


class Shop:
    """A server with a tool that waits, one that tells much, and one that is quick."""

    def __init__(self, **limits: Any) -> None:
        self.server = Server("shop", "1", options=Options(limits=Limits(**limits)))
        self.go_on = trio.Event()
        self.ended: list[str] = []

        @self.server.tool
        def echo(text: str) -> str:
            return text

        @self.server.tool
        async def wait(name: str = "") -> str:
            await self.go_on.wait()
            self.ended.append(name)
            return "waited"

        @self.server.tool
        async def flood(ctx: Context, count: int) -> str:
            for step in range(count):
                ctx.progress(step, message="x" * 1000)
                await trio.lowlevel.checkpoint()
            return "done"

        @self.server.tool
        async def whose(ctx: Context) -> str:
            return repr(ctx.peer.principal)


def message(tool: str, id: Any = 1, *, progress: bool = False, **arguments: Any) -> bytes:
    meta = {"_meta": {"progressToken": "p"}} if progress else {}
    params = {"name": tool, "arguments": arguments, **meta}
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).encode()


async def session(client: Http2Client) -> dict[str, str]:
    """Shake hands; return the header fields of what is asked next."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}).encode()
    hello_again = await client.ask("POST", "/mcp", POST, body)
    await client.settle()
    headers = {**POST, "mcp-session-id": hello_again.headers["mcp-session-id"]}
    await client.ask("POST", "/mcp", headers, b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    await client.settle()
    return headers


def text_of(asked: Asked) -> Any:
    return asked.json["result"]["content"][0]["text"]


# The cases of tests/http


@attrs.frozen
class OverHttp2:
    """Runs cases through ``serve_http``, each by the streams of one connection."""

    def run(self, case: Case) -> None:
        """Run one."""
        in_virtual_time(case, self.serve)

    @contextlib.asynccontextmanager
    async def serve(
        self, server: Server, options: HttpOptions, *, auth: ResourceServer | None = None
    ) -> AsyncIterator[Wire]:
        """Serve a server."""
        async with http2_site(server, options=options, **authorized(auth)) as (site, nursery):
            yield Http2Wire(site, await Http2Client(site.listener.connect()).begin(nursery))


@attrs.frozen
class Http2Wire(SiteWire):
    """A ``Wire`` whose requests are streams."""

    client: Http2Client

    async def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Exchange:
        """Make a request."""
        fields = {name.lower(): value for name, value in headers.items()}
        asked = await self.client.ask(method, path, {**fields, "content-length": f"{len(body)}"}, body)
        await self.settle()
        return asked

    async def leave(self, exchange: Exchange) -> None:
        """Break a request off."""
        assert isinstance(exchange, Asked)
        await self.client.reset(exchange)
        await self.settle()
