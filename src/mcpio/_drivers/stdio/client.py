"""The client of a server that is a child process, and its options, for the drivers of all event loops."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, Unpack

from mcpio._drivers.actor import TransportAdapter
from mcpio._drivers.event_loop import EventLoop
from mcpio._drivers.setup import ConnectOptions
from mcpio._drivers.stdio.process import EXIT_TIMEOUT, ProcessOptions
from mcpio._printable import printable
from mcpio.app.client import Client, ClientOptions
from mcpio.app.runtime import Driver
from mcpio.engine.client import ClientConnection
from mcpio.engine.table import Phase
from mcpio.errors import ConnectFailed, ConnectionLost
from mcpio.events import CloseReason, ConnectionClosed, Event, NoiseReceived

if TYPE_CHECKING:
    from mcpio.backoff import Backoff
    from mcpio.restarts import RestartPolicy

__all__ = ["END_TIMEOUT", "Child", "Children", "StdioClient", "StdioOptions"]

END_TIMEOUT: Final = 10.0
"""The default of ``end_timeout`` for a server, in seconds."""


class Child(Protocol):
    """A child process."""

    @property
    def stderr_tail(self) -> str:
        """The last lines of its standard error, if that is captured."""

    async def last_words(self) -> str:
        """Return how it ended, with the tail of its standard error, for an error message."""

    def close(self) -> None:
        """Start its end and return. Further calls do nothing."""

    async def aclose(self) -> None:
        """End it, and wait for its end. If cancelled, the child still ends, but is not waited for."""


class Children:
    """Starts the child processes of one client, one after another."""

    child: Any
    """The newest child, once there was one."""

    def __init__(
        self, start: Callable[[], Awaitable[Child]], make_adapter: Callable[..., TransportAdapter], loop: EventLoop
    ) -> None:
        """``start`` raises ConnectFailed. ``make_adapter`` takes a child; with ``end_is_loss``, its end is an error."""
        self._start = start
        self._make_adapter = make_adapter
        self._loop = loop
        self._has_child = False

    async def client(self, given: dict[str, Any]) -> tuple[TransportAdapter, Callable[..., StdioClient]]:
        """Start a child, and return the adapter to it and what makes its client.

        ``given`` are the arguments of the client, from which those on restarting are taken out: with ``restart`` the
        client outlives its children. Raises ConnectFailed.
        """
        policy = given.pop("restart", None)
        make = partial(StdioClient, children=self, loop=self._loop)
        if policy is None:
            given.pop("on_session_lost", None)
            return await self.connect(end_is_loss=False), make
        from mcpio._drivers.reconnecting import lasting_client

        return await lasting_client(self, policy, given, make, self._loop)

    async def connect(self, *, end_is_loss: bool = True) -> TransportAdapter:
        """Start another child, and return the adapter to it. Raises ConnectFailed."""
        self.child = await self._start()
        self._has_child = True
        return self._make_adapter(self.child, end_is_loss=end_is_loss)

    async def disconnect(self, adapter: TransportAdapter) -> str:
        """End the child, and return how it ended. If cancelled, the child still ends, but is not waited for."""
        self.child.close()
        words: str = await self.child.last_words()
        await self.child.aclose()
        return words

    def close(self) -> None:
        """Start ending the child, if there is one."""
        if self._has_child:
            self.child.close()


class StdioOptions(ProcessOptions, ConnectOptions, total=False):
    """The keyword arguments of ``open_stdio`` and ``connect_stdio``: of the process, and of all clients."""

    restart: Backoff | RestartPolicy | None
    """The policy for starting the program again after it died; ``None`` does not. See the guide."""
    on_session_lost: Callable[[], None] | None
    """With ``restart``, a plain function that is called for each lost child, after its end and before the start of the
    next one. Without it, lost children are logged."""


class StdioClient(Client):
    """A client of a server that is a child process. If the child dies, errors tell how."""

    def __init__(
        self,
        connection: ClientConnection,
        driver: Driver,
        *,
        children: Children,
        loop: EventLoop,
        **options: Unpack[ClientOptions],
    ) -> None:
        """For ``open_stdio`` and ``connect_stdio``."""
        super().__init__(connection, driver, **options)
        self._children = children
        self._loop = loop
        self.driving.explain_failures_by(self._explained)
        self._noise: tuple[Child | None, str] = (None, "")
        self._end_known = loop.event()

    @property
    def child(self) -> Any:
        """The child: its ``pid``, ``returncode`` and ``stderr_tail``. With ``restart``, the newest."""
        return self._children.child

    async def _explained(self, error: Exception) -> Exception:
        """Return an error that describes the child's end: its exit status, and its last standard error output.

        Standard error is known where it is captured.
        """
        child = self.child
        if isinstance(error, ConnectFailed):
            found: Exception = ConnectFailed(
                f"{error}{await self._words_on_failure(error, child)}", era_probe=error.era_probe
            )
        elif isinstance(error, ConnectionLost):
            if self.connection.phase in (Phase.CLOSING, Phase.CLOSED):
                # The end of the connection is its last event, after the failures of the requests that it ended.
                with self._loop.scope(EXIT_TIMEOUT):
                    await self._end_known.wait()
                if not self._left_by_server:
                    return error
            found = ConnectionLost(f"{error.reason}: {await child.last_words()}")
        else:
            return error
        found.__cause__ = error.__cause__
        return found

    def _handle(self, event: Event) -> None:
        if event.__class__ is NoiseReceived and self._noise[0] is not self.child:
            self._noise = (self.child, event.text)
        super()._handle(event)
        if event.__class__ is ConnectionClosed:
            self._end_known.set()

    async def end_process(self) -> None:
        """End the child, after the connection was closed."""
        if self._left_by_server:
            self.driving.explain_end(await self.child.last_words())
        await self.child.aclose()

    @property
    def _left_by_server(self) -> bool:
        return self.ended is not None and self.ended.reason in (CloseReason.END_OF_FILE, CloseReason.LOST)

    async def _words_on_failure(self, error: ConnectFailed, child: Child) -> str:
        said = f"; its output is not a message, and begins with {self._noise[1]!r}" if self._noise[0] is child else ""
        cause = error.__cause__
        if isinstance(cause, ConnectFailed):  # it ended when it was asked for its era
            cause = cause.__cause__
        if isinstance(cause, ConnectionLost):
            return f"{said}: {await child.last_words()}"
        # The child is alive, or was ended by us: its exit status tells nothing, but its output may.
        tail = printable(child.stderr_tail.strip())
        return f"{said}; the end of the server's standard error:\n{tail}" if tail else said
