"""The task machine, whatever happens in whatever order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from examples import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from task_keeper import BAD, GOOD, WRONG, Keeper

from mcpio.engine.tasks import (
    TASK_TABLE,
    Owner,
    StoreDelete,
    TaskChanged,
    TaskOutcome,
    TaskReplied,
    TaskState,
)
from mcpio.errors import LocalProtocolError, RequestError


class Life(RuleBasedStateMachine):
    """One terminal status for each task, and one answer for each cookie, whatever happens in whatever order."""

    def __init__(self) -> None:
        super().__init__()
        limits = {"running_per_owner": 3, "tasks": 6, "result_bytes": 90}
        self.keeper = Keeper(limits=limits)
        self.machine = self.keeper.machine
        self.ids: list[str] = []
        self.statuses: dict[str, list[str]] = {}
        self.cookies: dict[int, int] = {}
        self.effects: list[Any] = []

    owners = st.sampled_from(["ada", None])
    picks = st.integers(0, 5)

    def _cookie(self) -> int:
        cookie = len(self.cookies)
        self.cookies[cookie] = 0
        return cookie

    def _try(self, verb: str, *arguments: Any, **named: Any) -> Any:
        """Call; a caller who is refused at once waits for nothing."""
        try:
            return getattr(self.machine, verb)(*arguments, **named)
        except (RequestError, LocalProtocolError):
            self.cookies.pop(named.get("cookie", -1), None)
            return None

    @rule(owner=owners, ttl=st.sampled_from([None, 1000, 3000]), resumable=st.booleans())
    def create(self, owner: Owner, ttl: Any, resumable: bool) -> None:
        request = {"x": 1} if resumable else None
        id = self._try("create", owner, "dig", now=self.keeper.now, cookie=self._cookie(), ttl=ttl, request=request)
        if id is not None:
            self.ids.append(id)

    @precondition(lambda self: self.ids)
    @rule(pick=picks, owner=owners, verb=st.sampled_from(["result", "cancel"]))
    def ask_for(self, pick: int, owner: Owner, verb: str) -> None:
        more = {"now": self.keeper.now} if verb == "cancel" else {}
        self._try(verb, owner, self.ids[pick % len(self.ids)], cookie=self._cookie(), **more)

    @precondition(lambda self: self.ids)
    @rule(pick=picks, verb=st.sampled_from(["ask", "answered"]))
    def question(self, pick: int, verb: str) -> None:
        self._try(verb, self.ids[pick % len(self.ids)], now=self.keeper.now)

    @precondition(lambda self: self.ids)
    @rule(pick=picks, what=st.sampled_from([GOOD, BAD, WRONG, TaskOutcome({"x": "y" * 99}), "lose", "orphan", "say"]))
    def work(self, pick: int, what: Any) -> None:
        id = self.ids[pick % len(self.ids)]
        if isinstance(what, str):
            self._try(what, id, "words", now=self.keeper.now)
        else:
            self._try("finish", id, what, now=self.keeper.now)

    @rule(seconds=st.sampled_from([0.5, 1, 5]))
    def wait(self, seconds: float) -> None:
        self.keeper.now += seconds
        self.machine.handle_timeout(self.keeper.now)

    @rule()
    def pull(self) -> None:
        effect = self.machine.next_effect()
        if effect is not None:
            self.effects.append(effect)

    @rule(fails=st.booleans())
    def store(self, fails: bool) -> None:
        if self.effects:
            effect = self.effects.pop(0)
            # What cannot be deleted stays until the next start.
            fails = fails and not isinstance(effect, StoreDelete)
            value = OSError("no disk") if fails else self.keeper.disk.answer(effect)
            self.machine.store_done(effect.token, value, self.keeper.now)

    @invariant()
    def each_cookie_is_answered_at_most_once(self) -> None:
        self.keeper.drain()
        events, self.keeper.events = self.keeper.events, []
        for event in events:
            if isinstance(event, TaskReplied):
                self.cookies[event.cookie] += 1
            elif isinstance(event, TaskChanged) and event.change == "status":
                self.statuses.setdefault(event.task.task_id, ["working"]).append(event.task.status)
        assert all(count <= 1 for count in self.cookies.values())

    @invariant()
    def no_status_follows_a_final_one(self) -> None:
        moves = {(start.value, goal.value) for (_, start, _), goal in TASK_TABLE.items()}
        reachable = moves | {(state.value, state.value) for state in (TaskState.WORKING, TaskState.INPUT_REQUIRED)}
        for statuses in self.statuses.values():
            assert {*pairwise(statuses)} <= reachable

    def teardown(self) -> None:
        """In the end every task is over, or its time is, and everyone who waited has one answer."""
        while self.effects:
            self.store(fails=False)
        self.keeper.advance(10**6)
        self.each_cookie_is_answered_at_most_once()
        self.no_status_follows_a_final_one()
        assert set(self.cookies.values()) <= {1}
        assert (self.machine.tasks_of("ada"), self.machine.tasks_of(None), self.keeper.disk.records) == ([], [], {})
        assert (self.machine.held, self.machine._running.total(), self.machine._asked) == (0, 0, {})


TestLife = pytest.mark.req("TASK-14", "TASK-20")(Life.TestCase)
TestLife.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
