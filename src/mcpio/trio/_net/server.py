"""``serve_tcp`` and ``serve_unix``: servers with one session per connection."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from typing import Any, Unpack

import trio

from mcpio._drivers.sockets.accepting import Acceptor, checked_acceptor
from mcpio._drivers.sockets.peer import ServeSocketOptions, SocketListening
from mcpio._drivers.sockets.sessions import StreamHandler
from mcpio.app.server import Server
from mcpio.trio._net.listening import address_of, given_listeners, listen_tcp, listen_unix, new_acceptor
from mcpio.trio._net.serving import serve_listeners, until_signalled
from mcpio.trio._transport import stream_adapter

__all__ = ["ServeSocketOptions", "SocketListening", "serve_tcp", "serve_unix"]


async def serve_tcp(
    server: Server,
    port: int = 0,
    *,
    host: str | None = "127.0.0.1",
    ssl_context: ssl.SSLContext | None = None,
    listeners: Sequence[trio.abc.Listener[Any]] | None = None,
    task_status: trio.TaskStatus[SocketListening] = trio.TASK_STATUS_IGNORED,
    **options: Unpack[ServeSocketOptions],
) -> None:
    """Serve any number of clients over TCP until cancelled; then end gracefully.

    Gracefully means: no connection is accepted any more, running requests are answered within
    ``ServeSocketOptions.grace``, and then the connections are closed. ``nursery.start`` returns a ``SocketListening``;
    with port 0 the system chooses a port. ``host=None`` listens on every address of the machine: let ``ssl_context``
    ask for certificates then, since there is no other authentication. ``listeners`` replace ``host`` and ``port``, and
    are closed at the end; it also ends when all of them were closed.

    A session that fails costs only itself. The server's lifespan is entered once, for all sessions. Tasks of tools
    outlive the sessions that started them, and end with the server. Raises OSError if the address is not available;
    what the server's lifespan raises propagates unwrapped.
    """
    acceptor = checked_acceptor(server, options, new_acceptor, ssl_context)
    grace = options.get("grace", 0.5)
    with until_signalled(options.get("handle_signals", False), grace):
        bound = await listen_tcp(host, port) if listeners is None else given_listeners(listeners)
        await _run(server, bound, acceptor, grace, options, task_status)


async def serve_unix(
    server: Server,
    path: str | os.PathLike[str],
    *,
    mode: int = 0o600,
    task_status: trio.TaskStatus[SocketListening] = trio.TASK_STATUS_IGNORED,
    **options: Unpack[ServeSocketOptions],
) -> None:
    """Serve any number of clients on a Unix socket until cancelled, as ``serve_tcp`` does.

    ``mode`` are the permissions of the socket's file, by default for the user of this process only. The file is removed
    at the end; one that an earlier server left behind is replaced. On Linux, ``SocketPeer.user_id`` tells ``principal``
    which user a client runs as.

    Raises OSError if another server listens on the path, or a file there is not a socket.
    """
    acceptor = checked_acceptor(server, options, new_acceptor)
    grace = options.get("grace", 0.5)
    with until_signalled(options.get("handle_signals", False), grace):
        async with listen_unix(path, mode) as listener:
            await _run(server, [listener], acceptor, grace, options, task_status)


async def _run(
    server: Server,
    listeners: Sequence[trio.abc.Listener[Any]],
    acceptor: Acceptor,
    grace: float,
    options: ServeSocketOptions,
    task_status: trio.TaskStatus[SocketListening],
) -> None:
    place = address_of(listeners[0]) or (None, None)
    await serve_listeners(
        server,
        lambda context: StreamHandler(context, options, stream_adapter),
        acceptor,
        listeners,
        grace=grace,
        started=lambda _: task_status.started(SocketListening(*place)),
    )
