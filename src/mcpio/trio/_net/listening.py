"""Listeners on Trio, and the acceptor's interface to Trio."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from math import inf
from typing import Any, TypeAlias

import trio

from mcpio._drivers import report
from mcpio._drivers.sockets.accepting import Acceptor, ListenerClosed
from mcpio._drivers.sockets.peer import SocketPeer
from mcpio._drivers.sockets.unix_path import BACKLOG, bound_unix
from mcpio.trio._event_loop import BROKEN, TrioEventLoop

__all__ = [
    "Acceptor",
    "SocketPeer",
    "address_of",
    "close_all",
    "given_listeners",
    "listen_tcp",
    "listen_unix",
    "new_acceptor",
    "unix_path_of",
]

Listener: TypeAlias = "trio.abc.Listener[Any]"


def new_acceptor(**options: Any) -> Acceptor:
    """Return an acceptor of Trio's connections. See ``Acceptor`` for the options."""
    return Acceptor(TrioEventLoop(), _Sockets(), **options)


class _Sockets:
    """``mcpio._drivers.sockets.accepting.ServerSockets`` for Trio: an accepted connection is a stream already."""

    async def accept(self, listener: Listener) -> Any:
        """Wait for a connection."""
        try:
            return await listener.accept()
        except trio.ClosedResourceError:
            raise ListenerClosed from None

    async def accept_waiting(self, listener: Listener) -> Any:
        """Return a connection that the system has accepted already."""
        # A socket is tried before the deadline counts.
        with trio.CancelScope(shield=True), trio.move_on_after(0.001), suppress(ListenerClosed, OSError):
            return await self.accept(listener)
        return None

    def socket_of(self, accepted: trio.abc.Stream) -> Any:
        """Return the socket of a plain socket stream."""
        return accepted.socket if isinstance(accepted, trio.SocketStream) else None

    async def stream(
        self,
        accepted: trio.abc.Stream,
        context: ssl.SSLContext | None,
        timeout: float | None,
        *,
        https_compatible: bool,
    ) -> tuple[trio.abc.Stream, Any] | None:
        """Perform the TLS handshake as a server, if a context is given."""
        if context is None:
            return accepted, None
        secured = trio.SSLStream(accepted, context, server_side=True, https_compatible=https_compatible)
        return (secured, secured) if await _shake_hands(secured, timeout) else None

    async def abandon(self, accepted: trio.abc.Stream) -> None:
        """Close a stream forcefully."""
        await trio.aclose_forcefully(accepted)

    async def close_all(self, listeners: Sequence[Listener]) -> None:
        """Close listeners, shielded from cancellation."""
        await close_all(listeners)


async def close_all(listeners: Sequence[Listener]) -> None:
    """Close listeners, shielded from cancellation. Further calls do nothing. Failures are logged."""
    with trio.CancelScope(shield=True):
        for listener in listeners:
            try:
                await listener.aclose()
            except Exception as error:
                report("a listener could not be closed", error)


async def _shake_hands(stream: trio.SSLStream[Any], timeout: float | None) -> bool:
    """Return whether the TLS handshake succeeds within the timeout."""
    try:
        with trio.fail_after(inf if timeout is None else timeout):
            await stream.do_handshake()
    except (trio.TooSlowError, *BROKEN):
        return False
    return True


def given_listeners(listeners: Sequence[Any]) -> Sequence[Listener]:
    """Return the caller's listeners. Raises ValueError for none, and TypeError for others, as plain sockets are."""
    if not listeners:
        raise ValueError("listeners= is empty: give at least one of Trio's listeners")
    for listener in listeners:
        if not isinstance(listener, trio.abc.Listener):
            advice = "trio.SocketListener(trio.socket.from_stdlib_socket(sock)) makes one of a socket that listens"
            raise TypeError(f"listeners= takes Trio's listeners, not {listener!r:.100}: {advice}")
    return listeners


async def listen_tcp(host: str | None, port: int) -> list[trio.SocketListener]:
    """Listen on every address of a host; with port 0 on one only, since each would get a different port.

    Raises OSError if an address is not available; its ``filename`` is the address, so that the text names it.
    """
    try:
        listeners = await trio.open_tcp_listeners(port, host=host, backlog=BACKLOG)
    except OSError as error:
        error.filename = f"{'every address' if host is None else host} port {port}"
        raise
    if port == 0:
        for listener in listeners[1:]:
            await listener.aclose()
        del listeners[1:]
    return list(listeners)


@asynccontextmanager
async def listen_unix(path: str | os.PathLike[str], mode: int) -> AsyncIterator[trio.SocketListener]:
    """Listen on a Unix socket during a block. See ``bound_unix``."""
    async with bound_unix(path, mode, trio.sleep) as bound:
        yield trio.SocketListener(trio.socket.from_stdlib_socket(bound))


def unix_path_of(listener: Listener) -> str | None:
    """Return the path of a listener on a Unix socket, or ``None`` for another listener."""
    if not isinstance(listener, trio.SocketListener) or not hasattr(socket, "AF_UNIX"):
        return None
    if listener.socket.family != socket.AF_UNIX:
        return None
    return os.fsdecode(listener.socket.getsockname())


def address_of(listener: Listener) -> tuple[str, int] | None:
    """Return the host and port of a listener on TCP, or ``None`` for another listener."""
    if not isinstance(listener, trio.SocketListener):
        return None
    if listener.socket.family not in (trio.socket.AF_INET, trio.socket.AF_INET6):
        return None
    host, port, *_ = listener.socket.getsockname()
    return host, port
