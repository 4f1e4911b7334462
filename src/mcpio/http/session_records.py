"""What a server over HTTP wants of the store of its sessions, and how a session is written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from mcpio.errors import InvalidMessage, LocalProtocolError
from mcpio.framing import json

__all__ = [
    "Owner",
    "SessionChange",
    "SessionDelete",
    "SessionEffect",
    "SessionLoad",
    "SessionRecord",
    "SessionSave",
    "SessionSweep",
    "StoredEvent",
    "StoredSession",
    "StreamRecord",
    "dump_session",
    "load_session",
]

FORMAT: Final = 1
"""The version of what is written down."""

LARGEST: Final = 2**62
"""The largest number of a stream or an event: one that databases can hold, and the next ones too."""

Owner: TypeAlias = str | int | None
"""A principal that can be written down; ``None`` where nobody was authenticated."""


@attrs.frozen
class StoredEvent:
    """One event of a stream."""

    stream: int
    """The stream that it belongs to, by its number in the session."""
    number: int
    """Its place among the events of that stream, from 1."""
    data: bytes
    """Its bytes, as they go out."""


@attrs.frozen
class StoredSession:
    """What a store knows of a session: the answer to ``SessionLoad``."""

    record: bytes
    """What ``SessionSave`` gave last."""
    at: float
    """When that was, as it said."""
    events: Sequence[StoredEvent]
    """What was appended and not forgotten, those of each stream in the order of their numbers."""


# What the machine wants of the store


@attrs.frozen
class SessionSave:
    """Keep a session under its key, all of this or nothing. Answer with ``store_done(token, None, now)``."""

    token: int
    """What the answer names."""
    key: str
    """The id of the session. Whoever reads it can act for the client."""
    record: bytes
    """What is known of it, in place of what is there."""
    at: float
    """When it was in use, in Unix seconds."""
    events: tuple[StoredEvent, ...]
    """Events to append. One that is there already is the same."""
    forgotten: tuple[tuple[int, int], ...]
    """Events to drop, by stream and number. One that is not there is no fault."""


@attrs.frozen
class SessionLoad:
    """Read back. Answer with a ``StoredSession``, or ``None`` where there is none under this key."""

    token: int
    """What the answer names."""
    key: str
    """The id of the session, as some client says: 32 hexadecimal digits."""


@attrs.frozen
class SessionDelete:
    """Forget a session and its events; one that is not there is no fault. Answer with ``None``."""

    token: int
    """What the answer names."""
    key: str
    """The id of the session."""


@attrs.frozen
class SessionSweep:
    """Forget the sessions that nobody came back for. Answer with ``None``."""

    token: int
    """What the answer names."""
    before: float | None
    """Those last in use before then, in Unix seconds; ``None`` for no such bound."""
    most: int
    """How many to leave at most: those that were in use last."""


SessionChange: TypeAlias = SessionSave | SessionDelete | SessionSweep
"""What changes the store."""

SessionEffect: TypeAlias = SessionChange | SessionLoad
"""They must take effect in the order in which the machine gives them."""


# Writing down


@attrs.frozen
class StreamRecord:
    """A stream that is not over."""

    number: int
    next_number: int
    """That of its next event."""
    sent: int
    """The last of its events that was sent for sure."""


@attrs.frozen
class SessionRecord:
    """A session without its events."""

    owner: Owner
    next_stream: int
    streams: tuple[StreamRecord, ...]
    saved: Mapping[str, Any]
    """What its connection, and whatever is built on it, look like as JSON."""


def dump_session(record: SessionRecord) -> bytes:
    """Return a record as JSON. ``LocalProtocolError`` for what JSON cannot say."""
    said = {
        "format": FORMAT,
        "owner": record.owner,
        "next_stream": record.next_stream,
        "streams": [[each.number, each.next_number, each.sent] for each in record.streams],
        "saved": record.saved,
    }
    try:
        return json.dumps(said)
    except (TypeError, ValueError) as fault:
        raise LocalProtocolError(f"not expressible in JSON: {fault}") from fault


def load_session(key: str, stored: Any) -> SessionRecord:
    """Return what ``dump_session`` wrote. ``InvalidMessage`` for anything else.

    The rest of what the store answered is checked too: not even SQLite holds to the types of its columns.
    """
    try:
        _of_type(stored, StoredSession)
        _of_type(stored.at, int, float)
        for event in stored.events:
            _whole(event.stream)
            _whole(event.number)
            _of_type(event.data, bytes)
        said = _members(json.loads(_of_type(stored.record, bytes)))
        streams = tuple(StreamRecord(*map(_whole, each)) for each in said["streams"])
        return SessionRecord(said["owner"], _whole(said["next_stream"]), streams, said["saved"])
    except (TypeError, ValueError, KeyError) as fault:
        # The key is a secret: whoever has it can act for the client.
        raise InvalidMessage(f"{key[:4]}…", f"no record of a session: {fault!r:.100}") from fault


def _members(said: Any) -> Any:
    if said["format"] != FORMAT:
        raise ValueError("another format")
    if said["owner"].__class__ not in (str, int, type(None)) or not isinstance(said["saved"], Mapping):
        raise TypeError("not the members of a session")
    return said


def _whole(value: Any) -> int:
    if value.__class__ is not int or not 0 <= value <= LARGEST:
        raise ValueError(f"found {value!r:.60}")
    found: int = value
    return found


def _of_type(value: Any, *types: type) -> Any:
    if value.__class__ not in types:
        raise TypeError(f"found {value!r:.60}")
    return value
