"""Accounting of the memory held for peers: for each peer, and for all of them together (P6)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mcpio.engine.limits import Limits

__all__ = ["MESSAGE_COST", "REQUEST_COST", "Held", "Ledger", "parsed_size", "takes_too_much"]

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
        known = self._holders.pop(holder, None)
        if known is not None:
            self.total -= known[0]
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
