"""``open_websocket`` and ``connect_websocket``: clients over WebSocket."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Unpack

import attrs
import trio

from mcpio._checks import check_options, checked, chosen
from mcpio._drivers.login import AuthorizedOpening, LoginOptions, LoginSetup, with_key
from mcpio._drivers.tcp_keep_alive import TCP_KEEP_ALIVE
from mcpio.app.client import Client
from mcpio.auth.effects import Headers
from mcpio.auth.given import ApiKey
from mcpio.engine.client import ClientConnection
from mcpio.engine.limits import seconds
from mcpio.engine.options import Options
from mcpio.engine.table import Role
from mcpio.errors import ConnectFailed
from mcpio.http.client.options import HttpClientOptions
from mcpio.http.location import Location
from mcpio.trio._drivers import TrioClientContext
from mcpio.trio._event_loop import TrioEventLoop
from mcpio.trio._fd_streams import RECEIVE_SIZE
from mcpio.trio._net.client import CONNECT_TIMEOUT, SocketConnector, SocketOptions, connect_by, connect_socket, secured
from mcpio.trio._nurseries import ungrouped
from mcpio.trio._runtime import TrioRuntime
from mcpio.trio._websocket.adapter import WebSocketAdapter
from mcpio.websocket import client_opening
from mcpio.websocket.client_opening import ClientOpening
from mcpio.websocket.machine import WebSocket
from mcpio.websocket.options import WebSocketOptions

__all__ = ["WebSocketConnectOptions", "connect_websocket", "open_websocket"]

SCHEMES: Final = ("ws", "wss", "ws+unix", "wss+unix")

TEXT_OF_REFUSAL: Final = 0.5
"""Seconds to wait for the body of a server's refusal."""


class WebSocketConnectOptions(SocketOptions, LoginOptions, total=False):
    """The keyword arguments of ``open_websocket`` and ``connect_websocket``: of the connection, and of all clients.

    ``auth`` and the options beside it are those of ``open_http``. What is authorized is the opening of a connection;
    ``connect_timeout`` does not count the time for that.
    """

    websocket: WebSocketOptions | None
    """Subprotocols, pings and compression."""
    headers: Mapping[str, str]
    """Header fields of the opening request, such as ``Authorization``."""
    ssl_context: ssl.SSLContext | None
    """The TLS context for ``wss://``; ``None`` trusts what the system trusts."""
    tcp_keep_alive: float | None
    """Seconds of silence before the first TCP keep-alive probe; 60 by default, ``None`` sends none."""


def open_websocket(url: str, **options: Unpack[WebSocketConnectOptions]) -> TrioClientContext[Client]:
    """Async context manager that yields a client: ``async with open_websocket("ws://…/mcp") as client``.

    See ``connect_websocket``.
    """
    return TrioClientContext(lambda nursery: connect_websocket(url, nursery=nursery, **options))


async def connect_websocket(url: str, *, nursery: trio.Nursery, **options: Unpack[WebSocketConnectOptions]) -> Client:
    """Return a client of the server at a ``ws://`` or ``wss://`` URL, tied to no block.

    ``ws+unix://%2Frun%2Fserver.sock/mcp`` is a server on the Unix socket of that path, as for ``connect_http``.

    Raises ConnectFailed. Its cause is an OSError if there is no connection, an AuthorizationRequired for status 401 and
    403, with ``auth`` an AuthorizationError if there is no token to be had, an UnexpectedResponse for any other answer
    that is not a WebSocket with an offered subprotocol, and a RemoteProtocolError if the answer is not HTTP. Raises
    ValueError for an invalid URL or header field.

    When the connection ends, waiting calls raise ConnectionLost. Its cause tells how, unless the server closed
    gracefully (with 1000, 1001 or no code): a WebSocketClosed has any other code, 1006 for a connection that broke; a
    RemoteProtocolError tells what the server did wrong, a RequestTimeout that it gave no sign of life, and an OSError
    or ``trio.BrokenResourceError`` how the stream failed (XPORT-04).
    """
    check_options(options, WebSocketConnectOptions.__annotations__)
    given: dict[str, Any] = dict(options)
    of_login: Any = {name: given.pop(name) for name in LoginOptions.__annotations__ if name in given}
    location = _location(url)
    engine = _engine_options(given)
    http = HttpClientOptions(headers=given.pop("headers", {}))
    if isinstance(of_login.get("auth"), ApiKey):
        http = with_key(http, of_login["auth"])
    ssl_context = checked("ssl_context", given.pop("ssl_context", None), ssl.SSLContext)
    opener = _WebSocketOpener(
        location,
        chosen("websocket", given.pop("websocket", None), WebSocketOptions),
        engine,
        http.headers,
        ssl_context,
        seconds(given.pop("tcp_keep_alive", TCP_KEEP_ALIVE)),
    )
    timeout = seconds(given.pop("connect_timeout", CONNECT_TIMEOUT))
    login = LoginSetup.check(_as_http(url), of_login, ssl_context=ssl_context)
    connector = SocketConnector(opener.open, location.place, timeout, _adapter)
    if login is not None:
        if any(name.lower() == "authorization" for name in http.headers):
            raise ValueError("headers: Authorization and auth= exclude each other: only one of them can be sent")
        opening = AuthorizedOpening(login, TrioEventLoop(), TrioRuntime(None))
        authorized = _AuthorizedOpener(opener, timeout, opening)
        connector = SocketConnector(authorized.open, location.place, None, _adapter)
    return await connect_by(connector, nursery, given)


@attrs.frozen
class _OpenedStream:
    """A stream that became a WebSocket."""

    stream: trio.abc.Stream
    socket: WebSocket
    rest: bytes
    nonce: str | None


@attrs.frozen
class _WebSocketOpener:
    """Connects, and performs the opening handshake."""

    location: Location
    options: WebSocketOptions
    engine: Options
    headers: Mapping[str, str] = attrs.field(repr=False)
    ssl_context: ssl.SSLContext | None
    keep_alive: float | None

    async def open(self, authorization: Headers = ()) -> _OpenedStream:
        """Connect, and perform the opening handshake. Raises ConnectFailed, and what streams raise."""
        stream = await self._connect()
        try:
            opened = await self._open(stream, {**self.headers, **dict(authorization)})
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
        return _OpenedStream(stream, socket, opened.rest, opened.nonce)

    async def _connect(self) -> trio.abc.Stream:
        location = self.location
        context = (self.ssl_context or ssl.create_default_context()) if location.scheme == "https" else None
        if location.unix is not None:
            return await secured(await trio.open_unix_socket(location.unix), context, location.host)
        return await connect_socket(location.host, location.port, context, location.host, self.keep_alive)

    async def _open(self, stream: trio.abc.Stream, headers: Mapping[str, str]) -> client_opening.CompletedHandshake:
        opening = ClientOpening(
            self.location,
            self.options,
            subprotocols=self.options.subprotocols_for(self.engine.profiles),
            headers=headers,
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


@attrs.frozen
class _AuthorizedOpener:
    """Connects with a token, which it gets from the authorization server of the one that is connected to."""

    opener: _WebSocketOpener
    timeout: float | None
    """Seconds for each connection."""
    opening: AuthorizedOpening

    async def open(self) -> _OpenedStream:
        """Connect, and perform the opening handshake. Raises ConnectFailed."""
        opened: _OpenedStream | None = None
        try:
            with ungrouped():
                async with trio.open_nursery() as nursery:
                    opened = await self.opening.open(self._attempt, nursery.start_soon)
                    nursery.cancel_scope.cancel()
        except BaseException:
            if opened is not None:
                await trio.aclose_forcefully(opened.stream)
            raise
        return opened

    async def _attempt(self, authorization: Headers) -> tuple[_OpenedStream, str | None]:
        open_stream = partial(self.opener.open, authorization)
        opened = await SocketConnector(open_stream, self.opener.location.place, self.timeout, _adapter).open()
        return opened, opened.nonce


def _adapter(opened: _OpenedStream, *, end_is_loss: bool = False) -> WebSocketAdapter:
    return WebSocketAdapter(opened.stream, opened.socket, opened.rest, end_is_loss=end_is_loss)


def _location(url: str) -> Location:
    """Return the location of a server as for HTTP. Raises ValueError if the URL is not for WebSocket."""
    scheme, mark, _ = url.partition("://")
    if not mark or scheme.lower() not in SCHEMES:
        raise ValueError(f"a server's URL begins with ws:// or wss://, not {url!r:.100}")
    return Location.parse(_as_http(url))


def _as_http(url: str) -> str:
    """Return the URL of the same server over HTTP, which is the resource of its tokens."""
    return "http" + url[len("ws") :]


def _engine_options(given: Mapping[str, Any]) -> Options:
    connection = checked("connection", given.get("connection"), ClientConnection)
    if connection is not None:
        return connection.options
    return chosen("options", given.get("options"), Options)
