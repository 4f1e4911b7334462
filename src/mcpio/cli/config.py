"""``mcpio config``: print the entry for a server in a host's configuration file."""

from __future__ import annotations

import argparse
import os
import re
import shutil
from urllib.parse import urlsplit

import attrs

from mcpio.app.servers_config import ServerEntry
from mcpio.cli import targets
from mcpio.cli import targets as hosts
from mcpio.cli.connect import environment_variable
from mcpio.cli.exit_status import Exit, Failure
from mcpio.cli.output import Console

__all__ = ["add_arguments", "add_entry_options", "named_entry", "run"]

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The names that every host takes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_entry_options(parser)
    names = ", ".join(host.name for host in hosts.HOSTS)
    parser.add_argument(
        "--for",
        dest="host",
        metavar="HOST",
        default="json",
        help=f"the host: {names}; or json, the default, which most others read",
    )


def add_entry_options(parser: argparse.ArgumentParser) -> None:
    """Add the server, and the options that describe its entry."""
    parser.epilog = targets.HELP.replace(" The words of a command may also come last, after --.", "")
    parser.add_argument("server", metavar="SERVER", nargs="?", help="the server; see below")
    parser.add_argument("--name", help="the server's name in the host; by default, the name of the file or program")
    parser.add_argument(
        "-e",
        "--env",
        type=environment_variable,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable for the server's environment; hosts pass few of their own; may be repeated",
    )


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    host = None if options.host == "json" else hosts.host_named(options.host)
    name, entry = named_entry(options)
    console = Console()
    console.exact(hosts.snippet(host, name, entry))
    if host is not None:
        place = hosts.Place.here()
        scopes: tuple[hosts.ConfigScope, ...] = ("user", "project")
        files = [file for scope in scopes if (file := host.file(scope, place))]
        console.note(f"for {' or '.join(files)}")
    return Exit.DONE


def named_entry(options: argparse.Namespace) -> tuple[str, ServerEntry]:
    """Return the name and the entry for the server on the command line, with absolute paths throughout.

    A host does not have the shell's PATH, nor its working directory. Raises Failure if there is no such server.
    """
    if options.server is None:
        raise Failure(Exit.USAGE, f"no server given; see mcpio {options.command} --help")
    target = targets.resolve(options.server)
    entry = target.entry
    program = "" if entry.url is not None else _program(entry)
    name = options.name or target.name or _name_for(target)
    if not NAME.fullmatch(name):
        raise Failure(
            Exit.USAGE,
            f"{name!r} is not a name that every host takes: give --name, of at most 64 letters, digits, - and _",
        )
    if entry.url is not None:
        if options.env:
            raise Failure(Exit.USAGE, f"--env is for servers that are started, not for {entry.url}")
        return name, attrs.evolve(entry, disabled=False)
    words = [_absolute(word) for word in entry.command[1:]]
    env = {**entry.env, **dict(options.env)}
    return name, attrs.evolve(entry, command=(program, *words), env=env, disabled=False)


def _program(entry: ServerEntry) -> str:
    """Return the path of the program. Raises Failure if it is not found."""
    name = entry.command[0] if entry.command else ""
    found = shutil.which(name) if name else None
    if found is None:
        raise Failure(Exit.NO_PROGRAM, f"there is no program {name!r}{targets.where_else(name) if name else ''}")
    return os.path.abspath(found)


def _name_for(target: targets.Target) -> str:
    """Return a name for a server that no configuration names: of its file, its program, or its address."""
    entry = target.entry
    if entry.url is not None:
        text = urlsplit(entry.url).hostname or "server"
    else:
        # The command of a Python file ends in the file.
        word = entry.command[-1].rpartition(".py")[0] if target.inherit_env else entry.command[0]
        text = os.path.splitext(os.path.basename(word))[0]
    return re.sub(r"[^A-Za-z0-9_]+", "-", text)[:64].strip("-")


def _absolute(word: str) -> str:
    """Return an argument of a command; one that names a file here, in full."""
    path, colon, name = word.rpartition(":")
    if colon and path.endswith(".py") and os.path.isfile(path):
        return f"{os.path.abspath(path)}:{name}"
    return os.path.abspath(word) if os.path.isfile(word) else word
