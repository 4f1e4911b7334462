"""``--record FILE``: write the conversation of a command to a file, without its secrets."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from mcpio.cli.exit_status import Exit, Failure
from mcpio.observe.tap import Tap

__all__ = ["add_option", "recorder"]


def add_option(parser: argparse.ArgumentParser) -> None:
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

    try:
        # Line buffering: after a crash the file holds everything up to it.
        file = open(path, "w", encoding="utf-8", buffering=1, opener=_opened)  # noqa: SIM115  closed below
    except OSError as error:
        raise Failure(Exit.USAGE, f"cannot write {path!r}: {error.strerror or error}") from error
    try:
        yield Recorder(file.write, redactor=Redactor())
    finally:
        with suppress(OSError):  # a failed write was reported when it failed; closing fails for the same reason
            file.close()


def _opened(path: str, flags: int) -> int:
    """Open a file to write. A link, which a project may contain, is not followed, except to a device."""
    is_device = os.path.realpath(path).startswith(("/dev/", "/proc/"))
    return os.open(path, flags if is_device else flags | getattr(os, "O_NOFOLLOW", 0), 0o666)
