"""Harnesses: how the kit reaches a transport. `PairHarness` is ready-made for streams and channels."""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, Unpack

import attrs
import trio

from mcpio.app.client import Client, ClientOptions
from mcpio.app.server import Server
from mcpio.testing.transport_kit import _trio_ends
from mcpio.testing.transport_kit._loops import LOOPS, LoopName
from mcpio.trio._drivers import Transport

if TYPE_CHECKING:
    from mcpio.asyncio._drivers import ReceiveMessage, SendMessage

Ends: TypeAlias = "tuple[Transport, Transport]"
"""The client's end of a new connection, and the server's, on Trio."""

AsyncioStreams: TypeAlias = "tuple[asyncio.StreamReader, asyncio.StreamWriter]"

AsyncioChannel: TypeAlias = "tuple[ReceiveMessage, SendMessage, Callable[[], Awaitable[object]]]"
"""The functions ``receive``, ``send`` and ``close`` of ``mcpio.asyncio.open_channel``."""

AsyncioEnds: TypeAlias = "tuple[AsyncioStreams, AsyncioStreams] | tuple[AsyncioChannel, AsyncioChannel]"
"""The same on asyncio."""

AnyEnds: TypeAlias = "Ends | AsyncioEnds"

MakeEnds: TypeAlias = "Callable[[], AnyEnds | Awaitable[AnyEnds] | AbstractAsyncContextManager[AnyEnds]]"
"""Connects two new ends; a context manager may clean up, once both are closed."""

BareStream: TypeAlias = "trio.abc.HalfCloseableStream | AsyncioStreams"
"""A stream to a server, without a client."""

_MIB: Final = 1024 * 1024


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


def missing(name: str) -> str:
    """Return the error for a conversation that lacks what its harness declares."""
    ability = "loses" if name == "lose" else "stalls"
    return f"the harness declares {ability} = True, but its Conversation has no {name}=: give it, or declare False"


class Harness(ABC):
    """How the kit reaches a transport. ``PairHarness`` serves every transport that has two ends.

    The attributes declare the transport's abilities; checks that need a missing one are skipped. Declare all that the
    transport has.
    """

    loop: LoopName = "trio"
    """The event loop that the transport is for: each check runs in a new one."""
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
    threads and processes, and on asyncio."""
    patience: float = 10.0
    """Seconds after which an expected step counts as failed."""

    @abstractmethod
    def join(self, server: Server, **options: Unpack[ClientOptions]) -> AbstractAsyncContextManager[Conversation]:
        """Connect a new client to ``server`` for a block: an ``@asynccontextmanager``. Calls may overlap.

        Serve ``server``; if ``in_process`` is false, another process serves ``kit_server()``. Close the client
        properly at the end of the block, as ``async with open_…`` does.
        """

    def dial(self, server: Server) -> AbstractAsyncContextManager[BareStream]:
        """Connect a bare stream to a server for a block. Needed if ``half_closes`` is true."""
        raise NotImplementedError(f"{type(self).__name__}.half_closes is true, but dial() is missing")

    def __repr__(self) -> str:
        return type(self).__name__


class PairHarness(Harness):
    """For transports whose two ends ``open_transport`` and ``serve`` take: takes a function that connects two ends.

    The function returns ``(client's end, server's end)``, or is an async function that does, or an
    ``@asynccontextmanager`` that yields them. On Trio an end is a ``trio.abc.Stream`` or ``trio.abc.Channel``. With
    ``loop="asyncio"`` or ``"uvloop"`` it is a reader and a writer, or the functions ``receive``, ``send`` and ``close``
    of ``mcpio.asyncio.open_channel``. ``lose`` breaks the connection of two ends; by default the server's end is closed
    forcefully. ``binary`` is for channels of Trio that take bytes instead of text. Pass other attributes of ``Harness``
    by name.
    """

    _GIVEN: ClassVar = frozenset(
        ("loop", "speaks_back", "ordered", "loses", "stalls", "half_closes", "room", "virtual_time", "patience")
    )

    def __init__(
        self,
        make_ends: MakeEnds,
        *,
        lose: Callable[[Any, Any], Awaitable[None]] | None = None,
        binary: bool = False,
        **abilities: Any,
    ) -> None:
        """Create a harness. Raises TypeError for an unknown attribute, ValueError for an unknown event loop."""
        unknown = sorted(set(abilities) - self._GIVEN)
        if unknown:
            raise TypeError(f"a PairHarness has no {unknown[0]!r}; it has {', '.join(sorted(self._GIVEN))}")
        self._make_ends = make_ends
        self._lose = lose
        self._binary = binary
        for name, value in abilities.items():
            setattr(self, name, value)
        if self.loop not in LOOPS:
            raise ValueError(f"loop must be one of {', '.join(LOOPS)}, not {self.loop!r:.60}")

    @asynccontextmanager
    async def join(self, server: Server, **options: Unpack[ClientOptions]) -> AsyncIterator[Conversation]:
        """Connect two ends, and serve one of them."""
        driver = self._driver
        async with self._ends() as (near, far):
            gates = [driver.gated(near), driver.gated(far)]

            async def lose() -> None:
                if self._lose is None:
                    await driver.break_connection(far)
                else:
                    await self._lose(near, far)
                resume()

            def stall() -> None:
                for gate in gates:
                    gate.shut()

            def resume() -> None:
                for gate in gates:
                    gate.open()

            joined = driver.opened(gates[0], binary=self._binary, options=options)
            async with driver.served(server, gates[1]), joined as client:
                yield Conversation(client, lose, stall, resume)

    @asynccontextmanager
    async def dial(self, server: Server) -> AsyncIterator[BareStream]:
        """Connect two ends, and serve one of them."""
        driver = self._driver
        async with self._ends() as (near, far):
            driver.check_half_closes(near)
            async with driver.served(server, far):
                yield near

    @property
    def _driver(self) -> Any:
        """The module that opens and serves the ends of the event loop."""
        if self.loop == "trio":
            return _trio_ends
        from mcpio.testing.transport_kit import _asyncio_ends  # tests on Trio do without ``mcpio.asyncio``

        return _asyncio_ends

    @asynccontextmanager
    async def _ends(self) -> AsyncIterator[tuple[Any, Any]]:
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
