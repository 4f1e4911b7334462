"""Serving many connections: until that is cancelled, and then to an end in order. The same for every transport."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

import attrs
import trio

from mcpio._drivers import lifespan_of
from mcpio._drivers.preloading import preload
from mcpio.app.server import Server
from mcpio.engine.limits import seconds
from mcpio.trio._net.listening import Acceptor, SocketPeer, close_all
from mcpio.trio._nurseries import ungrouped
from mcpio.trio._runtime import TrioOneShot, TrioRuntime, check_in_trio
from mcpio.trio._signals import terminate_on_signals
from mcpio.trio._tasks import hosted_tasks
from mcpio.trio._timekeeper import Timekeeper

__all__ = ["LAST_WRITES", "ActiveSet", "ConnectionHandler", "ServingContext", "serve_listeners", "until_signalled"]

LAST_WRITES: Final = 0.4
"""Seconds, after the grace of the end, for what is left to say."""

_LATE: Final = ("mcpio.trio._net.socket_stream",) if os.name == "posix" else ()
"""What connections import late, besides what every session does."""

T = TypeVar("T")


@attrs.frozen
class ServingContext:
    """What all the connections of a server that is being served share. It lasts until the last of them is over."""

    server: Server
    state: Any
    """What the server's lifespan gave."""
    runtime: TrioRuntime
    """For handlers that no connection has of its own."""
    timekeeper: Timekeeper


class ConnectionHandler(Protocol):
    """What carries the connections of a server."""

    async def receive(self, stream: trio.abc.Stream, peer: SocketPeer) -> None:
        """Carry a connection until it is over, and close its stream. Nothing that the client does raises here."""

    def make_room(self) -> None:
        """End a connection that is at rest, if there is one: another client waits."""

    def close(self, grace: float) -> None:
        """Begin the end in order of all connections. What runs has so many seconds."""

    async def wait_empty(self) -> None:
        """Wait until no connection is left."""


S = TypeVar("S", bound=ConnectionHandler)


class ActiveSet(Generic[T]):
    """What there are many of, the oldest first, and a wait for the last to leave."""

    def __init__(self) -> None:
        self._members: dict[T, None] = {}
        self._is_empty = trio.Event()

    def __iter__(self) -> Iterator[T]:
        """Go through all that are there now; they may leave meanwhile."""
        return iter(tuple(self._members))

    def enter(self, member: T) -> None:
        """Add one."""
        self._members[member] = None

    def leave(self, member: T) -> None:
        """Take one out, if it is there."""
        self._members.pop(member, None)
        if not self._members:
            self._is_empty.set()

    async def wait_empty(self) -> None:
        """Wait until none is left."""
        while self._members:
            self._is_empty = trio.Event()
            await self._is_empty.wait()


async def serve_listeners(
    server: Server,
    make_handler: Callable[[ServingContext], S],
    door: Acceptor,
    listeners: Sequence[trio.abc.Listener[Any]],
    *,
    grace: float,
    started: Callable[[S], None],
) -> None:
    """Serve until cancelled; then end in order, for at most ``grace`` seconds and a moment. ``started`` is called.

    Nothing is imported while it serves: at the limit of open files, importing fails.

    The server's lifespan is entered around it, and the listeners are closed. Tasks of tools end with it. What the
    lifespan raises leaves as it is. ``ValueError`` for a grace that makes no sense.
    """
    try:
        limit = seconds(grace) or 0.0
        preload(*_LATE)
        async with lifespan_of(server) as state:
            hold = partial(_hold, server, state, make_handler, limit)
            with ungrouped():
                await _accept(hold, door, listeners, started)
    finally:
        await close_all(listeners)


def until_signalled(handle_signals: bool, grace: float) -> contextlib.AbstractContextManager[object]:
    """Have SIGINT and SIGTERM cancel a block in which a site is run, if that is wanted; then they end the process.

    ``RuntimeError`` outside of Trio.
    """
    check_in_trio("servers")
    if not handle_signals:
        return contextlib.nullcontext()
    return terminate_on_signals(patience=grace + LAST_WRITES)


async def _accept(
    hold: Callable[..., Awaitable[None]],
    door: Acceptor,
    listeners: Sequence[trio.abc.Listener[Any]],
    started: Callable[[S], None],
) -> None:
    """Let clients in until cancelled, and then have ``hold`` end."""
    async with trio.open_nursery() as nursery:
        closing, held = trio.Event(), TrioOneShot()
        # ``nursery.start`` would wait for it, where that is cancelled, before it could be told to end.
        nursery.start_soon(hold, held, closing)
        try:
            site, connections = await held.wait()
            started(site)
            await door.accept(listeners, connections, site.receive, site.make_room)
        finally:
            closing.set()


async def _hold(
    server: Server,
    state: Any,
    make_handler: Callable[[ServingContext], S],
    grace: float,
    held: TrioOneShot,
    closing: trio.Event,
) -> None:
    """Hold the tasks of all connections, which go on after the cancellation, and end them when it is time.

    ``held`` gets the site, and the nursery of the connections.
    """
    timekeeper = Timekeeper()
    with trio.CancelScope(shield=True):
        async with trio.open_nursery() as handlers:
            handlers.start_soon(timekeeper.run)
            runtime = TrioRuntime(handlers)
            site = make_handler(ServingContext(server, state, runtime, timekeeper))
            tasks = server.tasks
            shared = contextlib.nullcontext() if tasks is None else hosted_tasks(tasks, runtime, state)
            async with shared, trio.open_nursery() as connections:
                held.set((site, connections))
                await closing.wait()
                site.close(grace)
                with trio.move_on_after(grace + LAST_WRITES / 2):
                    await site.wait_empty()
                connections.cancel_scope.cancel()
            handlers.cancel_scope.cancel()
