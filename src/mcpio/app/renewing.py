"""A session that its server forgot, opened anew inside the same client (SESS-06)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mcpio.app.callbacks import check_nothing_waits, checked_callback
from mcpio.app.session import Session
from mcpio.errors import McpError

if TYPE_CHECKING:
    from mcpio.app.client import Client
    from mcpio.app.middleware import Call, CallNext
    from mcpio.app.runtime import OneShot

__all__ = ["Renewal"]


class Renewal:
    """Shakes hands again when the transport says so. Requests that begin meanwhile wait for it.

    It is middleware, and stands inside of all other. What the server has to know again is told to it again: which
    resources the client is subscribed to, and the level of its logs.
    """

    def __init__(self, client: Client, on_lost: Callable[[], None] | None) -> None:
        """``on_lost`` is called for each session that is lost, before the next one begins."""
        self._client = client
        self._on_lost = checked_callback("on_session_lost", on_lost)
        self._waiting: list[OneShot] | None = None
        self._subscriptions: dict[str, Any] = {}
        self._log_level: Any = None

    async def __call__(self, call: Call, request: Any, call_next: CallNext) -> Any:
        """Be the middleware."""
        while self._waiting is not None:
            opened = self._client.driver.runtime.one_shot()
            self._waiting.append(opened)
            await opened.wait()
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
        client = self._client
        if self._on_lost is not None:
            try:
                check_nothing_waits(self._on_lost())
            except Exception as error:
                client.driver.report("the callback for a lost session failed", error)
        if again_in is None:
            return
        if self._waiting is None:
            self._waiting = []
        client.forget_tools()
        client.driver.runtime.spawn(self._open(again_in))

    async def _open(self, again_in: float) -> None:
        client = self._client
        try:
            await client.driver.runtime.sleep(again_in)
            await client.initialize()
        except McpError as error:
            client.driver.report("the session was lost, and cannot be opened anew", error)
            client.close(0)
            return
        finally:
            waiting, self._waiting = self._waiting or (), None
            for opened in waiting:
                opened.set(None)
        for request in (*self._subscriptions.values(), *([] if self._log_level is None else [self._log_level])):
            try:
                await Session.request(client, request)
            except McpError as error:
                client.driver.report("the server does not know any more what it was asked for", error)
