"""The pump: a view joined to a client, without an event loop."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

import pytest
from linked import Link

from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.apps import EXTENSIONS, TeardownRequested, ViewConnection, ViewEnded, ViewEvent, ViewLogged, ViewPhase, pump
from mcpio.errors import ErrorCode, RequestError
from mcpio.types import CallToolResult, ClientCapabilities, TextContent, Tool

HELLO = {"id": 0, "method": "ui/initialize", "params": {"appInfo": {"name": "a", "version": "1"}}}
READY = {"method": "ui/notifications/initialized"}
CAPABILITIES: dict[str, Any] = {"serverTools": {}, "serverResources": {}, "openLinks": {}}


class Channel:
    """A channel of a view that the test plays."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._input: deque[str | None] = deque()
        self._waiting: Any = None
        self.said: list[dict[str, Any]] = []
        self.failure: Exception | None = None

    async def receive(self) -> str | None:
        while not self._input:
            self._waiting = self._link.runtime.one_shot()
            await self._waiting.wait()
        return self._input.popleft()

    async def send(self, value: str) -> None:
        if self.failure is not None:
            raise self.failure
        self.said.append(json.loads(value))

    def put(self, *messages: dict[str, Any] | None) -> None:
        for message in messages:
            self._input.append(None if message is None else json.dumps({"jsonrpc": "2.0", **message}))
        if self._waiting is not None:
            self._waiting.set(None)
        self._link.run()

    def methods(self) -> list[str]:
        return [each["method"].rpartition("/")[2] for each in self.said if "method" in each]

    def answer(self, id: Any) -> Any:
        (found,) = [each for each in self.said if each.get("id") == id and "method" not in each]
        return found.get("result", found.get("error"))


class Shown:
    """A view that is shown, and what the program hears of it."""

    def __init__(self, arguments: Any = None, result: Any = None, **options: Any) -> None:
        server = Server("clock")
        server.view("ui://clock", lambda: "<p>")
        self.cancelled = False

        @server.tool(view="ui://clock")
        async def now(ctx: Context, zone: str = "UTC") -> str:
            if zone == "wait":
                try:
                    await ctx.sleep(30)
                finally:
                    self.cancelled = True
            if zone == "none":
                raise RequestError(ErrorCode.INTERNAL_ERROR, "no such zone")
            return f"noon in {zone}"

        self.link = Link(server, capabilities=ClientCapabilities(extensions=EXTENSIONS))
        self.tools: tuple[Tool, ...] = self.link.do(self.link.client.list_tools()).tools
        self.view = ViewConnection(self.tools[0], self.tools, capabilities=CAPABILITIES)
        self.channel = Channel(self.link)
        self.events: list[ViewEvent] = []
        options.setdefault("on_event", self.events.append)
        self.pump = self.link.start(pump(self.view, self.link.client, self.channel, arguments, result, **options))

    def begin(self) -> Channel:
        self.channel.put(HELLO, READY)
        return self.channel


@pytest.mark.req("APP-10", "APP-11")
def test_tool_is_called_for_the_view_and_its_result_returned() -> None:
    shown = Shown({"zone": "Rome"})
    assert shown.channel.said == []
    channel = shown.begin()
    assert channel.methods() == ["tool-input", "tool-result"]
    assert channel.said[1]["params"] == {"arguments": {"zone": "Rome"}}
    channel.put(None)
    result: Any = shown.pump.result
    assert result.content[0].text == "noon in Rome"
    assert shown.events[-1] == ViewEnded("lost")


@pytest.mark.req("APP-11")
def test_result_that_is_there_is_sent_as_it_is() -> None:
    result = CallToolResult((TextContent("noon"),))
    shown = Shown({}, result)
    channel = shown.begin()
    assert channel.said[-1]["params"]["content"] == [{"type": "text", "text": "noon"}]
    channel.put(None)
    assert shown.pump.result is result


def test_program_may_send_the_input_itself() -> None:
    shown = Shown()
    channel = shown.begin()
    shown.view.send_tool_input_partial({"zone": "R"})
    shown.view.send_tool_input({"zone": "Rome"})
    shown.link.run()
    assert channel.methods() == ["tool-input-partial", "tool-input"]
    channel.put(None)
    assert shown.pump.result is None


def test_view_that_is_torn_down_at_its_beginning_gets_no_input() -> None:
    shown: Any = None

    def on_event(event: ViewEvent) -> None:
        shown.view.tear_down(0)

    shown = Shown({}, on_event=on_event)
    assert shown.begin().methods() == ["resource-teardown"]


@pytest.mark.req("APP-11")
def test_failed_call_is_a_cancellation_to_the_view_and_an_error_to_the_program() -> None:
    shown = Shown({"zone": "none"})
    channel = shown.begin()
    assert channel.methods() == ["tool-input", "tool-cancelled"]
    channel.put(None)
    with pytest.raises(RequestError, match="no such zone"):
        _ = shown.pump.result


def test_call_that_ends_after_the_teardown_began_is_not_sent() -> None:
    shown = Shown({"zone": "wait"})
    channel = shown.begin()
    shown.view.tear_down(shown.link.client.driver.now(), timeout=None)
    shown.link.advance(30)
    assert channel.methods() == ["tool-input", "resource-teardown"]
    channel.put({"id": 1, "result": {}})
    assert shown.pump.result is not None


@pytest.mark.req("APP-12", "APP-13")
def test_calls_of_the_view_go_to_the_server() -> None:
    shown = Shown({})
    channel = shown.begin()
    channel.put(
        {"id": "a", "method": "tools/call", "params": {"name": "now", "arguments": {"zone": "Oslo"}}},
        {"id": "b", "method": "resources/read", "params": {"uri": "ui://clock"}},
        {"id": "c", "method": "resources/read", "params": {"uri": "ui://other"}},
        {"id": "d", "method": "tools/call", "params": {"name": "now", "arguments": {"zone": "none"}}},
    )
    assert channel.answer("a")["content"][0]["text"] == "noon in Oslo"
    assert channel.answer("b")["contents"][0]["text"] == "<p>"
    assert "not found" in channel.answer("c")["message"]
    assert channel.answer("d")["message"] == "no such zone"


@pytest.mark.req("APP-12")
def test_call_that_the_view_cancels_is_cancelled_at_the_server() -> None:
    shown = Shown()
    channel = shown.begin()
    channel.put({"id": 5, "method": "tools/call", "params": {"name": "now", "arguments": {"zone": "wait"}}})
    channel.put({"method": "notifications/cancelled", "params": {"requestId": 5}})
    assert shown.cancelled
    assert [each for each in channel.said if each.get("id") == 5] == []


@pytest.mark.req("APP-12")
def test_what_is_asked_of_the_host_is_answered_by_the_program_or_refused() -> None:
    asked: list[str] = []

    async def answer(request: Any) -> Any:
        asked.append(request.params["url"])
        if request.params["url"].endswith("ask"):
            raise RequestError(-32000, "the user said no")
        if request.params["url"].endswith("broken"):
            raise KeyError("broken")
        return None if request.params["url"].endswith("no") else {}

    shown = Shown(answer=answer)
    channel = shown.begin()
    for path in ("yes", "no", "ask", "broken"):
        channel.put({"id": path, "method": "ui/open-link", "params": {"url": f"https://a/{path}"}})
    assert len(asked) == 4
    assert channel.answer("yes") == {}
    assert channel.answer("no") == {"code": -32000, "message": "the host refused"}
    assert channel.answer("ask")["message"] == "the user said no"
    assert channel.answer("broken")["message"] == "the host failed"
    assert "answer= failed" in shown.link.reports[-1]
    other = Shown()
    other.begin().put({"id": 1, "method": "ui/open-link", "params": {"url": "https://a"}})
    assert other.channel.answer(1)["code"] == -32000


def test_answer_that_comes_after_the_end_is_dropped() -> None:
    shown: Any = None

    def answer(request: Any) -> Any:
        shown.view.connection_lost()
        return {}

    shown = Shown(answer=answer)
    shown.begin().put({"id": 1, "method": "ui/open-link", "params": {"url": "https://a"}})
    assert shown.pump.result is None


@pytest.mark.req("APP-12")
@pytest.mark.parametrize("answers", [True, False])
def test_view_that_asks_for_it_is_torn_down_in_bounded_time(answers: bool) -> None:
    shown = Shown()
    channel = shown.begin()
    channel.put({"method": "ui/notifications/request-teardown"})
    assert channel.methods() == ["resource-teardown"]
    assert shown.pump.state == "waits"
    if answers:
        channel.put({"id": channel.said[-1]["id"], "result": {}})
    else:
        shown.link.advance(5)
    assert shown.pump.result is None
    assert TeardownRequested() in shown.events
    assert shown.events[-1] == ViewEnded("torn down" if answers else "no answer")


def test_channel_that_fails_ends_the_view_and_its_calls() -> None:
    shown = Shown()
    channel = shown.begin()
    channel.put({"id": 5, "method": "tools/call", "params": {"name": "now", "arguments": {"zone": "wait"}}})
    channel.failure = OSError("gone")
    channel.put({"id": 6, "method": "ping"})
    assert shown.pump.result is None
    shown.link.run()
    assert shown.cancelled
    assert shown.view.phase is ViewPhase.ENDED
    assert shown.view.on_output is None


def test_handler_of_events_that_fails_is_reported_and_the_view_goes_on() -> None:
    def on_event(event: ViewEvent) -> Any:
        if isinstance(event, ViewLogged):
            raise KeyError("broken")

    shown = Shown(on_event=on_event)
    channel = shown.begin()
    channel.put(
        {"method": "notifications/message", "params": {"level": "info", "data": 1}}, {"id": 1, "method": "ping"}
    )
    assert channel.answer(1) == {}
    assert "on_event failed for ViewLogged" in shown.link.reports[-1]
    channel.put(None)
    silent = Shown(on_event=None)
    silent.begin().put(None)
    assert silent.pump.result is None


def test_flood_waits_for_the_view_to_read() -> None:
    shown = Shown()
    channel = shown.begin()
    before = len(channel.said)
    big = "i" * 3_000_000
    channel.put(*({"id": f"{number}{big}", "method": "ping"} for number in range(8)))
    assert len(channel.said) == before + 8
