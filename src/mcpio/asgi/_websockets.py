"""WebSocket under an ASGI server, which does the frames, the pings and the compression: a session for each."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from math import inf
from typing import TYPE_CHECKING, Any, Final

from mcpio._drivers import report
from mcpio._drivers.event_loop import EventLoop
from mcpio._drivers.setup import FaultLog, carry, prepare_server
from mcpio.asgi._event_loop import running_loop
from mcpio.auth.grant import Grant
from mcpio.engine.connection import Connection
from mcpio.engine.table import Role
from mcpio.errors import McpError, RemoteProtocolError
from mcpio.http.checks import ParsedRequest, Rejection, rejection_body
from mcpio.http.model import RequestHead
from mcpio.websocket.closing import CloseCode, code_for, error_for
from mcpio.websocket.frames import WebSocketOptions
from mcpio.websocket.opening import access_failure, choose_subprotocol

if TYPE_CHECKING:
    from mcpio._drivers import TapSource
    from mcpio.app.runtime import Driver
    from mcpio.app.server import Server
    from mcpio.app.server_session import ServerSession
    from mcpio.http.model import HttpOptions

__all__ = ["WebSockets"]

LAST_ANSWERS: Final = 0.5
"""Seconds for the running requests of a client whose token has expired."""


class WebSockets:
    """Serves the WebSockets of one server."""

    def __init__(
        self,
        server: Server,
        state: Any,
        http: HttpOptions,
        options: WebSocketOptions,
        tap: TapSource | None,
        *,
        ends_with_token: bool,
    ) -> None:
        """``state`` is the value of the server's lifespan.

        With ``ends_with_token`` a session ends when the token of its handshake expires.
        """
        self._server = server
        self._state = state
        self._http = http
        self._options = options
        self._subprotocols = options.subprotocols_for(server.options.profiles)
        self._tap = tap
        self._ends_with_token = ends_with_token
        self._faults = FaultLog(lambda: running_loop().now())
        self._sessions: set[ServerSession] = set()
        self._is_closing = False

    def __len__(self) -> int:
        return len(self._sessions)

    async def serve(
        self,
        head: RequestHead,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        """Serve one WebSocket until its session has ended, or reject its handshake."""
        await receive()  # websocket.connect
        answer = self._answer(head, scope.get("subprotocols") or ())
        if isinstance(answer, Rejection):
            if answer.advice:
                self._server.advice.give(answer.advice, report)
            await _reject(answer, scope, send)
            return
        await send({"type": "websocket.accept", "subprotocol": answer})
        loop = running_loop()
        adapter = AsgiWebSocketAdapter(receive, send, loop, self._options.first_message_timeout)
        principal = head.principal
        if self._ends_with_token and isinstance(principal, Grant) and principal.expires_at is not None:
            # Some tokens are accepted a little longer: such a client must not come back without a pause.
            adapter.expires_at = loop.now() + max(1.0, principal.expires_at - time.time())
        try:
            setup = prepare_server(self._server, principal, loop.now(), tap=self._tap)
        except Exception as error:
            self._faults.report("a session could not be started", error)
            await send({"type": "websocket.close", "code": CloseCode.FAILED})
            return
        connection: Any = setup.connection
        session: ServerSession | None = None

        def make_session(driver: Driver) -> ServerSession:
            nonlocal session
            session = self._server.session(connection, driver, self._state)
            self._sessions.add(session)
            return session

        try:
            await carry(loop, setup, adapter, make_session)
        finally:
            self._sessions.discard(session)

    def close(self, grace: float) -> None:
        """Accept no further WebSocket, and close all sessions. Running requests have ``grace`` seconds."""
        self._is_closing = True
        for session in tuple(self._sessions):
            session.close(grace)

    def _answer(self, head: RequestHead, offered: Iterable[str]) -> str | Rejection | None:
        """Return the subprotocol to accept with, ``None`` for none, or why the handshake is rejected."""
        if ParsedRequest(head).path != self._http.path:
            return Rejection(404, "Not found: there is no endpoint here")
        if self._is_closing:
            return Rejection(503, "Service unavailable: the server is shutting down")
        return access_failure(head, self._http) or choose_subprotocol(offered, self._subprotocols)


class AsgiWebSocketAdapter:
    """Carries messages over the events of an ASGI server."""

    unsent = False
    ending = False

    def __init__(
        self,
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
        loop: EventLoop,
        first_message_timeout: float | None,
    ) -> None:
        self._receive = receive
        self._send = send
        self._loop = loop
        self._limit = first_message_timeout
        self._speak_by = inf if first_message_timeout is None else loop.now() + first_message_timeout
        self.expires_at = inf
        self._connection: Connection | None = None
        self._is_over = False
        self._farewell: tuple[CloseCode, str] | None = None  # by default it follows from the end of the connection

    async def receive(self, connection: Connection) -> None:
        """Wait for the next event, and feed its message, or the end."""
        self._connection = connection
        message: MutableMapping[str, Any] | None = None
        with self._loop.scope() as scope:
            scope.deadline = min(self._speak_by, self.expires_at)
            message = await self._receive()
        now = self._loop.now()
        if message is None:  # the deadline came first
            self._expire(connection, now)
        elif message["type"] == "websocket.disconnect":
            self._is_over = True
            self._end(connection, error_for(message.get("code") or CloseCode.NO_CODE, message.get("reason") or ""), now)
        elif message.get("text") is None:
            self._fail(connection, CloseCode.UNSUPPORTED, "a binary message came", now)
        else:
            self._speak_by = inf
            connection.receive_message(message["text"], now)

    def send_now(self, connection: Connection) -> None:
        """Do nothing: an ASGI server does not tell whether ``send`` would wait, so ``send`` does all the writing."""

    async def send(self, connection: Connection) -> None:
        """Send every message that the engine has. Those for a client that has closed are dropped."""
        while (message := connection.next_message()) is not None:
            if self._is_over:
                continue
            # While ``send`` waits for the client, the message still counts, and holds back further requests (P14).
            connection.set_unwritten(len(message.text))
            try:
                await self._send({"type": "websocket.send", "text": message.text.decode()})
            except OSError:
                self._is_over = True
                raise
            connection.set_unwritten(0)

    def session_lost(self) -> None:
        """Do nothing: this adapter has only one WebSocket."""

    async def aclose(self) -> None:
        """Close the WebSocket with the code and reason of the connection's end, unless the client did."""
        if self._is_over:
            return
        self._is_over = True
        code, reason = self._farewell or self._ended_by()
        with contextlib.suppress(OSError):  # the client has left, or the ASGI server has closed the WebSocket
            await self._send({"type": "websocket.close", "code": int(code), "reason": reason})

    def _ended_by(self) -> tuple[CloseCode, str]:
        end = None if self._connection is None else self._connection.end
        code = code_for(end, Role.SERVER)
        why = "" if end is None or code in (CloseCode.NORMAL, CloseCode.GOING_AWAY) else end.reason.value
        return code, why

    def _expire(self, connection: Connection, now: float) -> None:
        """End a session whose client said nothing in time, or whose token has expired: then what runs is answered."""
        if now < self.expires_at:
            self._fail(connection, CloseCode.POLICY, f"no message came within {self._limit:g} s", now)
            return
        self.expires_at = inf
        self._farewell = (CloseCode.POLICY, "the token has expired")
        connection.close(now, grace=LAST_ANSWERS)

    def _fail(self, connection: Connection, code: CloseCode, reason: str, now: float) -> None:
        self._farewell = (code, reason)
        self._end(connection, RemoteProtocolError(reason), now)

    def _end(self, connection: Connection, error: McpError | None, now: float) -> None:
        """Report the end to the engine, which need not wait for answers: the client receives none any more."""
        if error is not None:
            connection.connection_lost(error, now)
            return
        connection.receive_message(None, now)
        connection.close(now, grace=0.0)


async def _reject(
    rejection: Rejection,
    scope: MutableMapping[str, Any],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    """Answer a handshake by a response, where the ASGI server can send one; else it answers 403."""
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": CloseCode.POLICY})
        return
    body = rejection_body(rejection)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *rejection.headers]
    await send({"type": "websocket.http.response.start", "status": rejection.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})
