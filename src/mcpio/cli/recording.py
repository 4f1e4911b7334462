"""``--record FILE``: the conversation of a command, written down without its secrets."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from mcpio.cli.failures import Exit, Failure
from mcpio.observe.tap import Tap

__all__ = ["add_option", "recorder"]


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add the option."""
    parser.add_argument(
        "--record",
        metavar="FILE",
        help="write the conversation to a file, without what looks secret; mcpio replay FILE shows it",
    )


@contextmanager
def recorder(path: str | None) -> Iterator[Tap | None]:
    """Give a tap that writes to a file, ``None`` without one. ``Failure`` where the file cannot be written."""
    if path is None:
        yield None
        return
    from mcpio.observe.recording import Recorder
    from mcpio.observe.redaction import Redactor

    try:
        # Line by line, so that what led to a sudden end is there.
        file = open(path, "w", encoding="utf-8", buffering=1)  # noqa: SIM115  closed below
    except OSError as error:
        raise Failure(Exit.USAGE, f"cannot write {path!r}: {error.strerror or error}") from error
    try:
        yield Recorder(file.write, redactor=Redactor())
    finally:
        with suppress(OSError):  # what could not be written was reported when it was to be
            file.close()
