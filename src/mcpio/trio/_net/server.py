"""``serve_tcp`` and ``serve_unix``: servers with one session per connection."""

from __future__ import annotations

import os
import ssl
from collections.abc import Awaitable, Callable, Hashable, Sequence
from inspect import isawaitable
from typing import Any, Final, TypeAlias, TypedDict, Unpack

import attrs
import trio

from mcpio._checks import check_options
from mcpio._drivers import TapSource, check_authorization, report
from mcpio._drivers.connection_limit import MAX_CONNECTIONS
from mcpio._drivers.tcp_keep_alive import TCP_KEEP_ALIVE
from mcpio.app.server import Server
from mcpio.engine.limits import seconds
from mcpio.trio._event_loop import keep_tcp_alive
from mcpio.trio._net.listening import (
    Acceptor,
    SocketPeer,
    address_of,
    listen_tcp,
    listen_unix,
)
from mcpio.trio._net.serving import ServingContext, serve_listeners, until_signalled
from mcpio.trio._net.session_handler import SessionHandler
from mcpio.trio._transport import stream_adapter

__all__ = ["FindSocketPrincipal", "ServeSocketOptions", "SocketListening", "serve_tcp", "serve_unix"]

END_TIMEOUT: Final = 60.0
"""The default of ``ServeSocketOptions.end_timeout``, in seconds."""

FIRST_MESSAGE_TIMEOUT: Final = 10.0
"""The default of ``ServeSocketOptions.first_message_timeout``, in seconds."""

FindSocketPrincipal: TypeAlias = "Callable[[SocketPeer], Hashable | Awaitable[Hashable]]"
"""Returns the principal of a connection. PermissionError rejects the client."""


class ServeSocketOptions(TypedDict, total=False):
    """The keyword arguments of ``serve_tcp`` and ``serve_unix``."""

    principal: FindSocketPrincipal | None
    """Returns the principal of a connection, which handlers see: a function or coroutine function of its
    ``SocketPeer``; PermissionError rejects the client. The default is ``SocketPeer.identity`` where ``ssl_context``
    asks for a certificate and the client has shown one, and otherwise ``None``."""
    max_connections: int
    """How many connections there may be at once: 768 by default, and at most three quarters of the files that the
    process may open. Further clients wait to be accepted."""
    first_message_timeout: float | None
    """Seconds for a client to send its first message; 10 by default, ``None`` for no limit."""
    idle_timeout: float | None
    """Seconds after which a connection is closed that receives nothing and has no running request; ``None``, the
    default, keeps it open. A client that pings is not idle."""
    end_timeout: float | None
    """Seconds that running requests have after a client ended its side of the connection. It may wait for the
    answers, or be gone, which looks the same. 60 by default; ``None`` for no limit."""
    handshake_timeout: float | None
    """Seconds for the TLS handshake; 10 by default."""
    tcp_keep_alive: float | None
    """Seconds of silence before the first TCP keep-alive probe; 60 by default, ``None`` sends none."""
    tap: TapSource | None
    """Hears of each session. See ``mcpio.observe.Tap``."""
    grace: float
    """Seconds that running requests have at the end to be answered, 0.5 by default."""
    handle_signals: bool
    """Whether SIGINT and SIGTERM start the end, and then end the process: see ``terminate_on_signals``."""


@attrs.frozen
class SocketListening:
    """A server that listens."""

    host: str | None
    """The address it is bound to; ``None`` if it is not a TCP socket."""
    port: int | None
    """The port, also if port 0 was requested; ``None`` if it is not a TCP socket."""


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
    check_options(options, ServeSocketOptions.__annotations__)
    check_authorization(server, is_authorized=options.get("principal") is not None)
    acceptor, grace = _acceptor(ssl_context, options), options.get("grace", 0.5)
    with until_signalled(options.get("handle_signals", False), grace):
        bound = await listen_tcp(host, port) if listeners is None else listeners
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
    check_options(options, ServeSocketOptions.__annotations__)
    check_authorization(server, is_authorized=options.get("principal") is not None)
    acceptor, grace = _acceptor(None, options), options.get("grace", 0.5)
    with until_signalled(options.get("handle_signals", False), grace):
        async with listen_unix(path, mode) as listener:
            await _run(server, [listener], acceptor, grace, options, task_status)


def _acceptor(ssl_context: ssl.SSLContext | None, options: ServeSocketOptions) -> Acceptor:
    return Acceptor(
        max_connections=options.get("max_connections", MAX_CONNECTIONS),
        ssl_context=ssl_context,
        handshake_timeout=seconds(options.get("handshake_timeout", 10.0)),
    )


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
        lambda context: _StreamHandler(context, options),
        acceptor,
        listeners,
        grace=grace,
        started=lambda _: task_status.started(SocketListening(*place)),
    )


class _StreamHandler:
    """Handles stream connections: one message a line, one session each."""

    def __init__(self, context: ServingContext, options: ServeSocketOptions) -> None:
        self._sessions = SessionHandler(
            context,
            tap=options.get("tap"),
            first_message_timeout=seconds(options.get("first_message_timeout", FIRST_MESSAGE_TIMEOUT)),
            idle_timeout=seconds(options.get("idle_timeout")),
            end_timeout=seconds(options.get("end_timeout", END_TIMEOUT)),
        )
        self._find_principal = options.get("principal")
        self._tcp_keep_alive = seconds(options.get("tcp_keep_alive", TCP_KEEP_ALIVE))

    async def receive(self, stream: trio.abc.Stream, peer: SocketPeer) -> None:
        """Handle a connection until it is over, and close its stream."""
        keep_tcp_alive(stream, self._tcp_keep_alive)
        try:
            principal = await self._principal(peer)
        except Exception as error:
            if not isinstance(error, PermissionError):
                report("the principal of a connection could not be found", error)
            await trio.aclose_forcefully(stream)
            return
        await self._sessions.serve_session(stream_adapter(stream), principal)

    def make_room(self) -> None:
        """Do nothing: only its client knows whether a session is still needed."""

    def close(self, grace: float) -> None:
        """Start closing all sessions."""
        self._sessions.close(grace)

    async def wait_empty(self) -> None:
        """Wait until no session is left."""
        await self._sessions.wait_empty()

    async def _principal(self, peer: SocketPeer) -> Hashable:
        if self._find_principal is None:
            return peer.identity
        found = self._find_principal(peer)
        return (await found) if isawaitable(found) else found
