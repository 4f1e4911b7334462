"""Two machines joined by bytes in pieces, in virtual time: whatever happens, each request has exactly one outcome (P4),
neither side ever finds fault with the other, and a side may move to another process between any two calls (P12).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from examples import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.limits import Timeout
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase
from mcpio.errors import (
    LocalProtocolError,
    NoBackChannel,
    RequestCancelled,
    RequestError,
    RequestTimeout,
)
from mcpio.events import (
    Answered,
    CancelReceived,
    ConnectionClosed,
    Event,
    IgnoreReason,
    IncomingId,
    MessageIgnored,
    Negotiated,
    OutgoingId,
    ProgressReceived,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
)
from mcpio.types.asking import ListRootsRequest, ListRootsResult
from mcpio.types.base import CustomNotification, CustomRequest
from mcpio.types.features import (
    CallToolRequest,
    CallToolResult,
    ClientCapabilities,
    Implementation,
    LoggingMessageNotification,
    PingRequest,
    RootsCapability,
    ServerCapabilities,
    ToolListChangedNotification,
    ToolsCapability,
)

OPTIONS = Options(custom_methods=frozenset({"acme/do"}), request_timeout=Timeout(16.0))
RESULTS: dict[str, Any] = {"acme/do": {}, "roots/list": ListRootsResult(()), "tools/call": CallToolResult(())}
HARMLESS = {
    IgnoreReason.LATE_RESPONSE,
    IgnoreReason.LATE_PROGRESS,
    IgnoreReason.UNKNOWN_REQUEST,
    IgnoreReason.NOT_INITIALIZED,
}


class Side:
    """One end, with what an embedder would have: the clock, and the answers it owes."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.wire = b""
        self.ended = False
        self.events: list[Event] = []
        self.asked: list[OutgoingId] = []
        self.owed: list[IncomingId] = []
        self.outcomes: dict[int, Event] = {}
        self.progress = 0.0

    def drain(self) -> None:
        for event in self.connection.events():
            assert not any(isinstance(before, ConnectionClosed) for before in self.events[-1:]), event
            self.events.append(event)
            self.note(event)

    def note(self, event: Event) -> None:
        match event:
            case RequestReceived():
                self.owed.append(event.id)
                assert not event.reused_id
            case CancelReceived():
                # The handler may not have noticed yet: it stays in the list and may answer all the same.
                assert event.id not in self.connection.pending.incoming
            case ResponseReceived() | RequestFailed() | Negotiated(id=OutgoingId()):
                assert event.id is not None
                assert event.id not in self.outcomes
                assert event.cookie == f"cookie {event.id}"
                self.outcomes[event.id] = event
            case ProgressReceived():
                assert event.id not in self.outcomes
            case MessageIgnored():
                assert event.reason in HARMLESS, event
            case Answered():
                reason = event.error and (event.error.data or {}).get("reason")
                assert event.error is None or reason in ("closing", "not initialized"), event
            case _:
                assert not type(event).__name__.startswith(("ProtocolViolated", "Noise", "VersionMis")), event


class Joined(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        info = Implementation("x", "1")
        client = ClientConnection(info, ClientCapabilities(roots=RootsCapability()), options=OPTIONS)
        capabilities = ServerCapabilities(tools=ToolsCapability(list_changed=True), logging={})
        self.sides = (Side(client), Side(ServerConnection(info, capabilities, options=OPTIONS)))
        self.now = 0.0

    @initialize(through=st.sampled_from([True, True, True, False]))
    def begin(self, through: bool) -> None:
        if through:
            self.shake_hands()
            for who in (0, 1, 0):
                self.write(who, 10**6)
                self.deliver(who, 10**6)

    # What the network does

    @rule(who=st.integers(0, 1), size=st.integers(1, 400) | st.just(10**6))
    def write(self, who: int, size: int) -> None:
        side = self.sides[who]
        for chunk in side.connection.data_to_send(size):
            assert not side.ended
            side.ended = chunk is None
            side.wire += chunk or b""
        side.drain()

    @rule(who=st.integers(0, 1), size=st.integers(0, 300) | st.just(10**6))
    def deliver(self, who: int, size: int) -> None:
        sender, receiver = self.sides[who], self.sides[1 - who]
        data, sender.wire = sender.wire[:size], sender.wire[size:]
        receiver.connection.receive_data(data, self.now)
        if sender.ended and not sender.wire:
            receiver.connection.receive_data(None, self.now)
        receiver.drain()

    @rule(who=st.integers(0, 1))
    def deliver_without_drain(self, who: int) -> None:
        sender, receiver = self.sides[who], self.sides[1 - who]
        receiver.connection.receive_data(sender.wire, self.now)
        sender.wire = b""

    @rule(seconds=st.sampled_from([0.0, 0.25, 1.0, 5.0, 20.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for side in self.sides:
            deadline = side.connection.next_deadline()
            if deadline is not None and deadline <= self.now:
                side.connection.handle_timeout(self.now)
                side.drain()
                deadline = side.connection.next_deadline()
            assert deadline is None or deadline > self.now

    # What the two programs do

    @precondition(lambda self: self.sides[0].connection.phase is Phase.NEW)
    @rule()
    def shake_hands(self) -> None:
        client = self.sides[0].connection
        assert isinstance(client, ClientConnection)
        self.sides[0].asked.append(client.send_initialize(now=self.now, cookie="cookie 1"))

    @rule(
        who=st.integers(0, 1),
        what=st.integers(0, 2),
        timeout=st.sampled_from([None, 0.5, Timeout(8.0, 1.0)]),
        progress=st.booleans(),
        related=st.booleans(),
    )
    def ask(self, who: int, what: int, timeout: Any, progress: bool, related: bool) -> None:
        side = self.sides[who]
        request = (PingRequest(), CustomRequest("acme/do"), (CallToolRequest("t"), ListRootsRequest())[who])[what]
        running = side.connection.pending.incoming
        try:
            id = side.connection.send_request(
                request,
                now=self.now,
                timeout=timeout,
                cookie=f"cookie {len(side.asked) + 1}",
                progress=progress,
                related_to=running[0] if related and running else None,
            )
        except (LocalProtocolError, NoBackChannel):
            assert side.connection.phase is not Phase.OPERATING
        else:
            assert id == len(side.asked) + 1
            side.asked.append(id)

    @rule(who=st.integers(0, 1), which=st.integers(0, 9), how=st.sampled_from(["result", "error", "raw"]))
    def answer(self, who: int, which: int, how: str) -> None:
        side = self.sides[who]
        if side.owed:
            id = side.owed.pop(which % len(side.owed))
            method = next(
                event.raw["method"] for event in side.events if isinstance(event, RequestReceived) and event.id == id
            )
            if how == "error":
                side.connection.send_error(id, RequestError(1, "no"))
            elif how == "raw":
                side.connection.send_raw_result(id, json.dumps({"content": [], "roots": []}).encode())
            else:
                side.connection.send_result(id, RESULTS[method])

    @rule(who=st.integers(0, 1), which=st.integers(0, 9))
    def report(self, who: int, which: int) -> None:
        side = self.sides[who]
        if side.owed:
            side.progress += 1
            side.connection.send_progress(side.owed[which % len(side.owed)], side.progress)

    @rule(who=st.integers(0, 1), which=st.integers(0, 9))
    def cancel(self, who: int, which: int) -> None:
        side = self.sides[who]
        if side.asked:
            id = side.asked[which % len(side.asked)]
            running = id in side.connection.pending.outgoing
            try:
                assert side.connection.cancel_request(id, "changed my mind") is running
            except LocalProtocolError:
                assert (who, id, running) == (0, 1, True)

    @rule(who=st.integers(0, 1))
    def tell(self, who: int) -> None:
        side = self.sides[who]
        payloads: list[Any] = [CustomNotification("acme/done")]
        if who:
            payloads += [ToolListChangedNotification(), LoggingMessageNotification("info", 1)]
        for payload in payloads:
            try:
                side.connection.send_notification(payload)
            except (LocalProtocolError, NoBackChannel):
                assert side.connection.phase in (Phase.NEW, Phase.INITIALIZING, Phase.CLOSED)

    @rule(who=st.integers(0, 1))
    def move_to_another_process(self, who: int) -> None:
        side = self.sides[who]
        try:
            snapshot = json.loads(json.dumps(side.connection.snapshot(self.now), allow_nan=False))
        except LocalProtocolError:
            return
        side.connection = type(side.connection).restore(snapshot, self.now, options=OPTIONS)

    # How it ends

    @rule(who=st.integers(0, 1), grace=st.sampled_from([0.0, 2.0, None]), dice=st.integers(0, 5))
    def close(self, who: int, grace: float | None, dice: int) -> None:
        if dice == 0:
            self.sides[who].connection.close(self.now, grace=grace)

    @rule(who=st.integers(0, 1), how=st.integers(0, 20))
    def break_off(self, who: int, how: int) -> None:
        if how == 0:
            self.sides[who].connection.abort(ValueError("enough"))
        elif how == 1:
            self.sides[who].connection.connection_lost(OSError("reset"), self.now)

    @invariant()
    def every_request_runs_or_has_its_outcome(self) -> None:
        for side in self.sides:
            if side.connection.closed or not side.connection.has_events:
                running = set(side.connection.pending.outgoing)
                assert running | set(side.outcomes) == set(side.asked)
                assert not running & set(side.outcomes)

    def teardown(self) -> None:
        for who, side in enumerate(self.sides):
            self.deliver(1 - who, 10**6)
            side.connection.connection_lost(None, self.now)
            side.drain()
            assert set(side.outcomes) == set(side.asked)
            assert isinstance(side.events[-1], ConnectionClosed)
            assert side.connection.closed
            for outcome in side.outcomes.values():
                if isinstance(outcome, RequestFailed):
                    assert not isinstance(outcome.error, RequestCancelled | RequestTimeout) or outcome.raw is None


@pytest.mark.req("RPC-05", "CANC-08", "LIFE-17", "TIME-04")
def test_random_conversation_gives_each_request_one_outcome() -> None:
    chosen = settings(max_examples=examples(60), stateful_step_count=60, deadline=None, derandomize=True, database=None)
    run_state_machine_as_test(Joined, settings=chosen)
