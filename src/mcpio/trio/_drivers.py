"""``connect``, ``open_transport`` and ``serve``: clients and servers over any transport.

A client has one of two lifetimes. ``async with open_…(…) as client`` ends with its block. ``await connect_…(…,
nursery=n)`` is tied to no block: it ends when any task closes it, or with the nursery.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

import trio

from mcpio._checks import check_options
from mcpio._drivers import ClientContext, check_authorization, checked_server, lifespan_of
from mcpio._drivers.actor import Actor, TaskHost, hosted_tasks, store_tasks
from mcpio._drivers.event_loop import Deadlines
from mcpio._drivers.setup import (
    ConnectOptions,
    ServerSetupOptions,
    SessionSetup,
    prepare_client,
    prepare_server,
    split_options,
)
from mcpio.app.client import Client
from mcpio.app.reconnection import SessionReconnector
from mcpio.app.runtime import Driver
from mcpio.app.session import Session
from mcpio.engine.client import ClientConnection
from mcpio.engine.server import ServerConnection
from mcpio.trio._event_loop import TrioEventLoop
from mcpio.trio._runtime import (
    Timekeeper,
    TrioRuntime,
    check_in_trio,
    interruptible,
    last_moment,
    ungrouped,
    uninterruptible,
)
from mcpio.trio._transport import Transport, TransportAdapter, adapter_for, close_forcefully

if TYPE_CHECKING:
    from mcpio.app.server import Server

__all__ = [
    "ConnectOptions",
    "TrioClientContext",
    "carry",
    "connect",
    "open_transport",
    "serve",
    "shake_hands",
    "start_client",
]

S = TypeVar("S", bound=Session)
C = TypeVar("C", bound=Client)

for _kind in {Actor, *ClientConnection.__mro__, *ServerConnection.__mro__}:
    uninterruptible(_kind)
# These call functions of users, in which a Ctrl-C must be raised at once.
interruptible(Session._serve)  # noqa: SLF001  # users do not call it
interruptible(Session._call_back)  # noqa: SLF001  # users do not call it
interruptible(SessionReconnector.tell)


@uninterruptible
class TrioActor(Actor):
    """Runs one session until its connection ends. One timekeeper serves any number of actors."""

    async def run(self) -> None:
        """Run the session until its connection ends; then close the transport."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._pump, self._read)
                nursery.start_soon(self._pump, self._write)
                try:
                    await self._take_turns()
                    await self._finish_writing()
                finally:
                    nursery.cancel_scope.cancel()
                    await self._release_transport()
        finally:
            await self._end()

    async def _pump(self, run: Callable[[], Awaitable[None]]) -> None:
        try:
            await run()
        finally:
            self._note_pump_over()


async def serve(
    server: Server,
    transport: Transport,
    *,
    principal: Any = None,
    task_status: trio.TaskStatus[Session] = trio.TASK_STATUS_IGNORED,
    **beginning: Unpack[ServerSetupOptions],
) -> None:
    """Serve one client over a transport until the conversation ends; then close the transport.

    ``principal`` is the authenticated caller, which handlers see. ``nursery.start`` returns the session. See
    ``ServerSetupOptions`` for resumed sessions, taps, and clients that are gone. Nothing that the client does raises
    here; what the server's lifespan raises, and a SystemExit of a handler, propagates unwrapped. Raises
    LocalProtocolError if ``connection`` or ``snapshot`` cannot be continued, and ValueError for a server with
    scopes and no ``principal``.
    """
    check_in_trio("servers")
    check_options(beginning, ServerSetupOptions.__annotations__)
    adapter = adapter_for(transport)
    connection: Any = None
    try:
        check_authorization(server, is_authorized=principal is not None or beginning.get("connection") is not None)
        async with lifespan_of(server) as state:
            setup = prepare_server(server, principal, trio.current_time(), **beginning)
            connection = setup.connection
            await carry(
                setup,
                adapter,
                lambda driver: server.session(connection, driver, state),
                partial(store_tasks, server, last_moment),
                task_status=task_status,
            )
    except BaseException:
        # The lifespan may have failed, or have been cancelled, before an actor owned the transport. One that did has
        # ended the connection, and closed the transport.
        if connection is None or not connection.closed:
            with contextlib.suppress(Exception):
                await trio.aclose_forcefully(transport)
        raise


async def connect(
    transport: Transport,
    *,
    nursery: trio.Nursery,
    binary: bool = False,
    **options: Unpack[ConnectOptions],
) -> Client:
    """Return an initialized client over a transport. Its tasks run in ``nursery`` and never raise.

    ``binary`` is for a channel of bytes: messages are sent as bytes, and not str, until the server has sent one. See
    ``ClientOptions``, and ``ClientSetupOptions`` for resumed sessions and taps.

    Raises ConnectFailed, with the transport closed.
    """
    adapter = adapter_for(transport, binary=binary)
    return await start_client(adapter, nursery, options, Client)


def open_transport(
    transport: Transport, *, binary: bool = False, **options: Unpack[ConnectOptions]
) -> TrioClientContext[Client]:
    """Async context manager that yields a client: ``async with open_transport(stream) as client``. See ``connect``."""
    return TrioClientContext(lambda nursery: connect(transport, nursery=nursery, binary=binary, **options))


class TrioClientContext(ClientContext, Generic[C]):
    """Async context manager that yields a client. An exception of the body propagates unwrapped."""

    def __init__(self, connect: Callable[[trio.Nursery], Awaitable[C]]) -> None:
        self._connect = connect
        self._manager: Any = None

    # A Ctrl-C between entering the nursery and entering the block would leave the nursery open. With this protection,
    # Trio raises it at the next checkpoint instead.
    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> C:
        """Connect. Raises ConnectFailed, after cleaning up."""
        if self._manager is not None:
            raise RuntimeError("this context manager is in use: make another for a second client")
        check_in_trio("clients")
        self._manager = trio.open_nursery()
        nursery = await self._manager.__aenter__()
        try:
            self._client = await self._connect(nursery)
        except BaseException as error:
            await self._leave(error)
            raise
        return self._client

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the client, and wait until all its tasks have ended."""
        try:
            self._client.close()
            with trio.CancelScope(shield=True):
                await self._client.driver.wait_closed()
        finally:
            # A Ctrl-C ends even a shielded wait. The nursery must be left all the same.
            await self._leave(error)

    async def _leave(self, error: BaseException | None) -> None:
        """Leave the nursery so that it does not wrap ``error``, which is about to leave the block.

        The client is closed, so the tasks of the nursery end. They are not cancelled, which would cut off the clean-up
        of a lifespan.
        """
        manager, self._manager = self._manager, None
        try:
            with ungrouped():
                await manager.__aexit__(None, None, None)
        except trio.Cancelled:
            if error is None:
                raise


async def start_client(
    adapter: TransportAdapter,
    nursery: trio.Nursery,
    options: Mapping[str, Any],
    make: Callable[..., C],
    after_close: Callable[[C], Awaitable[None]] | None = None,
) -> C:
    """Return an initialized client, made by ``make(connection, driver, **options)``. See ``connect``."""
    try:
        of_client, for_setup = split_options(options)
        setup = prepare_client(of_client, trio.current_time(), **for_setup)
        client: C = await nursery.start(
            carry, setup, adapter, lambda driver: make(setup.connection, driver, **of_client), after_close
        )
    except BaseException:
        # Invalid options, for one: no actor owned the transport yet.
        await close_forcefully(adapter)
        raise
    return client if setup.is_resumed else await shake_hands(client)


async def shake_hands(client: C) -> C:
    """Initialize a client and return it. Raises ConnectFailed, after cleaning up."""
    try:
        await client.initialize()
    except BaseException:
        client.driver.close(0)
        with trio.CancelScope(shield=True):
            await client.driver.wait_closed()
        raise
    return client


# With protection, no Ctrl-C is raised between the start of the session and the block of ``run`` that ends it.
@trio.lowlevel.enable_ki_protection
async def carry(
    setup: SessionSetup,
    adapter: TransportAdapter,
    make_session: Callable[[Driver], S],
    after_close: Callable[[S], Awaitable[None]] | None = None,
    *,
    deadlines: Deadlines | None = None,
    task_status: trio.TaskStatus[S] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run one session, with its handlers, until it ends; ``deadlines`` are of an existing timekeeper."""
    with ungrouped():
        async with trio.open_nursery() as nursery:
            if deadlines is None:
                deadlines = timekeeper = Timekeeper()
                nursery.start_soon(timekeeper.run)
            runtime = TrioRuntime(nursery)
            actor = TrioActor(
                setup.connection, adapter, deadlines, runtime, TrioEventLoop(), end_timeout=setup.end_timeout
            )
            session = make_session(actor)
            actor.attach(session, None if after_close is None else partial(after_close, session))
            setup.resume(session)
            task_status.started(session)
            await actor.run()
            nursery.cancel_scope.cancel()


async def run_tasks(server: Server, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Run the tasks of a server until cancelled, independently of the sessions that started them.

    Start it with ``nursery.start`` before ``serve``: without it, the tasks of a session end with the session. It is not
    for ``serve_http``, which does the same. The server's lifespan is entered for it. Stored tasks of an earlier process
    that their tools can resume continue at once. When it is cancelled, tasks are cut off; those that cannot be resumed
    have failed.

    Raises TypeError if ``server`` is not a Server, or has no tasks.
    """
    check_in_trio("servers")
    if checked_server(server).tasks is None:
        raise TypeError("the server has no tasks: give a tool task_support=, or the server tasks=")
    async with lifespan_of(server) as state:
        with ungrouped():
            async with trio.open_nursery() as nursery:
                host = TaskHost(TrioRuntime(nursery), trio.current_time)
                async with hosted_tasks(server, host, state, last_moment):
                    task_status.started()
                    await trio.sleep_forever()
