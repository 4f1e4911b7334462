"""A server that has another one answer, and may have that one replaced while its clients stay: on any event loop."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Final, TypeAlias
from weakref import WeakSet

from mcpio import types
from mcpio._drivers import report
from mcpio._drivers.event_loop import EventLoop
from mcpio._drivers.servers import ServerSource, opener_of
from mcpio.app.client import Client
from mcpio.app.forwarding import HANDSHAKE_ERA, ForwardingServer
from mcpio.app.runtime import OneShot, Runtime, Spawned
from mcpio.app.server import Server
from mcpio.app.server_session import ServerSession
from mcpio.errors import ConnectFailed, McpError, RequestError, UnexpectedResponse
from mcpio.revisions import Era

__all__ = ["Watch", "proxy_server"]

START_TIMEOUT: Final = 15.0
"""Seconds that a replacement has to start before it counts as failed."""

Watch = Callable[[], Awaitable[object]]

_Opener: TypeAlias = Callable[..., AbstractAsyncContextManager[Client]]


def proxy_server(source: ServerSource, drivers: Any, loop: Callable[[], EventLoop], watch: Watch | None) -> Server:
    """Implement ``proxy`` on the event loop that ``loop`` returns while the server is served.

    ``drivers`` is the module of its functions for clients.
    """
    opener = opener_of(source, drivers)

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[_Upstreams]:
        running = loop()
        async with running.group() as runtime:
            chosen = await _adopted(forwarding, opener)
            upstreams = _Upstreams(forwarding, chosen, running, runtime)
            try:
                if watch is not None:
                    upstreams.spawn(upstreams.reload_when(watch))
                yield upstreams
            finally:
                upstreams.cancel()

    forwarding = ForwardingServer(lifespan, may_change=watch is not None)
    return forwarding


async def _adopted(server: ForwardingServer, opener: _Opener) -> _Opener:
    """Present a proxy as the server behind it, and return how to open a client for each session.

    With a session where that server has them, even if it serves requests without one too: its handlers can wait for
    answers then. Raises ConnectFailed.
    """
    if not {"era", "options"}.isdisjoint(getattr(opener, "keywords", ())):  # of a partial
        async with opener() as client:
            server.adopt(client.server)
        return opener
    with_session = partial(opener, options=HANDSHAKE_ERA)
    refused: ConnectFailed | None = None
    try:
        async with with_session() as client:
            server.adopt(client.server)
            if _has_session(client):
                return with_session
    except ConnectFailed as error:
        # Only an answer can be due to the era.
        if not isinstance(error.__cause__, RequestError | UnexpectedResponse):
            raise
        refused = error
    try:
        async with opener() as client:
            if client.era is Era.STATELESS:
                server.adopt(client.server)
                return opener
    except ConnectFailed as error:
        failed = refused or error
        raise failed from failed.__cause__
    return with_session


def _has_session(client: Client) -> bool:
    """Whether a server that made a handshake keeps a session, and so can ask. Over HTTP some do not."""
    return getattr(client.driver, "has_session", True)


class _Upstreams:
    """The clients of the server behind a proxy, by the session that each belongs to."""

    def __init__(
        self,
        server: ForwardingServer,
        opener: _Opener,
        loop: EventLoop,
        runtime: Runtime,
    ) -> None:
        self._server = server
        self._opener = opener
        self._loop = loop
        self._runtime = runtime
        self._running: set[Spawned] = set()
        self._links: dict[ServerSession, _Link] = {}
        self._replaced: WeakSet[Client] = WeakSet()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> Spawned:
        """Run a task that ends with the serving."""

        async def run() -> None:
            try:
                await coroutine
            finally:
                self._running.discard(task)

        task = self._runtime.spawn(run())
        self._running.add(task)
        return task

    def cancel(self) -> None:
        """Cancel all tasks, which closes the clients."""
        for task in tuple(self._running):
            task.cancel()

    async def client(self, session: ServerSession) -> Client:
        """Return the client for a session, connected. Raises ConnectFailed."""
        link = self._links.get(session)
        if link is None:
            link = self._links[session] = _Link(self._loop.lock())
        async with link.changing:
            if link.client is None or link.client.connection.closed:
                link.client = await self._open(session)
            return link.client

    def was_replaced(self, client: Client) -> bool:
        """Whether a client was closed because its server was replaced by a newer one."""
        return client in self._replaced

    def forget(self, session: ServerSession) -> None:
        """Close the client of a session that has ended."""
        link = self._links.pop(session, None)
        if link is not None and link.client is not None:
            link.client.close()

    def tell_roots(self, session: ServerSession) -> None:
        """Notify the server behind a session that its client's roots have changed."""
        link = self._links.get(session)
        if link is not None and link.client is not None:
            with contextlib.suppress(McpError):
                link.client.notify_roots_changed()

    async def reload_when(self, watch: Watch) -> None:
        """Replace the servers of all sessions, each time that ``watch`` returns."""
        while True:
            try:
                await watch()
            except Exception as error:
                report("watch= failed, so the server is replaced no more", error)
                return
            async with self._loop.group() as runtime:
                for session, link in list(self._links.items()):
                    runtime.spawn(self._replace(session, link))

    async def _replace(self, session: ServerSession, link: _Link) -> None:
        # Requests that come now wait for the outcome.
        async with link.changing:
            old = link.client
            if old is None:
                return
            new, why = None, f"no answer within {START_TIMEOUT:g} s"
            with self._loop.scope(START_TIMEOUT):
                try:
                    new = await self._open(session)
                except McpError as error:
                    why = str(error)
            if new is None:
                report(f"the new server does not start, so the old one stays: {why}", None)
                return
            link.client = new
            self._replaced.add(old)
            old.close(0)
        for changed in (
            types.ToolListChangedNotification(),
            types.ResourceListChangedNotification(),
            types.PromptListChangedNotification(),
        ):
            session.tell(changed)

    async def _open(self, session: ServerSession) -> Client:
        """Connect for a session, and tell the server what its predecessor knew. Raises ConnectFailed."""
        hosted = self._runtime.one_shot()
        hosting = self.spawn(self._host(self._server.options_for(session), hosted))
        try:
            opened: Client | Exception = await hosted.wait()
            if not isinstance(opened, Exception):
                await self._restore(opened, session)
        except BaseException:
            hosting.cancel()  # cancelled or out of time, also after the handshake: nobody else knows of the client
            raise
        if isinstance(opened, Exception):
            raise opened
        if session not in self._links:
            opened.close()  # the session ended meanwhile
        return opened

    async def _restore(self, client: Client, session: ServerSession) -> None:
        """Tell a server what its predecessor knew of a session."""
        with contextlib.suppress(McpError):
            # A stateless server logs for those only that ask for it.
            if client.era is Era.STATELESS or session.log_level != self._server.log_level:
                await client.set_log_level(session.log_level)
            for uri in session.subscriptions:
                await client.subscribe_resource(uri)

    async def _host(self, options: Any, hosted: OneShot) -> None:
        """Keep one client open until it ends. Sets ``hosted`` to it, or to the reason why opening failed."""
        try:
            async with self._opener(**options) as client:
                hosted.set(client)
                await client.driver.wait_closed()
        except Exception as error:
            hosted.set(error)


class _Link:
    """One session's way to the server."""

    __slots__ = ("changing", "client")

    def __init__(self, changing: AbstractAsyncContextManager[object]) -> None:
        """Start without a client. ``changing`` is locked while it is replaced."""
        self.changing = changing
        self.client: Client | None = None
