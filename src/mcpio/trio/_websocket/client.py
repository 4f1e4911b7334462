"""``open_websocket`` and ``connect_websocket``: a client of a server over WebSocket."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Any, Final, Unpack

import attrs
import trio

from mcpio._checks import check_options, checked, chosen
from mcpio.app.client import Client
from mcpio.engine.client import ClientConnection
from mcpio.engine.limits import seconds
from mcpio.engine.options import Options
from mcpio.engine.table import Role
from mcpio.errors import ConnectFailed
from mcpio.http.client.options import HttpClientOptions
from mcpio.http.location import Location
from mcpio.trio._drivers import TrioClientContext
from mcpio.trio._fd_streams import RECEIVE_SIZE
from mcpio.trio._net.client import CONNECT_TIMEOUT, SocketConnector, SocketOptions, connect_by, connect_socket, secured
from mcpio.trio._net.listening import TCP_KEEP_ALIVE
from mcpio.trio._websocket.adapter import WebSocketAdapter
from mcpio.websocket import client_opening
from mcpio.websocket.client_opening import ClientOpening
from mcpio.websocket.machine import WebSocket
from mcpio.websocket.options import WebSocketOptions

__all__ = ["WebSocketConnectOptions", "connect_websocket", "open_websocket"]

SCHEMES: Final = ("ws", "wss", "ws+unix", "wss+unix")

TEXT_OF_REFUSAL: Final = 0.5
"""Seconds to wait for what a server says beside the status with which it refuses."""


class WebSocketConnectOptions(SocketOptions, total=False):
    """The keyword arguments of ``open_websocket`` and ``connect_websocket``: of the connection, and of all clients."""

    websocket: WebSocketOptions | None
    """Subprotocols, pings and compression."""
    headers: Mapping[str, str]
    """Header fields of the opening request, such as ``Authorization``."""
    ssl_context: ssl.SSLContext | None
    """How TLS is done for ``wss://``; ``None`` trusts what the system trusts."""
    tcp_keep_alive: float | None
    """Seconds of silence after which the system asks whether the server is there; 60 by default, ``None`` never."""


def open_websocket(url: str, **options: Unpack[WebSocketConnectOptions]) -> TrioClientContext[Client]:
    """Give a client for the length of a block: ``async with open_websocket("ws://…/mcp") as client``.

    See ``connect_websocket``.
    """
    return TrioClientContext(lambda nursery: connect_websocket(url, nursery=nursery, **options))


async def connect_websocket(url: str, *, nursery: trio.Nursery, **options: Unpack[WebSocketConnectOptions]) -> Client:
    """Return a client of the server at a ``ws://`` or ``wss://`` URL, tied to no block.

    ``ws+unix://%2Frun%2Fserver.sock/mcp`` is a server on the Unix socket of that path, as for ``connect_http``.

    Raises ``ConnectFailed``: its cause is an ``OSError`` where there is no connection to be had, an
    ``AuthorizationRequired`` for status 401 and 403, an ``UnexpectedResponse`` for any other answer that is no
    WebSocket with one of the subprotocols, and a ``RemoteProtocolError`` for what is no HTTP. ``ValueError`` for what
    is no URL, and for header fields that make no sense.

    When the connection ends, what waits raises ``ConnectionLost``. Its cause says how, unless the server closed in
    order (with 1000, 1001 or no code): a ``WebSocketClosed`` has any other code, 1006 for a connection that broke; a
    ``RemoteProtocolError`` says what the server did wrong, a ``RequestTimeout`` that it gave no sign of life, and an
    ``OSError`` or ``trio.BrokenResourceError`` how the stream failed (XPORT-04).
    """
    check_options(options, WebSocketConnectOptions.__annotations__)
    given: dict[str, Any] = dict(options)
    location = _location(url)
    engine = _engine_options(given)
    opener = _WebSocketOpener(
        location,
        chosen("websocket", given.pop("websocket", None), WebSocketOptions),
        engine,
        HttpClientOptions(headers=given.pop("headers", {})).headers,
        checked("ssl_context", given.pop("ssl_context", None), ssl.SSLContext),
        seconds(given.pop("tcp_keep_alive", TCP_KEEP_ALIVE)),
    )
    timeout = seconds(given.pop("connect_timeout", CONNECT_TIMEOUT))
    connector = SocketConnector(opener.open, location.place, timeout, _wire)
    return await connect_by(connector, nursery, given)


@attrs.frozen
class _OpenedStream:
    """A connection that became a WebSocket."""

    stream: trio.abc.Stream
    socket: WebSocket
    rest: bytes


@attrs.frozen
class _WebSocketOpener:
    """How a client comes to a WebSocket."""

    location: Location
    options: WebSocketOptions
    engine: Options
    headers: Mapping[str, str]
    ssl_context: ssl.SSLContext | None
    keep_alive: float | None

    async def open(self) -> _OpenedStream:
        """Connect, and perform the opening handshake. Raises ``ConnectFailed``, and what streams raise."""
        stream = await self._connect()
        try:
            opened = await self._open(stream)
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        socket = WebSocket(
            Role.CLIENT,
            self.options,
            max_bytes=self.engine.limits.message_bytes,
            now=trio.current_time(),
            entropy=os.urandom,
            window_bits=opened.window_bits,
        )
        return _OpenedStream(stream, socket, opened.rest)

    async def _connect(self) -> trio.abc.Stream:
        location = self.location
        context = (self.ssl_context or ssl.create_default_context()) if location.scheme == "https" else None
        if location.unix is not None:
            return await secured(await trio.open_unix_socket(location.unix), context, location.host)
        return await connect_socket(location.host, location.port, context, location.host, self.keep_alive)

    async def _open(self, stream: trio.abc.Stream) -> client_opening.CompletedHandshake:
        opening = ClientOpening(
            self.location,
            self.options,
            subprotocols=self.options.subprotocols_for(self.engine.profiles),
            headers=self.headers,
            entropy=os.urandom,
        )
        await stream.send_all(opening.request)
        with trio.CancelScope() as scope:
            while opening.outcome() is None:
                opening.receive_data(bytes(await stream.receive_some(RECEIVE_SIZE)) or None)
                if opening.is_refused:
                    scope.deadline = min(scope.deadline, trio.current_time() + TEXT_OF_REFUSAL)
        if scope.cancelled_caught:
            opening.receive_data(None)
        outcome = opening.outcome()
        if not isinstance(outcome, client_opening.CompletedHandshake):
            raise ConnectFailed(f"no connection to {self.location.place}: {outcome}") from outcome
        return outcome


def _wire(dialled: _OpenedStream, *, end_is_loss: bool = False) -> WebSocketAdapter:
    return WebSocketAdapter(dialled.stream, dialled.socket, dialled.rest, end_is_loss=end_is_loss)


def _location(url: str) -> Location:
    """Return where a server is, as HTTP says it. ``ValueError`` for what is no URL of a WebSocket."""
    scheme, mark, _ = url.partition("://")
    if not mark or scheme.lower() not in SCHEMES:
        raise ValueError(f"a server's URL begins with ws:// or wss://, not {url!r:.100}")
    return Location.parse("http" + url[len("ws") :])


def _engine_options(given: Mapping[str, Any]) -> Options:
    connection = checked("connection", given.get("connection"), ClientConnection)
    if connection is not None:
        return connection.options
    return chosen("options", given.get("options"), Options)
