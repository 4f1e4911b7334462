"""Function entries: how many functions of mcpio one warm call enters, on each way that a call takes.

    python benchmarks/entries.py
    python benchmarks/entries.py --list "server: ASGI, stateless"

An entry is the call of a function in a file of the library; a coroutine that is resumed counts again. Unlike a time the
number does not depend on the machine, nor on what else runs. ``--list`` prints the functions of one way in
the order of their calls.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import h2.config
import h2.connection
import h2.events
import trio
from harness import HERE, arguments, free_port

import mcpio
import mcpio.asgi
import mcpio.trio
from mcpio import Client, Server

LIBRARY = str(Path(mcpio.__file__).parent)
ECHO = str(HERE / "echo_server.py")
WARM = 1100
"""Calls before the one that is counted: a session watches the first thousand more closely."""

Ask = Callable[[str], Awaitable[bytes]]
"""Calls the tool of that name; returns the answer, as far as it is text."""

server = Server("entries")


@server.tool
def plain(text: str) -> str:
    """Answer at once."""
    return text


@server.tool
async def waiting(text: str) -> str:
    """Answer as a task."""
    return text


# The ways, each as an async context manager that gives its ``Ask``

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "entries", "version": "1"}}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "entries", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'


def request(method: str, params: Mapping[str, Any]) -> bytes:
    """Return a request."""
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


def call(tool: str, *, stateless: bool) -> bytes:
    """Return the call of a tool."""
    meta = {"_meta": ENVELOPE} if stateless else {}
    return request("tools/call", {"name": tool, "arguments": {"text": "hello"}, **meta})


def fields(body: bytes, tool: str, session: bytes | None) -> list[tuple[bytes, bytes]]:
    """Return the header fields of a POST: in a session, or of a stateless call."""
    found = [
        (b"host", b"localhost:8000"),
        (b"content-type", b"application/json"),
        (b"accept", b"application/json, text/event-stream"),
        (b"content-length", b"%d" % len(body)),
    ]
    if session is not None:
        return found + ([(b"mcp-session-id", session), (b"mcp-protocol-version", b"2025-11-25")] if session else [])
    named = [(b"mcp-method", b"tools/call"), (b"mcp-name", tool.encode())]
    return [*found, (b"mcp-protocol-version", b"2026-07-28"), *named]


@asynccontextmanager
async def over_a_stream(*, stateless: bool) -> AsyncIterator[Ask]:
    """Serve a socket."""
    ours, theirs = (trio.SocketStream(each) for each in trio.socket.socketpair())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mcpio.trio.serve, server, theirs)

        async def ask(tool: str) -> bytes:
            await ours.send_all(call(tool, stateless=stateless) + b"\n")
            return bytes(await ours.receive_some())

        if not stateless:
            await ours.send_all(request("initialize", HELLO) + b"\n")
            await ours.receive_some()
            await ours.send_all(INITIALIZED + b"\n")
        yield ask
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def over_http(*, stateless: bool) -> AsyncIterator[Ask]:
    """Serve HTTP/1.1 by h11, on loopback."""
    async with trio.open_nursery() as nursery:
        listening = await nursery.start(_serve_http)
        stream = await trio.open_tcp_stream("127.0.0.1", listening.port)

        async def post(body: bytes, tool: str, session: bytes | None) -> bytes:
            given = fields(body, tool, session)
            given[0] = (b"host", b"127.0.0.1:%d" % listening.port)
            head = b"".join(b"%b: %b\r\n" % field for field in given)
            await stream.send_all(b"POST /mcp HTTP/1.1\r\n%b\r\n%b" % (head, body))
            return bytes(await stream.receive_some())

        session: bytes | None = None
        if not stateless:
            answer = await post(request("initialize", HELLO), "", b"")
            session = answer.partition(b"mcp-session-id: ")[2].partition(b"\r\n")[0]
            await post(INITIALIZED, "", session)
        yield lambda tool: post(call(tool, stateless=stateless), tool, session)
        nursery.cancel_scope.cancel()


async def _serve_http(http2: bool = False, *, task_status: trio.TaskStatus[Any]) -> None:
    await mcpio.trio.serve_http(server, port=0, parser="h11", http2=http2, task_status=task_status)


@asynccontextmanager
async def over_http2(*, stateless: bool) -> AsyncIterator[Ask]:
    """Serve HTTP/2 on loopback, a stream after the other."""
    async with trio.open_nursery() as nursery:
        listening = await nursery.start(_serve_http, True)
        stream = await trio.open_tcp_stream("127.0.0.1", listening.port)
        http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding=None))
        http.initiate_connection()
        target = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/mcp")]
        target.append((b":authority", b"127.0.0.1:%d" % listening.port))

        async def post(body: bytes, tool: str, session: bytes | None) -> tuple[dict[Any, Any], bytes]:
            number = http.get_next_available_stream_id()
            http.send_headers(number, target + fields(body, tool, session)[1:])
            http.send_data(number, body, end_stream=True)
            head: dict[Any, Any] = {}
            text = b""
            while True:
                await stream.send_all(http.data_to_send())
                for event in http.receive_data(bytes(await stream.receive_some())):
                    if isinstance(event, h2.events.ResponseReceived):
                        head = dict(event.headers or ())
                    elif isinstance(event, h2.events.DataReceived):
                        text += event.data or b""
                        http.acknowledge_received_data(event.flow_controlled_length or 0, number)
                    elif isinstance(event, h2.events.StreamEnded):
                        return head, text

        session: bytes | None = None
        if not stateless:
            head, _ = await post(request("initialize", HELLO), "", b"")
            session = head[b"mcp-session-id"]
            await post(INITIALIZED, "", session)

        async def ask(tool: str) -> bytes:
            return (await post(call(tool, stateless=stateless), tool, session))[1]

        yield ask
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def over_asgi(*, stateless: bool) -> AsyncIterator[Ask]:
    """Call the ASGI application, without a server around it."""
    app = mcpio.asgi.app(server)

    async def post(body: bytes, tool: str, session: bytes | None) -> list[Any]:
        sent: list[Any] = []
        received = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> Any:
            message = next(received, None)
            if message is None:
                await trio.sleep_forever()
            return message

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "server": ("127.0.0.1", 8000)}
        await app({**scope, "headers": fields(body, tool, session)}, receive, send)
        return sent

    session: bytes | None = None

    async def ask(tool: str) -> bytes:
        _, *pieces = await post(call(tool, stateless=stateless), tool, session)
        return b"".join(piece["body"] for piece in pieces)

    async with app.lifespan():
        if not stateless:
            head, *_ = await post(request("initialize", HELLO), "", b"")
            session = dict(head["headers"])[b"mcp-session-id"]
            await post(INITIALIZED, "", session)
        yield ask


@asynccontextmanager
async def client_over_stdio() -> AsyncIterator[Ask]:
    """Call by a client, whose server is a child process."""
    async with mcpio.trio.open_stdio([sys.executable, ECHO, "--stdio"]) as client:
        yield partial(echo, client)


@asynccontextmanager
async def client_over_http(*, stateless: bool) -> AsyncIterator[Ask]:
    """Call by a client over HTTP, whose server is another process."""
    port = free_port()
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.run_process, [sys.executable, ECHO, "--http", str(port)])
        await _accepting(port)
        era: Any = "stateless" if stateless else "handshake"
        async with mcpio.trio.open_http(f"http://127.0.0.1:{port}/mcp", era=era) as client:
            yield partial(echo, client)
        nursery.cancel_scope.cancel()


async def echo(client: Client, tool: str) -> bytes:
    """Call the tool of the other process, whatever ``tool`` says."""
    del tool
    result = await client.call_tool("echo", {"text": "hello"})
    return json.dumps(result.content[0].text).encode()  # type: ignore[union-attr]  # it is text


async def _accepting(port: int) -> None:
    with trio.fail_after(30):
        while True:
            try:
                await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
            except OSError:
                await trio.sleep(0.05)  # until the process listens
            else:
                return


WAYS: dict[str, tuple[Callable[[], AbstractAsyncContextManager[Ask]], tuple[str, ...]]] = {
    "server: a stream, in a session": (partial(over_a_stream, stateless=False), ("plain", "waiting")),
    "server: a stream, stateless": (partial(over_a_stream, stateless=True), ("plain", "waiting")),
    "server: HTTP/1.1, in a session": (partial(over_http, stateless=False), ("plain", "waiting")),
    "server: HTTP/1.1, stateless": (partial(over_http, stateless=True), ("plain", "waiting")),
    "server: HTTP/2, in a session": (partial(over_http2, stateless=False), ("plain", "waiting")),
    "server: HTTP/2, stateless": (partial(over_http2, stateless=True), ("plain", "waiting")),
    "server: ASGI, in a session": (partial(over_asgi, stateless=False), ("plain", "waiting")),
    "server: ASGI, stateless": (partial(over_asgi, stateless=True), ("plain", "waiting")),
    "client: standard input and output": (client_over_stdio, ("plain",)),
    "client: HTTP, in a session": (partial(client_over_http, stateless=False), ("plain",)),
    "client: HTTP, stateless": (partial(client_over_http, stateless=True), ("plain",)),
}
"""By title: the way, and the tools that are called by it."""

TARGETS: dict[tuple[str, str], int] = {
    ("server: ASGI, in a session", "plain"): 100,
    ("server: ASGI, stateless", "plain"): 85,
    ("server: HTTP/2, in a session", "plain"): 300,
    ("server: HTTP/2, stateless", "plain"): 260,
    ("client: HTTP, in a session", "plain"): 199,
    ("client: HTTP, stateless", "plain"): 199,
}


def main() -> int:
    """Print the figures."""
    parser = arguments(__doc__, rounds=1)
    parser.add_argument("--list", metavar="WAY", choices=list(WAYS), help="print the functions of a way")
    options = parser.parse_args()
    if options.list is not None:
        print(*trio.run(entered, options.list, "plain"), sep="\n")
        return 0
    print(f"{'function entries of mcpio':<40}{'plain':>10}{'async def':>12}")
    missed = []
    for way, (_, tools) in WAYS.items():
        counts = {tool: len(trio.run(entered, way, tool)) for tool in tools}
        print(
            f"{way:<40}" + "".join(f"{count:>{width}}" for count, width in zip(counts.values(), (10, 12), strict=False))
        )
        missed += [f"{way}, {tool}" for tool in tools if counts[tool] > TARGETS.get((way, tool), counts[tool])]
    print(f"verdict: {'all targets met' if not missed else 'MISSED: ' + ', '.join(missed)}")
    return 1 if options.check and missed else 0


async def entered(way: str, tool: str) -> list[str]:
    """Return the functions of the library that one warm call enters, in order."""
    found: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(LIBRARY):
            found.append(f"{frame.f_code.co_filename[len(LIBRARY) :]} {frame.f_code.co_qualname}")

    async with WAYS[way][0]() as ask:
        for _ in range(WARM):
            assert b'"hello"' in await ask(tool)
        await trio.sleep(0.05)  # what the call before began is over
        sys.setprofile(note)
        await ask(tool)
        await trio.sleep(0.02)  # what follows an answer counts too
        sys.setprofile(None)
    return found


if __name__ == "__main__":
    sys.exit(main())
