from __future__ import annotations

import asyncio
import inspect
import sys
import types
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import trio

from mcpio.app import runtime as awaitables
from mcpio.app.runtime import (
    StallDetector,
    failure_of,
    in_steps,
    is_awaitable,
    is_fault,
    is_of_kind,
    is_stopping,
    parted,
    when_ready,
    without_partial,
)
from mcpio.testing import ManualCancelled, ManualRuntime
from mcpio.trio._runtime import TrioRuntime


class Panic(BaseException):
    """As Rust extensions raise it."""


@pytest.mark.parametrize("leaving", [SystemExit(3), KeyboardInterrupt(), ManualCancelled()])
def test_exception_is_parted_into_what_propagates_and_failures(leaving: BaseException) -> None:
    assert parted(leaving, ManualCancelled) == (leaving, None)
    for fault in (ValueError(), Panic(), GeneratorExit()):
        assert parted(fault, ManualCancelled) == (None, fault)
        passing, failure = parted(BaseExceptionGroup("", [leaving, fault]), ManualCancelled)
        assert isinstance(passing, BaseExceptionGroup)
        assert isinstance(failure, BaseExceptionGroup)
        assert (passing.exceptions, failure.exceptions) == ((leaving,), (fault,))


def test_cancellation_that_a_plain_function_raises_is_its_failure() -> None:
    error = ManualCancelled()
    assert failure_of(error) is error
    with pytest.raises(KeyboardInterrupt):
        failure_of(KeyboardInterrupt())


@pytest.mark.parametrize("is_raised", [True, False], ids=["raised by a handler", "closed"])
def test_closing_a_coroutine_is_no_failure_of_what_it_awaits(is_raised: bool) -> None:
    found: list[bool] = []

    async def handler() -> None:
        if is_raised:
            raise GeneratorExit
        await ManualRuntime().one_shot().wait()

    async def finish() -> None:
        try:
            await handler()
        except GeneratorExit as error:
            found.append(is_fault(error, ManualRuntime()))

    running = finish()
    with suppress(StopIteration):
        running.send(None)
    running.close()
    assert found == [is_raised]


class Called:
    async def __call__(self) -> int:
        return 5


def test_is_of_kind_looks_through_partials_and_callable_objects() -> None:
    kinds: list[Any] = [
        coroutine,
        partial(partial(coroutine)),
        Called(),
        partial(Called()),
        len,
        partial(len),
        5,
        Called,
    ]
    assert [is_of_kind(inspect.iscoroutinefunction, each) for each in kinds] == [True] * 4 + [False] * 4
    assert without_partial(partial(partial(len))) is len


def test_a_value_is_converted_at_once() -> None:
    assert when_ready(5, str) == "5"


def test_awaitable_is_converted_when_ready() -> None:
    async def later() -> int:
        return 5

    assert ManualRuntime().complete(when_ready(later(), str)) == "5"


class Later:
    def __await__(self) -> Generator[None, None, int]:
        yield
        return 5


async def coroutine() -> int:
    return 5


@types.coroutine
def old_coroutine() -> Generator[None, None, int]:
    yield
    return 5


def generator() -> Generator[int, None, None]:
    yield 5


@pytest.mark.parametrize(
    ("make", "awaitable"),
    [
        (coroutine, True),
        (old_coroutine, True),
        (Later, True),
        (lambda: asyncio.Future(loop=asyncio.new_event_loop()), True),
        (generator, False),
        (lambda: Later, False),
        (lambda: None, False),
        (lambda: {"__await__": 1}, False),
    ],
)
def test_awaitables_are_recognized(make: Callable[[], Any], awaitable: bool) -> None:
    value = make()
    assert is_awaitable(value) is awaitable
    if asyncio.iscoroutine(value):
        value.close()
    elif isinstance(value, asyncio.Future):
        value.get_loop().close()


@pytest.mark.parametrize("cancelled", [True, False])
def test_is_stopping_tells_a_cancelled_task(cancelled: bool) -> None:
    found: list[bool] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            runtime = TrioRuntime(nursery)
            with trio.CancelScope() as scope:
                if cancelled:
                    scope.cancel()
                found.append(await is_stopping(runtime))

    trio.run(main)
    assert found == [cancelled]


def test_table_of_awaitable_classes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaitables, "AWAITABLE", {})
    monkeypatch.setattr(awaitables, "_MOST_CLASSES", 2)
    assert [is_awaitable(value) for value in (1, "a", 1.0, 1, "a")] == [False] * 5
    assert len(awaitables.AWAITABLE) <= 2


# Steps


class Pause:
    """Waits once, and can neither be sent to nor closed."""

    def __await__(self) -> Any:
        return iter(["waits"])


def test_steps_over_the_limit_are_reported_and_nothing_else_changes() -> None:
    times = iter([0, 0.04, 1, 1.06, 2, 2.07, 3, 3.08])
    seen: list[Any] = []

    @types.coroutine
    def wait(value: str) -> Generator[str, Any, Any]:
        return (yield value)

    async def work() -> None:
        seen.append(await wait("first"))
        try:
            await wait("second")
        except KeyError as error:
            seen.append(error)
        try:
            await wait("third")
        finally:
            seen.append("closed")

    steps = in_steps(work(), StallDetector(float, lambda: next(times)), lambda took: seen.append(round(took, 2)))
    assert isinstance(steps, Generator)
    failure = KeyError("a")
    assert steps.send(None) == "first"
    assert steps.send("sent") == "second"
    assert steps.throw(failure) == "third"
    steps.close()
    assert seen == ["sent", 0.06, failure, 0.07, "closed"]


class Processor:
    """A clock, and the time of it in which the thread had no processor."""

    def __init__(self) -> None:
        self.now = self.queued = 0.0
        self.looks = 0

    def look(self) -> float:
        self.looks += 1
        return self.queued


def held(processor: Processor, stalls: StallDetector, *steps: Callable[[], object]) -> list[float]:
    """Return the seconds that are reported of an async function with these steps."""

    async def work() -> None:
        for step in steps:
            step()
            await Pause()

    seen: list[float] = []
    running = in_steps(work(), stalls, lambda took: seen.append(round(took, 2)))
    list(running)
    return seen


def test_step_that_was_given_no_processor_is_not_reported() -> None:
    processor = Processor()
    stalls = StallDetector(processor.look, lambda: processor.now)

    def wait(seconds: float, queued: float) -> None:
        processor.now += seconds
        processor.queued += queued

    assert held(processor, stalls, lambda: wait(7, 6.96)) == []
    processor.now += 2
    assert held(processor, stalls, lambda: wait(7, 6.8), lambda: wait(0.3, 0.1)) == [0.2, 0.2]


def test_step_that_imports_modules_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    processor = Processor()
    stalls = StallDetector(processor.look, lambda: processor.now)

    def import_one() -> None:
        monkeypatch.setitem(sys.modules, "test_awaitables_imports_this", types.ModuleType("any"))
        processor.now += 3

    assert held(processor, stalls, import_one, import_one) == [3]


def test_quick_steps_ask_the_system_once_a_second() -> None:
    processor = Processor()
    stalls = StallDetector(processor.look, lambda: processor.now)

    def work() -> None:
        processor.now += 0.01

    assert held(processor, stalls, *[work] * 250) == []
    assert processor.looks == 3


def test_every_kind_of_awaitable_is_awaited_in_steps() -> None:
    @types.coroutine
    def plain() -> Generator[str, Any, str]:
        sent: str = yield "waits"
        return sent

    async def main(awaitable: Any) -> Any:
        return await in_steps(awaitable, StallDetector(float, lambda: 0.0), lambda _: None)

    for awaitable, result in ((plain(), "sent"), (Pause(), None)):
        running = main(awaitable)
        assert running.send(None) == "waits"
        with pytest.raises(StopIteration) as ended:
            running.send("sent" if result else None)
        assert ended.value.value == result
