from __future__ import annotations

import json
from typing import Any

import pytest
from unchecked import unchecked

from mcpio.codec import codec
from mcpio.engine.payloads import (
    check_meta,
    coalescing_key,
    encode,
    encode_error,
    is_created_task,
    is_notification,
    method_to_send,
    related_task_of,
    to_json,
    with_progress_token,
    with_related_task,
)
from mcpio.errors import LocalProtocolError, McpError, RequestError
from mcpio.framing import jsonrpc
from mcpio.methods import METHODS, TASK_EXTENSION_METHODS, Kind
from mcpio.revisions import REV_2025_06_18, REV_2025_11_25
from mcpio.types.base import META_RELATED_TASK, CustomNotification, CustomRequest, RawNotification, RawRequest
from mcpio.types.features import (
    CallToolRequest,
    CallToolResult,
    CancelledNotification,
    EmptyResult,
    InitializedNotification,
    InitializeRequest,
    PingRequest,
    ProgressNotification,
    ResourceUpdatedNotification,
    ToolListChangedNotification,
)
from mcpio.types.tasks import CreateTaskResult, Task, TaskMetadata

LATEST = codec(REV_2025_11_25)
NO_PARAMS: Any = 5


def test_method_follows_from_the_payload_type() -> None:
    assert method_to_send(PingRequest(), Kind.REQUEST) is METHODS["ping"]
    changed = method_to_send(ToolListChangedNotification(), Kind.NOTIFICATION)
    assert changed is METHODS["notifications/tools/list_changed"]


def test_custom_method_is_named_by_its_payload() -> None:
    assert method_to_send(CustomRequest("acme/do", {"x": 1}), Kind.REQUEST) is None
    assert method_to_send(CustomNotification("acme/done"), Kind.NOTIFICATION) is None


@pytest.mark.parametrize(
    ("payload", "kind", "fault"),
    [
        (ToolListChangedNotification(), Kind.REQUEST, "payload must be a request, not ToolListChangedNotification"),
        (PingRequest(), Kind.NOTIFICATION, "payload must be a notification, not PingRequest"),
        (CustomRequest("x"), Kind.NOTIFICATION, "payload must be a notification, not CustomRequest"),
        (CustomNotification("x"), Kind.REQUEST, "payload must be a request, not CustomNotification"),
        (EmptyResult(), Kind.REQUEST, "payload must be a request, not EmptyResult"),
        (PingRequest, Kind.REQUEST, "payload must be a request, not type"),
        ({"method": "ping"}, Kind.REQUEST, "payload must be a request, not dict"),
        (None, Kind.REQUEST, "payload must be a request, not NoneType"),
    ],
)
def test_payload_of_another_kind_is_refused(payload: Any, kind: Kind, fault: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        method_to_send(payload, kind)
    assert str(caught.value) == fault


@pytest.mark.req("CANC-02", "LIFE-08", "PROG-03")
def test_payload_with_its_own_verb_is_refused() -> None:
    initialize: Any = object.__new__(InitializeRequest)
    for payload, kind, verb in (
        (initialize, Kind.REQUEST, "send_initialize"),
        (InitializedNotification(), Kind.NOTIFICATION, "the engine itself"),
        (ProgressNotification(1, 1), Kind.NOTIFICATION, "send_progress"),
        (CancelledNotification(1), Kind.NOTIFICATION, "cancel_request"),
    ):
        with pytest.raises(LocalProtocolError, match=f"is sent by {verb}$"):
            method_to_send(payload, kind)


@pytest.mark.req("CAP-05")
@pytest.mark.parametrize("method", list(METHODS))
def test_custom_payload_with_an_official_method_is_refused(method: str) -> None:
    for payload, kind in (
        (CustomRequest(method), Kind.REQUEST),
        (CustomNotification(method), Kind.NOTIFICATION),
    ):
        if kind is Kind.REQUEST and method in TASK_EXTENSION_METHODS:
            continue  # whether it is of the protocol depends on the revision, which a connection knows
        with pytest.raises(LocalProtocolError, match="is a method of the protocol: send its own type"):
            method_to_send(payload, kind)


@pytest.mark.parametrize(
    ("method", "params", "fault"),
    [
        ("", {}, "a method must be a name, not ''"),
        (None, {}, "a method must be a name, not None"),
        (5, {}, "a method must be a name, not 5"),
        ("acme", None, "the params of acme must be a mapping, not None"),
        ("acme", [1], r"the params of acme must be a mapping, not \[1\]"),
    ],
)
def test_custom_payload_needs_a_name_and_a_mapping(method: Any, params: Any, fault: str) -> None:
    with pytest.raises(LocalProtocolError, match=fault):
        method_to_send(CustomRequest(method, params), Kind.REQUEST)


def test_encode_returns_a_new_object() -> None:
    params = {"a": 1}
    assert encode(LATEST, CustomRequest("x", params)) == params
    assert encode(LATEST, CustomRequest("x", params)) is not params
    assert encode(LATEST, CallToolRequest("t", meta={"a/b": 1})) == {"name": "t", "_meta": {"a/b": 1}}


@pytest.mark.req("LIFE-14")
def test_payload_unknown_to_the_revision_is_refused_with_its_path() -> None:
    request = CallToolRequest("t", task=TaskMetadata(ttl=5))
    with pytest.raises(LocalProtocolError, match=r"^CallToolRequest: task: does not exist in 2025-06-18"):
        encode(codec(REV_2025_06_18), request)
    with pytest.raises(LocalProtocolError, match=r"^CallToolRequest: name: expected a string, got a number$"):
        encode(LATEST, unchecked(CallToolRequest("a"), name=5))


@pytest.mark.req("META-07")
@pytest.mark.parametrize(
    "payload",
    [
        CallToolRequest("t", meta={"a b": 1}),
        CallToolResult((), meta={"a b": 1}),
        ToolListChangedNotification(meta={"a b": 1}),
        CustomRequest("x", {"_meta": {"a b": 1}}),
        CustomNotification("x", {"_meta": {"a b": 1}}),
    ],
    ids=lambda payload: type(payload).__name__,
)
def test_invalid_meta_key_is_refused(payload: Any) -> None:
    with pytest.raises(LocalProtocolError, match=r"^'a b' is not a key for _meta: 'a b' is not a name$"):
        encode(LATEST, payload)


@pytest.mark.req("META-07")
def test_raw_payload_is_sent_unchanged() -> None:
    params = {"name": "t", "x": 1, "_meta": {"a b": 1}}
    call = RawRequest("tools/call", params)
    assert method_to_send(call, Kind.REQUEST) is METHODS["tools/call"]
    assert encode(LATEST, call) == params
    changed = RawNotification("notifications/tools/list_changed", params)
    assert method_to_send(changed, Kind.NOTIFICATION) is METHODS[changed.method]
    assert encode(LATEST, changed) == params
    assert method_to_send(RawRequest("acme/x"), Kind.REQUEST) is None


@pytest.mark.parametrize(
    ("payload", "kind", "fault"),
    [
        (RawRequest("tools/call"), Kind.NOTIFICATION, "payload must be a notification, not RawRequest"),
        (RawNotification("notifications/message"), Kind.REQUEST, "payload must be a request, not RawNotification"),
        (RawRequest("notifications/message"), Kind.REQUEST, "payload must be a request, not notifications/message"),
        (RawNotification("ping"), Kind.NOTIFICATION, "payload must be a notification, not ping"),
        (RawRequest("initialize"), Kind.REQUEST, "initialize is sent by send_initialize"),
        (RawNotification("notifications/cancelled"), Kind.NOTIFICATION, "is sent by cancel_request"),
        (RawRequest("tools/call", {"_meta": 5}), Kind.REQUEST, "_meta must be an object, not 5"),
        (RawRequest("", {}), Kind.REQUEST, "a method must be a name, not ''"),
        (RawRequest("acme", NO_PARAMS), Kind.REQUEST, "the params of acme must be a mapping, not 5"),
    ],
)
def test_unfit_raw_payload_is_refused(payload: Any, kind: Kind, fault: str) -> None:
    with pytest.raises(LocalProtocolError, match=fault):
        method_to_send(payload, kind)


@pytest.mark.req("META-01", "META-06")
@pytest.mark.parametrize(
    "meta", [{}, {"progressToken": 1}, {"io.modelcontextprotocol/related-task": {}}, {"com.mcp.tools/x": None}]
)
def test_reserved_meta_keys_are_sent(meta: dict[str, Any]) -> None:
    check_meta({"_meta": meta})
    assert encode(LATEST, CustomRequest("x", {"_meta": meta}))["_meta"] == meta


@pytest.mark.parametrize("meta", [[], "x", 5, True])
def test_meta_of_another_type_is_refused(meta: Any) -> None:
    with pytest.raises(LocalProtocolError, match=r"^_meta must be an object, not "):
        check_meta({"_meta": meta})
    check_meta({"_meta": None})
    check_meta({})


@pytest.mark.req("PROG-01")
def test_progress_token_is_added_to_other_meta_keys() -> None:
    params = {"name": "x", "_meta": {"a": 1, "progressToken": "forwarded"}}
    assert with_progress_token(params, 7) == {"name": "x", "_meta": {"a": 1, "progressToken": 7}}
    assert params["_meta"] == {"a": 1, "progressToken": "forwarded"}
    assert with_progress_token({}, 7) == {"_meta": {"progressToken": 7}}
    assert with_progress_token({"_meta": None}, 7) == {"_meta": {"progressToken": 7}}
    assert with_progress_token({"_meta": {"a": 1}}, None) == {"_meta": {"a": 1}}
    with pytest.raises(LocalProtocolError, match="ask for progress with progress=True"):
        with_progress_token(params, None)


@pytest.mark.req("RPC-11")
def test_error_is_encoded_with_code_message_and_data() -> None:
    assert json.loads(encode_error("a", RequestError(-5, "no", [1]))) == {
        "jsonrpc": "2.0",
        "id": "a",
        "error": {"code": -5, "message": "no", "data": [1]},
    }
    assert "data" not in json.loads(encode_error(1, RequestError(-5, "no")))["error"]


@pytest.mark.req("RPC-11")
@pytest.mark.parametrize(
    "error",
    [
        McpError("x"),
        ValueError("x"),
        None,
        *(RequestError(code, "x") for code in ("5", 5.0, True, None)),  # type: ignore[arg-type]  # the wrong ones
        RequestError(5, b"x"),  # type: ignore[arg-type]  # the wrong type
        RequestError(5, "x", object()),
        RequestError(5, "\ud800"),
        RequestError(5, "x", float("nan")),
    ],
)
def test_error_of_another_type_is_refused(error: Any) -> None:
    with pytest.raises(LocalProtocolError):
        encode_error(1, error)


@pytest.mark.parametrize(
    "value",
    [float("nan"), "\udfff", object(), {1: 2}, 10**5000, {"a": b""}],
    ids=lambda value: type(value).__name__,
)
def test_value_outside_json_is_refused(value: Any) -> None:
    with pytest.raises(LocalProtocolError, match=r"^not expressible in JSON: "):
        to_json(jsonrpc.encode_result, 1, {"x": value})
    assert json.loads(to_json(jsonrpc.encode_result, 1, {}))["result"] == {}


@pytest.mark.req("TASK-08")
def test_task_request_has_the_same_method() -> None:
    request = CallToolRequest("sleep", task=TaskMetadata(5000))
    assert method_to_send(request, Kind.REQUEST) is METHODS["tools/call"]
    assert encode(LATEST, request) == {"name": "sleep", "task": {"ttl": 5000}}
    assert encode(LATEST, CallToolRequest("sleep", task=TaskMetadata()))["task"] == {}


@pytest.mark.req("TASK-28")
@pytest.mark.parametrize(
    ("members", "meta"),
    [
        ({}, {META_RELATED_TASK: {"taskId": "t"}}),
        ({"_meta": {"x": 1}}, {META_RELATED_TASK: {"taskId": "t"}, "x": 1}),
        ({"_meta": {META_RELATED_TASK: {"taskId": "own"}}}, {META_RELATED_TASK: {"taskId": "own"}}),
    ],
)
def test_related_task_mark_is_added(members: dict[str, Any], meta: dict[str, Any]) -> None:
    before = json.dumps(members)
    assert related_task_of(members) == (None if META_RELATED_TASK not in members.get("_meta", {}) else "own")
    assert with_related_task(members, "t") == {"_meta": meta}
    assert related_task_of(with_related_task(members, "t")) == meta[META_RELATED_TASK]["taskId"]
    assert json.dumps(members) == before


@pytest.mark.parametrize("mark", [None, "t", {}, {"taskId": 1}])
def test_mark_without_a_task_id_is_ignored(mark: Any) -> None:
    assert related_task_of({"_meta": {META_RELATED_TASK: mark}}) is None


def test_change_notifications_have_a_coalescing_key() -> None:
    def key(name: str, params: dict[str, Any]) -> Any:
        return coalescing_key(METHODS[name], params)

    assert key("notifications/tools/list_changed", {}) == "notifications/tools/list_changed"
    assert key("notifications/prompts/list_changed", {}) != key("notifications/tools/list_changed", {})
    updated = [encode(LATEST, ResourceUpdatedNotification(uri)) for uri in ("a", "b", "a")]
    one, two, three = (key("notifications/resources/updated", params) for params in updated)
    assert one == three != two
    assert key("notifications/message", {}) is None
    assert coalescing_key(None, {}) is None


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (ToolListChangedNotification(), True),
        (CustomNotification("a/b"), True),
        (RawNotification("a/b"), True),
        (CallToolRequest("x"), False),
        (CustomRequest("a/b"), False),
        (CallToolResult(()), False),
        (None, False),
    ],
)
def test_is_notification_tells_notifications_from_requests(payload: Any, expected: bool) -> None:
    assert is_notification(payload) is expected


@pytest.mark.req("TASK-09")
def test_is_created_task_tells_tasks_from_other_results() -> None:
    assert is_created_task(CreateTaskResult(Task("a", "working", "1", "2", None)))
    assert not is_created_task(CallToolResult(()))


@pytest.mark.req("PROG-07")
def test_progress_of_a_task_coalesces_by_its_token() -> None:
    meta = {META_RELATED_TASK: {"taskId": "a"}}
    method = method_to_send(ProgressNotification("t", 1, meta=meta), Kind.NOTIFICATION)
    assert coalescing_key(method, {"progressToken": "t"}) == ("notifications/progress", "t")
    with pytest.raises(LocalProtocolError, match="sent by send_progress"):
        method_to_send(ProgressNotification("t", 1), Kind.NOTIFICATION)
