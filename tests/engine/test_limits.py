from __future__ import annotations

import math
from typing import Any

import attrs
import pytest

from mcpio.engine.limits import DEFAULT, Limits, Timeout, seconds


def test_every_bound_has_a_default_and_can_be_set_by_name() -> None:
    for field in attrs.fields(Limits):
        choice: dict[str, Any] = {field.name: 7}
        assert getattr(Limits(**choice), field.name) == 7
        assert field.default is not attrs.NOTHING


@pytest.mark.parametrize("value", [-1, 0.5, math.nan, None, "many"])
def test_a_bound_is_an_integer_of_zero_or_more(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^message_bytes must be an integer of 0 or more, not "):
        Limits(message_bytes=value)


@pytest.mark.req("TIME-01")
def test_a_request_has_a_minute_unless_told_otherwise() -> None:
    assert (Timeout().total, Timeout().idle) == (60.0, None)


@pytest.mark.parametrize(
    ("given", "kept"),
    [(None, None), (math.inf, None), (0, 0), (2.5, 2.5), (10**400, 10**400), (math.nextafter(0, 1),) * 2],
)
def test_a_time_is_a_number_of_seconds_and_for_ever_has_one_form(given: float | None, kept: float | None) -> None:
    assert seconds(given) == kept
    assert Timeout(given, given) == Timeout(kept, kept)


@pytest.mark.parametrize("value", [-1, -math.inf, math.nan, "5", [5]])
def test_what_is_no_time_is_refused(value: Any) -> None:
    for wrong in (lambda: seconds(value), lambda: Timeout(value), lambda: Timeout(None, value)):
        with pytest.raises(ValueError, match="a time is a number of seconds, 0 or more, not "):
            wrong()


def test_the_default_timeout_has_a_name() -> None:
    assert repr(DEFAULT) == "DEFAULT"
