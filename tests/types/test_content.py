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
    ReadResourceResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
    UnknownContent,
    annotations_of,
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


@pytest.mark.req("CONT-01", "CONT-02", "CONT-06", "ICON-01")
@pytest.mark.parametrize(("block", "raw"), WIRE)
def test_content_block_round_trips(block: Any, raw: dict[str, Any]) -> None:
    assert result_of(raw) == block
    assert codec(REV_2025_11_25).encode(CallToolResult((block,))) == {"content": [raw]}


@pytest.mark.req("CONT-06")
@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        ({"text": "hi"}, "content[0].type: missing"),
        ({"type": 5}, "content[0].type: a number is not known here"),
        ("text", "content[0]: expected an object, got a string"),
    ],
)
def test_block_without_a_type_is_refused(raw: Any, fault: str) -> None:
    assert fault_in(raw) == fault


@pytest.mark.req("CONT-06", "CONT-07")
@pytest.mark.parametrize(
    ("raw", "oddity"),
    [
        ({"type": "text"}, "TextContent.text: missing"),
        ({"type": "image", "data": 5, "mimeType": "x/y"}, "ImageContent.data: expected a string, got a number"),
        ({"type": "resource", "resource": {"uri": "a:b"}}, "EmbeddedResource.resource: has none of the known shapes"),
        ({"type": "resource", "resource": []}, "EmbeddedResource.resource: expected an object, got an array"),
    ],
)
def test_malformed_block_of_a_known_type_becomes_unknown_content(raw: Any, oddity: str) -> None:
    conversion = codec(REV_2025_11_25)
    good = {"type": "text", "text": "hi"}
    odd: list[str] = []
    result = conversion.decode({"content": [good, raw]}, CallToolResult, odd)
    assert result.content == (TextContent("hi"), UnknownContent(raw["type"], raw))
    assert odd == [oddity]
    assert conversion.encode(result) == {"content": [good, raw]}


@pytest.mark.req("CONT-04")
@pytest.mark.parametrize(
    ("annotations", "read", "oddity"),
    [
        (
            {"audience": ["user", "system"], "priority": 0.5},
            Annotations(priority=0.5, extra={"audience": ["user", "system"]}),
            "Annotations.audience[1]: expected one of 'assistant', 'user', got 'system'",
        ),
        (
            {"audience": "user"},
            Annotations(extra={"audience": "user"}),
            "Annotations.audience: expected an array, got a string",
        ),
        (
            {"lastModified": 5, "priority": None},
            Annotations(extra={"lastModified": 5}),
            "Annotations.lastModified: expected a string, got a number",
        ),
        (
            {"priority": "high"},
            Annotations(extra={"priority": "high"}),
            "Annotations.priority: expected a number, got a string",
        ),
        ([], None, "TextContent.annotations: expected an object, got an array"),
    ],
)
def test_malformed_annotation_is_dropped_alone(annotations: Any, read: Annotations | None, oddity: str) -> None:
    conversion = codec(REV_2025_11_25)
    raw = {"content": [{"type": "text", "text": "", "annotations": annotations}]}
    odd: list[str] = []
    result = conversion.decode(raw, CallToolResult, odd)
    (block,) = result.content
    assert isinstance(block, TextContent)
    assert block.annotations == read
    assert odd == [oddity]
    assert conversion.encode(result) == raw


@pytest.mark.req("CONT-07")
def test_contents_with_text_and_blob_keep_both() -> None:
    raw = {"type": "resource", "resource": {"uri": "a:b", "text": "hi", "blob": "aGk="}}
    block = result_of(raw)
    assert block.resource == TextResourceContents("a:b", "hi", extra={"blob": "aGk="})
    assert codec(REV_2025_11_25).encode(CallToolResult((block,))) == {"content": [raw]}


@pytest.mark.req("CONT-01", "CONT-06")
@pytest.mark.parametrize(
    ("block", "revision"),
    [
        (AudioContent("aGk=", "audio/wav"), REV_2024_11_05),
        (ResourceLink("a:b", "a"), REV_2025_03_26),
    ],
)
def test_block_unknown_to_the_revision_is_refused_when_sent_and_kept_when_received(
    block: Any, revision: Revision
) -> None:
    (raw,) = codec(REV_2025_11_25).encode(CallToolResult((block,)))["content"]
    with pytest.raises(InvalidMessage, match=rf"^content\[0\]: {type(block).__name__} does not exist in {revision}$"):
        codec(revision).encode(CallToolResult((block,)))
    assert result_of(raw, revision) == UnknownContent(block.type, raw)
    assert codec(revision).encode(CallToolResult((UnknownContent(block.type, raw),))) == {"content": [raw]}


@pytest.mark.req("CONT-04", "ICON-04")
def test_decoration_unknown_to_the_revision_is_left_out() -> None:
    block = TextContent("hi", Annotations(last_modified="2025-01-12T15:00:58Z"), meta={"a": 1})
    assert codec(REV_2025_03_26).encode(CallToolResult((block,))) == {
        "content": [{"type": "text", "text": "hi", "annotations": {}}]
    }
    link = ResourceLink("a:b", "a", icons=(Icon("https://x/i.png"),))
    (raw,) = codec(REV_2025_06_18).encode(CallToolResult((link,)))["content"]
    assert raw == {"type": "resource_link", "uri": "a:b", "name": "a"}


@pytest.mark.req("CONT-04")
@pytest.mark.parametrize("priority", [-1, 1.5])
def test_priority_out_of_range_is_accepted_but_not_sent(priority: float) -> None:
    block = result_of({"type": "text", "text": "", "annotations": {"priority": priority}})
    assert block.annotations.priority == priority
    with pytest.raises(InvalidMessage, match=r"^content\[0\].annotations.priority: must lie in 0..1$"):
        codec(REV_2025_11_25).encode(CallToolResult((block,)))


@pytest.mark.req("RES-12")
def test_uri_is_never_normalised() -> None:
    for uri in ("HTTP://Example.com", "file:///a/../b", "x:%7e"):
        assert result_of({"type": "resource_link", "uri": uri, "name": "a"}).uri == uri


@pytest.mark.req("CONT-03", "CONT-04", "ICON-01", "RES-10")
@pytest.mark.parametrize(
    ("block", "fault"),
    [
        (ImageContent("aGk", "image/png"), "data: must be base64 of the standard alphabet, with padding"),
        (ImageContent("_-8=", "image/png"), "data: must be base64"),
        (AudioContent("aG k=", "audio/wav"), "data: must be base64"),
        (AudioContent("é", "audio/wav"), "data: must be base64"),
        (ImageContent("", "png"), "mimeType: must be a MIME type, such as image/png"),
        (AudioContent("", "audio/"), "mimeType: must be a MIME type"),
        (EmbeddedResource(BlobResourceContents("a:b", "hi!")), "resource.blob: must be base64"),
        (TextContent("", Annotations(last_modified="yesterday")), "annotations.lastModified: must be an ISO 8601 time"),
        (ResourceLink("a:b", "a", icons=(Icon("javascript:alert(1)"),)), "icons[0].src: must begin with https://"),
    ],
)
def test_value_against_a_rule_is_not_sent(block: Any, fault: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        codec(REV_2025_11_25).encode(CallToolResult((block,)))
    assert str(caught.value).startswith(f"content[0].{fault}")


@pytest.mark.req("CONT-03", "CONT-04")
@pytest.mark.parametrize(
    "raw",
    [
        {"type": "image", "data": "no base64", "mimeType": "png"},
        {"type": "text", "text": "", "annotations": {"lastModified": "yesterday", "priority": 7}},
        {"type": "resource_link", "uri": "a", "name": "a", "icons": [{"src": "file:///etc/passwd"}]},
    ],
)
def test_value_against_a_rule_is_accepted_when_received(raw: dict[str, Any]) -> None:
    assert not isinstance(result_of(raw), UnknownContent)


@pytest.mark.parametrize("mime_type", ["image/png", "image/svg+xml", "text/plain; charset=utf-8", "a/b.c-d_e"])
@pytest.mark.parametrize("time", [None, "2025-01-12", "2025-01-12T15:00:58Z", "2025-01-12T15:00:58.123+01:00"])
def test_value_within_the_rules_is_sent(mime_type: str, time: str | None) -> None:
    block = ImageContent("", mime_type, Annotations(last_modified=time))
    (raw,) = codec(REV_2025_11_25).encode(CallToolResult((block,)))["content"]
    assert result_of(raw) == block


@pytest.mark.req("CONT-05")
@pytest.mark.parametrize(
    ("raw", "annotations"),
    [
        ({"type": "text", "text": ""}, None),
        ({"type": "text", "text": "", "annotations": {"priority": 1}}, Annotations(priority=1)),
        (
            {"type": "resource", "resource": {"uri": "a:b", "text": "", "annotations": ANNOTATIONS}},
            Annotations(("user",), 0.5, "2025-01-12T15:00:58Z"),
        ),
        (
            {"type": "resource", "resource": {"uri": "a:b", "text": "", "annotations": {"audience": ["system", 5]}}},
            Annotations(()),
        ),
        (
            {
                "type": "resource",
                "resource": {"uri": "a:b", "text": "", "annotations": {"audience": "user", "priority": True}},
            },
            Annotations(),
        ),
        ({"type": "resource", "resource": {"uri": "a:b", "text": "", "annotations": 5}}, None),
        (
            {
                "type": "resource",
                "resource": {"uri": "a:b", "text": "", "annotations": {"priority": 0}},
                "annotations": {"priority": 1},
            },
            Annotations(priority=1),
        ),
        ({"type": "hologram", "annotations": {"priority": 1}}, None),
    ],
)
def test_annotations_inside_an_embedded_resource_are_found(
    raw: dict[str, Any], annotations: Annotations | None
) -> None:
    block = result_of(raw)
    assert annotations_of(block) == annotations
    assert codec(REV_2025_11_25).encode(CallToolResult((block,))) == {"content": [raw]}


@pytest.mark.req("CONT-05")
def test_annotations_of_read_contents_are_found() -> None:
    raw = {"contents": [{"uri": "a:b", "blob": "aGk=", "annotations": {"lastModified": "2025-01-12"}}]}
    (contents,) = codec(REV_2025_11_25).decode(raw, ReadResourceResult).contents
    assert annotations_of(contents) == Annotations(last_modified="2025-01-12")


@pytest.mark.req("CONT-05")
def test_annotations_are_written_on_the_block() -> None:
    block = EmbeddedResource(TextResourceContents("a:b", ""), Annotations(priority=1))
    assert codec(REV_2025_11_25).encode(CallToolResult((block,)))["content"] == [
        {"type": "resource", "resource": {"uri": "a:b", "text": ""}, "annotations": {"priority": 1}}
    ]
