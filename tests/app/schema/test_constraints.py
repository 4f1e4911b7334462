from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, cast

import annotated_types as at
import pytest

from mcpio.app.schema.constraints import Constraints, Matcher, collect, description_of, rule
from mcpio.app.schema.values import Family, Fault


class Documented:
    documentation = "what it is for"


class Group:
    metadata = (at.Ge(1), Constraints(le=9))


def problem(name: str, limit: Any, family: Family, value: Any, moment: type | None = None) -> str | None:
    made = rule(name, dict(collect([Constraints(**{name: limit})]))[name], family, moment)
    assert made is not None
    try:
        made.check(value)
    except Fault as fault:
        return fault.reason
    return None


@pytest.mark.parametrize(
    ("name", "limit", "family", "good", "bad", "reason"),
    [
        ("ge", 1, "number", 1, 0, "expected a value at least 1, got 0"),
        ("gt", 1, "number", 1.5, 1, "expected a value greater than 1, got 1"),
        ("le", 10**400, "number", 10**400, 10**401, f"expected a value at most {10**400}, got an integer of 1333 bits"),
        ("le", 2.5, "number", 2.5, 3, "expected a value at most 2.5, got 3"),
        ("lt", 2, "number", 1, 2, "expected a value less than 2, got 2"),
        ("ge", 1, "number", Decimal("1.0"), Decimal("0.9"), "expected a value at least 1, got a value of type Decimal"),
        ("multiple_of", 3, "number", 9, 10, "expected a multiple of 3, got 10"),
        ("multiple_of", 0.1, "number", 0.3, 0.35, "expected a multiple of 0.1, got 0.35"),
        ("multiple_of", 2, "number", 4.0, 5.0, "expected a multiple of 2, got 5.0"),
        ("min_length", 2, "string", "ab", "a", "expected at least 2 characters, got 1"),
        ("max_length", 2, "string", "ab", "abc", "expected at most 2 characters, got 3"),
        ("min_length", 1, "bytes", b"a", b"", "expected at least 1 bytes, got 0"),
        ("max_length", 1, "array", [1], [1, 2], "expected at most 1 items, got 2"),
        ("min_length", 1, "object", {"a": 1}, {}, "expected at least 1 members, got 0"),
        ("format", "email", "string", "a@b", "a", 'expected an e-mail address, got "a"'),
        ("format", "uri", "string", "a:b", "a", 'expected a URI such as https://example.com, got "a"'),
        ("pattern", "^a+$", "string", "aa", "b", 'expected a string that matches ^a+$, got "b"'),
    ],
)
def test_constraint_checks_values(name: str, limit: Any, family: Family, good: Any, bad: Any, reason: str) -> None:
    assert problem(name, limit, family, good) is None
    assert problem(name, limit, family, bad) == reason


def test_datetime_bounds_compare_datetimes() -> None:
    noon = datetime(2025, 6, 18, 12, tzinfo=UTC)
    assert problem("ge", noon, "moment", noon, datetime) is None
    assert problem("gt", noon, "moment", noon, datetime) == (
        'expected a value greater than 2025-06-18T12:00:00+00:00, got "2025-06-18T12:00:00+00:00"'
    )
    assert problem("lt", date(2025, 1, 2), "moment", date(2025, 1, 1), date) is None


@pytest.mark.parametrize(
    ("name", "limit", "family", "keywords"),
    [
        ("ge", 1, "number", {"minimum": 1}),
        ("gt", 1, "number", {"exclusiveMinimum": 1}),
        ("le", 1, "number", {"maximum": 1}),
        ("lt", 1, "number", {"exclusiveMaximum": 1}),
        ("multiple_of", 5, "number", {"multipleOf": 5}),
        ("min_length", 4, "string", {"minLength": 4}),
        ("max_length", 4, "array", {"maxItems": 4}),
        ("max_length", 4, "object", {"maxProperties": 4}),
        ("min_length", 4, "bytes", {"minLength": 8}),
        ("max_length", 3, "bytes", {"maxLength": 4}),
        ("pattern", Matcher("x"), "string", {"pattern": "x"}),
    ],
)
def test_constraint_becomes_a_schema_keyword(name: str, limit: Any, family: Family, keywords: dict[str, Any]) -> None:
    made = rule(name, limit, family, None)
    assert made is not None
    assert made.keywords == keywords


def test_datetime_bound_has_no_keyword() -> None:
    made = rule("le", date(2025, 1, 1), "moment", date)
    assert made is not None
    assert made.keywords == {}


@pytest.mark.parametrize(
    ("name", "limit", "family"),
    [
        ("ge", 1, "string"),
        ("ge", 1, None),
        ("multiple_of", 1, "moment"),
        ("min_length", 1, "number"),
        ("pattern", Matcher("x"), "bytes"),
    ],
)
def test_inapplicable_constraint_is_ignored(name: str, limit: Any, family: Family | None) -> None:
    assert rule(name, limit, family, None) is None


@pytest.mark.parametrize(
    "build",
    [
        lambda: Constraints(min_length=-1),
        lambda: Constraints(max_length=cast("Any", 1.5)),
        lambda: Constraints(min_length=True),
        lambda: Constraints(multiple_of=0),
        lambda: Constraints(multiple_of=float("inf")),
        lambda: Constraints(format=cast("Any", "date")),
        lambda: Constraints(pattern="("),
        lambda: Constraints(pattern=cast("Any", 5)),
        lambda: Constraints(pattern=cast("Any", b"x")),
        lambda: Constraints(pattern=r"^(a)\1*$"),  # neither re nor RE2 runs it in linear time
        lambda: rule("ge", "a", "number", None),
        lambda: rule("ge", float("nan"), "number", None),
        lambda: rule("ge", datetime(2025, 1, 1), "moment", datetime),  # without a time zone
        lambda: rule("ge", datetime(2025, 1, 1, tzinfo=UTC), "moment", date),
    ],
)
def test_contradictory_limits_are_refused(build: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"=| must be "):
        build()


def test_foreign_constraints_are_recognised_by_attributes() -> None:
    assert collect([at.Ge(1), at.Len(2, 5), at.Interval(gt=1, le=4), at.MultipleOf(3)]) == [
        ("ge", 1),
        ("min_length", 2),
        ("max_length", 5),
        ("gt", 1),
        ("le", 4),
        ("multiple_of", 3),
    ]
    assert collect([Group()]) == [("ge", 1), ("le", 9)]
    ((name, limit),) = collect([re.compile("a")])
    assert (name, limit.pattern) == ("pattern", "a")


def test_unknown_annotation_is_ignored() -> None:
    assert collect(["a description", str, at.Ge, at.Predicate(str.islower), object()]) == []


@pytest.mark.parametrize(
    ("metadata", "description"),
    [
        ([at.Ge(1), "how many", "ignored"], "how many"),
        ([Documented, Documented()], "what it is for"),
        ([at.Ge(1)], None),
        ([], None),
    ],
)
def test_description_from_a_string_or_doc(metadata: list[Any], description: str | None) -> None:
    assert description_of(metadata) == description


def test_constraint_repr_shows_its_limits() -> None:
    assert repr(Constraints(ge=1, pattern="x")) == "Constraints(ge=1, pattern='x')"
