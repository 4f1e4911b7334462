"""``serve_tcp`` and ``serve_unix``: any number of clients, each with a connection and a session of its own."""

from __future__ import annotations

import os
import ssl
from collections.abc import Awaitable, Callable, Hashable, Sequence
from inspect import isawaitable
from typing import Any, Final, TypeAlias, TypedDict, Unpack

import attrs
import trio

from mcpio._checks import check_options
from mcpio._drivers import TapSource, report
from mcpio._drivers.connection_limit import MAX_CONNECTIONS
from mcpio.app.server import Server
from mcpio.engine.limits import seconds
from mcpio.trio._net.listening import (
    TCP_KEEP_ALIVE,
    Acceptor,
    SocketPeer,
    address_of,
    keep_tcp_alive,
    listen_tcp,
    listen_unix,
)
from mcpio.trio._net.serving import ServingContext, serve_listeners, until_signalled
from mcpio.trio._net.session_handler import SessionHandler
from mcpio.trio._transport import StreamAdapter

__all__ = ["FindSocketPrincipal", "ServeSocketOptions", "SocketListening", "serve_tcp", "serve_unix"]

END_TIMEOUT: Final = 60.0
"""Seconds that requests which run have when a client has ended its side of the connection, by default."""

FIRST_MESSAGE_TIMEOUT: Final = 10.0
"""Seconds that a client has to send its first message, by default."""

FindSocketPrincipal: TypeAlias = "Callable[[SocketPeer], Hashable | Awaitable[Hashable]]"
"""Returns whose a connection is. ``PermissionError`` turns the client away."""


class ServeSocketOptions(TypedDict, total=False):
    """The keyword arguments of ``serve_tcp`` and ``serve_unix``."""

    principal: FindSocketPrincipal | None
    """Says whose a connection is, a function or coroutine function of its ``SocketPeer``, which handlers then see;
    ``PermissionError`` turns it away. Without one it is ``SocketPeer.identity``, where ``ssl_context`` asks for
    a certificate and the client showed one, and otherwise ``None``."""
    max_connections: int
    """How many connections there may be at once, 768 by default, and at most three quarters of the files that the
    process may open. Beyond, clients wait to be let in."""
    first_message_timeout: float | None
    """Seconds that a client has to send its first message; 10 by default, ``None`` for ever."""
    idle_timeout: float | None
    """After how many seconds a connection is closed by which nothing comes and for which nothing runs; ``None``, the
    default, keeps it. A client that pings is not idle."""
    end_timeout: float | None
    """Seconds that what runs has when a client ends its side of the connection: it may wait for the answers, or be
    gone, which looks the same. 60 by default; ``None`` for ever."""
    handshake_timeout: float | None
    """Seconds that a client has for the handshake of TLS; 10 by default."""
    tcp_keep_alive: float | None
    """Seconds of silence after which the system asks whether a client on TCP is there; 60 by default, or ``None``."""
    tap: TapSource | None
    """Hears of each session. See ``mcpio.observe.Tap``."""
    grace: float
    """Seconds that requests which run in the end have to be answered, 0.5 by default."""
    handle_signals: bool
    """Whether SIGINT and SIGTERM begin the end, and then end the process: see ``terminate_on_signals``."""


@attrs.frozen
class SocketListening:
    """A server that listens."""

    host: str | None
    """The address that it is bound to; ``None`` for what is no TCP socket."""
    port: int | None
    """The port, also where port 0 was asked for."""


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
    """Serve any number of clients over TCP until cancelled. Then it ends in order: see ``ServeSocketOptions.grace``.

    In order means: nobody new is let in, requests that run are answered, and then the connections are closed. With
    ``nursery.start`` it returns what listens; with port 0 the system finds a port. ``host=None`` listens on every
    address of the machine: then have ``ssl_context`` ask for certificates, for there is no other authentication.
    ``listeners`` are used in place of ``host`` and ``port``, and closed in the end; when all of them are closed before,
    that is the end.

    A session that fails costs itself only. The server's lifespan is entered once, for all. Tasks of tools outlive the
    sessions that began them, and end with this. Raises ``OSError`` when the address cannot be had. What the server's
    lifespan raises leaves as it is.
    """
    check_options(options, ServeSocketOptions.__annotations__)
    door, grace = _door(ssl_context, options), options.get("grace", 0.5)
    with until_signalled(options.get("handle_signals", False), grace):
        bound = await listen_tcp(host, port) if listeners is None else listeners
        await _run(server, bound, door, grace, options, task_status)


async def serve_unix(
    server: Server,
    path: str | os.PathLike[str],
    *,
    mode: int = 0o600,
    task_status: trio.TaskStatus[SocketListening] = trio.TASK_STATUS_IGNORED,
    **options: Unpack[ServeSocketOptions],
) -> None:
    """Serve any number of clients on a Unix socket until cancelled, as ``serve_tcp`` does.

    ``mode`` says who may connect: by default the user that this process runs as. The socket's file is removed in the
    end; one that a server left behind which is gone is replaced. ``SocketPeer.user_id`` tells ``principal`` who a
    client is, on Linux.

    Raises ``OSError`` when the path cannot be had: another server listens there, or there is a file that is no socket.
    """
    check_options(options, ServeSocketOptions.__annotations__)
    door, grace = _door(None, options), options.get("grace", 0.5)
    with until_signalled(options.get("handle_signals", False), grace):
        async with listen_unix(path, mode) as listener:
            await _run(server, [listener], door, grace, options, task_status)


def _door(ssl_context: ssl.SSLContext | None, options: ServeSocketOptions) -> Acceptor:
    return Acceptor(
        max_connections=options.get("max_connections", MAX_CONNECTIONS),
        ssl_context=ssl_context,
        handshake_timeout=seconds(options.get("handshake_timeout", 10.0)),
    )


async def _run(
    server: Server,
    listeners: Sequence[trio.abc.Listener[Any]],
    door: Acceptor,
    grace: float,
    options: ServeSocketOptions,
    task_status: trio.TaskStatus[SocketListening],
) -> None:
    place = address_of(listeners[0]) or (None, None)
    await serve_listeners(
        server,
        lambda ground: _StreamHandler(ground, options),
        door,
        listeners,
        grace=grace,
        started=lambda _: task_status.started(SocketListening(*place)),
    )


class _StreamHandler:
    """Connections that are streams, one message a line; each is a session."""

    def __init__(self, ground: ServingContext, options: ServeSocketOptions) -> None:
        self._sessions = SessionHandler(
            ground,
            tap=options.get("tap"),
            first_message_timeout=seconds(options.get("first_message_timeout", FIRST_MESSAGE_TIMEOUT)),
            idle_timeout=seconds(options.get("idle_timeout")),
            end_timeout=seconds(options.get("end_timeout", END_TIMEOUT)),
        )
        self._find_principal = options.get("principal")
        self._tcp_keep_alive = seconds(options.get("tcp_keep_alive", TCP_KEEP_ALIVE))

    async def receive(self, stream: trio.abc.Stream, peer: SocketPeer) -> None:
        """Carry a connection until it is over, and close its stream."""
        keep_tcp_alive(stream, self._tcp_keep_alive)
        try:
            principal = await self._principal(peer)
        except Exception as error:
            if not isinstance(error, PermissionError):
                report("the principal of a connection could not be found", error)
            await trio.aclose_forcefully(stream)
            return
        await self._sessions.serve_session(StreamAdapter(stream), principal)

    def make_room(self) -> None:
        """Nothing: whether a session is needed any more, only its client knows."""

    def close(self, grace: float) -> None:
        """Begin the end of all sessions."""
        self._sessions.close(grace)

    async def wait_empty(self) -> None:
        """Wait until no session is left."""
        await self._sessions.wait_empty()

    async def _principal(self, peer: SocketPeer) -> Hashable:
        if self._find_principal is None:
            return peer.identity
        found = self._find_principal(peer)
        return (await found) if isawaitable(found) else found
