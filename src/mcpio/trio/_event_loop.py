"""What the drivers that all event loops share need of Trio."""

from __future__ import annotations

import ssl
from contextlib import AbstractAsyncContextManager
from math import inf
from typing import Any

import trio

from mcpio._drivers.tcp_keep_alive import TCP_KEEP_ALIVE, set_tcp_keep_alive
from mcpio.trio._nurseries import last_moment
from mcpio.trio._timekeeper import Signal
from mcpio.trio._transport import BROKEN

__all__ = ["TrioEventLoop", "keep_tcp_alive"]


class TrioEventLoop:
    """``mcpio._drivers.event_loop.EventLoop`` for Trio."""

    broken: tuple[type[Exception], ...] = BROKEN

    def now(self) -> float:
        """Return Trio's time."""
        return trio.current_time()

    def signal(self) -> Signal:
        """Return a flag that waiting lowers again."""
        return Signal()

    def event(self) -> trio.Event:
        """Return a flag that stays up."""
        return trio.Event()

    def scope(self, seconds: float | None = None) -> trio.CancelScope:
        """Return a cancel scope."""
        return trio.CancelScope(deadline=inf if seconds is None else trio.current_time() + seconds)

    def last_moment(self, seconds: float | None) -> AbstractAsyncContextManager[None]:
        """Return a shielded block."""
        return last_moment(seconds)

    async def resolve(self, host: str, port: int) -> list[str]:
        """Ask the system in a thread."""
        found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
        return list(dict.fromkeys(str(address[0]) for *_, address in found))

    async def open_stream(self, host: str, port: int, unix: str | None) -> trio.SocketStream:
        """Connect."""
        if unix is not None:
            return await trio.open_unix_socket(unix)
        stream = await trio.open_tcp_stream(host, port)
        keep_tcp_alive(stream, TCP_KEEP_ALIVE)
        return stream

    async def start_tls(self, stream: Any, context: ssl.SSLContext, host: str) -> trio.SSLStream[Any]:
        """Shake hands as a client."""
        secured = trio.SSLStream(stream, context, server_hostname=host, https_compatible=True)
        await secured.do_handshake()
        return secured

    def is_readable(self, stream: Any) -> bool:
        """Ask the system whether there is something to read."""
        inner = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
        return isinstance(inner, trio.SocketStream) and inner.socket.is_readable()

    async def abort(self, stream: Any) -> None:
        """Close a stream forcefully."""
        await trio.aclose_forcefully(stream)


def keep_tcp_alive(stream: trio.abc.Stream, seconds: float | None) -> None:
    """Turn on TCP keep-alive after that many seconds of silence; ``None`` does nothing."""
    if seconds is None or not isinstance(stream, trio.SocketStream):
        return
    set_tcp_keep_alive(stream.socket, seconds)
