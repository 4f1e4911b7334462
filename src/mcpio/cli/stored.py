"""The credentials that ``mcpio login`` stores, as the other commands use and show them."""

from __future__ import annotations

import argparse

from mcpio._drivers.login import FileCredentials
from mcpio.auth import Credentials, OAuth, TokenSet, canonical_resource, from_text
from mcpio.cli.exit_status import Exit, Failure
from mcpio.http.client import Location

__all__ = ["add_arguments", "expiry", "forget", "key_of", "login_for", "read", "store"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the URL and the account."""
    parser.add_argument("url", metavar="URL", help="the URL of a server")
    parser.add_argument("--account", default="default", help="a name of your own, for several accounts at one server")


def store() -> FileCredentials:
    """Return the store of the command line: that of `open_http` by default. Raises Failure without a home directory."""
    try:
        return FileCredentials()
    except RuntimeError as error:
        # Containers run programs as users that have neither HOME nor an entry in /etc/passwd.
        raise Failure(Exit.USAGE, "no place to keep logins: set HOME, or MCPIO_HOME to a directory") from error


def _has_place() -> bool:
    try:
        FileCredentials()
    except RuntimeError:
        return False
    return True


def key_of(options: argparse.Namespace) -> str:
    """Return the key of the credentials. Raises Failure for a URL that is not one of a server over HTTP."""
    try:
        Location.parse(options.url)
        return f"{canonical_resource(options.url)} {options.account}"
    except ValueError as error:
        raise Failure(Exit.USAGE, str(error)) from error


def read(key: str) -> Credentials | None:
    """Return the stored credentials of a key, or ``None``. Raises Failure for a file that cannot be used."""
    try:
        found = store().load(key)
        return None if found is None else from_text(Credentials, found.record)
    except OSError as error:
        # Without strerror it is the store's own text.
        reason = f"cannot read the login of {key}: {error.strerror}" if error.strerror else str(error)
        raise Failure(Exit.USAGE, reason) from error
    except ValueError as error:
        raise Failure(Exit.USAGE, str(error)) from error


def forget(key: str) -> None:
    """Remove the stored credentials of a key. Raises Failure if that fails."""
    try:
        store().forget(key)
    except OSError as error:
        raise Failure(Exit.UNWRITABLE, f"cannot remove the login of {key}: {error.strerror or error}") from error


def login_for(url: str, account: str | None) -> OAuth | None:
    """Return the authorization for a URL from the stored credentials of an account, if any.

    Without ``account`` it is the default one. Raises Failure if an account is named that is not logged in.
    """
    try:
        key = f"{canonical_resource(url)} {account or 'default'}"
    except ValueError:
        return None
    if account is None and not _has_place():
        return None  # where no login can be stored, there is no stored login
    if read(key) is None:
        if account is not None:
            raise Failure(Exit.USAGE, f"account {account!r} is not logged in: mcpio login {url} --account {account}")
        return None
    return OAuth(account=account or "default")


def expiry(token: TokenSet, now: float) -> str:
    """Return in words how long a token is valid, and whether it can be renewed."""
    if token.expires_at is None:
        life = "does not say when it expires"
    elif token.expires_at <= now:
        life = "has expired"
    else:
        life = f"expires in {round(token.expires_at - now)} s"
    return f"the token {life}, and {'renews itself' if token.refresh_token is not None else 'cannot be renewed'}"
