"""The acceptor: admission, limits and TLS of connections, on any event loop."""

from __future__ import annotations

import errno
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Protocol

from mcpio._checks import check_options, checked
from mcpio._drivers import check_authorization
from mcpio._drivers.event_loop import ByteStream, EventLoop
from mcpio._drivers.fault_log import FaultLog
from mcpio._drivers.sockets.connection_limit import MAX_CONNECTIONS, capped_connections
from mcpio._drivers.sockets.peer import ServeSocketOptions, SocketPeer, address_of_peer, user_id_of_peer
from mcpio._drivers.tcp_keep_alive import TCP_KEEP_ALIVE, set_tcp_keep_alive
from mcpio.app.runtime import Runtime
from mcpio.engine.limits import seconds

if TYPE_CHECKING:
    from mcpio.app.server import Server

__all__ = ["Acceptor", "ListenerClosed", "ServerSockets", "checked_acceptor"]

ACCEPT_AGAIN: Final = 0.1
"""Seconds to wait after the system could not accept a connection."""

OUT_OF_FILES: Final = (errno.EMFILE, errno.ENFILE)
"""The errors at the limit of open files."""


class ListenerClosed(Exception):
    """Raised by ``ServerSockets.accept``: the listener was closed."""


class ServerSockets(Protocol):
    """How an event loop accepts connections. An accepted one becomes a stream only when it is admitted."""

    async def accept(self, listener: Any) -> Any:
        """Wait for a connection. Raises ListenerClosed, and OSError if the system cannot accept it."""

    async def accept_waiting(self, listener: Any) -> Any:
        """Return a connection that the system has accepted already, or ``None``, even if cancelled."""

    def socket_of(self, accepted: Any) -> Any:
        """Return the socket of an accepted connection; ``None`` if it has none."""

    async def stream(
        self, accepted: Any, context: ssl.SSLContext | None, timeout: float | None, *, https_compatible: bool
    ) -> tuple[ByteStream, Any] | None:
        """Return the stream of an accepted connection, and its TLS object, if it has a context.

        ``None`` if the TLS handshake fails, or takes longer than ``timeout`` seconds.
        """

    async def abandon(self, accepted: Any) -> None:
        """Close an accepted connection forcefully. Further calls do nothing."""

    async def close_all(self, listeners: Sequence[Any]) -> None:
        """Close listeners, even if cancelled. Further calls do nothing. Failures are logged."""


class Acceptor:
    """Accepts connections up to a limit, adds TLS, and hands each to a handler. A client's faults cost only itself.

    Accepted connections continue when ``accept`` is cancelled.
    """

    def __init__(
        self,
        loop: EventLoop,
        sockets: ServerSockets,
        *,
        max_connections: int,
        max_per_address: int | None = None,
        ssl_context: ssl.SSLContext | None = None,
        handshake_timeout: float | None = None,
        https_compatible: bool = False,
        tcp_keep_alive: float | None = None,
    ) -> None:
        """``max_per_address`` does not bound clients without an address, such as those of a Unix socket.

        ``https_compatible`` is for protocols that mark their own end: see ``trio.SSLStream``. ``max_connections`` is
        lowered to what the process may open, which is logged. Raises TypeError or ValueError for invalid values.
        """
        self._loop = loop
        self._sockets = sockets
        self._room = _Room(capped_connections(max_connections), loop)
        self._max_per_address = checked("max_per_address", max_per_address, int)
        if max_per_address is not None and max_per_address < 1:
            raise ValueError(f"max_per_address= must be 1 or more, or None for no limit, not {max_per_address}")
        self._addresses: Counter[Any] = Counter()
        self._ssl_context = checked("ssl_context", ssl_context, ssl.SSLContext)
        self._handshake_timeout = handshake_timeout
        self._https_compatible = https_compatible
        self._tcp_keep_alive = tcp_keep_alive
        self._faults = FaultLog(loop.now)

    async def accept(
        self,
        listeners: Sequence[Any],
        connections: Runtime,
        serve: Callable[[Any, SocketPeer], Awaitable[None]],
        make_room: Callable[[], None],
        *,
        drains: bool = False,
    ) -> None:
        """Accept until cancelled, or until all listeners are closed; then close them.

        ``serve`` runs in a task of ``connections``, and closes its stream. ``make_room`` is called at the limit of
        connections, and may close an idle one. An exception in either is logged, and ends at most one connection.
        With ``drains`` those clients that the system has accepted by then are served too: they may have sent a request
        already, and closing the listener would reset them.
        """
        try:
            async with self._loop.group() as accepting:
                for listener in listeners:
                    accepting.spawn(self._accept(listener, connections, serve, make_room))
        finally:
            for listener in listeners if drains else ():
                await self._accept_waiting(listener, connections, serve)
            await self._sockets.close_all(listeners)

    async def _accept(self, listener: Any, connections: Runtime, serve: Any, make_room: Any) -> None:
        while True:
            try:
                accepted = await self._sockets.accept(listener)
            except ListenerClosed:
                return
            except Exception as error:
                self._faults.report("a connection could not be accepted", error)
                if isinstance(error, OSError) and error.errno in OUT_OF_FILES:
                    self._make_room(make_room)
                await connections.sleep(ACCEPT_AGAIN)
                continue
            try:
                # Only after it is accepted: a listener without clients would otherwise hold a host that others need.
                await self._find_room(make_room)
            except BaseException:
                with self._contained("a connection could not be closed"):
                    await self._sockets.abandon(accepted)
                raise
            connections.spawn(self._admit(accepted, serve))

    async def _accept_waiting(self, listener: Any, connections: Runtime, serve: Any) -> None:
        with self._contained("a connection could not be accepted"):
            while (accepted := await self._sockets.accept_waiting(listener)) is not None:
                if not self._room.try_take():
                    await self._sockets.abandon(accepted)
                    return
                connections.spawn(self._admit(accepted, serve))

    async def _find_room(self, make_room: Callable[[], None]) -> None:
        if not self._room.try_take():
            self._make_room(make_room)
            await self._room.take()

    def _make_room(self, make_room: Callable[[], None]) -> None:
        with self._contained("no connection could be closed for another"):
            make_room()

    def _contained(self, message: str) -> AbstractContextManager[None]:
        return self._faults.contained(message, self._loop.cancelled)

    async def _admit(self, accepted: Any, serve: Any) -> None:
        """Add TLS to one connection and serve it. Any failure costs this connection only."""
        try:
            with self._contained("a connection failed"):
                try:
                    await self._serve(accepted, serve)
                except BaseException:
                    await self._sockets.abandon(accepted)
                    raise
        finally:
            self._room.release()

    async def _serve(self, accepted: Any, serve: Any) -> None:
        address = address_of_peer(self._sockets.socket_of(accepted))
        host = address[0] if isinstance(address, tuple) else None
        self._addresses[host] += 1
        try:
            admitted = await self._admitted(accepted, address, host)
            if admitted is None:
                await self._sockets.abandon(accepted)
            else:
                await serve(*admitted)
        finally:
            self._addresses[host] -= 1
            if not self._addresses[host]:
                del self._addresses[host]

    async def _admitted(self, accepted: Any, address: Any, host: str | None) -> tuple[ByteStream, SocketPeer] | None:
        """Return the stream to serve and its peer; ``None`` for a rejected client."""
        most = self._max_per_address
        if most is not None and host is not None and self._addresses[host] > most:
            return None
        connected = self._sockets.socket_of(accepted)
        user_id = user_id_of_peer(connected)
        if self._tcp_keep_alive is not None and connected is not None:
            set_tcp_keep_alive(connected, self._tcp_keep_alive)
        opened = await self._sockets.stream(
            accepted, self._ssl_context, self._handshake_timeout, https_compatible=self._https_compatible
        )
        if opened is None:
            return None
        stream, tls = opened
        if tls is None:
            return stream, SocketPeer(address, None, user_id)
        certificate, encoded = tls.getpeercert() or None, tls.getpeercert(binary_form=True)
        fingerprint = sha256(encoded).hexdigest() if certificate and encoded else None
        return stream, SocketPeer(address, certificate, user_id, fingerprint)


class _Room:
    """A number of places that tasks take, wait for, and release."""

    def __init__(self, places: int, loop: EventLoop) -> None:
        self._free = places
        self._loop = loop
        self._released = loop.event()

    def try_take(self) -> bool:
        """Take a slot if one is free, and return whether one was."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def take(self) -> None:
        """Wait for a place and take it."""
        while not self.try_take():
            await self._released.wait()

    def release(self) -> None:
        """Release a place."""
        self._free += 1
        # One flag for all that wait: each listener may.
        released, self._released = self._released, self._loop.event()
        released.set()


def checked_acceptor(
    server: Server,
    options: ServeSocketOptions,
    new_acceptor: Callable[..., Acceptor],
    ssl_context: ssl.SSLContext | None = None,
) -> Acceptor:
    """Return the acceptor of a server on sockets. Raises TypeError or ValueError for what cannot be served."""
    check_options(options, ServeSocketOptions.__annotations__)
    check_authorization(server, is_authorized=options.get("principal") is not None)
    return new_acceptor(
        max_connections=options.get("max_connections", MAX_CONNECTIONS),
        max_per_address=options.get("max_per_address"),
        ssl_context=ssl_context,
        handshake_timeout=seconds(options.get("handshake_timeout", 10.0)),
        tcp_keep_alive=seconds(options.get("tcp_keep_alive", TCP_KEEP_ALIVE)),
    )
