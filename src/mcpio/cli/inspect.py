"""``mcpio inspect``: a page in a browser that calls a server, answers it, and shows every message."""

from __future__ import annotations

import argparse
import json  # escapes all but ASCII
import logging
import os
import re
import shlex
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, Final

import attrs
import trio

from mcpio.app.client import Client, ClientOptions
from mcpio.cli import answers, connect, lock, targets
from mcpio.cli.exit_status import Exit, Failure
from mcpio.cli.output import Console, recorder
from mcpio.cli.targets import SOCKET_SCHEMES, WEBSOCKET, parse_socket_url
from mcpio.engine.connection import Connection
from mcpio.framing.json import dumps
from mcpio.inspecting.backend import Inspector
from mcpio.inspecting.ladder import Ladder, LadderTap
from mcpio.inspecting.pages import serve_page
from mcpio.observe.recording import Recorder, Replay
from mcpio.observe.tap import Redactor, Tap, add_tap
from mcpio.trio import run_until_signalled
from mcpio.view_pages import ViewPages

RECORDED: Final = 32 << 20
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
    parser.add_argument(
        "--max-message",
        type=_mebibytes,
        default=16 << 20,
        metavar="MIB",
        help="the longest message that is read, in MiB; longer ones are skipped, and end their call (default: 16)",
    )


def add_page_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that serves the page."""
    parser.add_argument(
        "--port",
        type=targets.parse_port,
        default=0,
        metavar="PORT",
        help="the port of the page on 127.0.0.1 (default: a free one)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser")


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    words = _connection_words(options)  # before a configuration adds what it says
    connect.choose_server(options)
    connect.no_more_words(options)
    if options.locked is None and os.path.isfile(lock.FILE):
        options.locked = lock.FILE
    locked = None if options.locked is None else lock.read(options.locked)
    return run_until_signalled(partial(_run, options, words, locked), timeout=None)


async def _run(options: argparse.Namespace, words: Sequence[str], locked: Mapping[str, Any] | None) -> int:
    console = Console(quiet=options.quiet)
    answered = answers.without_terminal(options)
    ladder = Ladder(trio.current_time)
    with ExitStack() as stack:
        recording = Recording(stack.enter_context(recorder(options.record)))
        stack.enter_context(_reports_in(ladder))

        def open_client(of_client: ClientOptions, tap: LadderTap) -> AbstractAsyncContextManager[Client]:
            engine = connect.engine_options(options.timeout)
            # A message that is too long is left out, and the conversation goes on.
            limits = attrs.evolve(engine.limits, resync=True, message_bytes=options.max_message)
            of_client["options"] = attrs.evolve(engine, limits=limits)
            return connect.open_client(options, stderr=server_said, tap=tap, **of_client)

        def server_said(line: str) -> None:
            ladder.note(line, kind="stderr")
            if options.verbose:
                console.server_said(line)

        inspector = Inspector(
            open_client,
            ladder,
            {"target": options.target},
            also=recording.add_to,
            words=partial(_words, options, words),
            opener=_opener(options),
            drift=None if locked is None else partial(_drift, locked),
            views=lambda: stack.enter_context(ViewPages()),
            roots=tuple(answers.root(directory) for directory in options.root),
            sampling=answered.get("sampling"),
            explained=lambda error: connect.explained(error, options).message,
            recording=lambda: without_secrets(recording.lines()),
        )
        try:
            async with trio.open_nursery() as nursery:
                try:
                    address = await nursery.start(serve_page, inspector.server, options.port)
                except OSError as error:
                    raise Failure(Exit.NOT_LOADED, f"cannot listen: {error}") from error
                announce(address, options, console)
                await inspector.run()
        except ExceptionGroup as group:
            # Not ``except*``: Python 3.11.2 wraps what is raised there in a group again.
            failure = group.exceptions[0]
            if isinstance(failure, Failure):
                raise failure from None
            raise
    return Exit.DONE


def announce(address: str, options: argparse.Namespace, console: Console) -> None:
    """Print the address of the page, and open it if the options ask for that."""
    console.result(dumps({"url": address}).decode() if options.json else address)
    console.note("Open this address in a browser on this machine. Ctrl-C ends it.")
    if options.open:
        webbrowser.open(address)


class Recording:
    """The recording of the connections, in memory: of the newest only, if all of them are too long."""

    def __init__(self, file: Tap | None = None) -> None:
        """``file`` records the same without secrets."""
        self._file = file
        self._lines: list[str] = []
        self._size = self._newest = 0

    def add_to(self, connection: Connection, now: float) -> None:
        """Record a connection."""
        self._newest = len(self._lines)
        if not self._lines:
            self._size = 0
        add_tap(connection, Recorder(self.write), now)  # in memory only: secrets are removed when it is saved
        if self._file is not None:
            try:
                add_tap(connection, self._file, now, report=self._report)
            except OSError as error:
                self._report("", error)

    @staticmethod
    def _report(_: str, error: BaseException | None) -> None:
        reason = getattr(error, "strerror", None) or error
        logging.getLogger("mcpio").warning("the recording ends here: %s", reason)

    def write(self, line: str) -> None:
        """Keep a line."""
        self._lines.append(line)
        self._size += len(line)
        if self._size > RECORDED and self._newest:
            del self._lines[: self._newest]
            self._newest, self._size = 0, sum(map(len, self._lines))
        if self._size > RECORDED:
            self._lines.clear()

    def lines(self) -> list[str]:
        """Return the lines. Raises ValueError if nothing is recorded yet, or the recording is too long to keep."""
        if self._size > RECORDED:
            raise ValueError(f"the recording is longer than {RECORDED >> 20} MiB: use --record FILE")
        if not self._lines:
            raise ValueError("nothing is recorded yet")
        return list(self._lines)


def without_secrets(lines: Sequence[str]) -> str:
    """Return a recording with likely secrets removed: a fresh engine replays it, and is recorded.

    Raises ValueError if the engine behaves differently, because the rest would then be of another conversation.
    """
    lines_out: list[str] = []
    for call in Replay(lines, tap=Recorder(lines_out.append, redactor=Redactor())):
        if call.differs is not None:
            raise ValueError(f"line {call.line}: {call.verb}: {call.differs}: use --record FILE")
    return "".join(lines_out)


@contextmanager
def _reports_in(ladder: Ladder) -> Iterator[None]:
    """Show the library's log messages in the ladder."""

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


def _connection_words(options: argparse.Namespace) -> list[str]:
    """Return the options of the connection, as they were given."""
    words = [word for name, value in options.env for word in ("-e", f"{name}={value}")]
    words += [word for name, value in options.header for word in ("--header", f"{name}: {value}")]
    words += [word for name in ("auth", "cwd") if (value := getattr(options, name)) for word in (f"--{name}", value)]
    return [*words, "--inherit-env"] if options.inherit_env else words


def _words(options: argparse.Namespace, connection: Sequence[str], name: str, arguments: Mapping[str, Any]) -> str:
    """Return the command line that makes the same call, as ``mcpio call`` takes it.

    Raises ValueError for names of the server that would not stay one word: a leading hyphen makes an option (-- already
    begins the server's command), control characters act on a terminal, and a backslash ends the quotes in fish.
    """
    if any(each.startswith("-") or "\\" in each or not each.isprintable() for each in (name, *arguments)):
        raise ValueError("a command line cannot hold the name of the tool or of an argument safely")
    if any("=" in key or not key for key in arguments):
        raise ValueError("mcpio call cannot take an argument whose name is empty or has an equals sign")
    pairs = [f"{key}:={_printable_json(value)}" for key, value in arguments.items()]
    if options.after is None:
        words = ["mcpio", "call", *connection, options.target, name, *pairs]
    else:
        words = ["mcpio", "call", *connection, name, *pairs, "--", *options.after]
    return shlex.join(words)


def _printable_json(value: Any) -> str:
    """Return JSON without characters that a terminal acts upon."""
    text = dumps(value).decode()
    return text if text.isprintable() else json.dumps(value).replace("\x7f", "\\u007f")


def _opener(options: argparse.Namespace) -> tuple[list[str], str]:
    """Return the imports and the expression with which a program opens such a client."""
    url: str | None = options.url
    imports = []
    if url is None:
        opener, arguments = "open_stdio", [repr(options.server)]
        arguments += [f"env={_in_python(options.env)}"] if options.env else []
        arguments += [f"{name}={value!r}" for name in ("inherit_env", "cwd") if (value := getattr(options, name))]
    elif url.startswith(SOCKET_SCHEMES):
        where = parse_socket_url(url)
        opener, address = ("open_unix", [where]) if isinstance(where, str) else ("open_tcp", [where.host, where.port])
        arguments = [repr(each) for each in address]
    else:
        by_websocket = url.startswith(WEBSOCKET)
        opener, arguments = "open_websocket" if by_websocket else "open_http", [repr(url)]
        if (login := connect.stored_login(options)) is not None:
            imports.append("from mcpio.auth import OAuth")
            arguments += [f"auth=OAuth(account={login.account!r})", "interaction='never'"]
        if options.header:
            headers = f"headers={_in_python(options.header)}"
            imports += [] if by_websocket else ["from mcpio.http import HttpClientOptions"]
            arguments.append(headers if by_websocket else f"http=HttpClientOptions({headers})")
    expression = f"{opener}({', '.join(arguments)})"
    first = ["import os", ""] if "os.environ" in expression else []
    return [*first, "import trio", "", *imports, f"from mcpio.trio import {opener}"], expression


def _in_python(pairs: Sequence[tuple[str, str]]) -> str:
    """Return texts by name as Python. Likely secrets are taken from the environment."""
    values = dict(pairs)
    shown = Redactor().message(values)
    variables = {name: re.sub("[^A-Z0-9]", "_", name.upper()) for name in values}
    expressions = {
        name: repr(value) if shown[name] == value else f"os.environ[{variables[name]!r}]" for name, value in pairs
    }
    return f"{{{', '.join(f'{name!r}: {value}' for name, value in expressions.items())}}}"


async def _drift(locked: Mapping[str, Any], client: Client) -> list[dict[str, Any]]:
    current = await lock.definitions(client)
    return [{"name": name, "old": old, "new": new} for name, old, new in lock.compared(locked, current) if old != new]


def _mebibytes(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 1024:
        raise argparse.ArgumentTypeError(f"must be a whole number of MiB from 1 to 1024, not {text!r:.100}")
    return int(text) << 20
