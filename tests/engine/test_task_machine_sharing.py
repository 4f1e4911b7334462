"""Task machines that share a store: leases, and what becomes of tasks that others changed."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from task_keeper import EPOCH, GOOD, Disk, Keeper

from mcpio.engine.tasks import (
    StoreAdopt,
    StoreDelete,
    StoredTask,
    StoreFetch,
    StorePut,
    StoreRenew,
    TaskAnswered,
    TaskLeased,
    TaskOrphaned,
    TaskReplied,
    TasksLapsed,
    TaskStoreFailed,
    TaskTaken,
)

LEASE = 30.0


class Shared(Disk):
    """A shared store whose answers a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.effects: list[Any] = []
        self.takes: Any = True
        self.lost: Any = ()
        self.adopted: Any = ()
        self.found: Any = None

    def perform(self, effect: Any) -> Any:
        self.effects.append(effect)
        match effect:
            case StorePut():
                super().perform(effect)
                return self.takes
            case StoreFetch():
                return self.found
            case StoreRenew():
                return self.lost
            case StoreAdopt():
                return self.adopted
        return super().perform(effect)

    def fail(self) -> None:
        self.lost = self.adopted = OSError("away")

    def work(self, lost: Any = (), adopted: Any = ()) -> None:
        self.lost, self.adopted = lost, adopted

    def of_kind(self, kind: type[Any]) -> list[Any]:
        return [effect for effect in self.effects if isinstance(effect, kind)]


def sharer() -> tuple[Keeper, Any]:
    disk = Shared()
    return Keeper(disk, lease=LEASE), disk


def stored(keeper: Keeper, disk: Any, id: str, **request: Any) -> StoredTask:
    """Return a running task as another machine would find it."""
    return StoredTask(id, disk.records[id], None, 1)


def kinds(keeper: Keeper) -> list[str]:
    return [type(event).__name__ for event in keeper.events]


def test_only_running_tasks_are_leased() -> None:
    keeper, disk = sharer()
    id = keeper.create("ada", ttl=60_000)
    keeper.finish(id)
    first, last = disk.of_kind(StorePut)
    assert (first.lease, first.owner, first.expires) == (LEASE, "ada", EPOCH + 60)
    assert (last.lease, last.payload is None) == (None, False)
    assert id not in keeper.machine
    assert keeper.machine.held == 0
    assert disk.of_kind(StoreDelete) == []


def test_leases_are_renewed_three_times_as_often_as_needed() -> None:
    keeper, disk = sharer()
    id = keeper.create()
    assert keeper.machine.next_deadline() == 10
    keeper.advance(10)
    keeper.advance(10)
    assert [effect.keys for effect in disk.of_kind(StoreRenew)] == [(id,), (id,)]


def test_renewal_that_fails_is_reported_and_tried_again() -> None:
    keeper, disk = sharer()
    disk.fail()
    keeper.advance(10)
    assert kinds(keeper) == ["TaskStoreFailed"]
    assert keeper.machine.next_deadline() == 13, "sooner than usual: the lease is running out"


def test_leases_that_cannot_be_renewed_are_reported_once_by_the_clock_of_the_machine() -> None:
    keeper, disk = sharer()
    first = keeper.create()
    keeper.advance(10)
    second = keeper.create()
    over = keeper.create()
    disk.fail()
    keeper.advance(10)
    disk.takes = OSError("away")
    keeper.finish(over)
    keeper.advance(19)
    assert "TasksLapsed" not in kinds(keeper)
    keeper.advance(1)
    assert keeper.now == 40, "the last renewal was at 10"
    lapses = [event for event in keeper.events if isinstance(event, TasksLapsed)]
    assert lapses == [TasksLapsed((first, second))]
    keeper.advance(60)
    assert kinds(keeper).count("TasksLapsed") == 1
    keeper.events.clear()
    disk.work([second])
    disk.takes = True
    keeper.advance(10)
    leased = [event for event in keeper.events if isinstance(event, TaskLeased | TaskTaken)]
    assert [(type(event), event.id) for event in leased] == [(TaskLeased, first), (TaskTaken, second)]
    assert over not in keeper.machine
    disk.fail()
    keeper.events.clear()
    keeper.advance(30)
    assert TasksLapsed((first,)) in keeper.events


def test_each_lease_ends_at_its_own_time() -> None:
    keeper, disk = sharer()
    disk.fail()
    ids = []
    for _ in range(3):
        ids.append(keeper.create())
        keeper.advance(5)
    for _ in range(6):
        keeper.advance(5)
    lapses = [event for event in keeper.events if isinstance(event, TasksLapsed)]
    assert lapses == [TasksLapsed((id,)) for id in ids]


def test_lease_of_a_task_that_is_being_created_is_not_reported() -> None:
    keeper, disk = sharer()
    disk.fail()
    known = keeper.create()
    id = keeper.machine.create(None, "dig", now=0, cookie="made")
    put = keeper.machine.next_effect()
    keeper.advance(31)
    assert TasksLapsed((known,)) in keeper.events
    assert put is not None
    keeper.machine.store_done(put.token, True, 31)
    keeper.advance(0)
    assert TasksLapsed((id,)) in keeper.events


def test_renewal_whose_task_is_over_by_then_changes_nothing() -> None:
    keeper, _ = sharer()
    id = keeper.create()
    keeper.machine.handle_timeout(10)
    renew = keeper.machine.next_effect()
    assert isinstance(renew, StoreRenew)
    keeper.finish(id)
    keeper.machine.store_done(renew.token, [id], 10)
    assert keeper.drain() == []


def test_slow_renewal_is_asked_again_at_once() -> None:
    keeper, _ = sharer()
    keeper.machine.handle_timeout(10)
    renew = keeper.machine.next_effect()
    assert renew is not None
    assert keeper.machine.next_deadline() is None, "one at a time"
    keeper.machine.store_done(renew.token, (), 25)
    assert keeper.machine.next_deadline() == 25


def test_adopted_task_is_watched_as_well() -> None:
    keeper, disk = sharer()
    other, other_disk = sharer()
    id = other.create("ada", request={"x": 1})
    disk.records.update(other_disk.records)
    disk.work((), [stored(other, other_disk, id)])
    keeper.advance(10)
    disk.fail()
    keeper.advance(29)
    assert "TasksLapsed" not in kinds(keeper)
    keeper.advance(1)
    assert TasksLapsed((id,)) in keeper.events


def test_lost_task_stops_here() -> None:
    keeper, disk = sharer()
    id = keeper.create()
    disk.work([id, "unknown"])
    keeper.advance(10)
    reason = "another process has taken it over, or it was cancelled or deleted"
    assert keeper.events[-1] == TaskTaken(id, "dig", reason)
    assert not keeper.finish(id)


def test_task_that_ends_with_a_lost_lease_keeps_its_stored_state() -> None:
    keeper, disk = sharer()
    id = keeper.create()
    disk.work([id])
    keeper.machine.handle_timeout(10)
    keeper.machine.finish(id, GOOD, now=10)
    disk.takes = False
    keeper.settle()
    assert kinds(keeper)[-1] == "TaskTaken"
    assert id not in keeper.machine


def test_refused_cancel_of_a_task_that_has_expired_asks_the_store() -> None:
    keeper, disk = sharer()
    id = keeper.create(ttl=5_000)
    keeper.machine.cancel(None, id, now=0, cookie="cancelled")
    disk.takes = False
    keeper.machine.withdraw(id)
    keeper.settle()
    assert keeper.events[-1] == TaskReplied("cancelled", None, None)


def test_withdrawn_task_is_deleted_even_if_it_has_ended() -> None:
    keeper, disk = sharer()
    id = keeper.create()
    keeper.machine.finish(id, GOOD, now=1)
    keeper.settle()
    assert id not in keeper.machine
    keeper.machine.withdraw(id)
    keeper.settle()
    assert [effect.key for effect in disk.of_kind(StoreDelete)] == [id]


def test_result_that_could_not_be_stored_is_stored_with_the_next_renewal() -> None:
    keeper, disk = sharer()
    id, other = keeper.create(), keeper.create()
    disk.takes = OSError("full")
    keeper.finish(id)
    keeper.machine.cancel(None, other, now=0, cookie="cancelled")
    keeper.settle()
    keeper.machine.handle_timeout(10)
    keeper.machine.handle_timeout(20)
    disk.takes = True
    keeper.settle()
    assert id not in keeper.machine
    assert other not in keeper.machine
    assert [put.payload is None for put in disk.of_kind(StorePut)[-2:]] == [False, True]


def test_signal_of_a_task_that_still_runs_changes_nothing() -> None:
    keeper, disk = sharer()
    id = keeper.create()
    disk.found = stored(keeper, disk, id)
    keeper.machine.task_signalled(id)
    keeper.machine.task_signalled("unknown")
    keeper.settle()
    assert (id in keeper.machine, len(disk.of_kind(StoreFetch))) == (True, 1)


@pytest.mark.parametrize("is_gone", [True, False])
def test_signal_of_a_task_that_is_gone_or_over_takes_it(is_gone: bool) -> None:
    keeper, disk = sharer()
    id = keeper.create()
    text = disk.records[id].replace(b'"working"', b'"cancelled"')
    disk.found = None if is_gone else StoredTask(id, text, None, 2)
    keeper.machine.task_signalled(id)
    assert kinds(keeper)[-1] == "TaskReplied"
    assert keeper.settle() == [TaskTaken(id, "dig", None)]


def test_signal_that_cannot_be_followed_is_reported() -> None:
    keeper, disk = sharer()
    id = keeper.create()
    for disk.found in (OSError("away"), StoredTask(id, b"?", None, 2)):
        keeper.machine.task_signalled(id)
        (event,) = keeper.settle()
        assert isinstance(event, TaskStoreFailed)
        assert event.key == id
    keeper.machine.task_signalled(id)
    keeper.machine.finish(id, GOOD, now=0)
    disk.found = None
    assert [type(event).__name__ for event in keeper.settle()] == ["TaskChanged", "TaskEnded"]


def test_adopted_task_is_resumed_if_it_can_be_and_has_failed_otherwise() -> None:
    keeper, disk = sharer()
    other, other_disk = sharer()
    again, never = other.create("ada", request={"x": 1}), other.create("ada")
    disk.records.update(other_disk.records)
    found = [stored(other, other_disk, again), stored(other, other_disk, never)]
    disk.work((), [*found, StoredTask("broken", b"?", None, 1)])
    keeper.advance(10)
    assert TaskOrphaned(again, "ada", "dig", {"x": 1}) in keeper.events
    assert keeper.changes() == ["status failed"]
    assert kinds(keeper).count("TaskStoreFailed") == 1
    assert (again in keeper.machine, never in keeper.machine) == (True, False)
    # Its own lease may have expired while the store was out of reach.
    disk.work((), found[:1])
    keeper.advance(10)
    assert kinds(keeper).count("TaskOrphaned") == 1


def test_answer_that_came_before_a_task_is_adopted_is_kept_for_its_next_run() -> None:
    other, other_disk = sharer()
    id = other.create(request={"x": 1})
    key = str(other.machine.ask(id, 0, ("q", {"method": "m"})))
    other.settle()
    keeper, disk = sharer()
    disk.records.update(other_disk.records)
    disk.found = attrs.evolve(stored(other, other_disk, id), answers={key: b"1"})
    disk.work((), [disk.found])
    keeper.advance(10)
    assert keeper.machine.ask(id, 0, ("q", {"method": "m"})) == key
    assert TaskAnswered(id, key, 1) in keeper.settle()


def test_released_task_may_be_taken_over_at_once() -> None:
    keeper, disk = sharer()
    again, never = keeper.create(request={"x": 1}), keeper.create()
    for id in (again, never, "unknown"):
        keeper.machine.release(id, "the end", now=0)
    keeper.settle()
    assert [(put.key, put.lease) for put in disk.of_kind(StorePut)[-2:]] == [(again, 0.0), (never, None)]
    assert again not in keeper.machine
    assert "TaskOrphaned" not in kinds(keeper)


def test_task_is_not_deleted_after_its_release_or_a_look_at_it_fails() -> None:
    keeper, disk = sharer()
    released, signalled = keeper.create(request={"x": 1}), keeper.create()
    disk.takes = disk.found = OSError("away")
    keeper.machine.release(released, "the end", now=0)
    keeper.machine.task_signalled(signalled)
    assert [type(event) for event in keeper.settle()] == [TaskStoreFailed, TaskStoreFailed]
    assert [event.key for event in keeper.events[-2:] if isinstance(event, TaskStoreFailed)] == [released, signalled]
    keeper.advance(10)
    assert disk.of_kind(StoreDelete) == []


def test_answer_to_a_question_of_an_ended_task_is_ignored() -> None:
    keeper, _ = sharer()
    id = keeper.create()
    key = keeper.machine.ask(id, 0, ("q", {"method": "m"}))
    keeper.machine.finish(id, GOOD, now=0)
    keeper.machine.answer(id, {str(key): 1}, now=0)
    keeper.machine.answer("unknown", {"q": 1}, now=0)
    assert [type(event).__name__ for event in keeper.settle()] == ["TaskChanged", "TaskChanged", "TaskEnded"]


def test_question_that_nothing_waits_for_is_forgotten() -> None:
    keeper, _ = sharer()
    id = keeper.create()
    first = keeper.machine.ask(id, 0, ("q", {"method": "m"}))
    second = keeper.machine.ask(id, 0, ("q", {"method": "m"}))
    assert first != second
    keeper.machine.withdraw_question(id, str(first), now=0)
    keeper.settle()
    assert list(keeper.inputs(id)) == [second]
    for key in (str(first), str(second)):
        keeper.machine.withdraw_question(id, key, now=0)
    keeper.settle()
    assert (keeper.status(id), dict(keeper.inputs(id))) == ("working", {})


def test_unreadable_answer_is_reported_and_stops_nothing() -> None:
    keeper, disk = sharer()
    id = keeper.create()
    key = str(keeper.machine.ask(id, 0, ("q", {"method": "m"})))
    keeper.settle()
    disk.found = attrs.evolve(stored(keeper, disk, id), answers={key: b"nonsense"})
    keeper.machine.task_signalled(id)
    assert [type(event) for event in keeper.settle()] == [TaskStoreFailed]
    disk.found = attrs.evolve(disk.found, answers={key: b"5"})
    keeper.machine.task_signalled(id)
    assert TaskAnswered(id, key, 5) in keeper.settle()
