"""Words on a command line become what a schema asks for, or are refused with a reason that helps."""

from __future__ import annotations

from typing import Any

import pytest

from mcpio.cli.arguments import Argument, prepare, read_words, signature
from mcpio.cli.exit_status import Exit, Failure


def _read(text: str, member: Any, **schema: Any) -> Any:
    """Return what one argument's text becomes."""
    whole = {"type": "object", "properties": {"x": member}, **schema}
    return prepare(whole, [Argument("x", text, is_json=False)], of="tool").arguments["x"]


def _refused(schema: dict[str, Any], *words: str) -> str:
    with pytest.raises(Failure) as caught:
        prepare(schema, read_words(words), of="tool")
    assert caught.value.status is Exit.BAD_ARGUMENTS
    return caught.value.message


@pytest.mark.parametrize(
    ("text", "member", "value"),
    [
        ("5", {"type": "integer"}, 5),
        ("-5", {"type": "integer"}, -5),
        ("12345678901234567890123", {"type": "integer"}, 12345678901234567890123),
        ("5", {"type": "number"}, 5),
        ("1.5e3", {"type": "number"}, 1500.0),
        ("5", {"type": "string"}, "5"),
        ("null", {"type": "string"}, "null"),
        ('"quoted"', {"type": "string"}, '"quoted"'),
        ("", {"type": "string"}, ""),
        ("a=b", {"type": "string"}, "a=b"),
        ("true", {"type": "boolean"}, True),
        ("FALSE", {"type": "boolean"}, False),
        ("null", {"type": "null"}, None),
        ("null", {"type": ["string", "null"]}, None),
        ("nul", {"type": ["string", "null"]}, "nul"),
        ("5", {"type": ["integer", "string"]}, 5),
        ("[1, 2]", {"type": "array"}, [1, 2]),
        ('{"a": [true]}', {"type": "object"}, {"a": [True]}),
        ("[1]", {"type": "string"}, "[1]"),
        ("5", {}, 5),
        ("five", {}, "five"),
        ("5", True, 5),
        ("5", {"anyOf": [{"type": "string"}, {"type": "null"}]}, "5"),
        ("null", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None),
        ("5", {"oneOf": [{"type": "integer"}, {"type": "array"}]}, 5),
        ("5", {"allOf": [{"type": "string"}, {"maxLength": 3}]}, "5"),
        ("1", {"enum": [1, 2]}, 1),
        ("1", {"enum": ["1", "2"]}, "1"),
        ("red", {"enum": ["red", None]}, "red"),
        ("true", {"const": True}, True),
        ("1", {"enum": [True, "1"]}, "1"),
        ("1", {"$ref": "#/$defs/Level"}, 1),
        ("1", {"$ref": "#/$defs/a~1b"}, "1"),
        ("1", {"$ref": "#/$defs/Missing"}, 1),
        ("1", {"$ref": "elsewhere.json"}, 1),
        ("1", {"$ref": "#/$defs/Loop"}, 1),
    ],
)
def test_value_converted_by_its_schema(text: str, member: Any, value: Any) -> None:
    definitions = {"Level": {"type": "integer"}, "a/b": {"type": "string"}, "Loop": {"$ref": "#/$defs/Loop"}}
    read = _read(text, member, **{"$defs": definitions})
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "member", "expected"),
    [
        ("five", {"type": "integer"}, "integer"),
        ("5.0", {"type": "integer"}, "integer"),
        ("01", {"type": "integer"}, "integer"),
        ("NaN", {"type": "number"}, "number"),
        ("yes", {"type": "boolean"}, "boolean"),
        ("a,b", {"type": "array"}, "an array as JSON, such as x='[1, 2]'"),
        ("a,b", {"anyOf": [{"type": "array"}, {"type": "null"}]}, "an array as JSON, such as x='[1, 2]'"),
        ("a,b", {"type": ["null", "array"]}, "an array as JSON, such as x='[1, 2]'"),
        ("{", {"type": "object"}, """an object as JSON, such as x='{"a": 1}'"""),
        ("blue", {"enum": ["red", "green"]}, "red|green"),
        ("9", {"enum": [0, 1, 2, 3, 4, 5, 6, 7]}, "0|1|2|3|4|5|..."),
        ("b", {"const": "a"}, "a"),
        ("b", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer|null"),
        ("b", {"$ref": "#/properties/y"}, "integer"),
        ("b", False, "any"),
        ("true", {"enum": [1]}, "1"),
    ],
)
def test_unfit_value_names_expected_type(text: str, member: Any, expected: str) -> None:
    message = _refused({"properties": {"x": member, "y": {"type": "integer"}}}, f"x={text}")
    assert f"\n  x: expected {expected}, got {text!r}" in message


def test_all_faults_reported_together() -> None:
    schema = {
        "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}, "page": {"type": "integer"}},
        "required": ["query", "page", "query"],
        "additionalProperties": False,
    }
    assert _refused(schema, "limt=3", "limit=many").splitlines() == [
        "bad arguments for 'tool':",
        "  limt: no such argument. Did you mean 'limit'?",
        "  limit: expected integer, got 'many'",
        "  query: missing",
        "  page: missing",
        "  it takes: query=string page=integer [limit=integer]",
    ]


def test_unexpected_argument_of_tool_without_arguments_rejected() -> None:
    assert _refused({"additionalProperties": False}, "x=1").endswith("it takes: no arguments")


def test_undescribed_argument_sent_with_a_note() -> None:
    found = prepare({"properties": {"limit": {}}}, read_words(["limt=1"]), of="tool")
    assert found.arguments == {"limt": 1}
    assert found.notes == ("note: tool does not describe an argument 'limt'. Did you mean 'limit'?",)


@pytest.mark.parametrize("schema", [{"additionalProperties": True}, {"patternProperties": {"^x": {}}}])
def test_pattern_property_sent_without_a_note(schema: dict[str, Any]) -> None:
    assert prepare(schema, read_words(["x=1"]), of="tool").notes == ()


def test_additional_property_converted_by_its_schema() -> None:
    assert prepare({"additionalProperties": {"type": "string"}}, read_words(["x=1"]), of="tool").arguments == {"x": "1"}


def test_raw_json_bypasses_conversion() -> None:
    schema = {"properties": {"x": {"type": "string"}}}
    assert prepare(schema, read_words(["x:=5"]), of="tool").arguments == {"x": 5}
    assert read_words(['x:={"a": 1}']) == [Argument("x", '{"a": 1}', is_json=True)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["text"], "an argument must be key=value or key:=json, not 'text'"),
        (["=5"], "an argument must be key=value or key:=json, not '=5'"),
        ([":=5"], "an argument must be key=value or key:=json, not ':=5'"),
        (["a=1", "a=2"], "'a' is given twice: write an array as JSON, such as a='[1, 2]'"),
        (["a:=[1"], "a:= must be JSON, not '[1': "),
        (["a=\udcff"], "an argument must be text in the encoding of this environment, not 'a=\\udcff'"),
    ],
)
def test_malformed_words_rejected(words: list[str], said: str) -> None:
    with pytest.raises(Failure) as caught:
        read_words(words)
    assert caught.value.message.startswith(said)
    assert caught.value.status is Exit.USAGE


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({}, ""),
        ({"properties": {"a": {"type": "integer"}, "b": {}}, "required": ["b"]}, "b=any [a=integer]"),
        ({"properties": {"a": {"type": ["string", "null"]}}}, "[a=string|null]"),
        ({"properties": {"a": {"allOf": [{"type": "integer"}, {"minimum": 1}]}}}, "[a=integer]"),
        ({"properties": {"a": 5}, "required": "a"}, "[a=any]"),
        ({"properties": [], "required": [1]}, ""),
    ],
)
def test_signature_lists_required_before_optional(schema: dict[str, Any], text: str) -> None:
    assert signature(schema) == text


@pytest.mark.parametrize("keyword", ["allOf", "anyOf"])
def test_self_referencing_schema_takes_bounded_time(keyword: str) -> None:
    member = {keyword: [{"$ref": "#/properties/x"}] * 100, "maxLength": 5}
    assert _read("5", member) == 5
    assert signature({"properties": {"x": member}}) == "[x=any]"
