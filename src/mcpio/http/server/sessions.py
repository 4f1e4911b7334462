"""Sessions over HTTP, their streams, and the exchanges that carry them: what is remembered, without the rules."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from mcpio.engine.ledger import Held
from mcpio.engine.outbox import BACKLOG
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase
from mcpio.events import IncomingId
from mcpio.http.checks import ParsedRequest, Rejection, rejection_body
from mcpio.http.model import Body, End, Headers, Reset, ResponseHead, ResponseItem
from mcpio.http.options import Answers
from mcpio.http.server.replay import EventQueue, ReplayBuffer

if TYPE_CHECKING:
    from mcpio.http.durable.journal import Journal

__all__ = [
    "EXCHANGE_COST",
    "JSON",
    "LISTENING",
    "SESSION_COST",
    "STREAM_COST",
    "Exchange",
    "HttpSession",
    "SessionClosed",
    "SessionOpened",
    "Stream",
]

LISTENING: Final = 0
"""The stream of what belongs to no request of the client's, for which it listens with GET."""

JSON: Final = (b"content-type", b"application/json")

SESSION_COST: Final = 4096
"""Bytes that an idle session takes beside what its client declared: its engine, and what the application remembers."""

EXCHANGE_COST: Final = 2048
"""Bytes that an exchange takes beside its header fields and bodies, with what its adapter remembers."""

STREAM_COST: Final = 1024
"""Bytes that a stream takes beside its events."""

_ENDING: Final = (Phase.CLOSING, Phase.CLOSED)

NO_CONTENT: Final = 204
"""The status that has no length either."""


@attrs.frozen
class SessionOpened:
    """A client began a session, or came back to a stored one. It comes before the events of its connection."""

    saved: Mapping[str, Any] | None = None
    """What the store had of it; ``None`` for a new one."""


@attrs.frozen
class SessionClosed:
    """A session is over, and forgotten. It comes after the last event of its connection."""


class HttpSession:
    """One client, or one request of a client without a session."""

    __slots__ = (
        "connection",
        "declared",
        "exchange_bytes",
        "exchanges",
        "held",
        "id",
        "is_legacy",
        "journal",
        "key",
        "next_stream",
        "principal",
        "replay",
        "settled",
        "streams",
        "undelivered",
        "unwritten",
        "used_at",
    )

    connection: ServerConnection
    """The engine. After acting on it, call ``HttpServer.flush``."""
    id: str | None
    """What the client calls it; ``None`` before it was told, and for a request that stands alone."""
    is_legacy: bool
    """Whether it is one of 2024-11-05: all that the server says goes out by listening."""
    key: int
    """What the server calls it: never used twice."""
    principal: Hashable
    """Whose it is: nobody else may use it (SESS-09)."""
    streams: dict[int, Stream]
    """Those that are not over, by number."""
    next_stream: int
    """The number of the next stream. None is used twice, so that event ids are unique (RESUME-01)."""
    exchanges: dict[Exchange, None]
    """Those that are open, the oldest first."""
    exchange_bytes: int
    """Bytes that those take beside their bodies."""
    declared: int
    """Bytes that its client's first message took in memory: what it declares is kept."""
    held: Held
    """What is held for the client beside those: see ``weight``."""
    unwritten: int
    """Bytes that its engine gave out and the adapters did not take. The engine hears of it by ``tell_unwritten``."""
    settled: int
    """What the ledger was told last of its weight."""
    replay: ReplayBuffer | None
    """What was sent on streams that are over, for clients that come back; ``None`` while there is nothing."""
    journal: Journal | None
    """What is to be stored of it; ``None`` for one that ends with the process."""
    undelivered: int
    """How many messages had no way to the client, and were dropped (P11)."""
    used_at: float
    """When its last exchange was over."""

    def __init__(self, key: int, connection: ServerConnection, principal: Hashable, now: float) -> None:
        self.key = key
        self.connection = connection
        self.id = None
        self.is_legacy = False
        self.principal = principal
        self.streams = {}
        self.next_stream = LISTENING + 1
        self.exchanges = {}
        self.held = connection.held
        self.settled = self.unwritten = self.exchange_bytes = self.declared = 0
        self.undelivered = 0
        self.used_at = now
        self.replay = None
        self.journal = None

    def stream_of(self, via: Hashable) -> Stream | None:
        """Return the stream of an exchange, as the engine calls it."""
        number = LISTENING if via is None else via
        return self.streams.get(number) if isinstance(number, int) else None

    @property
    def may_end(self) -> bool:
        """Whether it ends as soon as nothing of it is left to send."""
        return self.id is None or self.connection.phase in _ENDING

    @property
    def is_idle(self) -> bool:
        """Whether nothing of it is under way."""
        return not self.exchanges and not self.connection.pending.incoming

    def tell_unwritten(self) -> None:
        """Have the engine count what the adapters did not take: its client's requests wait while that is much."""
        if self.unwritten != self.held.unwritten:
            self.connection.set_unwritten(self.unwritten)

    @property
    def weight(self) -> int:
        """Bytes that it takes in all."""
        fixed = SESSION_COST + self.declared + self.exchange_bytes + len(self.streams) * STREAM_COST
        return fixed + self.connection.held.total

    @property
    def is_stuck(self) -> bool:
        """Whether it cannot be stored at the moment."""
        return self.journal is not None and self.journal.is_failing


class Stream:
    """What goes out by one POST, or by listening: messages in order, which may outlive the exchange they began by."""

    __slots__ = ("events", "exchange", "is_deferred", "is_resumable", "next_number", "number", "requests", "sent_at")

    number: int
    """Its name in the session, and the ``via`` of the messages that belong to it."""
    exchange: Exchange | None
    """What carries it at the moment."""
    is_deferred: bool
    """Whether a request that came by it may wait in the engine for room."""
    is_resumable: bool
    """Whether its events have ids: a client that lost the exchange may go on where it was."""
    next_number: int
    """The number of its next event, from 1."""
    requests: set[IncomingId]
    """The requests that came by it. Those that are over go out of it as soon as somebody looks."""
    sent_at: float
    """When it had something to send last, since an exchange carries it."""
    events: EventQueue
    """Its events that wait for the exchange, and while it is not over those that were sent."""

    def __init__(self, number: int, exchange: Exchange | None, session: HttpSession) -> None:
        self.number = number
        self.exchange = exchange
        self.is_deferred = self.is_resumable = False
        self.next_number = 1
        self.requests = set()
        self.sent_at = float("-inf")
        self.events = EventQueue(session)

    @property
    def via(self) -> int | None:
        """Its name, as the engine calls it."""
        return None if self.number == LISTENING else self.number


class Exchange:
    """One request, and the response to it so far."""

    __slots__ = (
        "_headers",
        "_offset",
        "_ready",
        "answers",
        "body",
        "gate",
        "id",
        "is_answered",
        "is_complete",
        "is_stream",
        "is_waiting",
        "items",
        "principal",
        "request",
        "session",
        "settled",
        "size",
        "stream",
        "was_looked_up",
    )

    id: Hashable
    """What the adapter calls it."""
    request: ParsedRequest
    """What the head of the request says."""
    principal: Hashable
    """Who asks."""
    answers: Answers
    """How the response may look."""
    body: bytearray
    """What came of the body so far."""
    session: HttpSession | None
    """The session that it belongs to, as soon as that is known."""
    stream: Stream | None
    """The stream that it carries."""
    items: list[ResponseItem]
    """What waits for the adapter."""
    size: int
    """Bytes of bodies among them, until the last of each is taken."""
    settled: int
    """What the ledger was told last of it; 0 while it is counted with its session."""
    is_complete: bool
    """Whether all of the request came."""
    is_stream: bool
    """Whether the response is a stream of events that has begun."""
    is_answered: bool
    """Whether the end of the response is said, or waits to be."""
    gate: int
    """The mark that the journal of its session must have reached before the response goes out."""
    is_waiting: bool
    """Whether the store is still to say if there is the session that it names."""
    was_looked_up: bool
    """Whether the store was asked."""

    def __init__(
        self,
        id: Hashable,
        request: ParsedRequest,
        principal: Hashable,
        *,
        headers: Headers,
        answers: Answers,
        ready: dict[Hashable, None],
    ) -> None:
        """``headers`` are in the response, whatever it is. ``ready`` takes its name when there is something to send."""
        self._headers = headers
        self._ready = ready
        self.id = id
        self.request = request
        self.principal = principal
        self.answers = answers
        self.body = bytearray()
        self.session = None
        self.stream = None
        self.items = []
        self.size = self.settled = self._offset = 0
        self.is_complete = self.is_stream = self.is_answered = False
        self.gate = 0
        self.is_waiting = self.was_looked_up = False

    def respond(self, status: int, headers: Headers, body: bytes = b"") -> None:
        """Answer in one piece, as soon as what the answer rests on is stored."""
        journal = None if self.session is None else self.session.journal
        if journal is not None:
            self.gate = journal.mark()
            journal.gated[self] = None
        self._respond(status, headers, body)

    def take_body(self) -> bytes:
        """Return what came of the body, and keep it no longer."""
        body = bytes(self.body)
        self.drop_body()
        return body

    def add_to_body(self, data: bytes) -> None:
        """Collect a piece of the body."""
        # In one piece: a list of many small ones would hold far more than their bytes.
        self.body += data
        if self.session is not None:
            self.session.held.bodies += len(data)

    def drop_body(self) -> None:
        """Forget what came of the body."""
        if self.session is not None:
            self.session.held.bodies -= len(self.body)
        self.body = bytearray()

    def reject(self, rejection: Rejection, id: int | str | None = None) -> None:
        """Answer what is not served; ``id`` is that of the request, where it was read."""
        self._respond(rejection.status, (JSON, *rejection.headers), rejection_body(rejection, id))

    def take_back(self) -> None:
        """Forget a response that has not gone out."""
        self.drop_items()
        self.gate = 0
        self.is_answered = False

    def drop_items(self) -> None:
        """Forget what waits for the adapter."""
        self._count(-self.size)
        self.items = []
        self._offset = 0

    def cut(self, rejection: Rejection) -> None:
        """Break off a response, or answer with ``rejection`` where none of it has gone out."""
        has_head = bool(self.items) and isinstance(self.items[0], ResponseHead)
        has_begun = (self.is_stream or self.is_answered) and not has_head
        self.drop_items()
        if has_begun:
            self.is_answered = True
            self.items.append(Reset(self.id))
            self.wake()
        else:
            self.is_stream = False
            self.reject(rejection)

    def take(self, max_bytes: int) -> list[ResponseItem]:
        """Take out what waits for the adapter, about ``max_bytes`` of it."""
        if self.size <= max_bytes:
            # As mostly.
            items, self.items = self.items, []
            if self._offset:
                items[0] = Body(self.id, items[0].data[self._offset :])  # type: ignore[union-attr]  # it is a body
                self._offset = 0
            if self.size:
                self._count(-self.size)
            return items
        items = []
        while self.items:
            item = self.items[0]
            if isinstance(item, Body):
                if max_bytes <= 0:
                    break
                begin, size = self._offset, len(item.data)
                self._offset = min(begin + max_bytes, size)
                items.append(Body(self.id, item.data[begin : self._offset]))
                max_bytes -= self._offset - begin
                if self._offset < size:
                    break
                self._offset = 0
                self._count(-size)
            else:
                items.append(item)
            del self.items[0]
        if self.items:
            self.wake()
        return items

    @property
    def cost(self) -> int:
        """Bytes that it takes beside its bodies."""
        return EXCHANGE_COST + self.request.size

    @property
    def is_over(self) -> bool:
        """Whether the end of the response was taken."""
        return self.is_answered and not self.items

    def _count(self, size: int) -> None:
        self.size += size
        if self.session is not None:
            self.session.unwritten += size

    @property
    def is_held(self) -> bool:
        """Whether the store does not have yet what the response rests on."""
        journal = None if self.session is None else self.session.journal
        return journal is not None and self.gate > journal.stored

    def _respond(self, status: int, headers: Headers, body: bytes) -> None:
        length = () if status == NO_CONTENT else ((b"content-length", b"%d" % len(body)),)
        self.items.append(ResponseHead(self.id, status, (*headers, *length, *self._headers)))
        if body:
            self.send(body)
        self.finish()

    def begin_stream(self, headers: Headers) -> None:
        """Answer with events, as they come."""
        self.is_stream = True
        self.items.append(ResponseHead(self.id, 200, (*headers, *self._headers)))
        self.wake()

    def send(self, data: bytes) -> None:
        """Send some bytes of a stream. Whoever does that while nobody pulls calls ``wake``, or ``finish``."""
        if self.session is not None and self.session.unwritten > BACKLOG:
            # orjson gives texts in buffers that may be many times as large, which is nothing until many of them wait.
            data = bytes(memoryview(data))
        self.items.append(Body(self.id, data))
        self._count(len(data))

    def finish(self) -> None:
        """End the response."""
        self.is_answered = True
        self.items.append(End(self.id))
        self.wake()

    def wake(self) -> None:
        """Take note that there is something to send: here, or in its stream."""
        self._ready[self.id] = None
