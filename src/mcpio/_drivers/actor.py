# ruff: noqa: SLF001 - sessions have methods for drivers that programs have no use for
"""The actor of a session, and the tasks that it hosts."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from mcpio._drivers import report
from mcpio._drivers.event_loop import (
    FINAL_READ_TIMEOUT,
    FINAL_WRITE_TIMEOUT,
    STORE_TIMEOUT,
    TRANSPORT_CANCEL_TIMEOUT,
    TRANSPORT_CLOSE_TIMEOUT,
    Deadlines,
    EventLoop,
    reason_of,
)
from mcpio.app.runtime import Runtime, Spawned, checked_grace, failure_of
from mcpio.app.session import HANDLER_CANCEL_TIMEOUT, Session
from mcpio.engine.connection import Connection
from mcpio.engine.table import Phase

if TYPE_CHECKING:
    from mcpio.app.server import Server


# ---------------------------------------------------------------------------------------------------------------- actor
# The actor of a session, on every event loop: a reader, a writer, and one drain per turn of the loop.
# The engine is touched only in the loop's thread and only between two waits, so a cancelled caller becomes a protocol
# message, never a torn frame, and closing is a call, not a task.
# Whatever happens to the session between two waits only marks it (``wake``). A *turn* then acts on it once: it handles
# the events, writes what finds room, and arms the deadline. Turns are never nested: ``run`` takes one for a mark, and
# the reader one for its input, which saves a turn of the loop. Both have nothing else on their stacks.

EVENTS_PER_TURN: Final = 32
"""Events that a session handles before it gives way to the others (P14)."""

WORK_PER_TURN: Final = 0.001
"""Seconds after which it gives way too, where its handlers are slow. The clock is read after every 8 events, and after
each whose next may block."""

FILE_FAULTS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of writing to a file, which has no peer that would miss the answers."""


class TransportAdapter(Protocol):
    """Carries a connection's bytes or messages over one kind of transport.

    It reports to the connection, by ``set_unwritten``, how much of the output that it pulled is not written yet.
    """

    @property
    def unsent(self) -> bool:
        """Whether output was pulled from the connection and not written yet."""

    @property
    def ending(self) -> bool:
        """Whether the graceful end was pulled, and it or the output before it is not written yet."""

    async def receive(self, connection: Connection) -> None:
        """Wait for input and feed it, at most about 64 KiB at a time."""

    def send_now(self, connection: Connection) -> None:
        """Pull output and write what finds room, without waiting. ``send`` writes the rest."""

    async def send(self, connection: Connection) -> None:
        """Write unsent output, or else pull output and write all of it."""

    def session_lost(self) -> None:
        """Note that the session was lost although the transport seems to work: use another transport, if possible."""

    async def aclose(self) -> None:
        """Close the transport."""


class Actor:
    """Runs one session until its connection ends; the session's ``Driver``.

    Nothing that the peer or the transport does makes ``run`` raise.
    """

    def __init__(
        self,
        connection: Connection,
        adapter: TransportAdapter,
        deadlines: Deadlines,
        runtime: Runtime,
        loop: EventLoop,
        *,
        end_timeout: float | None = None,
        owns_deadlines: bool = False,
    ) -> None:
        """``runtime`` runs the handlers. ``deadlines`` that the actor owns are stopped at its end.

        ``end_timeout`` is how many seconds the peer's requests have after it ended its side; ``None`` for no limit.
        """
        self.connection = connection
        self.runtime = runtime
        self.now = loop.now
        self._loop = loop
        self._adapter = adapter
        self._deadlines = deadlines
        self._owns_deadlines = owns_deadlines
        self._due = loop.signal()
        self._may_read = loop.signal()
        self._may_write = loop.signal()
        self._ended = loop.event()
        self._written = loop.event()
        self._over = loop.event()
        self._released = loop.event()
        self._pumps = 2
        self._is_closed = False
        self._last_write = loop.scope()
        self._is_marked = False
        self._is_fresh = True
        self._is_paused = False
        self._has_more = False
        self._unwritable: Exception | None = None
        self._end_timeout = end_timeout
        self._end_timer: Spawned | None = None

    def attach(self, session: Session, after_close: Callable[[], Awaitable[None]] | None = None) -> None:
        """Set the session that handles the events, before ``run``.

        ``after_close`` is awaited, shielded, after the transport is closed and before ``wait_closed`` returns.
        """
        self._session = session
        self._after_close = after_close

    # The driver of the session: called between two waits, in the loop's thread

    def wake(self) -> None:
        """Mark the session: the next turn looks at its connection."""
        if self._is_marked:
            return
        self._is_marked = True
        if self._is_fresh:
            # The first output after input is written at once, which saves the one answer that a peer waits for a turn
            # of the loop (about 14 us of 95). Output that follows before the next input goes out together.
            self._is_fresh = False
            self._flush()
        else:
            self._due.set()

    def report(self, message: str, error: BaseException | None) -> None:
        """Write to the log, under the name ``mcpio``."""
        report(message, error)

    def handle_timeout(self) -> None:
        """Handle expired deadlines. The timekeeper calls this."""
        self.connection.handle_timeout(self.now())
        if self.connection.phase is Phase.NEW:
            self._adapter.session_lost()
        self.wake()

    # Called from anywhere

    def close(self, grace: float) -> None:
        """Close gracefully. Takes effect at the loop's next turn, so a signal handler may call it too.

        Raises LocalProtocolError if ``grace`` is not a number of 0 or more.
        """
        self.runtime.call_soon(partial(self._close, checked_grace(grace)))

    async def wait_closed(self) -> None:
        """Wait until the connection has ended, the transport is closed and ``after_close`` is done."""
        await self._over.wait()

    # The turn

    def _turn(self) -> None:
        """Handle events, write what finds room, and arm the deadline.

        Due after everything that may have changed the connection.
        """
        # A handler that marks the session asks for a turn, and this is one.
        self._is_marked = True
        self._has_more = handle_events(self._session, self.connection, self.now, self._adapter.send_now)
        self._flush()

    def _flush(self) -> None:
        """Do the part of a turn after the events. Each property of the connection is read once, since each costs."""
        connection, adapter = self.connection, self._adapter
        had_output = connection.wants_write
        if had_output:
            adapter.send_now(connection)
        self._session._settle()
        # Output that went out may have been the end, or have made room for a request that was put aside.
        if connection.has_events:
            self._has_more = True
        self._is_marked = self._has_more
        if self._has_more:
            self._due.set()
        elif self._is_paused and connection.wants_read:
            self._may_read.set()
        if adapter.unsent or (had_output and connection.wants_write):
            self._may_write.set()
        self._deadlines.arm(self, connection.next_deadline())
        if connection.phase is Phase.CLOSED:
            self._ended.set()
            self._may_write.set()
            self._due.set()

    # The tasks

    async def run(self) -> None:
        """Run the session until its connection ends; then close the transport."""
        try:
            # Nothing may be read before the session is with its owner.
            await self._loop.checkpoint()
            async with self._loop.group() as tasks:
                pumps = [tasks.spawn(self._read()), tasks.spawn(self._write())]
                try:
                    await self._take_turns()
                    await self._finish_writing()
                finally:
                    for pump in pumps:
                        pump.cancel()
                    await self._release_transport()
        finally:
            await self._end()

    async def _take_turns(self) -> None:
        """Take a turn for each mark, until the last event of the connection was handled."""
        while not self.connection.closed:
            self._turn()
            await self._due.wait()
        self._turn()

    async def _finish_writing(self) -> None:
        """Wait until the last output is written: without limit, or until the grace of ``close`` expires."""
        if self._adapter.ending:
            with self._last_write:
                await self._written.wait()

    async def _read(self) -> None:
        """Pump input into the connection until it ends. Never reads while events wait to be handled."""
        with self._pumping():
            connection = self.connection
            while True:
                # Input is acted on before more is read: what a session holds is bounded by one read.
                while self._has_more or not connection.wants_read:
                    self._is_paused = True
                    await self._may_read.wait()
                self._is_paused = False
                try:
                    await self._adapter.receive(connection)
                except Exception as error:
                    self._lose(error)
                self._turn()
                self._is_fresh = True
                if self._end_timeout is not None and connection.input_ended:
                    # A peer that is gone looks like one that waits for its answers.
                    self._end_timer = self.runtime.call_later(self._end_timeout, partial(self._close, 0))
                if self._unwritable is not None and not self.connection.wants_read:
                    # Input has ended too: there is nothing left to wait for.
                    self._lose(self._unwritable)
                    self._turn()

    async def _write(self) -> None:
        """Pump output to the transport until the connection is closed and everything is written."""
        with self._pumping():
            connection, adapter = self.connection, self._adapter
            while not connection.closed or adapter.unsent:
                while not connection.wants_write and not adapter.unsent and not connection.closed:
                    await self._may_write.wait()
                try:
                    await adapter.send(connection)
                except Exception as error:
                    self._unwritable = error
                    cause = error.__cause__ or error
                    if isinstance(cause, OSError) and cause.errno in FILE_FAULTS:
                        self.report(f"the output cannot be written: {reason_of(error)}", None)
                    if connection.wants_read:
                        # A peer that stopped reading may still have sent its last answers: read them before giving up.
                        with self._loop.scope(FINAL_READ_TIMEOUT):
                            await self._ended.wait()
                    self._lose(error)
                    break
                # Output that was written may have made room for requests that were put aside.
                self.wake()
            self.wake()
            self._written.set()

    async def _end(self) -> None:
        """Release everything, however the session ended. Bounded in time except for ``after_close``.

        Each step is taken even if an earlier one is cut off by a second cancellation, or raises an exception that ends
        the program.
        """
        async with AsyncExitStack() as steps:  # The last one pushed is taken first.
            if self._owns_deadlines:
                steps.callback(self._deadlines.stop)
            steps.push_async_callback(name_stubborn_handlers, self._loop, self._session)
            steps.callback(self._over.set)
            if self._end_timer is not None:
                steps.callback(self._end_timer.cancel)
            if self._after_close is not None:
                steps.push_async_callback(self._in_time, None, "cleaning up after a session failed", self._after_close)
            steps.push_async_callback(self._close_transport)
            # Callers that wait for an answer learn that none comes.
            steps.callback(self._finish_events)
            steps.callback(self.connection.abort)
            async with self._loop.last_moment(FINAL_WRITE_TIMEOUT):
                await self._send_cancellations()

    @contextlib.contextmanager
    def _pumping(self) -> Iterator[None]:
        """Record that the reading or the writing task has ended. A failure of it ends the session."""
        try:
            yield
        except Exception as error:
            self.connection.abort(error)
            self._due.set()
            raise
        finally:
            self._pumps -= 1
            if not self._pumps:
                self._released.set()

    async def _release_transport(self) -> None:
        """Wait until the cancelled tasks that read and write have ended. Where one does not, close the transport first.

        A read that waits in a thread is woken by that alone.
        """
        async with self._loop.last_moment(TRANSPORT_CANCEL_TIMEOUT):
            await self._released.wait()
        if self._pumps:
            self.report("the transport ignores a cancellation, and is closed", None)
            await self._close_transport()

    async def _close_transport(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            await self._in_time(TRANSPORT_CLOSE_TIMEOUT, "closing the transport failed", self._adapter.aclose)

    async def _send_cancellations(self) -> None:
        """In a cancelled block: tell the peer which requests no caller waits for any more, so that it stops them."""
        # Those callers are cancelled in this turn of the loop, and a ``close`` that they call takes effect at the next.
        await self.runtime.sleep(0)  # to the next turn
        self._turn()
        # Where the writer was cancelled in the middle of a message, nothing can follow.
        if self.connection.wants_write and not self._adapter.unsent:
            with contextlib.suppress(Exception):
                await self._adapter.send(self.connection)

    def _finish_events(self) -> None:
        """Take turns until the last event was handled, because no task is left to take them."""
        self._turn()
        while self._has_more:
            self._turn()

    async def _in_time(self, seconds: float | None, message: str, close: Callable[[], Awaitable[None]]) -> None:
        try:
            async with self._loop.last_moment(seconds):
                await close()
        except Exception as error:
            self.report(message, error)

    def _lose(self, error: Exception) -> None:
        """Report to the connection that the transport is broken."""
        # Anything else that a transport raises is a bug in it.
        if not isinstance(error, self._loop.broken):
            self.report("the transport failed", error)
        self.connection.connection_lost(error, self.now())

    def _close(self, grace: float | None) -> None:
        now = self.now()
        if grace is not None:
            self._last_write.deadline = min(self._last_write.deadline, now + grace)
        self.connection.close(now, grace=grace)
        # Not a mark: where the block of ``run`` is cancelled, nothing would see it before the abort.
        self._turn()


async def name_stubborn_handlers(loop: EventLoop, *sessions: Session) -> None:
    """Give the cancelled handlers of ended sessions a moment, then name those that go on to the operator.

    A handler cannot be forced to end, and the block in which it runs waits for it.
    """
    async with loop.last_moment(HANDLER_CANCEL_TIMEOUT):
        for session in sessions:
            await session._wait_for_handlers()
    for session in sessions:
        session._report_handlers()


async def close_forcefully(adapter: TransportAdapter, loop: EventLoop) -> None:
    """Close a transport without waiting, and without raising."""
    # Or a cancellation from outside could take the place of the exception that it is closed for.
    async with loop.last_moment(None):
        with loop.scope() as scope, contextlib.suppress(Exception):
            scope.cancel()
            await adapter.aclose()


def handle_events(
    session: Session,
    connection: Connection,
    now: Callable[[], float],
    send_now: Callable[[Connection], object] | None = None,
) -> bool:
    """Handle events of a session; return whether some may be left, since a turn handles only so many.

    The engine itself gives out no request above its high-water mark. An exception costs the session, and nothing else.
    ``send_now`` writes the output that waits, before a handler that may block.
    """
    next_event = connection.next_event
    began = 0.0
    may_block = False
    for count in range(EVENTS_PER_TURN):
        try:
            if (event := next_event()) is None:
                return False
            if count == 1:
                began = now()  # Most turns have one event, and do not ask for the time at all.
            if may_block and send_now is not None:
                send_now(connection)
            may_block = session._handle(event)
        except BaseException as error:
            report("a session failed", failure_of(error))
            # The rest of its events say how its requests ended, and that it is over.
            connection.abort(error)
        if count and (may_block or not count & 7) and now() - began > WORK_PER_TURN:
            break
    return True


# ------------------------------------------------------------------------------------------------------------ task host
# A host for tasks of tools that outlives the sessions that started them.

LastMoment: TypeAlias = Callable[[float], AbstractAsyncContextManager[None]]
"""Returns a block of at most that many seconds which an earlier cancellation does not cut off."""


class TaskHost:
    """Runs tasks without a session: the part of a driver that they need."""

    def __init__(self, runtime: Runtime, clock: Callable[[], float]) -> None:
        """``clock`` is that of the sessions."""
        self.runtime = runtime
        self._clock = clock

    def now(self) -> float:
        """Return the time."""
        return self._clock()

    def report(self, message: str, error: BaseException | None) -> None:
        """Write to the log, under the name ``mcpio``."""
        report(message, error)


@asynccontextmanager
async def hosted_tasks(server: Server, host: TaskHost, state: Any, last_moment: LastMoment) -> AsyncIterator[None]:
    """Run a server's tasks, if it has any, during a block. At its end they are stopped, and their outcomes stored."""
    tasks = server.tasks
    if tasks is None:
        yield
        return
    try:
        tasks.attach(host, state)
        yield
    finally:
        tasks.stop(host)
        async with last_moment(STORE_TIMEOUT):
            await tasks.flush(host)
        tasks.detach(host)
        async with last_moment(HANDLER_CANCEL_TIMEOUT):
            await tasks.wait_for_work(host)
        tasks.report_work(host)


async def store_tasks(server: Server, last_moment: LastMoment, session: Session) -> None:
    """Store the outcomes of the tasks that ended with their session."""
    if server.tasks is not None:
        async with last_moment(STORE_TIMEOUT):
            await server.tasks.flush(session.driver)
