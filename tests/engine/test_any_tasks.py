"""Task machines and their store, whatever happens in whatever order: one machine alone, and two that share a store."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Any

import pytest
from examples import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from shared_tasks import SharedShelf, Shelf
from task_keeper import BAD, GOOD, WRONG, Disk, Keeper, done

from mcpio.engine.tasks import (
    ENDED,
    TASK_TABLE,
    Owner,
    StoreDelete,
    StoreFetch,
    StorePut,
    StoreRenew,
    TaskChanged,
    TaskEnded,
    TaskOutcome,
    TaskReplied,
    TaskState,
    dump_record,
    load_outcome,
    load_record,
    was_cancelled,
)
from mcpio.errors import LocalProtocolError, RequestError

STEPS = {(start.value, goal.value) for (_, start, _), goal in TASK_TABLE.items()} | {
    (state.value, state.value) for state in TaskState
}
LIMITS = {"running_per_owner": 3, "tasks": 6, "result_bytes": 90}


class Process:
    """A machine, and the effects that are on their way to its store and back."""

    def __init__(self, store: Any, now: float, lease: dict[str, float]) -> None:
        self.store = store
        self.keeper = Keeper(store, now, load=False, limits=LIMITS, **lease)
        self.machine = self.keeper.machine
        self.pulled: deque[Any] = deque()
        self.performed: deque[tuple[Any, Any]] = deque()
        self.cookies: dict[object, int] = {}
        self.machine.load(now)

    def perform(self, effect: Any) -> Any:
        store = self.store
        if isinstance(effect, StorePut | StoreDelete):
            return done(store.write([effect]))[0]
        if isinstance(effect, StoreFetch):
            return done(store.fetch(effect.key))
        if isinstance(effect, StoreRenew):
            return done(store.renew(effect.keys, effect.lease))
        return done(store.adopt(effect.lease))

    def settle(self) -> None:
        """Carry out everything, until nothing follows."""
        while self.pulled or self.performed or (effect := self.machine.next_effect()) is not None:
            if not (self.pulled or self.performed):
                self.pulled.append(effect)
            if self.performed:
                effect, answer = self.performed.popleft()
            else:
                effect = self.pulled.popleft()
                answer = self.perform(effect)
            self.machine.store_done(effect.token, answer, self.keeper.now)


class Alone(RuleBasedStateMachine):
    """A final state stays as it is, each cookie has one answer, and a task runs where its lease is."""

    count = 1

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.begin()
        self.processes = [self.process() for _ in range(self.count)]
        self.ids: list[str] = []
        self.final: dict[str, bytes] = {}
        self.states: dict[str, str] = {}

    def begin(self) -> None:
        self.disk = Disk()

    def process(self) -> Process:
        return Process(self.disk, self.now, {})

    def rows(self) -> dict[str, tuple[bytes, bytes | None, bool]]:
        """Return the record, the payload and whether it is over, of each task in the store."""
        return {key: (row.record, row.payload, not row.runs) for key, row in self.disk._rows.items()}

    def is_held(self, process: Process, id: str) -> bool:
        """Whether the store has a running task for this process."""
        return True

    machines = st.integers(0, 1)
    owners = st.sampled_from(["ada", None])
    picks = st.integers(0, 2)

    def at(self, which: int) -> Process:
        return self.processes[which % len(self.processes)]

    def call(self, process: Process, verb: str, *arguments: Any, **named: Any) -> Any:
        try:
            return getattr(process.machine, verb)(*arguments, now=process.keeper.now, **named)
        except (RequestError, LocalProtocolError):
            process.cookies.pop(named.get("cookie"), None)  # a caller who is refused at once waits for nothing
            return None

    @rule(
        which=machines,
        owner=owners,
        ttl=st.sampled_from([None, 1000, 30_000]),
        resumable=st.booleans(),
        soon=st.booleans(),
    )
    def create(self, which: int, owner: Owner, ttl: Any, resumable: bool, soon: bool) -> None:
        process, cookie = self.at(which), object()
        process.cookies[cookie] = 0
        request = {"x": 1} if resumable else None
        id = self.call(process, "create", owner, "dig", cookie=cookie, ttl=ttl, request=request)
        if id is not None:
            self.ids.append(id)
        if soon:
            process.settle()

    @precondition(lambda self: self.ids)
    @rule(which=machines, pick=picks, owner=owners)
    def cancel(self, which: int, pick: int, owner: Owner) -> None:
        process, cookie, id = self.at(which), object(), self.ids[-1 - pick % len(self.ids)]
        if id in process.machine:
            process.cookies[cookie] = 0
            self.call(process, "cancel", owner, id, cookie=cookie)
        elif (stored := done(process.store.fetch(id))) is not None:
            record = load_record(id, stored.record)
            if not record.is_over:
                record.cancel(process.keeper.now)
                assert done(process.store.end(id, stored.version, dump_record(record)))

    @precondition(lambda self: self.ids)
    @rule(which=machines, pick=picks, verb=st.sampled_from(["ask", "answered"]))
    def question(self, which: int, pick: int, verb: str) -> None:
        self.call(self.at(which), verb, self.ids[-1 - pick % len(self.ids)])

    @precondition(lambda self: self.ids)
    @rule(
        which=machines,
        pick=picks,
        what=st.sampled_from([GOOD, BAD, WRONG, TaskOutcome({"x": "y" * 99}), "lose", "orphan", "say", "release"]),
    )
    def work(self, which: int, pick: int, what: Any) -> None:
        id = self.ids[-1 - pick % len(self.ids)]
        if isinstance(what, str):
            self.call(self.at(which), what, id, "words")
        else:
            self.call(self.at(which), "finish", id, what)

    @rule(seconds=st.sampled_from([0.5, 1, 5, 20, 100]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for process in self.processes:
            process.keeper.now = self.now
            process.machine.handle_timeout(self.now)

    @rule(
        which=machines,
        pulled=st.integers(0, 3),
        faults=st.lists(st.sampled_from(["works", "works", "fails", "loses the answer"]), max_size=3),
        heard=st.integers(0, 3),
    )
    def step(self, which: int, pulled: int, faults: list[str], heard: int) -> None:
        """Some effects leave the machine, some reach the store, and some answers come back."""
        process = self.at(which)
        for _ in range(pulled):
            effect = process.machine.next_effect()
            if effect is not None:
                process.pulled.append(effect)
        for fault in faults[: len(process.pulled)]:
            effect = process.pulled.popleft()
            # What cannot be deleted stays until the next start, or until its lease expires.
            fails = fault != "works" and not isinstance(effect, StoreDelete)
            answer = None if fault == "fails" and fails else process.perform(effect)
            process.performed.append((effect, OSError("away") if fails else answer))
        for _ in range(min(heard, len(process.performed))):
            effect, answer = process.performed.popleft()
            process.machine.store_done(effect.token, answer, process.keeper.now)

    @rule(which=machines)
    def settle(self, which: int) -> None:
        self.at(which).settle()

    @precondition(lambda self: len(self.ids) > 1)
    @rule(which=machines)
    def kill(self, which: int) -> None:
        self.processes[which % len(self.processes)] = self.process()

    @invariant()
    def no_state_follows_a_final_one(self) -> None:
        rows = self.rows()
        for id, (text, _, is_over) in rows.items():
            record = load_record(id, text)
            assert (self.states.get(id, "working"), record.state.value) in STEPS
            self.states[id] = record.state.value
            assert is_over is (record.state in ENDED)
            if is_over:
                assert self.final.setdefault(id, text) == text

    @invariant()
    def each_end_is_told_as_it_is_stored(self) -> None:
        rows = self.rows()
        for process in self.processes:
            statuses: dict[str, list[str]] = {}
            for event in process.keeper.drain():
                if isinstance(event, TaskReplied):
                    process.cookies[event.cookie] += 1
                elif isinstance(event, TaskChanged) and event.change == "status":
                    statuses.setdefault(event.task.task_id, []).append(event.task.status)
                elif isinstance(event, TaskEnded) and event.id in rows:
                    text, payload, _ = rows[event.id]
                    if load_record(event.id, text).state is TaskState.CANCELLED:
                        assert str(event.outcome.error) == str(was_cancelled(event.id))
                    else:
                        found = load_outcome(payload or b"")
                        assert (found.result, str(found.error)) == (event.outcome.result, str(event.outcome.error))
            assert all(pair in STEPS for each in statuses.values() for pair in pairwise(each))
            assert all(count <= 1 for count in process.cookies.values())

    @invariant()
    def task_runs_where_its_lease_is(self) -> None:
        rows = self.rows()
        for process in self.processes:
            machine = process.machine
            for id, record in machine._records.items():
                if record.shown and record.leased_until > self.now and id in rows and not rows[id][2]:
                    assert self.is_held(process, id)
            kept = [*machine._records.values(), *machine._over.values()]
            assert machine.held == sum(record.size for record in kept)
            running = sum(not record.is_over for record in kept)
            assert machine._running["all"] == running

    def teardown(self) -> None:
        """In the end every task is over, or its time is, and everyone who waited has one answer."""
        for _ in range(12):
            for process in self.processes:
                process.settle()
            self.wait(10)
        for process in self.processes:
            process.settle()
        self.no_state_follows_a_final_one()
        self.each_end_is_told_as_it_is_stored()
        self.task_runs_where_its_lease_is()
        for id, (_, _, is_over) in self.rows().items():
            assert [id in process.machine for process in self.processes].count(True) == (not is_over)
        self.wait(10**6)
        for process in self.processes:
            process.settle()
            assert set(process.cookies.values()) <= {1}
            assert (process.machine.held, process.machine._running.total(), process.machine._asked) == (0, 0, {})
        assert all(is_over for _, _, is_over in self.rows().values())


class Shared(Alone):
    """The same with two processes, whose leases expire."""

    count = 2

    def begin(self) -> None:
        self.shelf = Shelf()

    def process(self) -> Process:
        store = SharedShelf(self.shelf)
        process = Process(store, self.now, {"lease": store.lease})
        store.subscribe(lambda id: None if id is None else process.machine.task_signalled(id))
        return process

    def rows(self) -> dict[str, tuple[bytes, bytes | None, bool]]:
        rows = self.shelf.rows.items()
        return {key: (row.record, row.payload, row.until == float("inf")) for key, row in rows}

    def is_held(self, process: Process, id: str) -> bool:
        return bool(self.shelf.rows[id].holder == process.store.number)

    @rule(seconds=st.sampled_from([0.5, 1, 5, 20, 100]))
    def wait(self, seconds: float) -> None:
        self.shelf.now += seconds
        super().wait(seconds)

    @precondition(lambda self: len(self.ids) > 1)
    @rule(which=Alone.machines)
    def kill(self, which: int) -> None:
        killed = self.at(which)
        del self.shelf.callbacks[killed.store.number]
        super().kill(which)


TestAlone = pytest.mark.req("TASK-14", "TASK-20")(Alone.TestCase)
TestAlone.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)
TestShared = pytest.mark.req("TASK-14")(Shared.TestCase)
TestShared.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
