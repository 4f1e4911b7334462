from __future__ import annotations

import collections.abc
import dataclasses
import enum
import re
import typing
from datetime import UTC, date, datetime, time
from decimal import Decimal
from types import GenericAlias
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    TypeVar,
    Union,
)
from uuid import UUID

import attrs
import pydantic
import pytest
import typing_extensions
from jsonschema import Draft202012Validator

from mcpio.app.schema.builder import SchemaBuilder, json_schema
from mcpio.app.schema.constraints import Constraints
from mcpio.app.schema.values import Fault
from mcpio.types.content import TextContent

if TYPE_CHECKING:
    from decimal import Decimal as Missing

T = TypeVar("T")
UserId = NewType("UserId", int)
Even = typing_extensions.TypeAliasType("Even", Annotated[int, Constraints(multiple_of=2)])
Json = typing_extensions.TypeAliasType("Json", "dict[str, Json] | list[Json] | str | int | None")
Many = typing_extensions.TypeAliasType("Many", "list[T]", type_params=(T,))


class Colour(enum.Enum):
    """Which paint."""

    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Odd(enum.Enum):
    PAIR = (1, 2)


class Nothing(enum.Enum):
    pass


class Strange(enum.Enum):
    OBJECT = object()


@attrs.define
class Node:
    """A node.

    Attributes:
        size: in bytes
    """

    name: str
    size: Annotated[int, Constraints(ge=0)] = 1
    children: list[Node] = attrs.Factory(list)


@dataclasses.dataclass
class Point:
    x: int
    y: Annotated[int, "how high"] = 0
    area: int = dataclasses.field(init=False, default=0)


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Pair(NamedTuple):
    left: int
    right: Optional[str] = None  # noqa: UP045 - the old spelling, as others write it


@attrs.frozen
class Link:
    after: Annotated[Link, "the next one"] | None = None


@attrs.frozen
class Page(Generic[T]):
    items: list[T]
    first: T | None = None
    next: Page[T] | None = None


@attrs.frozen
class Book:
    pages: Page[int]
    notes: Page[str]


class Broken(NamedTuple):
    what: Missing


class Deep(NamedTuple):
    broken: complex


@dataclasses.dataclass
class Seeded:
    x: int
    seed: dataclasses.InitVar[int]


@dataclasses.dataclass(init=False)
class OwnWay:
    x: int

    def __init__(self, **members: int) -> None:
        self.x = members["x"]


class Address(pydantic.BaseModel):
    street: str


class Person(pydantic.BaseModel):
    home: Address
    friends: list[Person] = []


def same_name() -> Any:
    class Address(pydantic.BaseModel):
        city: str

    class Firm(pydantic.BaseModel):
        seat: Address

    return Firm


def other_point() -> Any:
    class Point(NamedTuple):
        z: int

    return Point


def read(annotation: Any, value: Any) -> Any:
    return SchemaBuilder("it").converter(annotation).convert(value)


def write(annotation: Any, value: Any) -> Any:
    return SchemaBuilder("it", output=True).converter(annotation).convert(value)


STRING = {"type": "string"}
INTEGER = {"type": "integer"}
NULL = {"type": "null"}
NODE = {
    "type": "object",
    "properties": {
        "name": STRING,
        "size": {"type": "integer", "minimum": 0, "description": "in bytes", "default": 1},
        "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
    },
    "required": ["name"],
    "additionalProperties": False,
    "description": "A node.",
}
POINT = {
    "type": "object",
    "properties": {"x": INTEGER, "y": {"type": "integer", "description": "how high", "default": 0}},
    "required": ["x"],
    "additionalProperties": False,
}
PAGE_OF_INT = {
    "type": "object",
    "properties": {
        "items": {"type": "array", "items": INTEGER},
        "first": {"anyOf": [INTEGER, NULL], "default": None},
        "next": {"anyOf": [{"$ref": "#/$defs/Page_int"}, NULL], "default": None},
    },
    "required": ["items"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, STRING),
        (None, NULL),
        (Any, {}),
        (object, {}),
        (UserId, INTEGER),
        (typing.Final[int], INTEGER),
        (Even, {"type": "integer", "multipleOf": 2}),
        (bytes, {"type": "string", "contentEncoding": "base64"}),
        (date, {"type": "string", "format": "date"}),
        (list, {"type": "array"}),
        (list[int], {"type": "array", "items": INTEGER}),
        (typing.List[int], {"type": "array", "items": INTEGER}),  # noqa: UP006 - the old spelling
        (collections.abc.Sequence[int], {"type": "array", "items": INTEGER}),
        (set[str], {"type": "array", "uniqueItems": True, "items": STRING}),
        (frozenset, {"type": "array", "uniqueItems": True}),
        (tuple, {"type": "array"}),
        (typing.Tuple, {"type": "array"}),  # noqa: UP006 - the old spelling
        (tuple[int, ...], {"type": "array", "items": INTEGER}),
        (tuple[int, str], {"type": "array", "prefixItems": [INTEGER, STRING], "minItems": 2, "maxItems": 2}),
        (tuple[()], {"type": "array", "maxItems": 0}),
        (dict, {"type": "object"}),
        (dict[Any, Any], {"type": "object"}),
        (collections.abc.Mapping[str, int], {"type": "object", "additionalProperties": INTEGER}),
        (dict[Colour, Any], {"type": "object", "propertyNames": {"type": "string", "enum": ["red", "blue"]}}),
        (int | None, {"anyOf": [INTEGER, NULL]}),
        (Union[int, str, UserId], {"anyOf": [INTEGER, STRING]}),  # noqa: UP007 - the old spelling
        (int | Any, {}),
        (Literal["a"], {"type": "string", "const": "a"}),
        (Literal["a", 1, None], {"enum": ["a", 1, None]}),  # noqa: PYI061 - one choice, not a union
        (Literal[Colour.RED], {"type": "string", "const": "red"}),
        (Literal[True, False], {"type": "boolean", "enum": [True, False]}),
        (Colour, {"type": "string", "enum": ["red", "blue"]}),
        (Level, {"type": "integer", "enum": [1, 2]}),
        (Annotated[str, Constraints(pattern="^a", min_length=2)], {"type": "string", "minLength": 2, "pattern": "^a"}),
        (Annotated[int, "how many", "or not"], {"type": "integer", "description": "how many"}),
        (Annotated[list[Annotated[int, Constraints(gt=0)]], Constraints(max_length=3)], None),
        (
            Annotated[int | str | None, Constraints(ge=1, max_length=3)],
            {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "maxLength": 3}, NULL]},
        ),
        (Point, POINT),
        (Annotated[Point, "where"], {**POINT, "description": "where"}),
        (list[Point], {"type": "array", "items": {"$ref": "#/$defs/Point"}, "$defs": {"Point": POINT}}),
        (Node, {**NODE, "$defs": {"Node": NODE}}),
        (
            Movie,
            {
                "type": "object",
                "properties": {"title": STRING, "year": INTEGER},
                "required": ["title"],
                "additionalProperties": False,
            },
        ),
        (
            Pair,
            {
                "type": "object",
                "properties": {"left": INTEGER, "right": {"anyOf": [STRING, NULL], "default": None}},
                "required": ["left"],
                "additionalProperties": False,
            },
        ),
        (Page[int], {**PAGE_OF_INT, "$defs": {"Page_int": PAGE_OF_INT}}),
        (Many[int], {"type": "array", "items": INTEGER}),
        (
            Json,
            {
                "anyOf": [
                    {"type": "object", "additionalProperties": {"$ref": "#/$defs/Json"}},
                    {"type": "array", "items": {"$ref": "#/$defs/Json"}},
                    STRING,
                    INTEGER,
                    NULL,
                ],
            },
        ),
    ],
)
def test_schema_of_each_type(annotation: Any, schema: dict[str, Any] | None) -> None:
    if schema is None:
        schema = {"type": "array", "items": {"type": "integer", "exclusiveMinimum": 0}, "maxItems": 3}
    if annotation is Json:
        schema["$defs"] = {"Json": dict(schema)}
    found = json_schema(annotation)
    assert found == schema
    Draft202012Validator.check_schema(found)


def test_open_class_allows_additional_members() -> None:
    schema, members = SchemaBuilder("it").members([], extra=Any)
    assert schema == {"type": "object"}
    assert members.convert({"a": [1]}) == {"a": [1]}
    assert SchemaBuilder("it").members([], extra=int)[0] == {"type": "object", "additionalProperties": INTEGER}
    assert SchemaBuilder("it").members([])[0] == {"type": "object", "additionalProperties": False}


def test_generic_class_gets_one_definition_per_argument() -> None:
    found = json_schema(Book)
    assert found["properties"] == {"pages": {"$ref": "#/$defs/Page_int"}, "notes": {"$ref": "#/$defs/Page_str"}}
    assert list(found["$defs"]) == ["Page_int", "Page_str"]


def test_classes_with_equal_names_get_distinct_definitions() -> None:
    other: Any = other_point()
    found = json_schema(GenericAlias(tuple, (Point, other, Point)))
    assert found["prefixItems"] == [
        {"$ref": "#/$defs/Point"},
        {"$ref": "#/$defs/Point_2"},
        {"$ref": "#/$defs/Point"},
    ]
    assert found["$defs"]["Point_2"]["properties"] == {"z": INTEGER}


def test_returned_schema_is_a_copy() -> None:
    json_schema(list[str])["items"]["title"] = "changed"
    assert json_schema(list[str]) == {"type": "array", "items": STRING}


def test_schema_is_deterministic() -> None:
    assert repr(json_schema(Book)) == repr(json_schema(Book))


def test_computed_members_are_encoded_but_not_decoded() -> None:
    assert "area" not in json_schema(Point)["properties"]
    assert json_schema(Point, output=True)["properties"]["area"] == INTEGER
    assert write(Point, Point(1)) == {"x": 1, "y": 0, "area": 0}


def test_default_is_included_only_if_it_fits_its_type() -> None:
    class Defaults(NamedTuple):
        colour: Colour = Colour.RED
        text: str = None  # type: ignore[assignment]  # a careless default
        when: datetime = datetime(2025, 1, 1)  # without a time zone, so it cannot be said
        point: Point = Point(1)

    found = SchemaBuilder("it", namespace=globals())
    schema = found.complete(found.converter(Defaults).schema)
    assert {name: each.get("default", "none") for name, each in schema["properties"].items()} == {
        "colour": "red",
        "text": "none",
        "when": "none",
        "point": "none",
    }


@pytest.mark.parametrize(
    ("annotation", "advice"),
    [
        (complex, "complex has no JSON Schema: use str, int,"),
        (
            time,
            "Enum, datetime, date, timedelta, Decimal, UUID, Path, bytes, a dataclass, an attrs class, a TypedDict, ",
        ),
        (range, "a NamedTuple or a pydantic model; mcpio.app.register_type() makes other types known"),
        ("int", "'int' has no JSON Schema"),
        (5, "5 has no JSON Schema"),
        (re.Pattern[str], "Pattern[str] has no JSON Schema"),
        (T, "~T has no JSON Schema: say which type it stands for"),
        (Page, "~T has no JSON Schema: say which type it stands for"),
        (dict[int, str], "dict[int, str] has no JSON Schema: the names of members are strings"),
        (Odd, "Odd has no JSON Schema: its values are to be strings, numbers, booleans or None"),
        (Strange, "Strange has no JSON Schema: its values are to be strings, numbers, booleans or None"),
        (Nothing, "Nothing has no JSON Schema: it has no members"),
        (TextContent, "TextContent has no JSON Schema: it is a part of the protocol's messages"),
        (Broken, "Broken has no JSON Schema: name 'Missing' is not defined"),
        (Seeded, "Seeded has no JSON Schema: its members and the parameters of its constructor differ: 'seed'"),
        (list[Deep], "it, Deep, member 'broken': complex has no JSON Schema"),
        (Annotated[str, Constraints(ge=1)], "ge cannot constrain a string"),
        (Annotated[int, Constraints(ge="a")], "ge must be a finite number, not 'a'"),
    ],
)
def test_type_without_json_form_is_refused_with_advice(annotation: Any, advice: str) -> None:
    with pytest.raises(TypeError) as caught:
        SchemaBuilder("it").converter(annotation)
    assert advice in str(caught.value)
    assert str(caught.value).startswith("it")


def test_untyped_constructor_accepts_any_value() -> None:
    assert read(OwnWay, {"x": 1}).x == 1


def test_model_definitions_are_merged() -> None:
    found = json_schema(GenericAlias(tuple, (Person, Address, same_name(), Point, Person)))
    assert found["prefixItems"][0] == {"$ref": "#/$defs/Person"}
    assert found["prefixItems"][4] == {"$ref": "#/$defs/Person"}
    assert found["prefixItems"][2]["properties"]["seat"] == {"$ref": "#/$defs/Address_2"}
    assert found["$defs"]["Person"]["properties"]["home"] == {"$ref": "#/$defs/Address"}
    assert set(found["$defs"]) == {"Person", "Address", "Address_2", "Point"}


def test_model_round_trips() -> None:
    person = read(Person, {"home": {"street": "a"}})
    assert person == Person(home=Address(street="a"))
    assert write(Person, person) == {"home": {"street": "a"}, "friends": []}
    with pytest.raises(Fault) as caught:
        read(list[Person], [{"home": {"street": 5}}])
    assert caught.value.as_invalid("x").path == "x[0].home.street"


@pytest.mark.parametrize(
    ("annotation", "said", "meant"),
    [
        (Any, {"a": [1]}, {"a": [1]}),
        (Node, {"name": "a", "children": [{"name": "b", "size": 2}]}, Node("a", 1, [Node("b", 2)])),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[int, date], [1, "2025-01-02"], (1, date(2025, 1, 2))),
        (set[Colour], ["red"], {Colour.RED}),
        (dict[Colour, UUID], {"red": str(UUID(int=1))}, {Colour.RED: UUID(int=1)}),
        (Link, {"after": {"after": None}}, Link(Link(None))),
        (Page[date], {"items": [], "first": "2025-01-02"}, Page([], date(2025, 1, 2))),
        (Json, {"a": [None, {"b": 1}]}, {"a": [None, {"b": 1}]}),
        (float | int, 5, 5),
        (date | str, "x", "x"),
        (Level | None, 2.0, Level.HIGH),
        (Movie, {"title": "x"}, {"title": "x"}),
        (Annotated[Decimal, Constraints(ge=1)], 1.5, Decimal("1.5")),
        (
            Annotated[datetime, Constraints(ge=datetime(2025, 1, 1, tzinfo=UTC))],
            "2025-01-01T00:00:00Z",
            datetime(2025, 1, 1, tzinfo=UTC),
        ),
    ],
)
def test_value_round_trips(annotation: Any, said: Any, meant: Any) -> None:
    found = read(annotation, said)
    assert found == meant
    assert type(found) is type(meant)
    assert read(annotation, write(annotation, found)) == meant


@pytest.mark.parametrize(
    ("annotation", "value", "error"),
    [
        (Node, {"name": "a", "children": [{"name": 5}]}, "x.children[0].name: expected a string, got 5"),
        (Annotated[list[int], Constraints(max_length=1)], [1, 2], "x: expected at most 1 items, got 2"),
        (Annotated[int | None, Constraints(ge=1)], 0, "x: expected a value at least 1, got 0"),
        (Even, 3, "x: expected a multiple of 2, got 3"),
        (int | Point, {"x": "1"}, 'x.x: expected an integer, got "1"'),
        (Json, {"a": [1.5]}, None),
    ],
)
def test_mismatch_error_names_the_member(annotation: Any, value: Any, error: str | None) -> None:
    with pytest.raises(Fault) as caught:
        read(annotation, value)
    assert error is None or str(caught.value.as_invalid("x")) == error


def test_any_encodes_by_runtime_type() -> None:
    assert write(Any, {"a": {Colour.RED}}) == {"a": ["red"]}
    with pytest.raises(Fault):
        write(dict[str, Any], {"a": float("nan")})
