"""The official SDK's client, asked by our server over standard input and output: forms, visits, a model with tools."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import mcp.types as types
import pytest
from mcp import Client, MCPError, StdioServerParameters

pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")

SERVER = Path(__file__).with_name("asking_server.py")


class Answers:
    """What the SDK's client answers, what it was asked, and what it heard."""

    def __init__(self, content: dict[str, Any] | None = None, action: Any = "accept") -> None:
        self.content = content
        self.action = action
        self.roots = ["file:///a"]
        self.asked: list[Any] = []
        self.heard: list[Any] = []

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params)
        return types.ElicitResult(action=self.action, content=self.content)

    async def sample(self, context: Any, params: types.CreateMessageRequestParams) -> Any:
        self.asked.append(params)
        if len(self.asked) == 1:
            use = types.ToolUseContent(type="tool_use", id="1", name="temperature", input={"city": "Oslo"})
            return types.CreateMessageResultWithTools(
                role="assistant", content=[use], model="the model", stop_reason="toolUse"
            )
        said = types.TextContent(type="text", text="warm")
        return types.CreateMessageResult(role="assistant", content=said, model="the model", stop_reason="endTurn")

    async def list_roots(self, context: Any) -> types.ListRootsResult:
        self.asked.append("roots")
        return types.ListRootsResult.model_validate({"roots": [{"uri": uri} for uri in self.roots]})

    async def hear(self, message: Any) -> None:
        self.heard.append(message)


def talk(answers: Answers, conversation: Callable[[Client], Awaitable[None]]) -> None:
    async def main() -> None:
        client = Client(
            StdioServerParameters(command=sys.executable, args=[str(SERVER)]),
            mode="legacy",
            sampling_callback=answers.sample,
            sampling_capabilities=types.SamplingCapability(tools=types.SamplingToolsCapability()),
            elicitation_callback=answers.elicit,
            list_roots_callback=answers.list_roots,
            message_handler=answers.hear,
            cache=None,
        )
        with anyio.fail_after(20):
            async with client:
                await conversation(client)

    anyio.run(main)


async def text(client: Client, tool: str) -> str:
    result = await client.call_tool(tool)
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    assert not result.is_error, block.text
    return block.text


@pytest.mark.req("ELIC-01", "ELIC-03", "ELIC-08", "ELIC-10", "ELIC-11")
@pytest.mark.parametrize(
    ("action", "content", "meaning"),
    [
        (
            "accept",
            {"to": "Oslo", "extras": ["bag"], "people": 2},
            "Accepted(value=Booking(to='Oslo', extras=('bag',), people=2, note=None))",
        ),
        ("accept", {"to": "Oslo"}, "Accepted(value=Booking(to='Oslo', extras=(), people=1, note=None))"),
        ("decline", None, "Declined()"),
        ("cancel", None, "Cancelled()"),
    ],
)
def test_elicitation_by_form(action: str, content: Any, meaning: str) -> None:
    answers = Answers(content, action)

    async def conversation(client: Client) -> None:
        assert await text(client, "book") == meaning

    talk(answers, conversation)
    (params,) = answers.asked
    assert isinstance(params, types.ElicitRequestFormParams)
    assert params.message == "Where to?"
    assert params.requested_schema["required"] == ["to"]
    assert params.requested_schema["properties"]["people"] == {"type": "integer", "default": 1}


@pytest.mark.req("ELIC-12")
def test_form_content_against_its_schema_fails_the_tool() -> None:
    async def conversation(client: Client) -> None:
        result = await client.call_tool("book")
        assert result.is_error
        assert "content.to: expected at least 3 characters" in str(result.content)

    talk(Answers({"to": "Os"}), conversation)


@pytest.mark.req("ELIC-14", "ELIC-15", "ELIC-16")
def test_elicitation_by_url_and_its_completion() -> None:
    answers = Answers()

    async def conversation(client: Client) -> None:
        assert await text(client, "connect") == "accept"
        await client.send_ping()

    talk(answers, conversation)
    (params,) = answers.asked
    assert isinstance(params, types.ElicitRequestURLParams)
    assert (params.url, params.elicitation_id) == ("https://example.com/connect", "visit")
    (heard,) = answers.heard
    assert isinstance(heard, types.ElicitCompleteNotification)
    assert heard.params.elicitation_id == "visit"


@pytest.mark.req("ELIC-17")
def test_url_elicitation_required_error() -> None:
    async def conversation(client: Client) -> None:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("locked")
        assert caught.value.error.code == types.URL_ELICITATION_REQUIRED
        (visit,) = caught.value.error.data["elicitations"]
        assert types.ElicitRequestURLParams.model_validate(visit).elicitation_id == "first"

    talk(Answers(), conversation)


@pytest.mark.req("SAMP-05", "SAMP-08", "SAMP-11")
def test_sampling_with_tools() -> None:
    answers = Answers()

    async def conversation(client: Client) -> None:
        assert await text(client, "advise") == "warm"

    talk(answers, conversation)
    first, second = answers.asked
    assert [tool.name for tool in first.tools] == ["temperature"]
    results = second.messages[-1].content
    (result,) = results if isinstance(results, list) else [results]
    assert isinstance(result, types.ToolResultContent)
    assert result.tool_use_id == "1"
    assert result.structured_content == {"result": 4}


@pytest.mark.req("ROOT-03", "ROOT-06")
def test_changed_roots_are_requested_again() -> None:
    answers = Answers()

    async def conversation(client: Client) -> None:
        assert await text(client, "places") == "file:///a"
        asked = len(answers.asked)
        answers.roots.append("file:///b")
        await client.send_roots_list_changed()
        assert await text(client, "places") == "file:///a file:///b"
        assert len(answers.asked) == asked + 1

    talk(answers, conversation)
