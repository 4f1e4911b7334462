"""Our client, asked by a server of the official SDK over standard input and output: forms, visits, models."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from mcpio import Client, RequestError
from mcpio.errors import SamplingRejected, URLElicitationRequired
from mcpio.trio import open_stdio
from mcpio.types import (
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitationCapability,
    ElicitationCompleteNotification,
    ElicitFormRequest,
    ElicitResult,
    ElicitURLRequest,
    Root,
    SamplingCapability,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)

SERVER = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("sdk_asking_server.py"))]
EVERYTHING = ClientCapabilities(
    sampling=SamplingCapability(tools={}), elicitation=ElicitationCapability(form={}, url={})
)


class Answers:
    """What our client answers, what it was asked, and what it heard."""

    def __init__(self, answer: ElicitResult) -> None:
        self.answer = answer
        self.asked: list[Any] = []
        self.heard: list[Any] = []

    def elicit(self, _: Any, request: Any) -> ElicitResult:
        self.asked.append(request)
        return self.answer

    def sample(self, _: Any, request: CreateMessageRequest) -> CreateMessageResult:
        self.asked.append(request)
        if len(self.asked) == 1:
            return CreateMessageResult("assistant", ToolUseContent("1", "temperature", {}), "the model", "toolUse")
        return CreateMessageResult("assistant", TextContent("warm"), "the model", "endTurn")


def talk(answers: Answers, conversation: Callable[[Client], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        given: dict[str, Any] = {
            "sampling": answers.sample,
            "elicitation": answers.elicit,
            "roots": [Root("file:///a")],
            "capabilities": EVERYTHING,
            "on_notification": answers.heard.append,
            "era": "handshake",  # its tools ask by requests of their own
            **options,
        }
        with trio.fail_after(20):
            async with open_stdio(SERVER, **given) as client:
                await conversation(client)

    trio.run(main)


async def text(client: Client, tool: str) -> str:
    result = await client.call_tool(tool)
    (block,) = result.content
    assert isinstance(block, TextContent)
    assert not result.is_error, block.text
    return block.text


@pytest.mark.req("ELIC-09", "ELIC-10", "ELIC-11")
@pytest.mark.parametrize(
    ("answer", "content"),
    [
        (ElicitResult("accept", {"to": "Oslo"}), {"to": "Oslo", "seat": "w", "extras": ["bag"]}),
        (ElicitResult("accept", {"to": "Oslo", "extras": ("meal",)}), {"to": "Oslo", "seat": "w", "extras": ["meal"]}),
        (ElicitResult("decline"), None),
        (ElicitResult("cancel"), None),
    ],
)
def test_elicitation_by_form(answer: ElicitResult, content: Any) -> None:
    answers = Answers(answer)

    async def conversation(client: Client) -> None:
        assert json.loads(await text(client, "book")) == [answer.action, content]

    talk(answers, conversation)
    (request,) = answers.asked
    assert isinstance(request, ElicitFormRequest)


@pytest.mark.req("ELIC-15", "ELIC-16")
def test_elicitation_by_url_and_its_completion() -> None:
    answers = Answers(ElicitResult("accept"))

    async def conversation(client: Client) -> None:
        assert await text(client, "connect") == "accept"
        await client.wait_for_elicitation("visit")

    talk(answers, conversation)
    assert answers.asked == [ElicitURLRequest("Log in", "https://example.com/connect", "visit")]
    assert answers.heard == [ElicitationCompleteNotification("visit")]


@pytest.mark.req("ELIC-17")
def test_url_elicitation_required_error() -> None:
    async def conversation(client: Client) -> None:
        with pytest.raises(URLElicitationRequired) as caught:
            await client.call_tool("locked")
        assert caught.value.elicitations == (ElicitURLRequest("Log in", "https://example.com/first", "first"),)

    talk(Answers(ElicitResult("accept")), conversation)


@pytest.mark.req("SAMP-08", "SAMP-11")
def test_sampling_with_tools() -> None:
    answers = Answers(ElicitResult("accept"))

    async def conversation(client: Client) -> None:
        assert await text(client, "advise") == "warm"

    talk(answers, conversation)
    first, second = answers.asked
    assert [tool.name for tool in first.tools] == ["temperature"]
    assert first.tool_choice.mode == "required"
    (result,) = second.messages[-1].blocks
    assert isinstance(result, ToolResultContent)
    assert (result.tool_use_id, result.content) == ("1", (TextContent("4"),))


@pytest.mark.req("SAMP-12")
def test_declined_elicitation() -> None:
    def refuse(*_: Any) -> CreateMessageResult:
        raise SamplingRejected

    async def conversation(client: Client) -> None:
        try:
            result = await client.call_tool("advise")
        except RequestError as error:
            said = str(error)
        else:
            said = str(result)
        assert "User rejected sampling request" in said

    talk(Answers(ElicitResult("accept")), conversation, sampling=refuse)


@pytest.mark.req("ROOT-03")
def test_roots_list_changed() -> None:
    async def conversation(client: Client) -> None:
        assert await text(client, "places") == "file:///a"
        client.set_roots([Root("file:///b")])
        assert await text(client, "places") == "changed file:///b"

    talk(Answers(ElicitResult("accept")), conversation)
