"""Threads of blocking calls: how many there are for whom, and what abandoning them costs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from linked import Link
from loops import Run, loops, turns
from tasked import Mine
from waits import Wait

from mcpio.app.runtime import STRANGERS, Runtime, ThreadPool
from mcpio.app.server import Server
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.testing import ManualRuntime


class Threads(ManualRuntime):
    """A runtime whose threads are taken at once, and begin and end in ``work``."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[Callable[[], Any], Any]] = []

    async def to_thread(self, function: Callable[[], Any]) -> Any:
        over = self.one_shot()
        self.taken.append((function, over))
        return await over

    def work(self) -> None:
        """Have the oldest thread do its work."""
        function, over = self.taken.pop(0)
        over.set(function())
        self.run()


class Calls:
    """Calls in one pool, by the account and a number: ``began`` and ``ended`` are what became of them."""

    def __init__(self, **limits: Any) -> None:
        self.runtime = Threads()
        self.pool = ThreadPool(Limits(**limits))
        self.ended: list[str] = []
        self.waits: dict[str, Wait[None]] = {}

    def start(self, name: str, during: Callable[[], object] = lambda: None) -> None:
        """Begin a call for the account that the name begins with; ``during`` happens in the thread."""

        def function() -> None:
            during()
            self.ended.append(name)

        self.waits[name] = Wait(self.runtime, self.pool.run(self.runtime, name[0], function))

    @property
    def taken(self) -> int:
        """How many threads there are."""
        return len(self.runtime.taken)

    def finish(self) -> list[str]:
        """Have all threads work, one after the other; return the names of the calls in this order."""
        while self.runtime.taken:
            self.runtime.work()
        pool = self.pool
        assert (pool._total, dict(pool._running), pool._waiting, pool._ready) == (0, {}, {}, {})
        return self.ended


def test_calls_beyond_the_bound_of_an_account_wait() -> None:
    calls = Calls(peer_threads=2)
    for name in ("a1", "a2", "a3", "a4", "b1"):
        calls.start(name)
    assert calls.taken == 3
    calls.runtime.work()
    assert calls.taken == 3
    assert calls.finish() == ["a1", "a2", "b1", "a3", "a4"]
    assert all(each.state == "returned" for each in calls.waits.values())


def test_accounts_that_wait_for_a_thread_take_turns() -> None:
    calls = Calls(peer_threads=2, total_threads=1)
    for name in ("a1", "a2", "a3", "a4", "b1", "b2", "c1"):
        calls.start(name)
    assert calls.taken == 1
    assert calls.finish() == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]


@pytest.mark.parametrize(("total", "share"), [(8, 4), (3, 1), (1, 1)])
def test_strangers_share_half_of_the_threads(total: int, share: int) -> None:
    runtime = Threads()
    pool = ThreadPool(Limits(peer_threads=2, total_threads=total))
    waits = [Wait(runtime, pool.run(runtime, STRANGERS, lambda: None)) for _ in range(20)]
    assert len(runtime.taken) == share
    waits.append(Wait(runtime, pool.run(runtime, "known", lambda: None)))
    assert len(runtime.taken) == min(share + 1, total)
    while runtime.taken:
        runtime.work()
    assert {wait.state for wait in waits} == {"returned"}


def test_an_abandoned_call_counts_until_its_function_returns() -> None:
    calls = Calls(peer_threads=1)

    def abandoned() -> None:
        calls.waits["a1"].cancel()
        calls.start("a2")
        calls.start("b1")
        assert calls.taken == 1  # that of b1

    calls.start("a1", abandoned)
    assert calls.finish() == ["a1", "b1", "a2"]
    assert [calls.waits[name].state for name in ("a1", "a2", "b1")] == ["cancelled", "returned", "returned"]


def test_call_cancelled_before_its_start_never_runs() -> None:
    calls = Calls(peer_threads=1)
    calls.start("a1")
    calls.start("a2")
    calls.waits["a1"].cancel()
    assert calls.taken == 2
    with pytest.raises(RuntimeError, match="no task waits"):
        calls.runtime.work()
    assert calls.finish() == ["a2"]


def test_call_cancelled_while_queued_never_runs() -> None:
    calls = Calls(peer_threads=1, total_threads=1)
    for name in ("a1", "a2", "a3", "b1", "b2"):
        calls.start(name)
    for name in ("a2", "b1"):
        calls.waits[name].cancel()
    assert calls.finish() == ["a1", "b2", "a3"]


def test_call_cancelled_at_its_turn_passes_the_turn_on() -> None:
    calls = Calls(peer_threads=1)
    for name in ("a1", "a2", "a3"):
        calls.start(name)
    function, over = calls.runtime.taken.pop()
    over.set(function())
    calls.pool._settle()  # a2 may begin, and has not heard of it
    calls.waits["a2"].cancel()
    assert calls.finish() == ["a1", "a3"]


def test_thread_that_outlived_its_loop_is_not_counted() -> None:
    calls = Calls(peer_threads=1)
    calls.start("a1", lambda: setattr(calls.runtime, "call_soon", lambda function: None))
    function, _ = calls.runtime.taken.pop()
    function()
    calls.start("a2")
    assert calls.taken == 1


def test_exception_of_a_blocking_function_is_raised() -> None:
    runtime = ManualRuntime()
    with pytest.raises(ZeroDivisionError):
        runtime.complete(ThreadPool(Limits()).run(runtime, "a", lambda: 1 // 0))


@pytest.mark.parametrize("limits", [{"peer_threads": 0}, {"total_threads": 0}])
def test_there_is_at_least_one_thread(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="an integer of 1 or more, not 0"):
        Limits(**limits)


@loops
def test_abandoned_threads_block_only_their_account(run: Run) -> None:
    release, ended = threading.Event(), threading.Semaphore(0)
    entered = threading.Semaphore(0)

    def block() -> None:
        entered.release()
        release.wait(10)
        ended.release()

    async def main(runtime: Runtime) -> None:
        pool = ThreadPool(Limits(peer_threads=2, total_threads=4))
        tasks = [runtime.spawn(_ignore(pool.run(runtime, "a", block))) for _ in range(5)]
        for _ in range(2):
            await runtime.to_thread(entered.acquire)
        for task in tasks:
            task.cancel()
        await turns(runtime)
        assert await pool.run(runtime, "b", lambda: 7) == 7
        late = runtime.one_shot()
        runtime.spawn(_tell(late, pool.run(runtime, "a", lambda: 8)))
        await turns(runtime)
        assert pool._running == {"a": 2}
        release.set()
        assert await late.wait() == 8
        for _ in range(2):
            await runtime.to_thread(ended.acquire)
        assert not entered.acquire(blocking=False)  # the other three never began

    run(main)


async def _ignore(call: Any) -> None:
    await call


async def _tell(shot: Any, call: Any) -> None:
    shot.set(await call)


def limited(**limits: Any) -> Server:
    return Server("s", options=Options(limits=Limits(**limits)))


def test_a_blocking_tool_counts_for_the_principal_or_the_session() -> None:
    server = limited(peer_threads=1)
    seen: list[dict[Any, int]] = []
    server.tool(lambda: seen.append(dict(server.thread_pool._running)), name="look", blocking=True)
    for link in (Link(server), Link(server), Link(server, principal="ada"), Link(server, principal="ada")):
        assert link.call("look").is_error is False
    first, second, ada, same = (list(each) for each in seen)
    assert first != second
    assert ada == same == [("principal", "ada")]


def test_task_counts_for_its_requestor() -> None:
    mine = Mine(link={"principal": "ada"})
    seen: list[Any] = []
    pool = mine.server.thread_pool
    mine.server.tool(lambda: seen.extend(pool._running), name="watch", blocking=True, task_support="optional")
    mine.wire.begin("watch")
    mine.wire.look()
    assert seen == [("principal", "ada")]
