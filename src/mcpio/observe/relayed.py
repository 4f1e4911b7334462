"""Recordings of relayed traffic: the messages of both directions as they passed, without an engine's calls.

A relay decides nothing, so there is no engine whose calls ``Recorder`` could write. The first line is the header; each
further line is a message, the head of an HTTP request or response, or a note. ``mcpio replay`` shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from mcpio.errors import LocalProtocolError
from mcpio.framing.json import JsonError, dumps, loads
from mcpio.framing.lines import Overlong
from mcpio.observe.tap import Redactor

VERSION: Final = 1
"""The version of the layout."""


@attrs.frozen(kw_only=True)
class Passage:
    """One line of such a recording."""

    at: float
    """Seconds since the recording began."""
    from_client: bool
    """Whether the client sent it; false for notes."""
    text: str | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.instance_of(str)))
    """The message; ``None`` for anything else."""
    overlong: int | None = None
    """The size of a message that was too long to keep: at least so many bytes."""
    http: Mapping[str, Any] | None = None
    """The head of an HTTP request or response."""
    via: int | str | None = None
    """The HTTP exchange that it belongs to."""
    note: str | None = None
    """What the relay did or saw."""


class RelayRecorder:
    """Writes a recording of relayed traffic. ``write`` takes each line, with its newline."""

    def __init__(self, write: Callable[[str], object], target: str, now: float, *, redactor: Redactor) -> None:
        self._write = write
        self._redactor = redactor
        self._began = now
        self._put({"relayed": VERSION, "target": redactor.text(target)})

    def message(self, from_client: bool, line: bytes | Overlong, now: float, via: int | str | None = None) -> None:
        """Write a message without its secrets."""
        if isinstance(line, Overlong):
            entry: dict[str, Any] = {"overlong": line.size_seen}
        else:
            entry = {"text": self._redactor.data(line).decode()}
        self._record(from_client, entry, now, via)

    def head(self, from_client: bool, head: Mapping[str, Any], now: float, via: int | str) -> None:
        """Write the head of an HTTP request or response without its secrets."""
        self._record(from_client, {"http": self._redactor.message(head)}, now, via)

    def note(self, text: str, now: float) -> None:
        """Write a note."""
        self._put({"at": round(now - self._began, 6), "note": self._redactor.text(text)})

    def _record(self, from_client: bool, entry: dict[str, Any], now: float, via: int | str | None) -> None:
        head = {"at": round(now - self._began, 6), "from": "client" if from_client else "server"}
        self._put({**head, **({} if via is None else {"via": via}), **entry})

    def _put(self, value: dict[str, Any]) -> None:
        self._write(dumps(value).decode() + "\n")


def is_relayed(header: str) -> bool:
    """Whether the first line of a file is the header of such a recording."""
    try:
        value = loads(header)
    except JsonError:
        return False
    return isinstance(value, dict) and "relayed" in value


def read_relayed(lines: Iterable[str]) -> Iterator[Passage]:
    """Yield the passages of a recording. Raises ``LocalProtocolError`` for a malformed line, or a newer version."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = loads(line)
            if number == 1:
                if entry["relayed"] > VERSION:
                    fault = f"the recording has version {entry['relayed']}; this library reads up to {VERSION}"
                    raise LocalProtocolError(fault)
                continue
            at, sender = float(entry.pop("at")), entry.pop("from", None)
            passage = Passage(at=at, from_client=sender == "client", **entry)
        except JsonError as error:
            raise LocalProtocolError(f"malformed recording: line {number}: {error.reason}") from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise LocalProtocolError(f"malformed recording: line {number}: {error!r:.100}") from error
        yield passage
