from __future__ import annotations

from typing import Any

import pytest

from mcpio.app.asking import check_content, defaults_of, lowered, secrets_in
from mcpio.codec import codec
from mcpio.errors import InvalidMessage
from mcpio.revisions import REV_2025_06_18, REV_2025_11_25, REV_2026_07_28
from mcpio.types import (
    BooleanSchema,
    ElicitSchema,
    LegacyTitledEnumSchema,
    MultiSelectItems,
    NumberSchema,
    StringSchema,
    TitledChoice,
    TitledItems,
    TitledMultiSelectEnumSchema,
    TitledSingleSelectEnumSchema,
    UnknownSchema,
    UntitledMultiSelectEnumSchema,
    UntitledSingleSelectEnumSchema,
)

A_OR_B = (TitledChoice("a", "The first"), TitledChoice("b", "The second"))


def form(field: Any, *required: str) -> ElicitSchema:
    return ElicitSchema({"field": field}, required)


@pytest.mark.req("ELIC-05", "ELIC-06", "ELIC-07", "ELIC-08", "ELIC-10", "ELIC-12", "SCHEMA-08")
@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        (StringSchema(), "text", None),
        (StringSchema(), 5, "expected a string, got 5"),
        (StringSchema(min_length=2), "a", "expected at least 2 characters, got 1"),
        (StringSchema(min_length=1, max_length=2), "ab", None),
        (StringSchema(max_length=2), "abc", "expected at most 2 characters, got 3"),
        (StringSchema(format="email"), "ada", 'expected an e-mail address, got "ada"'),
        (StringSchema(format="date"), "2025-06-18", None),
        (NumberSchema(), 1.5, None),
        (NumberSchema(), True, "expected a number, got true"),
        (NumberSchema(), "5", 'expected a number, got "5"'),
        (NumberSchema("integer"), 5, None),
        (NumberSchema("integer"), 5.0, None),
        (NumberSchema("integer"), 5.5, "expected an integer, got 5.5"),
        (NumberSchema("integer"), float("inf"), "expected an integer, got inf"),
        (NumberSchema(minimum=1, maximum=2), 1, None),
        (NumberSchema(minimum=1), 0, "expected a value at least 1, got 0"),
        (NumberSchema(maximum=2), 2.5, "expected a value at most 2, got 2.5"),
        (BooleanSchema(), False, None),
        (BooleanSchema(), 0, "expected true or false, got 0"),
        (UntitledSingleSelectEnumSchema(("a", "b")), "a", None),
        (UntitledSingleSelectEnumSchema(("a", "b")), "c", 'expected one of a, b, got "c"'),
        (LegacyTitledEnumSchema(("a", "b"), ("A", "B")), "b", None),
        (LegacyTitledEnumSchema(("a", "b"), ("A", "B")), "B", 'expected one of a, b, got "B"'),
        (TitledSingleSelectEnumSchema(A_OR_B), "a", None),
        (TitledSingleSelectEnumSchema(A_OR_B), "The first", 'expected one of a, b, got "The first"'),
        (UntitledMultiSelectEnumSchema(MultiSelectItems(("a", "b"))), ("a", "b"), None),
        (UntitledMultiSelectEnumSchema(MultiSelectItems(("a", "b"))), [], None),
        (UntitledMultiSelectEnumSchema(MultiSelectItems(("a",)), min_items=1), (), "expected at least 1 items, got 0"),
        (
            UntitledMultiSelectEnumSchema(MultiSelectItems(("a",)), max_items=0),
            ("a",),
            "expected at most 0 items, got 1",
        ),
        (UntitledMultiSelectEnumSchema(MultiSelectItems(("a",))), "a", 'expected an array, got "a"'),
        (TitledMultiSelectEnumSchema(TitledItems(A_OR_B)), ("b",), None),
        (UnknownSchema({"type": "object"}), "whatever", None),
    ],
)
def test_field_content_is_checked(field: Any, value: Any, fault: str | None) -> None:
    if fault is None:
        check_content(form(field), {"field": value})
        return
    with pytest.raises(InvalidMessage) as caught:
        check_content(form(field), {"field": value})
    assert (caught.value.path, caught.value.reason) == ("content.field", fault)


def test_fault_in_a_list_names_the_index() -> None:
    field = TitledMultiSelectEnumSchema(TitledItems(A_OR_B))
    with pytest.raises(InvalidMessage, match=r"^content\.field\[1\]: expected one of a, b, got \"c\"$"):
        check_content(form(field), {"field": ("a", "c")})


def test_missing_required_field_is_refused() -> None:
    check_content(form(StringSchema()), {})
    check_content(form(StringSchema(), "field"), {"field": "", "other": 5})
    with pytest.raises(InvalidMessage, match=r"^content: missing: field$"):
        check_content(form(StringSchema(), "field"), {"other": 5})


@pytest.mark.req("ELIC-09")
def test_defaults() -> None:
    fields: dict[str, Any] = {
        "text": StringSchema(default="a"),
        "number": NumberSchema(default=0),
        "box": BooleanSchema(default=False),
        "choices": UntitledMultiSelectEnumSchema(MultiSelectItems(("a",)), default=("a",)),
        "none": StringSchema(),
        "odd": UnknownSchema({"default": "b"}),
    }
    assert defaults_of(ElicitSchema(fields)) == {"text": "a", "number": 0, "box": False, "choices": ("a",), "odd": "b"}


@pytest.mark.req("ELIC-07")
def test_titles_in_an_older_revision() -> None:
    titled = TitledSingleSelectEnumSchema(A_OR_B, title="One", description="of two", default="a")
    found = lowered(form(titled, "field"), REV_2025_06_18)
    assert found.properties["field"] == LegacyTitledEnumSchema(
        ("a", "b"), ("The first", "The second"), title="One", description="of two"
    )
    assert found.required == ("field",)
    codec(REV_2025_06_18).encode(found)
    for revision in (REV_2025_11_25, REV_2026_07_28):
        assert lowered(form(titled), revision).properties["field"] is titled
    text = form(StringSchema(default="a"))
    assert lowered(text, REV_2025_06_18) == text


def test_multiple_choice_cannot_be_encoded_in_an_older_revision() -> None:
    several = form(UntitledMultiSelectEnumSchema(MultiSelectItems(("a",))))
    with pytest.raises(InvalidMessage, match="does not exist in 2025-06-18"):
        codec(REV_2025_06_18).encode(lowered(several, REV_2025_06_18))


@pytest.mark.req("ELIC-13")
@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("password", True),
        ("dbPassword", True),
        ("API_KEY", True),
        ("apiKey", True),
        ("access-token", True),
        ("creditCard", True),
        ("card_number", True),
        ("cvv", True),
        ("pin", True),
        ("name", False),
        ("max_tokens", False),
        ("opinion", False),
        ("keyboard", False),
        ("secretary", False),
    ],
)
def test_fields_for_secrets_are_recognised_by_name(name: str, secret: bool) -> None:
    assert secrets_in(ElicitSchema({name: StringSchema()})) == ([name] if secret else [])


@pytest.mark.req("ELIC-13")
def test_field_with_password_format_counts_as_a_secret() -> None:
    """SEEDS C40."""
    assert secrets_in(form(UnknownSchema({"type": "string", "format": "password"}))) == ["field"]
    assert secrets_in(form(UnknownSchema({"type": "object"}))) == []
