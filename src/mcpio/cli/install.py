"""``mcpio config`` and ``install``: the entry of a server in a host's configuration, printed, written or removed."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from json.decoder import scanstring  # type: ignore[attr-defined]  # public by its documentation in the source
from typing import IO, Any, Final
from urllib.parse import urlsplit

import attrs

from mcpio.app.servers_config import ServerEntry, ServersConfig, load_json
from mcpio.cli import targets as hosts
from mcpio.cli.connect import add_env_option
from mcpio.cli.exit_status import Exit, Failure, did_you_mean, failure_of
from mcpio.cli.output import Console, is_terminal
from mcpio.cli.targets import ConfigScope, Directories, Host
from mcpio.errors import McpError
from mcpio.trio import open_stdio, run_until_signalled

# ------------------------------------------------------------------------------------------------------------ json text
# Changes of one member in the text of a JSON file: every other byte stays as it is.
# To read a file into values and write them again would lose what the values do not hold: duplicate members, the digits
# of large numbers, escapes, and the layout.


class MemberTwice(ValueError):
    """A member that is to be changed is there twice: programs differ in which of them they read."""


@attrs.frozen
class _Member:
    name: str
    start: int
    """Where its name begins."""
    value: int
    end: int


def with_member(text: str, outer: str, name: str, value: Any) -> str:
    """Return the text of an object with ``value`` as the member ``name`` of its member ``outer``, an object too.

    Raises ValueError for text that is no JSON object, and MemberTwice.
    """
    unit = indent_match[1] if (indent_match := re.search(r"^([ \t]+)\"", text, re.MULTILINE)) else "  "
    if not text.removeprefix("\ufeff").strip():
        return text + _shown({outer: {name: value}}, unit, "", _newline(text)) + _newline(text)
    start = _top(text)
    parent = _only(text, _members(text, start), outer)
    if parent is None:
        return _insert(text, start, outer, {name: value}, unit)
    old = _only(text, _members(text, parent.value), name)
    if old is None:
        return _insert(text, parent.value, name, value, unit)
    if json.loads(text[old.value : old.end]) == value:
        return text
    return text[: old.value] + _shown(value, unit, _indent(text, old.start), _newline(text)) + text[old.end :]


def without_member(text: str, outer: str, name: str) -> str:
    """Return the text without the member ``name`` of its member ``outer``. Both must be there. Raises MemberTwice."""
    parent: Any = _only(text, _members(text, _top(text)), outer)
    members = _members(text, parent.value)
    old: Any = _only(text, members, name)
    index = members.index(old)
    if len(members) == 1:
        return text[: parent.value] + "{}" + text[parent.end :]
    if index == 0:
        return text[: old.start] + text[members[1].start :]
    return text[: members[index - 1].end] + text[old.end :]


def _insert(text: str, start: int, name: str, value: Any, unit: str) -> str:
    """Return the text with a new last member in the object that begins at ``start``, laid out as the others are."""
    members, newline = _members(text, start), _newline(text)
    key = json.dumps(name, ensure_ascii=False)
    if not members:
        end = text.index("}", start)
        indent = _indent(text, start)
        member = f"{newline}{indent}{unit}{key}: {_shown(value, unit, indent + unit, newline)}{newline}{indent}"
        return text[: start + 1] + member + text[end:]
    before = text[start + 1 : members[0].start]
    at = members[-1].end
    if "\n" not in before:
        return f"{text[:at]}, {key}: {json.dumps(value, ensure_ascii=False)}{text[at:]}"
    indent = before.rpartition("\n")[2]
    return f"{text[:at]},{newline}{indent}{key}: {_shown(value, unit, indent, newline)}{text[at:]}"


def _shown(value: Any, unit: str, indent: str, newline: str) -> str:
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", f"{newline}{indent}")


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent(text: str, at: int) -> str:
    """Return the white space at the beginning of a line."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _top(text: str) -> int:
    start = _next(text, 1 if text.startswith("\ufeff") else 0)
    if _next(text, _DECODER.raw_decode(text, start)[1]) != len(text):
        raise ValueError("something follows the JSON value")
    return start


def _members(text: str, start: int) -> list[_Member]:
    """Return the members of an object that begins at ``start``. Raises ValueError if no well-formed object does."""
    if not text.startswith("{", start):
        raise ValueError("not a JSON object")
    members: list[_Member] = []
    at = _next(text, start + 1)
    while text[at] != "}":
        name, end = scanstring(text, at + 1, True)
        value = _next(text, _next(text, end) + 1)
        _, end = _DECODER.raw_decode(text, value)
        members.append(_Member(name, at, value, end))
        at = _next(text, end)
        if text[at] == ",":
            at = _next(text, at + 1)
    return members


def _next(text: str, at: int) -> int:
    return _SPACE(text, at).end()  # type: ignore[union-attr]  # it matches nothing too


def _only(text: str, members: list[_Member], name: str) -> _Member | None:
    named = [member for member in members if member.name == name]
    if len(named) > 1:
        line = text.count("\n", 0, named[1].start) + 1
        raise MemberTwice(f"line {line}: {json.dumps(name)} is there twice")
    return named[0] if named else None


_SPACE: Final = re.compile(r"[ \t\r\n]*").match
# Numbers as they are: their digits may be more than an integer of Python's may have.
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


# -------------------------------------------------------------------------------------------------------------- install
# ``mcpio install``: have a host use a server, or no longer.
# The host's own command does it where there is one; else its file is changed, if mcpio can do so without losing
# anything; else what to add is printed. Before anything is written the server is started once as the host will start
# it: with an environment that is all but empty, in another directory.

START_TIMEOUT = 60.0
"""Seconds that the trial start may take: a package runner may have to fetch the server first."""

BACKUP = ".mcpio-backup"
"""The ending of the copy of a changed file, as it was before."""
NEW = ".mcpio-new"
"""The ending of the file that is about to replace another: as long as it exists, other processes wait."""
LOCK_TIMEOUT = 10.0
"""Seconds to wait for another process that changes the same file."""
LOCK_PAUSE = 0.05
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
"""The names that every host takes; a leading hyphen would make an option of the host's command."""
_NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    is_config = parser.get_default("command") == "config"
    names = ", ".join(host.name for host in hosts.HOSTS)
    if not is_config:
        parser.add_argument("host", metavar="HOST", help=names)
    parser.epilog = hosts.HELP.replace(" The words of a command may also come last, after --.", "")
    parser.add_argument("server", metavar="SERVER", nargs="?", help="the server; see below")
    parser.add_argument("--name", help="the server's name in the host; by default, the name of the file or program")
    add_env_option(parser, "; hosts pass few of their own")
    parser.add_argument(
        "--relay", action="store_true", help="have mcpio relay pass on and show what the host and the server say"
    )
    if is_config:
        parser.add_argument(
            "--for",
            dest="host",
            metavar="HOST",
            default="json",
            help=f"the host: {names}; or json, the default, which most others read",
        )
        return
    parser.add_argument(
        "--scope", choices=["user", "project"], help="for all your work, the default, or for this directory only"
    )
    parser.add_argument("--uninstall", action="store_true", help="remove the server again: of SERVER or of --name")
    parser.add_argument("-n", "--dry-run", action="store_true", help="show what would be done, and do nothing")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument("--no-trial", action="store_true", help="do not start the server first")


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    console = Console()
    if options.command == "config":
        return _config(options, console)
    host, directories = hosts.host_named(options.host), Directories.here()
    scope: ConfigScope = options.scope or "user"
    path = host.file(scope, directories)
    if path is None:
        raise Failure(Exit.USAGE, f"{host.title} has no file for a {scope}: leave out --scope {scope}")
    if scope == "project":
        _check_unlinked(path, directories.project)
    if options.uninstall:
        name = options.name or (_named_entry(options)[0] if options.server else "")
        if not name:
            raise Failure(Exit.USAGE, "--uninstall needs the server, or its --name")
        change = _removal(host, scope, path, name)
    else:
        name, entry = _named_entry(options)
        change = _addition(host, scope, path, name, entry)
        _warn(console, scope, path, entry)
        if entry.url is None and not options.no_trial:
            _try(entry)
            console.note(f"{name} starts in an empty environment, and answers")
    console.result(change.shown())
    if options.dry_run:
        return Exit.DONE
    if isinstance(change, _ByHand):
        raise Failure(Exit.USAGE, change.reason)
    if not options.yes:
        _confirm()
    change.make(was_asked=not options.yes)
    console.note(f"done: {host.after}" if host.after else "done")
    return Exit.DONE


def _config(options: argparse.Namespace, console: Console) -> int:
    host = None if options.host == "json" else hosts.host_named(options.host)
    name, entry = _named_entry(options)
    console.exact(hosts.snippet(host, name, entry))
    if host is not None:
        directories = Directories.here()
        scopes: tuple[ConfigScope, ...] = ("user", "project")
        files = [file for scope in scopes if (file := host.file(scope, directories))]
        console.note(f"for {' or '.join(files)}")
    return Exit.DONE


def _named_entry(options: argparse.Namespace) -> tuple[str, ServerEntry]:
    """Return the name and the entry for the server on the command line, with absolute paths throughout.

    A host does not have the shell's PATH, nor its working directory. Raises Failure if there is no such server.
    """
    if options.server is None:
        raise Failure(Exit.USAGE, f"no server given; see mcpio {options.command} --help")
    target = hosts.resolve(options.server)
    entry = target.entry
    try:
        urlsplit(entry.url or "")
    except ValueError as error:
        raise Failure(Exit.USAGE, f"{entry.url}: {error}") from error
    program = "" if entry.url is not None else _program(entry)
    name = options.name or target.name or _name_for(target)
    if not NAME.fullmatch(name):
        raise Failure(
            Exit.USAGE,
            f"--name must be at most 64 letters, digits, - and _, and not begin with -, not {name!r}",
        )
    if entry.url is not None:
        if options.env:
            raise Failure(Exit.USAGE, f"--env is for servers that are started, not for {entry.url}")
        if options.relay:
            local = f"http://127.0.0.1:8765{urlsplit(entry.url).path}"
            advice = f"run mcpio relay {shlex.quote(entry.url)} --port 8765, and use {local} as its URL"
            raise Failure(Exit.USAGE, f"--relay is for servers that are started, not for {entry.url}: {advice}")
        return name, attrs.evolve(entry, disabled=False)
    words = [_absolute(word) for word in entry.command[1:]]
    env = {**entry.env, **dict(options.env)}
    relay = (*hosts.MCPIO, "relay", "--") if options.relay else ()
    return name, attrs.evolve(entry, command=(*relay, program, *words), env=env, disabled=False)


def _program(entry: ServerEntry) -> str:
    """Return the path of the program. Raises Failure if it is not found."""
    name = entry.command[0] if entry.command else ""
    program = shutil.which(name) if name else None
    if program is None:
        raise Failure(Exit.NO_PROGRAM, f"there is no program {name!r}{hosts.where_else(name) if name else ''}")
    return os.path.abspath(program)


def _name_for(target: hosts.Target) -> str:
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


# What may be done


@attrs.frozen
class _FileChange:
    """Another text for a file."""

    path: str
    before: str | None
    """``None`` if the file does not exist."""
    edit: Callable[[str | None], str]
    """Returns the other text for the present one. Raises Failure."""

    @property
    def after(self) -> str:
        return self.edit(self.before)

    def shown(self) -> str:
        before = (self.before or "").splitlines(keepends=True)
        lines = difflib.unified_diff(before, self.after.splitlines(keepends=True), self.path, self.path)
        return "".join(lines) or f"{self.path} says so already"

    def make(self, *, was_asked: bool) -> None:
        """Write the file: a copy of the old text first, then all of the new text at once.

        Raises Failure if the text is another one than the user ``was_asked`` about.
        """
        # The link stays, where a user's file of settings is one. No other name is followed: each is created anew.
        path = os.path.realpath(self.path)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with _locked(path) as (handle, new):
                text = _text_of(path)
                if was_asked and text != self.before:
                    # Hosts write their files too, while the user reads the question.
                    reason = f"nothing done: {self.path} was changed meanwhile; run the command again"
                    raise Failure(Exit.UNWRITABLE, reason)
                handle.write(self.edit(text).encode())
                handle.close()
                if text is not None:
                    shutil.copymode(path, new)
                    _keep(path, text.encode())
                os.replace(new, path)
        except UnicodeEncodeError as error:
            raise Failure(Exit.USAGE, f"nothing done: the server has text that UTF-8 cannot write: {error}") from error
        except OSError as error:
            raise Failure(Exit.UNWRITABLE, f"cannot write {self.path}: {error.strerror or error}") from error


@attrs.frozen
class _HostCommand:
    """A command of the host."""

    words: Sequence[str]

    def shown(self) -> str:
        return shlex.join(self.words)

    def make(self, *, was_asked: bool) -> None:
        """Run the command."""
        try:
            done = subprocess.run(self.words, stdin=subprocess.DEVNULL, check=False)  # noqa: S603  the host's own, by the table
        except OSError as error:
            raise Failure(Exit.NOT_EXECUTABLE, f"cannot start {self.words[0]}: {error.strerror or error}") from error
        if done.returncode:
            raise Failure(Exit.REFUSED, f"{self.words[0]} exited with status {done.returncode}")


@attrs.frozen
class _ByHand:
    """The text that the user has to add or remove."""

    text: str
    reason: str

    def shown(self) -> str:
        return self.text

    def make(self, *, was_asked: bool) -> None:
        """Do nothing, because the user does it."""


_Change = _FileChange | _HostCommand | _ByHand


def _addition(host: Host, scope: ConfigScope, path: str, name: str, entry: ServerEntry) -> _Change:
    """Return what makes a host use a server."""
    by_hand = partial(_ByHand, hosts.snippet(host, name, entry))
    if host.add and (scope == "user" or not host.writes):
        if entry.url is not None and "{json}" not in host.add:
            return by_hand(f"mcpio does not write {path}: add this yourself")
        if scope == "project":
            return by_hand(f"{host.title}'s command does not write {path}: add this yourself")
        words = list(_words(host.add, scope, name, json.dumps(hosts.members(host, entry), ensure_ascii=False), entry))
        program = shutil.which(words[0])
        if program is None:
            reason = f"there is no {words[0]!r} in PATH to write {path}: add this yourself, or install it first"
            return by_hand(reason)
        return _HostCommand([program, *words[1:]])
    if not host.writes:
        return by_hand(f"mcpio does not write {path}: add this yourself")
    return _plan_edit(host, path, name, hosts.members(host, entry), by_hand)


def _removal(host: Host, scope: ConfigScope, path: str, name: str) -> _Change:
    """Return what makes a host forget a server."""
    by_hand = partial(_ByHand, f"{name}, in {host.key}")
    if host.remove and scope == "user":
        words = list(_words(host.remove, scope, name, "", None))
        program = shutil.which(words[0])
        if program is None:
            return by_hand(f"there is no {words[0]!r} in PATH to change {path}: remove this yourself")
        return _HostCommand([program, *words[1:]])
    if not host.writes:
        return by_hand(f"mcpio does not write {path}: remove this yourself")
    return _plan_edit(host, path, name, None, by_hand)


def _words(
    template: Sequence[str], scope: ConfigScope, name: str, entry_json: str, entry: ServerEntry | None
) -> Iterator[str]:
    """Yield the words of a host's command."""
    for word in template:
        if word == "*" and entry is not None:
            yield from entry.command
        elif word == "--env" and entry is not None:
            for key, value in entry.env.items():
                yield from ("--env", f"{key}={value}")
        else:
            yield word.replace("{name}", name).replace("{scope}", scope).replace("{json}", entry_json)


def _plan_edit(host: Host, path: str, name: str, entry: dict[str, Any] | None, by_hand: partial[_ByHand]) -> _Change:
    """Return the change of a JSON file that sets or removes one entry; all else stays, byte for byte.

    Raises Failure if the file is not what its host reads, or has no such entry to remove.
    """
    text = _text_of(path)
    plain = (text or "").removeprefix("\ufeff")
    try:
        data = json.loads(plain, parse_int=str) if plain.strip() else {}
    except (ValueError, RecursionError):
        _load(path, text or "")  # raises if it is malformed even with comments
        return by_hand(f"{path} has comments, which mcpio would lose: change it yourself")
    if not isinstance(data, dict) or not isinstance(data.get(host.key, {}), dict):
        raise Failure(Exit.USAGE, f"{path} must be an object, and its {host.key} one too, for {host.title} to read it")
    servers = data.get(host.key, {})
    if entry is None and name not in servers:
        has = f"it has {', '.join(servers)}" if servers else "it has none"
        raise Failure(Exit.NOT_FOUND, f"no server {name!r} in {path}: {has}.{did_you_mean(name, servers)}")

    def edit(text: str | None) -> str:
        try:
            if entry is None:
                return without_member(text or "", host.key, name)
            return with_member(text or "", host.key, name, entry)
        except MemberTwice as error:
            raise Failure(Exit.USAGE, f"nothing done: {path}, {error}: remove one of them first") from None
        except (ValueError, AttributeError, RecursionError) as error:
            # Another program has written it since it was read above.
            raise Failure(Exit.UNWRITABLE, f"nothing done: {path} was changed meanwhile: {error}") from None

    edit(text)  # raises now if it cannot be done
    return _FileChange(path, text, edit)


def _text_of(path: str) -> str | None:
    try:
        # A pipe in the place of the file would have this wait for ever.
        with open(os.open(path, os.O_RDONLY | _NO_WAIT), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Failure(Exit.USAGE, f"{path} must be a regular file, not a directory, pipe or device")
            return file.read().decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(Exit.USAGE, f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _check_unlinked(path: str, project: str) -> None:
    """Raise Failure if a project's path leads through a link: whoever wrote the project chose where to."""
    real = os.path.realpath(path)
    if real != os.path.join(os.path.realpath(project), os.path.relpath(path, project)):
        raise Failure(Exit.USAGE, f"nothing done: {path} is a link to {real}, which mcpio does not follow")


@contextlib.contextmanager
def _locked(path: str) -> Iterator[tuple[IO[bytes], str]]:
    """Create the file that is to replace ``path``, and yield it with its name, which exists for one process at a time.

    The block moves it to ``path`` at its end, or raises.
    Raises Failure if it is there for longer than ``LOCK_TIMEOUT``.
    """
    new = path + NEW
    for _ in range(int(LOCK_TIMEOUT / LOCK_PAUSE)):
        try:
            file = _create(new)
            break
        except FileExistsError:
            time.sleep(LOCK_PAUSE)
    else:
        raise Failure(Exit.UNWRITABLE, f"nothing done: {new} exists: wait for the other mcpio install, or remove it")
    try:
        with file:
            yield file, new
    except BaseException:
        # Only here: once it has become the file, the name is free, and another process may have it.
        os.unlink(new)
        raise


def _create(path: str) -> IO[bytes]:
    """Create a file, for its user only. Raises FileExistsError for any name that exists, a link included."""
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_WAIT, 0o600), "wb")


def _keep(path: str, data: bytes) -> None:
    """Write the old text beside a file. Replaces a file of that name. The lock on ``path`` is held."""
    backup = path + BACKUP
    with contextlib.suppress(FileNotFoundError):
        os.unlink(backup)
    with _create(backup) as file:
        file.write(data)
    shutil.copystat(path, backup)


def _load(path: str, text: str) -> Any:
    try:
        return load_json(text, path)
    except ValueError as error:
        raise Failure(Exit.USAGE, f"{error}. Correct it first: mcpio does not write over it") from error


def _warn(console: Console, scope: ConfigScope, path: str, entry: ServerEntry) -> None:
    """Warn of values that a project's file would give to all who have the project."""
    literals = [name for name, value in {**entry.env, **entry.headers}.items() if "${" not in value]
    if scope == "project" and literals:
        console.note(
            f"warning: {', '.join(literals)} would stand in {path}, for all who have this project to read; if secret, "
            "write '${env:NAME}' as the value, in quotes, and set the variable where the host starts"
        )


def _confirm() -> None:
    """Ask the user. Raises Failure unless the answer is yes."""
    if not is_terminal(sys.stdin):
        raise Failure(Exit.USAGE, "nothing done: there is no terminal to ask on; give --yes, or --dry-run to look only")
    print("Go ahead? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Failure(Exit.USAGE, "nothing done")


# The trial start


def _try(entry: ServerEntry) -> None:
    """Start the server once, as a host would, and perform the handshake. Raises Failure with advice."""
    # Values that the host would fill in are filled in from here.
    try:
        filled = ServersConfig({"it": hosts.members(None, entry)}, variables=os.environ, source="--env")["it"]
    except ValueError as error:
        raise Failure(Exit.USAGE, str(error)) from error
    run_until_signalled(partial(_shake_hands, filled), timeout=None)


async def _shake_hands(entry: ServerEntry) -> None:
    from mcpio.engine.limits import Timeout
    from mcpio.engine.options import Options

    cwd = entry.cwd or os.sep
    options = Options(request_timeout=Timeout(START_TIMEOUT), initialize_timeout=START_TIMEOUT)
    with _emptied_environment():
        try:
            async with open_stdio(entry.command, env=dict(entry.env), cwd=cwd, stderr="capture", options=options):
                return
        except McpError as error:
            failure = failure_of(error)
            raise Failure(
                failure.status,
                f"nothing done: the server does not start as a host starts it, with an empty environment and in {cwd}. "
                f"Pass what it needs by --env, or leave out this trial by --no-trial. {failure.message}",
            ) from error


@contextlib.contextmanager
def _emptied_environment() -> Iterator[None]:
    """Remove everything but the user's home from this process's environment, part of which children inherit."""
    saved = dict(os.environ)
    preserved = ("HOME", "USERPROFILE", "SYSTEMROOT", "APPDATA", "LOCALAPPDATA", "TEMP")
    os.environ.clear()
    os.environ.update({name: saved[name] for name in preserved if name in saved})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(saved)
