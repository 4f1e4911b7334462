"""Exit statuses, and the failure of a command that each error of the library becomes."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Final

from mcpio.errors import (
    AuthorizationRequired,
    ConnectFailed,
    ConnectionLost,
    InvalidMessage,
    McpError,
    NoBackChannel,
    RemoteProtocolError,
    RequestError,
    RequestTimeout,
)

CREDENTIALS = ". Log in with mcpio login URL, or give credentials by --header, as in --header 'X-Api-Key: ...'"
"""Advice for a server that requires authentication."""

_OPTION: Final = re.compile(r"\b(client_id|client_secret|issuer|port|redirect_uri|resource)=")


class Exit(enum.IntEnum):
    """The exit statuses of ``mcpio``. They keep their meaning from release to release."""

    DONE = 0
    TOOL_FAILED = 1
    """The tool ran and says that it failed."""
    USAGE = 2
    """The command line is wrong."""
    BAD_ARGUMENTS = 3
    """The arguments do not fit the tool or the prompt."""
    NOT_FOUND = 4
    """The server has no such tool, resource or prompt."""
    REFUSED = 5
    """The server answered with an error."""
    PROTOCOL = 6
    """The server violates the protocol, or shares no revision with us."""
    SERVER_DIED = 7
    """The server exited, or closed its output, before it answered."""
    NOT_LOADED = 8
    """``serve``: the server could not be loaded, or could not listen."""
    UNREACHABLE = 9
    """The server at a URL could not be reached."""
    DRIFTED = 10
    """``check --locked``: the server defines something else than was locked."""
    UNWRITABLE = 74
    """The output of the command cannot be written, for instance because the disk is full."""
    TIMEOUT = 124
    """The server did not answer in time."""
    NOT_EXECUTABLE = 126
    """The server's program exists but could not be started."""
    NO_PROGRAM = 127
    """The server's program does not exist."""
    OUTPUT_CLOSED = 141
    """The reader of the command's output stopped reading."""


class Failure(Exception):
    """Ends a command with an exit status and a message for the user."""

    def __init__(self, status: Exit, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message

    @property
    def kind(self) -> str:
        """The name of the status in ``--json`` output, such as ``not-found``."""
        return self.status.name.lower().replace("_", "-")


def failure_of(error: McpError, *, by_url: bool = False, has_headers: bool = False) -> Failure:
    """Return the failure for an error of the library.

    ``by_url``: the server was reached by URL, not started. ``has_headers``: the command gave credentials by --header.
    """
    match error:
        case ConnectFailed() if by_url and _is_unreachable(error):
            return Failure(Exit.UNREACHABLE, str(error))
        case ConnectFailed(__cause__=AuthorizationRequired() as refusal):
            return _refused(str(error), refusal, has_headers)
        case AuthorizationRequired():
            return _refused(str(error), error, has_headers)
        case ConnectFailed():
            return Failure(_not_connected(error.__cause__), str(error))
        case RequestTimeout():
            return Failure(Exit.TIMEOUT, str(error))
        case RequestError():
            return Failure(Exit.REFUSED, f"the server answered with an error: {error}")
        case ConnectionLost() | NoBackChannel():
            return Failure(Exit.SERVER_DIED, str(error))
        case InvalidMessage():
            return Failure(Exit.PROTOCOL, f"the server's answer is malformed: {error}")
        case RemoteProtocolError():
            return Failure(Exit.PROTOCOL, f"the server breaks the protocol: {error}")
    return Failure(Exit.PROTOCOL, str(error))


def in_flags(text: str) -> str:
    """Return a text about options of ``mcpio.auth`` with the flags of ``mcpio login`` in their places."""
    flags = _OPTION.sub(lambda match: f"--{match[1].replace('_', '-')}", text)
    return flags.replace("--client-secret ", "--client-secret-file ")


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return " Did you mean …?" with the known names similar to ``name``, or an empty string.

    Of a server's names only the first thousand are compared, and nothing with a long one: difflib's time is quadratic.
    """
    close = [] if len(name) > 200 else get_close_matches(name, list(islice(candidates, 1000)), n=3, cutoff=0.75)
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""


def _refused(text: str, refusal: AuthorizationRequired, has_headers: bool) -> Failure:
    """Return the failure of a refusal, with how to pass credentials if the server asks for them.

    A bare 403 may be about the Host or the Origin.
    """
    message = in_flags(text.replace(refusal.hint, ""))
    advice = CREDENTIALS if refusal.status == 401 or refusal.challenges else ""
    if advice and has_headers:
        advice = ". What --header gave is not enough for it"
    return Failure(Exit.REFUSED, f"{message}{advice}")


def _is_unreachable(error: ConnectFailed) -> bool:
    cause = error.__cause__
    if isinstance(cause, ConnectFailed):
        cause = cause.__cause__
    return cause is not None and not isinstance(cause, McpError)


def _not_connected(cause: BaseException | None) -> Exit:
    match cause:
        case FileNotFoundError():
            return Exit.NO_PROGRAM
        case RequestTimeout():
            return Exit.TIMEOUT
        case ConnectionLost():
            return Exit.SERVER_DIED
        case McpError():
            return Exit.PROTOCOL
    return Exit.NOT_EXECUTABLE
