"""``serve_websocket``: a server over WebSocket alone."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import attrs

from mcpio._checks import check_options, checked, chosen
from mcpio._drivers.http_server import HttpListening, HttpServingOptions, checked_config, run_http
from mcpio._drivers.serving import Endpoint, Host
from mcpio._drivers.websocket_handler import WebSocketConfig
from mcpio.app.server import Server
from mcpio.engine.limits import seconds
from mcpio.http.model import HostPolicy, HttpOptions
from mcpio.websocket.frames import WebSocketOptions


@attrs.frozen
class WebSocketListening:
    """A server that listens."""

    url: str
    """The URL for clients, ``ws+unix://`` for a Unix socket. With ``listeners`` without addresses, only the path."""
    port: int | None
    """The port, also if port 0 was given; ``None`` if it is not a TCP socket."""


class ServeWebSocketOptions(HttpServingOptions, total=False):
    """The keyword arguments of ``serve_websocket``."""

    path: str
    """The path of the endpoint, ``/mcp`` by default."""
    options: WebSocketOptions | None
    """Choices of WebSocket."""
    policy: HostPolicy | None
    """Which ``Host`` and ``Origin`` are served; without one, the bound address decides, as for ``serve_http``."""
    idle_timeout: float | None
    """Seconds without input and without running requests after which a session is closed; ``None``, the default, sets
    no limit."""


async def serve_websocket(
    server: Server,
    endpoint: Endpoint,
    where: Host,
    ssl_context: ssl.SSLContext | None,
    options: ServeWebSocketOptions,
    started: Callable[[WebSocketListening], None],
) -> None:
    """Serve clients over WebSocket until cancelled. See ``mcpio.trio.serve_websocket``."""
    check_options(options, ServeWebSocketOptions.__annotations__)
    choices = chosen("options", options.get("options"), WebSocketOptions)
    terms = WebSocketConfig(choices, is_alone=True, idle_timeout=seconds("idle_timeout", options.get("idle_timeout")))
    config = checked_config(server, options, websocket=terms)
    policy = checked("policy", options.get("policy"), HostPolicy) or HostPolicy(None, None)
    http = HttpOptions(path=options.get("path", "/mcp"), policy=policy)

    def listening(http_listening: HttpListening) -> None:
        started(WebSocketListening(http_listening.url, http_listening.port))

    await run_http(server, endpoint, where, ssl_context, config, http, "ws", options, listening)
