"""The official SDK's client with our server over HTTP, beyond what it does over every transport: test_sdk_client.py."""

from __future__ import annotations

from typing import Any

import anyio
import mcp.types as types
import pytest
from listening import serving
from mcp import Client, MCPError
from sdktalk import SERVER, talk_to_server

pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")

ALONE = pytest.mark.parametrize("way", ["http-alone", "asgi-alone"])


@ALONE
@pytest.mark.req("HTTP-32")
def test_sessionless_server_offers_everything_but_server_requests(way: str) -> None:
    with talk_to_server("2025-11-25", way) as talk:
        assert isinstance(talk.do(lambda client: client.send_ping()), types.EmptyResult)
        page = talk.do(lambda client: client.list_tools())
        assert len(page.tools) == 3
        assert talk.do(lambda client: client.list_tools(cursor=page.next_cursor)).tools != page.tools
        assert talk.do(lambda client: client.call_tool("add", {"a": 2})).structured_content == {"result": 3}
        assert talk.do(lambda client: client.list_resources()).resources
        assert talk.do(lambda client: client.list_resource_templates()).resource_templates
        read = talk.do(lambda client: client.read_resource("notes://x"))
        assert isinstance(read.contents[0], types.TextResourceContents)
        assert read.contents[0].text == "the note x"
        prompt = talk.do(lambda client: client.get_prompt("hello", {"name": "Ada"}))
        assert len(prompt.messages) == 2
        hello = types.PromptReference(type="ref/prompt", name="hello")
        found = talk.do(lambda client: client.complete(hello, {"name": "name", "value": "A"}))
        assert found.completion.values == ["Ada", "Alan"]
        with pytest.raises(MCPError, match="Unknown tool"):
            talk.do(lambda client: client.call_tool("none"))


@ALONE
def test_sessionless_progress_precedes_the_response_without_logs(way: str) -> None:
    reports: list[Any] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, total))

    with talk_to_server("2025-11-25", way) as talk:
        talk.do(lambda client: client.call_tool("count", {"to": 3}, progress_callback=report))
        talk.do(lambda client: client.call_tool("log"))
        assert reports[-1] == (3, 3)
        assert talk.logs == []


@ALONE
@pytest.mark.req("HTTP-37")
@pytest.mark.parametrize("tool", ["ask_model", "ask_user", "ask_roots", "ping_back"])
def test_sessionless_elicitation_fails_the_call(way: str, tool: str) -> None:
    with talk_to_server("2025-11-25", way) as talk:
        assert talk.do(lambda client: client.call_tool(tool)).is_error
        assert talk.asked == []


@pytest.mark.parametrize("way", ["http", "asgi"])
def test_concurrent_clients_have_separate_sessions(way: str) -> None:
    async def one(url: str, number: int) -> None:
        async with Client(f"{url}/mcp", mode="legacy", cache=None) as client:
            for _ in range(10):
                result = await client.call_tool("add", {"a": number})
                assert result.structured_content == {"result": number + 1}

    async def main() -> None:
        with anyio.fail_after(30), serving(SERVER, "2025-11-25", way) as (url, _):
            async with anyio.create_task_group() as group:
                for number in range(8):
                    group.start_soon(one, url, number)

    anyio.run(main)
