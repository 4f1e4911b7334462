"""What is no message, or a message of the wrong shape: the event, the answer, and that it costs only itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wires import call, client, feed, new_server, note, one, request, sent, server

from mcpio.engine.connection import Connection
from mcpio.engine.limits import Limits
from mcpio.errors import ConnectionLost, InvalidMessage
from mcpio.events import (
    Answered,
    IgnoreReason,
    MessageIgnored,
    NoiseReceived,
    NotificationReceived,
    ProgressReceived,
    ProtocolViolated,
    RequestFailed,
)
from mcpio.revisions import HANDSHAKE_REVISIONS, REV_2025_06_18, REV_2025_11_25, Revision
from mcpio.types.features import (
    ListToolsRequest,
    PingRequest,
)


@pytest.mark.req("RPC-01", "RPC-02", "RPC-03", "RPC-04", "RPC-14", "RPC-15", "RPC-22")
@pytest.mark.parametrize(
    ("text", "code", "id"),
    [
        (b"{", -32700, None),
        (b"\xff", -32700, None),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "x": NaN}', -32700, None),
        (b"[" * 200, -32700, None),
        (b"{}", -32600, None),
        (b"null", -32600, None),
        (b"0", -32600, None),
        (b'""', -32600, None),
        (b'{"id": 1, "method": "ping"}', -32600, 1),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', -32600, 1),
        (b'{"jsonrpc": 2.0, "id": "a", "method": "ping"}', -32600, "a"),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 5}', -32600, 1),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": 1.0, "method": "ping"}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": [1], "method": "ping"}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}', -32602, 1),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": null}', -32602, 1),
    ],
)
def test_violation_is_answered_with_its_code_and_fails_alone(text: bytes, code: int, id: Any) -> None:
    connection = server()
    connection.receive_data(text + b"\n" + json.dumps(request("ping", "next")).encode() + b"\n", 0.0)
    violated, answered = connection.events()
    assert isinstance(violated, ProtocolViolated)
    assert isinstance(answered, Answered)
    assert violated.error.code == code
    fault, pong = sent(connection)
    assert (fault["error"]["code"], fault.get("id")) == (code, id)
    assert pong["id"] == "next"


@pytest.mark.req("RPC-12")
@pytest.mark.parametrize(
    ("connection", "has_id"),
    [(server(revision.name), revision.name < "2025-11-25") for revision in HANDSHAKE_REVISIONS]
    + [(new_server(), True)],
)
def test_error_without_a_request_has_a_null_id_before_2025_11_25(connection: Any, has_id: bool) -> None:
    connection.receive_data(b"rubbish\n", 0.0)
    violated = connection.next_event()
    assert isinstance(violated, ProtocolViolated)
    assert violated.raw == "rubbish"
    (fault,) = sent(connection)
    assert ("id" in fault, fault.get("id")) == (has_id, None)


ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.mark.req("RPC-12")
@pytest.mark.parametrize(
    ("options", "earlier", "wrong", "has_id"),
    [
        ({}, [], request("initialize", 1.5, protocolVersion="2025-11-25"), False),
        ({}, [], request("initialize", 1.5, protocolVersion="2025-06-18"), True),
        ({}, [], request("initialize", 1.5, protocolVersion=5), True),
        ({}, [], request("tools/list", 1.5, _meta=ENVELOPE), False),
        ({}, [], request("tools/list", 1.5), True),
        ({}, [request("server/discover", 1, _meta=ENVELOPE)], request("tools/list", 1.5), False),
        ({"revisions": (REV_2025_11_25,)}, [], request("tools/list", 1.5), False),
        ({"revisions": (REV_2025_06_18, REV_2025_11_25)}, [], request("tools/list", 1.5), True),
    ],
)
def test_error_without_a_request_is_that_of_the_revision_that_was_said(
    options: Any, earlier: Any, wrong: Any, has_id: bool
) -> None:
    connection = new_server(**options)
    feed(connection, *earlier)
    sent(connection)
    feed(connection, wrong)
    (fault,) = sent(connection)
    assert ("id" in fault, fault.get("id")) == (has_id, None)


@pytest.mark.req("RPC-09", "RPC-10", "RPC-11")
@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": 2, "result": {}, "error": {"code": 1, "message": "x"}},
        {"jsonrpc": "2.0", "id": 2},
        {"jsonrpc": "2.0", "id": 2, "result": "x"},
        {"jsonrpc": "2.0", "id": 2, "result": None},
        {"jsonrpc": "2.0", "id": 2, "error": "x"},
        {"jsonrpc": "2.0", "id": 2, "error": {"code": "1", "message": "x"}},
        {"jsonrpc": "2.0", "id": 2, "error": {"code": 1.5, "message": "x"}},
        {"jsonrpc": "2.0", "id": 2, "error": {"code": 1}},
        {"id": 2, "result": {}},
    ],
)
def test_malformed_response_fails_its_request_at_once(message: Any) -> None:
    connection = client()
    id = connection.send_request(PingRequest(), now=0.0, cookie="c")
    sent(connection)
    failed = one(connection, message)
    assert isinstance(failed, RequestFailed)
    assert (failed.id, failed.cookie, failed.raw) == (id, "c", message)
    assert isinstance(failed.error, InvalidMessage)
    assert str(failed.error).startswith("the answer is malformed: ")
    assert (connection.pending.outgoing, connection.wants_write) == ((), False)
    # There is nobody left to wait for it, so a second one is the peer's fault.
    assert isinstance(one(connection, message), ProtocolViolated)


@pytest.mark.req("RPC-02", "RPC-22")
@pytest.mark.parametrize("make", [client, server])
@pytest.mark.parametrize(
    "text",
    [
        b'{"jsonrpc":"2.0","id":%d,"result":{"text":"\\ud800"}}',
        b'{"jsonrpc":"2.0","id":%d,"result":{"text":"\xff"}}',
        b'{"result":{"value":NaN},"jsonrpc":"2.0","id":%d}',
        b'{"jsonrpc":"2.0","id":%d,"error":{"code":1',
    ],
)
def test_unreadable_response_with_a_readable_id_fails_its_request_at_once(make: Any, text: bytes) -> None:
    connection = make()
    id = connection.send_request(PingRequest(), now=0.0)
    sent(connection)
    connection.receive_data(text % id + b"\n", 0.0)
    (failed,) = connection.events()
    assert isinstance(failed, RequestFailed)
    assert (failed.id, failed.raw) == (id, None)
    assert isinstance(failed.error, InvalidMessage)
    assert connection.data_to_send() == []


@pytest.mark.parametrize("is_drained", [True, False])
def test_response_cut_off_by_the_end_of_input_is_a_loss(is_drained: bool) -> None:
    connection = client()
    connection.send_request(PingRequest(), now=0.0)
    connection.receive_data(b'{"jsonrpc":"2.0","id":2,"result":{"text":"', 0.0)
    if is_drained:
        assert list(connection.events()) == []
    connection.receive_data(None, 0.0)
    noise, failed = connection.events()
    assert isinstance(noise, NoiseReceived)
    assert isinstance(failed, RequestFailed)
    assert isinstance(failed.error, ConnectionLost)


def test_overlong_response_fails_its_request_at_once() -> None:
    connection = client(limits=Limits(message_bytes=300, resync=True))
    id = connection.send_request(PingRequest(), now=0.0)
    sent(connection)
    connection.receive_data(b'{"jsonrpc":"2.0","id":%d,"result":{"text":"%b"}}\n' % (id, b"x" * 300), 0.0)
    (failed,) = connection.events()
    assert isinstance(failed, RequestFailed)
    assert str(failed.error) == "a message is longer than 300 bytes"
    assert connection.data_to_send() == []


@pytest.mark.req("RPC-13")
@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (note("unknown"), NotificationReceived),
        ({"jsonrpc": "2.0", "method": "ping"}, ProtocolViolated),
        ({"jsonrpc": "2.0", "method": "tools/call"}, ProtocolViolated),
        (note("cancelled", requestId=[]), ProtocolViolated),
        (note("progress"), ProtocolViolated),
        (note("roots/list_changed"), NotificationReceived),
        (note("roots/list_changed", _meta=5), ProtocolViolated),
        (note("message", level="info", data=1), MessageIgnored),
        (note("tools/list_changed"), MessageIgnored),
        ({"jsonrpc": "1.0", "method": "x"}, ProtocolViolated),
        ({"jsonrpc": "2.0", "method": 5}, ProtocolViolated),
        ({"jsonrpc": "2.0", "method": "x", "params": [1]}, ProtocolViolated),
    ],
)
def test_invalid_notification_is_never_answered(message: Any, expected: type) -> None:
    connection = server()
    assert isinstance(one(connection, message), expected)
    assert sent(connection) == []


@pytest.mark.req("CANC-01", "CANC-09")
@pytest.mark.parametrize("params", [{"requestId": 1.0}, {"requestId": True}, {"requestId": 1, "reason": 5}])
def test_malformed_cancellation_changes_nothing(params: Any) -> None:
    connection = server()
    event = one(connection, call(1))
    assert isinstance(one(connection, note("cancelled", **params)), ProtocolViolated)
    assert connection.pending.incoming == (event.id,)
    assert sent(connection) == []


@pytest.mark.req("PROG-01")
@pytest.mark.parametrize("token", [1.5, 1.0, True, [], {}])
def test_progress_token_of_another_type_is_refused(token: Any) -> None:
    connection = server()
    one(connection, call(progressToken=token))
    (answer,) = sent(connection)
    assert (answer["error"]["code"], answer["error"]["data"]["path"]) == (-32602, "params._meta.progressToken")


def test_progress_of_any_size_is_accepted() -> None:
    connection = client()
    id = int(connection.send_request(ListToolsRequest(), now=0.0, progress=True))
    events = feed(
        connection,
        *(note("progress", progressToken=id, progress=value) for value in (-(10**400), 10**400, 10**399, 1e308)),
    )
    assert [type(event) for event in events] == [ProgressReceived] * 2 + [ProtocolViolated] * 2


@pytest.mark.req("RPC-12")
@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS, ids=str)
@pytest.mark.parametrize("id", [{}, {"id": None}])
def test_error_without_an_id_is_ignored_as_a_connection_error(revision: Revision, id: dict[str, Any]) -> None:
    for connection in (client(revision.name), server(revision.name), new_server()):
        message = {"jsonrpc": "2.0", **id, "error": {"code": -32700, "message": "?"}}
        assert one(connection, message, via=1) == MessageIgnored(IgnoreReason.CONNECTION_ERROR, message, 1)
        assert not connection.wants_write


@pytest.mark.req("BATCH-03")
def test_initialize_in_a_batch_is_refused() -> None:
    connection = server("2025-03-26")
    hello = request(
        "initialize", 9, protocolVersion="2025-03-26", capabilities={}, clientInfo={"name": "", "version": ""}
    )
    assert isinstance(one(connection, [hello]), Answered)
    assert sent(connection)[0]["error"]["code"] == -32600


@pytest.mark.req("BATCH-02", "BATCH-03", "BATCH-05")
@pytest.mark.parametrize(
    ("connection", "batch"),
    [
        (server("2025-03-26"), []),
        (server("2025-03-26", limits=Limits(batch_items=2)), [note("a")] * 3),
        (new_server(), [request("ping")]),
        (new_server(accept_batches=True), [request("initialize")]),
        *((server(name), [request("ping")]) for name in ("2024-11-05", "2025-06-18", "2025-11-25")),
    ],
)
def test_array_outside_batch_revisions_gets_one_error(connection: Connection, batch: Any) -> None:
    assert isinstance(one(connection, batch), ProtocolViolated)
    (answer,) = sent(connection)
    assert (answer["error"]["code"], answer.get("id")) == (-32600, None)


@pytest.mark.req("BATCH-02")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-06-18", "2025-11-25"])
def test_accept_batches_takes_arrays_in_every_revision(revision: str) -> None:
    connection = server(revision, accept_batches=True)
    assert isinstance(one(connection, [request("ping")]), Answered)


@pytest.mark.parametrize(("text", "raw"), [("{}", {}), ("null", "null"), ("0", 0), ('""', ""), ("false", False)])
def test_empty_messages_are_reported(text: str, raw: Any) -> None:
    connection = server()
    connection.receive_message(text, 0.0, via=7)
    violated = connection.next_event()
    assert isinstance(violated, ProtocolViolated)
    assert violated.raw == raw
    assert type(violated.raw) is type(raw)
    assert violated.via == 7
