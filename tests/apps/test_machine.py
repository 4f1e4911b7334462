"""The machine of a view: its table, what it may ask for, and that nothing it sends makes the host raise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpio.apps import (
    LEGAL,
    TeardownRequested,
    ViewCancelled,
    ViewConnection,
    ViewEnded,
    ViewFaulted,
    ViewInitialized,
    ViewInput,
    ViewLogged,
    ViewPhase,
    ViewRequested,
    ViewResized,
)
from mcpio.apps.machine import MAX_BUFFERED, MAX_MESSAGE, MAX_REQUESTS
from mcpio.errors import LocalProtocolError
from mcpio.events import IncomingId
from mcpio.types import CallToolResult, Implementation, TextContent, Tool

EVERYTHING: dict[str, Any] = {
    name: {}
    for name in (
        *("serverTools", "serverResources", "logging", "openLinks", "message", "updateModelContext", "downloadFile"),
    )
}
RESULT = CallToolResult((TextContent("noon"),), {"time": "noon"})


def tool(name: str, **ui: Any) -> Tool:
    return Tool(name, {"type": "object"}, meta={"ui": ui} if ui else {})


CLOCK = tool("now", resourceUri="ui://clock")
TOOLS = (CLOCK, tool("wind", visibility=["app"]), tool("break", visibility=["model"]))


def request(id: Any, method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def notification(method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params})


MODES = {"availableDisplayModes": ["inline", "fullscreen"]}
HELLO = request(0, "ui/initialize", appInfo={"name": "a", "version": "1"}, appCapabilities=MODES)
READY = notification("ui/notifications/initialized")


class View:
    """A view's side of the machine."""

    def __init__(self, *texts: str, **options: Any) -> None:
        self.machine = ViewConnection(CLOCK, TOOLS, **{"capabilities": EVERYTHING, **options})
        self.events: list[Any] = []
        for text in texts:
            self.send(text)

    def send(self, *texts: str | bytes) -> list[Any]:
        """Feed messages; return the events that they cause."""
        for text in texts:
            self.machine.receive_message(text, 0)
        found = list(self.machine.events())
        self.events += found
        return found

    def read(self) -> list[dict[str, Any]]:
        found = []
        while (text := self.machine.next_message()) is not None:
            found.append(json.loads(text))
        return found

    def ask(self, method: str, **params: Any) -> Any:
        """Send a request; return what is said about it at once, or the event."""
        self.read()
        events = self.send(request("q", method, **params))
        answers = self.read()
        return answers[0].get("error", answers[0].get("result")) if answers else events[0]


def at(phase: ViewPhase, **options: Any) -> View:
    """Return a view in a phase."""
    view = View(**options)
    machine = view.machine
    steps: dict[ViewPhase, Any] = {
        ViewPhase.INITIALIZING: lambda: view.send(HELLO),
        ViewPhase.INITIALIZED: lambda: view.send(READY),
        ViewPhase.INPUT_GIVEN: lambda: machine.send_tool_input({}),
        ViewPhase.DONE: lambda: machine.send_tool_result(RESULT),
        ViewPhase.TEARING_DOWN: lambda: machine.tear_down(0),
        ViewPhase.ENDED: machine.connection_lost,
    }
    for reached, step in steps.items():
        if machine.phase is not phase:
            step()
            assert machine.phase is reached
    assert machine.phase is phase
    view.read()
    return view


# The table


@pytest.mark.req("APP-10")
def test_view_is_told_of_the_host_and_of_its_tool_once_it_says_hello() -> None:
    view = View(context={"theme": "dark"}, host=Implementation("h", "2"))
    assert view.machine.next_message() is None, "nothing before"
    assert view.send(HELLO) == []
    (hello,) = view.read()
    assert hello["id"] == 0
    assert hello["result"]["protocolVersion"] == "2026-01-26"
    assert hello["result"]["hostInfo"] == {"name": "h", "version": "2"}
    assert hello["result"]["hostCapabilities"] == EVERYTHING
    assert hello["result"]["hostContext"]["theme"] == "dark"
    assert hello["result"]["hostContext"]["toolInfo"]["tool"]["name"] == "now"
    (ready,) = view.send(READY)
    assert isinstance(ready, ViewInitialized)
    assert ready.info == {"name": "a", "version": "1"}
    assert ready.capabilities == {"availableDisplayModes": ["inline", "fullscreen"]}
    assert view.machine.view == "ui://clock"


@pytest.mark.req("APP-11")
def test_input_comes_in_parts_then_whole_then_the_result() -> None:
    view = at(ViewPhase.INITIALIZED)
    view.machine.send_tool_input_partial({"a": 1})
    view.machine.send_tool_input({"a": 1, "b": 2})
    view.machine.send_tool_result(RESULT)
    said = [(each["method"].removeprefix("ui/notifications/"), each["params"]) for each in view.read()]
    assert said[:2] == [
        ("tool-input-partial", {"arguments": {"a": 1}}),
        ("tool-input", {"arguments": {"a": 1, "b": 2}}),
    ]
    assert said[2][0] == "tool-result"
    assert said[2][1]["structuredContent"] == {"time": "noon"}


@pytest.mark.req("APP-11")
@pytest.mark.parametrize("reason", [None, "user"])
def test_call_without_a_result_is_cancelled(reason: str | None) -> None:
    view = at(ViewPhase.INPUT_GIVEN)
    view.machine.send_tool_cancelled(reason)
    assert [each["params"] for each in view.read()] == [{} if reason is None else {"reason": reason}]
    assert view.machine.phase is ViewPhase.DONE


@pytest.mark.req("APP-10", "APP-11", "APP-12")
@pytest.mark.parametrize("what", ViewInput)
@pytest.mark.parametrize("phase", ViewPhase)
def test_each_input_is_taken_where_the_table_has_it_and_nowhere_else(phase: ViewPhase, what: ViewInput) -> None:
    view = at(phase)
    machine = view.machine
    acts: dict[ViewInput, Any] = {
        ViewInput.SEND_PARTIAL_INPUT: lambda: machine.send_tool_input_partial({}),
        ViewInput.SEND_INPUT: lambda: machine.send_tool_input({}),
        ViewInput.SEND_RESULT: lambda: machine.send_tool_result(RESULT),
        ViewInput.SEND_CANCELLED: machine.send_tool_cancelled,
        ViewInput.SEND_CONTEXT: lambda: machine.send_context({}),
        ViewInput.SEND_TEARDOWN: lambda: machine.tear_down(0),
    }
    texts = {
        ViewInput.RECV_INITIALIZE: HELLO,
        ViewInput.RECV_INITIALIZED: READY,
        ViewInput.RECV_CALL: request(1, "tools/call", name="wind"),
        ViewInput.RECV_TORN_DOWN: json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}),
    }
    expected = LEGAL.get((phase, what), phase)
    if what in texts:
        events = view.send(texts[what])
        is_fault = any(isinstance(event, ViewFaulted) for event in events)
        assert is_fault == ((phase, what) not in LEGAL and phase is not ViewPhase.ENDED)
    elif what is ViewInput.RECV_LOSS:
        machine.connection_lost()
    elif (phase, what) in LEGAL or what is ViewInput.SEND_TEARDOWN:
        acts[what]()  # a view that is torn down already is not asked again
    else:
        with pytest.raises(LocalProtocolError, match=f"the view is {phase.value}"):
            acts[what]()
        assert view.read() == []
    assert machine.phase is expected


# Requests


@pytest.mark.req("APP-12")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "wind", "arguments": {"a": 1}}),
        ("tools/call", {"name": "now"}),
        ("resources/read", {"uri": "data://a"}),
        ("ui/open-link", {"url": "https://example.com"}),
        ("ui/message", {"role": "user", "content": []}),
        ("ui/update-model-context", {"structuredContent": {}}),
        ("ui/download-file", {"contents": []}),
    ],
)
def test_request_is_an_event_and_its_answer_goes_under_the_views_id(method: str, params: Mapping[str, Any]) -> None:
    view = at(ViewPhase.DONE)
    event = view.ask(method, **params)
    assert isinstance(event, ViewRequested)
    assert (event.method, event.params) == (method, params)
    view.machine.send_result(event.id, {"done": True})
    assert view.read() == [{"jsonrpc": "2.0", "id": "q", "result": {"done": True}}]
    with pytest.raises(LocalProtocolError, match="waits for an answer"):
        view.machine.send_error(event.id, "again")
    event = view.ask(method, **params)
    view.machine.send_error(event.id, "no")
    assert view.read()[0]["error"] == {"code": -32000, "message": "no"}


@pytest.mark.req("APP-12")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {}),
        ("tools/call", {"name": 5}),
        ("tools/call", {"name": "wind", "arguments": []}),
        ("resources/read", {"uri": None}),
        ("ui/open-link", {"url": "javascript:alert(1)"}),
        ("ui/open-link", {"url": "file:///etc/passwd"}),
        ("ui/open-link", {"url": "https://" + "a" * 9000}),
        ("ui/message", {"role": "assistant", "content": []}),
        ("ui/message", {"role": "user", "content": "text"}),
        ("ui/update-model-context", {"content": {}}),
        ("ui/request-display-mode", {}),
        ("ui/download-file", {"contents": {}}),
    ],
)
def test_wrong_params_are_answered_by_the_machine(method: str, params: Mapping[str, Any]) -> None:
    view = at(ViewPhase.INITIALIZED)
    assert view.ask(method, **params)["code"] == -32602
    assert isinstance(view.events[-1], ViewFaulted)


@pytest.mark.req("APP-13")
@pytest.mark.parametrize("name", ["break", "nothing", "now "])
def test_tool_that_is_not_for_apps_is_refused(name: str) -> None:
    view = at(ViewPhase.INITIALIZED)
    assert view.ask("tools/call", name=name)["code"] == -32000
    view.machine.set_tools([tool(name)])
    assert isinstance(view.ask("tools/call", name=name), ViewRequested)
    with pytest.raises(TypeError, match="tools must be"):
        view.machine.set_tools(["now"])  # type: ignore[list-item]  # which is refused


@pytest.mark.req("APP-12")
def test_host_without_a_capability_refuses_what_it_is_for() -> None:
    view = at(ViewPhase.INITIALIZED, capabilities={})
    assert view.ask("tools/call", name="wind")["code"] == -32000
    assert view.ask("ui/open-link", url="https://example.com")["code"] == -32000
    assert view.ask("ui/show-me")["code"] == -32601
    by_default = at(ViewPhase.INITIALIZED, capabilities=None)
    assert isinstance(by_default.ask("tools/call", name="wind"), ViewRequested)


@pytest.mark.req("APP-13")
def test_display_mode_is_one_that_both_sides_have_or_stays() -> None:
    context = {"displayMode": "inline", "availableDisplayModes": ["inline", "fullscreen", "pip"]}
    view = at(ViewPhase.INITIALIZED, context=context)
    assert view.ask("ui/request-display-mode", mode="pip") == {"mode": "inline"}, "the view did not declare it"
    assert isinstance(view.ask("ui/request-display-mode", mode="fullscreen"), ViewRequested)
    view.machine.send_context({"displayMode": "fullscreen"})
    assert view.read()[0]["method"] == "ui/notifications/host-context-changed"
    assert view.machine.display_mode == "fullscreen"
    other = at(ViewPhase.INITIALIZED, context={})
    assert other.ask("ui/request-display-mode", mode="fullscreen") == {"mode": "inline"}


@pytest.mark.req("APP-12")
def test_cancelled_request_gets_no_answer() -> None:
    view = at(ViewPhase.INITIALIZED)
    (one, two) = view.send(request(1, "tools/call", name="wind"), request("1", "tools/call", name="wind"))
    assert view.send(notification("notifications/cancelled", requestId="1")) == [ViewCancelled(two.id)]
    assert view.send(notification("notifications/cancelled", requestId=True)) == []
    assert view.send(notification("notifications/cancelled")) == []
    with pytest.raises(LocalProtocolError):
        view.machine.send_result(two.id, {})
    view.machine.send_result(one.id, {})
    assert [each["id"] for each in view.read()] == [1]


@pytest.mark.req("APP-12")
def test_notifications_are_events() -> None:
    view = at(ViewPhase.DONE)
    assert view.send(notification("notifications/message", level="info", data=[1], logger="a")) == [
        ViewLogged("info", [1], "a")
    ]
    assert view.send(notification("ui/notifications/size-changed", width=10.5, height=1e300)) == [
        ViewResized(10.5, 16384)
    ]
    assert view.send(notification("ui/notifications/size-changed", width=True, height=-5)) == [ViewResized(None, 0)]
    assert view.send(notification("ui/notifications/request-teardown")) == [TeardownRequested()]
    for odd in (
        notification("notifications/message", level=5, data=1),
        notification("notifications/message", level="info"),
        notification("notifications/message", level="info", data=1, logger=5),
        notification("ui/notifications/sandbox-proxy-ready"),
        json.dumps({"jsonrpc": "2.0", "id": 7, "result": {}}),
        json.dumps({"jsonrpc": "2.0", "id": "7", "error": {"code": 1, "message": ""}}),
        json.dumps([{"jsonrpc": "2.0", "method": "ping", "id": 1}]),
        "{",
        b"\xff",
        "x" * (MAX_MESSAGE + 1),
    ):
        (event,) = view.send(odd)
        assert isinstance(event, ViewFaulted), odd[:100]


def test_ping_is_answered_at_any_time() -> None:
    for phase in ViewPhase:
        view = at(phase)
        view.send()
        assert view.send(request(9, "ping")) == []
        assert len(view.read()) == (phase is not ViewPhase.ENDED)


@pytest.mark.req("APP-10")
def test_hello_without_a_name_is_refused_and_may_be_said_again() -> None:
    view = View(request(0, "ui/initialize"), request(1, "ui/initialize", appInfo={}, appCapabilities=5))
    assert [each["error"]["code"] for each in view.read()] == [-32602, -32602]
    view.send(HELLO, READY)
    assert view.machine.phase is ViewPhase.INITIALIZED


# Floods


def test_request_beyond_the_limit_is_refused_and_so_is_a_used_id() -> None:
    view = at(ViewPhase.INITIALIZED)
    view.send(*(request(number, "tools/call", name="wind") for number in range(MAX_REQUESTS)))
    assert view.read() == []
    view.send(request(5, "tools/call", name="wind"), request("more", "tools/call", name="wind"))
    assert [(each["id"], each["error"]["code"]) for each in view.read()] == [(5, -32600), ("more", -32000)]
    view.machine.send_result(IncomingId(1), {})
    assert isinstance(view.ask("tools/call", name="wind"), ViewRequested)


def test_flood_of_messages_holds_the_input_back_until_the_output_is_taken() -> None:
    view = at(ViewPhase.INITIALIZED)
    text = request("i" * 1_000_000, "ping")
    fed = 0
    while view.machine.wants_read:
        view.machine.receive_message(text, 0)
        fed += 1
    assert fed == MAX_BUFFERED // len(text) + 1, "of what was not looked at"
    for _ in range(5):  # a driver that feeds more all the same
        view.send(text)
    answers = []
    while found := view.read():
        assert len(found) <= MAX_BUFFERED // 1_000_000 + 1, "answers that are not taken hold back further ones"
        answers += found
        view.send()
    assert len(answers) == fed + 5


# The end


@pytest.mark.req("APP-12")
@pytest.mark.parametrize("answer", [{"result": {}}, {"error": {"code": 1, "message": "busy"}}])
def test_view_is_removed_after_it_answers_the_teardown(answer: Any) -> None:
    view = at(ViewPhase.DONE)
    view.machine.tear_down(10.0)
    view.machine.tear_down(11.0)
    (question,) = view.read()
    assert question["method"] == "ui/resource-teardown"
    assert view.machine.next_deadline() == 15.0
    assert isinstance(view.ask("tools/call", name="wind"), ViewRequested), "it may still save what it has"
    assert view.send(json.dumps({"jsonrpc": "2.0", "id": question["id"], **answer})) == [ViewEnded("torn down")]
    assert view.machine.closed
    assert view.machine.next_deadline() is None
    view.machine.receive_message(READY, 0)
    view.machine.connection_lost()
    view.machine.tear_down(0)
    assert view.send() == []


@pytest.mark.req("APP-12")
def test_view_that_never_answers_the_teardown_is_removed_in_time() -> None:
    view = at(ViewPhase.INITIALIZED)
    view.machine.tear_down(10.0, timeout=2.0)
    view.machine.handle_timeout(11.9)
    assert view.send() == []
    view.machine.handle_timeout(12.0)
    assert view.send() == [ViewEnded("no answer")]


def test_view_that_never_said_hello_is_removed_at_once() -> None:
    view = View()
    view.machine.tear_down(0)
    assert not view.machine.closed
    assert view.send() == [ViewEnded("torn down")]
    assert view.machine.closed


def test_driver_is_called_for_what_the_program_does() -> None:
    view = at(ViewPhase.INITIALIZED)
    calls: list[int] = []
    view.machine.on_output = lambda: calls.append(1)
    view.machine.send_tool_input({})
    event = view.ask("tools/call", name="wind")
    view.machine.send_result(event.id, {})
    view.machine.tear_down(0)
    assert len(calls) == 3


# The program's mistakes


def test_mistake_of_the_program_changes_nothing() -> None:
    view = at(ViewPhase.INITIALIZED)
    with pytest.raises(LocalProtocolError, match="cannot be told"):
        view.machine.send_tool_input({"a": object()})
    event = view.ask("tools/call", name="wind")
    with pytest.raises(LocalProtocolError, match="cannot be told"):
        view.machine.send_result(event.id, {"a": object()})
    with pytest.raises(LocalProtocolError, match="cannot be told"):
        view.machine.send_error(event.id, "\ud800")
    view.machine.send_tool_input({})
    with pytest.raises(LocalProtocolError, match="cannot be told"):
        view.machine.send_tool_result(CallToolResult((5,)))  # type: ignore[arg-type]  # which is refused
    with pytest.raises(ValueError, match="seconds"):
        view.machine.tear_down(0, timeout=-1)
    assert view.machine.phase is ViewPhase.INPUT_GIVEN
    view.machine.send_result(event.id, {})
    assert [each.get("method") for each in view.read()] == ["ui/notifications/tool-input", None]


def test_wrong_description_of_the_host_is_refused() -> None:
    wrongs: list[dict[str, Any]] = [{"host": "h"}, {"capabilities": []}, {"context": "dark"}]
    for wrong in wrongs:
        with pytest.raises(TypeError):
            View(**wrong)
    with pytest.raises(TypeError):
        ViewConnection("now")  # type: ignore[arg-type]  # which is refused
    with pytest.raises(LocalProtocolError):
        View(context={"theme": object()})


# Anything in any order

TEXTS = st.one_of(
    st.sampled_from(
        [
            HELLO,
            READY,
            request(1, "tools/call", name="wind"),
            request("1", "tools/call", name="break"),
            request(2, "ui/request-display-mode", mode="fullscreen"),
            request(3, "ping"),
            notification("notifications/cancelled", requestId=1),
            notification("ui/notifications/request-teardown"),
            notification("ui/notifications/size-changed", width=1),
            json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}),
        ]
    ),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.builds(
        lambda **members: json.dumps(members),
        jsonrpc=st.sampled_from(["2.0", 2]),
        id=st.one_of(st.none(), st.integers(), st.text(max_size=3), st.booleans()),
        method=st.sampled_from(["tools/call", "ui/initialize", "ui/message", "notifications/message", "x", 5]),
        params=st.recursive(
            st.none() | st.integers() | st.text(max_size=5),
            lambda inner: st.dictionaries(
                st.sampled_from(["name", "uri", "mode", "appInfo", "appCapabilities", "level", "data"]), inner
            ),
            max_leaves=4,
        ),
    ),
)
ACTS = st.sampled_from(
    ["send_tool_input_partial", "send_tool_input", "send_tool_result", "send_tool_cancelled", "tear_down", "time"]
)


@given(st.lists(st.one_of(TEXTS, ACTS.map(lambda name: (name,))), max_size=30))
def test_any_messages_and_calls_in_any_order_raise_nothing_but_a_protocol_error(steps: list[Any]) -> None:
    view = View(context={"availableDisplayModes": ["fullscreen"]})
    machine, now, ends = view.machine, 0.0, 0
    arguments: dict[str, tuple[Any, ...]] = {"send_tool_result": (RESULT,), "send_tool_cancelled": ()}
    for step in steps:
        before = machine.phase
        now += 1
        if isinstance(step, tuple):
            if step[0] == "time":
                machine.handle_timeout(now)
            elif step[0] == "tear_down":
                machine.tear_down(now)
            else:
                try:
                    getattr(machine, step[0])(*arguments.get(step[0], ({},)))
                except LocalProtocolError:
                    assert machine.phase is before
        else:
            machine.receive_message(step, now)
        for event in machine.events():
            ends += isinstance(event, ViewEnded)
            assert not machine.closed or isinstance(event, ViewEnded)
            if isinstance(event, ViewRequested) and machine.phase is not ViewPhase.ENDED:
                machine.send_result(event.id, {})
        for message in view.read():
            assert message["jsonrpc"] == "2.0"
            assert machine.phase is not ViewPhase.CREATED or "method" not in message, "nothing before the view's hello"
    assert ends == (machine.phase is ViewPhase.ENDED)
