"""Definitions of tools that hosts reject are found, and plain ones are not."""

from __future__ import annotations

from typing import Any

import pytest

from mcpio.cli.check import warnings_of

NESTED: dict[str, Any] = {"type": "string"}
for _ in range(11):
    NESTED = {"type": "object", "properties": {"inner": NESTED}}

PLAIN = {
    "type": "object",
    "properties": {
        "names": {"type": "array", "items": {"$ref": "#/$defs/name"}},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}]},
        "other": {"anyOf": [{"$ref": "#named"}, {"type": "null"}]},
    },
    "$defs": {"name": {"type": "string", "$anchor": "named"}},
}


def test_plain_tool_has_no_warnings() -> None:
    tool = {"name": "add_one", "description": "Add.", "inputSchema": PLAIN, "outputSchema": {"type": "object"}}
    assert list(warnings_of(tool)) == []


def property_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"inputSchema": {"type": "object", "properties": {"x": schema}}}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"name": "a" * 65}, "the name has 65 characters"),
        ({"name": "a" * 60}, "the name has 60 characters: Cursor"),
        ({"name": "admin.list"}, "the name has other characters"),
        ({"description": "a" * 1025}, "the description has 1025 characters"),
        ({"inputSchema": {}}, "inputSchema does not have the root type object"),
        ({"inputSchema": {"type": "object", "oneOf": [{"required": ["a"]}]}}, "inputSchema has oneOf at its root"),
        ({"inputSchema": NESTED}, "is nested more than 10 levels deep"),
        (property_of({"$ref": "https://example.com/schema.json"}), "outside of the schema"),
        (property_of({"$ref": "#/$defs/none"}), "which does not exist"),
        (property_of({"$ref": "#none"}), "which does not exist"),
        (property_of({"type": "array"}), "inputSchema.properties.x is an array without items"),
        (property_of({"type": ["array", "null"]}), "is an array without items"),
        (property_of({"anyOf": [{"type": "array"}, {"type": "null"}]}), "inputSchema.properties.x.anyOf.0 is an array"),
        (property_of({"type": "object", "properties": {"a b": {}}}), "has the property 'a b'"),
        ({"outputSchema": {"type": "array"}}, "outputSchema does not have the root type object"),
    ],
)
def test_rejected_definition_is_found(changes: dict[str, Any], found: str) -> None:
    (warning,) = warnings_of({"name": "add", "inputSchema": PLAIN, **changes})
    assert found in warning


@pytest.mark.parametrize("value", [None, 5, [], {"type": "object", "properties": [], "anyOf": "x", "items": 5}])
def test_malformed_schema_raises_nothing(value: Any) -> None:
    list(warnings_of({"name": value, "description": value, "inputSchema": value, "outputSchema": value}))
