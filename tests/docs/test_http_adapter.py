"""The example of an adapter for HTTP serves sessions, streams and both eras, and notices clients that leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import closing
from typing import Any, Literal
from urllib.parse import urlsplit

import http_adapter
import pytest

from mcpio.asyncio import open_http

Era = Literal["handshake", "stateless"]
ERAS = pytest.mark.parametrize("era", ["handshake", "stateless"])
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - the example has no event for it
        await asyncio.sleep(0)


def run(main: Callable[[http_adapter.Counter, str], Any]) -> None:
    async def serve() -> None:
        async with http_adapter.serving() as (app, url):
            await main(app, url)
        await until(lambda: app.adapter.machine.closed)
        assert not app.running

    asyncio.run(asyncio.wait_for(serve(), 30))


@ERAS
def test_concurrent_calls_are_answered_with_their_reports(era: Era) -> None:
    async def main(_: object, url: str) -> None:
        reports: dict[int, list[float]] = {n: [] for n in range(1, 9)}

        async def call(client: Any, to: int) -> None:
            result = await client.call_tool("count", {"to": to}, on_progress=lambda done, *_: reports[to].append(done))
            assert result.text == f"{to}!"

        async with open_http(url, era=era) as client:
            await asyncio.gather(*(call(client, to) for to in reports))
        assert all(reports[to][-1] == to for to in reports)

    run(main)


@ERAS
def test_cancelled_call_ends_its_handler(era: Era) -> None:
    async def main(app: http_adapter.Counter, url: str) -> None:
        async with open_http(url, era=era) as client:
            call = asyncio.create_task(client.call_tool("count", {"to": 10_000}))
            await until(lambda: bool(app.running))
            call.cancel()
            await until(lambda: not app.running)

    run(main)


def head(body: bytes, *fields: str) -> bytes:
    lines = ["POST /mcp HTTP/1.1", "host: localhost", f"content-length: {len(body)}", "content-type: application/json"]
    lines += ["accept: application/json, text/event-stream", *fields]
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.mark.parametrize("further", [b"", b"x"])
def test_stateless_client_that_disconnects_ends_its_call(further: bytes) -> None:
    async def main(app: http_adapter.Counter, url: str) -> None:
        params = {"name": "count", "arguments": {"to": 10_000}, "_meta": ENVELOPE}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        fields = ("mcp-protocol-version: 2026-07-28", "mcp-method: tools/call", "mcp-name: count")
        _, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        with closing(writer):
            writer.write(head(body, *fields) + body + further)
            await until(lambda: bool(app.running))
        await until(lambda: not app.running)

    run(main)


def test_client_that_breaks_off_its_request_is_forgotten() -> None:
    async def main(app: http_adapter.Counter, url: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        with closing(writer):
            writer.write(head(b"x" * 100) + b"x")
            writer.write_eof()
            assert await reader.read() == b""

    run(main)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (head(b"{", "expect: 100-continue"), b"100"),
        (head(b"{") + b"{", b"400"),
        (b"POST /mcp HTTP/1.1\r\nhost: example.com\r\ncontent-length: 9\r\n\r\n", b"403"),
        (b"GET /other HTTP/1.1\r\nhost: localhost\r\n\r\n", b"404"),
    ],
)
def test_request_gets_its_status(sent: bytes, status: bytes) -> None:
    async def main(_: object, url: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        with closing(writer):
            writer.write(sent)
            assert (await reader.readline()).split()[1] == status

    run(main)


def test_close_ends_a_session_that_is_open() -> None:
    async def main(app: http_adapter.Counter, url: str) -> None:
        async with open_http(url, era="handshake") as client:
            await client.call_tool("count", {"to": 1})
            app.adapter.machine.close(asyncio.get_running_loop().time(), grace=0.0)
            app.adapter.touch()
            assert app.adapter.machine.sessions == ()

    run(main)
