"""The interface of the shared drivers to Trio."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from math import inf
from typing import Any, Final

import trio

from mcpio._drivers.event_loop import TCP_KEEP_ALIVE, set_tcp_keep_alive
from mcpio.trio._runtime import Signal, TrioRuntime, last_moment, ungrouped

__all__ = ["BROKEN", "TrioEventLoop", "keep_tcp_alive"]

BROKEN: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)
"""The exceptions that a closed or broken stream raises."""


class TrioEventLoop:
    """``mcpio._drivers.event_loop.EventLoop`` for Trio."""

    broken: tuple[type[Exception], ...] = BROKEN
    cancelled: type[BaseException] = trio.Cancelled

    now = staticmethod(trio.current_time)

    def signal(self) -> Signal:
        """Return a flag that waiting lowers again."""
        return Signal()

    def event(self) -> trio.Event:
        """Return a flag that stays up."""
        return trio.Event()

    def lock(self) -> trio.Lock:
        """Return a lock."""
        return trio.Lock()

    def scope(self, seconds: float | None = None) -> trio.CancelScope:
        """Return a cancel scope."""
        return trio.CancelScope(deadline=inf if seconds is None else trio.current_time() + seconds)

    @asynccontextmanager
    async def group(self) -> AsyncIterator[TrioRuntime]:
        """Return a nursery as a runtime."""
        with ungrouped():
            async with trio.open_nursery() as nursery:
                yield TrioRuntime(nursery)

    def last_moment(self, seconds: float | None) -> AbstractAsyncContextManager[None]:
        """Return a shielded block."""
        return last_moment(seconds)

    async def resolve(self, host: str, port: int) -> list[str]:
        """Ask the system in a thread."""
        found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
        return list(dict.fromkeys(str(address[0]) for *_, address in found))

    async def checkpoint(self) -> None:
        """Yield to other tasks."""
        await trio.lowlevel.checkpoint()

    async def open_stream(
        self, host: str, port: int, unix: str | None, keep_alive: float | None = TCP_KEEP_ALIVE
    ) -> trio.SocketStream:
        """Connect."""
        if unix is not None:
            return await trio.open_unix_socket(unix)
        with ungrouped():  # Trio tries several addresses at once.
            stream = await trio.open_tcp_stream(host, port)
        keep_tcp_alive(stream, keep_alive)
        return stream

    async def start_tls(
        self, stream: Any, context: ssl.SSLContext, host: str, *, https_compatible: bool = True
    ) -> trio.SSLStream[Any]:
        """Shake hands as a client."""
        secured = trio.SSLStream(stream, context, server_hostname=host, https_compatible=https_compatible)
        await secured.do_handshake()
        return secured

    def is_readable(self, stream: Any) -> bool:
        """Ask the system whether input is waiting."""
        inner = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
        return isinstance(inner, trio.SocketStream) and inner.socket.is_readable()

    async def abort(self, stream: Any) -> None:
        """Close a stream forcefully."""
        await trio.aclose_forcefully(stream)


def keep_tcp_alive(stream: trio.abc.Stream, seconds: float | None) -> None:
    """Enable TCP keep-alive after that many seconds of silence; ``None`` does nothing."""
    if seconds is None or not isinstance(stream, trio.SocketStream):
        return
    set_tcp_keep_alive(stream.socket, seconds)
