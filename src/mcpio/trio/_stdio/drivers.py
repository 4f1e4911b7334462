"""``open_stdio``, ``connect_stdio`` and ``serve_stdio``: a child process on one side, this process on the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import trio

from mcpio._checks import check_options
from mcpio._drivers.setup import ServerSetupOptions, open_in_either_era
from mcpio._drivers.stdio.client import END_TIMEOUT, Children, StdioClient, StdioOptions
from mcpio._drivers.stdio.process import ProcessOptions
from mcpio.app.session import Session
from mcpio.errors import ConnectFailed
from mcpio.trio._drivers import TrioClientContext, serve, start_client
from mcpio.trio._event_loop import TrioEventLoop
from mcpio.trio._nurseries import ungrouped
from mcpio.trio._runtime import check_in_trio
from mcpio.trio._signals import terminate_on_signals
from mcpio.trio._stdio.process import ChildProcess, start_process
from mcpio.trio._stdio.stdio_stream import stdio_stream
from mcpio.trio._transport import TransportAdapter, stream_adapter

if TYPE_CHECKING:
    from mcpio.app.server import Server

__all__ = ["StdioClient", "StdioOptions", "connect_stdio", "open_stdio", "serve_stdio"]


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
    return await open_in_either_era(lambda given: _connect(argv, nursery, given), options)


async def _connect(argv: Sequence[str], nursery: trio.Nursery, given: dict[str, Any]) -> StdioClient:
    of_process = {name: given.pop(name) for name in ProcessOptions.__annotations__ if name in given}
    children = Children(partial(_start, argv, of_process, nursery), _adapter, TrioEventLoop())
    try:
        adapter, make = await children.client(given)
        return await start_client(adapter, nursery, given, make, StdioClient.end_process)
    except BaseException:
        children.close()
        raise


async def _start(argv: Sequence[str], options: Mapping[str, Any], nursery: trio.Nursery) -> ChildProcess:
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
    return stream_adapter(child.stream, end_is_loss=end_is_loss)


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
