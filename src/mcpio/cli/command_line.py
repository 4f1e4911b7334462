"""The entry point: parse the command line, run the command, and turn every outcome into an exit status."""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from mcpio.cli.exit_status import Exit, Failure, did_you_mean

COMMANDS = {
    "demo": "watch a server and a client hold a conversation",
    "serve": "serve a Server object on standard input and output, over HTTP or on a socket",
    "list": "list what a server offers",
    "call": "call a tool of a server",
    "read": "print a resource of a server",
    "prompt": "print a prompt of a server, filled in",
    "skills": "list, show and check the skills of a server or a folder",
    "check": "check whether a server keeps the rules of the protocol",
    "bench": "measure a server, or compare two",
    "inspect": "look at a server in a browser: call it, answer it, see every message",
    "lock": "write down what a server defines, to find later changes",
    "config": "print what a host's configuration says of a server",
    "install": "have a host use a server, or no longer",
    "login": "get a token for a server, and store it for the other commands",
    "logout": "forget the token of a server",
    "auth": "show what is stored of logins, or examine a server's authorization",
    "relay": "stand between a host and its server, and show, record or disturb what passes",
    "replay": "show a recorded conversation",
    "trace": "make a page of a recorded conversation, for a browser",
    "complete": "print completion for a shell",
}

SHARED = {
    **dict.fromkeys(("list", "call", "read", "prompt"), "use"),
    **dict.fromkeys(("login", "logout", "auth"), "logins"),
    "config": "install",
    "trace": "replay",
}
"""The modules of commands that share one; every other command has a module of its name."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line, ``sys.argv`` by default, and return the exit status.

    Raises SystemExit where ``argparse`` does, for ``--help`` and for wrong options, and when a signal ends a command.
    """
    for stream in (sys.stdout, sys.stderr):
        # A terminal's encoding may lack characters of a server's text.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            return _run(list(sys.argv[1:] if argv is None else argv))
        finally:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
    except (OSError, ExceptionGroup) as raised:
        error = _only_error(raised)  # a task that prints raises in the group of its nursery
        if isinstance(error, FileNotFoundError) and not _has_working_directory():
            return _fail(Failure(Exit.USAGE, "the working directory was deleted: change to another one"))
        if not isinstance(error, OSError) or error.errno not in _UNWRITABLE:
            raise
        _drop_output()
        if isinstance(error, BrokenPipeError):
            return Exit.OUTPUT_CLOSED
        with contextlib.suppress(OSError):  # standard error itself may be unwritable
            _fail(Failure(Exit.UNWRITABLE, f"cannot write: {error.strerror}"))
        return Exit.UNWRITABLE


_UNWRITABLE = {errno.EPIPE, errno.ESHUTDOWN, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""Errors of an output that cannot be written: its reader is gone, or the disk is full."""


def _only_error(error: Exception) -> Exception:
    """Return the only exception of a group, however deep, or the exception itself."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _has_working_directory() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _run(words: list[str]) -> int:
    command = words[0] if words and not words[0].startswith("-") else None
    if command is None:
        _top_parser().parse_args(words or ["--help"])
        return Exit.USAGE
    if command not in COMMANDS:
        return _fail(Failure(Exit.USAGE, f"no command {command!r}.{did_you_mean(command, COMMANDS)}"))
    options = _parse(command, words[1:])
    try:
        status: int = module_of(command).run(options)
    except Failure as failure:
        return _fail(failure, as_json=getattr(options, "json", False))
    return status


def module_of(command: str) -> Any:
    """Import and return the module of a command."""
    return import_module(f"{__package__}.{SHARED.get(command, command)}")


def parser_of(command: str) -> argparse.ArgumentParser:
    """Return the parser of a command's options."""
    parser = argparse.ArgumentParser(f"mcpio {command}", description=COMMANDS[command], allow_abbrev=False)
    parser.set_defaults(command=command)
    module_of(command).add_arguments(parser)
    return parser


def _parse(command: str, words: list[str]) -> argparse.Namespace:
    """Return the options of a command. Words after ``--`` belong to the server's command."""
    parser = parser_of(command)
    if parser.get_default("words") is None and "--" in words:
        split = words.index("--")
        parser.set_defaults(after=words[split + 1 :])
        words = words[:split]
    # Options may stand between positional arguments.
    return parser.parse_intermixed_args(words)


def _top_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "mcpio",
        usage="%(prog)s COMMAND ...",
        description="The Model Context Protocol on a command line.",
        epilog=_epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    return parser


class _Version(argparse.Action):
    """Prints the version, which is expensive to look up."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import mcpio

        print(f"mcpio {mcpio.__version__}")
        parser.exit()


def _epilog() -> str:
    width = max(map(len, COMMANDS)) + 2
    commands = "".join(f"  {name:{width}}{summary}\n" for name, summary in COMMANDS.items())
    return f"""commands:
{commands}
  mcpio COMMAND --help describes a command.

exit status:
  0  done                           6  the server violates the protocol
  1  the tool reports an error      7  the server ended too early
  2  wrong usage                    8  serve: not loaded, or not listening
  3  bad arguments for the tool     9  no connection to the server at a URL
  4  no such tool or resource       10  the server differs from what was locked
  5  the server answered an error   74  the output cannot be written
                                    124  no answer in time
                                    126, 127  the program cannot be started, or does not exist
                                    130, 143  ended by SIGINT, SIGTERM
                                    141  the reader of the output stopped reading
"""


def _fail(failure: Failure, *, as_json: bool = False) -> int:
    from mcpio.cli.output import Console

    console = Console()
    console.failure(failure.message)
    if as_json and sys.stdout is not None:
        from mcpio.framing import json

        error = {"kind": failure.kind, "status": int(failure.status), "message": failure.message}
        console.result(json.dumps({"error": error}).decode())
    return failure.status


def _drop_output() -> None:
    """Discard unwritten output, which the interpreter would report as an error when it exits."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            os.dup2(null, stream.fileno())
    os.close(null)
