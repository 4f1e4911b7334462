from __future__ import annotations

import copy
import json
from typing import Any

import attrs
import pytest
import wires
from hypothesis import given
from hypothesis import strategies as st
from unchecked import unchecked

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.limits import Limits, Timeout
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.snapshot import VERSION, SessionState, dump, load
from mcpio.errors import LocalProtocolError
from mcpio.events import CancelReceived, CloseReason, ConnectionClosed, ProtocolViolated, RequestReceived
from mcpio.types.asking import ListRootsRequest
from mcpio.types.base import CustomRequest
from mcpio.types.features import (
    CallToolRequest,
    CallToolResult,
    ClientCapabilities,
    Implementation,
    ListToolsRequest,
    PingRequest,
    RootsCapability,
    ServerCapabilities,
    ToolsCapability,
)

INFO = Implementation("test", "1", extra={"later": 1})
OPTIONS = Options(limits=Limits(message_bytes=5000, resync=True), custom_methods=frozenset({"acme/do"}))


def feed(connection: Connection, *messages: Any, now: float = 0.0) -> list[Any]:
    for message in messages:
        connection.receive_data(json.dumps(message).encode() + b"\n", now)
    return list(connection.events())


def new_server() -> ServerConnection:
    capabilities = ServerCapabilities(tools=ToolsCapability(), experimental={"x": {}})
    return ServerConnection(INFO, capabilities, instructions="hint", options=OPTIONS)


def busy_server() -> ServerConnection:
    """Return a server with something in every member of a snapshot, and nothing undrained."""
    server = new_server()
    hello = {
        "protocolVersion": "2025-03-26",
        "capabilities": {"roots": {}, "tasks": {"list": {}}},
        "clientInfo": {"name": "c", "version": "1", "title": "C"},
    }
    feed(
        server,
        {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        call("done"),
        call("cancelled"),
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "cancelled"}},
        call("runs", progressToken="t"),
        {"jsonrpc": "2.0", "id": "own", "method": "acme/do"},
    )
    done, runs, _ = server.pending.incoming
    server.send_result(done, CallToolResult(()))
    server.send_progress(runs, 0.5)
    server.cancel_request(server.send_request(PingRequest(), now=0.0))
    server.send_request(
        ListRootsRequest(), now=0.0, timeout=Timeout(64.0, 8.0), cookie="c", related_to=runs, progress=True
    )
    server.send_request(CustomRequest("acme/ask"), now=0.0, timeout=None, cookie=7)
    server.data_to_send()
    progress = {"progressToken": 2, "progress": 10**30}
    feed(server, {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}, now=4.0)
    server.receive_data(b'{"jsonrpc": "2.0", "id": "next", ', 4.0)
    assert list(server.events()) == []
    return server


def busy_client() -> ClientConnection:
    client = ClientConnection(INFO, ClientCapabilities(roots=RootsCapability()), options=OPTIONS)
    client.send_initialize(now=0.0)
    info = {"name": "s", "version": "1"}
    answer = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info, "instructions": "i"}
    feed(client, {"jsonrpc": "2.0", "id": 1, "result": answer})
    client.send_request(CallToolRequest("x"), now=0.0, timeout=2.0, progress=True)
    client.send_request(ListToolsRequest(), now=0.0, timeout=1.0)
    client.handle_timeout(1.0)
    list(client.events())
    client.data_to_send()
    return client


def call(id: Any, **meta: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "x", "_meta": meta}}


def wire(snapshot: dict[str, Any]) -> Any:
    """Return a snapshot as another process reads it."""
    return json.loads(json.dumps(snapshot, allow_nan=False))


def test_snapshot_holds_every_member_as_json() -> None:
    snapshot = busy_server().snapshot(4.0)
    assert snapshot["version"] == 2
    assert new_server().snapshot(4.0)["version"] == 1
    assert set(snapshot) == {field.name for field in attrs.fields(SessionState)} - {"opening", "spoken"} | {"version"}
    empty = {name for name, value in snapshot.items() if value in (None, [], {}, "", False, 0)}
    unused = {"tasks", "batches"}
    assert empty == {"peer_instructions", "log_level", "skipping", "ended", "close_left", "dropped_logs"} | unused
    assert dump(load(wire(snapshot))) == snapshot


@pytest.mark.parametrize("connection", [new_server(), ClientConnection(INFO), busy_server(), busy_client()])
def test_restored_connection_has_the_same_snapshot(connection: Connection) -> None:
    snapshot = connection.snapshot(4.0)
    assert type(snapshot["next_outgoing"]) is int
    restored = type(connection).restore(wire(snapshot), 1024.0, options=OPTIONS)
    assert restored.snapshot(1024.0) == snapshot
    before, after = connection.next_deadline(), restored.next_deadline()
    assert (before is None) == (after is None)
    assert before is None or after == before + 1020.0
    assert (restored.phase, restored.revision, restored.pending) == (
        connection.phase,
        connection.revision,
        connection.pending,
    )
    assert (restored.peer, restored.info, restored.capabilities) == (
        connection.peer,
        connection.info,
        connection.capabilities,
    )


def test_restored_connection_continues_within_a_line() -> None:
    server = ServerConnection.restore(wire(busy_server().snapshot(4.0)), 4.0, options=OPTIONS)
    assert [(each.id, each.method, each.via) for each in server.unanswered] == [
        (3, "tools/call", None),
        (4, "acme/do", None),
    ]
    server.receive_data(b'"method": "tools/list"}\n', 5.0)
    (received,) = server.events()
    assert isinstance(received, RequestReceived)
    assert (received.id, received.raw["id"]) == (5, "next")
    assert isinstance(
        feed(server, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "runs"}})[0],
        CancelReceived,
    )
    for id in (1, 2):
        reused = feed(server, call("done" if id == 1 else "cancelled"))[0]
        assert reused.reused_id
    first: Any = server.unanswered[0].id
    with pytest.raises(LocalProtocolError, match="was answered before"):
        server.send_result(type(first)(1), CallToolResult(()))
    server.send_result(type(first)(2), CallToolResult(()))
    outcomes = feed(server, {"jsonrpc": "2.0", "id": 3, "result": {"x": 1}}, {"jsonrpc": "2.0", "id": 1, "result": {}})
    assert (outcomes[0].cookie, outcomes[0].result) == (7, {"x": 1})
    assert not isinstance(outcomes[1], ProtocolViolated)
    stale = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 2, "progress": 5}}
    assert isinstance(feed(server, stale)[0], ProtocolViolated)


def test_restored_connection_skips_the_rest_of_an_overlong_line() -> None:
    server = busy_server()
    server.receive_data(b"x" * 6000, 4.0)
    assert isinstance(server.next_event(), ProtocolViolated)
    with pytest.raises(LocalProtocolError, match="write the output"):
        server.snapshot(4.0)
    server.data_to_send()
    snapshot = server.snapshot(4.0)
    assert snapshot["skipping"]
    for options in (OPTIONS, None):
        restored = ServerConnection.restore(wire(snapshot), 4.0, options=options)
        restored.receive_data(b"rest\n", 4.0)
        assert feed(restored, {"jsonrpc": "2.0", "id": 1, "method": "ping"})[0].error is None


def test_restored_server_keeps_close_reason_and_grace() -> None:
    server = busy_server()
    server.close(4.0, grace=8.0)
    assert len(list(server.events())) == 2
    restored = ServerConnection.restore(wire(server.snapshot(6.0)), 100.0, options=OPTIONS)
    assert restored.next_deadline() == 106.0
    restored.handle_timeout(106.0)
    assert list(restored.events()) == [ConnectionClosed(CloseReason.CLOSED, None)]


def test_restored_connection_keeps_its_ended_input() -> None:
    server = busy_server()
    server.receive_data(None, 4.0)
    list(server.events())
    server.data_to_send()
    restored = ServerConnection.restore(wire(server.snapshot(4.0)), 4.0, options=OPTIONS)
    assert (restored.wants_read, restored.next_event()) == (False, None)


# Refusals


def test_snapshot_needs_drained_events_and_output() -> None:
    server = new_server()
    server.receive_data(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n', 0.0)
    for left in ("drain the events", "write the output"):
        with pytest.raises(LocalProtocolError, match=left):
            server.snapshot(0.0)
        list(server.events())
    server.data_to_send()
    server.snapshot(0.0)
    server.receive_data(b"x" * 6000, 0.0)
    with pytest.raises(LocalProtocolError, match="drain the events"):
        server.snapshot(0.0)
    list(server.events())
    server.data_to_send()
    server.receive_message("{}", 0.0)
    with pytest.raises(LocalProtocolError, match="drain the events"):
        server.snapshot(0.0)
    list(server.events())
    server.data_to_send()
    server.receive_data(None, 0.0)
    with pytest.raises(LocalProtocolError, match="drain the events"):
        server.snapshot(0.0)
    list(server.events())
    with pytest.raises(LocalProtocolError, match="write the output"):
        server.snapshot(0.0)
    server.data_to_send()
    with pytest.raises(LocalProtocolError, match="closed"):
        server.snapshot(0.0)
    many = busy_server()
    for _ in range(3):
        many.send_request(PingRequest(), now=4.0)
    many.data_to_send()
    many.close(4.0)
    assert many.next_event() is not None
    with pytest.raises(LocalProtocolError, match="drain the events"):
        many.snapshot(4.0)


@pytest.mark.parametrize("odd", [object(), 1.5, True, b"x", (1,)])
def test_unfit_cookie_or_via_refuses_the_snapshot(odd: Any) -> None:
    client, server = busy_client(), busy_server()
    client.send_request(PingRequest(), now=1.0, cookie=odd)
    client.data_to_send()
    with pytest.raises(LocalProtocolError, match="in a snapshot, a cookie must be a string or an integer"):
        client.snapshot(1.0)
    server.receive_message(json.dumps(call("x")), 4.0, via=odd)
    list(server.events())
    with pytest.raises(LocalProtocolError, match="in a snapshot, a via must be a string or an integer"):
        server.snapshot(4.0)


def test_unencodable_capabilities_refuse_the_snapshot() -> None:
    with pytest.raises(LocalProtocolError, match="Implementation: name: expected a string"):
        ServerConnection(unchecked(Implementation("a", "1"), name=5)).snapshot(0.0)


def test_snapshot_of_the_other_role_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="a snapshot of a server cannot be restored as a client"):
        ClientConnection.restore(new_server().snapshot(0.0), 0.0)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"version": VERSION + 1}, f"has version {VERSION + 1}; this library reads up to {VERSION}"),
        ({"version": None}, "not a snapshot"),
        ({"version": True}, "not a snapshot"),
        ({"version": 0}, "not a snapshot"),
        ({"unknown": 1}, "snapshot"),
        ({"phase": "CLOSED"}, "phase CLOSED of a server with a revision"),
        ({"phase": "NEW"}, "phase NEW of a server with a revision"),
        ({"phase": "x"}, "phase x of"),
        ({"phase": 5}, "phase"),
        ({"revision": None}, "a revision and a peer belong together"),
        ({"revision": "1999-01-01"}, "1999-01-01"),
        ({"revision": "2026-07-28"}, "2026-07-28"),
        ({"peer_info": None}, "a revision and a peer belong together"),
        ({"spoken": "yesterday"}, "yesterday"),
        ({"peer_info": {}}, "name"),
        ({"peer_capabilities": []}, "peer_capabilities"),
        ({"info": {"name": 1}}, "name"),
        ({"capabilities": []}, "capabilities"),
        ({"next_outgoing": 3}, r"ids \[2, 3\] where the next is 3"),
        ({"next_incoming": 0, "incoming": []}, r"ids \[\] where the next is 0"),
        ({"retired": {"x": "CANCELLED"}}, "malformed"),
        ({"retired": {"1": "x"}}, "malformed"),
        ({"unfinished": "x"}, "malformed"),
        ({"reason": "x"}, "malformed"),
        ({"close_left": float("nan")}, "close_left"),
        ({"close_left": float("inf")}, "close_left"),
        ({"close_left": "5"}, "close_left"),
        ({"close_left": 10**400}, "malformed"),
        ({"dropped_logs": 1.5}, "dropped_logs"),
        ({"ended": 1}, "ended"),
        ({"outgoing": {}}, "expected list @ snapshot.outgoing"),
        ({"finished": "ab"}, "expected list @ snapshot.finished"),
        ({"retired": []}, "expected dict @ snapshot.retired"),
        ({"finished": [[1, 2]]}, "finished"),
    ],
)
def test_malformed_snapshot_is_refused_with_its_path(change: dict[str, Any], fault: str) -> None:
    snapshot = busy_server().snapshot(4.0)
    with pytest.raises(LocalProtocolError, match=fault):
        ServerConnection.restore({**snapshot, **change}, 0.0)


@pytest.mark.parametrize("table", ["incoming", "outgoing"])
@pytest.mark.parametrize("change", [{"id": 99}, {"id": 0}, {"name": "notifications/message"}, {"name": 5}, {"via": []}])
def test_malformed_request_in_a_snapshot_is_refused(table: str, change: dict[str, Any]) -> None:
    snapshot = busy_server().snapshot(4.0)
    first, *others = snapshot[table]
    with pytest.raises(LocalProtocolError, match="malformed snapshot"):
        ServerConnection.restore({**snapshot, table: [{**first, **change}, *others]}, 0.0)


def test_equal_requests_in_a_snapshot_are_refused() -> None:
    snapshot = busy_server().snapshot(4.0)
    first, second = snapshot["incoming"]
    for twin in ({**second, "wire_id": first["wire_id"]}, {**second, "id": first["id"]}):
        with pytest.raises(LocalProtocolError, match="malformed snapshot"):
            ServerConnection.restore({**snapshot, "incoming": [first, twin]}, 0.0)


def test_missing_member_is_named() -> None:
    snapshot = busy_server().snapshot(4.0)
    for name in snapshot.keys() - {"version", "tasks"}:
        rest = {key: value for key, value in snapshot.items() if key != name}
        with pytest.raises(LocalProtocolError, match=name):
            ServerConnection.restore(rest, 0.0)


@pytest.mark.parametrize("value", [None, [], 5, "x", {}])
def test_value_without_a_version_is_refused(value: Any) -> None:
    with pytest.raises(LocalProtocolError, match="not a snapshot: it has no version"):
        ServerConnection.restore(value, 0.0)


JSON: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats() | st.text(max_size=5) | st.just([]) | st.just({})
)


@given(st.data())
def test_tampered_snapshot_is_refused_or_works(data: st.DataObject) -> None:
    snapshot = copy.deepcopy(data.draw(st.sampled_from([SERVER, CLIENT])))
    for _ in range(data.draw(st.integers(1, 3))):
        tables = [snapshot[name] for name in ("outgoing", "incoming") if isinstance(snapshot[name], list)]
        place = data.draw(st.sampled_from([snapshot, *(each for table in tables for each in table if each != 1)]))
        place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JSON)
    kind = ServerConnection if snapshot.get("role") == "server" else ClientConnection
    try:
        connection = kind.restore(snapshot, 0.0)
    except LocalProtocolError:
        return
    for id in range(4):
        feed(connection, {"jsonrpc": "2.0", "id": id, "result": {}}, call(id))
        feed(connection, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
    connection.handle_timeout(1e9)
    connection.receive_data(None, 1e9)
    list(connection.events())
    connection.abort()
    list(connection.events())
    assert connection.closed


SERVER = busy_server().snapshot(4.0)
CLIENT = busy_client().snapshot(1.0)


@pytest.mark.parametrize("tasks", [[None], ["t", "t"]])
def test_equal_task_ids_are_refused(tasks: list[str | None]) -> None:
    snapshot = busy_client().snapshot(4.0)
    (request,) = snapshot["outgoing"]
    snapshot["outgoing"] = []
    snapshot["tasks"] = [{**request, "id": 1 + place, "task": task} for place, task in enumerate(tasks)]
    with pytest.raises(LocalProtocolError, match="malformed snapshot: a task without an id of its own"):
        load(snapshot)


def test_cookies_are_replaced_by_the_function() -> None:
    connection = wires.client()
    waiter = object()
    id = connection.send_request(CallToolRequest("x"), now=0.0, cookie=waiter)
    connection.data_to_send()
    with pytest.raises(LocalProtocolError, match="in a snapshot, a cookie must be a string or an integer"):
        connection.snapshot(0.0)
    snapshot = connection.snapshot(0.0, cookies=lambda cookie: "waiter" if cookie is waiter else None)
    restored = ClientConnection.restore(snapshot, 0.0)
    restored.cancel_request(id)
    (failed,) = restored.events()
    assert failed.cookie == "waiter"  # type: ignore[union-attr]  # it failed


def test_batch_without_running_requests_is_refused() -> None:
    snapshot = busy_server().snapshot(4.0)
    running = [each["id"] for each in snapshot["incoming"]]
    for ids, waits in ((running, [*running, 99]), (running, running * 2), (running, []), ([], running)):
        batch = {"via": None, "ids": ids, "running": waits, "answers": []}
        with pytest.raises(LocalProtocolError, match="malformed snapshot: a batch"):
            load({**snapshot, "batches": [batch]})
    good = {"via": 1, "ids": [*running, 99], "running": running, "answers": ["{}"]}
    assert load({**snapshot, "batches": [good]}).batches[0].running == running
