from __future__ import annotations

import datetime as dt
import enum
import warnings
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import attrs
import pydantic
import pytest
from seats import Seat

from mcpio.app.asking import Form, form_of
from mcpio.app.schema.constraints import Constraints
from mcpio.codec import codec
from mcpio.errors import InvalidMessage
from mcpio.revisions import REV_2025_11_25


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


class Lower(enum.StrEnum):
    """Its members have a method ``title``, as every text."""

    A = "a"


TITLED = [{"const": "window", "title": "By the window"}, {"const": "aisle", "title": "By the aisle"}]


def schema_of(annotation: Any, **members: Any) -> dict[str, Any]:
    """Return the schema of the one field of a form."""
    kind = type("Sample", (), {"__annotations__": {"field": annotation}, **members})
    return said(dataclass(kind))["properties"]["field"]  # type: ignore[no-any-return]  # whatever it says


def said(kind: type[Any]) -> dict[str, Any]:
    return codec(REV_2025_11_25).encode(Form(kind).schema)


@pytest.mark.req("ELIC-04", "ELIC-05", "ELIC-06", "SCHEMA-08")
@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (Annotated[str, "Where to"], {"type": "string", "description": "Where to"}),
        (
            Annotated[str, Constraints(min_length=1, max_length=9)],
            {"type": "string", "minLength": 1, "maxLength": 9},
        ),
        (Annotated[str, Constraints(format="email")], {"type": "string", "format": "email"}),
        (Annotated[str, Constraints(format="uri")], {"type": "string", "format": "uri"}),
        (dt.date, {"type": "string", "format": "date"}),
        (dt.datetime, {"type": "string", "format": "date-time"}),
        (int, {"type": "integer"}),
        (Annotated[int, Constraints(ge=1, le=9)], {"type": "integer", "minimum": 1, "maximum": 9}),
        (Annotated[float, Constraints(ge=0.5)], {"type": "number", "minimum": 0.5}),
        (bool, {"type": "boolean"}),
    ],
)
def test_schema_of_scalar_fields(annotation: Any, schema: dict[str, Any]) -> None:
    assert schema_of(annotation) == schema


@pytest.mark.req("ELIC-08")
@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a"], {"type": "string", "enum": ["a"]}),
        (Size, {"type": "string", "enum": ["s", "l"]}),
        (Lower, {"type": "string", "enum": ["a"]}),
        (Seat, {"type": "string", "oneOf": TITLED}),
        (list[Literal["a", "b"]], {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}),
        (tuple[Size, ...], {"type": "array", "items": {"type": "string", "enum": ["s", "l"]}}),
        (set[Literal["a"]], {"type": "array", "items": {"type": "string", "enum": ["a"]}}),
        (
            Annotated[list[Seat], Constraints(min_length=1, max_length=2)],
            {"type": "array", "items": {"anyOf": TITLED}, "minItems": 1, "maxItems": 2},
        ),
    ],
)
def test_schema_of_choice_fields(annotation: Any, schema: dict[str, Any]) -> None:
    assert schema_of(annotation) == schema


@pytest.mark.req("ELIC-05", "ELIC-06", "ELIC-08")
@pytest.mark.parametrize(
    ("annotation", "default", "schema"),
    [
        (str, "a", {"type": "string", "default": "a"}),
        (int, 2, {"type": "integer", "default": 2}),
        (float, 2.5, {"type": "number", "default": 2.5}),
        (bool, False, {"type": "boolean", "default": False}),
        (Seat, Seat.AISLE, {"type": "string", "oneOf": TITLED, "default": "aisle"}),
        (
            tuple[Size, ...],
            (Size.SMALL,),
            {"type": "array", "items": {"type": "string", "enum": ["s", "l"]}, "default": ["s"]},
        ),
        (str | None, None, {"type": "string"}),
        (Annotated[int | None, "How many"], None, {"type": "integer", "description": "How many"}),
        (Seat | None, None, {"type": "string", "oneOf": TITLED}),
        (Literal["a", None], None, {"type": "string", "enum": ["a"]}),  # noqa: PYI061 - as some may write it
        (str | None, "a", {"type": "string", "default": "a"}),
    ],
)
def test_a_field_with_a_default_need_not_be_filled_in(annotation: Any, default: Any, schema: dict[str, Any]) -> None:
    assert schema_of(annotation, field=default) == schema


@attrs.frozen
class Booking:
    """A flight."""

    to: Annotated[str, "Where to", Constraints(min_length=3)]
    day: dt.date
    seat: Seat = Seat.AISLE
    extras: tuple[Literal["meal", "bag"], ...] = ()
    note: str | None = None


@dataclass
class AsDataclass:
    to: str
    people: int = field(default_factory=lambda: 1)


class AsTypedDict(TypedDict, total=False):
    to: str


class AsNamedTuple(NamedTuple):
    to: str
    people: int = 1


class AsModel(pydantic.BaseModel):
    to: str = pydantic.Field(min_length=3, title="To", description="Where to")
    people: int | None = None


@pytest.mark.req("ELIC-12")
def test_content_becomes_an_instance_of_the_class() -> None:
    form = Form(Booking)
    assert form.kind is Booking
    assert form.schema.required == ("to", "day")
    content: Any = {"to": "Oslo", "day": "2025-06-18", "seat": "window", "extras": ("bag",), "unasked": 5}
    assert form.read(content) == Booking("Oslo", dt.date(2025, 6, 18), Seat.WINDOW, ("bag",))
    assert form.read({"to": "Oslo", "day": "2025-06-18"}).seat is Seat.AISLE


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (AsDataclass, AsDataclass("Oslo", 1)),
        (AsTypedDict, {"to": "Oslo"}),
        (AsNamedTuple, AsNamedTuple("Oslo")),
        (AsModel, AsModel(to="Oslo")),
    ],
)
def test_classes_of_every_kind(kind: type[Any], value: Any) -> None:
    assert Form(kind).read({"to": "Oslo"}) == value


def test_model_of_another_library_keeps_its_own_schema() -> None:
    assert said(AsModel)["properties"] == {
        "to": {"type": "string", "minLength": 3, "title": "To", "description": "Where to"},
        "people": {"type": "integer", "title": "People"},
    }


@pytest.mark.req("ELIC-12")
@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (None, "content: missing members to, day"),
        ({"to": "Os", "day": "2025-06-18"}, "content.to: expected at least 3 characters, got 2"),
        ({"to": "Oslo", "day": "soon"}, 'content.day: expected a date such as 2025-06-18, got "soon"'),
        ({"to": "Oslo", "day": "2025-06-18", "seat": "x"}, 'content.seat: expected one of "window", "aisle", got "x"'),
    ],
)
def test_content_that_does_not_fit_is_refused(content: Any, fault: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        Form(Booking).read(content)
    assert str(caught.value) == fault


@pytest.mark.req("ELIC-04", "SCHEMA-08")
@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        (Booking, "member 'field': an object"),
        (list[str], "member 'field': a field that is array"),
        (list[Booking], "member 'field': a field that is array"),
        (dict[str, str], "member 'field': a field that is object"),
        (str | int, "member 'field': a field that is of several types"),
        (str | None, "member 'field': a field that is of several types"),
        (bytes, "member 'field': contentEncoding cannot be said"),
        (Literal[1, 2], "member 'field': enum cannot be said"),
        (list[Literal[1, 2]], "properties.field.items.enum[0]: expected a string"),
        (Literal["a", 1], "member 'field': a field that is of several types"),
        (Annotated[str, Constraints(pattern="a+")], "member 'field': pattern cannot be said"),
        (Annotated[int, Constraints(gt=1)], "member 'field': exclusiveMinimum cannot be said"),
        (Annotated[float, Constraints(multiple_of=2)], "member 'field': multipleOf cannot be said"),
        (complex, "member 'field': complex has no JSON Schema"),
    ],
)
def test_class_beyond_a_form_raises(annotation: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=r"^the form, Sample") as caught:
        schema_of(annotation)
    assert reason in str(caught.value)


@pytest.mark.parametrize("kind", [int, str, list[str], type("Empty", (), {"__attrs_attrs__": ()})])
def test_class_without_fields_is_not_a_form(kind: Any) -> None:
    with pytest.raises(TypeError, match=r"^the form"):
        Form(kind)


def test_the_form_of_a_class_is_made_once() -> None:
    assert form_of(Booking) is form_of(Booking)


@dataclass
class Login:
    user: str
    password: str


@pytest.mark.req("ELIC-13")
def test_form_for_secrets_warns_at_its_definition() -> None:
    with pytest.warns(UserWarning, match="a form must not ask for secrets: password") as caught:
        Form(Login)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert Form(Login).read({"user": "ada", "password": "x"}) == Login("ada", "x")
