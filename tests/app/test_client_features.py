"""What a client has only where it is used: each is a door to a module of its own, which has further tests."""

from __future__ import annotations

from typing import Any

import pytest
from linked import Link

from mcpio.app.context import Context
from mcpio.app.middleware import CallNext
from mcpio.app.reconnection import SessionReconnector
from mcpio.app.server import Server
from mcpio.app.tasks.receiver import TaskOptions
from mcpio.backoff import Backoff
from mcpio.errors import LocalProtocolError, RequestError, URLElicitationRequired
from mcpio.revisions import REV_2025_03_26, REV_2025_06_18
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    ClientCapabilities,
    ElicitationCapability,
    ElicitationCompleteNotification,
    ElicitResult,
    ElicitURLRequest,
    EmptyResult,
    PingRequest,
    Root,
    RootsCapability,
    ServerCapabilities,
    TextContent,
    ToolsCapability,
)

BY_URL = ClientCapabilities(elicitation=ElicitationCapability(url={}))


@pytest.mark.req("BATCH-01")
def test_several_requests_go_out_in_one_array() -> None:
    link = Link(Server("s", capabilities=ServerCapabilities(tools=ToolsCapability())), revision=REV_2025_03_26)
    pong, unknown = link.do(link.client.batch([PingRequest(), CallToolRequest("none")]))
    assert isinstance(pong, EmptyResult)
    assert isinstance(unknown, RequestError)


@pytest.mark.req("TASK-01", "TASK-31")
def test_client_with_task_options_declares_its_task_requests() -> None:
    link = Link(Server("s"), elicitation=lambda *_: ElicitResult("decline"), tasks=TaskOptions(), era="handshake")
    assert link.session.connection.peer is not None
    tasks: Any = link.session.connection.peer.capabilities.tasks
    assert (tasks.requests.elicitation.create, tasks.requests.sampling) == ({}, None)
    assert "tasks/get" in link.client._handlers
    link.client.close()
    link.run()
    assert link.client.ended is not None


def test_middleware_of_both_directions_is_applied() -> None:
    seen: list[str] = []

    async def outside(ctx: Any, request: Any, call_next: CallNext) -> Any:
        seen.append(ctx.method)
        return await call_next(request)

    server = Server("s")

    @server.tool
    async def look(ctx: Context) -> int:
        return len(await ctx.roots())

    link = Link(server, roots=[Root("file:///a")], middleware=[outside], handler_middleware=[outside])
    assert link.call("look").structured_content == {"result": 1}
    assert seen == ["tools/call", "roots/list"]


def test_read_only_request_is_retried_by_policy() -> None:
    server = Server("s")
    tries: list[int] = []

    @server.resource("memo://note")
    def note() -> str:
        tries.append(1)
        if len(tries) < 2:
            raise RequestError(1056, "not so fast", {"retryable": True})
        return "text"

    link = Link(server, retry=Backoff())
    ask = link.start(link.client.read_resource("memo://note"))
    link.advance(60)
    assert (ask.state, len(tries)) == ("returned", 2)


@pytest.mark.req("ROOT-03")
@pytest.mark.parametrize(("declared", "told"), [(None, True), (RootsCapability(), False)])
def test_set_roots_replaces_and_notifies(declared: RootsCapability | None, told: bool) -> None:
    server = Server("s")

    @server.tool
    async def look(ctx: Context) -> list[str]:
        return [root.uri for root in await ctx.roots()]

    link = Link(server, roots=[Root("file:///a")], capabilities=ClientCapabilities(roots=declared), era="handshake")
    assert link.call("look").structured_content == {"result": ["file:///a"]}
    written = len(link.pair.tap)
    link.client.set_roots([Root("file:///b")])
    link.run()
    assert (len(link.pair.tap) > written) is told
    assert link.call("look").structured_content == {"result": ["file:///b"]}


@pytest.mark.req("ELIC-16", "ELIC-17")
def test_elicitation_named_by_an_error_can_be_awaited() -> None:
    server = Server("s")

    @server.tool
    def pay() -> str:
        raise URLElicitationRequired([ElicitURLRequest("Pay", "https://example.com/pay", "e1")])

    link = Link(server, capabilities=BY_URL, elicitation=lambda *_: ElicitResult("decline"), era="handshake")
    with pytest.raises(LocalProtocolError, match="the server never named the elicitation 'e1'"):
        link.do(link.client.wait_for_elicitation("e1"))
    with pytest.raises(URLElicitationRequired):
        link.call("pay")
    waits = link.start(link.client.wait_for_elicitation("e1"))
    assert waits.state == "waits"
    assert link.session.notify_elicitation_complete("e1")
    link.run()
    assert waits.state == "returned"
    link.do(link.client.wait_for_elicitation("e1"))


@pytest.mark.req("ELIC-16")
def test_completion_of_an_unknown_elicitation_is_ignored() -> None:
    told: list[Any] = []
    link = Link(Server("s"), capabilities=BY_URL, on_notification=told.append, era="handshake")
    link.session.notify(ElicitationCompleteNotification("e1"))
    link.run()
    assert (told, link.reports) == ([], [])


def test_reconnector_is_inside_of_all_middleware() -> None:
    seen: list[str] = []

    async def layer(ctx: Any, request: Any, call_next: CallNext) -> Any:
        seen.append("middleware")
        return await call_next(request)

    class Reconnector(SessionReconnector):
        async def send(self, send: Any, request: Any, **how: Any) -> Any:
            seen.append("reconnector")
            return await super().send(send, request)

    link = Link(Server("s"), middleware=[layer], era="handshake")
    link.client._reconnector = Reconnector(link.client, None)
    link.do(link.client.ping())
    assert seen == ["middleware", "reconnector"]


@pytest.mark.req("TASK-06")
def test_tool_that_refuses_a_plain_call_is_called_as_a_task() -> None:
    server = Server("s")

    @server.tool(task_support="required")
    async def dig() -> str:
        return "deep"

    @server.tool
    def plain() -> CallToolResult:
        return CallToolResult((TextContent("no task for me"),), is_error=True)

    link = Link(server, era="handshake")
    calls = [link.start(link.client.call_tool("dig")), link.start(link.client.call_tool("dig", task=True))]
    link.advance(60)
    assert [call.result.text for call in calls] == ["deep", "deep"]
    assert link.call("plain").is_error
    assert (
        Link(server, era="handshake").call("plain").is_error
    )  # of a tool that is not known yet it might be the refusal
    with pytest.raises(RequestError, match="-32601"):
        link.do(link.client.call_tool("dig", task=False))


def test_task_call_in_an_older_revision_raises() -> None:
    link = Link(Server("s", capabilities=ServerCapabilities(tools=ToolsCapability())), revision=REV_2025_06_18)
    with pytest.raises(LocalProtocolError, match="task: does not exist in 2025-06-18"):
        link.do(link.client.call_tool("x", task=True))
