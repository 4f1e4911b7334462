"""Several servers with one store of tasks, as in several processes: each request may reach any of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal, cast

import pytest
from shared_tasks import SharedShelf, Shelf
from tasked import Host, Mine

from mcpio.app.tasks.receiver import TaskOptions
from mcpio.app.tasks.store import LONGEST_WAIT
from mcpio.engine.tasks import TaskLimits

GONE = {"code": -32602, "message": "Task not found"}
LEASE = SharedShelf.lease
OLD = "No sign of life from the process that ran the task"


_OPEN: list[Mine] = []


@pytest.fixture(autouse=True)
def all_run() -> Iterator[None]:
    """Let what a test left behind come to its end."""
    yield
    while _OPEN:
        _OPEN.pop().link.run()


class Mines:
    """Two servers with a shelf for their tasks."""

    def __init__(self, principal: Any = "ada", **options: Any) -> None:
        self.shelf = Shelf()
        self.options: dict[str, Any] = {"link": {"principal": principal}, "tool": {"resume": True}, **options}
        self.both = [self.mine(), self.mine()]
        self.first, self.second = self.both

    def mine(self) -> Mine:
        mine = Mine(store=SharedShelf(self.shelf), **self.options)
        mine.link.runtime._drawn = id(mine)  # what processes draw differs
        _OPEN.append(mine)
        mine.wire.look()
        return mine

    def advance(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.shelf.now += 1.0
            for mine in self.both:
                mine.link.advance(1.0)
                mine.wire.look()

    def look(self) -> None:
        for mine in self.both:
            mine.wire.look()

    def kill(self, mine: Mine) -> None:
        self.both.remove(mine)
        store: Any = tasks_of(mine).options.store
        del self.shelf.callbacks[store.number]


def tasks_of(mine: Mine) -> Any:
    return mine.server.tasks


@pytest.mark.req("XTASK-05")
def test_task_is_seen_by_the_other_process_at_once() -> None:
    mines = Mines()
    id = mines.first.wire.begin()
    assert mines.second.wire.status(id) == "working"
    assert mines.second.wire.ask("tasks/list")["tasks"][0]["taskId"] == id
    mines.first.dug()
    assert mines.first.wire.status(id) == mines.second.wire.status(id) == "completed"
    for mine in mines.both:
        answer = mine.wire.ask("tasks/result", taskId=id)
        assert answer["content"][0]["text"] == "gold at 1"
        assert answer["_meta"] == {"io.modelcontextprotocol/related-task": {"taskId": id}}
    assert id not in tasks_of(mines.first)._machine, "what is over needs no memory here"


@pytest.mark.parametrize("has_summary", [True, False])
def test_result_of_a_task_is_read_only_where_it_is_asked_for(
    has_summary: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch, fetched = SharedShelf.fetch, list[str]()

    async def noted(self: SharedShelf, key: str) -> Any:
        fetched.append(key)
        return await fetch(self, key)

    monkeypatch.setattr(SharedShelf, "fetch", noted)
    if not has_summary:
        monkeypatch.delattr(SharedShelf, "summary")
    mines = Mines()
    id = mines.first.wire.begin()
    mines.first.dug()
    fetched.clear()
    assert mines.second.wire.status(id) == "completed"
    assert mines.second.wire.ask("tasks/cancel", taskId=id)["code"] == -32602
    assert len(fetched) == (0 if has_summary else 2)
    assert mines.second.wire.ask("tasks/result", taskId=id)["content"][0]["text"] == "gold at 1"
    assert fetched[-1] == id


@pytest.mark.req("TASK-34")
def test_other_owner_finds_nothing() -> None:
    mines = Mines()
    id = mines.first.wire.begin()
    wire = mines.second.connect(principal="bob", era="handshake")
    for method in ("tasks/get", "tasks/cancel", "tasks/result"):
        assert {**wire.ask(method, taskId=id), "data": None} == {**GONE, "data": None}
        assert {**wire.ask(method, taskId="none"), "data": None} == {**GONE, "data": None}
    assert wire.ask("tasks/list")["tasks"] == []


@pytest.mark.req("TASK-24")
def test_list_has_the_tasks_of_all_processes_in_the_order_of_creation() -> None:
    mines = Mines()
    ids = []
    for mine in mines.both * 2:
        ids.append(mine.wire.begin())
        mines.advance(1)
    for mine in mines.both:
        assert [task["taskId"] for task in mine.wire.ask("tasks/list")["tasks"]] == ids


@pytest.mark.req("TASK-24")
def test_tasks_of_today_are_listed_in_pages() -> None:
    mines = Mines()
    mines.advance(1)
    today = SharedShelf(mines.shelf)
    today.clock_offset = 1_795_000_000.0
    mine = Mine(store=today, **mines.options)
    mine.server.tasks._page_size = 2  # type: ignore[union-attr]  # the server has tasks
    _OPEN.append(mine)
    ids = [mine.wire.begin() for _ in range(3)]
    page = mine.wire.ask("tasks/list")
    rest = mine.wire.ask("tasks/list", cursor=page["nextCursor"])
    assert [task["taskId"] for task in (*page["tasks"], *rest["tasks"])] == ids


@pytest.mark.req("TASK-25", "TASK-26")
def test_cancel_reaches_the_work_in_the_other_process() -> None:
    mines = Mines()
    id = mines.first.wire.begin()
    assert mines.second.wire.ask("tasks/cancel", taskId=id)["status"] == "cancelled"
    assert [each.task.status for each in mines.second.changes] == ["cancelled"]
    mines.look()
    assert mines.first.ended == ["cancelled"]
    assert not [line for line in mines.first.link.reports if "was stopped here" in line], "as it was asked to"
    for mine in mines.both:
        assert mine.wire.status(id) == "cancelled"
        assert mine.wire.ask("tasks/cancel", taskId=id)["code"] == -32602
        assert mine.wire.ask("tasks/result", taskId=id)["message"] == "Task was cancelled"


def test_cancel_whose_signal_is_lost_reaches_the_work_with_the_next_renewal() -> None:
    mines = Mines()
    mines.shelf.is_mute = True
    id = mines.first.wire.begin()
    mines.second.wire.ask("tasks/cancel", taskId=id)
    mines.look()
    assert mines.first.ended == []
    mines.advance(10)
    assert mines.first.ended == ["cancelled"]


def test_cancel_wins_over_a_result_that_comes_later() -> None:
    mines = Mines()
    mines.shelf.is_mute = True
    id = mines.first.wire.begin()
    waiting = mines.first.wire.send("tasks/result", taskId=id)
    mines.second.wire.ask("tasks/cancel", taskId=id)
    mines.first.dug()
    assert mines.second.wire.status(id) == "cancelled"
    answer = mines.first.wire.answer_to(waiting)
    assert answer is not None
    assert answer["error"]["message"] == "Task was cancelled"


def test_refused_cancel_is_answered_with_the_stored_state() -> None:
    mines = Mines()
    mines.shelf.is_mute = True
    id = mines.first.wire.begin()
    mines.second.wire.ask("tasks/cancel", taskId=id)
    mines.advance(1)
    answer = mines.first.wire.ask("tasks/cancel", taskId=id)
    assert (answer["code"], answer["data"]["status"]) == (-32602, "cancelled")


def test_cancel_is_tried_again_after_another_change() -> None:
    mines = Mines()
    id = mines.first.wire.begin()
    store: Any = tasks_of(mines.second).options.store
    end, versions = store.end, []

    async def interfere(key: str, version: int, record: bytes) -> bool:
        versions.append(version)
        if len(versions) == 1:
            mines.shelf.rows[key].version += 1
        found: bool = await end(key, version, record)
        return found

    store.end = interfere
    assert mines.second.wire.ask("tasks/cancel", taskId=id)["status"] == "cancelled"
    assert versions == [1, 2]


@pytest.mark.req("TASK-20", "TASK-21")
@pytest.mark.parametrize("is_mute", [False, True])
def test_result_waits_for_work_in_the_other_process(is_mute: bool) -> None:
    mines = Mines()
    mines.shelf.is_mute = is_mute
    id = mines.first.wire.begin()
    asked = mines.second.wire.send("tasks/result", taskId=id)
    given_up = mines.second.wire.send("tasks/result", taskId=id)
    mines.second.wire.feed(method="notifications/cancelled", params={"requestId": given_up})
    mines.first.dug()
    mines.advance(LONGEST_WAIT if is_mute else 0)
    mines.look()
    answer = mines.second.wire.answer_to(asked)
    assert answer is not None
    assert answer["result"]["content"][0]["text"] == "gold at 1"
    assert tasks_of(mines.second)._keeping._waiting == {}


def test_result_is_looked_for_at_once_where_a_store_does_not_tell_which_task_changed() -> None:
    mines = Mines()
    id = mines.first.wire.begin()
    asked = mines.second.wire.send("tasks/result", taskId=id)
    mines.shelf.is_mute = True
    mines.first.dug()
    assert mines.second.wire.answer_to(asked) is None
    for callback in tuple(mines.shelf.callbacks.values()):
        callback(None)
    mines.look()
    answer = mines.second.wire.answer_to(asked)
    assert answer is not None
    assert answer["result"]["content"][0]["text"] == "gold at 1"


def test_result_that_nothing_stored_is_lost() -> None:
    mines = Mines()
    id = mines.first.wire.begin()
    mines.first.dug()
    mines.shelf.rows[id].payload = None
    assert mines.second.wire.ask("tasks/result", taskId=id)["message"] == "The result of the task is lost"


def test_work_of_a_killed_process_restarts_elsewhere_after_its_lease_expires() -> None:
    mines = Mines()
    id = mines.first.wire.begin()
    mines.advance(25)
    assert mines.second.digs == [], "the lease is renewed"
    mines.kill(mines.first)
    mines.advance(24)
    assert mines.second.wire.status(id) == "working"
    assert mines.second.digs == []
    mines.advance(20)
    (context,) = mines.second.contexts
    assert context.task is not None
    assert (context.task.id, context.task.is_resumed) == (id, True)
    mines.second.dug("silver")
    assert mines.second.wire.ask("tasks/result", taskId=id)["content"][0]["text"] == "silver at 1"


def test_work_of_a_killed_process_that_cannot_begin_again_has_failed() -> None:
    mines = Mines(tool={})
    id = mines.first.wire.begin()
    mines.kill(mines.first)
    mines.advance(45)
    answer = mines.second.wire.ask("tasks/get", taskId=id)
    assert (answer["status"], answer["statusMessage"]) == ("failed", OLD)


def test_paused_process_stops_work_that_another_has_taken_over() -> None:
    mines = Mines()
    id = mines.first.wire.begin()
    mines.both.remove(mines.first)
    mines.advance(45)
    assert len(mines.second.digs) == 1
    mines.first.link.advance(45)
    assert mines.first.ended == ["cancelled"]
    mines.second.dug("silver")
    mines.first.wire.look()
    assert mines.first.wire.ask("tasks/result", taskId=id)["content"][0]["text"] == "silver at 1"


def test_process_that_ends_leaves_its_work_to_the_others() -> None:
    mines = Mines()
    host = Host(mines.first.link)
    tasks = tasks_of(mines.first)
    tasks.attach(host)
    id = mines.first.wire.begin()
    tasks.stop(host)
    mines.first.link.run()
    assert mines.first.ended == ["cancelled"]
    tasks.detach(host)
    mines.advance(10)
    assert len(mines.first.digs) + len(mines.second.digs) == 2, "either process may take it"
    assert mines.second.wire.status(id) == "working"


def test_process_without_a_host_ignores_signals() -> None:
    mines = Mines()
    tasks = tasks_of(mines.first)
    tasks.detach(mines.first.link.session.driver)
    assert len(mines.shelf.callbacks) == 1


def test_store_that_fails_is_reported_and_a_result_is_stored_when_it_works_again() -> None:
    mines = Mines()
    id = mines.first.wire.begin()
    mines.shelf.is_broken = True
    mines.first.dug()
    mines.advance(10)
    assert "tasks cannot be stored" in mines.first.link.reports
    mines.shelf.is_broken = False
    mines.advance(20)
    assert mines.second.wire.ask("tasks/result", taskId=id)["content"][0]["text"] == "gold at 1"


# Outages


def digs_of(mines: Mines) -> int:
    return sum(len(mine.contexts) for mine in (mines.first, mines.second))


@pytest.mark.parametrize("seconds", [20, 40, 120])
@pytest.mark.parametrize("resumes", [True, False])
@pytest.mark.parametrize("on_lapse", ["cancel", "continue"])
def test_live_processes_take_nothing_from_each_other_after_an_outage(
    seconds: int, resumes: bool, on_lapse: Literal["cancel", "continue"]
) -> None:
    mines = Mines(tool={"resume": resumes}, on_lapse=on_lapse)
    ids = {mine: mine.wire.begin() for mine in mines.both}
    ended = {mine: mine.wire.begin() for mine in mines.both}
    mines.shelf.is_broken = True
    mines.advance(5)
    for mine in mines.both:
        mine.digs.pop().set("gold")
        mine.wire.look()
        assert mine.wire.status(ended[mine]) == "working", "a state that is not stored is not shown"
    mines.advance(seconds - 5)
    is_stopped = seconds > LEASE and on_lapse == "cancel"
    for mine in mines.both:
        (task,) = [context.task for context in mine.contexts if context.task and context.task.id == ids[mine]]
        assert task.is_leased is (seconds < LEASE or is_stopped)
        assert (mine.ended == ["cancelled"]) is is_stopped
        lines = [line for line in mine.link.reports if line.startswith("tasks whose leases have ended")]
        assert len(lines) == (seconds > LEASE)
    mines.shelf.is_broken = False
    mines.advance(60)
    assert digs_of(mines) == 4 + 2 * (is_stopped and resumes)
    for mine in mines.both:
        text = mines.first.wire.ask("tasks/result", taskId=ended[mine])["content"][0]["text"]
        assert text == "gold at 1", "what ended meanwhile is stored"
        if is_stopped and not resumes:
            answer = mines.second.wire.ask("tasks/get", taskId=ids[mine])
            assert answer["statusMessage"] == "Stopped while the store of tasks could not be reached"
            continue
        last = mine.contexts[-1].task
        assert last is not None
        assert last.is_leased
        mine.digs.pop().set("silver")
        mines.look()
        assert mines.second.wire.ask("tasks/result", taskId=ids[mine])["content"][0]["text"] == "silver at 1"
        assert not [line for line in mine.link.reports if "was stopped here" in line]


def test_process_that_died_in_an_outage_is_replaced_after_a_grace() -> None:
    mines = Mines()
    id = mines.first.wire.begin()
    mines.shelf.is_broken = True
    mines.advance(40)
    mines.kill(mines.first)
    mines.shelf.is_broken = False
    mines.advance(25)
    assert mines.second.digs == [], "it may be about to renew"
    mines.advance(20)
    assert len(mines.second.digs) == 1
    mines.second.dug("silver")
    assert mines.second.wire.ask("tasks/result", taskId=id)["content"][0]["text"] == "silver at 1"


def test_process_that_starts_after_an_outage_waits_as_well() -> None:
    mines = Mines()
    mines.first.wire.begin()
    mines.shelf.is_broken = True
    mines.advance(40)
    mines.shelf.is_broken = False
    mines.both.append(mines.mine())
    mines.advance(60)
    assert mines.both[2].digs == mines.second.digs == []
    assert len(mines.first.digs) == 2, "stopped, and begun again where it was"


def test_process_that_is_cut_off_stops_its_work_before_another_begins_it() -> None:
    mines = Mines()
    mines.first.wire.begin()
    store: Any = tasks_of(mines.first).options.store

    def cut_off() -> Any:
        raise OSError("no way to the shelf")

    store._rows = cut_off
    for _ in range(60):
        mines.advance(1)
        assert mines.first.ended == ["cancelled"] or not mines.second.digs
    assert len(mines.second.digs) == 1
    del store._rows
    mines.advance(15)
    assert [line for line in mines.first.link.reports if "was stopped here: another process" in line]


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel", "tasks/list"])
def test_store_that_cannot_be_reached_leaves_nothing_unknown_or_lost(method: str) -> None:
    mines = Mines()
    id = mines.first.wire.begin()
    mines.first.dug()
    mines.shelf.is_broken = True
    for mine in mines.both:
        answer = mine.wire.ask(method, **({} if method == "tasks/list" else {"taskId": id}))
        assert (answer["code"], answer["message"]) == (-32603, "The tasks cannot be read at the moment")
        assert "the store of tasks cannot be reached" in mine.link.reports
    mines.shelf.is_broken = False
    mines.shelf.rows[id].record = b'{"format": 2}'
    if method != "tasks/list":
        assert mines.second.wire.ask(method, taskId=id)["message"] == "The tasks cannot be read at the moment"


def test_times_of_tasks_are_those_of_the_store() -> None:
    mines = Mines()
    store: Any = tasks_of(mines.second).options.store
    ahead = Mine(store=SharedShelf(mines.shelf), **mines.options)
    usual = mines.second.wire.ask("tools/call", name="dig", task={})["task"]
    slow = SharedShelf(mines.shelf)
    slow.clock_offset = 1800.0
    behind = Mine(store=slow, **mines.options)
    _OPEN.extend([ahead, behind])
    behind.link.runtime._drawn = 5000
    task = behind.wire.ask("tools/call", name="dig", task={})["task"]
    hours = [datetime.fromisoformat(each["createdAt"]).timestamp() / 3600 for each in (usual, task)]
    assert hours[1] - hours[0] == pytest.approx(0.5, abs=0.01)
    expires = store.shelf.puts[-1].expires
    assert expires == pytest.approx(hours[1] * 3600 + task["ttl"] / 1000, abs=1)
    cancelled = behind.wire.ask("tasks/cancel", taskId=usual["taskId"])
    assert datetime.fromisoformat(cancelled["lastUpdatedAt"]).timestamp() / 3600 == pytest.approx(hours[1], abs=0.01)


def test_unknown_policy_for_lapsed_leases_is_refused() -> None:
    with pytest.raises(ValueError, match='on_lapse must be "cancel" or "continue", not 1'):
        TaskOptions(on_lapse=cast("Any", 1))


@pytest.mark.req("TASK-32")
def test_expired_task_is_deleted_in_all_processes() -> None:
    mines = Mines(limits=TaskLimits(max_ttl=5.0))
    id = mines.first.wire.begin()
    mines.advance(6)
    assert mines.first.ended == ["cancelled"]
    assert mines.second.wire.status(id) == "-32602"


def test_task_that_the_store_does_not_take_is_not_created() -> None:
    mines = Mines()
    store: Any = tasks_of(mines.first).options.store
    store.put = lambda change: False
    answer = mines.first.wire.ask("tools/call", name="dig", task={})
    assert answer["message"] == "The task could not be stored"


def test_unreadable_task_is_reported_and_spoils_no_list() -> None:
    mines = Mines()
    broken, whole = mines.first.wire.begin(), mines.first.wire.begin()
    mines.look()
    mines.shelf.rows[broken].record = b'{"format": 2}'
    [listed] = mines.second.wire.ask("tasks/list")["tasks"]
    assert listed["taskId"] == whole
    assert "a stored task cannot be read" in mines.second.link.reports


def test_unreadable_result_is_lost() -> None:
    mines = Mines()
    id = mines.first.wire.begin()
    mines.first.dug()
    mines.shelf.rows[id].payload = b"gold"
    assert mines.second.wire.ask("tasks/result", taskId=id)["message"] == "The result of the task is lost"
    assert "the stored result of a task cannot be read" in mines.second.link.reports
