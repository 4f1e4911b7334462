"""The state of sessions over HTTP, of their streams, and of the exchanges that carry those; the rules are elsewhere."""

from __future__ import annotations

import enum
from collections.abc import Hashable, Mapping
from typing import Any, Final, Protocol

import attrs

from mcpio.engine.ledger import Held
from mcpio.engine.outbox import BACKLOG
from mcpio.engine.server import ServerConnection
from mcpio.events import IncomingId
from mcpio.http.checks import REQUESTED_HEADERS, ParsedRequest, Rejection, rejection_body
from mcpio.http.model import Answer, Body, End, Headers, Reset, ResponseHead, ResponseItem
from mcpio.http.options import Answers
from mcpio.http.server.replay import EventQueue, ReplayBuffer
from mcpio.http.stateless import HANDSHAKE_NAMES

__all__ = [
    "EXCHANGE_COST",
    "JSON",
    "LISTENING",
    "SESSION_COST",
    "STREAM_COST",
    "Exchange",
    "HttpSession",
    "Lookup",
    "Response",
    "SessionClosed",
    "SessionJournal",
    "SessionOpened",
    "Stream",
]

LISTENING: Final = 0
"""The number of the stream that belongs to no request: the client listens for it with GET."""

JSON: Final = (b"content-type", b"application/json")

SESSION_COST: Final = 4096
"""Bytes that an idle session takes in addition to its client's declarations: engine and application."""

EXCHANGE_COST: Final = 2048
"""Bytes that an exchange takes in addition to its header fields and bodies, its adapter included."""

STREAM_COST: Final = 1024
"""Bytes that a stream takes in addition to its events."""

NO_CONTENT: Final = 204
"""The status of a response that has no ``content-length`` either."""


@attrs.frozen
class SessionOpened:
    """A client began a session, or came back to a stored one. It comes before the events of its connection."""

    saved: Mapping[str, Any] | None = None
    """The stored state of the session; ``None`` for a new one."""


@attrs.frozen
class SessionClosed:
    """A session has ended and is forgotten. Follows the last event of its connection."""


class SessionJournal(Protocol):
    """The part of a durable session's journal that decides what may go out. See ``mcpio.http.durable``."""

    stored: int
    is_failing: bool
    gated: dict[Exchange, None]

    def mark(self) -> int:
        """Return the mark for something that rests on the session as it is now."""


class HttpSession:
    """One client; or one request of a client, on a server without sessions."""

    __slots__ = (
        "connection",
        "declared",
        "engine_due",
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
    """The engine. After acting on it, call ``HttpServer.touch``."""
    id: str | None
    """The id that its client uses; ``None`` until it was assigned, and for a request without a session."""
    is_legacy: bool
    """Whether it speaks the transport of 2024-11-05, where all output goes to one listening stream."""
    key: int
    """The name that the server uses: never used twice."""
    principal: Hashable
    """The principal that opened it: no other may use it (SESS-09)."""
    streams: dict[int, Stream]
    """The streams that are not over, by number."""
    next_stream: int
    """The number of the next stream. None is used twice, so that event ids are unique (RESUME-01)."""
    exchanges: dict[Exchange, None]
    """The exchanges that are open, the oldest first."""
    exchange_bytes: int
    """Bytes that the exchanges occupy in addition to their bodies."""
    declared: int
    """Bytes of memory of the client's first message, whose declarations the engine keeps."""
    held: Held
    """Other bytes held for the client: see ``weight``."""
    unwritten: int
    """Bytes that left the engine and that no adapter has taken. ``HttpServer`` reports them by ``set_unwritten``, and
    requests wait while they are many."""
    settled: int
    """The weight that the ledger knows of."""
    engine_due: float | None
    """The deadline of its engine that the timers know of."""
    replay: ReplayBuffer | None
    """Sent events of streams that have ended, for clients that resume; ``None`` without such events."""
    journal: SessionJournal | None
    """The stored state of the session; ``None`` for a session that ends with the process."""
    undelivered: int
    """How many messages had no way to the client, and were dropped (P11)."""
    used_at: float
    """When its last exchange ended: while none is open, it is idle since then, even if a request is running."""

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
        self.engine_due = None
        self.undelivered = 0
        self.used_at = now
        self.replay = None
        self.journal = None

    def stream_of(self, via: Hashable) -> Stream | None:
        """Return the stream that the engine calls ``via``."""
        number = LISTENING if via is None else via
        return self.streams.get(number) if isinstance(number, int) else None

    @property
    def is_idle(self) -> bool:
        """Whether it has no open exchange: if a request is running, its client has left."""
        return not self.exchanges

    @property
    def is_at_rest(self) -> bool:
        """Whether it has no open exchange and no running request."""
        return not self.exchanges and not self.connection.is_serving

    @property
    def weight(self) -> int:
        """Bytes that it takes in total."""
        fixed = SESSION_COST + self.declared + self.exchange_bytes + len(self.streams) * STREAM_COST
        return fixed + self.connection.held.total

    @property
    def is_stuck(self) -> bool:
        """Whether the store failed to accept it: no new request may start in it."""
        return self.journal is not None and self.journal.is_failing


_NONE_REFUSED: Final[Mapping[IncomingId, frozenset[str]]] = {}


class Stream:
    """The messages that go out by one POST, or by listening, in order. It may outlive the exchange that began it."""

    __slots__ = (
        "events",
        "exchange",
        "has_timer",
        "is_deferred",
        "is_resumable",
        "next_number",
        "number",
        "refused",
        "requests",
        "sent_at",
        "via",
    )

    number: int
    """Its name in the session."""
    via: int | None
    """Its name for the engine: ``None`` where the client listens."""
    exchange: Exchange | None
    """The exchange that carries it at the moment."""
    has_timer: bool
    """Whether a deadline of it is set."""
    is_deferred: bool
    """Whether a request that came by it may wait in the engine for room."""
    is_resumable: bool
    """Whether its events have ids, so that a client that lost the exchange may resume it."""
    next_number: int
    """The number of its next event, from 1."""
    requests: set[IncomingId]
    """The requests that came by it."""
    refused: Mapping[IncomingId, frozenset[str]]
    """Its requests whose tokens lack scopes, with the scopes that they need."""
    sent_at: float
    """When it had something to send last, since an exchange carries it."""
    events: EventQueue
    """Its events that wait for the exchange; while it is not over, also those that were sent."""

    def __init__(self, number: int, exchange: Exchange | None, session: HttpSession) -> None:
        self.number = number
        self.via = number or None
        self.exchange = exchange
        self.has_timer = self.is_deferred = self.is_resumable = False
        self.next_number = 1
        self.requests = set()
        self.refused = _NONE_REFUSED
        self.sent_at = float("-inf")
        self.events = EventQueue(session)


class Response(enum.Enum):
    """How far a response has come."""

    UNDECIDED = "undecided"
    """Nothing was queued yet: the response may still become JSON or a stream."""
    STREAMING = "streaming"
    """It is a stream of events that has begun."""
    ENDED = "ended"
    """Its end was queued."""


class Lookup(enum.Enum):
    """Whether the store was asked for the session that a request names. Only servers with durable sessions ask."""

    NONE = "none"
    WAITING = "waiting"
    DONE = "done"


# Short names where every request passes: a member of an enumeration costs two look-ups.
_UNDECIDED, _STREAMING, _ENDED = Response


class Exchange:
    """One request, and the response to it so far."""

    __slots__ = (
        "_headers",
        "_offset",
        "_ready",
        "answer",
        "answers",
        "body",
        "call",
        "cost",
        "fields",
        "gate",
        "id",
        "is_complete",
        "is_direct",
        "items",
        "last_event_id",
        "lookup",
        "principal",
        "request",
        "response",
        "session",
        "session_id",
        "settled",
        "size",
        "stream",
    )

    id: Hashable
    """The name that the adapter gave it."""
    request: ParsedRequest
    """The head of the request. Requests with equal heads may share it."""
    session_id: str | None
    """The session that the request names."""
    last_event_id: str | None
    """The last event that the client saw, where it resumes a stream."""
    principal: Hashable
    """The authenticated caller."""
    answer: Answer | None
    """The whole response, where it was there within the call that brought the request."""
    answers: Answers
    """Which forms of response the client takes."""
    call: Any
    """The stateless call that it brought, while that runs: a ``Call``."""
    cost: int
    """Bytes that it takes in addition to its bodies."""
    fields: Headers
    """The header fields of the request; while its body is to come, only those that are read together with it."""
    body: bytes | bytearray
    """The part of the body that has come."""
    session: HttpSession | None
    """The session that it belongs to, as soon as that is known."""
    stream: Stream | None
    """The stream that it carries."""
    items: list[ResponseItem]
    """Items that wait for the adapter."""
    size: int
    """Bytes of the bodies among them, until the last of each is taken."""
    settled: int
    """Bytes of it that the ledger knows of; 0 while it is counted with its session."""
    is_complete: bool
    """Whether all of the request has come."""
    is_direct: bool
    """Whether the caller that brought the request takes a whole response at once, as ``answer``."""
    response: Response
    """How far the response has come."""
    lookup: Lookup
    """Whether the store was asked for its session."""
    gate: int
    """The mark that the journal of its session must reach before the response goes out; 0 for none."""

    def __init__(
        self,
        id: Hashable,
        request: ParsedRequest,
        principal: Hashable,
        *,
        fields: Headers,
        headers: Headers,
        answers: Answers,
        ready: dict[Hashable, None],
        session_id: str | None = None,
        last_event_id: str | None = None,
        size: int = 0,
        is_direct: bool = False,
    ) -> None:
        """Start an exchange whose head has ``size`` bytes.

        ``fields`` are its header fields, ``headers`` those of any response to it; ``ready`` takes its name when there
        is something to send.
        """
        self._headers = headers
        self._ready = ready
        self.id = id
        self.request = request
        self.session_id = session_id
        self.last_event_id = last_event_id
        self.principal = principal
        self.answers = answers
        self.cost = EXCHANGE_COST + size
        self.fields = fields
        self.body = b""
        self.session = None
        self.stream = None
        self.call = None
        self.items = []
        self.size = self.settled = self._offset = self.gate = 0
        self.is_complete = False
        self.is_direct = is_direct
        self.answer = None
        self.response = _UNDECIDED
        self.lookup = Lookup.NONE

    # The request

    def keep_fields(self) -> None:
        """Keep only the header fields that matter when the body is there, as the rest of the request is to come."""
        if self.request.method == "OPTIONS":
            self.fields = tuple([field for field in self.fields if field[0] == REQUESTED_HEADERS])
        elif self.version_is_open:
            self.fields = tuple([field for field in self.fields if field[0].startswith(b"mcp-")])
        else:
            self.fields = ()
        self.cost += sum(len(value) for _, value in self.fields)

    @property
    def version_is_open(self) -> bool:
        """Whether it is a POST whose header fields do not tell that it is of a revision with sessions."""
        return self.request.method == "POST" and self.request.version not in HANDSHAKE_NAMES

    def take_body(self) -> bytes:
        """Return the body, and forget it."""
        body = bytes(self.body)
        self.drop_body()
        return body

    def add_to_body(self, data: bytes) -> None:
        """Collect a piece of the body."""
        # Into one buffer: a list of many small pieces would hold far more than their bytes.
        if not self.body:
            self.body = bytearray()
        self.body += data
        if self.session is not None:
            self.session.held.bodies += len(data)

    def drop_body(self) -> None:
        """Forget the part of the body that has come."""
        if self.body:
            if self.session is not None:
                self.session.held.bodies -= len(self.body)
            self.body = b""

    # The response

    def respond(self, status: int, headers: Headers, body: bytes = b"") -> None:
        """Answer in one piece. In a stored session, the answer is sent once its changes are stored."""
        session = self.session
        if session is not None and session.journal is not None:
            self.gate = session.journal.mark()
            session.journal.gated[self] = None
        self._complete(status, headers, body)

    def reject(self, rejection: Rejection, id: int | str | None = None) -> None:
        """Answer with an error, which waits for no store; ``id`` is the request's, if it could be read."""
        self._complete(rejection.status, (JSON, *rejection.headers), rejection_body(rejection, id))

    def _complete(self, status: int, headers: Headers, body: bytes) -> None:
        length = () if status == NO_CONTENT else ((b"content-length", b"%d" % len(body)),)
        fields = (*headers, *length, *self._headers)
        self.response = _ENDED
        if self.is_direct and not self.gate and len(body) <= BACKLOG:
            self.answer = Answer(status, fields, body)
            return
        self.items.append(ResponseHead(self.id, status, fields))
        if body:
            self.send(body)
        self.finish()

    def take_back(self) -> None:
        """Drop a response that was not sent."""
        self.drop_items()
        self.gate = 0
        self.response = _UNDECIDED

    def drop_items(self) -> None:
        """Forget the items that wait for the adapter."""
        if self.items:
            # The part of the first body that was taken counts until its last byte is: see ``take``.
            self._count(-self.size)
            self.items = []
            self._offset = 0

    def cut(self, rejection: Rejection) -> None:
        """Break off a response, or answer with ``rejection`` if nothing of it was sent."""
        # A head that still waits here was not sent: another response can take its place.
        has_head = bool(self.items) and isinstance(self.items[0], ResponseHead)
        has_begun = self.response is not _UNDECIDED and not has_head
        self.drop_items()
        if has_begun:
            self.response = _ENDED
            self.items.append(Reset(self.id))
            self.wake()
        else:
            self.response = _UNDECIDED
            self.reject(rejection)

    def begin_stream(self, headers: Headers) -> None:
        """Answer with events, as they come."""
        self.response = _STREAMING
        self.items.append(ResponseHead(self.id, 200, (*headers, *self._headers)))
        self.wake()

    def send(self, data: bytes) -> None:
        """Queue some bytes of a stream. A caller that is not being pulled calls ``wake`` or ``finish`` afterwards."""
        session = self.session
        if session is not None:
            if session.unwritten > BACKLOG:
                # orjson gives texts in buffers that may be many times as large: copy, once many of them wait.
                data = bytes(memoryview(data))
            session.unwritten += len(data)
        self.size += len(data)
        self.items.append(Body(self.id, data))

    def finish(self) -> None:
        """End the response."""
        self.response = _ENDED
        self.items.append(End(self.id))
        self.wake()

    def wake(self) -> None:
        """Mark that output is ready: here, or in its stream."""
        self._ready[self.id] = None

    # The adapter

    def take(self, max_bytes: int) -> list[ResponseItem]:
        """Remove and return waiting items, about ``max_bytes`` of them."""
        if self.size <= max_bytes:
            # The usual case.
            items, self.items = self.items, []
            if self._offset:
                items[0] = Body(self.id, items[0].data[self._offset :])  # type: ignore[union-attr]  # it is a body
                self._offset = 0
            if self.size:
                if self.session is not None:
                    self.session.unwritten -= self.size
                self.size = 0
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
    def is_held(self) -> bool:
        """Whether changes that the response depends on are not stored yet."""
        journal = None if self.session is None else self.session.journal
        return journal is not None and self.gate > journal.stored

    def _count(self, size: int) -> None:
        self.size += size
        if self.session is not None:
            self.session.unwritten += size
