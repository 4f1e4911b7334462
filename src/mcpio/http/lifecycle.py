"""The states of an HTTP connection as a table: the next state, and the adapter's action, for each input.

An adapter reports its reads, its writes and passed deadlines to ``Lifecycle.step``, and does what the returned
``Action`` says. HTTP/1.1 has one ``Lifecycle`` for a connection, which begins in ``NEW`` and returns to ``IDLE`` after
each response. HTTP/2 has one for a stream, ASGI one for a call: those begin in ``BODY``, when the head is there, with
``is_last``, since they carry one exchange.

The states leave this to the adapter:

* **Back-pressure.** Pull ``responses_to_send`` only when the piece before it is written. The rest waits in the machine,
  is counted there, and holds back further requests of that client (P14).
* **Who writes.** One writer at a time. ``on_ready`` names an exchange once until it is pulled, so that a writer that is
  at work need not be told again: it pulls until it gets an empty list.
* **Whole requests.** A request that came in one read goes to the machine in one call, and takes one step:
  ``RECV_REQUEST``. ``SEND_HEAD`` changes nothing in ``ANSWER`` and may be left out there.
* **Reading on.** In ``ANSWER`` the adapter goes on reading, to notice a client that goes away, also past input that
  belongs to no request yet. It keeps that, within a bound, until the state is ``IDLE`` again.
* **Writing too slowly.** How long a client may take to read a piece is the writer's own deadline. Past it the client
  counts as lost: ``RECV_LOSS``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from math import inf
from typing import Final, Protocol

from mcpio.errors import LocalProtocolError

LINGER: Final = 1.0
"""Seconds to continue reading from a client that was answered before its request was complete.

To close a socket that has unread bytes sends a reset, and a client that sees one may throw away the answer before it
has read it (RFC 9112, 9.6)."""

SHORT_BODY: Final = 65535
"""Bytes of the longest announced body that is let come although its request was answered.

Over HTTP/2 and ASGI a response may end while its request is incomplete, but some clients and ASGI servers fail then,
with all other requests of the connection. Such a body is dropped for at most ``LINGER`` seconds. It fits into the
initial window of a stream (RFC 9113 section 6.9.2), so that it needs no other."""


def announces_short_body(fields: Mapping[bytes, bytes]) -> bool:
    """Return whether a head announces a body of at most ``SHORT_BODY`` bytes, which the client sends unasked."""
    length = fields.get(b"content-length", b"")
    is_short = length.isdigit() and len(length) < 10 and int(length) <= SHORT_BODY
    return is_short and b"expect" not in fields


class _Word(enum.Enum):
    """An enumeration that hashes by identity: its members are keys in the path of every request."""


# Assigned here and not in the class, where type checkers would take it for a member.
_Word.__hash__ = object.__hash__  # type: ignore[method-assign]  # members are compared by identity


class State(_Word):
    """The state of a connection, or of a single exchange."""

    NEW = "new"
    """No request has begun on the connection."""
    IDLE = "idle"
    """Between two requests."""
    HEAD = "head"
    """A part of a head has come."""
    LOOKUP = "lookup"
    """A head is complete, and the adapter is finding out whose request it is."""
    BODY = "body"
    """The rest of the request is being received, and nothing of the response was sent."""
    EARLY = "early"
    """The rest of the request is coming, and the response has begun."""
    ANSWER = "answer"
    """The request is complete, the response is not."""
    DRAINING = "draining"
    """The last response was sent. Further input is discarded, so that the client can read the response."""
    CLOSED = "closed"
    """No more reading or writing."""


class Input(_Word):
    """The inputs of the table."""

    RECV_BYTES = "receive bytes"
    """Received bytes that complete nothing."""
    RECV_HEAD = "receive a head"
    """A head is complete, and it is known whose request it is."""
    RECV_END = "receive the end"
    """The request is complete."""
    RECV_REQUEST = "receive a whole request"
    """Head and end came together, as they mostly do: as ``RECV_HEAD`` and then ``RECV_END``."""
    RECV_INVALID = "receive an error"
    """Received bytes that are not HTTP, or the end of input in the middle of a request."""
    RECV_LOSS = "lose the client"
    """The client ended its side, the connection broke, or the client reads too slowly."""
    SEND_LOOKUP = "look up the principal"
    """A head is complete, and the adapter has to wait for something before the machine can have it."""
    SEND_HEAD = "send a head"
    """The head of the response goes out."""
    SEND_END = "send the end"
    """The response is complete, and the connection may serve another request."""
    SEND_LAST = "send the last end"
    """The response is complete, and the connection serves no other request."""
    SEND_RESET = "break off"
    """The machine breaks off the response: it gave ``Reset``."""
    SEND_UPGRADE = "switch protocols"
    """The connection continues in another protocol."""
    SEND_CLOSE = "close"
    """The server is to serve the request that has begun, and no other."""
    TIMEOUT = "pass the deadline"
    """The deadline of the state has passed."""


class Action(_Word):
    """The adapter's action."""

    NOTHING = "nothing"
    """Continue."""
    REUSE = "reuse"
    """Prepare to parse the next request."""
    REFUSE = "refuse"
    """Pass ``Reset`` to the machine if it has the exchange, answer 408 after ``TIMEOUT`` or 400 after ``RECV_INVALID``
    as the last response, and end the output."""
    LINGER = "linger"
    """End the output, and read until the deadline: the response was sent, but the request is not complete."""
    RESET = "reset"
    """Pass ``Reset`` to the machine, and close."""
    CLOSE = "close"
    """Close: no exchange is open."""


Row = tuple[State, Action]


def _table() -> dict[tuple[State, Input], Row]:
    table: dict[tuple[State, Input], Row] = {}

    def row(states: tuple[State, ...], event: Input, to: State | None, action: Action = Action.NOTHING) -> None:
        for state in states:
            table[state, event] = (to or state, action)

    resting = (State.NEW, State.IDLE)
    before_machine = (*resting, State.HEAD)
    in_body = (State.BODY, State.EARLY)
    in_machine = (*in_body, State.ANSWER)

    row(resting, Input.RECV_BYTES, State.HEAD)
    row((State.HEAD, *in_machine, State.DRAINING), Input.RECV_BYTES, None)
    row((*before_machine, State.LOOKUP), Input.RECV_HEAD, State.BODY)
    row((*before_machine, State.LOOKUP), Input.RECV_REQUEST, State.ANSWER)
    row(before_machine, Input.SEND_LOOKUP, State.LOOKUP)
    row((State.LOOKUP,), Input.RECV_BYTES, None)
    row(in_body, Input.RECV_END, State.ANSWER)
    row((State.DRAINING,), Input.RECV_END, None)

    row((State.BODY,), Input.SEND_HEAD, State.EARLY)
    row((State.ANSWER,), Input.SEND_HEAD, None)
    row((State.ANSWER,), Input.SEND_END, State.IDLE, Action.REUSE)
    row((State.ANSWER,), Input.SEND_LAST, State.CLOSED, Action.CLOSE)
    # A response that ends before its request leaves bytes on the way that belong to no next request.
    row((State.EARLY,), Input.SEND_END, State.DRAINING, Action.LINGER)
    row((State.EARLY,), Input.SEND_LAST, State.DRAINING, Action.LINGER)
    row(in_machine, Input.SEND_RESET, State.CLOSED, Action.CLOSE)
    row((State.LOOKUP, State.BODY), Input.SEND_UPGRADE, State.CLOSED)

    # A request that cannot be served is answered as long as nothing of another answer is out.
    row((*before_machine, State.LOOKUP, State.BODY), Input.RECV_INVALID, State.DRAINING, Action.REFUSE)
    row((State.EARLY, State.ANSWER), Input.RECV_INVALID, State.CLOSED, Action.RESET)
    row((State.HEAD, State.BODY), Input.TIMEOUT, State.DRAINING, Action.REFUSE)
    row((State.EARLY,), Input.TIMEOUT, State.CLOSED, Action.RESET)
    # A client that has asked for nothing is owed no answer.
    row((*resting, State.DRAINING), Input.TIMEOUT, State.CLOSED, Action.CLOSE)

    # Only from the body to the end of the answer does the machine have an exchange that has to be reset.
    row((*before_machine, State.LOOKUP, State.DRAINING), Input.RECV_LOSS, State.CLOSED, Action.CLOSE)
    row(in_machine, Input.RECV_LOSS, State.CLOSED, Action.RESET)

    # A request that has begun is served; ``is_last`` closes the connection after its answer.
    row(resting, Input.SEND_CLOSE, State.CLOSED, Action.CLOSE)
    row((State.HEAD, State.LOOKUP, *in_machine, State.DRAINING), Input.SEND_CLOSE, None)

    for event in Input:
        row((State.CLOSED,), event, None)  # whatever was under way when it closed
    return table


TABLE: Final = _table()
"""(state, input) -> the next state and the adapter's action. A missing row is a bug of the adapter."""

TIMEOUTS: Final[dict[State, str | None]] = {
    State.NEW: "head",
    State.IDLE: "idle",
    State.HEAD: "head",
    State.LOOKUP: None,
    State.BODY: "body",
    State.EARLY: "body",
    State.ANSWER: None,
    State.DRAINING: "linger",
    State.CLOSED: None,
}
"""Which of the ``Timeouts`` holds in a state; ``None`` where the client is not waited for. It runs on from one state to
the next while its name is the same: a head counts from the beginning of its connection, not from its first byte."""


class Timeouts(Protocol):
    """How long a client may take, in seconds; ``None`` for ever."""

    @property
    def head(self) -> float | None:
        """For a head."""

    @property
    def body(self) -> float | None:
        """For a body, in addition to the time that its bytes earn by ``rate``."""

    @property
    def idle(self) -> float | None:
        """Between two requests."""

    @property
    def rate(self) -> float:
        """Bytes a second at which a body has to come on the whole."""


class Lifecycle:
    """One connection, or one exchange, with its deadline."""

    __slots__ = ("_timeouts", "deadline", "is_last", "state")

    state: State
    deadline: float
    """When to report ``TIMEOUT``, on the caller's clock; infinity for never."""
    is_last: bool
    """Whether no other request is served after this one: set it for a head that asks for that. ``SEND_CLOSE`` does."""

    def __init__(self, timeouts: Timeouts, now: float, *, state: State = State.NEW, is_last: bool = False) -> None:
        self._timeouts = timeouts
        self.state = state
        self.is_last = is_last
        timeout = TIMEOUTS[state]
        self.deadline = inf if timeout is None else self._due(timeout, now)

    def step(self, event: Input, now: float, size: int = 0) -> Action:
        """Enter the next state; return the action. ``size`` is the number of bytes received of a body.

        Raises LocalProtocolError if the event cannot happen in this state: the adapter has lost count.
        """
        before = self.state
        if event is Input.SEND_END and self.is_last:
            event = Input.SEND_LAST
        elif event is Input.SEND_CLOSE:
            self.is_last = True
        try:
            self.state, action = TABLE[before, event]
        except KeyError:
            raise LocalProtocolError(f"cannot {event.value} while the exchange is {before.value}") from None
        timeout = TIMEOUTS[self.state]
        if timeout != TIMEOUTS[before]:
            self.deadline = inf if timeout is None else self._due(timeout, now)
        if size and timeout == "body":
            self.deadline += size / self._timeouts.rate
        return action

    def _due(self, timeout: str, now: float) -> float:
        seconds: float | None = LINGER if timeout == "linger" else getattr(self._timeouts, timeout)
        return inf if seconds is None else now + seconds

    @property
    def is_resting(self) -> bool:
        """Whether no request has begun that is not over."""
        return self.state in (State.NEW, State.IDLE)

    @property
    def is_open(self) -> bool:
        """Whether requests or responses may still pass."""
        return self.state not in (State.DRAINING, State.CLOSED)
