"""``mcpio login``: get a token for a server, and store it for the other commands."""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Any

from mcpio._drivers.login import ask_at_terminal, ask_without_browser
from mcpio.auth import Device, OAuth, Secret, TokenSet
from mcpio.auth.grant import format_scopes
from mcpio.cli import stored
from mcpio.cli.exit_status import CREDENTIALS, Exit, Failure, failure_of, in_flags
from mcpio.cli.output import Console
from mcpio.errors import McpError
from mcpio.trio import open_http, run_until_signalled

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    stored.add_arguments(parser)
    parser.add_argument("--scope", action="append", metavar="SCOPE", help="a scope to ask for; may be repeated")
    parser.add_argument("--device", action="store_true", help="show a code to enter on another device")
    parser.add_argument("--no-browser", action="store_true", help="print the URL, and take the pasted one")
    parser.add_argument("--client-id", metavar="ID", help="a client that is registered with the authorization server")
    parser.add_argument(
        "--client-secret-file", type=Path, metavar="FILE", help="a file whose only line is the client's secret"
    )
    parser.add_argument("--port", type=int, help="the port of the client's registered redirect URI")
    parser.add_argument("--redirect-uri", metavar="URI", help="that URI, if it is not http://127.0.0.1:PORT/callback")
    parser.add_argument("--resource", help="the resource to ask a token for, where the server's metadata is wrong")
    parser.add_argument("--issuer", help="the authorization server, where the server's metadata is wrong")


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    return run_until_signalled(partial(_run, options), timeout=None)


async def _run(options: argparse.Namespace) -> int:
    console, key = Console(), stored.key_of(options)
    store = stored.store()
    stored.read(key)  # a file that cannot be used is reported before anyone is asked to log in
    try:
        async with open_http(
            options.url,
            auth=_method(options),
            credentials=store,
            ask_user=ask_without_browser if options.no_browser else ask_at_terminal,
        ) as client:
            # There may be a record without a token, of a login that was not finished.
            if _token(key) is None and client.connection.peer is not None:
                # Some servers shake hands with every client.
                await client.list_tools()
    except McpError as error:
        failure = failure_of(error, by_url=True)
        # The advice to log in is for the other commands.
        raise Failure(failure.status, failure.message.removesuffix(CREDENTIALS)) from error
    token = _token(key)
    if token is None:
        console.note("the server asks for no login")
        return Exit.DONE
    console.result(f"logged in to {options.url} as account {options.account!r}, by {token.issuer}")
    if token.scopes:
        console.result(f"scopes: {format_scopes(token.scopes)}")
    console.result(stored.expiry(token, time.time()))
    return Exit.DONE


def _token(key: str) -> TokenSet | None:
    found = stored.read(key)
    return None if found is None else found.token


def _method(options: argparse.Namespace) -> OAuth | Device:
    given: dict[str, Any] = {
        "account": options.account,
        "scopes": options.scope,
        "resource": options.resource,
        "issuer": options.issuer,
        "client_id": options.client_id,
        "client_secret": _secret(options.client_secret_file),
    }
    try:
        if options.device:
            return Device(**given)
        return OAuth(**given, port=options.port, redirect_uri=options.redirect_uri)
    except ValueError as error:
        raise Failure(Exit.USAGE, in_flags(str(error))) from error


def _secret(file: Path | None) -> Secret | None:
    if file is None:
        return None
    try:
        return Secret(file.read_text().strip())
    except (OSError, UnicodeError) as error:
        raise Failure(Exit.USAGE, f"--client-secret-file: cannot read {str(file)!r}: {error}") from error
