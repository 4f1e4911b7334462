from __future__ import annotations

import math
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpio.backoff import Backoff
from mcpio.errors import ConnectFailed, ConnectionLost, RequestError, RequestTimeout
from mcpio.refusals import RefusalCode

BUSY = RequestError(RefusalCode.RATE_LIMIT_EXCEEDED, "slow down")


def delays(policy: Backoff, error: Exception = BUSY, chance: float = 0.0) -> list[float]:
    found: list[float] = []
    while (delay := policy.next_delay(len(found), error, chance=chance)) is not None:
        found.append(delay)
    return found


def test_a36_exponential_backoff_100_200_400_ms() -> None:
    assert delays(Backoff(base=0.1, factor=2, tries=3)) == [0.1, 0.2, 0.4]
    assert delays(Backoff()) == [0.1, 0.2, 0.4]


def test_no_wait_is_longer_than_the_cap() -> None:
    assert delays(Backoff(1, 10, 4, cap=30)) == [1, 10, 30, 30]
    assert Backoff(tries=10_000).next_delay(9_999, BUSY) == 30.0


def test_a_policy_may_give_up_at_once() -> None:
    assert delays(Backoff(tries=0)) == []


def test_jitter_shortens_each_wait() -> None:
    assert delays(Backoff(1, jitter=0.5), chance=0.5) == [0.75, 1.5, 3.0]
    assert delays(Backoff(1), chance=0.5) == [1, 2, 4]


@settings(deadline=None, max_examples=examples(50))
@given(st.integers(0, 5000), st.floats(0, 1), st.floats(0, 1, exclude_max=True))
def test_random_wait_stays_within_bounds(attempt: int, jitter: float, chance: float) -> None:
    policy = Backoff(tries=10_000, jitter=jitter)
    regular = Backoff(tries=10_000).next_delay(attempt, BUSY)
    delay = policy.next_delay(attempt, BUSY, chance=chance)
    assert regular is not None
    assert delay is not None
    assert regular * (1 - jitter) <= delay <= regular <= policy.cap


@pytest.mark.parametrize(
    ("error", "worth"),
    [
        (RequestError(1056, "rate"), True),
        (RequestError(1080, "dependency"), True),
        (RequestError(1059, "quota"), False),
        (RequestError(1014, "forbidden"), False),
        (RequestError(1059, "quota", {"retryable": True}), True),
        (RequestError(1056, "rate", {"retryable": False}), False),
        (RequestError(-32603, "Internal error"), False),
        (ConnectionLost("reset"), False),
        (RequestTimeout("tools/list", 5), False),
        (ValueError("no"), False),
    ],
)
def test_a37_retryable_errors(error: Exception, worth: bool) -> None:
    assert Backoff().is_worth_it(error) is worth
    assert (Backoff().next_delay(0, error) is not None) is worth


def test_a35_caller_declares_other_errors_retryable() -> None:
    policy = Backoff(also=(ConnectFailed, ConnectionLost))
    assert delays(policy, ConnectFailed("no such host")) == [0.1, 0.2, 0.4]
    assert delays(policy, ConnectionLost("reset")) == [0.1, 0.2, 0.4]
    assert delays(policy, RequestTimeout("ping", 1)) == []


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"retry_after": 0.3}, [0.3, 0.3, 0.4]),
        ({"retryAfter": 3}, [3, 3, 3]),
        ({"retry_after": 0}, [0.1, 0.2, 0.4]),
        ({"retry_after": 31}, []),
        ({"retry_after": math.inf}, []),
        ({"retry_after": -1}, [0.1, 0.2, 0.4]),
        ({"retry_after": True}, [0.1, 0.2, 0.4]),
        ({"retry_after": "soon"}, [0.1, 0.2, 0.4]),
        ({"retry_after": math.nan}, [0.1, 0.2, 0.4]),
        ([3], [0.1, 0.2, 0.4]),
    ],
)
def test_wait_lasts_at_least_the_time_the_peer_asks_for(data: Any, expected: list[float]) -> None:
    assert delays(Backoff(), RequestError(1057, "slow down", data)) == expected


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"base": -1}, "base must be a number of 0 or more, not -1"),
        ({"base": math.nan}, "base"),
        ({"base": "1"}, "base"),
        ({"factor": 0.5}, "factor must be a number of 1 or more"),
        ({"factor": math.inf}, "factor"),
        ({"tries": -1}, "tries must be an integer of 0 or more"),
        ({"tries": 1.5}, "tries"),
        ({"cap": math.inf}, "cap"),
        ({"jitter": 1.5}, "jitter must be a number from 0 to 1, not 1.5"),
    ],
)
def test_invalid_policy_is_refused(arguments: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Backoff(**arguments)


@pytest.mark.parametrize(("attempt", "chance"), [(-1, 0.0), (0, 1.0), (0, -0.1), (0, math.nan)])
def test_invalid_attempt_or_chance_is_refused(attempt: int, chance: float) -> None:
    with pytest.raises(ValueError, match="an attempt must be 0 or more"):
        Backoff().next_delay(attempt, BUSY, chance=chance)
