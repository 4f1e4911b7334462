from __future__ import annotations

import enum
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpio.app.schema.values import Fault, Scalar, scalar_for

SOME_UUID = UUID("123e4567-e89b-12d3-a456-426614174000")


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    ONE = 1


class Celsius(float):
    pass


def known(kind: Any) -> Scalar:
    found = scalar_for(kind)
    assert found is not None
    return found


def read(kind: Any, value: Any) -> Any:
    return known(kind).read(value)


def write(kind: Any, value: Any) -> Any:
    return known(kind).write(value)


@pytest.mark.parametrize(
    ("kind", "said", "meant"),
    [
        (str, "x", "x"),
        (bool, False, False),
        (int, 5, 5),
        (int, 5.0, 5),
        (int, 10**400, 10**400),
        (float, 5, 5.0),
        (float, 0.5, 0.5),
        (type(None), None, None),
        (bytes, "AQI=", b"\x01\x02"),
        (bytes, "", b""),
        (datetime, "2025-06-18T09:30:00Z", datetime(2025, 6, 18, 9, 30, tzinfo=UTC)),
        (datetime, "2025-06-18t09:30:00.5z", datetime(2025, 6, 18, 9, 30, 0, 500_000, tzinfo=UTC)),
        (datetime, "2025-06-18T09:30:00-02:00", datetime(2025, 6, 18, 9, 30, tzinfo=timezone(-timedelta(hours=2)))),
        (date, "2025-06-18", date(2025, 6, 18)),
        (UUID, "123E4567-e89b-12d3-a456-426614174000", SOME_UUID),
        (Path, "a/../b.txt", Path("a/../b.txt")),
        (PurePosixPath, "/a", PurePosixPath("/a")),
        (timedelta, "PT1H30M", timedelta(minutes=90)),
        (timedelta, "P2DT0.5S", timedelta(days=2, seconds=0.5)),
        (timedelta, "P3W", timedelta(weeks=3)),
        (timedelta, "PT0S", timedelta()),
        (Decimal, "12.50", Decimal("12.50")),
        (Decimal, "-7", Decimal(-7)),
        (Decimal, 12.1, Decimal("12.1")),
        (Decimal, 10**400, Decimal(10**400)),
    ],
)
def test_scalar_is_decoded(kind: Any, said: Any, meant: Any) -> None:
    found = read(kind, said)
    assert found == meant
    assert type(found) is type(meant)


@pytest.mark.parametrize(
    ("kind", "said", "reason"),
    [
        (str, 5, "expected a string, got 5"),
        (bool, 1, "expected true or false, got 1"),
        (bool, "true", 'expected true or false, got "true"'),
        (int, "5", 'expected an integer, got "5"'),
        (int, True, "expected an integer, got true"),
        (int, 5.5, "expected an integer, got 5.5"),
        (int, None, "expected an integer, got null"),
        (float, "5", 'expected a number, got "5"'),
        (float, True, "expected a number, got true"),
        (float, 10**400, "an integer of 1329 bits is too large for a floating-point number"),
        (float, float("inf"), "expected a finite number, got inf"),
        (type(None), 0, "expected null, got 0"),
        (bytes, 5, "expected a string in base64, got 5"),
        (bytes, "a", "expected base64 (RFC 4648, section 4, with padding): "),
        (bytes, "a b=", "expected base64 (RFC 4648, section 4, with padding): "),
        (bytes, "ä", "expected base64 (RFC 4648, section 4, with padding): "),
        (datetime, 5, "expected a date and time with a time zone, such as 2025-06-18T09:30:00Z, got 5"),
        (datetime, "2025-06-18T09:30:00", "expected a date and time with a time zone, such as 2025-06-18T09:30:00Z, "),
        (datetime, "2025-06-18", "expected a date and time with a time zone, such as 2025-06-18T09:30:00Z, got "),
        (datetime, "2025-13-18T09:30:00Z", "expected a date and time with a time zone, such as 2025-06-18T09:30:00Z: "),
        (date, "2025-06-18T09:30:00Z", "expected a date such as 2025-06-18, got "),
        (date, "20250618", "expected a date such as 2025-06-18, got "),
        (date, "2025-02-30", "expected a date such as 2025-06-18: day is out of range for month"),
        (UUID, "{123e4567-e89b-12d3-a456-426614174000}", "expected a UUID such as "),
        (UUID, 5, "expected a UUID such as "),
        (Path, "", 'expected a path, got ""'),
        (Path, "a\0b", "expected a path, got "),
        (Path, 5, "expected a path, got 5"),
        (timedelta, "P", "expected a duration such as PT1H30M or P2D, without years and months, got "),
        (timedelta, "PT", "expected a duration"),
        (timedelta, "P1Y", "expected a duration"),
        (timedelta, "P1M", "expected a duration"),
        (timedelta, "P1W2D", "expected a duration"),
        (timedelta, "-PT1S", "expected a duration"),
        (timedelta, 5, "expected a duration"),
        (timedelta, "PT1.1234567S", "expected a duration"),
        (timedelta, "P999999999W", '"P999999999W" is too long for a timedelta'),
        (Decimal, "1e999999999", 'expected a decimal number such as 12.50 or "12.50", got "1e999999999"'),
        (Decimal, "NaN", "expected a decimal number"),
        (Decimal, "1" * 1001, "expected a decimal number"),
        (Decimal, True, "expected a decimal number"),
        (Decimal, float("nan"), "expected a decimal number"),
    ],
)
def test_mismatched_scalar_is_refused_with_a_reason(kind: Any, said: Any, reason: str) -> None:
    with pytest.raises(Fault) as caught:
        read(kind, said)
    assert caught.value.reason.startswith(reason)


@pytest.mark.parametrize(
    ("kind", "meant", "said"),
    [
        (str, Colour.RED, "red"),
        (bool, True, True),
        (int, Level.ONE, 1),
        (float, Celsius(1.5), 1.5),
        (type(None), None, None),
        (bytes, b"\x01\x02", "AQI="),
        (bytes, bytearray(b"\x01"), "AQ=="),
        (datetime, datetime(2025, 6, 18, 9, 30, tzinfo=UTC), "2025-06-18T09:30:00+00:00"),
        (date, date(2025, 6, 18), "2025-06-18"),
        (UUID, SOME_UUID, "123e4567-e89b-12d3-a456-426614174000"),
        (Path, Path("a/b"), "a/b"),
        (timedelta, timedelta(minutes=90), "PT5400S"),
        (timedelta, timedelta(days=2), "P2D"),
        (timedelta, timedelta(days=2, seconds=1, microseconds=500_000), "P2DT1.5S"),
        (timedelta, timedelta(), "PT0S"),
        (Decimal, Decimal("1E+3"), "1000"),
    ],
)
def test_scalar_is_encoded(kind: Any, meant: Any, said: Any) -> None:
    found = write(kind, meant)
    assert found == said
    assert type(found) is type(said)


@pytest.mark.parametrize(
    ("kind", "meant", "reason"),
    [
        (int, True, "expected an integer, got true"),
        (int, 5.0, "expected an integer, got 5.0"),
        (float, float("nan"), "expected a finite number, got nan"),
        (bytes, "x", 'expected bytes, got "x"'),
        (datetime, date(2025, 1, 1), "expected a date and time with a time zone, such as 2025-06-18T09:30:00Z, got "),
        (datetime, datetime(2025, 1, 1), "expected a datetime with a time zone, got one without"),
        (date, datetime(2025, 1, 1, tzinfo=UTC), "expected a date such as 2025-06-18, got a value of type datetime"),
        (UUID, "123e4567-e89b-12d3-a456-426614174000", "expected a UUID such as "),
        (Path, "a", 'expected a path, got "a"'),
        (timedelta, 5, "expected a duration"),
        (timedelta, timedelta(seconds=-1), "expected a duration, got a negative timedelta"),
        (Decimal, Decimal("Infinity"), "expected a finite Decimal, got a value of type Decimal"),
        (Decimal, 5, "expected a finite Decimal, got 5"),
        (Decimal, Decimal("1E+999999999"), "expected a Decimal of at most 1000 characters"),
        (Decimal, Decimal("1E-999999999"), "expected a Decimal of at most 1000 characters"),
        (Decimal, Decimal("-1E+999"), "expected a Decimal of at most 1000 characters"),
    ],
)
def test_unencodable_scalar_is_refused(kind: Any, meant: Any, reason: str) -> None:
    with pytest.raises(Fault) as caught:
        write(kind, meant)
    assert caught.value.reason.startswith(reason)


@pytest.mark.parametrize("kind", [list, object, Colour, Celsius, 5, "str", list[int]])
def test_other_types_are_not_scalars(kind: Any) -> None:
    assert scalar_for(kind) is None


def test_class_is_recognised_by_name_without_import() -> None:
    lookalike = type("UUID", (), {"__module__": "uuid", "__qualname__": "UUID"})
    assert known(lookalike).schema == {"type": "string", "format": "uuid"}
    assert known(UUID) is known(UUID)


@given(
    st.one_of(
        st.binary(),
        st.dates(),
        st.uuids(),
        st.datetimes(timezones=st.just(UTC)),
        st.decimals(allow_nan=False, allow_infinity=False, places=3),
    )
)
def test_scalar_round_trips(value: Any) -> None:
    assert read(type(value), write(type(value), value)) == value
