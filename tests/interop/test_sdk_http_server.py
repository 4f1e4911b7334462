"""Our client in a whole conversation with servers written with the official SDK, over HTTP in all its shapes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trio

from mcpio import Client
from mcpio.errors import RequestError, RequestTimeout, UnexpectedResponse
from mcpio.trio import open_http
from mcpio.types import ElicitResult, Root, ToolListChangedNotification

MODES = ["json", "sse", "resumable", "stateless-json", "stateless-sse", "legacy"]
SESSIONFUL = ["sse", "resumable", "legacy"]

Urls = Callable[[str], str]


@pytest.fixture(scope="module")
def urls() -> Iterator[Urls]:
    """Give a function for the URL of a server, which is started when it is first asked for."""
    started: dict[str, str] = {}

    def get(mode: str) -> str:
        if mode not in started:
            script = Path(__file__).with_name("sdk_http_server.py")
            process = stack.enter_context(
                subprocess.Popen([sys.executable, "-W", "ignore", str(script), mode], stdout=subprocess.PIPE, text=True)
            )
            stack.callback(process.kill)
            assert process.stdout is not None
            port = int(process.stdout.readline())
            started[mode] = f"http://127.0.0.1:{port}/{'sse' if mode == 'legacy' else 'mcp'}"
        return started[mode]

    with ExitStack() as stack:
        yield get


def talk(url: str, play: Callable[[Client], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        with trio.fail_after(20):
            async with open_http(url, **{"era": "handshake", **options}) as client:
                await play(client)

    trio.run(main)


@pytest.mark.req("HTTP-12", "FALL-06", "FALL-07", "SESS-10")
@pytest.mark.parametrize("mode", MODES)
def test_tools_are_listed_and_called(urls: Urls, mode: str) -> None:
    async def play(client: Client) -> None:
        assert client.server.info.name == "the SDK"
        assert "echo" in [tool.name async for tool in client.tools()]
        async with trio.open_nursery() as nursery:
            for number in range(10):

                async def call(text: str = str(number)) -> None:
                    assert (await client.call_tool("echo", {"text": text})).text == text

                nursery.start_soon(call)
        assert (await client.call_tool("fail")).is_error
        with pytest.raises(RequestError):
            await client.read_resource("nothing://here")
        await client.ping()

    talk(urls(mode), play)


@pytest.mark.parametrize("mode", ["sse", "resumable", "stateless-sse", "legacy"])
def test_progress_precedes_the_response(urls: Urls, mode: str) -> None:
    seen: list[Any] = []

    async def play(client: Client) -> None:
        await client.call_tool("count", {"to": 3}, on_progress=lambda *step: seen.append(step))

    talk(urls(mode), play)
    assert seen == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


@pytest.mark.parametrize("mode", SESSIONFUL)
def test_elicitation_and_list_changed_over_http(urls: Urls, mode: str) -> None:
    async def play(client: Client) -> None:
        assert (await client.call_tool("ask_user")).text == "accept Ada"
        assert (await client.call_tool("ask_roots")).text == "file:///a=a"
        await client.call_tool("grow")
        await told.wait()

    def hear(notification: Any) -> None:
        heard.append(notification)
        told.set()

    heard: list[Any] = []
    told = trio.Event()
    talk(
        urls(mode),
        play,
        elicitation=lambda scope, request: ElicitResult("accept", {"name": "Ada"}),
        roots=[Root("file:///a", "a")],
        on_notification=hear,
    )
    assert heard == [ToolListChangedNotification()]


@pytest.mark.req("HTTP-21", "HTTP-22", "RESUME-03")
def test_response_is_resumed_after_the_server_closes_its_stream(urls: Urls) -> None:
    seen: list[Any] = []

    async def play(client: Client) -> None:
        result = await client.call_tool("poll", on_progress=lambda *step: seen.append(step))
        assert result.text == "polled"

    talk(urls("resumable"), play)
    assert seen == [(1, 2, "before"), (2, 2, "after")]


@pytest.mark.req("CANC-10")
@pytest.mark.parametrize("mode", MODES)
def test_client_is_usable_after_a_cancelled_call(urls: Urls, mode: str) -> None:
    async def play(client: Client) -> None:
        with pytest.raises(RequestTimeout):
            await client.call_tool("wait", timeout=0.1)
        with trio.move_on_after(0.1) as scope:
            await client.call_tool("wait")
        assert scope.cancelled_caught
        assert (await client.call_tool("echo", {"text": "x"})).text == "x"

    talk(urls(mode), play)


def test_url_without_mcp_gives_a_clear_error(urls: Urls) -> None:
    async def main() -> None:
        url = urls("sse").replace("/mcp", "/nothing")
        with pytest.raises(Exception, match="status 404: text/plain in answer to a request: 'Not Found'") as caught:
            async with open_http(url):
                pass
        assert isinstance(caught.value.__cause__, UnexpectedResponse)

    trio.run(main)
