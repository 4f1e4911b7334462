"""When to begin again what has ended: the backoff, what counts as having worked, and when to give up."""

from __future__ import annotations

from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpio.backoff import Backoff
from mcpio.errors import ConnectFailed, ConnectionLost, McpError, RequestTimeout
from mcpio.restarts import RestartPolicy, Restarts

LOST = ConnectionLost("it died")


def waits(restarts: Restarts, *runs: float, error: McpError = LOST, chance: float = 0.0) -> list[float | None]:
    """Return how long it is waited after each run of so many seconds; ``None`` where it is given up."""
    now, found = 0.0, list[float | None]()
    for run in runs:
        restarts.began(now)
        assert restarts.next_deadline() is None
        now += run
        restarts.ended(error, now, chance=chance)
        deadline = restarts.next_deadline()
        assert restarts.is_over is (deadline is None)
        found.append(None if deadline is None else round(deadline - now, 6))
        now = now if deadline is None else deadline
    return found


def test_repeated_failures_wait_longer_until_given_up() -> None:
    restarts = Restarts(RestartPolicy())
    assert restarts.error is None
    assert waits(restarts, 1, 1, 1, 1, 1, 1) == [0.1, 0.2, 0.4, 0.8, 1.6, None]
    assert restarts.error is LOST


def test_long_run_resets_the_backoff() -> None:
    assert waits(Restarts(Backoff(1, tries=2, cap=30)), 1, 1, 30, 1, 1) == [1, 2, 1, 2, None]
    policy = RestartPolicy(backoff=Backoff(1, tries=2), settled_after=5)
    assert waits(Restarts(policy), 4, 5, 5, 4, 4) == [1, 1, 1, 2, None]


def test_failed_start_counts_as_a_failure() -> None:
    restarts = Restarts(RestartPolicy(backoff=Backoff(1, tries=2), settled_after=0.5))
    restarts.began(0.0)
    for now, deadline in ((10.0, 11.0), (11.0, 13.0), (13.0, None)):
        restarts.ended(ConnectFailed("no such program"), now)
        assert restarts.next_deadline() == deadline


def test_too_many_ends_in_too_short_a_time_are_given_up_however_long_each_ran() -> None:
    policy = RestartPolicy(backoff=Backoff(0, tries=99), settled_after=1, most=2, within=10)
    assert waits(Restarts(policy), 5, 5, 5, 5, 5) == [0, 0, None, None, None]
    assert waits(Restarts(policy), 6, 6, 6, 6) == [0, 0, 0, 0]
    assert waits(Restarts(policy), 6, 1, 1, 1) == [0, 0, None, None]


def test_given_up_is_final() -> None:
    restarts = Restarts(Backoff(tries=0))
    restarts.ended(LOST, 1.0)
    assert restarts.is_over
    restarts.ended(ConnectFailed("later"), 2.0)
    assert (restarts.is_over, restarts.next_deadline(), restarts.error) == (True, None, LOST)


def test_an_error_that_another_try_does_not_mend_is_the_end() -> None:
    restarts = Restarts(Backoff())
    restarts.ended(RequestTimeout("initialize", 3), 0.0)
    assert restarts.is_over
    assert waits(Restarts(Backoff(also=(RequestTimeout,))), 1, error=RequestTimeout("ping", 3)) == [0.1]


def test_jitter_shortens_each_wait() -> None:
    assert waits(Restarts(Backoff(1, jitter=0.5)), 1, 1, chance=0.5) == [0.75, 1.5]


@pytest.mark.parametrize(
    "given", [{"settled_after": -1}, {"most": -1}, {"most": 1.5}, {"within": "x"}, {"within": float("inf")}]
)
def test_invalid_policies_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        RestartPolicy(**given)


def test_policy_of_another_type_raises() -> None:
    wrong: Any = 5
    with pytest.raises(TypeError, match="a policy must be a Backoff or a RestartPolicy, not 5"):
        Restarts(wrong)
    with pytest.raises(TypeError, match=r"^backoff must be Backoff, not 5$"):
        RestartPolicy(backoff=wrong)


@settings(deadline=None, max_examples=examples(50))
@given(
    st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=30),
    st.integers(0, 5),
    st.none() | st.integers(0, 5),
)
def test_any_policy_waits_until_later_or_gives_up(runs: list[tuple[float, bool]], tries: int, most: int | None) -> None:
    restarts = Restarts(RestartPolicy(backoff=Backoff(tries=tries, cap=1000), most=most))
    now, again = 0.0, 0
    for run, begins in runs:
        if begins:
            restarts.began(now)
        now += run
        restarts.ended(LOST, now)
        deadline = restarts.next_deadline()
        assert restarts.is_over is (deadline is None)
        if deadline is None:
            break
        assert deadline > now
        now, again = deadline, again + 1
    assert again <= tries
