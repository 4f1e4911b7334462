"""The interface of the shared drivers to Trio."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, suppress
from functools import cached_property
from math import inf
from typing import Any, Final, TypeAlias, TypeVar

import trio

from mcpio._drivers.event_loop import (
    BACKLOG,
    TCP_KEEP_ALIVE,
    Deadlines,
    ListenerClosed,
    read_out,
    set_tcp_keep_alive,
)
from mcpio._drivers.signals import DEFAULT_TIMEOUT, ExitTimer, Terminated, ended_by_signals, exit_status
from mcpio.app.runtime import Runtime
from mcpio.trio._runtime import Signal, Timekeeper, TrioRuntime, last_moment, ungrouped

__all__ = ["BROKEN", "Terminated", "TrioEventLoop", "keep_tcp_alive", "run_until_signalled", "terminate_on_signals"]

T = TypeVar("T")

BROKEN: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)
"""The exceptions that a closed or broken stream raises."""

Listener: TypeAlias = "trio.abc.Listener[Any]"


class TrioEventLoop:
    """``mcpio._drivers.event_loop.EventLoop`` for Trio."""

    broken: tuple[type[Exception], ...] = BROKEN

    def __init__(self) -> None:
        """Create it inside of the run."""
        # The clock itself: ``trio.current_time`` looks it up at each call.
        self.now = trio.lowlevel.current_clock().current_time
        self._token = trio.lowlevel.current_trio_token()

    @cached_property
    def runtime(self) -> TrioRuntime:
        """A runtime without a nursery."""
        return TrioRuntime(None)

    def is_current(self) -> bool:
        """Whether it is the run that this is in."""
        try:
            return trio.lowlevel.current_trio_token() is self._token
        except RuntimeError:
            return False

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

    @asynccontextmanager
    async def lasting(self) -> AsyncIterator[TrioRuntime]:
        """Return a shielded nursery as a runtime. A task of its own holds it open, since a shield covers the body."""
        with ungrouped():
            async with trio.open_nursery() as nursery:
                over = trio.Event()
                try:
                    # Not a place to be cut off at: a server that is told to end serves the clients that have connected.
                    with trio.CancelScope(shield=True):
                        runtime = await nursery.start(_hold, over)
                    yield runtime
                finally:
                    over.set()

    def timekeeper(self, runtime: Runtime) -> Timekeeper:
        """Return a timekeeper, which a task runs."""
        timekeeper = Timekeeper()
        runtime.spawn(timekeeper.run())
        return timekeeper

    def alarm(self, runtime: Runtime, shared: Deadlines | None = None) -> Deadlines:
        """Return the shared timekeeper, if there is one, since each has a task."""
        return self.timekeeper(runtime) if shared is None else shared

    def last_moment(self, seconds: float | None) -> AbstractAsyncContextManager[None]:
        """Return a shielded block."""
        return last_moment(seconds)

    async def resolve(self, host: str, port: int) -> list[str]:
        """Ask the system in a thread."""
        addresses = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
        return list(dict.fromkeys(str(address[0]) for *_, address in addresses))

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
        socket = getattr(inner, "socket", None)
        return socket is not None and socket.fileno() >= 0 and socket.is_readable()

    async def abort(self, stream: Any) -> None:
        """Close a stream forcefully."""
        # Shielded, or a cancellation could take the place of the exception that it is closed for.
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(stream)

    async def linger(self, stream: Any) -> None:
        """Read a socket out; under TLS, send ``close_notify`` first."""
        inner = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
        if getattr(inner, "socket", None) is None:
            return
        try:
            if inner is not stream:
                with suppress(trio.BrokenResourceError):  # raised for input from a peer that has not ended yet
                    await stream.unwrap()
                await inner.send_eof()
            await read_out(inner, self)
        finally:
            await inner.aclose()  # which ``stream`` does not do after ``unwrap``

    def quickened(self, stream: trio.abc.Stream) -> trio.abc.Stream:
        """Wrap a plain socket, on POSIX."""
        if os.name == "posix" and isinstance(stream, trio.SocketStream):
            from mcpio.trio._descriptors import QuickSocketStream  # only where there are sockets

            return QuickSocketStream(stream)
        return stream

    def terminate_on_signals(self, timer: ExitTimer) -> AbstractContextManager[None]:
        """Return a block that signals end."""
        return ended_by_signals(trio.CancelScope(), trio.lowlevel.current_trio_token().run_sync_soon, timer)

    async def listen(self, host: str | None, port: int) -> list[trio.SocketListener]:
        """Listen by Trio's own function."""
        return list(await trio.open_tcp_listeners(port, host=host, backlog=BACKLOG))

    def listener(self, bound: socket.socket) -> trio.SocketListener:
        """Wrap a socket."""
        return trio.SocketListener(trio.socket.from_stdlib_socket(bound))

    def given_listeners(self, listeners: Sequence[Any]) -> Sequence[Listener]:
        """Return Trio's listeners. A plain socket is none."""
        for listener in listeners:
            if not isinstance(listener, trio.abc.Listener):
                advice = "trio.SocketListener(trio.socket.from_stdlib_socket(sock)) makes one of a socket that listens"
                raise TypeError(f"listeners must be Trio's listeners, not {listener!r:.100}: {advice}")
        return listeners

    async def accept(self, listener: Listener) -> Any:
        """Wait for a connection, which is a stream already."""
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

    def socket_of(self, listener: Any) -> Any:
        """Return the socket of a plain socket stream, or of a listener on a socket."""
        return listener.socket if isinstance(listener, trio.SocketStream | trio.SocketListener) else None

    async def server_stream(
        self,
        accepted: trio.abc.Stream,
        context: ssl.SSLContext | None,
        timeout: float | None,
        *,
        https_compatible: bool,
    ) -> trio.abc.Stream | None:
        """Shake hands as a server, if a context is given."""
        if context is None:
            return self.quickened(accepted)
        secured = trio.SSLStream(accepted, context, server_side=True, https_compatible=https_compatible)
        with self.scope(timeout):
            try:
                await secured.do_handshake()
            except BROKEN:
                return None
            return secured
        return None

    def tls_of(self, stream: Any) -> Any:
        """Return the stream itself, which has the methods of its TLS object."""
        return stream if isinstance(stream, trio.SSLStream) else None

    async def abandon(self, accepted: trio.abc.Stream) -> None:
        """Close a stream forcefully."""
        await self.abort(accepted)

    async def close_listener(self, listener: Listener) -> None:
        """Close a listener."""
        await listener.aclose()


@trio.lowlevel.enable_ki_protection
async def _hold(over: trio.Event, *, task_status: trio.TaskStatus[TrioRuntime]) -> None:
    """Hold a shielded nursery open, and cancel it when it is over."""
    with trio.CancelScope(shield=True):
        async with trio.open_nursery() as nursery:
            task_status.started(TrioRuntime(nursery))
            await over.wait()
            nursery.cancel_scope.cancel()


def keep_tcp_alive(stream: trio.abc.Stream, seconds: float | None) -> None:
    """Enable TCP keep-alive after that many seconds of silence; ``None`` does nothing."""
    if seconds is None or not isinstance(stream, trio.SocketStream):
        return
    set_tcp_keep_alive(stream.socket, seconds)


def terminate_on_signals(
    *, timeout: float | None = DEFAULT_TIMEOUT, end_with_parent: bool = False
) -> AbstractContextManager[None]:
    """Context manager that ends its block, and then the process, at the first SIGINT or SIGTERM. For a Trio run.

    The signal cancels the block. When that is unwound, ``Terminated`` is raised, which ends the process with the right
    status, also from within nurseries (an exception group of ``Terminated`` only is not printed). If the body fails
    while it is cancelled, its own exception propagates instead.

    ``timeout`` is how many seconds the process may live after the signal; then it is ended on the spot, whatever still
    runs: a handler that computes or sleeps without awaiting, a thread that an exit would wait for, or slow clean-up.
    Only C code that keeps the interpreter lock can delay that. Exit functions run within that time. ``None`` sets no
    limit. A second signal ends the process immediately. Child processes that ``open_stdio`` and ``start_process``
    started are waited for, by the rules of their shutdown, and killed if they are left at the end.

    ``end_with_parent`` also takes the end of the parent process for a SIGTERM, within about a second. For a server on
    standard input whose client was killed: it sees no end of its input as long as another process holds the pipe open.
    It has no effect on Windows.

    Signal handlers belong to the main thread; in another thread the block has no effect. SIGINT counts even if the
    process was started to ignore it, as a background job of a shell is. The end of the block restores the previous
    handlers, unless a signal ended it.
    """
    return ended_by_signals(
        trio.CancelScope(),
        trio.lowlevel.current_trio_token().run_sync_soon,
        timeout,
        end_with_parent=end_with_parent,
    )


def run_until_signalled(main: Callable[[], Awaitable[T]], *, timeout: float | None = DEFAULT_TIMEOUT) -> T:
    """Run ``main`` in a Trio run inside ``terminate_on_signals``.

    ``Terminated`` propagates unwrapped; other exceptions as from ``trio.run``.
    """

    async def guarded() -> T:
        with terminate_on_signals(timeout=timeout):
            return await main()

    try:
        return trio.run(guarded)
    except BaseExceptionGroup as group:
        status = exit_status(group)
        if status is None:
            raise
        raise Terminated(status - 128) from None
