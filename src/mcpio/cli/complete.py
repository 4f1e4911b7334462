"""``mcpio complete``: completion for shells, with the names of a server's tools, arguments, prompts and resources."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from mcpio.cli import targets
from mcpio.cli.exit_status import Exit
from mcpio.cli.targets import HOSTS, Directories, known_servers, read_config

_FOR_CACHE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
CACHED: Final = 60.0
"""Seconds for which the list of a server is kept."""

LIST_TIMEOUT: Final = 5
"""Seconds that a server has to return its lists."""

BREAKS: Final = "=:@"
"""The characters at which bash begins a new word, unlike a shell's grammar: a candidate is what follows the last."""

PLAIN: Final = re.compile(r"[\w@%+=:,./-]+")
"""A candidate that no shell treats specially, within quotes or not. Others are left out: servers choose their names."""

SCRIPTS: Final = {
    "bash": """\
_mcpio() {
    local IFS=$'\\n'
    COMPREPLY=($(mcpio complete bash "${COMP_LINE:0:COMP_POINT}" 2>/dev/null))
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
    return 0
}
complete -o default -F _mcpio mcpio
""",
    "zsh": """\
#compdef mcpio
_mcpio() {
    local -a found
    found=(${(f)"$(mcpio complete zsh "${(j: :)words[1,CURRENT]}" 2>/dev/null)"})
    if (( ${#found} )); then compadd -Q -- $found; else _files; fi
}
compdef _mcpio mcpio
""",
    "fish": """\
complete -c mcpio -a '(mcpio complete fish (commandline -cp | string collect))'
""",
}

USING: Final = {"list": "", "call": "tools", "prompt": "prompts", "read": "resources"}
"""The commands that use a server, and the list that their next word comes from."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = 'To switch it on, in bash: eval "$(mcpio complete bash)"; in fish: mcpio complete fish | source'
    parser.add_argument("shell", choices=list(SCRIPTS), help="prints the script for this shell")
    parser.add_argument("line", nargs="?", help=argparse.SUPPRESS)  # the script asks what may follow


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    if options.line is None:
        print(SCRIPTS[options.shell], end="")
        return Exit.DONE
    words = _split(options.line)
    last = words[-1]
    start = max(last.rfind(each) for each in BREAKS) + 1 if options.shell == "bash" else 0
    for candidate in sorted(set(candidates(words))):
        shown = candidate[start:]
        is_option_unasked = candidate.startswith("-") and not last
        if candidate.startswith(last) and not is_option_unasked and PLAIN.fullmatch(shown):
            print(shown)
    return Exit.DONE


def _split(line: str) -> list[str]:
    """Return the words of an incomplete command line; the last, perhaps empty, is the one to complete."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    try:
        words.extend(iter(lexer.get_token, None))
    except ValueError:
        words.append(lexer.token or "")  # within quotes
    return [*words, ""] if not line or line[-1].isspace() or len(words) < 2 else words


def candidates(words: list[str]) -> Iterator[str]:
    """Yield the completions of the last word."""
    from mcpio.cli.command_line import COMMANDS, parser_of

    if len(words) <= 2:
        yield from (command for command in COMMANDS)
        return
    command = words[1]
    if command not in COMMANDS:
        return
    parser = parser_of(command)
    positionals, option = _positionals(parser, words[2:-1])
    if option is not None:
        yield from option.choices or ([host.name for host in HOSTS] if option.dest == "host" else [])
    elif words[-1].startswith("-"):
        yield from (text for action in parser._actions for text in action.option_strings)  # noqa: SLF001  there is no other way
    elif command in USING:
        yield from _of_server(command, positionals, words[-1])
    elif command == "install" and not positionals:
        yield from (host.name for host in HOSTS)
    elif command in ("config", "install"):
        yield from _targets(words[-1])


def _positionals(parser: argparse.ArgumentParser, words: Iterable[str]) -> tuple[list[str], argparse.Action | None]:
    """Return the words that are no options, and the option whose value comes next, if one does."""
    positionals: list[str] = []
    pending: argparse.Action | None = None
    options = parser._option_string_actions  # noqa: SLF001  there is no other way
    for word in words:
        if pending is not None:
            pending = None
        elif word in options:
            pending = options[word] if options[word].nargs is None else None
        else:
            positionals.append(word)
    return positionals, pending


def _of_server(command: str, positionals: list[str], last: str) -> Iterator[str]:
    if not positionals:
        yield from _targets(last)
        return
    kind = USING[command]
    if not kind:
        return
    # Malformed items are in the list as the server sent them.
    items = [item for item in _listing(positionals[0]).get(kind, []) if isinstance(item, dict)]
    if len(positionals) == 1:
        yield from (str(item.get("uri" if kind == "resources" else "name", "")) for item in items)
        return
    for item in items:
        if item.get("name") == positionals[1]:
            given_names = {word.partition("=")[0].removesuffix(":") for word in positionals[2:]}
            yield from (each for each in _arguments(item) if each.partition("=")[0] not in given_names)


def _arguments(item: Mapping[str, Any]) -> Iterator[str]:
    """Yield the arguments of a tool or a prompt, and the values of those that have few."""
    arguments, schema = item.get("arguments"), item.get("inputSchema")
    for argument in arguments if isinstance(arguments, list) else []:
        if isinstance(argument, dict):
            yield f"{argument.get('name', '')}="
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for name, member in properties.items() if isinstance(properties, dict) else []:
        yield f"{name}="
        if isinstance(member, dict):
            choices = member.get("enum") or ([True, False] if member.get("type") == "boolean" else [])
            values = choices if isinstance(choices, list) else []
            yield from (f"{name}={value if isinstance(value, str) else json.dumps(value)}" for value in values)


def _targets(last: str) -> Iterator[str]:
    """Yield servers of hosts and of configuration files. Files are the shell's own part."""
    path, colon, _ = last.rpartition(":")
    if colon and path.endswith(targets.CONFIGS):
        try:
            yield from (f"{path}:{name}" for name in read_config(path, {}))
        except (OSError, ValueError):
            return
    elif last.startswith("@"):
        for file in known_servers(Directories.here(), {})[0]:
            yield from (f"@{file.host.name}/{name}" for name in file.config)


def _listing(target: str) -> dict[str, Any]:
    """Return the output of ``mcpio list --json``, from the cache if it is fresh; empty if that fails."""
    key = hashlib.sha256(f"{os.getcwd()}\0{target}".encode("utf-8", "surrogateescape")).hexdigest()
    folder = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "mcpio", "complete")
    path = os.path.join(folder, key)
    try:
        if time.time() - os.stat(path).st_mtime < CACHED:
            with open(path, encoding="utf-8") as file:
                listing: dict[str, Any] = json.load(file)
                return listing
    except (OSError, ValueError):
        pass
    command = [sys.executable, "-m", "mcpio", "list", "--json", "--quiet", "--timeout", str(LIST_TIMEOUT), target]
    try:
        # A server that does not end either is left behind after twice the time.
        done = subprocess.run(  # noqa: S603  the server that the user is calling
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=2 * LIST_TIMEOUT, check=True
        )
        listing = json.loads(done.stdout)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with open(os.open(path, _FOR_CACHE, 0o600), "wb") as cache:
            cache.write(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return {}
    return listing
