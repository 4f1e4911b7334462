"""The hosts that mcpio knows: where each keeps its servers, in which form, and who writes them.

The table is data, and dated: hosts move their files. Each row was checked against the host's documentation on
``CHECKED``.
"""

from __future__ import annotations

import json  # indented, for people
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import attrs

from mcpio.app.servers_config import NoServers, ServerEntry, ServersConfig
from mcpio.cli.exit_status import Exit, Failure, did_you_mean

__all__ = [
    "CHECKED",
    "HOSTS",
    "Host",
    "Known",
    "Place",
    "Scope",
    "host_named",
    "indented",
    "known_servers",
    "members",
    "read_config",
    "snippet",
]

CHECKED: Final = "2026-11-22"
"""When the table was last compared with the hosts' documentation."""

Scope = Literal["user", "project"]


@attrs.frozen
class Place:
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
    def here(cls) -> Place:
        """Return the places of this user on this machine."""
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
    files: Mapping[Scope, str | Mapping[str, str]]
    """The file for each scope: a template of ``Place.path``, or one for each system (``""``: all others)."""
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

    def file(self, scope: Scope, place: Place) -> str | None:
        """Return the path of the file for a scope, or ``None`` if the host has none."""
        found = self.files.get(scope)
        if isinstance(found, Mapping):
            found = found.get(place.system, found.get(""))
        return None if found is None else place.path(found)


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
class Known:
    """The servers that one file of a host has."""

    host: Host
    path: str
    config: ServersConfig


def known_servers(place: Place, environ: Mapping[str, str]) -> tuple[list[Known], list[str]]:
    """Return the entries in the files of all hosts, projects first, and the faults of unreadable files.

    A file without servers has nothing to add, and is no fault: Gemini's and Zed's hold all their settings.
    """
    found, faults = [], []
    scopes: tuple[Scope, ...] = ("project", "user")
    for host in HOSTS:
        for scope in scopes:
            path = host.file(scope, place)
            if path is None or host.syntax == "yaml" or not os.path.isfile(path):
                continue
            try:
                found.append(Known(host, path, read_config(path, environ)))
            except NoServers:
                pass
            except (OSError, ValueError) as error:
                faults.append(str(error))
    return found, faults


# What a host's file says of a server


def members(host: Host | None, entry: ServerEntry) -> dict[str, Any]:
    """Return a server's entry as a host writes it; ``None`` is a host of no particular kind.

    Raises Failure if the host's file cannot name such a server.
    """
    found: dict[str, Any] = {}
    if entry.url is not None:
        url_key = "url" if host is None else host.url_key
        if url_key is None:
            assert host is not None
            raise Failure(
                Exit.USAGE,
                f"{host.title}'s file takes programs only: add {entry.url} as a connector in its settings",
            )
        if host is not None and host.typed:
            found["type"] = "http"
        found[url_key] = entry.url
        if entry.headers:
            found["headers" if host is None else host.headers_key] = dict(entry.headers)
        return found
    if host is not None and host.typed:
        found["type"] = "stdio"
    found["command"], found["args"] = entry.command[0], list(entry.command[1:])
    if entry.env:
        found["env"] = dict(entry.env)
    if entry.cwd is not None:
        found["cwd"] = entry.cwd
    return found


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
