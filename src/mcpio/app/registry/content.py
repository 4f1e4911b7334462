"""Results of functions as content blocks."""

from __future__ import annotations

from typing import Any, Final

from mcpio.app.schema.plain import to_json
from mcpio.framing import json
from mcpio.types._fields import Payload
from mcpio.types.content import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    UnknownContent,
)

__all__ = ["block_of", "blocks_of", "json_text"]


def blocks_of(value: Any) -> tuple[Any, ...]:
    """Return the content for a tool's result: blocks as they are, str as text, other values as JSON.

    ``None`` is no content. A list becomes one block for each item if it contains a block, or only str. Raises TypeError
    for other protocol objects, and InvalidMessage for values that JSON cannot express.
    """
    if value is None:
        return ()
    if isinstance(value, list | tuple) and _are_blocks(value):
        return tuple(block for item in value for block in blocks_of(item))
    block = block_of(value)
    return (TextContent(json_text(value)) if block is None else block,)


def block_of(value: Any) -> Any:
    """Return the block for a str, for resource contents, and for a block itself; ``None`` for other values.

    Raises TypeError for other protocol objects, which cannot be content.
    """
    if isinstance(value, str):
        return TextContent(str.__str__(value))  # a plain str, if it is the member of an enumeration
    if isinstance(value, _BLOCKS):
        return value
    if isinstance(value, _CONTENTS):
        return EmbeddedResource(value)
    if isinstance(value, Payload):
        raise TypeError(f"a {type(value).__name__} is not content: return text, a content block, or plain data")
    return None


def json_text(value: Any) -> str:
    """Return a value as JSON. Raises InvalidMessage with the place of a value that JSON cannot express."""
    return json.dumps(to_json(value)).decode()


_BLOCKS: Final = (TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource, UnknownContent)
_CONTENTS: Final = (TextResourceContents, BlobResourceContents)


def _are_blocks(items: list[Any] | tuple[Any, ...]) -> bool:
    return any(isinstance(item, _BLOCKS + _CONTENTS) for item in items) or (
        bool(items) and all(isinstance(item, str) for item in items)
    )
