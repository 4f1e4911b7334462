"""Pings for a silent peer: when they go out, what counts as an answer, and how the connection ends without one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from stateless import server_of, tool_call
from wires import INFO, client, server

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.limits import Limits
from mcpio.engine.options import KEEP_ALIVE, KeepAlive, Options
from mcpio.engine.table import Phase
from mcpio.errors import ConnectionLost, RequestTimeout
from mcpio.events import CloseReason, ConnectionClosed, Event, RequestFailed, ResponseReceived
from mcpio.observe.recording import Recorder, Replay, replay
from mcpio.observe.tap import add_tap
from mcpio.revisions import REV_2026_07_28
from mcpio.types.features import PingRequest

POLICY = KeepAlive(30.0, timeout=10.0, failures=2)

DISCOVERED: dict[str, Any] = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {},
    "ttlMs": 0,
    "cacheScope": "private",
}

both = pytest.mark.parametrize("make", [client, server])
Make = Callable[..., Connection]


def pass_time(connection: Connection, now: float) -> list[Event]:
    connection.handle_timeout(now)
    return list(connection.events())


def written(connection: Connection) -> list[tuple[str, object]]:
    messages = [json.loads(chunk) for chunk in connection.data_to_send() if chunk is not None]
    return [(message["method"], message.get("id")) for message in messages]


def answer(connection: Connection, id: object, now: float, **result: object) -> list[Event]:
    connection.receive_data(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode() + b"\n", now)
    return list(connection.events())


@both
@pytest.mark.req("PING-03")
def test_no_pings_are_sent_by_default(make: Make) -> None:
    assert make().next_deadline() is None


@both
@pytest.mark.req("PING-03")
def test_silent_peer_is_pinged_and_its_answer_restarts_the_interval(make: Make) -> None:
    connection = make(keep_alive=POLICY)
    assert connection.next_deadline() == 30.0
    assert pass_time(connection, 29.9) == []
    assert pass_time(connection, 30.0) == []
    ((method, id),) = written(connection)
    assert method == "ping"
    (answered,) = answer(connection, id, 31.0)
    assert isinstance(answered, ResponseReceived)
    assert answered.cookie == KEEP_ALIVE
    assert pass_time(connection, 40.0) == []
    assert (written(connection), connection.next_deadline()) == ([], 61.0)
    pass_time(connection, 61.0)
    assert [method for method, _ in written(connection)] == ["ping"]


@both
@pytest.mark.req("PING-03")
def test_any_input_postpones_the_ping(make: Make) -> None:
    connection = make(keep_alive=POLICY)
    connection.receive_message('{"jsonrpc":"2.0","id":5,"method":"ping"}', 20.0)
    list(connection.events())
    connection.data_to_send()
    pass_time(connection, 30.0)
    assert (written(connection), connection.next_deadline()) == ([], 50.0)


@both
@pytest.mark.req("PING-02", "PING-05")
def test_unanswered_pings_end_the_connection_after_the_limit(make: Make) -> None:
    connection = make(keep_alive=POLICY)
    pass_time(connection, 30.0)
    assert [method for method, _ in written(connection)] == ["ping"]
    (failed,) = pass_time(connection, 40.0)
    assert isinstance(failed, RequestFailed)
    assert (failed.cookie, type(failed.error)) == (KEEP_ALIVE, RequestTimeout)
    assert "ping" in [method for method, _ in written(connection)]
    *_, closed = pass_time(connection, 50.0)
    assert isinstance(closed, ConnectionClosed)
    assert (closed.reason, type(closed.cause)) == (CloseReason.UNRESPONSIVE, RequestTimeout)
    assert (connection.phase, connection.next_deadline()) == (Phase.CLOSED, None)


@both
@pytest.mark.req("PING-05")
def test_only_consecutive_failures_count(make: Make) -> None:
    connection = make(keep_alive=POLICY)
    pass_time(connection, 30.0)
    written(connection)
    pass_time(connection, 40.0)
    *_, (_, id) = written(connection)
    answer(connection, id, 49.0)
    pass_time(connection, 50.0)
    assert (connection.phase, connection.next_deadline()) == (Phase.OPERATING, 79.0)
    pass_time(connection, 79.0)
    pass_time(connection, 89.0)
    assert not connection.closed
    pass_time(connection, 99.0)
    assert connection.closed


def test_interval_may_be_shorter_than_the_timeout() -> None:
    connection = client(keep_alive=KeepAlive(1.0, timeout=10.0, failures=1))
    pass_time(connection, 1.0)
    ((_, id),) = written(connection)
    answer(connection, id, 2.0)
    pass_time(connection, 11.0)
    assert [method for method, _ in written(connection)] == ["ping"]


def test_silence_counts_while_no_request_may_be_sent() -> None:
    connection = client(keep_alive=POLICY, limits=Limits(outgoing_requests=1))
    connection.send_request(PingRequest(), now=0.0, timeout=None)
    written(connection)
    for now in (30.0, 40.0):
        pass_time(connection, now)
        assert written(connection) == []
    pass_time(connection, 50.0)
    assert connection.phase is Phase.CLOSED


def test_closing_connection_sends_no_pings() -> None:
    connection = server(keep_alive=POLICY)
    connection.receive_message('{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"x"}}', 1.0)
    list(connection.events())
    connection.close(2.0, grace=None)
    pass_time(connection, 31.0)
    assert (written(connection), connection.next_deadline()) == ([], None)


def test_connection_with_exchanges_sends_no_pings() -> None:
    connection = server(keep_alive=POLICY)
    connection.can_reach = lambda via: True
    pass_time(connection, 30.0)
    assert (written(connection), connection.next_deadline()) == ([], None)


@both
def test_restored_session_starts_a_new_interval(make: Make) -> None:
    saved = make(keep_alive=POLICY)
    restored = type(saved).restore(saved.snapshot(0.0), 100.0, options=saved.options)
    assert restored.next_deadline() == 130.0


@pytest.mark.req("PING-05")
def test_reopening_client_loses_only_the_session_of_a_silent_server() -> None:
    connection = client(keep_alive=POLICY, reopens=True)
    asked = connection.send_request(PingRequest(), now=1.0, timeout=None)
    for now in (30.0, 40.0):
        pass_time(connection, now)
    events = pass_time(connection, 50.0)
    failed = {event.id: event.error for event in events if isinstance(event, RequestFailed)}
    assert isinstance(failed[asked], ConnectionLost)
    assert isinstance(failed[asked].__cause__, RequestTimeout)
    assert (connection.phase, connection.next_deadline()) == (Phase.NEW, None)


def test_recording_of_pings_replays() -> None:
    connection = server(keep_alive=POLICY)
    lines: list[str] = []
    add_tap(connection, Recorder(lines.append), now=0.0)
    events = pass_time(connection, 30.0)
    written(connection)
    events += pass_time(connection, 40.0)
    assert [type(event) for event in replay(lines)] == [type(event) for event in events]
    assert [step.differs for step in Replay(lines) if step.differs] == []


@pytest.mark.req("PING-03")
def test_login_that_outlasts_the_pings_does_not_end_the_connection() -> None:
    connection = client(keep_alive=POLICY)
    pass_time(connection, 30.0)
    assert [method for method, _ in written(connection)] == ["ping"]
    connection.hold(35.0)
    for now in (40.0, 70.0, 100.0, 130.0):
        assert connection.next_deadline() == now
        assert pass_time(connection, now) == []
        assert written(connection) == []
    connection.release(155.0)
    # The first ping has its remaining 5 seconds; the next comes with the next look, and both must fail from there on.
    assert [type(event) for event in pass_time(connection, 160.0)] == [RequestFailed]
    assert [method for method, _ in written(connection)] == ["ping", "notifications/cancelled"]
    assert not connection.closed
    pass_time(connection, 170.0)
    assert not connection.closed
    assert isinstance(pass_time(connection, 180.0)[-1], ConnectionClosed)


def stateless_client(**options: Any) -> ClientConnection:
    connection = ClientConnection(INFO, options=Options(**options))
    connection.negotiate(now=0.0)
    ((_, id),) = written(connection)
    answer(connection, id, 0.0, **DISCOVERED)
    return connection


def test_stateless_client_asks_a_silent_server_to_discover() -> None:
    connection = stateless_client(keep_alive=POLICY)
    assert (pass_time(connection, 29.9), written(connection)) == ([], [])
    pass_time(connection, 30.0)
    ((method, id),) = written(connection)
    assert method == "server/discover"
    (answered,) = answer(connection, id, 31.0, **DISCOVERED)
    assert isinstance(answered, ResponseReceived)
    assert (answered.cookie, connection.next_deadline()) == (KEEP_ALIVE, 40.0)
    pass_time(connection, 40.0)
    assert (written(connection), connection.next_deadline()) == ([], 61.0)


def test_an_error_shows_that_a_stateless_server_is_alive() -> None:
    connection = stateless_client(keep_alive=POLICY)
    pass_time(connection, 30.0)
    ((_, id),) = written(connection)
    connection.receive_message(
        json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": -32603, "message": "x"}}), 31.0
    )
    for now in (40.0, 61.0):
        pass_time(connection, now)
    assert (connection.phase, len(written(connection))) == (Phase.OPERATING, 1)


def test_stateless_server_that_stays_silent_ends_the_connection() -> None:
    connection = stateless_client(keep_alive=POLICY)
    for now in (30.0, 40.0):
        pass_time(connection, now)
    *_, closed = pass_time(connection, 50.0)
    assert isinstance(closed, ConnectionClosed)
    assert (closed.reason, str(closed.cause)) == (CloseReason.UNRESPONSIVE, "server/discover: no answer within 10 s")


def test_adopted_revision_is_silent_from_the_first_time_that_is_known() -> None:
    connection = ClientConnection(INFO, options=Options(keep_alive=POLICY))
    connection.adopt(REV_2026_07_28)
    pass_time(connection, 1_000.0)
    assert (written(connection), connection.next_deadline()) == ([], 1_030.0)
    pass_time(connection, 1_030.0)
    assert [method for method, _ in written(connection)] == ["server/discover"]


def test_stateless_server_has_nothing_to_ask_a_silent_client() -> None:
    connection = server_of(keep_alive=POLICY)
    connection.receive_message(json.dumps(tool_call()), 1.0)
    list(connection.events())
    assert connection.next_deadline() is None
