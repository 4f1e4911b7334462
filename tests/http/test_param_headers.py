from __future__ import annotations

from typing import Any

import pytest
from work import steps_of

from mcpio.http.model import ParamHeader, param_fields, param_headers


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


NESTED = schema(
    region={"type": "string", "x-mcp-header": "Region"},
    size={"type": ["integer", "null"], "x-mcp-header": "Size"},
    plain={"type": "string", "default": {"x-mcp-header": "Data"}},
    options=schema(fast={"type": "boolean", "x-mcp-header": "Method"}),
)


def test_annotated_properties_are_found_at_any_depth() -> None:
    assert param_headers(NESTED) == (
        ParamHeader("Region", ("region",), "string"),
        ParamHeader("Size", ("size",), "integer"),
        ParamHeader("Method", ("options", "fast"), "boolean"),
    )
    assert param_headers({"type": "object"}) == ()
    # A property of that name is no annotation.
    assert param_headers(schema(**{"x-mcp-header": {"type": "string"}})) == ()


@pytest.mark.req("HDR-05")
@pytest.mark.parametrize("name", ["", "a b", "a:b", "ä", "a\n", "a/b", 5, None])
def test_annotation_that_is_not_a_header_name_raises(name: Any) -> None:
    with pytest.raises(ValueError, match=r"the property 'a': x-mcp-header .* is not a name of a header"):
        param_headers(schema(a={"type": "string", "x-mcp-header": name}))


@pytest.mark.req("HDR-05")
@pytest.mark.parametrize("type", ["number", "object", "array", "null", None, ["string", "integer", "null"], ["null"]])
def test_annotation_on_another_type_raises(type: Any) -> None:
    with pytest.raises(ValueError, match="x-mcp-header is for string, integer, boolean"):
        param_headers(schema(a={"type": type, "x-mcp-header": "A"}))


@pytest.mark.req("HDR-05")
def test_name_given_twice_raises() -> None:
    twice = schema(a={"type": "string", "x-mcp-header": "A"}, b=schema(c={"type": "string", "x-mcp-header": "a"}))
    with pytest.raises(ValueError, match=r"the property 'b\.c': the header 'a' is named twice"):
        param_headers(twice)


def test_tool_with_too_many_annotated_properties_is_refused_early() -> None:
    def annotated(count: int) -> dict[str, Any]:
        return schema(**{f"p{number}": {"type": "string", "x-mcp-header": f"H{number}"} for number in range(count)})

    assert len(param_headers(annotated(100))) == 100
    with pytest.raises(ValueError, match="more than 100 properties have x-mcp-header"):
        param_headers(annotated(101))
    found = annotated(140_000)

    def read() -> None:
        with pytest.raises(ValueError, match="more than 100"):
            param_headers(found)

    assert steps_of(read) < 100_000


HEADER = {"type": "string", "x-mcp-header": "A"}


@pytest.mark.req("HDR-05")
@pytest.mark.parametrize(
    "found",
    [
        HEADER,
        schema(a={"type": "array", "items": HEADER}),
        {"type": "object", "oneOf": [{}, schema(a=HEADER)]},
        {"type": "object", "$defs": {"x": schema(a=HEADER)}},
        {"type": "object", "$defs": {"default": HEADER}},
        {"type": "object", "if": schema(a=HEADER)},
        {"type": "object", "patternProperties": {"x": HEADER}},
        schema(a={"type": "object", "not": schema(b=HEADER)}),
    ],
)
def test_annotation_that_not_only_properties_lead_to_raises(found: Any) -> None:
    with pytest.raises(ValueError, match="'A' is not on a property that only `properties` lead to"):
        param_headers(found)


@pytest.mark.req("HDR-07")
@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        (None, {}),
        ({}, {}),
        ({"region": None, "options": None}, {}),
        ({"region": "", "plain": "x"}, {"region": ""}),
        (
            {"region": "eu west", "size": -42, "options": {"fast": True}},
            {"region": "eu west", "size": "-42", "method": "true"},
        ),
        ({"size": 42.0, "options": {"fast": False}}, {"size": "42", "method": "false"}),
        ({"region": " ä\t"}, {"region": "=?base64?IMOkCQ==?="}),
        ({"region": ["a"], "size": 1.5, "options": 5}, {}),
    ],
)
def test_fields_repeat_the_arguments(arguments: Any, fields: dict[str, str]) -> None:
    expected = [(f"mcp-param-{name}".encode(), value.encode()) for name, value in fields.items()]
    assert param_fields(param_headers(NESTED), arguments) == expected
