from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, Required, TypedDict

import attrs
import pytest
import typing_extensions

from mcpio.app.schema.values import NO_DEFAULT, Record, attributes_of, evaluate, is_payload, record_for
from mcpio.types.content import TextContent

if TYPE_CHECKING:
    from decimal import Decimal as Missing


@attrs.define
class Note:
    """One note.

    Attributes:
        text: what it says
    """

    text: str
    _owner: str = "nobody"
    tags: list[str] = attrs.Factory(list)
    length: int = attrs.field(init=False, default=attrs.Factory(lambda self: len(self.text), takes_self=True))


Old = attrs.make_class("Old", {"typed": attrs.field(type=int), "untyped": attrs.field()})


@dataclass
class Point:
    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list)
    norm: int = field(init=False, default=0)


@dataclass
class Documented:
    """A place."""


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Partial(TypedDict, total=False):
    title: Required[str]
    year: int


class Frozen(typing_extensions.TypedDict):
    title: typing_extensions.ReadOnly[NotRequired[str]]


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Unresolved(NamedTuple):
    what: Missing


def record(kind: Any) -> Record:
    found = record_for(kind, {})
    assert found is not None
    return found


def facts(kind: Any) -> dict[str, tuple[Any, bool, Any]]:
    return {each.name: (each.annotation, each.required, each.default) for each in record(kind).fields}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            Note,
            {
                "text": (str, True, NO_DEFAULT),
                "owner": (str, False, "nobody"),
                "tags": (list[str], False, NO_DEFAULT),
                "length": (int, False, NO_DEFAULT),
            },
        ),
        (Old, {"typed": (int, True, NO_DEFAULT), "untyped": (Any, True, NO_DEFAULT)}),
        (
            Point,
            {
                "x": (int, True, NO_DEFAULT),
                "y": (int, False, 0),
                "tags": (list[str], False, NO_DEFAULT),
                "norm": (int, False, 0),
            },
        ),
        (Movie, {"title": (str, True, NO_DEFAULT), "year": (int, False, NO_DEFAULT)}),
        (Partial, {"title": (str, True, NO_DEFAULT), "year": (int, False, NO_DEFAULT)}),
        (Frozen, {"title": (str, False, NO_DEFAULT)}),
        (Pair, {"left": (int, True, NO_DEFAULT), "right": (str, False, "r")}),
    ],
)
def test_members_have_type_and_default(kind: Any, expected: dict[str, Any]) -> None:
    assert facts(kind) == expected


def test_private_attribute_uses_its_init_name() -> None:
    assert {each.name: each.attribute for each in record(Note).fields}["owner"] == "_owner"


@pytest.mark.parametrize(("kind", "computed"), [(Note, "length"), (Point, "norm")])
def test_non_init_attribute_is_marked(kind: Any, computed: str) -> None:
    assert [each.name for each in record(kind).fields if each.computed] == [computed]


def test_instance_is_made_from_members() -> None:
    assert record(Note).make(text="a", owner="b") == Note("a", "b")
    assert record(Movie).make(title="a") == {"title": "a"}
    assert record(Pair).make(left=1) == Pair(1)


def test_docstring_describes_class_and_members() -> None:
    found = record(Note)
    assert found.description == "One note."
    assert [each.description for each in found.fields] == ["what it says", None, None, None]


@pytest.mark.parametrize("kind", [Point, Pair, Movie, Old])
def test_generated_docstring_is_ignored(kind: Any) -> None:
    assert record(kind).description is None


def test_dataclass_docstring_is_used() -> None:
    assert record(Documented).description == "A place."


@pytest.mark.parametrize("kind", [int, dict, tuple, object, list[int], "Note", 5])
def test_other_types_are_not_records(kind: Any) -> None:
    assert record_for(kind, {}) is None


def test_local_class_resolves_itself_and_given_names() -> None:
    class Leaf(NamedTuple):
        size: int

    @dataclass
    class Tree:
        leaf: Leaf
        children: list[Tree]

    found = record_for(Tree, {"Leaf": Leaf})
    assert found is not None
    assert [each.annotation for each in found.fields] == [Leaf, list[Tree]]


def test_unknown_name_in_an_annotation_raises() -> None:
    with pytest.raises(NameError, match="Missing"):
        record_for(Unresolved, {})


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        (Note, [("text", "text"), ("owner", "_owner"), ("tags", "tags"), ("length", "length")]),
        (Point, [("x", "x"), ("y", "y"), ("tags", "tags"), ("norm", "norm")]),
        (Pair, [("left", "left"), ("right", "right")]),
        (int, None),
        (tuple, None),
    ],
)
def test_attributes_are_listed_without_resolving_types(kind: type, attributes: Any) -> None:
    assert attributes_of(kind) == attributes


def test_protocol_payload_classes_are_recognised() -> None:
    mine = type("Mine", (TextContent,), {})
    assert is_payload(TextContent)
    assert is_payload(mine)
    assert not is_payload(Note)
    assert not is_payload(list[TextContent])


def test_string_annotations_are_evaluated() -> None:
    found = evaluate({"a": "list[Local]", "b": int, "c": list["int"]}, {"int": int}, {"Local": Note})
    assert found == {"a": list[Note], "b": int, "c": list[int]}
