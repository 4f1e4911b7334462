"""One exception instead of the groups that nurseries make (P10)."""

from __future__ import annotations

import pytest
import trio
from runners import run_by

from mcpio._drivers import first_failure
from mcpio.trio._runtime import ungrouped


async def failing(error: BaseException) -> None:
    raise error


def test_block_without_an_error_raises_nothing() -> None:
    with ungrouped():
        pass


def test_an_exception_in_a_nursery_leaves_without_its_group() -> None:
    error = SystemExit(3)

    async def main() -> None:
        with ungrouped():
            async with trio.open_nursery() as outer, trio.open_nursery() as inner:
                outer.start_soon(trio.sleep_forever)
                inner.start_soon(failing, error)

    with pytest.raises(SystemExit) as caught:
        trio.run(main)
    assert caught.value is error
    assert error.__context__ is None
    assert error.__cause__ is None


def test_other_exceptions_propagate_unwrapped() -> None:
    with pytest.raises(ValueError, match="as it is"), ungrouped():
        raise ValueError("as it is")


async def two_that_sleep() -> None:
    with ungrouped():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(trio.sleep_forever)


def test_a_cancelled_nursery_leaves_a_plain_cancellation() -> None:
    seen: list[type[BaseException]] = []

    async def main() -> None:
        with trio.move_on_after(0):
            try:
                await two_that_sleep()
            except BaseException as error:
                seen.append(type(error))
                raise

    trio.run(main)
    assert seen == [trio.Cancelled]


async def one_that_fails_at_the_end() -> None:
    async def fail_at_the_end() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("x")

    with ungrouped():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(fail_at_the_end)


@run_by(trio.run)
async def test_failure_takes_precedence_over_cancellations() -> None:
    with trio.move_on_after(0), pytest.raises(ValueError, match="x"):
        await one_that_fails_at_the_end()


def test_first_of_several_failures_is_raised() -> None:
    first, second = ValueError("first"), KeyError("second")
    assert first_failure(BaseExceptionGroup("", [BaseExceptionGroup("", [first]), second]), trio.Cancelled) is first
