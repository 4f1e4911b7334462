from __future__ import annotations

import datetime as dt
import enum
from typing import Any

import attrs
import pytest

from mcpio.app.registry.base import block_of, blocks_of, json_text
from mcpio.errors import InvalidMessage
from mcpio.types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
    ToolUseContent,
    UnknownContent,
)

BLOCKS = [
    TextContent("a"),
    ImageContent("AAAA", "image/png"),
    AudioContent("AAAA", "audio/wav"),
    ResourceLink("notes://a", "a"),
    EmbeddedResource(TextResourceContents("notes://a", "text")),
    UnknownContent("hologram", {"type": "hologram"}),
]


class Colour(enum.StrEnum):
    RED = "red"


@attrs.frozen
class Point:
    x: int
    y: int


@pytest.mark.parametrize("block", BLOCKS)
def test_content_block_is_unchanged(block: Any) -> None:
    assert blocks_of(block) == (block,)
    assert block_of(block) is block


@pytest.mark.parametrize(
    ("value", "blocks"),
    [
        (None, ()),
        ("text", (TextContent("text"),)),
        ("", (TextContent(""),)),
        (Colour.RED, (TextContent("red"),)),
        (5, (TextContent("5"),)),
        (True, (TextContent("true"),)),
        (b"hello", (TextContent('"aGVsbG8="'),)),
        ({"a": [1]}, (TextContent('{"a":[1]}'),)),
        (Point(1, 2), (TextContent('{"x":1,"y":2}'),)),
        (dt.date(2025, 11, 25), (TextContent('"2025-11-25"'),)),
        ([], (TextContent("[]"),)),
        ([1, "a"], (TextContent('[1,"a"]'),)),
        (["a", "b"], (TextContent("a"), TextContent("b"))),
        (("a", BLOCKS[1], {"b": 1}, None), (TextContent("a"), BLOCKS[1], TextContent('{"b":1}'))),
        ([BLOCKS[0], [BLOCKS[1]]], (BLOCKS[0], BLOCKS[1])),
    ],
)
def test_content_of_each_result(value: Any, blocks: tuple[Any, ...]) -> None:
    assert blocks_of(value) == blocks


@pytest.mark.parametrize("contents", [TextResourceContents("a:b", "text"), BlobResourceContents("a:b", "AAAA")])
def test_resource_contents_are_embedded(contents: Any) -> None:
    assert blocks_of(contents) == (EmbeddedResource(contents),)
    assert blocks_of([contents, "text"]) == (EmbeddedResource(contents), TextContent("text"))


@pytest.mark.parametrize("part", [Tool("a", {"type": "object"}), ToolUseContent("1", "a", {})])
def test_other_payloads_are_not_content(part: Any) -> None:
    with pytest.raises(TypeError, match=r"^the result must be text, a content block or plain data, not a Tool\w*$"):
        blocks_of(part)


def test_plain_data_is_not_a_content_block() -> None:
    assert block_of({"a": 1}) is None
    assert block_of(None) is None


def test_value_without_json_form_is_refused() -> None:
    assert json_text([1.5]) == "[1.5]"
    with pytest.raises(InvalidMessage, match=r"^\[0\]: a value of type object has no form in JSON"):
        json_text([object()])
