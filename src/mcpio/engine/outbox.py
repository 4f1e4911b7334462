"""The queue of outgoing messages: fair between requests, in order within each, with a policy for each kind.

Every running incoming request has a lane. Messages without a request share one lane, and automatic answers have
another: a pong must not wait behind a thousand log messages. Lanes take turns, one message each, so a response waits
for at most one message of every other lane, while a request's notifications and its response never change places (P14).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Final

from mcpio.engine.ledger import MESSAGE_COST
from mcpio.events import IncomingId, OutgoingId

__all__ = ["ANSWERS", "BACKLOG", "Kind", "Outbox", "Outgoing"]

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

    __slots__ = ("asked", "behind", "key", "kind", "lane", "last", "live", "related", "text", "turn", "via")

    text: bytes
    """One JSON text in UTF-8, without a line end."""
    via: Hashable
    """The exchange of the request that it belongs to; ``None`` when it belongs to none, or the transport has none."""
    related: IncomingId | None
    """The incoming request that it belongs to."""
    last: bool
    """Whether it ends that request: its result or its error."""
    asked: tuple[OutgoingId, ...]
    """The outgoing requests in it: one, or those of a batch; empty for any other message."""
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
        asked: tuple[OutgoingId, ...],
    ) -> None:
        self.text = text
        self.asked = asked
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
        asked: tuple[OutgoingId, ...] = (),
    ) -> None:
        """Queue a message behind the others of its lane, which is that of the request ``related`` unless given."""
        if key is not None:
            self._supersede(key)
        if lane is None:
            lane = related
        if self.size > BACKLOG:
            # orjson gives short texts in buffers of a KiB, which is nothing until many of them wait.
            text = bytes(memoryview(text))
        message = Outgoing(text, kind, via, related, last, key, lane, asked)
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
