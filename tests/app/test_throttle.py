from __future__ import annotations

from mcpio.app.throttle import Throttle


def test_a_burst_passes_and_then_so_many_a_second() -> None:
    throttle = Throttle(rate=2, burst=3)
    assert [throttle.admits(10.0) for _ in range(5)] == [True, True, True, False, False]
    assert throttle.held_back == 2
    assert [throttle.admits(10.4), throttle.admits(10.5), throttle.admits(10.5)] == [False, True, False]
    assert throttle.held_back == 4


def test_what_is_not_used_adds_up_to_one_burst() -> None:
    throttle = Throttle(rate=1, burst=2)
    assert [throttle.admits(0.0) for _ in range(3)] == [True, True, False]
    assert [throttle.admits(1000.0) for _ in range(3)] == [True, True, False]


def test_a_clock_that_stands_still_or_goes_back_gives_nothing() -> None:
    throttle = Throttle(rate=1, burst=1)
    assert [throttle.admits(now) for now in (5.0, 5.0, 4.0, 4.5)] == [True, False, False, False]
    assert throttle.admits(5.5)
