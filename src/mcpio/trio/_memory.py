"""A client and a server in one process, joined without a transport: for tests of servers.

Real bytes pass both engines, but nothing waits for them: the output of one side is fed to the other at once.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import trio

from mcpio._checks import check_options, required
from mcpio._drivers import TapSource, attach_tap, lifespan_of, report
from mcpio._drivers.actor import handle_events
from mcpio.app.client import Client, ClientOptions, client_connection
from mcpio.app.runtime import checked_grace
from mcpio.app.session import SessionDriving
from mcpio.engine.connection import Connection
from mcpio.engine.table import Phase
from mcpio.trio._drivers import TrioClientContext, shake_hands
from mcpio.trio._interrupts import uninterruptible
from mcpio.trio._nurseries import ungrouped
from mcpio.trio._runtime import TrioRuntime
from mcpio.trio._timekeeper import Timekeeper

if TYPE_CHECKING:
    from mcpio.app.server import Server

__all__ = ["memory_client"]


def memory_client(
    server: Server, *, principal: Any = None, tap: TapSource | None = None, **options: Unpack[ClientOptions]
) -> TrioClientContext[Client]:
    """Async context manager that yields a client of a server in this process.

    The server's lifespan is entered for the block. When the client is closed, handlers that still run are cancelled,
    since no client is left to read their answers. ``principal`` is who the client acts for, such as a
    ``mcpio.auth.Grant``. ``tap`` is attached to the client's connection.
    """
    from mcpio.app.server import Server

    required("server", server, Server)
    return TrioClientContext(lambda nursery: _connect(server, nursery, options, principal, tap))


async def _connect(
    server: Server, nursery: trio.Nursery, options: ClientOptions, principal: Any, tap: TapSource | None
) -> Client:
    check_options(options, ClientOptions.__annotations__)
    client: Client = await nursery.start(_carry, server, options, principal, tap)
    return await shake_hands(client)


async def _carry(
    server: Server,
    options: ClientOptions,
    principal: Any,
    tap: TapSource | None,
    *,
    task_status: trio.TaskStatus[Client] = trio.TASK_STATUS_IGNORED,
) -> None:
    async with lifespan_of(server) as state:
        with ungrouped():
            async with trio.open_nursery() as nursery:
                near, far = client_connection(**options), server.connection(principal=principal, alone=True)
                attach_tap(near, tap, trio.current_time())
                pair = _Pair(near, far, nursery)
                client = Client(near, pair.near, **options)
                pair.near.driving = client.driving
                pair.far.driving = server.session(far, pair.far, state).driving
                task_status.started(client)
                await pair.run()
                nursery.cancel_scope.cancel()


@uninterruptible
class _Pair:
    """Two connections, each of which is fed the other's output.

    What marks an end is acted on at once, for there is nothing to wait for: a call takes the caller one turn of the
    loop. Only marks made on the way, by handlers, wait until the end that made them is asked again.
    """

    def __init__(self, near: Connection, far: Connection, nursery: trio.Nursery) -> None:
        runtime = TrioRuntime(nursery)
        self.near = MemoryEnd(near, self, runtime)
        self.far = MemoryEnd(far, self, runtime)
        self.near.peer, self.far.peer = self.far, self.near
        self.over = trio.Event()
        self.ended = trio.Event()
        self.timekeeper = Timekeeper()
        self._is_busy = False
        nursery.start_soon(self.timekeeper.run)

    async def run(self) -> None:
        """Wait until one side has ended, and end the other."""
        near, far = self.near, self.far
        try:
            await self.ended.wait()
        finally:
            with ExitStack() as steps:  # The last one pushed is taken first, each whatever another raises.
                steps.callback(self.over.set)
                steps.callback(far.wake)
                steps.callback(near.wake)
                steps.callback(far.connection.abort)
                steps.callback(near.connection.abort)
                # A client learns of its server's end as of any peer's; a server has no client left to answer.
                if far.connection.phase is Phase.CLOSED:
                    near.connection.receive_data(None, trio.current_time())
                    near.wake()

    def drain(self) -> None:
        """Drain the marked ends until both are quiet. An end that feeds its peer marks it; no other end is asked."""
        if self._is_busy:
            return
        near, far = self.near, self.far
        self._is_busy = True
        try:
            while near.is_marked or far.is_marked:
                while near.is_marked or far.is_marked:
                    (near if near.is_marked else far).drain()
                near.settle()
                far.settle()
        finally:
            self._is_busy = False


@uninterruptible
class MemoryEnd:
    """The driver of one of two sessions that are joined in memory."""

    driving: SessionDriving
    peer: MemoryEnd

    def __init__(self, connection: Connection, pair: _Pair, runtime: TrioRuntime) -> None:
        self.connection = connection
        self.runtime = runtime
        self.is_marked = False
        self._pair = pair

    def now(self) -> float:
        """Return Trio's time."""
        return trio.current_time()

    def wake(self) -> None:
        """Act on what there is to do, or, on the way, have it done when this end is asked next."""
        self.is_marked = True
        self._pair.drain()

    def close(self, grace: float) -> None:
        """Close gracefully, at the loop's next turn. Raises LocalProtocolError if ``grace`` makes no sense."""
        self.runtime.call_soon(partial(self._close, checked_grace(grace)))

    async def wait_closed(self) -> None:
        """Wait until both sides have ended."""
        await self._pair.over.wait()

    def report(self, message: str, error: BaseException | None) -> None:
        """Write to the log, under the name ``mcpio``."""
        report(message, error)

    def handle_timeout(self) -> None:
        """Let deadlines expire. The timekeeper calls this."""
        self.connection.handle_timeout(trio.current_time())
        self.wake()

    def drain(self) -> None:
        """Handle events, and feed the output to the peer."""
        connection = self.connection
        self.is_marked = False
        if handle_events(self.driving, connection, self.now):
            self.is_marked = True
        if connection.wants_write:
            self._feed(self.peer)
            self.is_marked = self.is_marked or connection.has_events  # What went out may have been the end.

    def settle(self) -> None:
        """Do what is due when both ends are quiet. It may mark this end once more."""
        self.driving.settle()
        self._pair.timekeeper.arm(self, self.connection.next_deadline())
        if self.connection.phase is Phase.CLOSED:
            self._pair.ended.set()

    def _feed(self, peer: MemoryEnd) -> None:
        now = trio.current_time()
        while chunks := self.connection.data_to_send():
            for chunk in chunks:
                peer.connection.receive_data(chunk, now)
        peer.is_marked = True

    def _close(self, grace: float | None) -> None:
        self.connection.close(trio.current_time(), grace=grace)
        self.wake()
