"""Serving many connections until cancelled, with a graceful end; the same for every transport."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import attrs
import trio

from mcpio._drivers import lifespan_of
from mcpio._drivers.actor import TransportAdapter
from mcpio._drivers.preloading import preload
from mcpio._drivers.setup import SessionSetup
from mcpio._drivers.sockets.accepting import Acceptor
from mcpio._drivers.sockets.peer import SocketPeer
from mcpio._drivers.sockets.sessions import LAST_WRITES
from mcpio._drivers.task_host import TaskHost, hosted_tasks
from mcpio.app.runtime import Driver
from mcpio.app.server import Server
from mcpio.app.server_session import ServerSession
from mcpio.engine.limits import seconds
from mcpio.trio._drivers import carry
from mcpio.trio._event_loop import TrioEventLoop
from mcpio.trio._net.listening import close_all
from mcpio.trio._nurseries import last_moment, ungrouped
from mcpio.trio._runtime import TrioOneShot, TrioRuntime, check_in_trio
from mcpio.trio._signals import terminate_on_signals
from mcpio.trio._timekeeper import Timekeeper

__all__ = ["ConnectionHandler", "ServingContext", "serve_listeners", "until_signalled"]

_LATE: Final = ("mcpio.trio._socket_stream",) if os.name == "posix" else ()
"""The modules that connections import late, besides those of every session."""


@attrs.frozen
class ServingContext:
    """Shared by all connections of a server while it is served, until the last of them has ended."""

    server: Server
    state: Any
    """The value of the server's lifespan."""
    runtime: TrioRuntime
    """Runs handlers that no single connection owns."""
    timekeeper: Timekeeper
    loop: TrioEventLoop = attrs.field(factory=TrioEventLoop)

    def deadlines(self) -> Timekeeper:
        """Return the timekeeper of all sessions."""
        return self.timekeeper

    async def carry(
        self, setup: SessionSetup, adapter: TransportAdapter, make_session: Callable[[Driver], ServerSession]
    ) -> None:
        """Run one session."""
        await carry(setup, adapter, make_session, timekeeper=self.timekeeper)


class ConnectionHandler(Protocol):
    """Handles the connections of a server."""

    async def receive(self, stream: trio.abc.Stream, peer: SocketPeer) -> None:
        """Handle a connection until it ends, and close its stream. Never raises for the client's input."""

    def make_room(self) -> None:
        """Close an idle connection, if any, because another client waits."""

    def retire(self) -> None:
        """Make each connection end after its current request, or its next one."""

    def close(self, grace: float) -> None:
        """Start closing all connections gracefully. Running requests have ``grace`` seconds."""

    async def wait_empty(self) -> None:
        """Wait until no connection is left."""


S = TypeVar("S", bound=ConnectionHandler)


async def serve_listeners(
    server: Server,
    make_handler: Callable[[ServingContext], S],
    acceptor: Acceptor,
    listeners: Sequence[trio.abc.Listener[Any]],
    *,
    grace: float,
    drain: float = 0.0,
    started: Callable[[S], None],
) -> None:
    """Serve until cancelled; then end gracefully, within ``drain`` and ``grace`` seconds and a moment.

    For ``drain`` seconds no connection is accepted, and those that are open serve on. ``started`` is called with the
    handler once clients can connect. Modules are imported before, since imports fail at the limit of open files. The
    server's lifespan is entered around all of it; what it raises propagates unwrapped. Tasks of tools end with it, and
    the listeners are closed. Raises ValueError for an invalid ``grace`` or ``drain``.
    """
    try:
        limits = seconds(drain) or 0.0, seconds(grace) or 0.0
        preload(*_LATE)
        async with lifespan_of(server) as state:
            hold = partial(_hold, server, state, make_handler, *limits)
            with ungrouped():
                await _accept(hold, acceptor, listeners, started, drains=bool(drain))
    finally:
        await close_all(listeners)


def until_signalled(handle_signals: bool, *limits: float) -> contextlib.AbstractContextManager[object]:
    """Context manager in which SIGINT and SIGTERM cancel the block and then end the process, if that is wanted.

    The block has the sum of ``limits`` to end, in seconds, and a moment. Raises RuntimeError outside Trio, and
    ValueError for a limit that is not a number of seconds.
    """
    check_in_trio("servers")
    limit = sum(seconds(each) or 0.0 for each in limits)
    if not handle_signals:
        return contextlib.nullcontext()
    return terminate_on_signals(timeout=limit + LAST_WRITES)


async def _accept(
    hold: Callable[..., Awaitable[None]],
    acceptor: Acceptor,
    listeners: Sequence[trio.abc.Listener[Any]],
    started: Callable[[S], None],
    *,
    drains: bool,
) -> None:
    """Accept connections until cancelled, then let ``hold`` end."""
    async with trio.open_nursery() as nursery:
        closing, held = trio.Event(), TrioOneShot()
        # Not ``nursery.start``: cancelled, it would wait for the end of ``hold`` before ``closing`` could be set.
        nursery.start_soon(hold, held, closing)
        try:
            handler, connections = await held.wait()
            started(handler)
            await acceptor.accept(listeners, connections, handler.receive, handler.make_room, drains=drains)
        finally:
            closing.set()


async def _hold(
    server: Server,
    state: Any,
    make_handler: Callable[[ServingContext], S],
    drain: float,
    grace: float,
    held: TrioOneShot,
    closing: trio.Event,
) -> None:
    """Run the tasks of all connections, shielded, and end them after ``closing``.

    ``held`` gets the connection handler, and the nursery of the connections.
    """
    timekeeper = Timekeeper()
    with trio.CancelScope(shield=True):
        async with trio.open_nursery() as handlers:
            handlers.start_soon(timekeeper.run)
            runtime = TrioRuntime(handlers)
            handler = make_handler(ServingContext(server, state, runtime, timekeeper))
            tasks = hosted_tasks(server, TaskHost(runtime, trio.current_time), state, last_moment)
            async with tasks, trio.open_nursery() as connections:
                held.set((handler, TrioRuntime(connections)))
                await closing.wait()
                if drain:
                    # A client that keeps a connection may be sending on it now: closed over that, the request would be
                    # lost, so the connection ends with an answer that says so.
                    handler.retire()
                    with trio.move_on_after(drain):
                        await handler.wait_empty()
                handler.close(grace)
                with trio.move_on_after(grace + LAST_WRITES / 2):
                    await handler.wait_empty()
                connections.cancel_scope.cancel()
            handlers.cancel_scope.cancel()
