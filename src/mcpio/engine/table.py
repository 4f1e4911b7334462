"""The rules of a session and of a request's life, as data. Nothing else in the engine decides a next phase or state.

An input named ``SEND_…`` is something this side does, one named ``RECV_…`` something that comes from the peer or from
the channel. A missing row is therefore a fault of whoever caused the input: a ``LocalProtocolError`` for ``SEND_…``, a
violation by the peer for ``RECV_…``. The tables know neither bytes nor methods nor time.
"""

import enum

__all__ = [
    "REQUEST_TABLE",
    "TABLE",
    "Direction",
    "Input",
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


class Phase(_Word):
    """Where a handshake session stands (LIFE-01)."""

    NEW = "new"
    """Nothing was said yet."""
    INITIALIZING = "initializing"
    """``initialize`` is under way: for a server, until the client shows that it has the answer."""
    OPERATING = "operating"
    """The revision and the capabilities are settled."""
    CLOSING = "closing"
    """No new requests; what is still owed goes out."""
    CLOSED = "closed"
    """Nothing comes in or goes out any more."""

    NOT_INITIALIZED = "new"
    """Another name of ``NEW``, which some guides use."""
    INITIALIZED = "operating"
    """Another name of ``OPERATING``."""
    DISCONNECTED = "closed"
    """Another name of ``CLOSED``."""


class Input(_Word):
    """What can happen to a session."""

    SEND_INITIALIZE = "send initialize"
    SEND_ASSUMPTION = "take the handshake for done"
    SEND_PING = "send ping"
    SEND_REQUEST = "send another request"
    SEND_LOG = "send a log message"
    SEND_NOTIFICATION = "send another notification"
    SEND_RESPONSE = "send a response"
    SEND_CLOSE = "close"
    SEND_END = "send the end"
    SEND_ABORT = "abort"
    RECV_INITIALIZE = "receive initialize"
    RECV_INITIALIZE_RESULT = "receive the result of initialize"
    RECV_INITIALIZED = "receive notifications/initialized"
    RECV_PING = "receive ping"
    RECV_REQUEST = "receive another request"
    RECV_NOTIFICATION = "receive another notification"
    RECV_END = "receive the end"
    RECV_SESSION_LOSS = "lose the session"
    RECV_LOSS = "lose the channel"


def _session() -> dict[tuple[Role, Phase, Input], Phase]:
    table: dict[tuple[Role, Phase, Input], Phase] = {}

    def rows(role: Role, phase: Phase, *inputs: Input, to: Phase | None = None) -> None:
        for each in inputs:
            table[role, phase, each] = to or phase

    client, server = Role.CLIENT, Role.SERVER

    rows(client, Phase.NEW, Input.SEND_INITIALIZE, to=Phase.INITIALIZING)
    rows(client, Phase.NEW, Input.RECV_PING, Input.RECV_NOTIFICATION)
    rows(client, Phase.INITIALIZING, Input.RECV_INITIALIZE_RESULT, to=Phase.OPERATING)
    rows(client, Phase.INITIALIZING, Input.SEND_PING, Input.RECV_PING, Input.RECV_NOTIFICATION)

    # A channel without connections outlives its session (SESS-06), and so does a client that connects again.
    for phase in (Phase.INITIALIZING, Phase.OPERATING):
        rows(client, phase, Input.RECV_SESSION_LOSS, to=Phase.NEW)

    rows(server, Phase.NEW, Input.RECV_INITIALIZE, to=Phase.INITIALIZING)
    rows(server, Phase.NEW, Input.SEND_ASSUMPTION, to=Phase.OPERATING)
    rows(server, Phase.NEW, Input.RECV_PING, Input.RECV_NOTIFICATION)
    # A client may forget notifications/initialized: its first request says the same (LIFE-12).
    rows(server, Phase.INITIALIZING, Input.RECV_INITIALIZED, Input.RECV_REQUEST, to=Phase.OPERATING)
    rows(server, Phase.INITIALIZING, Input.SEND_PING, Input.SEND_LOG, Input.RECV_PING, Input.RECV_NOTIFICATION)
    rows(server, Phase.OPERATING, Input.RECV_INITIALIZED)

    for role in Role:
        rows(role, Phase.OPERATING, *_CONVERSATION)
        rows(role, Phase.CLOSING, *_LAST_WORDS, Input.SEND_CLOSE, Input.RECV_END)
        for phase in (Phase.NEW, Phase.INITIALIZING, Phase.OPERATING):
            rows(role, phase, Input.SEND_CLOSE, Input.RECV_END, to=Phase.CLOSING)
        rows(role, Phase.CLOSING, Input.SEND_END, to=Phase.CLOSED)
        for phase in (Phase.NEW, Phase.INITIALIZING, Phase.OPERATING, Phase.CLOSING):
            rows(role, phase, Input.SEND_ABORT, Input.RECV_LOSS, to=Phase.CLOSED)
        rows(role, Phase.CLOSED, Input.SEND_CLOSE, Input.SEND_ABORT, Input.RECV_END, Input.RECV_LOSS)
    return table


# What is still running when a session closes may report and answer; nothing new begins.
_LAST_WORDS = (Input.SEND_LOG, Input.SEND_NOTIFICATION, Input.SEND_RESPONSE, Input.RECV_PING, Input.RECV_NOTIFICATION)
_CONVERSATION = (*_LAST_WORDS, Input.SEND_PING, Input.SEND_REQUEST, Input.RECV_REQUEST)

TABLE = _session()
"""(role, phase, input) -> the next phase, for handshake sessions. The stateless era has no phases, only requests."""


class Direction(_Word):
    """Who asked."""

    OUTGOING = "outgoing"
    INCOMING = "incoming"


class RequestState(_Word):
    """Where one request stands, in either era."""

    RUNNING = "running"
    ANSWERED = "answered"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"
    LOST = "lost"


class RequestInput(_Word):
    """What can happen to one request."""

    SEND_PROGRESS = "send progress"
    SEND_RESULT = "send the result"
    SEND_ERROR = "send an error"
    SEND_CANCEL = "cancel it"
    RECV_PROGRESS = "receive progress"
    RECV_RESULT = "receive the result"
    RECV_ERROR = "receive an error"
    RECV_CANCEL = "receive a cancellation"
    RECV_TIMEOUT = "pass its deadline"
    RECV_LOSS = "lose the channel"


REQUEST_TABLE: dict[tuple[Direction, RequestState, RequestInput], RequestState] = {
    (Direction.OUTGOING, RequestState.RUNNING, RequestInput.RECV_PROGRESS): RequestState.RUNNING,
    (Direction.OUTGOING, RequestState.RUNNING, RequestInput.RECV_RESULT): RequestState.ANSWERED,
    (Direction.OUTGOING, RequestState.RUNNING, RequestInput.RECV_ERROR): RequestState.FAILED,
    (Direction.OUTGOING, RequestState.RUNNING, RequestInput.SEND_CANCEL): RequestState.CANCELLED,
    (Direction.OUTGOING, RequestState.RUNNING, RequestInput.RECV_TIMEOUT): RequestState.TIMED_OUT,
    (Direction.OUTGOING, RequestState.RUNNING, RequestInput.RECV_LOSS): RequestState.LOST,
    (Direction.INCOMING, RequestState.RUNNING, RequestInput.SEND_PROGRESS): RequestState.RUNNING,
    (Direction.INCOMING, RequestState.RUNNING, RequestInput.SEND_RESULT): RequestState.ANSWERED,
    (Direction.INCOMING, RequestState.RUNNING, RequestInput.SEND_ERROR): RequestState.FAILED,
    (Direction.INCOMING, RequestState.RUNNING, RequestInput.RECV_CANCEL): RequestState.CANCELLED,
    (Direction.INCOMING, RequestState.RUNNING, RequestInput.RECV_LOSS): RequestState.LOST,
}
"""(direction, state, input) -> the next state. Every state but ``RUNNING`` is final: one outcome per request."""
