"""Results for people: text as it is, structured content as JSON, everything else described in one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from mcpio.app.client import Client
from mcpio.cli.console import pretty
from mcpio.codec import Codec, codec
from mcpio.framing import json
from mcpio.revisions import LATEST_HANDSHAKE
from mcpio.types.content import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from mcpio.types.tools import CallToolResult

__all__ = ["as_json", "block_text", "codec_of", "contents_text", "result_texts", "shown_list"]


def codec_of(client: Client) -> Codec:
    """Return the converter for the revision that a client speaks."""
    return codec(client.connection.revision or LATEST_HANDSHAKE)


def as_json(client: Client, result: Any) -> str:
    """Return a result as the server said it, on one line."""
    return json.dumps(codec_of(client).encode(result)).decode()


def result_texts(result: CallToolResult) -> Iterator[str]:
    """Give what to print of a tool's result, part by part.

    Servers say structured content a second time as text, for older clients (TOOL-15): it is shown once.
    """
    structured = result.structured_content
    is_structured = result.has_structured_content
    for block in result.content:
        if is_structured and isinstance(block, TextContent) and _says(block.text, structured):
            continue
        yield block_text(block)
    if is_structured:
        yield pretty(structured)


def block_text(block: Any) -> str:
    """Return what to print of a content block."""
    match block:
        case TextContent():
            return block.text
        case ImageContent():
            return f"[image: {block.mime_type}, {_size(block.data)}]"
        case AudioContent():
            return f"[audio: {block.mime_type}, {_size(block.data)}]"
        case ResourceLink():
            kind = f", {block.mime_type}" if block.mime_type else ""
            return f"[resource: {block.uri}, {block.title or block.name}{kind}]"
        case EmbeddedResource():
            return contents_text(block.resource)
    return f"[content of the unknown type {block.type!r}]"


def contents_text(contents: TextResourceContents | BlobResourceContents) -> str:
    """Return what to print of a resource's contents."""
    if isinstance(contents, TextResourceContents):
        return contents.text
    return f"[binary: {contents.uri}, {contents.mime_type or 'of no stated type'}, {_size(contents.blob)}]"


def shown_list(names: Iterable[str], limit: int = 20) -> str:
    """Return names in a row, cut to a length for people."""
    found = list(names)
    return ", ".join(found[:limit]) + (f" and {len(found) - limit} more" if len(found) > limit else "")


def _says(text: str, structured: Any) -> bool:
    try:
        return bool(json.loads(text) == structured)
    except json.JsonError:
        return False


def _size(base64: str) -> str:
    """Return how much data a text in base64 stands for."""
    size = len(base64) * 3 // 4 - base64[-2:].count("=")
    return f"{size} bytes" if size < 10_000 else f"{size / 1024:.0f} KiB"
