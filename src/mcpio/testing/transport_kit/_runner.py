"""Running checks, and looking at what they left behind."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import threading
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, Final

import trio

from mcpio.testing.transport_kit._check import Check, Stage, pauses
from mcpio.testing.transport_kit._closing_checks import ENDS
from mcpio.testing.transport_kit._harness import Harness
from mcpio.testing.transport_kit._message_checks import MESSAGES
from mcpio.trio._nurseries import ungrouped

__all__ = ["CHECKS", "TransportTests", "check_transport", "run_check"]

CHECKS: Final[tuple[Check, ...]] = (*MESSAGES, *ENDS)
"""Everything that the kit asks, in the order in which to look at it."""

OPEN_FILES: Final = ("/proc/self/fd", "/dev/fd")
SLOWNESS: Final = "held up everything else"
"""What mcpio reports of a busy machine, which is no fault of a transport."""
FAULTS: Final = ("the transport failed", "closing the transport failed", "cleaning up after a session failed")
"""What mcpio reports of transports that raise what no transport should."""


def check_transport(harness: Harness) -> tuple[str, ...]:
    """Run every check that applies; return the names of those that do not.

    Raises ``TransportFault`` for the first that fails. Not to be called inside of an event loop.
    """
    left_out = []
    for each in CHECKS:
        if each.applies_to(harness):
            run_check(each, harness)
        else:
            left_out.append(each.name)
    return tuple(left_out)


def run_check(check: Check, harness: Harness) -> None:
    """Run one check in a Trio run of its own, and look what it left behind. Raises ``TransportFault``.

    Not to be called inside of an event loop.
    """
    files, threads = _open_files(), _threads()
    with _reports() as reports:
        stage: list[Stage] = []
        trio.run(_run, check, harness, reports, stage, clock=_jumping_clock() if harness.virtual_time else None)
    fault = partial(stage[0].fault, "nothing to be left behind when everything is closed")
    if left := _left_open(files):
        raise fault(f"{len(left)} descriptors are still open: " + ", ".join(left))
    if alive := _threads() - threads:
        raise fault(f"threads still run: {', '.join(sorted(thread.name for thread in alive))}")
    if held := stage[0].server.ledger.total:
        raise fault(f"the server still counts {held} bytes as held for clients")


async def _run(check: Check, harness: Harness, reports: list[str], stages: list[Stage]) -> None:
    before = _tasks()
    with ungrouped():
        async with trio.open_nursery() as nursery:
            stage = Stage(check, harness, reports, nursery)
            stages.append(stage)
            await check.function(stage)
    with trio.move_on_after(harness.patience):
        for pause in pauses():
            if _tasks() <= before:
                break
            await trio.sleep(pause)
    if (more := _tasks() - before) > 0:
        raise stage.fault("no task to be left behind when everything is closed", f"{more} still run")
    expected = (
        "trio.BrokenResourceError, trio.ClosedResourceError or OSError when a connection does not work, "
        "trio.Cancelled when it is cancelled"
    )
    raised = [report for report in reports if report.startswith(FAULTS)]
    stage.hold(not raised, expected, "".join(raised[:1]))
    if not check.breaks:
        stage.hold(not reports, "nothing that mcpio has to report", "it had")


class TransportTests:
    """Every check as a test: a base for a test class, under pytest or, with ``unittest.TestCase`` beside it, unittest.

    ::

        class TestMyTransport(TransportTests):
            harness = PairHarness(my_pair)

    The class gets a method ``test_…`` for each check that applies to its ``harness``.
    """

    harness: ClassVar[Harness]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        harness = getattr(cls, "harness", None)
        if harness is None:
            return  # a base for others
        for each in CHECKS:
            if each.applies_to(harness):
                setattr(cls, f"test_{each.name}", _as_test(each))


def _as_test(check: Check) -> Any:
    def test(self: TransportTests) -> None:
        run_check(check, self.harness)

    test.__name__ = test.__qualname__ = f"test_{check.name}"
    test.__doc__ = check.description
    return test


@contextlib.contextmanager
def _reports() -> Iterator[list[str]]:
    """Gather what mcpio writes to its log, and keep it from everybody else."""
    logger = logging.getLogger("mcpio")
    reports: list[str] = []
    handler = _Gathering(reports)
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield reports
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


class _Gathering(logging.Handler):
    def __init__(self, reports: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._reports = reports

    def emit(self, record: logging.LogRecord) -> None:
        if SLOWNESS in record.getMessage():
            return
        error = record.exc_info[1] if record.exc_info else None
        self._reports.append(record.getMessage() + (f": {error!r}" if error is not None else ""))


def _left_open(before: dict[int, str]) -> list[str]:
    """Return the descriptors that are still open."""

    def more() -> list[str]:
        return [f"{number} ({what})" for number, what in sorted(_open_files().items()) if before.get(number) != what]

    if more():
        # Other libraries have some closed with the last of their objects, and objects may refer to each other.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
    return more()


def _jumping_clock() -> trio.abc.Clock:
    """Return a clock that jumps as soon as nothing moves."""
    from trio.testing import MockClock  # which imports pytest, where that is installed

    return MockClock(autojump_threshold=0)


def _tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


def _threads() -> set[threading.Thread]:
    """Return the threads that run, but for those that Trio keeps for its next use."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith("Trio thread")}


def _open_files() -> dict[int, str]:
    """Return what is open, by descriptor; nothing on systems that do not tell."""
    found: dict[int, str] = {}
    for directory in OPEN_FILES:
        with contextlib.suppress(OSError):
            for name in os.listdir(directory):
                with contextlib.suppress(OSError):
                    found[int(name)] = os.readlink(f"{directory}/{name}")
            return found
    return found
