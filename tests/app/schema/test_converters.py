from __future__ import annotations

import enum
import functools
import operator
from dataclasses import make_dataclass
from datetime import date
from typing import Annotated, Any, Literal
from uuid import UUID

import attrs
import pytest
from smallconverters import INTEGER, TEXT, doubled, refused, strictly
from work import steps_of

from mcpio.app import Constraints
from mcpio.app.schema import values
from mcpio.app.schema.builder import (
    Converter,
    ObjectConverter,
    SchemaBuilder,
    all_different,
    array,
    choice,
    constrained,
    fixed_array,
    from_any_array,
    mapping,
    record_reader,
    record_writer,
)
from mcpio.app.schema.constraints import Rule, rule
from mcpio.errors import InvalidMessage


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Pair:
    def __init__(self, left: int, right: int = 0) -> None:
        if left < 0:
            raise ValueError("left is negative")
        self.left = left
        self.other = right


def test_members_are_converted_by_name() -> None:
    members = ObjectConverter({"a": INTEGER, "b": doubled(0)}, ["a"])
    assert members.convert({"b": 2, "a": 1}) == {"b": 4, "a": 1}
    assert members.convert({"a": 1}) == {"a": 1}


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({}, "x: missing member a"),
        ({"a": "1"}, 'x.a: expected an integer, got "1"'),
        ({"c": 1, "a": 1, "d": 1}, 'x: unknown member "c", "d"; the members are a, b'),
        ({"c": 1}, 'x: unknown member "c"; the members are a, b; missing: a'),
    ],
)
def test_mismatched_member_is_named(value: dict[str, Any], error: str) -> None:
    assert refused(ObjectConverter({"a": INTEGER, "b": TEXT}, ["a"]).convert, value) == error


def test_every_missing_member_is_named() -> None:
    assert refused(ObjectConverter({"a": TEXT, "b": TEXT}, ["a", "b"]).convert, {}) == "x: missing members a, b"


def test_error_for_an_empty_object_mentions_no_members() -> None:
    assert (
        refused(ObjectConverter({}, [], noun="argument").convert, {"a": 1})
        == 'x: unknown argument "a"; there are no arguments'
    )


def test_long_foreign_names_are_truncated() -> None:
    error = refused(ObjectConverter({}, []).convert, {f"{n}{'x' * 1000}": 1 for n in range(9)})
    assert len(error) < 500
    assert error.endswith("… and 4 more; there are no members".replace("… and", '…" and'))


def test_extra_members_use_their_own_converter() -> None:
    members = ObjectConverter({"a": INTEGER}, [], extra=TEXT)
    assert members.convert({"a": 1, "b": "x"}) == {"a": 1, "b": "x"}
    assert refused(members.convert, {"b": 1}) == "x.b: expected a string, got 1"


def test_array_is_converted_item_by_item() -> None:
    assert array(INTEGER)([1, 2]) == [1, 2]
    assert array(doubled(0), tuple)([1, 2]) == (2, 4)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ((1,), "x: expected an array, got a value of type tuple"),
        ({"a": 1}, "x: expected an array, got an object"),
        ([1, "2"], 'x[1]: expected an integer, got "2"'),
    ],
)
def test_mismatched_array_is_refused(value: Any, error: str) -> None:
    assert refused(array(INTEGER), value) == error


def test_any_sequence_is_encoded_as_an_array() -> None:
    convert = from_any_array(array(INTEGER), ordered=False)
    assert convert([1]) == convert((1,)) == convert({1}) == convert(range(1, 2)) == [1]
    assert convert(frozenset([2, 1])) == [1, 2]
    ordered = from_any_array(array(INTEGER), ordered=True)
    assert ordered((2, 1)) == [2, 1]
    assert refused(ordered, {1}) == "x: expected an array, got a value of type set"


@pytest.mark.parametrize("value", ["ab", b"ab", 5])
def test_str_is_not_an_array(value: Any) -> None:
    assert refused(from_any_array(array(TEXT), ordered=False), value).startswith("x: expected an array")


def test_set_with_duplicates_is_refused() -> None:
    convert = array(INTEGER, all_different(frozenset))
    assert convert([1, 2]) == frozenset([1, 2])
    assert refused(convert, [1, 1]) == "x: expected items that are all different"
    lists = array(strictly(list, "an array"), all_different(set))
    assert refused(lists, [[1]]) == "x: expected items that can be told apart, got arrays or objects"


def test_fixed_tuple_has_one_converter_per_position() -> None:
    convert = fixed_array([INTEGER, TEXT], tuple)
    assert convert([1, "a"]) == (1, "a")
    assert refused(convert, "ab") == 'x: expected an array, got "ab"'
    assert refused(convert, [1]) == "x: expected 2 items, got 1"
    assert refused(convert, [1, 2]) == "x[1]: expected a string, got 2"


def test_mapping_converts_keys_and_values() -> None:
    _, colour = choice([("red", Colour.RED)], output=False)
    convert = mapping(Converter("a colour", {}, colour), doubled(1))
    assert convert({"red": 1}) == {Colour.RED: 2}
    assert refused(convert, [1]) == "x: expected an object, got an array"
    assert refused(convert, {"blue": 1}) == 'x.blue: expected "red", got "blue"'
    assert refused(convert, {5: 1}) == 'x["5"]: expected "red", got 5'
    assert mapping(TEXT, INTEGER)({"a": 1}) == {"a": 1}


def test_record_is_decoded() -> None:
    convert = record_reader(ObjectConverter({"left": INTEGER, "right": INTEGER}, ["left"]), Pair)
    assert convert({"left": 1, "right": 2}).other == 2
    assert refused(convert, [1]) == "x: expected an object, got an array"
    assert refused(convert, {"left": -1}) == "x: left is negative"


@attrs.frozen
class Checked:
    size: Any = attrs.field(validator=attrs.validators.instance_of(int))

    def __attrs_post_init__(self) -> None:
        assert self.size != 2, "two is too many"
        if self.size == 3:
            raise ValueError
        if self.size == 4:
            b"\xff".decode()


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        ("1", "'size' must be <class 'int'> (got '1' that is a <class 'str'>)."),
        (2, "two is too many"),
        (3, "the value is refused"),
        (4, "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
    ],
)
def test_constructor_that_refuses_a_value_gives_the_reason(size: Any, reason: str) -> None:
    anything = Converter("any value", {}, lambda value: value)
    convert = record_reader(ObjectConverter({"size": anything}, ["size"]), Checked)
    assert refused(convert, {"size": size}).partition("\n")[0] == f"x: {reason}"


def test_record_is_encoded() -> None:
    members = ObjectConverter({"left": INTEGER, "right": INTEGER}, ["left"])
    convert = record_writer(members, [("left", "left"), ("right", "other")], Pair)
    assert convert(Pair(1, 2)) == {"left": 1, "right": 2}
    assert convert({"left": 1}) == {"left": 1}
    assert refused(convert, 5) == "x: expected a Pair, got 5"
    assert refused(record_writer(members, [], None), 5) == "x: expected a mapping, got 5"


def test_literal_decodes_its_values() -> None:
    what, convert = choice([("a", "a"), (1, 1), (True, True), (None, None)], output=False)
    assert what == 'one of "a", 1, true, null'
    values: list[Any] = ["a", 1, 1.0, True, None]
    for value in values:
        assert convert(value) == value
    assert convert(1.0) is not True
    others: list[Any] = ["b", 0, False, [], {}]
    for value in others:
        assert refused(convert, value).startswith(f"x: expected {what}, got ")


def test_literal_of_one_value_is_a_const() -> None:
    assert choice([("a", "a")], output=False)[0] == '"a"'


def test_enum_encodes_members_and_values() -> None:
    _, convert = choice([(member.value, member) for member in Colour], output=True)
    assert convert(Colour.RED) == "red"
    assert type(convert(Colour.RED)) is str
    assert convert("blue") == "blue"
    assert refused(convert, "green") == 'x: expected one of "red", "blue", got "green"'


def rules(**limits: Any) -> list[Rule]:
    return [made for name, limit in limits.items() if (made := rule(name, limit, "number", None)) is not None]


def test_constraints_apply_after_decoding_and_before_encoding() -> None:
    reading = constrained(doubled(0), rules(le=10), output=False)
    assert reading.convert(5) == 10
    assert refused(reading.convert, 6) == "x: expected a value at most 10, got 12"
    writing = constrained(doubled(0), rules(le=5), output=True)
    assert writing.convert(5) == 10
    assert refused(writing.convert, 6) == "x: expected a value at most 5, got 6"


def test_repeated_constraint_becomes_an_all_of() -> None:
    found = constrained(INTEGER, [*rules(ge=1, le=5), *rules(ge=2), *rules(ge=3)], output=False)
    assert found.schema == {
        "is": "an integer",
        "minimum": 1,
        "maximum": 5,
        "allOf": [{"minimum": 2}, {"minimum": 3}],
    }
    assert found.as_is == frozenset()


def test_converter_with_another_schema_or_delegate() -> None:
    assert TEXT.with_schema({"x": 1}).schema == {"x": 1}
    assert TEXT.with_schema({}).convert("a") == "a"
    converter = doubled(0)
    converter.become(TEXT)
    assert (converter.name, converter.schema, converter.as_is) == ("from 0", {}, frozenset([str]))
    assert converter.convert("a") == "a"


# Work


@attrs.frozen
class Measured:
    taken: date | None = None


@attrs.frozen
class Other:
    text: str


def one_of(*kinds: Any) -> Any:
    """Return a union of classes with a tag of these types."""
    classes: list[Any] = [make_dataclass(f"Kind{n}", [("kind", kind)]) for n, kind in enumerate(kinds)]
    return functools.reduce(operator.or_, classes)


def list_of_tagged(count: int) -> Any:
    """Return the lists of a union of classes with the tags ``k0``, ``k1``, and so on."""
    literal: Any = Literal
    items: Any = one_of(*(literal[f"k{n}"] for n in range(count)))
    return list[items]


EXPENSIVE = [
    (list[Measured], {}),
    (list_of_tagged(30), {"kind": "k29"}),
    (list[Measured | Other], {"text": ""}),
    (list[date], "2025-06-18"),
    (list[Annotated[int, Constraints(ge=0)]], 1),
    (list[list[int]], []),
    (dict[str, date], "2025-06-18"),
    (dict[UUID, int], 1),
    (list[tuple[date, date]], ["2025-06-18"] * 2),
    (list[int | str | list[int] | None], [1]),
    (dict[str, int | list[int]], [1]),
]


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize(("kind", "part"), EXPENSIVE, ids=[str(kind) for kind, _ in EXPENSIVE])
def test_conversions_are_bounded(kind: Any, part: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MOST_CONVERSIONS", 300)
    convert = SchemaBuilder("x").converter(kind).convert

    def filled(count: int) -> Any:
        return {str(UUID(int=n)): part for n in range(count)} if kind.__origin__ is dict else [part] * count

    assert len(values.read_value(convert, filled(70), "x")) == 70

    many = filled(10_000)

    def refused() -> None:
        with pytest.raises(InvalidMessage, match="x: more than 300 values to convert; send fewer at once"):
            values.read_value(convert, many, "x")

    assert steps_of(refused) < 50_000
    refused()  # coverage does not see what steps are counted of
    assert len(convert(filled(1_000))) == 1_000  # the program's own values are not counted


@pytest.mark.req("SEC-10")
def test_tag_is_looked_up_once_however_many_classes_there_are() -> None:
    def work(count: int) -> int:
        convert = SchemaBuilder("x").converter(list_of_tagged(count)).convert
        items = [{"kind": f"k{count - 1}"}] * 100
        convert(items)
        return steps_of(lambda: convert(items))

    assert work(30) < 1.2 * work(2)


@pytest.mark.req("SEC-10")
def test_names_of_unknown_members_are_counted_for_each_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MOST_CONVERSIONS", 300)
    convert = SchemaBuilder("x").converter(list_of_tagged(30)).convert
    with pytest.raises(InvalidMessage, match="more than 300 values to convert"):
        values.read_value(convert, [{str(n): 0 for n in range(2000)}], "x")
    with pytest.raises(InvalidMessage, match="fits no alternative"):
        values.read_value(convert, [{str(n): 0 for n in range(100)}], "x")


@pytest.mark.parametrize("tag", [True, 1, 2, None, ["k1"], "k1", "k9"])
def test_tag_of_any_type_selects_the_classes_that_take_it(tag: Any) -> None:
    convert = SchemaBuilder("x").converter(one_of(Literal[1, "k1"], Literal[True], Any)).convert
    found = 1 if tag is True else 0 if tag in (1, "k1") else 2
    assert type(convert({"kind": tag})).__name__ == f"Kind{found}"


@pytest.mark.parametrize("value", [[1] * 1000, ["a"] * 1000, [0.5] * 1000, [None] * 1000])
def test_values_of_the_types_of_json_are_not_counted(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MOST_CONVERSIONS", 10)
    for kind in (list[int | float | str | None], list[Any], list[type(value[0])]):  # type: ignore[misc]  # made here
        assert values.read_value(SchemaBuilder("x").converter(kind).convert, value, "x") == value
