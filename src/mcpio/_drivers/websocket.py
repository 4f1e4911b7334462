"""WebSocket clients, and a WebSocket as a channel of messages."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from math import inf
from typing import Any, Final

import attrs

from mcpio._checks import check_options, checked, chosen, required
from mcpio._drivers.event_loop import RECEIVE_SIZE, TCP_KEEP_ALIVE, ByteStream, EventLoop
from mcpio._drivers.login import AuthorizedOpening, LoginOptions, LoginSetup, declare_extension, with_key
from mcpio._drivers.socket_client import CONNECT_TIMEOUT, SocketConnector, SocketOptions, connect_socket, open_in_time
from mcpio.app.runtime import Spawned
from mcpio.auth.effects import ApiKey, Headers
from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.limits import seconds
from mcpio.engine.options import Options
from mcpio.engine.table import Phase, Role
from mcpio.errors import ConnectFailed, WebSocketClosed
from mcpio.http.client import HttpClientOptions, Location
from mcpio.websocket import opening as client_opening
from mcpio.websocket.closing import CloseCode, code_for
from mcpio.websocket.frames import WebSocketOptions
from mcpio.websocket.machine import MessageReceived, WebSocket, WebSocketEnded
from mcpio.websocket.opening import ClientOpening

# -------------------------------------------------------------------------------------------------------------- adapter
# The transport adapter over WebSocket: one text message for each message, and the closing handshake.

FRAMES: Final = 64
"""Frames after which a session gives way to the others: pings and fragments cost time without any message."""

CHUNK: Final = 65536
"""Bytes of input that are fed, and of output that are written, at once. Output that finds room is a sign of life."""

LAST_WRITE: Final = 0.5
"""Seconds for a peer that closed, or broke a rule, to read the output under way and the close frame."""


class WebSocketAdapter:
    """Carries messages over a stream that became a WebSocket. No cancellation tears a frame (P4)."""

    def __init__(
        self, stream: ByteStream, socket: WebSocket, rest: bytes, loop: EventLoop, *, end_is_loss: bool = False
    ) -> None:
        """``rest`` arrived after the handshake.

        With ``end_is_loss``, ``receive`` raises ConnectionResetError when the peer closes, even gracefully.
        """
        self.stream = stream
        self._loop = loop
        self._now = loop.now
        self._socket = socket
        self._end_is_loss = end_is_loss
        self._send_nowait: Callable[[bytes], int] | None = getattr(stream, "send_nowait", None)
        self._send_eof: Callable[[], Awaitable[None]] | None = getattr(stream, "send_eof", None)
        self._connection: Connection | None = None
        """``None`` until its first message is waited for."""
        self._rest = b""
        self._ends = self._must_tell = False
        self._writing, self._last_write = loop.scope(), inf
        self._closing = loop.scope()
        self._end: WebSocketEnded | None = None
        self._sending = False
        self.expires_at = inf
        self._has_expired = False
        socket.receive_data(rest, self._now())

    @property
    def unsent(self) -> bool:
        """Whether output of the connection or of the WebSocket is not written yet.

        Also true if ``send`` is yet to tell the connection that the peer receives no more messages.
        """
        return bool(self._rest) or self._must_tell or self._socket.wants_write

    @property
    def ending(self) -> bool:
        """Whether the graceful end was pulled, and it or the output before it is not written yet."""
        return self._ends

    async def receive(self, connection: Connection) -> None:
        """Wait for input, and feed some of the messages, or the end."""
        self._connection = connection
        socket = self._socket
        if self._end is not None or socket.has_more:
            await self._loop.checkpoint()
        else:
            await self._read()
        if self._now() >= self.expires_at:
            self._expire(connection)
        if self._end is not None:
            self._tell_end(self._end, connection)
            return
        now, size, frames = self._now(), 0, 0
        while size < CHUNK and frames < FRAMES and (event := socket.next_event()) is not None:
            frames += 1
            if isinstance(event, MessageReceived):
                size += len(event.text)
                connection.receive_message(event.text, now)
            elif isinstance(event, WebSocketEnded):
                self._end = event
        # Messages before the end are handled first.
        if self._end is not None and not size:
            self._tell_end(self._end, connection)

    def send_now(self, connection: Connection) -> None:
        """Write without waiting, as much as the stream accepts, so that no cancellation can split a frame."""
        if self._send_nowait is not None and not self._sending and not self._rest:
            self._pull(connection)
            self._try_to_send(self._send_nowait)
            connection.set_unwritten(len(self._rest))

    async def send(self, connection: Connection) -> None:
        """Write unsent output, or else about 64 KiB of the engine's output."""
        self._sending = True
        try:
            if not self._rest:
                self._pull(connection)
                if self._send_nowait is not None:
                    self._try_to_send(self._send_nowait)
            connection.set_unwritten(len(self._rest))
            if self._rest:
                self._writing = self._loop.scope()
                self._writing.deadline = self._last_write
                with self._writing:
                    await self._send_rest()
                connection.set_unwritten(len(self._rest))
                if self._writing.cancelled_caught:
                    raise ConnectionResetError("the WebSocket is closed, and the peer does not read")
        finally:
            self._sending = False

    def session_lost(self) -> None:
        """Do nothing: this adapter has only one stream."""

    async def aclose(self) -> None:
        """Close the WebSocket, unless a frame is torn, and the stream. Waits for the peer's close frame."""
        try:
            # If the writer was cancelled in the middle of a frame, nothing can follow.
            if not self._rest:
                with self._closing, contextlib.suppress(*self._loop.broken):
                    await self._shake_hands_to_close()
        finally:
            await self.stream.aclose()

    def close_by(self, deadline: float) -> None:
        """Set the time at which ``aclose`` stops waiting for the peer's close."""
        self._closing.deadline = min(self._closing.deadline, deadline)

    # Reading

    async def _read(self) -> None:
        """Wait for bytes or for a deadline, and pass either to the machine."""
        socket = self._socket
        deadline = socket.next_deadline()
        if deadline is not None and deadline <= self._now():
            # No task was reading, so a sign of life could not be seen.
            socket.extend(self._now())
            deadline = socket.next_deadline()
        scope = self._loop.scope()
        scope.deadline = min(inf if deadline is None else deadline, self.expires_at)
        with scope:
            data = bytes(await self.stream.receive_some())
            socket.receive_data(data or None, self._now())
        if scope.cancelled_caught:
            socket.handle_timeout(self._now())

    def _expire(self, connection: Connection) -> None:
        """End a session whose client's token has expired: what runs is answered."""
        self.expires_at, self._has_expired = inf, True
        connection.close(self._now(), grace=LAST_WRITE)

    def _tell_end(self, end: WebSocketEnded, connection: Connection) -> None:
        """Report to the engine how the WebSocket ended."""
        self._end = None
        if self._end_is_loss and connection.phase is not Phase.CLOSING:
            raise ConnectionResetError("the peer closed the WebSocket") from (
                end.error or WebSocketClosed(end.code, end.reason)
            )
        now = self._now()
        if end.error is None:
            self._must_tell = True
            connection.receive_message(None, now)
        elif not self._rest:
            # Answers to earlier messages go out before the close frame that tells the fault.
            self._pull(connection)
        self._ends = bool(self._rest)
        self._last_write = now + LAST_WRITE
        self._writing.deadline = self._last_write
        if end.error is not None:
            connection.connection_lost(end.error, now)

    # Writing

    def _pull(self, connection: Connection) -> None:
        """Pull the output to write now: messages, then control frames."""
        socket = self._socket
        size, now = 0, self._now()
        while size < CHUNK and (message := connection.next_message()) is not None:
            if socket.is_open:
                socket.send_message(message.text)
                size += len(message.text)
        if not socket.is_open:
            self._must_tell = False
            if connection.phase is Phase.CLOSING:
                # The peer receives no answers any more, so there is no reason to wait for them.
                connection.close(now, grace=0.0)
        self._rest = socket.data_to_send(now)
        # The closing handshake is left to ``aclose``, which has time for it even after the grace.
        self._ends = connection.phase is Phase.CLOSED and bool(self._rest)

    def _try_to_send(self, send_nowait: Callable[[bytes], int]) -> None:
        if self._rest:
            # If it fails, the writer will meet the same error, and reports it.
            with contextlib.suppress(Exception):
                self._rest = self._rest[send_nowait(self._rest) :]
        self._ends = self._ends and bool(self._rest)

    async def _send_rest(self) -> None:
        data = memoryview(self._rest)
        for start in range(0, len(data), CHUNK):
            if start:
                self._socket.extend(self._now())
            await self.stream.send_all(data[start : start + CHUNK])
        self._rest = b""
        self._ends = False

    # Closing

    def _close(self, connection: Connection | None, now: float) -> None:
        """Close the WebSocket with the code and reason of the connection's end."""
        if connection is None:
            self._socket.close(CloseCode.GOING_AWAY, "", now)
            return
        end = connection.end
        if self._has_expired:
            self._socket.close(CloseCode.POLICY, "the token has expired", now)
            return
        code = code_for(end, connection.role)
        why = "" if end is None or code in (CloseCode.NORMAL, CloseCode.GOING_AWAY) else end.reason.value
        self._socket.close(code, why, now)

    async def _shake_hands_to_close(self) -> None:
        """Perform the closing handshake, until its deadline."""
        socket = self._socket
        if socket.is_open:
            self._close(self._connection, self._now())
        has_ended = False
        while True:
            if data := socket.data_to_send(self._now()):
                self._rest = b"?"
                await self.stream.send_all(data)
                self._rest = b""
            if socket.over:
                return
            if not has_ended and socket.is_deaf and self._send_eof is not None:
                # The half-close tells the peer that this was all, so that it need not wait either.
                await self._send_eof()
                has_ended = True
            await self._read()
            while socket.next_event() is not None:
                pass


# --------------------------------------------------------------------------------------------------------------- client
# Clients over WebSocket: options, connecting, and the opening handshake.

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


def websocket_connector(url: str, options: dict[str, Any], loop: EventLoop) -> SocketConnector[OpenedWebSocket]:
    """Return the connector of a server at a URL. It raises as ``connect_websocket`` does.

    Takes ``WebSocketConnectOptions`` out of ``options``, but for those of the client.
    """
    check_options(options, WebSocketConnectOptions.__annotations__)
    of_login: Any = {name: options.pop(name) for name in LoginOptions.__annotations__ if name in options}
    location = _location(url)
    engine = _engine_options(options)
    http = HttpClientOptions(headers=options.pop("headers", {}))
    if isinstance(of_login.get("auth"), ApiKey):
        http = with_key(http, of_login["auth"])
    ssl_context = checked("ssl_context", options.pop("ssl_context", None), ssl.SSLContext)
    opener = _WebSocketOpener(
        location,
        chosen("websocket", options.pop("websocket", None), WebSocketOptions),
        engine,
        http.headers,
        ssl_context,
        seconds("tcp_keep_alive", options.pop("tcp_keep_alive", TCP_KEEP_ALIVE)),
        loop,
    )
    timeout = seconds("connect_timeout", options.pop("connect_timeout", CONNECT_TIMEOUT))
    login = LoginSetup.check(_as_http(url), of_login, ssl_context=ssl_context)
    declare_extension(options, of_login.get("auth"))

    def make_adapter(opened: OpenedWebSocket, *, end_is_loss: bool) -> WebSocketAdapter:
        return WebSocketAdapter(
            loop.quickened(opened.stream), opened.socket, opened.rest, loop, end_is_loss=end_is_loss
        )

    connector = SocketConnector(opener.open, location.place, timeout, make_adapter, loop)
    if login is None:
        return connector
    if any(name.lower() == "authorization" for name in http.headers):
        raise ValueError("headers must not have Authorization beside auth=: only one of them can be sent")
    authorized = _AuthorizedOpener(opener, timeout, AuthorizedOpening(login, loop, loop.runtime))
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
                    # The body of a refusal is only the text of an error: it is not worth a long wait.
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
        raise ValueError(f"a server's URL must begin with ws:// or wss://, not {url!r:.100}")
    return Location.parse(_as_http(url))


def _as_http(url: str) -> str:
    """Return the URL of the same server over HTTP, which is the resource of its tokens."""
    return "http" + url[len("ws") :]


def _engine_options(options: Mapping[str, Any]) -> Options:
    connection = checked("connection", options.get("connection"), ClientConnection)
    if connection is not None:
        return connection.options
    return chosen("options", options.get("options"), Options)
