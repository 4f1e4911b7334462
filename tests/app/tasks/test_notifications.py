"""Stateless clients that listen for changes of tasks: ``taskIds`` and ``notifications/tasks``."""

from __future__ import annotations

from typing import Any

import pytest
from shared_tasks import SharedShelf, Shelf
from statelessly import Exchange, StatelessClient
from taskworld import MISSING, TAKES_TASKS, World, name
from waits import Wait

from mcpio.app.server import Server
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.errors import RequestError
from mcpio.revisions import REVISIONS

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def listening(world: World, *ids: str, client: StatelessClient | None = None, **wanted: Any) -> Exchange:
    exchange = (client or world.client).begin(
        "subscriptions/listen", {"notifications": {"taskIds": list(ids), **wanted}}
    )
    world.runtime.run()
    return exchange


def honoured(exchange: Exchange) -> Any:
    assert exchange.said[0]["method"] == "notifications/subscriptions/acknowledged"
    return exchange.said[0]["params"]["notifications"]


def told(exchange: Exchange) -> list[dict[str, Any]]:
    """Return the states that were reported since the last call."""
    assert {said["method"] for said in exchange.said[1:]} <= {"notifications/tasks"}
    states = [said["params"] for said in exchange.said[1:]]
    del exchange.said[1:]
    return states


def statuses(exchange: Exchange) -> list[str]:
    return [state["status"] for state in told(exchange)]


def test_other_tasks_get_turns_while_many_tasks_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    world, turns = World(), 0
    sleep = world.runtime.sleep

    async def counted(seconds: float) -> None:
        nonlocal turns
        turns += 1
        await sleep(seconds)

    monkeypatch.setattr(world.runtime, "sleep", counted)
    id = world.call("ask")["taskId"]
    listen = listening(world, *(f"unknown{number}" for number in range(1000)), id)
    assert honoured(listen) == {"taskIds": [id]}
    assert turns >= 10


@pytest.mark.req("XTASK-11")
def test_each_state_of_a_task_is_reported_as_tasks_get_would_return_it() -> None:
    world = World()
    id = world.call("ask")["taskId"]
    listen = listening(world, id)
    assert honoured(listen) == {"taskIds": [id]}
    (state,) = told(listen)
    assert state.pop("_meta") == {SUBSCRIPTION: listen._number}
    shown = world.get(id)
    assert state == {key: value for key, value in shown.items() if key not in ("resultType", "_meta")}
    assert state["status"] == "input_required"
    ((key, _),) = state["inputRequests"].items()
    world.about("update", id, inputResponses={key: name("Ada")})
    *_, state = told(listen)
    assert (state["status"], state["result"]["content"][0]["text"]) == ("completed", "Ada")
    assert "_meta" not in state["result"], "related-task marks are another revision's"


@pytest.mark.req("XTASK-07", "XTASK-11")
@pytest.mark.parametrize(
    ("how", "status", "member"), [("tool", "completed", "result"), ("protocol", "failed", "error")]
)
def test_failure_is_reported(how: str, status: str, member: str) -> None:
    world = World()
    listen = listening(world, world.call("fail", how=how)["taskId"])
    *_, state = told(listen)
    assert state["status"] == status
    assert member in state


@pytest.mark.req("XTASK-11")
def test_cancellation_is_reported_and_progress_and_logs_are_not() -> None:
    world = World(task_after=0.0)
    id = world.call("slow", seconds=0.1)["taskId"]
    listen = listening(world, id)
    world.about("cancel", id)
    assert statuses(listen) == ["working", "cancelled"]


@pytest.mark.req("XTASK-11", "XTASK-14")
def test_unknown_and_foreign_tasks_are_left_out_alike() -> None:
    world = World()
    ada = StatelessClient(world.server, world.runtime, capabilities=TAKES_TASKS, principal="ada")
    bob = StatelessClient(world.server, world.runtime, capabilities=TAKES_TASKS, principal="bob")
    hers = world.run(ada.call("ask"))["taskId"]
    his = world.run(bob.call("ask"))["taskId"]
    assert honoured(listening(world, hers, his, "0" * 32, "", hers, client=ada)) == {"taskIds": [hers]}
    stranger = listening(world, hers, his, client=world.client)
    assert honoured(stranger) == {"taskIds": []}
    world.run(ada.request("tasks/cancel", {"taskId": hers}))
    assert len(stranger.said) > 1, "it ended"
    assert hers not in str(stranger.said)


@pytest.mark.req("XTASK-11", "SUB-12")
def test_client_without_the_extension_cannot_listen_for_tasks() -> None:
    world = World()
    listen = listening(world, "x", client=world.plain)
    error = Wait(world.runtime, listen.result()).error
    assert isinstance(error, RequestError)
    assert (error.code, error.data) == (-32021, MISSING)
    assert listen.said == []


def test_server_without_tasks_honours_no_task_ids() -> None:
    world = World()
    server = Server("s")
    server.tool(lambda: None, name="x")
    client = StatelessClient(server, world.runtime, capabilities=TAKES_TASKS)
    assert honoured(listening(world, "x", client=client, toolsListChanged=True)) == {"toolsListChanged": True}


def test_empty_list_of_tasks_is_honoured_as_such() -> None:
    assert honoured(listening(World())) == {"taskIds": []}


def test_task_that_expires_is_not_reported() -> None:
    world = World()
    id = world.call("ask")["taskId"]
    listen = listening(world, id)
    told(listen)
    world.pass_time(4000.0)
    assert world.refusal(world.get, id)[0] == -32602
    assert told(listen) == []


@pytest.mark.req("SUB-07")
def test_cancelled_listen_leaves_nothing_behind() -> None:
    world = World()
    id = world.call("ask")["taskId"]
    one, other = listening(world, id), listening(world, id)
    held = one.connection.held
    assert held.subscriptions > 0
    one.cancel()
    world.runtime.run()
    assert held.subscriptions == 0
    told(other)
    world.about("cancel", id)
    assert (told(one)[1:], statuses(other)) == ([], ["cancelled"])
    other.cancel()
    world.runtime.run()
    assert world.tasks._watchers == {}


def test_task_that_is_not_watched_need_not_be_left() -> None:
    world, heard = World(), list[str]()
    id = world.call("ask")["taskId"]
    world.tasks.watch([id], heard.append)
    world.tasks.unwatch([id, "x"], print)
    world.about("cancel", id)
    assert heard == [id]
    world.tasks.unwatch([id], heard.append)


def test_client_that_does_not_read_has_one_waiting_state_per_task() -> None:
    world = World()
    world.server.options = Options(revisions=REVISIONS, limits=Limits(high_water=0))
    ids = [world.call("ask")["taskId"] for _ in range(2)]
    slow = world.client.begin("subscriptions/listen", {"notifications": {"taskIds": ids}})
    slow.reads = False
    world.runtime.run()
    subscription: Any = next(iter(world.tasks._watchers.values()))[0].__self__
    for id in ids:
        run = world.tasks._runs[id]
        for number in range(100):
            run.say(str(number))
    world.runtime.run()
    assert list(subscription._changed) == ids
    assert slow.connection.held.output < 4096
    slow.reads = True
    slow.write()
    world.runtime.run()
    slow.write()
    world.runtime.run()
    assert [state["statusMessage"] for state in told(slow)] == ["99", "99"]


# Several processes


def processes() -> tuple[World, World, Shelf]:
    shelf = Shelf()
    worlds = [World(store=SharedShelf(shelf)) for _ in range(2)]
    for number, world in enumerate(worlds):
        world.runtime._drawn = number * 1000  # what processes draw differs
    return worlds[0], worlds[1], shelf


@pytest.mark.req("XTASK-11")
def test_changes_in_another_process_are_reported() -> None:
    here, there, _ = processes()
    id = there.call("ask")["taskId"]
    listen = listening(here, id)
    (state,) = told(listen)
    ((key, _),) = state["inputRequests"].items()
    here.about("update", id, inputResponses={key: name("Ada")})
    there.pass_time(0.0)
    here.pass_time(0.0)
    *_, state = told(listen)
    assert (state["status"], state["result"]["content"][0]["text"]) == ("completed", "Ada")


class SlowShelf(SharedShelf):
    """A way to a shelf on which the signal of a change arrives before the answer to the write, as Redis has it."""

    def __init__(self, shelf: Shelf) -> None:
        super().__init__(shelf)
        self.runtime: Any = None

    async def _later(self, found: Any) -> Any:
        await self.runtime.sleep(0.25)
        return found

    async def write(self, changes: Any) -> Any:
        return await self._later(await super().write(changes))

    def fetch(self, key: str) -> Any:
        return self._later(self.shelf.rows.get(key) and self._stored(key, self.shelf.rows[key]))

    summary = fetch


@pytest.mark.parametrize("listens", ["where it runs", "elsewhere"])
@pytest.mark.parametrize("end", ["completed", "cancelled where it runs", "cancelled elsewhere", "deleted"])
def test_end_is_reported_although_its_signal_precedes_the_answer_of_the_store(listens: str, end: str) -> None:
    shelf = Shelf()
    stores = [SlowShelf(shelf), SlowShelf(shelf)]
    here, there = (World(store=store, task_after=0.0) for store in stores)
    for store, world in zip(stores, (here, there), strict=True):
        store.runtime = world.runtime
        world.runtime._drawn = store.number * 1000  # what processes draw differs

    def pass_time(seconds: float) -> None:
        for _ in range(int(seconds / 0.25)):
            for world in (here, there):
                world.pass_time(0.25)

    id = here.run(here.client.call("slow", {"seconds": 3.0}), 1.0)["taskId"]
    listen = listening(here if listens == "where it runs" else there, id)
    pass_time(1.0)
    assert set(statuses(listen)) == {"working"}
    if end == "deleted":
        del shelf.rows[id]
        shelf.tell(id)
    elif end != "completed":
        (here if "where" in end else there).client.begin("tasks/cancel", {"taskId": id})
    pass_time(4.0)
    assert {"deleted": [], "completed": ["completed"]}.get(end, ["cancelled"]) == statuses(listen)[-1:]


def test_listen_for_tasks_that_cannot_be_read_fails_and_names_none_as_unknown() -> None:
    here, there, shelf = processes()
    id = there.call("ask")["taskId"]
    shelf.is_broken = True
    listen = listening(here, id)
    error = Wait(here.runtime, listen.result()).error
    assert isinstance(error, RequestError)
    assert (error.code, error.message) == (-32603, "The tasks cannot be read at the moment")
    assert (listen.said, listen.connection.held.subscriptions) == ([], 0)
    shelf.is_broken = False
    there.about("cancel", id)
    for world in (here, there):
        world.pass_time(0.0)


def test_state_that_cannot_be_read_is_reported_when_it_can() -> None:
    here, there, shelf = processes()
    id = there.call("ask")["taskId"]
    listen, left = listening(here, id), listening(here, id)
    told(listen)
    there.about("cancel", id)
    there.pass_time(0.0)
    shelf.is_broken = True
    here.pass_time(5.0)
    assert told(listen) == []
    left.cancel()
    shelf.is_broken = False
    here.pass_time(1.0)
    assert statuses(listen) == ["cancelled"]


def test_tasks_are_read_again_after_a_break_of_the_store() -> None:
    here, there, shelf = processes()
    id = there.call("ask")["taskId"]
    listen = listening(here, id)
    told(listen)
    shelf.is_mute = True
    there.about("cancel", id)
    there.pass_time(0.0)
    here.pass_time(0.0)
    assert told(listen) == []
    shelf.is_mute = False
    for callback in shelf.callbacks.values():
        callback(None)
    here.pass_time(0.0)
    assert statuses(listen) == ["cancelled"]
