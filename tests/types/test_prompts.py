from __future__ import annotations

from typing import Any

import pytest
from unchecked import unchecked

from mcpio.codec import codec
from mcpio.errors import InvalidMessage
from mcpio.revisions import REV_2025_06_18, REV_2025_11_25, REV_2026_07_28, REVISIONS, Revision
from mcpio.types import (
    ElicitResult,
    GetPromptRequest,
    GetPromptResult,
    ImageContent,
    ListPromptsRequest,
    ListPromptsResult,
    Prompt,
    PromptArgument,
    PromptListChangedNotification,
    PromptMessage,
    TextContent,
)


@pytest.mark.parametrize("revision", REVISIONS)
def test_list_prompts_result_round_trips(revision: Revision) -> None:
    conversion = codec(revision)
    raw = {"prompts": [{"name": "a", "arguments": [{"name": "x", "required": True}, {"name": "y", "required": False}]}]}
    page = conversion.decode(raw, ListPromptsResult)
    assert page.prompts == (Prompt("a", arguments=(PromptArgument("x", required=True), PromptArgument("y"))),)
    assert raw.items() <= conversion.encode(page).items()
    assert conversion.encode(ListPromptsRequest("x")) == {"cursor": "x"}
    assert conversion.encode(PromptListChangedNotification()) == {}


def test_empty_argument_list_is_kept() -> None:
    raw = {"prompts": [{"name": "a", "arguments": []}, {"name": "b"}]}
    page = codec(REV_2025_11_25).decode(raw, ListPromptsResult)
    assert codec(REV_2025_11_25).encode(page) == raw
    assert page.prompts[0].arguments == page.prompts[1].arguments == ()


@pytest.mark.parametrize("revision", REVISIONS)
def test_get_prompt_round_trips(revision: Revision) -> None:
    conversion = codec(revision)
    raw: dict[str, Any] = {"name": "a", "arguments": {"x": "1"}}
    assert conversion.encode(conversion.decode(raw, GetPromptRequest)) == raw
    raw = {
        "description": "An a",
        "messages": [
            {"role": "user", "content": {"type": "text", "text": "hi"}},
            {"role": "assistant", "content": {"type": "image", "data": "", "mimeType": "x/y"}},
        ],
    }
    result = conversion.decode(raw, GetPromptResult)
    assert result.messages == (
        PromptMessage("user", TextContent("hi")),
        PromptMessage("assistant", ImageContent("", "x/y")),
    )
    assert raw.items() <= conversion.encode(result).items()


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        ({"name": "a", "arguments": {"x": 1}}, "arguments.x: expected a string, got a number"),
        ({"name": "a", "arguments": {"a b": None}}, "arguments['a b']: expected a string, got null"),
        ({"name": "a", "arguments": ["x"]}, "arguments: expected an object, got an array"),
    ],
)
def test_prompt_arguments_must_be_strings(raw: dict[str, Any], fault: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        codec(REV_2025_11_25).decode(raw, GetPromptRequest)
    assert str(caught.value) == fault
    with pytest.raises(InvalidMessage) as caught:
        codec(REV_2025_11_25).encode(unchecked(GetPromptRequest("a"), arguments=raw["arguments"]))
    assert str(caught.value) == fault


def test_unknown_role_is_refused() -> None:
    raw = {"messages": [{"role": "system", "content": {"type": "text", "text": "hi"}}]}
    with pytest.raises(
        InvalidMessage, match=r"^messages\[0\].role: expected one of 'assistant', 'user', got 'system'$"
    ):
        codec(REV_2025_11_25).decode(raw, GetPromptResult)


def test_prompt_members_follow_the_revision() -> None:
    prompt = Prompt("a", title="A", meta={"x": 1}, arguments=(PromptArgument("x", title="X"),))
    assert codec(REV_2025_06_18).encode(prompt)["title"] == "A"
    assert codec(REVISIONS[1]).encode(prompt) == {"name": "a", "arguments": [{"name": "x"}]}


def test_retry_members_exist_only_in_the_stateless_revision() -> None:
    request = GetPromptRequest("a", input_responses={"key": ElicitResult("decline")})
    raw = {"name": "a", "inputResponses": {"key": {"action": "decline"}}}
    assert codec(REV_2026_07_28).encode(request) == raw
    assert codec(REV_2026_07_28).decode(raw, GetPromptRequest) == request
    with pytest.raises(InvalidMessage, match=r"^inputResponses: does not exist in 2025-11-25$"):
        codec(REV_2025_11_25).encode(request)


def test_display_name_prefers_the_title() -> None:
    assert Prompt("a").display_name == "a"
    assert Prompt("a", title="A").display_name == "A"


def test_text_of_a_message_is_its_text_block() -> None:
    assert PromptMessage("user", TextContent("hi")).text == "hi"
    assert PromptMessage("user", ImageContent("", "image/png")).text == ""
