"""Sessions of an HTTP server, and the events that it keeps for clients that come back."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

import attrs

from mcpio.auth.grant import Grant
from mcpio.engine.channel import BACKLOG
from mcpio.engine.limits import Held
from mcpio.engine.server import ServerConnection
from mcpio.errors import InvalidMessage, LocalProtocolError
from mcpio.events import IncomingId
from mcpio.framing import json
from mcpio.http.checks import REQUESTED_HEADERS, ParsedRequest, Rejection, rejection_body
from mcpio.http.model import HANDSHAKE_NAMES, Answer, Answers, Body, End, Headers, Reset, ResponseHead, ResponseItem

# ------------------------------------------------------------------------------------------------------ session records
# Effects for the store of durable sessions, its answers, and the encoding of a session's record.

FORMAT: Final = 1
"""The version of the encoding."""

LARGEST: Final = 2**62
"""The largest number of a stream or an event, so that databases can hold it and its successors."""

Owner: TypeAlias = str | int | None | Grant
"""A principal that can be stored; ``None`` without authentication. Of a grant the identity is stored."""


@attrs.frozen
class StoredEvent:
    """One event of a stream."""

    stream: int
    """The number of its stream in the session."""
    number: int
    """Its place among the events of that stream, from 1."""
    data: bytes
    """Its bytes, as they are sent."""


@attrs.frozen
class StoredSession:
    """A session as the store has it: the answer to ``SessionLoad``."""

    record: bytes
    """The record of the last ``SessionSave``."""
    at: float
    """The time of the last ``SessionSave``."""
    events: Sequence[StoredEvent]
    """The events that were appended and not dropped, those of each stream in order."""


# Effects


@attrs.frozen
class SessionSave:
    """Store a session under its key, atomically. Answer with ``store_done(token, None, now)``."""

    token: int
    """The token for the answer."""
    key: str
    """The id of the session, which is a bearer credential."""
    record: bytes
    """The new record, which replaces the old one."""
    at: float
    """When it was used last, in Unix seconds."""
    events: tuple[StoredEvent, ...]
    """Events to append. An event that the store has already is equal."""
    forgotten: tuple[tuple[int, int], ...]
    """Events to drop, by stream and number. Ignore those that the store does not have."""


@attrs.frozen
class SessionLoad:
    """Load a session. Answer with a ``StoredSession``, or ``None`` if the key is unknown."""

    token: int
    """The token for the answer."""
    key: str
    """The id that a client named: 32 hexadecimal digits."""


@attrs.frozen
class SessionDelete:
    """Delete a session and its events; ignore an unknown key. Answer with ``None``."""

    token: int
    """The token for the answer."""
    key: str
    """The id of the session."""


@attrs.frozen
class SessionSweep:
    """Delete abandoned sessions. Answer with ``None``."""

    token: int
    """The token for the answer."""
    before: float | None
    """Delete sessions last used before this time, in Unix seconds; ``None`` for no such bound."""
    most: int
    """Keep at most this many, the most recently used."""


SessionChange: TypeAlias = SessionSave | SessionDelete | SessionSweep
"""Effects that change the store."""

SessionEffect: TypeAlias = SessionChange | SessionLoad
"""All effects. The store carries them out in the order in which the machine gives them."""


# Records


@attrs.frozen
class StreamRecord:
    """A stream that is not over."""

    number: int
    next_number: int
    """The number of its next event."""
    sent: int
    """The last of its events that is known to have been sent."""


@attrs.frozen
class SessionRecord:
    """A session without its events."""

    owner: Owner
    next_stream: int
    streams: tuple[StreamRecord, ...]
    saved: Mapping[str, Any]
    """The snapshot of its connection and of the application's session, as JSON."""


def dump_session(record: SessionRecord) -> bytes:
    """Encode a record. Raises LocalProtocolError if JSON cannot express it."""
    members = {
        "format": FORMAT,
        "owner": _identity(record.owner) if isinstance(record.owner, Grant) else record.owner,
        "next_stream": record.next_stream,
        "streams": [[each.number, each.next_number, each.sent] for each in record.streams],
        "saved": record.saved,
    }
    try:
        return json.dumps(members)
    except (TypeError, ValueError) as fault:
        raise LocalProtocolError(f"not expressible in JSON: {fault}") from fault


def load_session(key: str, stored: Any) -> SessionRecord:
    """Decode a record, and check the rest of the store's answer. Raises InvalidMessage if any of it is invalid.

    Stores are not trusted with types: not even SQLite enforces those of its columns.
    """
    try:
        _of_type(stored, StoredSession)
        _of_type(stored.at, int, float)
        for event in stored.events:
            _whole(event.stream)
            _whole(event.number)
            _of_type(event.data, bytes)
        members = _members(json.loads(_of_type(stored.record, bytes)))
        streams = tuple(StreamRecord(*map(_whole, each)) for each in members["streams"])
        return SessionRecord(_owner(members["owner"]), _whole(members["next_stream"]), streams, members["saved"])
    except (TypeError, ValueError, KeyError) as fault:
        # The key is a bearer credential, so the message quotes only its beginning.
        raise InvalidMessage(f"{key[:4]}…", f"not the record of a session: {fault!r:.100}") from fault


def _members(value: Any) -> Any:
    if value["format"] != FORMAT:
        raise ValueError("another format")
    if not isinstance(value["saved"], Mapping):
        raise TypeError("not the members of a session")
    return value


def _owner(value: Any) -> Owner:
    if isinstance(value, dict):
        return Grant(*(_of_type(value[name], str, type(None)) for name in _IDENTITY))
    owner: Owner = _of_type(value, str, int, type(None))
    return owner


def _identity(grant: Grant) -> dict[str, str | None]:
    return {name: getattr(grant, name) for name in _IDENTITY}


_IDENTITY: Final = ("issuer", "subject", "client_id")


def _whole(value: Any) -> int:
    if value.__class__ is not int or not 0 <= value <= LARGEST:
        raise ValueError(f"a number must be an integer from 0 to 2**62, not {value!r:.60}")
    number: int = value
    return number


def _of_type(value: Any, *types: type) -> Any:
    if value.__class__ not in types:
        raise TypeError(f"a member must be {' or '.join(kind.__name__ for kind in types)}, not {value!r:.60}")
    return value


# --------------------------------------------------------------------------------------------------------------- replay
# The events of streams: those that wait to be sent, and those kept for clients that resume.
# A client whose connection broke names the last event that it saw, and gets the events after it.

EVENT_COST: Final = 200
"""Bytes of memory that an event takes in addition to its data."""

Forgotten = Callable[["SentEvent"], None]
"""Called with an event that is no longer kept."""


class Counter(Protocol):
    """The session that counts the bytes of its events."""

    held: Held
    unwritten: int


class SentEvent:
    """One server-sent event, encoded."""

    __slots__ = ("data", "number", "sent_at", "stream")

    stream: int
    """The number of its stream."""
    number: int
    """Its place among the events of the stream, from 1; 0 for an event without an id."""
    data: bytes
    """Its bytes."""
    sent_at: float
    """When an exchange took the last of its bytes, on the caller's clock."""

    def __init__(self, stream: int, number: int, data: bytes, sent_at: float = float("-inf")) -> None:
        self.stream = stream
        self.number = number
        self.data = data
        self.sent_at = sent_at

    @property
    def size(self) -> int:
        """Bytes of memory that it takes."""
        return len(self.data) + EVENT_COST


_NONE: Final[deque[SentEvent]] = deque()
"""Shared by the streams without events: most are answered in one piece."""


class EventQueue:
    """The events of one stream in order: those that were sent and are kept, then those that wait.

    The session counts the bytes of both.
    """

    __slots__ = ("_events", "_held", "_kept", "_offset", "_session", "unsent_bytes")

    unsent_bytes: int
    """Size in memory of the events that wait."""

    def __init__(self, session: Counter) -> None:
        self._session = session
        self._held = session.held
        self._events = _NONE
        self._kept = 0  # how many of them were sent
        self._offset = 0  # how much of the next one
        self.unsent_bytes = 0

    def append(self, event: SentEvent) -> None:
        """Append an event to those that wait."""
        self._own().append(event)
        self._wait(event.size)

    def put_back(self, events: list[SentEvent]) -> None:
        """Insert events before the waiting ones. No sent events may be kept here."""
        for event in reversed(events):
            self._own().appendleft(event)
            self._wait(event.size)

    def append_sent(self, event: SentEvent) -> None:
        """Append an event to those that were sent and are kept."""
        self._own().insert(self._kept, event)
        self._kept += 1
        self._held.replay += event.size

    def take(self, max_bytes: float) -> tuple[bytes, SentEvent | None]:
        """Return the next piece of the events that wait, with the event that it completes. Some event waits."""
        event = self._events[self._kept]
        begin, size = self._offset, len(event.data)
        if size - begin > max_bytes:
            self._offset = begin + int(max_bytes)
            return event.data[begin : self._offset], None
        self._offset = 0
        self._kept += 1
        self._wait(-event.size)
        self._held.replay += event.size
        return event.data[begin:], event

    def drop(self, event: SentEvent) -> None:
        """Forget the event that was sent last."""
        self._kept -= 1
        del self._events[self._kept]
        self._held.replay -= event.size

    def rewind(self, number: int | None = None) -> None:
        """Queue the events after ``number`` again, and the one that was sent in part."""
        self._offset = 0
        while number is not None and self._kept and self._events[self._kept - 1].number > number:
            self._kept -= 1
            size = self._events[self._kept].size
            self._held.replay -= size
            self._wait(size)

    def forget_sent(self, forgotten: Forgotten, now: float | None = None, window: float = 0.0) -> bool:
        """Forget the events that were sent; with ``now`` those sent ``window`` seconds ago or earlier.

        Returns whether there were any.
        """
        is_forgotten = False
        # Written as the deadline is: ``sent_at <= now - window`` rounds otherwise, and could be false when it comes.
        while self._kept and (now is None or self._events[0].sent_at + window <= now):
            event = self._events.popleft()
            self._kept -= 1
            self._held.replay -= event.size
            forgotten(event)
            is_forgotten = True
        return is_forgotten

    def clear(self) -> Sequence[SentEvent]:
        """Remove and return all events."""
        events, self._events = tuple(self._events), _NONE
        self._wait(-self.unsent_bytes)
        for index in range(self._kept):
            self._held.replay -= events[index].size
        self._kept = self._offset = 0
        return events

    @property
    def oldest(self) -> float | None:
        """When the oldest kept event was sent; ``None`` if none is kept."""
        return self._events[0].sent_at if self._kept else None

    def _own(self) -> deque[SentEvent]:
        if self._events is _NONE:
            self._events = deque()
        return self._events

    def _wait(self, size: int) -> None:
        self.unsent_bytes += size
        self._session.unwritten += size


class ReplayBuffer:
    """The newest events of streams that are over, and of the listening stream; the oldest are dropped first (P6)."""

    __slots__ = ("_events", "_forgotten", "_held", "_most", "_most_bytes", "size")

    size: int
    """Size in memory of the events."""

    def __init__(self, most: int, most_bytes: int, held: Held, forgotten: Forgotten) -> None:
        """Keep at most ``most`` events of ``most_bytes`` in total; ``forgotten`` is called with each dropped one."""
        self._events: deque[SentEvent] = deque()
        self._most = most
        self._most_bytes = most_bytes
        self._held = held
        self._forgotten = forgotten
        self.size = 0

    def extend(self, events: Sequence[SentEvent]) -> None:
        """Keep events of one stream, in the order of their numbers.

        An event that does not fit is dropped with all earlier ones of its stream: a client can only resume from an
        unbroken run of events. Other streams keep theirs.
        """
        size = first = 0
        for index in reversed(range(len(events))):
            size += events[index].size
            if size > self._most_bytes or len(events) - index > self._most:
                first = index + 1
                break
        for event in events[:first]:
            self._forgotten(event)
        if first:
            for event in self.take(events[0].stream):
                self._forgotten(event)
        for event in events[first:]:
            self._append(event)

    def _append(self, event: SentEvent) -> None:
        self._events.append(event)
        self._count(event.size)
        while len(self._events) > self._most or self.size > self._most_bytes:
            self._forget()

    def __contains__(self, stream: int) -> bool:
        return any(event.stream == stream for event in self._events)

    def take(self, stream: int, number: int = 0) -> list[SentEvent]:
        """Remove and return the events of a stream after ``number``."""
        events = [event for event in self._events if event.stream == stream and event.number > number]
        if events:
            taken = set(map(id, events))
            self._events = deque(event for event in self._events if id(event) not in taken)
            self._count(-sum(event.size for event in events))
        return events

    def expire(self, now: float, window: float = 0.0) -> None:
        """Forget the events sent ``window`` seconds ago or earlier."""
        while self._events and self._events[0].sent_at + window <= now:  # see ``EventQueue.forget_sent``
            self._forget()

    def clear(self) -> None:
        """Forget all events."""
        while self._events:
            self._forget()

    @property
    def oldest(self) -> float | None:
        """When the oldest event was sent; ``None`` without events."""
        return self._events[0].sent_at if self._events else None

    def __iter__(self) -> Iterator[SentEvent]:
        return iter(self._events)

    def _count(self, size: int) -> None:
        self.size += size
        self._held.replay += size

    def _forget(self) -> None:
        event = self._events.popleft()
        self._count(-event.size)
        self._forgotten(event)


def event_id(stream: int, number: int) -> str:
    """Return the id of an event: its stream and its number (RESUME-01, RESUME-02)."""
    return f"{stream}-{number}"


def parse_event_id(text: str) -> tuple[int, int] | None:
    """Return the stream and the number in an event id; ``None`` if this server did not make the id."""
    stream, _, number = text.partition("-")
    digits = stream + number
    # Bounded: reading a number from text takes quadratic time.
    if len(digits) > _MOST_DIGITS or not (stream and number and digits.isascii() and digits.isdigit()):
        return None
    return int(stream), int(number)


_MOST_DIGITS = 40


# ------------------------------------------------------------------------------------------------------------- sessions
# The state of sessions over HTTP, of their streams, and of the exchanges that carry those; the rules are elsewhere.

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
_answer: Final[Callable[[tuple[int, Headers, bytes]], Answer]] = partial(tuple.__new__, Answer)
"""Makes an answer without the call of a function in Python."""


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
        elif self.session is None and self.version_is_open:
            self.fields = tuple([field for field in self.fields if field[0].startswith(b"mcp-")])
        else:
            self.fields = ()
        # A session counts the cost of an exchange as it was when that entered: from then on it must stay as it is.
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

    def reject(self, rejection: Rejection, id: int | str | None = None) -> None:
        """Answer with an error, which waits for no store; ``id`` is the request's, if it could be read."""
        self.respond(rejection.status, (JSON, *rejection.headers), rejection_body(rejection, id), waits=False)

    def respond(self, status: int, headers: Headers, body: bytes = b"", *, waits: bool = True) -> None:
        """Answer in one piece. With ``waits``, the answer of a stored session is sent once its changes are stored."""
        session = self.session
        if waits and session is not None and session.journal is not None:
            self.gate = session.journal.mark()
            session.journal.gated[self] = None
        length = () if status == NO_CONTENT else ((b"content-length", b"%d" % len(body)),)
        fields = (*headers, *length, *self._headers)
        self.response = _ENDED
        # A longer body is queued, where it counts towards the limits until the adapter has taken it.
        if self.is_direct and not self.gate and len(body) <= BACKLOG:
            self.answer = _answer((status, fields, body))
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
