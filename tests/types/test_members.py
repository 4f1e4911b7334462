from __future__ import annotations

import base64
import copy
import pickle
import re
from collections.abc import Mapping
from typing import Any, Optional, Union

import attrs
import pytest

from mcpio.revisions import REV_2024_11_05, REV_2025_06_18, REV_2025_11_25, REV_2026_07_28
from mcpio.types import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    CallToolRequest,
    CallToolResult,
    CancelledNotification,
    CreateMessageRequest,
    CreateMessageResult,
    EmbeddedResource,
    Icon,
    ImageContent,
    ListToolsResult,
    ProgressNotification,
    PromptMessage,
    Root,
    SamplingMessage,
    TextContent,
    Tool,
)
from mcpio.types._fields import Member, Payload, is_optional, is_union, members, without_null


def member(cls: type[Payload], attribute: str) -> Member:
    return next(one for one in members(cls) if one.attribute == attribute)


def test_members_of_a_class_precede_those_of_its_bases() -> None:
    assert [one.name for one in members(CallToolRequest)] == [
        *("name", "arguments", "task", "inputResponses", "requestState"),
        "_meta",
    ]
    assert [one.name for one in members(ListToolsResult)] == [
        *("tools", "nextCursor"),
        *("_meta", "resultType", "ttlMs", "cacheScope"),
    ]


def test_members_are_cached() -> None:
    assert members(CallToolRequest) is members(CallToolRequest)


def test_wire_names_follow_from_attributes_unless_given() -> None:
    assert member(CallToolResult, "is_error").name == "isError"
    assert member(CallToolResult, "meta").name == "_meta"


def test_a_member_exists_in_some_revisions() -> None:
    execution = member(Tool, "execution")
    assert not execution.exists_in(REV_2025_06_18)
    assert execution.exists_in(REV_2025_11_25)
    assert not execution.exists_in(REV_2026_07_28)


def test_member_may_be_required() -> None:
    assert member(Tool, "name").needed_in(REV_2024_11_05)
    assert member(Tool, "name").default is attrs.NOTHING
    assert not member(Tool, "description").needed_in(REV_2024_11_05)
    request_id = member(CancelledNotification, "request_id")
    assert request_id.needed_in(REV_2025_06_18)
    assert not request_id.needed_in(REV_2025_11_25)
    assert request_id.type_in(REV_2025_11_25) == int | str


def test_type_is_looked_up_in_the_declaring_module() -> None:
    assert member(Tool, "name").type_in(REV_2025_11_25) is str
    assert member(Tool, "icons").type_in(REV_2025_11_25) == tuple[Icon, ...]
    assert member(ListToolsResult, "cache_scope").type_in(REV_2026_07_28).__args__ == ("public", "private")


def test_a_type_may_differ_by_revision() -> None:
    structured = member(CallToolResult, "structured_content")
    assert structured.type_in(REV_2025_11_25) == Mapping[str, Any]
    assert structured.type_in(REV_2026_07_28) is Any


def test_class_derived_without_attrs_has_the_members_of_its_base() -> None:
    class Derived(Tool):
        pass

    assert [one.name for one in members(Derived)] == [one.name for one in members(Tool)]
    assert member(Derived, "icons").type_in(REV_2025_11_25) == tuple[Icon, ...]


def test_unknown_name_in_an_annotation_is_an_error() -> None:
    @attrs.frozen
    class Wrong(Payload):
        x: Lemon  # type: ignore[name-defined]  # noqa: F821  # the test is that it is found out

    with pytest.raises(NameError, match="Lemon"):
        member(Wrong, "x").type_in(REV_2025_11_25)


BASE64 = "Encode the bytes in base64: base64.b64encode(data).decode()"
ANY_PNG: Any = b"\x89PNG"


def odd(value: Any) -> Any:
    """Hide the kind of a value from type checkers."""
    return value


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (
            lambda: ImageContent(ANY_PNG, "image/png"),
            rf"^ImageContent: data must be a str, not {re.escape(repr(ANY_PNG))}. Write ImageContent.of\(data\)$",
        ),
        (
            lambda: AudioContent(ANY_PNG, "audio/wav"),
            r"^AudioContent: data must be a str, .* Write AudioContent.of\(data\)$",
        ),
        (
            lambda: BlobResourceContents("a:b", ANY_PNG),
            rf"^BlobResourceContents: blob must be a str, .*{re.escape(BASE64)}$",
        ),
        (lambda: TextContent(odd(5)), r"^TextContent: text must be a str, not 5$"),
        (lambda: TextContent("a", odd({})), r"^TextContent: annotations must be Annotations, not {}$"),
        (lambda: TextContent("a", meta=odd(None)), r"^TextContent: meta must be a mapping, not None$"),
        (lambda: Annotations(priority=odd(True)), r"^Annotations: priority must be a number, not True$"),
        (lambda: CallToolRequest("a", odd([1])), r"^CallToolRequest: arguments must be a mapping, not \[1\]$"),
        (lambda: CallToolResult((), is_error=odd(1)), r"^CallToolResult: is_error must be a bool, not 1$"),
        (
            lambda: CallToolResult(odd("hi")),
            r"^CallToolResult: content must be a tuple, not 'hi'. Wrap the text: \(TextContent\('hi'\),\)$",
        ),
        (lambda: CallToolResult(odd(TextContent("hi"))), r"^CallToolResult: .* Put the item in a tuple$"),
        (
            lambda: PromptMessage("user", odd("hi")),
            r"^PromptMessage: content must be .*. Wrap the text: TextContent",
        ),
        (
            lambda: SamplingMessage("user", odd("hi")),
            r"^SamplingMessage: content must be .* or a tuple, not 'hi'",
        ),
        (lambda: CreateMessageRequest((), odd("5")), r"^CreateMessageRequest: max_tokens must be a number, not '5'$"),
        (
            lambda: EmbeddedResource(odd(Root("a:b"))),
            r"^EmbeddedResource: resource must be TextResourceContents or Blob",
        ),
        (
            lambda: CancelledNotification(odd([])),
            r"^CancelledNotification: request_id must be a number or a str, not \[\]$",
        ),
        (lambda: SamplingMessage(odd(5), ()), r"^SamplingMessage: role must be a str, not 5$"),
        (lambda: attrs.evolve(TextContent("a"), text=odd(5)), r"^TextContent: text must be a str, not 5$"),
    ],
)
def test_member_of_the_wrong_kind_raises_when_the_payload_is_made(make: Any, fault: str) -> None:
    with pytest.raises(TypeError, match=fault):
        make()


def test_fault_quotes_large_values_in_short() -> None:
    with pytest.raises(TypeError) as caught:
        ImageContent(odd(b"x" * 1_000_000), "image/png")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "made",
    [
        ImageContent(base64.b64encode(b"\x89PNG").decode(), "image/png"),
        CallToolResult([TextContent("hi")]),  # type: ignore[arg-type]  # a caller without a type checker
        CallToolResult((), structured_content=5),
        CreateMessageResult("assistant", (TextContent("hi"),), "m"),
        CreateMessageResult("assistant", TextContent("hi"), "m"),
        ProgressNotification("token", 1),
        ProgressNotification(1, 0.5, 1),
        Annotations(("user",), None, None),
        CallToolRequest("a", None, meta={"x": 1}),
    ],
)
def test_member_of_the_right_kind_is_accepted(made: Any) -> None:
    assert copy.copy(made) == pickle.loads(pickle.dumps(made)) == attrs.evolve(made) == made


def test_subclass_of_a_kind_is_accepted() -> None:
    cls = type("Text", (str,), {})
    for _ in range(2):
        assert TextContent(cls("hi"), Annotations()).text == "hi"
        with pytest.raises(TypeError):
            TextContent(odd(5), Annotations())


def test_optional_and_union_types_are_recognised() -> None:
    assert is_optional(int | None)
    assert is_optional(Optional[Mapping[str, Any]])  # noqa: UP045  # the other form of the same
    assert not is_optional(int | str)
    assert without_null(int | None) is int
    assert without_null(int) is int
    assert without_null(int | str | None) == int | str
    assert is_union(int | str)
    assert is_union(Union[int, str])  # noqa: UP007  # the other form of the same
    assert not is_union(int | None)
    assert not is_union(int)
