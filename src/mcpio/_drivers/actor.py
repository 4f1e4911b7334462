"""One session over one transport, whatever the event loop: a reader, a writer, and the rule that only the writer waits.

The engine is touched only in the loop's thread and only between two waits. A cancelled caller therefore becomes a
message of the protocol, never a torn frame, and closing is a call, not a task.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import ClassVar, Final, Protocol

from mcpio._drivers import report
from mcpio.app.runtime import Runtime, Spawned, checked_grace
from mcpio.app.session import Session
from mcpio.engine.connection import Connection
from mcpio.engine.table import Phase

__all__ = ["PIECE", "Actor", "Deadlines", "Flag", "TransportAdapter", "process"]

PIECE: Final = 8192
"""Bytes of a stream after which a session gives way to the others, and looks whether it still wants to read (P14)."""

LAST_READ: Final = 1.0
"""Seconds to go on reading when nothing can be written any more: the last answers of a peer that died may lie there."""

LAST_WORDS: Final = 0.5
"""Seconds that a cancelled block gives its peer to take note of that."""

TRANSPORT_CLOSE: Final = 1.0
"""Seconds for a transport to close politely before it is closed forcefully."""


class TransportAdapter(Protocol):
    """How a connection's bytes or messages travel over one kind of transport.

    It tells the connection, by ``set_unwritten``, how much of what it pulled is not written yet.
    """

    @property
    def unsent(self) -> bool:
        """Whether output was pulled from a connection and not written yet."""

    @property
    def ending(self) -> bool:
        """Whether the end in order was pulled, and it or what comes before it is not written yet."""

    async def receive(self, connection: Connection) -> None:
        """Wait for input and feed some of it: no more than can be acted on without holding up other sessions."""

    def send_now(self, connection: Connection) -> None:
        """Pull output and write what finds room, without waiting. The rest is for ``send``."""

    async def send(self, connection: Connection) -> None:
        """Write what is unsent, or else pull output and write it all."""

    def session_lost(self) -> None:
        """Take note that the session was lost, though the transport seems to work: use another, if there may be one."""

    async def aclose(self) -> None:
        """Close the transport."""


class Flag(Protocol):
    """Something that is set, and that a task waits for."""

    def set(self) -> object:
        """Wake whoever waits."""

    async def wait(self) -> object:
        """Wait until it is set."""


class Deadlines(Protocol):
    """What lets the deadlines of sessions expire. It never touches a transport, so no peer can hold it up."""

    def arm(self, timed: Actor, deadline: float | None) -> None:
        """Have ``handle_timeout`` called at that time, in place of an earlier one; ``None`` for never."""


class Actor(ABC):
    """Runs one session until its connection ends, and is its ``Driver``.

    Nothing that the peer or the transport does makes ``run`` raise. What is different between event loops is abstract.
    """

    _EXPECTED: ClassVar[tuple[type[Exception], ...]] = (OSError,)
    """How a transport says that it no longer works. Anything else that it raises is a fault in it, and is logged."""

    def __init__(
        self,
        connection: Connection,
        wire: TransportAdapter,
        deadlines: Deadlines,
        runtime: Runtime,
        *,
        signal: Callable[[], Flag],
        event: Callable[[], Flag],
        end_timeout: float | None = None,
    ) -> None:
        """``runtime`` runs the handlers. ``signal`` makes flags that waiting lowers again, ``event`` such as stay.

        ``end_timeout`` is how many seconds the peer's requests have when it has ended its side; ``None`` for ever.
        """
        self.connection = connection
        self.runtime = runtime
        self._wire = wire
        self._deadlines = deadlines
        self._may_read = signal()
        self._may_write = signal()
        self._ended = event()
        self._written = event()
        self._over = event()
        self._write_at_once = True
        self._unwritable: Exception | None = None
        self._end_timeout = end_timeout
        self._end_timer: Spawned | None = None

    def attach(self, session: Session, after_close: Callable[[], Awaitable[None]] | None = None) -> None:
        """Say who acts on events, before ``run``.

        ``after_close`` is awaited, shielded, when the transport is closed, before ``wait_closed`` returns.
        """
        self._session = session
        self._driving = session.driving
        self._after_close = after_close

    # The driver of the session: called between two waits, in the loop's thread

    @abstractmethod
    def now(self) -> float:
        """Return the loop's time."""

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
        self._driving.settle()
        if connection.has_room_for_deferred:
            # Whoever calls this may be in the middle of an event.
            self.runtime.call_soon(self.touch)
        self._deadlines.arm(self, connection.next_deadline())
        if connection.phase is Phase.CLOSED:
            # Its last events may still be there: whoever calls this may be in the middle of one. ``run`` sees to them.
            self._ended.set()
            self._may_write.set()

    def report(self, message: str, error: BaseException | None) -> None:
        """Write to the log, under the name ``mcpio``."""
        report(message, error)

    def handle_timeout(self) -> None:
        """Let deadlines expire. What keeps them calls this."""
        self.connection.handle_timeout(self.now())
        if self.connection.phase is Phase.NEW:
            self._wire.session_lost()
        self.touch()

    def touch(self) -> None:
        """Act on what the connection has to say. Due after everything that may have given it an event."""
        connection = self.connection
        process(self._session)
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
        self.runtime.call_soon(partial(self._close, checked_grace(grace)))

    async def wait_closed(self) -> None:
        """Wait until the connection has ended, the transport is closed and ``after_close`` is done."""
        await self._over.wait()

    # The tasks

    @abstractmethod
    async def run(self) -> None:
        """Carry the session until its connection ends; then close the transport."""

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
            if connection.input_ended and self._end_timeout is not None:
                # A peer that is gone looks like one that waits for its answers.
                self._end_timer = self.runtime.call_later(self._end_timeout, partial(self._close, 0))
            if self._unwritable is not None and not self.connection.wants_read:
                # The input has ended too: there is nothing to wait for.
                self._lose(self._unwritable)
                self.touch()

    async def _write(self) -> None:
        connection, wire = self.connection, self._wire
        while not connection.closed or wire.unsent:
            while not connection.wants_write and not wire.unsent and not connection.closed:
                await self._may_write.wait()
            try:
                await wire.send(connection)
            except Exception as error:
                self._unwritable = error
                if connection.wants_read:
                    await self._wait_ended(LAST_READ)
                self._lose(error)
                break
            self.touch()
        self.touch()
        self._written.set()

    async def _end(self) -> None:
        """Leave nothing behind, whatever brought us here. Bounded but for ``after_close``.

        Each step is taken though an earlier one is cut off by a second cancellation, or raises what ends the program.
        """
        async with AsyncExitStack() as steps:  # the last is taken first
            steps.callback(self._over.set)
            if self._end_timer is not None:
                steps.callback(self._end_timer.cancel)
            if self._after_close is not None:
                steps.push_async_callback(self._in_time, None, "cleaning up after a session failed", self._after_close)
            steps.push_async_callback(self._in_time, TRANSPORT_CLOSE, "closing the transport failed", self._wire.aclose)
            # Whoever waits for an answer hears that none comes.
            steps.callback(self.touch)
            steps.callback(self.connection.abort)
            async with self._last_moment(LAST_WORDS):
                await self._say_what_is_left()

    async def _say_what_is_left(self) -> None:
        """In a cancelled block: tell the peer which requests nobody waits for any more, so that it stops with them."""
        # The callers of those requests are cancelled in this turn of the loop.
        await self.runtime.sleep(0)
        self.touch()
        # Where the writer was cancelled in the middle of a message, nothing can follow.
        if self.connection.wants_write and not self._wire.unsent:
            with contextlib.suppress(Exception):
                await self._wire.send(self.connection)

    async def _in_time(self, seconds: float | None, message: str, close: Callable[[], Awaitable[None]]) -> None:
        try:
            async with self._last_moment(seconds):
                await close()
        except Exception as error:
            self.report(message, error)

    def _lose(self, error: Exception) -> None:
        """Note that the transport no longer works."""
        if not isinstance(error, self._EXPECTED):
            self.report("the transport failed", error)
        self.connection.connection_lost(error, self.now())

    def _close(self, grace: float | None) -> None:
        now = self.now()
        if grace is not None:
            self._end_writing_by(now + grace)
        self.connection.close(now, grace=grace)
        self.touch()

    # What event loops do in different ways

    @abstractmethod
    async def _wait_ended(self, seconds: float) -> None:
        """Wait for the end of the connection, at most so long."""

    @abstractmethod
    def _end_writing_by(self, deadline: float) -> None:
        """Have ``run`` not wait any longer than that for the last output to get out."""

    @abstractmethod
    def _last_moment(self, seconds: float | None) -> AbstractAsyncContextManager[None]:
        """Return a block that takes so many seconds at most, and that no cancellation cuts off which has come."""


def process(session: Session) -> None:
    """Have a session act on its events. What it cannot do costs its connection, and nobody else anything."""
    driving = session.driving
    while True:
        try:
            driving.process()
        except Exception as error:
            report("a session failed", error)
            # What is left of its events, one less each time: how its requests ended, and that it is over.
            session.connection.abort(error)
        else:
            return
