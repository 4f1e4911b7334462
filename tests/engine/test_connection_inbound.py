"""What each message from the peer becomes, and what it is answered with."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wires import (
    INFO,
    call,
    client,
    feed,
    new_server,
    note,
    one,
    request,
    result,
    sent,
    server,
)

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.limits import MESSAGE_COST, Limits, Timeout
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase
from mcpio.errors import InvalidMessage, RequestError
from mcpio.events import (
    Answered,
    CancelReceived,
    CloseReason,
    ConnectionClosed,
    IgnoreReason,
    MessageIgnored,
    NoiseReceived,
    NotificationReceived,
    ProgressReceived,
    ProtocolViolated,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
)
from mcpio.profiles import Profile
from mcpio.revisions import HANDSHAKE_REVISIONS
from mcpio.types.asking import RootsListChangedNotification
from mcpio.types.base import CustomNotification, CustomRequest
from mcpio.types.features import (
    CallToolRequest,
    CallToolResult,
    ClientCapabilities,
    ListToolsRequest,
    PingRequest,
    RootsCapability,
    SamplingCapability,
)

# Requests


@pytest.mark.req("PING-01", "RPC-08", "RPC-10", "RPC-21")
@pytest.mark.parametrize("id", [0, -1, "1", "", "ü", 2**53 + 1, 2**70, -(10**300)])
def test_ping_is_answered_in_every_phase_with_its_id(id: Any) -> None:
    initializing = ClientConnection(INFO)
    initializing.send_initialize(now=0.0)
    initializing.data_to_send()
    closing = server()
    closing.close(0.0)
    for connection in (new_server(), ClientConnection(INFO), initializing, server(), client(), closing):
        message = request("ping", id)
        assert one(connection, message, via="x") == Answered("ping", None, message, "x")
        assert sent(connection)[0] == {"jsonrpc": "2.0", "id": id, "result": {}}


@pytest.mark.req("RPC-03", "RPC-05", "RPC-17")
def test_request_event_has_type_context_and_raw_message() -> None:
    connection = server("2025-06-18")
    message = request("tools/call", "a", name="t", arguments={"x": 1}, later=[1])
    event = one(connection, message, via="exchange")
    assert isinstance(event, RequestReceived)
    assert event.request == CallToolRequest("t", {"x": 1}, extra={"later": [1]})
    assert (event.id, event.raw, event.reused_id) == (1, message, False)
    assert (event.context.revision.name, event.context.via) == ("2025-06-18", "exchange")
    assert connection.unanswered[0].method == "tools/call"


@pytest.mark.req("RPC-16", "CAP-05", "CAP-07", "PING-04")
@pytest.mark.parametrize(
    "method",
    ["unknown", "", "Tools/list", "prompts/list", "resources/subscribe", "roots/list", "rpc.x"],
)
def test_undeclared_method_is_not_found(method: str) -> None:
    connection = server()
    event = one(connection, request(method, 5))
    assert isinstance(event, Answered)
    (answer,) = sent(connection)
    assert (answer["id"], answer["error"]["code"]) == (5, -32601)
    assert connection.pending.incoming == ()


@pytest.mark.req("RPC-16")
def test_method_of_another_revision_is_not_found() -> None:
    connection = client("2025-03-26")
    connection.capabilities = ClientCapabilities(elicitation=None)
    one(connection, request("elicitation/create", message="x", requestedSchema={"type": "object", "properties": {}}))
    assert sent(connection)[0]["error"]["code"] == -32601


def test_registered_custom_method_is_served() -> None:
    connection = server(custom_methods=frozenset({"acme/do"}))
    event = one(connection, request("acme/do", x=1))
    assert event.request == CustomRequest("acme/do", {"x": 1})
    assert connection.pending.incoming == (1,)


@pytest.mark.req("LIFE-11")
@pytest.mark.parametrize(
    "connection", [new_server(), ClientConnection(INFO, ClientCapabilities(roots=RootsCapability()))]
)
def test_request_before_the_handshake_is_refused(connection: Connection) -> None:
    method = "tools/list" if isinstance(connection, ServerConnection) else "roots/list"
    assert isinstance(one(connection, request(method)), Answered)
    (answer,) = sent(connection)
    assert (answer["error"]["code"], answer["error"]["data"]) == (-32600, {"reason": "not initialized"})
    assert connection.pending.incoming == ()


@pytest.mark.req("LIFE-22")
@pytest.mark.parametrize("method", ["unknown", "sampling/createMessage"])
def test_unknown_method_before_the_handshake_is_not_found(method: str) -> None:
    connection = new_server()
    one(connection, request(method))
    assert sent(connection)[0]["error"]["code"] == -32601
    assert connection.phase is Phase.NEW


@pytest.mark.req("ENV-03", "ERA-10")
@pytest.mark.parametrize("method", ["server/discover", "subscriptions/listen"])
def test_stateless_method_without_an_envelope_gets_a_specific_error_in_any_phase(method: str) -> None:
    for connection in (new_server(), server()):
        one(connection, request(method))
        assert sent(connection)[0]["error"]["code"] == -32602
    connection = new_server(revisions=HANDSHAKE_REVISIONS)
    one(connection, request(method))
    assert sent(connection)[0]["error"]["code"] == -32601


def test_custom_method_before_the_handshake_is_refused() -> None:
    connection = new_server(custom_methods=frozenset({"acme/do"}))
    one(connection, request("acme/do"))
    assert sent(connection)[0]["error"]["code"] == -32600


@pytest.mark.req("RPC-15")
@pytest.mark.parametrize(
    ("message", "path"),
    [
        (request("tools/call", name=5), "params.name"),
        (request("tools/call", arguments={}), "params.name"),
        (request("tools/call", name="x", arguments=[]), "params.arguments"),
        (request("tools/call", name="x", _meta=[]), "params._meta"),
    ],
)
def test_invalid_params_are_refused_with_their_path(message: Any, path: str) -> None:
    connection = server()
    event = one(connection, message)
    assert isinstance(event, Answered)
    (answer,) = sent(connection)
    assert (answer["error"]["code"], answer["error"]["data"]["path"]) == (-32602, path)
    assert answer["error"]["message"].startswith("Invalid params: params.")
    assert connection.pending.incoming == ()


def test_params_of_the_wrong_type_have_no_inner_path() -> None:
    connection = server()
    one(connection, {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": 1}})
    assert sent(connection)[0]["error"]["data"]["path"] == "params.uri"


@pytest.mark.req("META-07", "META-01")
@pytest.mark.parametrize("meta", [{"progressToken": None}, {"-bad key-": 1}, {"io.modelcontextprotocol/x": []}, {}])
def test_other_members_of_meta_are_accepted(meta: Any) -> None:
    event = one(server(), request("tools/call", name="x", _meta=meta))
    assert event.request.meta == meta


@pytest.mark.req("LIFE-17")
def test_request_while_closing_is_refused() -> None:
    connection = server()
    running = one(connection, call("a"))
    connection.close(0.0)
    one(connection, call("b"))
    (answer,) = sent(connection)
    assert (answer["id"], answer["error"]["data"]) == ("b", {"reason": "closing"})
    connection.send_result(running.id, CallToolResult(()))
    assert [message and message["id"] for message in sent(connection)] == ["a", None]


# Responses


@pytest.mark.req("RPC-18")
def test_second_answer_is_a_violation() -> None:
    connection = client()
    connection.send_request(PingRequest(), now=0.0)
    response, again = feed(connection, result(2), result(2))
    assert isinstance(response, ResponseReceived)
    assert isinstance(again, ProtocolViolated)
    assert str(again.error) == "a response to id 2, which was answered before"
    assert str(one(connection, result(9)).error) == "a response to id 9, which was never sent"


@pytest.mark.req("CANC-07", "CANC-08", "TIME-01")
def test_answer_to_a_cancelled_request_is_ignored_as_late() -> None:
    connection = client()
    cancelled = connection.send_request(PingRequest(), now=0.0)
    overdue = connection.send_request(PingRequest(), now=0.0, timeout=1.0)
    lost = connection.send_request(PingRequest(), now=0.0)
    connection.cancel_request(cancelled)
    connection.handle_timeout(1.0)
    connection.close(1.0)
    assert [type(event) for event in connection.events()] == [RequestFailed] * 3
    for id in (cancelled, overdue, lost):
        for late in (result(int(id)), {"jsonrpc": "2.0", "id": int(id), "error": {"code": 1, "message": "x"}}):
            assert one(connection, late) == MessageIgnored(IgnoreReason.LATE_RESPONSE, late, None)
    assert isinstance(one(connection, result(99)), ProtocolViolated)


@pytest.mark.req("RPC-11")
def test_error_response_fails_the_request_with_code_and_data() -> None:
    connection = client()
    connection.send_request(PingRequest(), now=0.0, cookie="c")
    message = {"jsonrpc": "2.0", "id": 2, "error": {"code": -5, "message": "no", "data": [1]}}
    nobodys = {"jsonrpc": "2.0", "error": message["error"]}
    assert one(connection, nobodys) == MessageIgnored(IgnoreReason.CONNECTION_ERROR, nobodys, None)
    event = one(connection, message)
    assert isinstance(event, RequestFailed)
    assert isinstance(event.error, RequestError)
    assert (event.error.code, event.error.message, event.error.data) == (-5, "no", [1])
    assert (event.id, event.cookie, event.raw) == (2, "c", message)


def test_unreadable_result_fails_the_request() -> None:
    connection = client()
    connection.send_request(ListToolsRequest(), now=0.0)
    event = one(connection, result(2, tools={}))
    assert isinstance(event, RequestFailed)
    assert isinstance(event.error, InvalidMessage)
    assert event.error.path == "tools"
    assert isinstance(one(connection, result(2, tools=[])), ProtocolViolated)


def test_custom_request_gets_the_plain_mapping() -> None:
    connection = client()
    connection.send_request(CustomRequest("acme/do"), now=0.0)
    event = one(connection, result(2, x=[1]))
    assert isinstance(event, ResponseReceived)
    assert event.result == {"x": [1]}


# Notifications


def test_notification_event_has_its_type_or_name() -> None:
    connection = server()
    typed, custom = feed(connection, note("roots/list_changed"), note("acme", x=1), via="e")
    assert typed.notification == RootsListChangedNotification()
    assert custom.notification == CustomNotification("notifications/acme", {"x": 1})
    assert (typed.context.via, custom.raw) == ("e", note("acme", x=1))


def test_invalid_notification_is_a_violation() -> None:
    connection = server()
    request = {"jsonrpc": "2.0", "method": "tools/list"}
    for message in (note("cancelled", requestId=1.0), note("progress"), note("roots/list_changed", _meta=5), request):
        assert isinstance(one(connection, message), ProtocolViolated)
    assert not connection.wants_write


def test_notification_for_the_other_role_or_too_early_is_ignored() -> None:
    assert one(server(), note("tools/list_changed")).reason is IgnoreReason.WRONG_DIRECTION
    assert one(client(), note("initialized")).reason is IgnoreReason.WRONG_DIRECTION
    assert one(client(), note("roots/list_changed")).reason is IgnoreReason.WRONG_DIRECTION
    assert one(new_server(), note("initialized")).reason is IgnoreReason.NOT_INITIALIZED
    assert one(new_server(), note("roots/list_changed")).reason is IgnoreReason.NOT_INITIALIZED
    assert one(new_server(), note("acme")).reason is IgnoreReason.NOT_INITIALIZED
    assert one(ClientConnection(INFO), note("tools/list_changed")).reason is IgnoreReason.NOT_INITIALIZED


# Cancellation


@pytest.mark.req("CANC-01", "CANC-05", "CANC-09")
def test_answer_to_a_cancelled_request_is_not_sent() -> None:
    connection = server()
    event = one(connection, call("a", progressToken=1))
    message = note("cancelled", requestId="a", reason="bored")
    assert one(connection, message) == CancelReceived(event.id, "bored", message)
    connection.send_progress(event.id, 1)
    connection.send_result(event.id, CallToolResult(()))
    connection.send_error(event.id, RequestError(1, "x"))
    connection.send_raw_result(event.id, b"{}")
    assert sent(connection) == []


@pytest.mark.req("CANC-06")
def test_cancellation_of_an_unknown_request_is_ignored() -> None:
    connection = server()
    feed(connection, call(1), via="a")
    feed(connection, call(1), via="b")
    reasons = [one(connection, note("cancelled", **named)).reason for named in ({"requestId": 1}, {"requestId": 2}, {})]
    assert reasons == [IgnoreReason.AMBIGUOUS_REQUEST, *[IgnoreReason.UNKNOWN_REQUEST] * 2]


# Progress


@pytest.mark.req("PROG-02", "PROG-04", "PROG-08")
def test_progress_that_does_not_increase_is_a_violation() -> None:
    connection = client()
    id = connection.send_request(ListToolsRequest(), now=0.0, progress=True, cookie="c")
    first = one(connection, note("progress", progressToken=int(id), progress=-1.5, total=10, message="m"))
    assert isinstance(first, ProgressReceived)
    assert (first.id, first.progress, first.total, first.message, first.cookie) == (id, -1.5, 10, "m", "c")
    for stale in (-1.5, -2):
        violated = one(connection, note("progress", progressToken=int(id), progress=stale))
        assert isinstance(violated, ProtocolViolated)
        assert str(violated.error) == f"progress went from -1.5 to {stale!r}: it must increase"
    assert isinstance(one(connection, note("progress", progressToken=int(id), progress=0)), ProgressReceived)


@pytest.mark.req("PROG-03", "PROG-05")
def test_progress_without_a_pending_request_is_ignored_as_late_or_unknown() -> None:
    connection = client()
    over = int(connection.send_request(ListToolsRequest(), now=0.0, progress=True))
    silent = int(connection.send_request(ListToolsRequest(), now=0.0))
    connection.cancel_request(connection.pending.outgoing[0])
    list(connection.events())
    reasons = [
        one(connection, note("progress", progressToken=token, progress=1)).reason
        for token in (over, silent, str(over), str(silent), 99, "x", 0)
    ]
    assert reasons == [IgnoreReason.LATE_PROGRESS, *[IgnoreReason.UNKNOWN_TOKEN] * 6]


@pytest.mark.req("TIME-03")
def test_progress_restarts_the_idle_timeout_only() -> None:
    connection = client()
    id = int(connection.send_request(ListToolsRequest(), now=0.0, progress=True, timeout=Timeout(10.0, idle=4.0)))
    deadlines = [connection.next_deadline()]
    for step, now in enumerate((3.0, 6.0, 9.0)):
        connection.receive_message(json.dumps(note("progress", progressToken=id, progress=step)), now)
        assert len(list(connection.events())) == 1
        deadlines.append(connection.next_deadline())
    assert deadlines == [4.0, 7.0, 10.0, 10.0]


# What is no message


def test_each_refusal_is_reported_and_runs_nothing() -> None:
    connection = server(limits=Limits(incoming_requests=1))
    one(connection, call("runs"))
    for message in (call("runs"), call("one too many")):
        assert isinstance(one(connection, message), Answered)
    one(connection, note("cancelled", requestId="runs"))
    assert isinstance(one(connection, call("no token", progressToken=1.5)), Answered)
    assert [answer["error"]["code"] for answer in sent(connection)] == [-32600, -32603, -32602]
    assert connection.pending.incoming == ()


def test_invalid_json_is_a_violation_for_servers_and_noise_for_clients() -> None:
    for connection, codes in ((server(), [-32700, -32600]), (client(), [-32600])):
        connection.receive_data(b'rubbish\n{"jsonrpc": "2.0", "method": 5}\n{}\n', 0.0)
        first, unanswered, fault = connection.events()
        assert isinstance(first, ProtocolViolated if isinstance(connection, ServerConnection) else NoiseReceived)
        assert isinstance(unanswered, ProtocolViolated)
        assert isinstance(fault, ProtocolViolated)
        assert [answer["error"]["code"] for answer in sent(connection)] == codes


def test_overlong_message_ends_the_connection_without_resync() -> None:
    phases = []
    for resync, via in ((False, None), (True, None), (False, "exchange")):
        connection = server(limits=Limits(message_bytes=200, resync=resync))
        connection.receive_message("x" * 201, 0.0, via=via)
        assert isinstance(connection.next_event(), ProtocolViolated)
        phases.append(connection.phase)
    assert phases == [Phase.CLOSING, Phase.OPERATING, Phase.OPERATING]


# Batches


@pytest.mark.req("BATCH-01", "BATCH-05", "BATCH-07")
def test_batch_items_are_received_in_order() -> None:
    connection = server("2025-03-26")
    first, second, cancelled, noted, answered, faulty = feed(
        connection,
        [call(1), call(2), note("cancelled", requestId=1), note("acme"), request("ping", 3), 5],
        via="e",
    )
    assert isinstance(cancelled, CancelReceived)
    assert isinstance(noted, NotificationReceived)
    assert isinstance(answered, Answered)
    assert isinstance(faulty, ProtocolViolated)
    assert (cancelled.id, second.context.via) == (first.id, "e")
    assert sent(connection) == []
    connection.send_result(second.id, CallToolResult(()))
    (answers,) = sent(connection)  # an exchange has one answer
    assert {answer["id"] for answer in answers} == {2, 3, None}


@pytest.mark.req("BATCH-05")
def test_batch_without_requests_gets_no_reply() -> None:
    connection = server("2025-03-26")
    assert len(feed(connection, [note("a"), note("b")])) == 2
    assert sent(connection) == []


@pytest.mark.req("BATCH-04")
def test_response_among_requests_is_refused_and_the_rest_runs() -> None:
    connection = client("2025-03-26")
    id = int(connection.send_request(PingRequest(), now=0.0))
    sent(connection)
    violated, answered, other = feed(
        connection,
        [result(id), request("ping", "a"), {"jsonrpc": "2.0", "id": id, "error": {"code": 1, "message": ""}}],
    )
    assert isinstance(violated, ProtocolViolated)
    assert isinstance(answered, Answered)
    assert isinstance(other, ProtocolViolated)
    assert connection.pending.outgoing == (id,)
    assert [message.get("error", {}).get("code") for message in sent(connection)] == [-32600, None, -32600]
    (response,) = feed(connection, [result(id)])
    assert isinstance(response, ResponseReceived)


def test_array_outside_batch_revisions_gets_one_error() -> None:
    for connection, batch in (
        (server("2025-03-26"), []),
        (server("2025-03-26", limits=Limits(batch_items=2)), [note("a")] * 3),
        (server("2025-06-18"), [request("ping")]),
    ):
        assert isinstance(one(connection, batch), ProtocolViolated)
        assert [answer["error"]["code"] for answer in sent(connection)] == [-32600]


def test_end_of_the_connection_drops_the_batch() -> None:
    connection = server("2025-03-26", limits=Limits(queued_bytes=9 * MESSAGE_COST))
    *answered, end = feed(connection, [request("ping", number) for number in range(200)])
    assert {type(event) for event in answered} == {Answered}
    assert end == ConnectionClosed(CloseReason.SLOW_CONSUMER, None)


@pytest.mark.req("BATCH-04")
def test_batch_within_a_batch_is_refused() -> None:
    connection = server("2025-03-26")
    violated, answered = feed(connection, [[request("ping")], request("ping", 2)])
    assert isinstance(violated, ProtocolViolated)
    assert isinstance(answered, Answered)
    assert violated.raw == [request("ping")]


@pytest.mark.req("LIFE-16")
def test_peer_holds_the_instructions_of_the_server() -> None:
    connection = client()
    restored = ClientConnection.restore(connection.snapshot(0.0), 0.0)
    assert restored.peer == connection.peer
    assert (restored.instructions, restored.revision) == (None, connection.revision)


def test_options_property_returns_the_options() -> None:
    assert server(accept_batches=True).options == Options(accept_batches=True)


def test_profile_option_accepts_the_dialect() -> None:
    connection = server(profiles={Profile.ERLMCP}, join_batch_answers=True)
    cancel = {"jsonrpc": "2.0", "method": "requests/cancel", "params": {"requestId": 1}}
    batch = [call(1), {"jsonrpc": "2.0", "id": 2, "method": "ping"}]
    events = feed(connection, batch, cancel)
    assert [type(event) for event in events] == [RequestReceived, Answered, CancelReceived]
    assert [[answer["id"] for answer in message] for message in sent(connection)] == [[2]]


# Members that a message is read without


def test_request_with_an_odd_description_is_served_and_reported() -> None:
    connection = ClientConnection(INFO, ClientCapabilities(sampling=SamplingCapability()))
    connection.send_initialize(0.0)
    answer = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
    feed(connection, result(1, **answer))
    text = {"type": "text", "text": "q", "annotations": {"audience": 5}}
    asked = request("sampling/createMessage", messages=[{"role": "user", "content": text}], maxTokens=5)
    violated, received = feed(connection, asked, via="an exchange")
    assert isinstance(violated, ProtocolViolated)
    assert (violated.error.code, violated.via) == (-32602, "an exchange")
    assert str(violated.error) == (
        "sampling/createMessage is read without a member: Annotations.audience: expected an array, got a number"
    )
    assert isinstance(received, RequestReceived)
    assert received.request.messages[0].content.annotations.audience is None


def test_result_with_odd_annotations_is_returned_and_reported() -> None:
    connection = client()
    id = connection.send_request(CallToolRequest("x"), 0.0)
    text = {"type": "text", "text": "a", "annotations": {"audience": 5}}
    violated, response = feed(connection, result(int(id), content=[text]))
    assert isinstance(violated, ProtocolViolated)
    assert str(violated.error) == (
        "the result of tools/call is read without a member: Annotations.audience: expected an array, got a number"
    )
    assert isinstance(response, ResponseReceived)
    assert response.result.content[0].text == "a"


def test_notification_with_a_null_meta_is_given_and_reported() -> None:
    changed = {**note("tools/list_changed"), "params": {"_meta": None}}
    violated, received = feed(client(), changed)
    assert isinstance(violated, ProtocolViolated)
    assert str(violated.error).startswith("notifications/tools/list_changed is read without a member: ")
    assert isinstance(received, NotificationReceived)
