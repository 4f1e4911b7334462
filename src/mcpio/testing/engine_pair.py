"""Two engines joined in memory: real bytes, and virtual time.

A tool that never answers, and a client that gives up after half a minute::

    link = pair(server=ServerConnection(Implementation("server", "1"), ServerCapabilities(tools=ToolsCapability())))
    link.handshake()
    link.client.send_request(CallToolRequest("echo"), now=link.now, timeout=30)
    link.run()
    link.advance(30)
    assert isinstance(link.client_events[-1], RequestFailed)
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import attrs

from mcpio.engine.client import ClientConnection
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase, Role
from mcpio.types.features import Implementation

if TYPE_CHECKING:
    from mcpio.engine.connection import Connection
    from mcpio.events import Event

Chunking: TypeAlias = Callable[[int, int], int]
"""How a stream is split: takes the offset and the number of bytes available, returns how many arrive next."""


def whole(offset: int, available: int) -> int:
    """Deliver all available bytes."""
    del offset
    return available


def every(size: int) -> Chunking:
    """Deliver ``size`` bytes at a time."""
    return lambda _, available: min(size, available)


def at_random(seed: int) -> Chunking:
    """Deliver pieces of random sizes, the same ones for the same seed."""
    return lambda offset, available: random.Random(f"{seed}/{offset}").randint(1, available)  # noqa: S311  not for secrets


def cut_at(*offsets: int) -> Chunking:
    """Cut the stream at these offsets, and nowhere else."""
    return lambda offset, available: min([available, *(cut - offset for cut in offsets if cut > offset)])


def piece(chunk: Chunking, offset: int, available: int) -> int:
    """Return how many bytes to deliver next: at least one, and no more than are waiting."""
    return max(1, min(chunk(offset, available), available))


def pair(
    client: ClientConnection | None = None,
    server: ServerConnection | None = None,
    *,
    chunk: Chunking = whole,
    on_event: Callable[[Connection, Event], None] | None = None,
) -> Pair:
    """Join a client and a server; the default ones declare no capabilities.

    ``chunk`` cuts both streams: ``whole``, ``every(1)``, ``at_random(seed)``, ``cut_at(5, 7)`` or a function of one's
    own. ``on_event`` is called with each event as it is drained, and may act on the connection: it stands for the
    application.
    """
    return Pair(
        client or ClientConnection(Implementation("client", "1")),
        server or ServerConnection(Implementation("server", "1")),
        chunk,
        on_event,
    )


@attrs.frozen
class Carried:
    """A chunk that one side wrote."""

    at: float
    """The time of the write, in seconds."""
    sender: Role
    """The side that wrote it."""
    data: bytes | None
    """The bytes; ``None`` is the half-close."""


class Pair:
    """A client, a server, and the two streams between them. Created by ``pair``."""

    client: ClientConnection
    """The client. Call its methods, then ``run``. It may be replaced, for instance by one restored from a snapshot."""
    server: ServerConnection
    """Likewise."""
    now: float
    """The time, in seconds from 0, for calls that take ``now``."""
    client_events: list[Event]
    """The client's events, in order. May be cleared."""
    server_events: list[Event]
    """Likewise."""
    tap: list[Carried]
    """Every chunk that either side wrote, delivered or not."""
    on_event: Callable[[Connection, Event], None] | None
    """Called with each event as it is drained."""

    def __init__(
        self,
        client: ClientConnection,
        server: ServerConnection,
        chunk: Chunking,
        on_event: Callable[[Connection, Event], None] | None,
    ) -> None:
        self.client = client
        self.server = server
        self.now = 0.0
        self.client_events = []
        self.server_events = []
        self.tap = []
        self.on_event = on_event
        self._streams = {role: _Stream(chunk) for role in (Role.CLIENT, Role.SERVER)}

    # Time

    def run(self) -> None:
        """Deliver bytes and drain events until nothing more happens."""
        busy = True
        while busy:
            busy = False
            for sender in self._streams:
                busy = self._drain(sender) or busy
                busy = self._carry(sender) or busy

    def advance(self, seconds: float) -> None:
        """Advance the time. Deadlines on the way expire at their times, with their consequences."""
        self.advance_to(self.now + seconds)

    def advance_to(self, when: float) -> None:
        """Advance the time to ``when``."""
        self.run()
        while (due := self.next_deadline()) is not None and due <= when:
            self.now = max(self.now, due)
            for connection in (self.client, self.server):
                connection.handle_timeout(self.now)
            self.run()
        self.now = max(self.now, when)

    def next_deadline(self) -> float | None:
        """Return the next deadline of either side, or ``None``."""
        due = [time for each in (self.client, self.server) if (time := each.next_deadline()) is not None]
        return min(due, default=None)

    def handshake(self) -> None:
        """Perform the handshake."""
        self.client.send_initialize(now=self.now)
        self.run()

    # The network

    def sent(self, sender: Role) -> bytes:
        """Return all bytes that one side wrote so far."""
        return b"".join(each.data for each in self.tap if each.sender is sender and each.data is not None)

    def stall(self, sender: Role) -> None:
        """Stop reading the output of one side: it stays in its engine until ``resume``."""
        self._streams[sender].stalled = True

    def resume(self, sender: Role) -> None:
        """Read again after ``stall``. Call ``run`` afterwards."""
        self._streams[sender].stalled = False

    def cut(self, sender: Role) -> None:
        """Lose the output of one side from now on, without telling either."""
        self._streams[sender].cut = True
        self._streams[sender].waiting = b""

    def lose(self, cause: BaseException | None = None) -> None:
        """Break the channel for both sides; bytes in transit are lost. Call ``run`` afterwards."""
        for stream in self._streams.values():
            stream.waiting = b""
            stream.cut = stream.ended = True
        for connection in (self.client, self.server):
            connection.connection_lost(cause, self.now)

    def cut_after(self, sender: Role, size: int) -> None:
        """Apply ``cut`` when ``size`` bytes of one side have arrived in total; with 0, before the first."""
        self._streams[sender].stop(size, lambda: self.cut(sender))

    def lose_after(self, sender: Role, size: int) -> None:
        """Apply ``lose`` when ``size`` bytes of one side have arrived in total; with 0, before the first."""
        self._streams[sender].stop(size, self.lose)

    # Internals

    def _connection(self, role: Role) -> Connection:
        return self.client if role is Role.CLIENT else self.server

    def _drain(self, role: Role) -> bool:
        """Drain the events; return whether there were any."""
        connection = self._connection(role)
        record = self.client_events if role is Role.CLIENT else self.server_events
        before = len(record)
        for event in connection.events():
            record.append(event)
            if self.on_event is not None:
                self.on_event(connection, event)
        return len(record) > before

    def _carry(self, sender: Role) -> bool:
        """Pull output if none is in transit, and deliver one piece; return whether there was any."""
        stream = self._streams[sender]
        if stream.stalled:
            return False
        pulled = not stream.waiting and self._pull(sender, stream)
        receiver = Role.SERVER if sender is Role.CLIENT else Role.CLIENT
        return self._deliver(receiver, stream) or pulled

    def _pull(self, sender: Role, stream: _Stream) -> bool:
        connection = self._connection(sender)
        chunks = connection.data_to_send()
        self.tap.extend(Carried(self.now, sender, chunk) for chunk in chunks)
        stream.waiting = b"" if stream.cut else b"".join(chunk for chunk in chunks if chunk is not None)
        # A side that ends without a half-close still closes its stream.
        stream.ending = connection.phase is Phase.CLOSED
        return bool(chunks)

    def _deliver(self, role: Role, stream: _Stream) -> bool:
        receiver = self._connection(role)
        if receiver.phase is Phase.CLOSED:
            stream.waiting = b""
            return False
        if not receiver.wants_read:
            return False
        if stream.waiting:
            size = stream.next_size()
            data, stream.waiting = stream.waiting[:size], stream.waiting[size:]
            stream.offset += size
            receiver.receive_data(data, self.now)
            if stream.then is not None and stream.offset >= stream.stops_at:
                stream.then()
                stream.then = None
            return True
        if stream.ending and not stream.ended and not stream.cut:
            stream.ended = True
            receiver.receive_data(None, self.now)
            return True
        return False


class _Stream:
    """The stream from one side to the other."""

    __slots__ = ("chunk", "cut", "ended", "ending", "offset", "stalled", "stops_at", "then", "waiting")

    def __init__(self, chunk: Chunking) -> None:
        self.chunk = chunk
        self.waiting = b""
        self.offset = 0
        self.stalled = self.cut = self.ending = self.ended = False
        self.stops_at = 0
        self.then: Callable[[], None] | None = None

    def stop(self, size: int, then: Callable[[], None]) -> None:
        """Call ``then`` when ``size`` bytes have been delivered in total."""
        self.stops_at, self.then = size, then

    def next_size(self) -> int:
        """Return how many of the waiting bytes arrive next; 0 if a planned failure comes first."""
        size = piece(self.chunk, self.offset, len(self.waiting))
        return size if self.then is None else min(size, max(0, self.stops_at - self.offset))
