"""``serve_http``: a server over Streamable HTTP, through h11."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Hashable
from typing import Any

import attrs
import trio

from mcpio._driving import report
from mcpio.app.hosting import HttpHost
from mcpio.app.server import Server
from mcpio.http.options import HostPolicy, HttpOptions
from mcpio.trio._drivers import lifespan_of
from mcpio.trio._groups import ungrouped
from mcpio.trio._http_connection import HttpConnection, HttpTimeouts
from mcpio.trio._runtime import TrioRuntime
from mcpio.trio._timekeeper import Timekeeper

__all__ = ["HttpListening", "serve_http"]


@attrs.frozen
class HttpListening:
    """A server that listens."""

    url: str
    """Where clients find it."""
    port: int
    """The port; the one that was found, where it was asked for port 0."""
    host: HttpHost = attrs.field(repr=False)
    """The sessions, and ``close`` to end them in order."""


async def serve_http(
    server: Server,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    options: HttpOptions | None = None,
    ssl_context: ssl.SSLContext | None = None,
    timeouts: HttpTimeouts | None = None,
    max_connections: int = 1024,
    head_bytes: int = 65536,
    grace: float = 5.0,
    task_status: trio.TaskStatus[HttpListening] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve any number of clients over HTTP, until cancelled; then in order, for at most ``grace`` seconds.

    Without ``options``, whoever is on this machine is served, and pages of other origins are not. With ``ssl_context``
    it is HTTPS, and a client's certificate, where the context asks for one, is the principal. With ``nursery.start``
    it returns what listens. Beyond ``max_connections``, further clients wait.

    Raises ``OSError`` when the address cannot be had. What the server's lifespan raises leaves as it is.
    """
    listeners = await trio.open_tcp_listeners(port, host=host)
    found: int = listeners[0].socket.getsockname()[1]
    chosen = options or HttpOptions()
    if chosen.policy == HostPolicy(None, None):
        chosen = attrs.evolve(chosen, policy=HostPolicy.for_address(host, found))
    scheme = "http" if ssl_context is None else "https"
    url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{found}{chosen.path}"
    site = _Site(timeouts or HttpTimeouts(), head_bytes, max_connections, ssl_context)
    with ungrouped():
        async with contextlib.AsyncExitStack() as stack:
            for listener in listeners:
                stack.push_async_callback(listener.aclose)
            state = await stack.enter_async_context(lifespan_of(server))
            await site.run(
                server,
                listeners,
                chosen,
                state,
                grace,
                lambda hosting: task_status.started(HttpListening(url, found, hosting)),
            )


class _Site:
    """The connections of one server."""

    def __init__(
        self, timeouts: HttpTimeouts, head_bytes: int, max_connections: int, ssl_context: ssl.SSLContext | None
    ) -> None:
        self._timeouts = timeouts
        self._head_bytes = head_bytes
        self._ssl_context = ssl_context
        self._room = trio.Semaphore(max_connections)
        self._connections: dict[int, HttpConnection] = {}
        self._last = 0
        self._all_gone = trio.Event()

    async def run(
        self,
        server: Server,
        listeners: list[trio.SocketListener],
        options: HttpOptions,
        state: Any,
        grace: float,
        started: Callable[[HttpHost], None],
    ) -> None:
        """Listen and serve."""
        timekeeper = Timekeeper()
        async with trio.open_nursery() as handlers:
            handlers.start_soon(timekeeper.run)
            host = HttpHost(
                server,
                TrioRuntime(handlers),
                clock=trio.current_time,
                on_ready=self._wake,
                on_deadline=lambda deadline: timekeeper.arm(host, deadline),
                report=report,
                options=options,
                state=state,
            )
            async with trio.open_nursery() as connections:
                try:
                    started(host)
                    async with trio.open_nursery() as accepting:
                        for listener in listeners:
                            accepting.start_soon(self._accept, listener, host, connections)
                finally:
                    with trio.CancelScope(shield=True, deadline=trio.current_time() + grace):
                        await self._close(host, listeners, grace)
                    connections.cancel_scope.cancel()
            handlers.cancel_scope.cancel()

    async def _accept(self, listener: trio.SocketListener, host: HttpHost, nursery: trio.Nursery) -> None:
        while True:
            await self._room.acquire()
            try:
                stream: trio.abc.Stream = await listener.accept()
            except OSError as error:
                self._room.release()
                report("a connection could not be accepted", error)
                await trio.sleep(0.1)
                continue
            except BaseException:
                self._room.release()
                raise
            nursery.start_soon(self._serve, stream, host)

    async def _serve(self, stream: trio.abc.Stream, host: HttpHost) -> None:
        self._last += 1
        name = self._last
        try:
            principal = None
            if self._ssl_context is not None:
                secured = trio.SSLStream(stream, self._ssl_context, server_side=True, https_compatible=True)
                with trio.fail_after(self._timeouts.head or float("inf")):
                    await secured.do_handshake()
                stream, principal = secured, _certified(secured)
            connection = HttpConnection(stream, host, name=name, timeouts=self._timeouts, head_bytes=self._head_bytes)
            connection.principal = principal
            self._connections[name] = connection
            await connection.run()
        except (trio.TooSlowError, trio.BrokenResourceError, OSError):
            await trio.aclose_forcefully(stream)
        finally:
            self._connections.pop(name, None)
            if not self._connections:
                self._all_gone.set()
            self._room.release()

    async def _close(self, host: HttpHost, listeners: list[trio.SocketListener], grace: float) -> None:
        """End in order: no new connections, no new requests; what runs is answered and streams end."""
        for listener in listeners:
            await listener.aclose()
        host.close(grace)
        for connection in tuple(self._connections.values()):
            connection.close_when_idle()
        while self._connections:
            self._all_gone = trio.Event()
            await self._all_gone.wait()

    def _wake(self, exchange: Hashable) -> None:
        connection = self._connections.get(exchange[0])  # type: ignore[index]  # the exchanges are named by connections
        if connection is not None and connection.exchange == exchange:
            connection.wake()


def _certified(stream: Any) -> Any:
    """Return whom a client's certificate is for, as something that can be compared."""
    certificate = stream.getpeercert()
    return None if not certificate else certificate.get("subject")
