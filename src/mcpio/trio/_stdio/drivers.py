"""``open_stdio``, ``connect_stdio`` and ``serve_stdio``: a child process on one side, this process on the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Unpack

import trio

from mcpio._checks import check_options
from mcpio._drivers.setup import ServerSetupOptions
from mcpio._printable import printable
from mcpio.app.client import Client, ClientOptions
from mcpio.app.runtime import Driver
from mcpio.app.session import Session
from mcpio.engine.client import ClientConnection
from mcpio.engine.table import Phase
from mcpio.errors import ConnectFailed, ConnectionLost
from mcpio.events import CloseReason, ConnectionClosed, Event, NoiseReceived
from mcpio.trio._drivers import ConnectOptions, TrioClientContext, serve, start_client
from mcpio.trio._nurseries import ungrouped
from mcpio.trio._runtime import check_in_trio
from mcpio.trio._signals import terminate_on_signals
from mcpio.trio._stdio.process import EXIT_TIMEOUT, ChildProcess, ProcessOptions, start_process
from mcpio.trio._stdio.stdio_stream import stdio_stream
from mcpio.trio._transport import StreamAdapter, TransportAdapter, adapter_for, close_forcefully

if TYPE_CHECKING:
    from mcpio.app.server import Server
    from mcpio.backoff import Backoff
    from mcpio.restarts import RestartPolicy

__all__ = ["StdioClient", "StdioOptions", "connect_stdio", "open_stdio", "serve_stdio"]


END_TIMEOUT: Final = 10.0
"""The default of ``end_timeout`` for a server, in seconds."""


class StdioOptions(ProcessOptions, ConnectOptions, total=False):
    """The keyword arguments of ``open_stdio`` and ``connect_stdio``: of the process, and of all clients."""

    restart: Backoff | RestartPolicy | None
    """The policy for starting the program again after it died; ``None`` does not. See the guide."""
    on_session_lost: Callable[[], None] | None
    """With ``restart``, a plain function that is called for each lost child, after its end and before the start of the
    next one. Without it, lost children are logged."""


class StdioClient(Client):
    """A client of a server that is a child process. If the child dies, errors tell how."""

    def __init__(
        self, connection: ClientConnection, driver: Driver, *, children: _Children, **options: Unpack[ClientOptions]
    ) -> None:
        """For ``open_stdio`` and ``connect_stdio``."""
        super().__init__(connection, driver, **options)
        self._children = children
        self.driving.explain_failures_by(self._explained)
        self._noise: tuple[ChildProcess | None, str] = (None, "")
        self._end_known = trio.Event()

    @property
    def child(self) -> ChildProcess:
        """The child: its ``pid``, ``returncode`` and ``stderr_tail``. With ``restart``, the newest."""
        return self._children.child

    async def _explained(self, error: Exception) -> Exception:
        """Return an error with what is known of the child: how it ended, and what it last wrote to standard error.

        Standard error is known where it is captured.
        """
        child = self.child
        if isinstance(error, ConnectFailed):
            found: Exception = ConnectFailed(f"{error}{await self._words_on_failure(error, child)}")
        elif isinstance(error, ConnectionLost):
            if self.connection.phase in (Phase.CLOSING, Phase.CLOSED):
                # The end of the connection is its last event, after the failures of the requests that it ended.
                with trio.move_on_after(EXIT_TIMEOUT):
                    await self._end_known.wait()
                if not self._left_by_server:
                    return error
            found = ConnectionLost(f"{error.reason}: {await child.last_words()}")
        else:
            return error
        found.__cause__ = error.__cause__
        return found

    def _handle(self, event: Event) -> None:
        if event.__class__ is NoiseReceived and self._noise[0] is not self.child:
            self._noise = (self.child, event.text)
        super()._handle(event)
        if event.__class__ is ConnectionClosed:
            self._end_known.set()

    async def end_process(self) -> None:
        """End the child, after the connection was closed."""
        if self._left_by_server:
            self.driving.explain_end(await self.child.last_words())
        await self.child.aclose()

    @property
    def _left_by_server(self) -> bool:
        return self.ended is not None and self.ended.reason in (CloseReason.END_OF_FILE, CloseReason.LOST)

    async def _words_on_failure(self, error: ConnectFailed, child: ChildProcess) -> str:
        said = f"; its output is no message, and begins with {self._noise[1]!r}" if self._noise[0] is child else ""
        if isinstance(error.__cause__, ConnectionLost):
            return f"{said}: {await child.last_words()}"
        # The child is alive, or was ended by us: its exit status tells nothing, but its output may.
        tail = printable(child.stderr_tail.strip())
        return f"{said}; the end of the server's standard error:\n{tail}" if tail else said


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
    given: dict[str, Any] = dict(options)
    of_process = {name: given.pop(name) for name in ProcessOptions.__annotations__ if name in given}
    policy = given.pop("restart", None)
    children = _Children(argv, of_process, nursery)
    make = partial(StdioClient, children=children)
    try:
        if policy is not None:
            from mcpio.trio._reconnecting import start_lasting_client

            return await start_lasting_client(children, policy, nursery, given, make, StdioClient.end_process)
        given.pop("on_session_lost", None)
        child = await children.start()
        return await start_client(adapter_for(child.stream), nursery, given, make, StdioClient.end_process)
    except BaseException:
        children.close()
        raise


async def serve_stdio(
    server: Server,
    *,
    task_status: trio.TaskStatus[Session] = trio.TASK_STATUS_IGNORED,
    **beginning: Unpack[ServerSetupOptions],
) -> None:
    """Serve the client that started this process, until it closes our standard input.

    During that, ``print`` and all other output to standard output goes to standard error. One SIGINT or SIGTERM ends
    the process within 100 ms, with exit status 130 or 143. Use it as ``trio.run(serve_stdio, server)``, or with
    ``nursery.start``, which returns the session. See ``ServerSetupOptions`` for resumed sessions and taps.

    Requests that run when the input ends have ``end_timeout`` seconds, 10 by default; then their handlers are
    cancelled. The client may wait for the answers, or have been killed, which looks the same.
    """
    check_in_trio("servers")
    with terminate_on_signals():
        async with stdio_stream() as stream:
            beginning.setdefault("alone", True)
            beginning.setdefault("end_timeout", END_TIMEOUT)
            await serve(server, stream, task_status=task_status, **beginning)


class _Children:
    """Starts the child processes of one client, one after another."""

    child: ChildProcess
    """The newest child, once there was one."""

    def __init__(self, argv: Sequence[str], options: Mapping[str, Any], nursery: trio.Nursery) -> None:
        self._argv = argv
        self._options = options
        self._nursery = nursery
        self._has_child = False

    async def start(self) -> ChildProcess:
        """Start another child. Raises ConnectFailed."""
        hosted = await self._nursery.start(_host, self._argv, self._options)
        if isinstance(hosted, ConnectFailed):
            raise hosted
        self.child, tasks = hosted
        self._has_child = True
        # From here on the session ends the child, also when the nursery is cancelled, so that its last output goes out
        # first.
        tasks.shield = True
        return self.child

    async def connect(self) -> StreamAdapter:
        """Start another child, and return the adapter to it. Raises ConnectFailed."""
        return StreamAdapter((await self.start()).stream, end_is_loss=True)

    async def disconnect(self, adapter: TransportAdapter) -> str:
        """End the child, and return how it ended. If cancelled, the child still ends, but is not waited for."""
        await close_forcefully(adapter)
        words = await self.child.last_words()
        await self.child.aclose()
        return words

    def close(self) -> None:
        """Start ending the child, if there is one."""
        if self._has_child:
            self.child.close()


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
