"""What a client is told that lacks what an answer needs: by name, and without losing the rest."""

from __future__ import annotations

from typing import Any

import pytest
from linked import Link
from questions import ELICIT

from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.engine.options import Options
from mcpio.errors import RequestError, URLElicitationRequired
from mcpio.revisions import REV_2024_11_05, Era
from mcpio.types import (
    AudioContent,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitURLRequest,
    GetPromptResult,
    PromptMessage,
    ResourceLink,
    SamplingMessage,
    TextContent,
    Tool,
)


def failure(link: Link, coroutine: Any) -> RequestError:
    with pytest.raises(RequestError) as raised:
        link.do(coroutine)
    assert link.errors == [], "no traceback"
    return raised.value


@pytest.mark.req("MRTR-04")
def test_question_in_a_prompt_or_resource_names_the_missing_capability() -> None:
    server = Server("s")

    @server.prompt
    async def ask(ctx: Context) -> str:
        return str(await ctx.elicit(ELICIT))

    @server.resource("a:1")
    async def read(ctx: Context) -> str:
        return str(await ctx.elicit(ELICIT))

    link = Link(server, era="handshake")
    asks: list[Any] = [lambda: link.client.get_prompt("ask"), lambda: link.client.read_resource("a:1")]
    for ask_for in asks:
        error = failure(link, ask_for())
        assert error.code == -32603
        assert "elicitation/create needs the capability elicitation" in error.message
        assert list(error.data["requiredCapabilities"]) == ["elicitation"]


@pytest.mark.req("ELIC-17")
@pytest.mark.parametrize("kind", ["tool", "prompt"])
def test_address_for_a_client_without_the_capability_is_named(kind: str) -> None:
    server = Server("s")

    def visit() -> str:
        raise URLElicitationRequired((ElicitURLRequest("Sign in", "https://a.example/", "7"),), "Please sign in")

    (server.tool if kind == "tool" else server.prompt)(visit)
    link = Link(server, era="handshake")
    error = failure(link, link.client.call_tool("visit") if kind == "tool" else link.client.get_prompt("visit"))
    assert error.code == -32603
    assert error.message.startswith("Please sign in (this needs the capability elicitation.url")
    assert error.data["elicitations"][0]["url"] == "https://a.example/"


def test_blocks_that_the_revision_lacks_become_texts() -> None:
    server = Server("s")
    blocks = (TextContent("a"), AudioContent("aGk=", "audio/wav"), ResourceLink("a:1", "doc"))

    @server.tool
    def mixed() -> Any:
        return list(blocks)

    @server.prompt
    def said() -> GetPromptResult:
        return GetPromptResult(tuple(PromptMessage("user", block) for block in blocks))

    link = Link(server, options=Options(revisions=(REV_2024_11_05,)), era="handshake")
    texts = ["a", "[audio/wav, which revision 2024-11-05 lacks]", "doc: a:1"]
    called: Any = link.do(link.client.call_tool("mixed"))
    assert [block.text for block in called.content] == texts
    got: Any = link.do(link.client.get_prompt("said"))
    assert [each.content.text for each in got.messages] == texts
    assert link.reports == []


@pytest.mark.req("TOOL-06", "TOOL-08", "GONE-07")
@pytest.mark.parametrize("era", ["stateless", "handshake"])
def test_output_that_is_no_object_is_left_out_in_sessions_and_sent_without(era: Any) -> None:
    server = Server("s")
    schema = {"type": "array", "items": {"type": "integer"}}

    @server.tool(output_schema=schema)
    def count() -> Any:
        return [1, 2]

    @server.tool
    def plain() -> int:
        return 1

    link = Link(server, era=era)

    async def listed() -> list[Tool]:
        return [tool async for tool in link.client.tools()]

    schemas = [tool.output_schema for tool in link.do(listed())]
    called: Any = link.do(link.client.call_tool("count"))
    is_stateless = link.client.era is Era.STATELESS
    assert schemas[0] == (schema if is_stateless else None)
    assert schemas[1] is not None
    assert called.structured_content == ([1, 2] if is_stateless else None)
    assert called.text == "[1,2]"
    assert link.reports == []


@pytest.mark.parametrize("many", [False, True])
def test_sampled_block_that_the_revision_lacks_becomes_text(many: bool) -> None:
    server = Server("s")

    @server.tool
    async def ask(ctx: Context) -> str:
        result = await ctx.sample(CreateMessageRequest((SamplingMessage("user", TextContent("?")),), 9))
        return result.text

    async def sampling(_: Any, __: Any) -> CreateMessageResult:
        audio = AudioContent("aGk=", "audio/wav")
        return CreateMessageResult("assistant", (audio,) if many else audio, "m")

    link = Link(server, sampling=sampling, options=Options(revisions=(REV_2024_11_05,)), era="handshake")
    called: Any = link.do(link.client.call_tool("ask"))
    assert called.text == "[audio/wav, which revision 2024-11-05 lacks]"
