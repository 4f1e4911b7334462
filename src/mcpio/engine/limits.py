"""Limits (P6): one table for every transport; each bound says what happens beyond it."""

from __future__ import annotations

import math
from typing import Any, Final

import attrs

__all__ = ["DEFAULT", "Default", "Limits", "Timeout", "seconds"]

MIB = 1024 * 1024


@attrs.frozen(kw_only=True)
class Limits:
    """Bounds of one connection. Sizes are in bytes, all others are counts. Raises ValueError for a negative bound."""

    message_bytes: int = 16 * MIB
    """The longest message taken in. Beyond: answered with -32600, then the connection closes (``message-too-large``),
    or goes on with the next message where ``resync`` is set. The default is what deployed peers use (SEC-10)."""
    resync: bool = False
    """Skip an overlong line and go on, instead of closing."""
    sent_message_bytes: int | None = None
    """The longest message sent; ``None`` for ``message_bytes``. Beyond: ``MessageTooLarge`` where it is made. A request
    whose answer would be longer gets a result or an error that says so instead."""
    incoming_requests: int = 4096
    """How many requests of the peer may run at once. Beyond: the request is refused with -32603 and not run."""
    outgoing_requests: int = 65536
    """How many outgoing requests may wait at once. Beyond: ``LocalProtocolError``."""
    outgoing_tasks: int = 1024
    """How many outgoing requests that became tasks are remembered until they are over (2025-11-25). Beyond: the
    oldest is forgotten; its progress is ignored, and ``cancel_request`` has no effect on it."""
    batch_items: int = 1024
    """The longest batch (2025-03-26 only). Beyond: the whole batch is refused with -32600."""
    peer_bytes: int = 512 * MIB
    """How much may be held for one peer: input, running requests, output, events kept for resumption and
    subscriptions, by their size in memory. While the requests that run take half of it, further ones wait; a message
    that alone would take more is refused as too long. Tasks have limits of their own (``TaskLimits``)."""
    total_bytes: int = 1024 * MIB
    """How much may be held for all peers of one server. Above seven eighths of it, new sessions are refused (over HTTP
    with status 503). Beyond: the peer that holds most is ended (``overloaded``)."""
    queued_bytes: int = 64 * MIB
    """How much output may wait. Beyond half of it: outgoing requests are ``OutputFull``. Beyond: a peer that reads
    nothing for 30 seconds is ended (``slow-consumer``); at once where so much waits beside responses of handlers."""
    high_water: int = 4 * MIB
    """Above this much waiting output, other than outgoing requests, the peer's requests wait too: ``next_event`` gives
    out none, and ``wants_read`` is false unless an answer is awaited. A peer that reads loses nothing."""
    queued_logs: int = 1024
    """How many log messages may wait. Beyond: the oldest is dropped and counted."""
    logs_per_second: int = 1000
    """How many log messages a server sends to one client in a second. Beyond: left out, and counted (LOG-07)."""
    subscriptions: int = 4096
    """How many resources one client may be subscribed to. Beyond: the request is refused with -32603."""
    subscription_bytes: int = 4 * MIB
    """How much memory their URIs may take. Beyond: as above."""
    retired_ids: int = 256
    """How many cancelled or timed-out ids are remembered, so that a late answer is told from a wrong one.
    Beyond: the oldest is forgotten."""
    sessions: int = 10_000
    """How many sessions an HTTP server keeps. Beyond: the one that was idle for longest ends, and where none is idle
    the new client is refused with status 503."""
    streams: int = 1024
    """How many requests of one HTTP session may be open at once, of any method, and how many of its streams,
    including broken ones that may be resumed. Beyond: status 503."""
    exchanges: int = 20_000
    """How many HTTP requests a server works on at once, over all sessions; without sessions, those too whose clients
    are gone. Beyond: status 503."""
    replay_events: int = 1024
    """How many sent events of finished streams an HTTP session keeps, for clients whose connection broke. Beyond: the
    oldest is forgotten. A client that asks for a stream of which nothing is left gets status 410. The events of a
    stream that has not ended are kept in any case, within ``peer_bytes``."""
    replay_bytes: int = 32 * MIB
    """How many bytes of them. Beyond: as above. The default is twice the longest message."""

    peer_threads: int = 16
    """How many threads blocking handlers may take at once for one peer: its principal, or without one its session (over
    HTTP without sessions, its request). A thread counts until its function returns, also when the request was given
    up. Beyond: the call waits. At least 1, as ``total_threads``."""
    total_threads: int = 64
    """How many they may take for all peers of one server. Beyond: likewise; peers that wait take turns."""

    def __attrs_post_init__(self) -> None:
        for name, value in attrs.asdict(self).items():
            if value is None and name == "sent_message_bytes":
                continue
            least = 1 if name in ("peer_threads", "total_threads") else 0
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an integer of {least} or more, not {value!r}")

    @property
    def most_sent(self) -> int:
        """The longest message sent, in bytes."""
        return self.message_bytes if self.sent_message_bytes is None else self.sent_message_bytes


def seconds(value: Any) -> float | None:
    """Return a length of time in seconds; ``None`` and infinity mean no limit.

    Raises ValueError if ``value`` is not a number of 0 or more.
    """
    if value is None or value == math.inf:
        return None
    if isinstance(value, int | float) and value >= 0:
        return value
    raise ValueError(f"a time is a number of seconds, 0 or more, not {value!r}")


@attrs.frozen
class Timeout:
    """How long to wait for one answer, in seconds; ``None`` sets no limit (TIME-02, TIME-03).

    Raises ValueError for a time that is not a number of 0 or more.
    """

    total: float | None = attrs.field(default=60.0, converter=seconds)
    """From the request to its outcome. Progress never extends it."""
    idle: float | None = attrs.field(default=None, converter=seconds)
    """From the request, or the last progress on it, to the next sign of life."""


class Default:
    """The type of ``DEFAULT``."""

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT: Final = Default()
"""Stands for the timeout in the connection's options."""
