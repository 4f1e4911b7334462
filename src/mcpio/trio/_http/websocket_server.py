"""``serve_websocket``: a server over WebSocket."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from typing import Any

import attrs
import trio

from mcpio._checks import checked, chosen
from mcpio._drivers import TapSource, check_authorization, checked_auth
from mcpio._drivers.socket_server import MAX_CONNECTIONS
from mcpio.app.server import Server
from mcpio.auth.resource_server import ResourceServer
from mcpio.engine.limits import seconds
from mcpio.http.model import HostPolicy, HttpOptions
from mcpio.trio._http.parsers import FindPrincipal, HttpTimeouts, ParserName, new_parser
from mcpio.trio._http.server import HttpConnectionConfig, HttpListening, bound_to, run_http
from mcpio.trio._net import new_acceptor, until_signalled
from mcpio.trio._websocket import WebSocketConfig
from mcpio.websocket.frames import WebSocketOptions

__all__ = ["WebSocketListening", "serve_websocket"]


@attrs.frozen
class WebSocketListening:
    """A server that listens."""

    url: str
    """The URL for clients, ``ws+unix://`` for a Unix socket. With ``listeners`` without addresses, only the path."""
    port: int | None
    """The port, also if port 0 was given; ``None`` if it is not a TCP socket."""


async def serve_websocket(
    server: Server,
    port: int = 8000,
    *,
    host: str = "127.0.0.1",
    unix: str | os.PathLike[str] | None = None,
    unix_mode: int = 0o600,
    path: str = "/mcp",
    listeners: Sequence[trio.abc.Listener[Any]] | None = None,
    options: WebSocketOptions | None = None,
    policy: HostPolicy | None = None,
    ssl_context: ssl.SSLContext | None = None,
    principal: FindPrincipal | None = None,
    auth: ResourceServer | None = None,
    timeouts: HttpTimeouts | None = None,
    idle_timeout: float | None = None,
    max_connections: int = MAX_CONNECTIONS,
    max_per_address: int | None = None,
    head_bytes: int = 65536,
    parser: ParserName = "auto",
    tap: TapSource | None = None,
    handle_signals: bool = False,
    grace: float = 0.5,
    task_status: trio.TaskStatus[WebSocketListening] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve any number of clients over WebSocket until cancelled, then end gracefully for at most ``grace`` seconds.

    Gracefully means: no new client is admitted, running requests are answered, and then each WebSocket is closed with
    1001. Each connection is one session, and a session that fails costs only itself. ``idle_timeout`` closes a session
    that has no running request and received nothing for so many seconds. To serve Streamable HTTP at the same address
    too, use ``serve_http(websocket=…)``.

    The opening handshake is an HTTP request, and is served as ``serve_http`` serves those. ``policy`` decides which
    ``Host`` and ``Origin`` are served; without one, the bound address does. ``principal`` returns the principal of the
    session, or ``Denied``. ``auth`` takes its place, as in ``serve_http``: the handshake is authorized, and the session
    ends with 1008 when its token expires. ``timeouts.head`` limits the time for the handshake. ``host``, ``port``,
    ``unix``, ``unix_mode``, ``listeners``, ``ssl_context``, ``max_connections``, ``max_per_address``, ``head_bytes``,
    ``parser``, ``tap`` and ``handle_signals`` are those of ``serve_http``. With ``nursery.start`` it returns a
    WebSocketListening.

    ``Limits`` in the server's options bound what a client may send. An exception of the server's lifespan propagates
    unwrapped.

    Raises:
        OSError: If the address cannot be bound.
        ValueError: For an unknown parser, for ``auth`` beside ``principal``, and for a server with scopes that has
            neither.
        ImportError: If the parser is not installed.

    """
    new_parser(parser, head_bytes)  # fails here rather than at the first client
    checked_auth(auth, principal)
    check_authorization(server, is_authorized=principal is not None or auth is not None)
    times, choices = chosen("timeouts", timeouts, HttpTimeouts), chosen("options", options, WebSocketOptions)
    terms = WebSocketConfig(choices, is_alone=True, idle_timeout=seconds(idle_timeout))
    config = HttpConnectionConfig(
        timeouts=times,
        head_bytes=head_bytes,
        parser=parser,
        find_principal=principal,
        auth=auth,
        tap=tap,
        websocket=terms,
    )
    acceptor = new_acceptor(
        max_connections=max_connections,
        max_per_address=max_per_address,
        ssl_context=ssl_context,
        handshake_timeout=times.head,
        https_compatible=True,
    )
    http = HttpOptions(path=path, policy=checked("policy", policy, HostPolicy) or HostPolicy(None, None))

    def started(listening: HttpListening) -> None:
        task_status.started(WebSocketListening(listening.url, listening.port))

    with until_signalled(handle_signals, grace):
        async with bound_to(host, port, unix, unix_mode, listeners) as bound:
            name = None if listeners is not None else host
            scheme = "ws" if ssl_context is None else "wss"
            await run_http(server, bound, name, http, config, acceptor, scheme, grace, started)
