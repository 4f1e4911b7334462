"""A task that runs here is compared with a model of its life, for every input in every state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import attrs
import pytest
from examples import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from searching import search
from task_keeper import BAD, GOOD, WRONG, Keeper

from mcpio.engine import tasks
from mcpio.engine.table import Direction
from mcpio.engine.tasks import TASK_TABLE, TaskInput, TaskOutcome, TaskState, load_record
from mcpio.errors import LocalProtocolError, RequestError

Move = tuple[str, Callable[["Pair"], None]]
Row = tuple[Direction, TaskState, TaskInput]


@attrs.define
class Model:
    """A task: how many questions are open, and how it ended, which nothing changes any more."""

    questions: int = 0
    end: str = ""

    @property
    def status(self) -> str:
        return self.end or ("input_required" if self.questions else "working")

    def ends(self, how: str) -> bool:
        """Return whether the task was running."""
        if self.end:
            return False
        self.end = how
        return True


class Pair:
    """A machine with one task, and its model."""

    def __init__(self) -> None:
        self.keeper = Keeper()
        self.id = self.keeper.create("ada")
        self.model = Model()
        self.ended: Any = None

    def ask(self) -> None:
        if self.model.end:
            with pytest.raises(LocalProtocolError):
                self.keeper.machine.ask(self.id, self.keeper.now)
            return
        self.keeper.machine.ask(self.id, self.keeper.now)
        self.model.questions += 1

    def answered(self) -> None:
        if not self.model.end and not self.model.questions:
            with pytest.raises(LocalProtocolError):
                self.keeper.machine.answered(self.id, self.keeper.now)
            return
        self.keeper.machine.answered(self.id, self.keeper.now)
        self.model.questions = max(0, self.model.questions - 1)

    def finish(self, outcome: TaskOutcome) -> None:
        is_good = self.model.ends("completed" if outcome is GOOD else "failed")
        assert self.keeper.machine.finish(self.id, outcome, self.keeper.now) is is_good

    def lose(self) -> None:
        assert self.keeper.machine.lose(self.id, "gone", self.keeper.now) is self.model.ends("failed")

    def cancel(self) -> None:
        """A task that is over is in the store only, whose record refuses."""
        keeper = self.keeper
        if self.model.ends("cancelled"):
            keeper.machine.cancel("ada", self.id, keeper.now, cookie="c")
            return
        stored = keeper.disk.fetch(self.id)
        assert stored is not None
        with pytest.raises(RequestError, match="Cannot cancel"):
            load_record(self.id, stored.record).cancel(keeper.now)

    def say(self) -> None:
        assert self.keeper.machine.say(self.id, "words", self.keeper.now) is (not self.model.end)

    def step(self, name: str, act: Callable[[Pair], None]) -> None:
        VISITED.add((TaskState(self.keeper.status(self.id, "ada")), name))
        act(self)
        self.keeper.settle()
        self.check()

    def check(self) -> None:
        keeper = self.keeper
        assert keeper.status(self.id, "ada") == self.model.status
        assert (self.id in keeper.machine) is (not self.model.end)
        outcome = keeper.outcome(self.id)
        assert (outcome is not None) is bool(self.model.end)
        assert self.ended in (None, outcome)
        self.ended = outcome

    def moves(self) -> Iterator[Move]:
        for name, act in INPUTS.items():
            yield name, partial(Pair.step, name=name, act=act)

    def key(self) -> Any:
        return self.model.status, min(self.model.questions, 3)


VISITED: Final[set[tuple[TaskState, str]]] = set()
INPUTS: Final[dict[str, Callable[[Pair], None]]] = {
    "ask a question": Pair.ask,
    "have an answer": Pair.answered,
    "finish": partial(Pair.finish, outcome=GOOD),
    "finish with a result that is an error": partial(Pair.finish, outcome=BAD),
    "finish with an error": partial(Pair.finish, outcome=WRONG),
    "lose the work": Pair.lose,
    "cancel": Pair.cancel,
    "report": Pair.say,
}


def play(moves: tuple[Move, ...]) -> Pair:
    pair = Pair()
    for _, move in moves:
        move(pair)
    return pair


@pytest.mark.req("TASK-14", "TASK-20", "TASK-26")
def test_every_input_in_every_state_does_what_the_model_says(record_property: Callable[[str, object], None]) -> None:
    VISITED.clear()
    search(play, (), depth=4)
    assert {(state, name) for state in TaskState for name in INPUTS} == VISITED
    record_property("pairs", len(VISITED))


class Life(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair()

    @rule(name=st.sampled_from(["ask a question", "have an answer", *INPUTS]))
    def act(self, name: str) -> None:
        self.pair.step(name, INPUTS[name])


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=examples(50), stateful_step_count=15, deadline=None)

INCOMING: Final = Direction.INCOMING
PLANTS: Final[dict[str, tuple[Row, TaskState]]] = {
    "a question is not shown": ((INCOMING, TaskState.WORKING, TaskInput.SEND_QUESTION), TaskState.WORKING),
    "an answered question is still shown": (
        (INCOMING, TaskState.INPUT_REQUIRED, TaskInput.RECV_ANSWER),
        TaskState.INPUT_REQUIRED,
    ),
    "a failure counts as success": ((INCOMING, TaskState.WORKING, TaskInput.SEND_ERROR), TaskState.COMPLETED),
    "a result counts as failure": ((INCOMING, TaskState.INPUT_REQUIRED, TaskInput.SEND_RESULT), TaskState.FAILED),
    "a cancelled task has failed": ((INCOMING, TaskState.WORKING, TaskInput.RECV_CANCEL), TaskState.FAILED),
    "lost work is cancelled": ((INCOMING, TaskState.INPUT_REQUIRED, TaskInput.RECV_LOSS), TaskState.CANCELLED),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_model_finds_planted_fault(monkeypatch: pytest.MonkeyPatch, plant: str) -> None:
    row, state = PLANTS[plant]
    monkeypatch.setattr(tasks, "TASK_TABLE", {**TASK_TABLE, row: state})
    with pytest.raises(AssertionError):
        search(play, (), depth=4)
