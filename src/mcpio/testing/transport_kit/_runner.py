"""Run checks, and verify that they leak nothing."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextvars import copy_context
from functools import partial
from typing import Any, ClassVar, Final

from mcpio.testing.transport_kit._checks import ALL, Check, CheckRun, pauses
from mcpio.testing.transport_kit._harness import Harness
from mcpio.testing.transport_kit._loops import current_loop, prepare
from mcpio.testing.transport_kit._loops import run as run_loop

CHECKS: Final[tuple[Check, ...]] = tuple(ALL)
"""All checks, the basic ones first."""

OPEN_FILES: Final = ("/proc/self/fd", "/dev/fd")
SOON: Final = 0.2
"""Seconds for a thread that is about to end, as those are with which asyncio waits for child processes."""
WATCHED: Final = "mcpio transport check"
LOOK: Final = 0.1
"""Seconds between two looks at the steps of a check."""
STUCK: Final = (
    "a wait that does not end when it is cancelled, nor when the transport is closed; on Trio, a receive() in a thread "
    "needs trio.to_thread.run_sync(..., abandon_on_cancel=True)"
)
SLOWNESS: Final = "held up everything else"
"""Part of mcpio's warning about a slow handler, which a busy machine can cause."""
FAULTS: Final = (
    "the transport failed",
    "the transport ignores a cancellation",
    "closing the transport failed",
    "cleaning up after a session failed",
)
"""Beginnings of mcpio's reports on transports that raise unexpected exceptions."""


def check_transport(harness: Harness) -> tuple[str, ...]:
    """Run every check that applies; return the names of those that do not.

    Raises TransportFault for the first that fails. Must not be called within an event loop.
    """
    left_out = []
    for each in CHECKS:
        if each.applies_to(harness):
            run_check(each, harness)
        else:
            left_out.append(each.name)
    return tuple(left_out)


def run_check(check: Check, harness: Harness) -> None:
    """Run one check in a new event loop, and verify that it leaks nothing. Raises TransportFault if it fails.

    Must not be called within an event loop.
    """
    prepare(harness.loop)
    files, threads = _open_files(), _threads()
    with _reports() as reports:
        run: list[CheckRun] = []
        main = partial(_run_in_loop, check, harness, reports, run)
        work = partial(run_loop, harness.loop, main, reports.append, virtual_time=harness.virtual_time)
        if harness.virtual_time:
            work()  # it waits for Trio only, which ends every wait that is cancelled
        else:
            _watch(work, harness.patience, run)
    fault = partial(run[0].fault, "nothing to be left behind when everything is closed")
    if left := _left_open(files):
        raise fault(f"{len(left)} descriptors are still open: " + ", ".join(left))
    if alive := _left_running(threads):
        raise fault(f"threads still run: {', '.join(sorted(thread.name for thread in alive))}")
    if held := run[0].server.ledger.total:
        raise fault(f"the server still counts {held} bytes as held for clients")


def _watch(work: Callable[[], None], patience: float, run: list[CheckRun]) -> None:
    """Run an event loop in a thread. Raises TransportFault, and leaves the thread, if a step does not end when cut."""
    raised: list[BaseException] = []

    def contained() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=copy_context().run, args=(contained,), name=WATCHED, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(LOOK)
        for step in run[0].steps[:] if run else ():
            if step.is_overdue(patience):
                raise run[0].fault(step.expected, STUCK)
    if raised:
        raise raised[0]


async def _run_in_loop(check: Check, harness: Harness, reports: list[str], runs: list[CheckRun]) -> None:
    loop = current_loop()
    before = loop.count_tasks()
    async with loop.tasks() as group:
        run = CheckRun(check, harness, reports, group)
        runs.append(run)
        await check.function(run)
    with loop.scope(harness.patience):
        for pause in pauses():
            if loop.count_tasks() <= before:
                break
            await loop.runtime.sleep(pause)
    if (more := loop.count_tasks() - before) > 0:
        raise run.fault("no task to be left behind when everything is closed", f"{more} still run")
    raised = [report for report in reports if report.startswith(FAULTS)]
    run.hold(not raised, loop.manners, "".join(raised[:1]))
    if not check.breaks:
        run.hold(not reports, "nothing that mcpio has to report", "it had")


class TransportTests:
    """Base class with a test for each check, for pytest or, together with ``unittest.TestCase``, for unittest.

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
            return  # a base class for other bases
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
    """Collect mcpio's log records, and hide them from other handlers."""
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
    """Return the descriptors that were not open before."""

    def more() -> list[str]:
        return [f"{number} ({what})" for number, what in sorted(_open_files().items()) if before.get(number) != what]

    if more():
        # Other libraries close descriptors when objects are collected, and the objects may be in a reference cycle.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
    return more()


def _left_running(before: set[threading.Thread]) -> list[threading.Thread]:
    """Return the threads that were not running before, and that do not end soon."""
    more = _threads() - before
    for thread in more:
        thread.join(SOON)
    return [thread for thread in more if thread.is_alive()]


def _threads() -> set[threading.Thread]:
    """Return the running threads, without the idle ones of Trio's cache."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith("Trio thread")}


def _open_files() -> dict[int, str]:
    """Return the open descriptors and their targets; empty on systems that do not list them."""
    files: dict[int, str] = {}
    for directory in OPEN_FILES:
        with contextlib.suppress(OSError):
            for name in os.listdir(directory):
                with contextlib.suppress(OSError):
                    files[int(name)] = os.readlink(f"{directory}/{name}")
            return files
    return files
