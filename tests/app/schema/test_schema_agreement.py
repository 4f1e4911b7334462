"""The schema of a type and the conversion of its values agree, whatever the type and the value."""

from __future__ import annotations

import dataclasses
import enum
import typing
from decimal import Decimal
from types import GenericAlias
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from mcpio.app.schema.builder import SchemaBuilder
from mcpio.app.schema.constraints import Constraints
from mcpio.app.schema.values import Fault


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0
    area: int = dataclasses.field(init=False, default=0)


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


LEAVES = [
    (str, st.text(max_size=3)),
    (int, st.integers(-5, 5) | st.sampled_from([1.0, 2.5])),
    (float, st.floats(-9, 9, allow_nan=False) | st.integers(-5, 5)),
    (bool, st.booleans()),
    (None, st.none()),
    (Colour, st.sampled_from(["red", "blue", "green"])),
    (Literal["a", 1, False], st.sampled_from(["a", 1, 1.0, 0, False, True])),
    (Annotated[int, Constraints(ge=0, lt=4)], st.integers(-2, 6)),
    (Annotated[str, Constraints(min_length=1, pattern="^[ab]")], st.text("abc", max_size=3)),
    (Decimal, st.sampled_from(["1.5", "x", 2, 1.25, "1e5"])),
    (Point, st.fixed_dictionaries({"x": st.integers()}, optional={"y": st.integers(), "z": st.integers()})),
    (Movie, st.fixed_dictionaries({}, optional={"title": st.text(max_size=2), "year": st.integers() | st.none()})),
    (Any, st.none() | st.lists(st.integers(), max_size=1)),
]

Typed = tuple[Any, st.SearchStrategy[Any]]


def extended(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    return st.one_of(
        inner.map(lambda each: (GenericAlias(list, each[0]), st.lists(each[1], max_size=3))),
        inner.map(lambda each: (GenericAlias(dict, (str, each[0])), st.dictionaries(st.text(max_size=1), each[1]))),
        st.tuples(inner, inner).map(lambda two: (two[0][0] | two[1][0] if two[0][0] else Any, two[0][1] | two[1][1])),
        st.tuples(inner, inner).map(
            lambda two: (GenericAlias(tuple, (two[0][0], two[1][0])), st.tuples(two[0][1], two[1][1]).map(list))
        ),
        st.just((set[str], st.lists(st.sampled_from("abc"), max_size=3))),
        st.just((set[int], st.lists(st.sampled_from([1, 1.0, 2, 3]), max_size=3))),
    )


TYPES = st.recursive(st.sampled_from(LEAVES), extended, max_leaves=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.text("ab", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "title", "a"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@settings(max_examples=examples(300))
@given(st.data())
def test_converter_accepts_exactly_what_the_schema_allows(data: st.DataObject) -> None:
    annotation, fitting = data.draw(TYPES)
    value = data.draw(fitting | VALUES)
    builder = SchemaBuilder("it")
    converter = builder.converter(annotation)
    allowed = Draft202012Validator(builder.complete(converter.schema)).is_valid(value)
    try:
        found = value if type(value) in converter.as_is else converter.convert(value)
    except Fault:
        assert not allowed
        return
    assert allowed
    # And what was read can be written, fits the schema of what is written, and is read and written as the same again.
    writer = SchemaBuilder("it", output=True)
    said = writer.converter(annotation).convert(found)
    schema = writer.complete(writer.converter(annotation).schema)
    if Point not in _parts(annotation):
        assert Draft202012Validator(schema).is_valid(said)
        assert writer.converter(annotation).convert(converter.convert(said)) == said


def _parts(annotation: Any) -> set[Any]:
    return {annotation, *(part for each in typing.get_args(annotation) for part in _parts(each))}
