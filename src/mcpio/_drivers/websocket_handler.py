"""WebSocket on the connections of an HTTP server: answers opening handshakes, and serves the sessions."""

from __future__ import annotations

import os
import time
from collections.abc import Hashable

import attrs

from mcpio._drivers import TapSource, report
from mcpio._drivers.event_loop import ByteStream
from mcpio._drivers.socket_server import LAST_WRITES, ActiveSet, ServingContext, SessionHandler
from mcpio._drivers.websocket import WebSocketAdapter
from mcpio.auth.grant import Grant
from mcpio.engine.table import Role
from mcpio.http.checks import ParsedRequest, Rejection
from mcpio.http.model import HttpOptions, RequestHead
from mcpio.websocket.frames import WebSocketOptions
from mcpio.websocket.machine import WebSocket
from mcpio.websocket.opening import AcceptedHandshake, answer_opening, asks_for_websocket


@attrs.frozen
class WebSocketConfig:
    """The server's configuration of WebSocket. See ``serve_http`` and ``serve_websocket``."""

    options: WebSocketOptions
    is_alone: bool
    """Whether only WebSocket is served at the path."""
    idle_timeout: float | None


class WebSocketHandler:
    """Handles the WebSockets of one server."""

    def __init__(
        self,
        context: ServingContext,
        http: HttpOptions,
        config: WebSocketConfig,
        tap: TapSource | None,
        *,
        ends_with_token: bool,
    ) -> None:
        """With ``ends_with_token`` a session ends when the token of its handshake expires."""
        self._ends_with_token = ends_with_token
        self._http = http
        self._server = context.server
        self._config = config
        engine = context.server.options
        self._max_bytes = engine.limits.message_bytes
        self._subprotocols = config.options.subprotocols_for(engine.profiles)
        self._sessions = SessionHandler(context, tap=tap, idle_timeout=config.idle_timeout)
        self._adapters: ActiveSet[WebSocketAdapter] = ActiveSet(context.loop)
        self._loop = context.loop
        self._is_closing = False

    def answer(self, head: RequestHead, *, is_current: bool) -> AcceptedHandshake | Rejection | None:
        """Return the answer to an opening handshake, or ``None`` for a request that HTTP answers.

        ``is_current`` tells that it came by HTTP/1.1: older versions have no upgrade to another protocol.
        """
        if ParsedRequest(head).path != self._http.path:
            return None
        if not is_current:
            return Rejection(400, "Bad request: WebSocket needs HTTP/1.1") if self._config.is_alone else None
        # A server of WebSocket alone answers other requests too: with 426, which says what it serves.
        if not self._config.is_alone and not asks_for_websocket(head):
            return None
        if self._is_closing:
            return Rejection(503, "Service unavailable: the server is shutting down")
        answer = answer_opening(head, http=self._http, options=self._config.options, subprotocols=self._subprotocols)
        if isinstance(answer, Rejection) and answer.advice:
            self._server.advice.give(answer.advice, report)
        return answer

    async def carry(self, stream: ByteStream, rest: bytes, accepted: AcceptedHandshake, principal: Hashable) -> None:
        """Serve the session on a stream that became a WebSocket, and close it. ``rest`` arrived after the handshake."""
        socket = WebSocket(
            Role.SERVER,
            self._config.options,
            max_bytes=self._max_bytes,
            now=self._loop.now(),
            entropy=os.urandom,
            window_bits=accepted.window_bits,
        )
        adapter = WebSocketAdapter(stream, socket, rest, self._loop)
        if self._ends_with_token and isinstance(principal, Grant) and principal.expires_at is not None:
            # Some tokens are accepted a little longer: such a client must not come back without a pause.
            adapter.expires_at = self._loop.now() + max(1.0, principal.expires_at - time.time())
        self._adapters.enter(adapter)
        try:
            await self._sessions.serve_session(adapter, principal)
        finally:
            self._adapters.leave(adapter)

    def close(self, grace: float) -> None:
        """Start closing all sessions. Running requests have ``grace`` seconds."""
        self._is_closing = True
        self._sessions.close(grace)
        for adapter in self._adapters:
            # A client that does not close its side must not hold up the end of the server.
            adapter.close_by(self._loop.now() + grace + LAST_WRITES / 2)
