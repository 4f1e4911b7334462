"""Requests of both directions are compared with a model of their life, for every input in every state.

The model is written from the specification: one outcome for each request, late answers ignored, repeated ones reported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import Any, Final, Literal

import attrs
import pytest
from examples import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from operating import INITIALIZE_RESULT, lines, operating_server
from searching import search
from wires import INFO

from mcpio.engine import pending
from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.pending import IncomingRequests, OutgoingRequests
from mcpio.engine.table import REQUEST_TABLE, Direction, RequestState
from mcpio.errors import LocalProtocolError, NoBackChannel, RequestError
from mcpio.events import (
    Answered,
    CancelReceived,
    ConnectionClosed,
    Event,
    IncomingId,
    MessageIgnored,
    OutgoingId,
    ProtocolViolated,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
)
from mcpio.types.asking import ListRootsRequest, ListRootsResult
from mcpio.types.features import ClientCapabilities, ListToolsRequest, ListToolsResult, RootsCapability

TIMEOUT: Final = 10.0
GRACE: Final = 5.0

Move = tuple[str, Callable[["Pair"], None]]
Plant = Callable[[pytest.MonkeyPatch], None]
Role = Literal["client", "server"]


@attrs.define
class Ours:
    """A request of this side."""

    due: float
    state: str = "running"


@attrs.define
class Model:
    """The requests of a connection, by their numbers. Events and output are words."""

    role: Role
    now: float = 0.0
    life: str = "open"
    hears: bool = True
    """Whether the peer may still send: not after its end."""
    close_at: float = inf
    ours: list[Ours] = attrs.field(factory=list)
    theirs: list[str] = attrs.field(factory=list)
    """The states of the requests of the peer."""
    events: list[str] = attrs.field(factory=list)
    output: list[str] = attrs.field(factory=list)

    @property
    def deadline(self) -> float | None:
        due = min([self.close_at, *(each.due for each in self.ours if each.state == "running")])
        return None if due == inf else due

    # Requests of this side

    def end(self, number: int, state: str, word: str) -> None:
        self.ours[number].state = state
        self.events.append(f"{word} {number}")

    def send(self) -> None:
        self.output.append(f"request {len(self.ours)}")
        self.ours.append(Ours(self.now + TIMEOUT))

    def give_up(self, number: int, state: str, word: str) -> bool:
        """The peer is notified of a request that it need not answer any more."""
        if self.ours[number].state != "running":
            return False
        self.end(number, state, word)
        self.output.append(f"cancellation {number}")
        return True

    def answered(self, number: int, state: str, word: str) -> None:
        if not self.hears:
            return
        if number < len(self.ours) and self.ours[number].state == "running":
            self.end(number, state, word)
        elif number < len(self.ours) and (
            self.life == "closing" or self.ours[number].state not in ("answered", "failed")
        ):
            self.events.append("LATE_RESPONSE")
        else:
            self.events.append("violation")

    # Requests of the peer

    def asked(self) -> None:
        if self.life == "open":
            self.events.append(f"asked {len(self.theirs)}")
            self.theirs.append("running")
        elif self.hears:
            self.events.append("refused")
            self.output.append("error of a refusal")

    def answer(self, number: int, state: str, word: str) -> bool:
        """Return whether an answer may be sent. One that is not wanted any more is dropped."""
        if number >= len(self.theirs):
            return False
        if self.theirs[number] == "running":
            self.theirs[number] = state
            self.output.append(f"{word} {number}")
            return True
        return self.life == "closed" or self.theirs[number] not in ("answered", "failed")

    def cancelled(self, number: int) -> None:
        if not self.hears:
            return
        if number < len(self.theirs) and self.theirs[number] == "running":
            self.theirs[number] = "cancelled"
            self.events.append(f"cancelled {number}")
        else:
            self.events.append("UNKNOWN_REQUEST")

    # Time, and the end

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        due = sorted((each.due, number) for number, each in enumerate(self.ours) if each.state == "running")
        for when, number in due:
            if when <= self.now:
                self.give_up(number, "timed out", "RequestTimeout")
        if self.close_at <= self.now:
            self.finish()

    def lose(self, *, with_theirs: bool) -> None:
        for number, each in enumerate(self.ours):
            if each.state == "running":
                self.end(number, "lost", "ConnectionLost")
        if with_theirs:
            self.theirs = ["lost" if each == "running" else each for each in self.theirs]

    def begin_closing(self, grace: float, *, with_theirs: bool) -> None:
        if self.life == "closed":
            return
        self.lose(with_theirs=with_theirs)
        self.life, self.close_at = "closing", min(self.close_at, self.now + grace)

    def finish(self) -> None:
        if self.life != "closed":
            self.life, self.hears, self.close_at = "closed", False, inf
            self.lose(with_theirs=True)
            self.events.append("closed")

    def settle(self) -> None:
        """A connection that closes ends with its last answer."""
        if self.life == "closing" and "running" not in self.theirs:
            self.output.append("end")
            self.finish()


class Pair:
    """A connection and its model."""

    def __init__(self, role: Role) -> None:
        self.connection: Connection = operating_client_with_roots() if role == "client" else operating_server()
        self.model = Model(role)
        self.sent: list[OutgoingId] = []
        self.taken: list[IncomingId] = []

    @property
    def newest_of_ours(self) -> int:
        return max(0, len(self.model.ours) - 1)

    @property
    def newest_of_theirs(self) -> int:
        return max(0, len(self.model.theirs) - 1)

    def receive(self, message: dict[str, Any]) -> None:
        self.connection.receive_data(lines({"jsonrpc": "2.0", **message}), self.model.now)

    # Requests of this side

    def send(self) -> None:
        request = ListToolsRequest() if self.model.role == "client" else ListRootsRequest()
        if self.model.life != "open":
            with pytest.raises(NoBackChannel):
                self.connection.send_request(request, self.model.now, timeout=TIMEOUT)
            return
        self.sent.append(self.connection.send_request(request, self.model.now, timeout=TIMEOUT))
        self.model.send()

    def cancel(self, number: int | None = None) -> None:
        number = self.newest_of_ours if number is None else number
        if number >= len(self.sent):
            assert fails(lambda: self.connection.cancel_request(OutgoingId(99)))
            return
        was_running = self.model.give_up(number, "cancelled", "RequestCancelled")
        assert self.connection.cancel_request(self.sent[number]) is was_running

    def wire_id(self, number: int) -> int:
        return int(self.sent[number]) if number < len(self.sent) else 99

    def receive_result(self, number: int | None = None, *, is_readable: bool = True) -> None:
        number = self.newest_of_ours if number is None else number
        member = "tools" if self.model.role == "client" else "roots"
        self.receive({"id": self.wire_id(number), "result": {member: [] if is_readable else 5}})
        self.model.answered(number, *(("answered", "response") if is_readable else ("failed", "InvalidMessage")))

    def receive_error(self, number: int | None = None) -> None:
        number = self.newest_of_ours if number is None else number
        self.receive({"id": self.wire_id(number), "error": {"code": -32603, "message": "no"}})
        self.model.answered(number, "failed", "RequestError")

    # Requests of the peer

    def receive_request(self) -> None:
        method = "roots/list" if self.model.role == "client" else "tools/list"
        self.receive({"id": f"t{len(self.model.theirs)}", "method": method})
        self.model.asked()

    def answer(self, act: Callable[[IncomingId], None], number: int, state: str, word: str) -> None:
        id = self.taken[number] if number < len(self.taken) else IncomingId(99)
        may_answer = self.model.answer(number, state, word)
        assert fails(lambda: act(id)) is not may_answer

    def send_result(self, number: int | None = None) -> None:
        number = self.newest_of_theirs if number is None else number
        result = ListRootsResult(()) if self.model.role == "client" else ListToolsResult(())
        self.answer(partial(self.connection.send_result, result=result), number, "answered", "result")

    def send_error(self, number: int | None = None) -> None:
        number = self.newest_of_theirs if number is None else number
        error = RequestError(-32603, "no")
        self.answer(partial(self.connection.send_error, error=error), number, "failed", "error")

    def receive_cancel(self, number: int | None = None) -> None:
        number = self.newest_of_theirs if number is None else number
        self.receive({"method": "notifications/cancelled", "params": {"requestId": f"t{number}"}})
        self.model.cancelled(number)

    # Time, and the end

    def pass_time(self, seconds: float) -> None:
        self.model.pass_time(seconds)
        self.connection.handle_timeout(self.model.now)

    def pass_deadline(self) -> None:
        due = self.connection.next_deadline()
        self.pass_time(0.0 if due is None else due - self.model.now)

    def close(self) -> None:
        self.connection.close(self.model.now, grace=GRACE)
        self.model.begin_closing(GRACE, with_theirs=False)

    def abort(self) -> None:
        self.connection.abort()
        self.model.finish()

    def lose(self) -> None:
        self.connection.connection_lost(None, self.model.now)
        self.model.finish()

    def receive_end(self) -> None:
        """The peer of a client has no way to get an answer, while that of a server may still read."""
        is_client = self.model.role == "client"
        self.connection.receive_data(None, self.model.now)
        self.model.hears = False
        self.model.begin_closing(inf, with_theirs=is_client)

    # For every step

    def step(self, name: str, act: Callable[[Pair], None]) -> None:
        """Take a step on both sides and compare them."""
        for direction, state in self.states():
            VISITED.add((self.model.role, direction, state, name))
        act(self)
        events = list(self.connection.events())
        output = [word_of(chunk, self) for chunk in self.connection.data_to_send()]
        events += self.connection.events()
        self.model.settle()
        self.taken += [event.id for event in events if isinstance(event, RequestReceived)]
        assert [self.word_of_event(event) for event in events] == self.model.events
        assert output == self.model.output
        self.model.events, self.model.output = [], []
        self.check()

    def states(self) -> Iterator[tuple[Direction, RequestState]]:
        """Return the states of the newest request of each direction."""
        if self.model.ours:
            yield Direction.OUTGOING, RequestState(self.model.ours[-1].state)
        if self.model.theirs:
            yield Direction.INCOMING, RequestState(self.model.theirs[-1])

    def word_of_event(self, event: Event) -> str:
        match event:
            case ResponseReceived():
                return f"response {self.sent.index(event.id)}"
            case RequestFailed():
                return f"{type(event.error).__name__} {self.sent.index(event.id)}"
            case RequestReceived():
                return f"asked {self.taken.index(event.id)}"
            case CancelReceived():
                return f"cancelled {self.taken.index(event.id)}"
            case MessageIgnored():
                return event.reason.name
            case _:
                return WORDS.get(type(event), repr(event))

    def check(self) -> None:
        model, connection = self.model, self.connection
        assert connection.closed is (model.life == "closed")
        assert connection.next_deadline() == model.deadline
        assert [connection.is_pending(id) for id in self.sent] == [each.state == "running" for each in model.ours]
        assert [connection.is_pending(id) for id in self.taken] == [each == "running" for each in model.theirs]

    def moves(self) -> Iterator[Move]:
        for name, act in INPUTS.items():
            yield name, partial(Pair.step, name=name, act=act)

    def key(self) -> Any:
        model = self.model
        return model.life, model.hears, tuple(each.state for each in model.ours), tuple(model.theirs), model.deadline


def operating_client_with_roots() -> ClientConnection:
    client = ClientConnection(INFO, ClientCapabilities(roots=RootsCapability()))
    client.send_initialize(now=0.0)
    client.receive_data(lines(INITIALIZE_RESULT), 0.0)
    list(client.events())
    client.data_to_send()
    return client


def fails(act: Callable[[], object]) -> bool:
    """Do something; return whether it was a mistake of this side."""
    try:
        act()
    except LocalProtocolError:
        return True
    return False


def word_of(chunk: bytes | None, pair: Pair) -> str:
    if chunk is None:
        return "end"
    message = json.loads(chunk)
    if message.get("method") == "notifications/cancelled":
        return f"cancellation {pair.sent.index(message['params']['requestId'])}"
    if "method" in message:
        return f"request {pair.sent.index(message['id'])}"
    number = int(message["id"].removeprefix("t"))
    kind = "result" if "result" in message else "error"
    return f"{kind} {number}" if number < len(pair.taken) else f"{kind} of a refusal"


WORDS: Final = {ProtocolViolated: "violation", Answered: "refused", ConnectionClosed: "closed"}
VISITED: Final[set[tuple[Role, Direction, RequestState, str]]] = set()
NUMBERED: Final[dict[str, Callable[..., None]]] = {
    "cancel it": Pair.cancel,
    "receive a result": Pair.receive_result,
    "receive a result that cannot be read": partial(Pair.receive_result, is_readable=False),
    "receive an error": Pair.receive_error,
    "send a result": Pair.send_result,
    "send an error": Pair.send_error,
    "receive a cancellation": Pair.receive_cancel,
}
"""The inputs of one request: the newest, or the one of a number. It may be over, or may never have been."""
INPUTS: Final[dict[str, Callable[[Pair], None]]] = {
    "send a request": Pair.send,
    "receive a request": Pair.receive_request,
    **NUMBERED,
    "pass little time": partial(Pair.pass_time, seconds=1.0),
    "pass the deadline": Pair.pass_deadline,
    "close": Pair.close,
    "abort": Pair.abort,
    "lose the channel": Pair.lose,
    "receive the end": Pair.receive_end,
}


def play(role: Role, moves: tuple[Move, ...]) -> Pair:
    pair = Pair(role)
    for _, move in moves:
        move(pair)
    return pair


def way(*names: str) -> tuple[Move, ...]:
    return tuple((name, partial(Pair.step, name=name, act=INPUTS[name])) for name in names)


BOTH: Final = "send a request", "receive a request"
ROOTS: Final = {
    (): 3,
    (*BOTH, "close"): 2,
    (*BOTH, "receive the end"): 2,
    (*BOTH, "receive a result", "close"): 1,
    (*BOTH, "cancel it", "send a request", "close"): 1,
}
"""Ways to requests of both directions, also on a connection that closes, and how many inputs are tried from there."""


def explore(role: Role) -> int:
    return sum(search(partial(play, role), way(*root), depth) for root, depth in ROOTS.items())


@pytest.mark.req("CANC-05", "CANC-07")
def test_every_input_in_every_state_does_what_the_model_says(record_property: Callable[[str, object], None]) -> None:
    VISITED.clear()
    roles: tuple[Role, ...] = "client", "server"
    for role in roles:
        explore(role)
    reached = {(direction, state) for direction, state, _ in REQUEST_TABLE}
    reached |= {(direction, state) for (direction, _, _), state in REQUEST_TABLE.items()}
    assert {(role, *each, name) for role in roles for each in reached for name in INPUTS} == VISITED
    record_property("pairs", len(VISITED))


class OfClient(RuleBasedStateMachine):
    """Inputs in any order, for any of several requests."""

    role: Role = "client"

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(self.role)

    @rule(name=st.sampled_from(["send a request", "receive a request", "pass little time"]))
    def begin(self, name: str) -> None:
        self.pair.step(name, INPUTS[name])

    @rule(name=st.sampled_from(sorted(NUMBERED)), number=st.integers(0, 5))
    def act(self, name: str, number: int) -> None:
        self.pair.step("drawn", partial(NUMBERED[name], number=number))

    @rule()
    def pass_deadline(self) -> None:
        self.pair.step("drawn", Pair.pass_deadline)

    @rule(name=st.sampled_from(["close", "abort", "lose the channel", "receive the end"]), is_meant=st.integers(0, 5))
    def end(self, name: str, is_meant: int) -> None:
        if not is_meant:  # most orders go on for longer
            self.pair.step(name, INPUTS[name])

    def teardown(self) -> None:
        self.pair.step("drawn", Pair.lose)


class OfServer(OfClient):
    role = "server"


TestClient = OfClient.TestCase
TestClient.settings = settings(max_examples=examples(50), stateful_step_count=30, deadline=None)
TestServer = OfServer.TestCase
TestServer.settings = settings(max_examples=examples(50), stateful_step_count=30, deadline=None)


def without(causes: Any, *names: str) -> Any:
    if isinstance(causes, dict):
        return {cause: state for cause, state in causes.items() if cause.name not in names}
    return {cause for cause in causes if cause.name not in names}


def retires_all(self: OutgoingRequests, request: Any, cause: Any) -> None:
    FINISH_OURS(self, request, cause)
    self._retire(request.id, RequestState.CANCELLED)


def keeps_timers(self: OutgoingRequests, request: Any, cause: Any) -> None:
    due = self._timers.get(request.id)
    FINISH_OURS(self, request, cause)
    if due is not None:
        self._timers.set(request.id, due)


def goes_on(self: IncomingRequests, request: Any, cause: Any) -> None:
    if cause.name != "RECV_CANCEL":
        FINISH_THEIRS(self, request, cause)


FINISH_OURS: Final = OutgoingRequests.finish
FINISH_THEIRS: Final = IncomingRequests.finish
PLANTS: Final[dict[str, Plant]] = {
    "a late answer to a cancelled request is a violation": lambda patch: patch.setattr(
        pending, "_RETIRED_AS", without(pending._RETIRED_AS, "SEND_CANCEL")
    ),
    "a late answer after a timeout is a violation": lambda patch: patch.setattr(
        pending, "_RETIRED_AS", without(pending._RETIRED_AS, "RECV_TIMEOUT")
    ),
    "a repeated answer counts as late": lambda patch: patch.setattr(OutgoingRequests, "finish", retires_all),
    "a request that is over has a deadline": lambda patch: patch.setattr(OutgoingRequests, "finish", keeps_timers),
    "the answer to a cancelled request is a mistake": lambda patch: patch.setattr(
        pending, "_UNANSWERED", without(pending._UNANSWERED, "RECV_CANCEL")
    ),
    "a second answer is dropped": lambda patch: patch.setattr(IncomingRequests, "was_answered", lambda self, id: False),
    "a cancelled request can be answered": lambda patch: patch.setattr(IncomingRequests, "finish", goes_on),
    "a cancellation is not sent": lambda patch: patch.setattr(
        Connection, "_cancellation", lambda self, request, reason: None
    ),
    "requests outlive their channel": lambda patch: patch.setattr(
        Connection, "_lose_outgoing", lambda self, reason, cause: None
    ),
    "requests of the peer outlive their channel": lambda patch: patch.setattr(
        Connection, "_drop_incoming", lambda self: None
    ),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_model_finds_planted_fault(monkeypatch: pytest.MonkeyPatch, plant: str) -> None:
    PLANTS[plant](monkeypatch)
    with pytest.raises(AssertionError):
        explore("client")
