from __future__ import annotations

from typing import Any

import pytest

from mcpio.codec import codec
from mcpio.errors import InvalidMessage
from mcpio.revisions import (
    HANDSHAKE_REVISIONS,
    REV_2024_11_05,
    REV_2025_03_26,
    REV_2025_06_18,
    REV_2025_11_25,
    REV_2026_07_28,
    REVISIONS,
    Revision,
)
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    Icon,
    ImageContent,
    ListToolsRequest,
    ListToolsResult,
    MalformedItem,
    TaskMetadata,
    TextContent,
    Tool,
    ToolAnnotations,
    ToolExecution,
    ToolListChangedNotification,
    ToolResultContent,
)

SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "$defs": {"x": {"$anchor": "a"}},
    "properties": {"text": {"anyOf": [{"type": "string"}, {"const": None}]}},
    "additionalProperties": False,
}


@pytest.mark.parametrize("revision", REVISIONS)
def test_call_tool_request_round_trips(revision: Revision) -> None:
    raw = {"name": "echo", "arguments": {"text": ["x", None]}, "_meta": {"progressToken": 7}}
    request = codec(revision).decode(raw, CallToolRequest)
    assert request == CallToolRequest("echo", {"text": ["x", None]}, meta={"progressToken": 7})
    assert codec(revision).encode(request) == raw


def test_empty_and_absent_arguments_are_kept_as_received() -> None:
    conversion = codec(REV_2025_11_25)
    for raw in ({"name": "echo"}, {"name": "echo", "arguments": {}}):
        assert conversion.encode(conversion.decode(raw, CallToolRequest)) == raw
    assert conversion.decode({"name": "echo"}, CallToolRequest).arguments is None


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        ({"arguments": {}}, "name: missing"),
        ({"name": 5}, "name: expected a string, got a number"),
        ({"name": "echo", "arguments": []}, "arguments: expected an object, got an array"),
        ({"name": "echo", "arguments": "{}"}, "arguments: expected an object, got a string"),
        ({"name": "echo", "task": {"ttl": "1"}}, "task.ttl: expected a number, got a string"),
    ],
)
def test_malformed_call_is_refused(raw: Any, fault: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        codec(REV_2025_11_25).decode(raw, CallToolRequest)
    assert str(caught.value) == fault
    assert caught.value.revision == "2025-11-25"


@pytest.mark.parametrize(
    ("request_", "name", "revisions"),
    [
        (CallToolRequest("echo", task=TaskMetadata(60_000)), "task", {REV_2025_11_25.name}),
        (CallToolRequest("echo", input_responses={}), "inputResponses", {REV_2026_07_28.name}),
        (CallToolRequest("echo", request_state="x"), "requestState", {REV_2026_07_28.name}),
    ],
)
def test_essential_member_of_a_call_unknown_to_the_revision_is_refused(
    request_: CallToolRequest, name: str, revisions: set[str]
) -> None:
    for revision in REVISIONS:
        if revision.name in revisions:
            assert name in codec(revision).encode(request_)
        else:
            with pytest.raises(InvalidMessage, match=rf"^{name}: does not exist in {revision}$"):
                codec(revision).encode(request_)


def test_task_in_a_revision_without_tasks_is_an_unknown_member() -> None:
    raw = {"name": "echo", "task": {"ttl": 5}}
    assert codec(REV_2025_06_18).decode(raw, CallToolRequest) == CallToolRequest("echo", extra={"task": {"ttl": 5}})
    assert codec(REV_2025_11_25).decode(raw, CallToolRequest) == CallToolRequest("echo", task=TaskMetadata(5))


@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS)
def test_call_tool_result_round_trips(revision: Revision) -> None:
    raw = {"content": [{"type": "text", "text": "hi"}], "isError": True}
    result = codec(revision).decode(raw, CallToolResult)
    assert result == CallToolResult((TextContent("hi"),), is_error=True)
    assert codec(revision).encode(result) == raw


def test_explicit_is_error_false_is_kept_and_equals_its_absence() -> None:
    raw = {"content": [], "isError": False}
    result = codec(REV_2025_11_25).decode(raw, CallToolResult)
    assert result == CallToolResult(())
    assert codec(REV_2025_11_25).encode(result) == raw


@pytest.mark.parametrize("revision", [REV_2025_06_18, REV_2025_11_25])
def test_structured_content_must_be_an_object_before_2026_07_28(revision: Revision) -> None:
    conversion = codec(revision)
    raw: dict[str, Any] = {"content": [], "structuredContent": {"a": [1]}}
    assert conversion.encode(conversion.decode(raw, CallToolResult)) == raw
    wrong: Any
    for wrong in ([], "x", 5):
        with pytest.raises(InvalidMessage, match=r"^structuredContent: expected an object, got"):
            conversion.encode(CallToolResult((), wrong))


@pytest.mark.req("GONE-07")
@pytest.mark.parametrize("value", [None, [], "x", 5, {}, False])
def test_structured_content_may_be_any_value_since_2026_07_28(value: Any) -> None:
    conversion = codec(REV_2026_07_28)
    raw = {"content": [], "resultType": "complete", "structuredContent": value}
    result = conversion.decode(raw, CallToolResult)
    assert result.structured_content == value
    assert result.has_structured_content
    assert conversion.encode(result) == raw
    assert "structuredContent" not in codec(REV_2025_03_26).encode(result)


def test_null_as_structured_content_exists_in_the_last_revision_only() -> None:
    result = CallToolResult((), None, given=("structured_content",))
    assert codec(REV_2026_07_28).encode(result)["structuredContent"] is None
    with pytest.raises(InvalidMessage, match=r"^structuredContent: expected an object, got null$"):
        codec(REV_2025_11_25).encode(result)


@pytest.mark.parametrize("cls", [CallToolResult, ToolResultContent])
def test_absent_structured_content_is_none(cls: Any) -> None:
    result = cls((TextContent("hi"),)) if cls is CallToolResult else cls("1", (TextContent("hi"),))
    assert result.structured_content is None
    assert not result.has_structured_content
    assert "structuredContent" not in codec(REV_2026_07_28).encode(result)


@pytest.mark.req("GONE-07")
def test_has_structured_content_tells_null_from_absence() -> None:
    result = codec(REV_2026_07_28).decode({"content": []}, CallToolResult)
    assert result.structured_content is None
    assert not result.has_structured_content
    assert codec(REV_2026_07_28).encode(result) == {"content": [], "resultType": "complete"}


def test_content_is_required() -> None:
    with pytest.raises(InvalidMessage, match=r"^content: missing$"):
        codec(REV_2025_11_25).decode({"structuredContent": {}}, CallToolResult)


TOOL = Tool(
    "echo",
    SCHEMA,
    "Says it again",
    title="Echo",
    output_schema={"type": "object"},
    annotations=ToolAnnotations(read_only_hint=True),
    icons=(Icon("https://x/i.png"),),
    execution=ToolExecution("optional"),
    meta={"a": 1},
)


@pytest.mark.req("TOOL-03", "ICON-04")
@pytest.mark.parametrize(
    ("revision", "names"),
    [
        (REV_2024_11_05, "name inputSchema description"),
        (REV_2025_03_26, "name inputSchema description annotations"),
        (REV_2025_06_18, "name inputSchema description annotations title outputSchema _meta"),
        (REV_2025_11_25, "name inputSchema description annotations title outputSchema _meta icons execution"),
        (REV_2026_07_28, "name inputSchema description annotations title outputSchema _meta icons"),
    ],
)
def test_tool_members_follow_the_revision(revision: Revision, names: str) -> None:
    raw = codec(revision).encode(TOOL)
    assert set(raw) == set(names.split())
    assert raw["inputSchema"] is SCHEMA


@pytest.mark.req("SCHEMA-07")
@pytest.mark.parametrize("revision", REVISIONS)
def test_received_tool_can_be_sent_in_any_revision(revision: Revision) -> None:
    raw = codec(REV_2025_11_25).encode(TOOL)
    assert codec(revision).encode(codec(revision).decode(raw, Tool)) == raw


@pytest.mark.parametrize("revision", REVISIONS)
def test_list_tools_result_round_trips(revision: Revision) -> None:
    conversion = codec(revision)
    assert conversion.decode({"cursor": ""}, ListToolsRequest) == ListToolsRequest("")
    raw: dict[str, Any] = {"tools": [conversion.encode(TOOL)], "nextCursor": ""}
    page = conversion.decode(raw, ListToolsResult)
    assert page.next_cursor == ""
    assert page.malformed == ()
    assert raw.items() <= conversion.encode(page).items()


def test_malformed_tool_is_set_aside() -> None:
    good = {"name": "a", "inputSchema": {}, "x": 1}
    bad: list[Any] = [{"name": "b"}, None, {"name": "c", "inputSchema": [{}, 1]}]
    raw = {"tools": [bad[0], *[good] * 309, bad[1], bad[2]], "nextCursor": "more"}
    conversion = codec(REV_2025_11_25)
    page = conversion.decode(raw, ListToolsResult)
    assert page.tools == (Tool("a", {}, extra={"x": 1}),) * 309
    assert page.next_cursor == "more"
    assert page.malformed == (
        MalformedItem(0, bad[0], "inputSchema: missing"),
        MalformedItem(310, None, "expected an object, got null"),
        MalformedItem(311, bad[2], "inputSchema: expected an object, got an array"),
    )
    assert conversion.encode(page) == raw


@pytest.mark.parametrize("raw", [{}, {"tools": {}}, {"tools": None}, {"tools": [5], "nextCursor": 5}, [], None])
def test_tools_that_are_not_a_list_are_refused(raw: Any) -> None:
    with pytest.raises(InvalidMessage):
        codec(REV_2025_11_25).decode(raw, ListToolsResult)


def test_null_for_an_optional_member_is_kept() -> None:
    tool: dict[str, Any] = {"name": "a", "inputSchema": {}, "description": None, "annotations": None}
    raw: dict[str, Any] = {"tools": [tool], "nextCursor": None}
    page = codec(REV_2025_11_25).decode(raw, ListToolsResult)
    assert page == ListToolsResult((Tool("a", {}),))
    assert codec(REV_2025_11_25).encode(page) == raw


@pytest.mark.req("TOOL-18")
@pytest.mark.parametrize(
    ("tool", "name"),
    [
        (Tool("a", {}), "a"),
        (Tool("a", {}, annotations=ToolAnnotations()), "a"),
        (Tool("a", {}, annotations=ToolAnnotations("B")), "B"),
        (Tool("a", {}, title="C", annotations=ToolAnnotations("B")), "C"),
    ],
)
def test_display_name_prefers_the_title(tool: Tool, name: str) -> None:
    assert tool.display_name == name


@pytest.mark.req("TOOL-17")
@pytest.mark.parametrize(
    ("annotations", "meaning"),
    [
        (ToolAnnotations(), (False, True, False, True)),
        (ToolAnnotations(read_only_hint=True), (True, False, True, True)),
        (ToolAnnotations(read_only_hint=True, destructive_hint=True, idempotent_hint=False), (True, False, True, True)),
        (ToolAnnotations(read_only_hint=False, destructive_hint=False), (False, False, False, True)),
        (ToolAnnotations(idempotent_hint=True, open_world_hint=False), (False, True, True, False)),
    ],
)
def test_absent_hints_have_the_specified_defaults(annotations: ToolAnnotations, meaning: tuple[bool, ...]) -> None:
    assert meaning == (
        annotations.is_read_only,
        annotations.is_destructive,
        annotations.is_idempotent,
        annotations.is_open_world,
    )


def test_tool_list_changed_round_trips() -> None:
    assert codec(REV_2025_11_25).encode(ToolListChangedNotification()) == {}


def test_text_of_a_result_joins_its_text_blocks() -> None:
    result = CallToolResult((TextContent("a"), ImageContent("", "image/png"), TextContent("b\n")))
    assert result.text == "a\nb\n"
    assert CallToolResult(()).text == ""


def test_input_schema_must_describe_an_object() -> None:
    for schema in ({"type": "string"}, {"type": ["object", "null"]}):
        with pytest.raises(InvalidMessage, match=r'^inputSchema: must have "type": "object" at its root$'):
            codec(REV_2025_11_25).encode(Tool("a", schema))
    assert codec(REV_2025_11_25).decode({"name": "a", "inputSchema": {"type": "string"}}, Tool).name == "a"


def test_result_cannot_be_converted_before_the_application_layer_was_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpio.types.features.CONVERSIONS", [])
    with pytest.raises(RuntimeError, match=r"import mcpio\.app\.Client"):
        CallToolResult(()).into(int)


@pytest.mark.req("TOOL-06")
def test_output_schema_must_describe_an_object_before_2026_07_28() -> None:
    for schema in ({"type": "array"}, {}):
        tool = Tool("a", {"type": "object"}, output_schema=schema)
        with pytest.raises(InvalidMessage, match=r'^outputSchema: must have "type": "object" at its root before'):
            codec(REV_2025_11_25).encode(tool)
        assert codec(REV_2026_07_28).encode(tool)["outputSchema"] == schema
        assert "outputSchema" not in codec(REV_2025_03_26).encode(tool)
