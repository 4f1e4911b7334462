"""The shutdown of a child process is compared with a model of the order that the specification asks for.

The model knows facts and no states: which steps were taken and when, and who of the child's group is left.
"""

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

from mcpio.engine import shutdown
from mcpio.engine.shutdown import Shutdown, ShutdownPhase

STEPS: Final = ("close-stdin", "terminate", "kill")
GRACES: Final = (1.0, 2.0, 4.0)
PROBES: Final = 0.02
"""Seconds between two looks at a group whose leader is gone."""

Move = tuple[str, Callable[["Pair"], None]]
Plant = Callable[[pytest.MonkeyPatch], None]


@attrs.define
class Model:
    """The outcome of closing the input, of signals, and of exits."""

    now: float = 0.0
    steps: int = 0
    """How many of ``STEPS`` were taken."""
    stepped_at: float = 0.0
    is_leader_gone: bool = False
    is_group_gone: bool = False
    is_given_up: bool = False
    probed_at: float = 0.0
    actions: list[str] = attrs.field(factory=list)

    @property
    def is_over(self) -> bool:
        return self.is_group_gone or self.is_given_up

    @property
    def phase(self) -> str:
        if self.is_over:
            return "ended" if self.is_group_gone else "abandoned"
        return ("running", "closing", "terminating", "killing")[self.steps]

    @property
    def deadline(self) -> float | None:
        if self.is_over or not self.steps:
            return None
        due = self.stepped_at + GRACES[self.steps - 1]
        return min(due, self.probed_at + PROBES) if self.is_leader_gone else due

    def step(self) -> None:
        self.actions.append(STEPS[self.steps])
        self.steps, self.stepped_at = self.steps + 1, self.now

    def close(self) -> None:
        if not self.steps and not self.is_over:
            self.step()

    def exits(self, *, leaves_others: bool) -> None:
        if self.is_over or self.is_leader_gone:
            return
        self.is_leader_gone, self.probed_at = True, self.now
        if leaves_others:
            self.close()
        else:
            self.others_end()

    def others_end(self) -> None:
        if self.is_leader_gone and not self.is_over:
            self.is_group_gone, self.actions = True, []  # a signal might reach another process of that number

    def pass_time(self) -> None:
        if self.is_over or not self.steps:
            return
        if self.now >= self.stepped_at + GRACES[self.steps - 1]:
            if self.steps < len(STEPS):
                self.step()
            else:
                self.is_given_up, self.actions = True, []
        elif self.is_leader_gone and self.now >= self.probed_at + PROBES:
            self.probed_at = self.now
            self.actions.append("probe")


class Pair:
    """A machine and its model, and the pairs of state and input that all of them have visited."""

    def __init__(self) -> None:
        self.machine = Shutdown(close_grace=GRACES[0], terminate_grace=GRACES[1], kill_grace=GRACES[2])
        self.model = Model()

    def close(self) -> None:
        self.machine.close(self.model.now)
        self.model.close()

    def exits(self, *, leaves_others: bool) -> None:
        self.machine.child_exited(self.model.now, group_left=leaves_others)
        self.model.exits(leaves_others=leaves_others)

    def others_end(self) -> None:
        self.machine.group_ended()
        self.model.others_end()

    def pass_time(self, seconds: float) -> None:
        self.model.now += seconds
        self.machine.handle_timeout(self.model.now)
        self.model.pass_time()

    def pass_deadline(self) -> None:
        due = self.model.deadline
        self.pass_time(0.0 if due is None else max(0.0, due - self.model.now))

    def take(self) -> None:
        actions = [action.value for action in iter(self.machine.next_action, None)]
        assert actions == self.model.actions
        self.model.actions = []

    def step(self, name: str, act: Callable[[Pair], None], *, takes: bool = True) -> None:
        """Take a step on both sides and compare them."""
        VISITED.add((self.machine.phase, name))
        act(self)
        if takes:
            self.take()
        self.check()

    def check(self) -> None:
        assert self.machine.phase.value == self.model.phase
        assert self.machine.finished is self.model.is_over
        assert self.machine.next_deadline() == self.model.deadline

    def moves(self) -> Iterator[Move]:
        for name, act in INPUTS.items():
            yield name, partial(Pair.step, name=name, act=act)

    def key(self) -> Any:
        return self.machine.phase, self.model.is_leader_gone, self.model.now == self.model.stepped_at


VISITED: Final[set[tuple[ShutdownPhase, str]]] = set()
INPUTS: Final[dict[str, Callable[[Pair], None]]] = {
    "close": Pair.close,
    "exit alone": partial(Pair.exits, leaves_others=False),
    "exit and leave others": partial(Pair.exits, leaves_others=True),
    "end of the group": Pair.others_end,
    "pass the deadline": Pair.pass_deadline,
    "pass the longest grace": partial(Pair.pass_time, seconds=4.0),
    "pass little time": partial(Pair.pass_time, seconds=0.01),
}


def play(moves: tuple[Move, ...]) -> Pair:
    pair = Pair()
    for _, move in moves:
        move(pair)
    return pair


@pytest.mark.req("STDIO-08")
def test_every_input_in_every_state_does_what_the_model_says(record_property: Callable[[str, object], None]) -> None:
    VISITED.clear()
    assert search(play, (), depth=9) == search(play, (), depth=10)
    assert {(phase, name) for phase in ShutdownPhase for name in INPUTS} == VISITED
    record_property("pairs", len(VISITED))


class Sequence(RuleBasedStateMachine):
    """The inputs in any order and at any time, where actions may be taken late."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair()

    @rule(name=st.sampled_from(sorted(INPUTS)), takes=st.booleans())
    def act(self, name: str, takes: bool) -> None:
        self.pair.step(name, INPUTS[name], takes=takes)

    @rule(seconds=st.floats(0.0, 5.0))
    def pass_time(self, seconds: float) -> None:
        self.pair.step("drawn", partial(Pair.pass_time, seconds=seconds))


TestSequence = Sequence.TestCase
TestSequence.settings = settings(max_examples=examples(60), stateful_step_count=20, deadline=None)


def gives_up_at_once(self: Shutdown, now: float) -> None:
    self._finish(ShutdownPhase.ABANDONED)


def keeps_actions(self: Shutdown, phase: ShutdownPhase) -> None:
    self._phase = phase
    self._deadline = self._probe_at = None


PLANTS: Final[dict[str, Plant]] = {
    "a child is not signalled": lambda patch: patch.setattr(Shutdown, "_step", gives_up_at_once),
    "the group is asked for too rarely": lambda patch: patch.setattr(shutdown, "PROBE_INTERVAL", 0.04),
    "the group of a running child counts as ended": lambda patch: patch.setattr(
        Shutdown, "group_ended", lambda self: self._finish(ShutdownPhase.ENDED)
    ),
    "an exit ends the sequence for all": lambda patch: patch.setattr(
        Shutdown, "child_exited", lambda self, now, group_left: self._finish(ShutdownPhase.ENDED)
    ),
    "a second close begins again": lambda patch: patch.setattr(
        Shutdown, "close", lambda self, now: self._enter(ShutdownPhase.CLOSING, now)
    ),
    "a sequence that has ended is abandoned": lambda patch: patch.setattr(
        Shutdown, "finished", property(lambda self: self._phase is ShutdownPhase.ABANDONED)
    ),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_model_finds_planted_fault(monkeypatch: pytest.MonkeyPatch, plant: str) -> None:
    PLANTS[plant](monkeypatch)
    with pytest.raises(AssertionError):
        search(play, (), depth=5)


def test_signal_that_was_not_sent_is_forgotten_with_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> None:
        pair = Pair()
        for name in ("close", "pass the deadline", "exit alone"):
            pair.step(name, INPUTS[name], takes=False)
        pair.take()

    run()
    monkeypatch.setattr(Shutdown, "_finish", keeps_actions)
    with pytest.raises(AssertionError):
        run()
