"""The client of a connection, as a server sees it, and the options of servers on sockets."""

from __future__ import annotations

import socket
import struct
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypedDict

import attrs

from mcpio._drivers import TapSource

__all__ = [
    "FindSocketPrincipal",
    "ServeSocketOptions",
    "SocketListening",
    "SocketPeer",
    "address_of_peer",
    "user_id_of_peer",
]

_ALTERNATIVES: Final = ("DNS", "URI", "email")
"""The kinds of alternative names in a certificate that identify its owner."""

_INDIVIDUAL: Final = ("commonName", "emailAddress", "serialNumber", "userId", "x500UniqueIdentifier")
"""The parts of a subject that identify the owner of a certificate, and not only an organisation."""


@attrs.frozen
class SocketPeer:
    """The client of a connection: its address and certificate."""

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
            raise PermissionError("the client's certificate contains no name, and its fingerprint is not known")
        return (*subject, ("SHA-256", self.fingerprint))


FindSocketPrincipal: TypeAlias = "Callable[[SocketPeer], Hashable | Awaitable[Hashable]]"
"""Returns the principal of a connection. PermissionError rejects the client."""


class ServeSocketOptions(TypedDict, total=False):
    """The keyword arguments of ``serve_tcp`` and ``serve_unix``."""

    principal: FindSocketPrincipal | None
    """Returns the principal of a connection, which handlers see: a function or coroutine function of its
    ``SocketPeer``; PermissionError rejects the client. The default is ``SocketPeer.identity`` where ``ssl_context``
    asks for a certificate and the client has shown one, and otherwise ``None``."""
    max_connections: int
    """How many connections there may be at once: 768 by default, and at most three quarters of the files that the
    process may open. Further clients wait to be accepted."""
    max_per_address: int | None
    """How many of them one address may have; a further one is closed. ``None``, the default, sets no limit. Clients of
    a Unix socket have no address."""
    first_message_timeout: float | None
    """Seconds for a client to send its first message; 10 by default, ``None`` for no limit."""
    idle_timeout: float | None
    """Seconds without input and without running requests after which a connection is closed; ``None``, the default,
    sets no limit. Pings count as input."""
    end_timeout: float | None
    """Seconds that running requests have after a client closed its output, because it may still wait for the answers,
    or be gone, which looks the same. 60 by default; ``None`` for no limit."""
    handshake_timeout: float | None
    """Seconds for the TLS handshake; 10 by default."""
    tcp_keep_alive: float | None
    """Seconds of silence before the first TCP keep-alive probe; 60 by default, ``None`` sends none."""
    tap: TapSource | None
    """Hears of each session. See ``mcpio.observe.Tap``."""
    grace: float
    """Seconds that running requests have at the end to be answered, 0.5 by default."""
    handle_signals: bool
    """Whether SIGINT and SIGTERM start the end, and then end the process: see ``terminate_on_signals``."""


@attrs.frozen
class SocketListening:
    """A server that listens."""

    host: str | None
    """The address it is bound to; ``None`` if it is not a TCP socket."""
    port: int | None
    """The port, also if port 0 was requested; ``None`` if it is not a TCP socket."""


def address_of_peer(connected: Any) -> Any:
    """Return a client's address, as ``socket.getpeername`` does; ``None`` if it is not known."""
    if connected is not None:
        with suppress(OSError):  # The peer is gone already.
            return connected.getpeername()
    return None


def user_id_of_peer(connected: Any) -> int | None:
    """Return the user id of the process at the other end of a Unix socket; ``None`` if it is not known."""
    if connected is None or not hasattr(socket, "SO_PEERCRED") or connected.family != socket.AF_UNIX:
        return None
    said = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    user: int = struct.unpack("iII", said)[1]
    return user
