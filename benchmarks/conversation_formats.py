"""The scripts of ``tests/conversations`` played and recorded: how the two formats of conversations compare.

    python benchmarks/conversation_formats.py

Plays every script with every set of engines and every revision that it allows, with a recorder on each engine, and
replays what was recorded.
"""

from __future__ import annotations

import re
from pathlib import Path

from mcpio.engine.connection import Connection
from mcpio.engine.table import Role
from mcpio.observe import Recorder, add_tap, replay
from mcpio.testing import read_script, whole
from mcpio.testing.script_player import Player

SCRIPTS = Path(__file__).parents[1] / "tests" / "conversations"


class Recording(Player):
    """Plays a script with a recorder on each engine."""

    recordings: list[list[str]]

    def _engine(self, role: Role) -> Connection:
        lines: list[str] = []
        self.recordings.append(lines)
        connection = super()._engine(role)
        add_tap(connection, Recorder(lines.append), now=0.0)
        return connection


def main() -> None:
    """Play, record, replay and print the figures."""
    scripts = [(path, read_script(path)) for path in sorted(SCRIPTS.glob("*.txt"))]
    recordings: list[list[str]] = []
    for _, script in scripts:
        for revision in script.revisions:
            for engines in script.engines:
                player = Recording(script, revision, whole, None)
                player.recordings = recordings
                player.play(engines)
    texts = [path.read_text(encoding="utf-8") for path, _ in scripts]
    steps = [line for text in texts for line in text.splitlines() if line and not re.match(r"#|\w+: ", line)]
    lines = [line for recording in recordings for line in recording]
    for recording in recordings:
        for _ in replay(recording):
            pass
    size = sum(map(len, lines))
    header = sum(len(recording[0]) for recording in recordings) // len(recordings)
    print(f"scripts:    {len(scripts)} files, {len(steps):,} steps, {sum(map(len, texts)):,} characters")
    print(f"recordings: {len(recordings):,} of them, {len(lines):,} lines, {size:,} characters; all replay")
    print(f"header:     {header:,} characters on average")


if __name__ == "__main__":
    main()
