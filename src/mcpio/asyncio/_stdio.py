"""``open_stdio``, ``connect_stdio`` and ``serve_stdio``: a child process on one side, this process on the other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from mcpio._checks import check_options
from mcpio._drivers.setup import ServerSetupOptions, open_in_either_era
from mcpio._drivers.signals import DEFAULT_TIMEOUT, ended_by_signals
from mcpio._drivers.stdio.claim import claim_stdio
from mcpio._drivers.stdio.client import END_TIMEOUT, Children, StdioClient, StdioOptions
from mcpio._drivers.stdio.files import inherited_input, inherited_output
from mcpio._drivers.stdio.process import ProcessOptions
from mcpio.asyncio._drivers import AsyncioClientContext, Started, check_serving, serve_adapter, start_client
from mcpio.asyncio._event_loop import AsyncioEventLoop, CancelScope
from mcpio.asyncio._fd_adapter import FdAdapter
from mcpio.asyncio._process import ChildProcess, start_process
from mcpio.asyncio._transport import ReaderWriterAdapter

if TYPE_CHECKING:
    from mcpio.app.server import Server

__all__ = ["StdioClient", "connect_stdio", "open_stdio", "serve_stdio", "terminate_on_signals"]


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
    check_serving(server, principal, beginning)
    beginning.setdefault("alone", True)
    beginning.setdefault("end_timeout", END_TIMEOUT)
    with terminate_on_signals(end_with_parent=end_with_parent), claim_stdio() as claimed:
        adapter = FdAdapter(
            inherited_input(claimed.input_fd), inherited_output(claimed.output_fd), on_eof=claimed.release_output
        )
        await serve_adapter(server, adapter, principal, beginning, abort=adapter.abort)


def terminate_on_signals(
    *, timeout: float | None = DEFAULT_TIMEOUT, end_with_parent: bool = False
) -> AbstractContextManager[None]:
    """Context manager that ends its block, and then the process, at the first SIGINT or SIGTERM.

    The signal cancels the block. When that is unwound, ``Terminated`` is raised, a SystemExit with the status 130 or
    143. ``timeout`` is how many seconds the process may live after the signal; then it is ended on the spot, whatever
    still runs. ``None`` sets no limit. A second signal ends the process immediately. Signal handlers belong to the main
    thread; in another thread the block has no effect. See ``mcpio.trio.terminate_on_signals`` for child processes and
    for ``end_with_parent``.
    """
    call_soon = asyncio.get_running_loop().call_soon_threadsafe
    return ended_by_signals(CancelScope(), call_soon, timeout, end_with_parent=end_with_parent)


async def _start(
    argv: Sequence[str], group: asyncio.TaskGroup | None, options: Mapping[str, Any]
) -> Started[StdioClient]:
    check_options(options, StdioOptions.__annotations__)
    return await open_in_either_era(lambda given: _connect(argv, group, given), options)


async def _connect(argv: Sequence[str], group: asyncio.TaskGroup | None, given: dict[str, Any]) -> Started[StdioClient]:
    of_process = {name: given.pop(name) for name in ProcessOptions.__annotations__ if name in given}
    children = Children(partial(start_process, argv, **of_process), _adapter, AsyncioEventLoop())
    try:
        adapter, make = await children.client(given)
        return await start_client(adapter, group, given, make, StdioClient.end_process, abort=children.close)
    except BaseException:
        children.close()
        raise


def _adapter(child: ChildProcess, *, end_is_loss: bool) -> ReaderWriterAdapter:
    return ReaderWriterAdapter(child.reader, child.writer, end_is_loss=end_is_loss)
