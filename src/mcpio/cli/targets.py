"""Targets: the ways to name a server on the command line, and how each is started or reached.

A target is a URL, a Python file, a configuration file with a name in it, a name in a host's configuration, or a
command.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping

import attrs

from mcpio.app.servers_config import ServerEntry, ServersConfig
from mcpio.cli.addresses import SOCKET_SCHEMES
from mcpio.cli.exit_status import Exit, Failure, did_you_mean
from mcpio.cli.hosts import HOSTS, Known, Place, known_servers, read_config

__all__ = ["HELP", "URLS", "WEBSOCKET", "Target", "resolve", "where_else"]

WEBSOCKET = ("ws://", "wss://", "ws+unix://", "wss+unix://")
URLS = ("http://", "https://", "http+unix://", "https+unix://", *WEBSOCKET, *SOCKET_SCHEMES)
"""The prefixes of a server that already runs."""

CONFIGS = (".json", ".jsonc", ".toml", ".yaml", ".yml")
"""The endings of a configuration file."""

_HOST_NAMES = tuple(each.name for each in HOSTS)

HELP = (
    "SERVER is a Python file, as in server.py or server.py:NAME; a configuration file with mcpServers, as in "
    "mcp.json:NAME; a name in a host's configuration, as in @claude-desktop/NAME or @NAME; an address: http://, "
    "https://, ws://, wss://, http+unix://, ws+unix:// and tcp://HOST:PORT, or unix:PATH; or a command in quotes, "
    "as in 'python server.py'. The words of a command may also come last, after --."
)


@attrs.frozen
class Target:
    """A server, resolved."""

    text: str
    """As the user wrote it."""
    entry: ServerEntry
    name: str = ""
    """The server's name in the configuration that has it."""
    inherit_env: bool = False
    """Whether the program gets this process's whole environment: one's own file does, as with ``mcpio serve``."""


def resolve(text: str, environ: Mapping[str, str] = os.environ, place: Place | None = None) -> Target:
    """Return the server that a word of the command line names. Raises Failure if there is none."""
    if text.startswith(URLS):
        return Target(text, ServerEntry(url=text))
    if text.startswith("@"):
        return _in_hosts(text, environ, place or Place.here())
    path, _ = _split(text)
    if path.endswith(".py") and _is_file(path):
        return Target(text, ServerEntry(command=serving(text)), inherit_env=True)
    if path.endswith(CONFIGS) and _is_file(path):
        return _in_file(text, environ)
    words = _command(text)
    if len(words) == 1 and words[0] != text:
        return resolve(words[0], environ, place)  # quoted once more than necessary
    return Target(text, ServerEntry(command=words))


def serving(reference: str) -> tuple[str, ...]:
    """Return the command that serves a Python file, as ``mcpio serve`` does."""
    return (sys.executable, "-m", "mcpio", "serve", reference)


def _split(text: str) -> tuple[str, str]:
    """Return the path and the name of ``PATH:NAME``. The colon may be part of a path, as in Windows' ``C:``."""
    path, colon, name = text.rpartition(":")
    if not colon or os.path.exists(text) or "/" in name or "\\" in name:
        return text, ""
    return path, name


def _is_file(path: str) -> bool:
    """Whether the path is a file. Raises Failure for a missing file whose name can only be a path."""
    if os.path.isfile(path):
        return True
    if len(path.split()) > 1:
        return False  # a command, such as "python server.py"
    if os.path.isdir(path):
        raise Failure(Exit.NO_PROGRAM, f"{path!r} is a directory")
    folder = os.path.dirname(path) or "."
    hint = did_you_mean(os.path.basename(path), _names_in(folder))
    raise Failure(Exit.NO_PROGRAM, f"there is no file {path!r}; looked in {os.path.abspath(folder)}.{hint}")


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []  # it is only for a hint


def _in_file(text: str, environ: Mapping[str, str]) -> Target:
    path, name = _split(text)
    try:
        config = read_config(path, environ)
    except OSError as error:
        raise Failure(Exit.USAGE, f"cannot read {path!r}: {error.strerror or error}") from error
    except ValueError as error:
        raise Failure(Exit.USAGE, str(error)) from error
    names = list(config)
    if not names:
        raise Failure(Exit.NOT_FOUND, f"{path} names no server")
    if not name:
        if len(names) > 1:
            raise Failure(Exit.USAGE, f"{path} has the servers {_listed(names)}: write {path}:{names[0]}")
        name = names[0]
    if name not in config:
        raise Failure(
            Exit.NOT_FOUND, f"no server {name!r} in {path}; it has {_listed(names)}.{did_you_mean(name, names)}"
        )
    return Target(text, _entry(config, name), name)


def _in_hosts(text: str, environ: Mapping[str, str], place: Place) -> Target:
    """Return the server for ``@HOST/NAME`` or ``@NAME`` in the files of the hosts."""
    host, slash, name = text[1:].partition("/")
    if not slash or host not in _HOST_NAMES:
        host, name = "", text[1:]
    if not name:
        raise Failure(Exit.USAGE, f"{text!r} names no server: write @HOST/NAME or @NAME")
    files, faults = known_servers(place, environ)
    looked = [each for each in files if host in ("", each.host.name)]
    found = [each for each in looked if name in each.config]
    if found:
        # The same server may be in several files; different ones of one name have to be told apart.
        entries = {each.host.name: _entry(each.config, name) for each in reversed(found)}
        first = _entry(found[0].config, name)
        if any(entry != first for entry in entries.values()):
            choices = " or ".join(f"@{each}/{name}" for each in reversed(entries))
            raise Failure(Exit.USAGE, f"several hosts have a server {name!r}: write {choices}")
        return Target(text, first, name)
    raise Failure(Exit.NOT_FOUND, _not_in_hosts(host, name, looked, faults))


def _not_in_hosts(host: str, name: str, looked: list[Known], faults: list[str]) -> str:
    lines = [f"no server {name!r} in the configuration of {host or 'any host'}"]
    prefix, slash, _ = name.partition("/")
    if name in _HOST_NAMES:
        lines.append(f"  {name} is a host: write @{name}/NAME")
    elif slash and not host:
        lines.append(f"  {prefix!r} is not a host that mcpio knows.{did_you_mean(prefix, _HOST_NAMES)}")
    lines += [f"  {each.path} has {_listed(list(each.config))}" for each in looked]
    lines += [f"  not read: {fault}" for fault in faults]
    if not looked and not faults:
        lines.append(f"  no file of {host or ', '.join(_HOST_NAMES)} has servers here")
    hint = did_you_mean(name, [server for each in looked for server in each.config])
    return "\n".join(lines) + (f"\n {hint}" if hint else "")


def _entry(config: ServersConfig, name: str) -> ServerEntry:
    try:
        return config[name]
    except ValueError as error:
        raise Failure(Exit.USAGE, str(error)) from error


def _command(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise Failure(Exit.USAGE, f"cannot split the server's command {text!r}: {error}") from error


def where_else(program: str, environ: Mapping[str, str] = os.environ, place: Place | None = None) -> str:
    """Return an explanation of a missing program, with a guess at what the user meant; or an empty str."""
    if ":" in program:
        return ". A server that runs is called by a URL, such as http://localhost:8000/mcp or tcp://localhost:4000"
    if os.path.dirname(program) or shutil.which(program):
        return ""
    files, _ = known_servers(place or Place.here(), environ)
    named = [f"@{each.host.name}/{program}" for each in files if program in each.config]
    looked = f"; looked in PATH, which is {environ.get('PATH', '')}"
    return looked + (f". A host has a server of that name: write {named[0]}" if named else "")


def _listed(names: list[str], limit: int = 20) -> str:
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "") or "none"
