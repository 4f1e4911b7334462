"""Every event a connection can report, and the ids and context that events carry. All are frozen; ``Event`` is closed.

Match on the class; ``typing.assert_never`` in the last branch makes a type checker prove that none was forgotten.
``raw`` is the parsed JSON object as it came, for gateways that forward without loss; do not change it. ``via`` is the
value given to ``receive_message`` with the message, ``None`` for byte channels.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

if TYPE_CHECKING:
    from mcpio.errors import McpError, RemoteProtocolError, RequestError
    from mcpio.revisions import Era, Revision
    from mcpio.types.lifecycle import ClientCapabilities, Implementation, ServerCapabilities

__all__ = [
    "Answered",
    "CancelReceived",
    "CloseReason",
    "ConnectionClosed",
    "Event",
    "IgnoreReason",
    "IncomingId",
    "Initialized",
    "MessageIgnored",
    "Negotiated",
    "NoiseReceived",
    "NotificationReceived",
    "OutgoingId",
    "Peer",
    "ProgressReceived",
    "ProtocolViolated",
    "RequestContext",
    "RequestFailed",
    "RequestReceived",
    "ResponseReceived",
    "VersionMismatched",
]


if TYPE_CHECKING:
    from attrs import frozen as event

else:

    def event(cls: type) -> type:
        """Make an event class: frozen to type checkers, who see ``attrs.frozen``, and cheap to make at run time.

        A frozen attrs class stores each attribute through ``object.__setattr__``, which doubles the time it takes to
        make one, and every message makes at least one. The methods that ``_Value`` has for all events are not generated
        anew for each class: that would double the time it takes to import this module.
        """
        return attrs.define(cls, repr=False, eq=False, getstate_setstate=False)


class IncomingId(int):
    """Names a request of the peer's. It is ours: the peer's own id is only echoed (P7)."""

    __slots__ = ()


class OutgoingId(int):
    """Names a request of our own. Never used twice on one connection (RPC-05)."""

    __slots__ = ()


class _Value:
    """Compares, hashes, prints and pickles by its members."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return _members(self) == _members(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self) -> int:
        return hash((self.__class__, *_members(self)))

    def __repr__(self) -> str:
        members = ", ".join(f"{name}={getattr(self, name)!r}" for name in _names(self))
        return f"{self.__class__.__name__}({members})"

    def __reduce__(self) -> Any:
        return self.__class__, _members(self)


def _members(value: Any) -> tuple[Any, ...]:
    return tuple(getattr(value, name) for name in _names(value))


def _names(value: Any) -> tuple[str, ...]:
    return tuple(field.name for field in attrs.fields(value.__class__))


@event
class RequestContext(_Value):
    """What one incoming message may rely on. Gates, types and result shapes read this, never the connection."""

    era: Era
    """Handshake or stateless."""
    revision: Revision
    """The revision that this message speaks."""
    capabilities: ClientCapabilities | ServerCapabilities
    """What the peer declared."""
    info: Implementation
    """Who the peer says it is. Self-reported: not to be trusted."""
    log_level: str | None
    """The least log level that the peer asked for, ``None`` when it did not ask."""
    principal: Hashable
    """Whoever was authenticated before the message came here, ``None`` where nobody was."""
    via: Hashable
    """The transport's name for the exchange that brought the message, ``None`` where there is none."""


@event
class Peer(_Value):
    """The other side, as it described itself. Not to be trusted."""

    info: Implementation
    """Its name and version."""
    capabilities: ClientCapabilities | ServerCapabilities
    """What it declared."""
    instructions: str | None
    """A server's hint for the model, if it gave one."""


@event
class RequestReceived(_Value):
    """The peer asks something. It waits for one ``send_result`` or ``send_error`` with this id."""

    id: IncomingId
    """Answer with this."""
    request: Any
    """The typed request, such as ``CallToolRequest``; a ``CustomRequest`` for a method registered by name."""
    context: RequestContext
    """What holds for this request."""
    raw: Mapping[str, Any]
    """The whole message."""
    reused_id: bool
    """The peer used this id for a recently finished request too, which the handshake revisions forbid (RPC-05)."""


@event
class NotificationReceived(_Value):
    """The peer tells something. Notifications are never answered."""

    notification: Any
    """The typed notification; a ``CustomNotification`` for an unknown method."""
    context: RequestContext
    """What holds for this notification."""
    raw: Mapping[str, Any]
    """The whole message."""


@event
class ResponseReceived(_Value):
    """A request of ours succeeded. This is its one outcome (P4). For ``initialize`` it is ``Negotiated`` instead."""

    id: OutgoingId
    """What ``send_request`` gave."""
    result: Any
    """The typed result; the plain mapping for a ``CustomRequest``."""
    cookie: Any
    """What was given to ``send_request``."""
    raw: Mapping[str, Any]
    """The whole message."""


@event
class RequestFailed(_Value):
    """A request of ours failed. This is its one outcome (P4)."""

    id: OutgoingId
    """What ``send_request`` gave."""
    error: McpError
    """Ready to raise: ``RequestError`` (the peer said so), ``InvalidMessage`` (its result makes no sense),
    ``RequestTimeout``, ``RequestCancelled``, ``ConnectionLost``, or ``ConnectFailed`` for ``initialize``."""
    cookie: Any
    """What was given to ``send_request``."""
    raw: Mapping[str, Any] | None
    """The whole message, ``None`` where no message caused it."""


@event
class ProgressReceived(_Value):
    """The peer reports how far a request of ours is."""

    id: OutgoingId
    """What ``send_request`` gave."""
    progress: float
    """Grows with every report."""
    total: float | None
    """The value of ``progress`` at the end, where known."""
    message: str | None
    """Text for people."""
    cookie: Any
    """What was given to ``send_request``."""
    raw: Mapping[str, Any]
    """The whole message."""


@event
class CancelReceived(_Value):
    """The peer no longer wants an answer. Stop the work; an answer sent all the same is dropped quietly."""

    id: IncomingId
    """The request it named."""
    reason: str | None
    """Text for people."""
    raw: Mapping[str, Any]
    """The whole message."""


@event
class Negotiated(_Value):
    """The handshake settled who speaks what. For clients it is the one outcome of ``initialize`` (P4)."""

    revision: Revision
    """The revision of this session."""
    info: Implementation
    """Who the peer says it is."""
    capabilities: ClientCapabilities | ServerCapabilities
    """What the peer declared."""
    instructions: str | None
    """For clients: the server's hint for the model. Untrusted text (LIFE-16)."""
    raw: Mapping[str, Any]
    """The whole message."""
    id: OutgoingId | None = None
    """For clients: what ``send_initialize`` gave."""
    cookie: Any = None
    """For clients: what was given to ``send_initialize``."""


@event
class Initialized(_Value):
    """For servers: the client said ``notifications/initialized``; requests may flow both ways."""

    raw: Mapping[str, Any]
    """The whole message."""


@event
class VersionMismatched(_Value):
    """For clients: the server answered with a revision that this client does not speak. The connection ends."""

    requested: str
    """What this client asked for."""
    offered: str
    """What the server answered."""


@event
class Answered(_Value):
    """The engine answered a request by itself: a ping, or an error for a request that cannot be served."""

    method: str
    """The request's method."""
    error: RequestError | None
    """The error it was answered with, ``None`` for a result. Where this side is at fault, ``__cause__`` says why."""
    raw: Mapping[str, Any]
    """The whole message."""
    via: Hashable
    """The exchange that brought it."""


@event
class ProtocolViolated(_Value):
    """The peer broke a rule, and the connection goes on. Where an answer was due it has been given."""

    error: RemoteProtocolError
    """What was wrong; ``error.code`` is the JSON-RPC code."""
    raw: Any
    """What came, parsed where it could be parsed, else its first 200 bytes."""
    via: Hashable
    """The exchange that brought it."""


@event
class NoiseReceived(_Value):
    """For clients: a line that is no message, such as a banner or a log line on a server's stdout (STDIO-12)."""

    text: str
    """Its first 200 characters."""
    size: int
    """Its length in bytes."""


class IgnoreReason(enum.Enum):
    """Why a harmless message had no effect."""

    LATE_RESPONSE = "the request was given up before: cancelled, timed out, or ended with the connection"
    LATE_PROGRESS = "the token belongs to a request that is over"
    UNKNOWN_TOKEN = "the progress token was never given out"
    UNKNOWN_REQUEST = "the cancellation names no running request"
    AMBIGUOUS_REQUEST = "the cancellation names an id that several exchanges use"
    NOT_INITIALIZED = "the session is not initialized"
    WRONG_DIRECTION = "the notification is for the other role to receive"
    CONNECTION_ERROR = "an error that belongs to no request"
    NOT_STARTED = "the cancellation names a request that waited for room, and is dropped"


@event
class MessageIgnored(_Value):
    """A message had no effect, and need not have one: mostly one that crossed another on the way."""

    reason: IgnoreReason
    """Why."""
    raw: Mapping[str, Any]
    """The whole message."""
    via: Hashable
    """The exchange that brought it."""


class CloseReason(enum.Enum):
    """How a connection ended."""

    CLOSED = "closed here"
    END_OF_FILE = "closed by the peer"
    LOST = "the channel broke"
    ABORTED = "aborted here"
    VERSION_MISMATCH = "no revision in common"
    HANDSHAKE_FAILED = "initialize failed"
    MESSAGE_TOO_LARGE = "a message over the limit"
    SLOW_CONSUMER = "slow-consumer"
    UNRESPONSIVE = "pings were not answered"
    OVERLOADED = "overloaded"


@event
class ConnectionClosed(_Value):
    """The end: always the last event, and given exactly once."""

    reason: CloseReason
    """How it ended."""
    cause: BaseException | None
    """What broke, where an exception says it."""


Event: TypeAlias = (
    RequestReceived
    | NotificationReceived
    | ResponseReceived
    | RequestFailed
    | ProgressReceived
    | CancelReceived
    | Negotiated
    | Initialized
    | VersionMismatched
    | Answered
    | ProtocolViolated
    | NoiseReceived
    | MessageIgnored
    | ConnectionClosed
)
