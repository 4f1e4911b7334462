"""Definitions of tools that hosts or the models behind them reject, though the protocol allows them.

Each check names who rejects what, as their issue trackers say it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
LONGEST_NAME: Final = 64
CURSOR_NAMES: Final = 60
PROPERTY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
LONGEST_DESCRIPTION: Final = 1024
DEEPEST: Final = 10


def warnings_of(tool: Mapping[str, Any]) -> Iterator[str]:
    """Yield what hosts reject of a tool's definition."""
    name = tool.get("name")
    if isinstance(name, str):
        yield from _of_name(name)
    description = tool.get("description")
    if isinstance(description, str) and len(description) > LONGEST_DESCRIPTION:
        yield (
            f"the description has {len(description)} characters: OpenAI's API rejects more than {LONGEST_DESCRIPTION}"
        )
    schema = tool.get("inputSchema")
    if isinstance(schema, Mapping):
        yield from _of_root(schema)
        yield from _of_parts(schema)
    output = tool.get("outputSchema")
    if isinstance(output, Mapping) and output.get("type") != "object":
        yield "outputSchema does not have the root type object: clients of the TypeScript SDK 1 lose the whole list"


def _of_name(name: str) -> Iterator[str]:
    if len(name) > LONGEST_NAME:
        yield f"the name has {len(name)} characters: the APIs of Anthropic and OpenAI reject more than {LONGEST_NAME}"
    elif len(name) >= CURSOR_NAMES:
        yield f"the name has {len(name)} characters: Cursor drops tools whose name and server's name exceed 60"
    if NAME.fullmatch(name) is None:
        yield "the name has other characters than A-Z, a-z, 0-9, _ and -: the APIs of Anthropic and OpenAI reject it"


def _of_root(schema: Mapping[str, Any]) -> Iterator[str]:
    if schema.get("type") != "object":
        yield "inputSchema does not have the root type object: clients of the official SDKs lose the whole list"
    joined = [word for word in ("oneOf", "anyOf", "allOf") if word in schema]
    if joined:
        yield f"inputSchema has {' and '.join(joined)} at its root: Anthropic's API rejects it, Claude Code drops it"


def _of_parts(root: Mapping[str, Any]) -> Iterator[str]:
    seen = set()
    for path, depth, schema in _subschemas(root, "inputSchema", 0):
        for kind, text in _of_part(root, path, schema):
            # One of a kind is enough to find the others.
            if kind not in seen:
                seen.add(kind)
                yield text
        if depth > DEEPEST and "deep" not in seen:
            seen.add("deep")
            yield f"{path} is nested more than {DEEPEST} levels deep: OpenAI's API rejects it in strict mode"


def _of_part(root: Mapping[str, Any], path: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if not reference.startswith("#"):
            yield "outside", f"{path} refers to {reference!r}, outside of the schema: hosts do not fetch it"
        elif _resolved(root, reference) is None:
            yield "nowhere", f"{path} refers to {reference!r}, which does not exist: Gemini's API rejects it"
    types = schema.get("type")
    is_array = types == "array" or (isinstance(types, list) and "array" in types)
    if is_array and "items" not in schema and "prefixItems" not in schema:
        yield "items", f"{path} is an array without items: the APIs of OpenAI and Google reject it"
    properties = schema.get("properties")
    for name in properties if isinstance(properties, Mapping) else ():
        if PROPERTY.fullmatch(name) is None:
            yield (
                "property",
                f"{path} has the property {name!r}: Anthropic's API takes up to 64 of A-Z, a-z, 0-9, _, . and -",
            )


def _subschemas(schema: Any, path: str, depth: int) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    """Yield a schema and those in it, with their paths and depths."""
    if not isinstance(schema, Mapping):
        return
    yield path, depth, schema
    for word, each in _inner(schema):
        deeper = depth + word.startswith(("properties", "items", "prefixItems"))
        yield from _subschemas(each, f"{path}.{word}", deeper)


def _inner(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for word in ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"):
        parts = schema.get(word)
        if isinstance(parts, Mapping):
            yield from ((f"{word}.{name}", part) for name, part in parts.items())
    for word in ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"):
        yield word, schema.get(word)
    for word in ("oneOf", "anyOf", "allOf", "prefixItems"):
        parts = schema.get(word)
        if isinstance(parts, Iterable) and not isinstance(parts, str | Mapping):
            yield from ((f"{word}.{index}", part) for index, part in enumerate(parts))


def _resolved(root: Any, reference: str) -> Any:
    """Return the target of a JSON pointer or an anchor, or ``None``."""
    pointer = reference.removeprefix("#")
    if pointer and not pointer.startswith("/"):
        return next((each for _, _, each in _subschemas(root, "", 0) if each.get("$anchor") == pointer), None)
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(root, list) and key.isdecimal() and int(key) < len(root):
            root = root[int(key)]
        else:
            root = root.get(key) if isinstance(root, Mapping) else None
    return root
