"""Words of other dialects: what they are taken for, what they are not taken for, and how this side says them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpio.engine.dialect import DialectDecoder, DialectEncoder
from mcpio.errors import RequestError
from mcpio.framing import jsonrpc
from mcpio.profiles import Profile

ERLMCP = frozenset({Profile.ERLMCP})
LSP = frozenset({Profile.LSP_ALIASES})
ASKED = {1: "initialize", 2: "tools/call", 3: "prompts/get", 4: "acme/x"}


def read(message: Any, profiles: frozenset[Profile] = ERLMCP, **more: Any) -> list[Any]:
    text = message if isinstance(message, bytes | str) else json.dumps(message)
    settings = {"to_server": True, "on_tasks_create": None, "most": 4, **more}
    return DialectDecoder(profiles, **settings).read(jsonrpc.parse(text), text, ASKED.get)


def note(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": "r", "method": method, "params": params}


def result(id: Any, **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": members}


@pytest.mark.parametrize(
    ("profiles", "message", "method", "params"),
    [
        (ERLMCP, note("progress", progressToken=1, progress=2), "notifications/progress", None),
        (ERLMCP, note("resources/updated", uri="x:y"), "notifications/resources/updated", None),
        (ERLMCP, note("resources/list_changed"), "notifications/resources/list_changed", None),
        (ERLMCP, note("tools/list_changed"), "notifications/tools/list_changed", None),
        (ERLMCP, note("prompts/list_changed"), "notifications/prompts/list_changed", None),
        (ERLMCP, note("requests/cancel", requestId=5), "notifications/cancelled", None),
        (LSP, note("$/cancelRequest", id=5), "notifications/cancelled", {"requestId": 5}),
        (
            LSP,
            note("$/progress", token="t", value={"kind": "report", "percentage": 40, "message": "m"}),
            "notifications/progress",
            {"progressToken": "t", "progress": 40, "message": "m", "total": 100},
        ),
        (
            LSP,
            note("$/progress", token=1, value={"percentage": 0}),
            "notifications/progress",
            {"progressToken": 1, "progress": 0, "total": 100},
        ),
    ],
)
def test_aliased_notification_is_translated(profiles: Any, message: Any, method: str, params: Any) -> None:
    (step,) = read(message, profiles)
    assert step == jsonrpc.Notification(method, message["params"] if params is None else params, message)
    none: frozenset[Profile] = frozenset()
    for others in (none, ERLMCP ^ LSP ^ profiles):
        (untouched,) = read(message, others)
        assert untouched.method == message["method"]
    (step,) = read(message, ERLMCP | LSP)
    assert step.method == method


@pytest.mark.parametrize(
    "message",
    [
        note("$/progress", token=1, value={"kind": "begin", "message": "m"}),
        note("$/progress", token=1, value=5),
        note("$/progress"),
        note("$/cancelRequest"),
        note("$/setTrace"),
    ],
)
def test_alias_without_its_members_stays_an_unknown_notification(message: Any) -> None:
    (step,) = read(message, LSP)
    assert step.method == message["method"]


def test_cancellation_as_a_request_is_answered() -> None:
    message = request("requests/cancel", requestId=5)
    assert read(message) == [
        jsonrpc.Notification("notifications/cancelled", {"requestId": 5}, message),
        jsonrpc.Request("r", "ping", {}, message),
    ]
    assert len(read(message, LSP)) == 1


def test_shutdown_request_closes_the_server() -> None:
    message = request("shutdown")
    assert read(message) == [jsonrpc.Request("r", "ping", {}, message), None]
    for profiles, to_server in ((ERLMCP, False), (LSP, True)):
        (step,) = read(message, profiles, to_server=to_server)
        assert step.method == "shutdown"


def test_tasks_create_becomes_the_call_that_the_hook_returns() -> None:
    message = request("tasks/create", type="sum", input={"a": 1})

    def as_call(params: Any) -> Any:
        return {"name": params["type"], "arguments": params["input"]} if params["type"] == "sum" else None

    (step,) = read(message, on_tasks_create=as_call)
    assert step == jsonrpc.Request("r", "tools/call", {"name": "sum", "arguments": {"a": 1}}, message)
    (step,) = read(request("tasks/create", type="other"), on_tasks_create=as_call)
    assert step.method == "tasks/create"
    for profiles, to_server, hook in ((ERLMCP, False, as_call), (LSP, True, as_call), (ERLMCP, True, None)):
        (step,) = read(message, profiles, to_server=to_server, on_tasks_create=hook)
        assert step.method == "tasks/create"


@pytest.mark.parametrize("returned", [5, [1], KeyError("x")])
def test_failing_hook_is_an_internal_error(returned: Any) -> None:
    def hook(params: Any) -> Any:
        if isinstance(returned, Exception):
            raise returned
        return returned

    ((message, error),) = read(request("tasks/create"), on_tasks_create=hook)
    assert message.method == "tasks/create"
    assert isinstance(error, RequestError)
    assert (error.code, error.message) == (-32603, "Internal error")
    assert isinstance(error.__cause__, Exception)


@pytest.mark.parametrize(
    ("params", "meant"),
    [
        ({"name": "x", "progressToken": 5}, {"name": "x", "_meta": {"progressToken": 5}}),
        ({"progressToken": "p", "_meta": {"a": 1}}, {"_meta": {"a": 1, "progressToken": "p"}}),
        ({"progressToken": 5, "_meta": {"progressToken": 6}}, None),
        ({"progressToken": 5, "_meta": 6}, None),
        ({"progressToken": [5]}, None),
        ({"progressToken": True}, None),
        ({"name": "x"}, None),
    ],
)
def test_progress_token_outside_of_meta_is_accepted(params: Any, meant: Any) -> None:
    (step,) = read(request("tools/call", **params))
    assert step.params == (params if meant is None else meant)
    assert step.raw["params"] == params
    (step,) = read(request("tools/call", **params), LSP)
    assert step.params == params


@pytest.mark.parametrize(
    ("declared", "meant"),
    [
        ({"sampling": {"enabled": False}, "roots": {"enabled": True}}, {"roots": {"enabled": True}}),
        ({"completion": {}, "tools": {}}, {"completions": {}, "tools": {}}),
        ({"completion": {"x": 1}, "completions": {"y": 1}}, {"completions": {"y": 1}}),
        ({"tools": {"enabled": 0}, "x": None}, {"tools": {"enabled": 0}, "x": None}),
        (5, 5),
    ],
)
def test_aliased_and_disabled_capabilities_are_translated(declared: Any, meant: Any) -> None:
    (step,) = read(request("initialize", capabilities=declared))
    assert step.params == {"capabilities": meant}
    (step,) = read(result(1, capabilities=declared))
    assert step.result == {"capabilities": meant}
    for id in (2, 4, 77, "1"):
        (step,) = read(result(id, capabilities=declared))
        assert step.result == {"capabilities": declared}
    (step,) = read(request("initialize", capabilities=declared), LSP)
    assert step.params == {"capabilities": declared}


LINK = {"type": "resource/link", "uri": "x:y"}
OFFICIAL = {"type": "resource_link", "uri": "x:y"}
OTHER = {"type": "text", "text": "resource/link"}


@pytest.mark.parametrize(
    ("members", "meant"),
    [
        ({"content": [OTHER, LINK]}, {"content": [OTHER, OFFICIAL]}),
        (
            {"messages": [{"role": "user", "content": LINK}, {"role": "user", "content": OTHER}]},
            {"messages": [{"role": "user", "content": OFFICIAL}, {"role": "user", "content": OTHER}]},
        ),
        ({"messages": [{"role": "user", "content": [LINK]}]}, {"messages": [{"role": "user", "content": [OFFICIAL]}]}),
        ({"content": [OTHER, 5, {"type": ["x"]}], "structuredContent": LINK}, None),
        ({"content": 5}, None),
    ],
)
def test_resource_link_types_are_translated(members: Any, meant: Any) -> None:
    message = result(2, **members)
    (step,) = read(message)
    assert step == jsonrpc.Result(2, members if meant is None else meant, message)
    (step,) = read(result(4, **members))
    assert step.result == members
    (step,) = read(message, LSP)
    assert step.result == members


def test_other_messages_stay_unchanged() -> None:
    error = {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x"}}
    for message in (error, [note("progress")], {"id": 1}, note("x"), request("tools/list")):
        text = json.dumps(message)
        assert read(text) == [jsonrpc.parse(text)]


def test_engine_errors_have_the_codes_of_the_dialect() -> None:
    translator = DialectDecoder(ERLMCP, True, None, 4)
    codes = [translator.code(reason) for reason in ("not initialized", "initialized already", "message too large")]
    assert codes == [-32005, -32005, -32012]
    assert translator.code("closing") == -32600
    assert DialectDecoder(LSP, True, None, 4).code("not initialized") == -32600
    assert translator.takes_batches
    assert not DialectDecoder(LSP, True, None, 4).takes_batches


PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
TRICKY = b'{"jsonrpc":"2.0","method":"x","params":{"a":"}{\\"]","b":[{}]}}'


def test_several_messages_on_a_line_are_split() -> None:
    for text in (PING + TRICKY, PING + b" \t" + TRICKY + b" ", (PING + TRICKY).decode()):
        assert read(text) == [jsonrpc.parse(PING), jsonrpc.parse(TRICKY)]
        assert [type(step) for step in read(text, LSP)] == [jsonrpc.Malformed]
    assert [step.method for step in read(PING + b'{"jsonrpc":"2.0","method":"progress"}')] == [
        "ping",
        "notifications/progress",
    ]


@pytest.mark.parametrize(
    "text",
    [
        b"rubbish",
        b"",
        PING + b"x",
        b"x" + PING + PING,
        PING + PING + b'{"a',
        PING + PING + b'"a"',
        PING + b"[]",
        PING + b"}",
        b"]" + PING,
        PING * 5,
        b'{"a" "b"}',
        b'{"a":"' + b'\\"' * 100_000,
        b"{" * 100_000,
    ],
)
def test_line_with_other_text_is_not_split(text: bytes) -> None:
    (step,) = read(text)
    assert isinstance(step, jsonrpc.Malformed)


def test_invalid_piece_of_a_line_fails_alone() -> None:
    first, second = read(b'{"a" "b"}' + PING)
    assert isinstance(first, jsonrpc.Malformed)
    assert second == jsonrpc.parse(PING)


@settings(max_examples=examples(30))
@given(st.lists(st.dictionaries(st.text(), st.text() | st.lists(st.text())), min_size=2, max_size=4))
def test_random_objects_on_a_line_are_split(values: list[Any]) -> None:
    text = "".join(json.dumps(value, ensure_ascii=False) for value in values)
    steps = read(text.encode(errors="replace"))
    assert len(steps) == len(values)


def test_encoder_writes_in_the_dialect() -> None:
    accent = DialectEncoder(Profile.ERLMCP)
    assert accent.name("notifications/resources/updated") == "resources/updated"
    assert accent.name("notifications/progress") == "progress"
    assert accent.name("notifications/cancelled") == "notifications/cancelled"
    assert accent.name("notifications/message") == "notifications/message"
    assert accent.result("tools/call", {"content": [OFFICIAL, OTHER]}) == {"content": [LINK, OTHER]}
    same = {"content": [OTHER]}
    assert accent.result("tools/call", same) is same
    assert accent.result("resources/read", {"content": [OFFICIAL]}) == {"content": [OFFICIAL]}
