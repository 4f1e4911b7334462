"""The connections of one HTTP server, over what they share."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, TypeAlias

import attrs
import trio

from mcpio._drivers import TapSource, attach_tap, report
from mcpio.app.http_host import HttpHost
from mcpio.engine.server import ServerConnection
from mcpio.http.options import HttpOptions
from mcpio.trio._http.config import FindPrincipal, HttpTimeouts
from mcpio.trio._http.connection import HttpConnection
from mcpio.trio._http.parsers import ParserName, new_parser
from mcpio.trio._net.listening import SocketPeer
from mcpio.trio._net.serving import ActiveSet, ServingContext

if TYPE_CHECKING:
    from mcpio.app.session_snapshot import UnansweredPolicy
    from mcpio.app.session_store import SessionStore
    from mcpio.trio._http.http2.connection import Http2Connection
    from mcpio.trio._websocket.handler import WebSocketHandler, WebSocketTerms

__all__ = ["HttpConnectionConfig", "HttpConnectionHandler"]

Carrier: TypeAlias = "HttpConnection | Http2Connection"
"""A connection, which carries the exchanges that it names."""


@attrs.frozen
class HttpConnectionConfig:
    """What ``serve_http`` was told about connections. See there."""

    timeouts: HttpTimeouts
    head_bytes: int
    parser: ParserName
    http2: type[Http2Connection] | None
    find_principal: FindPrincipal | None
    tap: TapSource | None
    store: SessionStore | None
    unanswered: UnansweredPolicy
    websocket: WebSocketTerms | None = None


class HttpConnectionHandler:
    """The connections of one server, and the host of all sessions."""

    def __init__(self, ground: ServingContext, http: HttpOptions, options: HttpConnectionConfig) -> None:
        self._options = options
        self._timekeeper = ground.timekeeper
        self._connections: ActiveSet[Carrier] = ActiveSet()
        self._is_closing = False
        self.host = host = HttpHost(
            ground.server,
            ground.runtime,
            clock=trio.lowlevel.current_clock().current_time,  # as ``trio.current_time``, which looks for it each time
            on_ready=_wake,
            on_deadline=lambda deadline: ground.timekeeper.arm(host, deadline),
            report=report,
            options=http,
            state=ground.state,
            on_connection=None if options.tap is None else self._watch,
            store=options.store,
            unanswered=options.unanswered,
        )
        self._websockets: WebSocketHandler | None = None
        if options.websocket is not None:
            from mcpio.trio._websocket.handler import WebSocketHandler  # who does not serve it does not pay for it

            self._websockets = WebSocketHandler(ground, http, options.websocket, options.tap)

    async def receive(self, stream: trio.abc.Stream, peer: SocketPeer) -> None:
        """Carry a connection until it is over, and close its stream. What it speaks is decided here."""
        try:
            connection, data = await self._recognise(stream, peer)
        except trio.TooSlowError:
            await trio.aclose_forcefully(stream)
            return
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        if self._is_closing:
            await trio.aclose_forcefully(stream)
            return
        self._connections.enter(connection)
        try:
            await connection.run(data)
        finally:
            self._connections.leave(connection)

    async def _recognise(self, stream: trio.abc.Stream, peer: SocketPeer) -> tuple[Carrier, bytes]:
        """Return a connection for what a client speaks, and what was read to find that out."""
        options, data = self._options, b""
        if options.http2 is not None:
            is_http2, data = await options.http2.recognise(stream, options.timeouts.head)
            if is_http2:
                return self._new_http2(options.http2, stream, peer), data
        return self._new_http1(stream, peer), data

    def _new_http1(self, stream: trio.abc.Stream, peer: SocketPeer) -> HttpConnection:
        options = self._options
        return HttpConnection(
            stream,
            self.host,
            new_parser(options.parser, options.head_bytes),
            peer=peer,
            timeouts=options.timeouts,
            find_principal=options.find_principal,
            websockets=self._websockets,
        )

    def _new_http2(self, new: type[Http2Connection], stream: trio.abc.Stream, peer: SocketPeer) -> Http2Connection:
        options = self._options
        return new(
            stream,
            self.host,
            head_bytes=options.head_bytes,
            peer=peer,
            timeouts=options.timeouts,
            timekeeper=self._timekeeper,
            find_principal=options.find_principal,
        )

    def make_room(self) -> None:
        """End a connection between two requests."""
        resting = next((connection for connection in self._connections if connection.is_idle), None)
        if resting is not None:
            resting.abort()

    def close(self, grace: float) -> None:
        """Serve nothing new, and answer what runs within so many seconds."""
        self._is_closing = True
        self.host.close(grace)
        if self._websockets is not None:
            self._websockets.close(grace)
        for connection in self._connections:
            try:
                connection.close()
            except Exception as error:
                report("a connection could not be closed in order", error)
                connection.abort()

    async def wait_empty(self) -> None:
        """Wait until no connection is left. What still runs then is cut off: nobody could hear of it."""
        await self._connections.wait_empty()
        self.host.close(0)
        self.host.handle_timeout()

    def _watch(self, connection: ServerConnection) -> None:
        try:
            attach_tap(connection, self._options.tap, trio.current_time())
        except Exception as error:
            report("a tap cannot be attached to a session", error)


def _wake(exchange: Hashable) -> None:
    connection: Carrier
    connection, _ = exchange  # type: ignore[misc]  # the exchanges are named by connections
    try:
        connection.wake(exchange)
    except Exception as error:
        # The caller is the handler of a session, or another connection.
        report("a response could not be written", error)
        connection.abort()
