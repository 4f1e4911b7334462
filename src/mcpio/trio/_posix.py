"""The POSIX side of ``platform``: child processes and signals."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import trio

from mcpio._drivers.posix import group_lives, signal_group, tie_to
from mcpio._drivers.stdio import Stderr
from mcpio.trio._descriptors import Child, FdReader, FdWriter, PollReader, PollWriter, open_input, open_output

__all__ = ["open_input", "open_output"]

assert not TYPE_CHECKING or sys.platform != "win32"


async def start_child(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None, stderr: Stderr, die_with_parent: bool
) -> Child:
    """Start a child in its own session, with pipes. Raises OSError or ValueError if that fails."""
    if die_with_parent and sys.platform != "linux":
        raise ValueError("die_with_parent needs Linux")
    with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
        child_stdin, stdin = _pipe(theirs, ours)
        stdout, child_stdout = _pipe(ours, theirs)
        captured, child_stderr = None, subprocess.DEVNULL if stderr is Stderr.DISCARD else None
        if stderr is Stderr.PIPE:
            captured, child_stderr = _pipe(ours, theirs)
        for fd in (stdin, stdout, captured):
            if fd is not None:
                os.set_blocking(fd, False)
        start = _start_tied if die_with_parent else trio.lowlevel.open_process
        process: _Process = await start(
            list(argv),
            stdin=child_stdin,
            stdout=child_stdout,
            stderr=child_stderr,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
        )
        ours.pop_all()
    return _PosixChild(process, PollWriter(stdin), PollReader(stdout), captured)


def _pipe(reader: contextlib.ExitStack, writer: contextlib.ExitStack) -> tuple[int, int]:
    """Open a pipe, each of whose ends is closed by its stack. Other children do not inherit it."""
    reading, writing = os.pipe()
    reader.callback(os.close, reading)
    writer.callback(os.close, writing)
    return reading, writing


class _Process(Protocol):
    @property
    def pid(self) -> int: ...

    async def wait(self) -> int: ...


class _PosixChild:
    """A session leader, so that its process group has its number."""

    def __init__(self, process: _Process, stdin: PollWriter, stdout: PollReader, stderr: int | None) -> None:
        self.pid = process.pid
        self.stdin: FdWriter = stdin
        self.stdout: FdReader = stdout
        self.stderr: FdReader | None = None if stderr is None else PollReader(stderr)
        self._process = process
        self._stdout = stdout

    async def wait(self) -> int:
        return await self._process.wait()

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def group_left(self) -> bool:
        return group_lives(self.pid)

    def take_stdout(self) -> FdReader | None:
        return self._stdout.hand_over()

    def end_stdout(self) -> None:
        self._stdout.end_when_empty()

    def _signal(self, number: signal.Signals) -> None:
        signal_group(self.pid, number)


async def _start_tied(
    argv: list[str],
    *,
    stdin: int,
    stdout: int,
    stderr: int | None,
    env: dict[str, str],
    cwd: str | None,
    start_new_session: bool,
) -> _Process:
    """Start a child that the kernel kills when this thread ends, and so at any end of this process.

    It is started in this thread, since the tie is to the thread: one from a pool would take the child with it when it
    retires. The loop is blocked until the program runs, some milliseconds.
    """
    await trio.lowlevel.checkpoint_if_cancelled()
    popen = subprocess.Popen(  # noqa: ASYNC220, S603 - in this thread, as said above, and what the caller names
        argv,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=env,
        cwd=cwd,
        start_new_session=start_new_session,
        preexec_fn=tie_to(os.getpid()),  # noqa: PLW1509 - nothing in it takes a lock or imports
    )
    return _TiedProcess(popen)


class _TiedProcess:
    """Waits for the exit of a child that Trio did not start."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen
        self.pid = popen.pid

    async def wait(self) -> int:
        if self._popen.returncode is None:
            await self._wait_for_exit()
        return self._popen.wait()

    async def _wait_for_exit(self) -> None:
        try:
            exit_fd = os.pidfd_open(self.pid)
        except OSError:
            # A kernel before 5.3, or a sandbox. WNOWAIT: the thread, if abandoned, must not reap.
            # ChildProcessError: where SIGCHLD is ignored, the system has reaped it already.
            with contextlib.suppress(ChildProcessError):
                await trio.to_thread.run_sync(
                    os.waitid, os.P_PID, self.pid, os.WEXITED | os.WNOWAIT, abandon_on_cancel=True
                )
            return
        try:
            await trio.lowlevel.wait_readable(exit_fd)
        finally:
            trio.lowlevel.notify_closing(exit_fd)
            os.close(exit_fd)
