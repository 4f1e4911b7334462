from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import attrs
import pytest
from unchecked import unchecked

from mcpio.codec import codec
from mcpio.codec.objects import (
    UNLIKE_ANY,
    Check,
    InRow,
    OutRow,
    checks_of,
    itemwise_encoder,
    object_decoder,
    object_encoder,
    sort_out,
)
from mcpio.codec.values import PLAIN, Fault, choices_hook
from mcpio.errors import InvalidMessage
from mcpio.revisions import REV_2025_06_18, REV_2025_11_25, REV_2026_07_28
from mcpio.types import (
    Annotations,
    CallToolRequest,
    CancelledNotification,
    ElicitFormRequest,
    ElicitSchema,
    Icon,
    ListToolsResult,
    MalformedItem,
    NumberSchema,
    Tool,
)
from mcpio.types._fields import EMPTY, Payload, members, payload


@payload
class Lemon(Payload):
    """A payload of the tests."""

    CONSTANTS = ("type",)
    type = "lemon"
    name: str
    sour: bool = True
    note: str | None = None


STRING = PLAIN[str][1]
BOOLEAN = PLAIN[bool][1]


def optional(value: Any, _: Any = None) -> Any:
    return None if value is None else STRING(value)


def given(*way: Any) -> Callable[[], Any]:
    return lambda: way


IN_ROWS: list[InRow] = [
    ("name", "name", attrs.NOTHING, True, "none", given(str, STRING)),
    ("isSour", "sour", True, False, "any", given(bool, BOOLEAN)),
    ("note", "note", None, False, "null", given(str, optional)),
    ("type", None, UNLIKE_ANY, True, "none", given(None, choices_hook(("lemon",)))),
]
OUT_ROWS: list[OutRow] = [
    ("name", "name", UNLIKE_ANY, given(str, STRING)),
    ("sour", "isSour", True, given(bool, BOOLEAN)),
    ("note", "note", None, given(str, optional)),
]

decode_lemon = object_decoder(Lemon, IN_ROWS)
encode_lemon = object_encoder(Lemon, {"type": "lemon"}, OUT_ROWS, [])


def decoded(raw: Any) -> Lemon:
    made = decode_lemon(raw, [])
    assert isinstance(made, Lemon)
    return made


def fault_of(action: Any, *arguments: Any) -> str:
    with pytest.raises(Fault) as caught:
        action(*arguments)
    return f"{caught.value.where()}: {caught.value.reason}"


def test_object_is_decoded() -> None:
    lemon = decoded({"type": "lemon", "name": "a", "isSour": False})
    assert lemon == Lemon("a", False)
    assert lemon.extra is EMPTY
    assert lemon.given == ()


def test_any_mapping_is_decoded() -> None:
    assert decoded(MappingProxyType({"type": "lemon", "name": "a"})) == Lemon("a")


def test_unknown_members_are_kept() -> None:
    assert decoded({"type": "lemon", "name": "a", "x": 1, "y": None}).extra == {"x": 1, "y": None}


def test_members_with_their_default_are_remembered() -> None:
    assert decoded({"type": "lemon", "name": "a", "isSour": True, "note": None}).given == ("sour", "note")


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        ([], ": expected an object, got an array"),
        (None, ": expected an object, got null"),
        ({"type": "lemon", "name": 5}, "name: expected a string, got a number"),
        ({"type": "lime", "name": "a"}, "type: expected 'lemon', got 'lime'"),
        ({"name": "a"}, "type: missing"),
        ({"type": "lemon"}, "name: missing"),
        ({}, "name: missing"),
    ],
)
def test_fault_names_its_place(raw: Any, fault: str) -> None:
    assert fault_of(decode_lemon, raw, []) == fault


def test_object_is_encoded() -> None:
    assert encode_lemon(Lemon("a")) == {"type": "lemon", "name": "a"}
    assert encode_lemon(Lemon("a", False, "x")) == {"type": "lemon", "name": "a", "isSour": False, "note": "x"}


def test_given_members_are_encoded_while_they_have_their_default() -> None:
    lemon = Lemon("a", given=("sour", "note"))
    assert encode_lemon(lemon) == {"type": "lemon", "name": "a", "isSour": True, "note": None}
    assert encode_lemon(attrs.evolve(lemon, sour=False))["isSour"] is False


def test_a_known_member_wins_over_an_unknown_one() -> None:
    lemon = Lemon("a", extra={"name": "b", "type": "lime", "note": "kept", "x": 1})
    assert encode_lemon(lemon) == {"type": "lemon", "name": "a", "note": "kept", "x": 1}


def test_member_of_the_wrong_type_is_not_encoded() -> None:
    assert fault_of(encode_lemon, unchecked(Lemon("a"), name=5)) == "name: expected a string, got a number"


def test_member_unknown_to_the_revision_keeps_the_order_of_the_others() -> None:
    decode = object_decoder(Lemon, [row for row in IN_ROWS if row[0] != "isSour"])
    assert decode({"type": "lemon", "name": "a", "isSour": False, "note": "x"}, []) == Lemon(
        "a", note="x", extra={"isSour": False}
    )


def test_hook_of_a_member_is_looked_up_once_on_first_use() -> None:
    asked = []

    def way_of(name: str, *way: Any) -> Callable[[], Any]:
        def look_up() -> Any:
            asked.append(name)
            return way

        return look_up

    decode = object_decoder(Lemon, [(*row[:5], way_of(row[0], *row[5]())) for row in IN_ROWS])
    encode = object_encoder(Lemon, {}, [(*row[:3], way_of(row[1], *row[3]())) for row in OUT_ROWS], [])
    for _ in range(2):
        assert decode({"type": "lemon", "name": "a"}, []) == Lemon("a")
        assert encode(Lemon("a", note="x")) == {"name": "a", "note": "x"}
    assert asked == ["name", "type", "name", "note"]


def checks(cls: type[Payload], attribute: str, revision: Any) -> list[Check]:
    (member,) = (one for one in members(cls) if one.attribute == attribute)
    return checks_of(member, revision)


def test_essential_member_is_refused_in_other_revisions() -> None:
    ((attribute, name, reason),) = checks(CallToolRequest, "request_state", REV_2025_11_25)
    assert (attribute, name, reason("x"), reason(None)) == (
        "request_state",
        "requestState",
        "does not exist in 2025-11-25",
        None,
    )
    assert checks(CallToolRequest, "request_state", REV_2026_07_28) == []


def test_a_required_member_cannot_be_left_out() -> None:
    ((_, _, reason),) = checks(CancelledNotification, "request_id", REV_2025_06_18)
    assert (reason(None), reason(0)) == ("missing", None)
    assert checks(NumberSchema, "type", REV_2025_06_18) == []


@pytest.mark.parametrize(
    ("value", "wrong"), [(None, False), (0, False), (0.5, False), (1, False), (-0.1, True), (2, True)]
)
def test_number_outside_its_limits_is_refused(value: Any, wrong: bool) -> None:
    ((_, _, reason),) = checks(Annotations, "priority", REV_2025_06_18)
    assert reason(value) == ("must lie in 0..1" if wrong else None)


def test_member_may_have_a_check() -> None:
    ((attribute, name, reason),) = checks(Icon, "src", REV_2025_11_25)
    assert (attribute, name, reason("data:,x")) == ("src", "src", None)
    assert reason("file:///x") == "must begin with https://, http:// or data:"


def test_failing_check_is_a_fault() -> None:
    encode = object_encoder(Lemon, {}, OUT_ROWS, [("note", "note", lambda value: "no" if value == "x" else None)])
    assert encode(Lemon("a", note="y")) == {"name": "a", "note": "y"}
    assert fault_of(encode, Lemon("a", note="x")) == "note: no"


def test_malformed_items_are_set_aside() -> None:
    good, bad = sort_out(["a", 5, "b", {}], STRING, [])
    assert good == ("a", "b")
    assert bad == (
        MalformedItem(1, 5, "expected a string, got a number"),
        MalformedItem(3, {}, "expected a string, got an object"),
    )


def test_reason_of_a_malformed_item_names_the_place_inside() -> None:
    _, (bad,) = sort_out([{"type": "lemon", "name": 5}], decode_lemon, [])
    assert bad.reason == "name: expected a string, got a number"


def test_malformed_items_are_encoded_in_their_places() -> None:
    encode = itemwise_encoder(ListToolsResult, lambda result: {"tools": [tool.name for tool in result.tools]})
    tools = (Tool("b", {}), Tool("d", {}))
    bad = tuple(MalformedItem(index, raw, "") for index, raw in [(0, "a"), (2, "c"), (9, "z")])
    assert encode(ListToolsResult(tools, malformed=bad)) == {"tools": ["a", "b", "c", "d", "z"]}
    assert encode(ListToolsResult(tools)) == {"tools": ["b", "d"]}


def test_a_payload_of_another_class_is_refused_with_its_place() -> None:
    request = unchecked(ElicitFormRequest("which?", ElicitSchema({})), requested_schema={"type": "object"})
    with pytest.raises(InvalidMessage, match=r"^requestedSchema: expected ElicitSchema, got an object$"):
        codec(REV_2025_11_25).encode(request)
