"""``mcpio logout``: forget the stored credentials of a server."""

from __future__ import annotations

import argparse
from functools import partial

from mcpio._drivers.login import LoginSetup, SingleFlow
from mcpio.auth import AuthorizationError, Credentials, OAuth, revoke
from mcpio.cli import stored
from mcpio.cli.exit_status import Exit, Failure
from mcpio.cli.output import Console
from mcpio.trio import run_until_signalled
from mcpio.trio._event_loop import TrioEventLoop
from mcpio.trio._runtime import TrioRuntime

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    stored.add_arguments(parser)
    parser.add_argument("--revoke", action="store_true", help="have the authorization server revoke the tokens first")


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    console, key = Console(), stored.key_of(options)
    found = stored.read(key)
    if found is None:
        console.note(f"account {options.account!r} is not logged in to {options.url}")
        return Exit.DONE
    if options.revoke:
        try:
            revoked = run_until_signalled(partial(_revoke, options, found), timeout=None)
        except AuthorizationError as error:
            raise Failure(Exit.REFUSED, f"the tokens were not revoked, and are kept: {error}") from error
        console.result("the tokens were revoked" if revoked else "the authorization server revokes no tokens")
    stored.forget(key)
    console.result(f"logged out of {options.url}")
    return Exit.DONE


async def _revoke(options: argparse.Namespace, credentials: Credentials) -> bool:
    setup = LoginSetup.check(options.url, {"auth": OAuth(account=options.account), "credentials": stored.store()})
    flow = SingleFlow(setup, TrioEventLoop(), TrioRuntime(None))
    return await flow.run(revoke(await flow.context(), credentials))
