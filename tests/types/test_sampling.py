from __future__ import annotations

from typing import Any

import pytest
from unchecked import unchecked

from mcpio.codec import codec
from mcpio.errors import InvalidMessage
from mcpio.revisions import (
    HANDSHAKE_REVISIONS,
    REV_2024_11_05,
    REV_2025_06_18,
    REV_2025_11_25,
    REV_2026_07_28,
    REVISIONS,
    Revision,
)
from mcpio.types import (
    AudioContent,
    CreateMessageRequest,
    CreateMessageResult,
    ModelHint,
    ModelPreferences,
    SamplingMessage,
    TaskMetadata,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
    UnknownContent,
)

TEXT = {"type": "text", "text": "hi"}
USE = {"type": "tool_use", "id": "1", "name": "add", "input": {"a": 1}}
RETURNED = {"type": "tool_result", "toolUseId": "1", "content": [TEXT], "isError": True}


@pytest.mark.req("SAMP-02", "SAMP-13", "SAMP-14", "MRTR-19")
@pytest.mark.parametrize("revision", REVISIONS)
def test_create_message_request_round_trips(revision: Revision) -> None:
    conversion = codec(revision)
    raw = {
        "messages": [{"role": "user", "content": TEXT}],
        "maxTokens": 100,
        "systemPrompt": "Be brief",
        "modelPreferences": {"hints": [{"name": "claude"}, {}], "costPriority": 0.5, "speedPriority": 0},
        "includeContext": "none",
        "temperature": 0.5,
        "stopSequences": ["\n"],
        "metadata": {"x": [1]},
    }
    request = conversion.decode(raw, CreateMessageRequest)
    assert request.messages == (SamplingMessage("user", TextContent("hi")),)
    assert request.model_preferences == ModelPreferences((ModelHint("claude"), ModelHint()), 0.5, 0)
    assert request.stop_sequences == ("\n",)
    assert conversion.encode(request) == raw


@pytest.mark.req("SAMP-03")
@pytest.mark.parametrize("revision", REVISIONS)
def test_create_message_result_round_trips(revision: Revision) -> None:
    raw = {"role": "assistant", "content": TEXT, "model": "m", "stopReason": "an own reason"}
    result = codec(revision).decode(raw, CreateMessageResult)
    assert result == CreateMessageResult("assistant", TextContent("hi"), "m", "an own reason")
    assert result.blocks == (TextContent("hi"),)
    assert codec(revision).encode(result) == raw


@pytest.mark.req("SAMP-04")
@pytest.mark.parametrize("revision", [REV_2025_11_25, REV_2026_07_28])
@pytest.mark.parametrize("content", [TEXT, [], [USE, TEXT], USE])
def test_one_or_several_blocks_are_kept_as_received(content: Any, revision: Revision) -> None:
    raw = {"role": "assistant", "content": content}
    message = codec(revision).decode(raw, SamplingMessage)
    assert codec(revision).encode(message) == raw
    assert len(message.blocks) == (len(content) if isinstance(content, list) else 1)


@pytest.mark.req("SAMP-04")
@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS[:3])
def test_several_blocks_are_refused_before_2025_11_25(revision: Revision) -> None:
    conversion = codec(revision)
    with pytest.raises(InvalidMessage, match=r"^content: expected an object, got an array$"):
        conversion.decode({"role": "user", "content": [TEXT]}, SamplingMessage)
    assert conversion.encode(SamplingMessage("user", (TextContent("hi"),)))["content"] == TEXT
    for several in ((), (TextContent("a"), TextContent("b"))):
        with pytest.raises(
            InvalidMessage, match=rf"^content: has {len(several)} items: before 2025-11-25 it is a single"
        ):
            conversion.encode(SamplingMessage("user", several))


@pytest.mark.req("SAMP-02", "SAMP-08", "SAMP-11")
def test_tool_use_and_tool_result_are_decoded() -> None:
    conversion = codec(REV_2025_11_25)
    raw = {"role": "user", "content": [USE, RETURNED]}
    message = conversion.decode(raw, SamplingMessage)
    assert message.blocks == (
        ToolUseContent("1", "add", {"a": 1}),
        ToolResultContent("1", (TextContent("hi"),), is_error=True),
    )
    with pytest.raises(InvalidMessage, match=r"^content.input: expected an object, got an array$"):
        conversion.decode({"role": "user", "content": {**USE, "input": []}}, SamplingMessage)


def test_structured_content_of_a_tool_result_may_be_any_value_since_2026_07_28() -> None:
    raw = {**RETURNED, "structuredContent": [1]}
    assert codec(REV_2026_07_28).decode(raw, ToolResultContent).structured_content == [1]
    with pytest.raises(InvalidMessage, match=r"^structuredContent: expected an object, got an array$"):
        codec(REV_2025_11_25).decode(raw, ToolResultContent)


@pytest.mark.req("SAMP-04")
def test_content_unknown_to_the_revision_is_kept() -> None:
    assert codec(REV_2025_06_18).decode({"role": "user", "content": USE}, SamplingMessage).content == UnknownContent(
        "tool_use", USE
    )
    with pytest.raises(InvalidMessage, match=r"^content: ToolUseContent does not exist in 2025-06-18$"):
        codec(REV_2025_06_18).encode(SamplingMessage("user", ToolUseContent("1", "add", {})))
    with pytest.raises(InvalidMessage, match=r"^content: AudioContent does not exist in 2024-11-05$"):
        codec(REV_2024_11_05).encode(SamplingMessage("user", AudioContent("", "x/y")))


@pytest.mark.parametrize("index", [0, 1])
def test_fault_in_one_of_several_blocks_names_its_place(index: int) -> None:
    content: list[Any] = [TEXT, TEXT]
    content[index] = {"type": "text", "text": 5}
    with pytest.raises(InvalidMessage, match=rf"^content\[{index}\].text: expected a string, got a number$"):
        codec(REV_2025_11_25).decode({"role": "user", "content": content}, SamplingMessage)


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (CreateMessageRequest((), 5, tools=(Tool("a", {}),)), "tools"),
        (CreateMessageRequest((), 5, tool_choice=ToolChoice("none")), "toolChoice"),
        (CreateMessageRequest((), 5, task=TaskMetadata()), "task"),
    ],
)
def test_essential_member_unknown_to_the_revision_is_refused(request_: CreateMessageRequest, name: str) -> None:
    assert name in codec(REV_2025_11_25).encode(request_)
    with pytest.raises(InvalidMessage, match=rf"^{name}: does not exist in 2025-06-18$"):
        codec(REV_2025_06_18).encode(request_)


def test_malformed_tool_fails_the_sampling_request() -> None:
    raw = {"messages": [], "maxTokens": 5, "tools": [{"name": "a"}]}
    with pytest.raises(InvalidMessage, match=r"^tools\[0\].inputSchema: missing$"):
        codec(REV_2025_11_25).decode(raw, CreateMessageRequest)


def test_metadata_of_a_message_exists_since_2025_11_25() -> None:
    message = SamplingMessage("user", TextContent("hi"), meta={"x": 1})
    assert codec(REV_2025_11_25).encode(message)["_meta"] == {"x": 1}
    assert "_meta" not in codec(REV_2025_06_18).encode(message)


def test_priorities_outside_0_to_1_are_not_sent() -> None:
    with pytest.raises(InvalidMessage, match=r"^costPriority: must lie in 0..1$"):
        codec(REV_2025_11_25).encode(ModelPreferences(cost_priority=7))
    with pytest.raises(InvalidMessage, match=r"^costPriority: expected a number, got a string$"):
        codec(REV_2025_11_25).encode(unchecked(ModelPreferences(), cost_priority="high"))


@pytest.mark.req("SAMP-04")
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("cls", [CreateMessageResult, SamplingMessage])
def test_tuple_of_one_block_is_written_as_a_block(cls: Any, revision: Revision) -> None:
    """The official SDKs refuse an array in the answer to a request without tools."""
    rest = ("m",) if cls is CreateMessageResult else ()
    for content in (TextContent("hi"), (TextContent("hi"),), [TextContent("hi")]):
        message = cls("assistant", content, *rest)
        assert codec(revision).encode(message)["content"] == TEXT
        assert message.blocks == (TextContent("hi"),)
        assert message.text == "hi"


def test_text_of_a_message_joins_its_text_blocks() -> None:
    blocks = (TextContent("a"), ToolUseContent("1", "add", {}), TextContent("b"))
    assert SamplingMessage("assistant", blocks).text == "a\nb"
    assert CreateMessageResult("assistant", blocks, "m").text == "a\nb"
    assert CreateMessageResult("assistant", blocks[1], "m").text == ""
    assert ToolResultContent("1", (TextContent("a"), TextContent("b"))).text == "a\nb"


def test_several_blocks_are_a_tuple() -> None:
    result = CreateMessageResult("assistant", (TextContent("a"), TextContent("b")), "m")
    assert result.blocks == (TextContent("a"), TextContent("b"))
