from __future__ import annotations

import math
from functools import partial
from typing import Any

import attrs
import pytest

from mcpio.engine.limits import DEFAULT, Held, Limits, Timeout, parsed_size, seconds


def test_every_limit_has_a_default() -> None:
    for field in attrs.fields(Limits):
        value = True if field.name == "resync" else 7
        choice: dict[str, Any] = {field.name: value}
        assert getattr(Limits(**choice), field.name) == value
        assert field.default is not attrs.NOTHING


@pytest.mark.parametrize(("each", "all_of_them"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_clients_listen_for_changes_where_both_limits_let_one(each: int, all_of_them: int) -> None:
    assert Limits(listeners=each, total_listeners=all_of_them).has_listeners is (each == all_of_them == 1)


@pytest.mark.parametrize("value", [-1, 0.5, math.nan, None, "many", True])
def test_invalid_limit_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^message_bytes must be an integer of 0 or more, not "):
        Limits(message_bytes=value)

    wrong: Any = 1
    with pytest.raises(TypeError, match=r"^resync must be bool, not 1$"):
        Limits(resync=wrong)


@pytest.mark.req("TIME-01")
def test_default_timeout_is_a_minute() -> None:
    assert (Timeout().total, Timeout().idle) == (60.0, None)


@pytest.mark.parametrize(
    ("given", "kept"),
    [(None, None), (math.inf, None), (0, 0), (2.5, 2.5), (10**400, 10**400), (math.nextafter(0, 1),) * 2],
)
def test_seconds_accepts_numbers_none_and_infinity(given: float | None, kept: float | None) -> None:
    assert seconds("x", given) == kept
    assert Timeout(given, given) == Timeout(kept, kept)


@pytest.mark.parametrize("value", [-1, -math.inf, math.nan, "5", [5]])
def test_invalid_time_is_refused(value: Any) -> None:
    for name, call in (("x", partial(seconds, "x")), ("total", Timeout), ("idle", partial(Timeout, None))):
        with pytest.raises(ValueError, match=f"^{name} must be a number of seconds, 0 or more, or None, not "):
            call(value)


def test_default_has_a_readable_repr() -> None:
    assert repr(DEFAULT) == "DEFAULT"


def test_text_and_bytes_are_estimated_alike() -> None:
    text = '{"a": [1, 2, {"b": {}}], "c": [[], [[]]]}'
    assert parsed_size(text) == parsed_size(text.encode()) == len(text) + 110 * 12


def test_total_of_what_is_held_counts_every_purpose_once() -> None:
    held = Held()
    for number, purpose in enumerate(Held.__slots__):
        setattr(held, purpose, 2**number)
    assert held.total == 2 ** len(Held.__slots__) - 1
