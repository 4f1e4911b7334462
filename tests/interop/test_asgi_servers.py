"""The ASGI application under real servers and in real frameworks, with our own client and the official SDK's."""

from __future__ import annotations

import contextlib
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
from mcpio.revisions import HANDSHAKE_REVISIONS, REVISIONS
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


ENDING_IN_TIME = ["uvicorn", "uvicorn-limited", "hypercorn-trio"]
if sys.version_info < (3, 12):
    # From then on it waits for its clients, whatever the application does: asyncio waits for connections to end.
    ENDING_IN_TIME.append("hypercorn")


@pytest.mark.parametrize("revisions", [HANDSHAKE_REVISIONS, REVISIONS], ids=["session", "stateless"])
@pytest.mark.parametrize("framework", ["bare", "starlette"])
@pytest.mark.parametrize("server", ENDING_IN_TIME)
def test_sigterm_ends_open_streams_and_the_process(server: str, framework: str, revisions: Any) -> None:
    async def main() -> bytes:
        with trio.fail_after(30), serving(PROGRAM, server, framework) as (url, process):
            options = mcpio.Options(revisions=revisions)
            async with (
                open_http(f"{url}/auto", options=options) as client,
                open_websocket(f"{url.replace('http', 'ws')}/auto/mcp", options=options),
                client.listen(tools=True),
            ):
                await client.call_tool("echo", {"text": "x"})
                process.send_signal(signal.SIGTERM)
                _, errors = await trio.to_thread.run_sync(process.communicate)
                assert process.returncode in (0, -signal.SIGTERM)
            return errors

    errors = trio.run(main)
    if server != "hypercorn":  # it complains of what it cut off itself
        assert errors == b""


@pytest.mark.parametrize("revisions", [HANDSHAKE_REVISIONS, REVISIONS], ids=["session", "stateless"])
def test_uvicorn_ends_running_handlers_quietly_within_its_limit(revisions: Any) -> None:
    async def main() -> bytes:
        with trio.fail_after(30), serving(PROGRAM, "uvicorn-limited", "bare") as (url, process):
            async with open_http(f"{url}/auto", options=mcpio.Options(revisions=revisions)) as client:
                begun = trio.Event()

                async def call() -> None:
                    with contextlib.suppress(mcpio.McpError):
                        await client.call_tool("steps", {"count": 10_000}, on_progress=lambda *_: begun.set())

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(call)
                    await begun.wait()
                    process.send_signal(signal.SIGTERM)
                    _, errors = await trio.to_thread.run_sync(process.communicate)
                    nursery.cancel_scope.cancel()
            return errors

    assert trio.run(main) == b""
