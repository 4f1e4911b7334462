"""What a command says: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any, TextIO

from mcpio._printable import printable
from mcpio.types.logging import LoggingMessageNotification

__all__ = ["Console", "pretty", "width"]


class Console:
    """The two outputs of a command. On a terminal, unsafe characters in a server's text appear as escapes."""

    def __init__(self, *, quiet: bool = False) -> None:
        """``quiet`` leaves out progress, log messages and notes."""
        self._quiet = quiet
        self._progress_shown = False

    def result(self, text: str) -> None:
        """Print a part of the result, and a line end unless it has one."""
        self._end_progress()
        _print(text, sys.stdout)

    def exact(self, text: str) -> None:
        """Print text as it is, for a program to read."""
        print(text, end="")

    def data(self, data: bytes) -> None:
        """Write bytes as they are."""
        # sys.stdout may be anything that can write text.
        raw = getattr(sys.stdout, "buffer", None)
        if raw is not None:
            sys.stdout.flush()
            raw.write(data)

    def failure(self, message: str) -> None:
        """Say why the command fails."""
        self._end_progress()
        _print(f"mcpio: {message}", sys.stderr)

    def note(self, text: str) -> None:
        """Say what is worth knowing and no part of the result."""
        if not self._quiet:
            self._end_progress()
            _print(text, sys.stderr)

    def log(self, message: LoggingMessageNotification) -> None:
        """Show a log message of the server's."""
        said = message.data if isinstance(message.data, str) else json.dumps(message.data, ensure_ascii=False)
        self.note(f"{message.level}{f' ({message.logger})' if message.logger else ''}: {said}")

    def server_said(self, line: str) -> None:
        """Show a line of the server's standard error."""
        self._end_progress()
        _print(f"server: {line}", sys.stderr)

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Show how far the work is: one line that changes on a terminal, a line each time elsewhere."""
        if self._quiet:
            return
        text = f"progress: {progress:g}{'' if total is None else f' of {total:g}'}{f' {message}' if message else ''}"
        if is_terminal(sys.stderr):
            self._progress_shown = True
            print(f"\r\x1b[K{printable(text)[: width() - 1]}", end="", file=sys.stderr, flush=True)
        else:
            _print(text, sys.stderr)

    def _end_progress(self) -> None:
        if self._progress_shown:
            self._progress_shown = False
            print(file=sys.stderr)


def pretty(value: Any) -> str:
    """Return a JSON value for people to read."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def width(default: int = 100) -> int:
    """Return how many columns the terminal has; ``default`` where the output is none and COLUMNS does not say."""
    return shutil.get_terminal_size((default, 24)).columns


def is_terminal(stream: TextIO | None) -> bool:
    """Whether people watch a stream."""
    return stream is not None and stream.isatty()


def _print(text: str, stream: TextIO | None) -> None:
    if stream is None:
        return  # it is closed, and print would take standard output in its place
    shown = printable(text) if is_terminal(stream) else text
    print(shown, end="" if shown.endswith("\n") else "\n", file=stream)
