"""``proxy``: a server that has another one answer, and may have that one replaced while its clients stay."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Final

import trio

from mcpio import types
from mcpio._drivers import report
from mcpio.app.client import Client
from mcpio.app.forwarding import HANDSHAKE_ERA, ForwardingServer
from mcpio.app.server import Server
from mcpio.app.server_session import ServerSession
from mcpio.errors import ConnectFailed, McpError
from mcpio.trio._nurseries import ungrouped
from mcpio.trio._servers import ServerSource, opener_of

__all__ = ["proxy"]

START_TIMEOUT: Final = 15.0
"""Seconds that a replacement has to start before it counts as failed."""

Watch = Callable[[], Awaitable[object]]


def proxy(source: ServerSource, *, watch: Watch | None = None) -> Server:
    """Return a server that has another server answer everything.

    Serve it like any other: ``trio.run(serve_stdio, proxy(ServerEntry(command=("server",))))``. Each session here has
    one session there, so progress, cancellation, questions to the user and the model, and subscriptions pass through.
    The other server is connected to once at the start, for its name and its capabilities, then once for each session.
    One that has died is started again for the next request. Tasks are not passed on.

    ``watch`` is an async function that returns when the other server is to be replaced: a new one is started for each
    session, and takes its place if it shakes hands within 15 s; sessions, subscriptions and log levels stay, and
    clients are told that all lists have changed. Requests in flight fail with an error that says so. A replacement that
    does not start is reported, and the old server stays.

    Serving raises ConnectFailed if the other server does not start.
    """
    opener = opener_of(source)
    if "options" not in getattr(opener, "keywords", ()):  # of a partial
        opener = partial(opener, options=HANDSHAKE_ERA)

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[_Upstreams]:
        with ungrouped():
            async with trio.open_nursery() as nursery:
                upstreams = _Upstreams(forwarding, opener, nursery)
                try:
                    async with opener() as client:
                        forwarding.adopt(client.server)
                    if watch is not None:
                        nursery.start_soon(upstreams.reload_when, watch)
                    yield upstreams
                finally:
                    nursery.cancel_scope.cancel()

    forwarding = ForwardingServer(lifespan, may_change=watch is not None)
    return forwarding


class _Upstreams:
    """The clients of the server behind a proxy, by the session that each belongs to."""

    def __init__(
        self,
        server: ForwardingServer,
        opener: Callable[..., AbstractAsyncContextManager[Client]],
        nursery: trio.Nursery,
    ) -> None:
        self._server = server
        self._opener = opener
        self._nursery = nursery
        self._links: dict[ServerSession, _Link] = {}
        self._replaced: set[Client] = set()

    async def client(self, session: ServerSession) -> Client:
        """Return the client for a session, connected. Raises ConnectFailed."""
        link = self._links.get(session)
        if link is None:
            link = self._links[session] = _Link()
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
        """Tell the server of a session that its client's roots have changed."""
        link = self._links.get(session)
        if link is not None and link.client is not None:
            with contextlib.suppress(McpError):
                link.client.notify_roots_changed()

    async def reload_when(self, watch: Watch) -> None:
        """Replace the servers of all sessions, each time that ``watch`` returns."""
        while True:
            await watch()
            async with trio.open_nursery() as nursery:
                for session, link in list(self._links.items()):
                    nursery.start_soon(self._replace, session, link)

    async def _replace(self, session: ServerSession, link: _Link) -> None:
        # Requests that come now wait for the outcome.
        async with link.changing:
            old = link.client
            if old is None:
                return
            try:
                with trio.fail_after(START_TIMEOUT):
                    link.client = await self._open(session)
            except (McpError, trio.TooSlowError) as error:
                why = f"no answer within {START_TIMEOUT:g} s" if isinstance(error, trio.TooSlowError) else error
                report(f"the new server does not start, so the old one stays: {why}", None)
                return
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
        hosted = await self._nursery.start(self._host, self._server.options_for(session))
        if isinstance(hosted, ConnectFailed):
            raise hosted
        client: Client = hosted
        with contextlib.suppress(McpError):
            if session.log_level != self._server.log_level:
                await client.set_log_level(session.log_level)
            for uri in session.subscriptions:
                await client.subscribe_resource(uri)
        if session not in self._links:
            client.close()  # the session ended meanwhile
        return client

    async def _host(
        self, options: Any, *, task_status: trio.TaskStatus[Client | ConnectFailed] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Keep one client open until it ends. Reports why it could not be opened instead of raising it."""
        try:
            async with self._opener(**options) as client:
                task_status.started(client)
                await client.driver.wait_closed()
                self._replaced.discard(client)
        except ConnectFailed as error:
            task_status.started(error)


class _Link:
    """One session's way to the server."""

    __slots__ = ("changing", "client")

    def __init__(self) -> None:
        self.changing = trio.Lock()
        self.client: Client | None = None
