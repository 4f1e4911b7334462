"""The ``mcpServers`` of a host's configuration file: the servers, and how to reach each."""

from __future__ import annotations

import json  # not mcpio.framing.json: people write these files, and need the line of a mistake
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

import attrs

from mcpio._checks import items_of
from mcpio.types._fields import EMPTY

__all__ = ["NoServers", "ServerEntry", "ServersConfig", "load_json", "without_comments"]

SERVER_KEYS: Final = ("mcpServers", "servers", "context_servers", "mcp_servers")
"""The member that holds the servers: of most hosts, of VS Code, of Zed, and of Codex."""

URL_KEYS: Final = ("url", "httpUrl", "serverUrl")
"""The member that holds a URL: of most hosts, of Gemini, and of Antigravity."""


class NoServers(ValueError):
    """The file is well-formed, and has no member that holds servers."""


def _words(command: Iterable[str]) -> tuple[str, ...]:
    return items_of("command", command)


@attrs.frozen(kw_only=True)
class ServerEntry:
    """One server: the program to start, or the URL to connect to. One of ``command`` and ``url`` is set."""

    command: tuple[str, ...] = attrs.field(default=(), converter=_words)
    """The program and its arguments."""
    env: Mapping[str, str] = EMPTY
    """Variables for the program's environment."""
    cwd: str | None = None
    """The program's working directory."""
    url: str | None = None
    """The server's address."""
    headers: Mapping[str, str] = EMPTY
    """Header fields for every request to the URL."""
    disabled: bool = False
    """Whether the host is configured not to use the server."""


class ServersConfig(Mapping[str, ServerEntry]):
    """The servers of a configuration, by name.

    Each entry is read when it is looked up, which raises ValueError if it is malformed: one faulty entry costs only
    itself. ``timeout`` is not read, since its unit differs from host to host; nor are members that only one host knows.
    """

    def __init__(self, entries: Mapping[str, Any], *, variables: Mapping[str, str] = EMPTY, source: str = "") -> None:
        """``entries`` is the value of ``mcpServers``. See ``parse`` for the other arguments."""
        self._entries = entries
        self._variables = variables
        self.source: str = source or "the configuration"
        """The source of the entries, for messages."""

    @classmethod
    def parse(
        cls,
        text: str,
        *,
        variables: Mapping[str, str] = EMPTY,
        source: str = "",
        syntax: Literal["json", "toml"] = "json",
    ) -> ServersConfig:
        """Read the text of a configuration file.

        JSON may have comments and trailing commas. ``variables``, usually ``os.environ``, are the values for
        ``${NAME}``, ``${env:NAME}`` and ``${NAME:-default}``. ``source`` is the file's name, for error messages. Raises
        ValueError for text that is malformed, or has no servers.
        """
        name = source or "the configuration"
        data = _toml(text, name) if syntax == "toml" else load_json(text, name)
        if not isinstance(data, dict):
            raise ValueError(f"{name} must hold an object with the member mcpServers, not {_kind(data)}")  # noqa: TRY004  a fault of the file, not of the caller
        keys = [key for key in SERVER_KEYS if key in data]
        if not keys:
            has = f"it has {', '.join(map(str, data))}" if data else "it is empty"
            raise NoServers(f"{name} has no servers: none of {', '.join(SERVER_KEYS)} is there; {has:.200}")
        if len(keys) > 1:
            raise ValueError(f"{name} has both {keys[0]} and {keys[1]}: keep the one that its host reads")
        entries = data[keys[0]]
        if not isinstance(entries, dict):
            raise ValueError(f"{name}: {keys[0]} must be an object of servers by name, not {_kind(entries)}")  # noqa: TRY004  a fault of the file, not of the caller
        return cls(entries, variables=variables, source=source)

    def __getitem__(self, name: str) -> ServerEntry:
        """Return an entry. Raises KeyError for an unknown name, and ValueError for a malformed entry."""
        entry = self._entries[name]
        return _Reader(f"{self.source}: the server {name!r}", self._variables).entry(entry)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __repr__(self) -> str:
        return f"<ServersConfig {self.source}: {', '.join(self._entries)}>"  # no entry: it may hold secrets


@attrs.frozen
class _Reader:
    """Reads one entry; its errors name the entry and the member."""

    where: str
    variables: Mapping[str, str]

    def entry(self, raw: Any) -> ServerEntry:
        if not isinstance(raw, dict):
            raise self.fault(f"is {_kind(raw)}, not an object")
        urls = [key for key in URL_KEYS if raw.get(key) is not None]
        disabled = raw.get("disabled", raw.get("enabled") is False)
        if not isinstance(disabled, bool):
            raise self.fault(f"disabled is {_kind(disabled)}, not true or false")
        if raw.get("command") is not None:
            if urls:
                raise self.fault(f"has both command and {urls[0]}: a server is a program or a URL")
            return ServerEntry(
                command=self.command(raw),
                env=self.texts(raw, "env"),
                cwd=None if raw.get("cwd") is None else self.text("cwd", raw["cwd"]),
                disabled=disabled,
            )
        if not urls:
            has = ", ".join(map(str, raw)) or "nothing"
            raise self.fault(f"has neither command nor url; it has {has:.100}")
        return ServerEntry(url=self.text(urls[0], raw[urls[0]]), headers=self.headers(raw), disabled=disabled)

    def command(self, raw: Mapping[str, Any]) -> tuple[str, ...]:
        program, args = raw["command"], raw.get("args", [])
        if not isinstance(args, list):
            raise self.fault(f"args is {_kind(args)}, not an array of strings")
        if isinstance(program, list):  # some hosts write the whole command line here
            program, args = (program[0] if program else ""), [*program[1:], *args]
        words = (self.text("command", program), *(self.text(f"args[{i}]", arg) for i, arg in enumerate(args)))
        if not words[0]:
            raise self.fault("command is empty")
        return words

    def headers(self, raw: Mapping[str, Any]) -> Mapping[str, str]:
        key = "http_headers" if "http_headers" in raw else "headers"  # the first is Codex's
        headers = dict(self.texts(raw, key))
        variable = raw.get("bearer_token_env_var")
        if variable is not None:
            headers["Authorization"] = f"Bearer {self.variable('bearer_token_env_var', str(variable))}"
        return headers

    def texts(self, raw: Mapping[str, Any], key: str) -> Mapping[str, str]:
        members = raw.get(key) or {}
        if not isinstance(members, dict):
            raise self.fault(f"{key} is {_kind(members)}, not an object of strings")
        return {name: self.text(f"{key}.{name}", value) for name, value in members.items()}

    def text(self, member: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self.fault(f"{member} is {_kind(value)}, not a string")
        return _VARIABLE.sub(
            lambda match: self.variable(member, match[1]) if match[1] and match[2] else match[0], value
        )

    def variable(self, member: str, name: str) -> str:
        name, colon, default = name.partition(":-")
        if name.startswith("input:"):
            raise self.fault(f"{member} asks its host for {name!r}, which only VS Code does: write ${{env:NAME}}")
        name = name.removeprefix("env:")
        value = self.variables.get(name)
        if value is None and not colon:
            raise self.fault(f"{member} needs the variable {name}, which is not set; ${{{name}:-}} would be empty text")
        # As in a shell, :- also replaces empty text.
        return default if colon and not value else str(value)

    def fault(self, reason: str) -> ValueError:
        return ValueError(f"{self.where}: {reason}")


# Here and below, what has no end is matched too, to be left as it is: else each of its beginnings would be looked into.
_VARIABLE: Final = re.compile(r"\$\{([^}]*+)(\}?)")


def load_json(text: str, name: str) -> Any:
    """Return the value of JSON text, which may have comments and trailing commas.

    Raises ValueError, with the line, for malformed text.
    """
    plain = without_comments(text.removeprefix("\ufeff"))
    try:
        return json.loads(_TRAILING_COMMA.sub(lambda match: match[1] or " ", plain))
    except json.JSONDecodeError as error:
        raise ValueError(f"{name} is not JSON: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply") from None


def without_comments(text: str) -> str:
    """Return JSON text with its comments blanked out; lines and columns stay."""
    return _COMMENT.sub(_blanked, text)


def _blanked(match: re.Match[str]) -> str:
    # The last group is the end of a comment, of either kind.
    return match[0] if match.lastindex is None else _NOT_NEWLINE.sub(" ", match[0])


_STRING: Final = r'"(?:[^"\\\n]|\\.)*+"?'
_COMMENT: Final = re.compile(rf"{_STRING}|//[^\n]*()|/\*.*?(?:(\*/)|\Z)", re.DOTALL)
_TRAILING_COMMA: Final = re.compile(rf"({_STRING})|,(?=\s*[}}\]])")
_NOT_NEWLINE: Final = re.compile(r"[^\n]")


def _toml(text: str, name: str) -> Any:
    import tomllib  # one host's files need it

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{name} is not TOML: {error}") from None
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply") from None


def _kind(value: Any) -> str:
    kinds: dict[type, str] = {dict: "an object", list: "an array", str: "a string", bool: "true or false"}
    return "null" if value is None else kinds.get(type(value), "a number")
