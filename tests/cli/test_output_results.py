"""Results are printed so that people see everything, once."""

from __future__ import annotations

from typing import Any

import pytest

from mcpio import CallToolResult, TextContent
from mcpio.cli.output import block_text, result_texts
from mcpio.types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextResourceContents,
    UnknownContent,
)

TEXT = TextContent("hello")


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (TEXT, "hello"),
        (ImageContent("AAAA", "image/png"), "[image: image/png, 3 bytes]"),
        (ImageContent("AA==", "image/png"), "[image: image/png, 1 bytes]"),
        (AudioContent("A" * 40_000, "audio/wav"), "[audio: audio/wav, 29 KiB]"),
        (ResourceLink("a://b", "b", title="The b", mime_type="text/html"), "[resource: a://b, The b, text/html]"),
        (ResourceLink("a://b", "b"), "[resource: a://b, b]"),
        (EmbeddedResource(TextResourceContents("a://b", "inside")), "inside"),
        (EmbeddedResource(BlobResourceContents("a://b", "AAA=")), "[binary: a://b, of unknown type, 2 bytes]"),
        (UnknownContent("smell", {"type": "smell"}), "[content of the unknown type 'smell']"),
    ],
)
def test_block_shown_as_text_or_description(block: Any, text: str) -> None:
    assert block_text(block) == text


@pytest.mark.parametrize(
    ("content", "structured", "texts"),
    [
        ((TEXT,), {"a": [1]}, ["hello", '{\n  "a": [\n    1\n  ]\n}']),
        ((TextContent('{ "a": [1] }'),), {"a": [1]}, ['{\n  "a": [\n    1\n  ]\n}']),
        ((TextContent("{}"),), {}, ["{}"]),
        ((TextContent('{"a": "é"}'), TEXT), {"a": "é"}, ["hello", '{\n  "a": "é"\n}']),
    ],
)
def test_structured_content_is_shown_once(content: tuple[TextContent, ...], structured: Any, texts: list[str]) -> None:
    assert list(result_texts(CallToolResult(content, structured))) == texts


def test_content_without_structured_content_shown_unchanged() -> None:
    assert list(result_texts(CallToolResult((TextContent("{}"), TEXT)))) == ["{}", "hello"]
