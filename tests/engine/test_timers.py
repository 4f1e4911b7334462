from __future__ import annotations

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpio.engine.channel import Timers


def test_empty_timers_have_no_deadline() -> None:
    timers = Timers()
    timers.clear(1)
    assert timers.next() is None
    assert timers.get(1) is None
    assert timers.pop_expired(math.inf) == []


def test_last_deadline_of_a_key_counts() -> None:
    timers = Timers()
    timers.set(1, 5.0)
    timers.set(1, 9.0)
    assert (timers.next(), timers.get(1)) == (9.0, 9.0)
    assert timers.pop_expired(8.9) == []
    timers.set(1, 3.0)
    assert timers.next() == 3.0
    assert timers.pop_expired(3.0) == [1]
    assert timers.next() is None


def test_expired_keys_come_by_time_then_key() -> None:
    timers = Timers()
    for key, deadline in ((3, 2.0), (1, 2.0), (2, 1.0), (4, 7.0)):
        timers.set(key, deadline)
    assert timers.pop_expired(2.0) == [2, 1, 3]
    assert timers.next() == 7.0


def test_cleared_key_leaves_the_others() -> None:
    timers = Timers()
    timers.set(1, 1.0)
    timers.set(2, 2.0)
    timers.clear(1)
    timers.clear(1)
    assert timers.next() == 2.0
    timers.clear(2)
    assert timers.next() is None


def test_earliest_deadline_is_next_while_a_later_one_moves() -> None:
    timers = Timers()
    timers.set(1, 0.0)
    timers.set(2, 8.0)
    timers.set(3, 7.0)
    for step in range(1000):
        timers.set(1, 9.0 + step)
        assert timers.next() == 7.0


def test_moving_deadline_takes_bounded_memory() -> None:
    timers = Timers()
    timers.set(0, 1e9)
    for step in range(10_000):
        timers.set(1, float(step))
    assert len(timers._heap or ()) < 100
    assert timers.pop_expired(1e6) == [1]


def test_emptied_timers_hold_no_containers() -> None:
    timers = Timers()
    base = sys.getsizeof(timers)
    for key in range(100):
        timers.set(key, float(key))
    assert len(timers.pop_expired(math.inf)) == 100
    assert (timers._deadlines, timers._heap, sys.getsizeof(timers)) == (None, None, base)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 5), st.integers(0, 20)),
        st.tuples(st.just("clear"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("expire"), st.just(0), st.integers(0, 20)),
    ),
    max_size=200,
)


@pytest.mark.req("TIME-04")
@given(STEPS)
def test_random_operations_keep_the_earliest_deadline(steps: list[tuple[str, int, int]]) -> None:
    timers, model = Timers(), dict[int, float]()
    for what, key, time in steps:
        if what == "set":
            timers.set(key, float(time))
            model[key] = float(time)
        elif what == "clear":
            timers.clear(key)
            model.pop(key, None)
        else:
            due = sorted((deadline, name) for name, deadline in model.items() if deadline <= time)
            assert timers.pop_expired(float(time)) == [name for _, name in due]
            model = {name: deadline for name, deadline in model.items() if deadline > time}
        assert timers.next() == min(model.values(), default=None)
        assert [timers.get(name) for name in range(6)] == [model.get(name) for name in range(6)]
