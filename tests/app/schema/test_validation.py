from __future__ import annotations

import socket
import sys
from typing import Any, NoReturn

import jsonschema
import pytest
from work import steps_of

from mcpio.app.schema import validation
from mcpio.app.schema.validation import DIALECTS, SchemaError, Validator, ValidatorMissing
from mcpio.errors import InvalidMessage, McpError

LATEST = "https://json-schema.org/draft/2020-12/schema"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every attempt to reach another machine fail the test (SCHEMA-06)."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise AssertionError("a schema reached for the network")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def fits(schema: dict[str, Any], value: Any, *, trusted: bool = True) -> bool:
    try:
        Validator(schema, trusted=trusted).validate(value)
    except InvalidMessage:
        return False
    return True


@pytest.mark.req("SCHEMA-02")
@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "object", "required": ["a"]}, {"a": 1}, {}),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a"], ["a", 1]),
        (
            {"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False},
            {"a": 1},
            {"a": 1, "b": 2},
        ),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1, "b": 2}, {"a": 1}),
        ({"$defs": {"n": {"$anchor": "n", "type": "integer"}}, "$ref": "#n"}, 1, "1"),
        (
            {
                "$id": "https://example.com/tree",
                "$dynamicAnchor": "node",
                "type": "object",
                "properties": {"below": {"items": {"$dynamicRef": "#node"}}},
            },
            {"below": [{"below": []}]},
            {"below": [{"below": [5]}]},
        ),
        ({"$schema": DRAFT_7, "items": [{"type": "string"}], "additionalItems": False}, ["a"], ["a", 1]),
        ({"$schema": LATEST + "#", "const": 1}, 1.0, True),
        ({"$ref": LATEST}, {"type": "integer"}, {"type": "nonsense"}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$id": "urn:a", "$schema": LATEST, "type": "null"}}}, None, 1),
        ({"$ref": "#/elsewhere/a", "elsewhere": {"a": {"$ref": "#/elsewhere/b"}, "b": {"type": "null"}}}, None, 1),
        ({"properties": {"$ref": {"type": "string"}}}, {"$ref": "x"}, {"$ref": 1}),
        ({"pattern": "^a+$"}, "aa", "b"),
        ({"patternProperties": {"^a": {"type": "null"}}}, {"ab": None, "b": 1}, {"a": 1}),
        ({"uniqueItems": True}, [1, True, "1", [1], [True], {"a": 1}, {"a": 2}], [1, 1.0]),
        ({"uniqueItems": True}, "aa", [{"a": [1]}, {"a": [1.0]}]),
        ({"enum": [1, "a", None]}, 1.0, True),
        ({"enum": [True, 0]}, True, 1),
        ({"enum": [[1, {"a": 2}], {}]}, [1.0, {"a": 2}], [1, {"a": 3}]),
        ({"enum": [[1, 2], {"a": {}}]}, {"a": {}}, {"b": {}}),
        ({"enum": [{"a": 1}, [{}]]}, [{}], [1]),
        ({"enum": [{"a": 1}, [1]]}, {"a": 1}, [[1]]),
        ({"enum": [[]]}, [], {}),
        ({"unevaluatedItems": False, "prefixItems": [{}]}, [1], [1, 2]),
        ({"type": "string", "format": "date"}, "not a date", 5),
    ],
)
def test_value_is_validated(schema: dict[str, Any], good: Any, bad: Any) -> None:
    assert fits(schema, good)
    assert not fits(schema, bad)


def test_unique_items_false_allows_duplicates() -> None:
    assert fits({"uniqueItems": False}, [1, 1])


@pytest.mark.req("SCHEMA-02")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_is_supported(dialect: str) -> None:
    validator = Validator({"$schema": dialect, "type": "integer"})
    assert validator.dialect == dialect
    validator.validate(5)
    with pytest.raises(InvalidMessage):
        validator.validate("5")


@pytest.mark.req("SCHEMA-01", "SCHEMA-05")
def test_missing_dialect_means_the_latest() -> None:
    assert Validator({}).dialect == LATEST


def test_error_has_path_and_reason() -> None:
    validator = Validator({"properties": {"items": {"items": {"type": "integer"}}}})
    with pytest.raises(InvalidMessage) as caught:
        validator.validate({"items": [1, "x"]}, "arguments")
    assert (caught.value.path, caught.value.reason) == ("arguments.items[1]", "'x' is not of type 'integer'")


def test_long_reason_is_truncated() -> None:
    with pytest.raises(InvalidMessage) as caught:
        Validator({"type": "integer"}).validate("x" * 10_000)
    assert len(caught.value.reason) == 301


@pytest.mark.req("SCHEMA-03", "SCHEMA-04", "SCHEMA-06")
@pytest.mark.parametrize(
    ("schema", "error"),
    [
        ([], "a schema must be an object, not a list"),
        ({"type": "intger"}, "not a valid schema: type: 'intger' is not valid"),
        ({"properties": {"a": {"minimum": "1"}}}, "not a valid schema: properties.a.minimum: '1' is not of type"),
        ({"pattern": "("}, r"not a valid schema: pattern: '\(' is not a 'regex'"),
        ({"$schema": "https://example.com/mine"}, "dialect 'https://example.com/mine' is not supported; supported are"),
        ({"$schema": 5}, "dialect 5 is not supported"),
        ({"$ref": "https://example.com/other"}, "'https://example.com/other' leads nowhere, or out of the schema"),
        ({"$ref": "other.json"}, "'other.json' leads nowhere, or out of the schema"),
        ({"$ref": "file:///etc/hostname"}, "leads nowhere, or out of the schema"),
        ({"items": {"$ref": "#/$defs/a"}}, "'#/\\$defs/a' leads nowhere"),
        ({"$dynamicRef": "#a"}, "\\$dynamicRef '#a' leads nowhere"),
        ({"$id": "http://[", "type": "null"}, "the schema cannot be used: Invalid IPv6 URL"),
        ({"$defs": {"a": {"$id": "urn:a", "$schema": DRAFT_7}}}, "a part of the schema has another dialect"),
    ],
)
def test_invalid_schema_is_refused(schema: Any, error: str) -> None:
    with pytest.raises(SchemaError, match=error) as caught:
        Validator(schema)
    assert isinstance(caught.value, McpError)


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth - 1):
        schema = {"not": schema}
    return schema


@pytest.mark.req("SCHEMA-06")
def test_schema_depth_and_size_are_limited() -> None:
    assert fits(nested(63), 1)
    with pytest.raises(SchemaError, match="nested deeper than 64"):
        Validator(nested(65))
    with pytest.raises(SchemaError, match="more than 20000 objects and arrays"):
        Validator({"anyOf": [{}] * 20_000})


def test_schema_too_deep_for_the_stack_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "MAX_DEPTH", 5000)
    with pytest.raises(SchemaError, match="nested too deeply"):
        Validator(nested(600))


@pytest.mark.req("SCHEMA-06")
def test_validation_work_is_limited() -> None:
    doubling = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(20)}
    validator = Validator({"$ref": "#/$defs/d0", "$defs": {**doubling, "d20": True}}, max_steps=2000)
    with pytest.raises(SchemaError, match="more than 2000 steps"):
        validator.validate(1)
    small = Validator({"items": {"type": "integer"}}, max_steps=2000)
    small.validate([1] * 1200)
    small.validate([1] * 1200)


@pytest.mark.req("SCHEMA-06")
@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"patternProperties": {"^b": {}}},
        {"additionalProperties": {}},
        {"propertyNames": {}},
        {"unevaluatedProperties": {}},
    ],
)
def test_unvisited_members_count_as_work(schema: dict[str, Any]) -> None:
    value = {f"a{number}": 1 for number in range(3000)}
    Validator(schema, max_steps=30_000).validate(value)
    with pytest.raises(SchemaError, match="more than 100 steps"):
        Validator(schema, max_steps=100).validate(value)


@pytest.mark.req("SCHEMA-06")
def test_backtracking_pattern_is_matched_in_linear_time() -> None:
    validator = Validator({"pattern": "^(a+)+$"})
    validator.validate("a" * 50)
    with pytest.raises(InvalidMessage, match="does not match"):
        validator.validate("a" * 50 + "b")


@pytest.mark.req("SCHEMA-06")
@pytest.mark.parametrize(
    "schema",
    [{"pattern": r"^(a+)+\1$"}, {"patternProperties": {"^(a+)+$": {}}}, {"propertyNames": {"pattern": r"(x*)\1"}}],
)
def test_superlinear_pattern_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match="can take more than linear time"):
        Validator(schema)


def test_meta_schema_patterns_are_run() -> None:
    assert fits({"$ref": LATEST}, {"$id": "urn:a"})
    assert not fits({"$ref": LATEST}, {"$id": "urn:a#fragment"})


@pytest.mark.long
@pytest.mark.req("SCHEMA-06")
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        pytest.param(
            {"items": {"enum": [[number] for number in range(1500)]}}, [[-1]] * 20, id="long lists to compare"
        ),
        pytest.param({"anyOf": [{"type": "string"}] * 500}, [[1] * 20] * 4_000, id="much to quote"),
        pytest.param({"anyOf": [{"type": "array"}] * 500}, "x" * 200_000, id="a long text to quote"),
        pytest.param({"allOf": [{"uniqueItems": True}] * 50}, list(range(50_000)), id="much to look at"),
        pytest.param({"items": {"properties": {f"p{n}": {} for n in range(2000)}}}, [{}] * 300, id="many names"),
    ],
)
def test_expensive_keywords_count_more(schema: dict[str, Any], value: Any) -> None:
    with pytest.raises(SchemaError, match="more than 10000 steps"):
        Validator(schema, trusted=False).validate(value)


@pytest.mark.req("SCHEMA-06")
def test_unevaluated_keywords_run_after_the_count() -> None:
    both: dict[str, Any] = {}
    for number in range(30):
        below = {"$ref": f"#/$defs/d{number + 1}"}
        both[f"d{number}"] = {"dependentSchemas": {"a": below, "b": below}}
    schema = {"unevaluatedProperties": False, "$ref": "#/$defs/d0", "$defs": {**both, "d30": {}}}
    with pytest.raises(SchemaError, match="more than 10000 steps"):
        Validator(schema, trusted=False).validate({"a": 1, "b": 1})


@pytest.mark.req("SCHEMA-06")
@pytest.mark.parametrize(
    ("schema", "error"),
    [
        ({"required": [f"m{number}" for number in range(5000)]}, "from outside has more than 5000 parts"),
        ({"allOf": [{"unevaluatedItems": False}] * 11}, "has unevaluatedItems and unevaluatedProperties more than 10"),
    ],
)
def test_foreign_schema_has_tighter_limits(schema: dict[str, Any], error: str) -> None:
    assert fits(schema, None)
    with pytest.raises(SchemaError, match=error):
        Validator(schema, trusted=False)


def test_foreign_patterns_are_not_compiled() -> None:
    assert fits({"pattern": "("}, "(", trusted=False)


def test_self_reference_terminates() -> None:
    with pytest.raises(SchemaError, match="refers to itself without end"):
        Validator({"$ref": "#"}).validate(1)


def test_validator_exception_becomes_our_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> NoReturn:
        raise KeyError("odd")

    monkeypatch.setattr(jsonschema.exceptions, "best_match", broken)
    with pytest.raises(SchemaError, match="the schema cannot be applied: 'odd'"):
        Validator({}).validate(1)


def test_schema_is_copied() -> None:
    schema = {"$schema": LATEST, "type": "integer"}
    validator = Validator(schema)
    assert schema == {"$schema": LATEST, "type": "integer"}
    schema["type"] = "string"
    validator.validate(5)


def test_meta_schemas_are_not_modified() -> None:
    Validator({"$ref": LATEST})
    assert jsonschema.Draft202012Validator.META_SCHEMA["$schema"] == LATEST
    assert validation._registry().contents(LATEST)["$schema"] == LATEST


@pytest.mark.req("SCHEMA-06")
def test_foreign_patterns_are_not_run() -> None:
    assert fits({"pattern": "^(a+)+$"}, "a" * 50 + "b", trusted=False)
    assert not fits({"pattern": "^(a+)+$", "type": "string"}, 5, trusted=False)
    with pytest.raises(SchemaError, match="patternProperties of a schema from outside"):
        Validator({"properties": {"a": {"patternProperties": {"b": {}}}}}, trusted=False)


def test_missing_package_error_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(ValidatorMissing, match=r"install mcpio\[jsonschema\]") as caught:
        Validator({})
    assert isinstance(caught.value, ImportError)


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize("value", [[[]] * 50_000, [{}] * 50_000, [0] * 50_000, [[[0]]] * 20_000, {"a": [[]] * 50_000}])
@pytest.mark.parametrize("schema", [{}, {"items": {"type": "array"}}, {"uniqueItems": True}])
def test_work_for_a_value_is_bounded_however_small_its_parts_are(schema: dict[str, Any], value: Any) -> None:
    validator = Validator(schema, max_steps=100)

    def check() -> None:
        with pytest.raises(SchemaError, match="more than 100 steps"):
            validator.validate(value)

    check()
    assert steps_of(check) < 200_000
