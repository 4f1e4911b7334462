"""A client and a server in one process, joined without a transport: for tests of people's own servers.

Real bytes go through both engines, but nothing waits for them: what one side has to say is fed to the other at once.
"""

from __future__ import annotations

from typing import Unpack

import trio

from mcpio.app.client import Client, ClientOptions, client_connection
from mcpio.app.server import Server
from mcpio.app.session import Session
from mcpio.engine.connection import Connection
from mcpio.trio._drivers import Opened, lifespan_of
from mcpio.trio._runtime import TrioRuntime
from mcpio.trio._session import report
from mcpio.trio._timekeeper import Timekeeper

__all__ = ["memory_client"]


def memory_client(server: Server, **options: Unpack[ClientOptions]) -> Opened:
    """Give a client of a server in this process, for a block: ``async with memory_client(server) as client``.

    The server's lifespan is entered for the block.
    """
    return Opened(lambda nursery: _connect(server, nursery, options))


async def _connect(server: Server, nursery: trio.Nursery, options: ClientOptions) -> Client:
    client: Client = await nursery.start(_carry, server, options)
    await client.initialize()
    return client


async def _carry(
    server: Server, options: ClientOptions, *, task_status: trio.TaskStatus[Client] = trio.TASK_STATUS_IGNORED
) -> None:
    timekeeper = Timekeeper()
    async with lifespan_of(server) as state, trio.open_nursery() as nursery:
        nursery.start_soon(timekeeper.run)
        runtime = TrioRuntime(nursery)
        near_connection, far_connection = client_connection(**options), server.connection()
        near, far = MemoryEnd(near_connection, timekeeper, runtime), MemoryEnd(far_connection, timekeeper, runtime)
        near.peer, far.peer = far, near
        client = Client(near_connection, near, **options)
        near.session, far.session = client, server.session(far_connection, far, state)
        task_status.started(client)
        try:
            await near.over.wait()
            await far.over.wait()
        finally:
            for end in (near, far):
                end.connection.abort()
                end.wake()
        nursery.cancel_scope.cancel()


class MemoryEnd:
    """The driver of one of two sessions that are joined in memory."""

    peer: MemoryEnd
    session: Session

    def __init__(self, connection: Connection, timekeeper: Timekeeper, runtime: TrioRuntime) -> None:
        self.connection = connection
        self.runtime = runtime
        self.over = trio.Event()
        self._timekeeper = timekeeper
        self._token = trio.lowlevel.current_trio_token()
        self.pumping = False

    def now(self) -> float:
        """Return Trio's time."""
        return trio.current_time()

    def wake(self) -> None:
        """Move what either side has to say, until both are quiet."""
        if self.pumping or self.peer.pumping:
            return
        self.pumping = True
        try:
            while self.move() | self.peer.move():
                pass
        finally:
            self.pumping = False
        self.settle()
        self.peer.settle()

    def close(self, grace: float) -> None:
        """Close in order, at the loop's next turn."""
        try:
            self._token.run_sync_soon(self._close, grace)
        except trio.RunFinishedError:
            return

    async def wait_closed(self) -> None:
        """Wait until both sides have ended."""
        await self.over.wait()
        await self.peer.over.wait()

    def report(self, message: str, error: BaseException | None) -> None:
        """Write to the log, under the name ``mcpio``."""
        report(message, error)

    def handle_timeout(self) -> None:
        """Let deadlines expire. The timekeeper calls this."""
        self.connection.handle_timeout(trio.current_time())
        self.wake()

    def move(self) -> bool:
        """Act on events, and feed the peer what there is; tell whether there was anything."""
        self.session.process()
        chunks = self.connection.data_to_send()
        if not chunks:
            return False
        now = trio.current_time()
        for chunk in chunks:
            self.peer.connection.receive_data(chunk, now)
        self.peer.session.process()
        self.session.process()
        return True

    def settle(self) -> None:
        """Take note of the deadline and of the end."""
        self._timekeeper.arm(self, self.connection.next_deadline())
        if self.connection.closed:
            self.over.set()

    def _close(self, grace: float) -> None:
        self.connection.close(trio.current_time(), grace)
        self.wake()
