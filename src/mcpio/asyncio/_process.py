"""Child processes: start, streams, and shutdown (STDIO-01, -07, -08, -11, -13)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, SubprocessStreamProtocol
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from subprocess import DEVNULL
from typing import Any

from mcpio._drivers.signals import CHILDREN
from mcpio._drivers.stdio.process import (
    EXIT_TIMEOUT,
    STDERR_TIMEOUT,
    Stderr,
    StderrSink,
    describe_end,
    environment,
    starting,
    stderr_mode,
)
from mcpio._drivers.stdio.stderr import StderrLines
from mcpio.asyncio._event_loop import CancelScope
from mcpio.engine.shutdown import Shutdown, ShutdownAction

__all__ = ["ChildProcess", "start_process"]

_KILL = signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL


async def start_process(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    inherit_env: bool = False,
    cwd: str | os.PathLike[str] | None = None,
    stderr: StderrSink = "inherit",
    close_grace: float = 2.0,
    terminate_grace: float = 2.0,
    die_with_parent: bool = False,
) -> ChildProcess:
    """Start a program as a child process. See ``mcpio.trio.start_process`` for the options.

    A task supervises the child until its end: end it by ``close`` or ``aclose``. Raises ConnectFailed if the program
    cannot be started.
    """
    mode = stderr_mode(stderr)
    machine = Shutdown(close_grace=close_grace, terminate_grace=terminate_grace)
    place = None if cwd is None else os.fspath(cwd)
    loop = asyncio.get_running_loop()
    how: dict[str, Any] = {}
    if sys.platform != "win32":
        how["start_new_session"] = True
    if die_with_parent and sys.platform != "linux":
        raise ValueError("die_with_parent needs Linux")
    if die_with_parent and sys.platform == "linux":
        from mcpio._drivers.stdio.posix import tie_to

        how["preexec_fn"] = tie_to(os.getpid())
    with starting(argv, place):
        transport, protocol = await loop.subprocess_exec(
            lambda: _Protocol(loop),
            *argv,
            stdin=PIPE,
            stdout=PIPE,
            stderr={Stderr.INHERIT: None, Stderr.DISCARD: DEVNULL, Stderr.PIPE: PIPE}[mode],
            env=environment(env, inherit_env),
            cwd=place,
            **how,
        )
    return ChildProcess(tuple(argv), transport, protocol, machine, stderr if callable(stderr) else None)


class _Protocol(SubprocessStreamProtocol):
    """The streams of a child, and its exit as soon as it is known.

    asyncio's ``Process.wait`` may also wait until all pipes are closed, which another process may hold open.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=65536, loop=loop)
        self.exited: asyncio.Event = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class ChildProcess:
    """A running child."""

    def __init__(
        self,
        argv: tuple[str, ...],
        transport: asyncio.SubprocessTransport,
        protocol: Any,
        machine: Shutdown,
        sink: Callable[[str], object] | None,
    ) -> None:
        """For ``start_process``."""
        pid: Any = transport.get_pid()
        stdin: Any = protocol.stdin
        stdout: Any = protocol.stdout
        self.argv = argv
        """The program and its arguments."""
        self.pid: int = pid
        """Its process id, and that of its group."""
        self.reader: asyncio.StreamReader = stdout
        """Its standard output."""
        self.writer: asyncio.StreamWriter = stdin
        """Its standard input."""
        self.returncode: int | None = None
        """Its exit status, negative for a signal (-9 for SIGKILL); ``None`` until it has exited."""
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._protocol = protocol
        self._machine = machine
        self._lines = StderrLines(sink)
        self._stderr: asyncio.Task[None] = self._loop.create_task(self._read_stderr(protocol.stderr))
        self._rest: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        CHILDREN[self] = machine.longest, partial(self._signal, _KILL)
        self._supervising = self._loop.create_task(self._supervise())

    @property
    def stderr_tail(self) -> str:
        """The last lines (at most 8 KiB) of its standard error, if that is captured."""
        return self._lines.tail

    def close(self) -> None:
        """Start its end and return: its input is closed, then it is terminated, then killed. Idempotent."""
        if not self._supervising.done():
            self._machine.close(self._loop.time())
            self._act()
            self._wake.set()

    async def aclose(self) -> None:
        """Close, and wait for its end. If cancelled, the child still ends, but is not waited for."""
        self.close()
        if self._rest is None and not self._supervising.done():
            # A child that blocks on output never ends gracefully. No session reads it any more.
            self._rest = self._loop.create_task(_drop(self.reader))
        await asyncio.wait([self._supervising])

    async def wait(self) -> int | None:
        """Wait for its exit, and return the status; ``None`` for a child that survived SIGKILL and was abandoned."""
        exited = self._loop.create_task(self._protocol.exited.wait())
        try:
            await asyncio.wait([exited, self._supervising], return_when=asyncio.FIRST_COMPLETED)
        finally:
            exited.cancel()
        return self._transport.get_returncode()

    async def last_words(self, timeout: float = EXIT_TIMEOUT) -> str:
        """Return how it ended, with the tail of its standard error, for an error message.

        Waits up to ``timeout`` seconds for the exit and for the rest of standard error.
        """
        with CancelScope(timeout):
            await self.wait()
            await asyncio.wait([self._stderr])
        return describe_end(self.argv[0], self._transport.get_returncode(), self.stderr_tail)

    async def _supervise(self) -> None:
        """Supervise the child until its end."""
        exited = self._loop.create_task(self._await_exit())
        while not self._machine.finished:
            deadline = self._machine.next_deadline()
            with CancelScope(None if deadline is None else max(0.0, deadline - self._loop.time())) as scope:
                await self._wake.wait()
                self._wake.clear()
            if scope.cancelled_caught:
                self._machine.handle_timeout(self._loop.time())
            self._act()
        CHILDREN.pop(self, None)
        await asyncio.wait([self._stderr], timeout=STDERR_TIMEOUT)
        for task in (exited, self._stderr, self._rest):
            if task is not None:
                task.cancel()
        # No process of the group is alive, but another may hold its output open.
        self.reader.feed_eof()
        self._transport.close()

    async def _await_exit(self) -> None:
        await self._protocol.exited.wait()
        self.returncode = self._transport.get_returncode()
        self._machine.child_exited(self._loop.time(), group_left=self._group_left())
        self._wake.set()

    async def _read_stderr(self, source: asyncio.StreamReader | None) -> None:
        """Read standard error until the child has ended, so that it never blocks on that."""
        if source is None:
            return
        try:
            with suppress(OSError):
                while data := await source.read(65536):
                    self._lines.take(data)
        finally:
            self._lines.finish()

    def _act(self) -> None:
        while (action := self._machine.next_action()) is not None:
            match action:
                case ShutdownAction.CLOSE_STDIN:
                    self.writer.close()
                case ShutdownAction.TERMINATE:
                    self._signal(signal.SIGTERM)
                case ShutdownAction.KILL:
                    self._signal(_KILL)
                case ShutdownAction.PROBE:
                    if not self._group_left():
                        self._machine.group_ended()

    def _group_left(self) -> bool:
        if sys.platform == "win32":
            return False
        from mcpio._drivers.stdio.posix import group_lives

        return group_lives(self.pid)

    def _signal(self, number: signal.Signals) -> None:
        if sys.platform == "win32":
            # There, to terminate is to kill.
            with suppress(ProcessLookupError):
                self._transport.kill()
        else:
            from mcpio._drivers.stdio.posix import signal_group

            signal_group(self.pid, number)


async def _drop(source: asyncio.StreamReader) -> None:
    """Read to the end, and drop the data."""
    with suppress(OSError, RuntimeError):  # RuntimeError: another task reads it.
        while await source.read(65536):
            pass
