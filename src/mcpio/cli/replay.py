"""``mcpio replay`` and ``trace``: show a recorded conversation, as text or as one page that anyone can open."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Generator, Hashable, Iterable
from itertools import chain
from math import inf

from mcpio.cli.demo.view import View
from mcpio.cli.exit_status import Exit, Failure
from mcpio.cli.output import Console
from mcpio.engine.connection import Connection
from mcpio.engine.stateless_engine import StatelessEngine
from mcpio.engine.table import Role
from mcpio.errors import LocalProtocolError
from mcpio.observe.recording import Replay
from mcpio.observe.relayed import is_relayed, read_relayed
from mcpio.observe.tap import Tap


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="a recording, as --record or mcpio.observe.Recorder write it")
    if parser.get_default("command") == "trace":
        parser.add_argument("-o", "--output", metavar="PAGE", help="the page to write (default: FILE.html)")


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    try:
        # Only reading converts OSError: one from the output is not the file's fault.
        with contextlib.closing(lines_of(options.file)) as lines:
            return _trace(lines, options) if options.command == "trace" else show(lines, View.for_output())
    except (LocalProtocolError, UnicodeDecodeError) as error:
        raise Failure(Exit.PROTOCOL, f"{options.file}: {error}") from error


def _trace(lines: Iterable[str], options: argparse.Namespace) -> int:
    """Write the page of a recording."""
    from mcpio.cli import lock  # mcpio replay needs none of these
    from mcpio.inspecting.ladder import NOTES
    from mcpio.inspecting.pages import page_of, traced

    output = f"{options.file}.html" if options.output is None else options.output
    described = traced(lines, title=os.path.basename(options.file))
    lock.write(output, page_of(described))
    messages = sum(entry["kind"] not in NOTES for entry in described["entries"])
    Console().result(f"{output}: {messages} messages")
    return Exit.DONE


def lines_of(path: str) -> Generator[str, None, None]:
    """Yield the lines of a file. Raises Failure if it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            yield from file
    except OSError as error:
        raise Failure(Exit.NOT_FOUND, f"cannot read {path!r}: {error.strerror or error}") from error


def show(lines: Iterable[str], view: View) -> int:
    """Show a recording. Raises Failure if the engine now behaves differently."""
    lines = iter(lines)
    first = next(lines, "")
    lines = chain([first], lines)
    if is_relayed(first):
        return _show_relayed(lines, view)
    messages = _Messages(view)
    replay = Replay(lines, tap=messages)
    began, ended, differs = inf, -inf, []
    for call in replay:
        began, ended = min(began, call.at), max(ended, call.at)
        messages.flush(call.phase.value)
        if call.differs is not None:
            differs.append(f"line {call.line}: {call.verb}: {call.differs}")
    view.end(f"recorded by the {replay.role.value}", max(0.0, ended - began))
    if differs:
        raise Failure(Exit.PROTOCOL, "\n  ".join(["the same calls give different results:", *differs[:_SHOWN]]))
    return Exit.DONE


_SHOWN = 10


def _show_relayed(lines: Iterable[str], view: View) -> int:
    """Show a relay's recording: it has no engine, and so no phases."""
    at = 0.0
    for passage in read_relayed(lines):
        at = passage.at
        if passage.http is not None:
            continue
        if passage.note is not None:
            view.note(passage.note)
            continue
        text = passage.text if passage.text is not None else f"(over {passage.overlong} bytes)"
        if passage.from_client:
            view.sent(text, "")
            view.reported("in", "")
        else:
            view.received(text, "")
            view.reported("out", "")
    view.end("recorded by a relay", at)
    return Exit.DONE


class _Messages(Tap):
    """Shows each message with the phase after it; the other side's phase is not in a recording."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._is_client: bool | None = None
        self._waiting: list[tuple[bool, str, bool]] = []

    def opened(self, connection: Connection | StatelessEngine, now: float) -> None:
        """Tell further connections from the first."""
        if self._is_client is not None:
            self._view.note("a new connection")
        self._is_client = connection.role is Role.CLIENT

    def message_received(self, text: bytes, via: Hashable, now: float) -> None:
        """Keep the message until the engine has processed it."""
        self._waiting.append((False, text.decode(errors="backslashreplace"), True))

    def message_sent(self, text: bytes, via: Hashable, now: float) -> None:
        """Keep the message until the call has ended."""
        self._waiting.append((True, text.decode(), True))

    def received(self, data: bytes | None, now: float) -> None:
        """Keep the end of input."""
        if data is None:
            self._waiting.append((False, "(end of input)", False))

    def sent(self, data: bytes | None, now: float) -> None:
        """Keep the end of output."""
        if data is None:
            self._waiting.append((True, "(end of output)", False))

    def flush(self, phase: str) -> None:
        """Show the messages kept."""
        client, server = (phase, "") if self._is_client else ("", phase)
        for is_own, text, is_message in self._waiting:
            if is_own == self._is_client:
                self._view.sent(text, client, is_message=is_message)
                self._view.reported("in", server)
            else:
                self._view.received(text, client, is_message=is_message)
                self._view.reported("out", server)
        self._waiting.clear()
