"""Tasks of stateless clients under attack: foreign ids, many tasks, clients that never come back, killed servers."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import attrs
import pytest
from statelessly import StatelessClient
from taskworld import TAKES_TASKS, World, name

from mcpio.app.tasks.store import MemoryTaskStore
from mcpio.engine.tasks import TaskLimits
from mcpio.errors import RequestError


def client_of(world: World, principal: Any) -> StatelessClient:
    return StatelessClient(world.server, world.runtime, capabilities=TAKES_TASKS, principal=principal)


def refusal(world: World, client: StatelessClient, method: str, **params: Any) -> tuple[int, str]:
    with pytest.raises(RequestError) as found:
        world.run(client.request(f"tasks/{method}", params))
    return found.value.code, found.value.message


@pytest.mark.req("XTASK-12", "XTASK-14")
@pytest.mark.parametrize("thief", ["bob", None, "ADA", "ada "])
def test_task_of_another_principal_is_as_unknown_as_a_guessed_one(thief: Any) -> None:
    world = World()
    ada, bob = client_of(world, "ada"), client_of(world, thief)
    id = world.run(ada.call("ask"))["taskId"]
    ((key, _),) = world.run(ada.request("tasks/get", {"taskId": id}))["inputRequests"].items()
    for method, more in (("get", {}), ("update", {"inputResponses": {key: name("Eve")}}), ("cancel", {})):
        answers = {refusal(world, bob, method, taskId=each, **more) for each in (id, id[:-1] + "x", id.upper() + "0")}
        assert answers == {(-32602, "Task not found")}
    found = world.run(ada.request("tasks/get", {"taskId": id}))
    assert (found["status"], list(found["inputRequests"])) == ("input_required", [key]), "nothing of it counted"


FORGED: list[Any] = ["", "0", "x" * 100_000, "../../etc/passwd", "\x00", "'; DROP TABLE tasks; --", "\ud7ff"]


@pytest.mark.req("XTASK-12")
@pytest.mark.parametrize("method", ["get", "update", "cancel"])
def test_forged_ids_are_not_found_and_short_in_the_answer(method: str) -> None:
    world = World()
    for id in FORGED:
        with pytest.raises(RequestError) as found:
            world.about(method, id)
        assert (found.value.code, found.value.message) == (-32602, "Task not found")
        assert len(str(found.value.data)) < 300


@pytest.mark.req("XTASK-18")
def test_malformed_params_are_named() -> None:
    world = World()
    id = world.call("ask")["taskId"]
    ((key, _),) = world.get(id)["inputRequests"].items()
    for params, said in (
        ({}, "Invalid params: params.taskId: missing"),
        ({"taskId": 5}, "Invalid params: params.taskId: expected a string, got a number"),
    ):
        assert refusal(world, world.client, "get", **params) == (-32602, said)
    for responses, said in (
        ([], "Invalid params: params.inputResponses: expected an object, got an array"),
        ({key: {"action": "shout"}}, f"Invalid params: params.inputResponses.{key}: action: "),
    ):
        code, message = refusal(world, world.client, "update", taskId=id, inputResponses=responses)
        assert (code, message[: len(said)]) == (-32602, said)


@pytest.mark.req("XTASK-08")
def test_answers_to_questions_that_were_never_asked_are_ignored() -> None:
    world = World()
    id = world.call("ask_twice")["taskId"]
    keys = list(world.get(id)["inputRequests"])
    guessed = {f"{key}0": name("Eve") for key in keys} | {"": name("Eve"), "a": name("Eve"), "b": None}
    world.about("update", id, inputResponses=guessed)
    assert list(world.get(id)["inputRequests"]) == keys
    done = world.call("ask")["taskId"]
    world.about("cancel", done)
    assert world.about("update", done, inputResponses=guessed) == {"resultType": "complete"}
    assert world.get(done)["status"] == "cancelled"


def calls_of(function: Any) -> int:
    """Return how many calls a function causes, of Python functions and built-in ones."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("method", ["get", "cancel"])
def test_request_about_a_task_costs_the_same_with_many_tasks(method: str) -> None:
    costs = []
    for count in (10, 1000):
        store, limits = MemoryTaskStore(), TaskLimits(tasks=10_000)
        first = World(store=store, limits=limits)
        id = first.call("fail")["taskId"]
        first.tasks.detach(first.host)
        first.runtime.run()
        ((_, row),) = store._rows.items()
        for number in range(2, count):
            other = f"{number:032x}"
            record = row.record.replace(id.encode(), other.encode()).replace(b'"number":1,', b'"number":%d,' % number)
            store._rows[other] = attrs.evolve(row, record=record)
        world = World(store=store, limits=limits)
        world.get(id)  # loads what is loaded with the first use
        costs.append(calls_of(partial(world.about, method, id)))
        assert len(world.tasks._machine._over) == count - 1
        world.runtime.run()
    assert costs[1] <= costs[0] + 20, costs


def test_tasks_of_an_absent_client_expire() -> None:
    store = MemoryTaskStore()
    world = World(store=store, task_after=0.0, limits=TaskLimits(default_ttl=60.0))
    ids = [world.call(tool)["taskId"] for tool in ("ask", "ask_twice", "fail")]
    world.call("slow", seconds=1.0)
    runs = [world.tasks._runs[id] for id in ids if id in world.tasks._runs]
    assert len(runs) == 2
    world.pass_time(120.0)
    assert all(run.is_over for run in runs), "their questions wait for nobody any more"
    assert (world.tasks._runs, world.tasks._machine.held, store._rows) == ({}, 0, {})
    assert {world.refusal(world.get, id)[0] for id in ids} == {-32602}


def test_tasks_of_a_killed_server_have_an_outcome_after_a_restart() -> None:
    store = MemoryTaskStore()
    first = World(store=store, task_after=0.0)
    done, failed, asking = (first.call(tool)["taskId"] for tool in ("fail", "fail", "ask"))
    cancelled = first.call("ask")["taskId"]
    first.about("cancel", cancelled)
    again = first.call("slow", seconds=0.1)["taskId"]
    # It does not detach: nothing of it runs on.
    second = World(store=store, task_after=0.0)
    second.runtime._drawn = 1000
    assert second.get(done) == first.get(done)
    assert (second.get(failed)["status"], second.get(cancelled)["status"]) == ("completed", "cancelled")
    state = second.get(asking)
    assert (state["status"], state["statusMessage"]) == ("failed", "The server was restarted before the task was over")
    assert state["error"]["code"] == -32603
    assert "inputRequests" not in state
    assert second.about("update", asking, inputResponses={"a": name("Ada")}) == {"resultType": "complete"}
    second.pass_time(2.0)
    assert second.seen[0].is_resumed
    assert second.get(again)["result"]["content"][0]["text"] == "done"
    first.tasks.detach(first.host)
    first.runtime.run()
