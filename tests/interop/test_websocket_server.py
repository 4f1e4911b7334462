"""Our client in a conversation with a server that package ``websockets`` carries: nothing of ours is on its side."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve
from websockets.typing import Subprotocol

from mcpio import Client, Limits, Options, RemoteProtocolError
from mcpio.errors import ConnectFailed, ConnectionLost, RequestError, WebSocketClosed
from mcpio.trio import open_websocket
from mcpio.types import CreateMessageResult, ElicitResult, TextContent
from mcpio.websocket import WebSocketOptions

MIB = 1024 * 1024
TOOLS = [
    {"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "count", "ask", "wait", "end", "vanish")
]
RESULT = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}, "resources": {}},
    "serverInfo": {"name": "by hand", "version": "1"},
}


class Site:
    """A server made by hand: what it does for one client at a time, and what it heard."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.closed: list[tuple[int, str]] = []
        """The codes and reasons that clients closed with."""
        self.binary = False
        """Whether it says nothing but what is refused."""

    def talk(self, connection: ServerConnection) -> None:
        try:
            for text in connection:
                assert isinstance(text, str)
                message = json.loads(text)
                self.heard.append(message)
                if self.binary:
                    connection.send(b"{}")
                elif "method" in message and "id" in message:
                    self.answer(connection, message["id"], message["method"], message.get("params", {}))
        except ConnectionClosed:
            pass
        heard = connection.protocol.close_rcvd
        self.closed.append((heard.code, heard.reason) if heard else (1006, ""))

    def answer(self, connection: ServerConnection, id: Any, method: str, params: dict[str, Any]) -> None:
        known: dict[str, Any] = {"initialize": RESULT, "ping": {}, "tools/list": {"tools": TOOLS}}
        if method in known:
            say(connection, id=id, result=known[method])
        elif method == "tools/call":
            getattr(self, params["name"])(connection, id, params.get("arguments", {}), params.get("_meta", {}))
        else:
            say(connection, id=id, error={"code": -32601, "message": "no"})

    # Tools

    def echo(self, connection: ServerConnection, id: Any, arguments: Any, meta: Any) -> None:
        say(connection, id=id, result=result_of(arguments["text"]))

    def count(self, connection: ServerConnection, id: Any, arguments: Any, meta: Any) -> None:
        for number in (1, 2, 3):
            params = {"progressToken": meta["progressToken"], "progress": number, "total": 3}
            say(connection, method="notifications/progress", params=params)
        say(connection, id=id, result=result_of("counted"))

    def ask(self, connection: ServerConnection, id: Any, arguments: Any, meta: Any) -> None:
        form = {"type": "object", "properties": {"name": {"type": "string"}}}
        say(connection, id="e", method="elicitation/create", params={"message": "Who?", "requestedSchema": form})
        name = json.loads(connection.recv(10))["result"]["content"]["name"]
        question = {"messages": [{"role": "user", "content": {"type": "text", "text": "2+2?"}}], "maxTokens": 9}
        say(connection, id="s", method="sampling/createMessage", params=question)
        text = json.loads(connection.recv(10))["result"]["content"]["text"]
        say(connection, id=id, result=result_of(f"{name} {text}"))

    def wait(self, connection: ServerConnection, id: Any, arguments: Any, meta: Any) -> None:
        pass

    def end(self, connection: ServerConnection, id: Any, arguments: Any, meta: Any) -> None:
        connection.close(arguments["code"], arguments.get("reason", ""))

    def vanish(self, connection: ServerConnection, id: Any, arguments: Any, meta: Any) -> None:
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.socket.close()


def say(connection: ServerConnection, **message: Any) -> None:
    connection.send(json.dumps({"jsonrpc": "2.0", **message}))


def result_of(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


@contextmanager
def serving(*, deflate: bool = False, **options: Any) -> Iterator[tuple[Site, str]]:
    """Serve in a thread; give the site and its address."""
    site = Site()
    options = {"subprotocols": [Subprotocol("mcp")], "max_size": 16 * MIB, **options}
    with serve(site.talk, "127.0.0.1", 0, compression="deflate" if deflate else None, **options) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield site, f"ws://127.0.0.1:{server.socket.getsockname()[1]}/mcp"
        server.shutdown()
        thread.join()


def talk(play: Callable[[Client], Awaitable[None]], *, deflate: bool = False, **options: Any) -> Site:
    """Have a client of ours talk with the server; return that."""

    async def main(url: str) -> None:
        chosen = WebSocketOptions(compression=deflate)
        with trio.fail_after(20):
            async with open_websocket(url, websocket=chosen, **options) as client:
                await play(client)

    with serving(deflate=deflate) as (site, url):
        trio.run(main, url)
    return site


def answering() -> dict[str, Any]:
    """Return the options of a client that answers what a server asks."""

    async def elicit(*_: Any) -> ElicitResult:
        return ElicitResult("accept", {"name": "Ada"})

    async def sample(*_: Any) -> CreateMessageResult:
        return CreateMessageResult("assistant", TextContent("4"), "m")

    return {"elicitation": elicit, "sampling": sample}


@pytest.mark.req("XPORT-04")
@pytest.mark.parametrize("deflate", [False, True], ids=["plain", "deflate"])
def test_conversation(deflate: bool) -> None:
    told: list[float] = []

    async def play(client: Client) -> None:
        assert [tool.name async for tool in client.tools()] == [tool["name"] for tool in TOOLS]
        counted = await client.call_tool("count", on_progress=lambda progress, *_: told.append(progress))
        assert (counted.text, told[-1]) == ("counted", 3)
        assert (await client.call_tool("ask")).text == "Ada 4"
        for size in (0, 100, 70_000, 3 * MIB):
            text = ("é\u2028𝄞" * (size // 9))[:size]
            assert (await client.call_tool("echo", {"text": text})).text == text
        with pytest.raises(RequestError):
            await client.read_resource("nothing://here")
        await client.ping()

    site = talk(play, deflate=deflate, **answering())
    assert site.closed == [(1000, "")]


@pytest.mark.req("CANC-01")
def test_abandoned_call_is_cancelled() -> None:
    async def play(client: Client) -> None:
        with trio.move_on_after(0.5) as scope:
            await client.call_tool("wait")
        assert scope.cancelled_caught
        await client.ping()

    site = talk(play)
    (cancelled,) = [each for each in site.heard if each["method"] == "notifications/cancelled"]
    (call,) = [each for each in site.heard if each["method"] == "tools/call"]
    assert cancelled["params"]["requestId"] == call["id"]


@pytest.mark.parametrize(
    ("code", "in_order"), [(1000, True), (1001, True), (1008, False), (1011, False), (4000, False)]
)
def test_close_code_reaches_the_client(code: int, in_order: bool) -> None:
    async def play(client: Client) -> None:
        with pytest.raises(ConnectionLost) as lost:
            await client.call_tool("end", {"code": code, "reason": "enough"})
        cause = lost.value.__cause__
        if in_order:
            assert cause is None
        else:
            assert isinstance(cause, WebSocketClosed)
            assert (cause.code, cause.text) == (code, "enough")

    assert talk(play).closed[0][0] in (code, 1000)


def test_vanished_server() -> None:
    async def play(client: Client) -> None:
        with pytest.raises(ConnectionLost):
            await client.call_tool("vanish")

    talk(play)


def test_message_too_long_for_the_server() -> None:
    async def play(client: Client) -> None:
        with pytest.raises(ConnectionLost) as lost:
            await client.call_tool("echo", {"text": "*" * (17 * MIB)})
        assert isinstance(lost.value.__cause__, WebSocketClosed)
        assert lost.value.__cause__.code == 1009

    talk(play, options=Options(limits=Limits(sent_message_bytes=32 * MIB)))


def test_server_without_the_subprotocol_is_refused() -> None:
    async def main(url: str) -> None:
        with pytest.raises(ConnectFailed):
            async with open_websocket(url):
                pass

    with serving(subprotocols=None) as (_, url):
        trio.run(main, url)


def test_binary_message_closes_the_connection() -> None:
    async def main(url: str) -> None:
        with pytest.raises(ConnectFailed) as failed:
            async with open_websocket(url):
                pass
        assert failed.value.__cause__ is not None
        assert isinstance(failed.value.__cause__.__cause__, RemoteProtocolError)

    with serving() as (site, url):
        site.binary = True
        trio.run(main, url)
    assert site.closed[0][0] == 1003
