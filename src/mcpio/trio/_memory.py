"""A client and a server in one process, joined without a transport: for tests of people's own servers.

Real bytes go through both engines, but nothing waits for them: what one side has to say is fed to the other at once.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Unpack

import trio

from mcpio._checks import check_options, required
from mcpio._drivers import TapSource, attach_tap, lifespan_of, report
from mcpio._drivers.actor import process
from mcpio.app.client import Client, ClientOptions, client_connection
from mcpio.app.runtime import checked_grace
from mcpio.app.session import Session
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
    server: Server, *, tap: TapSource | None = None, **options: Unpack[ClientOptions]
) -> TrioClientContext[Client]:
    """Give a client of a server in this process, for a block: ``async with memory_client(server) as client``.

    The server's lifespan is entered for the block. When the client is closed, the handlers that still run are
    cancelled: nobody is left to read their answers. ``tap`` is put on the client's connection.
    """
    from mcpio.app.server import Server

    required("server", server, Server)
    return TrioClientContext(lambda nursery: _connect(server, nursery, options, tap))


async def _connect(server: Server, nursery: trio.Nursery, options: ClientOptions, tap: TapSource | None) -> Client:
    check_options(options, ClientOptions.__annotations__)
    client: Client = await nursery.start(_carry, server, options, tap)
    return await shake_hands(client)


async def _carry(
    server: Server,
    options: ClientOptions,
    tap: TapSource | None,
    *,
    task_status: trio.TaskStatus[Client] = trio.TASK_STATUS_IGNORED,
) -> None:
    async with lifespan_of(server) as state:
        with ungrouped():
            async with trio.open_nursery() as nursery:
                near, far = client_connection(**options), server.connection(alone=True)
                attach_tap(near, tap, trio.current_time())
                pair = _Pair(near, far, nursery)
                pair.near.session = client = Client(near, pair.near, **options)
                pair.far.session = server.session(far, pair.far, state)
                task_status.started(client)
                await pair.run()
                nursery.cancel_scope.cancel()


@uninterruptible
class _Pair:
    """Two connections, each of which is fed what the other has to say."""

    def __init__(self, near: Connection, far: Connection, nursery: trio.Nursery) -> None:
        runtime = TrioRuntime(nursery)
        self.near = MemoryEnd(near, self, runtime)
        self.far = MemoryEnd(far, self, runtime)
        self.over = trio.Event()
        self._ended = trio.Event()
        self._timekeeper = Timekeeper()
        self._pumping = False
        nursery.start_soon(self._timekeeper.run)

    async def run(self) -> None:
        """Wait until one side has ended, and end the other."""
        try:
            await self._ended.wait()
        finally:
            with ExitStack() as steps:  # the last is taken first, and each whatever another raises
                steps.callback(self.over.set)
                steps.callback(self.pump)
                steps.callback(self.far.connection.abort)
                steps.callback(self.near.connection.abort)
                # A client hears of its server's end as of any peer's; a server has nobody left to answer.
                if self.far.connection.phase is Phase.CLOSED:
                    self.near.connection.receive_data(None, trio.current_time())
                    self.pump()

    def pump(self) -> None:
        """Move what either side has to say, until both are quiet."""
        if self._pumping:
            return
        self._pumping = True
        try:
            moved = True
            while moved:
                process(self.near.session)
                process(self.far.session)
                moved = self._move(self.near, self.far) | self._move(self.far, self.near)
        finally:
            self._pumping = False
        for end in (self.near, self.far):
            self._timekeeper.arm(end, end.connection.next_deadline())
            end.session.driving.settle()
            if end.connection.phase is Phase.CLOSED:
                self._ended.set()

    def _move(self, source: MemoryEnd, target: MemoryEnd) -> bool:
        """Feed one side what the other has to say; tell whether there was anything."""
        chunks = source.connection.data_to_send()
        if not chunks:
            return False
        now = trio.current_time()
        for chunk in chunks:
            target.connection.receive_data(chunk, now)
        return True


@uninterruptible
class MemoryEnd:
    """The driver of one of two sessions that are joined in memory."""

    session: Session

    def __init__(self, connection: Connection, pair: _Pair, runtime: TrioRuntime) -> None:
        self.connection = connection
        self.runtime = runtime
        self._pair = pair
        self._token = trio.lowlevel.current_trio_token()

    def now(self) -> float:
        """Return Trio's time."""
        return trio.current_time()

    def wake(self) -> None:
        """Move what either side has to say."""
        self._pair.pump()

    def close(self, grace: float) -> None:
        """Close in order, at the loop's next turn. ``LocalProtocolError`` for a grace that makes no sense."""
        limit = checked_grace(grace)
        try:
            self._token.run_sync_soon(self._close, limit)
        except trio.RunFinishedError:
            return

    async def wait_closed(self) -> None:
        """Wait until both sides have ended."""
        await self._pair.over.wait()

    def report(self, message: str, error: BaseException | None) -> None:
        """Write to the log, under the name ``mcpio``."""
        report(message, error)

    def handle_timeout(self) -> None:
        """Let deadlines expire. The timekeeper calls this."""
        self.connection.handle_timeout(trio.current_time())
        self._pair.pump()

    def _close(self, grace: float | None) -> None:
        self.connection.close(trio.current_time(), grace=grace)
        self._pair.pump()
