"""The ASGI application with a blocking session store: its work lives in the requests that need it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from mcpio import Server
from mcpio.asgi import AsgiApp, app
from mcpio.stores import SqliteStore

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


class Caller:
    """Calls an application as an ASGI server does, with a client that stays."""

    def __init__(self, forever: Callable[[], Awaitable[Any]]) -> None:
        self._forever = forever
        self.headers: dict[bytes, bytes] = {}
        self.data = b""

    async def post(self, application: AsgiApp, method: str, **message: Any) -> int:
        """POST a message, and return the status."""
        body = json.dumps({"jsonrpc": "2.0", "method": method, **message}).encode()
        fields = {
            b"host": b"127.0.0.1:8000",
            b"content-type": b"application/json",
            b"accept": b"application/json, text/event-stream",
            **{name: value for name, value in self.headers.items() if name == b"mcp-session-id"},
        }
        scope = {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "headers": [*fields.items()]}
        parts = [{"type": "http.request", "body": body, "more_body": False}]
        status: list[int] = []
        self.data = b""

        async def receive() -> Any:
            if not parts:
                await self._forever()
            return parts.pop()

        async def send(sent: Any) -> None:
            if sent["type"] == "http.response.start":
                status.append(sent["status"])
                self.headers |= dict(sent["headers"])
            else:
                self.data += sent["body"]

        await application(scope, receive, send)
        return status[0]


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_stored_session_continues_in_the_next_application(tmp_path: Path, loop: str) -> None:
    server = Server("s", "1")

    @server.tool
    def echo(text: str) -> str:
        return text

    async def main() -> None:
        caller = Caller(asyncio.Event().wait if loop == "asyncio" else trio.sleep_forever)
        with SqliteStore(tmp_path / "sessions.db") as store:
            first = app(server, store=store)
            assert await caller.post(first, "initialize", id=0, params=HELLO) == 200
            assert await caller.post(first, "notifications/initialized") == 202
        with SqliteStore(tmp_path / "sessions.db") as store:
            second = app(server, store=store)
            call = {"name": "echo", "arguments": {"text": "still there"}}
            assert await caller.post(second, "tools/call", id=1, params=call) == 200
            assert json.loads(caller.data)["result"]["content"][0]["text"] == "still there"

    if loop == "asyncio":
        asyncio.run(main())
    else:
        trio.run(main)
