"""The display of a conversation: a row for each message, with the phases of both sides beside it."""

from __future__ import annotations

import os
import textwrap
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import attrs

from mcpio._printable import printable
from mcpio.cli.output import is_terminal, open_stdout, width

REPORT: Final = "phase"
"""The first word of the lines that report the server's phase; a direction and the phase follow."""

PHASE_COLUMNS: Final = 13
NARROW: Final = 72
"""Below this many columns the phases get a separate line."""
LEAST_ROOM: Final = 24
"""The least number of characters of a message per line, however narrow the terminal."""
MOST_LINES: Final = 3
MOST_CHARACTERS: Final = 210
"""A message is cut after MOST_LINES lines, but never below this many characters."""

BOLD, DIM, CYAN, GREEN, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[32m", "\x1b[0m"
ARROWS: Final = {"in": ("-->", CYAN), "out": ("<--", GREEN), "note": ("---", DIM)}


@attrs.frozen
class Row:
    """A message, as the client saw it."""

    direction: str
    """``"in"`` or ``"out"``, as seen by the server; ``"note"`` for a line of neither side."""
    text: str
    client: str
    """The client's phase."""
    is_message: bool = True
    """False for a line between messages, which is not counted."""


class View:
    """Prints rows in the client's order of messages, each as soon as the server's phase is known too."""

    def __init__(self, write: Callable[[str], object], columns: int, *, colour: bool) -> None:
        self._write = write
        self._columns = columns
        self._colour = colour
        self._steps = 0
        self._rows = 0
        self._waiting: deque[Row | str] = deque()
        self._reports: Mapping[str, deque[str]] = {direction: deque() for direction in ARROWS}

    @classmethod
    def for_output(cls) -> View:
        """Return a view on standard output, in colour on a terminal unless NO_COLOR is set."""
        terminal = is_terminal(open_stdout()) and os.environ.get("TERM") != "dumb"
        return cls(lambda text: print(text, flush=True), width(), colour=terminal and not os.environ.get("NO_COLOR"))

    @property
    def complete(self) -> bool:
        """Whether every message was shown."""
        return not self._waiting

    def title(self, pid: int) -> None:
        """Print the heading."""
        self._lines(f"A client (this process, {os.getpid()}) and a server (its child, {pid}) talk MCP over two pipes.")
        self._lines("Shown is each message as it went over the pipe, and the phase of each side after it.")
        if self._columns >= NARROW:
            self._write("")
            message = self._columns - 2 * PHASE_COLUMNS
            self._write(
                self._styled(f"{'client':{PHASE_COLUMNS}}{'message':{message}}{'server':>{PHASE_COLUMNS}}", BOLD)
            )

    def step(self, text: str) -> None:
        """Print the heading of a part of the conversation."""
        self._steps += 1
        self._put(f"{self._steps}. {text}")

    def sent(self, text: str, phase: str, *, is_message: bool = True) -> None:
        """Add a message from the client, or its end of output, with the client's phase after it."""
        self._put(Row("in", text, phase, is_message))

    def received(self, text: str, phase: str, *, is_message: bool = True) -> None:
        """Add a message from the server, or its end of output, with the client's phase after it."""
        self._put(Row("out", text, phase, is_message))

    def note(self, text: str) -> None:
        """Add a line of neither side."""
        self._put(Row("note", text, "", is_message=False))
        self.reported("note", "")

    def reported(self, direction: str, phase: str) -> None:
        """Add the server's phase after the next message of a direction."""
        self._reports[direction].append(phase)
        # The caller reads the server's standard error and cannot handle a failed write; the next message fails again.
        with suppress(OSError):
            self._flush()

    def end(self, text: str, seconds: float) -> None:
        """Print the summary."""
        self._write("")
        self._lines(f"Done: {self._rows} messages in {seconds:.1f} s; {text}.")

    def _put(self, item: Row | str) -> None:
        self._waiting.append(item)
        self._flush()

    def _flush(self) -> None:
        while self._waiting:
            item = self._waiting[0]
            if isinstance(item, Row):
                reports = self._reports[item.direction]
                if not reports:
                    return
                self._show(item, reports[0])
                reports.popleft()
            else:
                self._write("")
                self._lines(item, BOLD)
            self._waiting.popleft()

    def _show(self, row: Row, server: str) -> None:
        arrow, colour = ARROWS[row.direction]
        narrow = self._columns < NARROW
        room = max(self._columns - 4 - (0 if narrow else 2 * PHASE_COLUMNS), LEAST_ROOM)
        for number, line in enumerate(_cut(printable(row.text), room)):
            shown = self._styled(f"{'   ' if number else arrow} {line:{room}}", colour)
            if narrow:
                self._write(shown.rstrip())
            elif number:
                self._write(f"{'':{PHASE_COLUMNS}}{shown}".rstrip())
            else:
                self._write(f"{row.client:{PHASE_COLUMNS}}{shown}{server:>{PHASE_COLUMNS}}")
        phases = [f"{side} {phase}" for side, phase in (("client", row.client), ("server", server)) if phase]
        if narrow and phases:
            self._write(self._styled(f"    {', '.join(phases)}", DIM))
        self._rows += row.is_message

    def _lines(self, text: str, style: str = "") -> None:
        for line in textwrap.wrap(text, max(self._columns, LEAST_ROOM)):
            self._write(self._styled(line, style) if style else line)

    def _styled(self, text: str, style: str) -> str:
        return f"{style}{text}{PLAIN}" if self._colour else text


def _cut(text: str, room: int) -> list[str]:
    """Break a text into lines of ``room`` characters, and cut it if it is long."""
    most = room * max(MOST_LINES, MOST_CHARACTERS // room)
    if len(text) > most:
        left_out = f"... ({len(text)} characters)"
        text = text[: most - len(left_out)] + left_out
    return [text[start : start + room] for start in range(0, len(text), room)]
