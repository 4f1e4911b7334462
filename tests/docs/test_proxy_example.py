"""``docs/examples/proxy.py``: what goes in on one side comes out on the other, both ways, and nothing is lost (P8)."""

from __future__ import annotations

import json
import runpy
import sys
from typing import Any

import pytest
import trio
from runners import run_by
from tree import ROOT

from mcpio.engine.client import ClientConnection
from mcpio.engine.server import ServerConnection
from mcpio.events import (
    CancelReceived,
    NotificationReceived,
    ProgressReceived,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
)
from mcpio.testing import Pair, pair
from mcpio.trio import open_stdio
from mcpio.types import (
    CallToolRequest,
    ClientCapabilities,
    ElicitFormRequest,
    ElicitSchema,
    Implementation,
    ListRootsRequest,
    RawNotification,
    RawRequest,
    RootsCapability,
    ServerCapabilities,
    ToolsCapability,
)

EXAMPLES = ROOT / "docs" / "examples"
EXAMPLE = runpy.run_path(str(EXAMPLES / "proxy.py"))


class Line:
    """A client, the proxy and a server, joined in virtual time."""

    def __init__(self) -> None:
        offer = ServerCapabilities(tools=ToolsCapability(True), logging={})
        self.proxy = EXAMPLE["Proxy"](lambda: 0.0)
        self.far = pair(self.proxy.back, ServerConnection(Implementation("far", "1"), offer), on_event=self._on_event)
        self.far.handshake()
        client = ClientConnection(Implementation("near", "1"), ClientCapabilities(roots=RootsCapability(True)))
        self.near = pair(client, self.proxy.front, on_event=self._on_event)
        self.near.handshake()
        self.run()

    @property
    def client(self) -> ClientConnection:
        return self.near.client

    @property
    def server(self) -> ServerConnection:
        return self.far.server

    def run(self) -> None:
        before = None
        while before != (before := (len(self.near.tap), len(self.far.tap))):
            for link in (self.near, self.far):
                link.run()

    def _on_event(self, connection: Any, event: Any) -> None:
        if connection is self.proxy.back or connection is self.proxy.front:
            self.proxy.handle(connection, event)


def last(link: Pair, side: str, kind: type) -> Any:
    events = link.client_events if side == "client" else link.server_events
    return next(event for event in reversed(events) if isinstance(event, kind))


@pytest.mark.req("META-07", "META-01")
def test_request_and_answer_forwarded_unchanged() -> None:
    line = Line()
    peer: Any = line.client.peer
    assert (peer.info.name, peer.capabilities.tools) == ("far", ToolsCapability(True))
    params = {"name": "x", "arguments": {"n": 1.0, "big": 10**30}, "extra": [None], "_meta": {"a b": 1, "c": "é"}}
    id = line.client.send_request(RawRequest("tools/call", params), now=0.0)
    line.run()
    asked = last(line.far, "server", RequestReceived)
    assert asked.raw["params"] == params
    result = {"content": [{"type": "unheard of", "x": 1}], "isError": True, "_meta": {"d e": 2}, "more": {}}
    line.server.send_raw_result(asked.id, json.dumps(result).encode())
    line.run()
    answer = last(line.near, "client", ResponseReceived)
    assert (answer.id, answer.raw["result"]) == (id, result)
    assert line.proxy.passed_on == {}


def test_malformed_answers_and_errors_are_forwarded() -> None:
    line = Line()
    for text in (b'{"content": 5}', None):
        line.client.send_request(CallToolRequest("x"), now=0.0)
        line.run()
        asked = last(line.far, "server", RequestReceived)
        if text is None:
            line.server.receive_data(None, 0.0)
            line.server.abort()
        else:
            line.server.send_raw_result(asked.id, text)
        line.run()
        failed = last(line.near, "client", RequestFailed)
        if text is None:
            assert failed.error.code == -32603
        else:
            assert failed.raw["result"] == {"content": 5}


def test_progress_and_cancellation_find_their_request() -> None:
    line = Line()
    first = line.client.send_request(CallToolRequest("x"), now=0.0, progress=True)
    second = line.client.send_request(CallToolRequest("y"), now=0.0)
    line.run()
    asked = [event for event in line.far.server_events if isinstance(event, RequestReceived)]
    line.server.send_progress(asked[0].id, 1, 2, "half")
    line.client.cancel_request(second, "enough")
    line.run()
    report = last(line.near, "client", ProgressReceived)
    assert (report.id, report.progress, report.total, report.message) == (first, 1, 2, "half")
    cancelled = last(line.far, "server", CancelReceived)
    assert (cancelled.id, cancelled.reason) == (asked[1].id, "enough")


def test_request_from_the_server_is_forwarded() -> None:
    line = Line()
    line.server.send_request(ListRootsRequest(), now=0.0, cookie="roots")
    line.run()
    asked = last(line.near, "client", RequestReceived)
    line.client.send_raw_result(asked.id, b'{"roots":[{"uri":"file:///a","x":1}]}')
    line.run()
    assert last(line.far, "server", ResponseReceived).raw["result"] == {"roots": [{"uri": "file:///a", "x": 1}]}
    line.server.send_request(ElicitFormRequest("?", ElicitSchema({})), now=0.0)
    line.run()
    assert last(line.far, "server", RequestFailed).error.code == -32601


def test_notifications_forwarded_unchanged() -> None:
    line = Line()
    line.server.send_notification(RawNotification("notifications/message", {"level": "info", "data": {"a": 1}, "x": 1}))
    line.client.send_notification(RawNotification("acme/note", {"_meta": {"a b": 1}}))
    line.run()
    assert last(line.near, "client", NotificationReceived).raw["params"] == {"level": "info", "data": {"a": 1}, "x": 1}
    assert last(line.far, "server", NotificationReceived).raw["params"] == {"_meta": {"a b": 1}}
    line.client.close(0.0)
    line.run()
    assert line.server.phase.value == "closed"


@run_by(trio.run)
async def test_proxy_runs_between_two_processes() -> None:
    proxy = [sys.executable, str(EXAMPLES / "proxy.py"), sys.executable, str(EXAMPLES / "echo_server.py")]
    with trio.fail_after(20):
        async with open_stdio(proxy, inherit_env=True) as client:
            result: Any = await client.call_tool("echo", {"text": "through it"})
            seen: list[Any] = []
            slow = {"text": "hello"}
            await client.call_tool("echo_slowly", slow, on_progress=lambda *report: seen.append(report[0]))
    assert result.content[0].text == "through it"
    assert seen[-1] == 3
    assert seen == sorted(set(seen))  # one that waits to be written gives way to the next
