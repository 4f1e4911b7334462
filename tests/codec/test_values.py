from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import pytest

from mcpio.codec.values import (
    PLAIN,
    Fault,
    choices_hook,
    each_value,
    exact_class,
    quoted,
    refuse,
    union_hook,
)

OBJECT = Mapping[str, Any]


@pytest.mark.parametrize(
    ("steps", "where"),
    [
        ([], ""),
        (["name"], "name"),
        ([0], "[0]"),
        (["size", 3, "items"], "items[3].size"),
        (["_meta"], "_meta"),
        (["$schema", "requestedSchema"], "requestedSchema.$schema"),
        (["a key", "content"], "content['a key']"),
        (["", "content"], "content['']"),
        (["x.y", "content"], "content['x.y']"),
        (["é", "content"], "content['é']"),
        (["k" * 51, "content"], f"content['{'k' * 50}']"),
        ([None, "content"], "content.None"),
    ],
)
def test_path_runs_from_the_outside_in(steps: list[Any], where: str) -> None:
    assert Fault("no", *steps).where() == where


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (None, "null"),
        (True, "a boolean"),
        (1, "a number"),
        (1.5, "a number"),
        ("x", "a string"),
        ([], "an array"),
        ((), "an array"),
        ({}, "an object"),
        (b"", "a bytes"),
    ],
)
def test_refusal_names_the_given_kind(value: Any, name: str) -> None:
    with pytest.raises(Fault) as caught:
        refuse("a lemon", value)
    assert caught.value.reason == f"expected a lemon, got {name}"


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (str, ""),
        (bool, False),
        (int, 0),
        (int, -(2**80)),
        (float, 0.5),
        (float, 3),
        (Any, None),
        (Any, [1]),
        (OBJECT, {"a": [1]}),
        (OBJECT, MappingProxyType({"a": 1})),
    ],
)
def test_plain_value_is_unchanged(type_: Any, value: Any) -> None:
    exact, decode, encode = PLAIN[type_]
    assert decode(value, type_) is value
    assert encode(value) == value
    assert exact is exact_class(type_)


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (str, 5, "expected a string, got a number"),
        (str, None, "expected a string, got null"),
        (bool, 1, "expected a boolean, got a number"),
        (bool, "true", "expected a boolean, got a string"),
        (int, True, "expected an integer, got a boolean"),
        (int, "5", "expected an integer, got a string"),
        (int, 5.5, "expected an integer, got a number"),
        (int, float("inf"), "expected an integer, got a number"),
        (float, False, "expected a number, got a boolean"),
        (float, "1.5", "expected a number, got a string"),
        (OBJECT, [], "expected an object, got an array"),
        (OBJECT, [["a", 1]], "expected an object, got an array"),
    ],
)
def test_nothing_is_coerced(type_: Any, value: Any, expected: str) -> None:
    _, decode, encode = PLAIN[type_]
    with pytest.raises(Fault, match=f"^{expected}$"):
        decode(value, type_)
    with pytest.raises(Fault, match=f"^{expected}$"):
        encode(value)


def test_integral_float_becomes_an_integer() -> None:
    made = PLAIN[int][1](5.0, int)
    assert (made, type(made)) == (5, int)


def test_mapping_is_encoded_as_a_dict() -> None:
    assert type(PLAIN[OBJECT][2](MappingProxyType({"a": 1}))) is dict


def test_the_exact_class_of_a_type() -> None:
    assert exact_class(str | None) is str
    assert exact_class(OBJECT) is dict
    assert exact_class(Any) is None
    assert exact_class(tuple[str, ...]) is None


def hooks() -> dict[type, Any]:
    return {int: lambda value: ("int", value), str: lambda value: ("str", value), list: tuple, tuple: list}


class Colour(StrEnum):
    RED = "red"


def test_union_picks_the_hook_by_the_class_of_the_value() -> None:
    convert = union_hook(hooks())
    assert convert(5) == ("int", 5)
    assert convert("x") == ("str", "x")
    assert convert([1]) == (1,)
    assert convert((1,)) == [1]
    assert convert(Colour.RED) == ("str", Colour.RED)


@pytest.mark.parametrize("value", [True, None, 1.5, {}])
def test_union_refuses_other_values(value: Any) -> None:
    with pytest.raises(Fault, match="expected an integer or a string or an array, got"):
        union_hook(hooks())(value)


def test_choice_returns_the_very_choice() -> None:
    choices = ("user", "assistant")
    convert = choices_hook(choices)
    assert convert("".join(["us", "er"])) is choices[0]
    assert convert("assistant", None) is choices[1]


@pytest.mark.parametrize(
    ("choices", "value", "reason"),
    [
        (("text",), "texts", "expected 'text', got 'texts'"),
        (("a", "b"), "c", "expected one of 'a', 'b', got 'c'"),
        (("a", "b"), 5, "expected one of 'a', 'b', got a number"),
        (("a", "b"), None, "expected one of 'a', 'b', got null"),
        (("a", "b"), ["a"], "expected one of 'a', 'b', got an array"),
        (("a", "b"), "x" * 100, f"expected one of 'a', 'b', got {'x' * 50!r}"),
    ],
)
def test_choice_refuses_other_values(choices: tuple[str, ...], value: Any, reason: str) -> None:
    with pytest.raises(Fault) as caught:
        choices_hook(choices)(value)
    assert caught.value.reason == reason


def test_each_value_of_a_mapping() -> None:
    assert each_value(MappingProxyType({"a": 1, "b": 2}), str) == {"a": "1", "b": "2"}


def test_fault_in_a_mapping_names_its_key() -> None:
    with pytest.raises(Fault) as caught:
        each_value({"good": "x", "a bad": 5}, PLAIN[str][2])
    assert caught.value.where() == "['a bad']"
    with pytest.raises(Fault, match="expected an object, got an array"):
        each_value([], PLAIN[str][2])


def test_strings_are_quoted_and_other_values_named() -> None:
    assert quoted("x" * 60) == repr("x" * 50)
    assert quoted(5) == "a number"
