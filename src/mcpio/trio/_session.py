"""One session over one transport: a reader, a writer, and the rule that only the writer waits to write.

The engine is touched only in Trio's thread and only between two checkpoints. A cancelled caller therefore becomes a
message of the protocol, never a torn frame, and closing is a call, not a task.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from mcpio._driving import report
from mcpio.app.runtime import checked_grace
from mcpio.app.session import Session
from mcpio.engine.connection import Connection
from mcpio.engine.table import Phase
from mcpio.trio._runtime import TrioRuntime
from mcpio.trio._timekeeper import Signal, Timekeeper
from mcpio.trio._wire import Wire

__all__ = ["SessionActor", "process"]

EXPECTED: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)
"""How a transport says that it no longer works. Anything else that it raises is a fault in it, and is logged."""

LAST_READ: Final = 1.0
"""Seconds to go on reading when nothing can be written any more: the last answers of a peer that died may lie there."""

LAST_WORDS: Final = 0.5
"""Seconds that a cancelled block gives its peer to take note of that."""

TRANSPORT_CLOSE: Final = 1.0
"""Seconds for a transport to close politely before it is closed forcefully."""


class SessionActor:
    """Runs one session until its connection ends, and is its ``Driver``.

    Nothing that the peer or the transport does makes ``run`` raise. ``runtime`` runs the handlers.
    """

    def __init__(
        self,
        connection: Connection,
        wire: Wire,
        timekeeper: Timekeeper,
        runtime: TrioRuntime,
    ) -> None:
        self.connection = connection
        self.runtime = runtime
        self._wire = wire
        self._timekeeper = timekeeper
        self._token = trio.lowlevel.current_trio_token()
        self._may_read = Signal()
        self._may_write = Signal()
        self._ended = trio.Event()
        self._written = trio.Event()
        self._over = trio.Event()
        self._last_write = trio.CancelScope()
        self._write_at_once = True

    def attach(self, session: Session, after_close: Callable[[], Awaitable[None]] | None = None) -> None:
        """Say who acts on events, before ``run``.

        ``after_close`` is awaited, shielded, when the transport is closed, before ``wait_closed`` returns.
        """
        self._session = session
        self._after_close = after_close

    # The driver of the session: called between checkpoints, in Trio's thread

    def now(self) -> float:
        """Return Trio's time."""
        return trio.current_time()

    def wake(self) -> None:
        """Look at the connection again."""
        connection = self.connection
        if self._write_at_once and connection.wants_write:
            # Once for each read: what answers it saves a turn of the loop, and what comes with it goes out together.
            self._write_at_once = False
            self._wire.send_now(connection)
        if connection.wants_write or self._wire.unsent:
            self._may_write.set()
        if connection.wants_read:
            self._may_read.set()
        self._timekeeper.arm(self, connection.next_deadline())
        if connection.phase is Phase.CLOSED:
            # Its last events may still be there: whoever calls this may be in the middle of one. ``run`` sees to them.
            self._ended.set()
            self._may_write.set()

    def report(self, message: str, error: BaseException | None) -> None:
        """Write to the log, under the name ``mcpio``."""
        report(message, error)

    def handle_timeout(self) -> None:
        """Let deadlines expire. The timekeeper calls this."""
        self.connection.handle_timeout(trio.current_time())
        if self.connection.phase is Phase.NEW:
            self._wire.renew()
        self.touch()

    def touch(self) -> None:
        """Act on what the connection has to say. Due after everything that may have given it an event."""
        process(self._session)
        connection = self.connection
        if connection.wants_write:
            self._wire.send_now(connection)
            if connection.phase is Phase.CLOSED:
                process(self._session)
        self.wake()

    # Called from anywhere

    def close(self, grace: float) -> None:
        """Close in order. It takes effect at the loop's next turn, so that a signal handler may call it too.

        Raises ``LocalProtocolError`` for a ``grace`` that is no number of 0 or more.
        """
        limit = checked_grace(grace)
        try:
            self._token.run_sync_soon(self._close, limit)
        except trio.RunFinishedError:
            return

    async def wait_closed(self) -> None:
        """Wait until the connection has ended, the transport is closed and ``after_close`` is done."""
        await self._over.wait()

    # The tasks

    async def run(self) -> None:
        """Carry the session until its connection ends; then close the transport."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read)
                nursery.start_soon(self._write)
                self.touch()
                await self._ended.wait()
                self.touch()
                await self._finish_writing()
                nursery.cancel_scope.cancel()
        finally:
            await self._end()

    async def _read(self) -> None:
        connection = self.connection
        while True:
            while not connection.wants_read:
                await self._may_read.wait()
            try:
                await self._wire.receive(connection)
            except Exception as error:
                self._lose(error)
            self.touch()
            self._write_at_once = True

    async def _write(self) -> None:
        connection, wire = self.connection, self._wire
        while not connection.closed or wire.unsent:
            while not connection.wants_write and not wire.unsent and not connection.closed:
                await self._may_write.wait()
            try:
                await wire.send(connection)
            except Exception as error:
                with trio.move_on_after(LAST_READ):
                    await self._ended.wait()
                self._lose(error)
                break
            self.touch()
        self.touch()
        self._written.set()

    async def _finish_writing(self) -> None:
        """Wait for the last output to get out: as long as the peer takes, or until the grace of ``close`` is over."""
        if self._wire.ending:
            with self._last_write:
                await self._written.wait()

    async def _end(self) -> None:
        """Leave nothing behind, whatever brought us here. Shielded, and bounded but for ``after_close``."""
        try:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + LAST_WORDS):
                await self._say_what_is_left()
            self.connection.abort()
            self.touch()
            with trio.CancelScope(shield=True, deadline=trio.current_time() + TRANSPORT_CLOSE):
                await self._reporting("closing the transport failed", self._wire.aclose)
            if self._after_close is not None:
                with trio.CancelScope(shield=True):
                    await self._reporting("cleaning up after a session failed", self._after_close)
        finally:
            self._over.set()

    async def _say_what_is_left(self) -> None:
        """In a cancelled block: tell the peer which requests nobody waits for any more, so that it stops with them."""
        # The callers of those requests are cancelled in this turn of the loop.
        await trio.lowlevel.checkpoint()
        self.touch()
        # Where the writer was cancelled in the middle of a message, nothing can follow.
        if self.connection.wants_write and not self._wire.unsent:
            with contextlib.suppress(Exception):
                await self._wire.send(self.connection)

    async def _reporting(self, message: str, close: Callable[[], Awaitable[None]]) -> None:
        try:
            await close()
        except Exception as error:
            self.report(message, error)

    def _lose(self, error: Exception) -> None:
        """Note that the transport no longer works."""
        if not isinstance(error, EXPECTED):
            self.report("the transport failed", error)
        self.connection.connection_lost(error, trio.current_time())

    def _close(self, grace: float | None) -> None:
        now = trio.current_time()
        if grace is not None:
            self._last_write.deadline = min(self._last_write.deadline, now + grace)
        self.connection.close(now, grace)
        self.touch()


def process(session: Session) -> None:
    """Have a session act on its events. What it cannot do costs its connection, and nobody else anything."""
    try:
        session.process()
    except Exception as error:
        report("a session failed", error)
        session.connection.abort(error)
        # What is left of its events: how its requests ended, and that it is over.
        session.process()
