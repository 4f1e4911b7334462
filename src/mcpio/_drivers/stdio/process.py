"""Child processes: options, environment, and errors in words (STDIO-07, -08, -11)."""

from __future__ import annotations

import contextlib
import enum
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypedDict

from mcpio._printable import printable
from mcpio.errors import ConnectFailed

__all__ = [
    "EXIT_TIMEOUT",
    "INHERITED_VARIABLES",
    "STDERR_TIMEOUT",
    "ProcessOptions",
    "Stderr",
    "StderrSink",
    "default_environment",
    "describe_end",
    "environment",
    "starting",
    "stderr_mode",
]

StderrSink = Literal["inherit", "discard", "capture"] | Callable[[str], object]
"""Destination of a child's standard error: this process's own, nowhere, only ``stderr_tail``, or that and a function,
line by line."""


class ProcessOptions(TypedDict, total=False):
    """The keyword arguments of ``start_process``, for functions that pass them on."""

    env: Mapping[str, str] | None
    """Environment variables, in addition to those that every child process gets."""
    inherit_env: bool
    """Whether the child gets the whole environment of this process."""
    cwd: str | os.PathLike[str] | None
    """The working directory; ``None`` for that of this process."""
    stderr: StderrSink
    """Where its standard error goes."""
    close_grace: float
    """Seconds that it has to exit after its input was closed."""
    terminate_grace: float
    """Seconds that it has to exit after it was asked to terminate; then it is killed."""
    die_with_parent: bool
    """Whether it is killed when this process dies, where the system can do that."""


EXIT_TIMEOUT: Final = 0.5
"""Seconds for which an error message waits for the child's exit and the rest of its standard error."""

STDERR_TIMEOUT: Final = 0.2
"""Seconds to wait, after the child's end, for the end of its standard error, which another process may hold open."""


INHERITED_VARIABLES: Final = (
    (
        "APPDATA",
        "HOMEDRIVE",
        "HOMEPATH",
        "LOCALAPPDATA",
        "PATH",
        "PATHEXT",
        "PROCESSOR_ARCHITECTURE",
        "SYSTEMDRIVE",
        "SYSTEMROOT",
        "TEMP",
        "USERNAME",
        "USERPROFILE",
    )
    if sys.platform == "win32"
    else ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
)
"""The environment variables that a child gets by default: none that is likely to be a secret."""


class Stderr(enum.Enum):
    """Destination of a child's standard error."""

    INHERIT = "inherit"
    DISCARD = "discard"
    PIPE = "pipe"


def default_environment() -> dict[str, str]:
    """Return the part of this process's environment that a child gets by default (STDIO-11).

    These are HOME, LOGNAME, PATH, SHELL, TERM and USER; on Windows, what programs there need to start. Values that are
    exported shell functions are left out.
    """
    found = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
    return {name: value for name, value in found.items() if not value.startswith("()")}


@contextlib.contextmanager
def starting(argv: Any, cwd: str | None) -> Iterator[None]:
    """Context manager in which a program starts. Raises ConnectFailed in place of the system's errors.

    Raises TypeError if ``argv`` is not a list of strings.
    """
    if isinstance(argv, str | bytes) or not isinstance(argv, Sequence) or not argv:
        raise TypeError(f"argv is a list of strings, the program first, not {argv!r}")
    try:
        yield
    except OSError as exc:
        raise ConnectFailed(f"cannot start {argv[0]!r}: {_reason(exc, argv[0], cwd)}") from exc
    except (ValueError, subprocess.SubprocessError) as exc:  # A null character in an argument, say.
        raise ConnectFailed(f"cannot start {argv[0]!r}: {exc}") from exc


def _reason(exc: OSError, program: str, cwd: str | None) -> str:
    if cwd is not None and not os.path.isdir(cwd):
        return f"the working directory {cwd!r} does not exist"
    if isinstance(exc, FileNotFoundError):
        if os.path.dirname(program) and os.path.exists(program):
            return "the interpreter that its first line names is not found"
        return "no such program"
    if isinstance(exc, PermissionError):
        return "it is not an executable file, or this user may not run it"
    return exc.strerror or str(exc)


def environment(env: Mapping[str, str] | None, inherit_env: bool) -> dict[str, str]:
    """Return the environment of a child. Raises TypeError for a value that is not a str."""
    base = dict(os.environ) if inherit_env else default_environment()
    given = dict(env or {})
    for name, value in given.items():
        if not isinstance(value, str | bytes | os.PathLike):
            raise TypeError(f"env: the value of {name!r} is text, not of type {type(value).__name__}")
    return base | given


def stderr_mode(sink: StderrSink) -> Stderr:
    """Return where a child's standard error goes. Raises ValueError for a value of another kind."""
    match sink:
        case "inherit":
            return Stderr.INHERIT
        case "discard":
            return Stderr.DISCARD
        case "capture":
            return Stderr.PIPE
        case _ if callable(sink):
            return Stderr.PIPE
    raise ValueError(f"stderr is 'inherit', 'discard', 'capture' or a function, not {sink!r}")


def describe_end(program: str, returncode: int | None, stderr_tail: str) -> str:
    """Return how a program ended, with the tail of its standard error, for an error message."""
    text = f"{program!r} {describe_exit(returncode)}"
    tail = printable(stderr_tail.strip())
    return f"{text}; the end of its standard error:\n{tail}" if tail else text


def describe_exit(returncode: int | None) -> str:
    """Return how a process ended, in words."""
    if returncode is None:
        return "has not exited"
    if returncode >= 0:
        return f"exited with status {returncode}"
    try:
        return f"was ended by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was ended by signal {-returncode}"
