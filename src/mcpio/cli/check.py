"""``mcpio check``: ask a server by raw messages whether it keeps the rules of the protocol, or what it has locked."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any

import trio

from mcpio.app.client import Client
from mcpio.cli import connect, lock
from mcpio.cli.exit_status import Exit, Failure, failure_of
from mcpio.cli.logins import token_for
from mcpio.cli.output import Console
from mcpio.cli.rules.carriers import HttpCarrier, LineCarrier, RawCarrier
from mcpio.cli.rules.hosts import warnings_of
from mcpio.cli.rules.reports import Check, Report
from mcpio.cli.rules.table import TABLE
from mcpio.cli.rules.trial import Connect, Outcome, Trial, try_rows
from mcpio.cli.targets import SOCKET_SCHEMES, WEBSOCKET, parse_socket_url
from mcpio.errors import McpError
from mcpio.http.client import Location
from mcpio.revisions import REVISIONS, Revision
from mcpio.trio import open_process_stream, run_until_signalled

TIMEOUT = 10.0
"""Seconds to wait for each answer. A server that answers nothing is asked several hundred times."""

LONGEST = 2000
"""How many characters of a message a report shows."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    connect.add_options(parser)
    connect.add_words(parser)
    parser.set_defaults(timeout=TIMEOUT)
    parser.add_argument("--strict", action="store_true", help="show warnings in full, and fail for them too")
    parser.add_argument(
        "--revision",
        action="append",
        choices=[revision.name for revision in REVISIONS],
        help="check only this revision; may be repeated (default: all that the server speaks)",
    )
    parser.add_argument("--junit", metavar="FILE", help="write the checks to a file, as JUnit's XML")
    parser.add_argument("--sarif", metavar="FILE", help="write the faults to a file, as SARIF")
    parser.add_argument("--locked", metavar="FILE", help="compare the server with a file of mcpio lock instead")


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    connect.choose_server(options)
    connect.no_more_words(options)
    if options.locked is not None:
        if options.revision is not None:
            raise Failure(Exit.USAGE, "--revision cannot be combined with --locked: it is for the rules")
        locked = lock.read(options.locked)
        return connect.run(partial(_compare, locked), options)
    for name in ("record", "sampling", "root"):
        if getattr(options, name):
            raise Failure(Exit.USAGE, f"--{name} needs --locked: raw messages do not use it")
    if not options.timeout:
        raise Failure(Exit.USAGE, "--timeout must be above 0, not 0: a server may leave a message unanswered")
    return run_until_signalled(partial(_check, options), timeout=None)


async def _compare(locked: Mapping[str, Any], client: Client, options: argparse.Namespace, console: Console) -> int:
    checks = [
        Check(name, "Be as it was locked.", change, "broken", options.locked)
        for name, change in lock.differences(locked, await lock.definitions(client))
    ]
    report = Report(options.target, client.server.info.name, (options.locked,), checks)
    _write(report, options, console)
    return Exit.DRIFTED if report.faults("broken") else Exit.DONE


async def _check(options: argparse.Namespace) -> int:
    console = Console(quiet=options.quiet)
    names = options.revision or [revision.name for revision in REVISIONS]

    def note_revision(revision: Revision, is_spoken: bool) -> None:
        console.note(f"{revision}: {'checked' if is_spoken else 'not spoken'}")

    try:
        trial = await try_rows(
            _connect(options, console),
            TABLE,
            revisions=[revision for revision in REVISIONS if revision.name in names],
            headers=await _headers(options),
            on_revision=note_revision,
        )
    except McpError as error:
        raise failure_of(error) from error
    except OSError as error:
        raise Failure(Exit.UNREACHABLE, f"cannot connect to {options.target}: {error.strerror or error}") from error
    if not trial.opened:
        raise _not_opened(trial, options)
    for revision, count in trial.untried.items():
        console.failure(f"{revision}: {count} checks were left out: the server could not be opened again")
    report = _report(trial, options)
    _write(report, options, console)
    return Exit.PROTOCOL if report.faults("broken") or (options.strict and report.faults("warning")) else Exit.DONE


async def _headers(options: argparse.Namespace) -> dict[str, str]:
    """Return the fields of each HTTP request: those that were given, or else with the token of a stored login."""
    headers = {name.lower(): value for name, value in options.header}
    url: str | None = options.url
    if url is None or url.startswith(SOCKET_SCHEMES) or connect.stored_login(options) is None:
        return headers
    # A client renews the token if it must. The raw messages below find the server's faults.
    with suppress(McpError):
        async with connect.open_client(options, stderr="capture"):
            pass
    token = token_for(url, options.auth)
    return headers if token is None else {**headers, "authorization": f"Bearer {token}"}


def _not_opened(trial: Trial, options: argparse.Namespace) -> Failure:
    """Return the failure for a server that speaks no revision."""
    newest = next(reversed(trial.refused.values()))
    came = _shorten(str(newest.reply))
    if newest.reply.ended:
        status = Exit.UNREACHABLE if options.url is not None else Exit.SERVER_DIED
        return Failure(status, f"{options.target}: {newest.reply.ended}")
    status = Exit.REFUSED if newest.reply.status in (401, 403) else Exit.PROTOCOL
    return Failure(status, f"{options.target} speaks no revision that was asked for. It answered: {came}")


def _connect(options: argparse.Namespace, console: Console) -> Connect:
    """Return what connects to the chosen server. Raises Failure if that cannot carry raw messages."""
    url = options.url
    timeout = options.timeout
    if url is None:
        return partial(_process, options, console, timeout)
    if url.startswith(WEBSOCKET):
        raise Failure(Exit.USAGE, f"the server must be a program, a socket or an HTTP URL, not {url}")
    if url.startswith(SOCKET_SCHEMES):
        return partial(_socket, url, timeout)
    location = Location.parse(url)

    @asynccontextmanager
    async def by_http() -> AsyncIterator[RawCarrier]:
        yield HttpCarrier(location, timeout=timeout)

    return by_http


@asynccontextmanager
async def _process(options: argparse.Namespace, console: Console, timeout: float) -> AsyncIterator[RawCarrier]:
    async with _open_process(options, console) as process:
        yield LineCarrier(process.stream, timeout=timeout, last_words=process.last_words)


def _open_process(options: argparse.Namespace, console: Console) -> AbstractAsyncContextManager[Any]:
    return open_process_stream(
        options.server,
        env=dict(options.env),
        inherit_env=options.inherit_env,
        cwd=options.cwd,
        stderr=console.server_said if options.verbose else "capture",
        close_grace=connect.GRACE,
        terminate_grace=connect.GRACE,
    )


@asynccontextmanager
async def _socket(url: str, timeout: float) -> AsyncIterator[RawCarrier]:
    address = parse_socket_url(url)
    stream: trio.SocketStream
    if isinstance(address, str):
        stream = await trio.open_unix_socket(address)
    else:
        stream = await trio.open_tcp_stream(address.host, address.port)
    try:
        yield LineCarrier(stream, timeout=timeout)
    finally:
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(stream)


def _report(trial: Trial, options: argparse.Namespace) -> Report:
    checks = [_of_outcome(outcome) for outcome in trial.outcomes]
    newest = max(trial.opened, key=lambda revision: revision.rank)
    checks += _of_tools(trial)
    return Report(options.target, _name(trial, newest), tuple(map(str, trial.opened)), checks)


def _of_outcome(outcome: Outcome) -> Check:
    row, tried = outcome.row, outcome.tried
    return Check(
        row.name,
        row.demand,
        outcome.fault,
        "broken" if row.level == "must" else "warning",
        str(outcome.revision),
        tuple(row.rules.split()),
        "\n".join(_shorten(str(sent)) for sent in tried.sent),
        "\n".join(_shorten(str(reply)) for reply in tried.replies),
        row.url(outcome.revision),
    )


def _of_tools(trial: Trial) -> Iterator[Check]:
    for tool in trial.tools:
        faults: list[str | None] = [*warnings_of(tool)]
        for fault in faults or [None]:
            yield Check(f"the tool {tool.get('name')!r}", "Define tools that hosts take.", fault, "warning", "hosts")


def _name(trial: Trial, revision: Revision) -> str:
    server = trial.opened[revision].conversation.server
    meta = server.get("_meta")
    info = server.get("serverInfo") or (meta.get("io.modelcontextprotocol/serverInfo") if meta else None)
    values = [info.get(key) for key in ("name", "version")] if isinstance(info, dict) else []
    return " ".join(each for each in values if isinstance(each, str) and each) or "a server without a name"


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text)} characters)"


def _write(report: Report, options: argparse.Namespace, console: Console) -> None:
    """Print the report, and write it to files."""
    for path, make in ((options.junit, report.junit), (options.sarif, report.sarif)):
        if path is not None:
            lock.write(path, make())
    if options.json:
        console.result(report.as_json())
    else:
        for line in report.text(whole_warnings=options.strict):
            console.result(line or "\n")
