"""Recordings of a connection, and their replay."""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import attrs

from mcpio._checks import called
from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.limits import Limits, Timeout
from mcpio.engine.options import KeepAlive, Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.stateless_engine import StatelessEngine
from mcpio.engine.table import Phase, Role
from mcpio.errors import LocalProtocolError, McpError, RequestError, UnexpectedResponse
from mcpio.events import Event
from mcpio.framing.json import JsonError, dumps, loads
from mcpio.framing.lines import LineFramer, Overlong
from mcpio.observe.tap import Tap, add_tap
from mcpio.observe.verbs import EVENT, VERBS, Verb, read_revision, write_all, write_bytes, write_cookie
from mcpio.revisions import Revision

if TYPE_CHECKING:
    from mcpio.observe.tap import Redactor


# ------------------------------------------------------------------------------------------------------------ recording
# Recordings of conversations, to be replayed: the same calls give the same events (P5, P15).
# A recording has one JSON value on each line. The first line is the header: the version of the layout, the role, the
# options, and the connection's snapshot where the recording begins. Each further line is one call on the connection:
# the name of the verb, the time ``at``, its arguments, and the output that it returned. Of an event only the name is
# written: ``mcpio.observe.recording`` makes the events again. A further header begins the next connection, such as the
# one that a client opened after the first one broke.

VERSION: Final = 1
"""The version of the layout that this library writes, and the newest that it reads."""


class Recorder(Tap):
    """A tap that writes a recording of one connection, or of several, one after the other.

    ``write`` takes each line, with its newline; a file's ``write`` will do. If it raises, the recording ends, also of
    later connections, and the connection goes on. ``redactor`` removes secrets first: input is then written in whole
    lines, not in the pieces in which it came. A recording cannot begin where a snapshot is refused.

    Cookies that are neither strings nor integers are left out, and so are the principal and options that are functions.
    A ``via`` of another type is written as its ``repr``.
    """

    def __init__(self, write: Callable[[str], object], *, redactor: Redactor | None = None) -> None:
        self._write = called("write", write, "(line)")
        self._redactor = redactor
        self._has_failed = False
        self._lines = LineFramer()
        self._began = 0.0
        self._awaits_end = False
        # Whether a message was read since the last event, so that a pull without one may have acted on it.
        self._has_read = False

    def opened(self, connection: Connection | StatelessEngine, now: float) -> None:
        """Write the header. Raises ``LocalProtocolError`` if a snapshot is refused, or a redactor meets half a line."""
        snapshot = connection.snapshot(now, cookies=write_cookie)
        if self._redactor is not None:
            if snapshot["unfinished"] or snapshot["skipping"]:
                raise LocalProtocolError("a recording without secrets begins between two lines")
            snapshot = self._redactor.message(snapshot)
            limits = connection.options.limits
            self._lines = LineFramer(limits.message_bytes, resync=limits.resync)
        self._awaits_end = self._has_read = False
        self._began = now
        header = {"recording": VERSION, "role": connection.role.value, "at": now}
        self._put({**header, "options": _said_options(connection.options), "snapshot": snapshot})

    def message_received(self, text: bytes, via: Hashable, now: float) -> None:
        """Remember that the pull under way acts on a message."""
        self._has_read = True

    def event(self, event: Event, now: float) -> None:
        """Write the name of a pulled event."""
        self._has_read = False
        self._entry("next_event", {"event": type(event).__name__}, now)

    def called(self, verb: str, arguments: Mapping[str, Any], now: float) -> None:
        """Write a call."""
        if verb == "receive_data":
            self._awaits_end = self._awaits_end or arguments["data"] is None
            for piece in self._feed(arguments["data"]):
                self._entry(verb, piece, now)
            return
        if verb == "receive_message":
            self._awaits_end = self._awaits_end or arguments["text"] is None
        elif verb == "next_event":
            # A pull without an event changes nothing, unless it finds the end, or a message that is acted on quietly,
            # such as the answer that has a client initialize.
            if not (self._awaits_end or self._has_read):
                return
            self._awaits_end = self._has_read = False
        elif verb == "fail_request":
            # A client that opens goes by these.
            error = arguments["error"]
            if isinstance(error, UnexpectedResponse):
                arguments = {**arguments, "status": error.status}
            elif isinstance(error, RequestError):
                refusal = {"code": error.code, "message": error.message, "data": error.data}
                arguments = {**arguments, "refusal": refusal}
        self._entry(verb, write_all(VERBS[verb].kinds, arguments, self._redactor), now)

    def _feed(self, data: bytes | None) -> Iterator[dict[str, Any]]:
        """Yield input as it is written: in whole lines if secrets must be found in it."""
        if self._redactor is None:
            yield {"data": write_bytes(data)}
            return
        if data is None:
            self._lines.receive_eof()
        else:
            self._lines.receive(data)
        while (line := self._lines.next_line()) is not None:
            if isinstance(line, Overlong):
                yield {"overlong": line.size_seen}
            else:
                yield {"data": write_bytes(self._redactor.data(line) + b"\n")}
        if data is None:
            yield {"data": None}

    def _entry(self, verb: str, arguments: Mapping[str, Any], now: float) -> None:
        self._put({"at": now if isfinite(now) else self._began, "do": verb, **arguments})

    def _put(self, value: dict[str, Any]) -> None:
        if self._has_failed:
            return
        try:
            self._write(dumps(value).decode() + "\n")
        except BaseException:
            self._has_failed = True
            raise


def _said_options(options: Options) -> dict[str, Any]:
    """Return the options that differ from their defaults, as JSON. Functions are left out."""
    default = Options()
    values = {field.name: getattr(options, field.name) for field in attrs.fields(Options)}
    return {
        name: _said_option(value)
        for name, value in values.items()
        if value != getattr(default, name) and not callable(value)
    }


def _said_option(value: Any) -> Any:
    if isinstance(value, Revision):
        return value.name
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple | frozenset):
        items = [_said_option(each) for each in value]
        return sorted(items) if isinstance(value, frozenset) else items
    return attrs.asdict(value) if attrs.has(type(value)) else value


# ------------------------------------------------------------------------------------------------------------- replayer
# Replay of recordings: a fresh engine gets the same calls and gives the same events (P5, P15).


@attrs.frozen
class ReplayedCall:
    """One replayed call and its outcome."""

    line: int
    """Its line in the recording; the header is line 1."""
    at: float
    """Its time, in seconds on the recorded clock."""
    verb: str
    """The name of the verb."""
    arguments: Mapping[str, Any]
    """The recorded arguments and output."""
    event: Event | None
    """The event that it returned, if any."""
    sent: tuple[bytes | None, ...]
    """The output that it returned; ``None`` is the half-close."""
    phase: Phase
    """The connection's phase after it."""
    differs: str | None
    """The difference from the recording, or ``None``."""


class Replay:
    """Replays a recording on fresh connections, call by call. Iterate over it, once."""

    connection: Connection
    """The engine, as the last call left it. A recording of several connections has one for each."""
    role: Role
    """The recorded side."""

    def __init__(
        self,
        lines: Iterable[str],
        *,
        options: Options | None = None,
        principal: Hashable = None,
        tap: Tap | None = None,
    ) -> None:
        """Read the header. ``options`` and ``principal`` supply what a recording leaves out.

        ``tap`` is added to each connection. Raises ``LocalProtocolError`` for a malformed header or a newer version; so
        do later calls, with the line, for a malformed line.
        """
        self._lines = enumerate(lines, 1)
        self._options, self._principal, self._tap = options, principal, tap
        self._open(next(self._lines, (1, ""))[1])

    def __iter__(self) -> Iterator[ReplayedCall]:
        """Replay the calls one by one."""
        for number, line in self._lines:
            if not line.strip():
                continue
            entry = _read_line(number, line)
            if "recording" not in entry:
                yield self._step(number, entry)
                continue
            try:
                self._open(line)
            except LocalProtocolError as error:
                raise LocalProtocolError(f"line {number}: {error}") from error

    def events(self) -> list[Event]:
        """Replay the remaining calls, and return the events."""
        return [step.event for step in self if step.event is not None]

    def _open(self, line: str) -> None:
        header = _header(line)
        self.role = Role(header["role"])
        cls: type[Connection] = ClientConnection if self.role is Role.CLIENT else ServerConnection
        options = self._options or _read_options(header["options"])
        at = header["at"]
        self.connection = cls.restore(header["snapshot"], at, options=options, principal=self._principal)
        if self._tap is not None:
            add_tap(self.connection, self._tap, at)

    def _step(self, number: int, entry: dict[str, Any]) -> ReplayedCall:
        connection = self.connection
        try:
            verb, at = entry.pop("do"), float(entry.pop("at"))
            row = VERBS[verb]
        except (KeyError, TypeError, ValueError) as error:
            raise LocalProtocolError(f"malformed recording: line {number}: no call") from error
        try:
            event, sent, differs = _outcome(row, entry, row.play(connection, entry, at))
        except McpError as error:
            # The call succeeded when it was recorded, so the engine has diverged.
            event, sent, differs = None, (), f"refused: {error}"
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise LocalProtocolError(f"malformed recording: line {number}: {verb}: {error!r:.200}") from error
        return ReplayedCall(number, at, verb, entry, event, sent, connection.phase, differs)


def replay(lines: Iterable[str], *, options: Options | None = None, principal: Hashable = None) -> list[Event]:
    """Return the events of a recording, replayed by a fresh engine. See ``Replay``."""
    return Replay(lines, options=options, principal=principal).events()


def _outcome(
    verb: Verb, entry: Mapping[str, Any], result: Any
) -> tuple[Event | None, tuple[bytes | None, ...], str | None]:
    """Return the event that a call returned, its output, and how it differs from the recording."""
    if verb.returns is None:
        return None, (), None
    name, kind = verb.returns
    wanted, got = entry.get(name), kind.write(result)
    if kind is EVENT:
        return result, (), None if wanted == got else f"{got or 'no event'}, where there was {wanted or 'none'}"
    sent = () if result is None else (result,) if isinstance(result, bytes) else tuple(result)
    return None, sent, None if wanted == got else "what is to be written"


def _read_line(number: int, line: str) -> dict[str, Any]:
    try:
        entry = loads(line)
    except JsonError as error:
        raise LocalProtocolError(f"malformed recording: line {number}: {error.reason}") from error
    if not isinstance(entry, dict):
        raise LocalProtocolError(f"malformed recording: line {number}: no call")
    return entry


# The header


def _header(line: str) -> dict[str, Any]:
    try:
        header = loads(line)
    except JsonError:
        header = None
    if not isinstance(header, dict) or header.get("recording").__class__ is not int:
        raise LocalProtocolError("not a recording: the first line is not a header")
    if header["recording"] > VERSION:
        raise LocalProtocolError(f"the recording has version {header['recording']}; this library reads up to {VERSION}")
    wrong = [name for name, kinds in _HEADER.items() if header.get(name).__class__ not in kinds]
    if wrong or header["role"] not in (role.value for role in Role):
        raise LocalProtocolError(f"malformed recording: the header has no proper {(wrong or ['role'])[0]}")
    return header


_HEADER: Final[Mapping[str, tuple[type, ...]]] = {
    "role": (str,),
    "at": (int, float),
    "options": (dict,),
    "snapshot": (dict,),
}


def _read_options(raw: Mapping[str, Any]) -> Options:
    try:
        return Options(**{name: _OPTIONS[name](value) if name in _OPTIONS else value for name, value in raw.items()})
    except (TypeError, ValueError, AttributeError) as error:
        raise LocalProtocolError(f"malformed recording: the options: {error}") from error


def _read_profile(raw: Any) -> Any:
    from mcpio.profiles import Profile

    return Profile(raw)


_OPTIONS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "revisions": lambda raw: tuple(map(read_revision, raw)),
    "keep_alive": lambda raw: KeepAlive(**raw),
    "limits": lambda raw: Limits(**raw),
    "request_timeout": lambda raw: Timeout(**raw),
    "custom_methods": frozenset,
    "profiles": lambda raw: frozenset(map(_read_profile, raw)),
    "emit_profile": _read_profile,
}
