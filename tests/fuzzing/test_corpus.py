"""Each input of the corpus is taken as its target promises, and costs work in proportion to its length."""

from __future__ import annotations

from functools import partial
from typing import Any

import corpus
import pytest
from targets import TARGETS
from work import steps_of

TIMES = 4, 16


def test_each_target_has_its_corpus() -> None:
    assert {path.stem for path in corpus.FOLDER.iterdir()} == set(TARGETS)
    assert all(corpus.read(name)[1] for name in TARGETS)


def test_lines_of_tests_in_a_clone_of_that_name_are_not_the_librarys() -> None:
    names: dict[str, Any] = {}
    exec(compile("def target(data):\n    return data", "/home/me/mcpio/tests/target.py", "exec"), names)
    assert corpus._steps_between_lines(names["target"], b"") == set()


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_that_are_kept_break_nothing(name: str) -> None:
    for data in corpus.read_all(name):
        TARGETS[name](data)


@pytest.mark.long
@pytest.mark.parametrize("name", TARGETS)
def test_repeated_input_costs_work_in_proportion_to_its_length(name: str) -> None:
    """Quadratic work would take sixteen times as much for four times as many."""
    longest = sorted(corpus.read_all(name), key=len)[-4:]
    TARGETS[name](b"")
    for data in longest:
        few, many = (steps_of(partial(TARGETS[name], data[:1] + data[1:] * times)) for times in TIMES)
        assert many <= 6 * few + 2000, (few, many, data)
