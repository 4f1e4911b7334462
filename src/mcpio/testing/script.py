"""Conversation scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.engine.table import Phase, Role
from mcpio.framing.json import JsonError, loads
from mcpio.revisions import LATEST_HANDSHAKE, Revision

# -------------------------------------------------------------------------------------------------------- json patterns
# Relaxed JSON for conversation scripts, with placeholders for parts that are not compared.
# ``{id: 1, result: {content: [{type: text, text: "hello, you"}], ...}}``: a bare word is a string unless it is
# ``true``, ``false``, ``null`` or a number. ``*`` matches any value; ``...`` at the end of an object or array allows
# more members.


class _Placeholder:
    """A placeholder in a pattern."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


ANYTHING: Final = _Placeholder("*")
"""Matches every value."""
MORE: Final = _Placeholder("...")
"""The last item of an array, or a key of an object: allows more items or members."""

_TOKEN = re.compile(r'\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<mark>[{}\[\],:=])|(?P<word>[^\s{}\[\],:="]+))')
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?P<fraction>\.\d+)?(?P<exponent>[eE][+-]?\d+)?")
_CONSTANTS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None, "*": ANYTHING, "...": MORE}


class Reader:
    """Reads the words and values of a line one by one. Methods raise ValueError for unexpected text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    @property
    def at_end(self) -> bool:
        """Whether the line is consumed."""
        return not self._text[self._at :].strip()

    @property
    def rest(self) -> str:
        """The unread rest."""
        return self._text[self._at :].strip()

    def take_rest(self) -> str:
        """Read the rest."""
        rest, self._at = self.rest, len(self._text)
        return rest

    def next_is(self, mark: str) -> bool:
        """Whether ``mark``, such as ``"{"``, comes next."""
        return self._text[self._at :].lstrip().startswith(mark)

    def word(self, what: str) -> str:
        """Read a bare word or a string; ``what`` names it in the error."""
        kind, text = self._take(what)
        if kind == "mark":
            raise ValueError(f"expected {what}, not {text!r:.100}")
        return _unquoted(text) if kind == "string" else text

    def value(self) -> Any:
        """Read a value."""
        kind, text = self._take("a value")
        if kind == "string":
            return _unquoted(text)
        if kind == "word":
            return _meaning(text)
        if text == "{":
            return self._object()
        if text == "[":
            return self._array()
        raise ValueError(f"expected a value, not {text!r:.100}")

    def options(self) -> dict[str, Any]:
        """Read ``name=value`` until the end."""
        options = {}
        while not self.at_end:
            name = self.word("name=value")
            self._expect("=")
            options[name] = self.value()
        return options

    def is_option(self) -> bool:
        """Whether ``name=`` comes next."""
        return re.match(r"\s*\w+=", self._text[self._at :]) is not None

    def end(self) -> None:
        """Raise ValueError if text is left."""
        if not self.at_end:
            raise ValueError(f"expected the end of the line, not {self.rest!r:.100}")

    def _object(self) -> dict[Any, Any]:
        members: dict[Any, Any] = {}
        while not self._skip("}"):
            if members:
                self._expect(",")
            key = self.word("a name")
            if key == "...":
                members[MORE] = True
                continue
            self._expect(":")
            members[key] = self.value()
        return members

    def _array(self) -> list[Any]:
        items: list[Any] = []
        while not self._skip("]"):
            if items:
                self._expect(",")
            items.append(self.value())
        return items

    def _skip(self, mark: str) -> bool:
        if not self.next_is(mark):
            return False
        self._take(mark)
        return True

    def _expect(self, mark: str) -> None:
        if not self._skip(mark):
            raise ValueError(f"expected {mark!r} before {self.rest!r}")

    def _take(self, what: str) -> tuple[str, str]:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match.lastgroup is None:
            raise ValueError(f"expected {what}" + (f", not {self.rest!r:.100}" if self.rest else ""))
        self._at = match.end()
        return match.lastgroup, match[match.lastgroup]


def is_complete(pattern: Any) -> bool:
    """Whether a pattern contains no placeholder."""
    if isinstance(pattern, dict):
        return MORE not in pattern and all(map(is_complete, pattern.values()))
    if isinstance(pattern, list):
        return all(map(is_complete, pattern))
    return not isinstance(pattern, _Placeholder)


def mismatch(pattern: Any, value: Any, path: str = "") -> str | None:
    """Describe where a JSON value differs from a pattern, or return ``None``. 1, 1.0 and true differ."""
    if pattern is ANYTHING:
        return None
    if type(pattern) is not type(value):
        return f"{path or 'the message'} is {value!r:.200}, not {pattern!r:.200}"
    if isinstance(pattern, dict):
        return _object_mismatch(pattern, value, path)
    if isinstance(pattern, list):
        return _array_mismatch(pattern, value, path)
    return None if pattern == value else f"{path} is {value!r:.200}, not {pattern!r:.200}"


def _object_mismatch(pattern: dict[Any, Any], value: dict[str, Any], path: str) -> str | None:
    wanted = {key: each for key, each in pattern.items() if key is not MORE}
    prefix = f"{path}." if path else ""
    for key, each in wanted.items():
        if key not in value:
            return f"{prefix}{key} is missing"
        fault = mismatch(each, value[key], f"{prefix}{key}")
        if fault is not None:
            return fault
    more = [key for key in value if key not in wanted]
    return f"{prefix}{more[0]} is not expected" if more and MORE not in pattern else None


def _array_mismatch(pattern: list[Any], value: list[Any], path: str) -> str | None:
    is_open = bool(pattern) and pattern[-1] is MORE
    wanted = pattern[:-1] if is_open else pattern
    if len(value) < len(wanted) or (len(value) > len(wanted) and not is_open):
        return f"{path or 'the array'} has {len(value)} items, not {len(wanted)}"
    pairs = enumerate(zip(wanted, value, strict=False))
    return next((fault for at, (each, item) in pairs if (fault := mismatch(each, item, f"{path}[{at}]"))), None)


def _unquoted(text: str) -> str:
    try:
        value: str = loads(text)
    except JsonError as error:
        raise ValueError(f"{text}: {error.reason}") from None
    return value


def _meaning(word: str) -> Any:
    if word in _CONSTANTS:
        return _CONSTANTS[word]
    number = _NUMBER.fullmatch(word)
    if number is None:
        return word
    return float(word) if number["fraction"] or number["exponent"] else int(word)


# --------------------------------------------------------------------------------------------------------------- script
# Conversation scripts: the messages, what each side does and reports, and when, as text.
# A script begins with its setup, one ``name: value`` per line, all optional::
#     req: LIFE-04 LIFE-05            the rules that it tests
#     run: client server pair         the engines it can be played with: one, or a pair (default: all)
#     revision: 2025-06-18            the client's newest revision; with several, the script is played with each. By
#                                     default it is the newest with a handshake; with 2026-07-28, of both eras,
#                                     a client can negotiate
#     client: {roots: {}} NAME=VALUE  capabilities of a side, then members of ``Options`` or ``Limits`` by name
#     server: {tools: {}}
# Then come its steps, one per line; a line that begins with white space continues the previous one, and a line that
# begins with ``#`` is a comment. Values are JSON with optional quotes (see ``mcpio.testing.script``), and
# ``"jsonrpc": "2.0"`` is implied::
#     handshake                       the usual handshake, without listing its messages
#     C> {id: 2, method: ping}        the client sends this; S> is the server
#     C=> {id: 2, method: tools/list} the same with the envelope of the stateless era: params of a request have in their
#                                     _meta its revision, the capabilities of the client's setup and its name; a result
#                                     has resultType complete and the server's name. Members that are written out win
#     C>> {"id":2                     the client sends exactly this text
#     C> end                          the client closes its end of the stream
#     client request ping             an act of a side; see below
#     refused TEXT                    the previous act raised LocalProtocolError or NoBackChannel with TEXT in its
#                                     message, and changed nothing
#     event server RequestReceived id=1 request.name=echo
#                                     the next event of a side, with these members; a name stands for an object of
#                                     that class, a member of an enumeration, or a revision
#     no event server                 the side has no event
#     deadline client 30              the next deadline of a side: seconds, or null
#     phase client operating          the phase of a side
#     at 30                           advance the time to 30 s; deadlines on the way expire
#     stall server                    what a side sends is not taken from it any more, as by a slow network
#     resume server                   it is again
#     lost                            the channel breaks
# Acts and events of a side that the script plays are skipped; its messages are sent, and messages of an engine are
# expected. A script must list all messages, and either none or all of the events between two steps.
# A side can ``request METHOD PARAMS cookie=NAME timeout=SECONDS idle=SECONDS progress=true related=ID``, ``cancel NAME
# REASON`` (by the cookie), ``notify METHOD PARAMS related=ID``, ``answer ID RESULT``, ``error ID CODE MESSAGE DATA``,
# ``progress ID VALUE total=VALUE message=TEXT``, ``close grace=SECONDS``, ``abort``. An ID is the one on the wire, of
# the other side's request. A client opens with ``initialize``, ``negotiate`` (both with ``cookie=NAME
# timeout=SECONDS``) or ``adopt RESULT`` (of an earlier ``server/discover``), and can set its ``log_level LEVEL``. A
# server can ``acknowledge ID FILTER``.


class ScriptError(ValueError):
    """A script is malformed. The text starts with file and line."""


@attrs.frozen
class Location:
    """A line of a script."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@attrs.frozen
class Wire:
    """One side sends exactly ``text``, or a message; with neither, it closes its end."""

    location: Location
    sender: Role
    text: bytes | None
    message: Any
    stateless: bool = False
    """Whether the envelope of the stateless era is implied."""


@attrs.frozen
class Act:
    """An act of one side. ``refused`` is part of the error that it raises; ``None`` if it raises none."""

    location: Location
    role: Role
    verb: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    refused: str | None = None


@attrs.frozen
class EventIs:
    """The next event of a side, with expected members by path."""

    location: Location
    role: Role
    name: str
    members: dict[str, Any]


@attrs.frozen
class NoEvent:
    """A side has no event."""

    location: Location
    role: Role


@attrs.frozen
class DeadlineIs:
    """The next deadline of a side; ``None`` for none."""

    location: Location
    role: Role
    time: float | None


@attrs.frozen
class PhaseIs:
    """The phase of a side."""

    location: Location
    role: Role
    phase: Phase


@attrs.frozen
class At:
    """Advance the time."""

    location: Location
    time: float


@attrs.frozen
class Flow:
    """The network stops accepting the output of a side, or accepts it again."""

    location: Location
    role: Role
    stalled: bool


@attrs.frozen
class Handshake:
    """The usual handshake."""

    location: Location


@attrs.frozen
class Lost:
    """The channel breaks."""

    location: Location


Step: TypeAlias = Wire | Act | EventIs | NoEvent | DeadlineIs | PhaseIs | At | Flow | Handshake | Lost


@attrs.frozen
class Setup:
    """The setup of one side: its capabilities as JSON, and its options."""

    capabilities: dict[str, Any]
    options: Options


@attrs.frozen
class Script:
    """A conversation. ``engines``: the sets of roles it can be played with; ``requirements``: ids of rules."""

    name: str
    requirements: tuple[str, ...]
    engines: tuple[frozenset[Role], ...]
    revisions: tuple[Revision, ...]
    setups: dict[Role, Setup]
    steps: tuple[Step, ...]


def read_script(path: str | Path) -> Script:
    """Read a script from a file. Raises ScriptError if it is malformed, OSError if it cannot be read."""
    path = Path(path)
    return parse_script(path.read_text(encoding="utf-8"), path.name)


def parse_script(text: str, name: str = "script") -> Script:
    """Parse a script; ``name`` replaces the file name in errors. Raises ScriptError if it is malformed."""
    settings: dict[str, Reader] = {}
    steps: list[Step] = []
    for location, line in _lines(text, name):
        try:
            setting, colon, rest = line.partition(":")
            if colon and setting in _SETTINGS and not steps:
                settings[setting] = Reader(rest)
            else:
                _add_step(steps, location, line)
        except ValueError as error:
            raise ScriptError(f"{location}: {error}") from None
    try:
        return _script(name, settings, tuple(steps))
    except (TypeError, ValueError) as error:  # TypeError: an option of another type
        raise ScriptError(f"{name}: {error}") from None


def _lines(text: str, name: str) -> Iterator[tuple[Location, str]]:
    """Yield joined lines without comments and blank ones, each with its location."""
    current: tuple[Location, str] | None = None
    # str.splitlines would end lines at U+2028 and others too, which JSON may hold.
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("#") or not line.strip():
            continue
        if line[0].isspace() and current is not None:
            current = current[0], f"{current[1]} {line.strip()}"
            continue
        if current is not None:
            yield current
        current = Location(name, number), line.strip()
    if current is not None:
        yield current


# Setup

_SETTINGS: Final = ("req", "run", "revision", "client", "server")
_ROLES: Final = {"client": Role.CLIENT, "server": Role.SERVER}
_ENGINES: Final = {
    "client": frozenset([Role.CLIENT]),
    "server": frozenset([Role.SERVER]),
    "pair": frozenset([Role.CLIENT, Role.SERVER]),
}


def _script(name: str, settings: dict[str, Reader], steps: tuple[Step, ...]) -> Script:
    engines = tuple(_engines(word) for word in _words(settings, "run")) or tuple(_ENGINES.values())
    revisions = tuple(_revision(word) for word in _words(settings, "revision")) or (LATEST_HANDSHAKE,)
    setups = {role: _setup(settings.get(word, Reader(""))) for word, role in _ROLES.items()}
    return Script(name, tuple(_words(settings, "req")), engines, revisions, setups, steps)


def _words(settings: dict[str, Reader], name: str) -> list[str]:
    return settings[name].rest.split() if name in settings else []


def _engines(word: str) -> frozenset[Role]:
    if word not in _ENGINES:
        raise ValueError(f"run must be client, server or pair, not {word!r:.100}")
    return _ENGINES[word]


def _revision(word: object) -> Revision:
    revision = Revision.parse(str(word))
    if revision is None:
        raise ValueError(f"revision must be one of the protocol, not {word!r:.100}")
    return revision


def _setup(reader: Reader) -> Setup:
    capabilities = reader.value() if reader.next_is("{") else {}
    options: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    for name, value in reader.options().items():
        if name in attrs.fields_dict(Limits):
            limits[name] = value
        elif name == "revisions":
            options[name] = tuple(_revision(each) for each in value)
        elif name == "custom_methods":
            options[name] = frozenset(value)
        elif name in _PLAIN_OPTIONS:
            options[name] = value
        else:
            raise ValueError(f"expected a member of Options or Limits, not {name!r:.100}")
    return Setup(capabilities, Options(limits=Limits(**limits), **options))


_PLAIN_OPTIONS: Final = (
    "accept_batches",
    "era",
    "identify",
    "initialize_timeout",
    "probe_timeout",
    "strict_initialized",
)

# Steps


@attrs.frozen
class Usage:
    """The arguments of an act."""

    needed: tuple[str, ...] = ()
    """Required values in order, by their names in errors."""
    optional: tuple[str, ...] = ()
    """Optional values that may follow."""
    options: tuple[str, ...] = ()
    """The names allowed as ``name=value``."""


ACTS: Final = {
    "initialize": Usage(options=("cookie", "timeout")),
    "negotiate": Usage(options=("cookie", "timeout")),
    "adopt": Usage(optional=("a result",)),
    "log_level": Usage(("a level",)),
    "request": Usage(("a method",), ("params",), ("cookie", "timeout", "idle", "progress", "related")),
    "cancel": Usage(("a cookie",), ("a reason",)),
    "notify": Usage(("a method",), ("params",), ("related",)),
    "answer": Usage(("an id", "a result")),
    "error": Usage(("an id", "a code", "a message"), ("data",)),
    "progress": Usage(("an id", "a value"), options=("total", "message")),
    "acknowledge": Usage(("an id", "a filter")),
    "close": Usage(options=("grace",)),
    "abort": Usage(),
}
"""The acts, by their names in a script."""


def _add_step(steps: list[Step], location: Location, line: str) -> None:
    keyword, _, rest = line.partition(" ")
    if keyword == "refused":
        if not steps or not isinstance(last := steps[-1], Act):
            raise ValueError("refused must follow a line that says what a side does")
        steps[-1] = attrs.evolve(last, refused=rest)
        return
    reader = Reader(rest)
    steps.append(_step(location, keyword, reader))
    reader.end()


def _step(location: Location, keyword: str, reader: Reader) -> Step:
    match keyword:
        case "C>" | "S>" | "C=>" | "S=>" | "C>>" | "S>>":
            return _wire(location, keyword, reader)
        case "client" | "server":
            return _act(location, _ROLES[keyword], reader)
        case "event":
            return EventIs(location, _role(reader), reader.word("the name of an event"), reader.options())
        case "no":
            if reader.word("event") != "event":
                raise ValueError("expected event after no")
            return NoEvent(location, _role(reader))
        case "deadline":
            return DeadlineIs(location, _role(reader), _number(reader, or_null=True))
        case "phase":
            return PhaseIs(location, _role(reader), Phase(reader.word("a phase")))
        case "at":
            return At(location, _number(reader) or 0.0)
        case "handshake":
            return Handshake(location)
        case "stall" | "resume":
            return Flow(location, _role(reader), keyword == "stall")
        case "lost":
            return Lost(location)
    raise ValueError(f"expected the keyword of a step, not {keyword!r:.100}")


def _wire(location: Location, keyword: str, reader: Reader) -> Wire:
    sender = Role.CLIENT if keyword[0] == "C" else Role.SERVER
    if keyword.endswith(">>"):
        return Wire(location, sender, reader.take_rest().encode(), None)
    if not reader.next_is("{") and not reader.next_is("["):
        if reader.word("a message or end") != "end":
            raise ValueError("expected a message in braces, or end")
        return Wire(location, sender, None, None)
    message = reader.value()
    if isinstance(message, dict) and "jsonrpc" not in message:
        message = {"jsonrpc": "2.0", **message}
    stateless = keyword.endswith("=>")
    if stateless and not (isinstance(message, dict) and message.keys() & {"method", "result"}):
        raise ValueError("expected a request or a result: nothing else has an envelope")
    return Wire(location, sender, None, message, stateless)


def _act(location: Location, role: Role, reader: Reader) -> Act:
    verb = reader.word("what it does")
    usage = ACTS.get(verb)
    if usage is None:
        raise ValueError(f"expected one of {', '.join(ACTS)}, not {verb!r:.100}")
    arguments: list[Any] = []
    for what in usage.needed:
        if reader.at_end:
            raise ValueError(f"expected {what} after {verb}")
        arguments.append(reader.value())
    arguments += [reader.value() for _ in usage.optional if not reader.at_end and not reader.is_option()]
    options = reader.options()
    for name in options:
        if name not in usage.options:
            raise ValueError(f"expected an option of {verb}, not {name!r:.100}")
    return Act(location, role, verb, tuple(arguments), options)


def _role(reader: Reader) -> Role:
    word = reader.word("client or server")
    if word not in _ROLES:
        raise ValueError(f"expected client or server, not {word!r:.100}")
    return _ROLES[word]


def _number(reader: Reader, *, or_null: bool = False) -> float | None:
    value = reader.value()
    if type(value) in (int, float) or (value is None and or_null):
        return None if value is None else float(value)
    raise ValueError(f"expected a number of seconds, not {value!r:.100}")
