"""Limits of a connection, and the ledger of the memory that is held for peers."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any, Final

import attrs

from mcpio._checks import is_amount, is_count, required
from mcpio.errors import LocalProtocolError

# --------------------------------------------------------------------------------------------------------------- limits
# Limits of a connection (P6), the same on every transport; each limit documents what happens beyond it.

MIB = 1024 * 1024


@attrs.frozen(kw_only=True)
class Limits:
    """Bounds of one connection. Sizes are in bytes, all others are counts. Raises ValueError for a negative bound."""

    message_bytes: int = 16 * MIB
    """Bytes of the longest message accepted. Beyond: answered with -32600, then the connection closes
    (``message-too-large``), or continues with the next message if ``resync`` is set; over HTTP the status is 413,
    and the client's next request is served. Deployed peers use the same default (SEC-10)."""
    message_items: int = 20_000
    """Items of one message, in all its lists and mappings, that are decoded one by one: tools, prompts, resources,
    content blocks, icons, roots, questions and the like. Beyond: a request is refused with -32602, and a response fails
    the request that it answers."""
    message_values: int = 1_000_000
    """Values of one message: its objects and arrays, and all that is in them. A member of an object counts as two, its
    name and its value. Beyond: refused with -32600, and not parsed; the connection continues."""
    resync: bool = False
    """Whether to skip an overlong line and continue, instead of closing the connection."""
    sent_message_bytes: int | None = None
    """Bytes of the longest message sent; ``None`` for ``message_bytes``. Beyond: the call that sends it raises
    ``MessageTooLarge``. A request whose answer would be longer gets a result or an error that says so instead."""
    incoming_requests: int = 4096
    """Requests of the peer that may run at once. Beyond: the request is refused with -32603 and not run."""
    outgoing_requests: int = 65536
    """Outgoing requests that may wait at once. Beyond: ``LocalProtocolError``."""
    outgoing_tasks: int = 1024
    """Outgoing requests that became tasks and are remembered until these end (2025-11-25). Beyond: the oldest is
    forgotten; its progress is ignored, and ``cancel_request`` has no effect on it."""
    batch_items: int = 1024
    """Items of the longest batch (2025-03-26 only). Beyond: the whole batch is refused with -32600."""
    peer_bytes: int = 512 * MIB
    """Memory held for one peer: input, running requests, output, events kept for clients that resume a stream, and
    subscriptions. While running requests take half of it, further ones wait; a message that alone would take more is
    refused as too long. Tasks have separate limits (``TaskLimits``)."""
    total_bytes: int = 1024 * MIB
    """Memory held for all peers of one server. Above seven eighths of it, new sessions are refused (over HTTP with
    status 503). Beyond: the peer that holds most is disconnected (``overloaded``)."""
    queued_bytes: int = 64 * MIB
    """Bytes of output that may wait. Beyond half of it: outgoing requests raise ``OutputFull``. Beyond: a peer that
    reads nothing for 30 seconds is disconnected (``slow-consumer``); at once if so much waits apart from responses of
    handlers."""
    high_water: int = 4 * MIB
    """Bytes of waiting output, other than outgoing requests, above which the peer's requests wait too: ``next_event``
    returns none, and ``wants_read`` is false unless an answer is awaited. A peer that reads loses nothing."""
    queued_logs: int = 1024
    """Log messages that may wait. Beyond: the oldest is dropped and counted."""
    logs_per_second: int = 1000
    """Log messages that a server sends to one client in a second. Beyond: dropped and counted (LOG-07)."""
    subscriptions: int = 4096
    """Resources and tasks that one client may be subscribed to. Beyond: the request is refused with -32603."""
    subscription_bytes: int = 4 * MIB
    """Memory that the URIs of its subscriptions may take. Beyond: the request is refused with -32603."""
    listeners: int = 256
    """``subscriptions/listen`` requests of one client that may run at once (2026-07-28): of its principal, or without
    one of its connection. Beyond: the request is refused with -32603. With 0 the method does not exist, and stateless
    clients are offered no changes."""
    total_listeners: int = 8192
    """``subscriptions/listen`` requests that may run at once for all clients of one server; over HTTP each is a
    connection, or a stream of one. Beyond: the request is refused with -32603."""
    retired_ids: int = 256
    """Cancelled or timed-out ids that are remembered, to distinguish a late answer from a wrong one. Beyond: the oldest
    is forgotten."""
    sessions: int = 10_000
    """Sessions that an HTTP server keeps. Beyond: one ends whose client left during a request and can no longer get the
    answer (its handler is cancelled), otherwise the one that was idle for longest; if all have open requests, the new
    client is refused with status 503."""
    streams: int = 1024
    """Requests of one HTTP session that may be open at once, of any method, and also its streams, including broken ones
    that may be resumed. Beyond: status 503."""
    exchanges: int = 20_000
    """HTTP requests that a server works on at once, over all sessions; without sessions, including those whose clients
    have disconnected, of which one gives way (its handler is cancelled). Beyond: status 503."""
    replay_events: int = 1024
    """Sent events of finished streams that an HTTP session keeps, for clients whose connection broke. Beyond: the
    oldest is forgotten. A client that asks for a stream whose events are all gone gets status 410. The events of an
    unfinished stream are always kept, within ``peer_bytes``."""
    replay_bytes: int = 32 * MIB
    """Bytes of those events. Beyond: the oldest is forgotten. The default is twice the longest message."""

    peer_threads: int = 16
    """Threads that blocking handlers may take at once for one peer: its principal, or without one its session. HTTP
    requests with neither are one peer, which may take half of ``total_threads``. A thread counts until its function
    returns, even if the request was cancelled. Beyond: the call waits. At least 1."""
    total_threads: int = 64
    """Threads that blocking handlers may take at once for all peers of one server. Beyond: the call waits; waiting
    peers take turns. At least 1."""

    def __attrs_post_init__(self) -> None:
        for name, value in attrs.asdict(self).items():
            if value is None and name == "sent_message_bytes":
                continue
            if name == "resync":
                required(name, value, bool)
                continue
            least = 1 if name in ("peer_threads", "total_threads") else 0
            if not is_count(value, least):
                raise ValueError(f"{name} must be an integer of {least} or more, not {value!r}")

    @property
    def has_listeners(self) -> bool:
        """Whether stateless clients may listen for changes."""
        return self.listeners > 0 and self.total_listeners > 0

    @property
    def most_sent(self) -> int:
        """The longest message sent, in bytes."""
        return self.message_bytes if self.sent_message_bytes is None else self.sent_message_bytes


def check_time(now: Any) -> None:
    """Raise ``LocalProtocolError`` unless ``now`` is a finite number: with any other, no deadline would come."""
    if not is_amount(now, -math.inf) or now == -math.inf:
        raise LocalProtocolError(f"now must be a number of seconds on a monotonic clock, not {now!r:.60}")


def seconds(name: str, value: Any) -> float | None:
    """Return the length of time of an argument in seconds; ``None`` and infinity mean no limit.

    Raises ValueError, with the argument's name, if ``value`` is not a number of 0 or more.
    """
    if value is None or value == math.inf:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return value
    raise ValueError(f"{name} must be a number of seconds, 0 or more, or None, not {value!r:.60}")


def without_limit(value: Any) -> Any:
    """Return ``None`` for an infinite time: the converter of members that ``is_time`` validates."""
    return None if value == math.inf else value


def is_time(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    """Raise ValueError, with the member's name, for a value that ``seconds`` does not take."""
    seconds(attribute.name, value)


@attrs.frozen
class Timeout:
    """How long to wait for one answer, in seconds; ``None`` sets no limit (TIME-02, TIME-03).

    Raises ValueError for a time that is not a number of 0 or more.
    """

    total: float | None = attrs.field(default=60.0, converter=without_limit, validator=is_time)
    """Seconds from the request to its outcome. Progress never extends it."""
    idle: float | None = attrs.field(default=None, converter=without_limit, validator=is_time)
    """Seconds from the request, or from its last progress report, to the next report or the outcome."""


def checked_timeout(timeout: Any) -> Timeout:
    """Return a timeout as a ``Timeout``. Raises TypeError or ValueError for an invalid one."""
    if isinstance(timeout, Timeout):
        return timeout
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float)):
        raise TypeError(
            f"timeout must be a number of seconds, a Timeout, or None to wait for ever, not {timeout!r:.60}"
        )
    return Timeout(seconds("timeout", timeout))


class Default:
    """The type of ``DEFAULT``."""

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT: Final = Default()
"""The timeout in the connection's options."""


# --------------------------------------------------------------------------------------------------------------- ledger
# Accounting of the memory held for peers: for each peer, and for all of them together (P6).

MESSAGE_COST: Final = 512
"""Bytes that a queued message costs in addition to its text: its objects and its place in a queue."""

REQUEST_COST: Final = 4096
"""Bytes that a running request costs in addition to its parameters: records, context, a small handler."""

TYPICAL_FACTOR: Final = 12
"""How many bytes one byte of JSON text takes as Python values, for most texts; ``parsed_size`` looks closer."""

LARGEST_FACTOR: Final = 120
"""The most memory that a text takes, as a multiple of its length. ``parsed_size`` never says more: at worst every byte
begins a value."""

_NODE_COST: Final = 110
_NODES: Final = b",[{"


def parsed_size(text: bytes | bytearray | str) -> int:
    """Estimate the memory of the values of a JSON text in bytes, rarely too low.

    Each value needs a comma or a bracket before it, so counting those bounds the number of values without parsing:
    under a millisecond for each MiB. A member of an object takes most, some 110 bytes (CPython 3.11).
    """
    if isinstance(text, str):
        nodes = text.count(",") + text.count("[") + text.count("{")
    else:
        nodes = len(text) - len(text.translate(None, _NODES))
    return len(text) + _NODE_COST * nodes


def request_size(text: bytes | str, limits: Limits, running: int = 0) -> int:
    """Return how many bytes a request takes while it runs, beside ``running`` bytes of others."""
    size = REQUEST_COST + TYPICAL_FACTOR * len(text)
    if running + size > limits.peer_bytes // 8:
        # Where it takes much, or much runs already, a closer look is worth its time.
        size = REQUEST_COST + parsed_size(text)
    return size


def takes_too_much(text: bytes | str, limits: Limits) -> bool:
    """Whether the values of a JSON text would take more than ``peer_bytes``, so that it is refused as too long."""
    most = limits.peer_bytes
    # A text with more values than ``message_values`` is not read. Only small limits let the rest be too much.
    least_looked_at = len(text) + _NODE_COST * min(limits.message_values, len(text))
    return least_looked_at > most and parsed_size(text) > most


class Held:
    """Bytes held for one peer, by purpose. Each holder keeps its own count up to date."""

    __slots__ = ("bodies", "input", "output", "own", "replay", "requests", "subscriptions", "unwritten")

    input: int
    """Input that was not acted on yet: unfinished lines, and requests that wait for room."""
    bodies: int
    """Bodies of HTTP requests that are being collected."""
    requests: int
    """The parameters of the peer's requests that run."""
    output: int
    """Messages that wait to be pulled."""
    unwritten: int
    """Output that the transport has pulled and not written yet."""
    own: int
    """Outgoing requests that the transport has pulled, and that wait for their turn to be sent."""
    replay: int
    """Events that were sent and are kept for a client that resumes its stream."""
    subscriptions: int
    """The resources that the peer is subscribed to."""

    def __init__(self) -> None:
        self.input = self.bodies = self.requests = self.output = self.unwritten = self.own = 0
        self.replay = self.subscriptions = 0

    @property
    def total(self) -> int:
        """All of it."""
        waiting = self.input + self.bodies + self.output + self.unwritten + self.own
        return waiting + self.requests + self.replay + self.subscriptions

    def __repr__(self) -> str:
        parts = (f"{name}={size}" for name in self.__slots__ if (size := getattr(self, name)))
        return f"Held({', '.join(parts)})"


class Ledger:
    """Bytes held for all peers of one server, or of one program, with a bound.

    A holder is a session, an HTTP exchange without a session, or the tasks of one client. After each turn with a
    peer its driver calls ``settle`` with what the holder holds now. Above the bound, ``settle`` makes the holders
    with the most give it up, until the rest fits: a peer that holds little is never ended for one that holds much.
    """

    __slots__ = ("_holders", "limit", "total")

    limit: int
    """How much may be held in all."""
    total: int
    """How much is held now."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._holders: dict[Hashable, tuple[int, Callable[[Any], None]]] = {}

    def settle(self, holder: Hashable, size: int, give_up: Callable[[Any], None]) -> None:
        """Record that ``holder`` holds ``size`` bytes; 0 forgets it.

        ``give_up`` takes the holder, and ends it or frees what it can. It is called at most once for each ``settle``,
        possibly before this call returns, and may itself call ``settle``.
        """
        before = self._holders.pop(holder, None)
        if before is not None:
            self.total -= before[0]
        if size:
            self._holders[holder] = (size, give_up)
            self.total += size
            if self.total > self.limit:
                self._relieve()

    @property
    def is_nearly_full(self) -> bool:
        """Whether seven eighths of the bound are in use: time to refuse new peers."""
        return self.total > self.limit - self.limit // 8

    def _relieve(self) -> None:
        while self.total > self.limit and self._holders:
            # A scan of all holders, since it is rare; a heap would have to follow every change of every peer.
            heaviest = max(self._holders, key=lambda holder: self._holders[holder][0])
            size, give_up = self._holders.pop(heaviest)
            self.total -= size
            # It may call ``settle``: the holder is gone from the table by now, and the total is right.
            give_up(heaviest)
