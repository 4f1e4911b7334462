"""Standard input and output, and child processes."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import trio

from mcpio._checks import check_options
from mcpio._drivers.actor import TransportAdapter
from mcpio._drivers.event_loop import stream_adapter
from mcpio._drivers.setup import ServerSetupOptions, open_in_either_era
from mcpio._drivers.signals import CHILDREN
from mcpio._drivers.stdio import (
    END_TIMEOUT,
    EXIT_TIMEOUT,
    STDERR_TIMEOUT,
    Children,
    ProcessOptions,
    Stderr,
    StderrSink,
    StdioClient,
    StdioOptions,
    claim_stdio,
    default_environment,
    describe_end,
    environment,
    starting,
    stderr_mode,
)
from mcpio.app.session import Session
from mcpio.engine.shutdown import Shutdown, ShutdownAction
from mcpio.errors import ConnectFailed
from mcpio.trio._descriptors import Child, FdReader, StderrReader, StdioStream
from mcpio.trio._drivers import TrioClientContext, serve, start_client
from mcpio.trio._event_loop import TrioEventLoop, terminate_on_signals
from mcpio.trio._runtime import check_in_trio, ungrouped, uninterruptible

if TYPE_CHECKING:
    from mcpio.app.server import Server

__all__ = [
    "ProcessOptions",
    "StderrSink",
    "StdioClient",
    "StdioOptions",
    "default_environment",
    "open_input",
    "open_output",
    "start_child",
]


# ------------------------------------------------------------------------------------------------------------- platform
# Common names for the differences between POSIX and Windows; the only module that chooses between them.

if sys.platform == "win32":
    from mcpio.trio._windows import open_input, open_output, start_child
else:
    from mcpio.trio._posix import open_input, open_output, start_child


# --------------------------------------------------------------------------------------------------------- stdio stream
# Standard input and output as the protocol's stream, protected from other output (STDIO-04).


@asynccontextmanager
async def stdio_stream() -> AsyncIterator[StdioStream]:
    """Async context manager that yields this process's standard input and output as one stream, for it alone.

    Inside the block, descriptor 0 is the null device, descriptor 1 is a copy of 2, and ``sys.stdout`` is
    ``sys.stderr``: output of ``print``, C code or a child process to standard output appears on standard error. The
    end of the block restores all of that, with one exception: after ``send_eof`` to a pipe or socket there is no
    standard output to restore, and 1 stays a copy of 2.

    No flag of an inherited file is changed. Leaving the block closes the stream. One block at a time in a process.
    """
    with claim_stdio() as claimed:
        stream = StdioStream(
            open_input(claimed.input_fd), open_output(claimed.output_fd), on_eof=claimed.release_output
        )
        try:
            yield stream
        finally:
            stream.close()


# -------------------------------------------------------------------------------------------------------------- process
# Child processes: start, streams, and shutdown (STDIO-01, -07, -08, -11, -13).


async def start_process(
    argv: Sequence[str],
    *,
    nursery: trio.Nursery,
    env: Mapping[str, str] | None = None,
    inherit_env: bool = False,
    cwd: str | os.PathLike[str] | None = None,
    stderr: StderrSink = "inherit",
    close_grace: float = 2.0,
    terminate_grace: float = 2.0,
    die_with_parent: bool = False,
) -> ChildProcess:
    """Start a program as a child process whose standard input and output are a stream.

    Its tasks run in ``nursery``.

    ``argv`` is the program and its arguments; there is no shell. The child's environment is ``default_environment()``,
    or all of this process's with ``inherit_env``, and ``env`` on top. ``cwd`` is its working directory, this process's
    by default. The child leads its own session and process group: a Ctrl-C in this process's terminal does not
    reach it.

    ``stderr`` says where its standard error goes; it is always read, so that the child never blocks on it. A function
    is called with each line (text without its end, undecodable bytes replaced) and must be quick.

    ``close`` ends the child: its input is closed; after ``close_grace`` seconds its group gets SIGTERM, and after
    ``terminate_grace`` more SIGKILL. Cancelling the nursery does the same. Processes that the child leaves in its group
    when it exits are ended the same way. If this process is killed, the child still sees the end of its input;
    ``die_with_parent`` (Linux; on Windows it is always so) makes the kernel kill it then, and starts it with a fork in
    the thread of the Trio run, which blocks the run for some milliseconds and which libraries that dislike forks in a
    process with threads may warn of. Programs that change their user lose that tie.

    Raises ConnectFailed if the program cannot be started.
    """
    mode = stderr_mode(stderr)
    machine = Shutdown(close_grace=close_grace, terminate_grace=terminate_grace)
    directory = None if cwd is None else os.fspath(cwd)
    child = await _start_process(argv, environment(env, inherit_env), directory, mode, die_with_parent)
    process = ChildProcess(tuple(argv), child, machine, stderr if callable(stderr) else None)
    try:
        process.attend(nursery)
    except RuntimeError:
        # The nursery is closed, so no task would supervise the child.
        child.kill()
        process.stream.close()
        with trio.CancelScope(shield=True):
            await child.wait()
        raise
    return process


@asynccontextmanager
async def open_process_stream(argv: Sequence[str], **options: Unpack[ProcessOptions]) -> AsyncIterator[ChildProcess]:
    """Async context manager that starts a program, with the options of ``start_process``.

    Leaving the block ends the child, and waits for its end. Exceptions of the block and of the start propagate
    unwrapped.
    """
    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            try:
                process = await start_process(argv, nursery=nursery, **options)
                try:
                    yield process
                finally:
                    process.close()
            except BaseException as exc:
                failure = exc  # Raised below, outside the nursery, which would wrap it.
    finally:
        if failure is not None:
            try:
                raise failure
            finally:
                failure = None  # It refers to this frame, and the frame to it.


@uninterruptible
class ChildProcess:
    """A running child. Made by ``start_process`` and ``open_process_stream``."""

    def __init__(
        self, argv: tuple[str, ...], child: Child, machine: Shutdown, sink: Callable[[str], object] | None
    ) -> None:
        self.argv = argv
        """The program and its arguments."""
        self.pid: int = child.pid
        """Its process id, and that of its group."""
        self.stream: StdioStream = _ChildStream(child, self._take_stdout)
        """Its standard input (``send_all``, ``send_eof``) and output (``receive_some``).

        After ``aclose`` the rest of its output is read and dropped, so that writing it does not block the child.
        """
        self.returncode: int | None = None
        """Its exit status, negative for a signal (-9 for SIGKILL); ``None`` until it has exited."""
        self._child = child
        self._machine = machine
        self._stderr = StderrReader(child.stderr, sink)
        self._reading_stderr = trio.CancelScope(shield=True)
        self._unread: FdReader | None = None
        self._wake = trio.Event()
        self._exited = trio.Event()
        self._ended = trio.Event()

    @property
    def stderr_tail(self) -> str:
        """The last lines (at most 8 KiB) of its standard error, if that is captured."""
        return self._stderr.tail

    def close(self) -> None:
        """Start its end and return. Synchronous and idempotent; legal from any task of the run, in any order."""
        self.stream.close()
        if not self._ended.is_set():
            self._machine.close(trio.current_time())
            self._act()
            self._wake.set()

    async def aclose(self) -> None:
        """Close, and wait for its end. If cancelled, the child still ends, but is not waited for."""
        self.close()
        await self._ended.wait()

    async def wait(self) -> int | None:
        """Wait for its exit, and return the status; ``None`` for a child that survived SIGKILL and was abandoned."""
        await self._exited.wait()
        return self.returncode

    async def last_words(self, timeout: float = EXIT_TIMEOUT) -> str:
        """Return how it ended, with the tail of its standard error, for an error message.

        Waits up to ``timeout`` seconds for the exit and for the rest of standard error.
        """
        with trio.move_on_after(timeout):
            await self._exited.wait()
            await self._stderr.ended.wait()
        return describe_end(self.argv[0], self.returncode, self.stderr_tail)

    def attend(self, nursery: trio.Nursery) -> None:
        """Start the tasks that supervise the child. Called by ``start_process``."""
        nursery.start_soon(self._supervise)
        CHILDREN[self] = self._machine.longest, self._child.kill
        nursery.start_soon(self._read_stderr)
        nursery.start_soon(self._follow_nursery)

    async def _supervise(self) -> None:
        """Supervise the child until its end. Shielded: a cancellation of the nursery arrives as a ``close``."""
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._await_exit)
                while not self._machine.finished:
                    await self._await_event()
                    self._act()
                    if self._unread is not None:
                        nursery.start_soon(_drop, self._unread)
                        self._unread = None
                with trio.move_on_after(STDERR_TIMEOUT):
                    await self._stderr.ended.wait()
                self._reading_stderr.cancel()
                nursery.cancel_scope.cancel()
        CHILDREN.pop(self, None)
        self._child.stdin.close()
        self._child.end_stdout()
        if self._unread is not None:
            self._unread.close()  # The stream was closed when only standard error was still read.
        self._exited.set()
        self._ended.set()

    async def _read_stderr(self) -> None:
        """Read standard error until the child has ended, so that it never blocks on that."""
        with self._reading_stderr:
            await self._stderr.run()

    async def _follow_nursery(self) -> None:
        try:
            await self._ended.wait()
        except trio.Cancelled:
            self.close()
            raise

    async def _await_exit(self) -> None:
        self.returncode = await self._child.wait()
        self._machine.child_exited(trio.current_time(), group_left=self._child.group_left())
        self._exited.set()
        self._wake.set()

    async def _await_event(self) -> None:
        deadline = self._machine.next_deadline()
        with trio.CancelScope(deadline=math.inf if deadline is None else deadline) as scope:
            await self._wake.wait()
            self._wake = trio.Event()
        if scope.cancelled_caught:
            self._machine.handle_timeout(trio.current_time())

    def _act(self) -> None:
        while (action := self._machine.next_action()) is not None:
            match action:
                case ShutdownAction.CLOSE_STDIN:
                    self._child.stdin.close()
                case ShutdownAction.TERMINATE:
                    self._child.terminate()
                case ShutdownAction.KILL:
                    self._child.kill()
                case ShutdownAction.PROBE:
                    if not self._child.group_left():
                        self._machine.group_ended()

    def _take_stdout(self) -> None:
        """Let the supervision read the rest of the output: a child that blocks on output never ends gracefully."""
        if self._ended.is_set():
            self._child.stdout.close()
        else:
            self._unread = self._child.take_stdout()
            self._wake.set()


class _ChildStream(StdioStream):
    """The stream to a child, which lets the child write the rest of its output after ``close``."""

    def __init__(self, child: Child, on_close: Callable[[], None]) -> None:
        super().__init__(child.stdout, child.stdin)
        self._on_close = on_close

    def close(self) -> None:
        if not self._closed:
            self._on_close()
        super().close()


async def _start_process(
    argv: Sequence[str], env: Mapping[str, str], cwd: str | None, stderr: Stderr, die_with_parent: bool
) -> Child:
    with starting(argv, cwd):
        return await start_child(argv, env=env, cwd=cwd, stderr=stderr, die_with_parent=die_with_parent)


@trio.lowlevel.enable_ki_protection
async def _drop(source: FdReader) -> None:
    """Read to the end, and drop the data."""
    try:
        with contextlib.suppress(trio.BrokenResourceError):
            while await source.receive_some():
                pass
    finally:
        source.close()


# -------------------------------------------------------------------------------------------------------------- drivers
# ``open_stdio``, ``connect_stdio`` and ``serve_stdio``: a child process on one side, this process on the other.


def open_stdio(argv: Sequence[str], **options: Unpack[StdioOptions]) -> TrioClientContext[StdioClient]:
    """Async context manager that starts a server as a child process: ``async with open_stdio(["server"]) as client``.

    ``argv`` is the program and its arguments; there is no shell. See ``start_process`` for the options of the process
    (``env``, ``cwd``, ``stderr``, graces) and ``ClientOptions`` for those of the client. The end of the block ends the
    child: its input is closed, then it is terminated, then killed.

    With ``restart`` the client outlives the child: one that dies is started again.

    Raises ConnectFailed if the program does not start, or the handshake fails. The message tells how the child ended,
    and the end of its standard error if that is captured.
    """
    return TrioClientContext(lambda nursery: connect_stdio(argv, nursery=nursery, **options))


async def connect_stdio(argv: Sequence[str], *, nursery: trio.Nursery, **options: Unpack[StdioOptions]) -> StdioClient:
    """Start a server as a child process and return a client of it, tied to no block. See ``open_stdio``."""
    check_options(options, StdioOptions.__annotations__)
    return await open_in_either_era(lambda client_options: _connect(argv, nursery, client_options), options)


async def _connect(argv: Sequence[str], nursery: trio.Nursery, client_options: dict[str, Any]) -> StdioClient:
    of_process = {name: client_options.pop(name) for name in ProcessOptions.__annotations__ if name in client_options}
    children = Children(partial(_start_child, argv, of_process, nursery), _adapter, TrioEventLoop())
    try:
        adapter, make = await children.client(client_options)
        return await start_client(adapter, nursery, client_options, make, StdioClient.end_process)
    except BaseException:
        children.close()
        raise


async def _start_child(argv: Sequence[str], options: Mapping[str, Any], nursery: trio.Nursery) -> ChildProcess:
    """Start a child. Raises ConnectFailed."""
    hosted = await nursery.start(_host, argv, options)
    if isinstance(hosted, ConnectFailed):
        raise hosted
    child: ChildProcess
    child, tasks = hosted
    # From here on the session ends the child, also when the nursery is cancelled, so that its last output goes out
    # first.
    tasks.shield = True
    return child


def _adapter(child: ChildProcess, *, end_is_loss: bool) -> TransportAdapter:
    return stream_adapter(child.stream, TrioEventLoop(), end_is_loss=end_is_loss)


@trio.lowlevel.enable_ki_protection  # or a child might be left that nothing ends
async def _host(
    argv: Sequence[str],
    options: Mapping[str, Any],
    *,
    task_status: trio.TaskStatus[tuple[ChildProcess, trio.CancelScope] | ConnectFailed],
) -> None:
    """Supervise a child until its end. Reports it with the scope of its tasks, or why it did not start."""
    with ungrouped():
        async with trio.open_nursery() as nursery:
            try:
                child = await start_process(argv, nursery=nursery, **options)
            except ConnectFailed as error:
                # Not raised here: older Trio drops the cause of an exception of a task that is being started.
                task_status.started(error)
            else:
                task_status.started((child, nursery.cancel_scope))


@trio.lowlevel.enable_ki_protection
async def serve_stdio(
    server: Server,
    *,
    principal: Any = None,
    end_with_parent: bool = False,
    task_status: trio.TaskStatus[Session] = trio.TASK_STATUS_IGNORED,
    **beginning: Unpack[ServerSetupOptions],
) -> None:
    """Serve the client that started this process, until it closes our standard input.

    During that, ``print`` and all other output to standard output goes to standard error. One SIGINT or SIGTERM ends
    the process within 100 ms, with exit status 130 or 143; a child process, such as the server behind a proxy, is ended
    first, which takes longer if it hangs. Use it as ``trio.run(serve_stdio, server)``, or with
    ``nursery.start``, which returns the session. See ``ServerSetupOptions`` for resumed sessions and taps.
    ``principal`` is who the client acts for: a server with scopes needs a ``mcpio.auth.Grant`` that has them, as the
    program that starts a process over standard input decides what it may do. ``end_with_parent`` ends the process when
    its parent ends: see ``terminate_on_signals``.

    Requests that run when the input ends have ``end_timeout`` seconds, 10 by default; then their handlers are
    cancelled. The client may wait for the answers, or have been killed, which looks the same.
    """
    check_in_trio("servers")
    with terminate_on_signals(end_with_parent=end_with_parent):
        async with stdio_stream() as stream:
            beginning.setdefault("alone", True)
            beginning.setdefault("end_timeout", END_TIMEOUT)
            await serve(server, stream, principal=principal, task_status=task_status, **beginning)
