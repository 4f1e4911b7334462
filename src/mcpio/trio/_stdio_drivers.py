"""Clients and servers over standard input and output: a child process on one side, this process on the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import trio

from mcpio.app.client import Client, ClientOptions
from mcpio.app.server import Server
from mcpio.app.session import Session
from mcpio.errors import ConnectFailed
from mcpio.trio._drivers import Opened, connect, serve
from mcpio.trio._process import ProcessOptions, start_process
from mcpio.trio._signals import terminate_on_signals
from mcpio.trio._stdio import stdio_stream

__all__ = ["StdioOptions", "connect_stdio", "open_stdio", "serve_stdio"]


class StdioOptions(ProcessOptions, ClientOptions, total=False):
    """The keyword arguments of ``open_stdio`` and ``connect_stdio``: those of the process, and those of the client."""


def open_stdio(argv: Sequence[str], **options: Unpack[StdioOptions]) -> Opened:
    """Start a server as a child process, for the length of a block: ``async with open_stdio(["server"]) as client``.

    ``argv`` is the program and its arguments; there is no shell. See ``start_process`` for the options of the process
    (``env``, ``cwd``, ``stderr``, graces) and ``ClientOptions`` for those of the client. When the block ends, the
    child is brought to its end: its input is closed, then it is terminated, then killed.

    Raises ``ConnectFailed`` when the program does not start, or the handshake fails; what the child last wrote to
    standard error is in the message, where it was captured.
    """
    return Opened(lambda nursery: connect_stdio(argv, nursery=nursery, **options))


async def connect_stdio(argv: Sequence[str], *, nursery: trio.Nursery, **options: Unpack[StdioOptions]) -> Client:
    """Start a server as a child process and return a client of it, tied to no block. See ``open_stdio``."""
    given: dict[str, Any] = dict(options)
    of_process = {name: given.pop(name) for name in ProcessOptions.__annotations__ if name in given}
    process = await start_process(argv, nursery=nursery, **of_process)
    try:
        return await connect(process.stream, nursery=nursery, after_close=process.aclose, **given)
    except ConnectFailed as error:
        raise ConnectFailed(f"{error} ({await process.last_words()})") from error.__cause__


async def serve_stdio(server: Server, *, task_status: trio.TaskStatus[Session] = trio.TASK_STATUS_IGNORED) -> None:
    """Serve the client that started this process, until it closes our standard input.

    Meanwhile ``print`` and everything else written to standard output goes to standard error. One SIGINT or SIGTERM
    ends the process within 100 ms, with exit status 130 or 143. Usable as ``trio.run(serve_stdio, server)`` or with
    ``nursery.start``, which returns the session.
    """
    with terminate_on_signals():
        async with stdio_stream() as stream:
            await serve(server, stream, task_status=task_status)
