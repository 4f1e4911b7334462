"""Transports that hang: the kit says so, within its patience."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio

from mcpio.testing.transport_kit import CHECKS, PairHarness, TransportFault, run_check


class InThread(trio.abc.Channel[str]):
    """A channel whose ``receive`` waits in a thread, without ``abandon_on_cancel``."""

    def __init__(self, take: queue.Queue[Any], give: queue.Queue[Any], *, wakes: bool) -> None:
        self._take, self._give, self._wakes = take, give, wakes

    async def receive(self) -> str:
        taken = await trio.to_thread.run_sync(self._take.get)
        if taken is None:
            raise trio.EndOfChannel
        return str(taken)

    async def send(self, value: str) -> None:
        self._give.put(value)
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        if self._wakes:
            self._take.put(None)
            self._give.put(None)
        await trio.lowlevel.checkpoint()


@contextmanager
def harness(*, wakes: bool) -> Iterator[PairHarness]:
    made: list[queue.Queue[Any]] = []

    def ends() -> Any:
        there, back = queue.Queue[Any](), queue.Queue[Any]()
        made.extend((there, back))
        return InThread(back, there, wakes=wakes), InThread(there, back, wakes=wakes)

    yield PairHarness(ends, patience=0.5)
    for each in made:
        each.put(None)  # the threads end with the test


@pytest.mark.parametrize("check", CHECKS[:3], ids=str)
def test_receive_that_never_ends_is_a_fault(check: Any) -> None:
    with harness(wakes=False) as stuck, pytest.raises(TransportFault, match="a wait that does not end when it is"):
        run_check(check, stuck)


def test_receive_that_only_ends_with_the_transport_is_a_fault_too() -> None:
    with harness(wakes=True) as late, pytest.raises(TransportFault, match="ignores a cancellation, and is closed"):
        run_check(CHECKS[0], late)
