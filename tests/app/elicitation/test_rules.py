from __future__ import annotations

from typing import Any

import pytest

from mcpio.app.asking import fault_in_elicited, fault_in_sampled
from mcpio.types import (
    CreateMessageRequest,
    CreateMessageResult,
    ElicitFormRequest,
    ElicitRequest,
    ElicitResult,
    ElicitSchema,
    ElicitURLRequest,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
)

TEXT = TextContent("text")


def use(id: str) -> ToolUseContent:
    return ToolUseContent(id, "tool", {})


def result(id: str) -> ToolResultContent:
    return ToolResultContent(id, (TEXT,))


def user(*content: Any) -> SamplingMessage:
    return SamplingMessage("user", content)


TOOLS = (Tool("a", {"type": "object"}),)


def asks(mode: Any, tools: Any = TOOLS) -> CreateMessageRequest:
    choice = None if mode is ... else ToolChoice(mode)
    return CreateMessageRequest((user(TEXT),), 10, tools=tools, tool_choice=choice)


@pytest.mark.req("SAMP-08")
@pytest.mark.parametrize(
    ("request_", "content", "stop", "fault"),
    [
        (asks(...), TEXT, None, None),
        (asks(...), use("1"), None, None),
        (asks(None), (TEXT, use("1"), use("2")), None, None),
        (asks("auto"), use("1"), None, None),
        (asks("required"), use("1"), None, None),
        (asks("none"), TEXT, None, None),
        (asks("required"), TEXT, "maxTokens", None),
        (asks("required"), TEXT, "endTurn", "the model uses no tool where it must"),
        (asks("none"), use("1"), None, "the model uses a tool where it may use none"),
        (asks(..., None), use("1"), None, "the model uses a tool where it may use none"),
        (asks(..., ()), use("1"), None, "the model uses a tool where it may use none"),
        (asks(...), result("1"), None, "a model has no tool results to give"),
    ],
)
def test_tool_choice_is_enforced(request_: Any, content: Any, stop: Any, fault: str | None) -> None:
    assert fault_in_sampled(CreateMessageResult("assistant", content, "model", stop), request_) == fault


FORM = ElicitFormRequest("hi", ElicitSchema({}))
URL = ElicitURLRequest("hi", "https://example.com", "1")


@pytest.mark.req("ELIC-10", "ELIC-15")
@pytest.mark.parametrize(
    ("result", "request_", "fine"),
    [
        (ElicitResult("accept", {"a": 1}), FORM, True),
        (ElicitResult("accept"), FORM, True),
        (ElicitResult("accept"), URL, True),
        (ElicitResult("decline"), FORM, True),
        (ElicitResult("accept", {"a": 1}), URL, False),
        (ElicitResult("decline", {"a": 1}), FORM, False),
        (ElicitResult("cancel", {}), FORM, False),
    ],
)
def test_only_an_accepted_form_has_content(result: ElicitResult, request_: ElicitRequest, fine: bool) -> None:
    assert (fault_in_elicited(result, request_) is None) is fine
