"""Every event that a connection can report, with the ids and the context that events carry. ``Event`` is closed.

Match on the class: with ``typing.assert_never`` in the last branch a type checker proves that no event was forgotten.
``raw`` is the parsed JSON object as received, for gateways that forward without loss. ``via`` is the value given to
``receive_message`` with the message, ``None`` for byte channels. Events are not to be changed.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

if TYPE_CHECKING:
    from mcpio.errors import McpError, RemoteProtocolError, RequestError
    from mcpio.revisions import Era, Revision
    from mcpio.types.features import ClientCapabilities, Implementation, ServerCapabilities, SubscriptionFilter

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
    "SubscriptionAcknowledged",
    "SubscriptionNotified",
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
    """Identifies a request of the peer. This side chose it: the peer's id is only echoed (P7)."""

    __slots__ = ()


class OutgoingId(int):
    """Identifies a request of this side. Never used twice on one connection (RPC-05)."""

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
    """The context of one received message: capability checks, types and result shapes depend on it alone."""

    era: Era
    """The era of the message: handshake or stateless."""
    revision: Revision
    """The revision of the message."""
    capabilities: ClientCapabilities | ServerCapabilities
    """The capabilities that the peer declared."""
    info: Implementation
    """The peer's own name and version: not to be trusted."""
    log_level: str | None
    """The lowest log level that the peer asked for, ``None`` if it did not ask."""
    principal: Hashable
    """The principal that was authenticated before the message reached the engine, or ``None``."""
    via: Hashable
    """The transport's name for the exchange of the message, or ``None``."""


@event
class Peer(_Value):
    """The other side, as it described itself. Not to be trusted."""

    info: Implementation
    """Its name and version."""
    capabilities: ClientCapabilities | ServerCapabilities
    """The capabilities that it declared."""
    instructions: str | None
    """The server's hint for the model, if any. Untrusted text."""


@event
class RequestReceived(_Value):
    """The peer sent a request. Answer it once, with ``send_result`` or ``send_error``."""

    id: IncomingId
    """The id to answer with."""
    request: Any
    """The typed request, such as ``CallToolRequest``; a ``CustomRequest`` for a method registered by name."""
    context: RequestContext
    """The context of the request."""
    raw: Mapping[str, Any]
    """The whole message."""
    reused_id: bool
    """Whether the peer reused the id of a recently finished request, which the handshake revisions forbid (RPC-05)."""


@event
class NotificationReceived(_Value):
    """The peer sent a notification. Notifications are never answered."""

    notification: Any
    """The typed notification; a ``CustomNotification`` for an unknown method."""
    context: RequestContext
    """The context of the notification."""
    raw: Mapping[str, Any]
    """The whole message."""


@event
class ResponseReceived(_Value):
    """A request of this side succeeded: its only outcome (P4). For ``initialize`` it is ``Negotiated`` instead."""

    id: OutgoingId
    """The id that ``send_request`` returned."""
    result: Any
    """The typed result; the plain mapping for a ``CustomRequest``."""
    cookie: Any
    """The cookie given to ``send_request``."""
    raw: Mapping[str, Any]
    """The whole message."""


@event
class RequestFailed(_Value):
    """A request of this side failed: its only outcome (P4)."""

    id: OutgoingId
    """The id that ``send_request`` returned."""
    error: McpError
    """The error, ready to raise: ``RequestError`` (the peer's answer), ``InvalidMessage`` (its result is malformed),
    ``RequestTimeout``, ``RequestCancelled``, ``ConnectionLost``, or ``ConnectFailed`` for ``initialize``."""
    cookie: Any
    """The cookie given to ``send_request``."""
    raw: Mapping[str, Any] | None
    """The whole message, ``None`` if no message caused the failure."""


@event
class ProgressReceived(_Value):
    """The peer reported the progress of a request of this side."""

    id: OutgoingId
    """The id that ``send_request`` returned."""
    progress: float
    """The progress so far, which grows with every report."""
    total: float | None
    """The value of ``progress`` at the end, if known."""
    message: str | None
    """Text for people."""
    cookie: Any
    """The cookie given to ``send_request``."""
    raw: Mapping[str, Any]
    """The whole message."""


@event
class SubscriptionAcknowledged(_Value):
    """For clients: a subscription of this side is open (SUB-02)."""

    id: OutgoingId
    """The id that ``send_request`` returned for ``subscriptions/listen``."""
    honoured: SubscriptionFilter
    """The part of the filter that the server honours."""
    cookie: Any
    """The cookie given to ``send_request``."""
    raw: Mapping[str, Any]
    """The whole message."""


@event
class SubscriptionNotified(_Value):
    """For clients: the server reported a change on a subscription of this side."""

    id: OutgoingId
    """The id that ``send_request`` returned for ``subscriptions/listen``."""
    notification: Any
    """The typed notification."""
    cookie: Any
    """The cookie given to ``send_request``."""
    raw: Mapping[str, Any]
    """The whole message."""


@event
class CancelReceived(_Value):
    """The peer cancelled a request. Stop the work; an answer sent all the same is dropped silently."""

    id: IncomingId
    """The cancelled request."""
    reason: str | None
    """Text for people."""
    raw: Mapping[str, Any]
    """The whole message."""


@event
class Negotiated(_Value):
    """The handshake settled revision and capabilities. For clients, the only outcome of ``initialize`` (P4)."""

    revision: Revision
    """The revision of this session."""
    info: Implementation
    """The peer's own name and version."""
    capabilities: ClientCapabilities | ServerCapabilities
    """The capabilities that the peer declared."""
    instructions: str | None
    """For clients: the server's hint for the model. Untrusted text (LIFE-16)."""
    raw: Mapping[str, Any]
    """The whole message."""
    id: OutgoingId | None = None
    """For clients: the id that ``send_initialize`` returned."""
    cookie: Any = None
    """For clients: the cookie given to ``send_initialize``."""


@event
class Initialized(_Value):
    """For servers: the client sent ``notifications/initialized``; both sides may send requests now."""

    raw: Mapping[str, Any]
    """The whole message."""


@event
class VersionMismatched(_Value):
    """For clients: the server chose a revision that this client does not support. The connection ends."""

    requested: str
    """The revision that this client asked for."""
    offered: str
    """The revision that the server chose."""


@event
class Answered(_Value):
    """The engine answered a request itself: a ping, or with an error a request that cannot be served."""

    method: str
    """The request's method."""
    error: RequestError | None
    """The error of the answer, ``None`` for a result. If this side is at fault, ``__cause__`` says why."""
    raw: Mapping[str, Any]
    """The whole message."""
    via: Hashable
    """The exchange of the message."""


@event
class ProtocolViolated(_Value):
    """The peer broke a rule, and the connection continues. If an answer was due, the engine has sent it."""

    error: RemoteProtocolError
    """The fault; ``error.code`` is the JSON-RPC code."""
    raw: Any
    """The message, parsed if possible, else its first 200 bytes."""
    via: Hashable
    """The exchange of the message."""


@event
class NoiseReceived(_Value):
    """For clients: a line that is not a message, such as a banner or a log line on a server's stdout (STDIO-12)."""

    text: str
    """The first 200 characters of the line."""
    size: int
    """The length of the line in bytes."""


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
    REPEATED_RESPONSE = "the request was answered before, and over HTTP a client may send its answer again"
    NOT_STARTED = "the cancellation names a request that waited for room, and is dropped"


@event
class MessageIgnored(_Value):
    """A message had no effect, and is harmless: most often it crossed another message on the way."""

    reason: IgnoreReason
    """The reason."""
    raw: Mapping[str, Any]
    """The whole message."""
    via: Hashable
    """The exchange of the message."""


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
    """The connection ended. Always the last event, and reported exactly once."""

    reason: CloseReason
    """How the connection ended."""
    cause: BaseException | None
    """The exception that caused the end, if any."""


Event: TypeAlias = (
    RequestReceived
    | NotificationReceived
    | ResponseReceived
    | RequestFailed
    | ProgressReceived
    | SubscriptionAcknowledged
    | SubscriptionNotified
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
