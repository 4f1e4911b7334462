from __future__ import annotations

from typing import Any

import pytest

from mcpio.codec import codec
from mcpio.errors import InvalidMessage
from mcpio.revisions import REV_2025_03_26, REV_2025_06_18, REV_2025_11_25, REV_2026_07_28, REVISIONS, Revision
from mcpio.types import (
    BooleanSchema,
    ElicitationCompleteNotification,
    ElicitFormRequest,
    ElicitRequest,
    ElicitResult,
    ElicitSchema,
    ElicitURLRequest,
    LegacyTitledEnumSchema,
    MultiSelectItems,
    NumberSchema,
    StringSchema,
    TaskMetadata,
    TitledChoice,
    TitledItems,
    TitledMultiSelectEnumSchema,
    TitledSingleSelectEnumSchema,
    UnknownSchema,
    UntitledMultiSelectEnumSchema,
    UntitledSingleSelectEnumSchema,
    URLElicitationRequiredData,
)

TITLED = [{"const": "r", "title": "Red"}]
FIELDS: list[tuple[Any, dict[str, Any]]] = [
    (
        StringSchema("T", "D", 1, 9, "email", default="a@b"),
        {
            "type": "string",
            "title": "T",
            "description": "D",
            "minLength": 1,
            "maxLength": 9,
            "format": "email",
            "default": "a@b",
        },
    ),
    (StringSchema(extra={"pattern": "^a"}), {"type": "string", "pattern": "^a"}),
    (NumberSchema(minimum=0.5, maximum=2), {"type": "number", "minimum": 0.5, "maximum": 2}),
    (NumberSchema("integer", default=3), {"type": "integer", "default": 3}),
    (BooleanSchema(default=False), {"type": "boolean", "default": False}),
    (UntitledSingleSelectEnumSchema(("r", "g")), {"type": "string", "enum": ["r", "g"]}),
    (LegacyTitledEnumSchema(("r",), ("Red",)), {"type": "string", "enum": ["r"], "enumNames": ["Red"]}),
    (TitledSingleSelectEnumSchema((TitledChoice("r", "Red"),)), {"type": "string", "oneOf": TITLED}),
    (
        UntitledMultiSelectEnumSchema(MultiSelectItems(("r",)), min_items=1, default=("r",)),
        {"type": "array", "items": {"type": "string", "enum": ["r"]}, "minItems": 1, "default": ["r"]},
    ),
    (
        TitledMultiSelectEnumSchema(TitledItems((TitledChoice("r", "Red"),)), max_items=2),
        {"type": "array", "items": {"anyOf": TITLED}, "maxItems": 2},
    ),
    (UnknownSchema({"type": "object", "properties": {}}), {"type": "object", "properties": {}}),
    (UnknownSchema({"type": "array"}), {"type": "array"}),
    (UnknownSchema({"type": "array", "items": {"type": "number"}}), {"type": "array", "items": {"type": "number"}}),
    (UnknownSchema({"type": ["string", "null"]}), {"type": ["string", "null"]}),
    (UnknownSchema({"$ref": "#/x"}), {"$ref": "#/x"}),
]


@pytest.mark.req("ELIC-05", "ELIC-06", "ELIC-07", "ELIC-08")
@pytest.mark.parametrize(("field", "raw"), FIELDS)
def test_form_field_round_trips(field: Any, raw: dict[str, Any]) -> None:
    form = {"type": "object", "properties": {"it": raw}}
    read = codec(REV_2025_11_25).decode(form, ElicitSchema)
    assert read == ElicitSchema({"it": field})
    assert codec(REV_2025_11_25).encode(read) == form


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        ({"type": "string", "minLength": "1"}, "properties.it.minLength: expected an integer, got a string"),
        (
            {"type": "string", "format": "phone"},
            "properties.it.format: expected one of 'date', 'date-time', 'email', 'uri', got 'phone'",
        ),
        ({"type": "string", "enum": [1]}, "properties.it.enum[0]: expected a string, got a number"),
        ({"type": "string", "oneOf": [{"const": "r"}]}, "properties.it.oneOf[0].title: missing"),
        ("string", "properties.it: expected an object, got a string"),
    ],
)
def test_malformed_form_field_is_refused(raw: Any, fault: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        codec(REV_2025_11_25).decode({"type": "object", "properties": {"it": raw}}, ElicitSchema)
    assert str(caught.value) == fault


def test_form_requires_an_object_with_properties() -> None:
    raw: dict[str, Any]
    for raw in ({"properties": {}}, {"type": "object"}, {"type": "array", "properties": {}}):
        with pytest.raises(InvalidMessage):
            codec(REV_2025_11_25).decode(raw, ElicitSchema)


def test_schema_keyword_of_a_form_exists_since_2025_11_25() -> None:
    schema = ElicitSchema({"a": StringSchema()}, ("a",), "https://json-schema.org/draft/2020-12/schema")
    raw = codec(REV_2025_11_25).encode(schema)
    assert raw["required"] == ["a"]
    assert raw["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert "$schema" not in codec(REV_2025_06_18).encode(schema)


FORM: dict[str, Any] = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}


@pytest.mark.req("ELIC-03", "ELIC-04")
@pytest.mark.parametrize("revision", REVISIONS[2:])
def test_form_request_round_trips(revision: Revision) -> None:
    read = codec(revision).decode(FORM, ElicitRequest)
    assert read == ElicitFormRequest("Who?", ElicitSchema({}))
    assert codec(revision).encode(read) == FORM


def test_given_form_mode_is_kept() -> None:
    raw = {**FORM, "mode": "form"}
    read = codec(REV_2025_11_25).decode(raw, ElicitRequest)
    assert read == ElicitFormRequest("Who?", ElicitSchema({}))
    assert codec(REV_2025_11_25).encode(read) == raw


@pytest.mark.req("ELIC-14")
def test_url_request_round_trips() -> None:
    raw = {"mode": "url", "message": "Go", "url": "https://x/y", "elicitationId": "1"}
    read = codec(REV_2025_11_25).decode(raw, ElicitRequest)
    assert read == ElicitURLRequest("Go", "https://x/y", "1")
    assert codec(REV_2025_11_25).encode(read) == raw
    del raw["elicitationId"]
    assert codec(REV_2026_07_28).encode(read) == raw
    assert codec(REV_2026_07_28).decode(raw, ElicitRequest) == ElicitURLRequest("Go", "https://x/y")
    with pytest.raises(InvalidMessage, match=r"^elicitationId: missing$"):
        codec(REV_2025_11_25).decode(raw, ElicitRequest)
    with pytest.raises(InvalidMessage, match=r"^elicitationId: missing$"):
        codec(REV_2025_11_25).encode(ElicitURLRequest("Go", "https://x/y"))


def test_unknown_elicitation_mode_is_refused() -> None:
    for mode in ("voice", 5, None):
        with pytest.raises(InvalidMessage, match=r"^mode: .* is not known here$"):
            codec(REV_2025_11_25).decode({**FORM, "mode": mode}, ElicitRequest)
    with pytest.raises(InvalidMessage, match=r"^mode: 'url' is not known here$"):
        codec(REV_2025_06_18).decode({"mode": "url", "message": "Go", "url": "https://x/y"}, ElicitRequest)
    with pytest.raises(InvalidMessage, match=r"^expected an object, got null$"):
        codec(REV_2025_06_18).decode(None, ElicitRequest)  # type: ignore[arg-type]  # wrong on purpose


def test_base_class_of_requests_cannot_be_sent() -> None:
    with pytest.raises(InvalidMessage, match=r"^ElicitRequest is only a base"):
        codec(REV_2025_11_25).encode(ElicitRequest("Who?"))


def test_request_unknown_to_the_revision_is_refused() -> None:
    with pytest.raises(InvalidMessage, match=r"^ElicitFormRequest does not exist in 2025-03-26$"):
        codec(REV_2025_03_26).encode(ElicitFormRequest("Who?", ElicitSchema({})))
    with pytest.raises(InvalidMessage, match=r"^ElicitURLRequest does not exist in 2025-06-18$"):
        codec(REV_2025_06_18).encode(ElicitURLRequest("Go", "https://x/y", "1"))
    with pytest.raises(InvalidMessage, match=r"^task: does not exist in 2025-06-18$"):
        codec(REV_2025_06_18).encode(ElicitFormRequest("Who?", ElicitSchema({}), task=TaskMetadata()))


@pytest.mark.req("ELIC-10")
@pytest.mark.parametrize("revision", REVISIONS[2:])
def test_elicit_result_round_trips(revision: Revision) -> None:
    raw = {"action": "accept", "content": {"name": "a", "age": 5, "height": 1.85, "ok": True, "colours": ["r"]}}
    read = codec(revision).decode(raw, ElicitResult)
    assert read.content == {"name": "a", "age": 5, "height": 1.85, "ok": True, "colours": ("r",)}
    assert codec(revision).encode(read) == raw


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        ({"action": "maybe"}, "action: expected one of 'accept', 'cancel', 'decline', got 'maybe'"),
        (
            {"action": "accept", "content": {"a": None}},
            "content.a: expected a string or an integer or a number or a boolean or an array, got null",
        ),
        ({"action": "accept", "content": {"a": [1]}}, "content.a[0]: expected a string, got a number"),
        ({"action": "accept", "content": []}, "content: expected an object, got an array"),
    ],
)
def test_malformed_elicit_result_is_refused(raw: Any, fault: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        codec(REV_2025_11_25).decode(raw, ElicitResult)
    assert str(caught.value) == fault


@pytest.mark.req("ELIC-16", "ELIC-17")
def test_url_elicitation_notification_and_error_data_round_trip() -> None:
    raw = {"elicitationId": "1"}
    read = codec(REV_2025_11_25).decode(raw, ElicitationCompleteNotification)
    assert read == ElicitationCompleteNotification("1")
    wanted = {"elicitations": [{"mode": "url", "message": "Go", "url": "https://x/y", "elicitationId": "1"}]}
    data = codec(REV_2025_11_25).decode(wanted, URLElicitationRequiredData)
    assert data == URLElicitationRequiredData((ElicitURLRequest("Go", "https://x/y", "1"),))
    assert codec(REV_2025_11_25).encode(data) == wanted
