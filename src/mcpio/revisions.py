"""The revisions of the protocol: a closed, ordered set."""

from __future__ import annotations

import enum

__all__ = [
    "HANDSHAKE_REVISIONS",
    "LATEST_HANDSHAKE",
    "REVISIONS",
    "REV_2024_11_05",
    "REV_2025_03_26",
    "REV_2025_06_18",
    "REV_2025_11_25",
    "REV_2026_07_28",
    "STATELESS_REVISIONS",
    "Era",
    "Revision",
]


class Era(enum.Enum):
    """How messages carry their context."""

    HANDSHAKE = "handshake"
    """``initialize`` settles revision and capabilities for every later message (up to 2025-11-25)."""
    STATELESS = "stateless"
    """Every request carries its revision and capabilities (2026-07-28)."""


class Revision:
    """A revision of the protocol. ``<`` and ``>=`` compare by age."""

    __slots__ = ("era", "has_batches", "name", "rank")

    name: str
    """The name on the wire, a date such as ``"2025-11-25"``."""
    rank: int
    """The position by age, from 0 for the oldest."""
    era: Era
    has_batches: bool
    """Whether a JSON array of messages is a message (BATCH-01, BATCH-02)."""

    def __init__(self, name: str, rank: int, era: Era, *, has_batches: bool = False) -> None:
        self.name = name
        self.rank = rank
        self.era = era
        self.has_batches = has_batches

    @staticmethod
    def parse(name: str) -> Revision | None:
        """Return the revision of a name, or ``None`` for an unknown name."""
        return _BY_NAME.get(name)

    # All four are written out: those that ``functools.total_ordering`` derives are several times as slow.

    def __lt__(self, other: Revision) -> bool:
        return self.rank < other.rank

    def __le__(self, other: Revision) -> bool:
        return self.rank <= other.rank

    def __gt__(self, other: Revision) -> bool:
        return self.rank > other.rank

    def __ge__(self, other: Revision) -> bool:
        return self.rank >= other.rank

    def __repr__(self) -> str:
        return f"<Revision {self.name}>"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return "REV_" + self.name.replace("-", "_")


REV_2024_11_05 = Revision("2024-11-05", 0, Era.HANDSHAKE)
REV_2025_03_26 = Revision("2025-03-26", 1, Era.HANDSHAKE, has_batches=True)
REV_2025_06_18 = Revision("2025-06-18", 2, Era.HANDSHAKE)
REV_2025_11_25 = Revision("2025-11-25", 3, Era.HANDSHAKE)
REV_2026_07_28 = Revision("2026-07-28", 4, Era.STATELESS)

REVISIONS = (REV_2024_11_05, REV_2025_03_26, REV_2025_06_18, REV_2025_11_25, REV_2026_07_28)
"""Every known revision, oldest first."""

HANDSHAKE_REVISIONS = REVISIONS[:4]
"""The revisions that ``initialize`` can negotiate, oldest first."""

STATELESS_REVISIONS = REVISIONS[4:]
"""The revisions without a handshake, oldest first."""

LATEST_HANDSHAKE = REV_2025_11_25
"""The revision that a client asks for by default (LIFE-03)."""

_BY_NAME = {revision.name: revision for revision in REVISIONS}
