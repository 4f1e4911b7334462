"""Faults that occur again and again are told once in full, and then counted."""

from __future__ import annotations

import errno
import logging

import pytest
import trio

from mcpio._drivers.setup import FaultLog


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def fail(error: BaseException) -> None:
    raise error


def test_first_fault_of_a_kind_has_a_traceback_and_later_ones_are_throttled_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    log = FaultLog(clock)
    for _ in range(1000):
        log.report("a socket failed", OSError(errno.EMFILE, "Too many open files"))
        clock.now += 0.1
    told = [(record.levelno, bool(record.exc_info), record.getMessage()) for record in caplog.records]
    again = "a socket failed again: OSError(24, 'Too many open files')"
    assert told[:2] == [(logging.ERROR, True, "a socket failed"), (logging.WARNING, False, again)]
    assert told[-1] == (logging.WARNING, False, f"{again} (99 times more before)")
    assert len(told) < 25


def test_a_fault_without_an_exception_is_throttled_too(caplog: pytest.LogCaptureFixture) -> None:
    log = FaultLog(Clock())
    for _ in range(100):
        log.report("a client was turned away", None)
    assert caplog.messages == ["a client was turned away"] * 11


def test_an_exception_is_contained_and_shown_without_its_groups(caplog: pytest.LogCaptureFixture) -> None:
    log, fault = FaultLog(Clock()), ValueError("it")
    with log.contained("a session failed", trio.Cancelled):
        fail(ExceptionGroup("", [ExceptionGroup("", [fault])]))
    ((_, shown, _),) = [record.exc_info for record in caplog.records if record.exc_info]
    assert shown is fault


@pytest.mark.parametrize("leaving", [SystemExit(3), KeyboardInterrupt()])
def test_system_exit_is_not_contained(leaving: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    log = FaultLog(Clock())
    with pytest.raises(type(leaving)), log.contained("a session failed", trio.Cancelled):
        raise leaving
    with pytest.raises(BaseExceptionGroup) as caught, log.contained("a session failed", trio.Cancelled):
        raise BaseExceptionGroup("", [leaving, ValueError()])
    assert caught.value.exceptions == (leaving,)
    assert caplog.messages == ["a session failed"]


def test_a_cancellation_is_not_contained(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            with FaultLog(Clock()).contained("a session failed", trio.Cancelled):
                await trio.sleep_forever()
        assert scope.cancelled_caught

    trio.run(main)
    assert not caplog.records
