from __future__ import annotations

from mcpio.app.reporting import Throttle


def test_burst_passes_first_and_then_the_rate_applies() -> None:
    throttle = Throttle(rate=2, burst=3)
    assert [throttle.admits(10.0) for _ in range(5)] == [True, True, True, False, False]
    assert throttle.held_back == 2
    assert [throttle.admits(10.4), throttle.admits(10.5), throttle.admits(10.5)] == [False, True, False]
    assert throttle.held_back == 4


def test_unused_rate_accumulates_to_one_burst() -> None:
    throttle = Throttle(rate=1, burst=2)
    assert [throttle.admits(0.0) for _ in range(3)] == [True, True, False]
    assert [throttle.admits(1000.0) for _ in range(3)] == [True, True, False]


def test_seconds_to_next_is_the_time_until_admission() -> None:
    throttle = Throttle(rate=4, burst=2)
    assert (throttle.seconds_to_next, throttle.admits(0.0), throttle.seconds_to_next) == (0, True, 0)
    assert (throttle.admits(0.0), throttle.seconds_to_next) == (True, 0.25)
    assert (throttle.admits(0.125), throttle.seconds_to_next) == (False, 0.125)


def test_clock_that_stops_or_goes_back_refills_nothing() -> None:
    throttle = Throttle(rate=1, burst=1)
    assert [throttle.admits(now) for now in (5.0, 5.0, 4.0, 4.5)] == [True, False, False, False]
    assert throttle.admits(5.5)
