"""Listeners, and the acceptor: admission, limits and TLS of connections, and what is known of a client."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import stat
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from math import inf
from typing import Any, Final, TypeAlias

import attrs
import trio

from mcpio._checks import checked
from mcpio._drivers import report
from mcpio._drivers.connection_limit import capped_connections
from mcpio._drivers.fault_log import FaultLog
from mcpio.trio._event_loop import BROKEN

__all__ = [
    "Acceptor",
    "SocketPeer",
    "address_of",
    "close_all",
    "listen_tcp",
    "listen_unix",
    "protocol_of",
    "unix_path_of",
]

BACKLOG: Final = 1024
"""How many connections the system keeps waiting to be accepted."""

ACCEPT_AGAIN: Final = 0.1
"""Seconds to wait after the system could not accept a connection."""

OUT_OF_FILES: Final = (errno.EMFILE, errno.ENFILE)
"""The errors at the limit of open files."""

_ALTERNATIVES: Final = ("DNS", "URI", "email")
"""The kinds of alternative names in a certificate that identify its owner."""

_INDIVIDUAL: Final = ("commonName", "emailAddress", "serialNumber", "userId", "x500UniqueIdentifier")
"""The parts of a subject that identify the owner of a certificate, and not only an organisation."""

LOCK_AGAIN: Final = 0.01
"""Seconds between two attempts to lock a directory in which another server is starting."""

LOCK_TIMEOUT: Final = 2.0
"""Seconds after which the owner of the lock cannot be a server that is starting."""

Listener: TypeAlias = "trio.abc.Listener[Any]"


@attrs.frozen
class SocketPeer:
    """What a connection tells about its client."""

    address: Any = None
    """The client's address, as ``socket.getpeername`` returns it: for TCP the host comes first; for a Unix socket a
    str, mostly empty. ``None`` if it is not known."""
    certificate: Any = None
    """The client's verified certificate, as ``ssl.SSLSocket.getpeercert`` returns it; ``None`` without one."""
    user_id: int | None = None
    """For Unix sockets on Linux: the user id of the client's process. ``None`` if it is not known."""

    fingerprint: str | None = None
    """The SHA-256 of the certificate, in hexadecimal; ``None`` without one."""

    @property
    def identity(self) -> Hashable:
        """The names in the client's certificate; ``None`` without one. It is the principal by default.

        A tuple of the names in the subject, as ``ssl.SSLSocket.getpeercert`` returns them, followed by the alternative
        names that are URIs, DNS names or email addresses. If none of these identifies a single client, the pair of
        ``"SHA-256"`` and the fingerprint comes last; otherwise all clients of an authority that leaves the subject
        empty would share a principal. Raises PermissionError if the fingerprint is not known either.
        """
        if not self.certificate:
            return None
        subject: tuple[tuple[tuple[str, str], ...], ...] = self.certificate.get("subject", ())
        found = {tuple(name) for name in self.certificate.get("subjectAltName", ())}
        alternatives = sorted(name for name in found if name[0] in _ALTERNATIVES)
        if alternatives or any(kind in _INDIVIDUAL for names in subject for kind, _ in names):
            return (*subject, *alternatives)
        if self.fingerprint is None:
            raise PermissionError("the client's certificate names nobody, and its fingerprint is not known")
        return (*subject, ("SHA-256", self.fingerprint))


class Acceptor:
    """Accepts connections up to a limit, adds TLS, and hands each to a handler. A client's faults cost only itself.

    Accepted connections continue when ``accept`` is cancelled.
    """

    def __init__(
        self,
        *,
        max_connections: int,
        max_per_address: int | None = None,
        ssl_context: ssl.SSLContext | None = None,
        handshake_timeout: float | None = None,
        https_compatible: bool = False,
    ) -> None:
        """``max_per_address`` does not bound clients without an address, such as those of a Unix socket.

        ``https_compatible`` is for protocols that mark their own end: see ``trio.SSLStream``. ``max_connections`` is
        lowered to what the process may open, which is logged. Raises TypeError or ValueError for invalid values.
        """
        self._room = trio.Semaphore(capped_connections(max_connections))
        self._max_per_address = checked("max_per_address", max_per_address, int)
        self._addresses: Counter[Any] = Counter()
        self._ssl_context = checked("ssl_context", ssl_context, ssl.SSLContext)
        self._handshake_timeout = handshake_timeout
        self._https_compatible = https_compatible
        self._faults = FaultLog(trio.current_time)

    async def accept(
        self,
        listeners: Sequence[Listener],
        connections: trio.Nursery,
        serve: Callable[[trio.abc.Stream, SocketPeer], Awaitable[None]],
        make_room: Callable[[], None],
    ) -> None:
        """Accept until cancelled, or until all listeners are closed; then close them.

        ``serve`` runs in the nursery ``connections``, and closes its stream. ``make_room`` is called at the limit of
        connections, and may close an idle one. An exception in either is logged, and ends at most one connection.
        """
        try:
            async with trio.open_nursery() as nursery:
                for listener in listeners:
                    nursery.start_soon(self._accept, listener, connections, serve, make_room)
        finally:
            await close_all(listeners)

    async def _accept(self, listener: Listener, connections: trio.Nursery, serve: Any, make_room: Any) -> None:
        while True:
            try:
                stream = await listener.accept()
            except trio.ClosedResourceError:
                return
            except Exception as error:
                self._faults.report("a connection could not be accepted", error)
                if isinstance(error, OSError) and error.errno in OUT_OF_FILES:
                    self._make_room(make_room)
                await trio.sleep(ACCEPT_AGAIN)
                continue
            try:
                # Only after it is accepted: a listener without clients would otherwise hold a host that others need.
                await self._find_room(make_room)
            except BaseException:
                with self._faults.contained("a connection could not be closed"):
                    await trio.aclose_forcefully(stream)
                raise
            connections.start_soon(self._admit, stream, serve)

    async def _find_room(self, make_room: Callable[[], None]) -> None:
        try:
            self._room.acquire_nowait()
        except trio.WouldBlock:
            self._make_room(make_room)
            await self._room.acquire()

    def _make_room(self, make_room: Callable[[], None]) -> None:
        with self._faults.contained("no connection could be closed for another"):
            make_room()

    async def _admit(self, stream: trio.abc.Stream, serve: Any) -> None:
        """Add TLS to one connection and serve it. Any failure costs this connection only."""
        try:
            with self._faults.contained("a connection failed"):
                try:
                    await self._serve(stream, serve)
                except BaseException:
                    # Closing a stream a second time does nothing.
                    await trio.aclose_forcefully(stream)
                    raise
        finally:
            self._room.release()

    async def _serve(self, stream: trio.abc.Stream, serve: Any) -> None:
        address = _peer_address(stream)
        host = address[0] if isinstance(address, tuple) else None
        self._addresses[host] += 1
        try:
            secured, peer = await self._secure(stream, address, host)
            if secured is None:
                await trio.aclose_forcefully(stream)
            else:
                await serve(secured, peer)
        finally:
            self._addresses[host] -= 1
            if not self._addresses[host]:
                del self._addresses[host]

    async def _secure(
        self, stream: trio.abc.Stream, address: Any, host: str | None
    ) -> tuple[trio.abc.Stream | None, SocketPeer]:
        """Return the stream to serve, ``None`` for a rejected client, and the peer."""
        most = self._max_per_address
        if most is not None and host is not None and self._addresses[host] > most:
            return None, SocketPeer(address)
        if self._ssl_context is None:
            return stream, SocketPeer(address, None, _user_id(stream))
        secured = trio.SSLStream(stream, self._ssl_context, server_side=True, https_compatible=self._https_compatible)
        if not await _shake_hands(secured, self._handshake_timeout):
            return None, SocketPeer(address)
        certificate, encoded = secured.getpeercert() or None, secured.getpeercert(binary_form=True)
        fingerprint = sha256(encoded).hexdigest() if certificate and encoded else None
        return secured, SocketPeer(address, certificate, _user_id(stream), fingerprint)


async def close_all(listeners: Sequence[Listener]) -> None:
    """Close listeners, shielded from cancellation. A second call does nothing. Failures are logged."""
    with trio.CancelScope(shield=True):
        for listener in listeners:
            try:
                await listener.aclose()
            except Exception as error:
                report("a listener could not be closed", error)


def protocol_of(stream: trio.abc.Stream) -> str | None:
    """Return the protocol of the TLS handshake (ALPN), such as ``"h2"``, or ``None``."""
    if not isinstance(stream, trio.SSLStream):
        return None
    chosen: str | None = stream.selected_alpn_protocol()
    return chosen


async def _shake_hands(stream: trio.SSLStream[Any], timeout: float | None) -> bool:
    """Return whether the TLS handshake succeeds within the timeout."""
    try:
        with trio.fail_after(inf if timeout is None else timeout):
            await stream.do_handshake()
    except (trio.TooSlowError, *BROKEN):
        return False
    return True


async def listen_tcp(host: str | None, port: int) -> list[trio.SocketListener]:
    """Listen on every address of a host; with port 0 on one only, since each would get a port of its own.

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
    """Listen on a Unix socket during a block; then remove its file, unless another took its host.

    A stale socket file is replaced. ``mode`` are the file's permissions, from the moment when clients can connect.
    Raises OSError with ``EADDRINUSE`` if another server listens on it, or ``EEXIST`` if the file is not a socket.
    """
    host = os.fspath(path)
    with trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM) as made:
        async with _locked(os.path.dirname(host) or "."):
            await _remove_stale(host)
            await made.bind(host)
            found = _identity(host)
            try:
                # Before ``listen`` no client can connect, so none finds wider permissions.
                os.chmod(host, mode)
                made.listen(BACKLOG)
            except BaseException:
                os.unlink(host)
                raise
        try:
            yield trio.SocketListener(made)
        finally:
            # The socket still listens here, so no other server takes the file for a stale one.
            with suppress(OSError):
                if _identity(host) == found:
                    os.unlink(host)


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


@asynccontextmanager
async def _locked(directory: str) -> AsyncIterator[None]:
    """Lock a directory while a socket's file is checked, removed and made anew.

    Between the check and the removal, another server that starts might put its own file there. The lock ends with the
    process, and leaves no file. Raises OSError with ``EAGAIN`` if another process holds it for too long.
    """
    import fcntl  # It exists only where there are Unix sockets.

    host = os.open(directory, os.O_RDONLY)
    try:
        deadline = trio.current_time() + LOCK_TIMEOUT
        while True:
            try:
                fcntl.flock(host, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if trio.current_time() >= deadline:
                    raise
            await trio.sleep(LOCK_AGAIN)
        yield
    finally:
        os.close(host)


async def _remove_stale(path: str) -> None:
    """Remove a stale socket file. Raises OSError if a server listens on it, or it is not a socket."""
    try:
        kind = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise FileExistsError(errno.EEXIST, "there is a file that is not a socket", path)
    with trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM) as probe:
        try:
            await probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        except FileNotFoundError:
            return  # Its server has just ended.
        else:
            raise OSError(errno.EADDRINUSE, "another server listens on the socket", path)


def _peer_address(stream: trio.abc.Stream) -> Any:
    """Return a client's address, as ``socket.getpeername`` does; ``None`` if it is not known."""
    if isinstance(stream, trio.SocketStream):
        with suppress(OSError):  # The peer is gone already.
            return stream.socket.getpeername()
    return None


def _user_id(stream: trio.abc.Stream) -> int | None:
    if not isinstance(stream, trio.SocketStream) or not hasattr(socket, "SO_PEERCRED"):
        return None
    if stream.socket.family != trio.socket.AF_UNIX:
        return None
    said = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    user: int = struct.unpack("iII", said)[1]
    return user


def _identity(path: str) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino
