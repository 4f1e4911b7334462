"""What msgspec does with the annotations and arguments that tools have: its schema, strictness and errors, beside ours.

    python benchmarks/argument_msgspec.py

A case is an annotation with values; ``same`` says whether both take the value, and agree on what comes of it.
"""

from __future__ import annotations

import dataclasses
import enum
import subprocess
import sys
import timeit
from datetime import date
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import attrs
import msgspec

from mcpio.app import Constraints
from mcpio.app.schema.builder import SchemaBuilder, json_schema


@dataclasses.dataclass
class Point:
    """A point.

    Args:
        x: from the left

    """

    x: int
    y: int = 0


@attrs.frozen
class Cat:
    """A cat."""

    kind: Literal["cat"]
    lives: int


@attrs.frozen
class Dog:
    """A dog."""

    kind: Literal["dog"]


class Colour(enum.Enum):
    """Colours."""

    RED = "red"


class Options(TypedDict, total=False):
    """Options."""

    deep: bool


class Pair(NamedTuple):
    """A pair."""

    a: int
    b: str = "x"


CASES: list[tuple[str, Any, Any]] = [
    ("int", int, 5),
    ("int for 1.0", int, 1.0),
    ("int for true", int, True),
    ("int for a text", int, "5"),
    ("float for 5", float, 5),
    ("date", date, "2026-01-02"),
    ("Enum", Colour, "red"),
    ("Literal", Literal["a", "b"], "a"),
    ("dataclass", Point, {"x": 1}),
    ("dataclass, unknown member", Point, {"x": 1, "z": 1}),
    ("TypedDict", Options, {"deep": True}),
    ("TypedDict, unknown member", Options, {"depth": 1}),
    ("NamedTuple as an object", Pair, {"a": 1}),
    ("set with an item twice", set[int], [1, 1]),
    ("union of two classes", Cat | Dog, {"kind": "dog"}),
    ("float | int for 5", float | int, 5),
    ("Constraints(ge=1) for 0", Annotated[int, Constraints(ge=1)], 0),
    ("annotated text as description", Annotated[int, "how many"], 1),
    ("fault inside of a list", list[Point], [{"x": 1}, {"x": "a"}]),
]


def ours(kind: Any, value: Any) -> Any:
    """Return the converted value, or the text of the error."""
    try:
        return SchemaBuilder("x").converter(kind).convert(value)
    except Exception as error:  # compared as text
        return f"refused: {error}"


def theirs(kind: Any, value: Any) -> Any:
    """Return the same of msgspec."""
    try:
        return msgspec.convert(value, kind)
    except Exception as error:  # compared as text
        return f"refused: {error}"


def main() -> None:
    """Compare and print."""
    for name, kind, value in CASES:
        one, two = ours(kind, value), theirs(kind, value)
        both_refuse = str(one).startswith("refused") and str(two).startswith("refused")
        print(f"{name:30} {'same' if both_refuse or (one == two and type(one) is type(two)) else 'DIFFERENT'}")
        print(f"    ours    {one!s:.100}\n    msgspec {two!s:.100}")
        try:
            schema: Any = msgspec.json.schema(kind)
        except Exception as error:  # compared as text
            schema = f"no schema: {error}"
        if schema != json_schema(kind):
            print(f"    schema  {json_schema(kind)!s:.150}\n    msgspec {schema!s:.150}")
    items = [{"kind": "cat", "lives": 9}] * 20
    convert = SchemaBuilder("x").converter(list[Cat]).convert
    for text, call in {"ours": lambda: convert(items), "msgspec": lambda: msgspec.convert(items, list[Cat])}.items():
        print(f"20 objects, {text:8} {min(timeit.repeat(call, number=500, repeat=9)) / 500 * 1e6:6.1f} µs")
    code = "import {0}, time; t = time.perf_counter(); import msgspec, msgspec.json; print(time.perf_counter() - t)"
    for before in ("json", "attrs"):
        times = [float(subprocess.check_output([sys.executable, "-c", code.format(before)])) for _ in range(7)]
        print(f"import msgspec after {before:8} {min(times) * 1000:5.1f} ms")


if __name__ == "__main__":
    main()
