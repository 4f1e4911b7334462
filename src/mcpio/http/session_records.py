"""Effects for the store of durable sessions, its answers, and the encoding of a session's record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from mcpio.auth.grant import Grant
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
"""The version of the encoding."""

LARGEST: Final = 2**62
"""The largest number of a stream or an event, so that databases can hold it and its successors."""

Owner: TypeAlias = str | int | None | Grant
"""A principal that can be stored; ``None`` without authentication. Of a grant the identity is stored."""


@attrs.frozen
class StoredEvent:
    """One event of a stream."""

    stream: int
    """The number of its stream in the session."""
    number: int
    """Its place among the events of that stream, from 1."""
    data: bytes
    """Its bytes, as they are sent."""


@attrs.frozen
class StoredSession:
    """A session as the store has it: the answer to ``SessionLoad``."""

    record: bytes
    """The record of the last ``SessionSave``."""
    at: float
    """The time of the last ``SessionSave``."""
    events: Sequence[StoredEvent]
    """The events that were appended and not dropped, those of each stream in order."""


# Effects


@attrs.frozen
class SessionSave:
    """Store a session under its key, atomically. Answer with ``store_done(token, None, now)``."""

    token: int
    """The token for the answer."""
    key: str
    """The id of the session, which is a bearer credential."""
    record: bytes
    """The new record, which replaces the old one."""
    at: float
    """When it was used last, in Unix seconds."""
    events: tuple[StoredEvent, ...]
    """Events to append. An event that the store has already is equal."""
    forgotten: tuple[tuple[int, int], ...]
    """Events to drop, by stream and number. Ignore those that the store does not have."""


@attrs.frozen
class SessionLoad:
    """Load a session. Answer with a ``StoredSession``, or ``None`` if the key is unknown."""

    token: int
    """The token for the answer."""
    key: str
    """The id that a client named: 32 hexadecimal digits."""


@attrs.frozen
class SessionDelete:
    """Delete a session and its events; ignore an unknown key. Answer with ``None``."""

    token: int
    """The token for the answer."""
    key: str
    """The id of the session."""


@attrs.frozen
class SessionSweep:
    """Delete abandoned sessions. Answer with ``None``."""

    token: int
    """The token for the answer."""
    before: float | None
    """Delete sessions last used before this time, in Unix seconds; ``None`` for no such bound."""
    most: int
    """Keep at most this many, the most recently used."""


SessionChange: TypeAlias = SessionSave | SessionDelete | SessionSweep
"""Effects that change the store."""

SessionEffect: TypeAlias = SessionChange | SessionLoad
"""All effects. The store carries them out in the order in which the machine gives them."""


# Records


@attrs.frozen
class StreamRecord:
    """A stream that is not over."""

    number: int
    next_number: int
    """The number of its next event."""
    sent: int
    """The last of its events that is known to have been sent."""


@attrs.frozen
class SessionRecord:
    """A session without its events."""

    owner: Owner
    next_stream: int
    streams: tuple[StreamRecord, ...]
    saved: Mapping[str, Any]
    """The snapshot of its connection and of the application's session, as JSON."""


def dump_session(record: SessionRecord) -> bytes:
    """Encode a record. Raises LocalProtocolError if JSON cannot express it."""
    said = {
        "format": FORMAT,
        "owner": _identity(record.owner) if isinstance(record.owner, Grant) else record.owner,
        "next_stream": record.next_stream,
        "streams": [[each.number, each.next_number, each.sent] for each in record.streams],
        "saved": record.saved,
    }
    try:
        return json.dumps(said)
    except (TypeError, ValueError) as fault:
        raise LocalProtocolError(f"not expressible in JSON: {fault}") from fault


def load_session(key: str, stored: Any) -> SessionRecord:
    """Decode a record, and check the rest of the store's answer. Raises InvalidMessage if any of it is invalid.

    Stores are not trusted with types: not even SQLite enforces those of its columns.
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
        return SessionRecord(_owner(said["owner"]), _whole(said["next_stream"]), streams, said["saved"])
    except (TypeError, ValueError, KeyError) as fault:
        # The key is a bearer credential, so the message quotes only its beginning.
        raise InvalidMessage(f"{key[:4]}…", f"not the record of a session: {fault!r:.100}") from fault


def _members(said: Any) -> Any:
    if said["format"] != FORMAT:
        raise ValueError("another format")
    if not isinstance(said["saved"], Mapping):
        raise TypeError("not the members of a session")
    return said


def _owner(said: Any) -> Owner:
    if isinstance(said, dict):
        return Grant(*(_of_type(said[name], str, type(None)) for name in _IDENTITY))
    owner: Owner = _of_type(said, str, int, type(None))
    return owner


def _identity(grant: Grant) -> dict[str, str | None]:
    return {name: getattr(grant, name) for name in _IDENTITY}


_IDENTITY: Final = ("issuer", "subject", "client_id")


def _whole(value: Any) -> int:
    if value.__class__ is not int or not 0 <= value <= LARGEST:
        raise ValueError(f"found {value!r:.60}")
    found: int = value
    return found


def _of_type(value: Any, *types: type) -> Any:
    if value.__class__ not in types:
        raise TypeError(f"found {value!r:.60}")
    return value
