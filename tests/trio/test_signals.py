"""A server's end by a signal, in real processes: soon, quietly, with the status that says which signal it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
import trio

from mcpio._drivers.signals import DEFAULT_TIMEOUT, Terminated, exit_status
from mcpio.trio._event_loop import run_until_signalled, terminate_on_signals

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

SERVER = """
import sys, threading, time, trio
from mcpio.trio._event_loop import run_until_signalled, terminate_on_signals

async def handle(how):
    match how:
        case "waits":
            await trio.sleep_forever()
        case "computes":
            while True:
                pass
        case "sleeps in C":
            time.sleep(60)
        case "in a thread":
            await trio.to_thread.run_sync(time.sleep, 60, abandon_on_cancel=True)
        case "in a thread that cannot be left":
            await trio.to_thread.run_sync(time.sleep, 60)
        case "in a thread that an exit waits for":
            threading.Thread(target=time.sleep, args=(60,)).start()
            await trio.sleep_forever()
        case "clean-up takes long":
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(60)

async def serve(how):
    print("ready", flush=True)
    await handle(how)

async def guarded(how):
    with terminate_on_signals():
        await serve(how)

async def main(how, where):
    if where == "run":
        await guarded(how)
        return
    async with trio.open_nursery() as outer:
        outer.start_soon(trio.sleep_forever)
        async with trio.open_nursery() as inner:
            inner.start_soon(guarded, how)

if sys.argv[2] == "helper":
    run_until_signalled(lambda: serve(sys.argv[1]))
elif sys.argv[2] == "helper and nursery":
    async def nested():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(guarded, sys.argv[1])
            nursery.start_soon(trio.sleep_forever)
    run_until_signalled(nested)
else:
    trio.run(main, sys.argv[1], sys.argv[2])
print("not reached")
"""


def started(how: str, where: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, how, where], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def end(process: subprocess.Popen[bytes], signum: int) -> tuple[int, bytes, bytes]:
    """Send the signal; give the status and what was written. The handlers would hold the process for 60 seconds."""
    process.send_signal(signum)
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


HANDLERS = [
    "waits",
    "computes",
    "sleeps in C",
    "in a thread",
    "in a thread that cannot be left",
    "in a thread that an exit waits for",
    "clean-up takes long",
]
CASES = [(how, "run", signal.SIGTERM) for how in HANDLERS] + [
    ("waits", where, signum)
    for where in ("run", "nursery", "helper", "helper and nursery")
    for signum in (signal.SIGINT, signal.SIGTERM)
]


@pytest.mark.parametrize(("how", "where", "signum"), CASES, ids=lambda value: getattr(value, "name", str(value)))
def test_one_signal_ends_the_process_in_time_without_output(how: str, where: str, signum: int) -> None:
    assert end(started(how, where), signum) == (128 + signum, b"", b"")


def test_time_limit_leaves_the_system_some_of_a_tenth_of_a_second() -> None:
    assert DEFAULT_TIMEOUT < 0.1


IMPATIENT = """
import signal, sys, trio
from mcpio.trio._event_loop import terminate_on_signals

async def main():
    with terminate_on_signals(timeout=None):
        print("ready", flush=True)
        try:
            await trio.sleep_forever()
        finally:
            print("cleaning up", flush=True)
            with trio.CancelScope(shield=True):
                await trio.sleep(60)

trio.run(main)
"""


def test_second_signal_ends_slow_cleanup() -> None:
    process = subprocess.Popen([sys.executable, "-c", IMPATIENT], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == b"cleaning up\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert process.communicate() == (b"", b"")


WITH_EXIT_FUNCTIONS = """
import atexit, os, sys, trio
from mcpio.trio._event_loop import terminate_on_signals

class Slow:
    def __del__(self):
        os.write(2, b"modules are being cleared;")

kept_to_the_end = sys.modules["kept"] = Slow()

async def main():
    atexit.register(lambda: sys.stderr.write("exit function;"))
    with terminate_on_signals():
        print("ready", flush=True)
        await trio.sleep_forever()

print("unwritten", end=";")
trio.run(main)
"""


def test_exit_functions_run_and_buffers_are_not_flushed() -> None:
    command = [sys.executable, "-c", WITH_EXIT_FUNCTIONS]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"unwritten;ready\n"
    status, out, err = end(process, signal.SIGTERM)
    assert (status, out, err) == (143, b"", b"exit function;")


@pytest.fixture
def _own_handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore what a block that a signal ended leaves in place, for the process normally ends."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    handlers = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    yield
    for signum, handler in handlers.items():
        signal.signal(signum, handler)


@pytest.mark.usefixtures("_own_handlers")
def test_block_is_unwound_before_terminated_is_raised() -> None:
    seen: list[str] = []

    async def main() -> None:
        try:
            with terminate_on_signals(timeout=None):
                try:
                    signal.raise_signal(signal.SIGTERM)
                    await trio.sleep_forever()
                finally:
                    seen.append("unwound")
        except Terminated as exc:
            seen.append(f"{exc.signum} {exc.code}")
            raise

    with pytest.raises(Terminated):
        trio.run(main)
    assert seen == ["unwound", "15 143"]


@pytest.mark.usefixtures("_own_handlers")
def test_exception_during_cleanup_propagates() -> None:
    async def main() -> None:
        with terminate_on_signals(timeout=None):
            try:
                signal.raise_signal(signal.SIGTERM)
                await trio.sleep_forever()
            finally:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        trio.run(main)


def test_without_a_signal_nothing_is_left_behind() -> None:
    async def main() -> str:
        with terminate_on_signals():
            assert signal.getsignal(signal.SIGTERM) is not before[1]
        return "done"

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), sys.excepthook
    assert trio.run(main) == "done"
    assert run_until_signalled(main) == "done"
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), sys.excepthook) == before


def test_signals_in_another_thread_have_no_effect() -> None:
    async def inner() -> str:
        with terminate_on_signals():
            return "done"

    async def main() -> str:
        return await trio.to_thread.run_sync(trio.run, inner)

    before = signal.getsignal(signal.SIGTERM)
    assert trio.run(main) == "done"
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.usefixtures("_own_handlers")
def test_other_exceptions_propagate_unchanged() -> None:
    async def fail() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_bare)

    async def fail_bare() -> None:
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup):
        run_until_signalled(fail)
    with pytest.raises(ZeroDivisionError):
        run_until_signalled(fail_bare)


def test_exit_status_is_that_of_the_terminated_exception() -> None:
    terminated = Terminated(signal.SIGINT)
    assert terminated.code == 130
    assert exit_status(terminated) == 130
    assert exit_status(BaseExceptionGroup("x", [BaseExceptionGroup("y", [terminated])])) == 130
    assert exit_status(BaseExceptionGroup("x", [terminated, ZeroDivisionError()])) is None
    assert exit_status(SystemExit(3)) is None


@pytest.mark.usefixtures("_own_handlers")
def test_other_uncaught_exceptions_are_shown_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []
    monkeypatch.setattr(sys, "excepthook", lambda *arguments: shown.append(arguments))

    async def main() -> None:
        with terminate_on_signals(timeout=None):
            signal.raise_signal(signal.SIGTERM)
            await trio.sleep_forever()

    with pytest.raises(Terminated):
        trio.run(main)
    other = ZeroDivisionError()
    sys.excepthook(ZeroDivisionError, other, None)
    assert shown == [(ZeroDivisionError, other, None)]
    with pytest.raises(SystemExit) as caught:
        sys.excepthook(Terminated, Terminated(15), None)
    assert caught.value.code == 143
