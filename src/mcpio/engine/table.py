"""The rules of a connection as data: its life, the handshake, and the life of one request.

An input named ``SEND_…`` is something this side does; one named ``RECV_…`` comes from the peer or from the channel. A
missing row therefore faults the side that caused the input: it is a ``LocalProtocolError`` for ``SEND_…`` and a
violation by the peer for ``RECV_…``. Nothing else in the engine decides a next state. The tables know neither bytes
nor methods nor time, and every row is consulted.
"""

import enum

__all__ = [
    "LIFE_TABLE",
    "REQUEST_TABLE",
    "TABLE",
    "Direction",
    "Input",
    "Life",
    "Phase",
    "RequestInput",
    "RequestState",
    "Role",
]


class _Word(enum.Enum):
    """An enumeration that hashes as fast as any object: its members are keys in the path of every message."""


# An assignment inside the class would change what type checkers take the method for.
_Word.__hash__ = object.__hash__  # type: ignore[method-assign]  # it hashes by identity, as the members are compared


class Role(_Word):
    """Which end of the conversation a connection is."""

    CLIENT = "client"
    SERVER = "server"


class Life(_Word):
    """How far a connection is from its end, in either era."""

    OPEN = "open"
    CLOSING = "closing"
    """No new requests; pending answers go out."""
    CLOSED = "closed"
    """No more input or output."""


class Phase(_Word):
    """The phase of a handshake session (LIFE-01). The last two are those of the connection, for callers to read."""

    NEW = "new"
    """No message of the handshake was sent or received yet."""
    DISCOVERING = "discovering"
    """A client finds out the era of the server: ``server/discover`` is under way."""
    INITIALIZING = "initializing"
    """``initialize`` is under way: for a server, until the client shows that it has the answer."""
    OPERATING = "operating"
    """The revision and the capabilities are settled."""
    CLOSING = "closing"
    """No new requests; pending answers go out."""
    CLOSED = "closed"
    """No more input or output."""


class Input(_Word):
    """An event in the life of a connection or of its handshake session."""

    SEND_INITIALIZE = "send initialize"
    SEND_DISCOVER = "send server/discover to open"
    SEND_ADOPT = "adopt a stateless revision"
    SEND_SKIP = "skip the handshake"
    SEND_PING = "send ping"
    SEND_REQUEST = "send another request"
    SEND_LOG = "send a log message"
    SEND_NOTIFICATION = "send another notification"
    SEND_CLOSE = "close"
    SEND_END = "send the end"
    SEND_ABORT = "abort"
    RECV_INITIALIZE = "receive initialize"
    RECV_INITIALIZE_RESULT = "receive the result of initialize"
    RECV_DISCOVERED = "receive a discovery that settles the era"
    RECV_OTHER_ERA = "learn that the server is of the other era"
    RECV_INITIALIZED = "receive notifications/initialized"
    RECV_REQUEST = "receive another request"
    RECV_END = "receive the end"
    RECV_SESSION_LOSS = "lose the session"
    RECV_LOSS = "lose the channel"


LIFE_TABLE: dict[tuple[Life, Input], Life] = {
    (Life.OPEN, Input.SEND_CLOSE): Life.CLOSING,
    (Life.OPEN, Input.RECV_END): Life.CLOSING,
    (Life.OPEN, Input.SEND_ABORT): Life.CLOSED,
    (Life.OPEN, Input.RECV_LOSS): Life.CLOSED,
    # A request that still runs may report and log; nothing new begins.
    (Life.CLOSING, Input.SEND_LOG): Life.CLOSING,
    (Life.CLOSING, Input.SEND_NOTIFICATION): Life.CLOSING,
    # A later close may shorten the grace of an earlier one.
    (Life.CLOSING, Input.SEND_CLOSE): Life.CLOSING,
    (Life.CLOSING, Input.RECV_END): Life.CLOSING,
    (Life.CLOSING, Input.SEND_END): Life.CLOSED,
    (Life.CLOSING, Input.SEND_ABORT): Life.CLOSED,
    (Life.CLOSING, Input.RECV_LOSS): Life.CLOSED,
}
"""(life, input) -> the next life, for both roles and both eras. While it is ``OPEN``, ``TABLE`` decides the rest."""

_CLIENT, _SERVER = Role.CLIENT, Role.SERVER
_NEW, _DISCOVERING, _INITIALIZING, _OPERATING = (
    Phase.NEW,
    Phase.DISCOVERING,
    Phase.INITIALIZING,
    Phase.OPERATING,
)

TABLE: dict[tuple[Role, Phase, Input], Phase] = {
    (_CLIENT, _NEW, Input.SEND_INITIALIZE): _INITIALIZING,
    (_CLIENT, _NEW, Input.SEND_DISCOVER): _DISCOVERING,
    (_CLIENT, _NEW, Input.SEND_ADOPT): _OPERATING,
    (_CLIENT, _DISCOVERING, Input.RECV_DISCOVERED): _OPERATING,
    (_CLIENT, _DISCOVERING, Input.RECV_OTHER_ERA): _NEW,
    (_CLIENT, _DISCOVERING, Input.RECV_SESSION_LOSS): _NEW,
    # A server that took a late probe for the era of the connection refuses ``initialize`` (ERA-03).
    (_CLIENT, _INITIALIZING, Input.RECV_OTHER_ERA): _NEW,
    (_CLIENT, _INITIALIZING, Input.SEND_PING): _INITIALIZING,
    (_CLIENT, _INITIALIZING, Input.RECV_INITIALIZE_RESULT): _OPERATING,
    # A channel without connections outlives its session (SESS-06), and so does a client that connects again.
    (_CLIENT, _INITIALIZING, Input.RECV_SESSION_LOSS): _NEW,
    (_CLIENT, _OPERATING, Input.SEND_PING): _OPERATING,
    (_CLIENT, _OPERATING, Input.SEND_REQUEST): _OPERATING,
    (_CLIENT, _OPERATING, Input.SEND_LOG): _OPERATING,
    (_CLIENT, _OPERATING, Input.SEND_NOTIFICATION): _OPERATING,
    (_CLIENT, _OPERATING, Input.RECV_REQUEST): _OPERATING,
    (_CLIENT, _OPERATING, Input.RECV_SESSION_LOSS): _NEW,
    (_SERVER, _NEW, Input.RECV_INITIALIZE): _INITIALIZING,
    (_SERVER, _NEW, Input.SEND_SKIP): _OPERATING,
    (_SERVER, _INITIALIZING, Input.SEND_PING): _INITIALIZING,
    (_SERVER, _INITIALIZING, Input.SEND_LOG): _INITIALIZING,
    (_SERVER, _INITIALIZING, Input.RECV_INITIALIZED): _OPERATING,
    # A client may forget notifications/initialized: its first request says the same (LIFE-12).
    (_SERVER, _INITIALIZING, Input.RECV_REQUEST): _OPERATING,
    (_SERVER, _OPERATING, Input.SEND_PING): _OPERATING,
    (_SERVER, _OPERATING, Input.SEND_REQUEST): _OPERATING,
    (_SERVER, _OPERATING, Input.SEND_LOG): _OPERATING,
    (_SERVER, _OPERATING, Input.SEND_NOTIFICATION): _OPERATING,
    (_SERVER, _OPERATING, Input.RECV_REQUEST): _OPERATING,
    # Repeated by some clients; it is reported and changes nothing.
    (_SERVER, _OPERATING, Input.RECV_INITIALIZED): _OPERATING,
}
"""(role, phase, input) -> the next phase of a handshake session, while the connection is open.

Pings are answered in every phase, and the stateless era has no phases, only requests.
"""


class Direction(_Word):
    """The side that sent the request."""

    OUTGOING = "outgoing"
    INCOMING = "incoming"


class RequestState(_Word):
    """The state of one request, in either era."""

    RUNNING = "running"
    ANSWERED = "answered"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"
    LOST = "lost"


class RequestInput(_Word):
    """An event that ends one request."""

    SEND_RESULT = "send the result"
    SEND_ERROR = "send an error"
    SEND_CANCEL = "cancel it"
    RECV_RESULT = "receive the result"
    RECV_ERROR = "receive an error"
    RECV_CANCEL = "receive a cancellation"
    RECV_TIMEOUT = "pass its deadline"
    RECV_LOSS = "lose the channel"


REQUEST_TABLE: dict[tuple[Direction, RequestState, RequestInput], RequestState] = {
    (Direction.OUTGOING, RequestState.RUNNING, RequestInput.RECV_RESULT): RequestState.ANSWERED,
    (Direction.OUTGOING, RequestState.RUNNING, RequestInput.RECV_ERROR): RequestState.FAILED,
    (Direction.OUTGOING, RequestState.RUNNING, RequestInput.SEND_CANCEL): RequestState.CANCELLED,
    (Direction.OUTGOING, RequestState.RUNNING, RequestInput.RECV_TIMEOUT): RequestState.TIMED_OUT,
    (Direction.OUTGOING, RequestState.RUNNING, RequestInput.RECV_LOSS): RequestState.LOST,
    (Direction.INCOMING, RequestState.RUNNING, RequestInput.SEND_RESULT): RequestState.ANSWERED,
    (Direction.INCOMING, RequestState.RUNNING, RequestInput.SEND_ERROR): RequestState.FAILED,
    (Direction.INCOMING, RequestState.RUNNING, RequestInput.RECV_CANCEL): RequestState.CANCELLED,
    (Direction.INCOMING, RequestState.RUNNING, RequestInput.RECV_LOSS): RequestState.LOST,
}
"""(direction, state, input) -> the next state. Every state but ``RUNNING`` is final: one outcome per request."""
