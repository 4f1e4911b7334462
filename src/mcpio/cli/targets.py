"""The word that names a server: files, commands, addresses, and entries of hosts' configurations."""

from __future__ import annotations

import argparse
import json  # indented, for people
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import attrs

from mcpio.app.servers_config import NoServers, ServerEntry, ServersConfig
from mcpio.cli.exit_status import Exit, Failure, did_you_mean

# ------------------------------------------------------------------------------------------------------------ addresses
# Addresses on a command line: ``[HOST:]PORT``, ``unix:PATH``, ``tcp://HOST:PORT``.

TCP = "tcp://"
UNIX = "unix:"
SOCKET_SCHEMES = (TCP, UNIX)
"""The prefixes of a server that listens on a plain socket."""

DEFAULT_HOST = "127.0.0.1"
"""Reachable from this machine only: a server is not exposed to the network unless the user names a host."""

LAST_PORT = 65535


@attrs.frozen
class Address:
    """A host and a port."""

    host: str
    port: int


def parse_address(text: str) -> Address:
    """Parse ``[HOST:]PORT``; an IPv6 host may be in brackets. For ``argparse``."""
    host, _, number = text.rpartition(":")
    if not _is_port(number):
        raise argparse.ArgumentTypeError(f"must be a port or HOST:PORT, as in 0.0.0.0:8000, not {text!r:.100}")
    return Address(host.removeprefix("[").removesuffix("]") or DEFAULT_HOST, int(number))


def parse_port(text: str) -> int:
    """Parse a port. For ``argparse``."""
    if not _is_port(text):
        raise argparse.ArgumentTypeError(f"must be a port from 0 to 65535, not {text!r:.100}")
    return int(text)


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) <= LAST_PORT


def parse_place(text: str) -> Address | str:
    """Parse ``[HOST:]PORT``, or ``unix:PATH`` and return the path of the Unix socket. For ``argparse``."""
    path = text.removeprefix(UNIX)
    return path if path and path != text else parse_address(text)


def parse_socket_url(text: str) -> Address | str:
    """Parse ``tcp://HOST:PORT``, or ``unix:PATH`` and return the path. Raises Failure if it is neither."""
    if text.startswith(UNIX):
        path = text.removeprefix(UNIX)
        if not path:
            raise Failure(Exit.USAGE, f"{text!r} has no path: write unix:/run/server.sock")
        return path
    try:
        return parse_address(text.removeprefix(TCP).removesuffix("/"))
    except argparse.ArgumentTypeError:
        fault = f"has no host and port of at most {LAST_PORT}"
        raise Failure(Exit.USAGE, f"{text!r} {fault}: write tcp://localhost:4000") from None


# ---------------------------------------------------------------------------------------------------------------- hosts
# The hosts that mcpio knows: where each keeps its servers, in which form, and who writes them.
# The table is data, and dated: hosts move their files. Each row was checked against the host's documentation on
# ``CHECKED``.

CHECKED: Final = "2026-11-22"
"""When the table was last compared with the hosts' documentation."""

ConfigScope = Literal["user", "project"]


@attrs.frozen
class Directories:
    """The directories in which programs keep files on this system."""

    system: str
    """``darwin``, ``win32``, or anything else for Linux and its kin."""
    home: str
    project: str
    """The directory of project files: the working directory."""
    app_data: str = ""
    """``%APPDATA%``, on Windows."""
    config: str = ""
    """``$XDG_CONFIG_HOME``; empty for ``~/.config``."""

    @classmethod
    def here(cls) -> Directories:
        """Return the directories of this user on this machine."""
        home, environ = os.path.expanduser("~"), os.environ
        return cls(sys.platform, home, os.getcwd(), environ.get("APPDATA", ""), environ.get("XDG_CONFIG_HOME", ""))

    def path(self, template: str) -> str:
        """Return the path for a template of the table."""
        app_data = self.app_data or f"{self.home}/AppData/Roaming"
        config = self.config or f"{self.home}/.config"
        return os.path.normpath(template.format(home=self.home, project=self.project, app_data=app_data, config=config))


@attrs.frozen(kw_only=True)
class Host:
    """One row of the table."""

    name: str
    """As given on the command line."""
    title: str
    files: Mapping[ConfigScope, str | Mapping[str, str]]
    """The file for each scope: a template of ``Directories.path``, or one for each system (``""``: all others)."""
    key: str = "mcpServers"
    """The member of the file that holds the servers."""
    syntax: Literal["json", "toml", "yaml"] = "json"
    typed: bool = False
    """Whether an entry has ``type``: ``stdio`` or ``http``."""
    url_key: str | None = "url"
    """The member for a server's URL; ``None`` if the file takes programs only."""
    headers_key: str = "headers"
    add: tuple[str, ...] = ()
    """The host's own command that adds a server, with ``{name}``, ``{json}`` and ``{scope}``; preferred to writing its
    file. ``*`` stands for the program and its arguments, ``--env`` for the variables."""
    remove: tuple[str, ...] = ()
    """The host's own command that removes it again."""
    writes: bool = True
    """Whether mcpio writes the file where the host has no command; otherwise it prints what to add."""
    after: str = ""
    """The user's next step."""

    def file(self, scope: ConfigScope, directories: Directories) -> str | None:
        """Return the path of the file for a scope, or ``None`` if the host has none."""
        path = self.files.get(scope)
        if isinstance(path, Mapping):
            path = path.get(directories.system, path.get(""))
        return None if path is None else directories.path(path)


HOSTS: Final[tuple[Host, ...]] = (
    Host(
        name="claude-code",
        title="Claude Code",
        files={"user": "{home}/.claude.json", "project": "{project}/.mcp.json"},
        typed=True,
        add=("claude", "mcp", "add-json", "{name}", "{json}", "-s", "{scope}"),
        remove=("claude", "mcp", "remove", "{name}", "-s", "{scope}"),
        after="start a new session of Claude Code; /mcp lists the servers",
    ),
    Host(
        name="claude-desktop",
        title="Claude Desktop",
        files={
            "user": {
                "darwin": "{home}/Library/Application Support/Claude/claude_desktop_config.json",
                "win32": "{app_data}/Claude/claude_desktop_config.json",
                "": "{config}/Claude/claude_desktop_config.json",
            }
        },
        url_key=None,
        after="quit Claude Desktop and start it again",
    ),
    Host(
        name="cursor",
        title="Cursor",
        files={"user": "{home}/.cursor/mcp.json", "project": "{project}/.cursor/mcp.json"},
        after="Cursor's settings, under MCP, show the server",
    ),
    Host(
        name="vscode",
        title="VS Code",
        files={
            "user": {
                "darwin": "{home}/Library/Application Support/Code/User/mcp.json",
                "win32": "{app_data}/Code/User/mcp.json",
                "": "{config}/Code/User/mcp.json",
            },
            "project": "{project}/.vscode/mcp.json",
        },
        key="servers",
        typed=True,
        after="in VS Code, MCP: List Servers starts it",
    ),
    Host(
        name="codex",
        title="Codex",
        files={"user": "{home}/.codex/config.toml", "project": "{project}/.codex/config.toml"},
        key="mcp_servers",
        syntax="toml",
        headers_key="http_headers",
        add=("codex", "mcp", "add", "{name}", "--env", "--", "*"),
        remove=("codex", "mcp", "remove", "{name}"),
        writes=False,
        after="codex mcp list shows the server",
    ),
    Host(
        name="gemini",
        title="Gemini CLI",
        files={"user": "{home}/.gemini/settings.json", "project": "{project}/.gemini/settings.json"},
        url_key="httpUrl",
        after="in Gemini CLI, /mcp lists the servers",
    ),
    Host(
        name="zed",
        title="Zed",
        files={
            "user": {"win32": "{app_data}/Zed/settings.json", "": "{config}/zed/settings.json"},
            "project": "{project}/.zed/settings.json",
        },
        key="context_servers",
        writes=False,  # the file has comments, which a rewrite would lose
        after="Zed's agent settings show the server",
    ),
    Host(
        name="goose",
        title="Goose",
        files={
            "user": {"win32": "{app_data}/Block/goose/config/config.yaml", "": "{config}/goose/config.yaml"},
        },
        key="extensions",
        syntax="yaml",
        writes=False,
        after="start a new session of Goose",
    ),
)


def host_named(name: str) -> Host:
    """Return the host of that name. Raises Failure for an unknown name."""
    for host in HOSTS:
        if host.name == name:
            return host
    names = [host.name for host in HOSTS]
    hint = did_you_mean(name, names) or f" mcpio knows {', '.join(names)}; --for json prints mcpServers for others."
    raise Failure(Exit.USAGE, f"no host {name!r}.{hint}")


def read_config(path: str, environ: Mapping[str, str]) -> ServersConfig:
    """Return the servers of a configuration file, JSON or TOML by its ending.

    Raises OSError if it cannot be read, ValueError if it is malformed.
    """
    if path.endswith((".yaml", ".yml")):
        raise ValueError(f"{path} is YAML, which mcpio does not read: give the server's command, or use JSON")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    syntax: Literal["json", "toml"] = "toml" if path.endswith(".toml") else "json"
    return ServersConfig.parse(text, variables=environ, source=path, syntax=syntax)


@attrs.frozen
class HostFile:
    """The servers that one file of a host has."""

    host: Host
    path: str
    config: ServersConfig


def known_servers(directories: Directories, environ: Mapping[str, str]) -> tuple[list[HostFile], list[str]]:
    """Return the entries in the files of all hosts, projects first, and the faults of unreadable files.

    A file without servers has nothing to add, and is no fault: Gemini's and Zed's hold all their settings.
    """
    files, faults = [], []
    scopes: tuple[ConfigScope, ...] = ("project", "user")
    for host in HOSTS:
        for scope in scopes:
            path = host.file(scope, directories)
            if path is None or host.syntax == "yaml" or not os.path.isfile(path):
                continue
            try:
                files.append(HostFile(host, path, read_config(path, environ)))
            except NoServers:
                pass
            except (OSError, ValueError) as error:
                faults.append(str(error))
    return files, faults


# Servers in a host's configuration file


def members(host: Host | None, entry: ServerEntry) -> dict[str, Any]:
    """Return a server's entry as a host writes it; ``None`` is a host of no particular kind.

    Raises Failure if the host's file cannot name such a server.
    """
    entry_members: dict[str, Any] = {}
    if entry.url is not None:
        url_key = "url" if host is None else host.url_key
        if url_key is None:
            assert host is not None
            raise Failure(
                Exit.USAGE,
                f"{host.title}'s file takes programs only: add {entry.url} as a connector in its settings",
            )
        if host is not None and host.typed:
            entry_members["type"] = "http"
        entry_members[url_key] = entry.url
        if entry.headers:
            entry_members["headers" if host is None else host.headers_key] = dict(entry.headers)
        return entry_members
    if host is not None and host.typed:
        entry_members["type"] = "stdio"
    entry_members["command"], entry_members["args"] = entry.command[0], list(entry.command[1:])
    if entry.env:
        entry_members["env"] = dict(entry.env)
    if entry.cwd is not None:
        entry_members["cwd"] = entry.cwd
    return entry_members


def snippet(host: Host | None, name: str, entry: ServerEntry) -> str:
    """Return what to add to a host's file, in the file's syntax; ends with a newline."""
    if host is None or host.syntax == "json":
        return indented({("mcpServers" if host is None else host.key): {name: members(host, entry)}})
    if host.syntax == "toml":
        return "".join(_toml_lines(f"{host.key}.{_toml_key(name)}", members(host, entry)))
    return "".join(_goose_lines(name, entry))


def indented(value: Any) -> str:
    """Return JSON text for a file that people edit."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _toml_lines(table: str, entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a TOML table. TOML's basic strings have the escapes of JSON's."""
    yield f"[{table}]\n"
    for key, value in entry.items():
        if not isinstance(value, dict):
            yield f"{key} = {_quoted(value)}\n"
    for key, value in entry.items():
        if isinstance(value, dict):
            yield f"\n[{table}.{key}]\n"
            for name, text in value.items():
                yield f"{_toml_key(name)} = {_quoted(text)}\n"


def _toml_key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else _quoted(name)


def _goose_lines(name: str, entry: ServerEntry) -> Iterator[str]:
    """Yield an extension of Goose as YAML. Every JSON value is YAML too."""
    value = _quoted
    yield f"extensions:\n  {value(name)}:\n    enabled: true\n    name: {value(name)}\n"
    if entry.url is not None:
        yield f"    type: streamable_http\n    uri: {value(entry.url)}\n"
        if entry.headers:
            yield f"    headers: {value(dict(entry.headers))}\n"
    else:
        yield f"    type: stdio\n    cmd: {value(entry.command[0])}\n    args: {value(list(entry.command[1:]))}\n"
        if entry.env:
            yield f"    envs: {value(dict(entry.env))}\n"
    yield "    timeout: 300\n"


# -------------------------------------------------------------------------------------------------------------- targets
# Targets: the ways to name a server on the command line, and how each is started or reached.
# A target is a URL, a Python file, a configuration file with a name in it, a name in a host's configuration, or a
# command.

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


def resolve(text: str, environ: Mapping[str, str] = os.environ, directories: Directories | None = None) -> Target:
    """Return the server that a word of the command line names. Raises Failure if there is none."""
    if text.startswith(URLS):
        return Target(text, ServerEntry(url=text))
    if text.startswith("@"):
        return _in_hosts(text, environ, directories or Directories.here())
    path, _ = _split(text)
    if path.endswith(".py") and _is_file(path):
        return Target(text, ServerEntry(command=serving(text)), inherit_env=True)
    if path.endswith(CONFIGS) and _is_file(path):
        return _in_file(text, environ)
    words = _command(text)
    if len(words) == 1 and words[0] != text:
        return resolve(words[0], environ, directories)  # quoted once more than necessary
    return Target(text, ServerEntry(command=words))


def serving(reference: str) -> tuple[str, ...]:
    """Return the command that serves a Python file, as ``mcpio serve`` does."""
    return (*SERVE, reference)


MCPIO: Final = (sys.executable, "-m", "mcpio")
"""The command ``mcpio``, by this interpreter."""

SERVE: Final = (*MCPIO, "serve")
"""The command ``mcpio serve``."""


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
        raise Failure(Exit.NO_PROGRAM, f"the server must be a file or a command, not the directory {path!r}")
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
            raise Failure(Exit.USAGE, f"{path} has the servers {_join_names(names)}: write {path}:{names[0]}")
        name = names[0]
    if name not in config:
        raise Failure(
            Exit.NOT_FOUND, f"no server {name!r} in {path}; it has {_join_names(names)}.{did_you_mean(name, names)}"
        )
    return Target(text, _entry(config, name), name)


def _in_hosts(text: str, environ: Mapping[str, str], directories: Directories) -> Target:
    """Return the server for ``@HOST/NAME`` or ``@NAME`` in the files of the hosts."""
    host, slash, name = text[1:].partition("/")
    if not slash or host not in _HOST_NAMES:
        host, name = "", text[1:]
    if not name:
        raise Failure(Exit.USAGE, f"{text!r} names no server: write @HOST/NAME or @NAME")
    files, faults = known_servers(directories, environ)
    searched = [each for each in files if host in ("", each.host.name)]
    matches = [each for each in searched if name in each.config]
    if matches:
        # The same server may be in several files; different ones of one name have to be told apart.
        entries = {each.host.name: _entry(each.config, name) for each in reversed(matches)}
        first = _entry(matches[0].config, name)
        if any(entry != first for entry in entries.values()):
            choices = " or ".join(f"@{each}/{name}" for each in reversed(entries))
            raise Failure(Exit.USAGE, f"several hosts have a server {name!r}: write {choices}")
        return Target(text, first, name)
    raise Failure(Exit.NOT_FOUND, _not_in_hosts(host, name, searched, faults))


def _not_in_hosts(host: str, name: str, looked: list[HostFile], faults: list[str]) -> str:
    lines = [f"no server {name!r} in the configuration of {host or 'any host'}"]
    prefix, slash, _ = name.partition("/")
    if name in _HOST_NAMES:
        lines.append(f"  {name} is a host: write @{name}/NAME")
    elif slash and not host:
        lines.append(f"  {prefix!r} is not a host that mcpio knows.{did_you_mean(prefix, _HOST_NAMES)}")
    lines += [f"  {each.path} has {_join_names(list(each.config))}" for each in looked]
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


def where_else(program: str, environ: Mapping[str, str] = os.environ, directories: Directories | None = None) -> str:
    """Return an explanation of a missing program, with a guess at what the user meant; or an empty str."""
    if ":" in program:
        return ". A server that runs is called by a URL, such as http://localhost:8000/mcp or tcp://localhost:4000"
    if os.path.dirname(program) or shutil.which(program):
        return ""
    files, _ = known_servers(directories or Directories.here(), environ)
    named = [f"@{each.host.name}/{program}" for each in files if program in each.config]
    looked = f"; looked in PATH, which is {environ.get('PATH', '')}"
    return looked + (f". A host has a server of that name: write {named[0]}" if named else "")


def _join_names(names: list[str], limit: int = 20) -> str:
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "") or "none"
