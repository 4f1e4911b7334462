"""``connect``, ``open_transport`` and ``serve``: a client or a server over any transport.

A client has two shapes of lifetime. ``async with open_…(…) as client`` ends with its block; ``await connect_…(…,
nursery=n)`` is tied to no block and ends when it is closed, by whichever task, or with the nursery.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from types import TracebackType
from typing import Any, TypeVar, Unpack

import trio

from mcpio.app.client import Client, ClientOptions, client_connection
from mcpio.app.runtime import Driver
from mcpio.app.server import Server
from mcpio.app.session import Session
from mcpio.engine.connection import Connection
from mcpio.trio._runtime import TrioRuntime
from mcpio.trio._session import SessionActor, Transport
from mcpio.trio._timekeeper import Timekeeper

__all__ = ["Opened", "connect", "open_transport", "serve"]

S = TypeVar("S", bound=Session)


async def serve(
    server: Server,
    transport: Transport,
    *,
    principal: Any = None,
    task_status: trio.TaskStatus[Session] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve one client over a transport, until the conversation ends; then the transport is closed.

    ``principal`` is whoever was authenticated before; handlers see it. With ``nursery.start`` it returns the session.
    Nothing that the client does raises here.
    """
    async with lifespan_of(server) as state:
        connection = server.connection(principal=principal)
        await _carry(
            connection, transport, lambda driver: server.session(connection, driver, state), task_status=task_status
        )


async def connect(
    transport: Transport,
    *,
    nursery: trio.Nursery,
    after_close: Callable[[], Awaitable[None]] | None = None,
    **options: Unpack[ClientOptions],
) -> Client:
    """Return a client that has shaken hands over a transport. Its tasks live in ``nursery`` and never raise.

    ``after_close`` is awaited when the transport is closed. Raises ``ConnectFailed``, with the transport closed.
    """
    connection = client_connection(**options)
    client: Client = await nursery.start(
        _carry, connection, transport, lambda driver: Client(connection, driver, **options), after_close
    )
    try:
        await client.initialize()
    except BaseException:
        client.driver.close(0)
        with trio.CancelScope(shield=True):
            await client.driver.wait_closed()
        raise
    return client


def open_transport(transport: Transport, **options: Unpack[ClientOptions]) -> Opened:
    """Give a client for the length of a block: ``async with open_transport(stream) as client``."""
    return Opened(lambda nursery: connect(transport, nursery=nursery, **options))


class Opened:
    """A client for the length of a block. What the body raises leaves the block as it is."""

    def __init__(self, connect: Callable[[trio.Nursery], Awaitable[Client]]) -> None:
        self._connect = connect
        self._manager = trio.open_nursery()
        self._client: Client | None = None

    async def __aenter__(self) -> Client:
        nursery = await self._manager.__aenter__()
        try:
            self._client = await self._connect(nursery)
        except BaseException as error:
            nursery.cancel_scope.cancel()
            await self._leave(error)
            raise
        self._nursery = nursery
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        client = self._client
        if client is not None:
            client.close()
            with trio.CancelScope(shield=True):
                await client.driver.wait_closed()
        self._nursery.cancel_scope.cancel()
        await self._leave(error)

    async def _leave(self, error: BaseException | None) -> None:
        """Leave the nursery without letting it wrap ``error``: no task of ours raises, so there is no group to make."""
        try:
            await self._manager.__aexit__(None, None, None)
        except trio.Cancelled:
            if error is None:
                raise


async def _carry(
    connection: Connection,
    transport: Transport,
    make_session: Callable[[Driver], S],
    after_close: Callable[[], Awaitable[None]] | None = None,
    *,
    task_status: trio.TaskStatus[S] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Carry one session, with its handlers, until it is over."""
    timekeeper = Timekeeper()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timekeeper.run)
        actor = SessionActor(connection, transport, timekeeper, TrioRuntime(nursery), after_close=after_close)
        session = make_session(actor)
        actor.attach(session)
        task_status.started(session)
        await actor.run()
        nursery.cancel_scope.cancel()


def lifespan_of(server: Server) -> Any:
    """Return what to enter around the serving of a server."""
    return nullcontext() if server.lifespan is None else server.lifespan(server)
