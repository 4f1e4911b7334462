from __future__ import annotations

from typing import Any

import pytest

from mcpio.codec import codec
from mcpio.errors import InvalidMessage
from mcpio.revisions import REV_2024_11_05, REV_2025_03_26, REV_2025_06_18, REV_2025_11_25, Revision
from mcpio.types import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    Icon,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    UnknownContent,
)

ANNOTATIONS = {"audience": ["user"], "priority": 0.5, "lastModified": "2025-01-12T15:00:58Z"}
WIRE: list[tuple[Any, dict[str, Any]]] = [
    (TextContent("hi"), {"type": "text", "text": "hi"}),
    (TextContent("hi", meta={"a": 1}), {"type": "text", "text": "hi", "_meta": {"a": 1}}),
    (
        TextContent("hi", Annotations(("user",), 0.5, "2025-01-12T15:00:58Z")),
        {"type": "text", "text": "hi", "annotations": ANNOTATIONS},
    ),
    (ImageContent("aGk=", "image/png"), {"type": "image", "data": "aGk=", "mimeType": "image/png"}),
    (AudioContent("aGk=", "audio/wav"), {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}),
    (
        EmbeddedResource(TextResourceContents("file:///a", "hi")),
        {"type": "resource", "resource": {"uri": "file:///a", "text": "hi"}},
    ),
    (
        EmbeddedResource(BlobResourceContents("file:///a", "aGk=", "x/y")),
        {"type": "resource", "resource": {"uri": "file:///a", "blob": "aGk=", "mimeType": "x/y"}},
    ),
    (
        ResourceLink("file:///a", "a", size=3, icons=(Icon("https://x/i.png", sizes=("any",), theme="dark"),)),
        {
            "type": "resource_link",
            "uri": "file:///a",
            "name": "a",
            "size": 3,
            "icons": [{"src": "https://x/i.png", "sizes": ["any"], "theme": "dark"}],
        },
    ),
    (UnknownContent("hologram", {"type": "hologram", "rays": [1]}), {"type": "hologram", "rays": [1]}),
]


def result_of(raw: Any, revision: Revision = REV_2025_11_25) -> Any:
    (block,) = codec(revision).decode({"content": [raw]}, CallToolResult).content
    return block


def fault_in(raw: Any, revision: Revision = REV_2025_11_25) -> str:
    with pytest.raises(InvalidMessage) as caught:
        result_of(raw, revision)
    return str(caught.value)


@pytest.mark.parametrize(("block", "raw"), WIRE)
def test_a_block_on_the_wire(block: Any, raw: dict[str, Any]) -> None:
    assert result_of(raw) == block
    assert codec(REV_2025_11_25).encode(CallToolResult((block,))) == {"content": [raw]}


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        ({"text": "hi"}, "content[0].type: missing"),
        ({"type": 5}, "content[0].type: a number is not known here"),
        ({"type": "text"}, "content[0].text: missing"),
        ({"type": "image", "data": 5, "mimeType": "x/y"}, "content[0].data: expected a string, got a number"),
        ({"type": "resource", "resource": {"uri": "a:b"}}, "content[0].resource: has none of the known shapes"),
        ({"type": "resource", "resource": []}, "content[0].resource: expected an object, got an array"),
        ("text", "content[0]: expected an object, got a string"),
        (
            {"type": "text", "text": "", "annotations": {"audience": ["user", "system"]}},
            "content[0].annotations.audience[1]: expected one of 'assistant', 'user', got 'system'",
        ),
    ],
)
def test_a_fault_in_a_block(raw: Any, fault: str) -> None:
    assert fault_in(raw) == fault


def test_contents_with_both_text_and_blob_lose_neither() -> None:
    raw = {"type": "resource", "resource": {"uri": "a:b", "text": "hi", "blob": "aGk="}}
    block = result_of(raw)
    assert block.resource == TextResourceContents("a:b", "hi", extra={"blob": "aGk="})
    assert codec(REV_2025_11_25).encode(CallToolResult((block,))) == {"content": [raw]}


@pytest.mark.parametrize(
    ("block", "revision"),
    [
        (AudioContent("aGk=", "audio/wav"), REV_2024_11_05),
        (ResourceLink("a:b", "a"), REV_2025_03_26),
    ],
)
def test_a_block_that_is_too_new_is_refused_going_out_and_unknown_coming_in(block: Any, revision: Revision) -> None:
    (raw,) = codec(REV_2025_11_25).encode(CallToolResult((block,)))["content"]
    with pytest.raises(InvalidMessage, match=rf"^content\[0\]: {type(block).__name__} does not exist in {revision}$"):
        codec(revision).encode(CallToolResult((block,)))
    assert result_of(raw, revision) == UnknownContent(block.type, raw)
    assert codec(revision).encode(CallToolResult((UnknownContent(block.type, raw),))) == {"content": [raw]}


def test_decoration_is_left_out_where_it_is_too_new() -> None:
    block = TextContent("hi", Annotations(last_modified="2025-01-12T15:00:58Z"), meta={"a": 1})
    assert codec(REV_2025_03_26).encode(CallToolResult((block,))) == {
        "content": [{"type": "text", "text": "hi", "annotations": {}}]
    }
    link = ResourceLink("a:b", "a", icons=(Icon("https://x/i.png"),))
    (raw,) = codec(REV_2025_06_18).encode(CallToolResult((link,)))["content"]
    assert raw == {"type": "resource_link", "uri": "a:b", "name": "a"}


@pytest.mark.parametrize("priority", [-1, 1.5])
def test_a_priority_out_of_range_is_read_and_not_sent(priority: float) -> None:
    block = result_of({"type": "text", "text": "", "annotations": {"priority": priority}})
    assert block.annotations.priority == priority
    with pytest.raises(InvalidMessage, match=r"^content\[0\].annotations.priority: must lie in 0..1$"):
        codec(REV_2025_11_25).encode(CallToolResult((block,)))


def test_a_uri_is_never_touched() -> None:
    for uri in ("HTTP://Example.com", "file:///a/../b", "x:%7e"):
        assert result_of({"type": "resource_link", "uri": uri, "name": "a"}).uri == uri
