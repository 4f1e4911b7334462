"""A recording as a ladder, for a page that stands alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from mcpio.inspecting.ladder import Ladder, LadderTap
from mcpio.observe.recording import Replay
from mcpio.observe.tap import Redactor, add_tap

__all__ = ["traced"]

MAX_ENTRIES: Final = 100_000
MAX_BYTES: Final = 64 << 20
TEXT_BYTES: Final = 1 << 20


def traced(lines: Iterable[str], *, title: str) -> dict[str, Any]:
    """Return what ``page_of`` takes, from the lines of a recording that a fresh engine replays.

    Likely secrets are removed. Raises LocalProtocolError for a malformed recording.
    """
    replay = Replay(lines)
    ladder = Ladder(lambda: 0.0, max_entries=MAX_ENTRIES, max_bytes=MAX_BYTES, text_bytes=TEXT_BYTES)
    add_tap(replay.connection, LadderTap(ladder, replay.role.value, redactor=Redactor()))
    for call in replay:
        if call.differs is not None:
            ladder.note(f"line {call.line}: {call.verb}: {call.differs}", call.at, sender=replay.role.value)
    entries = ladder.after(0, ladder.last)
    return {
        "title": title,
        "facts": f"recorded by the {replay.role.value}",
        "entries": entries,
        "texts": [ladder.text(entry["n"]) for entry in entries],
        "dropped": ladder.dropped,
    }
