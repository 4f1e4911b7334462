"""``mcpio trace``: a recorded conversation as one page that anyone can open."""

from __future__ import annotations

import argparse
import contextlib
import os

from mcpio.cli import lock
from mcpio.cli.exit_status import Exit, Failure
from mcpio.cli.output import Console
from mcpio.cli.replay import lines_of
from mcpio.errors import LocalProtocolError
from mcpio.inspecting.ladder import NOTES
from mcpio.inspecting.pages import page_of
from mcpio.inspecting.tracing import traced


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="a recording, as --record or mcpio.observe.Recorder write it")
    parser.add_argument("-o", "--output", metavar="PAGE", help="the page to write (default: FILE.html)")


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    output = f"{options.file}.html" if options.output is None else options.output
    try:
        with contextlib.closing(lines_of(options.file)) as lines:
            described = traced(lines, title=os.path.basename(options.file))
    except (LocalProtocolError, UnicodeDecodeError) as error:
        raise Failure(Exit.PROTOCOL, f"{options.file}: {error}") from error
    lock.write(output, page_of(described))
    messages = sum(entry["kind"] not in NOTES for entry in described["entries"])
    Console().result(f"{output}: {messages} messages")
    return Exit.DONE
