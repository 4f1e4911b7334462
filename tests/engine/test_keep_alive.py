"""The policy of pings: what it may say."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mcpio.engine.options import KeepAlive, Options, as_keep_alive


def test_keep_alive_accepts_a_number_or_none() -> None:
    assert as_keep_alive(30) == KeepAlive(30, timeout=10.0, failures=3)
    assert as_keep_alive(KeepAlive(1, timeout=2)) == KeepAlive(1, 2, 3)
    assert as_keep_alive(None) is None
    assert Options(keep_alive=30).keep_alive == KeepAlive(30)
    assert Options().keep_alive is None


@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan, "30", ()])
def test_invalid_time_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="interval must be a number of seconds above 0"):
        as_keep_alive(value)
    with pytest.raises(ValueError, match="timeout must be a number of seconds above 0"):
        KeepAlive(1, timeout=value)


@pytest.mark.parametrize("value", [0, 1.5, "3"])
def test_invalid_count_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="failures must be an integer of 1 or more"):
        KeepAlive(1, failures=value)
