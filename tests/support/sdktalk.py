"""The official SDK's client, in a thread of its own, and a server of ours for it: tests ask it things."""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.from_thread
import httpx2
import mcp.types as types
from listening import serving
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

T = TypeVar("T")

SERVER = Path(__file__).parents[1] / "interop" / "mcpio_server.py"


class Talk:
    """The SDK's client, what it heard, and a way to ask it things from a test."""

    def __init__(self, portal: anyio.from_thread.BlockingPortal, server: Any) -> None:
        self.heard: list[Any] = []
        self.logs: list[types.LoggingMessageNotificationParams] = []
        self.asked: list[Any] = []
        self.news = threading.Semaphore(0)
        self._portal = portal
        self.client = Client(
            server,
            mode="legacy",
            client_info=types.Implementation(name="the SDK", version="2"),
            sampling_callback=self.sample,
            elicitation_callback=self.elicit,
            list_roots_callback=self.list_roots,
            logging_callback=self.log,
            message_handler=self.hear,
            cache=None,
        )

    def do(self, call: Callable[[Client], Awaitable[T]]) -> T:
        """Have the client do something, and wait for it."""

        async def bounded() -> T:
            with anyio.fail_after(10):
                return await call(self.client)

        return self._portal.call(bounded)

    def text(self, tool: str, arguments: dict[str, Any] | None = None) -> str:
        result = self.do(lambda client: client.call_tool(tool, arguments))
        (block,) = result.content
        assert isinstance(block, types.TextContent)
        assert not result.is_error, block.text
        return block.text

    def wait_for(self, count: int) -> None:
        """Wait for that many notifications."""
        for _ in range(count):
            assert self.news.acquire(timeout=10)

    async def hear(self, message: Any) -> None:
        self.heard.append(message)
        self.news.release()

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.logs.append(params)

    async def sample(self, context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        self.asked.append(params)
        return types.CreateMessageResult(
            role="assistant", content=types.TextContent(type="text", text="4"), model="the model", stop_reason="endTurn"
        )

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params)
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async def list_roots(self, context: Any) -> types.ListRootsResult:
        return types.ListRootsResult.model_validate({"roots": [{"uri": "file:///a", "name": "a"}]})


@contextmanager
def talk_to_server(revision: str, way: str) -> Iterator[Talk]:
    """Let the client talk to ``mcpio_server.py``, which knows the ways."""
    with ExitStack() as stack:
        server: Any
        if way == "stdio":
            server = StdioServerParameters(command=sys.executable, args=[str(SERVER), revision, way])
        else:
            url, _ = stack.enter_context(serving(SERVER, revision, way))
            server = over_http2(f"{url}/mcp") if way == "http2" else f"{url}/mcp"
        portal = stack.enter_context(anyio.from_thread.start_blocking_portal("asyncio"))
        talk = Talk(portal, server)
        stack.enter_context(portal.wrap_async_context_manager(talk.client))
        yield talk


class ConnectionForEach(httpx2.AsyncBaseTransport):
    """Makes each request on an HTTP/2 connection of its own.

    httpcore2 up to 2.16.2 may wait for ever when a response comes while another is under way on the same connection,
    whatever server sent it (hypercorn's too).
    """

    def __init__(self) -> None:
        self._used: list[httpx2.AsyncHTTPTransport] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self._used.append(httpx2.AsyncHTTPTransport(http1=False, http2=True))
        return await self._used[-1].handle_async_request(request)

    async def aclose(self) -> None:
        for transport in self._used:
            await transport.aclose()


@asynccontextmanager
async def over_http2(url: str) -> AsyncIterator[Any]:
    """Have the client speak HTTP/2, and nothing else."""

    async def check(response: httpx2.Response) -> None:
        assert response.http_version == "HTTP/2"

    async with (
        httpx2.AsyncClient(transport=ConnectionForEach(), event_hooks={"response": [check]}, timeout=30) as http,
        streamable_http_client(url, http_client=http) as streams,
    ):
        yield streams
