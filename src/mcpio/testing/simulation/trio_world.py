"""A run of Trio that follows from a seed: the order of its tasks, its clock, network, threads and random bytes.

It knows nothing of the protocol.
"""

from __future__ import annotations

import errno
import os
import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import copy_context
from functools import partial
from math import inf
from typing import Any, Final, Never, TypeVar

import trio
from trio.abc import HalfCloseableStream, Instrument, Listener
from trio.testing import MockClock

from mcpio import _drivers
from mcpio.trio._runtime import TrioRuntime

T = TypeVar("T")

MOST_STEPS: Final = 500_000
"""The most steps of tasks in a world. One that takes more is judged not to end."""
MOST_LAST_STEPS: Final = 5_000
"""Steps in which a world that is cancelled must end; after as many more, its tasks are closed."""
ROOM: Final = 16_384
"""The most bytes in flight in a stream. A writer of more waits."""
_IDLE: Final = 10
"""How often Trio may look for input before a run in which nothing happens is stuck."""


class TrioWorld(Instrument):
    """A run of Trio whose order of tasks, clock, threads and random bytes follow from a seed.

    One *step* is a task that runs to its next wait. After each step ``after_step`` is called.
    """

    name = "the world"
    now: float = 0.0
    """The time, in seconds from 0."""
    steps: int = 0
    """How many steps there were."""

    def __init__(self, seed: object) -> None:
        self.chance: Final = random.Random(f"programs {seed}")  # noqa: S311  not for secrets
        self.after_step: Callable[[Any], None] = lambda process: None
        self.on_crash: Callable[[Any, BaseException], None] = lambda process, error: None
        self.clock: Final = MockClock(autojump_threshold=0)
        self.wall_error = 0.0
        self.has_ended: Callable[[], bool] = lambda: False
        self.is_stuck = False
        """Whether all tasks waited for each other."""
        self._scope: Final = trio.CancelScope()
        self._late_from = inf
        self._cancelled_at: dict[int, list[trio.CancelScope]] = {}
        self._tasks: dict[trio.lowlevel.Task, None] = {}
        self._idle = 0

    def run(self, main: Callable[[], Any]) -> None:
        """Run an async function, to its end or until ``has_ended``. What it raises is given to ``on_crash``."""

        async def scoped() -> None:
            with self._scope:
                await main()

        try:
            with self._replace_trio():
                trio.run(scoped, clock=self.clock, instruments=[self])
        except BaseException as error:
            self.on_crash(self, error)

    def cancel_after(self, steps: int, scope: trio.CancelScope) -> None:
        """Cancel a scope when so many steps more were taken."""
        self._cancelled_at.setdefault(self.steps + steps, []).append(scope)

    # The instrument of Trio

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        """Keep a task."""
        self._tasks[task] = None

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        """Forget a task."""
        self._tasks.pop(task, None)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count a step of a task, and run the timers that are due after it."""
        self._idle = 0
        self.steps += 1
        self.now = self.clock.current_time()
        for scope in self._cancelled_at.pop(self.steps, ()):
            scope.cancel()
        self.after_step(self)
        if self.steps > self._late_from:
            self._end(task)
        elif self._late_from == inf and (self.has_ended() or self.steps > MOST_STEPS):
            self._scope.cancel()
            self._late_from = self.steps + MOST_LAST_STEPS

    def before_io_wait(self, timeout: float) -> None:
        """Cancel a run in which nothing can happen any more."""
        del timeout
        self._idle += 1
        if self._idle > _IDLE:
            self.is_stuck = True
            self._late_from = min(self._late_from, self.steps)
            for task in self._tasks:
                self._end(task)
            if self._idle > 2 * _IDLE:
                self._fail("nothing can end it")

    def _end(self, task: trio.lowlevel.Task) -> None:
        """End a task even where a shield keeps it alive, or where it catches what cancels it.

        A run that stopped without its tasks would leave their coroutines to Python. It reports those that have not
        ended when it collects them, which may be in a later run.
        """
        self._scope.cancel()
        status: Any = task._cancel_status  # noqa: SLF001  Trio has no public name for the scopes of another task
        while status is not None:
            status._scope.shield = False  # noqa: SLF001  as above
            status = status._parent  # noqa: SLF001  as above
        steps = self.steps - self._late_from
        if steps > 2 * MOST_LAST_STEPS:
            self._fail(f"{task.name} catches GeneratorExit")
        elif steps > MOST_LAST_STEPS:
            with suppress(RuntimeError):  # a block that awaits while it is closed goes on until it is closed again
                task.context.run(task.coro.close)

    def _fail(self, why: str) -> None:
        """Have the run fail. An instrument cannot raise, but a clock can."""

        def fail(*_: object) -> Never:
            raise RuntimeError(why)

        clock: Any = self.clock
        clock.current_time = clock.deadline_to_sleep_time = fail

    # Replacements for the operating system

    @contextmanager
    def _replace_trio(self) -> Iterator[None]:
        """Replace the clock, randomness, threads and scheduling that Trio and its drivers use."""
        core: Any = trio._core._run  # noqa: SLF001  Trio has it for pytest-trio, without a public name
        drawn = random.Random(self.chance.random())  # noqa: S311  not for secrets
        with ExitStack() as stack:
            for chance in (core._r, random):  # noqa: SLF001  as above
                stack.callback(chance.setstate, chance.getstate())
                chance.seed(self.chance.random())
            replace = partial(replaced, stack)
            replace(core, "_ALLOW_DETERMINISTIC_SCHEDULING", value=True)
            replace(trio.to_thread, "run_sync", self._run_in_thread)
            replace(TrioRuntime, "entropy", lambda _, size: drawn.randbytes(size))
            replace(TrioRuntime, "wall_clock", lambda _: 1_000_000_000.0 + self.now + self.wall_error)
            replace(os, "urandom", drawn.randbytes)
            replace(_drivers, "queued_for_a_processor", lambda: 0.0)
            yield

    async def _run_in_thread(
        self,
        sync_fn: Callable[..., T],
        *args: Any,
        thread_name: str | None = None,
        abandon_on_cancel: bool = False,
        limiter: trio.CapacityLimiter | None = None,
    ) -> T:
        """Take the place of ``trio.to_thread.run_sync``: run a function in one step, at some time."""
        del thread_name
        await trio.lowlevel.checkpoint_if_cancelled()
        worker, over = object(), trio.Event()
        if limiter is not None:
            await limiter.acquire_on_behalf_of(worker)
        result: list[T] = []
        failure: list[BaseException] = []

        async def work() -> None:
            await trio.sleep(self.chance.random() * 0.05)
            try:
                result.append(sync_fn(*args))
            except BaseException as error:
                failure.append(error)
            if limiter is not None:
                limiter.release_on_behalf_of(worker)
            await trio.sleep(self.chance.random() * 0.01)
            over.set()

        trio.lowlevel.spawn_system_task(work, context=copy_context())
        with trio.CancelScope(shield=not abandon_on_cancel):
            await over.wait()
        if failure:
            raise failure[0]
        return result[0]


def replaced(stack: ExitStack, owner: Any, name: str, value: Any) -> None:
    """Set an attribute until the end of ``stack``."""
    stack.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)


# -------------------------------------------------------------------------------------------------------------- network


class _Way:
    """One direction of a connection: the pieces in flight, with the times at which they arrive."""

    def __init__(self) -> None:
        self.pieces: deque[tuple[float, bytes]] = deque()
        self.held = 0
        self.last = 0.0
        self.lot = trio.lowlevel.ParkingLot()

    def take(self, most: int) -> bytes:
        """Take the piece that has arrived, or the beginning of it."""
        due, data = self.pieces[0]
        if not data:
            return data  # the end stays
        self.pieces.popleft()
        if len(data) > most:
            self.pieces.appendleft((due, data[most:]))
        self.held -= len(data[:most])
        self.lot.unpark_all()
        return data[:most]


class _Link:
    """A connection of two ends."""

    is_broken = is_cut = False

    def __init__(self, network: TrioNetwork, port: int) -> None:
        there, back = _Way(), _Way()
        self.network = network
        self.port = port
        self.ends = _End(self, there, back), _End(self, back, there)
        network.links[self] = None

    def reset(self) -> None:
        """Break the connection. Bytes in flight are lost."""
        self.is_broken = True
        self.wake()

    def stall(self, seconds: float) -> None:
        """Let nothing arrive for some time."""
        for end in self.ends:
            end.output.last = max(end.output.last, trio.current_time()) + seconds

    def cut(self) -> None:
        """Lose everything from now on, without telling either side."""
        self.is_cut = True

    def wake(self) -> None:
        """Have all that wait look again."""
        for end in self.ends:
            end.output.lot.unpark_all()
        if all(end.is_closed for end in self.ends):
            self.network.links.pop(self, None)


class _End(HalfCloseableStream):
    """One end of a connection. It behaves as Trio's stream on a socket does."""

    def __init__(self, link: _Link, output: _Way, incoming: _Way) -> None:
        self.link = link
        self.output = output
        self.input = incoming
        self.is_closed = self.has_ended = False
        self._busy: set[str] = set()

    @contextmanager
    def _alone(self, what: str) -> Iterator[None]:
        if what in self._busy:
            raise trio.BusyResourceError(f"another task {what}s already")
        self._busy.add(what)
        try:
            yield
        finally:
            self._busy.discard(what)

    def _check(self) -> None:
        if self.is_closed:
            raise trio.ClosedResourceError("this stream was closed")
        if self.link.is_broken:
            raise trio.BrokenResourceError("the connection was reset")

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send, and wait for room."""
        with self._alone("send"):
            await trio.lowlevel.checkpoint()
            rest = bytes(data)
            while True:
                rest = rest[self._put(rest) :]
                if not rest:
                    return
                await self.output.lot.park()

    async def wait_send_all_might_not_block(self) -> None:
        """Wait for room."""
        with self._alone("send"):
            await trio.lowlevel.checkpoint()
            self._check()
            while self.output.held >= ROOM and not self.link.is_cut:
                await self.output.lot.park()
                self._check()

    def _put(self, data: bytes) -> int:
        """Send what finds room, in pieces; return how much."""
        self._check()
        if self.has_ended:
            raise trio.ClosedResourceError("the output was ended")
        [other] = {*self.link.ends} - {self}
        network, way = self.link.network, self.output
        if self.link.is_cut:
            return len(data)
        if other.is_closed:
            self.link.reset()  # as the other system does; this one learns of it with its next call
            return len(data)
        data = data[: ROOM - way.held]
        at = len(data)
        if at > 1 and network.chance.random() < network.splits:
            at = network.chance.randrange(1, at)
        for piece in (data[:at], data[at:]):
            if piece:
                self._send(piece)
                way.held += len(piece)
        return len(data)

    def _send(self, piece: bytes) -> None:
        way = self.output
        way.last = max(way.last, trio.current_time() + self.link.network.lag())
        way.pieces.append((way.last, piece))
        way.lot.unpark_all()

    async def send_eof(self) -> None:
        """End the output."""
        with self._alone("send"):
            await trio.lowlevel.checkpoint()
            self._check()
            self._end()

    def _end(self) -> None:
        if not self.has_ended:
            self.has_ended = True
            if not self.link.is_cut:
                self._send(b"")

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for input."""
        way = self.input
        with self._alone("receive"):
            await trio.lowlevel.checkpoint()
            while True:
                self._check()
                due = way.pieces[0][0] if way.pieces else inf
                if due <= trio.current_time():
                    return way.take(max_bytes or 65536)
                with trio.move_on_at(due):
                    await way.lot.park()

    async def aclose(self) -> None:
        """Close both directions. With input that was not read the connection breaks, as on Linux."""
        if not self.is_closed:
            self.is_closed = True
            self._end()
            if any(data for _, data in self.input.pieces):
                self.link.reset()
            self.link.wake()
        await trio.lowlevel.checkpoint()


class _Listener(Listener[_End]):
    """Accepts the connections to a port."""

    def __init__(self, network: TrioNetwork, port: int) -> None:
        self._network = network
        self._port = port
        self.queue, self._accepted = trio.open_memory_channel[_End](1000)

    async def accept(self) -> _End:
        """Wait for a connection."""
        return await self._accepted.receive()

    async def aclose(self) -> None:
        """Close; those that were not accepted are reset."""
        if self._network.listeners.get(self._port) is self:
            del self._network.listeners[self._port]
        with suppress(trio.WouldBlock, trio.ClosedResourceError):
            while True:
                waiting = self._accepted.receive_nowait()
                waiting.link.reset()
                await waiting.aclose()
        self._accepted.close()
        await trio.lowlevel.checkpoint()


class TrioNetwork:
    """The TCP of a world."""

    def __init__(self, chance: random.Random, delay: float, splits: float) -> None:
        self.chance: Final = chance
        self.delay = delay
        self.splits = splits
        self.links: dict[_Link, None] = {}
        self.listeners: dict[int, _Listener] = {}

    def lag(self) -> float:
        """Draw how long something is on its way."""
        return self.chance.random() * self.delay

    async def connect(self, host: str, port: int, **options: Any) -> _End:
        """Take the place of ``trio.open_tcp_stream``."""
        del host, options
        await trio.sleep(self.lag())
        listener = self.listeners.get(port)
        if listener is None:
            raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        near, far = _Link(self, port).ends
        listener.queue.send_nowait(far)
        return near

    async def listen(self, port: int, **options: Any) -> list[_Listener]:
        """Take the place of ``trio.open_tcp_listeners``."""
        del options
        await trio.lowlevel.checkpoint()
        if port in self.listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self.listeners[port] = _Listener(self, port)
        return [self.listeners[port]]
