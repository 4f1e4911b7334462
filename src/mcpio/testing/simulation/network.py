# ruff: noqa: SLF001 - sessions have methods for drivers that programs have no use for
"""The network: streams of bytes, and HTTP requests and responses, with everything that can happen to them on the way.

The drivers of both are here too: they do for a session what those of an event loop do, without waiting.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

from mcpio.app.runtime import checked_grace, parted
from mcpio.engine.table import Phase
from mcpio.errors import ConnectFailed, ConnectionLost
from mcpio.http.client import ListeningEnded, ListeningResumed, MessageRefused, SessionLost
from mcpio.http.model import Body, End, RequestHead, RequestItem, Reset, ResponseHead, ResponseItem
from mcpio.testing.simulation.invariants import Invariants, Seen

if TYPE_CHECKING:
    from mcpio.app.client import Client
    from mcpio.app.http_host import HttpHost
    from mcpio.app.reconnection import SessionReconnector
    from mcpio.app.session import Session
    from mcpio.engine.connection import Connection
    from mcpio.http.client import HttpClient
    from mcpio.testing.simulation.world import Process, Timer, World


class Network:
    """How long things take on the way, and in which pieces they arrive. It counts the faults that were injected."""

    delay: float
    """The longest usual delay, in seconds."""
    splits: float
    """How often a piece is split or joined with others, from 0 to 1."""
    duplicates: float
    """How often a request that may be repeated arrives twice."""
    window: int
    """Bytes that are on the way before a writer has to wait."""
    faults: Counter[str]
    """How many faults were injected, by kind."""

    def __init__(self, world: World, invariants: Invariants) -> None:
        self.world: Final = world
        self.invariants: Final = invariants
        self.chance: Final = world.chance
        self.delay = 0.02
        self.splits = self.duplicates = 0.0
        self.window = 65536
        self.faults = Counter()
        self.exchanges = 0
        """How many HTTP exchanges there were."""
        self.cut: list[Link | _Exchange] = []
        """The half-open connections: cut, but neither end knows it."""

    def lag(self) -> float:
        """Return the delay of the next piece: mostly short, sometimes ten times as long."""
        seconds = self.chance.random() * self.delay
        return seconds * 10 if self.splits and self.chance.random() < 0.05 else seconds

    def piece(self, available: int) -> int:
        """Return how many of the bytes that are there arrive together."""
        if not self.splits or available < 2 or self.chance.random() >= self.splits:
            return available
        self.faults["split reads"] += 1
        return self.chance.randint(1, min(available, self.chance.choice((3, 40, 4000))))


# -------------------------------------------------------------------------------------------------------------- drivers


class Driving:
    """The driver of one connection: it handles the events, and keeps the deadline."""

    connection: Connection
    session: Session

    def __init__(self, network: Network, process: Process) -> None:
        self.network: Final = network
        self.runtime: Final = process
        self.world: Final = process.world
        self._seen = Seen()
        self._is_marked = False
        self._deadline: Timer | None = None
        self._waiting: list[Any] = []

    def now(self) -> float:
        """Return the time."""
        return self.world.now

    def wake(self) -> None:
        """Mark that a turn is due."""
        if not self._is_marked:
            self._is_marked = True
            self.world.soon(self.runtime, self.turn)

    def report(self, message: str, error: BaseException | None) -> None:
        """Check a report to the operator."""
        self.network.invariants.reported(self.runtime, message, error)

    def close(self, grace: float) -> None:
        """Close gracefully, at the next turn."""
        limit = checked_grace(grace)
        self.runtime.call_soon(lambda: self._close(limit))

    async def wait_closed(self) -> None:
        """Wait until the connection has ended."""
        if not self.is_over:
            over = self.runtime.one_shot()
            self._waiting.append(over)
            await over

    @property
    def is_over(self) -> bool:
        """Whether everything has ended."""
        return self.connection.closed

    def _close(self, grace: float | None) -> None:
        self.connection.close(self.world.now, grace=grace)
        self.wake()

    def turn(self) -> None:
        """Handle events and pass output on, until nothing is left."""
        raise NotImplementedError

    def _handle(self, event: Any) -> None:
        self.network.invariants.saw(self._seen, event)
        try:
            self.session._handle(event)
        except BaseException as error:
            if parted(error)[0] is not None:
                raise
            self.report("a session failed", error)
            self.connection.abort(error)

    def _arm(self, due: float | None, expire: Callable[[], object]) -> None:
        timer = self._deadline
        if timer is not None and timer.function is not None:
            if due is not None and timer.when <= due:
                return  # it looks again when it expires
            timer.cancel()
        self._deadline = None if due is None else self.world.at(due, self.runtime, expire)

    def _end(self) -> None:
        self._arm(None, self.turn)
        waiting, self._waiting = self._waiting, []
        for over in waiting:
            over.set(None)


class PipeEnd(Driving):
    """One end of a stream: the driver of a session over standard input and output, or over a socket."""

    end_timeout: float | None = None
    """Seconds that the peer's requests have after it ended its side."""
    reconnector: SessionReconnector | None = None
    """Opens the next session of a client that connects again."""

    def __init__(self, network: Network, process: Process, connection: Connection) -> None:
        super().__init__(network, process)
        self.connection = connection
        self.link: Link | None = None
        self.on_over: Callable[[], object] = lambda: None
        self.on_lost: Callable[[], object] = lambda: None

    def turn(self) -> None:
        """Handle events, write what finds room, and arm the deadline."""
        self._is_marked = False
        connection = self.connection
        while (event := connection.next_event()) is not None:
            self._handle(event)
        if self.link is not None:
            self.link.write(self)
            self.link.read(self)
        self.session._settle()
        if connection.has_events:
            self.wake()
        if connection.closed:
            self._finish()
        else:
            self._arm(connection.next_deadline(), self._expire)

    def receive(self, data: bytes | None) -> None:
        """Feed what arrived, and act on it."""
        self.connection.receive_data(data, self.world.now)
        self.turn()
        if data is None and self.end_timeout is not None and not self.connection.closed:
            self.runtime.call_later(self.end_timeout, lambda: self._close(0))

    def lose(self, error: Exception) -> None:
        """Learn that the stream is broken."""
        link, self.link = self.link, None
        if link is None:
            return
        self.connection.connection_lost(error, self.world.now)
        self.turn()
        if not self.connection.closed:
            self.on_lost()

    def _expire(self) -> None:
        self._deadline = None
        self.connection.handle_timeout(self.world.now)
        if self.connection.phase is Phase.NEW and self.link is not None:
            self.link.drop(self)
            self.lose(ConnectionLost("the server does not answer"))
        self.turn()

    def _finish(self) -> None:
        if self.link is not None:
            self.link.close(self)
            self.link = None
        self._end()
        self.on_over()


class _Stream:
    """The bytes in flight in one direction of a connection."""

    __slots__ = ("data", "has_end", "is_ended", "reader", "stalled_until", "timer")

    def __init__(self) -> None:
        self.data = bytearray()
        self.has_end = self.is_ended = False
        self.reader: PipeEnd | None = None
        self.timer: Timer | None = None
        self.stalled_until = 0.0


class Link:
    """A stream of bytes between two ends."""

    def __init__(self, network: Network, near: PipeEnd, far: PipeEnd) -> None:
        self.network: Final = network
        self.ends: Final = (near, far)
        self.is_cut = self.is_broken = False
        self._to = {near: _Stream(), far: _Stream()}
        for end in self.ends:
            self._to[end].reader = end
            end.link = self

    def other(self, end: PipeEnd) -> PipeEnd:
        """Return the other end."""
        return self.ends[0] if end is self.ends[1] else self.ends[1]

    def write(self, end: PipeEnd) -> None:
        """Take output of an end, as far as there is room."""
        stream, connection = self._to[self.other(end)], end.connection
        while connection.wants_write and len(stream.data) < self.network.window and not stream.has_end:
            for chunk in connection.data_to_send():
                if self.is_cut or self.is_broken:
                    continue
                if chunk is None:
                    stream.has_end = True
                else:
                    stream.data += chunk
                    if self.other(end).link is not self:
                        self._break(None, end)  # nothing reads it any more
        connection.set_unwritten(max(0, len(stream.data) - self.network.window))
        self._carry(stream)

    def read(self, end: PipeEnd) -> None:
        """Go on to deliver to an end that may read again."""
        self._carry(self._to[end])

    def close(self, end: PipeEnd) -> None:
        """Close an end. The bytes that it has written still arrive."""
        stream = self._to[self.other(end)]
        stream.has_end = True
        self._carry(stream)
        back = self._to[end]
        back.data.clear()
        back.is_ended = True

    def drop(self, end: PipeEnd) -> None:
        """Close an end at once: the other learns of it later."""
        self._break(end, self.other(end))

    def stall(self, seconds: float) -> None:
        """Deliver nothing for some time, in either direction."""
        for stream in self._to.values():
            stream.stalled_until = self.network.world.now + seconds
            self._carry(stream)

    def cut(self) -> None:
        """Lose everything from now on, without telling either end."""
        self.is_cut = True
        self.network.cut.append(self)
        for stream in self._to.values():
            stream.data.clear()

    def reset(self) -> None:
        """Break the stream. Bytes in flight are lost, and the two ends learn of it at different times."""
        self._break(None, *self.ends)

    def _break(self, quiet: PipeEnd | None, *ends: PipeEnd) -> None:
        if self.is_broken:
            return
        self.is_broken = True
        for stream in self._to.values():
            stream.data.clear()
            if stream.timer is not None:
                stream.timer.cancel()
        for end in ends:
            if end is not quiet:
                learn = partial(self._learn, end)
                self.network.world.after(self.network.lag() * 3, end.runtime, learn)

    def _learn(self, end: PipeEnd) -> None:
        if end.link is self:
            end.lose(ConnectionResetError("connection reset by peer"))

    def _carry(self, stream: _Stream) -> None:
        """Have the next piece arrive, if there is one and its reader wants it."""
        is_due = bool(stream.data) or (stream.has_end and not stream.is_ended)
        if not is_due or self.is_broken or self.is_cut or (stream.timer is not None):
            return
        reader = stream.reader
        assert reader is not None
        if not reader.connection.wants_read:
            return  # its next turn asks again
        network = self.network
        when = max(network.world.now + network.lag(), stream.stalled_until)
        stream.timer = network.world.at(when, reader.runtime, partial(self._deliver, stream))

    def _deliver(self, stream: _Stream) -> None:
        stream.timer = None
        reader = stream.reader
        if reader is None or reader.link is not self or self.is_cut or self.is_broken:
            return
        if stream.stalled_until > self.network.world.now or not reader.connection.wants_read:
            self._carry(stream)
            return
        if stream.data:
            size = self.network.piece(len(stream.data))
            piece = bytes(stream.data[:size])
            del stream.data[:size]
            reader.receive(piece)
        elif stream.has_end and not stream.is_ended:
            stream.is_ended = True
            if reader.reconnector is not None and reader.connection.phase is not Phase.CLOSING:
                reader.lose(ConnectionResetError("the peer closed the connection"))
            else:
                reader.receive(None)
        writer = self.other(reader)
        if writer.link is self and writer.connection.wants_write:
            writer.wake()
        self._carry(stream)


# ----------------------------------------------------------------------------------------------------------------- HTTP


class HttpService:
    """A process that serves HTTP: the adapter between the network and ``HttpHost``."""

    def __init__(self, network: Network, process: Process) -> None:
        self.network: Final = network
        self.process: Final = process
        self.exchanges: dict[int, _Exchange] = {}
        self._deadline: Timer | None = None
        self.host: HttpHost

    def note_ready(self, number: Any) -> None:
        """Pull a response as soon as its turn comes."""
        exchange = self.exchanges.get(number)
        if exchange is not None:
            self.network.world.soon(self.process, exchange.pull)

    def note_deadline(self, due: float | None) -> None:
        """Arm the deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if due is None else self.network.world.at(due, self.process, self._expire)

    def receive(self, exchange: _Exchange, items: list[RequestItem]) -> None:
        """Take a request, whole or a piece of it."""
        if exchange.is_gone or exchange.service is not self:
            return
        self.exchanges[exchange.number] = exchange
        if len(items) == 3 and self.network.chance.random() < 0.5:
            head, body, _ = items
            assert isinstance(head, RequestHead)
            assert isinstance(body, Body)
            answer = self.host.serve(head, body.data)
            if answer is not None:
                number = exchange.number
                exchange.take(
                    [ResponseHead(number, answer.status, answer.headers), Body(number, answer.body), End(number)]
                )
        else:
            self.host.receive(*items)

    def _expire(self) -> None:
        self._deadline = None
        self.host.handle_timeout()


class _Exchange:
    """One HTTP request on its way, and the response on its way back."""

    def __init__(self, number: int, client: HttpEnd, head: RequestHead, body: bytes) -> None:
        self.number = number
        self.client = client
        self.network = client.network
        self.head = head
        self.body = body
        self.service: HttpService | None = None
        self.is_gone = False
        """Whether the client's side has ended."""
        self.is_cut = False
        self.stalled_until = 0.0
        self._back: deque[tuple[float, ResponseItem]] = deque()
        self._size = 0
        self._last = 0.0
        self._timer: Timer | None = None

    # There

    def send(self) -> None:
        """Set out for a process."""
        world, network = self.network.world, self.network
        world.after(network.lag(), world.network, self._arrive)

    def _arrive(self) -> None:
        if self.is_gone or self.is_cut:
            return
        service = self.client.route(self.head)
        if service is None or service.process.is_dead:
            self._fail(ConnectFailed("cannot connect to the server: connection refused"))
            return
        self.service = service
        network, world, number = self.network, self.network.world, self.number
        head = self.head_at(number)
        if network.duplicates and head.may_repeat and network.chance.random() < network.duplicates:
            network.faults["duplicated requests"] += 1
            self.client.send_again(self)
        if self.body and network.splits and network.chance.random() < network.splits:
            at = network.chance.randrange(len(self.body) + 1)
            rest: list[RequestItem] = [Body(number, self.body[at:]), End(number)]
            self._receive(service, [head, Body(number, self.body[:at])])
            when = world.now + network.lag()
            world.at(when, service.process, partial(self._receive, service, rest))
        else:
            self._receive(service, [head, *([Body(number, self.body)] if self.body else []), End(number)])

    def head_at(self, number: int) -> RequestHead:
        """Return the head as the server's adapter names it."""
        headers = [(b"host", b"server"), *self.head.headers]
        return attrs.evolve(self.head, exchange=number, headers=headers, principal=self.client.principal)

    def _receive(self, service: HttpService, items: list[RequestItem]) -> None:
        self.network.world.soon(service.process, partial(service.receive, self, items))

    # Back

    def pull(self) -> None:
        """Take output of the response, as far as there is room on the way."""
        service = self.service
        if service is None or self.is_gone or self._size > self.network.window:
            return
        self.take(service.host.responses_to_send(self.number, max_bytes=4096))

    def take(self, items: list[ResponseItem]) -> None:
        """Have items arrive, in their order."""
        network = self.network
        if self.is_gone or self.is_cut:
            return
        for item in items:
            if isinstance(item, Body):
                self._size += len(item.data)
            self._last = max(self._last, network.world.now + network.lag())
            self._back.append((self._last, item))
        self.carry()

    def carry(self) -> None:
        """Have the next item arrive, if there is one and nothing holds it."""
        if self._timer is None and self._back and not self.is_gone:
            when = max(self._back[0][0], self.stalled_until)
            self._timer = self.network.world.at(when, self.client.runtime, self._deliver)

    def _deliver(self) -> None:
        self._timer = None
        if self.is_gone or self.is_cut or not self._back:
            return
        if self.stalled_until > self.network.world.now:
            self.carry()
            return
        if not self.client.machine.wants_read(self.head.exchange):
            self.client.paused.add(self)
            return
        item = self._next()
        if isinstance(item, ResponseHead):
            self.client.learn_session(item, self.service)
        is_end = isinstance(item, End | Reset)
        if is_end:
            self._leave()
        self.client.receive(item)
        if not is_end:
            if self._back:
                self.carry()
            elif self.service is not None:
                self.network.world.soon(self.service.process, self.pull)

    def _next(self) -> ResponseItem:
        when, item = self._back.popleft()
        name: Any = self.head.exchange
        if isinstance(item, Body):
            size = self.network.piece(len(item.data)) if item.data else 0
            self._size -= size
            if size < len(item.data):
                self._back.appendleft((when + self.network.lag(), Body(item.exchange, item.data[size:])))
            return Body(name, item.data[:size])
        return attrs.evolve(item, exchange=name)

    # The end

    def cancel(self) -> None:
        """End the client's side: the server learns of it later."""
        if not self.is_gone:
            self._leave()
            self._tell_server(ConnectionLost("the client is gone"))

    def reset(self, cause: Exception | None = None) -> None:
        """Break the exchange for both sides."""
        self._tell_server(ConnectionLost("connection reset by peer"))
        self._fail(cause or ConnectionLost("the connection broke: connection reset by peer"))

    def stall(self, seconds: float) -> None:
        """Deliver nothing for some time."""
        self.stalled_until = self.network.world.now + seconds

    def cut(self) -> None:
        """Lose everything from now on, without telling either side."""
        self.is_cut = True
        self.network.cut.append(self)
        self._back.clear()

    def abandon(self) -> None:
        """Break a copy, whose response nothing waits for."""
        self.is_gone = True
        self._tell_server(ConnectionLost("connection reset by peer"))

    def forget_server(self) -> None:
        """Learn that the process is no more."""
        self.service = None
        self._fail(ConnectionLost("the connection broke: connection reset by peer"))

    def _fail(self, cause: Exception) -> None:
        world = self.network.world
        world.after(self.network.lag() * 3, self.client.runtime, partial(self._break, cause))

    def _break(self, cause: Exception) -> None:
        if not self.is_gone:
            self._leave()
            self.client.receive(Reset(self.head.exchange, cause))

    def _tell_server(self, cause: Exception) -> None:
        service, self.service = self.service, None
        if service is not None:
            notice = partial(self._lose, service, cause)
            self.network.world.after(self.network.lag() * 3, service.process, notice)

    def _lose(self, service: HttpService, cause: Exception) -> None:
        service.exchanges.pop(self.number, None)
        service.host.receive(Reset(self.number, cause))

    def _leave(self) -> None:
        self.is_gone = True
        self.client.exchanges.pop(self.head.exchange, None)
        if self.service is not None:
            self.service.exchanges.pop(self.number, None)
        if self._timer is not None:
            self._timer.cancel()


class HttpEnd(Driving):
    """The driver of a client over HTTP."""

    machine: HttpClient
    session: Client
    reconnector: SessionReconnector

    def __init__(
        self,
        network: Network,
        process: Process,
        principal: Any,
        route: Callable[[RequestHead], HttpService | None],
        learn: Callable[[str, HttpService | None], None],
    ) -> None:
        super().__init__(network, process)
        self.principal = principal
        self.route = route
        self.exchanges: dict[Any, _Exchange] = {}
        self.paused: set[_Exchange] = set()
        self.on_over: Callable[[], object] = lambda: None
        self._learn = learn
        self._unsent: dict[Any, tuple[RequestHead, bytes]] = {}

    def attach(self, machine: HttpClient) -> None:
        """Set the machine."""
        self.machine = machine
        self.connection = machine.connection

    @property
    def is_over(self) -> bool:
        """Whether the connection has ended, and the server was told."""
        return self.machine.closed

    @property
    def has_session(self) -> bool:
        """Whether the server keeps a session."""
        return self.machine.has_session

    def learn_session(self, head: ResponseHead, service: HttpService | None) -> None:
        """Learn which process keeps a session."""
        for name, value in head.headers:
            if name == b"mcp-session-id":
                self._learn(value.decode(), service)

    def receive(self, item: ResponseItem) -> None:
        """Take an item of a response, and act on it."""
        self.machine.receive(item, self.world.now)
        self.turn()

    def turn(self) -> None:
        """Handle events and send requests, until nothing is left."""
        self._is_marked = False
        self._handle_events()
        while True:
            for item in self.machine.requests_to_send(self.world.now):
                self._send(item)
            if not self._handle_events():
                break
        paused, self.paused = self.paused, set()
        for exchange in paused:
            exchange.carry()
        self.session._settle()
        if self.machine.closed:
            self._end()
            self.on_over()
        else:
            self._arm(self.machine.next_deadline(), self._expire)

    def send_again(self, exchange: _Exchange) -> None:
        """Send a copy of a request, whose response nothing waits for, as a proxy does that gave the first one up."""
        copy = _Exchange(self._number(), self, exchange.head, exchange.body)
        copy.is_cut = True
        service = self.route(exchange.head)
        if service is not None and not service.process.is_dead:
            copy.service = service
            items: list[RequestItem] = [
                copy.head_at(copy.number),
                *([Body(copy.number, copy.body)] if copy.body else []),
                End(copy.number),
            ]
            self.world.soon(service.process, partial(service.receive, copy, items))
            self.world.after(self.network.lag() + 0.1, self.world.network, copy.abandon)

    def _number(self) -> int:
        self.network.exchanges += 1
        return self.network.exchanges

    def _handle_events(self) -> bool:
        has_acted = False
        while (event := self.machine.next_event()) is not None:
            has_acted = True
            if isinstance(event, SessionLost):
                self.network.invariants.lost(self.connection)
                self.reconnector.begin(event.again_in)
            elif isinstance(event, MessageRefused):
                self.report("the server did not take a message", event.error)
            elif isinstance(event, ListeningEnded):
                self.report("messages outside of requests are no longer received", event.error)
                self.session._note_stream(event.error if event.is_lost else None)
            elif isinstance(event, ListeningResumed):
                self.session._note_stream(None)
            else:
                self._handle(event)
        return has_acted

    def _send(self, item: RequestItem) -> None:
        if isinstance(item, RequestHead):
            self._unsent[item.exchange] = item, b""
        elif isinstance(item, Body):
            head, _ = self._unsent[item.exchange]
            self._unsent[item.exchange] = head, item.data
        elif isinstance(item, End):
            head, body = self._unsent.pop(item.exchange)
            exchange = self.exchanges[item.exchange] = _Exchange(self._number(), self, head, body)
            exchange.send()
        elif item.exchange in self.exchanges:
            self.exchanges[item.exchange].cancel()

    def _expire(self) -> None:
        self._deadline = None
        self.machine.handle_timeout(self.world.now)
        self.turn()
