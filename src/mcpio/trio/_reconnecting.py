"""A transport of a client that is a stream after another: when one is lost, the next one is connected."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio

from mcpio.app.client import Client
from mcpio.app.renewing import Renewal
from mcpio.backoff import Backoff
from mcpio.engine.connection import Connection
from mcpio.engine.table import Phase
from mcpio.errors import ConnectFailed, ConnectionLost, McpError
from mcpio.trio._listening import BROKEN
from mcpio.trio._wire import StreamWire

__all__ = ["ReconnectingWire"]

LAST_READ = 1.0
"""Seconds to go on reading from a stream that takes nothing any more: the last answers may lie there."""


class ReconnectingWire:
    """Lines on one stream after another. The connection is one that ``reopens``.

    The task that reads connects again too. What else happens to a stream that is lost only makes that task notice.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        dial: Callable[[], Awaitable[trio.abc.Stream]],
        policy: Backoff,
        on_lost: Callable[[], None] | None,
    ) -> None:
        """``dial`` raises ``ConnectFailed``. ``on_lost`` is called for each session that is lost."""
        self._dial = dial
        self._on_lost = on_lost
        self._policy = attrs.evolve(policy, also=(*policy.also, ConnectFailed, ConnectionLost))
        self._attempts = 0
        self._cause: McpError
        self._use(stream)

    def client(self, connection: Any, driver: Any, **options: Any) -> Client:
        """Return the client, which is made with this wire. Call it once."""
        self._client = Client(connection, driver, **options)
        self._renewal = Renewal(self._client, self._on_lost)
        self._client.add_innermost(self._renewal)
        return self._client

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
            connection.connection_lost(error, trio.current_time())
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
            with trio.move_on_after(LAST_READ):
                await self._lost.wait()
            if self._inner is inner:
                connection.connection_lost(None, trio.current_time())
                self._give_up()

    def renew(self) -> None:
        """Take note that the server does not answer, though the stream seems to work."""
        if self._inner is not None and self._has_begun:
            self._give_up()

    async def aclose(self) -> None:
        """Close the stream; no other comes."""
        self._renewal.give_up()
        if self._inner is not None:
            await self._inner.aclose()

    # One stream after another

    def _use(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._inner: StreamWire | None = StreamWire(stream, end_is_loss=True)
        self._reading = trio.CancelScope()
        self._lost = trio.Event()
        self._is_given_up = False
        self._has_begun = True
        self._since = trio.current_time()

    def _give_up(self) -> None:
        """Have whoever reads find that the stream is lost."""
        self._is_given_up = True
        self._reading.cancel()

    async def _drop(self, connection: Connection) -> None:
        """Be without a stream, unless that is the end."""
        self._inner = None
        self._lost.set()
        with contextlib.suppress(Exception):
            await trio.aclose_forcefully(self._stream)
        if connection.phase is not Phase.NEW:
            return
        self._renewal.lose()
        self._cause = ConnectionLost("the connection was lost")
        if trio.current_time() - self._since >= self._policy.cap:
            self._attempts = 0
        if self._on_lost is None:
            self._client.driver.report("the connection was lost: connecting again", None)

    async def _connect_again(self, connection: Connection) -> None:
        """Try until there is another stream, or the policy says to give up: that is the end of the connection."""
        while True:
            delay = self._policy.next_delay(self._attempts, self._cause, chance=self._chance())
            if delay is None:
                connection.connection_lost(self._cause, trio.current_time())
                return
            self._attempts += 1
            await trio.sleep(delay)
            try:
                stream = await self._dial()
            except ConnectFailed as error:
                self._cause = error
                continue
            self._use(stream)
            self._has_begun = False
            self._client.driver.runtime.spawn(self._open())
            return

    async def _open(self) -> None:
        """Open a session on a new stream. Whoever reads finds out when that stream is lost too."""
        self._has_begun = True
        try:
            await self._renewal.open()
        except McpError as error:
            self._client.driver.report(f"no session on the new connection: {error}", None)

    def _chance(self) -> float:
        drawn = self._client.driver.runtime.entropy(6)
        return int.from_bytes(drawn, "big") / 2**48
