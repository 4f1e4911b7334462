"""Command lines run in this process, against a server in this process: everything is real but the child process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple, Protocol

import pytest
import trio
import trio.testing

from mcpio import CallToolResult, Client, Context, Server, TextContent
from mcpio.app import ClientOptions
from mcpio.cli import connect, main
from mcpio.framing.lines import LineFramer
from mcpio.trio import open_transport, serve
from mcpio.types import ImageContent

Peer = Callable[[trio.abc.HalfCloseableStream], Awaitable[None]]
"""Stands for a server: reads and writes what it likes."""


class Ran(NamedTuple):
    """What a command did."""

    status: int
    out: str
    err: str


class Command(Protocol):
    """Runs ``mcpio`` with words; ``server`` is what the command's server would be."""

    def __call__(self, *words: str, server: Server | Peer) -> Ran: ...


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Return what runs a command line."""

    def run(*words: str, server: Server | Peer) -> Ran:
        peer: Peer = server if not isinstance(server, Server) else lambda stream: serve(server, stream)

        def start(argv: Sequence[str], **options: Any) -> AbstractAsyncContextManager[Client]:
            assert argv == ["the", "server"]
            of_client = {name: options[name] for name in ClientOptions.__annotations__ if name in options}
            # Servers by hand know nothing else, and the outputs here are those of sessions; processes find out the era.
            of_client.setdefault("era", "handshake")
            return _client_of(peer, of_client)

        monkeypatch.setattr(connect, "open_stdio", start)
        # The server follows the command, or its action.
        first = 2 if words[0] == "skills" else 1
        status = main([*words[:first], "the server", *words[first:]])
        return Ran(status, *capfd.readouterr())

    return run


@asynccontextmanager
async def _client_of(peer: Peer, options: Any) -> AsyncIterator[Client]:
    near, far = trio.testing.memory_stream_pair()
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer, far)
        try:
            async with open_transport(near, **options) as client:
                yield client
        except BaseException as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


@pytest.fixture
def server() -> Server:
    """Return a server with something of everything."""
    server = Server("workshop", "2", title="The workshop", instructions="Be careful.")

    @server.tool
    def add(a: int, b: int = 1) -> int:
        """Add two numbers.

        This paragraph is too much for a list.
        """
        return a + b

    @server.tool
    async def steps(count: int, ctx: Context) -> str:
        for step in range(1, count + 1):
            ctx.progress(step, count, "working")
            await trio.testing.wait_all_tasks_blocked()
        ctx.warning({"left": 0}, "bench")
        ctx.info("tidy")
        return "done"

    @server.tool
    def picture() -> list[TextContent | ImageContent]:
        """Draw."""
        return [TextContent("a dot:"), ImageContent("AAAA", "image/png")]

    @server.tool
    def breaks() -> CallToolResult:
        return CallToolResult((TextContent("the saw is blunt"),), is_error=True)

    @server.resource("bench://notes", mime_type="text/plain", description="What lies there.")
    def notes() -> str:
        return "two nails"

    @server.resource("bench://blob")
    def blob() -> bytes:
        return b"\x00\x01"

    @server.resource("bench://drawer/{number}", description="A drawer.")
    def drawer(number: str) -> str:
        return f"drawer {number}"

    @server.prompt
    def repair(thing: str, tool: str = "") -> str:
        """Ask how to repair a thing."""
        return f"Repair {thing} with {tool or 'anything'}."

    return server


class Speaking(Protocol):
    """Makes a peer that answers by a table."""

    def __call__(self, answers: Mapping[str, Any], *, revision: str = "2025-11-25") -> Peer: ...


@pytest.fixture
def speaking() -> Speaking:
    """Return what makes such a peer."""
    return _speaking


def _speaking(answers: Mapping[str, Any], *, revision: str = "2025-11-25") -> Peer:
    """Return a peer that answers each method with the result given for it, whatever that is.

    An exception in place of a result ends it there; for a method that is not given it says nothing.
    """
    declared: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
    first = {"protocolVersion": revision, "capabilities": declared, "serverInfo": {"name": "raw", "version": "1"}}
    known = {"initialize": first, **answers}

    async def peer(stream: trio.abc.HalfCloseableStream) -> None:
        framer = LineFramer()
        async for data in stream:
            framer.receive(bytes(data))
            while isinstance(line := framer.next_line(), bytes):
                message = json.loads(line)
                answer = known.get(message["method"])
                if isinstance(answer, Exception):
                    await stream.send_eof()
                elif answer is not None:
                    reply = {"jsonrpc": "2.0", "id": message["id"], "result": answer}
                    await stream.send_all(json.dumps(reply).encode() + b"\n")

    return peer
