"""Rules of tasks that a server of ours keeps towards a peer that a test plays."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from rawpeer import INFO, Played

from mcpio import Context, Server
from mcpio.app.tasks.receiver import TaskOptions
from mcpio.engine.tasks import TaskLimits
from mcpio.testing import ManualRuntime

RELATED = "io.modelcontextprotocol/related-task"
IMMEDIATE = "io.modelcontextprotocol/model-immediate-response"


def mine(**options: Any) -> Server:
    server = Server("mine", tasks=TaskOptions(**options))

    @server.tool(task_support="optional", immediate_response="Digging.")
    async def dig(ctx: Context, seconds: float = 10.0) -> str:
        await ctx.sleep(seconds)
        return "gold"

    server.tool(lambda: "dark", name="look")
    server.tool(lambda: "sand", name="sift", task_support="required")

    return server


def miner(server: Server, principal: str | None = None) -> Played[Any]:
    """Return a session that has shaken hands with a client of that principal."""
    connection = server.connection(principal=principal)
    played: Played[Any] = Played(connection)
    played.session = server.session(connection, played, None)
    return played


def opened(server: Server, principal: str | None = None) -> Played[Any]:
    played = miner(server, principal)
    asked(played, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=INFO)
    played.say({"method": "notifications/initialized"})
    return played


def asked(peer: Played[Any], method: str, **params: Any) -> Any:
    """Return the result of a request, or the code of the error."""
    peer.say({"id": "q", "method": method, "params": params})
    (answer,) = (message for message in peer.got() if message.get("id") == "q")
    return answer["result"] if "result" in answer else answer["error"]["code"]


def begun(peer: Played[Any], **task: Any) -> dict[str, Any]:
    """Call the tool as a task, and return the result."""
    result: dict[str, Any] = asked(peer, "tools/call", name="dig", task=task)
    return result


@pytest.mark.req("TASK-01")
def test_server_declares_tasks_by_objects() -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO}
    declared: dict[str, Any] = {"cancel": {}, "requests": {"tools": {"call": {}}}}
    for principal, more in ((None, {}), ("ada", {"list": {}})):
        answer = asked(miner(mine(), principal), "initialize", **hello)
        assert answer["capabilities"]["tasks"] == {**declared, **more}


@pytest.mark.req("TASK-10")
def test_ids_of_tasks_are_random(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[bytes] = []

    def entropy(_: ManualRuntime, size: int) -> bytes:
        drawn.append(random.randbytes(size))
        return drawn[-1]

    random = Random(1)
    monkeypatch.setattr(ManualRuntime, "entropy", entropy)
    peers = [opened(mine()) for _ in range(3)]
    ids = [begun(peer)["task"]["taskId"] for peer in peers for _ in range(20)]
    assert len(set(ids)) == len(ids)
    assert len(drawn) >= len(ids)
    assert all(8 * len(each) >= 122 for each in drawn)
    assert min(map(len, ids)) >= 21  # as 122 bits take characters of 6 bits
    assert all(len({id[position] for id in ids}) > 8 for position in range(21))


@pytest.mark.req("TASK-11", "TASK-13", "TASK-22", "TASK-32")
def test_task_from_its_start_to_its_result() -> None:
    peer = opened(mine(limits=TaskLimits(max_ttl=60.0, max_ttl_without_owner=60.0), poll_interval=0.5))
    created = begun(peer, ttl=90000)
    task = created["task"]
    assert (task["status"], task["ttl"], task["pollInterval"]) == ("working", 60000, 500)
    assert created["_meta"] == {RELATED: {"taskId": task["taskId"]}, IMMEDIATE: "Digging."}
    assert asked(peer, "tasks/get", taskId=task["taskId"])["ttl"] == 60000
    peer.advance(10.0)
    result = asked(peer, "tasks/result", taskId=task["taskId"])
    assert result == {
        "content": [{"type": "text", "text": "gold"}],
        "_meta": {RELATED: {"taskId": task["taskId"]}},
    }
    peer.advance(51.0)
    assert asked(peer, "tasks/get", taskId=task["taskId"]) == -32602


@pytest.mark.req("TASK-34")
def test_task_of_another_principal_is_unknown() -> None:
    server = mine()
    ada, bob = opened(server, "ada"), opened(server, "bob")
    id = begun(ada)["task"]["taskId"]
    for method in ("tasks/get", "tasks/result", "tasks/cancel"):
        assert asked(bob, method, taskId=id) == asked(bob, method, taskId="never was") == -32602
    assert asked(bob, "tasks/list") == {"tasks": []}
    assert [task["taskId"] for task in asked(ada, "tasks/list")["tasks"]] == [id]
    assert asked(ada, "tasks/get", taskId=id)["status"] == "working"
    assert asked(ada, "tasks/cancel", taskId=id)["status"] == "cancelled"


@pytest.mark.req("TASK-04", "TASK-06", "TASK-07")
def test_tool_says_whether_a_call_may_be_a_task_and_refuses_the_others() -> None:
    peer = opened(mine())
    supports = {tool["name"]: tool.get("execution") for tool in asked(peer, "tools/list")["tools"]}
    assert supports == {"dig": {"taskSupport": "optional"}, "look": None, "sift": {"taskSupport": "required"}}
    assert asked(peer, "tools/call", name="look", task={}) == -32601
    assert asked(peer, "tools/call", name="sift") == -32601
    assert asked(peer, "tools/call", name="look")["content"] == [{"type": "text", "text": "dark"}]
    assert asked(peer, "tools/call", name="sift", task={})["task"]["status"] in ("working", "completed")


@pytest.mark.req("TASK-29", "TASK-30")
def test_requests_about_tasks_name_none_in_their_metadata_and_ignore_what_does() -> None:
    peer = opened(mine(), "ada")
    first, second = (begun(peer)["task"]["taskId"] for _ in range(2))
    other = {RELATED: {"taskId": second}}
    task = asked(peer, "tasks/get", taskId=first, _meta=other)
    assert (task["taskId"], "_meta" in task) == (first, False)
    listed = asked(peer, "tasks/list", _meta=other)
    assert ({task["taskId"] for task in listed["tasks"]}, "_meta" in listed) == ({first, second}, False)
    peer.say({"id": "c", "method": "tasks/cancel", "params": {"taskId": first, "_meta": other}})
    cancelled = {message.get("id", message.get("method")): message for message in peer.got()}
    assert (cancelled["c"]["result"]["taskId"], "_meta" in cancelled["c"]["result"]) == (first, False)
    told = cancelled["notifications/tasks/status"]["params"]
    assert (told["taskId"], told["status"], "_meta" in told) == (first, "cancelled", False)
    assert asked(peer, "tasks/get", taskId=second)["status"] == "working"


@pytest.mark.req("TASK-13", "TASK-36")
def test_expired_task_whose_timer_is_late_has_made_room() -> None:
    peer = opened(mine(limits=TaskLimits(tasks=1)))
    begun(peer, ttl=1000)
    assert asked(peer, "tools/call", name="dig", task={}) == -32603
    peer.runtime.now += 2.0
    assert begun(peer)["task"]["status"] == "working"
