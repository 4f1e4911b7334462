from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from linked import Link

from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.errors import LocalProtocolError, Refusal, ToolError
from mcpio.types import (
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageResult,
    SamplingCapability,
    SamplingMessage,
    TextContent,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
)

WITH_TOOLS = ClientCapabilities(sampling=SamplingCapability(tools={}))
QUESTION = CreateMessageRequest((SamplingMessage("user", TextContent("What is the weather?")),), 100)
DONE = CreateMessageResult("assistant", TextContent("done"), "model", "endTurn")


def weather(city: str) -> str:
    """Tell the weather."""
    return f"rain in {city}"


async def temperature(city: str, ctx: Context) -> int:
    ctx.info(city)
    return 12


def fails() -> str:
    raise ToolError("no idea")


def refuses() -> str:
    raise Refusal(1001, "not today")


def use(name: str, id: str = "1", **arguments: Any) -> ToolUseContent:
    return ToolUseContent(id, name, arguments)


def says(*blocks: Any) -> CreateMessageResult:
    return CreateMessageResult("assistant", blocks if len(blocks) > 1 else blocks[0], "model", "toolUse")


def worked(
    *answers: CreateMessageResult,
    functions: Any = (weather, temperature, fails, refuses),
    request: Any = QUESTION,
    **options: Any,
) -> tuple[Any, list[CreateMessageRequest]]:
    """Have a model, that says these things and then its last one for ever, work with functions."""
    server, found = Server("s"), list[Any]()
    seen: list[CreateMessageRequest] = []

    @server.tool
    async def tool(ctx: Context) -> None:
        try:
            found.append(await ctx.sample_with_tools(request, functions, **options))
        except Exception as error:
            found.append(error)

    def sample(_: Any, asked: CreateMessageRequest) -> CreateMessageResult:
        seen.append(asked)
        return answers[min(len(seen), len(answers)) - 1]

    link = Link(server, sampling=sample, capabilities=WITH_TOOLS, era="handshake")
    link.call("tool")
    return found[0], seen


def results_in(request: CreateMessageRequest) -> list[Any]:
    results = [block for block in request.messages[-1].blocks if isinstance(block, ToolResultContent)]
    return [(each.tool_use_id, getattr(each.content[0], "text", None), each.is_error) for each in results]


@pytest.mark.req("SAMP-08", "SAMP-09", "SAMP-10", "SAMP-11", "TOOL-24")
def test_tools_run_until_the_model_answers() -> None:
    both = says(TextContent("Let me see"), use("weather", "1", city="Oslo"), use("temperature", "2", city="Oslo"))
    found, (first, second) = worked(both, DONE)
    assert found == DONE
    assert [tool.name for tool in first.tools or ()] == ["weather", "temperature", "fails", "refuses"]
    assert second.tools == first.tools
    assert second.messages[:1] == QUESTION.messages
    assert second.messages[1] == SamplingMessage("assistant", both.content)
    assert second.messages[2].role == "user"
    assert results_in(second) == [("1", "rain in Oslo", False), ("2", '{"result":12}', False)]


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (use("fails"), "no idea"),
        (use("refuses"), "not today"),
        (use("none"), "Unknown tool: none"),
        (use("weather", city=5), "Invalid value in 'weather': arguments.city: expected a string, got 5"),
    ],
)
def test_tool_failures_are_sent_to_the_model(wanted: ToolUseContent, text: str) -> None:
    found, (_, second) = worked(says(wanted), DONE)
    assert found == DONE
    assert results_in(second) == [("1", text, True)]


@pytest.mark.req("SAMP-15")
def test_last_round_asks_for_the_answer_without_tools() -> None:
    answers = [says(use("weather", city="Oslo"))] * 2 + [DONE]
    found, seen = worked(*answers, rounds=2)
    assert found == DONE
    assert [asked.tool_choice for asked in seen] == [None, None, ToolChoice("none")]


@pytest.mark.req("SAMP-08", "SAMP-15")
def test_tool_use_beyond_the_rounds_is_an_internal_error() -> None:
    found, seen = worked(says(use("weather", city="Oslo")), rounds=1)
    assert "Internal error" in str(found)
    assert len(seen) == 2


@pytest.mark.req("SAMP-08")
def test_required_tool_choice_holds_for_one_round() -> None:
    request = CreateMessageRequest(QUESTION.messages, 100, tool_choice=ToolChoice("required"))
    found, seen = worked(says(use("weather", city="Oslo")), DONE, request=request)
    assert found == DONE
    assert [asked.tool_choice for asked in seen] == [ToolChoice("required"), None]


def test_each_question_has_a_distinct_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[Any] = []
    sample: Callable[..., Any] = Context.sample

    def noting(self: Context, request: CreateMessageRequest, **options: Any) -> Any:
        keys.append(options.get("key"))
        return sample(self, request, **options)

    monkeypatch.setattr(Context, "sample", noting)
    worked(says(use("fails")), DONE, key="weather")
    worked(says(use("fails")), DONE)
    assert keys == ["weather.0", "weather.1", None, None]


@pytest.mark.parametrize(
    ("options", "kind", "reason"),
    [
        ({"rounds": 0}, ValueError, "one round with its tools, not 0"),
        ({"rounds": 2.5}, ValueError, "one round with its tools, not 2.5"),
        ({"functions": [5]}, TypeError, "the handler must be a function, not 5"),
        ({"functions": [weather, weather]}, ValueError, "weather"),
    ],
)
def test_invalid_sampling_request_raises(options: Any, kind: type[Exception], reason: str) -> None:
    found, seen = worked(DONE, **options)
    assert isinstance(found, kind)
    assert reason in str(found)
    assert seen == []


def test_a_client_without_tools_is_not_asked() -> None:
    server, found = Server("s"), []

    @server.tool
    async def tool(ctx: Context) -> None:
        with pytest.raises(LocalProtocolError, match=r"sampling\.tools"):
            await ctx.sample_with_tools(QUESTION, [weather])
        found.append(True)

    Link(server, sampling=lambda *_: DONE).call("tool")
    assert found == [True]


def test_mask_errors_hides_exceptions_from_the_model() -> None:
    def breaks() -> str:
        raise KeyError("secret")

    server = Server("s", mask_errors=True)
    seen: list[CreateMessageRequest] = []

    @server.tool
    async def tool(ctx: Context) -> None:
        await ctx.sample_with_tools(QUESTION, [breaks])

    def sample(_: Any, asked: CreateMessageRequest) -> CreateMessageResult:
        seen.append(asked)
        return says(use("breaks")) if len(seen) == 1 else DONE

    Link(server, sampling=sample, capabilities=WITH_TOOLS).call("tool")
    assert results_in(seen[1]) == [("1", "'breaks' failed", True)]
