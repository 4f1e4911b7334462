"""Sockets of servers: admission, peers, sessions and paths."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import stat
import struct
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from hashlib import sha256
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypedDict, TypeVar

import attrs

from mcpio._checks import called, checked, required
from mcpio._drivers import TapSource, in_time, report
from mcpio._drivers.actor import TransportAdapter, close_forcefully
from mcpio._drivers.event_loop import (
    BACKLOG,
    ByteStream,
    Deadlines,
    EventLoop,
    ListenerClosed,
    StreamAdapter,
    set_tcp_keep_alive,
)
from mcpio._drivers.setup import FaultLog, ServerSetupOptions, carry, prepare_server
from mcpio.app.runtime import Driver, Runtime
from mcpio.engine.connection import Connection
from mcpio.engine.limits import seconds
from mcpio.engine.table import Phase

if TYPE_CHECKING:
    from mcpio.app.server import Server
    from mcpio.app.server_session import ServerSession


# ----------------------------------------------------------------------------------------------------- connection limit
# How many connections a server may have at once.

MAX_CONNECTIONS: Final = 768
"""The default number of connections, which the usual limit of 1024 open files allows."""

RESERVED_FILES: Final = 0.25
"""The share of the files that the process may open which is left to everything but connections."""


def capped_connections(connections: int) -> int:
    """Return ``connections``, lowered where the process may not open that many files, which is logged.

    Raises TypeError if it is not an int, and ValueError if it is negative.
    """
    if required("max_connections", connections, int) < 0:
        raise ValueError(f"max_connections must be 0 or more, not {connections}")
    most = max_open_files()
    allowed = connections if most is None else max(1, int(most * (1 - RESERVED_FILES)))
    if connections <= allowed:
        return connections
    why = f"the process may open {most} files (ulimit -n)"
    report(f"max_connections is {allowed} instead of {connections}: {why}", None)
    return allowed


def max_open_files() -> int | None:
    """Return how many files this process may have open at once; ``None`` for no limit, as on Windows."""
    try:
        import resource
    except ModuleNotFoundError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


# ----------------------------------------------------------------------------------------------------------------- peer
# The client of a connection, as a server sees it, and the options of servers on sockets.

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
        identities = {tuple(name) for name in self.certificate.get("subjectAltName", ())}
        alternatives = sorted(name for name in identities if name[0] in _ALTERNATIVES)
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
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    user: int = struct.unpack("iII", credentials)[1]
    return user


# ------------------------------------------------------------------------------------------------------------ accepting
# The acceptor: admission, limits and TLS of connections, on any event loop.

ACCEPT_AGAIN: Final = 0.1
"""Seconds to wait after the system could not accept a connection."""

OUT_OF_FILES: Final = (errno.EMFILE, errno.ENFILE)
"""The errors at the limit of open files."""


class Acceptor:
    """Accepts connections up to a limit, adds TLS, and hands each to a handler. A client's faults cost only itself.

    Accepted connections continue when ``accept`` is cancelled.
    """

    def __init__(
        self,
        loop: EventLoop,
        *,
        max_connections: int,
        max_per_address: int | None = None,
        ssl_context: ssl.SSLContext | None = None,
        handshake_timeout: float | None = None,
        https_compatible: bool = False,
        tcp_keep_alive: float | None = None,
        owns_listeners: bool = False,
    ) -> None:
        """``max_per_address`` does not bound clients without an address, such as those of a Unix socket.

        ``owns_listeners`` says that no other process accepts from the listeners.

        ``https_compatible`` is for protocols that mark their own end: see ``trio.SSLStream``. ``max_connections`` is
        lowered to what the process may open, which is logged. Raises TypeError or ValueError for invalid values.
        """
        self._loop = loop
        self._slots = _Slots(capped_connections(max_connections), loop)
        self._max_per_address = checked("max_per_address", max_per_address, int)
        if max_per_address is not None and max_per_address < 1:
            raise ValueError(f"max_per_address must be 1 or more, or None for no limit, not {max_per_address}")
        self._addresses: Counter[Any] = Counter()
        self._ssl_context = checked("ssl_context", ssl_context, ssl.SSLContext)
        self._handshake_timeout = handshake_timeout
        self._https_compatible = https_compatible
        self._tcp_keep_alive = tcp_keep_alive
        self._owns_listeners = owns_listeners
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
                if self._owns_listeners:
                    hold_off(self._loop.socket_of(listener))
                await self._accept_waiting(listener, connections, serve)
            await close_all(listeners, self._loop)

    async def _accept(self, listener: Any, connections: Runtime, serve: Any, make_room: Any) -> None:
        """Accept connections until the listener closes. A failure is reported, and does not end it."""
        while True:
            try:
                accepted = await self._loop.accept(listener)
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
                await self._take_slot(make_room)
            except BaseException:
                with self._contained("a connection could not be closed"):
                    await self._loop.abandon(accepted)
                raise
            connections.spawn(self._admit(accepted, serve))

    async def _accept_waiting(self, listener: Any, connections: Runtime, serve: Any) -> None:
        with self._contained("a connection could not be accepted"):
            while (accepted := await self._loop.accept_waiting(listener)) is not None:
                if not self._slots.try_take():
                    await self._loop.abandon(accepted)
                    return
                connections.spawn(self._admit(accepted, serve))

    async def _take_slot(self, make_room: Callable[[], None]) -> None:
        if not self._slots.try_take():
            self._make_room(make_room)
            await self._slots.take()

    def _make_room(self, make_room: Callable[[], None]) -> None:
        with self._contained("no connection could be closed for another"):
            make_room()

    def _contained(self, message: str) -> AbstractContextManager[None]:
        return self._faults.contained(message, self._loop.runtime.cancellation)

    async def _admit(self, accepted: Any, serve: Any) -> None:
        """Add TLS to one connection and serve it. Any failure costs this connection only."""
        try:
            with self._contained("a connection failed"):
                try:
                    await self._serve(accepted, serve)
                except BaseException:
                    await self._loop.abandon(accepted)
                    raise
        finally:
            self._slots.release()

    async def wait_empty(self) -> None:
        """Wait until no connection is left, with those whose TLS handshake or first bytes are still to come."""
        await self._slots.wait_free()

    async def _serve(self, accepted: Any, serve: Any) -> None:
        address = address_of_peer(self._loop.socket_of(accepted))
        host = address[0] if isinstance(address, tuple) else None
        self._addresses[host] += 1
        try:
            admitted = await self._finish_opening(accepted, address, host)
            if admitted is None:
                await self._loop.abandon(accepted)
            else:
                await serve(*admitted)
        finally:
            self._addresses[host] -= 1
            if not self._addresses[host]:
                del self._addresses[host]

    async def _finish_opening(
        self, accepted: Any, address: Any, host: str | None
    ) -> tuple[ByteStream, SocketPeer] | None:
        """Return the stream to serve and its peer; ``None`` for a rejected client."""
        most = self._max_per_address
        if most is not None and host is not None and self._addresses[host] > most:
            return None
        connected = self._loop.socket_of(accepted)
        user_id = user_id_of_peer(connected)
        if self._tcp_keep_alive is not None and connected is not None:
            set_tcp_keep_alive(connected, self._tcp_keep_alive)
        stream = await self._loop.server_stream(
            accepted, self._ssl_context, self._handshake_timeout, https_compatible=self._https_compatible
        )
        if stream is None:
            return None
        tls = self._loop.tls_of(stream)
        if tls is None:
            return stream, SocketPeer(address, None, user_id)
        # An unverified certificate is ``{}``: its fingerprint would name a client that proved nothing.
        certificate, encoded = tls.getpeercert() or None, tls.getpeercert(binary_form=True)
        fingerprint = sha256(encoded).hexdigest() if certificate and encoded else None
        return stream, SocketPeer(address, certificate, user_id, fingerprint)


def hold_off(listening: Any) -> None:
    """Have the system drop what opens a connection to a TCP listener, so that no client is accepted from here on.

    Otherwise a client could be accepted by the system between the last ``accept`` and ``close``, which resets it and
    loses what it sent. One that is dropped tries again within a second, and is refused by then. Other systems than
    Linux have nothing like it.
    """
    if sys.platform != "linux" or getattr(listening, "family", None) not in (socket.AF_INET, socket.AF_INET6):
        return
    import ctypes

    program = ctypes.create_string_buffer(_DROP_SYN, len(_DROP_SYN))
    filter_of = struct.pack("HP", len(_DROP_SYN) // _INSTRUCTION.size, ctypes.addressof(program))
    with suppress(OSError):
        listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filter_of)


_SO_ATTACH_FILTER: Final = 26
_INSTRUCTION: Final = struct.Struct("HBBI")
_DROP_SYN: Final = b"".join(
    _INSTRUCTION.pack(*each)
    for each in (
        (0x30, 0, 0, 13),  # load the byte of the TCP header that holds the flags
        (0x54, 0, 0, 0x12),  # keep SYN and ACK
        (0x15, 0, 1, 0x02),  # SYN alone?
        (0x06, 0, 0, 0),  # drop it
        (0x06, 0, 0, 0xFFFFFFFF),  # pass everything else whole: handshakes that have begun are completed
    )
)
"""A classic BPF program."""


class _Slots:
    """A number of slots that tasks take, wait for, and release."""

    def __init__(self, capacity: int, loop: EventLoop) -> None:
        self._free = self._capacity = capacity
        self._loop = loop
        self._released = loop.event()

    def try_take(self) -> bool:
        """Take a slot if one is free, and return whether one was."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def take(self) -> None:
        """Wait for a slot and take it."""
        while not self.try_take():
            await self._released.wait()

    async def wait_free(self) -> None:
        """Wait until all slots are free."""
        while self._free < self._capacity:
            await self._released.wait()

    def release(self) -> None:
        """Release a slot."""
        self._free += 1
        # One flag for all that wait: each listener may.
        released, self._released = self._released, self._loop.event()
        released.set()


async def close_all(listeners: Sequence[Any], loop: EventLoop) -> None:
    """Close listeners, even if cancelled. Further calls do nothing. Failures are logged."""
    async with loop.last_moment(None):
        for listener in listeners:
            try:
                await loop.close_listener(listener)
            except Exception as error:
                report("a listener could not be closed", error)


# ------------------------------------------------------------------------------------------------------------- sessions
# The sessions of a server that serves one session per connection, on any event loop.

T = TypeVar("T")

LAST_WRITES: Final = 0.4
"""Seconds, after the grace of the end, to write the remaining output."""

END_TIMEOUT: Final = 60.0
"""The default of ``ServeSocketOptions.end_timeout``, in seconds."""

FIRST_MESSAGE_TIMEOUT: Final = 10.0
"""The default of ``ServeSocketOptions.first_message_timeout``, in seconds."""


@attrs.frozen
class ServingContext:
    """Shared by all connections of a server while it is served, until the last of them has ended."""

    server: Server
    state: Any
    """The value of the server's lifespan."""
    loop: EventLoop
    runtime: Runtime
    """Runs handlers that no single connection owns."""
    deadlines: Deadlines


class ActiveSet(Generic[T]):
    """An ordered set, the oldest member first, that can be waited on to become empty."""

    def __init__(self, loop: EventLoop) -> None:
        self._members: dict[T, None] = {}
        self._event = loop.event
        self._is_empty = loop.event()

    def __iter__(self) -> Iterator[T]:
        """Iterate over the present members; they may leave during that."""
        return iter(tuple(self._members))

    def __len__(self) -> int:
        return len(self._members)

    def enter(self, member: T) -> None:
        """Add a member."""
        self._members[member] = None

    def leave(self, member: T) -> None:
        """Remove a member, if it is in the set."""
        self._members.pop(member, None)
        if not self._members:
            is_empty, self._is_empty = self._is_empty, self._event()
            is_empty.set()

    async def wait_empty(self) -> None:
        """Wait until the set is empty."""
        while self._members:
            await self._is_empty.wait()


class SessionHandler:
    """Serves one session per connection. A session that fails costs only itself."""

    def __init__(
        self,
        context: ServingContext,
        *,
        tap: TapSource | None = None,
        first_message_timeout: float | None = None,
        idle_timeout: float | None = None,
        end_timeout: float | None = None,
    ) -> None:
        """See ``ServeSocketOptions`` for the timeouts. ``end_timeout`` is for transports that can half-close."""
        self._context = context
        self._faults = FaultLog(context.loop.now)
        self._beginning = ServerSetupOptions(tap=tap, end_timeout=end_timeout)
        self._timeouts = (first_message_timeout, idle_timeout)
        self._sessions: ActiveSet[ServerSession] = ActiveSet(context.loop)
        self._is_closing = False

    async def serve_session(self, adapter: TransportAdapter, principal: Hashable) -> None:
        """Serve one client until its session ends, and close the transport. Never raises for the client's input."""
        context = self._context
        if self._is_closing:
            await close_forcefully(adapter, context.loop)
            return
        try:
            setup = prepare_server(context.server, principal, context.loop.now(), **self._beginning)
        except Exception as error:
            self._faults.report("a session could not be started", error)
            await close_forcefully(adapter, context.loop)
            return
        connection: Any = setup.connection
        made: list[tuple[ServerSession, _SilenceTimer]] = []

        def make_session(driver: Driver) -> ServerSession:
            session = context.server.session(connection, driver, context.state)
            made.append((session, _SilenceTimer(session, context, *self._timeouts)))
            self._sessions.enter(session)
            return session

        try:
            await carry(context.loop, setup, adapter, make_session, deadlines=context.deadlines)
        finally:
            for session, timer in made:
                self._sessions.leave(session)
                timer.stop()

    def close(self, grace: float) -> None:
        """Start no further session, and close all. Running requests have ``grace`` seconds."""
        self._is_closing = True
        for session in self._sessions:
            session.close(grace)

    async def wait_empty(self) -> None:
        """Wait until no session is left."""
        await self._sessions.wait_empty()


class StreamHandler:
    """Handles stream connections: one message a line, one session each."""

    def __init__(
        self,
        context: ServingContext,
        options: ServeSocketOptions,
    ) -> None:
        self._sessions = SessionHandler(
            context,
            tap=options.get("tap"),
            first_message_timeout=seconds(
                "first_message_timeout", options.get("first_message_timeout", FIRST_MESSAGE_TIMEOUT)
            ),
            idle_timeout=seconds("idle_timeout", options.get("idle_timeout")),
            end_timeout=seconds("end_timeout", options.get("end_timeout", END_TIMEOUT)),
        )
        self._loop = context.loop
        self._faults = FaultLog(context.loop.now)
        self._find_principal = options.get("principal")
        if self._find_principal is not None:
            called("principal", self._find_principal, "(peer)")

    async def receive(self, stream: Any, peer: SocketPeer) -> None:
        """Handle a connection until it ends, and close its stream. Never raises for the client's input."""
        try:
            principal = await self._principal(peer)
        except Exception as error:
            if not isinstance(error, PermissionError):
                self._faults.report("the principal of a connection could not be found", error)
            await self._loop.abort(stream)
            return
        await self._sessions.serve_session(StreamAdapter(stream, self._loop), principal)

    def retire(self) -> None:
        """Do nothing: a session continues until it is closed."""

    def make_room(self) -> None:
        """Do nothing: only the client knows whether a session is still needed."""

    def close(self, grace: float) -> None:
        """Start closing all sessions."""
        self._sessions.close(grace)

    async def wait_empty(self) -> None:
        """Wait until no session is left."""
        await self._sessions.wait_empty()

    async def finish(self) -> None:
        """Do nothing: a session is left when its handlers have ended, or were named."""

    async def _principal(self, peer: SocketPeer) -> Hashable:
        if self._find_principal is None:
            return peer.identity
        principal: Hashable | Awaitable[Hashable] = self._find_principal(peer)
        return (await in_time(principal, self._loop)) if isawaitable(principal) else principal


class _SilenceTimer:
    """Closes a session whose client sends no first message, or is idle for too long. Checks at its own deadlines."""

    def __init__(
        self, session: ServerSession, context: ServingContext, first: float | None, idle: float | None
    ) -> None:
        self._session = session
        self._deadlines = context.deadlines
        self._now = context.loop.now
        self._first = first
        self._idle = idle
        self._began = self._now()
        self.handle_timeout()

    def handle_timeout(self) -> None:
        """Close the session if it is time, or else check again when it may be. Called at its deadline."""
        connection, now = self._session.connection, self._now()
        if connection.phase in (Phase.CLOSING, Phase.CLOSED):
            return
        due = []
        if self._first is not None and not _has_sent_a_message(connection):
            due.append(self._began + self._first)
        if self._idle is not None:
            is_busy = bool(connection.pending.outgoing or connection.pending.incoming)
            due.append((now if is_busy else max(self._began, connection.last_received_at or self._began)) + self._idle)
        if due and min(due) <= now:
            self._session.close()
        elif due:
            self._deadlines.arm(self, min(due))

    def stop(self) -> None:
        """Stop checking."""
        self._deadlines.arm(self, None)


def _has_sent_a_message(connection: Connection) -> bool:
    """Whether the client has sent a whole message: bytes alone do not count."""
    has_answered = connection.stats.sent_bytes > 0 or connection.stats.queued_bytes > 0
    return connection.phase is not Phase.NEW or has_answered or bool(connection.pending.incoming)


# ------------------------------------------------------------------------------------------------------------ unix path
# The file of a Unix socket: made, replaced where it is stale, and removed.

LOCK_AGAIN: Final = 0.01
"""Seconds between two attempts to lock a directory in which another server is starting."""

LOCK_TIMEOUT: Final = 2.0
"""Seconds after which the owner of the lock cannot be a server that is starting."""


@asynccontextmanager
async def bound_unix(path: str | os.PathLike[str], mode: int, loop: EventLoop) -> AsyncIterator[socket.socket]:
    """Yield a listening socket, in non-blocking mode; then remove its file, unless another took its place.

    A stale socket file is replaced. ``mode`` are the file's permissions, from the moment when clients can connect.
    Raises OSError with ``EADDRINUSE`` if another server listens on it, or ``EEXIST`` if the file is not a socket.
    """
    file = os.fspath(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.setblocking(False)
        async with _lock(os.path.dirname(file) or ".", loop):
            _remove_stale(file)
            made.bind(file)
            identity = _identity(file)
            try:
                # Before ``listen`` no client can connect, so none finds wider permissions.
                os.chmod(file, mode)
                made.listen(BACKLOG)
            except BaseException:
                os.unlink(file)
                raise
        try:
            yield made
        finally:
            # The socket still listens here, so no other server takes the file for a stale one.
            with suppress(OSError):
                if _identity(file) == identity:
                    os.unlink(file)


@asynccontextmanager
async def _lock(directory: str, loop: EventLoop) -> AsyncIterator[None]:
    """Lock a directory while a socket's file is checked, removed and created again.

    Between the check and the removal, another server that starts might put its own file there. The lock ends with the
    process, and leaves no file. Raises OSError with ``EAGAIN`` if another process holds it for too long.
    """
    import fcntl  # It exists only where there are Unix sockets.

    held = os.open(directory, os.O_RDONLY)
    try:
        for attempt in range(1, int(LOCK_TIMEOUT / LOCK_AGAIN) + 1):
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if attempt * LOCK_AGAIN >= LOCK_TIMEOUT:
                    raise
            with loop.scope(LOCK_AGAIN):
                await loop.event().wait()
        yield
    finally:
        os.close(held)


def _remove_stale(path: str) -> None:
    """Remove a stale socket file. Raises OSError if a server listens on it, or it is not a socket."""
    try:
        kind = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise FileExistsError(errno.EEXIST, "there is a file that is not a socket", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except FileNotFoundError:
            return  # Its server has just ended.
        except BlockingIOError:
            pass  # It listens, and many clients wait.
        raise OSError(errno.EADDRINUSE, "another server listens on the socket", path)


def _identity(path: str) -> tuple[int, int]:
    status = os.lstat(path)
    return status.st_dev, status.st_ino
