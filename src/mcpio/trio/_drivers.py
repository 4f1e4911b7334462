"""``connect``, ``open_transport`` and ``serve``: clients and servers over any transport.

A client has one of two lifetimes. ``async with open_…(…) as client`` ends with its block. ``await connect_…(…,
nursery=n)`` is tied to no block: it ends when any task closes it, or with the nursery.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, Unpack

import trio

from mcpio._drivers import ClientContext, checked_server, in_lifespan, lifespan_of
from mcpio._drivers.actor import Actor, TaskHost, TransportAdapter, close_forcefully, hosted_tasks
from mcpio._drivers.event_loop import stream_adapter
from mcpio._drivers.setup import ConnectOptions, ServerSetupOptions, carry, client_runner, serve_adapter
from mcpio.app.client import Client
from mcpio.app.reconnection import SessionReconnector
from mcpio.app.runtime import in_steps, settled
from mcpio.app.session import Session
from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.server import ServerConnection
from mcpio.trio._event_loop import TrioEventLoop
from mcpio.trio._runtime import (
    TrioRuntime,
    check_in_trio,
    interruptible,
    last_moment,
    ungrouped,
    uninterruptible,
)

if TYPE_CHECKING:
    from mcpio.app.server import Server

__all__ = [
    "ConnectOptions",
    "TrioClientContext",
    "connect",
    "open_transport",
    "run_client",
    "serve",
    "start_client",
]

C = TypeVar("C", bound=Client)

for _kind in {Actor, *ClientConnection.__mro__, *ServerConnection.__mro__}:
    uninterruptible(_kind)
# Or a Ctrl-C could be raised between the start of a session and the block of ``run`` that ends it.
trio.lowlevel.enable_ki_protection(carry)
# These call functions of users, in which a Ctrl-C must be raised at once.
interruptible(in_steps)
interruptible(settled)
interruptible(in_lifespan.__wrapped__)  # type: ignore[attr-defined]  # what @asynccontextmanager wraps
interruptible(Session._serve)  # noqa: SLF001  # users do not call it
interruptible(Session._call_back)  # noqa: SLF001  # users do not call it
interruptible(SessionReconnector.tell)


@trio.lowlevel.enable_ki_protection  # or sockets, files and nurseries might be left that nothing closes
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
    await serve_adapter(TrioEventLoop(), server, adapter_for(transport), principal, beginning, task_status.started)


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
        run, is_resumed = client_runner(TrioEventLoop(), adapter, options, make, after_close)
        return await run_client(run, nursery, is_resumed=is_resumed)
    except BaseException:
        # Invalid options, for one: no actor owned the transport yet.
        await close_forcefully(adapter, TrioEventLoop())
        raise


async def run_client(run: Callable[..., Awaitable[None]], nursery: trio.Nursery, *, is_resumed: bool) -> C:
    """Start ``run`` in a nursery, and return the client that it starts, initialized.

    A client whose conversation began earlier needs no handshake. Raises ConnectFailed, after cleaning up.
    """
    client: C = await nursery.start(_run_service, run)
    if is_resumed:
        return client
    try:
        await client.initialize()
    except BaseException:
        client.driver.close(0)
        with trio.CancelScope(shield=True):
            await client.driver.wait_closed()
        raise
    return client


@trio.lowlevel.enable_ki_protection
async def _run_service(run: Callable[..., Awaitable[None]], *, task_status: trio.TaskStatus[Any]) -> None:
    await run(started=task_status.started)


@trio.lowlevel.enable_ki_protection
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


# ----------------------------------------------------------------------------------------------------------- transports
# A connection's bytes or messages over a Trio stream or channel.

Transport: TypeAlias = "trio.abc.Stream | trio.abc.Channel[str] | trio.abc.Channel[bytes]"
"""Carries a conversation: a stream of bytes, or a channel of whole messages."""


class ChannelAdapter:
    """Carries whole JSON texts over a ``trio.abc.Channel``.

    They are sent in the type that the peer used last, str or bytes. Until it has sent something, ``binary`` decides.
    """

    unsent = False
    ending = False

    def __init__(self, channel: trio.abc.Channel[str] | trio.abc.Channel[bytes], *, binary: bool) -> None:
        self._channel = channel
        self._binary = binary

    async def receive(self, connection: Connection) -> None:
        """Wait for the next message, and feed it or the end of the channel."""
        try:
            message: object = await self._channel.receive()
        except trio.EndOfChannel:
            connection.receive_message(None, trio.current_time())
            return
        if not isinstance(message, str | bytes | bytearray | memoryview):
            raise TypeError(f"a channel's messages must be str or bytes, not {type(message).__name__}")
        self._binary = not isinstance(message, str)
        text = message if isinstance(message, str) else bytes(message)
        connection.receive_message(text, trio.current_time())

    def send_now(self, connection: Connection) -> None:
        """Do nothing: a channel does not tell whether ``send`` would wait, so ``send`` does all the writing."""

    async def send(self, connection: Connection) -> None:
        """Send every message that the engine has."""
        while (message := connection.next_message()) is not None:
            text = message.text if self._binary else message.text.decode()
            connection.set_unwritten(len(message.text))
            await self._channel.send(text)  # type: ignore[arg-type]  # the type that the peer uses
            connection.set_unwritten(0)

    def session_lost(self) -> None:
        """Do nothing: this adapter has only one channel."""

    async def aclose(self) -> None:
        """Close the channel."""
        await self._channel.aclose()


def adapter_for(transport: Transport, *, binary: bool = False) -> TransportAdapter:
    """Return the adapter of a transport. Raises TypeError if it is neither a stream nor a channel."""
    if isinstance(transport, trio.abc.Stream):
        return stream_adapter(transport, TrioEventLoop())
    if isinstance(transport, trio.abc.Channel):
        return ChannelAdapter(transport, binary=binary)
    raise TypeError(f"a transport must be a trio.abc.Stream or a trio.abc.Channel, not {type(transport).__name__}")
