"""Harnesses: how the kit reaches a transport. `PairHarness` is ready-made for streams and channels."""

from __future__ import annotations

import inspect
import types
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, Unpack

import attrs
import trio

from mcpio.app.client import Client, ClientOptions
from mcpio.app.server import Server
from mcpio.trio._drivers import open_transport, serve
from mcpio.trio._nurseries import ungrouped
from mcpio.trio._transport import Transport

__all__ = ["Conversation", "Ends", "Harness", "PairHarness"]

Ends: TypeAlias = "tuple[Transport, Transport]"
"""The client's end of a new connection, and the server's."""

MakeEnds: TypeAlias = "Callable[[], Ends | Awaitable[Ends] | AbstractAsyncContextManager[Ends]]"
"""Connects two new ends; a context manager may clean up, once both are closed."""

T = TypeVar("T")

_MIB: Final = 1024 * 1024

MOST_CANCELLATIONS: Final = 2000
"""Cancellations per second beyond which a transport is taken to ignore them; millisecond timeouts cause fewer."""


@attrs.frozen
class Conversation:
    """A client and a server after the handshake over the transport."""

    client: Client
    lose: Callable[[], Awaitable[None]] | None = None
    """Breaks the connection without notice, like a pulled cable or a killed peer."""
    stall: Callable[[], None] | None = None
    """Stops both ends from reading."""
    resume: Callable[[], None] | None = None
    """Lets both ends read again."""


class Harness(ABC):
    """How the kit reaches a transport. ``PairHarness`` serves every transport that has two ends.

    The attributes declare the transport's abilities; checks that need a missing one are skipped. Declare all that the
    transport has.
    """

    in_process: bool = True
    """Whether the server passed to ``join`` runs in this process, where the kit can examine it."""
    speaks_back: bool = True
    """Whether the server can send notifications and requests, not only answers."""
    ordered: bool = True
    """Whether messages arrive in the order in which they were sent. HTTP requests are not ordered."""
    loses: bool = True
    """Whether ``Conversation.lose`` is provided, and both ends notice the loss."""
    reconnects: bool = False
    """Whether the same client reconnects after a loss."""
    stalls: bool = True
    """Whether ``Conversation.stall`` and ``resume`` are provided."""
    half_closes: bool = False
    """Whether a client can close its output and still read. Needs ``dial``."""
    room: int = _MIB
    """The most bytes that the transport may buffer when one end does not read."""
    virtual_time: bool = False
    """Whether the transport waits for Trio only, so that tests may use a jumping clock. False for sockets, files,
    threads and processes."""
    patience: float = 10.0
    """Seconds after which an expected step counts as failed."""

    @abstractmethod
    def join(self, server: Server, **options: Unpack[ClientOptions]) -> AbstractAsyncContextManager[Conversation]:
        """Connect a new client to ``server`` for a block: an ``@asynccontextmanager``. Calls may overlap.

        Serve ``server``; if ``in_process`` is false, another process serves ``kit_server()``. Close the client
        properly at the end of the block, as ``async with open_…`` does.
        """

    def dial(self, server: Server) -> AbstractAsyncContextManager[trio.abc.HalfCloseableStream]:
        """Connect a bare stream to a server for a block. Needed if ``half_closes`` is true."""
        raise NotImplementedError(f"{type(self).__name__}.half_closes is true, but dial() is missing")

    def __repr__(self) -> str:
        return type(self).__name__


class PairHarness(Harness):
    """For a ``trio.abc.Stream`` or ``trio.abc.Channel``: takes a function that connects two ends.

    The function returns ``(client's end, server's end)``, or is an async function that does, or an
    ``@asynccontextmanager`` that yields them. ``lose`` breaks the connection of two ends; by default the server's end
    is closed forcefully. ``binary`` is for channels that take bytes instead of text. Pass other attributes of
    ``Harness`` by name.
    """

    _GIVEN: ClassVar = frozenset(
        ("speaks_back", "ordered", "loses", "stalls", "half_closes", "room", "virtual_time", "patience")
    )

    def __init__(
        self,
        make_ends: MakeEnds,
        *,
        lose: Callable[[Transport, Transport], Awaitable[None]] | None = None,
        binary: bool = False,
        **abilities: Any,
    ) -> None:
        """Create a harness. Raises TypeError for an unknown attribute."""
        unknown = sorted(set(abilities) - self._GIVEN)
        if unknown:
            raise TypeError(f"a PairHarness has no {unknown[0]!r}; it has {', '.join(sorted(self._GIVEN))}")
        self._make_ends = make_ends
        self._lose = lose
        self._binary = binary
        for name, value in abilities.items():
            setattr(self, name, value)

    @asynccontextmanager
    async def join(self, server: Server, **options: Unpack[ClientOptions]) -> AsyncIterator[Conversation]:
        """Connect two ends, and serve one of them."""
        async with self._ends() as (near, far):
            gates = [_gated(near), _gated(far)]

            async def lose() -> None:
                if self._lose is None:
                    await trio.aclose_forcefully(far)
                else:
                    await self._lose(near, far)
                resume()

            def stall() -> None:
                for gate in gates:
                    gate.shut()

            def resume() -> None:
                for gate in gates:
                    gate.open()

            joined = open_transport(gates[0], binary=self._binary, **options)
            async with self._served(server, gates[1]), joined as client:
                yield Conversation(client, lose, stall, resume)

    @asynccontextmanager
    async def dial(self, server: Server) -> AsyncIterator[trio.abc.HalfCloseableStream]:
        """Connect two ends, and serve one of them."""
        async with self._ends() as (near, far):
            if not isinstance(near, trio.abc.HalfCloseableStream):
                raise TypeError(
                    f"half_closes is true, but a {type(near).__name__} is not a trio.abc.HalfCloseableStream"
                )
            async with self._served(server, far), near:
                yield near

    @asynccontextmanager
    async def _served(self, server: Server, transport: Any) -> AsyncIterator[None]:
        """Serve for a block, which ends when the server's session does."""
        with ungrouped():
            async with trio.open_nursery() as nursery:
                await nursery.start(serve, server, transport)
                yield

    @asynccontextmanager
    async def _ends(self) -> AsyncIterator[Ends]:
        """Yield two connected ends."""
        made: Any = self._make_ends()
        if isinstance(made, AbstractAsyncContextManager):
            async with made as ends:
                yield ends
        else:
            near, far = await made if inspect.isawaitable(made) else made
            yield near, far

    def __repr__(self) -> str:
        return f"PairHarness({getattr(self._make_ends, '__qualname__', self._make_ends)})"


class _Gate:
    """Can hold up reading, and detects ignored cancellations.

    A transport that ignores cancellation would keep every check from ending.
    """

    def __init__(self) -> None:
        self._opened = trio.Event()
        self._opened.set()
        self._cancelled, self._since = 0, 0.0

    def shut(self) -> None:
        """Stop readers."""
        self._opened = trio.Event()

    def open(self) -> None:
        """Resume readers."""
        self._opened.set()

    async def passed(self) -> None:
        """Wait until it is open. No checkpoint if it is: the caller has one."""
        if not self._opened.is_set():
            await self._opened.wait()

    @types.coroutine
    def watched(self, call: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """Await a call of the transport. Raises RuntimeError if the call ignores repeated cancellation."""
        came = None
        try:
            while True:
                came = yield call.send(came)
                if isinstance(getattr(came, "error", None), trio.Cancelled):
                    self._note_cancellation()
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            call.close()

    def _note_cancellation(self) -> None:
        """Count cancellations per second; a transport's own timeouts cancel too, but rarely."""
        now = trio.current_time()
        if now - self._since > 1:
            self._cancelled, self._since = 0, now
        self._cancelled += 1
        if self._cancelled > MOST_CANCELLATIONS:
            raise RuntimeError("the transport ignores cancellation: let trio.Cancelled propagate")


class _GatedStream(_Gate, trio.abc.Stream):
    """A stream that can hold up its reader."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await self.passed()
        data: bytes = await self.watched(self.inner.receive_some(max_bytes))
        # Input that arrived while the gate was shut must wait too.
        await self.passed()
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self.watched(self.inner.send_all(data))

    async def wait_send_all_might_not_block(self) -> None:
        await self.inner.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self.inner.aclose()

    def __getattr__(self, name: str) -> Any:
        # For ``send_nowait``, if the stream has it.
        return getattr(self.inner, name)


class _GatedHalfCloseableStream(_GatedStream, trio.abc.HalfCloseableStream):
    async def send_eof(self) -> None:
        await self.inner.send_eof()


class _GatedChannel(_Gate, trio.abc.Channel[Any]):
    """A channel that can hold up its reader."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    async def receive(self) -> Any:
        await self.passed()
        message = await self.watched(self.inner.receive())
        await self.passed()
        return message

    async def send(self, value: Any) -> None:
        await self.watched(self.inner.send(value))

    async def aclose(self) -> None:
        await self.inner.aclose()


def _gated(transport: Transport) -> Any:
    if isinstance(transport, trio.abc.HalfCloseableStream):
        return _GatedHalfCloseableStream(transport)
    if isinstance(transport, trio.abc.Stream):
        return _GatedStream(transport)
    if isinstance(transport, trio.abc.Channel):
        return _GatedChannel(transport)
    raise TypeError(f"an end is a trio.abc.Stream or a trio.abc.Channel, not {type(transport).__name__}")
