"""``serve_http(access_log=True)``: one line for each request, over both versions of HTTP."""

from __future__ import annotations

import logging
import re

import pytest
import trio.testing
from http2wire import Http2Client, Shop, http2_site, message, session
from triowire import RawHttp, in_virtual_time, memory_site

from mcpio.http.model import HttpOptions


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged, without the times."""
    said = [record.getMessage() for record in caplog.records if record.name == "mcpio.access"]
    return [re.sub(r" \d+ ms ", " ", line) for line in said]


def test_requests_over_http1_are_logged_when_their_responses_have_ended(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with memory_site(Shop().server, access_log=True, options=HttpOptions(health="/health")) as site:
            client = RawHttp(site.listener.connect())
            for path in ("/health", "/else%0a?token=secret"):
                await client.say(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
                heard = await client.hear()
                sizes.append(len(heard.body))
            # A request whose client disconnects before its end.
            await client.say(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{")
            await trio.testing.wait_all_tasks_blocked()
            await client.stream.aclose()
            await trio.testing.wait_all_tasks_blocked()

    sizes: list[int] = []
    with caplog.at_level(logging.INFO, "mcpio.access"):
        in_virtual_time(main)
    assert lines(caplog)[:2] == [f"GET /health 200 {sizes[0]} bytes -", f"GET /else%0a 404 {sizes[1]} bytes -"]
    assert re.fullmatch(r"POST /mcp (-|\d+) \d+ bytes -", lines(caplog)[2])


def test_requests_over_http2_are_logged_when_their_responses_have_ended(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        shop = Shop()
        async with http2_site(shop.server, access_log=True, options=HttpOptions(answers="sse")) as (site, nursery):
            client = await Http2Client(site.listener.connect()).begin(nursery)
            headers = await session(client)
            waiting = await client.ask("POST", "/mcp", headers, message("wait"))
            flood = await client.ask("POST", "/mcp", headers, message("flood", 2, progress=True, count=100))
            await client.settle()
            sizes.append(len(flood.data))
            shop.go_on.set()
            await client.settle()
            sizes.append(len(waiting.data))
            cut = await client.ask("POST", "/mcp", headers, message("wait", 3), ends=False)
            await client.reset(cut)
            await client.settle()

    sizes: list[int] = []
    with caplog.at_level(logging.INFO, "mcpio.access"):
        in_virtual_time(main)
    ended = [f"POST /mcp 200 {size} bytes -" for size in sizes]
    assert lines(caplog)[2:] == [*ended, "POST /mcp - 0 bytes -"]
