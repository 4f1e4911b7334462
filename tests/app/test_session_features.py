"""What a session of either side does for those who use it: values, visits, middleware, tasks."""

from __future__ import annotations

from typing import Any

import pytest
from linked import Link

from mcpio.app.middleware import CallNext
from mcpio.app.runtime import SLOW
from mcpio.app.server import Server
from mcpio.app.session import SavedSession
from mcpio.engine.options import KeepAlive, Options
from mcpio.engine.table import Phase, Role
from mcpio.errors import ConnectionLost, URLElicitationRequired
from mcpio.types import (
    CallToolRequest,
    ClientCapabilities,
    ElicitationCapability,
    ElicitResult,
    ElicitURLRequest,
    TaskMetadata,
)

BY_URL = ClientCapabilities(elicitation=ElicitationCapability(url={}))


@pytest.mark.req("ELIC-17")
def test_the_end_of_the_connection_ends_the_wait_for_a_visit() -> None:
    server = Server("s")

    @server.tool
    def pay() -> str:
        raise URLElicitationRequired([ElicitURLRequest("Pay", "https://example.com/pay", "e1")])

    link = Link(server, capabilities=BY_URL, elicitation=lambda *_: ElicitResult("decline"), era="handshake")
    with pytest.raises(URLElicitationRequired):
        link.call("pay")
    waits = link.start(link.client.wait_for_elicitation("e1"))
    link.client.close()
    link.run()
    assert isinstance(waits.error, ConnectionLost)


@pytest.mark.req("ELIC-17")
def test_url_elicitation_required_may_name_several_urls() -> None:
    server = Server("s")

    @server.tool
    def pay() -> str:
        raise URLElicitationRequired([ElicitURLRequest("Pay", f"https://example.com/{id}", id) for id in ("e1", "e2")])

    link = Link(server, capabilities=BY_URL, elicitation=lambda *_: ElicitResult("decline"), era="handshake")
    with pytest.raises(URLElicitationRequired):
        link.call("pay")
    waits = [link.start(link.client.wait_for_elicitation(id)) for id in ("e1", "e2")]
    link.session.notify_elicitation_complete("e2")
    link.run()
    assert [ask.state for ask in waits] == ["waits", "returned"]


@pytest.mark.req("PING-05")
def test_unanswered_keep_alive_ping_is_reported() -> None:
    link = Link(Server("s"), options=Options(keep_alive=KeepAlive(30, timeout=5, failures=2)), era="handshake")
    link.pair.stall(Role.SERVER)
    link.advance(36)
    assert link.reports == ["no answer to a keep-alive ping: no answer within 5 s"]
    link.pair.resume(Role.SERVER)
    link.advance(1)
    assert (link.client.ended, len(link.reports)) == (None, 1)


def test_health_of_a_session() -> None:
    link = Link(Server("s"))
    link.advance(3)
    assert (link.client.health().phase, link.client.health().silent_for) == (Phase.OPERATING, 3)


@pytest.mark.req("TASK-30")
def test_task_status_reaches_its_handle() -> None:
    server = Server("s")

    @server.tool(task_support="optional")
    async def dig() -> str:
        return "deep"

    link = Link(server, era="handshake")
    seen: list[str] = []
    request = CallToolRequest("dig", task=TaskMetadata())
    handle = link.do(link.client.start_task(request, on_status=lambda state: seen.append(state.status)))
    link.run()
    assert seen[-1] == "completed"
    assert handle.id


def test_client_snapshot_has_no_state() -> None:
    link = Link(Server("s"), era="handshake")
    snapshot = link.client.snapshot()
    saved = SavedSession.read(snapshot)
    assert saved.state == {}
    link.client._resume(saved)
    link.do(link.client.ping())


def test_abandoned_requests_fail() -> None:
    server = Server("s")
    release: list[Any] = []

    @server.tool
    async def wait() -> str:
        release.append(link.runtime.one_shot())
        await release[-1].wait()
        return "done"

    link = Link(server)
    served = link.start(link.client.call_tool("wait"))
    link.session._fail_abandoned()
    link.run()
    assert served.state == "waits"
    release[0].set(None)
    link.run()
    assert served.result.text == "done"
    served = link.start(link.client.call_tool("wait"))
    other = server.session(link.session.connection, link.session.driver)  # it serves none of these requests
    other._fail_abandoned()
    link.run()
    assert "-32603" in str(served.error)


@pytest.mark.parametrize("took", [SLOW / 2, SLOW * 2])
def test_plain_function_behind_middleware_is_timed_separately(took: float) -> None:
    async def around(ctx: Any, request: Any, call_next: CallNext) -> Any:
        return await call_next(request)

    server = Server("s", middleware=[around])

    @server.tool
    def idle() -> str:
        link.pair.now += took
        return "ok"

    link = Link(server)
    assert link.text("idle") == "ok"
    assert len(link.reports) == (took > SLOW)
