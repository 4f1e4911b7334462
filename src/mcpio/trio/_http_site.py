"""All the connections of one server over HTTP: who may connect, what they share, and how it ends."""

from __future__ import annotations

import contextlib
import ssl
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from mcpio._driving import report
from mcpio.app.hosting import HttpHost
from mcpio.app.server import Server
from mcpio.engine.server import ServerConnection
from mcpio.http.options import HttpOptions
from mcpio.trio._beginnings import TapSource, watch
from mcpio.trio._groups import ungrouped
from mcpio.trio._http_connection import FindPrincipal, HttpConnection, HttpPeer, HttpTimeouts
from mcpio.trio._http_parsers import ParserName, new_parser
from mcpio.trio._listening import ACCEPT_AGAIN, peer_address, shake_hands
from mcpio.trio._runtime import TrioRuntime
from mcpio.trio._tasks import attached
from mcpio.trio._timekeeper import Timekeeper

if TYPE_CHECKING:
    from mcpio.app.saving import UnansweredPolicy
    from mcpio.app.session_keeping import SessionStore

__all__ = ["LAST_WRITES", "Site", "SiteOptions"]

LAST_WRITES: Final = 0.4
"""Seconds, after the grace of the end, for what is cut off to be told so."""


@attrs.frozen
class SiteOptions:
    """What ``serve_http`` was told about connections. See there."""

    timeouts: HttpTimeouts
    head_bytes: int
    parser: ParserName
    max_connections: int
    max_per_address: int | None
    ssl_context: ssl.SSLContext | None
    find_principal: FindPrincipal | None
    tap: TapSource | None
    store: SessionStore | None
    unanswered: UnansweredPolicy


class Site:
    """The connections of one server, and the tasks that all of its sessions share."""

    def __init__(self, server: Server, http: HttpOptions, options: SiteOptions, state: Any) -> None:
        self._server = server
        self._http = http
        self._options = options
        self._state = state
        self._room = trio.Semaphore(options.max_connections)
        self._connections: dict[HttpConnection, None] = {}
        self._addresses: Counter[str] = Counter()
        self._is_closing = trio.Event()
        self._is_empty = trio.Event()

    async def run(
        self, listeners: Sequence[trio.abc.Listener[Any]], grace: float, started: Callable[[HttpHost], None]
    ) -> None:
        """Listen and serve until cancelled; then end in order, for at most ``grace`` seconds. ``started`` is called."""
        with ungrouped():
            async with trio.open_nursery() as nursery:
                host = await nursery.start(self._serve, grace)
                try:
                    started(host)
                    await self._listen(listeners, host)
                finally:
                    self._is_closing.set()

    # What goes on after the cancellation, in order

    async def _serve(self, grace: float, *, task_status: trio.TaskStatus[HttpHost]) -> None:
        timekeeper = Timekeeper()
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as handlers:
                runtime = TrioRuntime(handlers)
                host = self._host(runtime, timekeeper)
                handlers.start_soon(timekeeper.run)
                tasks = self._server.tasks
                async with contextlib.nullcontext() if tasks is None else attached(tasks, runtime, self._state):
                    await self._connect(host, grace, task_status)
                handlers.cancel_scope.cancel()

    async def _connect(self, host: HttpHost, grace: float, task_status: trio.TaskStatus[HttpHost]) -> None:
        async with trio.open_nursery() as self._nursery:
            task_status.started(host)
            await self._is_closing.wait()
            host.close(grace)
            for connection in tuple(self._connections):
                connection.close()
            with trio.move_on_after(grace + LAST_WRITES / 2):
                while self._connections:
                    self._is_empty = trio.Event()
                    await self._is_empty.wait()
            self._nursery.cancel_scope.cancel()

    def _host(self, runtime: TrioRuntime, timekeeper: Timekeeper) -> HttpHost:
        host: HttpHost
        host = HttpHost(
            self._server,
            runtime,
            clock=trio.current_time,
            on_ready=_wake,
            on_deadline=lambda deadline: timekeeper.arm(host, deadline),
            report=report,
            options=self._http,
            state=self._state,
            on_connection=None if self._options.tap is None else self._watch,
            store=self._options.store,
            unanswered=self._options.unanswered,
        )
        return host

    def _watch(self, connection: ServerConnection) -> None:
        try:
            watch(connection, self._options.tap)
        except Exception as error:
            report("a tap cannot hear of a session", error)

    # Until then

    async def _listen(self, listeners: Sequence[trio.abc.Listener[Any]], host: HttpHost) -> None:
        try:
            async with trio.open_nursery() as nursery:
                for listener in listeners:
                    nursery.start_soon(self._accept, listener, host)
        finally:
            with trio.CancelScope(shield=True):
                for listener in listeners:
                    await listener.aclose()

    async def _accept(self, listener: trio.abc.Listener[trio.abc.Stream], host: HttpHost) -> None:
        while True:
            try:
                stream = await listener.accept()
            except trio.ClosedResourceError:
                return
            except OSError as error:
                report("a connection could not be accepted", error)
                await trio.sleep(ACCEPT_AGAIN)
                continue
            try:
                await self._find_room()
            except BaseException:
                await trio.aclose_forcefully(stream)
                raise
            self._nursery.start_soon(self._carry, stream, host)

    async def _find_room(self) -> None:
        """Wait for room for another connection; one between two requests makes room at once."""
        try:
            self._room.acquire_nowait()
        except trio.WouldBlock:
            resting = next((connection for connection in self._connections if connection.is_at_rest), None)
            if resting is not None:
                resting.abort()
            await self._room.acquire()

    # One connection

    async def _carry(self, stream: trio.abc.Stream, host: HttpHost) -> None:
        address = peer_address(stream)
        place = address[0] if isinstance(address, tuple) else ""
        self._addresses[place] += 1
        try:
            most = self._options.max_per_address
            if most is not None and self._addresses[place] > most:
                await trio.aclose_forcefully(stream)
            else:
                await self._talk(stream, address, host)
        finally:
            self._addresses[place] -= 1
            if not self._addresses[place]:
                del self._addresses[place]
            self._room.release()

    async def _talk(self, stream: trio.abc.Stream, address: Any, host: HttpHost) -> None:
        options, certificate = self._options, None
        if options.ssl_context is not None:
            secured = trio.SSLStream(stream, options.ssl_context, server_side=True, https_compatible=True)
            if not await shake_hands(secured, options.timeouts.head):
                await trio.aclose_forcefully(stream)
                return
            stream, certificate = secured, secured.getpeercert()
        connection = HttpConnection(
            stream,
            host,
            new_parser(options.parser, options.head_bytes),
            peer=HttpPeer(address, certificate or None),
            timeouts=options.timeouts,
            find_principal=options.find_principal,
        )
        self._connections[connection] = None
        try:
            if not self._is_closing.is_set():
                await connection.run()
        finally:
            del self._connections[connection]
            self._is_empty.set()


def _wake(exchange: Hashable) -> None:
    connection: HttpConnection
    connection, _ = exchange  # type: ignore[misc]  # the exchanges are named by connections
    connection.wake(exchange)
