# ruff: noqa: SLF001 - sessions have methods for drivers that programs have no use for
"""A client and a server in one process, joined without a transport: for tests of servers.

Real bytes pass both engines, but nothing waits for them: the output of one side is fed to the other at once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

from mcpio._drivers import TapSource, attach_tap, lifespan_of, report
from mcpio._drivers.actor import handle_events, name_stubborn_handlers
from mcpio._drivers.event_loop import Deadlines, EventLoop
from mcpio.app.client import Client, ClientOptions, client_connection
from mcpio.app.runtime import Runtime, checked_grace
from mcpio.app.server import Server
from mcpio.app.session import Session
from mcpio.engine.connection import Connection
from mcpio.engine.table import Phase


async def carry_in_memory(
    loop: EventLoop,
    server: Server,
    options: ClientOptions,
    principal: Any,
    tap: TapSource | None,
    *,
    started: Callable[[Client], object],
) -> None:
    """Run a client and its session of ``server`` until one of them ends. ``started`` is called with the client."""
    async with lifespan_of(server) as state, loop.group() as runtime:
        deadlines = loop.timekeeper(runtime)
        try:
            pair = MemoryPair(server, state, options, principal, tap, loop, deadlines, runtime)
            started(pair.client)
            await pair.run()
        finally:
            deadlines.stop()


class MemoryPair:
    """Two connections, each of which is fed the other's output.

    What marks an end is acted on at once, for there is nothing to wait for: a call takes the caller one turn of the
    loop. Only marks made on the way, by handlers, wait until the end that made them is asked again.
    """

    def __init__(
        self,
        server: Server,
        state: Any,
        options: ClientOptions,
        principal: Any,
        tap: TapSource | None,
        loop: EventLoop,
        deadlines: Deadlines,
        runtime: Runtime,
    ) -> None:
        """Join a new client to a new session of ``server``, whose lifespan gave ``state``."""
        near, far = client_connection(**options), server.connection(principal=principal, alone=True)
        attach_tap(near, tap, loop.now())
        self.near = MemoryEnd(near, self, runtime)
        self.far = MemoryEnd(far, self, runtime)
        self.near.peer, self.far.peer = self.far, self.near
        self.loop: Final = loop
        self.deadlines: Final = deadlines
        self.over = loop.event()
        self.ended = loop.event()
        self._is_busy = False
        self.client = Client(near, self.near, **options)
        self.near.session = self.client
        self.far.session = server.session(far, self.far, state)

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
                    near.connection.receive_data(None, self.loop.now())
                    near.wake()
            await name_stubborn_handlers(self.loop, near.session, far.session)

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


class MemoryEnd:
    """The driver of one of two sessions that are joined in memory."""

    session: Session
    peer: MemoryEnd

    def __init__(self, connection: Connection, pair: MemoryPair, runtime: Runtime) -> None:
        self.connection = connection
        self.runtime = runtime
        self.is_marked = False
        self._is_awaited = False
        """Whether output of the peer waits until this end reads again."""
        self._pair = pair

    @property
    def is_full(self) -> bool:
        """Whether this end does not read for now."""
        connection = self.connection
        return not (connection.wants_read or connection.input_ended or connection.phase is Phase.CLOSED)

    def now(self) -> float:
        """Return the loop's time."""
        return self._pair.loop.now()

    def wake(self) -> None:
        """Process pending work, or let the turn that is running do it."""
        self.is_marked = True
        self._pair.drain()

    def close(self, grace: float) -> None:
        """Close gracefully, at the loop's next turn. Raises LocalProtocolError for an invalid ``grace``."""
        self.runtime.call_soon(partial(self._close, checked_grace(grace)))

    async def wait_closed(self) -> None:
        """Wait until both sides have ended."""
        await self._pair.over.wait()

    def report(self, message: str, error: BaseException | None) -> None:
        """Write to the log, under the name ``mcpio``."""
        report(message, error)

    def handle_timeout(self) -> None:
        """Handle expired deadlines. The timekeeper calls this."""
        self.connection.handle_timeout(self._pair.loop.now())
        self.wake()

    def drain(self) -> None:
        """Handle events, and feed the output to the peer."""
        connection = self.connection
        self.is_marked = False
        if handle_events(self.session, connection, self.now):
            self.is_marked = True
        if self._is_awaited and not self.is_full:
            self._is_awaited = False
            self.peer.is_marked = True
        if connection.wants_write:
            self._feed(self.peer)
            self.is_marked = self.is_marked or connection.has_events  # The output that went out may have been the end.

    def settle(self) -> None:
        """Do the work that is due when both ends are quiet. It may mark this end once more."""
        self.session._settle()
        self._pair.deadlines.arm(self, self.connection.next_deadline())
        if self.connection.phase is Phase.CLOSED:
            self._pair.ended.set()

    def _feed(self, peer: MemoryEnd) -> None:
        now = self._pair.loop.now()
        while not (is_full := peer.is_full) and (chunks := self.connection.data_to_send()):
            for chunk in chunks:
                peer.connection.receive_data(chunk, now)
        peer.is_marked, peer._is_awaited = True, is_full

    def _close(self, grace: float | None) -> None:
        self.connection.close(self._pair.loop.now(), grace=grace)
        self.wake()
