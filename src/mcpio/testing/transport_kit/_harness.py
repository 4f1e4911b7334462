"""What the author of a transport writes for the kit, and the most of it done for streams and channels."""

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
"""Connects two ends anew; a context manager of them tidies up, once both are closed."""

T = TypeVar("T")

_MIB: Final = 1024 * 1024

MOST_CANCELLATIONS: Final = 2000
"""So many in a second are none of which anybody takes notice. Timeouts of a millisecond make fewer."""


@attrs.frozen
class Conversation:
    """A client and a server that have shaken hands over the transport."""

    client: Client
    lose: Callable[[], Awaitable[None]] | None = None
    """Breaks the connection without a word, as a pulled cable or a killed peer does."""
    stall: Callable[[], None] | None = None
    """From now on neither end reads."""
    resume: Callable[[], None] | None = None
    """Both ends read again."""


class Harness(ABC):
    """How the kit reaches a transport. ``PairHarness`` is one for everything that gives two ends.

    The attributes say what the transport can do. What it cannot do is not asked of it: leave out no more than is so.
    """

    in_process: bool = True
    """Whether the server that ``join`` is given runs in this process, so that the kit can look at it."""
    speaks_back: bool = True
    """Whether the server can say more than answers: notifications, and requests of its own."""
    ordered: bool = True
    """Whether what one end sends arrives in the order in which it was sent. HTTP has no order among its requests."""
    loses: bool = True
    """Whether there is ``Conversation.lose``, and both ends notice."""
    reconnects: bool = False
    """Whether the same client goes on after a loss, by itself."""
    stalls: bool = True
    """Whether there are ``Conversation.stall`` and ``resume``."""
    half_closes: bool = False
    """Whether a client can end what it sends and go on reading. Then there is ``dial``."""
    room: int = _MIB
    """How many bytes may be under way between two ends of which one does not read, at the very most."""
    virtual_time: bool = False
    """Whether only Trio is waited for, so that the clock may jump. Not for sockets, files, threads or processes."""
    patience: float = 10.0
    """Seconds after which what should happen at once is taken never to happen."""

    @abstractmethod
    def join(self, server: Server, **options: Unpack[ClientOptions]) -> AbstractAsyncContextManager[Conversation]:
        """Connect a new client to a server, for a block: an ``@asynccontextmanager``. May be called many times at once.

        ``server`` is to be served; where ``in_process`` is false, ``kit_server()`` of another process. At the end of
        the block the client is to be closed in order, as ``async with open_…`` does.
        """

    def dial(self, server: Server) -> AbstractAsyncContextManager[trio.abc.HalfCloseableStream]:
        """Connect a stream to a server, for a block, with no client on it. Needed where ``half_closes`` is true."""
        raise NotImplementedError(f"{type(self).__name__}.half_closes is true, but dial() is missing")

    def __repr__(self) -> str:
        return type(self).__name__


class PairHarness(Harness):
    """For a ``trio.abc.Stream`` or ``trio.abc.Channel``: takes a function that connects two ends.

    The function returns ``(client's end, server's end)``, or is an async function that does, or an
    ``@asynccontextmanager`` that gives them. ``lose`` breaks the connection of two ends; without it the server's end is
    closed forcefully. ``binary`` is for channels that take bytes and no text. The other attributes of ``Harness`` can
    be given by name.
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
        """``TypeError`` for an attribute that there is not."""
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
        """Connect two ends, and serve at one of them."""
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
        """Connect two ends, and serve at one of them."""
        async with self._ends() as (near, far):
            if not isinstance(near, trio.abc.HalfCloseableStream):
                raise TypeError(f"half_closes is true, but a {type(near).__name__} is no trio.abc.HalfCloseableStream")
            async with self._served(server, far), near:
                yield near

    @asynccontextmanager
    async def _served(self, server: Server, transport: Any) -> AsyncIterator[None]:
        """Serve for a block; it ends when the server's end does."""
        with ungrouped():
            async with trio.open_nursery() as nursery:
                await nursery.start(serve, server, transport)
                yield

    @asynccontextmanager
    async def _ends(self) -> AsyncIterator[Ends]:
        """Connect two ends for a block."""
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
    """Something to pass before reading, which also sees what becomes of cancellations.

    A transport that goes on when it is cancelled would have no check ever end.
    """

    def __init__(self) -> None:
        self._opened = trio.Event()
        self._opened.set()
        self._cancelled, self._since = 0, 0.0

    def shut(self) -> None:
        """Let nobody pass."""
        self._opened = trio.Event()

    def open(self) -> None:
        """Let everybody pass."""
        self._opened.set()

    async def passed(self) -> None:
        """Wait until it is open. No checkpoint otherwise: whoever passes has one of its own."""
        if not self._opened.is_set():
            await self._opened.wait()

    @types.coroutine
    def watched(self, call: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """Await a call of the transport. ``RuntimeError`` when it is cancelled over and over, and does not end."""
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
        """Count how often it happens within a second: who waits with a timeout of their own is cancelled too."""
        now = trio.current_time()
        if now - self._since > 1:
            self._cancelled, self._since = 0, now
        self._cancelled += 1
        if self._cancelled > MOST_CANCELLATIONS:
            raise RuntimeError("it goes on though it is cancelled: let trio.Cancelled leave")


class _GatedStream(_Gate, trio.abc.Stream):
    """A stream whose owner stops reading when told to."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await self.passed()
        data: bytes = await self.watched(self.inner.receive_some(max_bytes))
        # What came while the gate was being shut is not read either.
        await self.passed()
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self.watched(self.inner.send_all(data))

    async def wait_send_all_might_not_block(self) -> None:
        await self.inner.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self.inner.aclose()

    def __getattr__(self, name: str) -> Any:
        # ``send_nowait``, where the stream has it.
        return getattr(self.inner, name)


class _GatedHalfCloseableStream(_GatedStream, trio.abc.HalfCloseableStream):
    async def send_eof(self) -> None:
        await self.inner.send_eof()


class _GatedChannel(_Gate, trio.abc.Channel[Any]):
    """A channel whose owner stops reading when told to."""

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
