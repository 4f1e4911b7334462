"""The event loops that a driver runs on, for tests that say once what holds on each.

A test takes the fixture ``each_loop``, or is async and has the decorator ``on_each_loop``. It runs on Trio, on asyncio,
and on uvloop where that is installed. Where time is virtual, there is no uvloop.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import ModuleType
from typing import Any, cast
from unittest import mock

import attrs
import pytest
import streams
import trio
import trio.testing

import mcpio.asyncio
import mcpio.trio
from mcpio import Server, _drivers
from mcpio._drivers.event_loop import CancelScope, EventLoop
from mcpio.app.runtime import Runtime
from mcpio.asyncio._event_loop import AsyncioEventLoop
from mcpio.trio._event_loop import TrioEventLoop
from mcpio.trio._runtime import TrioRuntime

__all__ = ["UVLOOP", "EachLoop", "Here", "each_loop", "each_virtual_loop", "on_each_loop", "on_each_virtual_loop"]


class Here:
    """The loop that a test runs on, under the names that both share."""

    def __init__(self, drivers: ModuleType, loop: EventLoop, runtime: Any) -> None:
        self.drivers: Any = drivers
        """``mcpio.trio`` or ``mcpio.asyncio``."""
        self.loop = loop
        self.runtime: Runtime = runtime
        self.now = loop.now
        self.sleep: Callable[[float], Awaitable[None]] = runtime.sleep
        self.scope: Callable[..., CancelScope] = loop.scope
        self.event: Callable[[], Any] = loop.event
        self.checkpoint = loop.checkpoint
        self.is_trio = drivers is mcpio.trio

    def tasks(self) -> AbstractAsyncContextManager[Any]:
        """Return a block that waits for the tasks that its value spawns."""
        return self.loop.group()

    async def forever(self) -> None:
        """Wait until cancelled."""
        await self.loop.event().wait()

    async def settle(self) -> None:
        """Wait until nothing moves any more without time or input; in virtual time only."""
        if self.is_trio:
            await trio.testing.wait_all_tasks_blocked()
        else:
            await streams.settle()

    def jump(self, seconds: float) -> None:
        """Let time pass at once; in virtual time only."""
        if self.is_trio:
            clock: Any = trio.lowlevel.current_clock()
            clock.jump(seconds)
        else:
            loop: Any = asyncio.get_running_loop()
            loop._jumping.now += seconds

    async def joined(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return two ends of a stream, each as the arguments that ``serve`` takes."""
        if self.is_trio:
            near, far = trio.testing.memory_stream_pair()
            return (near,), (far,)
        return await streams.joined()

    @asynccontextmanager
    async def served(self, server: Server, **options: Any) -> AsyncIterator[tuple[Any, ...]]:
        """Serve a client until its conversation ends; give its end of the stream."""
        near, far = await self.joined()
        async with self.tasks() as tasks:
            tasks.spawn(self.drivers.serve(server, *far, **options))
            yield near

    def open_client(self, end: tuple[Any, ...], **options: Any) -> Any:
        """Return the block of a client at one end of a stream."""
        return (self.drivers.open_transport if self.is_trio else self.drivers.open_streams)(*end, **options)

    async def connect(self, end: tuple[Any, ...], **options: Any) -> Any:
        """Connect such a client, tied to no block of the test's."""
        if self.is_trio:
            options["nursery"] = self.nursery
        return await self.drivers.connect(*end, **options)

    @property
    def open_http(self) -> Any:
        return self.drivers.open_http

    async def connect_http(self, url: str, **options: Any) -> Any:
        """Connect a client that is tied to no block of the test's."""
        if self.is_trio:
            options["nursery"] = self.nursery
        return await self.drivers.connect_http(url, **options)

    async def connect_stdio(self, argv: Any, **options: Any) -> Any:
        """The same, for a child process."""
        if self.is_trio:
            options["nursery"] = self.nursery
        return await self.drivers.connect_stdio(argv, **options)

    @asynccontextmanager
    async def listening(self, kind: str, server: Server, **options: Any) -> AsyncIterator[tuple[Any, CancelScope]]:
        """Serve by ``serve_<kind>`` for a block; give what it reports, and what ends it."""
        serve, scope, told = getattr(self.drivers, f"serve_{kind}"), self.scope(), self.runtime.one_shot()
        if self.is_trio:
            options["task_status"] = _Status(told.set)
        else:
            options["started"] = asyncio.get_running_loop().create_future()
            options["started"].add_done_callback(
                lambda future: None if future.cancelled() else told.set(future.result())
            )

        async def run() -> None:
            with scope:
                await serve(server, **options)

        async with self.tasks() as tasks:
            tasks.spawn(run())
            yield await told.wait(), scope
            scope.cancel()

    nursery: trio.Nursery
    """Trio's, for clients that are tied to no block."""


@attrs.frozen
class _Status:
    """Trio's ``task_status``, which tells without a nursery."""

    started: Callable[[Any], None]


Main = Callable[[Here], Awaitable[None]]


@attrs.frozen
class EachLoop:
    """One of the loops, outside of it."""

    name: str

    @property
    def drivers(self) -> Any:
        return mcpio.trio if self.name == "trio" else mcpio.asyncio

    @property
    def kind(self) -> type[Any]:
        """The class of the loop's ``Here.loop``."""
        return TrioEventLoop if self.name == "trio" else AsyncioEventLoop

    def run(self, main: Main, *, virtual: bool = False, limit: float = 20) -> None:
        """Run a test, of 20 s at most, or, where the clock jumps, of 1000 s. Nothing of it may be left."""
        if virtual:
            # A virtual clock does not count the time in which a busy machine did not run the thread.
            with mock.patch.object(_drivers, "queued_for_a_processor", float):
                self._run_virtually(main)
        elif self.name == "trio":
            trio.run(self._on_trio, main, limit, strict_exception_groups=True)
        else:
            streams.run_in_real_time(lambda: self._on_asyncio(main, limit))

    def _run_virtually(self, main: Main) -> None:
        if self.name == "trio":
            clock = trio.testing.MockClock(autojump_threshold=0)
            trio.run(self._on_trio, main, 1000, clock=clock, strict_exception_groups=True)
        else:
            streams.run(lambda: self._on_asyncio(main, 1000))

    async def _on_trio(self, main: Main, limit: float) -> None:
        async with trio.open_nursery() as nursery:
            here = Here(mcpio.trio, TrioEventLoop(), TrioRuntime(nursery))
            here.nursery = nursery
            with trio.fail_after(limit):
                await main(here)
            nursery.cancel_scope.cancel()

    async def _on_asyncio(self, main: Main, limit: float) -> None:
        tasks: list[Any] = []
        async with asyncio.timeout(limit), asyncio.TaskGroup() as group:
            runtime = mcpio.asyncio.AsyncioRuntime(_Remembering(group, tasks))  # type: ignore[arg-type]  # it is like one
            await main(Here(mcpio.asyncio, AsyncioEventLoop(), runtime))
            for task in tasks:
                task.cancel()


class _Remembering:
    """A task group that remembers its tasks, to cancel them."""

    def __init__(self, group: asyncio.TaskGroup, tasks: list[Any]) -> None:
        self._group, self._tasks = group, tasks

    def create_task(self, coroutine: Any) -> Any:
        self._tasks.append(self._group.create_task(coroutine))
        return self._tasks[-1]


UVLOOP = pytest.param("uvloop", marks=pytest.mark.needs("uvloop"))


@pytest.fixture(params=["trio", "asyncio", UVLOOP])
def each_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> EachLoop:
    """Every event loop, for tests over sockets, processes and threads."""
    if request.param == "uvloop":
        monkeypatch.setattr(streams, "new_event_loop", importlib.import_module("uvloop").new_event_loop)
    return EachLoop(request.param)


@pytest.fixture(params=["trio", "asyncio"])
def each_virtual_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> EachLoop:
    """Every event loop whose clock can jump."""
    # Real time that other programs took is no part of virtual time.
    monkeypatch.setattr(_drivers, "queued_for_a_processor", float)
    return EachLoop(request.param)


def on_each_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test, whose first argument is a ``Here``, on each loop of the fixture ``each_loop``."""
    return _with_loop(test, "each_loop", virtual=False)


def on_each_virtual_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test, whose first argument is a ``Here``, in virtual time on each loop of that fixture."""
    return _with_loop(test, "each_virtual_loop", virtual=True)


def _with_loop(test: Callable[..., Awaitable[None]], fixture: str, *, virtual: bool) -> Callable[..., None]:
    @functools.wraps(test)
    def plain(**arguments: Any) -> None:
        loop: EachLoop = arguments.pop(fixture)
        loop.run(lambda here: test(here, **arguments), virtual=virtual)

    # pytest reads it: the loop's fixture stands in place of the first argument.
    _, *others = inspect.signature(test).parameters.values()
    chosen = inspect.Parameter(fixture, inspect.Parameter.KEYWORD_ONLY)
    cast("Any", plain).__signature__ = inspect.Signature([*others, chosen])
    return plain
