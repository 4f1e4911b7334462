"""Sessions over HTTP, their streams, and the exchanges that carry them: what is remembered, without the rules."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final

import attrs

from mcpio.engine.server import ServerConnection
from mcpio.events import IncomingId
from mcpio.http.checks import Facts
from mcpio.http.model import Body, End, Headers, Reset, ResponseHead, ResponseItem
from mcpio.http.replay import ReplayBuffer

__all__ = ["LISTENING", "Exchange", "HttpSession", "SessionClosed", "SessionOpened", "Stream"]

LISTENING = 0
"""The stream of what belongs to no request of the client's, for which it listens with GET."""


NO_CONTENT: Final = 204
"""The status that has no length either."""


@attrs.frozen
class SessionOpened:
    """A client began a session. It comes before the events of its connection."""


@attrs.frozen
class SessionClosed:
    """A session is over, and forgotten. It comes after the last event of its connection."""


class HttpSession:
    """One client, or one request of a client without a session."""

    __slots__ = (
        "connection",
        "exchanges",
        "id",
        "key",
        "next_stream",
        "principal",
        "replay",
        "streams",
        "undelivered",
        "used_at",
    )

    connection: ServerConnection
    """The engine. After acting on it, call ``HttpServer.flush``."""
    id: str | None
    """What the client calls it; ``None`` for a request that stands alone."""
    key: int
    """What the server calls it: never used twice."""
    principal: Hashable
    """Whose it is: nobody else may use it (SESS-09)."""
    streams: dict[int, Stream]
    """Those that are not over, by number."""
    exchanges: int
    """How many exchanges are open."""
    undelivered: int
    """How many messages had no way to the client, and were dropped (P11)."""
    used_at: float
    """When its last exchange was over."""

    def __init__(self, key: int, connection: ServerConnection, principal: Hashable, now: float) -> None:
        self.key = key
        self.connection = connection
        self.id = None
        self.principal = principal
        self.streams = {}
        self.next_stream = LISTENING + 1
        self.exchanges = 0
        self.undelivered = 0
        self.used_at = now
        self.replay: ReplayBuffer | None = None

    def stream_of(self, via: Hashable) -> Stream | None:
        """Return the stream of an exchange, as the engine calls it."""
        number = LISTENING if via is None else via
        return self.streams.get(number) if isinstance(number, int) else None

    @property
    def is_idle(self) -> bool:
        """Whether nothing of it is under way."""
        return not self.exchanges and not self.connection.pending.incoming


class Stream:
    """What goes out by one POST, or by listening: messages in order, which may outlive the exchange they began by."""

    __slots__ = ("answers", "exchange", "is_batch", "is_resumable", "next_number", "number", "running", "unsent")

    number: int
    """Its name in the session, and the ``via`` of the messages that belong to it."""
    exchange: Exchange | None
    """What carries it at the moment."""
    running: set[IncomingId]
    """The requests that are to be answered on it."""
    answers: list[bytes]
    """The answers so far, as long as they may still go out as one JSON body."""
    unsent: deque[bytes]
    """Encoded events that wait for the exchange to take them."""

    def __init__(self, number: int, exchange: Exchange | None, *, is_batch: bool = False) -> None:
        self.number = number
        self.exchange = exchange
        self.is_batch = is_batch
        self.is_resumable = False
        self.running = set()
        self.answers = []
        self.unsent = deque()
        self.next_number = 1


class Exchange:
    """One request, and the response to it so far."""

    __slots__ = (
        "_headers",
        "body",
        "facts",
        "id",
        "is_answered",
        "is_stream",
        "items",
        "principal",
        "session",
        "size",
        "stream",
    )

    id: Hashable
    """What the adapter calls it."""
    facts: Facts
    """What the head of the request says."""
    is_stream: bool
    """Whether the response is a stream of events that has begun."""
    is_answered: bool
    """Whether the end of the response is said, or waits to be."""
    items: deque[ResponseItem]
    """What waits for the adapter."""

    def __init__(self, id: Hashable, facts: Facts, principal: Hashable, headers: Headers = ()) -> None:
        """``headers`` are in the response, whatever it is."""
        self._headers = headers
        self.id = id
        self.facts = facts
        self.principal = principal
        self.body: list[bytes] = []
        self.size = 0
        self.session: HttpSession | None = None
        self.stream: Stream | None = None
        self.items = deque()
        self.is_stream = False
        self.is_answered = False

    def respond(self, status: int, headers: Headers, body: bytes = b"") -> None:
        """Answer in one piece."""
        length = () if status == NO_CONTENT else ((b"content-length", b"%d" % len(body)),)
        self.items.append(ResponseHead(self.id, status, (*headers, *length, *self._headers)))
        if body:
            self.items.append(Body(self.id, body))
        self.finish()

    def begin_stream(self, headers: Headers) -> None:
        """Answer with events, as they come."""
        self.is_stream = True
        self.items.append(ResponseHead(self.id, 200, (*headers, *self._headers)))

    def send(self, data: bytes) -> None:
        """Send some bytes of a stream."""
        self.items.append(Body(self.id, data))

    def finish(self) -> None:
        """End the response."""
        self.is_answered = True
        self.items.append(End(self.id))

    def cut_off(self) -> None:
        """Break the response off: its end cannot be told any more."""
        self.is_answered = True
        self.items.append(Reset(self.id))
