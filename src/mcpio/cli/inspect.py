"""``mcpio inspect``: a page in a browser that calls a server, answers it, and shows every message."""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, Final

import attrs
import trio

from mcpio.app.client import Client, ClientOptions
from mcpio.cli import answers, connect, lock
from mcpio.cli.exit_status import Exit, Failure
from mcpio.cli.output import Console, recorder
from mcpio.framing.json import dumps
from mcpio.inspecting import Inspector, Ladder, LadderTap, serve_page
from mcpio.observe.recording import Recorder
from mcpio.observe.tap import Redactor, add_tap
from mcpio.trio import run_until_signalled
from mcpio.view_pages import ViewPages

__all__ = ["add_arguments", "add_page_options", "run"]

RECORDED: Final = 64 << 20
"""Characters of a recording that are kept for the page."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    connect.add_options(parser)
    connect.add_words(parser)
    add_page_options(parser)
    parser.add_argument(
        "--locked",
        metavar="FILE",
        help="what mcpio lock wrote, to see changes since (default: mcpio.lock, if there)",
    )


def add_page_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that serves the page."""
    parser.add_argument(
        "--port", type=_port, default=0, metavar="PORT", help="the port of the page on 127.0.0.1 (default: a free one)"
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser")


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    connect.choose_server(options)
    connect.no_more_words(options)
    if options.locked is None and os.path.isfile(lock.FILE):
        options.locked = lock.FILE
    locked = None if options.locked is None else lock.read(options.locked)
    return run_until_signalled(partial(_run, options, locked), timeout=None)


async def _run(options: argparse.Namespace, locked: Mapping[str, Any] | None) -> int:
    console = Console(quiet=options.quiet)
    ladder = Ladder(trio.current_time)
    recording = _Recording()
    with ExitStack() as stack:
        file = stack.enter_context(recorder(options.record))
        stack.enter_context(_reports_in(ladder))

        def open_client(given: ClientOptions, tap: LadderTap) -> AbstractAsyncContextManager[Client]:
            engine = connect.engine_options(options.timeout)
            # A message that is too long is left out, and the conversation goes on.
            given["options"] = attrs.evolve(engine, limits=attrs.evolve(engine.limits, resync=True))
            return connect.open_client(options, stderr=lambda line: ladder.note(line, kind="stderr"), tap=tap, **given)

        def also(connection: Any, now: float) -> None:
            recording.begin()
            add_tap(connection, Recorder(recording.write, redactor=Redactor()), now)
            if file is not None and not recording.is_second:
                add_tap(connection, file, now)

        inspector = Inspector(
            open_client,
            ladder,
            {"target": options.target, "argv": options.server, "url": options.url},
            also=also,
            words=partial(_words, options),
            drift=None if locked is None else partial(_drift, locked),
            views=lambda: stack.enter_context(ViewPages()),
            roots=tuple(answers.root(directory) for directory in options.root),
            recording=recording.text,
        )
        try:
            async with trio.open_nursery() as nursery:
                address = await nursery.start(serve_page, inspector.server, options.port)
                announce(address, options, console)
                await inspector.run()
        except* OSError as group:
            raise Failure(Exit.NOT_LOADED, f"cannot listen: {group.exceptions[0]}") from group
    return Exit.DONE


def announce(address: str, options: argparse.Namespace, console: Console) -> None:
    """Print the address of the page, and open it if the options ask for that."""
    console.result(dumps({"url": address}).decode() if options.json else address)
    console.note("Open this address in a browser on this machine. Ctrl-C ends it.")
    if options.open:
        webbrowser.open(address)


class _Recording:
    """The recording of the newest connection, until it is too long."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._size = self._begun = 0

    @property
    def is_second(self) -> bool:
        return self._begun > 1

    def begin(self) -> None:
        self._lines, self._size = [], 0
        self._begun += 1

    def write(self, line: str) -> None:
        self._size += len(line)
        if self._size > RECORDED:
            raise ValueError("the recording is too long for the page: use --record FILE")
        self._lines.append(line)

    def text(self) -> str:
        return "".join(self._lines)


@contextmanager
def _reports_in(ladder: Ladder) -> Iterator[None]:
    """Show in the ladder what the library reports."""

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            ladder.note(f"{record.levelname.lower()}: {record.getMessage()}", sender="client")

    logger, handler = logging.getLogger("mcpio"), Notes(logging.WARNING)
    propagated = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated


def _words(options: argparse.Namespace, name: str, arguments: Mapping[str, Any]) -> str:
    """Return the command line that makes the same call, as ``mcpio call`` takes it."""
    given = [f"{key}:={dumps(value).decode()}" for key, value in arguments.items()]
    if options.after is None:
        words = ["mcpio", "call", options.target, name, *given]
    else:
        words = ["mcpio", "call", name, *given, "--", *options.after]
    return shlex.join(words)


async def _drift(locked: Mapping[str, Any], client: Client) -> list[dict[str, Any]]:
    found = await lock.definitions(client)
    return [
        {"name": name, "old": old and lock.indented(old), "new": new and lock.indented(new)}
        for name, old, new in lock.compared(locked, found)
        if old != new
    ]


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)
