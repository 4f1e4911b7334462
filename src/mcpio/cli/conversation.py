"""A conversation with a server that is started for one command: how to say which, and how it is held."""

from __future__ import annotations

import argparse
import math
import os
import shlex
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import mcpio
from mcpio.app.client import Client
from mcpio.cli import recording, sockets
from mcpio.cli.console import Console
from mcpio.cli.failures import Exit, Failure, explained
from mcpio.engine.limits import Timeout
from mcpio.engine.options import Options
from mcpio.errors import McpError
from mcpio.observe.tap import Tap
from mcpio.trio import open_stdio, run_until_signalled
from mcpio.types.lifecycle import Implementation

if TYPE_CHECKING:
    from mcpio.trio._drivers import ConnectOptions, TrioClientContext

__all__ = ["Work", "add_options", "add_words", "choose_server", "hold", "next_word", "no_more_words", "run"]

WEBSOCKET = ("ws://", "wss://", "ws+unix://", "wss+unix://")
URLS = ("http://", "https://", "http+unix://", "https+unix://", *WEBSOCKET, *sockets.SCHEMES)
"""How a server begins that is not started."""

GRACE = 1.0
"""Seconds that a server has to end by itself, and again after it was told to."""

Work: TypeAlias = Callable[[Client, argparse.Namespace, Console], Awaitable[int]]
"""What a command does with a server; returns the exit status."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that all commands with a server take."""
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, log messages and notes")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="show what the server writes to its standard error"
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=60.0,
        metavar="SECONDS",
        help="how long to wait for each answer; 0 waits for ever (default: 60)",
    )
    parser.add_argument(
        "-e",
        "--env",
        type=_variable,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable for the server's environment, beside HOME, PATH and the like; may be repeated",
    )
    parser.add_argument(
        "--header",
        type=_header,
        action="append",
        default=[],
        metavar="NAME:VALUE",
        help="a header field of every request to a URL, such as 'Authorization: Bearer ...'; may be repeated",
    )
    parser.add_argument("--inherit-env", action="store_true", help="give the server all of this environment")
    recording.add_option(parser)
    parser.add_argument("--cwd", type=_directory, metavar="DIRECTORY", help="where the server runs")


def add_words(parser: argparse.ArgumentParser, *words: str) -> None:
    """Add the server's command and ``words``, and say in the usage how a server is named."""
    said = " ".join(words)
    parser.usage = f"%(prog)s [options] {' '.join(['SERVER', *words])}\n       %(prog)s [options] {said}".rstrip()
    parser.usage += " -- PROGRAM [ARG ...]"
    parser.epilog = (
        "SERVER is the server's command in quotes, such as 'python server.py', or where it is: http://, https://, "
        "ws://, wss://, http+unix://, ws+unix:// and tcp://HOST:PORT, or unix:PATH; or give the words of the command "
        "after --."
    )
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    parser.set_defaults(after=None)


def choose_server(options: argparse.Namespace) -> None:
    """Set ``options.server``: what stood after ``--``, or else the first word, taken out and split as a shell would.

    A word that is a URL stays whole, and is ``options.url`` too. ``Failure`` where there is none, the quotes do not
    match, or an option does not go with such a server.
    """
    options.server = options.after
    options.url = None
    if options.after is None:
        text = next_word(options, "server")
        if text.startswith(URLS):
            options.server = [text]
            options.url = _checked_url(text, options)
            return
        try:
            options.server = shlex.split(text)
        except ValueError as error:
            raise Failure(Exit.USAGE, f"cannot split the server's command {text!r}: {error}") from error
    if not options.server:
        raise Failure(Exit.USAGE, "no server: give its command in quotes, or its words after --")
    if options.header:
        raise Failure(Exit.USAGE, "--header is for servers at a URL")


def next_word(options: argparse.Namespace, what: str) -> str:
    """Take the next word of the command line. ``Failure`` where there is none."""
    if not options.words:
        raise Failure(Exit.USAGE, f"no {what} given; see mcpio {options.command} --help")
    word: str = options.words.pop(0)
    return word


def no_more_words(options: argparse.Namespace) -> None:
    """Raise ``Failure`` where there are words left."""
    if options.words:
        raise Failure(Exit.USAGE, f"what is {options.words[0]!r} for? See mcpio {options.command} --help")


def run(work: Work, options: argparse.Namespace) -> int:
    """Start the server, do the work, end the server; return the exit status.

    ``options.server`` is its program and arguments. ``Failure`` where that cannot be done. One SIGINT or SIGTERM
    cancels what is under way, ends the server, and leaves with 130 or 143; a second one leaves at once.
    """
    return run_until_signalled(partial(hold, work, options), patience=None)


async def hold(work: Work, options: argparse.Namespace) -> int:
    """Hold the conversation: ``run``, inside a Trio run."""
    console = Console(quiet=options.quiet)
    with recording.recorder(options.record) as tap:
        return await _hold(work, options, console, tap)


async def _hold(work: Work, options: argparse.Namespace, console: Console, tap: Tap | None) -> int:
    if options.url is not None:
        return await _hold_by_url(work, options, console, tap)
    try:
        async with open_stdio(
            options.server,
            env=dict(options.env),
            inherit_env=options.inherit_env,
            cwd=options.cwd,
            stderr=console.server_said if options.verbose else "capture",
            close_grace=GRACE,
            terminate_grace=GRACE,
            info=Implementation("mcpio", mcpio.__version__),
            on_log=console.log,
            options=_engine_options(options.timeout),
            tap=tap,
        ) as client:
            return await work(client, options, console)
    except McpError as error:
        failure = explained(error)
        if failure.status in (Exit.NO_PROGRAM, Exit.NOT_EXECUTABLE):
            raise Failure(failure.status, failure.message + _advice(options.command, options.server[0])) from error
        raise failure from error


def _advice(command: str, program: str) -> str:
    """Return what may have been meant by a word that is no program, or nothing."""
    if program.endswith(".py") and os.path.isfile(program):
        # A file that mcpio serve takes need not serve itself.
        words = shlex.quote(shlex.join(["mcpio", "serve", program]))
        return f". Say mcpio {command} {words}; or 'python {program}', if the file serves when it is run"
    if ":" in program:
        return ". A server that runs is called by a URL, such as http://localhost:8000/mcp or tcp://localhost:4000"
    return ""


async def _hold_by_url(work: Work, options: argparse.Namespace, console: Console, tap: Tap | None) -> int:
    of_client: ConnectOptions = {
        "info": Implementation("mcpio", mcpio.__version__),
        "on_log": console.log,
        "options": _engine_options(options.timeout),
        "tap": tap,
    }
    try:
        async with _opened(options, of_client) as client:
            return await work(client, options, console)
    except McpError as error:
        raise explained(error, by_url=True) from error


def _opened(options: argparse.Namespace, of_client: ConnectOptions) -> TrioClientContext[Client]:
    if options.url.startswith(sockets.SCHEMES):
        return sockets.opened(options.url, **of_client)
    # Most servers are started, and need none of this.
    if options.url.startswith(WEBSOCKET):
        from mcpio.trio import open_websocket

        return open_websocket(options.url, headers=dict(options.header), **of_client)
    from mcpio.http.client.options import HttpClientOptions
    from mcpio.trio import open_http

    return open_http(options.url, http=HttpClientOptions(headers=dict(options.header)), **of_client)


def _checked_url(text: str, options: argparse.Namespace) -> str:
    for name in ("env", "inherit_env", "cwd"):
        if getattr(options, name):
            raise Failure(Exit.USAGE, f"--{name.replace('_', '-')} is for servers that are started, not for {text}")
    if text.startswith(sockets.SCHEMES):
        if options.header:
            raise Failure(Exit.USAGE, f"--header is for servers over HTTP, not for {text}")
        sockets.target(text)
        return text
    from mcpio.http.client.options import HttpClientOptions
    from mcpio.http.location import Location

    try:
        # What is said of HTTP holds for what begins with it.
        Location.parse(f"http{text[2:]}" if text.startswith(WEBSOCKET) else text)
        HttpClientOptions(headers=dict(options.header))
    except ValueError as error:
        raise Failure(Exit.USAGE, str(error)) from error
    return text


def _engine_options(seconds: float) -> Options:
    limit = seconds or None
    return Options(request_timeout=Timeout(limit), initialize_timeout=limit)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return seconds


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not name or not colon:
        raise argparse.ArgumentTypeError("a header is NAME:VALUE")
    return name, value.strip()


def _directory(text: str) -> str:
    if not os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"there is no directory {text!r}")
    return text
