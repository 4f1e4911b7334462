"""The ASGI application: kinds of scopes, the endpoint where it is mounted, and the lifespan."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from mcpio._checks import chosen
from mcpio._drivers import check_authorization, checked_auth, lifespan_of
from mcpio._drivers.setup import preload
from mcpio.app.runtime import checked_grace
from mcpio.asgi._event_loop import running_loop
from mcpio.asgi._server import AsgiConfig, AsgiServer, IdentifyRequest, Receive, Scope, Send, headers_of
from mcpio.http.model import HttpOptions

if TYPE_CHECKING:
    from mcpio._drivers import TapSource
    from mcpio.app.server import Server
    from mcpio.app.session import UnansweredPolicy
    from mcpio.app.session_store import SessionStore
    from mcpio.auth.resource_server import ResourceServer
    from mcpio.http.model import Denied
    from mcpio.websocket.frames import WebSocketOptions

__all__ = ["AsgiApp", "Identify", "app"]

Identify: TypeAlias = "Callable[[Mapping[str, Any]], Hashable | Denied | Awaitable[Hashable | Denied]]"
"""Takes the scope of a request and returns its principal, or a coroutine that does: ``None`` for an anonymous client,
``mcpio.http.model.Denied`` for one that is not served."""


def app(
    server: Server,
    *,
    options: HttpOptions | None = None,
    principal: Identify | None = None,
    auth: ResourceServer | None = None,
    tap: TapSource | None = None,
    store: SessionStore | None = None,
    unanswered: UnansweredPolicy = "fail",
    websocket: WebSocketOptions | None = None,
) -> AsgiApp:
    """Return an ASGI application that serves ``server``.

    Mount it where its endpoint is to be. ``principal`` takes the scope of a request and returns the authenticated
    principal, for instance ``lambda scope: scope["user"].id``, or a coroutine that does; an exception of it leaves the
    application, and the ASGI server answers with 500. Without a host policy in ``options``, the policy follows from the
    address that a request came to: on loopback, only names of this machine are served. Behind a proxy, set the policy.

    ``auth`` takes the place of ``principal``: a ``mcpio.auth.ResourceServer`` admits requests by their tokens. Its
    metadata is served below the endpoint, where challenges point to. Mount ``app(…).well_known`` at
    ``/.well-known/oauth-protected-resource`` for clients that ask the root of the host. Certificates of clients are not
    known under ASGI.

    ``tap`` is attached to each session: see ``mcpio.observe.Tap``. With a ``store``, such as
    ``mcpio.stores.SqliteStore``, sessions outlive the process, and ``unanswered`` decides whether requests that died
    with it fail or run again.

    With ``websocket`` the endpoint serves WebSocket too, under the same host policy and authentication: a session for
    each. Of the options, the subprotocols and ``first_message_timeout`` apply; pings, compression and closing are the
    ASGI server's. A handshake is rejected by a response with the reason where the ASGI server has the extension
    ``websocket.http.response``, and otherwise by its plain 403.

    Raises TypeError if ``server`` is not a Server or ``options`` are not HttpOptions, ValueError for options that a
    store excludes, for ``auth`` beside ``principal``, and for a server with scopes that has neither.
    """
    if checked_auth(auth, principal, "(scope)") is not None and auth is not None and auth.metadata_url is None:
        # An application may be mounted where it cannot serve the root of its host.
        auth = attrs.evolve(auth, metadata_url=auth.metadata_url_below)
    check_authorization(server, is_authorized=principal is not None or auth is not None)
    identify = None if principal is None else _by_scope(principal)
    if auth is not None:
        identify = _by_token(auth)
    config = AsgiConfig(
        chosen("options", options, HttpOptions), tap, store, unanswered, auth, _websocket_options(websocket), identify
    )
    preload()
    return AsgiApp(server, config)


class AsgiApp:
    """An ASGI 3 application, in one event loop at a time. Made by ``app``."""

    def __init__(self, server: Server, config: AsgiConfig) -> None:
        self._server = server
        self._config = config
        self._is_entered = False
        self._asgi_server = self._new_server()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, one WebSocket, or the lifespan protocol.

        Returns when the response is complete, or its client has disconnected, and all handlers of the request are done.
        Raises RuntimeError if the server's lifespan was not entered, or another event loop serves the application;
        ValueError for an unknown scope type.
        """
        if scope["type"] == "http":
            await (self._asgi_server or self._entered()).serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._serve_lifespan(receive, send)
        elif scope["type"] == "websocket":
            await self._serve_websocket(scope, receive, send)
        else:
            raise ValueError(f"this application serves http and websocket, not {scope['type']}")

    @contextlib.asynccontextmanager
    async def lifespan(self, *_: Any) -> AsyncIterator[None]:
        """Enter the server's lifespan, and keep tasks beyond their requests; at the end, end all sessions.

        ASGI servers do this by the lifespan protocol. Frameworks do not pass that on to mounted applications: enter it
        in the framework's lifespan. A server with neither a lifespan nor tasks needs none. An exception of the server's
        lifespan propagates unwrapped. Raises RuntimeError if it is entered already.
        """
        if self._is_entered:
            raise RuntimeError("the application's lifespan is entered already")
        self._is_entered = True
        try:
            async with lifespan_of(self._server) as state:
                self._asgi_server = server = AsgiServer(self._server, self._config, state)
                async with server.lifespan():
                    yield
        finally:
            self._is_entered = False
            self._asgi_server = self._new_server()

    def close(self, grace: float | None = 5.0) -> None:
        """Reject new requests, answer running ones for at most ``grace`` seconds, and end all streams.

        Returns at once. Call it when the ASGI server is told to stop, before it waits for its open requests: legal from
        any task, thread and signal handler, any number of times (P9). Raises LocalProtocolError unless ``grace`` is a
        number of 0 or more.
        """
        limit = checked_grace(grace)
        if self._asgi_server is not None:
            self._asgi_server.close(limit)

    def _new_server(self) -> AsgiServer | None:
        """Return a server for requests outside of a lifespan; ``None`` if the lifespan must be entered."""
        if self._server.lifespan is not None:
            return None
        return AsgiServer(self._server, self._config, None)

    async def _serve_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()  # lifespan.startup
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self.lifespan())
            except Exception:
                await send({"type": "lifespan.startup.failed", "message": traceback.format_exc()})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()  # lifespan.shutdown
            try:
                await stack.aclose()
            except Exception:
                await send({"type": "lifespan.shutdown.failed", "message": traceback.format_exc()})
                return
        await send({"type": "lifespan.shutdown.complete"})

    async def well_known(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI application that serves the metadata of ``auth``, wherever it is mounted (RFC 9728 §3)."""
        if scope["type"] != "http":
            await self(scope, receive, send)
        else:
            await self._entered().serve(scope, receive, send, "/.well-known/oauth-protected-resource")

    async def _serve_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._config.websocket is None:
            await receive()
            await send({"type": "websocket.close", "code": 1000})
            return
        await self._entered().serve_websocket(scope, receive, send)

    def _entered(self) -> AsgiServer:
        if self._asgi_server is None:
            raise RuntimeError("the server's lifespan was not entered: enter app.lifespan() in the framework's own")
        return self._asgi_server


def _by_scope(principal: Identify) -> IdentifyRequest:
    return lambda scope, method, target: principal(scope)


def _by_token(auth: ResourceServer) -> IdentifyRequest:
    from mcpio._drivers.guarding import RequestGuard  # only protected servers pay for it

    guard = RequestGuard(auth, running_loop)
    return lambda scope, method, target: guard.admit(method, target, headers_of(scope))


def _websocket_options(websocket: WebSocketOptions | None) -> WebSocketOptions | None:
    if websocket is None:
        return None
    from mcpio.websocket.frames import WebSocketOptions  # only applications with WebSocket pay for it

    return chosen("websocket", websocket, WebSocketOptions)
