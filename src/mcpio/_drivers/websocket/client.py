"""Clients over WebSocket: options, connecting, and the opening handshake."""

from __future__ import annotations

import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import attrs

from mcpio._checks import check_options, checked, chosen, required
from mcpio._drivers.auth.login import AuthorizedOpening, LoginOptions, LoginSetup, declare_extension, with_key
from mcpio._drivers.event_loop import RECEIVE_SIZE, ByteStream, EventLoop
from mcpio._drivers.sockets.client import CONNECT_TIMEOUT, SocketConnector, SocketOptions, connect_socket, open_in_time
from mcpio._drivers.tcp_keep_alive import TCP_KEEP_ALIVE
from mcpio._drivers.websocket.adapter import WebSocketAdapter
from mcpio.app.runtime import Runtime, Spawned
from mcpio.auth.effects import Headers
from mcpio.auth.given import ApiKey
from mcpio.engine.client import ClientConnection
from mcpio.engine.limits import seconds
from mcpio.engine.options import Options
from mcpio.engine.table import Role
from mcpio.errors import ConnectFailed
from mcpio.http.client.options import HttpClientOptions
from mcpio.http.location import Location
from mcpio.websocket import client_opening
from mcpio.websocket.client_opening import ClientOpening
from mcpio.websocket.machine import WebSocket
from mcpio.websocket.options import WebSocketOptions

__all__ = ["OpenedWebSocket", "WebSocketConnectOptions", "websocket_connector"]

SCHEMES: Final = ("ws", "wss", "ws+unix", "wss+unix")

TEXT_OF_REFUSAL: Final = 0.5
"""Seconds to wait for the body of a server's refusal."""


class WebSocketConnectOptions(SocketOptions, LoginOptions, total=False):
    """The keyword arguments of ``open_websocket`` and ``connect_websocket``: of the connection, and of all clients.

    ``auth`` and the options beside it are those of ``open_http``. They authorize the opening of a connection;
    ``connect_timeout`` does not count the time for that.
    """

    websocket: WebSocketOptions | None
    """Subprotocols, pings and compression."""
    headers: Mapping[str, str]
    """Header fields of the opening request, such as ``Authorization``."""
    ssl_context: ssl.SSLContext | None
    """The TLS context for ``wss://``; ``None`` uses the system's trusted certificates."""
    tcp_keep_alive: float | None
    """Seconds of silence before the first TCP keep-alive probe; 60 by default, ``None`` sends none."""


def websocket_connector(
    url: str, given: dict[str, Any], quickened: Callable[[Any], ByteStream], loop: EventLoop, runtime: Runtime
) -> SocketConnector[OpenedWebSocket]:
    """Return the connector of a server at a URL. It raises as ``connect_websocket`` does.

    Takes ``WebSocketConnectOptions`` out of ``given``, but for those of the client. ``quickened`` returns the stream to
    use once the handshake is done.
    """
    check_options(given, WebSocketConnectOptions.__annotations__)
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
        loop,
    )
    timeout = seconds(given.pop("connect_timeout", CONNECT_TIMEOUT))
    login = LoginSetup.check(_as_http(url), of_login, ssl_context=ssl_context)
    declare_extension(given, of_login.get("auth"))

    def make_adapter(opened: OpenedWebSocket, *, end_is_loss: bool) -> WebSocketAdapter:
        return WebSocketAdapter(quickened(opened.stream), opened.socket, opened.rest, loop, end_is_loss=end_is_loss)

    connector = SocketConnector(opener.open, location.place, timeout, make_adapter, loop)
    if login is None:
        return connector
    if any(name.lower() == "authorization" for name in http.headers):
        raise ValueError("headers: Authorization and auth= exclude each other: only one of them can be sent")
    authorized = _AuthorizedOpener(opener, timeout, AuthorizedOpening(login, loop, runtime))
    return SocketConnector(authorized.open, location.place, None, make_adapter, loop)


@attrs.frozen
class OpenedWebSocket:
    """A stream that became a WebSocket."""

    stream: ByteStream
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
    loop: EventLoop

    async def open(self, authorization: Headers = ()) -> OpenedWebSocket:
        """Connect, and perform the opening handshake. Raises ConnectFailed, and what streams raise."""
        stream = await self._connect()
        try:
            opened = await self._open(stream, {**self.headers, **dict(authorization)})
        except BaseException:
            await self.loop.abort(stream)
            raise
        socket = WebSocket(
            Role.CLIENT,
            self.options,
            max_bytes=self.engine.limits.message_bytes,
            now=self.loop.now(),
            entropy=os.urandom,
            window_bits=opened.window_bits,
        )
        return OpenedWebSocket(stream, socket, opened.rest, opened.nonce)

    async def _connect(self) -> ByteStream:
        location = self.location
        context = (self.ssl_context or ssl.create_default_context()) if location.scheme == "https" else None
        return await connect_socket(
            self.loop, location.host, location.port, location.unix, context, location.host, self.keep_alive
        )

    async def _open(self, stream: ByteStream, headers: Mapping[str, str]) -> client_opening.CompletedHandshake:
        opening = ClientOpening(
            self.location,
            self.options,
            subprotocols=self.options.subprotocols_for(self.engine.profiles),
            headers=headers,
            entropy=os.urandom,
        )
        await stream.send_all(opening.request)
        with self.loop.scope() as scope:
            while opening.outcome() is None:
                opening.receive_data(bytes(await stream.receive_some(RECEIVE_SIZE)) or None)
                if opening.is_refused:
                    scope.deadline = min(scope.deadline, self.loop.now() + TEXT_OF_REFUSAL)
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

    async def open(self) -> OpenedWebSocket:
        """Connect, and perform the opening handshake. Raises ConnectFailed."""
        loop, opened, tasks = self.opener.loop, None, list[Spawned]()
        try:
            async with loop.group() as runtime:

                def start(task: Callable[[], Awaitable[None]]) -> None:
                    tasks.append(runtime.spawn(_run(task)))

                opened = await self.opening.open(self._attempt, start)
                for task in tasks:
                    task.cancel()
        except BaseException:
            if opened is not None:
                await loop.abort(opened.stream)
            raise
        return opened

    async def _attempt(self, authorization: Headers) -> tuple[OpenedWebSocket, str | None]:
        opener = self.opener
        open_stream = partial(opener.open, authorization)
        opened = await open_in_time(open_stream, opener.location.place, self.timeout, opener.loop)
        return opened, opened.nonce


async def _run(task: Callable[[], Awaitable[None]]) -> None:
    await task()


def _location(url: str) -> Location:
    """Return the location of a server as for HTTP.

    Raises ValueError if the URL is not for WebSocket, and TypeError if it is no string.
    """
    scheme, mark, _ = required("url", url, str).partition("://")
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
