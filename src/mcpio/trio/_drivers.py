"""``connect``, ``open_transport`` and ``serve``: a client or a server over any transport.

A client has two shapes of lifetime. ``async with open_…(…) as client`` ends with its block; ``await connect_…(…,
nursery=n)`` is tied to no block and ends when it is closed, by whichever task, or with the nursery.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

import trio

from mcpio._checks import check_options
from mcpio._drivers import ClientContext, lifespan_of
from mcpio._drivers.setup import (
    ConnectOptions,
    ServerSetupOptions,
    SessionSetup,
    prepare_client,
    prepare_server,
    split_options,
)
from mcpio._drivers.task_host import store_tasks
from mcpio.app.client import Client
from mcpio.app.reconnection import SessionReconnector
from mcpio.app.runtime import Driver
from mcpio.app.session import Session
from mcpio.engine.client import ClientConnection
from mcpio.engine.server import ServerConnection
from mcpio.trio._actor import TrioActor
from mcpio.trio._interrupts import interruptible, uninterruptible
from mcpio.trio._nurseries import last_moment, ungrouped
from mcpio.trio._runtime import TrioRuntime, check_in_trio
from mcpio.trio._timekeeper import Timekeeper
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

for _kind in {*ClientConnection.__mro__, *ServerConnection.__mro__}:
    uninterruptible(_kind)
# They call functions of users.
interruptible(Session._serve)  # noqa: SLF001  # users do not call it
interruptible(Session._call_back)  # noqa: SLF001  # users do not call it
interruptible(SessionReconnector.tell)


async def serve(
    server: Server,
    transport: Transport,
    *,
    principal: Any = None,
    task_status: trio.TaskStatus[Session] = trio.TASK_STATUS_IGNORED,
    **beginning: Unpack[ServerSetupOptions],
) -> None:
    """Serve one client over a transport, until the conversation ends; then the transport is closed.

    ``principal`` is whoever was authenticated before; handlers see it. With ``nursery.start`` it returns the session.
    See ``ServerSetupOptions`` for sessions that go on, for taps, and for clients that are gone. Nothing that the client
    does raises here. What the server's lifespan raises leaves as it is, and so does a ``SystemExit`` of a handler.
    ``LocalProtocolError`` for a connection or a snapshot that cannot go on.
    """
    check_in_trio("servers")
    check_options(beginning, ServerSetupOptions.__annotations__)
    wire = adapter_for(transport)
    try:
        async with lifespan_of(server) as state:
            setup = prepare_server(server, principal, trio.current_time(), **beginning)
            connection: Any = setup.connection
            await carry(
                setup,
                wire,
                lambda driver: server.session(connection, driver, state),
                partial(store_tasks, server, last_moment),
                task_status=task_status,
            )
    except BaseException:
        # The lifespan may have failed, or have been cancelled, before anybody held the transport.
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
    """Return a client that has shaken hands over a transport. Its tasks live in ``nursery`` and never raise.

    ``binary`` is for a channel of ``bytes``: what is sent before the server has sent anything is then bytes, and not
    text. See ``ClientOptions``, and ``ClientSetupOptions`` for sessions that go on, and for taps.

    Raises ``ConnectFailed``, with the transport closed.
    """
    wire = adapter_for(transport, binary=binary)
    return await start_client(wire, nursery, options, Client)


def open_transport(
    transport: Transport, *, binary: bool = False, **options: Unpack[ConnectOptions]
) -> TrioClientContext[Client]:
    """Give a client for the length of a block: ``async with open_transport(stream) as client``. See ``connect``."""
    return TrioClientContext(lambda nursery: connect(transport, nursery=nursery, binary=binary, **options))


class TrioClientContext(ClientContext, Generic[C]):
    """A client for the length of a block. What the body raises leaves the block as it is."""

    def __init__(self, connect: Callable[[trio.Nursery], Awaitable[C]]) -> None:
        self._connect = connect
        self._manager: Any = None

    # A Ctrl-C between entering the nursery and entering the block would leave the nursery open: Trio delivers it at the
    # next checkpoint instead.
    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> C:
        """Connect. Raises ``ConnectFailed``, and leaves nothing behind then."""
        if self._manager is not None:
            raise RuntimeError("this block is open already: make another for a second client")
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
        """Close the client and wait until nothing of it is left."""
        try:
            self._client.close()
            with trio.CancelScope(shield=True):
                await self._client.driver.wait_closed()
        finally:
            # A Ctrl-C ends the wait, shielded or not. The nursery is left all the same.
            await self._leave(error)

    async def _leave(self, error: BaseException | None) -> None:
        """Leave the nursery without letting it wrap ``error``, which is about to leave the block.

        Its tasks end by themselves, for the client is closed. Cancelled, they would not leave a lifespan in peace.
        """
        manager, self._manager = self._manager, None
        try:
            with ungrouped():
                await manager.__aexit__(None, None, None)
        except trio.Cancelled:
            if error is None:
                raise


async def start_client(
    wire: TransportAdapter,
    nursery: trio.Nursery,
    options: Mapping[str, Any],
    make: Callable[..., C],
    after_close: Callable[[C], Awaitable[None]] | None = None,
) -> C:
    """Return a client that ``make(connection, driver, **options)`` made and that has shaken hands. See ``connect``."""
    try:
        of_client, how = split_options(options)
        setup = prepare_client(of_client, trio.current_time(), **how)
        client: C = await nursery.start(
            carry, setup, wire, lambda driver: make(setup.connection, driver, **of_client), after_close
        )
    except BaseException:
        # Of options that make no sense, for one. Nobody held the wire yet.
        await close_forcefully(wire)
        raise
    return client if setup.is_resumed else await shake_hands(client)


async def shake_hands(client: C) -> C:
    """Return the client when it has shaken hands; otherwise nothing of it is left. Raises ``ConnectFailed``."""
    try:
        await client.initialize()
    except BaseException:
        client.driver.close(0)
        with trio.CancelScope(shield=True):
            await client.driver.wait_closed()
        raise
    return client


# With protection, a Ctrl-C cannot come between the start of the session and the block of ``run`` that marks its end.
@trio.lowlevel.enable_ki_protection
async def carry(
    setup: SessionSetup,
    wire: TransportAdapter,
    make_session: Callable[[Driver], S],
    after_close: Callable[[S], Awaitable[None]] | None = None,
    *,
    timekeeper: Timekeeper | None = None,
    task_status: trio.TaskStatus[S] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Carry one session, with its handlers, until it is over; ``timekeeper`` is one that runs already."""
    with ungrouped():
        async with trio.open_nursery() as nursery:
            if timekeeper is None:
                timekeeper = Timekeeper()
                nursery.start_soon(timekeeper.run)
            runtime = TrioRuntime(nursery)
            actor = TrioActor(setup.connection, wire, timekeeper, runtime, end_timeout=setup.end_timeout)
            session = make_session(actor)
            actor.attach(session, None if after_close is None else partial(after_close, session))
            setup.resume(session)
            task_status.started(session)
            await actor.run()
            nursery.cancel_scope.cancel()
