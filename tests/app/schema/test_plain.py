from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import attrs
import pydantic
import pytest

from mcpio.app.schema.values import in_order, to_json
from mcpio.errors import InvalidMessage
from mcpio.types.content import TextContent


class Colour(enum.Enum):
    RED = "red"


class Promised:
    def __await__(self) -> Iterator[None]:
        return iter(())


class Pair(NamedTuple):
    left: int
    right: Any


@dataclass
class Point:
    x: int
    tags: frozenset[str] = frozenset()


@attrs.define
class Note:
    _text: str


class Model(pydantic.BaseModel):
    when: date


class Name(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, None),
        (True, True),
        (5, 5),
        (0.5, 0.5),
        ("x", "x"),
        (Name("x"), "x"),
        (b"\x01", "AQ=="),
        (Colour.RED, "red"),
        (date(2025, 1, 2), "2025-01-02"),
        (datetime(2025, 1, 2, tzinfo=UTC), "2025-01-02T00:00:00+00:00"),
        (Decimal("1.50"), "1.50"),
        (UUID(int=0), "00000000-0000-0000-0000-000000000000"),
        ([1, (2, [])], [1, [2, []]]),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset(["b", "a"]), ["a", "b"]),
        ({"a": {Colour.RED: 1}}, {"a": {"red": 1}}),
        (OrderedDict(a=1), {"a": 1}),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (Pair(1, Point(2, frozenset("a"))), {"left": 1, "right": {"x": 2, "tags": ["a"]}}),
        (Note("x"), {"text": "x"}),
        (Model(when=date(2025, 1, 2)), {"when": "2025-01-02"}),
    ],
)
def test_value_is_encoded_by_its_runtime_type(value: Any, said: Any) -> None:
    found = to_json(value)
    assert found == said
    assert type(found) is type(said)


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        (object(), "", "a value of type object has no form in JSON"),
        (Promised(), "", "a value of type Promised has no form in JSON: was its await forgotten?"),
        ({"a": [1, float("nan")]}, "a[1]", "expected a finite number, got nan"),
        ({"a": {5: 1}}, "a", "expected a string as the name of a member, got 5"),
        (Pair(1, object()), "right", "a value of type object has no form in JSON"),
        ([TextContent("x")], "[0]", "TextContent is a message's own part and cannot stand inside other data"),
        ([1, 2j], "[1]", "a value of type complex has no form in JSON"),
    ],
)
def test_path_of_an_unencodable_value_is_named(value: Any, path: str, reason: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        to_json(value)
    assert (caught.value.path, caught.value.reason) == (path, reason)


def test_cyclic_value_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidMessage, match="nested too deeply, or contains itself"):
        to_json(endless)


def test_unordered_set_is_encoded_in_any_order() -> None:
    assert sorted(map(str, in_order({1, "a"}))) == ["1", "a"]
