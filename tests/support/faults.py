"""Bad input for drivers of any loop: what a peer may say, what comes of it, and peers that say just that."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.errors import ConnectFailed, InvalidMessage, McpError, RequestError, RequestTimeout

INFO = {"name": "raw", "version": "1"}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO}
WELCOME: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": INFO}


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


class End(Protocol):
    """One end of a connection, in the hands of a test. Trio's streams with a half-close are such ends."""

    async def send_all(self, data: bytes) -> None:
        """Send bytes."""

    async def receive_some(self, max_bytes: int) -> bytes | bytearray:
        """Return at least one byte, or none at the end."""

    async def send_eof(self) -> None:
        """Say nothing any more."""

    async def aclose(self) -> None:
        """Let go of the connection."""


async def read_line(end: End) -> dict[str, Any]:
    """Return the next message. ``EOFError`` at the end."""
    received = b""
    while not received.endswith(b"\n"):
        data = await end.receive_some(1)
        if not data:
            raise EOFError(f"the end came after {received!r}")
        received += data
    message: dict[str, Any] = json.loads(received)
    return message


# What a client may send


def a_server(**limits: Any) -> Server:
    server = Server("s", options=Options(limits=Limits(**limits)))

    @server.tool
    def echo(text: str) -> str:
        return text

    @server.tool
    async def wait(ctx: Context, seconds: float) -> str:
        await ctx.session.driver.runtime.sleep(seconds)
        return "done"

    return server


def call(id: Any, name: Any, **arguments: Any) -> bytes:
    return line(id=id, method="tools/call", params={"name": name, "arguments": arguments})


async def shake_hands(end: End) -> None:
    """Be a client that begins."""
    await end.send_all(line(id=0, method="initialize", params=HELLO))
    assert (await read_line(end))["id"] == 0
    await end.send_all(line(method="notifications/initialized"))


async def answers(client: End) -> list[dict[str, Any]]:
    """Return what the server has said when it answers a ping, or ends."""
    await client.send_all(line(id="after", method="ping"))
    return await heard_from(client)


async def heard_from(client: End) -> list[dict[str, Any]]:
    """Return what the server says until it answers the ping of ``answers``, or ends: that is an empty message."""
    found: list[dict[str, Any]] = []
    try:
        while not found or found[-1].get("id") != "after":
            found.append(await read_line(client))
    except EOFError:
        found.append({})
    return found


def cancel(id: Any) -> bytes:
    return line(method="notifications/cancelled", params={"requestId": id})


FROM_CLIENTS: dict[str, tuple[bytes, Any, int | None, str]] = {
    # What is sent; the id, the code and the message of the one error that comes back, if one does.
    "garbage": (b"hello?\n", None, -32700, "Parse error: expecting value at character 0"),
    "truncated": (b'{"jsonrpc":"2.0","id":1,"met\n', None, -32700, "Parse error: unterminated string"),
    "no UTF-8": (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}\n', None, -32700, "Parse error: not UTF-8"),
    "a nesting bomb": (b"[" * 100_000 + b"\n", None, -32700, "Parse error: nested deeper than 128"),
    "no version": (b'{"id":1,"method":"ping"}\n', 1, -32600, 'Invalid request: jsonrpc is not "2.0"'),
    "a null id": (line(id=None, method="ping"), None, -32600, "Invalid request: an id is a string or an integer"),
    "an empty object": (b"{}\n", None, -32600, "Invalid request: no method, result or error"),
    "a batch": (b"[" + line(id=1, method="ping")[:-1] + b"]\n", None, -32600, "Invalid request: a JSON array"),
    "params that are a list": (line(id=1, method="ping", params=[]), 1, -32602, "Invalid params: params is not an obj"),
    "a name that is a number": (call(1, 5), 1, -32602, "Invalid params: params.name: expected a string, got a number"),
    "no name": (line(id=1, method="tools/call", params={}), 1, -32602, "Invalid params: params.name: missing"),
    "a method of nobody": (line(id=1, method="none/such"), 1, -32601, "Method not found: none/such"),
    "a method of clients": (line(id=1, method="roots/list"), 1, -32601, "Method not found: roots/list"),
    "a tool of nobody": (call(1, "none"), 1, -32602, "Unknown tool: none"),
    "a second handshake": (line(id=1, method="initialize", params=HELLO), 1, -32600, "Invalid request: the session is"),
    "an id in use": (call(1, "wait", seconds=1) + call(1, "wait", seconds=1), 1, -32600, "Invalid request: this id is"),
    "an answer to nothing": (line(id=77, result={}), None, None, ""),
    "an error for nothing": (line(id=77, error={"code": 1, "message": "x"}), None, None, ""),
    "a cancellation of nothing": (cancel(99), None, None, ""),
    "a cancellation that is malformed": (cancel([]), None, None, ""),
    "a notification of nobody": (line(method="notifications/none"), None, None, ""),
    "blank lines": (b"\r\n\n  \n", None, None, ""),
}


# What a server may send


async def welcome(end: End) -> None:
    """Be a server that shakes hands."""
    await read_line(end)
    await end.send_all(line(id=1, result=WELCOME))
    await read_line(end)


async def converse(end: End, said: Sequence[bytes], *, ends: bool = False) -> None:
    """Be a server that answers the first request after the handshake with what it is told to say.

    If it ``ends`` then, it waits for the client to go too. Otherwise it answers pings.
    """
    await welcome(end)
    await read_line(end)
    for each in said:
        await end.send_all(each)
    if ends:
        await end.send_eof()
    while True:
        message = await read_line(end)
        if message.get("method") == "ping":
            await end.send_all(line(id=message["id"], result={}))


NO_ANSWER = RequestTimeout("tools/call", 3)
MALFORMED = InvalidMessage("", "the answer is malformed: ")
GOOD: dict[str, Any] = {"content": []}

FROM_SERVERS: dict[str, tuple[bytes, McpError | None]] = {
    # What comes instead of the answer to request 2, and what the caller gets: ``None`` is the good answer.
    "an error": (line(id=2, error={"code": -32000, "message": "no"}), RequestError(-32000, "no")),
    "content that is a number": (
        line(id=2, result={"content": 5}),
        InvalidMessage("content", "expected an array, got"),
    ),
    "no content": (line(id=2, result={}), InvalidMessage("content", "missing")),
    "a result that is a list": (line(id=2, result=[1]), MALFORMED),
    "result and error": (line(id=2, result=GOOD, error={"code": 1, "message": "x"}), MALFORMED),
    "neither": (line(id=2), MALFORMED),
    "an error that is a string": (line(id=2, error="x"), MALFORMED),
    "a lone surrogate": (line(id=2, result={"content": [], "x": "\ud800"}), MALFORMED),
    "an id of another type": (line(id="2", result=GOOD), NO_ANSWER),
    "an id of nothing": (line(id=99, result=GOOD), NO_ANSWER),
    "a batch": (b"[" + line(id=2, result=GOOD)[:-1] + b"]\n", NO_ANSWER),
    "an error without an id": (line(error={"code": -32700, "message": "Parse error"}), NO_ANSWER),
    "noise": (b"Listening on port 80\n\xff\xfe\n" + line(id=2, result=GOOD), None),
    "an answer that comes twice": (line(id=2, result=GOOD) * 2, None),
    "a request of nobody": (line(id="s", method="none/such") + line(id=2, result=GOOD), None),
    "a notification that is malformed": (
        line(method="notifications/message", params={"level": 5}) + line(id=2, result=GOOD),
        None,
    ),
    "progress on nothing": (
        line(method="notifications/progress", params={"progressToken": "x", "progress": 1}) + line(id=2, result=GOOD),
        None,
    ),
}


def without(member: str) -> dict[str, Any]:
    return {name: value for name, value in WELCOME.items() if name != member}


GREETINGS: dict[str, tuple[bytes, type[McpError], str]] = {
    "an error": (line(id=1, error={"code": -32602, "message": "Unsupported"}), RequestError, "Unsupported (-32602)"),
    "a revision of nobody": (
        line(id=1, result={**WELCOME, "protocolVersion": "1999-01-01"}),
        ConnectFailed,
        "the server speaks revision '1999-01-01', this client 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05",
    ),
    "a revision that is a number": (
        line(id=1, result={**WELCOME, "protocolVersion": 5}),
        InvalidMessage,
        "protocolVersion: expected a string, got a number",
    ),
    "no capabilities": (line(id=1, result=without("capabilities")), InvalidMessage, "capabilities: missing"),
    "no information": (line(id=1, result=without("serverInfo")), InvalidMessage, "serverInfo: missing"),
    "a result that is a list": (
        line(id=1, result=[]),
        InvalidMessage,
        "the answer is malformed: a result is an object, not an array",
    ),
    "noise": (b"Welcome!\n", RequestTimeout, "initialize: no answer within 30 s"),
    "nothing": (b"", RequestTimeout, "initialize: no answer within 30 s"),
}
