"""A store of sessions at work: at once, or in a thread, one batch after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import Any

import pytest

from mcpio.app.session_store import MemorySessionStore
from mcpio.app.store_writer import BATCH, StoreWriter
from mcpio.http.sessions import SessionDelete, SessionEffect, SessionLoad, SessionSave, SessionSweep, StoredEvent
from mcpio.testing import ManualRuntime
from mcpio.testing.manual_runtime import ManualTask


def save(key: str, at: float = 0.0, *events: tuple[int, int], forgotten: tuple[tuple[int, int], ...] = ()) -> Any:
    return SessionSave(1, key, key.encode(), at, tuple(StoredEvent(*place, b"e") for place in events), forgotten)


class Watched(ManualRuntime):
    """Shows what it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks: list[ManualTask] = []

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> ManualTask:
        self.tasks.append(super().spawn(coroutine))
        return self.tasks[-1]


class Keeper:
    """Who wants something of a store."""

    def __init__(self, store: Any) -> None:
        self.runtime = Watched()
        self.wanted: deque[SessionEffect] = deque()
        self.done: list[tuple[int, Any]] = []
        self.turns = 0
        self.keeping: StoreWriter[SessionEffect] = StoreWriter(
            store,
            read=lambda effect: partial(store.session, effect.key) if isinstance(effect, SessionLoad) else None,
            next_effect=lambda: self.wanted.popleft() if self.wanted else None,
            done=lambda effect, value: self.done.append((effect.token, value)),
            process=self._process,
        )

    def carry_on(self) -> bool:
        return self.keeping.carry_on(self.runtime)

    def _process(self) -> None:
        self.turns += 1


class SlowStore(MemorySessionStore):
    blocking = True

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []
        self.error: Exception | None = None

    def write(self, changes: Any) -> None:
        self.batches.append(len(changes))
        if self.error is not None:
            raise self.error
        super().write(changes)


def test_a_store_that_does_not_block_answers_in_the_same_call() -> None:
    store = MemorySessionStore()
    keeper = Keeper(store)
    assert not keeper.carry_on()
    keeper.wanted += [save("a"), SessionLoad(2, "a"), SessionLoad(3, "b")]
    assert keeper.carry_on()
    assert [token for token, _ in keeper.done] == [1, 2, 3]
    assert keeper.done[1][1].record == b"a"
    assert (keeper.done[2][1], keeper.turns) == (None, 0)


def test_a_store_that_blocks_answers_later_and_in_order() -> None:
    store = SlowStore()
    keeper = Keeper(store)
    keeper.wanted += [save("a")] * (BATCH + 3)
    assert not keeper.carry_on()
    keeper.wanted.append(SessionDelete(7, "a"))
    assert not keeper.carry_on()
    assert keeper.done == []
    keeper.runtime.run()
    assert (store.batches, keeper.turns) == ([BATCH, 4], 3)  # the last turn is for what the last look found
    assert [token for token, _ in keeper.done][-2:] == [1, 7]
    keeper.wanted.append(save("b"))
    keeper.carry_on()
    keeper.runtime.run()
    assert len(store) == 1


def test_failure_is_the_answer_to_each_change_of_its_batch() -> None:
    store = SlowStore()
    keeper = Keeper(store)
    store.error = OSError("the disk is full")
    keeper.wanted += [save("a"), save("b"), SessionLoad(2, "a")]
    keeper.carry_on()
    keeper.runtime.run()
    assert keeper.done == [(1, store.error), (1, store.error), (2, None)]


def test_interrupted_effect_is_repeated() -> None:
    store = SlowStore()
    keeper = Keeper(store)
    keeper.wanted += [save("a")]
    keeper.carry_on()
    keeper.runtime.tasks[0].cancel()
    keeper.runtime.run()
    assert keeper.done == []
    keeper.carry_on()
    keeper.runtime.run()
    assert keeper.done == [(1, None)]


@pytest.mark.parametrize(("before", "most", "left"), [(None, 9, "abc"), (2.0, 9, "bc"), (None, 1, "c"), (9.0, 9, "")])
def test_sweep_keeps_sessions_in_use(before: float | None, most: int, left: str) -> None:
    store = MemorySessionStore()
    store.write([save("c", 3, (1, 1)), save("a", 1), save("b", 2), SessionSweep(4, before, most)])
    assert "".join(key for key in "abc" if store.session(key)) == left


def test_event_is_stored_until_deleted() -> None:
    store = MemorySessionStore()
    store.write([save("a", 1.0, (2, 1), (1, 1))])
    store.write([save("a", 2.0, (1, 2), forgotten=((2, 1), (9, 9)))])
    found = store.session("a")
    assert found is not None
    assert [(each.stream, each.number) for each in found.events] == [(1, 1), (1, 2)]
    store.write([SessionDelete(1, "a"), SessionDelete(1, "b")])
    assert store.session("a") is None
