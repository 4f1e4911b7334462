"""Recordings of conversations, to be replayed: the same calls give the same events (P5, P15).

A recording has one JSON value on each line. The first line is the header: the version of the layout, the role, the
options, and the connection's snapshot where the recording begins. Each further line is one call on the connection: the
name of the verb, the time ``at``, its arguments, and the output that it returned. Of an event only the name is written:
``mcpio.observe.replayer`` makes the events again.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import attrs

from mcpio.engine.connection import Connection
from mcpio.engine.limits import Default, Timeout
from mcpio.engine.options import Options
from mcpio.engine.stateless_engine import StatelessEngine
from mcpio.errors import LocalProtocolError, UnexpectedResponse
from mcpio.events import Event
from mcpio.framing.json import dumps
from mcpio.framing.lines import LineFramer, Overlong
from mcpio.observe.tap import Tap
from mcpio.revisions import Revision

if TYPE_CHECKING:
    from mcpio.observe.redaction import Redactor

__all__ = ["VERSION", "Recorder"]

VERSION: Final = 1
"""The version of the layout that this library writes, and the newest that it reads."""


class Recorder(Tap):
    """A tap that writes a recording.

    ``write`` takes each line, with its newline; a file's ``write`` will do. If it raises, the recording ends and the
    connection goes on. ``redactor`` removes secrets first: input is then written in whole lines, not in the pieces in
    which it came. A recording cannot begin where a snapshot is refused.

    Cookies that are neither strings nor integers are left out, and so are the principal and options that are functions.
    A ``via`` of another type is written as its ``repr``.
    """

    def __init__(self, write: Callable[[str], object], *, redactor: Redactor | None = None) -> None:
        self._write = write
        self._redactor = redactor
        self._lines = LineFramer()
        self._began = 0.0
        self._awaits_end = False
        # Whether a message was read since the last event, so that a pull without one may have acted on it.
        self._has_read = False

    def opened(self, connection: Connection | StatelessEngine, now: float) -> None:
        """Write the header. Raises ``LocalProtocolError`` if a snapshot is refused, or a redactor meets half a line."""
        snapshot = connection.snapshot(now, cookies=_scalar)
        if self._redactor is not None:
            if snapshot["unfinished"] or snapshot["skipping"]:
                raise LocalProtocolError("a recording without secrets begins between two lines")
            snapshot = self._redactor.message(snapshot)
            limits = connection.options.limits
            self._lines = LineFramer(limits.message_bytes, resync=limits.resync)
        self._began = now
        header = {"recording": VERSION, "role": connection.role.value, "at": now}
        self._put({**header, "options": said_options(connection.options), "snapshot": snapshot})

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
            for said in self._fed(arguments["data"]):
                self._entry(verb, said, now)
            return
        if verb == "receive_message":
            self._awaits_end = self._awaits_end or arguments["text"] is None
        elif verb == "next_event":
            # A pull without an event changes nothing, unless it finds the end, or a message that is acted on quietly,
            # such as the answer that has a client initialize.
            if not (self._awaits_end or self._has_read):
                return
            self._awaits_end = self._has_read = False
        elif verb == "fail_request" and isinstance(error := arguments["error"], UnexpectedResponse):
            arguments = {**arguments, "status": error.status}  # a client that opens goes by it
        self._entry(verb, self._said(arguments), now)

    def _fed(self, data: bytes | None) -> Iterator[dict[str, Any]]:
        """Yield input as it is written: in whole lines if secrets must be found in it."""
        if self._redactor is None:
            yield {"data": said_bytes(data)}
            return
        if data is None:
            self._lines.receive_eof()
        else:
            self._lines.receive(data)
        while (line := self._lines.next_line()) is not None:
            if isinstance(line, Overlong):
                yield {"overlong": line.size_seen}
            else:
                yield {"data": said_bytes(self._redactor.data(line) + b"\n")}
        if data is None:
            yield {"data": None}

    def _said(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if self._redactor is not None:
            arguments = {**arguments, **_redacted(self._redactor, arguments)}
        return {name: _SAID.get(name, _as_it_is)(value) for name, value in arguments.items()}

    def _entry(self, verb: str, said: Mapping[str, Any], now: float) -> None:
        self._put({"at": now if isfinite(now) else self._began, "do": verb, **said})

    def _put(self, value: dict[str, Any]) -> None:
        self._write(dumps(value).decode() + "\n")


def _redacted(redactor: Redactor, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that may contain secrets, redacted. Paths start at the message that they are part of."""
    found: dict[str, Any] = {}
    for name, value in arguments.items():
        if name == "text" and value is not None:
            found[name] = redactor.text(value) if isinstance(value, str) else redactor.data(value)
        elif name == "chunks":
            found[name] = [None if chunk is None else redactor.data(chunk[:-1]) + b"\n" for chunk in value]
        elif name in ("params", "message", "reason"):
            found[name] = redactor.message({name: value})[name]
        elif name == "items":
            found[name] = [{**item, **_redacted(redactor, item)} for item in value]
        elif name in ("cause", "error") and value is not None:
            found[name] = redactor.text(f"{type(value).__name__}: {value}")
    return found


def said_options(options: Options) -> dict[str, Any]:
    """Return the options that differ from their defaults, as JSON. Functions are left out."""
    default = Options()
    values = {field.name: getattr(options, field.name) for field in attrs.fields(Options)}
    return {
        name: _said_option(value)
        for name, value in values.items()
        if value != getattr(default, name) and not callable(value)
    }


def said_bytes(data: bytes | None) -> Any:
    """Return bytes in JSON: as text, or ``{"hex": …}`` if they are not UTF-8."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def _said_option(value: Any) -> Any:
    if isinstance(value, Revision):
        return value.name
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple | frozenset):
        items = [_said_option(each) for each in value]
        return sorted(items) if isinstance(value, frozenset) else items
    return attrs.asdict(value) if attrs.has(type(value)) else value


def _as_it_is(value: Any) -> Any:
    return value


def _said_text(text: bytes | str | None) -> Any:
    if isinstance(text, bytes):
        said = said_bytes(text)
        return {"bytes": said} if isinstance(said, str) else said
    if text is not None and any("\ud800" <= character <= "\udfff" for character in text):
        # JSON cannot hold lone surrogates, but a caller may feed them.
        return {"utf-16": text.encode("utf-16-le", "surrogatepass").hex()}
    return text


def _said_chunks(chunks: Iterable[bytes | None]) -> list[Any]:
    return [said_bytes(chunk) for chunk in chunks]


def _said_seconds(value: float | None) -> float | None:
    return value if value is None or isfinite(value) else None


def _said_timeout(timeout: Timeout | float | Default | None) -> Any:
    if isinstance(timeout, Default):
        return "default"
    return [timeout.total, timeout.idle] if isinstance(timeout, Timeout) else _said_seconds(timeout)


def _said_cause(cause: BaseException | str | None) -> str | None:
    return cause if cause is None or isinstance(cause, str) else f"{type(cause).__name__}: {cause}"


def _said_items(items: Iterable[Mapping[str, Any]]) -> list[Any]:
    return [{name: _SAID.get(name, _as_it_is)(value) for name, value in item.items()} for item in items]


def _said_via(via: Any) -> int | str | None:
    return via if via is None or via.__class__ in (int, str) else repr(via)


def _scalar(cookie: Any) -> int | str | None:
    return cookie if cookie.__class__ in (int, str) else None


_SAID: Final[Mapping[str, Callable[[Any], Any]]] = {
    "cause": _said_cause,
    "chunks": _said_chunks,
    "cookie": _scalar,
    "error": _said_cause,
    "grace": _said_seconds,
    "items": _said_items,
    "text": _said_text,
    "timeout": _said_timeout,
    "via": _said_via,
}
