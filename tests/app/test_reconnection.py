"""A session that is lost and opened anew: what waits, what is restored, and what is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mcpio.app.client import Client, client_connection
from mcpio.app.listening import Listening, Missed
from mcpio.app.reconnection import SessionReconnector
from mcpio.engine.limits import Timeout
from mcpio.engine.options import Options
from mcpio.engine.table import Phase
from mcpio.errors import ConnectFailed, ConnectionLost, NoBackChannel, RequestError, RequestTimeout
from mcpio.testing import ManualRuntime
from mcpio.types import CustomRequest, EmptyResult, ResourceUpdatedNotification, Root, SubscribeRequest
from mcpio.types.base import RawRequest

OFFERS = {"logging": {}, "resources": {"subscribe": True}, "tools": {}}


class Wire:
    """A client and a server of a few lines, which may refuse things, or leave in the middle."""

    def __init__(self, **of_client: Any) -> None:
        self.runtime = ManualRuntime()
        self.reports: list[str] = []
        self.asked: list[tuple[str, Any]] = []
        self.told: list[Any] = []
        self.refused: set[str] = set()
        self.closes_at: set[str] = set()
        self.unanswered: set[str] = set()
        self.leaves_at = self.loses_after = ""
        self.closes_for: str | None = None
        self.on_leaving: Callable[[], None] = lambda: None
        self.losses, self.fails = 0, False
        of_client.setdefault("options", Options(reopens=True))
        self.connection = client_connection(era="handshake", **of_client)
        self.client = Client(self.connection, self, **of_client)
        self.renewal = SessionReconnector(self.client, self._note_loss)
        self.client._reconnector = self.renewal
        self.runtime.complete(self.client.initialize())

    def now(self) -> float:
        return self.runtime.now

    def wake(self) -> None:
        self.runtime.call_soon(self._carry)

    def report(self, message: str, error: BaseException | None) -> None:
        assert error is not None
        self.reports.append(message)

    def close(self, grace: float) -> None:
        self.connection.close(self.now(), grace=grace)

    async def wait_closed(self) -> None:
        """It is."""

    def _note_loss(self) -> None:
        self.losses += 1
        if self.fails:
            raise ValueError("the callback")

    def lose(self) -> None:
        self.asked.clear()
        self.connection.connection_lost(OSError("broken"), self.now())
        self.renewal.lose()
        self.renewal.tell()
        self.client._process()

    def begin(self, coroutine: Any) -> list[Any]:
        """Begin a call; what came of it comes into the list."""
        outcome: list[Any] = []

        async def call() -> None:
            try:
                outcome.append(await coroutine)
            except Exception as error:
                outcome.append(error)

        self.runtime.spawn(call())
        self.runtime.run()
        return outcome

    def _carry(self) -> None:
        for chunk in self.connection.data_to_send():
            message = json.loads(chunk or b"{}")
            if "method" not in message:
                self.told.append(message)
            elif "id" in message:
                self._answer(message)
        self.client._process()

    def _answer(self, message: dict[str, Any]) -> None:
        method = message["method"]
        self.asked.append((method, message.get("params", {})))
        if method == self.leaves_at:
            self.connection.connection_lost(None, self.now())
            self.on_leaving()
            return
        if method in self.unanswered:
            return
        answer: dict[str, Any] = {"result": {}}
        if method in self.closes_at or message.get("params", {}).get("uri", "") == self.closes_for:
            answer = {"error": {"code": -32600, "message": "Invalid request: closing", "data": {"reason": "closing"}}}
        elif method in self.refused:
            answer = {"error": {"code": -32603, "message": "no"}}
        elif method == "initialize":
            info = {"name": "s", "version": "1"}
            answer = {"result": {"protocolVersion": "2025-11-25", "capabilities": OFFERS, "serverInfo": info}}
        elif method == "tools/list":
            answer = {"result": {"tools": []}}
        text = json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer})
        self.connection.receive_message(text, self.now())
        if method == self.loses_after:
            self.client._process()
            self.lose()


def test_new_session_gets_the_log_level_and_the_subscriptions() -> None:
    wire = Wire()
    client, complete = wire.client, wire.runtime.complete
    complete(client.set_log_level("error"))
    for uri in ("r://1", "r://2"):
        complete(client.subscribe_resource(uri))
    complete(client.unsubscribe_resource("r://1"))
    wire.lose()
    complete(wire.renewal.open())
    assert [method for method, _ in wire.asked] == ["initialize", "logging/setLevel", "resources/subscribe"]
    assert [params for _, params in wire.asked[1:]] == [{"level": "error"}, {"uri": "r://2"}]
    assert wire.reports == []


def test_roots_changed_without_a_session_are_left_to_the_next_one() -> None:
    wire = Wire(roots=[Root("file:///old")])
    wire.lose()
    wire.client.set_roots([Root("file:///new")])
    wire.runtime.complete(wire.renewal.open())
    wire.connection.receive_message(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "roots/list"}), 0.0)
    wire.client._process()
    wire.wake()
    wire.runtime.run()
    assert [method for method, _ in wire.asked] == ["initialize"]
    assert wire.told[-1] == {"jsonrpc": "2.0", "id": 1, "result": {"roots": [{"uri": "file:///new"}]}}


def test_refused_subscriptions_are_not_restored_and_later_refusals_reported() -> None:
    wire = Wire()
    client, complete = wire.client, wire.runtime.complete
    complete(client.set_log_level("error"))
    complete(client.subscribe_resource("r://1"))
    wire.refused = {"logging/setLevel", "resources/subscribe"}
    assert isinstance(wire.begin(client.subscribe_resource("r://2"))[0], Exception)
    wire.lose()
    complete(wire.renewal.open())
    assert [method for method, _ in wire.asked] == ["initialize", "logging/setLevel", "resources/subscribe"]
    assert wire.reports == ["the server does not know any more what it was asked for"] * 2


@pytest.mark.parametrize("listens", [False, True])
def test_subscriber_that_comes_while_there_is_no_session_costs_no_second_request(listens: bool) -> None:
    wire = Wire()
    wire.runtime.complete(wire.client.subscribe_resource("r://1"))
    wire.lose()
    second = wire.client.listen(uris=["r://1"]).__aenter__() if listens else wire.client.subscribe_resource("r://1")
    outcome = wire.begin(second)
    wire.runtime.complete(wire.renewal.open())
    wire.runtime.run()
    assert wire.asked == [wire.asked[0], ("resources/subscribe", {"uri": "r://1"})]
    assert len(outcome) == 1
    assert not isinstance(outcome[0], Exception)
    # What the next session was not told is asked for.
    wire.lose()
    wire.refused = {"resources/subscribe"}
    outcome = wire.begin(wire.client.subscribe_resource("r://1"))
    wire.runtime.complete(wire.renewal.open())
    wire.runtime.run()
    assert isinstance(outcome[0], RequestError)


@pytest.mark.parametrize("others", [[], ["r://2"]])
def test_subscription_past_the_client_is_restored_too(others: list[str]) -> None:
    wire = Wire()
    for uri in others:
        wire.runtime.complete(wire.client.subscribe_resource(uri))
    wire.runtime.complete(wire.client.request(SubscribeRequest("r://1")))
    wire.lose()
    wire.runtime.complete(wire.renewal.open())
    assert wire.asked[1:] == [("resources/subscribe", {"uri": uri}) for uri in (*others, "r://1")]
    assert not wire.client._known_changes().needs("r://1")


def test_raw_subscription_is_answered_and_not_restored() -> None:
    wire = Wire()
    request = RawRequest("resources/subscribe", {"uri": "r://1"})
    assert wire.runtime.complete(wire.client.request(request)) == EmptyResult()
    wire.lose()
    wire.runtime.complete(wire.renewal.open())
    assert wire.asked[1:] == []


def test_calls_that_a_closing_server_refuses_wait_for_the_next() -> None:
    wire = Wire()
    wire.closes_at = {"tools/list"}
    listed: list[Any] = []

    async def ask() -> None:
        listed.append(await wire.client.list_tools())

    # Both are under way when the first refusal comes; the third waits at once.
    for _ in range(2):
        wire.runtime.spawn(ask())
    wire.runtime.run()
    wire.asked.clear()
    wire.runtime.spawn(ask())
    wire.runtime.run()
    assert (listed, wire.asked) == ([], [])
    wire.closes_at = set()
    wire.lose()
    wire.runtime.complete(wire.renewal.open())
    wire.runtime.run()
    assert len(listed) == 3


@pytest.mark.parametrize("error", [ConnectionLost("unknown session", unprocessed=True), ConnectionLost("broken")])
def test_call_in_a_session_that_the_server_did_not_know_is_made_once_more(error: ConnectionLost) -> None:
    wire = Wire()
    wire.unanswered = {"ping"}

    def refuse() -> None:
        wire.connection.fail_request(wire.connection.pending.outgoing[0], error, wire.now())
        wire.lose()

    outcome = wire.begin(wire.client.ping())
    refuse()
    wire.runtime.complete(wire.renewal.open())
    wire.runtime.run()
    if not error.unprocessed:
        assert (outcome, [method for method, _ in wire.asked]) == ([error], ["initialize"])
        return
    # Once: a server that knows none of its sessions would be asked forever.
    assert (outcome, [method for method, _ in wire.asked]) == ([], ["initialize", "ping"])
    refuse()
    wire.runtime.complete(wire.renewal.open())
    wire.runtime.run()
    assert (outcome, [method for method, _ in wire.asked]) == ([error], ["initialize"])


def listened(wire: Wire, **wanted: Any) -> tuple[Listening, list[Any]]:
    """Begin to listen; return the listening, and the outcome of its entry."""
    listening = wire.client.listen(**wanted)
    return listening, wire.begin(listening.__aenter__())


@pytest.mark.req("SUB-09")
def test_kept_listening_waits_for_the_next_session_however_long_that_takes() -> None:
    wire = Wire()
    listening, _ = listened(wire, uris=["r://1"], keep=True)
    wire.lose()
    change = wire.begin(listening.__anext__())
    wire.runtime.advance_to(10_000.0)
    assert (change, wire.asked) == ([], [])
    wire.runtime.complete(wire.renewal.open())
    wire.runtime.run()
    assert change == [Missed()]
    assert wire.asked[1:] == [("resources/subscribe", {"uri": "r://1"})]
    assert wire.client._known_changes().needs("r://1")


def test_session_lost_between_the_subscriptions_of_a_listening_leaves_none_out() -> None:
    wire = Wire()
    wire.closes_for = "r://2"
    listening, entered = listened(wire, uris=["r://1", "r://2"])
    assert entered == []
    wire.closes_for = None
    wire.lose()
    wire.runtime.complete(wire.renewal.open())
    wire.runtime.run()
    assert entered == [listening]
    assert listening.honoured.resource_subscriptions == ("r://1", "r://2")
    # The second waited for the next session by itself, the first was known to the lost one alone.
    told = [params["uri"] for method, params in wire.asked if method == "resources/subscribe"]
    assert told == ["r://2", "r://1"]
    for uri in ("r://1", "r://2"):
        update = {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}}
        wire.connection.receive_message(json.dumps(update), wire.now())
        wire.client._process()
        assert wire.begin(listening.__anext__()) == [ResourceUpdatedNotification(uri)]


def test_subscription_whose_session_is_lost_with_its_answer_is_restored() -> None:
    wire = Wire()

    async def answered_and_lost(_: Any, **options: Any) -> str:
        wire.lose()
        return "answered"

    assert wire.begin(wire.renewal.send(answered_and_lost, SubscribeRequest("r://1"))) == ["answered"]
    wire.runtime.complete(wire.renewal.open())
    wire.runtime.run()
    assert [params["uri"] for method, params in wire.asked if method == "resources/subscribe"] == ["r://1"]


def test_calls_without_a_session_wait_for_the_next() -> None:
    wire = Wire()
    wire.lose()
    outcome = wire.begin(wire.client.ping())
    assert (outcome, wire.asked) == ([], [])
    wire.runtime.complete(wire.renewal.open())
    wire.runtime.run()
    assert (outcome, [method for method, _ in wire.asked]) == ([None], ["initialize", "ping"])


@pytest.mark.parametrize("request_timeout", [None, 5.0])
def test_wait_for_the_next_session_counts_for_the_timeout(request_timeout: float | None) -> None:
    options = Options(reopens=True, request_timeout=Timeout(request_timeout))
    wire = Wire(options=options)
    client, runtime = wire.client, wire.runtime
    wire.unanswered = {"ping"}
    wire.lose()
    early = wire.begin(client.ping(timeout=2))
    custom = wire.begin(client.request(CustomRequest("x/y"), timeout=2))
    usual, patient, endless = (wire.begin(client.ping(**how)) for how in ({}, {"timeout": 8}, {"timeout": None}))
    runtime.advance_to(3)
    assert [str(each[0]) for each in (early, custom)] == [f"{name}: no answer within 2 s" for name in ("ping", "x/y")]
    assert (usual, patient, endless) == ([], [], [])
    runtime.advance_to(6)
    assert [isinstance(each, RequestTimeout) for each in usual] == ([] if request_timeout is None else [True])
    runtime.complete(wire.renewal.open())
    runtime.run()
    # What is left is the time for the answer.
    assert wire.connection.next_deadline() == 8
    assert [method for method, _ in wire.asked].count("ping") == (3 if request_timeout is None else 2)


def test_waiting_calls_fail_without_a_next_session() -> None:
    wire = Wire()
    wire.lose()
    outcome = wire.begin(wire.client.ping())
    wire.renewal.give_up()
    wire.renewal.give_up()
    wire.runtime.run()
    assert isinstance(outcome[0], NoBackChannel)


def test_calls_keep_waiting_if_the_new_session_is_lost_at_once() -> None:
    wire = Wire()
    wire.lose()
    outcome = wire.begin(wire.client.ping())
    wire.loses_after = "initialize"
    with pytest.raises(ConnectionLost):
        wire.runtime.complete(wire.renewal.open())
    wire.runtime.run()
    assert outcome == []
    wire.loses_after = ""
    wire.runtime.complete(wire.renewal.open())
    wire.runtime.run()
    assert outcome == [None]


@pytest.mark.parametrize(("where", "error"), [("initialize", ConnectFailed), ("logging/setLevel", ConnectionLost)])
def test_calls_keep_waiting_if_the_session_is_lost_during_the_handshake(where: str, error: type[Exception]) -> None:
    wire = Wire()
    wire.runtime.complete(wire.client.set_log_level("error"))
    wire.lose()
    outcome = wire.begin(wire.client.ping())
    wire.leaves_at = where
    (failure,) = wire.begin(wire.renewal.open())
    assert type(failure) is error
    assert (outcome, wire.connection.phase) == ([], Phase.NEW)
    wire.leaves_at = ""
    wire.runtime.complete(wire.renewal.open())
    wire.runtime.run()
    assert outcome == [None]


def test_tool_cache_is_dropped_with_the_session() -> None:
    wire = Wire()
    for _ in range(2):
        assert wire.runtime.complete(wire.client.tool("x")) is None
    wire.lose()
    wire.runtime.complete(wire.renewal.open())
    assert wire.runtime.complete(wire.client.tool("x")) is None
    assert [method for method, _ in wire.asked] == ["initialize", "tools/list"]


def test_next_server_that_reports_no_changes_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OFFERS, "tools", {"listChanged": True})
    wire = Wire()
    for _ in range(2):
        assert wire.runtime.complete(wire.client.tool("x")) is None
    assert [method for method, _ in wire.asked].count("tools/list") == 1
    wire.lose()
    monkeypatch.setitem(OFFERS, "tools", {})
    wire.runtime.complete(wire.renewal.open())
    for _ in range(2):
        assert wire.runtime.complete(wire.client.tool("x")) is None
    assert [method for method, _ in wire.asked].count("tools/list") == 2


def test_failing_loss_callback_is_reported() -> None:
    wire = Wire()
    wire.lose()
    wire.fails = True
    wire.lose()
    assert (wire.losses, wire.reports) == (2, ["the callback for a lost session failed"])


@pytest.mark.req("SESS-06")
def test_session_can_be_reopened_after_a_delay() -> None:
    wire = Wire()
    wire.lose()
    wire.renewal.begin(5.0)
    outcome = wire.begin(wire.client.ping())
    wire.runtime.advance_to(4.0)
    assert outcome == []
    wire.runtime.advance_to(5.0)
    assert outcome == [None]


def test_failed_reconnection_closes_the_client() -> None:
    wire = Wire()
    wire.lose()
    wire.refused = {"initialize"}
    wire.renewal.begin(0.0)
    outcome = wire.begin(wire.client.ping())
    assert isinstance(outcome[0], NoBackChannel)
    assert wire.reports == ["the session was lost, and cannot be opened anew"]


@pytest.mark.parametrize("phase", [Phase.CLOSING, Phase.CLOSED])
def test_closed_client_does_not_report_failed_reconnection(phase: Phase) -> None:
    wire = Wire()
    wire.lose()
    wire.unanswered = {"initialize"}
    wire.renewal.begin(0.0)
    outcome = wire.begin(wire.client.ping())
    wire.client.close()
    if phase is Phase.CLOSED:
        assert wire.connection.data_to_send() == [None]
    wire.client._process()
    wire.runtime.run()
    assert isinstance(outcome[0], NoBackChannel)
    assert (wire.connection.phase, wire.reports) == (phase, [])


def test_repeated_loss_leaves_reconnection_to_the_next_attempt() -> None:
    wire = Wire()
    wire.runtime.complete(wire.client.set_log_level("error"))
    wire.lose()
    wire.leaves_at = "logging/setLevel"
    wire.on_leaving = lambda: wire.renewal.begin(1.0)
    wire.renewal.begin(0.0)
    outcome = wire.begin(wire.client.ping())
    assert outcome == []
    wire.leaves_at = ""
    wire.runtime.advance_to(1.0)
    assert (outcome, wire.reports) == ([None], [])


def test_permanent_loss_fails_waiting_calls() -> None:
    wire = Wire()
    wire.lose()
    outcome = wire.begin(wire.client.ping())
    wire.renewal.begin(None)
    wire.runtime.run()
    assert isinstance(outcome[0], NoBackChannel)


def test_loss_callback_is_optional() -> None:
    wire = Wire()
    renewal = SessionReconnector(wire.client, None)
    renewal.lose()
    renewal.tell()
    assert (wire.losses, wire.reports) == (0, [])
