"""The verbs that send, and what can be looked at."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
import wires
from wires import INFO, call, feed, result, sent

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.dialect import BatchItem
from mcpio.engine.limits import DEFAULT, Limits, Timeout
from mcpio.engine.options import Options
from mcpio.engine.pending import Pending
from mcpio.engine.server import ServerConnection
from mcpio.errors import (
    ConnectionLost,
    LocalProtocolError,
    NoBackChannel,
    RequestCancelled,
    RequestError,
    RequestTimeout,
)
from mcpio.events import (
    CloseReason,
    ConnectionClosed,
    IncomingId,
    OutgoingId,
    ProgressReceived,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
)
from mcpio.profiles import Profile
from mcpio.revisions import HANDSHAKE_REVISIONS, REVISIONS
from mcpio.types.asking import ListRootsRequest
from mcpio.types.base import CustomNotification, CustomRequest
from mcpio.types.content import ResourceLink, TextContent
from mcpio.types.features import (
    CallToolRequest,
    CallToolResult,
    EmptyResult,
    ListToolsRequest,
    LoggingMessageNotification,
    PingRequest,
    ResourcesCapability,
    ResourceUpdatedNotification,
    ServerCapabilities,
    ToolListChangedNotification,
    ToolsCapability,
)

OFFERS = ServerCapabilities(
    tools=ToolsCapability(list_changed=True), resources=ResourcesCapability(subscribe=True), logging={}
)
OPTIONS = Options(custom_methods=frozenset({"acme/do"}))
client = partial(wires.client, request_timeout=Timeout(16.0))
server = partial(wires.server, offers=OFFERS, roots=True, request_timeout=Timeout(16.0), custom_methods={"acme/do"})


def received(connection: Connection, message: Any, via: Any = None) -> RequestReceived:
    (event,) = feed(connection, message, via=via)
    assert isinstance(event, RequestReceived)
    return event


# Requests of our own


@pytest.mark.req("RPC-01", "RPC-03", "RPC-05")
def test_request_has_our_id_and_its_response_the_cookie() -> None:
    connection, cookie = client(), object()
    id = connection.send_request(CallToolRequest("x", {"a": 1}), now=0.0, cookie=cookie)
    assert (type(id), connection.pending) == (OutgoingId, Pending((id,), ()))
    assert sent(connection) == [
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "x", "arguments": {"a": 1}}}
    ]
    (response,) = feed(connection, result(id, content=[{"type": "text", "text": "hi"}]))
    assert isinstance(response, ResponseReceived)
    assert response.cookie is cookie
    assert (response.id, response.result) == (id, CallToolResult((TextContent("hi"),)))
    assert connection.pending == Pending((), ())


def test_request_without_params_omits_them() -> None:
    connection = client()
    connection.send_request(PingRequest(), now=0.0)
    connection.send_request(CustomRequest("acme/ask"), now=0.0)
    connection.send_notification(CustomNotification("acme/tell"))
    assert [set(message) for message in sent(connection)] == [{"jsonrpc", "id", "method"}] * 2 + [{"jsonrpc", "method"}]


@pytest.mark.req("RPC-05", "RPC-08")
def test_ids_of_both_directions_are_independent() -> None:
    connection = server()
    ours = connection.send_request(ListRootsRequest(), now=0.0)
    theirs = received(connection, call(int(ours)))
    assert (ours, theirs.id) == (1, 1)
    (response,) = feed(connection, result(ours, roots=[]))
    assert isinstance(response, ResponseReceived)
    connection.send_result(theirs.id, CallToolResult(()))
    assert [message["id"] for message in sent(connection)] == [1, 1]


@pytest.mark.req("TIME-01", "TIME-02", "TIME-03")
@pytest.mark.parametrize(
    ("timeout", "deadline", "kind"),
    [
        (DEFAULT, 17.0, "total"),
        (5, 6.0, "total"),
        (Timeout(None, idle=2.0), 3.0, "idle"),
        (Timeout(5.0, idle=2.0), 3.0, "idle"),
        (Timeout(2.0, idle=2.0), 3.0, "total"),
        (0, 1.0, "total"),
    ],
)
def test_request_past_its_deadline_fails_and_is_cancelled(timeout: Any, deadline: float, kind: str) -> None:
    connection = client()
    id = connection.send_request(ListToolsRequest(), now=1.0, timeout=timeout)
    sent(connection)
    assert connection.next_deadline() == deadline
    connection.handle_timeout(deadline)
    (failed,) = connection.events()
    assert isinstance(failed, RequestFailed)
    assert isinstance(failed.error, RequestTimeout)
    assert (failed.id, failed.error.kind, failed.error.seconds) == (id, kind, deadline - 1.0)
    assert [message["params"] for message in sent(connection)] == [{"requestId": int(id), "reason": "timeout"}]
    assert repr(DEFAULT) == "DEFAULT"


@pytest.mark.req("TIME-02")
@pytest.mark.parametrize("timeout", [None, float("inf"), Timeout(None)])
def test_request_without_timeout_never_expires(timeout: Any) -> None:
    connection = client()
    connection.send_request(ListToolsRequest(), now=1.0, timeout=timeout)
    assert connection.next_deadline() is None


@pytest.mark.req("PROG-01", "PROG-05")
def test_progress_token_is_unique_among_requests() -> None:
    connection = client()
    one = connection.send_request(CallToolRequest("x", meta={"a.b/c": 1}), now=0.0, progress=True)
    two = connection.send_request(CustomRequest("acme/ask", {"_meta": {"k": 1}}), now=0.0, progress=True)
    metas = [message["params"]["_meta"] for message in sent(connection)]
    assert metas == [{"a.b/c": 1, "progressToken": 2}, {"k": 1, "progressToken": 3}]
    note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 3, "progress": 1}}
    (event,) = feed(connection, note)
    assert isinstance(event, ProgressReceived)
    assert (one, event.id) == (2, two)


@pytest.mark.req("CANC-01", "CANC-02", "CANC-08")
def test_cancelled_request_fails_at_once_and_once() -> None:
    connection = client()
    id = connection.send_request(ListToolsRequest(), now=0.0, cookie="c")
    assert connection.cancel_request(id, "bored")
    assert not connection.cancel_request(id)
    (failed,) = connection.events()
    assert isinstance(failed, RequestFailed)
    assert isinstance(failed.error, RequestCancelled)
    assert (failed.cookie, failed.error.reason, connection.next_deadline()) == ("c", "bored", None)
    request, cancelled = sent(connection)
    assert cancelled["params"] == {"requestId": request["id"], "reason": "bored"}
    for unknown in (99, 0, -1):
        with pytest.raises(LocalProtocolError, match=f"there never was a request {unknown}"):
            connection.cancel_request(OutgoingId(unknown))


def test_cancellation_follows_its_request_and_avoids_a_finished_exchange() -> None:
    connection = server()
    parent = received(connection, call("p"), via="exchange")
    for _ in range(3):
        connection.send_notification(LoggingMessageNotification("info", 1), related_to=parent.id)
    one, two = (connection.send_request(ListRootsRequest(), now=0.0, related_to=parent.id) for _ in range(2))
    connection.cancel_request(one)
    connection.send_result(parent.id, CallToolResult(()))
    connection.cancel_request(two)
    order = []
    while (message := connection.next_message()) is not None:
        order.append((json.loads(message.text).get("method", "result"), message.via, message.last))
    assert order == [
        *[("notifications/message", "exchange", False)] * 3,
        *[("roots/list", "exchange", False)] * 2,
        ("notifications/cancelled", "exchange", False),
        ("result", "exchange", True),
        ("notifications/cancelled", None, False),
    ]


def test_request_beyond_the_limit_is_refused() -> None:
    connection = client(limits=Limits(outgoing_requests=2))
    first = connection.send_request(PingRequest(), now=0.0)
    connection.send_request(PingRequest(), now=0.0)
    with pytest.raises(LocalProtocolError, match="2 requests wait for an answer already"):
        connection.send_request(PingRequest(), now=0.0)
    connection.cancel_request(first)
    connection.send_request(PingRequest(), now=0.0)


@pytest.mark.req("LIFE-19", "TIME-01")
def test_expired_handshake_ends_the_connection_without_cancellation() -> None:
    connection = ClientConnection(INFO)
    with pytest.raises(LocalProtocolError, match="cannot send another request in phase new as a client"):
        connection.send_request(ListToolsRequest(), now=0.0)
    with pytest.raises(LocalProtocolError, match="must be a number of seconds"):
        connection.send_initialize(now=0.0, timeout=-1)
    id = connection.send_initialize(now=0.0, timeout=3.0)
    with pytest.raises(LocalProtocolError, match="initialize cannot be cancelled: close the connection instead"):
        connection.cancel_request(id)
    connection.handle_timeout(3.0)
    failed, closed = connection.events()
    assert isinstance(failed, RequestFailed)
    assert closed == ConnectionClosed(CloseReason.HANDSHAKE_FAILED, failed.error)


@pytest.mark.req("LIFE-14", "CAP-05")
def test_message_that_the_session_forbids_is_refused() -> None:
    connection = client()
    with pytest.raises(LocalProtocolError, match="roots/list is not for a client to send"):
        connection.send_request(ListRootsRequest(), now=0.0)
    with pytest.raises(LocalProtocolError, match="is not for a client to send"):
        connection.send_notification(ToolListChangedNotification())


# Answers


@pytest.mark.req("RPC-08", "RPC-10")
def test_request_is_answered_once_with_its_typed_result() -> None:
    connection = server()
    event = received(connection, call("a"))
    wrongs: list[Any] = [EmptyResult(), {}, None]
    for wrong in wrongs:
        with pytest.raises(LocalProtocolError, match="the result of tools/call must be a CallToolResult, not a "):
            connection.send_result(event.id, wrong)
    connection.send_result(event.id, CallToolResult((TextContent("hi"),)))
    assert sent(connection) == [{"jsonrpc": "2.0", "id": "a", "result": {"content": [{"type": "text", "text": "hi"}]}}]
    with pytest.raises(LocalProtocolError, match="the peer's request 1 was answered before"):
        connection.send_error(event.id, RequestError(1, "x"))
    with pytest.raises(LocalProtocolError, match="the peer never sent a request 2"):
        connection.send_result(IncomingId(2), CallToolResult(()))


def test_custom_request_takes_a_mapping_as_result() -> None:
    connection = server()
    event = received(connection, {"jsonrpc": "2.0", "id": 1, "method": "acme/do"})
    with pytest.raises(LocalProtocolError, match="the result of acme/do must be a mapping, not list"):
        connection.send_result(event.id, [])
    with pytest.raises(LocalProtocolError, match="is not a key for _meta"):
        connection.send_result(event.id, {"_meta": {"-": 1}})
    connection.send_result(event.id, {"x": 1})
    assert sent(connection) == [result(1, x=1)]


def test_raw_result_is_sent_unchanged() -> None:
    connection = server()
    event = received(connection, call(7))
    for wrong in (b"[]", b"rubbish", b"{", b"\xff"):
        with pytest.raises(LocalProtocolError, match="not expressible in JSON"):
            connection.send_raw_result(event.id, wrong)
    connection.send_raw_result(event.id, b'{ "x":\n1.0}')
    assert connection.data_to_send() == [b'{"jsonrpc":"2.0","id":7,"result":{ "x": 1.0}}\n']


def test_kept_result_is_encoded_once() -> None:
    connection = server()
    kept: dict[Any, bytes] = {}
    found = CallToolResult((TextContent("x"),))
    first, second = received(connection, call(1)), received(connection, call('"result":'))
    connection.send_result(first.id, found, kept=kept)
    assert list(kept.values()) == [b'{"content":[{"type":"text","text":"x"}]}']
    connection.send_result(second.id, found, kept=dict.fromkeys(kept, b'{"kept":1}'))
    assert sent(connection) == [result(1, content=[{"type": "text", "text": "x"}]), result('"result":', kept=1)]


def test_kept_result_in_a_dialect_is_not_kept() -> None:
    connection = server(emit_profile=Profile.ERLMCP)
    kept: dict[Any, bytes] = {}
    connection.send_result(received(connection, call(1)).id, CallToolResult(()), kept=kept)
    assert (kept, len(sent(connection))) == ({}, 1)


@pytest.mark.req("CANC-05", "CANC-08")
def test_answers_to_any_number_of_cancelled_requests_are_dropped() -> None:
    connection = server()
    events = [received(connection, call(number, progressToken=number)) for number in range(300)]
    for number in range(300):
        feed(connection, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
    for event in events:
        connection.send_progress(event.id, 1)
        connection.send_notification(LoggingMessageNotification("info", 1), related_to=event.id)
        connection.send_result(event.id, CallToolResult(()))
    assert sent(connection) == []
    with pytest.raises(LocalProtocolError, match="the peer's request 5 is not running"):
        connection.send_request(PingRequest(), now=0.0, related_to=IncomingId(5))


@pytest.mark.req("CANC-05")
@pytest.mark.parametrize("revisions", [HANDSHAKE_REVISIONS, REVISIONS])
def test_notification_within_a_cancelled_request_is_dropped_in_any_revision(revisions: Any) -> None:
    connection = server(revisions=revisions)
    event = received(connection, call(1))
    feed(connection, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    connection.send_notification(LoggingMessageNotification("info", 1), related_to=event.id)
    assert sent(connection) == []


def test_unwanted_answer_is_dropped_in_every_form() -> None:
    connection = server()
    event = received(connection, call(1))
    feed(connection, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    connection.send_result(event.id, "whatever it is")
    connection.send_raw_result(event.id, b"whatever it is")
    connection.send_error(event.id, RequestError(1, "x"))
    assert sent(connection) == []


def test_request_answered_with_an_error_fails() -> None:
    connection = server()
    event = received(connection, call(1))
    connection.send_error(event.id, RequestError(-5, "no", {"x": 1}))
    assert sent(connection) == [{"jsonrpc": "2.0", "id": 1, "error": {"code": -5, "message": "no", "data": {"x": 1}}}]


# Progress and notifications


@pytest.mark.req("PROG-02", "PROG-03", "PROG-04")
def test_progress_must_increase_while_the_request_runs() -> None:
    connection = server()
    event, silent = received(connection, call(1, progressToken="t")), received(connection, call(2))
    connection.send_progress(event.id, 0.5, 2, "half")
    assert sent(connection)[0]["params"] == {"progressToken": "t", "progress": 0.5, "total": 2, "message": "half"}
    for wrong in (0.5, 0, -1, True, "1", None, float("nan"), float("inf"), -(10**5000)):
        with pytest.raises(LocalProtocolError):
            connection.send_progress(event.id, wrong)  # type: ignore[arg-type]  # the wrong ones
    for total, message in (("2", None), (None, 5), (float("nan"), None), (None, "\ud800")):
        with pytest.raises(LocalProtocolError):
            connection.send_progress(event.id, 1, total, message)  # type: ignore[arg-type]  # the wrong ones
    for wrong in (True, "1", None):
        with pytest.raises(LocalProtocolError, match=r"progress(:| must be| expected)+ a number"):
            connection.send_progress(silent.id, wrong)  # type: ignore[arg-type]  # wrong also where nobody asked
    connection.send_progress(silent.id, 1)
    assert sent(connection) == []
    connection.send_progress(event.id, 10**400)
    connection.send_result(event.id, CallToolResult(()))
    assert [message.get("method") for message in sent(connection)] == ["notifications/progress", None]
    with pytest.raises(LocalProtocolError, match="was answered before"):
        connection.send_progress(event.id, 10**401)


@pytest.mark.req("PROG-02")
def test_first_revision_omits_the_message_of_progress() -> None:
    connection = server("2024-11-05")
    event = received(connection, call(1, progressToken=1))
    connection.send_progress(event.id, 1, message="half")
    assert sent(connection)[0]["params"] == {"progressToken": 1, "progress": 1}


def test_related_messages_take_the_exchange_of_their_request() -> None:
    connection = server()
    event = received(connection, call(1, progressToken=1), via="x")
    connection.send_notification(LoggingMessageNotification("info", 1), related_to=event.id)
    connection.send_progress(event.id, 1)
    connection.send_request(ListRootsRequest(), now=0.0, related_to=event.id)
    connection.send_result(event.id, CallToolResult(()))
    connection.send_notification(ToolListChangedNotification())
    routes = []
    while (message := connection.next_message()) is not None:
        routes.append((message.via, message.related, message.last))
    own = ("x", event.id, False)
    assert routes == [own, (None, None, False), own, own, ("x", event.id, True)]
    with pytest.raises(LocalProtocolError, match="was answered before"):
        connection.send_notification(LoggingMessageNotification("info", 1), related_to=event.id)


def test_change_notifications_coalesce_to_the_newest() -> None:
    connection = server()
    for number in range(3):
        connection.send_notification(ToolListChangedNotification())
        connection.send_notification(ResourceUpdatedNotification(f"a:{number % 2}"))
        connection.send_notification(CustomNotification("acme/list_changed", {"n": number}))
    methods = [message["method"].removeprefix("notifications/") for message in sent(connection)]
    assert sorted(methods) == [*["acme/list_changed"] * 3, *["resources/updated"] * 2, "tools/list_changed"]


@pytest.mark.parametrize("how", ["close", "abort"])
def test_request_sent_before_is_refused_after_the_end(how: str) -> None:
    connection = server()
    for _ in range(2):
        connection.send_request(PingRequest(), now=0.0)
    if how == "close":
        connection.close(0.0)
    else:
        connection.abort()
    with pytest.raises(NoBackChannel, match="cannot send ping: the connection is clos"):
        connection.send_request(PingRequest(), now=0.0)


# The end


def test_closing_connection_raises_no_back_channel() -> None:
    connection = server()
    event = received(connection, call(1))
    connection.close(0.0)
    with pytest.raises(NoBackChannel, match="cannot send another request: the connection is closing"):
        connection.send_request(ListRootsRequest(), now=0.0)
    connection.send_notification(ToolListChangedNotification())
    connection.abort()
    with pytest.raises(NoBackChannel, match="cannot send ping: the connection is closed"):
        connection.send_request(PingRequest(), now=0.0)
    with pytest.raises(NoBackChannel, match="cannot send another notification: the connection is closed"):
        connection.send_notification(ToolListChangedNotification())
    connection.send_result(event.id, CallToolResult(()))
    connection.send_progress(event.id, 1)


@pytest.mark.req("LIFE-17")
@pytest.mark.parametrize("how", ["close", "abort", "lost", "end"])
def test_end_of_the_connection_fails_every_outgoing_request(how: str) -> None:
    connection, cause = client(), OSError("x")
    ids = [connection.send_request(PingRequest(), now=0.0, cookie=number) for number in range(3)]
    match how:
        case "close":
            connection.close(0.0)
        case "abort":
            connection.abort(cause)
        case "lost":
            connection.connection_lost(cause, 0.0)
        case _:
            connection.receive_data(None, 0.0)
    failures = [event for event in connection.events() if isinstance(event, RequestFailed)]
    assert [(failure.id, failure.cookie) for failure in failures] == [(id, n) for n, id in enumerate(ids)]
    assert all(isinstance(failure.error, ConnectionLost) for failure in failures)
    assert {failure.error.__cause__ for failure in failures} == {cause if how in ("abort", "lost") else None}
    assert connection.pending.outgoing == ()
    assert not connection.cancel_request(ids[0])


# Look


def test_properties_change_nothing() -> None:
    connection = server()
    event = received(connection, call("a"), via="x")
    for _ in range(2):
        assert connection.pending == Pending((), (event.id,))
        assert [(each.id, each.method, each.via) for each in connection.unanswered] == [(1, "tools/call", "x")]
        assert connection.peer is not None
        assert connection.peer.info.name == "c"
        assert (connection.wants_read, connection.wants_write, connection.closed) == (True, False, False)
        assert connection.stats.dropped_logs == 0


# The state as a value


def test_restored_session_continues_with_running_requests() -> None:
    connection = server()
    event = received(connection, call("a", progressToken=1))
    id = connection.send_request(ListRootsRequest(), now=0.0, timeout=8.0, cookie="c")
    sent(connection)
    connection.close(0.0, grace=4.0)
    with pytest.raises(LocalProtocolError, match="drain the events"):
        connection.snapshot(0.0)
    assert [failed.id for failed in connection.events() if isinstance(failed, RequestFailed)] == [id]
    moved = ServerConnection.restore(json.loads(json.dumps(connection.snapshot(1.0))), 101.0, options=OPTIONS)
    assert (moved.next_deadline(), moved.unanswered[0].id) == (104.0, event.id)
    moved.send_progress(event.id, 1)
    moved.send_result(event.id, CallToolResult(()))
    assert [message and message.get("id") for message in sent(moved)] == [None, "a", None]
    with pytest.raises(LocalProtocolError, match="a closed connection has no state worth keeping"):
        moved.snapshot(101.0)


def test_snapshot_is_refused_with_undrained_state() -> None:
    connection = client()
    connection.send_request(PingRequest(), now=0.0, cookie=object())
    with pytest.raises(LocalProtocolError, match="write the output"):
        connection.snapshot(0.0)
    sent(connection)
    with pytest.raises(LocalProtocolError, match="in a snapshot, a cookie must be"):
        connection.snapshot(0.0)
    snapshot = client().snapshot(0.0)
    with pytest.raises(LocalProtocolError, match="a snapshot of a client cannot be restored as a server"):
        ServerConnection.restore(snapshot, 0.0)
    with pytest.raises(LocalProtocolError, match="malformed snapshot"):
        ClientConnection.restore({**snapshot, "reason": "?"}, 0.0)
    new = ClientConnection(INFO).snapshot(0.0)
    assert ClientConnection.restore(new, 0.0).revision is None


@pytest.mark.req("BATCH-01", "BATCH-05")
def test_batch_is_sent_and_answered_as_one_array() -> None:
    connection = client("2025-03-26")
    items: list[Any] = [PingRequest(), BatchItem(PingRequest(), 5.0, "c"), CustomNotification("acme/x")]
    first, second, none = connection.send_batch(items, now=0.0)
    assert none is None
    ((asked, again, told),) = sent(connection)
    assert (asked["id"], again["id"], "id" in told) == (first, second, False)
    mistakes: list[list[Any]] = [[], [PingRequest()] * 2000]
    for mistaken in mistakes:
        with pytest.raises(LocalProtocolError, match="a batch must have 1 to 1024 items"):
            connection.send_batch(mistaken, now=0.0)
    with pytest.raises(LocalProtocolError, match="batches are for sessions of 2025-03-26"):
        client().send_batch([PingRequest()], now=0.0)
    joins = server("2025-03-26", join_batch_answers=True)
    feed(joins, [call(1), call(2)])
    for event_id in joins.pending.incoming:
        joins.send_result(event_id, CallToolResult(()))
    assert [[answer["id"] for answer in message] for message in sent(joins)] == [[1, 2]]
    connection.can_reach = lambda via: via is not None
    with pytest.raises(NoBackChannel, match="belongs to no request"):
        connection.send_batch([PingRequest()], now=0.0)


def test_emit_profile_writes_in_the_dialect() -> None:
    connection = server(emit_profile=Profile.ERLMCP)
    event = received(connection, call(1, progressToken="p"))
    connection.send_progress(event.id, 1)
    connection.send_result(event.id, CallToolResult((ResourceLink("n", "x:y"),)))
    progress, answer = sent(connection)
    assert progress["method"] == "progress"
    assert answer["result"]["content"][0]["type"] == "resource/link"


@pytest.mark.req("CAP-05", "XTASK-16")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel"])
def test_custom_request_with_the_name_of_a_method_of_the_session_is_refused(method: str) -> None:
    connection = client()
    with pytest.raises(LocalProtocolError, match=f"{method} is a method of the protocol: send its own type"):
        connection.send_request(CustomRequest(method, {"taskId": "t"}), 0.0)
