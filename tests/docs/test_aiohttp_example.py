"""The example of a server inside aiohttp serves clients of both eras, and notices those that leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import aiohttp_server
import pytest
from aiohttp import ClientSession, web

from mcpio import Server
from mcpio.asgi import app
from mcpio.asyncio import open_http

ACCEPTED = "application/json, text/event-stream"
PARAMS = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "client", "version": "1"}}
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": PARAMS}


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[str]:
    """Serve the example's site on a free port; yield the address of its endpoint."""
    runner = web.AppRunner(aiohttp_server.make_site(), shutdown_timeout=40, **options)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    finally:
        await runner.cleanup()
    assert not aiohttp_server.calls


@pytest.mark.parametrize("cancels", [True, False])
@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_clients_of_both_eras_are_served(era: Literal["handshake", "stateless"], cancels: bool) -> None:
    async def main() -> None:
        told: list[float] = []
        async with serving(handler_cancellation=cancels) as url, open_http(url, era=era) as client:
            for text in ("once", "x" * 300_000):
                result = await client.call_tool("shout", {"text": text}, on_progress=lambda done, *_: told.append(done))
                assert result.text == text.upper()
        assert told == [1, 1]

    asyncio.run(main())


def test_open_stream_does_not_delay_the_shutdown() -> None:
    async def main() -> None:
        async with ClientSession() as session:
            async with serving() as url:
                begun = await session.post(url, json=INITIALIZE, headers={"accept": ACCEPTED})
                told = {"accept": "text/event-stream", "mcp-session-id": begun.headers["mcp-session-id"]}
                stream = await session.get(url, headers=told)
                assert stream.status == 200
            assert stream.content_type == "text/event-stream"
            await stream.read()

    asyncio.run(asyncio.wait_for(main(), 20))


def test_client_that_disconnects_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("slow", "1")
    began, ended = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async def main() -> None:
        monkeypatch.setattr(aiohttp_server, "application", app(server))
        async with serving(handler_cancellation=True) as url:
            async with open_http(url, era="stateless") as client:
                call = asyncio.create_task(client.call_tool("wait"))
                await began.wait()
                call.cancel()
            await ended.wait()

    asyncio.run(asyncio.wait_for(main(), 30))
