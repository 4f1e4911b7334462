"""Stateless requests: served beside the handshake era, each by its own envelope."""

from __future__ import annotations

import json
from typing import Any

import pytest
from stateless import BOTH, CLIENT, HELLO, INFO, LEVEL, ME, MODERN, VERSION, meta, server_of, stateless, tool_call
from weighing import weight
from wires import INITIALIZED, feed, note, one, request, result, sent

from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase
from mcpio.errors import ErrorCode, LocalProtocolError, RequestError
from mcpio.events import (
    Answered,
    CancelReceived,
    IgnoreReason,
    IncomingId,
    MessageIgnored,
    Negotiated,
    ProtocolViolated,
    RequestReceived,
)
from mcpio.revisions import REV_2025_11_25, REV_2026_07_28, Era
from mcpio.types import (
    CallToolRequest,
    CreateMessageRequest,
    ElicitFormRequest,
    ElicitResult,
    ElicitSchema,
    ElicitURLRequest,
    ListRootsRequest,
    ListRootsResult,
    PingRequest,
)
from mcpio.types.base import CustomNotification, InputRequiredResult
from mcpio.types.features import (
    CallToolResult,
    CompleteResult,
    Completion,
    EmptyResult,
    Implementation,
    ListPromptsResult,
    ListToolsResult,
    LoggingMessageNotification,
    ServerCapabilities,
    ToolListChangedNotification,
    ToolsCapability,
)

EVERYTHING = ServerCapabilities(
    tools=ToolsCapability(True), logging={}, completions={}, extensions={"com.example/x": {}}
)


def code(connection: ServerConnection, message: Any, via: Any = None) -> int:
    event = one(connection, message, via)
    assert isinstance(event, Answered)
    assert event.error is not None
    (answer,) = sent(connection)
    assert (answer["id"], answer["error"]["code"]) == (message["id"], event.error.code)
    return event.error.code


def answer(connection: ServerConnection, event: RequestReceived, result: Any) -> dict[str, Any]:
    connection.send_result(event.id, result)
    (message,) = sent(connection)
    return dict(message["result"])


# Which era a request is of


@pytest.mark.req("ERA-10", "ENV-01", "ENV-13")
@pytest.mark.parametrize("revisions", [BOTH, MODERN])
def test_request_with_an_envelope_is_served_without_a_handshake(revisions: Any) -> None:
    connection = server_of(revisions)
    more = {CLIENT: {"name": "c", "version": "2"}, LEVEL: "error"}
    event = one(connection, stateless("tools/call", "a", {"roots": {}}, more, name="x"), via="there")
    context = event.context
    assert (context.era, context.revision, context.log_level) == (Era.STATELESS, REV_2026_07_28, "error")
    assert (context.info, context.principal, context.via) == (Implementation("c", "2"), "me", "there")
    assert context.capabilities.roots is not None
    assert (connection.phase, connection.revision, connection.peer) == (Phase.NEW, None, None)
    assert answer(connection, event, CallToolResult(())) == {"content": [], "resultType": "complete", "_meta": ME}


@pytest.mark.req("ERA-10", "ERA-14")
def test_eras_interleave_in_every_phase_of_the_handshake() -> None:
    connection = server_of()
    feed(connection, tool_call(1))
    hello, _ = feed(connection, request("initialize", 2, **HELLO), tool_call(3))
    assert isinstance(hello, Negotiated)
    assert connection.phase is Phase.INITIALIZING  # a stateless request says nothing about the session
    feed(connection, INITIALIZED, tool_call(4), request("tools/call", 5, name="x"))
    sent(connection)
    for id in range(1, 5):
        connection.send_result(connection.unanswered[0].id, CallToolResult(()))
        (message,) = sent(connection)
        assert message["result"].get("resultType") == (None if message["id"] == 5 else "complete"), id
    assert connection.revision is REV_2025_11_25


@pytest.mark.req("ERA-11", "VER-07", "LIFE-05")
def test_initialize_never_settles_a_stateless_revision() -> None:
    event = one(server_of(), request("initialize", 1, **{**HELLO, "protocolVersion": "2026-07-28"}))
    assert event.revision is REV_2025_11_25
    connection = server_of(MODERN)
    assert code(connection, request("initialize", 1, **HELLO)) == ErrorCode.UNSUPPORTED_VERSION
    event = one(connection, request("initialize", 2, **HELLO))
    assert event.error.data == {"supported": ["2026-07-28"], "requested": "2025-11-25"}


@pytest.mark.req("VER-07", "GONE-01")
def test_initialize_with_an_envelope_is_an_unknown_method() -> None:
    for connection in (server_of(), server_of(MODERN)):
        event = one(connection, stateless("initialize", 1, **HELLO))
        assert event.error.code == ErrorCode.METHOD_NOT_FOUND
        assert event.error.data["requested"] == "2025-11-25"


@pytest.mark.req("GONE-01")
@pytest.mark.parametrize(
    "method",
    ["ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "tasks/list", "tasks/result", "x"],
)
def test_removed_and_unknown_methods_are_not_found(method: str) -> None:
    assert code(server_of(), stateless(method, 1)) == ErrorCode.METHOD_NOT_FOUND


@pytest.mark.req("SHTTP-09")
def test_undeclared_method_is_not_found() -> None:
    assert code(server_of(), stateless("prompts/list", 1)) == ErrorCode.METHOD_NOT_FOUND


@pytest.mark.req("ENV-03", "ERA-10")
def test_stateless_only_request_without_an_envelope_is_invalid() -> None:
    assert code(server_of(), request("server/discover", 1)) == ErrorCode.INVALID_PARAMS
    assert code(server_of(), request("subscriptions/listen", 1)) == ErrorCode.INVALID_PARAMS
    assert code(server_of(), request("tools/list", 1)) == ErrorCode.INVALID_REQUEST  # not initialized
    for method in ("tools/list", "ping", "none"):
        assert code(server_of(MODERN), request(method, 1)) == ErrorCode.INVALID_PARAMS


@pytest.mark.req("ENV-03")
def test_params_of_the_wrong_type_are_refused() -> None:
    assert code(server_of(), stateless("tools/call", 1, name=5)) == ErrorCode.INVALID_PARAMS
    assert code(server_of(), tool_call(1, more={"progressToken": 1.5})) == ErrorCode.INVALID_PARAMS
    assert code(server_of(), stateless("tools/list", 1, more={VERSION: "1"})) == ErrorCode.UNSUPPORTED_VERSION


def test_server_of_the_handshake_era_only_ignores_envelopes() -> None:
    connection = server_of((REV_2025_11_25,))
    assert code(connection, tool_call(1)) == ErrorCode.INVALID_REQUEST
    assert code(connection, stateless("server/discover", 1)) == ErrorCode.METHOD_NOT_FOUND
    feed(connection, request("initialize", 2, **HELLO), INITIALIZED)
    event = one(connection, tool_call(3))
    assert event.context.era is Era.HANDSHAKE


def test_request_to_a_client_without_a_session_is_refused_with_the_way_to_ask() -> None:
    server = server_of()
    feed(server, tool_call())
    with pytest.raises(LocalProtocolError, match="is asked by an InputRequiredResult, as the answer"):
        server.send_request(ListRootsRequest(), now=0.0)


@pytest.mark.req("PAT-01")
def test_response_to_a_server_without_a_session_is_a_violation() -> None:
    event = one(server_of(), result(1))
    assert isinstance(event, ProtocolViolated)


@pytest.mark.req("GONE-01", "PAT-03")
@pytest.mark.parametrize("name", ["initialized", "roots/list_changed", "tasks/status"])
def test_removed_notification_is_ignored(name: str) -> None:
    assert isinstance(one(server_of(MODERN), note(name)), MessageIgnored)


def test_closing_server_refuses_stateless_requests() -> None:
    connection = server_of()
    feed(connection, tool_call(1))
    connection.close(0.0)
    assert code(connection, tool_call(2)) == ErrorCode.INVALID_REQUEST
    assert code(connection, stateless("server/discover", 3)) == ErrorCode.INVALID_REQUEST


def test_custom_method_is_served_in_both_eras() -> None:
    connection = server_of(MODERN, custom_methods=frozenset({"x/y"}))
    event = one(connection, stateless("x/y", 1, a=1))
    assert (event.request.method, event.request.params["a"]) == ("x/y", 1)
    with pytest.raises(LocalProtocolError, match="must be a mapping, not list"):
        connection.send_result(event.id, [])
    assert answer(connection, event, {"b": 1}) == {"b": 1, "resultType": "complete", "_meta": ME}


# Envelopes


@pytest.mark.req("ENV-04")
def test_nothing_is_inferred_from_an_earlier_request() -> None:
    connection = server_of()
    first, second, third, fourth = feed(
        connection,
        tool_call(1, {"elicitation": {}}),
        tool_call(2),
        tool_call(3, {"experimental": {"x": {"n": 1}}}),
        tool_call(4, {"experimental": {"x": {"n": True}}}),
    )
    assert (first.context.capabilities.elicitation is None, second.context.capabilities.elicitation) == (False, None)
    # Python takes 1 and True for equal; JSON does not.
    assert third.context.capabilities.experimental["x"]["n"].__class__ is int
    assert fourth.context.capabilities.experimental["x"]["n"] is True


def test_equal_envelopes_are_decoded_once() -> None:
    connection = server_of()
    nested = {"experimental": {"x": {"l": ["a", None]}}}
    first, second = feed(connection, tool_call(1, nested), tool_call(2, {"roots": {}}))
    token = {"progressToken": 5}
    third, bad = feed(
        connection, tool_call(3, {"roots": {}}, token), tool_call(4, {"roots": {}}, {"progressToken": []})
    )
    assert second.context.capabilities is third.context.capabilities is not first.context.capabilities
    assert isinstance(bad, Answered)


def test_later_capabilities_are_served_at_once() -> None:
    connection = server_of(offers=ServerCapabilities())
    assert code(connection, tool_call(1)) == ErrorCode.METHOD_NOT_FOUND
    connection.capabilities = EVERYTHING
    assert isinstance(one(connection, tool_call(2)), RequestReceived)


# Discovery


@pytest.mark.req("VER-03", "VER-05", "VER-08", "CACHE-01", "ENV-06", "XTASK-12")
def test_discover_is_answered_by_the_engine() -> None:
    connection = server_of(BOTH, EVERYTHING)
    connection.instructions = "be kind"
    event = one(connection, stateless("server/discover", "d"))
    assert isinstance(event, Answered)
    assert event.error is None
    (message,) = sent(connection)
    assert message["result"] == {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28", "2025-11-25"],
        "capabilities": {
            "tools": {"listChanged": True},
            "logging": {},
            "completions": {},
            "extensions": {"com.example/x": {}},
        },
        "instructions": "be kind",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": ME,
    }


@pytest.mark.req("VER-06", "ERA-11")
@pytest.mark.parametrize("version", ["2099-01-01", "2025-11-25"])
def test_discover_with_an_unsupported_version_is_refused(version: str) -> None:
    assert code(server_of(), stateless("server/discover", 1, more={VERSION: version})) == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.req("ENV-06")
def test_server_without_identify_sends_no_name() -> None:
    connection = server_of(identify=False)
    feed(connection, stateless("server/discover"))
    assert "_meta" not in sent(connection)[0]["result"]
    assert answer(connection, one(connection, tool_call()), CallToolResult(())) == {
        "content": [],
        "resultType": "complete",
    }


# Results


@pytest.mark.req("ENV-10", "CACHE-01", "ENV-06")
def test_result_has_a_result_type() -> None:
    connection = server_of(MODERN, EVERYTHING)
    listed = answer(connection, one(connection, stateless("tools/list")), ListToolsResult(()))
    assert listed == {"tools": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private", "_meta": ME}
    hints = ListToolsResult((), ttl_ms=5, cache_scope="public", meta={"a/b": 1})
    listed = answer(connection, one(connection, stateless("tools/list")), hints)
    assert (listed["ttlMs"], listed["cacheScope"], listed["_meta"]) == (5, "public", {**ME, "a/b": 1})
    ref = {"type": "ref/prompt", "name": "p"}
    asked = stateless("completion/complete", ref=ref, argument={"name": "a", "value": "b"})
    completed = answer(connection, one(connection, asked), CompleteResult(Completion(())))
    assert completed["resultType"] == "complete"


@pytest.mark.req("ENV-10", "CACHE-01")
def test_wrong_result_is_refused() -> None:
    connection = server_of(MODERN, EVERYTHING)
    event = one(connection, tool_call())
    wrong: Any
    for wrong in (EmptyResult(), ListPromptsResult(()), {}, None, CallToolResult((), result_type="task")):
        with pytest.raises(LocalProtocolError, match="the result of tools/call"):
            connection.send_result(event.id, wrong)
    listing = one(connection, stateless("tools/list", 2))
    with pytest.raises(LocalProtocolError, match="ttl_ms must be 0 or more, not -1"):
        connection.send_result(listing.id, ListToolsResult((), ttl_ms=-1))
    assert len(connection.pending.incoming) == 2


def test_kept_text_of_a_result_is_kept_for_each_era() -> None:
    connection = server_of()
    feed(connection, request("initialize", 0, **HELLO), INITIALIZED)
    sent(connection)
    kept: dict[Any, bytes] = {}
    page = ListToolsResult(())
    for id in range(1, 5):
        (event,) = feed(connection, stateless("tools/list", id) if id % 2 else request("tools/list", id))
        connection.send_result(event.id, page, kept=kept)
    odd, even, third, fourth = (message["result"] for message in sent(connection))
    stamped = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "_meta": ME}
    assert (odd, even) == (third, fourth) == ({"tools": [], **stamped}, {"tools": []})
    assert len(kept) == 2


@pytest.mark.req("ENV-10", "CACHE-01", "MRTR-01")
def test_raw_result_gets_the_members_that_it_lacks() -> None:
    connection = server_of(MODERN, custom_methods=frozenset({"x"}))
    first, second, third, fourth = feed(
        connection, tool_call(1), stateless("tools/list", 2), tool_call(3), stateless("x", 4)
    )
    connection.send_raw_result(first.id, b'{"content":[]}')
    connection.send_raw_result(second.id, b'{"tools":[],"ttlMs":7}')
    connection.send_raw_result(fourth.id, b'{ "resultType":"odd"}')
    chunks = [chunk for chunk in connection.data_to_send() if chunk is not None]
    assert json.loads(chunks[0])["result"] == {"content": [], "resultType": "complete"}
    filled = {"tools": [], "resultType": "complete", "ttlMs": 7, "cacheScope": "private"}
    assert json.loads(chunks[1])["result"] == filled
    assert b'{ "resultType":"odd"}' in chunks[2]
    for wrong in (b"[]", b"{", b'{"resultType":"complete"}x'):
        with pytest.raises(LocalProtocolError):
            connection.send_raw_result(third.id, wrong)
    connection.send_raw_result(third.id, b'{"resultType":"input_required","requestState":"s"}')
    assert sent(connection)[0]["result"]["requestState"] == "s"
    listing = one(connection, stateless("tools/list", 5))
    with pytest.raises(LocalProtocolError, match="tools/list cannot ask for input"):
        connection.send_raw_result(listing.id, b'{"resultType":"input_required","requestState":"s"}')


# Results that ask for input

FORM = ElicitFormRequest("m", ElicitSchema({}))
LINK = ElicitURLRequest("m", "https://x.example")
SAMPLE = CreateMessageRequest((), 1, tools=())
ANYTHING: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}


def asking(question: Any) -> InputRequiredResult:
    return InputRequiredResult({"k": question})


@pytest.mark.req("MRTR-01", "MRTR-02", "MRTR-03", "ENV-06", "CACHE-02")
def test_tool_may_ask_for_input() -> None:
    connection = server_of(MODERN)
    event = one(connection, tool_call(1, ANYTHING))
    asked = InputRequiredResult({"k": FORM, "r": ListRootsRequest()}, "s")
    assert answer(connection, event, asked) == {
        "resultType": "input_required",
        "inputRequests": {
            "k": {
                "method": "elicitation/create",
                "params": {"message": "m", "requestedSchema": {"type": "object", "properties": {}}},
            },
            "r": {"method": "roots/list"},
        },
        "requestState": "s",
        "_meta": ME,
    }
    reading = one(connection, stateless("resources/read", 2, uri="a:b"))
    assert "ttlMs" not in answer(connection, reading, InputRequiredResult(request_state="s"))


@pytest.mark.req("MRTR-01", "MRTR-02", "MRTR-03", "MRTR-04")
@pytest.mark.parametrize(
    ("declared", "wrong", "match"),
    [
        (ANYTHING, InputRequiredResult(), "inputRequests or requestState must be there"),
        (ANYTHING, asking(CallToolRequest("t")), "k: expected the params of elicitation/create or"),
        (ANYTHING, asking({"method": "roots/list"}), "k: expected the params of elicitation/create or"),
        ({}, asking(FORM), "k: the client did not declare elicitation"),
        ({"elicitation": {}}, asking(LINK), r"elicitation\.url"),
        ({"sampling": {}}, asking(SAMPLE), r"sampling\.tools"),
        ({}, asking(ListRootsRequest()), "k: the client did not declare roots"),
    ],
)
def test_wrong_question_is_refused(declared: dict[str, Any], wrong: InputRequiredResult, match: str) -> None:
    connection = server_of(MODERN)
    event = one(connection, tool_call(1, declared))
    with pytest.raises(LocalProtocolError, match=match):
        connection.send_result(event.id, wrong)
    assert connection.pending.incoming == (event.id,)


@pytest.mark.req("MRTR-12")
@pytest.mark.parametrize(
    ("method", "params"),
    [("tools/call", {"name": "t"}), ("resources/read", {"uri": "a:b"})],
)
def test_answers_come_typed_and_malformed_ones_are_refused(method: str, params: dict[str, Any]) -> None:
    connection = server_of()
    good = {"f": {"action": "decline"}, "r": {"roots": []}}
    event = one(connection, stateless(method, 1, **params, inputResponses=good))
    assert event.request.input_responses == {"f": ElicitResult("decline"), "r": ListRootsResult(())}
    refused = one(connection, stateless(method, 2, **params, inputResponses={**good, "f": {"action": "odd"}}))
    assert (type(refused), refused.error.code) == (Answered, -32602)
    assert refused.error.data == {"path": "params.inputResponses.f.action"}


@pytest.mark.req("PAT-01")
@pytest.mark.parametrize("is_related", [False, True])
def test_server_that_asks_by_a_request_learns_how_to_ask(is_related: bool) -> None:
    connection = server_of(MODERN)
    event = one(connection, tool_call(1, ANYTHING))
    related_to = event.id if is_related else None
    with pytest.raises(LocalProtocolError, match="by an InputRequiredResult"):
        connection.send_request(FORM, 0.0, related_to=related_to)
    with pytest.raises(LocalProtocolError, match="InputRequiredResult" if is_related else "only a session has pings"):
        connection.send_batch([PingRequest()], 0.0, related_to=related_to)
    with pytest.raises(LocalProtocolError, match="only a session has pings"):
        connection.send_request(PingRequest(), 0.0)
    with pytest.raises(LocalProtocolError, match="give related_to="):
        connection.send_notification(LoggingMessageNotification("info", 1))


@pytest.mark.req("MRTR-01")
def test_other_methods_and_the_handshake_era_cannot_ask() -> None:
    connection = server_of()
    feed(connection, request("initialize", 0, **HELLO), INITIALIZED)
    listing, calling = feed(connection, stateless("tools/list", 1), request("tools/call", 2, name="x"))
    with pytest.raises(LocalProtocolError, match="only tools/call, resources/read, prompts/get can"):
        connection.send_result(listing.id, InputRequiredResult(request_state="s"))
    with pytest.raises(LocalProtocolError, match="must be a CallToolResult"):
        connection.send_result(calling.id, InputRequiredResult(request_state="s"))


# Errors


@pytest.mark.req("XERR-02", "XERR-03", "ENV-05")
@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (RequestError(-32050, "x"), "has no meaning yet"),
        (RequestError(-32099, "x"), "has no meaning yet"),
        (RequestError(-32002, "x"), "does not exist in revision 2026-07-28"),
        (RequestError(-32042, "x"), "does not exist in revision 2026-07-28"),
        (RequestError(-32021, "x"), "need the member requiredCapabilities"),
        (RequestError(-32021, "x", {"requiredCapabilities": "roots"}), "need the member requiredCapabilities"),
        (RequestError(-32022, "x", {"supported": ["a"]}), "need the member requested"),
        (ValueError("x"), "a request must fail with a RequestError, not a ValueError"),
    ],
)
def test_error_that_the_era_does_not_have_is_refused(wrong: Any, match: str) -> None:
    connection = server_of()
    event = one(connection, tool_call())
    with pytest.raises(LocalProtocolError, match=match):
        connection.send_error(event.id, wrong)
    assert connection.pending.incoming == (event.id,)


@pytest.mark.req("ENV-05", "XERR-02", "XERR-05")
@pytest.mark.parametrize(
    "right",
    [
        RequestError(-32021, "x", {"requiredCapabilities": {"roots": {}}}),
        RequestError(-32022, "x", {"supported": ["a"], "requested": "b"}),
        RequestError(-32020, "x"),
        RequestError(-32019, "x"),
        RequestError(-32100, "x"),
        RequestError(5, "x"),
    ],
)
def test_error_of_the_era_answers(right: RequestError) -> None:
    connection = server_of()
    connection.send_error(one(connection, tool_call()).id, right)
    assert sent(connection)[0]["error"]["code"] == right.code


# What a request says on the way


@pytest.mark.req("GONE-04", "PAT-02")
def test_log_message_is_sent_at_the_level_that_the_request_names() -> None:
    connection = server_of(MODERN, EVERYTHING)
    silent, some = feed(connection, tool_call(1), tool_call(2, more={LEVEL: "warning"}))
    for event in (silent, some):
        for level in ("info", "warning", "error"):
            log: Any = LoggingMessageNotification(level, "x")
            connection.send_notification(log, related_to=event.id)
    assert [message["params"]["level"] for message in sent(connection)] == ["warning", "error"]
    with pytest.raises(LocalProtocolError, match="log message"):
        connection.send_notification(LoggingMessageNotification("error", "x"))


@pytest.mark.req("PAT-02", "PAT-05")
def test_other_notifications_of_a_request_are_refused() -> None:
    connection = server_of(MODERN, EVERYTHING)
    event = one(connection, tool_call())
    with pytest.raises(LocalProtocolError, match="is for subscriptions"):
        connection.send_notification(ToolListChangedNotification(), related_to=event.id)
    connection.send_notification(CustomNotification("x/y", {"a": 1}), related_to=event.id)
    assert sent(connection) == [{"jsonrpc": "2.0", "method": "x/y", "params": {"a": 1}}]
    undeclared = server_of(MODERN)
    event = one(undeclared, tool_call(1, more={LEVEL: "debug"}))
    with pytest.raises(LocalProtocolError, match="needs the capability logging"):
        undeclared.send_notification(LoggingMessageNotification("error", "x"), related_to=event.id)


@pytest.mark.req("PAT-07", "PROG-04")
def test_progress_is_reported_under_the_token_of_the_request() -> None:
    connection = server_of(MODERN)
    event = one(connection, tool_call(1, more={"progressToken": "p"}))
    connection.send_progress(event.id, 1, 2, "half")
    (message,) = sent(connection)
    assert message["params"] == {"progressToken": "p", "progress": 1, "total": 2, "message": "half"}
    with pytest.raises(LocalProtocolError, match="progress must increase"):
        connection.send_progress(event.id, 1)
    connection.send_progress(one(connection, tool_call(2)).id, 1)
    assert sent(connection) == []


@pytest.mark.req("PAT-04", "PAT-08")
def test_nothing_is_sent_for_a_cancelled_request() -> None:
    connection = server_of(MODERN, EVERYTHING)
    event = one(connection, tool_call(7, more={LEVEL: "debug", "progressToken": 1}))
    cancelled = one(connection, note("cancelled", requestId=7, reason="enough"))
    assert cancelled == CancelReceived(event.id, "enough", cancelled.raw)
    connection.send_notification(LoggingMessageNotification("error", "x"), related_to=event.id)
    connection.send_progress(event.id, 1)
    connection.send_result(event.id, CallToolResult(()))
    assert sent(connection) == []
    ignored = one(connection, note("cancelled", requestId=7))
    assert ignored.reason is IgnoreReason.UNKNOWN_REQUEST


@pytest.mark.req("ENV-12")
def test_id_in_use_is_refused_and_the_first_runs_on() -> None:
    connection = server_of(MODERN)
    first = one(connection, tool_call(1))
    assert code(connection, tool_call(1)) == ErrorCode.INVALID_REQUEST
    assert connection.pending.incoming == (first.id,)
    events = feed(connection, *(tool_call(1) for _ in range(1)), via="a") + feed(connection, tool_call(1), via="b")
    assert [event.context.via for event in events] == ["a", "b"]


def test_task_marks_and_requests_mean_nothing() -> None:
    connection = server_of()
    feed(connection, request("initialize", 0, **HELLO), INITIALIZED)
    sent(connection)
    mark = {"io.modelcontextprotocol/related-task": {"taskId": "t"}}
    event = one(connection, stateless("tools/call", 1, more=mark, name="x", task={"ttl": 5}))
    assert answer(connection, event, CallToolResult(()))["_meta"] == ME


def test_stateless_request_weighs_a_kib_beside_its_message_while_it_runs_and_nothing_after() -> None:
    connection = server_of(MODERN)
    shared = {id(connection._admission), id(connection._stateless)}
    messages: set[int] = set()

    def exchange(number: int) -> IncomingId:
        event: Any = one(connection, tool_call(number, {"roots": {}}, {CLIENT: {"name": "c", "version": "1"}}), number)
        messages.add(id(event.raw))
        return IncomingId(event.id)

    connection.send_result(exchange(0), CallToolResult(()))
    sent(connection)
    idle = weight(connection, set(shared))
    for running in (1, 64):
        ids = [exchange(1000 + number) for number in range(running)]
        assert weight(connection, shared | messages) - idle <= running * 1024
        for id_ in ids:
            connection.send_result(id_, CallToolResult(()))
        sent(connection)
    assert weight(connection, set(shared)) <= idle + 8  # the next id may be a larger integer


# State as a value


def test_stateless_requests_survive_a_snapshot() -> None:
    connection = server_of()
    feed(connection, request("initialize", 0, **HELLO), INITIALIZED, request("tools/call", 1, name="x"))
    event = one(connection, tool_call(2, {"roots": {}}, more={LEVEL: "info"}))
    sent(connection)
    state = json.loads(json.dumps(connection.snapshot(0.0)))
    restored = ServerConnection.restore(state, 0.0, options=connection.options, principal="me")
    assert restored.snapshot(0.0) == state
    for each in (connection, restored):
        record = each._incoming.get(event.id)
        assert record is not None
        assert record.context == event.context
    for each in (connection, restored):
        for waiting in each.unanswered:
            each.send_result(waiting.id, CallToolResult(()))
    assert connection.data_to_send() == restored.data_to_send()


@pytest.mark.parametrize(
    ("options", "envelope", "match"),
    [
        ({"revisions": (REV_2025_11_25,)}, meta(), "must have their revision"),
        ({"revisions": BOTH}, {}, "malformed snapshot: Invalid params"),
        ({"revisions": BOTH}, [], "malformed snapshot"),
    ],
)
def test_snapshot_of_a_request_that_cannot_be_served_is_refused(options: Any, envelope: Any, match: str) -> None:
    connection = server_of(MODERN)
    feed(connection, tool_call(2))
    state = connection.snapshot(0.0)
    state["incoming"][0]["envelope"] = envelope
    with pytest.raises(LocalProtocolError, match=match):
        ServerConnection.restore(state, 0.0, options=server_of(**options).options)


@pytest.mark.parametrize(
    ("info", "capabilities"),
    [
        (Implementation("\ud800", "1"), EVERYTHING),
        (INFO, ServerCapabilities(experimental={"x": {"y": float("nan")}})),
    ],
)
def test_declaration_that_cannot_be_encoded_is_an_internal_error(
    info: Implementation, capabilities: ServerCapabilities
) -> None:
    connection = ServerConnection(INFO, EVERYTHING, options=Options(revisions=MODERN))
    connection.info, connection._capabilities = info, capabilities  # they were checked when it was made
    assert code(connection, stateless("server/discover", "a")) == -32603
    assert connection.phase is Phase.NEW
