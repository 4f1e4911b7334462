"""A session that is lost, opened anew inside the same client: by its server forgetting it (SESS-06), or on the way.

One mechanism for every transport whose sessions may be lost while the client goes on. The transport says when a session
is lost, and when another can be opened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mcpio.app.awaitables import check_nothing_waits, checked_callback
from mcpio.app.session import Session
from mcpio.engine.table import Phase
from mcpio.errors import ConnectionLost, McpError, NoBackChannel
from mcpio.events import CloseReason

if TYPE_CHECKING:
    from mcpio.app.client import Client
    from mcpio.app.middleware import CallNext, OutgoingCall
    from mcpio.app.runtime import OneShot

__all__ = ["SessionReconnector"]


class SessionReconnector:
    """Shakes hands again when the transport says so. Requests that begin meanwhile wait for it.

    Requests that were under way when the session was lost have failed; whether one is sent again is for ``retry`` to
    say. What the server has to know again is told to it again, before anything that waits: which resources the client
    is subscribed to, and the level of its logs. It is middleware, and stands inside of all other.
    """

    def __init__(self, client: Client, on_lost: Callable[[], None] | None) -> None:
        """``on_lost`` is called for each session that is lost, before the next one begins."""
        self._client = client
        self._on_lost = checked_callback("on_session_lost", on_lost)
        self._waiting: list[OneShot] | None = None
        self._is_over = False
        self._why: McpError | None = None
        self._losses = 0
        self._subscriptions: dict[str, Any] = {}
        self._log_level: Any = None

    async def __call__(self, call: OutgoingCall, request: Any, call_next: CallNext) -> Any:
        """Be the middleware."""
        while self._waiting is not None:
            opened = self._client.driver.runtime.one_shot()
            self._waiting.append(opened)
            await opened.wait()
            if self._is_over and self._why is None:
                raise NoBackChannel("the session was lost, and another could not be had")
        if self._why is not None:
            raise NoBackChannel(f"the session was lost, and another could not be had: {self._why}")
        result = await call_next(request)
        match call.method:
            case "resources/subscribe":
                self._subscriptions[request.uri] = request
            case "resources/unsubscribe":
                self._subscriptions.pop(request.uri, None)
            case "logging/setLevel":
                self._log_level = request
        return result

    def begin(self, again_in: float | None) -> None:
        """Take note that the session is lost. ``again_in`` says when to begin another; ``None`` for never."""
        self.lose()
        self.tell()
        if again_in is None:
            self.give_up()
        else:
            self._client.driver.runtime.spawn(self._open(again_in))

    def lose(self) -> None:
        """Take note that the session is lost: requests wait. ``tell``, and then ``open`` or ``give_up``, follow."""
        self._losses += 1
        if self._waiting is None:
            self._waiting = []
        self._client.forget_tools()

    def tell(self) -> None:
        """Call whoever wants to hear of each session that is lost."""
        if self._on_lost is None:
            return
        try:
            check_nothing_waits(self._on_lost())
        except Exception as error:
            self._client.driver.report("the callback for a lost session failed", error)

    async def open(self) -> None:
        """Shake hands, restore what the server has to know, and go on with what waits.

        Raises ``ConnectFailed`` when the handshake fails, and ``McpError`` when the session is lost once more.
        """
        client, losses = self._client, self._losses
        await client.initialize()
        for request in (*([] if self._log_level is None else [self._log_level]), *self._subscriptions.values()):
            try:
                await Session.request(client, request)
            except McpError as error:
                if client.connection.phase is not Phase.OPERATING:
                    raise
                client.driver.report("the server does not know any more what it was asked for", error)
        if self._losses > losses:
            raise ConnectionLost("the session was lost as soon as it was opened")
        self._go_on()

    def give_up(self, why: McpError | None = None) -> None:
        """Take note that no session can come any more: what waits fails with ``NoBackChannel``. Twice does nothing.

        ``why`` is for those who wait, and for those who come later. ``None`` where the client was closed.
        """
        if not self._is_over:
            self._is_over, self._why = True, why
        self._go_on()

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting or (), None
        for opened in waiting:
            opened.set(None)

    async def _open(self, again_in: float) -> None:
        client, losses = self._client, self._losses
        await client.driver.runtime.sleep(again_in)
        try:
            await self.open()
        except McpError as error:
            if self._losses > losses:
                return  # It was lost again, and that is seen to.
            if self._was_closed():
                self.give_up()
                return
            client.driver.report("the session was lost, and cannot be opened anew", error)
            client.close(0)
            self.give_up(error)

    def _was_closed(self) -> bool:
        """Whether it is our own side that ended the connection."""
        connection = self._client.connection
        end = connection.end
        return connection.phase is Phase.CLOSING if end is None else end.reason is CloseReason.CLOSED
