# ruff: noqa: SLF001 - sessions have methods for drivers that programs have no use for
"""Reconnection: a client's transport adapter that replaces a lost connection by a new one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

import attrs

from mcpio._checks import chosen
from mcpio._drivers.actor import TransportAdapter
from mcpio._drivers.event_loop import FINAL_READ_TIMEOUT, EventLoop
from mcpio.app.client import Client
from mcpio.app.reconnection import SessionReconnector
from mcpio.app.runtime import checked_callback
from mcpio.backoff import Backoff
from mcpio.engine.connection import Connection
from mcpio.engine.options import Options
from mcpio.engine.table import Phase
from mcpio.errors import ConnectFailed, ConnectionLost, McpError
from mcpio.restarts import RestartPolicy, Restarts

__all__ = ["Connector", "ReconnectingAdapter", "lasting_client"]

C = TypeVar("C", bound=Client)


class Connector(Protocol):
    """Makes connections to one server."""

    async def connect(self) -> TransportAdapter:
        """Return the adapter of a new connection. Raises ConnectFailed.

        Its ``receive`` must raise, as for a broken transport, when the peer ends the connection.
        """

    async def disconnect(self, adapter: TransportAdapter) -> str:
        """Clean up after a lost connection, and return an error that describes its end."""


async def lasting_client(
    connector: Connector,
    policy: Backoff | RestartPolicy,
    options: dict[str, Any],
    make: Callable[..., C],
    loop: EventLoop,
) -> tuple[ReconnectingAdapter, Callable[..., C]]:
    """Return the adapter of a client that outlives its connections, and the function that makes the client.

    ``make`` makes one as for ``start_client``. ``options`` are the options of the client, which are changed to fit, and
    ``on_session_lost``, which is taken out. Raises TypeError for a ready-made connection.
    """
    if options.get("connection") is not None:
        raise TypeError("a client that connects again makes its connection itself: leave connection= out")
    options["options"] = attrs.evolve(chosen("options", options.get("options"), Options), reopens=True)
    on_lost = checked_callback("on_session_lost", options.pop("on_session_lost", None), "()")
    restarts = Restarts(policy)
    adapter = ReconnectingAdapter(await connector.connect(), connector, restarts, on_lost, loop)
    return adapter, partial(adapter.client, make)


class ReconnectingAdapter:
    """Carries a connection that ``reopens`` over one transport after another.

    The task that reads also reconnects. Anything else that detects a loss only cancels its read.
    """

    def __init__(
        self,
        adapter: TransportAdapter,
        connector: Connector,
        restarts: Restarts,
        on_lost: Callable[[], None] | None,
        loop: EventLoop,
    ) -> None:
        """``on_lost`` is called for each lost session."""
        self._loop = loop
        self._connector = connector
        self._on_lost = on_lost
        self._restarts = restarts
        self._has_client = False
        self._use(adapter)
        restarts.began(self._loop.now())

    def client(self, make: Callable[..., C], connection: Any, driver: Any, **options: Any) -> C:
        """Create the client of this adapter. Call it once."""
        client = make(connection, driver, **options)
        self._client: Client = client
        self._renewal = SessionReconnector(client, self._on_lost)
        client._reconnector = self._renewal
        self._has_client = True
        return client

    # As an adapter

    @property
    def unsent(self) -> bool:
        """Whether output was pulled from a connection and not written yet."""
        return self._inner is not None and self._inner.unsent

    @property
    def ending(self) -> bool:
        """Whether the graceful end was pulled, and it or the output before it is not written yet."""
        return self._inner is not None and self._inner.ending

    async def receive(self, connection: Connection) -> None:
        """Feed input; when the stream is lost, reconnect."""
        if self._inner is None:
            await self._connect_again(connection)
            return
        self._reading = self._loop.scope()
        try:
            with self._reading:
                if not self._is_abandoned:
                    await self._inner.receive(connection)
                    return
        except self._loop.broken as error:
            # The cause that the adapter found says more than that the stream broke.
            self._lose(connection, error.__cause__ if isinstance(error.__cause__, McpError) else error)
        await self._drop(connection)

    def send_now(self, connection: Connection) -> None:
        """Write what finds room."""
        if self._inner is not None:
            self._inner.send_now(connection)

    async def send(self, connection: Connection) -> None:
        """Write all output. A failure to write is left to the task that reads, which sees the loss too."""
        inner = self._inner
        if inner is None:
            # Without a stream, only the end has output.
            connection.connection_lost(None, self._loop.now())
            return
        try:
            await inner.send(connection)
        except self._loop.broken:
            if connection.phase is Phase.CLOSING:
                raise  # a client that closes has no use for another stream
            # The task that reads sees the loss as well, and the last answers before it: it goes first.
            with self._loop.scope(FINAL_READ_TIMEOUT):
                await self._lost.wait()
            if self._inner is inner:
                self._lose(connection, None)
                self._abandon()

    def session_lost(self) -> None:
        """Drop the stream: the server does not answer, although the stream seems to work."""
        if self._inner is not None and self._has_begun:
            self._abandon()

    async def aclose(self) -> None:
        """Close the stream, and do not reconnect."""
        if self._has_client:
            self._renewal.give_up()
        if self._inner is not None:
            await self._inner.aclose()

    # One connection after another

    def _use(self, adapter: TransportAdapter) -> None:
        self._inner: TransportAdapter | None = adapter
        self._reading = self._loop.scope()
        self._lost = self._loop.event()
        self._is_abandoned = False
        self._has_begun = True

    def _lose(self, connection: Connection, error: Exception | None) -> None:
        """Report to the connection that its session is lost. Without a session, that would end the connection."""
        if self._has_begun:
            connection.connection_lost(error, self._loop.now())

    def _abandon(self) -> None:
        """Make the task that reads drop the stream."""
        self._is_abandoned = True
        self._reading.cancel()

    async def _drop(self, connection: Connection) -> None:
        """Release the stream, and prepare to reconnect unless the client has ended."""
        lost, self._inner = self._inner, None
        self._lost.set()
        # Without a first session that worked, there is nothing to reconnect.
        goes_on = connection.phase is Phase.NEW and connection.peer is not None
        if goes_on:
            self._renewal.lose()
        words = "" if lost is None else await self._connector.disconnect(lost)
        if not goes_on:
            return
        self._fail(ConnectionLost(words))
        self._renewal.tell()
        if self._on_lost is None and not self._restarts.is_over:
            self._client.driver.report(f"{words}: trying again", None)

    async def _connect_again(self, connection: Connection) -> None:
        """Try to connect until it works, or until the policy gives up, which ends the connection."""
        while (deadline := self._restarts.next_deadline()) is not None:
            await self._client.driver.runtime.sleep(max(0.0, deadline - self._loop.now()))
            try:
                adapter = await self._connector.connect()
            except ConnectFailed as error:
                self._fail(error)
                continue
            self._use(adapter)
            self._has_begun = False
            # Not awaited: the answers of the handshake are read by this task.
            self._client.driver.runtime.spawn(self._open(adapter))
            return
        self._renewal.give_up(self._restarts.error)
        connection.connection_lost(self._restarts.error, self._loop.now())

    def _fail(self, error: McpError) -> None:
        # At random, or all clients of a server that restarts would come back at the same moments.
        drawn = int.from_bytes(self._client.driver.runtime.entropy(6), "big") / 2**48
        self._restarts.ended(error, self._loop.now(), chance=drawn)

    async def _open(self, adapter: TransportAdapter) -> None:
        """Open a session on a new stream. The task that reads sees if that stream is lost too."""
        if self._inner is not adapter:
            return  # It was lost before this task started.
        self._has_begun = True
        try:
            await self._renewal.open()
            # Only now: a server that accepts connections and hangs in the handshake does not work.
            self._restarts.began(self._loop.now())
        except McpError as error:
            if not self._renewal.was_closed:
                self._client.driver.report(f"no session on the new connection: {error}", None)
            if self._client.connection.phase in (Phase.CLOSING, Phase.CLOSED):
                self._renewal.give_up(error)
