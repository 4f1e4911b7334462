"""A recording as a ladder, for a page that stands alone."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import chain
from typing import Any, Final

from mcpio.engine.connection import Connection
from mcpio.inspecting.ladder import Ladder, LadderTap, Sender
from mcpio.observe.recording import Replay
from mcpio.observe.relayed import is_relayed, read_relayed
from mcpio.observe.tap import Redactor

MAX_ENTRIES: Final = 100_000
MAX_BYTES: Final = 64 << 20
TEXT_BYTES: Final = 1 << 20


def traced(lines: Iterable[str], *, title: str) -> dict[str, Any]:
    """Return what ``page_of`` takes, from the lines of a recording.

    A fresh engine replays it, except that of a relay, which had no engine. Likely secrets are removed. Raises
    LocalProtocolError for a malformed recording.
    """
    lines = iter(lines)
    first = next(lines, "")
    lines = chain([first], lines)
    ladder = Ladder(lambda: 0.0, max_entries=MAX_ENTRIES, max_bytes=MAX_BYTES, text_bytes=TEXT_BYTES)
    recorder = _add_passages(ladder, lines) if is_relayed(first) else _add_calls(ladder, lines)
    entries = ladder.after(0, ladder.last)
    return {
        "title": title,
        "facts": f"recorded by {recorder}",
        "entries": entries,
        "texts": [ladder.text(entry["n"]) for entry in entries],
        "dropped": ladder.dropped,
    }


def _add_calls(ladder: Ladder, lines: Iterable[str]) -> str:
    """Replay a recording into a ladder, and return who recorded it."""
    replay = Replay(lines, tap=LadderTap(ladder, also=partial(_note_next, ladder), redactor=Redactor()))
    for call in replay:
        if call.differs is not None:
            ladder.note(f"line {call.line}: {call.verb}: {call.differs}", call.at, sender=replay.role.value)
    return f"the {replay.role.value}"


def _note_next(ladder: Ladder, connection: Connection, now: float) -> None:
    """Add a line before each connection but the first."""
    if ladder.last:
        ladder.note("a new connection", now, sender=connection.role.value)


def _add_passages(ladder: Ladder, lines: Iterable[str]) -> str:
    """Add what a relay recorded to a ladder, and return who recorded it. It wrote no secrets."""
    scopes: dict[Any, str] = {}
    for each in read_relayed(lines):
        sender: Sender = "client" if each.from_client else "server"
        if each.text is not None:
            ladder.message(sender, each.text, each.at, via=each.via, scope=scopes.get(each.via, ""))
        elif each.http is not None and each.from_client:
            # Ids are unique within a session. Without one, each exchange stands for itself.
            in_session = "mcp-session-id" in each.http.get("headers", {})
            scopes[each.via] = "" if in_session else f" {each.via}"
            if each.http.get("method") != "POST":
                ladder.note(f"{each.http.get('method')} {each.http.get('target')}", each.at, sender=sender)
        elif each.http is not None:
            if each.http.get("status") not in (200, 202):
                ladder.note(f"HTTP {each.http.get('status')}", each.at, sender=sender)
        elif each.note is not None:
            ladder.note(each.note, each.at, sender=sender)
        else:
            ladder.note(f"a message of over {each.overlong} bytes", each.at, sender=sender, kind="long")
    return "a relay"
