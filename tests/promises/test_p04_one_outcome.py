"""P4: exactly one outcome for each request, whatever the peer or the network does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from examples import examples
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Role
from mcpio.errors import LocalProtocolError, NoBackChannel, RequestError
from mcpio.events import (
    CancelReceived,
    CloseReason,
    ConnectionClosed,
    Event,
    IncomingId,
    Negotiated,
    OutgoingId,
    ProgressReceived,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
)
from mcpio.revisions import REV_2025_11_25, REV_2026_07_28
from mcpio.testing import Pair, at_random, cut_at, pair
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    ClientCapabilities,
    DiscoverRequest,
    Implementation,
    ListRootsRequest,
    ListRootsResult,
    PingRequest,
    RootsCapability,
    ServerCapabilities,
    SubscriptionFilter,
    SubscriptionsListenRequest,
    SubscriptionsListenResult,
    TextContent,
    ToolListChangedNotification,
    ToolsCapability,
)

CLIENT, SERVER = Role.CLIENT, Role.SERVER


H, S = REV_2025_11_25, REV_2026_07_28
TOOLS = SubscriptionFilter(tools_list_changed=True)


def _engines(ours: Any = (H,), theirs: Any = (H,)) -> tuple[ClientConnection, ServerConnection]:
    client, server = (Options(revisions=revisions) for revisions in (ours, theirs))
    offers = ServerCapabilities(tools=ToolsCapability(list_changed=True))
    return (
        ClientConnection(Implementation("c", "1"), ClientCapabilities(RootsCapability()), options=client),
        ServerConnection(Implementation("s", "1"), offers, options=server),
    )


def _result(connection: Connection) -> Any:
    return CallToolResult(()) if connection.role is SERVER else ListRootsResult(())


def _check_outcomes(events: list[Event], asked: list[str], *, over: bool) -> Counter[str]:
    """Check for exactly one outcome per request (at most one before the end), and no progress after it; count them."""
    seen: Counter[str] = Counter()
    for event in events:
        if isinstance(event, ProgressReceived):
            assert not seen[event.cookie]
        elif isinstance(event, ResponseReceived | RequestFailed) or (isinstance(event, Negotiated) and event.id):
            seen[event.cookie] += 1
    assert set(seen) <= set(asked)
    assert all(count == 1 for count in seen.values())
    if over:
        assert set(seen) == set(asked)
        assert [type(event) for event in events].count(ConnectionClosed) == 1
        assert isinstance(events[-1], ConnectionClosed)
    return seen


# Any calls, any network


class Outcomes(RuleBasedStateMachine):
    """Two peers that request, respond, cancel and abort over a network that stalls, drops and breaks."""

    link: Pair

    @initialize(
        seed=st.integers(0, 99),
        opening=st.sampled_from(["send_initialize", "negotiate", "adopt", "nothing"]),
        ours=st.sampled_from([(H,), (S,), (H, S)]),
        theirs=st.sampled_from([(H, S), (H, S), (H,), (S,)]),
        settled=st.booleans(),
    )
    def start(self, seed: int, opening: str, ours: Any, theirs: Any, settled: bool) -> None:
        self.link = pair(*_engines(ours, theirs), chunk=at_random(seed))
        self.asked: dict[Role, list[str]] = {CLIENT: [], SERVER: []}
        self.due: dict[str, float] = {}
        self.count = 0
        if opening != "nothing":
            self.open(opening)
        if settled:
            self.link.run()

    def side(self, is_client: bool) -> tuple[Connection, list[Event]]:
        link = self.link
        return (link.client, link.client_events) if is_client else (link.server, link.server_events)

    @rule(opening=st.sampled_from(["send_initialize", "negotiate", "adopt"]))
    def open(self, opening: str) -> None:
        client, self.count = self.link.client, self.count + 1
        try:
            if opening == "adopt":
                client.adopt(S)
                return
            getattr(client, opening)(now=self.link.now, cookie=f"{self.count}")
        except (LocalProtocolError, NoBackChannel):
            return
        self.asked[CLIENT].append(f"{self.count}")

    @rule(
        request=st.sampled_from([SubscriptionsListenRequest(TOOLS), DiscoverRequest()]),
        timeout=st.sampled_from([None, 5.0]),
        arrives=st.booleans(),
    )
    def ask_statelessly(self, request: Any, timeout: float | None, arrives: bool) -> None:
        client, self.count = self.link.client, self.count + 1
        try:
            client.send_request(request, now=self.link.now, timeout=timeout, cookie=f"{self.count}")
        except (LocalProtocolError, NoBackChannel):
            return
        self.asked[CLIENT].append(f"{self.count}")
        if arrives:
            self.link.run()

    @rule(which=st.integers(0, 3), how=st.sampled_from(["acknowledge", "acknowledge", "notify", "end"]))
    def serve_listener(self, which: int, how: str) -> None:
        server, events = self.side(is_client=False)
        # A subscription that the client ended may still be served: nothing of it is sent.
        received = [
            event.id
            for event in events
            if isinstance(event, RequestReceived) and isinstance(event.request, SubscriptionsListenRequest)
        ]
        if which >= len(received):
            return
        id: IncomingId = received[-1 - which]
        try:
            if how == "acknowledge":
                self.link.server.acknowledge(id, TOOLS)
            elif how == "notify":
                server.send_notification(ToolListChangedNotification(), related_to=id)
            else:
                server.send_result(id, SubscriptionsListenResult())
        except (LocalProtocolError, NoBackChannel):
            return

    @rule(
        is_client=st.booleans(),
        is_ping=st.booleans(),
        timeout=st.sampled_from([None, 0.0, 1.0, 5.0]),
        related=st.booleans(),
    )
    def ask(self, is_client: bool, is_ping: bool, timeout: float | None, related: bool) -> None:
        connection, _ = self.side(is_client)
        request = PingRequest() if is_ping else CallToolRequest("t") if is_client else ListRootsRequest()
        running = connection.pending.incoming
        self.count += 1
        try:
            connection.send_request(
                request,
                now=self.link.now,
                timeout=timeout,
                cookie=f"{self.count}",
                progress=True,
                related_to=running[-1] if related and running else None,
            )
        except (LocalProtocolError, NoBackChannel):
            return
        self.asked[connection.role].append(f"{self.count}")
        if timeout is not None:
            self.due[f"{self.count}"] = self.link.now + timeout

    @rule(is_client=st.booleans(), which=st.integers(0, 3), how=st.sampled_from(["result", "error", "progress"]))
    def answer(self, is_client: bool, which: int, how: str) -> None:
        connection, events = self.side(is_client)
        # A cancelled request may still be answered (CANC-08).
        received = [event.id for event in events if isinstance(event, RequestReceived | CancelReceived)]
        if which >= len(received):
            return
        id: IncomingId = received[-1 - which]
        try:
            if how == "result":
                connection.send_result(id, _result(connection))
            elif how == "error":
                connection.send_error(id, RequestError(1, "no"))
            else:
                connection.send_progress(id, self.link.now + self.count)
        except LocalProtocolError:
            return

    @rule(is_client=st.booleans(), id=st.integers(1, 8))
    def cancel(self, is_client: bool, id: int) -> None:
        connection, _ = self.side(is_client)
        try:
            connection.cancel_request(OutgoingId(id))
        except LocalProtocolError:
            return

    @rule()
    def run(self) -> None:
        self.link.run()

    @rule(seconds=st.sampled_from([0.5, 1.0, 10.0]))
    def wait(self, seconds: float) -> None:
        self.link.advance(seconds)

    @rule(is_client=st.booleans(), what=st.sampled_from(["stall", "resume", "resume", "cut"]))
    def disturb(self, is_client: bool, what: str) -> None:
        getattr(self.link, what)(CLIENT if is_client else SERVER)

    @rule(is_client=st.booleans(), how=st.sampled_from(["close", "abort", "lose", *["nothing"] * 12]))
    def end(self, is_client: bool, how: str) -> None:
        connection, _ = self.side(is_client)
        if how == "close":
            connection.close(self.link.now, grace=2.0)
        elif how == "abort":
            connection.abort()
        elif how == "lose":
            self.link.lose(OSError("gone"))

    @invariant()
    def at_most_one_and_in_time(self) -> None:
        if hasattr(self, "link"):
            seen = _check_outcomes(self.link.client_events, self.asked[CLIENT], over=False)
            seen += _check_outcomes(self.link.server_events, self.asked[SERVER], over=False)
            assert [cookie for cookie, due in self.due.items() if due < self.link.now and not seen[cookie]] == []

    def teardown(self) -> None:
        if hasattr(self, "link"):
            self.link.client.close(self.link.now, grace=1.0)
            self.link.server.close(self.link.now, grace=1.0)
            self.link.advance(1000.0)
            _check_outcomes(self.link.client_events, self.asked[CLIENT], over=True)
            _check_outcomes(self.link.server_events, self.asked[SERVER], over=True)


TestOutcomes = Outcomes.TestCase
TestOutcomes.settings = settings(
    max_examples=examples(60), stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow]
)


# Answers of every kind

ANSWERS: dict[str, dict[str, Any]] = {
    "result": {"result": {"content": []}},
    "unreadable result": {"result": {"content": 1}},
    "error": {"error": {"code": -32603, "message": "no"}},
    "unreadable error": {"error": {"code": "no"}},
}


def _asking() -> tuple[Connection, Callable[[str], bytes]]:
    """Return a client with a request in flight, and what makes the line of an answer."""
    link = pair(*_engines())
    link.handshake()
    list(link.client.events())
    id = link.client.send_request(CallToolRequest("t"), now=0.0, timeout=5.0, cookie="asked")
    return link.client, lambda kind: json.dumps({"jsonrpc": "2.0", "id": id, **ANSWERS[kind]}).encode() + b"\n"


@pytest.mark.parametrize("first", ANSWERS)
@pytest.mark.parametrize("second", ANSWERS)
def test_two_answers_give_one_outcome(first: str, second: str) -> None:
    client, line = _asking()
    client.receive_data(line(first) + line(second), 1.0)
    outcomes = [event for event in client.events() if isinstance(event, ResponseReceived | RequestFailed)]
    assert [type(event) for event in outcomes] == [ResponseReceived if first == "result" else RequestFailed]
    assert client.next_deadline() is None  # what has an outcome does not time out


def test_answer_that_arrived_before_the_loss_is_the_outcome() -> None:
    client, line = _asking()
    client.receive_data(line("result"), 1.0)
    client.connection_lost(OSError("gone"), 1.0)
    assert [type(event) for event in client.events()] == [ResponseReceived, ConnectionClosed]


def test_peer_that_stops_reading_gives_each_request_one_outcome() -> None:
    limited = Options(revisions=(H,), limits=Limits(queued_bytes=1000))
    client, _ = _engines()
    offers = ServerCapabilities(tools=ToolsCapability())
    link = pair(client, ServerConnection(Implementation("s", "1"), offers, options=limited))
    link.handshake()
    link.server.send_request(ListRootsRequest(), now=0.0, timeout=None, cookie="roots")
    link.stall(SERVER)
    for number in range(20):
        link.client.send_request(CallToolRequest("t"), now=0.0, timeout=None, cookie=f"{number}")
    link.run()
    for event in [event for event in link.server_events if isinstance(event, RequestReceived)]:
        link.server.send_result(event.id, CallToolResult((TextContent("x" * 100),)))
    link.advance(29.0)
    assert not _check_outcomes(link.server_events, ["roots"], over=False)
    link.advance(60.0)
    _check_outcomes(link.server_events, ["roots"], over=True)
    assert link.server_events[-1] == ConnectionClosed(CloseReason.SLOW_CONSUMER, None)


# One conversation, broken at each byte


def _converse(link: Pair) -> dict[Role, list[str]]:
    """Run a conversation with every kind of message until the network breaks; return its requests."""
    asked: dict[Role, list[str]] = {CLIENT: [], SERVER: []}

    def ask(connection: Connection, cookie: str, request: Any, **options: Any) -> None:
        try:
            connection.send_request(request, now=link.now, cookie=cookie, timeout=30, progress=True, **options)
        except (LocalProtocolError, NoBackChannel):
            return
        asked[connection.role].append(cookie)

    def react(connection: Connection, event: Event) -> None:
        if not isinstance(event, RequestReceived):
            return
        connection.send_progress(event.id, 1)
        name = getattr(event.request, "name", "")
        if name == "asks back":
            ask(connection, "roots", ListRootsRequest(), related_to=event.id)
        elif name != "hangs":
            connection.send_result(event.id, _result(connection))

    link.on_event = react
    link.client.send_initialize(now=link.now, cookie="initialize")
    asked[CLIENT].append("initialize")
    link.run()
    for name in ("answered", "asks back", "hangs"):
        ask(link.client, name, CallToolRequest(name))
        link.run()
    link.client.close(link.now)
    link.advance(100)
    return asked


def _lengths() -> dict[Role, int]:
    link = pair(*_engines())
    _converse(link)
    return {role: len(link.sent(role)) for role in (CLIENT, SERVER)}


LENGTHS = _lengths()


def test_script_uses_every_kind_of_message() -> None:
    link = pair(*_engines())
    asked = _converse(link)
    assert asked == {CLIENT: ["initialize", "answered", "asks back", "hangs"], SERVER: ["roots"]}
    assert {type(event).__name__ for event in link.client_events} >= {
        "ProgressReceived",
        "RequestFailed",
        "RequestReceived",
    }
    assert min(LENGTHS.values()) > 400


@pytest.mark.parametrize("sender", [CLIENT, SERVER], ids=["client", "server"])
def test_connection_lost_at_any_byte_gives_each_request_one_outcome(sender: Role) -> None:
    for offset in range(LENGTHS[sender] + 1):
        link = pair(*_engines())
        link.lose_after(sender, offset)
        asked = _converse(link)
        _check_outcomes(link.client_events, asked[CLIENT], over=True)
        _check_outcomes(link.server_events, asked[SERVER], over=True)


def test_input_split_at_any_byte_changes_nothing() -> None:
    usual = pair(*_engines())
    _converse(usual)
    for offset in range(1, max(LENGTHS.values())):
        link = pair(*_engines(), chunk=cut_at(offset))
        _converse(link)
        assert link.sent(CLIENT) == usual.sent(CLIENT)
        assert link.sent(SERVER) == usual.sent(SERVER)
        assert [type(event) for event in link.client_events] == [type(event) for event in usual.client_events]
        assert [type(event) for event in link.server_events] == [type(event) for event in usual.server_events]


@pytest.mark.parametrize("sender", [CLIENT, SERVER], ids=["client", "server"])
def test_peer_silent_from_any_byte_gives_each_request_one_outcome(sender: Role) -> None:
    for offset in range(LENGTHS[sender]):
        link = pair(*_engines())
        link.cut_after(sender, offset)
        asked = _converse(link)
        link.server.close(link.now)
        link.advance(100)
        _check_outcomes(link.client_events, asked[CLIENT], over=True)
        _check_outcomes(link.server_events, asked[SERVER], over=True)
