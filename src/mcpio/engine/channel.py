"""Input, output and time of one connection."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sized
from heapq import heapify, heappop, heappush
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from mcpio.engine.limits import MESSAGE_COST, Held, Limits, check_time
from mcpio.engine.table import LIFE_TABLE, Input, Life, Role
from mcpio.errors import LocalProtocolError
from mcpio.events import CloseReason, IncomingId, OutgoingId
from mcpio.framing import jsonrpc
from mcpio.framing.lines import LineFramer, Overlong

# --------------------------------------------------------------------------------------------------------------- timers
# Deadlines by key: a heap whose outdated entries are skipped when they surface.

# The keys of a connection's own timers. Its requests have theirs under their ids, which are positive.
CLOSE_TIMER: Final = 0
"""The end of the grace of a connection that is closing."""
KEEP_ALIVE_TIMER: Final = -1
"""The next look at how long the peer has been silent."""
STALL_TIMER: Final = -2
"""The next look at whether a peer that leaves more than ``Limits.queued_bytes`` unread has read any of it."""

_SLACK = 64
"""Outdated entries kept before the heap is rebuilt, so that a busy connection rebuilds rarely."""

K = TypeVar("K", int, tuple[int, int, int])


class Timers(Generic[K]):
    """At most one deadline for each key, in seconds on the caller's clock. Empty while none is set.

    Keys are numbers, or alike tuples of numbers, so that deadlines of the same time have an order too.
    """

    __slots__ = ("_deadlines", "_heap")

    def __init__(self) -> None:
        self._deadlines: dict[K, float] | None = None
        self._heap: list[tuple[float, K]] | None = None

    def set(self, key: K, deadline: float) -> None:
        """Set the deadline of ``key``, in place of any earlier one."""
        if self._deadlines is None or self._heap is None:
            self._deadlines, self._heap = {key: deadline}, [(deadline, key)]
            return
        self._deadlines[key] = deadline
        if len(self._heap) > 2 * len(self._deadlines) + _SLACK:
            self._heap = [(when, name) for name, when in self._deadlines.items()]
            heapify(self._heap)
        else:
            heappush(self._heap, (deadline, key))

    def clear(self, key: K) -> None:
        """Forget the deadline of ``key``, if it has one."""
        deadlines = self._deadlines
        if deadlines is not None and deadlines.pop(key, None) is not None and not deadlines:
            self._deadlines = self._heap = None

    def clear_all(self) -> None:
        """Forget all deadlines."""
        self._deadlines = self._heap = None

    def get(self, key: K) -> float | None:
        """Return the deadline of ``key``, or ``None``."""
        return None if self._deadlines is None else self._deadlines.get(key)

    def next(self) -> float | None:
        """Return the earliest deadline, or ``None``."""
        heap, deadlines = self._heap, self._deadlines
        if heap is None or deadlines is None:
            return None
        # Each deadline has an entry of its own time in the heap, so this ends at the latest at the earliest of them.
        while deadlines.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0]

    def pop_expired(self, now: float) -> list[K]:
        """Forget every deadline that is not after ``now``; return their keys, earliest first."""
        expired: list[K] = []
        while (first := self.next()) is not None and first <= now and self._heap is not None:
            key = self._heap[0][1]
            self.clear(key)
            expired.append(key)
        return expired


# ---------------------------------------------------------------------------------------------------------------- inbox
# Input that was fed and not yet parsed, of byte channels and of message channels.

QUOTE = 200
"""How many characters of an unreadable text an event quotes."""


class Keep(enum.Enum):
    """The type of ``KEEP``."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP
"""The principal of a message that came without one: that of its connection."""


Received: TypeAlias = "tuple[bytes | str | Overlong, Hashable, Hashable, jsonrpc.Message | None]"
"""A text, its ``via``, its principal, and its parsed form, if the transport has parsed it."""


class Deferred(NamedTuple):
    """A request, or a batch, that waits for room."""

    id: int | str | None
    """The peer's id of it; ``None`` for a batch."""
    text: bytes | str
    """The whole message."""
    via: Hashable
    """The exchange that brought it."""
    principal: Hashable
    """The sender's principal, or ``KEEP``."""


class Inbox:
    """One JSON text at a time, in the order of arrival."""

    __slots__ = ("_deferred", "_deferred_by", "_framer", "_limits", "_messages", "deferred_bytes", "ended")

    deferred_bytes: int
    """Bytes of the deferred requests; 0 without any."""

    ended: bool
    """The peer will send no more."""

    def __init__(self, limits: Limits) -> None:
        # Made with the first bytes: channels with message boundaries, as HTTP, need none.
        self._framer: LineFramer | None = None
        self._limits = limits
        self._messages: deque[Received] | None = None
        self._deferred: deque[Deferred] | None = None
        # How many by each exchange: whether one has any is asked for each stream of a session.
        self._deferred_by: dict[Hashable, int] | None = None
        self.deferred_bytes = 0
        self.ended = False

    def add_data(self, data: bytes) -> None:
        """Store bytes of a line-framed channel."""
        if self._framer is None:
            self._framer = self._new_framer()
        self._framer.receive(data)

    def add_message(
        self, text: bytes | str, via: Hashable, principal: Hashable, parsed: jsonrpc.Message | None = None
    ) -> None:
        """Store one whole text of a channel that has message boundaries."""
        if self._messages is None:
            self._messages = deque()
        size = len(text) if isinstance(text, bytes) or text.isascii() else len(text.encode(errors="replace"))
        if size > self._limits.message_bytes:
            head = text[:200] if isinstance(text, bytes) else text[:200].encode(errors="replace")
            self._messages.append((Overlong(size, head), via, principal, None))
        else:
            self._messages.append((text, via, principal, parsed))

    def end(self) -> None:
        """Note the end of the input. A last line without its line end counts."""
        self.ended = True
        if self._framer is not None:
            self._framer.receive_eof()

    def next(self) -> Received | None:
        """Remove and return the next text with its ``via`` and its principal, or ``None``."""
        if self._messages is not None:
            item = self._messages.popleft()
            if not self._messages:
                self._messages = None
            return item
        line = None if self._framer is None else self._framer.next_line()
        return None if line is None else (line, None, KEEP, None)

    # Requests that wait for room

    def defer(self, id: int | str | None, text: bytes | str, via: Hashable, principal: Hashable) -> None:
        """Defer a request, or a batch (which has no id), until memory for its work is free."""
        if self._deferred is None or self._deferred_by is None:
            self._deferred, self._deferred_by = deque(), {}
        self._deferred.append(Deferred(id, text, via, principal))
        self._deferred_by[via] = self._deferred_by.get(via, 0) + 1
        self.deferred_bytes += len(text) + MESSAGE_COST

    def next_deferred(self) -> Deferred:
        """Remove and return the request that was deferred first. At least one must be deferred."""
        return self._take_deferred(0)

    def drop_deferred(self, id: int | str, via: Hashable) -> bool:
        """Drop the deferred request that a cancellation names, in its exchange or any; return whether one did."""
        # 1, True and "1" are three ids.
        named = [
            (index, each.via)
            for index, each in enumerate(self._deferred or ())
            if each.id == id and each.id.__class__ is id.__class__
        ]
        matches = [index for index, its_via in named if its_via == via] or [index for index, _ in named]
        if len(matches) != 1:
            return False
        self._take_deferred(matches[0])
        return True

    def is_deferred(self, via: Hashable) -> bool:
        """Whether a request of that exchange was put aside."""
        return self._deferred_by is not None and via in self._deferred_by

    def _take_deferred(self, index: int) -> Deferred:
        deferred: Any = self._deferred
        counts: Any = self._deferred_by
        taken: Deferred = deferred[index]
        del deferred[index]
        self.deferred_bytes -= len(taken.text) + MESSAGE_COST
        counts[taken.via] -= 1
        if not counts[taken.via]:
            del counts[taken.via]
        if not deferred:
            self._deferred = self._deferred_by = None
        return taken

    @property
    def size(self) -> int:
        """Bytes held: unparsed input, and deferred requests."""
        messages = self._messages
        texts = 0 if messages is None else sum(len(text) for text, *_ in messages if not isinstance(text, Overlong))
        return texts + self.deferred_bytes + (0 if self._framer is None else self._framer.buffered)

    # The end

    def clear(self) -> None:
        """Drop everything: the connection has ended."""
        self._messages = self._framer = self._deferred = self._deferred_by = None
        self.deferred_bytes = 0

    def restart(self) -> None:
        """Drop everything and begin with another channel."""
        self.clear()
        self.ended = False

    def load(self, unfinished: bytes, *, skipping: bool) -> None:
        """Start in the middle of a line, after ``unfinished``; ``skipping`` means that the line is too long."""
        if unfinished or skipping:
            self._framer = self._new_framer(skipping=skipping)
            self._framer.receive(unfinished)

    @property
    def unfinished(self) -> bytes:
        """The bytes of the line that has not ended yet."""
        return b"" if self._framer is None else self._framer.unfinished

    @property
    def skipping(self) -> bool:
        """Whether the unfinished line is too long, so that its bytes are dropped."""
        return self._framer is not None and self._framer.skipping

    @property
    def is_cut(self) -> bool:
        """Whether the text that was taken out last stood at the end of the input, and may not be whole."""
        return self._framer is not None and self._framer.is_cut

    @property
    def pending(self) -> bool:
        """Whether whole messages wait to be parsed; they may turn out to be blank lines."""
        return self._messages is not None or (self._framer is not None and self._framer.pending)

    def _new_framer(self, *, skipping: bool = False) -> LineFramer:
        return LineFramer(self._limits.message_bytes, resync=self._limits.resync, skipping=skipping)


def head(text: bytes | str) -> str:
    """Return the beginning of a text, for events to quote."""
    return (text[: 4 * QUOTE].decode(errors="replace") if isinstance(text, bytes) else text)[:QUOTE]


# --------------------------------------------------------------------------------------------------------------- outbox
# The queue of outgoing messages: fair between requests, in order within each, with a policy for each kind.
# Every running incoming request has a lane. Messages without a request share one lane, and automatic answers have
# another: a pong must not wait behind a thousand log messages. Lanes take turns, one message each, so a response waits
# for at most one message of every other lane, while a request's notifications and its response never change places
# (P14).

ANSWERS: Final = 0
"""The lane of automatic answers. Incoming requests have positive numbers."""


BACKLOG: Final = 64 * 1024
"""How many bytes may wait before texts are copied into buffers of their exact size."""


class Kind:
    """The policy for a waiting message."""

    RESPONSE: Final = 0
    """Never dropped; counts against the high-water mark."""
    REQUEST: Final = 1
    """Never dropped."""
    NOTIFICATION: Final = 2
    """Coalesces with a waiting one of the same key, if it has a key."""
    LOG: Final = 3
    """The oldest are dropped when too many wait, and counted."""


_RESPONSE, _REQUEST, _LOG = Kind.RESPONSE, Kind.REQUEST, Kind.LOG


class Outgoing:
    """One message for the wire, with the data that a transport needs to route it."""

    __slots__ = ("behind", "call", "key", "kind", "lane", "last", "live", "related", "requests", "text", "turn", "via")

    text: bytes
    """One JSON text in UTF-8, without a line end."""
    via: Hashable
    """The exchange of the request that it belongs to; ``None`` when it belongs to none, or the transport has none."""
    related: IncomingId | None
    """The incoming request that it belongs to."""
    last: bool
    """Whether it ends that request: its result or its error."""
    requests: tuple[OutgoingId, ...]
    """The outgoing requests in it: one, or those of a batch; empty for any other message."""
    call: tuple[str, Mapping[str, Any]] | None
    """The method and the params of the outgoing request in it; ``None`` for a batch, and for any other message."""
    kind: int
    """One of ``Kind``."""
    key: Hashable
    """It replaces a waiting message of the same key; ``None`` where each one counts."""
    lane: Hashable
    """The lane that keeps its order."""
    behind: Outgoing | None
    """The next message of its lane."""
    live: bool
    """Whether it still waits."""
    turn: int
    """When it became the first of its lane, as a count: lanes take turns in this order."""

    def __init__(
        self,
        text: bytes,
        kind: int,
        via: Hashable,
        related: IncomingId | None,
        last: bool,
        key: Hashable,
        lane: Hashable,
        requests: tuple[OutgoingId, ...],
        call: tuple[str, Mapping[str, Any]] | None,
    ) -> None:
        self.text = text
        self.requests = requests
        self.call = call
        self.via = via
        self.related = related
        self.last = last
        self.kind = kind
        self.key = key
        self.lane = lane
        self.behind = None
        self.live = True
        self.turn = 0

    def and_behind(self) -> Iterator[Outgoing]:
        """Unlink the lane that begins here; yield its messages."""
        message: Outgoing | None = self
        while message is not None:
            behind, message.behind = message.behind, None
            yield message
            message = behind

    def __repr__(self) -> str:
        return f"Outgoing({self.text!r}, via={self.via!r}, related={self.related!r}, last={self.last!r})"


class Outbox:
    """The queue of ``Outgoing``. Its containers exist only while messages wait."""

    __slots__ = (
        "_dead",
        "_has_general_news",
        "_held",
        "_keyed",
        "_lanes",
        "_live_logs",
        "_logs",
        "_logs_limit",
        "_news",
        "_turn",
        "_turns",
        "dropped_logs",
        "own_bytes",
        "response_bytes",
        "size",
    )

    size: int
    """Bytes that wait, by their size in memory: the texts, and ``MESSAGE_COST`` for each."""
    own_bytes: int
    """Bytes of the outgoing requests among them."""
    response_bytes: int
    """Bytes of the responses of handlers among them."""
    dropped_logs: int
    """How many log messages were dropped so far."""

    def __init__(self, logs_limit: int) -> None:
        self._logs_limit = logs_limit
        # The last message of each lane, by its name.
        self._lanes: dict[Hashable, Outgoing] | None = None
        # The first message of each lane in the order of turns, by the exchange of that message: an exchange whose
        # client does not read costs the others nothing. A lane may pass from one exchange to another, as where a
        # request is cancelled whose exchange is over.
        self._turns: dict[Hashable, deque[Outgoing]] | None = None
        # The exchanges that got a message since ``take_news``, and whether what goes by none did.
        self._news: dict[Hashable, None] | None = None
        self._has_general_news = False
        self._turn = 0
        self._keyed: dict[Hashable, Outgoing] | None = None
        self._logs: deque[Outgoing] | None = None
        self._held = self._dead = self._live_logs = 0
        self.size = 0
        self.own_bytes = 0
        self.response_bytes = 0
        self.dropped_logs = 0

    def put(
        self,
        text: bytes,
        kind: int,
        *,
        via: Hashable = None,
        related: IncomingId | None = None,
        last: bool = False,
        key: Hashable = None,
        lane: Hashable = None,
        requests: tuple[OutgoingId, ...] = (),
        call: tuple[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Queue a message behind the others of its lane, which is that of the request ``related`` unless given."""
        if key is not None:
            self._supersede(key)
        if lane is None:
            lane = related
        if self.size > BACKLOG:
            # orjson gives short texts in buffers of a KiB, which is nothing until many of them wait.
            text = bytes(memoryview(text))
        message = Outgoing(text, kind, via, related, last, key, lane, requests, call)
        cost = len(text) + MESSAGE_COST
        self.size += cost
        self._held += 1
        if self._lanes is None:
            # Alone, as most are.
            self._lanes, self._turns = {lane: message}, {via: deque((message,))}
            if via is None:
                self._has_general_news = True
            else:
                self._news = {via: None}
        else:
            self._line_up(message)
        if kind == _REQUEST:
            self.own_bytes += cost
        elif kind == _RESPONSE and related is not None:
            self.response_bytes += cost
        elif kind == _LOG:
            self._limit_logs(message)
        if key is not None:
            if self._keyed is None:
                self._keyed = {}
            self._keyed[key] = message

    def pop(self) -> Outgoing | None:
        """Remove and return the next message, or ``None``."""
        if self._held == 1 and self._turns is not None:
            # A single message, the usual case, takes no turns.
            ((message,),) = self._turns.values()
            if message.live:
                self._lanes = self._turns = self._news = None
                self._has_general_news = False
                self._turn = 0
                self._held = 0
                self._leave(message)
                return message
        while (turns := self._turns) is not None:
            # Of any exchange. Channels without exchanges have a single one, ``None``.
            via = next(iter(turns)) if len(turns) == 1 else min(turns, key=lambda via: turns[via][0].turn)
            message = self._take_first(via, turns[via])
            if message.live:
                self._leave(message)
                return message
        return None

    def pop_only(self, via: Hashable) -> Outgoing | None:
        """Remove and return the last message of an exchange, if no other waits for any."""
        if self._held != 1 or self._turns is None or via not in self._turns or not self._turns[via][0].last:
            return None
        return self.pop()

    def pop_by(self, via: Hashable) -> Outgoing | None:
        """Remove and return the next message of an exchange, or without one if ``via`` is ``None``."""
        while (turns := self._turns) is not None and (queue := turns.get(via)) is not None:
            message = self._take_first(via, queue)
            if message.live:
                self._leave(message)
                return message
        return None

    def vias(self) -> list[Hashable]:
        """Return the exchanges with waiting messages; ``None`` for messages without an exchange."""
        return [] if self._turns is None else list(self._turns)

    def has(self, via: Hashable) -> bool:
        """Return whether a message waits for an exchange."""
        return self._turns is not None and via in self._turns

    def take_news(self) -> Iterable[Hashable]:
        """Return the exchanges that got messages since the last call; ``None`` for messages without an exchange."""
        news, has_general_news = self._news, self._has_general_news
        self._news, self._has_general_news = None, False
        if not has_general_news:
            return news or ()
        return (None, *news) if news else (None,)

    def join_lanes(self, lanes: Iterable[int], lane: int) -> None:
        """Merge the messages of several lanes into one, so that a later message there comes after all of them."""
        waiting = self._lanes or {}
        several = {each for each in lanes if each in waiting}
        if several - {lane}:
            for message in self._take_apart():
                if message.lane in several:
                    message.lane = lane
                self._line_up(message)

    def clear(self) -> None:
        """Drop everything, because the peer is gone."""
        self._lanes = self._turns = self._news = self._keyed = self._logs = None
        self._has_general_news = False
        self._turn = 0
        self._held = self._dead = self._live_logs = self.size = self.own_bytes = self.response_bytes = 0

    def __bool__(self) -> bool:
        return self.size > 0

    def _take_first(self, via: Hashable, queue: deque[Outgoing]) -> Outgoing:
        """Remove the first message of an exchange, dropped or not. At least one must wait."""
        turns: Any = self._turns
        lanes: Any = self._lanes
        message = queue.popleft()
        self._held -= 1
        if not queue:
            del turns[via]
        behind = message.behind
        if behind is None:
            del lanes[message.lane]
            if not turns:
                self._lanes = self._turns = self._news = None
                self._has_general_news = False
                self._turn = 0
        else:
            # A message that was dropped takes no turn.
            self._take_turns(behind, None if message.live else message.turn)
        if not message.live:
            self._dead -= 1
        return message

    def _take_apart(self) -> Iterator[Outgoing]:
        """Empty all lanes; yield their messages, to be queued again."""
        turns = self._turns or {}
        self._lanes = self._turns = None
        for queue in turns.values():
            for first in queue:
                yield from first.and_behind()

    def _leave(self, message: Outgoing) -> None:
        """Remove a message from the counts of what waits. Its place in the queue is skipped later."""
        message.live = False
        cost = len(message.text) + MESSAGE_COST
        self.size -= cost
        if message.kind == _REQUEST:
            self.own_bytes -= cost
        elif message.kind == _RESPONSE and message.related is not None:
            self.response_bytes -= cost
        elif message.kind == _LOG:
            self._live_logs -= 1
            if not self._live_logs:
                self._logs = None
        if message.key is not None and self._keyed is not None:
            del self._keyed[message.key]
            if not self._keyed:
                self._keyed = None

    def _supersede(self, key: Hashable) -> None:
        """Drop the waiting message of that key. The newer one goes to the end, so that it overtakes nothing."""
        if self._keyed is not None and (old := self._keyed.get(key)) is not None:
            self._bury(old)

    def _limit_logs(self, message: Outgoing) -> None:
        logs = self._logs = deque() if self._logs is None else self._logs
        logs.append(message)
        self._live_logs += 1
        # Lanes take turns, so logs do not leave in the order in which they came.
        while not logs[0].live:
            logs.popleft()
        if self._live_logs > self._logs_limit:
            self.dropped_logs += 1
            self._bury(logs[0])

    def _bury(self, message: Outgoing) -> None:
        """Drop a message that is still in its lane; compact the lanes when most of their entries are dropped."""
        self._leave(message)
        message.text = b""
        self._dead += 1
        # A lane is a linked list without back links, so a dropped message stays in it until its turn. A sweep moves no
        # more messages than were dropped since the last one, which keeps a drop at constant cost.
        if self._dead > 64 and self._dead > self._held // 2:
            self._sweep()

    def _sweep(self) -> None:
        for message in self._take_apart():
            if message.live:
                self._line_up(message)
        self._held -= self._dead
        self._dead = 0

    def _line_up(self, message: Outgoing) -> None:
        if self._lanes is None or self._turns is None:
            self._lanes, self._turns = {}, {}
        if (others := self._lanes.get(message.lane)) is None:
            self._take_turns(message)
        else:
            others.behind = message
        self._lanes[message.lane] = message

    def _take_turns(self, message: Outgoing, turn: int | None = None) -> None:
        """Line up the first message of a lane among those of its exchange: the last, or the first with that turn."""
        turns: Any = self._turns
        via = message.via
        queue: deque[Outgoing] | None = turns.get(via)
        if turn is None:
            self._turn += 1
            message.turn = self._turn
        else:
            message.turn = turn
        if queue is None:
            turns[via] = deque((message,))
        elif turn is not None:
            queue.appendleft(message)
        else:
            queue.append(message)
        if via is None:
            self._has_general_news = True
        elif self._news is None:
            self._news = {via: None}
        else:
            self._news[via] = None


# -------------------------------------------------------------------------------------------------------------- channel
# One channel to a peer: its input, its output, the clock, and its end. It knows neither messages nor methods.
# A ``Channel`` never calls back. Its ``Connection`` asks it what came in and whether it must end, and acts on the
# answer.

LAST_WRITE: Final = 1.0
"""Seconds that a client whose server has ended waits for its last write, which the server may never read."""

STALL: Final = 30.0
"""Seconds that a peer has to read some of an output beyond ``Limits.queued_bytes``."""

READ_RATE: Final = 4096
"""Bytes a second that a peer must read while the transport is writing."""

# Looked up once: before Python 3.12 an enumeration finds its members by a slow path.
_OPEN, _CLOSING, _CLOSED = Life.OPEN, Life.CLOSING, Life.CLOSED


_NEVER: Final = float("inf")
_BYTES: Final = (bytes, bytearray, memoryview, type(None))
_TEXT: Final = (str, bytes, type(None))


class Channel:
    """Input, output, time and end of one connection."""

    __slots__ = (
        "_stalled_at",
        "cause",
        "end_received",
        "held",
        "inbox",
        "life",
        "limits",
        "now",
        "outbox",
        "reason",
        "received_at",
        "received_bytes",
        "role",
        "sent_bytes",
        "timers",
    )

    life: Life
    """Assigned by ``step`` and by a snapshot, and nowhere else."""
    now: float
    """The latest time that the caller gave; it never goes back."""
    received_at: float
    """When something came in last."""
    received_bytes: int
    """How many bytes were fed. Of text, its characters count."""
    sent_bytes: int
    """How many bytes of messages were pulled."""
    end_received: bool
    """Whether the end of the input was acted on, after all input before it."""
    reason: CloseReason
    """Why the channel closes or closed."""
    cause: BaseException | None
    """The exception that caused it."""

    def __init__(self, limits: Limits, role: Role) -> None:
        self.limits = limits
        self.role = role
        self.held = Held()
        self.inbox = Inbox(limits)
        self.outbox = Outbox(limits.queued_logs)
        self.timers: Timers[int] = Timers()
        self.now = self.received_at = float("-inf")
        self.life = _OPEN
        self.reason = CloseReason.CLOSED
        self.cause = None
        self.end_received = False
        self.received_bytes = self.sent_bytes = 0
        self._stalled_at: int | None = None  # what was sent when the peer was last seen not to read

    def advance(self, now: float) -> None:
        """Note the time. Raises ``LocalProtocolError`` for what is none."""
        try:
            if self.now < now < _NEVER:
                self.now = now
            elif now != self.now:
                check_time(now)
        except TypeError:
            check_time(now)

    # Input

    def receive_data(self, data: bytes | None, now: float) -> bool:
        """Store bytes, or note the end of file; return whether the input was still open."""
        if data.__class__ is not bytes and not isinstance(data, _BYTES):
            raise LocalProtocolError(f"data must be bytes, not {data!r:.60}")
        inbox = self.inbox
        if inbox.ended or self.life is _CLOSED:
            return False  # without the time, which later calls would show in a recording
        if now.__class__ is float and self.now <= now < _NEVER:
            self.now = now  # without a call, for each message
        else:
            self.advance(now)
        if data:
            self.received_at = self.now
            self.received_bytes += len(data)
            inbox.add_data(data)
        elif data is None:
            inbox.end()
        return True

    def receive_message(
        self,
        text: bytes | str | None,
        now: float,
        via: Hashable,
        principal: Hashable,
        parsed: jsonrpc.Message | None = None,
    ) -> bool:
        """Store one whole text, or note the end; return whether the input was still open."""
        if text.__class__ is not bytes and not isinstance(text, _TEXT):
            raise LocalProtocolError(f"text must be text or bytes, not {text!r:.60}")
        inbox = self.inbox
        if inbox.ended or self.life is _CLOSED:
            return False  # without the time, which later calls would show in a recording
        if now.__class__ is float and self.now <= now < _NEVER:
            self.now = now  # without a call, for each message
        else:
            self.advance(now)
        if text is None:
            inbox.end()
        else:
            self.received_at = self.now
            self.received_bytes += len(text)
            inbox.add_message(text, via, principal, parsed)
        return True

    def wants_read(self, unanswered: Sized) -> bool:
        """Return whether to read from the channel now. ``unanswered`` are the requests of this side."""
        inbox = self.inbox
        if inbox.ended or self.life is _CLOSED:
            return False
        if not self.is_full():
            # Requests that were put aside come first: drain the events.
            return not inbox.deferred_bytes
        # If both sides stopped reading while both wait for answers, neither would ever go on; and a cancellation may be
        # what frees a peer whose requests take too much. So read on: requests that come meanwhile are put aside.
        needs_more = len(unanswered) > 0 or self.held.requests > self.limits.peer_bytes // 2
        return needs_more and inbox.deferred_bytes <= self.limits.queued_bytes

    def is_full(self) -> bool:
        """Return whether the peer's requests must wait: until it reads its answers, or until running ones end."""
        outbox, held, limits = self.outbox, self.held, self.limits
        # Without this side's own requests: if both sides stopped reading for the sake of theirs, neither would go on.
        waiting = outbox.size - outbox.own_bytes + held.unwritten
        return waiting > limits.high_water or held.requests > limits.peer_bytes // 2

    @property
    def has_room_for_deferred(self) -> bool:
        """Whether deferred requests may continue."""
        return self.inbox.deferred_bytes > 0 and not self.is_full()

    # Output

    def pull(self, max_bytes: int) -> list[bytes | None]:
        """Remove and return messages as lines, about ``max_bytes`` in total."""
        outbox = self.outbox
        chunks: list[bytes | None] = []
        size = 0
        while outbox.size and size < max_bytes and (message := outbox.pop()) is not None:
            chunks.append(message.text + b"\n")
            size += len(message.text)
        self.sent_bytes += size
        return chunks

    @property
    def has_room(self) -> bool:
        """Whether more output may be made."""
        held, limits = self.held, self.limits
        outbox, rest = self.outbox, held.unwritten + held.own
        return outbox.size + rest <= limits.peer_bytes // 2 and outbox.own_bytes + rest <= limits.queued_bytes // 2

    def is_overflowing(self, size: int) -> bool:
        """Return whether output of ``size`` bytes, more than ``Limits.queued_bytes``, is too much to stay open.

        This may start the stall timer.

        A peer may ask for more than it has read so far, so responses of handlers beyond ``Limits.queued_bytes`` only
        start the timer, and reading some of them stops it. Any other output must not wait that long.
        """
        outbox, limits, unwritten = self.outbox, self.limits, self.held.unwritten
        others = outbox.size - outbox.response_bytes
        if self.role is Role.CLIENT:
            # What a server's transport buffers are responses, or a piece of a stream; a client's buffers what it tells.
            others += unwritten
        if others > limits.queued_bytes or size > limits.peer_bytes:
            return True
        if self.timers.get(STALL_TIMER) is None:
            # Due at once, since ``now`` may be older than this call: ``is_stalled`` then starts the time itself.
            self._stalled_at = None
            self.timers.set(STALL_TIMER, self.now)
        return False

    def is_stalled(self) -> bool:
        """Return whether the peer read nothing since the last check; otherwise schedule another check."""
        unwritten = self.held.unwritten
        if self.outbox.size + unwritten <= self.limits.queued_bytes or self.life is _CLOSED:
            return False
        sent = self.sent_bytes - unwritten
        if self._stalled_at == sent:
            return True
        # The stall time begins here: the call that filled the output may have had an older time.
        self._stalled_at = sent
        self.timers.set(STALL_TIMER, self.now + STALL + unwritten / READ_RATE)
        return False

    # The end

    def step(self, what: Input) -> None:
        """Move to the next state of life. The caller has checked that a row exists."""
        self.life = LIFE_TABLE[self.life, what]

    def begin_closing(self, what: Input, grace: float | None) -> None:
        """Start no new work; end after at most ``grace`` seconds. ``None`` sets no limit."""
        self.step(what)
        if grace is not None:
            due = self.timers.get(CLOSE_TIMER)
            self.timers.set(CLOSE_TIMER, self.now + grace if due is None else min(due, self.now + grace))

    def finish(self, what: Input, reason: CloseReason, cause: BaseException | None) -> None:
        """Close now, and drop unread input and unsent output."""
        self.step(what)
        self.reason, self.cause = reason, cause
        self.outbox.clear()
        self.inbox.clear()
        self.timers.clear_all()
