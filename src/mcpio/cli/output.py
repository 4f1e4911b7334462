"""The output of a command: results on standard output, everything else on standard error.

Results are shown for people unless ``--json`` asks otherwise: text as it is, structured content as indented JSON, and
everything else as a description of one line.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal, TextIO

from mcpio._printable import printable
from mcpio.app.client import Client
from mcpio.cli.exit_status import Exit, Failure
from mcpio.codec import Codec, codec
from mcpio.framing.json import JsonError, dumps, loads
from mcpio.observe.tap import Tap
from mcpio.revisions import LATEST_HANDSHAKE
from mcpio.types.content import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from mcpio.types.features import CallToolResult, LoggingMessageNotification


class Console:
    """Standard output and standard error. On a terminal, control characters in a server's text are escaped."""

    def __init__(self, *, quiet: bool = False) -> None:
        """``quiet`` suppresses progress, log messages and notes."""
        self._quiet = quiet
        self._progress_shown = False

    def result(self, text: str) -> None:
        """Print a part of the result; end it with a newline. Raises Failure if standard output is closed."""
        self._end_progress()
        _print(text, open_stdout())

    def exact(self, text: str) -> None:
        """Print text unchanged for programs; on a terminal as a result."""
        if is_terminal(open_stdout()):
            self.result(text)
        else:
            print(text, end="")

    def data(self, data: bytes) -> None:
        """Write bytes unchanged for programs; on a terminal as text, or describe them."""
        if is_terminal(open_stdout()):
            try:
                self.result(data.decode())
            except UnicodeDecodeError:
                self.result(f"[binary: {len(data)} bytes]")
            return
        # A replaced sys.stdout may be text only.
        raw = getattr(sys.stdout, "buffer", None)
        if raw is not None:
            sys.stdout.flush()
            raw.write(data)

    def failure(self, message: str) -> None:
        """Print why the command fails."""
        self._end_progress()
        _print(f"mcpio: {message}", sys.stderr)

    def note(self, text: str) -> None:
        """Print a note, unless quiet."""
        if not self._quiet:
            self._end_progress()
            _print(text, sys.stderr)

    def question(self, text: str) -> None:
        """Print a question of the server to the user."""
        self._end_progress()
        _print(text, sys.stderr)

    def log(self, message: LoggingMessageNotification) -> None:
        """Print a log message from the server, unless quiet."""
        text = message.data if isinstance(message.data, str) else json.dumps(message.data, ensure_ascii=False)
        self.note(f"{message.level}{f' ({message.logger})' if message.logger else ''}: {text}")

    def server_said(self, line: str) -> None:
        """Print a line of the server's standard error."""
        self._end_progress()
        _print(f"server: {line}", sys.stderr)

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Print progress: on a terminal one line that is rewritten, elsewhere a line for each report."""
        if self._quiet:
            return
        of = "" if total is None else f" of {_amount(total)}"
        text = f"progress: {_amount(progress)}{of}{f' {message}' if message else ''}"
        if is_terminal(sys.stderr):
            self._progress_shown = True
            print(f"\r\x1b[K{printable(text)[: width() - 1]}", end="", file=sys.stderr, flush=True)
        else:
            _print(text, sys.stderr)

    def _end_progress(self) -> None:
        if self._progress_shown:
            self._progress_shown = False
            print(file=sys.stderr)


def codec_of(client: Client) -> Codec:
    """Return the codec of the client's revision."""
    return codec(client.connection.revision or LATEST_HANDSHAKE)


def as_json(client: Client, result: Any) -> str:
    """Return a result as the server sent it, on one line."""
    return dumps(codec_of(client).encode(result)).decode()


def result_texts(result: CallToolResult, show: Callable[[Any], str] | None = None) -> Iterator[str]:
    """Yield the printable parts of a tool's result; ``show`` turns a block into text, by default ``block_text``.

    Servers repeat structured content as text for older clients (TOOL-15); it is shown once.
    """
    structured = result.structured_content
    is_structured = result.has_structured_content
    for block in result.content:
        if is_structured and isinstance(block, TextContent) and _is_json_of(block.text, structured):
            continue
        yield (show or block_text)(block)
    if is_structured:
        yield json.dumps(structured, indent=2, ensure_ascii=False)


def block_text(block: Any) -> str:
    """Return a content block as text."""
    match block:
        case TextContent():
            return block.text
        case ImageContent():
            return f"[image: {block.mime_type}, {_size(block.data)}]"
        case AudioContent():
            return f"[audio: {block.mime_type}, {_size(block.data)}]"
        case ResourceLink():
            kind = f", {block.mime_type}" if block.mime_type else ""
            return f"[resource: {block.uri}, {block.title or block.name}{kind}]"
        case EmbeddedResource():
            return contents_text(block.resource)
    return f"[content of the unknown type {block.type!r}]"


def contents_text(contents: TextResourceContents | BlobResourceContents) -> str:
    """Return the contents of a resource as text."""
    if isinstance(contents, TextResourceContents):
        return contents.text
    return f"[binary: {contents.uri}, {contents.mime_type or 'of unknown type'}, {_size(contents.blob)}]"


def width(default: int = 100) -> int:
    """Return the terminal's width in columns; ``default`` without a terminal and without COLUMNS."""
    return shutil.get_terminal_size((default, 24)).columns


def open_stdout() -> TextIO:
    """Return standard output. Raises Failure if the command was started without it: the result would be lost."""
    if sys.stdout is None:
        raise Failure(Exit.UNWRITABLE, "cannot write: standard output is closed")
    return sys.stdout


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal."""
    return stream is not None and stream.isatty()


def _amount(value: float) -> str:
    """Return a number of a server for people: an integer in JSON may be too large for a float."""
    try:
        return f"{value:g}"
    except OverflowError:
        return f"{str(value)[:20]}..."


def _print(text: str, stream: TextIO | None) -> None:
    if stream is None:
        return  # closed; print() would write to standard output instead
    shown = printable(text) if is_terminal(stream) else text
    print(shown, end="" if shown.endswith("\n") else "\n", file=stream)


def _is_json_of(text: str, structured: Any) -> bool:
    try:
        return bool(loads(text) == structured)
    except JsonError:
        return False


def _size(base64: str) -> str:
    """Return the size of base64 data, decoded, for people."""
    size = len(base64) * 3 // 4 - base64[-2:].count("=")
    return f"{size} bytes" if size < 10_000 else f"{size / 1024:.0f} KiB"


# --------------------------------------------------------------------------------------------------------- ``--record``


def add_record_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--record``."""
    parser.add_argument(
        "--record",
        metavar="FILE",
        help="write the conversation to a file, with likely secrets removed; mcpio replay FILE shows it",
    )


@contextmanager
def recorder(path: str | None) -> Iterator[Tap | None]:
    """Yield a tap that writes to a file, or ``None`` without a path. Raises Failure if the file cannot be written."""
    if path is None:
        yield None
        return
    from mcpio.observe.recording import Recorder
    from mcpio.observe.tap import Redactor

    with opened(path) as file:
        yield Recorder(file.write, redactor=Redactor())


@contextmanager
def opened(path: str, mode: Literal["w", "a"] = "w") -> Iterator[TextIO]:
    """Yield a file, new or to append to, whose lines are written one by one. Raises Failure if it cannot be written."""
    try:
        # Line buffering: after a crash the file holds everything up to it.
        file = open(path, mode, encoding="utf-8", buffering=1, opener=_open_new)  # noqa: SIM115  closed below
    except OSError as error:
        raise Failure(Exit.USAGE, f"cannot write {path!r}: {error.strerror or error}") from error
    try:
        yield file
    finally:
        with suppress(OSError):  # a failed write was reported when it failed; closing fails for the same reason
            file.close()


def is_device(path: str) -> bool:
    """Whether a path is written to in place: a device such as ``/dev/stdout``, a link to one, or a named pipe."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    if not stat.S_ISREG(mode):
        return not stat.S_ISDIR(mode)
    # /dev/stdout and its like are links to a regular file where the output is redirected.
    return os.path.islink(path) and os.path.abspath(path).startswith(("/dev/", "/proc/"))


def _open_new(path: str, flags: int) -> int:
    """Open a file to write. A link, which a project may contain, is not followed, except to a device."""
    return os.open(path, flags if is_device(path) else flags | getattr(os, "O_NOFOLLOW", 0), 0o666)
