"""The task machine at work: a store that blocks, places that come and go, and clocks that differ."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from waits import Wait

from mcpio.app.store_writer import BATCH
from mcpio.app.tasks.store import LONGEST_SLEEP, MemoryTaskStore, TaskStorage, _number
from mcpio.engine.tasks import (
    RETRY,
    StoreDelete,
    StorePut,
    TaskChanged,
    TaskEvent,
    TaskLimits,
    TaskOutcome,
    TaskRecord,
    TaskReplied,
    TaskStoreFailed,
)
from mcpio.errors import NoBackChannel, RequestError
from mcpio.testing import ManualRuntime

_PLACES = itertools.count()


class Place:
    def __init__(self, runtime: ManualRuntime | None = None, behind: float = 0.0) -> None:
        self.runtime = runtime or ManualRuntime()
        # What they draw must differ, as it does everywhere else.
        self.runtime._drawn = next(_PLACES) * 10**6
        self.behind = behind
        self.reports: list[str] = []

    def now(self) -> float:
        return self.runtime.now - self.behind

    def report(self, message: str, error: BaseException | None) -> None:
        self.reports.append(message)


class Disk(MemoryTaskStore):
    """A store that blocks, and that fails as long as it is broken."""

    blocking = True

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []
        self.broken = False

    def write(self, changes: Sequence[StorePut | StoreDelete]) -> list[bool]:
        self.batches.append(len(changes))
        if self.broken:
            raise OSError("no disk")
        return super().write(changes)


class Keep:
    def __init__(self, store: Any = None) -> None:
        self.events: list[TaskEvent] = []
        self.store = store or Disk()
        limits = TaskLimits(running_per_owner=999, default_ttl=None, max_ttl=None, max_ttl_without_owner=None)
        self.keeping = TaskStorage(self.store, self._act, limits=limits, poll_interval=None)

    def _act(self, event: TaskEvent) -> None:
        self.events.append(event)
        if isinstance(event, TaskReplied) and event.cookie != "made":
            event.cookie.set(event)

    def create(self, **options: Any) -> str:
        machine = self.keeping.machine
        id = machine.create(None, "dig", now=self.keeping.now(), cookie="made", **options)
        self.keeping.pump()
        return id

    def finish(self, id: str) -> None:
        self.keeping.machine.finish(id, TaskOutcome({"x": 1}), now=self.keeping.now())
        self.keeping.pump()

    def look(self, place: Place, id: str) -> Wait[Any]:
        return Wait(place.runtime, self.keeping.look(place.runtime, None, id))

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


def test_storage_without_a_host_raises() -> None:
    keep = Keep(MemoryTaskStore())
    with pytest.raises(NoBackChannel):
        keep.keeping.machine  # noqa: B018  # the look is what fails
    assert (keep.keeping.host, keep.keeping.now()) == (None, 0)
    place = Place()
    keep.keeping.attach(place)
    keep.keeping.detach(place)
    with pytest.raises(NoBackChannel, match="no task can begin"):
        keep.create()


def test_blocking_store_runs_in_a_thread_without_blocking_the_loop() -> None:
    keep, place = Keep(), Place()
    keep.keeping.attach(place)
    first, second = keep.create(), keep.create()
    assert (keep.events, keep.store.batches) == ([], [])
    place.runtime.run()
    assert keep.kinds() == ["TaskChanged", "TaskReplied"] * 2
    assert (list(keep.store._rows), keep.store.batches) == ([first, second], [2])
    keep.finish(first)
    early = Wait(place.runtime, keep.keeping.outcome(place.runtime, None, first))
    place.runtime.run()
    assert early.result == TaskOutcome({"x": 1})
    late = Wait(place.runtime, keep.keeping.outcome(place.runtime, None, first))
    keep.keeping.machine.withdraw(second)
    keep.keeping.pump()
    place.runtime.run()
    assert (late.result, list(keep.store._rows)) == (TaskOutcome({"x": 1}), [first])


def test_task_that_runs_here_is_read_without_its_store() -> None:
    keep, place = Keep(), Place()
    keep.keeping.attach(place)
    running, over = keep.create(), keep.create()
    place.runtime.run()
    keep.finish(over)
    place.runtime.run()
    keep.store.__dict__["fetch"] = pytest.fail
    found = keep.keeping.look(place.runtime, None, running)
    with pytest.raises(StopIteration) as done:
        found.send(None)
    assert done.value.value.task.status == "working"
    del keep.store.__dict__["fetch"]
    look = keep.look(place, over)
    place.runtime.run()
    assert look.result.outcome == TaskOutcome({"x": 1})


def test_many_changes_are_stored_together() -> None:
    keep, place = Keep(), Place()
    keep.keeping.attach(place)
    place.runtime.run()
    for _ in range(BATCH + 10):
        keep.create()
    place.runtime.run()
    assert keep.store.batches == [BATCH, 10]


@pytest.mark.parametrize("blocking", [True, False])
def test_failing_store_is_reported(blocking: bool) -> None:
    disk = Disk()
    disk.blocking = blocking
    keep, place = Keep(disk), Place()
    keep.keeping.attach(place)
    place.runtime.run()
    disk.broken = True
    keep.create()
    place.runtime.run()
    assert keep.kinds() == ["TaskStoreFailed", "TaskReplied", "TaskStoreFailed"]
    first = keep.events[0]
    assert isinstance(first, TaskStoreFailed)
    assert str(first.error) == "no disk"


@pytest.mark.parametrize("blocking", [True, False])
def test_store_that_cannot_be_read_is_read_again(blocking: bool) -> None:
    disk = Disk()
    disk.blocking = blocking
    first, place = Keep(disk), Place()
    first.keeping.attach(place)
    id = first.create()
    place.runtime.run()

    def fail(*arguments: Any) -> Any:
        raise OSError("no disk")

    wrong: Any = {"adopt": fail, "fetch": fail, "owned": fail}
    disk.__dict__.update(wrong)
    keep, place = Keep(disk), Place()
    keep.keeping.attach(place)
    place.runtime.run()
    assert keep.kinds() == ["TaskStoreFailed"]
    for call in (keep.keeping.look(place.runtime, None, id), keep.keeping.tasks_of(place.runtime, None)):
        wait = Wait(place.runtime, call)
        place.runtime.run()
        assert isinstance(wait.error, RequestError)
        assert wait.error.is_retryable()
    for name in wrong:
        del disk.__dict__[name]
    place.runtime.advance_to(place.runtime.now + RETRY)
    place.runtime.run()
    look = keep.look(place, id)
    place.runtime.run()
    assert look.result.task.status == "failed"


def test_cancel_that_cannot_be_stored_is_an_error() -> None:
    keep, place = Keep(), Place()
    keep.keeping.attach(place)
    id = keep.create()
    place.runtime.run()
    keep.store.broken = True
    cancel = Wait(place.runtime, keep.keeping.cancel(place.runtime, None, id))
    place.runtime.run()
    assert isinstance(cancel.error, RequestError)
    assert cancel.error.message == "The task is cancelled, but that could not be stored yet"


def test_expired_task_that_cannot_be_deleted_is_not_there() -> None:
    keep, place = Keep(), Place()
    keep.keeping.attach(place)
    id, lasting = keep.create(ttl=1000), keep.create()
    place.runtime.run()
    keep.store.broken = True
    place.runtime.advance_to(2)
    look, listed = keep.look(place, id), Wait(place.runtime, keep.keeping.tasks_of(place.runtime, None))
    place.runtime.run()
    assert isinstance(look.error, RequestError)
    assert look.error.code == -32602
    assert [task.task_id for _, task in listed.result] == [lasting]
    assert id in keep.store._rows


def test_unfinished_write_is_repeated_at_the_next_host() -> None:
    keep, first, second = Keep(), Place(), Place()
    keep.keeping.attach(first)
    first.runtime.run()
    keep.keeping.attach(second)
    keep.create()
    keep.keeping.detach(first)
    first.runtime.run()
    second.runtime.run()
    assert keep.kinds() == ["TaskChanged", "TaskReplied"]
    keep.create()
    keep.keeping.detach(second)
    second.runtime.run()
    assert len(keep.events) == 2
    third = Place()
    keep.keeping.attach(third)
    third.runtime.run()
    assert len(keep.events) == 4


def test_write_goes_on_when_another_host_of_the_same_event_loop_ends() -> None:
    place = Place()

    class Slow(MemoryTaskStore):
        async def write(self, changes: Sequence[StorePut | StoreDelete]) -> list[bool]:  # type: ignore[override]  # an async store
            await place.runtime.sleep(1.0)
            return super().write(changes)

    keep = Keep(Slow())
    keep.keeping.attach(place)
    place.runtime.run()
    keep.create()
    for number in range(1, 10):
        # As each request of a server without sessions is one of its own.
        request = Place(place.runtime)
        keep.keeping.attach(request)
        place.runtime.advance_to(number / 10)
        keep.keeping.detach(request)
    place.runtime.advance_to(1.0)
    assert keep.kinds() == ["TaskChanged", "TaskReplied"]


def test_host_flushes_before_it_ends() -> None:
    keep, place, other = Keep(), Place(), Place()
    keep.keeping.attach(place)
    place.runtime.run()
    id = keep.create()
    place.runtime.complete(keep.keeping.flush(place))
    keep.finish(id)
    keep.keeping.detach(place)
    place.runtime.run()
    place.runtime.complete(keep.keeping.flush(place))
    assert keep.store._rows[id].payload is not None
    # Where there is another place it is left to that.
    keep.keeping.attach(place)
    keep.keeping.attach(other)
    place.runtime.run()
    keep.create()
    batches = len(keep.store.batches)
    other.runtime.complete(keep.keeping.flush(other))
    assert len(keep.store.batches) == batches
    place.runtime.run()
    assert len(keep.store.batches) == batches + 1


def test_timer_covers_every_deadline() -> None:
    keep, place = Keep(MemoryTaskStore()), Place()
    keep.keeping.attach(place)
    keep.create(ttl=2 * LONGEST_SLEEP * 1000)
    assert place.runtime.next_deadline() is None
    place.runtime.run()
    assert place.runtime.next_deadline() == LONGEST_SLEEP
    keep.create(ttl=5000)
    keep.create(ttl=9000)
    keep.events.clear()
    place.runtime.advance_to(4.9)
    assert keep.events == []
    place.runtime.advance_to(5)
    assert [event.change for event in keep.events if isinstance(event, TaskChanged)] == ["expired"]
    place.runtime.advance_to(2 * LONGEST_SLEEP)
    assert len(keep.events) == 3
    assert keep.store._rows == {}


def test_deadlines_move_to_the_next_host() -> None:
    keep, first, second = Keep(MemoryTaskStore()), Place(), Place()
    keep.keeping.attach(first)
    keep.create(ttl=5000)
    first.runtime.run()
    keep.keeping.attach(second)
    keep.keeping.detach(first)
    keep.keeping.pump()
    second.runtime.advance_to(5)
    assert keep.store._rows == {}


def test_another_event_loop_may_have_another_clock() -> None:
    keep, first = Keep(MemoryTaskStore()), Place(behind=1000.0)
    first.runtime.advance_to(10)
    keep.keeping.attach(first)
    before = keep.keeping.now()
    assert before == -990
    keep.keeping.detach(first)
    assert keep.keeping.now() == before
    second = Place(behind=-500.0)
    second.runtime.advance_to(12)
    keep.keeping.attach(second)
    assert keep.keeping.now() == before + 2


def test_host_may_be_detached_twice() -> None:
    keep, place, disk = Keep(MemoryTaskStore()), Place(), Keep()
    keep.keeping.attach(place)
    keep.keeping.detach(place)
    keep.keeping.detach(place)
    other = Place()
    disk.keeping.attach(other)
    # Whoever comes first stores what there is: the writer that was to come finds nothing.
    disk.create()
    other.runtime.complete(disk.keeping.flush(other))
    assert disk.kinds() == ["TaskChanged", "TaskReplied"]


def test_event_handler_may_call_the_machine() -> None:
    keep, place = Keep(MemoryTaskStore()), Place()

    def act(event: TaskEvent) -> None:
        keep.events.append(event)
        keep.keeping.pump()

    keep.keeping._act = act
    keep.keeping.attach(place)
    keep.create()
    assert keep.kinds() == ["TaskChanged", "TaskReplied"]


def test_flush_replaces_the_running_writer() -> None:
    keep, place = Keep(), Place()
    keep.keeping.attach(place)

    async def flush() -> None:
        await keep.keeping.flush(place)

    place.runtime.spawn(flush())
    place.runtime.spawn(flush())
    keep.create()
    place.runtime.run()
    assert keep.kinds() == ["TaskChanged", "TaskReplied"]


def test_cursors_follow_the_creation_of_tasks_and_then_their_number() -> None:
    last = 2**32 - 1
    tasks = [(0.5, 0, "f"), (0.5, 1, "0"), (0.5, 1, "f"), (0.5, last, "f"), (0.501, 0, "0"), (2.0, 0, "0")]
    numbers = [_number(_record(created, number, digit * 32)) for created, number, digit in tasks]
    assert numbers == sorted(set(numbers))


def _record(created: float, number: int, id: str) -> TaskRecord:
    return TaskRecord(id, number, None, "dig", None, created, created, None, None)


def test_store_in_memory_tells_which_writes_it_made() -> None:
    store = MemoryTaskStore()
    running, over = StorePut(1, "a", b"1", None, lease=5.0), StorePut(2, "a", b"2", None)
    assert store.write([running, over]) == [True, True]
    assert store.write([StorePut(3, "a", b"3", None), over]) == [False, True]


def test_expired_task_whose_timer_is_late_cannot_be_cancelled() -> None:
    keep, place = Keep(MemoryTaskStore()), Place()
    keep.keeping.attach(place)
    id = keep.create(ttl=1000.0)
    place.runtime.run()
    place.runtime.now += 2.0
    wait = Wait(place.runtime, keep.keeping.cancel(place.runtime, None, id))
    place.runtime.run()
    assert isinstance(wait.error, RequestError)
    assert "TaskChanged" in keep.kinds()
    assert [event.change for event in keep.events if isinstance(event, TaskChanged)][-1] == "expired"
