from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import pytest
from smallconverters import INTEGER, TEXT, doubled, refused, strictly

from mcpio.app.schema.builder import Converter, SchemaBuilder, array, union

T = TypeVar("T")


@dataclass
class Cat:
    kind: Literal["cat"]
    lives: int


@dataclass
class Dog:
    kind: Literal["dog"]
    lives: str


@dataclass
class Add:
    left: Add | Multiply | int
    right: Add | Multiply | int
    op: Literal["add"] = "add"


@dataclass
class Multiply:
    left: Add | Multiply | int
    right: Add | Multiply | int
    op: Literal["multiply"] = "multiply"


@dataclass
class Numbers:
    below: Numbers | Words | None
    values: list[int]


@dataclass
class Words:
    below: Numbers | Words | None
    values: list[str]


def test_union_takes_the_first_alternative_that_fits() -> None:
    convert, as_is, kinds = union([INTEGER, TEXT])
    assert convert(1) == 1
    assert convert("a") == "a"
    assert as_is == {int, str}
    assert kinds == frozenset([int, str])
    assert refused(convert, None) == "x: expected an integer or a string, got null"


def test_number_prefers_the_exact_alternative() -> None:
    convert, as_is, _ = union([doubled(0), INTEGER])
    assert convert(5) == 5
    assert as_is == {int}


def test_other_values_are_tried_in_order() -> None:
    shout = Converter("loud", {}, str.upper, kinds=frozenset([str]))
    convert, as_is, _ = union([shout, TEXT])
    assert convert("a") == "A"
    assert as_is == frozenset()


def test_ambiguous_value_tries_all_alternatives() -> None:
    convert, _, kinds = union([strictly(int, "an integer", only_trying=True), strictly(str, "a string")])
    assert kinds is None
    assert convert("a") == "a"
    assert refused(convert, None) == "x: expected an integer or a string, got null"
    tried, _, _ = union([strictly(int, "an integer", only_trying=True), strictly(list, "a list", only_trying=True)])
    assert refused(tried, None) == "x: expected an integer or a list, got null"


def test_error_gives_the_reason_of_each_alternative() -> None:
    convert, _, _ = union([doubled(5), doubled(9)])
    assert refused(convert, 1) == "x: fits no alternative: from 5: 1 is below 5; from 9: 1 is below 9"


def test_error_of_a_single_alternative_keeps_its_path() -> None:
    convert, _, _ = union([Converter("a list", {}, array(INTEGER), kinds=frozenset([list])), TEXT])
    assert refused(convert, ["a"]) == 'x[0]: expected an integer, got "a"'


@pytest.mark.parametrize("value", [1.5, True, []])
def test_value_of_no_alternative_is_told_all_of_them(value: Any) -> None:
    convert = SchemaBuilder("it").converter(int | str | None).convert
    assert refused(convert, value).startswith("x: expected an integer or a string or null, got ")


def test_number_that_fits_no_number_is_told_the_other_types_too() -> None:
    whole, half = SchemaBuilder("it").converter(int), SchemaBuilder("it").converter(Literal[0.5])
    convert, _, _ = union([whole, half, TEXT])
    assert refused(convert, 1.5) == "x: expected an integer or 0.5 or a string, got 1.5"


# Classes.


def read(annotation: Any, value: Any) -> Any:
    return SchemaBuilder("it").converter(annotation).convert(value)


def test_tag_selects_the_class() -> None:
    assert read(Cat | Dog, {"lives": "many", "kind": "dog"}) == Dog("dog", "many")
    assert refused(SchemaBuilder("it").converter(Cat | Dog).convert, {"kind": "dog", "lives": 5}) == (
        "x.lives: expected a string, got 5"
    )


def test_unknown_tag_error_gives_all_reasons() -> None:
    assert refused(SchemaBuilder("it").converter(Cat | Dog).convert, {"kind": "cow", "lives": 5}) == (
        'x: fits no alternative: Cat: kind: expected "cat", got "cow"; Dog: kind: expected "dog", got "cow"'
    )


def test_untagged_classes_are_all_tried() -> None:
    assert read(Cat | Numbers, {"below": None, "values": [1]}) == Numbers(None, [1])
    assert refused(SchemaBuilder("it").converter(Cat | Numbers).convert, {"values": ["a"], "below": None}).startswith(
        'x: fits no alternative: Cat: unknown member "values", "below"; the members are kind, lives; missing: kind'
    )


@dataclass
class Puppy(Dog):
    age: int = 0


class Whelp(Puppy):
    pass


@dataclass
class Box(Generic[T]):
    item: T


@pytest.mark.parametrize(
    ("annotation", "value", "written"),
    [
        (Dog | Puppy, Puppy("dog", "nine", 1), {"kind": "dog", "lives": "nine", "age": 1}),
        (Dog | Puppy, Dog("dog", "nine"), {"kind": "dog", "lives": "nine"}),
        (Dog | Puppy, Whelp("dog", "nine", 1), {"kind": "dog", "lives": "nine", "age": 1}),
        (Dog | Puppy, {"kind": "dog", "lives": "nine", "age": 1}, {"kind": "dog", "lives": "nine", "age": 1}),
        (Dog | None, Puppy("dog", "nine", 1), {"kind": "dog", "lives": "nine"}),
        (Box[int] | Box[str], Box("x"), {"item": "x"}),
    ],
)
def test_instance_is_written_as_its_own_class(annotation: Any, value: Any, written: Any) -> None:
    assert SchemaBuilder("it", output=True).converter(annotation).convert(value) == written


def deep(depth: int, values: list[Any]) -> Any:
    value: Any = None
    for _ in range(depth):
        value = {"below": value, "values": values}
    return value


def expression(depth: int, op: str) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"left": value, "right": 1, "op": op}
    return value


@pytest.mark.parametrize("op", ["add", "multiply"])
def test_late_tag_does_not_multiply_work(op: str) -> None:
    found = read(Add | Multiply, expression(60, op))
    assert type(found) is {"add": Add, "multiply": Multiply}[op]


def test_similar_alternatives_do_not_multiply_work() -> None:
    """Each level of the value would be tried twice for every level around it, so 60 levels would take for ever."""
    assert type(read(Numbers | Words, deep(60, ["a"]))) is Words
    error = refused(SchemaBuilder("it").converter(Numbers | Words).convert, deep(60, [None]))
    assert error.startswith("x: fits no alternative: Numbers: below: fits no alternative: ")
    assert len(error) < 1000


def test_attempts_are_forgotten_afterwards() -> None:
    convert = SchemaBuilder("it").converter(Numbers | Words).convert
    value = deep(3, ["a"])
    first = convert(value)
    value["values"] = [1]
    value["below"] = None
    assert type(first) is Words
    assert type(convert(value)) is Numbers
