"""Clients that learn from a subscription what their tasks become, and do not poll; the server is played."""

from __future__ import annotations

from typing import Any

import pytest
from linked import Link
from rawpeer import INFO, Played
from taskworld import Host, Name
from waits import Wait

from mcpio.app.asking import Accepted
from mcpio.app.client import Client, ClientOptions, client_connection
from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.app.tasks.requester import RARELY
from mcpio.engine.options import Options
from mcpio.engine.table import Role
from mcpio.errors import NoBackChannel
from mcpio.revisions import REVISIONS
from mcpio.types import ElicitResult
from mcpio.types.base import META_SERVER_INFO, META_SUBSCRIPTION_ID, TASKS_EXTENSION

STATE = {
    "status": "working",
    "createdAt": "2026-07-28T10:30:00Z",
    "lastUpdatedAt": "2026-07-28T10:30:00Z",
    "ttlMs": 600_000,
    "pollIntervalMs": 500,
}
DONE = {"content": [{"type": "text", "text": "done"}]}


class Reporting:
    """A played server that reports tasks, and its client."""

    def __init__(self, **options: Any) -> None:
        given: ClientOptions = {"era": "stateless", **options}  # type: ignore[typeddict-item]  # the test's own business
        connection = client_connection(**given)
        self.played: Played[Client] = Played(connection)
        self.client = self.played.session = Client(connection, self.played, **given)
        opening = self.played.start(self.client.initialize())
        capabilities: dict[str, Any] = {"tools": {"listChanged": True}, "extensions": {TASKS_EXTENSION: {}}}
        found = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "ttlMs": 0, "cacheScope": "private"}
        self.complete(self.played.asked("server/discover"), **found, _meta={META_SERVER_INFO: INFO})
        assert opening.state == "returned"
        self.listen: dict[str, Any] = {}

    def complete(self, asked: dict[str, Any], **members: Any) -> None:
        self.played.answer(asked, resultType="complete", **members)

    def call(self, id: str = "t", **how: Any) -> Wait[Any]:
        """Call a tool, which the server answers by a task."""
        call = self.played.start(self.client.call_tool("x", **how))
        self.played.answer(self.played.asked("tools/call"), resultType="task", taskId=id, **STATE)
        return call

    def acknowledge(self, *ids: str, **honoured: Any) -> dict[str, Any]:
        """Take the request that the client sent, and acknowledge it for some tasks; return its filter."""
        self.listen = self.played.asked("subscriptions/listen")
        self.say("notifications/subscriptions/acknowledged", notifications={"taskIds": list(ids), **honoured})
        wanted: dict[str, Any] = self.listen["params"]["notifications"]
        return wanted

    def say(self, method: str, **params: Any) -> None:
        params["_meta"] = {META_SUBSCRIPTION_ID: self.listen["id"]}
        self.played.say({"method": method, "params": params})

    def report(self, status: str, id: str = "t", **members: Any) -> None:
        self.say("notifications/tasks", taskId=id, **{**STATE, "status": status, **members})

    def look(self, status: str = "working", id: str = "t", **members: Any) -> None:
        """Answer the poll that the client sent."""
        asked = self.played.asked("tasks/get")
        assert asked["params"]["taskId"] == id
        self.complete(asked, taskId=id, **{**STATE, "status": status, **members})

    def is_cancelled(self, listen: dict[str, Any]) -> bool:
        cancelled: int = self.played.asked("notifications/cancelled")["params"]["requestId"]
        return cancelled == int(listen["id"])


@pytest.mark.req("XTASK-11")
def test_result_comes_from_a_report_without_a_poll() -> None:
    peer = Reporting()
    call = peer.call()
    assert peer.acknowledge("t") == {"taskIds": ["t"]}
    peer.look()  # what became of it before the acknowledgement
    peer.played.advance(30.0)
    assert peer.played.got() == []
    peer.report("working", statusMessage="half")
    assert peer.played.got() == []
    peer.report("completed", result=DONE)
    assert call.result.text == "done"
    assert peer.is_cancelled(peer.listen), "nothing is left to listen for"


@pytest.mark.req("XTASK-11", "XTASK-09")
def test_reported_questions_are_answered_once_each() -> None:
    def accept(scope: Any, request: Any) -> ElicitResult:
        return ElicitResult("accept", {"name": request.message})

    def question(text: str) -> dict[str, Any]:
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        return {"method": "elicitation/create", "params": {"mode": "form", "message": text, "requestedSchema": schema}}

    peer = Reporting(elicitation=accept)
    call = peer.call()
    peer.acknowledge("t")
    peer.look()
    for number in (1, 2):
        for _ in range(2):
            peer.report("input_required", inputRequests={f"k{number}": question("A")})
        asked = peer.played.asked("tasks/update")
        assert asked["params"]["inputResponses"] == {f"k{number}": {"action": "accept", "content": {"name": "A"}}}
        peer.complete(asked)
        assert peer.played.got() == []
    peer.report("failed", error={"code": -32001, "message": "no"})
    assert str(call.error) == "no (-32001)"


@pytest.mark.parametrize("is_reported", [True, False])
def test_wait_for_a_task_ends_with_the_connection(is_reported: bool) -> None:
    peer = Reporting()
    call = peer.call()
    if is_reported:
        peer.acknowledge("t")
    else:
        peer.played.refuse(peer.played.asked("subscriptions/listen"), -32601)
        peer.played.advance(0.5)
    peer.look()
    peer.played.connection.abort()
    peer.played.session._process()
    peer.played.runtime.run()
    assert isinstance(call.error, NoBackChannel)


def test_lost_report_is_replaced_by_the_rare_poll() -> None:
    peer = Reporting()
    call = peer.call()
    peer.acknowledge("t")
    peer.look()
    peer.played.advance(RARELY - 1)
    assert peer.played.got() == []
    peer.played.advance(1.0)
    peer.look("completed", result=DONE)
    assert call.result.text == "done"


def test_task_that_ends_before_the_acknowledgement_is_listened_for_no_more() -> None:
    peer = Reporting()
    call = peer.call()
    listen = peer.played.asked("subscriptions/listen")
    peer.played.advance(0.5)
    peer.look("completed", result=DONE)
    assert call.result.text == "done"
    peer.listen = listen
    peer.say("notifications/subscriptions/acknowledged", notifications={"taskIds": ["t"]})
    assert peer.is_cancelled(listen)


def test_server_that_reports_no_tasks_is_polled_and_not_asked_again() -> None:
    peer = Reporting()
    for _ in range(2):
        call = peer.call()
        if not peer.listen:
            peer.listen = peer.played.asked("subscriptions/listen")
            peer.say("notifications/subscriptions/acknowledged", notifications={})
            assert peer.is_cancelled(peer.listen)
        assert peer.played.got() == []
        peer.played.advance(0.5)
        peer.look("completed", result=DONE)
        assert call.result.text == "done"


def test_task_that_the_server_does_not_honour_is_polled() -> None:
    peer = Reporting()
    call = peer.call()
    peer.acknowledge()
    assert peer.is_cancelled(peer.listen)
    peer.played.advance(0.5)
    peer.look("completed", result=DONE)
    assert call.result.text == "done"
    peer.call("u")
    assert peer.acknowledge("u") == {"taskIds": ["u"]}, "it may honour the next one"


def test_task_is_polled_if_its_subscription_is_refused() -> None:
    peer = Reporting()
    call = peer.call()
    peer.played.refuse(peer.played.asked("subscriptions/listen"), -32603)
    peer.played.advance(0.5)
    peer.look("completed", result=DONE)
    assert call.result.text == "done"
    peer.call("u")
    assert peer.acknowledge("u") == {"taskIds": ["u"]}, "the next one may succeed"


def test_broken_subscription_is_renewed_and_polls_fill_the_gap() -> None:
    peer = Reporting()
    call = peer.call()
    peer.acknowledge("t")
    peer.look()
    peer.played.answer(peer.listen, resultType="complete", _meta={META_SUBSCRIPTION_ID: peer.listen["id"]})
    peer.look()
    peer.played.advance(0.1)
    peer.acknowledge("t")
    peer.look()
    peer.played.advance(10.0)
    assert peer.played.got() == []
    peer.report("completed", result=DONE)
    assert call.result.text == "done"


def test_tasks_share_one_subscription() -> None:
    peer = Reporting()
    first = peer.call("t")
    peer.acknowledge("t")
    peer.look()
    second = peer.call("u")
    old, wanted = peer.listen, peer.acknowledge("t", "u")
    assert wanted == {"taskIds": ["t", "u"]}
    cancelled, asked = peer.played.got()
    assert cancelled["params"]["requestId"] == old["id"], "the new one is open before the old one ends"
    assert (asked["method"], asked["params"]["taskId"]) == ("tasks/get", "u"), "nothing of the first one was missed"
    peer.complete(asked, taskId="u", **STATE)
    peer.report("completed", "t", result=DONE)
    assert (first.result.text, second.state, peer.played.got()) == ("done", "waits", [])
    peer.report("completed", "u", result=DONE)
    assert second.result.text == "done"
    assert peer.is_cancelled(peer.listen)


def test_tasks_started_together_share_one_request() -> None:
    peer = Reporting()
    peer.call("t")
    first = peer.played.asked("subscriptions/listen")
    for id in ("u", "v"):
        peer.call(id)
    peer.listen = first
    peer.say("notifications/subscriptions/acknowledged", notifications={"taskIds": ["t"]})
    second, asked = peer.played.got()
    assert second["params"]["notifications"] == {"taskIds": ["t", "u", "v"]}
    peer.complete(asked, taskId="t", **STATE)
    peer.listen = second
    peer.say("notifications/subscriptions/acknowledged", notifications={"taskIds": ["t", "u", "v"]})
    assert [message["method"] for message in peer.played.got()] == ["notifications/cancelled", "tasks/get", "tasks/get"]


def test_tasks_are_added_to_an_existing_subscription() -> None:
    heard: list[Any] = []
    peer = Reporting(on_notification=heard.append)
    peer.acknowledge(toolsListChanged=True)
    lists = peer.listen
    call = peer.call()
    assert peer.acknowledge("t", toolsListChanged=True) == {"toolsListChanged": True, "taskIds": ["t"]}
    cancelled, asked = peer.played.got()
    assert cancelled["params"]["requestId"] == lists["id"]
    peer.complete(asked, taskId="t", **STATE)
    peer.report("completed", result=DONE)
    assert call.result.text == "done"
    assert peer.played.got() == [], "the lists are still wanted"
    assert [type(each).__name__ for each in heard] == ["TaskNotification"]


def test_handles_that_were_dropped_are_left_out_of_the_next_subscription() -> None:
    peer = Reporting()
    states = peer.client.task("dropped").__aiter__()
    wait = peer.played.start(states.__anext__())
    peer.look(id="dropped")
    assert wait.result.status == "working"
    wait = peer.played.start(states.__anext__())
    peer.acknowledge("dropped")
    peer.look(id="dropped")
    wait.cancel()
    del states, wait
    peer.call()
    assert peer.acknowledge("t") == {"taskIds": ["t"]}


def test_malformed_report_is_a_violation_and_changes_nothing() -> None:
    peer = Reporting()
    call = peer.call()
    peer.acknowledge("t")
    peer.look()
    peer.report("odd")
    assert call.state == "waits"
    assert any("status" in report for report in peer.played.reports)


@pytest.mark.req("XTASK-09")
def test_task_with_endless_questions_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpio.app.tasks.requester.MOST_QUESTIONS", 3)
    peer = Reporting(elicitation=lambda scope, request: ElicitResult("decline"))
    call = peer.call()
    peer.acknowledge("t")
    peer.look()
    form = {"mode": "form", "message": "More?", "requestedSchema": {"type": "object", "properties": {}}}
    question = {"method": "elicitation/create", "params": form}
    for number in range(3):
        peer.report("input_required", inputRequests={f"k{number}": question})
        peer.complete(peer.played.asked("tasks/update"))
    peer.report("input_required", inputRequests={"k4": question})
    assert str(call.error) == "tools/call 'x': the server asks for more input after 3 rounds"
    methods = [message["method"] for message in peer.played.got()]
    assert methods == ["notifications/cancelled", "tasks/cancel"]


# With a server of ours


@pytest.mark.req("XTASK-11")
def test_client_and_server_of_this_package_do_not_poll() -> None:
    server = Server("s", options=Options(revisions=REVISIONS))

    @server.tool(task_support="required")
    async def ask(ctx: Context) -> str:
        await ctx.sleep(20.0)
        answer = await ctx.elicit("Who?", Name)
        return answer.value.name if isinstance(answer, Accepted) else "nobody"

    def accept(scope: Any, request: Any) -> ElicitResult:
        return ElicitResult("accept", {"name": "Ada"})

    link = Link(server, era="stateless", elicitation=accept)
    tasks: Any = server.tasks
    tasks.attach(Host(link.runtime))
    call = link.start(link.client.call_tool("ask"))
    link.advance(30.0)
    assert call.result.text == "Ada"
    sent = link.pair.sent(Role.CLIENT)
    assert sent.count(b'"method":"tasks/get"') == 1
    assert sent.count(b'"method":"subscriptions/listen"') == 1
    link.run()
    assert tasks._watchers == {}
