"""Standard input and output, and child processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from asyncio.subprocess import PIPE, SubprocessStreamProtocol
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from subprocess import DEVNULL
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from mcpio._checks import check_options
from mcpio._drivers.event_loop import RECEIVE_SIZE, StreamAdapter
from mcpio._drivers.setup import ServerSetupOptions, open_in_either_era, serve_adapter
from mcpio._drivers.signals import CHILDREN
from mcpio._drivers.stdio import (
    END_TIMEOUT,
    EXIT_TIMEOUT,
    STDERR_TIMEOUT,
    Access,
    Children,
    InputFile,
    OutputFile,
    ProcessOptions,
    Stderr,
    StderrLines,
    StderrSink,
    StdioClient,
    StdioOptions,
    claim_stdio,
    describe_end,
    environment,
    inherited_input,
    inherited_output,
    starting,
    stderr_mode,
)
from mcpio.asyncio._drivers import (
    AsyncioClientContext,
    ReaderWriterStream,
    Started,
    start_client,
)
from mcpio.asyncio._event_loop import AsyncioEventLoop, CancelScope, terminate_on_signals
from mcpio.asyncio._runtime import settled
from mcpio.engine.shutdown import Shutdown, ShutdownAction

if TYPE_CHECKING:
    from mcpio.app.server import Server

__all__ = ["StdioClient"]


# ------------------------------------------------------------------------------------------------------------ fd stream
# Two descriptors, such as standard input and output, as a stream.

T = TypeVar("T")


class FdStream:
    """An input and an output as one stream, which owns them. ``on_eof`` is called after the end of the output.

    asyncio's own pipe transports would set the descriptors to non-blocking mode, which every process that shares them
    would feel.
    """

    def __init__(self, source: InputFile, sink: OutputFile, *, on_eof: Callable[[], None]) -> None:
        """Create it inside the running loop."""
        self._loop = asyncio.get_running_loop()
        self._input = _Input(source, self._loop)
        self._sink = sink
        self._on_eof = on_eof
        self._is_closed = self._has_sent_eof = False
        self._has_room: asyncio.Future[None] | None = None
        self._writing: Future[None] | None = None

    def receive_some(self, max_bytes: int | None = None) -> Coroutine[Any, Any, bytes]:
        """Wait for bytes, at most 64 KiB; ``b""`` is the end. Raises OSError."""
        return self._input.receive_some()

    async def send_all(self, data: bytes | memoryview) -> None:
        """Write all of the data."""
        if self._sink.access is Access.THREAD:
            self._writing = _in_thread(lambda: _write_all(self._sink, data))
            await asyncio.wrap_future(self._writing)
            return
        while data := data[self.send_nowait(data) :]:
            await self._wait_for_room()

    def send_nowait(self, data: bytes | memoryview) -> int:
        """Write what finds room, and return how many bytes that was."""
        if self._is_closed or self._has_sent_eof:
            raise BrokenPipeError("the output is closed")
        if self._sink.access is Access.THREAD:
            return 0
        try:
            return self._sink.write(self._sink.fd, data)
        except BlockingIOError:
            return 0

    async def send_eof(self) -> None:
        """End the output, if the peer can see that. Further calls do nothing."""
        if self._has_sent_eof or self._is_closed:
            return
        self._has_sent_eof = True
        if self._sink.shut_down is not None:
            with suppress(OSError):  # Refused if the peer is gone already.
                self._sink.shut_down(self._sink.fd)
        self._sink.close(self._sink.fd)
        if self._sink.ends_for_peer:
            self._on_eof()

    async def aclose(self) -> None:
        """Close both directions. Further calls do nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._input.close()
        if self._has_room is not None:
            self._loop.remove_writer(self._sink.fd)
        if not self._has_sent_eof:
            _close_after(self._writing, self._sink)

    def get_extra_info(self, _: str) -> None:
        """Return nothing: descriptors are no sockets."""

    async def _wait_for_room(self) -> None:
        if self._sink.access is Access.READY:
            # The loop cannot watch a file, which takes a part of a write only when its disk becomes full: the next
            # write says so.
            await asyncio.sleep(0)
            return
        self._has_room = has_room = self._loop.create_future()
        self._loop.add_writer(self._sink.fd, _wake, has_room)
        try:
            await has_room
        finally:
            self._has_room = None
            if not self._is_closed:
                self._loop.remove_writer(self._sink.fd)


class _Input:
    """Reads from one descriptor. A cancelled read loses nothing."""

    def __init__(self, source: InputFile, loop: asyncio.AbstractEventLoop) -> None:
        self._source = source
        self._loop = loop
        self._is_watched = self._is_closed = False
        # Bytes that the loop has read, and no task has taken.
        self._arrived: bytes | OSError | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._call: Future[bytes] | None = None
        self._reading: asyncio.Future[bytes] | None = None

    async def receive_some(self) -> bytes:
        """Wait for bytes, at most 64 KiB; ``b""`` is the end. Raises OSError."""
        source = self._source
        if source.access is Access.READY:
            # The file returns at once: without a turn of the loop, no other task would run.
            await asyncio.sleep(0)
            return source.read(source.fd, RECEIVE_SIZE)
        if source.access is Access.THREAD:
            # The read of a cancelled call goes on, and the next call gets its data.
            if self._reading is None:
                self._call = _in_thread(lambda: source.read(source.fd, RECEIVE_SIZE))
                self._reading = asyncio.wrap_future(self._call)
            data = await asyncio.shield(self._reading)
            self._reading = None
            return data
        if not self._is_watched and self._arrived is None:
            self._is_watched = True
            self._loop.add_reader(source.fd, self._on_readable)
        while self._arrived is None:
            self._waiting = self._loop.create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        arrived, self._arrived = self._arrived, None
        if isinstance(arrived, OSError):
            raise arrived
        return arrived

    def close(self) -> None:
        """Close the descriptor, as soon as no call in a thread uses it."""
        self._is_closed = True
        self._stop_watching()
        if self._reading is not None:
            self._reading.cancel()
        _close_after(self._call, self._source)

    def _on_readable(self) -> None:
        """Read. The descriptor stays watched until input exceeds what a task takes, which saves two calls a message."""
        if self._arrived is not None:
            self._stop_watching()
            return
        try:
            self._arrived = self._source.read(self._source.fd, RECEIVE_SIZE)
        except BlockingIOError:
            return
        except OSError as error:
            self._arrived = error
        if not isinstance(self._arrived, bytes) or not self._arrived:
            self._stop_watching()
        if self._waiting is not None:
            _wake(self._waiting)

    def _stop_watching(self) -> None:
        if self._is_watched:
            self._is_watched = False
            self._loop.remove_reader(self._source.fd)


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _close_after(call: Future[Any] | None, file: InputFile | OutputFile) -> None:
    """Close a descriptor when a call in a thread has ended: its number may belong to another file after that."""
    if call is None:
        file.close(file.fd)
    else:
        call.add_done_callback(lambda _: file.close(file.fd))  # at once if it has ended


def _in_thread(call: Callable[[], T]) -> Future[T]:
    """Make a blocking call in a separate daemon thread, which does not delay the exit of the process."""
    result: Future[T] = Future()

    def run() -> None:
        if not result.set_running_or_notify_cancel():
            return
        try:
            result.set_result(call())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name="mcpio stdio", daemon=True).start()
    return result


def _write_all(sink: OutputFile, data: bytes | memoryview) -> None:
    while data:
        data = data[sink.write(sink.fd, data) :]


# -------------------------------------------------------------------------------------------------------------- process
# Child processes: start, streams, and shutdown (STDIO-01, -07, -08, -11, -13).

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
    directory = None if cwd is None else os.fspath(cwd)
    loop = asyncio.get_running_loop()
    platform_options: dict[str, Any] = {}
    if sys.platform != "win32":
        platform_options["start_new_session"] = True
    if die_with_parent and sys.platform != "linux":
        raise ValueError("die_with_parent needs Linux")
    if die_with_parent and sys.platform == "linux":
        from mcpio._drivers.posix import tie_to

        platform_options["preexec_fn"] = tie_to(os.getpid())
    with starting(argv, directory):
        transport, protocol = await _started(
            loop.subprocess_exec(
                lambda: _Protocol(loop),
                *argv,
                stdin=PIPE,
                stdout=PIPE,
                stderr={Stderr.INHERIT: None, Stderr.DISCARD: DEVNULL, Stderr.PIPE: PIPE}[mode],
                env=environment(env, inherit_env),
                cwd=directory,
                **platform_options,
            )
        )
    return ChildProcess(tuple(argv), transport, protocol, machine, stderr if callable(stderr) else None)


async def _started(starting: Coroutine[Any, Any, tuple[Any, Any]]) -> tuple[Any, Any]:
    """Wait for a child to start. If cancelled, let it start, and kill it.

    asyncio cannot be cancelled meanwhile: where the pipes are not connected yet, it waits for ever that they close.
    """
    task = asyncio.ensure_future(starting)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await settled(task)
        if task.exception() is None:
            transport, protocol = task.result()
            with suppress(ProcessLookupError):
                transport.kill()
            transport.close()
            await settled(asyncio.ensure_future(protocol.exited.wait()))
        raise


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
            try:
                with CancelScope(None if deadline is None else max(0.0, deadline - self._loop.time())) as scope:
                    await self._wake.wait()
                    self._wake.clear()
            except asyncio.CancelledError:
                # When a callback raises SystemExit, asyncio.run cancels all tasks, and waits until they end.
                self.close()
                if self.returncode is None:
                    exited.cancel()
                    exited = self._loop.create_task(self._await_exit())
                continue
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
        from mcpio._drivers.posix import group_lives

        return group_lives(self.pid)

    def _signal(self, number: signal.Signals) -> None:
        if sys.platform == "win32":
            # There, to terminate is to kill.
            with suppress(ProcessLookupError):
                self._transport.kill()
        else:
            from mcpio._drivers.posix import signal_group

            signal_group(self.pid, number)


async def _drop(source: asyncio.StreamReader) -> None:
    """Read to the end, and drop the data."""
    with suppress(OSError, RuntimeError):  # RuntimeError: another task reads it.
        while await source.read(65536):
            pass


# ---------------------------------------------------------------------------------------------------------------- stdio
# ``open_stdio``, ``connect_stdio`` and ``serve_stdio``: a child process on one side, this process on the other.


def open_stdio(argv: Sequence[str], **options: Unpack[StdioOptions]) -> AsyncioClientContext[StdioClient]:
    """Async context manager that starts a server as a child process: ``async with open_stdio(["server"]) as client``.

    ``argv`` is the program and its arguments; there is no shell. See ``mcpio.trio.start_process`` for the options of
    the process (``env``, ``cwd``, ``stderr``, graces) and ``ClientOptions`` for those of the client. The end of the
    block ends the child: its input is closed, then it is terminated, then killed.

    With ``restart`` the client outlives the child: one that dies is started again.

    Raises ConnectFailed if the program does not start, or the handshake fails. The message tells how the child ended,
    and the end of its standard error if that is captured.
    """
    return AsyncioClientContext(lambda: _start(argv, None, options))


async def connect_stdio(
    argv: Sequence[str], *, group: asyncio.TaskGroup | None = None, **options: Unpack[StdioOptions]
) -> StdioClient:
    """Start a server as a child process and return a client of it, tied to no block. See ``open_stdio``.

    It ends when any task closes it, or with ``group``; without a group it ends with the event loop.
    """
    client, _ = await _start(argv, group, options)
    return client


async def serve_stdio(
    server: Server, *, principal: Any = None, end_with_parent: bool = False, **beginning: Unpack[ServerSetupOptions]
) -> None:
    """Serve the client that started this process, until it closes our standard input.

    During that, ``print`` and all other output to standard output goes to standard error. One SIGINT or SIGTERM ends
    the process within 100 ms, with exit status 130 or 143; a child process, such as the server behind a proxy, is ended
    first, which takes longer if it hangs. Use it as ``asyncio.run(serve_stdio(server))``. See ``ServerSetupOptions``
    for resumed sessions and taps. ``principal`` is who the client acts for: a server with scopes needs a
    ``mcpio.auth.Grant`` that has them. ``end_with_parent`` ends the process when its parent ends: see
    ``terminate_on_signals``.

    Requests that run when the input ends have ``end_timeout`` seconds, 10 by default; then their handlers are
    cancelled. The client may wait for the answers, or have been killed, which looks the same.
    """
    beginning.setdefault("alone", True)
    beginning.setdefault("end_timeout", END_TIMEOUT)
    with terminate_on_signals(end_with_parent=end_with_parent), claim_stdio() as claimed:
        stream = FdStream(
            inherited_input(claimed.input_fd), inherited_output(claimed.output_fd), on_eof=claimed.release_output
        )
        loop = AsyncioEventLoop()
        await serve_adapter(loop, server, StreamAdapter(stream, loop), principal, beginning)


async def _start(
    argv: Sequence[str], group: asyncio.TaskGroup | None, options: Mapping[str, Any]
) -> Started[StdioClient]:
    check_options(options, StdioOptions.__annotations__)
    return await open_in_either_era(lambda client_options: _connect(argv, group, client_options), options)


async def _connect(
    argv: Sequence[str], group: asyncio.TaskGroup | None, client_options: dict[str, Any]
) -> Started[StdioClient]:
    of_process = {name: client_options.pop(name) for name in ProcessOptions.__annotations__ if name in client_options}
    children = Children(partial(start_process, argv, **of_process), _adapter, AsyncioEventLoop())
    try:
        adapter, make = await children.client(client_options)
        return await start_client(adapter, group, client_options, make, StdioClient.end_process, abort=children.close)
    except BaseException:
        children.close()
        raise


def _adapter(child: ChildProcess, *, end_is_loss: bool) -> StreamAdapter:
    return StreamAdapter(ReaderWriterStream(child.reader, child.writer), AsyncioEventLoop(), end_is_loss=end_is_loss)
