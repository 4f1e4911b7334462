"""The connections of one HTTP server, over what they share."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import attrs
import trio

from mcpio._driving import report
from mcpio.app.hosting import HttpHost
from mcpio.engine.server import ServerConnection
from mcpio.http.options import HttpOptions
from mcpio.trio._beginnings import TapSource, watch
from mcpio.trio._http_connection import HttpConnection
from mcpio.trio._http_parsers import ParserName, new_parser
from mcpio.trio._http_terms import FindPrincipal, HttpTimeouts
from mcpio.trio._listening import SocketPeer
from mcpio.trio._site import Crowd, Ground

if TYPE_CHECKING:
    from mcpio.app.saving import UnansweredPolicy
    from mcpio.app.session_keeping import SessionStore

__all__ = ["HttpSite", "HttpSiteOptions"]


@attrs.frozen
class HttpSiteOptions:
    """What ``serve_http`` was told about connections. See there."""

    timeouts: HttpTimeouts
    head_bytes: int
    parser: ParserName
    find_principal: FindPrincipal | None
    tap: TapSource | None
    store: SessionStore | None
    unanswered: UnansweredPolicy


class HttpSite:
    """The connections of one server, and the host of all sessions."""

    def __init__(self, ground: Ground, http: HttpOptions, options: HttpSiteOptions) -> None:
        self._options = options
        self._connections: Crowd[HttpConnection] = Crowd()
        self._is_closing = False
        self.host = host = HttpHost(
            ground.server,
            ground.runtime,
            clock=trio.current_time,
            on_ready=_wake,
            on_deadline=lambda deadline: ground.timekeeper.arm(host, deadline),
            report=report,
            options=http,
            state=ground.state,
            on_connection=None if options.tap is None else self._watch,
            store=options.store,
            unanswered=options.unanswered,
        )

    async def receive(self, stream: trio.abc.Stream, peer: SocketPeer) -> None:
        """Carry a connection until it is over, and close its stream. What it speaks is decided here."""
        if self._is_closing:
            await trio.aclose_forcefully(stream)
            return
        options = self._options
        connection = HttpConnection(
            stream,
            self.host,
            new_parser(options.parser, options.head_bytes),
            peer=peer,
            timeouts=options.timeouts,
            find_principal=options.find_principal,
        )
        self._connections.enter(connection)
        try:
            await connection.run()
        finally:
            self._connections.leave(connection)

    def make_room(self) -> None:
        """End a connection between two requests."""
        resting = next((connection for connection in self._connections if connection.is_at_rest), None)
        if resting is not None:
            resting.abort()

    def close(self, grace: float) -> None:
        """Serve nothing new, and answer what runs within so many seconds."""
        self._is_closing = True
        self.host.close(grace)
        for connection in self._connections:
            connection.close()

    async def wait_empty(self) -> None:
        """Wait until no connection is left."""
        await self._connections.wait_empty()

    def _watch(self, connection: ServerConnection) -> None:
        try:
            watch(connection, self._options.tap)
        except Exception as error:
            report("a tap cannot hear of a session", error)


def _wake(exchange: Hashable) -> None:
    connection: HttpConnection
    connection, _ = exchange  # type: ignore[misc]  # the exchanges are named by connections
    connection.wake(exchange)
