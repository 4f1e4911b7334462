"""The ASGI application: what kinds of calls there are, where the endpoint is, and the life around the calls."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from mcpio._checks import chosen
from mcpio._drivers import checked_server, lifespan_of
from mcpio._drivers.preloading import preload
from mcpio.app.awaitables import is_awaitable
from mcpio.app.runtime import checked_grace
from mcpio.asgi._server import AsgiConfig, AsgiServer, Receive, Scope, Send
from mcpio.http.options import HostPolicy, HttpOptions

if TYPE_CHECKING:
    from mcpio._drivers import TapSource
    from mcpio.app.server import Server
    from mcpio.app.session_snapshot import UnansweredPolicy
    from mcpio.app.session_store import SessionStore
    from mcpio.http.model import Denied

__all__ = ["AsgiApp", "Identify", "app"]

Identify: TypeAlias = "Callable[[Mapping[str, Any]], Hashable | Denied | Awaitable[Hashable | Denied]]"
"""Takes the scope of a request and returns whoever was authenticated, or a coroutine that does: ``None`` for nobody in
particular, and ``mcpio.http.model.Denied`` for somebody who is not served."""


def app(
    server: Server,
    *,
    options: HttpOptions | None = None,
    principal: Identify | None = None,
    tap: TapSource | None = None,
    store: SessionStore | None = None,
    unanswered: UnansweredPolicy = "fail",
) -> AsgiApp:
    """Return the ASGI application that serves a server.

    Mount it where its endpoint is to be. ``principal`` takes the scope of a request and returns whoever was
    authenticated, for instance ``lambda scope: scope["user"].id``, or a coroutine that does; what it raises leaves the
    application, and the ASGI server answers with 500. Where the options have no policy of hosts, it follows from the
    address that a request came to: on loopback, only names of this machine are served. Behind a proxy, set the policy.

    ``tap`` hears of each session: see ``mcpio.observe.Tap``. With a ``store``, such as ``mcpio.stores.SqliteStore``,
    sessions outlive the process, and ``unanswered`` says what becomes of requests that died with it. ``ValueError`` for
    options that do not go with that, and ``TypeError`` for what is no server and for what are no options.
    """
    served = AsgiConfig(chosen("options", options, HttpOptions), tap, store, unanswered)
    preload()
    return AsgiApp(checked_server(server), served, principal)


class AsgiApp:
    """An ASGI 3 application, in one event loop at a time. Made by ``app``."""

    def __init__(self, server: Server, options: AsgiConfig, principal: Identify | None) -> None:
        self._server = server
        self._options = options
        self._principal = principal
        self._is_entered = False
        self._site = self._new_site()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the life of the application. WebSockets are refused.

        It returns when the response is complete, or its client is gone, and everything that the request began is done.
        ``RuntimeError`` where the server has a lifespan that was not entered, and in a second event loop at a time;
        ``ValueError`` for a kind of scope that ASGI 3 does not have.
        """
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})
        else:
            raise ValueError(f"this application serves http, not {scope['type']}")

    @contextlib.asynccontextmanager
    async def lifespan(self, *_: Any) -> AsyncIterator[None]:
        """Enter the server's lifespan, and let tasks outlive their requests; at the end, end all sessions in order.

        ASGI servers do it by the lifespan protocol. Frameworks do not pass that on to what is mounted: enter it in
        theirs. A server that has neither a lifespan nor tasks does without. What the server's lifespan raises leaves
        as it is. ``RuntimeError`` where it is entered already.
        """
        if self._is_entered:
            raise RuntimeError("the application's lifespan is entered already")
        self._is_entered = True
        try:
            async with lifespan_of(self._server) as state:
                self._site = site = AsgiServer(self._server, self._options, state)
                async with site.living():
                    yield
        finally:
            self._is_entered = False
            self._site = self._new_site()

    def close(self, grace: float | None = 5.0) -> None:
        """Serve nothing new, answer what runs for at most ``grace`` seconds, and end all streams: at the next turn.

        Returns at once. For the moment when a server is told to end, before it waits for its open requests: legal from
        any task, thread and signal handler, any number of times (P9). ``LocalProtocolError`` for a grace that is no
        number of 0 or more.
        """
        limit = checked_grace(grace)
        if self._site is not None:
            self._site.close(limit)

    def _new_site(self) -> AsgiServer | None:
        """Return where requests are served outside of a lifespan, ``None`` where that cannot be."""
        if self._server.lifespan is not None:
            return None
        return AsgiServer(self._server, self._options, None)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self.lifespan())
            except Exception:
                await send({"type": "lifespan.startup.failed", "message": traceback.format_exc()})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()
            try:
                await stack.aclose()
            except Exception:
                await send({"type": "lifespan.shutdown.failed", "message": traceback.format_exc()})
                return
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        site = self._site
        if site is None:
            raise RuntimeError("the server's lifespan was not entered: enter app.lifespan() in the framework's own")
        principal: Any = None if self._principal is None else self._principal(scope)
        if is_awaitable(principal):
            principal = await principal
        await site.serve(scope, self._target(scope), principal, self._policy(scope), receive, send)

    def _policy(self, scope: Scope) -> HostPolicy | None:
        """Return the policy that follows from the address that a request came to; ``None`` for that of the options."""
        address = scope.get("server")
        if self._options.http.policy != HostPolicy(None, None) or not address or address[1] is None:
            return None
        return _policy_for(address[0], address[1])

    def _target(self, scope: Scope) -> str:
        """Return the target as the machine is to see it: where this is mounted, there is its endpoint."""
        path, root = scope["path"], scope.get("root_path", "").rstrip("/")
        # Newer servers and frameworks have the root in the path as well, older ones do not.
        if root and (path == root or path.startswith(f"{root}/")):
            path = path[len(root) :]
        path = path.rstrip("/").replace("?", "%3F") or self._options.http.path
        query = scope.get("query_string", b"").decode("latin-1")
        return f"{path}?{query}" if query else path


# Some servers take the address from what the client says.
_policy_for = lru_cache(maxsize=64)(HostPolicy.for_address)
