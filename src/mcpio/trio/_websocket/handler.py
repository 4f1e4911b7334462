"""WebSocket on the connections of an HTTP server: who is let in, and the sessions, one to a connection."""

from __future__ import annotations

import os
from collections.abc import Hashable

import attrs
import trio

from mcpio._drivers import TapSource
from mcpio.engine.table import Role
from mcpio.http.checks import ParsedRequest, Rejection
from mcpio.http.model import RequestHead
from mcpio.http.options import HttpOptions
from mcpio.trio._net.serving import LAST_WRITES, ActiveSet, ServingContext
from mcpio.trio._net.session_handler import SessionHandler
from mcpio.trio._websocket.adapter import WebSocketAdapter
from mcpio.websocket.machine import WebSocket
from mcpio.websocket.options import WebSocketOptions
from mcpio.websocket.server_opening import AcceptedHandshake, answer_opening, asks_for_websocket

__all__ = ["WebSocketHandler", "WebSocketTerms"]


@attrs.frozen
class WebSocketTerms:
    """What a server was told about WebSocket. See ``serve_http`` and ``serve_websocket``."""

    options: WebSocketOptions
    is_alone: bool
    """Whether nothing else is served at the path."""
    idle_timeout: float | None


class WebSocketHandler:
    """The WebSockets of one server."""

    def __init__(self, ground: ServingContext, http: HttpOptions, terms: WebSocketTerms, tap: TapSource | None) -> None:
        self._http = http
        self._terms = terms
        engine = ground.server.options
        self._max_bytes = engine.limits.message_bytes
        self._subprotocols = terms.options.subprotocols_for(engine.profiles)
        self._sessions = SessionHandler(ground, tap=tap, idle_timeout=terms.idle_timeout)
        self._wires: ActiveSet[WebSocketAdapter] = ActiveSet()
        self._is_closing = False

    def answer(self, head: RequestHead, *, is_current: bool) -> AcceptedHandshake | Rejection | None:
        """Return the answer to a request, or ``None`` for one that HTTP is to answer.

        ``is_current`` says that it is of HTTP/1.1: an older client cannot ask for another protocol.
        """
        if ParsedRequest(head).path != self._http.path:
            return None
        if not is_current:
            return Rejection(400, "Bad request: WebSocket begins with HTTP/1.1") if self._terms.is_alone else None
        if not self._terms.is_alone and not asks_for_websocket(head):
            return None
        if self._is_closing:
            return Rejection(503, "Service unavailable: the server ends")
        return answer_opening(head, http=self._http, options=self._terms.options, subprotocols=self._subprotocols)

    async def carry(
        self, stream: trio.abc.Stream, rest: bytes, accepted: AcceptedHandshake, principal: Hashable
    ) -> None:
        """Serve the session on a stream that became a WebSocket, and close it. ``rest`` came after the handshake."""
        socket = WebSocket(
            Role.SERVER,
            self._terms.options,
            max_bytes=self._max_bytes,
            now=trio.current_time(),
            entropy=os.urandom,
            window_bits=accepted.window_bits,
        )
        wire = WebSocketAdapter(stream, socket, rest)
        self._wires.enter(wire)
        try:
            await self._sessions.serve_session(wire, principal)
        finally:
            self._wires.leave(wire)

    def close(self, grace: float) -> None:
        """Begin the end of all sessions. What runs is answered within so many seconds."""
        self._is_closing = True
        self._sessions.close(grace)
        for wire in self._wires:
            # A client that does not close too must not cost the server its own end in order.
            wire.close_by(trio.current_time() + grace + LAST_WRITES / 2)
