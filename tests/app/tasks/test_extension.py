"""The tasks extension of 2026-07-28: stateless clients and clients of 2025-11-25 with the tasks of one server."""

from __future__ import annotations

from typing import Any

import pytest
from linked import Link
from shared_tasks import SharedShelf, Shelf
from stateless import HELLO, meta
from statelessly import accept
from tasked import Wire
from taskworld import MISSING, Name, World, name

from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.app.tasks.receiver import TaskOptions
from mcpio.engine.options import Options
from mcpio.engine.tasks import TaskLimits
from mcpio.errors import RequestError
from mcpio.events import CancelReceived, IncomingId
from mcpio.revisions import HANDSHAKE_REVISIONS, REVISIONS
from mcpio.types import (
    ElicitResult,
    ServerCapabilities,
)
from mcpio.types.base import TASKS_EXTENSION


@pytest.mark.req("XTASK-01")
def test_extension_is_declared_once_a_tool_may_be_a_task_and_stateless_clients_are_served() -> None:
    world, all_eras = World(), Options(revisions=REVISIONS)
    world.server.options = Options(revisions=HANDSHAKE_REVISIONS)
    assert _extensions(world.server) is None
    world.server.options = all_eras
    assert _extensions(world.server) == {TASKS_EXTENSION: {}}
    own = ServerCapabilities(extensions={"a.b/c": {}})
    server = Server("s", tasks=TaskOptions(), options=all_eras, capabilities=own)
    assert _extensions(server) == {"a.b/c": {}}
    server.tool(lambda: None, name="x", task_support="optional")
    assert _extensions(server) == {TASKS_EXTENSION: {}, "a.b/c": {}}
    old = Server("s", options=Options(revisions=HANDSHAKE_REVISIONS))
    old.tool(lambda: None, name="x", task_support="optional")
    assert _extensions(old) is None


def _extensions(server: Server) -> Any:
    return server.capabilities.extensions


@pytest.mark.req("XTASK-04", "XTASK-05")
def test_created_task_is_flat_and_can_be_read_at_once() -> None:
    world = World()
    created = world.call("ask")
    created.pop("_meta", None)
    id = created["taskId"]
    assert created == {
        "resultType": "task",
        "taskId": id,
        "status": "working",
        "createdAt": "1970-01-01T00:00:00.000Z",
        "lastUpdatedAt": "1970-01-01T00:00:00.000Z",
        "ttlMs": 3_600_000,
        "pollIntervalMs": 1000,
    }
    assert world.get(id)["taskId"] == id


def test_tool_without_task_support_never_becomes_a_task() -> None:
    world = World()
    request = world.client.request("tools/call", {"name": "greet", "arguments": {"name": "Ada"}, "task": {"ttl": 1}})
    assert world.run(request)["content"][0]["text"] == "Hello, Ada!"
    assert world.refusal(world.call, "unknown")[0] == -32602


def test_quick_call_does_not_become_a_task() -> None:
    world = World()
    result = world.call("slow", seconds=1.0)
    assert (result["resultType"], result["content"][0]["text"]) == ("complete", "done")
    assert world.refusal(world.get, world.seen[0].id)[0] == -32602


def test_slow_call_continues_as_a_task() -> None:
    world = World()
    created = world.run(world.client.call("slow", {"seconds": 5.0}), 2.0)
    assert (created["resultType"], created["status"]) == ("task", "working")
    world.pass_time(3.0)
    found = world.get(created["taskId"])
    assert (found["status"], found["resultType"]) == ("completed", "complete")
    assert found["result"]["content"][0]["text"] == "done"
    assert "_meta" not in found["result"]


def test_call_that_asks_early_becomes_a_task_at_once() -> None:
    world = World()

    @world.server.tool(task_support="optional")
    async def doubt(ctx: Context) -> str:
        await ctx.elicit("Sure?", Name)
        return "sure"

    created = world.call("doubt")
    assert created["resultType"] == "task"
    assert world.get(created["taskId"])["status"] == "input_required"


def test_short_call_that_fails_is_answered_by_its_error() -> None:
    world = World()

    @world.server.tool(task_support="optional")
    async def refuse() -> str:
        raise RequestError(-32001, "no", {"x": 1})

    assert world.refusal(world.call, "refuse") == (-32001, {"x": 1})


def test_call_cancelled_before_it_becomes_a_task_creates_no_task() -> None:
    world = World()
    found: list[Any] = []

    async def call() -> None:
        found.append(await world.client.call("slow", {"seconds": 9.0}))

    world.runtime.spawn(call())
    world.runtime.run()
    (session,) = world.server.sessions
    session._handle(CancelReceived(IncomingId(1), None, {}))
    world.pass_time(10.0)
    assert found == []


@pytest.mark.req("XTASK-02", "XTASK-12", "EXT-02")
def test_client_that_takes_no_tasks_gets_a_plain_result_or_the_missing_capability() -> None:
    world = World()
    assert world.run(world.plain.call("slow"), 1.0)["resultType"] == "complete"
    assert world.refusal(lambda: world.run(world.plain.call("ask"))) == (-32021, MISSING)
    id = world.call("ask")["taskId"]
    for method in ("get", "update", "cancel"):
        assert world.refusal(world.about, method, id, world.plain) == (-32021, MISSING)


@pytest.mark.req("XTASK-12")
def test_unknown_task_is_an_invalid_parameter() -> None:
    world = World()
    for method in ("get", "update", "cancel"):
        assert world.refusal(world.about, method, "unknown")[0] == -32602
    assert world.refusal(lambda: world.run(world.client.request("tasks/get", {"taskId": 1})))[0] == -32602


@pytest.mark.req("XTASK-07")
def test_tool_that_fails_is_completed_and_a_protocol_error_has_failed() -> None:
    world = World()
    found = world.get(world.call("fail")["taskId"])
    assert (found["status"], found["result"]["isError"], found["statusMessage"]) == ("completed", True, "bad")
    found = world.get(world.call("fail", how="protocol")["taskId"])
    assert (found["status"], found["error"]) == ("failed", {"code": -32001, "message": "no", "data": {"x": 1}})
    assert "result" not in found
    assert world.get(world.call("fail", how="bare")["taskId"])["error"] == {"code": -32001, "message": "no"}


@pytest.mark.req("XTASK-06", "XTASK-08", "XTASK-17")
def test_question_is_kept_in_the_task_until_an_update_answers_it() -> None:
    world = World()
    id = world.call("ask")["taskId"]
    found = world.get(id)
    ((key, question),) = found["inputRequests"].items()
    assert (found["status"], question["method"], question["params"]["message"]) == (
        "input_required",
        "elicitation/create",
        "Sure?",
    )
    assert world.about("update", id, inputResponses={key: name("Ada"), "other": {}}) == {"resultType": "complete"}
    found = world.get(id)
    assert (found["status"], found["result"]["content"][0]["text"]) == ("completed", "Ada")
    assert world.about("update", id, inputResponses={key: name("Bob")}) == {"resultType": "complete"}


@pytest.mark.req("XTASK-08")
def test_partial_update_removes_the_answered_questions() -> None:
    world = World()
    id = world.call("ask_twice")["taskId"]
    first, second = world.get(id)["inputRequests"]
    world.about("update", id, inputResponses={second: name("B")})
    found = world.get(id)
    assert (found["status"], list(found["inputRequests"])) == ("input_required", [first])
    world.about("update", id, inputResponses={first: name("A")})
    assert world.get(id)["result"]["content"][0]["text"] == "A B"


@pytest.mark.req("XTASK-09")
def test_answer_that_does_not_fit_the_form_is_asked_for_again_under_a_new_key() -> None:
    world = World()
    id = world.call("ask")["taskId"]
    (key,) = world.get(id)["inputRequests"]
    assert world.refusal(world.about, "update", id, inputResponses={key: {"action": "perhaps"}})[0] == -32602
    assert list(world.get(id)["inputRequests"]) == [key]
    world.about("update", id, inputResponses={key: accept(surname="Ada")})
    (other,) = world.get(id)["inputRequests"]
    assert other != key
    world.about("update", id, inputResponses={other: {"action": "decline"}})
    assert world.get(id)["result"]["content"][0]["text"] == "Declined"


def test_question_returned_by_the_handler_is_kept_in_the_task_too() -> None:
    world = World()
    id = world.call("ask_by_result")["taskId"]
    (key,) = world.get(id)["inputRequests"]
    world.about("update", id, inputResponses={key: name("Ada")})
    assert world.get(id)["result"]["content"][0]["text"] == "known"


@pytest.mark.req("XTASK-10")
def test_cancel_is_acknowledged_for_running_and_ended_tasks() -> None:
    world = World()
    id = world.call("ask")["taskId"]
    assert world.about("cancel", id) == {"resultType": "complete"}
    found = world.get(id)
    assert found["status"] == "cancelled"
    assert not {"result", "error", "inputRequests"} & found.keys()
    assert world.about("cancel", id) == {"resultType": "complete"}


@pytest.mark.req("XTASK-15")
def test_tool_asks_in_rounds_before_it_becomes_a_task() -> None:
    world = World()
    asked = world.call("first_ask")
    assert (asked["resultType"], list(asked["inputRequests"])) == ("input_required", ["who"])
    created = world.run(world.client.call("first_ask", {}, {"who": name("Ada")}))
    assert created["resultType"] == "task"
    assert [task is None for task in world.seen] == [True, False, False]
    id = created["taskId"]
    (key,) = world.get(id)["inputRequests"]
    world.about("update", id, inputResponses={key: {"action": "cancel"}})
    assert world.get(id)["result"]["content"][0]["text"] == "Ada Cancelled"


def test_becoming_a_task_is_nothing_to_do_in_a_handshake_session() -> None:
    world = World()
    link = Link(
        world.server, elicitation=lambda scope, request: ElicitResult("accept", {"name": "Ada"}), era="handshake"
    )
    assert link.text("first_ask") == "Ada Accepted"
    assert world.seen == [None, None]


def test_tool_that_never_becomes_a_task_is_a_plain_call() -> None:
    world = World()
    assert world.call("never_becomes")["content"][0]["text"] == "at once"
    assert world.refusal(world.call, "never_becomes", kind="raise")[0] == -32001


def test_becoming_a_task_needs_a_tool_registered_for_it() -> None:
    world = World()

    @world.server.tool
    async def unprepared(ctx: Context) -> str:
        await ctx.become_task()
        return "unreachable"

    result = world.call("unprepared")
    assert result["isError"]
    assert "become_task() needs a tool that is registered with becomes_task=True" in result["content"][0]["text"]


def test_becoming_a_task_needs_a_client_that_takes_tasks() -> None:
    world = World()
    call = world.plain.call("first_ask", {}, {"who": name("Ada")})
    assert world.refusal(lambda: world.run(call)) == (-32021, MISSING)


@pytest.mark.req("XTASK-16")
def test_client_of_2025_11_25_gets_and_cancels_a_task_that_a_stateless_client_made() -> None:
    world = World()
    done, open_ = world.call("fail")["taskId"], world.call("ask")["taskId"]
    wire = Wire(Link(world.server, era="handshake"))
    assert wire.ask("tasks/get", taskId=done)["status"] == "failed"
    assert wire.ask("tasks/result", taskId=done)["content"][0]["text"] == "bad"
    assert wire.ask("tasks/cancel", taskId=open_)["status"] == "cancelled"
    assert wire.ask("tasks/update", taskId=done, inputResponses={})["code"] == -32601


def test_answers_reach_the_process_that_runs_the_task() -> None:
    shelf = Shelf()
    here, there = World(store=SharedShelf(shelf)), World(store=SharedShelf(shelf))
    created = here.run(here.client.call("ask_twice"))
    id = created["taskId"]
    there.runtime.run()
    first, second = there.get(id)["inputRequests"]
    there.about("update", id, inputResponses={second: name("B"), "other": {}})
    there.about("update", id, inputResponses={"other": {}})
    assert list(there.get(id)["inputRequests"]) == [first]
    here.runtime.run()
    shelf.is_mute = True
    there.about("update", id, inputResponses={first: name("A")})
    assert there.get(id)["status"] == "working"
    here.pass_time(10.0)
    there.runtime.run()
    assert there.get(id)["result"]["content"][0]["text"] == "A B"


def test_quick_call_leaves_nothing_in_a_shared_store() -> None:
    shelf = Shelf()
    world = World(store=SharedShelf(shelf), owner=lambda principal: "Ada")
    assert world.call("slow", seconds=1.0)["resultType"] == "complete"
    assert shelf.rows == {}


def test_task_of_a_killed_process_is_resumed_with_its_revision() -> None:
    shelf = Shelf()
    here, there = World(store=SharedShelf(shelf)), World(store=SharedShelf(shelf))
    created = here.run(here.client.call("slow", {"seconds": 500.0}), 2.0)
    shelf.callbacks.clear()
    for _ in range(6):
        shelf.now += 10.0
        there.pass_time(10.0)
    assert there.seen[0].is_resumed
    there.pass_time(500.0)
    assert there.get(created["taskId"])["result"]["content"][0]["text"] == "done"


@pytest.mark.parametrize("is_early", [True, False])
def test_question_of_a_killed_process_is_answered_once(is_early: bool) -> None:
    shelf = Shelf()
    here, there = World(store=SharedShelf(shelf)), World(store=SharedShelf(shelf))

    async def sure(ctx: Context) -> str:
        return (await ctx.elicit("Sure?", Name)).value.name  # type: ignore[union-attr]  # it is accepted

    for world in (here, there):
        world.server.tool(sure, task_support="required", resume=True)
    id = here.run(here.client.call("sure"))["taskId"]
    there.runtime.run()
    (key,) = there.get(id)["inputRequests"]
    shelf.callbacks.clear()
    if is_early:
        there.about("update", id, inputResponses={key: name("Ada")})
    for _ in range(6):
        shelf.now += 10.0
        there.pass_time(10.0)
    if not is_early:
        assert list(there.get(id)["inputRequests"]) == [key]
        there.about("update", id, inputResponses={key: name("Ada")})
    assert there.get(id)["result"]["content"][0]["text"] == "Ada"
    here.pass_time(60.0)  # it learns that the task is another's, and its run ends


def test_limit_of_tasks_holds_for_stateless_clients() -> None:
    world = World(limits=TaskLimits(running=1))
    world.call("ask")
    assert world.refusal(world.call, "ask")[0] == -32603


# On the wire


class Pipe:
    """A server of both eras on one pipe, and what it says."""

    def __init__(self) -> None:
        world = World()
        self.world = world
        world.server.options = Options(revisions=REVISIONS)
        self.link = Link(world.server, shake_hands=False)
        self.wire = Wire(self.link)

    def ask(self, method: str, *, takes_tasks: bool = True, **params: Any) -> dict[str, Any]:
        declared: dict[str, Any] = {"extensions": {TASKS_EXTENSION: {}}} if takes_tasks else {}
        declared["elicitation"] = {}
        return self.wire.ask(method, **params, _meta=meta(declared))

    def pass_time(self, seconds: float) -> None:
        """Let time pass where the tasks run, and on the pipe."""
        self.world.pass_time(seconds)
        self.wire.look()


@pytest.mark.req("XTASK-01", "XTASK-12", "XTASK-16")
def test_each_era_declares_its_tasks_capability() -> None:
    pipe = Pipe()
    found = pipe.ask("server/discover")["capabilities"]
    assert (found["extensions"], "tasks" in found) == ({TASKS_EXTENSION: {}}, False)
    found = pipe.wire.ask("initialize", **HELLO)["capabilities"]
    assert ("extensions" in found, "tasks" in found) == (False, True)


@pytest.mark.req("XTASK-06", "XTASK-12")
def test_task_from_its_creation_to_its_result() -> None:
    pipe = Pipe()
    created = pipe.ask("tools/call", name="ask", arguments={})
    assert {"resultType", "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"} == (
        created.keys() - {"_meta"}
    )
    pipe.pass_time(0.0)
    id = created["taskId"]
    found = pipe.ask("tasks/get", taskId=id)
    ((key, _),) = found["inputRequests"].items()
    done = pipe.ask("tasks/update", taskId=id, inputResponses={key: name("Ada")})
    assert {**done, "_meta": 0} == {"resultType": "complete", "_meta": 0}
    pipe.pass_time(0.0)
    assert pipe.ask("tasks/get", taskId=id)["result"]["content"][0]["text"] == "Ada"
    assert pipe.ask("tasks/cancel", taskId=id)["resultType"] == "complete"
    assert pipe.ask("tasks/get", takes_tasks=False, taskId=id)["data"] == MISSING
    assert pipe.ask("tools/call", takes_tasks=False, name="ask")["data"] == MISSING
    for method in ("tasks/result", "tasks/list"):
        assert pipe.ask(method, taskId=id)["code"] == -32601
    assert [each for each in pipe.wire.said if "method" in each] == [], "nothing is pushed"


def test_methods_of_the_extension_do_not_exist_in_earlier_revisions() -> None:
    pipe = Pipe()
    pipe.wire.ask("initialize", **{**HELLO, "protocolVersion": "2025-06-18"})
    pipe.wire.feed(method="notifications/initialized")
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        assert pipe.wire.ask(method, taskId="x")["code"] == -32601
