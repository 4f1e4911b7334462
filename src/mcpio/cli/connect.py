"""Commands that use a server: which server the command line names, and a client of it for one command."""

from __future__ import annotations

import argparse
import math
import os
import shlex
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack
from urllib.parse import urlsplit

import mcpio
from mcpio.app.client import Client
from mcpio.app.servers_config import ServerEntry
from mcpio.cli import answers, targets
from mcpio.cli.exit_status import Exit, Failure, failure_of
from mcpio.cli.output import Console, add_record_option, recorder
from mcpio.cli.targets import SOCKET_SCHEMES, WEBSOCKET, parse_socket_url
from mcpio.engine.limits import Timeout
from mcpio.engine.options import Options
from mcpio.errors import McpError, UnexpectedResponse
from mcpio.trio import open_stdio, run_until_signalled
from mcpio.types.features import Implementation

if TYPE_CHECKING:
    from mcpio._drivers.stdio import StderrSink
    from mcpio.auth import OAuth
    from mcpio.trio._drivers import ConnectOptions

GRACE = 1.0
"""Seconds that a started server has to exit when its input closes, and again when it is terminated."""

ClientWork: TypeAlias = Callable[[Client, argparse.Namespace, Console], Awaitable[int]]
"""The part of a command that uses a client; returns the exit status."""


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
        help="how long to wait for each answer; 0 waits for ever (default: %(default)g)",
    )
    add_env_option(parser, ", beside HOME, PATH and the like")
    parser.add_argument(
        "--header",
        type=_header,
        action="append",
        default=[],
        metavar="NAME:VALUE",
        help="a header field of every request to a URL, such as 'Authorization: Bearer ...'; may be repeated",
    )
    parser.add_argument(
        "--auth", metavar="ACCOUNT", help="the account of mcpio login to use for a URL (default: default, if logged in)"
    )
    parser.add_argument("--inherit-env", action="store_true", help="pass the whole environment to the server")
    answers.add_options(parser)
    add_record_option(parser)
    parser.add_argument("--cwd", type=_directory, metavar="DIRECTORY", help="the server's working directory")


def add_env_option(parser: argparse.ArgumentParser, more: str) -> None:
    """Add ``--env``. ``more`` is what the help says of other variables."""
    parser.add_argument(
        "-e",
        "--env",
        type=environment_variable,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"a variable for the server's environment{more}; may be repeated",
    )


def add_words(parser: argparse.ArgumentParser, *words: str) -> None:
    """Add the server and ``words`` as positional arguments, and describe in the usage how to name a server."""
    joined = " ".join(words)
    parser.usage = f"%(prog)s [options] {' '.join(['SERVER', *words])}\n       %(prog)s [options] {joined}".rstrip()
    parser.usage += " -- PROGRAM [ARG ...]"
    parser.epilog = targets.HELP
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    parser.set_defaults(after=None)


def choose_server(options: argparse.Namespace) -> None:
    """Set ``options.server`` and ``options.url`` from the words after ``--``, or else from the first word.

    The first word is removed and resolved as a target. Raises Failure if there is no server, if the target names none,
    or if an option does not apply to it.
    """
    if options.json and getattr(options, "save", None) is not None:
        raise Failure(Exit.USAGE, "--json cannot be combined with --save: it prints everything")
    if options.after is None:
        target = targets.resolve(next_word(options, "server"))
    else:
        target = targets.Target(shlex.join(options.after), ServerEntry(command=tuple(options.after)))
    entry = target.entry
    options.target = target.text
    options.url = None
    options.server = list(entry.command)
    if entry.url is not None:
        header_names = {name.lower() for name, _ in options.header}
        options.header += [(name, text) for name, text in entry.headers.items() if name.lower() not in header_names]
        options.url = _checked_url(entry.url, options)
        options.server = [entry.url]
        return
    if not options.server:
        raise Failure(Exit.USAGE, "no server: give its command in quotes, or its words after --")
    for name in ("header", "auth"):
        if getattr(options, name):
            raise Failure(Exit.USAGE, f"--{name} is for servers at a URL, not for {options.target}")
    # The command line has the last word.
    options.env = list({**entry.env, **dict(options.env)}.items())
    options.cwd = options.cwd or entry.cwd
    options.inherit_env = options.inherit_env or target.inherit_env


def next_word(options: argparse.Namespace, what: str) -> str:
    """Remove and return the next word of the command line. Raises Failure if no word is left."""
    if not options.words:
        raise Failure(Exit.USAGE, f"no {what} given; see mcpio {options.command} --help")
    word: str = options.words.pop(0)
    return word


def no_more_words(options: argparse.Namespace) -> None:
    """Raise Failure if words are left."""
    if options.words:
        raise Failure(Exit.USAGE, f"unexpected argument {options.words[0]!r}; see mcpio {options.command} --help")


def run(work: ClientWork, options: argparse.Namespace) -> int:
    """Connect to the chosen server, run ``work`` with a client of it, and return the exit status.

    Raises Failure for every error of the library. One SIGINT or SIGTERM cancels the work, ends the server, and exits
    with 130 or 143; a second one exits at once.
    """
    return run_until_signalled(partial(_run, work, options), timeout=None)


async def _run(work: ClientWork, options: argparse.Namespace) -> int:
    console = Console(quiet=options.quiet)
    with recorder(options.record) as tap:
        try:
            of_client: ConnectOptions = {"on_log": console.log, "tap": tap}
            of_client.update(answers.client_options(options, console))  # type: ignore[typeddict-item]  # a part of these
            stderr: StderrSink = console.server_said if options.verbose else "capture"
            async with open_client(options, stderr=stderr, **of_client) as client:
                return await work(client, options, console)
        except McpError as error:
            raise explained(error, options) from error


def explained(error: McpError, options: argparse.Namespace) -> Failure:
    """Return the failure for an error of a client of the chosen server, with a hint where one is known."""
    by_url = options.url is not None
    failure = failure_of(error, by_url=by_url, has_headers=by_url and bool(options.header))
    if by_url and _names_no_endpoint(options.url, error):
        hint = f". Most servers answer at /mcp: try {options.url.rstrip('/')}/mcp"
        return Failure(failure.status, failure.message + hint)
    if failure.status is Exit.NO_PROGRAM:
        return Failure(failure.status, failure.message + targets.where_else(options.server[0]))
    return failure


def _names_no_endpoint(url: str, error: McpError) -> bool:
    """Whether a server answered that there is nothing at a URL without a path."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, UnexpectedResponse):
        cause = cause.__cause__
    return cause is not None and cause.status in (404, 405) and urlsplit(url).path in ("", "/")


def open_client(
    options: argparse.Namespace, /, *, stderr: StderrSink, **of_client: Unpack[ConnectOptions]
) -> AbstractAsyncContextManager[Client]:
    """Return the context manager of a client. HTTP and WebSocket are imported only where they are used."""
    of_client.setdefault("info", Implementation("mcpio", mcpio.__version__))
    of_client.setdefault("options", engine_options(options.timeout))
    url = options.url
    if url is None:
        return open_stdio(options.server, stderr=stderr, **process_options(options), **of_client)
    if url.startswith(SOCKET_SCHEMES):
        from mcpio.trio import open_tcp, open_unix

        address = parse_socket_url(url)
        return (
            open_unix(address, **of_client)
            if isinstance(address, str)
            else open_tcp(address.host, address.port, **of_client)
        )
    if url.startswith(WEBSOCKET):
        from mcpio.trio import open_websocket

        headers = dict(options.header)
        return open_websocket(url, headers=headers, auth=stored_login(options), interaction="never", **of_client)
    from mcpio.http.client import HttpClientOptions
    from mcpio.trio import open_http

    http = HttpClientOptions(headers=dict(options.header))
    return open_http(url, http=http, auth=stored_login(options), interaction="never", **of_client)


def process_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return how a server is started."""
    return {
        "env": dict(options.env),
        "inherit_env": options.inherit_env,
        "cwd": options.cwd,
        "close_grace": GRACE,
        "terminate_grace": GRACE,
    }


def stored_login(options: argparse.Namespace) -> OAuth | None:
    """Return the authorization of ``options.url`` by stored credentials, unless a header field is given instead."""
    from mcpio.cli.logins import login_for

    url: str = options.url
    if options.auth is None and any(name.lower() == "authorization" for name, _ in options.header):
        return None
    return login_for(f"http{url[len('ws') :]}" if url.startswith(WEBSOCKET) else url, options.auth)


def _checked_url(text: str, options: argparse.Namespace) -> str:
    """Return the URL. Raises Failure if it is malformed or if an option does not apply to it."""
    for name in ("env", "inherit_env", "cwd"):
        if getattr(options, name):
            raise Failure(Exit.USAGE, f"--{name.replace('_', '-')} is for servers that are started, not for {text}")
    if text.startswith(SOCKET_SCHEMES):
        for name in ("header", "auth"):
            if getattr(options, name):
                raise Failure(Exit.USAGE, f"--{name} is for servers over HTTP, not for {text}")
        parse_socket_url(text)
        return text
    from mcpio.http.client import HttpClientOptions, Location

    try:
        # ws:// and wss:// take the same URLs as http:// and https://.
        Location.parse(f"http{text[2:]}" if text.startswith(WEBSOCKET) else text)
        HttpClientOptions(headers=dict(options.header))
    except ValueError as error:
        raise Failure(Exit.USAGE, str(error)) from error
    return text


def engine_options(seconds: float) -> Options:
    """Return the options of a client that waits so long for each answer; 0 waits for ever."""
    limit = seconds or None
    return Options(request_timeout=Timeout(limit), initialize_timeout=limit)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of seconds, 0 or more, not {text!r:.100}")
    return seconds


def environment_variable(text: str) -> tuple[str, str]:
    """Parse ``NAME=VALUE``. For ``argparse``."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, not {text!r:.100}")
    return name, value


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not name or not colon:
        # The text is not shown: it is likely to hold a credential.
        raise argparse.ArgumentTypeError("must be NAME:VALUE")
    return name, value.strip()


def _directory(text: str) -> str:
    if not os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"must be a directory, not {text!r:.200}")
    return text
