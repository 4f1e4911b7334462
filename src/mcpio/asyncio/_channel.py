"""``open_channel``, ``connect_channel`` and ``serve_channel``: conversations over two functions that carry messages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from mcpio._drivers.setup import ConnectOptions, ServerSetupOptions
from mcpio.app.client import Client
from mcpio.asyncio._drivers import AsyncioClientContext, Started, check_serving, serve_adapter, start_client
from mcpio.engine.connection import Connection

if TYPE_CHECKING:
    from mcpio.app.server import Server

__all__ = ["Receive", "Send", "connect_channel", "open_channel", "serve_channel"]

Receive: TypeAlias = Callable[[], Awaitable["str | bytes | None"]]
"""Waits for the next message, a whole JSON text; ``None`` is the end. An OSError says that the channel broke. One call
at a time, which may be cancelled: a message must not be lost then."""

Send: TypeAlias = Callable[[str], Awaitable[object]]
"""Sends one message, a whole JSON text. An OSError says that the channel broke."""


def open_channel(
    receive: Receive,
    send: Send,
    *,
    close: Callable[[], Awaitable[object]] | None = None,
    **options: Unpack[ConnectOptions],
) -> AsyncioClientContext[Client]:
    """Async context manager that yields a client: ``async with open_channel(receive, send) as client``.

    For what carries whole messages: a WebSocket of another library, a message broker, a browser's port. ``close`` is
    awaited once, when the conversation has ended. See ``ClientOptions``, and ``ClientSetupOptions`` for resumed
    sessions and taps.
    """
    return AsyncioClientContext(lambda: _start(receive, send, close, None, options))


async def connect_channel(
    receive: Receive,
    send: Send,
    *,
    close: Callable[[], Awaitable[object]] | None = None,
    group: asyncio.TaskGroup | None = None,
    **options: Unpack[ConnectOptions],
) -> Client:
    """Return an initialized client over two functions, tied to no block. See ``open_channel``.

    It ends when it is closed, or with ``group``; without a group it ends with the event loop. Raises ConnectFailed.
    """
    client, _ = await _start(receive, send, close, group, options)
    return client


async def serve_channel(
    server: Server,
    receive: Receive,
    send: Send,
    *,
    close: Callable[[], Awaitable[object]] | None = None,
    principal: Any = None,
    **beginning: Unpack[ServerSetupOptions],
) -> None:
    """Serve one client over two functions until the conversation ends. See ``open_channel``, and ``serve``."""
    check_serving(server, principal, beginning)
    await serve_adapter(server, _Adapter(receive, send, close), principal, beginning, abort=lambda: None)


async def _start(
    receive: Receive,
    send: Send,
    close: Callable[[], Awaitable[object]] | None,
    group: asyncio.TaskGroup | None,
    options: Any,
) -> Started[Client]:
    return await start_client(_Adapter(receive, send, close), group, options, Client, abort=lambda: None)


class _Adapter:
    """Carries whole messages."""

    unsent = False
    ending = False

    def __init__(self, receive: Receive, send: Send, close: Callable[[], Awaitable[object]] | None) -> None:
        for name, function in (("receive", receive), ("send", send)):
            if not callable(function):
                raise TypeError(f"{name} is a coroutine function, not {type(function).__name__}")
        self._receive = receive
        self._send = send
        self._close = close
        self._clock = asyncio.get_running_loop().time

    async def receive(self, connection: Connection) -> None:
        """Wait for the next message, and feed it or the end."""
        text: object = await _heeded(self._receive())
        if text is not None and not isinstance(text, str | bytes):
            raise TypeError(f"a channel's messages are str or bytes, not {type(text).__name__}")
        connection.receive_message(text, self._clock())

    def send_now(self, connection: Connection) -> None:
        """Do nothing: a channel does not tell whether ``send`` would wait, so ``send`` does all the writing."""

    async def send(self, connection: Connection) -> None:
        """Send every message that the engine has."""
        while (message := connection.next_message()) is not None:
            connection.set_unwritten(len(message.text))
            await _heeded(self._send(message.text.decode()))
            connection.set_unwritten(0)

    def session_lost(self) -> None:
        """Do nothing: this adapter has only one channel."""

    async def aclose(self) -> None:
        """Close the channel."""
        if self._close is not None:
            close, self._close = self._close, None
            await close()


async def _heeded(call: Awaitable[Any]) -> Any:
    """Await a call of the program, and then heed a cancellation that it swallowed or answered with another error.

    asyncio cancels once: a session that went on would never end.
    """
    try:
        return await call
    finally:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
