"""A connection as a value: when it can be written out, and that it goes on as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wires import INFO, call, client, client_of_tasks, created, feed, request, sent, server

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase
from mcpio.errors import LocalProtocolError
from mcpio.events import IncomingId, RequestFailed
from mcpio.revisions import HANDSHAKE_REVISIONS
from mcpio.types.features import (
    CallToolRequest,
    CallToolResult,
    ListToolsResult,
    PingRequest,
    ServerCapabilities,
    ToolsCapability,
)
from mcpio.types.tasks import (
    CreateTaskResult,
    ServerTaskRequestsCapability,
    ServerTasksCapability,
    Task,
    TaskMetadata,
    ToolTasksCapability,
)

# What a server declares that runs tools as tasks.
OFFERS_OF_TASKS = ServerCapabilities(
    tools=ToolsCapability(),
    tasks=ServerTasksCapability(requests=ServerTaskRequestsCapability(tools=ToolTasksCapability(call={}))),
)


def moved(connection: Any, now: float = 0.0, later: float = 100.0) -> Any:
    """Return the connection as another process has it, whose clock shows another time."""
    snapshot = json.loads(json.dumps(connection.snapshot(now), allow_nan=False))
    return type(connection).restore(snapshot, later, options=connection.options)


def test_snapshot_before_the_handshake_restores() -> None:
    again = moved(ClientConnection(INFO))
    assert (again.revision, again.phase, again.peer) == (None, Phase.NEW, None)
    assert again.send_initialize(now=100.0) == 1


@pytest.mark.parametrize(("revisions", "has_id"), [(None, False), (HANDSHAKE_REVISIONS, True)])
def test_revision_of_stateless_requests_outlives_the_process(revisions: Any, has_id: bool) -> None:
    first = ServerConnection(INFO)
    envelope = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    feed(first, request("server/discover", 1, _meta=envelope))
    sent(first)
    options = None if revisions is None else Options(revisions=revisions)
    second = ServerConnection.restore(json.loads(json.dumps(first.snapshot(0.0))), 0.0, options=options)
    second.receive_data(b"x\n", 0.0)
    assert [event.__class__.__name__ for event in second.events()] == ["ProtocolViolated"]
    (fault,) = sent(second)
    assert ("id" in fault) is has_id


@pytest.mark.parametrize("begins_again", [False, True])
def test_restored_client_without_session_still_knows_its_server(begins_again: bool) -> None:
    connection = client(keep_alive=5.0)
    connection.reset_session(0.0)
    if begins_again:
        connection.send_initialize(0.0, timeout=None)
        sent(connection)
    again = moved(connection)
    assert (again.phase, again.peer, again.revision) == (connection.phase, connection.peer, connection.revision)
    assert (again.next_deadline(), connection.next_deadline()) == (None, None)
    assert moved(again).peer == connection.peer


def test_restored_session_keeps_requests_deadlines_and_a_partial_line() -> None:
    connection = server("2025-06-18")
    feed(connection, call("a", progressToken=1))
    id = connection.send_request(PingRequest(), now=0.0, timeout=8.0, cookie="c")
    sent(connection)
    text = json.dumps(request("ping", "half")).encode() + b"\n"
    connection.receive_data(text[:9], 0.0)
    again = moved(connection, 2.0)
    assert again.revision is connection.revision
    assert again.peer == connection.peer
    assert again.pending == connection.pending
    assert again.next_deadline() == 106.0
    again.receive_data(text[9:], 100.0)
    list(again.events())
    again.send_result(IncomingId(1), CallToolResult(()))
    assert [message["id"] for message in sent(again)] == ["half", "a"]
    again.handle_timeout(106.0)
    (failed,) = again.events()
    assert isinstance(failed, RequestFailed)
    assert (failed.id, failed.cookie) == (id, "c")


def test_restored_connection_continues_closing() -> None:
    connection = server()
    feed(connection, call("a"))
    connection.close(0.0, grace=4.0)
    list(connection.events())
    again = moved(connection, 1.0)
    assert again.phase is Phase.CLOSING
    assert again.next_deadline() == 103.0
    assert again.unanswered[0].method == "tools/call"


def test_snapshot_keeps_tasks_and_batches() -> None:
    asks = client_of_tasks()
    first = asks.send_request(CallToolRequest("x", task=TaskMetadata()), now=0.0)
    feed(asks, created(first))
    sent(asks)
    assert moved(asks).pending.tasks == (first,)
    joins = server("2025-03-26", join_batch_answers=True)
    feed(joins, [request("tools/list", 1), request("ping", 2)])
    again = moved(joins)
    again.send_result(IncomingId(1), ListToolsResult(()))
    assert [message["id"] for message in sent(again)[0]] == [2, 1]


def _fed() -> Connection:
    connection = client()
    connection.receive_data(b"{}\n", 0.0)
    return connection


def _ended() -> Connection:
    connection = client()
    connection.receive_data(None, 0.0)
    return connection


def _unwritten() -> Connection:
    connection = client()
    connection.send_request(PingRequest(), now=0.0)
    return connection


def _closed() -> Connection:
    connection = client()
    connection.abort()
    list(connection.events())
    return connection


def _with(cookie: Any) -> Connection:
    connection = _unwritten()
    connection.send_request(PingRequest(), now=0.0, cookie=cookie)
    sent(connection)
    return connection


def _by(via: Any) -> Connection:
    connection = server()
    feed(connection, call(1), via=via)
    return connection


@pytest.mark.parametrize(
    ("connection", "said"),
    [
        (_fed(), "drain the events"),
        (_ended(), "drain the events"),
        (_unwritten(), "write the output"),
        (_closed(), "a closed connection has no state"),
        (_with(object()), "in a snapshot, a cookie must be a string or an integer"),
        (_with(True), "in a snapshot, a cookie must be a string or an integer"),
        (_by(("a", 1)), "in a snapshot, a via must be a string or an integer"),
    ],
)
def test_snapshot_of_undrained_or_closed_connection_is_refused(connection: Connection, said: str) -> None:
    with pytest.raises(LocalProtocolError, match=said):
        connection.snapshot(0.0)


def test_cookies_function_replaces_cookies() -> None:
    snapshot = _with(object()).snapshot(0.0, cookies=lambda cookie: None if cookie is None else "it")
    assert [each["cookie"] for each in snapshot["outgoing"]] == [None, "it"]


def test_id_of_a_request_may_be_a_cookie() -> None:
    snapshot = json.loads(json.dumps(_with(IncomingId(7)).snapshot(0.0)))
    assert snapshot["outgoing"][1]["cookie"] == 7
    restored = ClientConnection.restore(snapshot, 0.0)
    restored.connection_lost(None, 0.0)
    (cookie,) = [event.cookie for event in restored.events() if isinstance(event, RequestFailed) and event.cookie]
    assert cookie == IncomingId(7)


def test_unfit_snapshot_is_refused() -> None:
    snapshot = client().snapshot(0.0)
    with pytest.raises(LocalProtocolError, match="a snapshot of a client cannot be restored as a server"):
        ServerConnection.restore(snapshot, 0.0)
    changes: list[dict[str, Any]] = [{"reason": "?"}, {"info": {}}, {"unfinished": "x"}]
    for change in changes:
        with pytest.raises(LocalProtocolError, match="malformed snapshot"):
            ClientConnection.restore({**snapshot, **change}, 0.0, options=Options())


@pytest.mark.parametrize("via", [None, "post 1"])
def test_restored_request_can_be_run_again(via: str | None) -> None:
    connection = server("2025-11-25")
    message = request("tools/call", "a", name="add", arguments={"a": 1}, _meta={"progressToken": "p"})
    (came,) = feed(connection, message, via=via)
    (again,) = moved(connection).unanswered
    assert again.event == came
    assert connection.unanswered[0].event == came


def test_restored_request_without_a_readable_message_has_no_event() -> None:
    connection = server("2025-11-25")
    feed(connection, call("a"))
    snapshot = connection.snapshot(0.0)
    (state,) = snapshot["incoming"]
    whole = state["message"]
    for message, known in ((None, None), ({**whole, "params": {}}, {})):
        state["message"] = message
        (owed,) = ServerConnection.restore(snapshot, 0.0).unanswered
        assert (owed.event, owed.raw and owed.raw["params"]) == (None, known)
    for wrong in ({**whole, "method": "prompts/get"}, {**whole, "params": 5}):
        state["message"] = wrong
        with pytest.raises(LocalProtocolError, match="malformed snapshot: the message of tools/call is another"):
            ServerConnection.restore(snapshot, 0.0)


def test_restored_request_may_still_become_a_task() -> None:
    connection = server(offers=OFFERS_OF_TASKS)
    message = call("a")
    message["params"]["task"] = {}
    feed(connection, message)
    again = moved(connection)
    (owed,) = again.unanswered
    now = "2026-01-01T00:00:00Z"
    again.send_result(owed.id, CreateTaskResult(Task("t", "working", now, now, 5)))
    assert sent(again)[0]["result"]["task"]["taskId"] == "t"


def test_restored_requests_count_as_held() -> None:
    connection = server("2025-11-25")
    feed(connection, call("a", text="x" * 5000))
    assert moved(connection).held.requests > 5000
