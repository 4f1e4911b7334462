"""The ASGI application under real servers and in real frameworks, with our own client and the official SDK's."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import mcp.types as types
import pytest
import trio
from listening import serving
from mcp import Client

import mcpio
from mcpio.trio import open_http, open_websocket

PROGRAM = Path(__file__).parents[1] / "support" / "webapps.py"
ENDPOINTS = ["auto", "sse", "alone"]
PAIRS = [
    ("uvicorn", "bare"),
    ("uvicorn", "starlette"),
    ("uvicorn", "fastapi"),
    ("uvicorn", "quart"),
    ("hypercorn", "bare"),
    ("hypercorn", "quart"),
    ("hypercorn-trio", "bare"),
    ("hypercorn-trio", "starlette"),
]


@pytest.fixture(scope="module", params=PAIRS, ids=" ".join)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with serving(PROGRAM, *request.param) as (found, _):
        yield found


@pytest.mark.req("HTTP-01", "HTTP-11", "HTTP-23", "HTTP-26")
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_our_client_through_each_server(url: str, endpoint: str) -> None:
    async def main() -> None:
        with trio.fail_after(20):
            async with open_http(f"{url}/{endpoint}/") as client:
                await converse(client)

    trio.run(main)


def test_our_client_over_websocket_through_each_server(url: str) -> None:
    async def main() -> None:
        with trio.fail_after(20):
            async with open_websocket(f"{url.replace('http', 'ws', 1)}/auto/mcp") as client:
                await converse(client)
            with pytest.raises(mcpio.ConnectFailed, match=r"40[34]"):
                async with open_websocket(f"{url.replace('http', 'ws', 1)}/auto/elsewhere"):
                    pass

    trio.run(main)


async def converse(client: mcpio.Client) -> None:
    progress: list[Any] = []
    assert [tool.name async for tool in client.tools()] == ["echo", "steps", "wait"]
    long = "é" * 100_000
    assert (await client.call_tool("echo", {"text": long})).content == (mcpio.TextContent(long),)
    await client.call_tool("steps", {"count": 3}, on_progress=lambda done, total, _: progress.append((done, total)))
    assert progress[-1] == (3, 3)
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(client.call_tool, "wait", {"seconds": 0.05})
    with trio.move_on_after(0.1) as scope:
        await client.call_tool("wait", {"seconds": 60})
    assert scope.cancelled_caught


@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_sdk_client_through_each_server(url: str, endpoint: str) -> None:
    async def main() -> None:
        reports: list[Any] = []

        async def report(progress: float, total: float | None, message: str | None) -> None:
            reports.append((progress, total))

        with anyio.fail_after(20):
            async with Client(f"{url}/{endpoint}/", mode="legacy", cache=None) as client:
                assert [tool.name for tool in (await client.list_tools()).tools] == ["echo", "steps", "wait"]
                result = await client.call_tool("echo", {"text": "hello"})
                assert result.content == [types.TextContent(type="text", text="hello")]
                await client.call_tool("steps", {"count": 3}, progress_callback=report)
        assert reports[-1] == (3, 3)

    anyio.run(main)


def test_framework_routes_still_answer(url: str, request: pytest.FixtureRequest) -> None:
    if "bare" in request.node.name:
        return
    import urllib.request

    with urllib.request.urlopen(f"{url}/page", timeout=10) as response:
        assert b"a page" in response.read()


ENDING_IN_TIME = ["uvicorn", "uvicorn-told", "hypercorn-trio"]
if sys.version_info < (3, 12):
    # From then on it waits for its clients, whatever the application does: asyncio waits for connections to end.
    ENDING_IN_TIME.append("hypercorn")


@pytest.mark.parametrize("server", ENDING_IN_TIME)
def test_sigterm_ends_open_streams_and_the_process(server: str) -> None:
    async def main() -> bytes:
        with trio.fail_after(30), serving(PROGRAM, server, "bare") as (url, process):
            async with open_http(f"{url}/auto") as client, trio.open_nursery() as nursery:
                await client.call_tool("echo", {"text": "x"})  # by now it listens, too
                began = trio.current_time()
                process.send_signal(signal.SIGTERM)
                _, errors = await trio.to_thread.run_sync(process.communicate)
                assert trio.current_time() - began < 5
                assert process.returncode in (0, -signal.SIGTERM)
                nursery.cancel_scope.cancel()
            return errors

    errors = trio.run(main)
    if server in ("uvicorn-told", "hypercorn-trio"):  # the others complain of what they cut off themselves
        assert errors == b""
