"""A transport of a client that is one wire after another: when one is lost, the next one is connected."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol, TypeVar

import attrs
import trio

from mcpio._checks import chosen
from mcpio._drivers.timeouts import FINAL_READ_TIMEOUT
from mcpio.app.awaitables import checked_callback
from mcpio.app.client import Client
from mcpio.app.reconnection import SessionReconnector
from mcpio.backoff import Backoff
from mcpio.engine.connection import Connection
from mcpio.engine.options import Options
from mcpio.engine.table import Phase
from mcpio.errors import ConnectFailed, ConnectionLost, McpError
from mcpio.restarts import RestartPolicy, Restarts
from mcpio.trio._drivers import start_client
from mcpio.trio._net.listening import BROKEN
from mcpio.trio._transport import TransportAdapter

__all__ = ["Connector", "start_lasting_client"]

C = TypeVar("C", bound=Client)


class Connector(Protocol):
    """Where wires come from, one after another."""

    async def connect(self) -> TransportAdapter:
        """Return the next wire, whose ``receive`` raises what a broken transport does when the peer ends it.

        Raises ``ConnectFailed``.
        """

    async def disconnect(self, wire: TransportAdapter) -> str:
        """Leave nothing behind of a wire that is lost; return what is known of how that came."""


async def start_lasting_client(
    connector: Connector,
    policy: Backoff | RestartPolicy,
    nursery: trio.Nursery,
    given: dict[str, Any],
    make: Callable[..., C],
    after_close: Callable[[C], Awaitable[None]] | None = None,
) -> C:
    """Return a client that outlives its connections. ``make`` and ``after_close`` are as for ``start_client``.

    Of the options that are ``given``, ``on_session_lost`` is for here. ``TypeError`` for a ready-made connection.
    """
    if given.get("connection") is not None:
        raise TypeError("a client that connects again makes its connection itself: leave connection= out")
    given["options"] = attrs.evolve(chosen("options", given.get("options"), Options), reopens=True)
    on_lost = checked_callback("on_session_lost", given.pop("on_session_lost", None))
    restarts = Restarts(policy)
    wire = ReconnectingAdapter(await connector.connect(), connector, restarts, on_lost)
    return await start_client(wire, nursery, given, partial(wire.client, make), after_close)


class ReconnectingAdapter:
    """One wire after another. The connection is one that ``reopens``.

    The task that reads connects again too. What else happens to a wire that is lost only makes that task notice.
    """

    def __init__(
        self, wire: TransportAdapter, connector: Connector, restarts: Restarts, on_lost: Callable[[], None] | None
    ) -> None:
        """``on_lost`` is called for each session that is lost."""
        self._connector = connector
        self._on_lost = on_lost
        self._restarts = restarts
        self._has_client = False
        self._use(wire)
        restarts.began(trio.current_time())

    def client(self, make: Callable[..., C], connection: Any, driver: Any, **options: Any) -> C:
        """Return the client, which ``make`` makes with this wire. Call it once."""
        client = make(connection, driver, **options)
        self._client: Client = client
        self._renewal = SessionReconnector(client, self._on_lost)
        client.driving.reconnect_by(self._renewal)
        self._has_client = True
        return client

    # As a wire

    @property
    def unsent(self) -> bool:
        """Whether output was pulled from a connection and not written yet."""
        return self._inner is not None and self._inner.unsent

    @property
    def ending(self) -> bool:
        """Whether the end in order was pulled, and it or what comes before it is not written yet."""
        return self._inner is not None and self._inner.ending

    async def receive(self, connection: Connection) -> None:
        """Feed what arrives; when the stream is lost, connect again."""
        if self._inner is None:
            await self._connect_again(connection)
            return
        self._reading = trio.CancelScope()
        try:
            with self._reading:
                if not self._is_given_up:
                    await self._inner.receive(connection)
                    return
        except BROKEN as error:
            # What the wire found says more than that it broke.
            self._lose(connection, error.__cause__ if isinstance(error.__cause__, McpError) else error)
        await self._drop(connection)

    def send_now(self, connection: Connection) -> None:
        """Write what finds room."""
        if self._inner is not None:
            self._inner.send_now(connection)

    async def send(self, connection: Connection) -> None:
        """Write what there is. On a stream that is lost that means nothing: who reads finds out."""
        inner = self._inner
        if inner is None:
            # Only the end has anything to say to nobody.
            connection.connection_lost(None, trio.current_time())
            return
        try:
            await inner.send(connection)
        except BROKEN:
            if connection.phase is Phase.CLOSING:
                raise
            with trio.move_on_after(FINAL_READ_TIMEOUT):
                await self._lost.wait()
            if self._inner is inner:
                self._lose(connection, None)
                self._give_up()

    def session_lost(self) -> None:
        """Take note that the server does not answer, though the stream seems to work."""
        if self._inner is not None and self._has_begun:
            self._give_up()

    async def aclose(self) -> None:
        """Close the stream; no other comes."""
        if self._has_client:
            self._renewal.give_up()
        if self._inner is not None:
            await self._inner.aclose()

    # One wire after another

    def _use(self, wire: TransportAdapter) -> None:
        self._inner: TransportAdapter | None = wire
        self._reading = trio.CancelScope()
        self._lost = trio.Event()
        self._is_given_up = False
        self._has_begun = True

    def _lose(self, connection: Connection, error: Exception | None) -> None:
        """Tell the connection that its session is lost. Before that has begun, the loss would be the end of all."""
        if self._has_begun:
            connection.connection_lost(error, trio.current_time())

    def _give_up(self) -> None:
        """Have whoever reads find that the stream is lost."""
        self._is_given_up = True
        self._reading.cancel()

    async def _drop(self, connection: Connection) -> None:
        """Be without a wire, unless that is the end."""
        lost, self._inner = self._inner, None
        self._lost.set()
        # Nobody is promised another before the first has worked.
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
        """Try until there is another wire, or the policy says to give up: that is the end of the connection."""
        while (deadline := self._restarts.next_deadline()) is not None:
            await trio.sleep_until(deadline)
            try:
                wire = await self._connector.connect()
            except ConnectFailed as error:
                self._fail(error)
                continue
            self._use(wire)
            self._has_begun = False
            self._client.driver.runtime.spawn(self._open(wire))
            return
        self._renewal.give_up(self._restarts.error)
        connection.connection_lost(self._restarts.error, trio.current_time())

    def _fail(self, error: McpError) -> None:
        drawn = int.from_bytes(self._client.driver.runtime.entropy(6), "big") / 2**48
        self._restarts.ended(error, trio.current_time(), chance=drawn)

    async def _open(self, wire: TransportAdapter) -> None:
        """Open a session on a new stream. Whoever reads finds out when that stream is lost too."""
        if self._inner is not wire:
            return  # It was lost at once.
        self._has_begun = True
        try:
            await self._renewal.open()
            # Not before: what connects, and then hangs in the handshake for long, has not worked.
            self._restarts.began(trio.current_time())
        except McpError as error:
            self._client.driver.report(f"no session on the new connection: {error}", None)
            if self._client.connection.phase in (Phase.CLOSING, Phase.CLOSED):
                self._renewal.give_up(error)
