from __future__ import annotations

import copy
import pickle
from typing import Any, ClassVar

import attrs
import pytest

from mcpio.revisions import REV_2024_11_05, REV_2025_06_18, REV_2025_11_25, REV_2026_07_28
from mcpio.types._fields import (
    EMPTY,
    NOT_ON_THE_WIRE,
    Choice,
    MalformedItem,
    OneOrMore,
    Payload,
    Unknown,
    Wire,
    payload,
    tagged,
    wire,
    wired,
)


@payload
class Lemon(Payload):
    """A payload of the tests."""

    type: ClassVar = "lemon"
    name: str
    sour: bool = wire(default=True, since=REV_2025_06_18)
    seeds: tuple[int, ...] = ()


@payload
class Lime(Payload):
    """Another, alike."""

    type: ClassVar = "lime"
    name: str
    sour: bool = True
    seeds: tuple[int, ...] = ()


def test_a_payload_is_frozen_to_type_checkers_and_has_no_other_attributes() -> None:
    lemon = Lemon("a")
    lemon.name = "b"  # type: ignore[misc]  # mypy would report an ignore that it does not need
    with pytest.raises(AttributeError):
        lemon.colour = "green"  # type: ignore[attr-defined]  # the test is that it fails
    assert not hasattr(lemon, "__dict__")


def test_payloads_compare_by_value() -> None:
    assert Lemon("a", seeds=(1,)) == Lemon("a", True, (1,))
    assert Lemon("a") != Lemon("b")
    assert Lemon("a") != Lemon("a", extra={"x": 1})
    assert Lemon("a", extra={}) == Lemon("a")
    assert Lemon("a") != "a"


def test_payloads_of_different_classes_differ() -> None:
    assert Lemon("a") != Lime("a")


def test_given_is_ignored_by_equality() -> None:
    assert Lemon("a", given=("sour",)) == Lemon("a")


def test_payload_is_unhashable() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Lemon("a"))


def test_repr_shows_members_that_differ_from_their_defaults() -> None:
    assert repr(Lemon("a")) == "Lemon(name='a')"
    shown = repr(Lemon("a", False, extra={"x": 1}, given=("seeds",)))
    assert shown == "Lemon(name='a', sour=False, extra={'x': 1})"


@pytest.mark.parametrize("lemon", [Lemon("a"), Lemon("a", False, (1, 2), extra={"x": [1]}, given=("seeds",))])
def test_a_payload_can_be_copied_and_pickled(lemon: Lemon) -> None:
    for twin in (copy.copy(lemon), copy.deepcopy(lemon), pickle.loads(pickle.dumps(lemon))):
        assert twin == lemon
        assert twin.given == lemon.given
        assert type(twin) is Lemon


def test_payload_supports_attrs_evolve() -> None:
    assert attrs.evolve(Lemon("a"), name="b") == Lemon("b")


def test_empty_mapping_is_immutable() -> None:
    assert EMPTY == {}
    with pytest.raises(TypeError):
        EMPTY["x"] = 1  # type: ignore[index]  # the test is that it fails


def test_member_options_have_defaults() -> None:
    plain = Wire()
    assert (plain.since, plain.until) == (REV_2024_11_05, REV_2026_07_28)
    assert (plain.name, plain.lenient, plain.object_until, plain.limits) == (None, None, None, None)
    assert (plain.essential, plain.always, plain.required) == (False, False, False)


def test_member_options_are_in_the_attrs_metadata() -> None:
    sour = attrs.fields_dict(Lemon)["sour"]
    assert sour.default is True
    assert sour.metadata["wire"].since is REV_2025_06_18
    assert attrs.fields_dict(Lemon)["extra"].metadata == NOT_ON_THE_WIRE
    said = wired(until=REV_2025_11_25, name="_x", limits=(0, 1))["wire"]
    assert (said.until, said.name, said.limits) == (REV_2025_11_25, "_x", (0, 1))


@pytest.mark.parametrize(
    ("raw", "cls"),
    [
        ({"type": "lemon"}, Lemon),
        ({"type": "lime", "x": 1}, Lime),
        ({"type": "orange"}, None),
        ({"type": 5}, None),
        ({"type": ["lemon"]}, None),
        ({}, None),
    ],
)
def test_tagged_classes_are_distinguished(raw: dict[str, Any], cls: type | None) -> None:
    choice = tagged(Lemon, Lime)
    assert choice.pick(raw) is cls
    assert (choice.member, choice.unknown) == ("type", None)


def test_choice_and_one_or_more_hold_their_arguments() -> None:
    choice = Choice(lambda raw: None, unknown=dict)
    assert (choice.pick({}), choice.unknown, choice.member) == (None, dict, None)
    mark = OneOrMore(Lemon, since=REV_2025_11_25)
    assert (mark.item, mark.since) == (Lemon, REV_2025_11_25)


def test_unknown_value_keeps_the_raw_object() -> None:
    @attrs.frozen
    class UnknownFruit(Unknown):
        raw: dict[str, Any]

    assert UnknownFruit({"type": "orange"}).raw == {"type": "orange"}
    assert MalformedItem(3, None, "expected an object, got null").index == 3
