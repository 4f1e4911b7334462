"""The task machine by hand: every effect of the store answered, or not, as the test wants it."""

from __future__ import annotations

import json
import math
import tracemalloc
from typing import Any

import pytest
from task_keeper import BAD, EPOCH, GOOD, WRONG, Disk, Keeper, refusal, said

from mcpio.engine.tasks import (
    ID_BYTES,
    RETRY,
    SAID_LENGTH,
    StoreDelete,
    StorePut,
    TaskAnswered,
    TaskChanged,
    TaskEnded,
    TaskLimits,
    TaskMachine,
    TaskOrphaned,
    TaskOutcome,
    TaskReplied,
    TaskStoreFailed,
    dump_outcome,
    load_outcome,
)
from mcpio.errors import LocalProtocolError, RequestError
from mcpio.types.tasks import Task

# Creation


@pytest.mark.req("TASK-09", "TASK-10", "TASK-11", "TASK-12", "TASK-32")
def test_created_task_is_working_with_a_random_id() -> None:
    drawn: list[int] = []

    def entropy(size: int) -> bytes:
        drawn.append(size)
        return bytes([7]) * size

    machine = TaskMachine(entropy=entropy, epoch=EPOCH, poll_interval=2.5)
    id = machine.create(None, "dig", now=1.5, cookie="c", ttl=5000)
    assert (drawn, id) == ([ID_BYTES], "07" * 16)
    assert ID_BYTES * 8 >= 128
    effect = machine.next_effect()
    assert isinstance(effect, StorePut)
    machine.store_done(effect.token, True, 1.5)
    when = "1970-01-12T13:46:41.500Z"
    task = Task(id, "working", when, when, 5000, None, 2500)
    assert machine.next_event() == TaskChanged("created", task, None, "dig")
    assert machine.next_event() == TaskReplied("c", task, None)
    assert (machine.next_event(), machine.next_effect()) == (None, None)


@pytest.mark.req("TASK-10")
def test_taken_id_is_not_reused() -> None:
    machine = TaskMachine(entropy=bytes, epoch=EPOCH, poll_interval=None)
    machine.create(None, "dig", now=0, cookie=1)
    with pytest.raises(LocalProtocolError, match="the same bytes twice"):
        machine.create(None, "dig", now=0, cookie=2)


def test_state_is_visible_only_once_stored() -> None:
    keeper = Keeper()
    id = keeper.machine.create("ada", "dig", now=0, cookie="made")
    put = keeper.machine.next_effect()
    assert put is not None
    assert (keeper.drain(), keeper.machine.look("ada", id)) == ([], None)
    assert refusal(keeper, "get", "ada", id) == (-32602, "Task not found")
    keeper.machine.store_done(put.token, keeper.disk.perform(put), 0)
    assert keeper.status(id, "ada") == "working"
    assert keeper.machine.finish(id, GOOD, now=1)
    assert keeper.status(id, "ada") == "working"
    assert keeper.drain()[-1] == TaskReplied("made", keeper.get("ada", id), None)
    keeper.settle()
    assert (keeper.status(id, "ada"), keeper.outcome(id)) == ("completed", {"content": []})


def test_task_that_cannot_be_stored_is_not_created() -> None:
    keeper = Keeper()
    id = keeper.machine.create(None, "dig", now=0, cookie="made")
    put = keeper.machine.next_effect()
    assert put is not None
    full = OSError("disk full")
    keeper.machine.store_done(put.token, full, 0)
    failed, replied = keeper.settle()
    assert failed == TaskStoreFailed(id, full)
    assert isinstance(replied, TaskReplied)
    assert said(replied) == (-32603, "The task could not be stored")
    assert (refusal(keeper, "get", None, id)[0], keeper.disk.records, id in keeper.machine) == (-32602, {}, False)


def test_task_that_expires_before_it_is_stored_is_not_created() -> None:
    keeper = Keeper()
    keeper.machine.create(None, "dig", now=0, cookie="made", ttl=1000)
    put = keeper.machine.next_effect()
    assert put is not None
    keeper.advance(2)
    keeper.machine.store_done(put.token, None, 2)
    assert [said(event) for event in keeper.drain() if isinstance(event, TaskReplied)] == [
        (-32603, "The task could not be stored")
    ]


@pytest.mark.req("TASK-32")
@pytest.mark.parametrize("ttl", [0, -1, -(10**400), float("-inf")])
def test_ttl_must_be_positive(ttl: Any) -> None:
    found = refusal(Keeper(), "create", None, "dig", now=0, cookie=1, ttl=ttl)
    assert found == (-32602, "Invalid params: task.ttl must be more than 0")


@pytest.mark.parametrize("owner", [True, 1.5, ("a",), b"a"])
def test_owner_of_another_type_is_refused(owner: Any) -> None:
    with pytest.raises(LocalProtocolError, match="an owner must be"):
        Keeper().machine.create(owner, "dig", now=0, cookie=1)


def test_withdrawn_task_is_forgotten() -> None:
    keeper = Keeper()
    id = keeper.create()
    keeper.machine.withdraw(id)
    keeper.machine.withdraw("unknown")
    assert keeper.settle() == []
    assert (refusal(keeper, "get", None, id)[0], keeper.disk.records, keeper.machine.next_deadline()) == (
        -32602,
        {},
        None,
    )


# Limits


@pytest.mark.req("TASK-36")
@pytest.mark.parametrize(
    ("limits", "reason", "others_may"),
    [
        ({"running": 2}, "too many tasks", False),
        ({"running_per_owner": 2}, "too many tasks", True),
        ({"tasks": 2}, "too many tasks", False),
        ({"stored_bytes": 5_000}, "too much stored", False),
        ({"stored_bytes_per_owner": 5_000}, "too much stored", True),
    ],
)
def test_task_beyond_the_limits_is_refused(limits: Any, reason: str, others_may: bool) -> None:
    keeper = Keeper(limits=limits)
    first, _ = keeper.create("ada"), keeper.create("ada")
    with pytest.raises(RequestError) as refused:
        keeper.create("ada")
    (limit,) = limits.values()
    assert (refused.value.code, refused.value.data) == (-32603, {"reason": reason, "limit": limit})
    if others_may:
        keeper.create("bob")
    else:
        with pytest.raises(RequestError):
            keeper.create("bob")
    keeper.finish(first)
    if reason == "too many tasks" and "tasks" not in limits:
        keeper.create("ada")
    else:
        with pytest.raises(RequestError):
            keeper.create("ada")
        keeper.advance(10**6)
        keeper.create("ada")


@pytest.mark.req("TASK-36")
def test_task_without_an_owner_counts_for_its_requestor() -> None:
    keeper = Keeper(limits={"running_per_owner": 2, "running_without_owner": 3})
    first, _ = keeper.create(requestor=1), keeper.create(requestor=1)
    assert refusal(keeper, "create", None, "dig", now=0, cookie=1, requestor=1)[0] == -32603
    keeper.create(requestor=2)
    assert refusal(keeper, "create", None, "dig", now=0, cookie=1, requestor=2)[0] == -32603
    keeper.create("ada")
    keeper.finish(first)
    keeper.create(requestor=1)
    assert keeper.status(first) == "completed"  # whose id is all that it takes


@pytest.mark.req("TASK-36")
def test_limit_of_tasks_without_an_owner_is_none_for_those_with_one() -> None:
    keeper = Keeper(limits={"running_without_owner": 0})
    assert refusal(keeper, "create", None, "dig", now=0, cookie=1)[0] == -32603
    assert keeper.status(keeper.create("ada"), "ada") == "working"


def test_question_changes_the_time_of_the_last_update() -> None:
    keeper = Keeper()
    id = keeper.create()
    before = keeper.get(None, id).last_updated_at
    keeper.advance(5)
    keeper.machine.ask(id, keeper.now)
    keeper.settle()
    assert keeper.get(None, id).last_updated_at > before


@pytest.mark.req("TASK-36")
def test_result_beyond_the_limits_fails_its_task() -> None:
    keeper = Keeper(limits={"result_bytes": 100, "stored_bytes": 6_200})
    large, late = keeper.create(), keeper.create()
    keeper.finish(large, TaskOutcome({"content": ["x" * 200]}))
    assert keeper.outcome(large) == (-32603, "The result of the task is too large")
    keeper.finish(late, TaskOutcome({"content": ["x" * 50]}))
    assert keeper.outcome(late) == (-32603, "No room for the result of the task")
    assert (keeper.status(large), keeper.status(late)) == ("failed", "failed")


def test_result_of_the_largest_size_is_kept() -> None:
    keeper = Keeper(limits={"result_bytes": len(dump_outcome(BAD))})
    id = keeper.create()
    keeper.finish(id, BAD)
    assert keeper.outcome(id) == BAD.result


def test_finished_tasks_are_discarded_oldest_first_until_half_are_left() -> None:
    keeper = Keeper()
    ids = [keeper.create() for _ in range(5)]
    assert keeper.machine.held > 0
    keeper.machine.discard_finished()
    assert [keeper.status(id) for id in ids] == ["working"] * 5
    for id in ids[:4]:
        keeper.finish(id)
    keeper.machine.discard_finished()
    keeper.settle()
    assert [keeper.get(None, id).status for id in ids[2:]] == ["completed", "completed", "working"]
    assert [refusal(keeper, "get", None, id)[0] for id in ids[:2]] == [-32602] * 2
    assert len(keeper.disk.records) == 3


def test_memory_of_tasks_is_counted_in_full() -> None:
    tracemalloc.start()
    try:
        keeper = Keeper(limits={"running": 500, "running_per_owner": 500, "stored_bytes_per_owner": 2**30})
        before = tracemalloc.get_traced_memory()[0]
        ids = [keeper.create("ada", request={"name": "dig", "arguments": {"depth": [1, 2]}}) for _ in range(300)]
        for id in ids[:150]:
            keeper.finish(id, TaskOutcome({"content": [{"type": "text", "text": "x" * 1000}]}))
        keeper.events.clear()
        assert tracemalloc.get_traced_memory()[0] - before <= keeper.machine.held
    finally:
        tracemalloc.stop()


# Ends


@pytest.mark.req("TASK-14", "TASK-15", "TASK-20", "TASK-21")
@pytest.mark.parametrize(
    ("outcome", "status", "message", "answer"),
    [
        (GOOD, "completed", None, GOOD.result),
        (BAD, "failed", "no", BAD.result),
        (WRONG, "failed", "wrong", (-32602, "wrong")),
    ],
)
def test_end_is_stored_with_its_outcome(outcome: TaskOutcome, status: str, message: str | None, answer: Any) -> None:
    keeper = Keeper()
    id = keeper.create()
    keeper.now = 3
    assert keeper.finish(id, outcome)
    assert keeper.outcome(id) == answer
    task = keeper.get(None, id)
    assert (task.status, task.status_message, task.last_updated_at) == (status, message, "1970-01-12T13:46:43.000Z")
    stored = keeper.disk.fetch(id)
    assert stored is not None
    assert said(load_outcome(stored.payload or b"")) == answer
    assert id not in keeper.machine, "from here on it is read from the store"
    assert keeper.changes() == ["created working", f"status {status}"]


@pytest.mark.req("TASK-14", "TASK-25")
def test_finished_task_stays_unchanged() -> None:
    keeper = Keeper()
    id = keeper.create()
    assert keeper.finish(id, GOOD)
    assert not keeper.finish(id, WRONG)
    assert not keeper.machine.lose(id, "gone", now=1)
    assert not keeper.machine.say(id, "more", now=1)
    keeper.machine.orphan(id, "gone", now=1)
    keeper.machine.answered(id, now=1)
    with pytest.raises(LocalProtocolError, match="the task is over"):
        keeper.machine.ask(id, now=1)
    keeper.settle()
    assert (keeper.status(id), keeper.outcome(id)) == ("completed", {"content": []})


def test_unencodable_outcome_changes_nothing() -> None:
    keeper = Keeper()
    id = keeper.create()
    with pytest.raises(LocalProtocolError, match="not expressible"):
        keeper.finish(id, TaskOutcome({"x": object()}))
    with pytest.raises(LocalProtocolError, match="not expressible"):
        keeper.machine.ask(id, 0, ("q", {"x": object()}))
    assert keeper.status(id) == "working"
    assert keeper.finish(id)


@pytest.mark.req("TASK-23", "TASK-25", "TASK-26", "TASK-27")
def test_cancelled_task_stays_cancelled() -> None:
    keeper = Keeper()
    id = keeper.create()
    keeper.machine.cancel(None, id, now=5, cookie="cancels")
    assert (keeper.drain(), keeper.status(id)) == ([], "working")
    changed, replied, ended = keeper.settle()
    assert isinstance(changed, TaskChanged)
    assert isinstance(replied, TaskReplied)
    assert isinstance(ended, TaskEnded)
    assert (replied.cookie, replied.value) == ("cancels", changed.task)
    assert (changed.task.status, changed.task.last_updated_at) == ("cancelled", "1970-01-12T13:46:45.000Z")
    assert ended.outcome.error is not None
    assert said(ended.outcome) == (-32603, "Task was cancelled")
    assert ended.outcome.error.data == {"taskId": id, "status": "cancelled"}
    assert not keeper.finish(id)
    assert keeper.status(id) == "cancelled"
    assert refusal(keeper, "cancel", None, id, now=6, cookie="again")[0] == -32602


def test_cancelled_task_that_expires_while_stored_is_answered() -> None:
    keeper = Keeper()
    id = keeper.create(ttl=1000)
    keeper.machine.cancel(None, id, now=0, cookie="cancels")
    put = keeper.machine.next_effect()
    assert put is not None
    keeper.advance(2)
    keeper.machine.store_done(put.token, None, 2)
    (reply,) = keeper.drain()
    assert isinstance(reply, TaskReplied)
    assert isinstance(reply.value, Task)
    assert (reply.cookie, reply.value.status) == ("cancels", "cancelled")


# Questions


@pytest.mark.req("TASK-14", "TASK-16")
def test_task_needs_input_until_every_question_is_answered() -> None:
    keeper = Keeper()
    id = keeper.create()
    seen = []
    for verb in ("ask", "ask", "answered", "answered"):
        getattr(keeper.machine, verb)(id, now=1)
        keeper.settle()
        seen.append(keeper.status(id))
    assert seen == ["input_required", "input_required", "input_required", "working"]
    with pytest.raises(LocalProtocolError, match="asked nothing"):
        keeper.machine.answered(id, now=1)
    keeper.machine.answered("unknown", now=1)


@pytest.mark.req("TASK-20")
@pytest.mark.parametrize("outcome", [GOOD, WRONG])
def test_task_may_end_while_it_needs_input(outcome: TaskOutcome) -> None:
    keeper = Keeper()
    id = keeper.create()
    keeper.machine.ask(id, now=1)
    assert keeper.outcome(id) is None
    assert keeper.finish(id, outcome)
    assert keeper.status(id) in ("completed", "failed")


def test_only_the_last_waiting_state_is_stored() -> None:
    keeper = Keeper()
    id = keeper.create()
    for number in range(1000):
        assert keeper.machine.say(id, f"{number} dug", now=number)
    effect = keeper.machine.next_effect()
    assert isinstance(effect, StorePut)
    assert json.loads(effect.record)["message"] == "999 dug"
    assert keeper.machine.next_effect() is None
    # What was pulled is on its way: the next state comes after it.
    keeper.machine.say(id, "more", now=1000)
    keeper.machine.store_done(effect.token, keeper.disk.perform(effect), 1000)
    keeper.settle()
    assert keeper.get(None, id).status_message == "more"
    assert not keeper.machine.say("unknown", "more", now=0)


def test_long_status_message_is_shortened() -> None:
    keeper = Keeper()
    id = keeper.create()
    for text, kept in (("x" * SAID_LENGTH, "x" * SAID_LENGTH), ("x" * 5000, "x" * (SAID_LENGTH - 1) + "…")):
        keeper.machine.say(id, text, now=1)
        keeper.settle()
        assert keeper.get(None, id).status_message == kept


def test_what_json_cannot_express_changes_nothing() -> None:
    keeper = Keeper()
    id = keeper.create(request={"x": 1})
    wrong: Any = 5
    with pytest.raises(TypeError, match=r"^a status message must be a str, not 5$"):
        keeper.machine.say(id, wrong, now=1)
    with pytest.raises(LocalProtocolError, match="surrogate"):
        keeper.machine.say(id, "\ud800", now=1)
    with pytest.raises(LocalProtocolError, match="surrogate"):
        keeper.machine.ask(id, 1, ("q", {"method": "m", "params": {"message": "\ud800"}}))
    assert keeper.settle() == []
    # Whatever comes later is stored as ever.
    keeper.machine.orphan(id, "the end", now=2)
    assert keeper.machine.say(id, "again", now=2)
    keeper.settle()
    assert (keeper.status(id), keeper.get(None, id).status_message) == ("working", "again")


# Owners and lists


@pytest.mark.req("TASK-33", "TASK-34")
def test_task_of_another_owner_is_not_found() -> None:
    keeper = Keeper()
    id = keeper.create("ada")
    for owner, name in (("bob", id), (None, id), ("ada", "unknown"), ("ada", "")):
        for verb, more in (("get", {}), ("cancel", {"cookie": 1, "now": 0})):
            assert refusal(keeper, verb, owner, name, **more) == (-32602, "Task not found")
    assert keeper.status(id, "ada") == "working"


# Time


@pytest.mark.req("TASK-32", "TASK-33")
def test_expired_task_is_forgotten() -> None:
    keeper = Keeper()
    short, long = keeper.create(ttl=1000), keeper.create(ttl=5000)
    done = keeper.create(ttl=1000)
    keeper.finish(done)
    assert keeper.machine.next_deadline() == 1
    keeper.advance(0.5)
    assert keeper.status(short) == "working"
    keeper.events.clear()
    keeper.advance(0.5)
    assert keeper.changes() == ["expired working", "expired completed"]
    assert refusal(keeper, "get", None, short)[0] == refusal(keeper, "get", None, done)[0] == -32602
    assert list(keeper.disk.records) == [long]
    assert not keeper.finish(short)
    assert (keeper.status(long), keeper.machine.next_deadline()) == ("working", 5)


def test_task_without_ttl_has_no_deadline() -> None:
    keeper = Keeper(limits={"default_ttl": None, "max_ttl": None, "max_ttl_without_owner": None})
    id = keeper.create()
    assert (keeper.machine.next_deadline(), keeper.get(None, id).ttl) == (None, None)


# The store


class FullDisk(Disk):
    """A store that can read, and write while there is room."""

    is_full = False

    def perform(self, effect: Any) -> Any:
        return OSError("disk full") if self.is_full and isinstance(effect, StorePut) else super().perform(effect)


@pytest.mark.parametrize("question", [None, ("q", {"method": "m"})])
def test_end_that_cannot_be_stored_is_shown_when_it_is_stored(question: Any) -> None:
    disk = FullDisk()
    keeper = Keeper(disk)
    id = keeper.create()
    if question:
        keeper.machine.ask(id, 0, question)
        keeper.settle()
    disk.is_full = True
    assert keeper.finish(id)
    assert keeper.outcome(id) is None, "it waits"
    keeper.advance(RETRY)
    shown = keeper.get(None, id)
    assert (shown.status, shown.status_message) == ("working", "The work has ended, but that could not be stored yet")
    look = keeper.machine.look(None, id)
    assert look is not None
    assert look.inputs == {}
    assert "completed" not in Keeper(disk).changes(), "another start finds what was shown"
    disk.is_full = False
    keeper.events.clear()
    keeper.advance(RETRY)
    assert keeper.changes() == ["status completed"]
    assert (keeper.status(id), keeper.outcome(id)) == ("completed", {"content": []})
    assert keeper.machine.next_deadline() == 3600, "nothing is left to try"


def test_states_that_cannot_be_stored_give_way_to_later_ones() -> None:
    disk = FullDisk()
    keeper = Keeper(disk)
    id = keeper.create()
    disk.is_full = True
    keeper.machine.say(id, "one", 0)
    keeper.settle()
    assert keeper.get(None, id).status_message is None
    disk.is_full = False
    keeper.machine.say(id, "two", 1)
    keeper.settle()
    assert keeper.get(None, id).status_message == "two"
    keeper.events.clear()
    keeper.advance(RETRY)
    assert keeper.events == []


def test_cancellation_that_cannot_be_stored_is_an_error_and_holds() -> None:
    disk = FullDisk()
    keeper = Keeper(disk)
    id, short = keeper.create(), keeper.create(ttl=1_000)
    disk.is_full = True
    for each in (id, short):
        keeper.machine.cancel(None, each, now=0, cookie="cancels")
    keeper.settle()
    assert said(keeper.events[-1]) == (-32603, "The task is cancelled, but that could not be stored yet")
    assert keeper.status(id) == "working"
    keeper.advance(1)
    disk.is_full = False
    keeper.machine.store_again()
    keeper.settle()
    assert keeper.status(id) == "cancelled"
    assert refusal(keeper, "get", None, short)[0] == -32602


def test_cancelled_task_that_expires_while_it_cannot_be_stored_is_answered() -> None:
    keeper = Keeper()
    id = keeper.create(ttl=1_000)
    keeper.machine.cancel(None, id, now=0, cookie="cancels")
    put = keeper.machine.next_effect()
    assert put is not None
    keeper.advance(1)
    keeper.machine.store_done(put.token, OSError("disk full"), 1)
    assert said(keeper.drain()[-1]) == (-32603, "The task is cancelled, but that could not be stored yet")
    keeper.settle()
    assert keeper.machine.next_deadline() is None, "a task that is gone is not stored again"


def test_failed_deletion_is_reported_and_repeated() -> None:
    keeper = Keeper()
    id = keeper.create()
    keeper.machine.withdraw(id)
    effect = keeper.machine.next_effect()
    assert effect == StoreDelete(effect.token if effect else 0, id)
    keeper.machine.store_done(effect.token, OSError("no disk"), 0)
    (failed,) = keeper.drain()
    assert isinstance(failed, TaskStoreFailed)
    assert failed.key == id
    assert keeper.machine.next_effect() is None
    due = keeper.machine.next_deadline()
    assert due is not None
    keeper.machine.handle_timeout(due)
    again = keeper.machine.next_effect()
    assert again == StoreDelete(again.token if again else 0, id)
    keeper.machine.store_done(again.token, None, due)
    keeper.machine.handle_timeout(due + 1000)
    assert (keeper.machine.next_effect(), keeper.machine.next_deadline()) == (None, None)


def test_unknown_token_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="no effect waits"):
        Keeper().machine.store_done(999, None, 0)


# After a restart


def test_loaded_finished_task_is_unchanged() -> None:
    first = Keeper()
    done, stopped, long = first.create("ada", ttl=9000), first.create("ada"), first.create("ada", ttl=100)
    first.finish(done, BAD)
    first.machine.cancel("ada", stopped, now=0, cookie=1)
    first.settle()
    held = first.machine.held
    second = Keeper(first.disk, now=5, limits={"tasks": 3})
    assert [second.status(id, "ada") for id in (done, stopped)] == ["failed", "cancelled"]
    assert (refusal(second, "get", "ada", long)[0], second.changes()) == (-32602, ["expired working"])
    assert (second.machine.next_deadline(), list(second.disk.records)) == (9, [done, stopped])
    # They count towards the limits as before.
    assert 0 < second.machine.held < held
    second.create("ada")
    assert refusal(second, "create", "ada", "dig", now=5, cookie=1)[0] == -32603


def test_loaded_working_task_is_lost() -> None:
    first = Keeper()
    id = first.create("ada")
    first.machine.ask(id, now=0)
    first.settle()
    second = Keeper(first.disk)
    assert (second.status(id, "ada"), second.changes()) == ("failed", ["status failed"])
    reason = "The server was restarted before the task was over"
    assert second.get("ada", id).status_message == reason
    assert second.outcome(id) == (-32603, reason)


@pytest.mark.parametrize("asked", [True, False])
def test_loaded_working_task_with_a_request_is_orphaned(asked: bool) -> None:
    first = Keeper()
    id = first.create("ada", request={"name": "dig"})
    if asked:
        first.machine.ask(id, now=0)
    first.settle()
    second = Keeper(first.disk)
    assert TaskOrphaned(id, "ada", "dig", {"name": "dig"}) in second.events
    assert second.status(id, "ada") == "working"
    assert second.finish(id)
    assert second.status(id, "ada") == "completed"


QUESTION = ("q", {"method": "m"})


@pytest.mark.parametrize("is_early", [True, False])
def test_resumed_work_that_asks_again_gets_the_answer_to_the_stored_question(is_early: bool) -> None:
    first = Keeper()
    id = first.create(request={"name": "dig"})
    key = str(first.machine.ask(id, 0, QUESTION))
    first.settle()
    second = Keeper(first.disk)
    assert dict(second.inputs(id)) == {key: QUESTION[1]}
    if is_early:
        second.machine.answer(id, {key: 1}, now=0)
        assert not [event for event in second.settle() if isinstance(event, TaskAnswered)]
        assert (second.status(id), dict(second.inputs(id))) == ("working", {})
    assert second.machine.ask(id, 0, QUESTION) == key
    second.machine.answer(id, {key: 1}, now=0)
    assert [event for event in second.settle() if isinstance(event, TaskAnswered)] == [TaskAnswered(id, key, 1)]
    assert second.machine.ask(id, 0, QUESTION) == "q-2"


def test_stored_question_is_withdrawn_when_resumed_work_asks_another() -> None:
    first = Keeper()
    id = first.create(request={"name": "dig"})
    first.machine.ask(id, 0, QUESTION)
    first.settle()
    second = Keeper(first.disk)
    assert second.machine.ask(id, 0, ("q", {"method": "another"})) == "q-2"
    second.settle()
    assert list(second.inputs(id)) == ["q-2"]


def test_unreadable_record_is_reported() -> None:
    disk = Disk()
    disk.write([StorePut(0, "x", b"spoilt", None, lease=math.inf)])
    keeper = Keeper(disk)
    (failed,) = keeper.events
    assert isinstance(failed, TaskStoreFailed)
    keeper.create()


def test_store_that_cannot_be_read_is_loaded_later() -> None:
    first = Keeper()
    id = first.create()
    keeper = Keeper(first.disk, load=False)
    keeper.machine.load(0)
    effect = keeper.machine.next_effect()
    assert effect is not None
    keeper.machine.store_done(effect.token, OSError("no disk"), 0)
    (failed,) = keeper.drain()
    assert isinstance(failed, TaskStoreFailed)
    own, over = keeper.create(), keeper.create()
    keeper.finish(over)
    keeper.advance(RETRY)
    assert [keeper.status(each) for each in (id, own, over)] == ["failed", "working", "completed"]
    assert keeper.machine.next_deadline() == 3600


@pytest.mark.req("TASK-12", "TASK-32")
def test_fraction_of_a_millisecond_is_rounded_up() -> None:
    assert TaskLimits().ttl(1.5, None) == 2
    assert isinstance(TaskLimits().ttl(1.5, None), int)
