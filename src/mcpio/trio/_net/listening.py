"""Listening for connections: who is let in, how many at once, over TLS or not, and what is known of each."""

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

__all__ = [
    "BROKEN",
    "TCP_KEEP_ALIVE",
    "Acceptor",
    "SocketPeer",
    "address_of",
    "close_all",
    "keep_tcp_alive",
    "listen_tcp",
    "listen_unix",
    "protocol_of",
    "unix_path_of",
]

BACKLOG: Final = 1024
"""How many clients the system lets wait to be accepted."""

ACCEPT_AGAIN: Final = 0.1
"""Seconds to wait when the system cannot give another connection."""

OUT_OF_FILES: Final = (errno.EMFILE, errno.ENFILE)
"""What the system says at the limit of open files."""

_ALTERNATIVES: Final = ("DNS", "URI", "email")
"""The alternative names in a certificate that say who has it."""

_INDIVIDUAL: Final = ("commonName", "emailAddress", "serialNumber", "userId", "x500UniqueIdentifier")
"""The parts of a subject that say who has a certificate, and not only where they belong."""

BROKEN: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)

LOCK_AGAIN: Final = 0.01
"""Seconds between two looks at a directory in which another server is just beginning."""

LOCK_PATIENCE: Final = 2.0
"""Seconds after which whoever holds that directory is no server that is beginning."""

TCP_KEEP_ALIVE: Final = 60.0
"""Seconds of silence after which the system asks whether the other end of a TCP connection is there, by default."""

KEEP_ALIVE_MOST: Final = 32767
"""The longest silence that every system can be told, in seconds."""

KEEP_ALIVE_INTERVAL: Final = 15.0
"""Seconds between two questions of the system whether the other end is there; the fourth without an answer is the last.
"""

Listener: TypeAlias = "trio.abc.Listener[Any]"


@attrs.frozen
class SocketPeer:
    """Who a client is, as far as its connection tells."""

    address: Any = None
    """Where it calls from, as ``socket.getpeername`` has it: for TCP the host comes first. ``None`` where nothing is
    known, and a string, mostly empty, for a Unix socket."""
    certificate: Any = None
    """The certificate that it proved to have, as ``ssl.SSLSocket.getpeercert`` has it; ``None`` without one."""
    user_id: int | None = None
    """For Unix sockets, on Linux: the user that the client's process runs as. ``None`` where nothing is known."""

    fingerprint: str | None = None
    """The SHA-256 of the certificate, in hexadecimal; ``None`` without one."""

    @property
    def identity(self) -> Hashable:
        """Who the certificate says that the client is; ``None`` without one. It is the principal by default.

        A tuple of the names in the subject, as ``ssl.SSLSocket.getpeercert`` has them, and then of the pairs of the
        alternative names that are URIs, DNS names or email addresses. Where none of these names one client only, the
        pair of ``"SHA-256"`` and the fingerprint comes last: otherwise all clients of an authority that leaves the
        subject empty would be one principal. Raises ``PermissionError`` where that is not known either.
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
    """Accepts connections, so many at a time, secures them, and hands each over. What a client does costs only itself.

    Those that are accepted go on when ``accept`` is cancelled.
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
        """Of clients without an address, such as those of a Unix socket, there may be any number.

        ``https_compatible`` is for protocols that say themselves where they end: see ``trio.SSLStream``.
        ``max_connections`` is lowered to what the process may open, which is reported. ``TypeError`` and ``ValueError``
        for what makes no sense.
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
        """Accept until cancelled, or all listeners are closed; then close them.

        ``serve``, run in the nursery ``connections``, closes its stream. ``make_room`` is called when no connection
        more may be had, and may end one that is at rest. An exception in any of these is reported and ends one
        connection at most.
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
                # Not before it is accepted: a listener that nobody calls would keep the room from the others.
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
        """Secure and serve one connection. Whatever fails costs this connection only."""
        try:
            with self._faults.contained("a connection failed"):
                try:
                    await self._receive(stream, serve)
                except BaseException:
                    # Closing a stream twice does nothing.
                    await trio.aclose_forcefully(stream)
                    raise
        finally:
            self._room.release()

    async def _receive(self, stream: trio.abc.Stream, serve: Any) -> None:
        address = _peer_address(stream)
        place = address[0] if isinstance(address, tuple) else None
        self._addresses[place] += 1
        try:
            secured, peer = await self._look_at(stream, address, place)
            if secured is None:
                await trio.aclose_forcefully(stream)
            else:
                await serve(secured, peer)
        finally:
            self._addresses[place] -= 1
            if not self._addresses[place]:
                del self._addresses[place]

    async def _look_at(
        self, stream: trio.abc.Stream, address: Any, place: str | None
    ) -> tuple[trio.abc.Stream | None, SocketPeer]:
        """Return the stream to serve_session on, ``None`` for a client that may not, and who it is."""
        most = self._max_per_address
        if most is not None and place is not None and self._addresses[place] > most:
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
    """Close listeners, also where all else is cancelled. Twice does nothing. Failures are reported."""
    with trio.CancelScope(shield=True):
        for listener in listeners:
            try:
                await listener.aclose()
            except Exception as error:
                report("a listener could not be closed", error)


def protocol_of(stream: trio.abc.Stream) -> str | None:
    """Return which protocol was agreed on in the handshake of TLS (ALPN), such as ``"h2"``; ``None`` for none."""
    if not isinstance(stream, trio.SSLStream):
        return None
    chosen: str | None = stream.selected_alpn_protocol()
    return chosen


async def _shake_hands(stream: trio.SSLStream[Any], timeout: float | None) -> bool:
    """Whether the other end speaks TLS, and shows the certificate that is wanted, in so many seconds."""
    try:
        with trio.fail_after(inf if timeout is None else timeout):
            await stream.do_handshake()
    except (trio.TooSlowError, *BROKEN):
        return False
    return True


async def listen_tcp(host: str | None, port: int) -> list[trio.SocketListener]:
    """Listen at every address that a name has; with port 0, at one of them, for only one has the port that is found.

    Raises OSError if an address cannot be had; its ``filename`` is the address, so that the text names it.
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
    """Listen on a Unix socket, for the length of a block; then its file is removed, unless another took its place.

    A socket file that nobody listens on any more is replaced. ``mode`` are the file's permissions, from the moment when
    clients can connect. Raises ``OSError``: with ``EADDRINUSE`` where another server listens, with ``EEXIST`` for a
    file that is no socket.
    """
    place = os.fspath(path)
    with trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM) as made:
        async with _alone_in(os.path.dirname(place) or "."):
            await _remove_stale(place)
            await made.bind(place)
            found = _identity(place)
            try:
                # Until it listens, nobody can connect.
                os.chmod(place, mode)
                made.listen(BACKLOG)
            except BaseException:
                os.unlink(place)
                raise
        try:
            yield trio.SocketListener(made)
        finally:
            # It listens still: no other server takes the file for a stale one.
            with suppress(OSError):
                if _identity(place) == found:
                    os.unlink(place)


def keep_tcp_alive(stream: trio.abc.Stream, seconds: float | None) -> None:
    """Have the system look after a TCP connection that is silent for so many seconds, or not, with ``None``."""
    if seconds is None or not isinstance(stream, trio.SocketStream):
        return
    if stream.socket.family not in (trio.socket.AF_INET, trio.socket.AF_INET6):
        return
    times = {"TCP_KEEPIDLE": seconds, "TCP_KEEPALIVE": seconds, "TCP_KEEPINTVL": KEEP_ALIVE_INTERVAL, "TCP_KEEPCNT": 4}
    with suppress(OSError):  # It is gone already.
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in times.items():
            if hasattr(socket, name):  # Which ones there are depends on the system.
                stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), int(min(max(1, value), KEEP_ALIVE_MOST)))


def unix_path_of(listener: Listener) -> str | None:
    """Return the path of a listener on a Unix socket."""
    if not isinstance(listener, trio.SocketListener) or not hasattr(socket, "AF_UNIX"):
        return None
    if listener.socket.family != socket.AF_UNIX:
        return None
    return os.fsdecode(listener.socket.getsockname())


def address_of(listener: Listener) -> tuple[str, int] | None:
    """Return the host and the port of a listener on TCP."""
    if not isinstance(listener, trio.SocketListener):
        return None
    if listener.socket.family not in (trio.socket.AF_INET, trio.socket.AF_INET6):
        return None
    host, port, *_ = listener.socket.getsockname()
    return host, port


@asynccontextmanager
async def _alone_in(directory: str) -> AsyncIterator[None]:
    """Keep other servers out of a directory while a socket's file is looked at, removed and made anew.

    Between a look and a removal, another server that begins might have put its own file there. The lock ends with the
    process, and leaves no file. Raises ``OSError``, with ``EAGAIN`` when another holds it for too long.
    """
    import fcntl  # Only where there are Unix sockets.

    place = os.open(directory, os.O_RDONLY)
    try:
        deadline = trio.current_time() + LOCK_PATIENCE
        while True:
            try:
                fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if trio.current_time() >= deadline:
                    raise
            await trio.sleep(LOCK_AGAIN)
        yield
    finally:
        os.close(place)


async def _remove_stale(path: str) -> None:
    """Make room for a Unix socket where only the file of one is left. Raises ``OSError`` where it is more than that."""
    try:
        kind = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise FileExistsError(errno.EEXIST, "there is a file that is no socket", path)
    with trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM) as probe:
        try:
            await probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        except FileNotFoundError:
            return  # Its server ended in this moment.
        else:
            raise OSError(errno.EADDRINUSE, "another server listens on the socket", path)


def _peer_address(stream: trio.abc.Stream) -> Any:
    """Return where a client calls from, as ``socket.getpeername`` has it; ``None`` where nothing is known."""
    if isinstance(stream, trio.SocketStream):
        with suppress(OSError):  # It is gone already.
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
