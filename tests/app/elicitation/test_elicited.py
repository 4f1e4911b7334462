from __future__ import annotations

import pytest

from mcpio.app.asking import Accepted, Cancelled, Declined, ElicitAnswer, answer_of
from mcpio.types import ElicitResult


def handled(answer: ElicitAnswer[int]) -> str:
    match answer:
        case Accepted(value):
            return f"{value} of them"
        case Declined():
            return "none"
        case Cancelled():
            return "ask again later"


@pytest.mark.req("ELIC-11")
@pytest.mark.parametrize(
    ("result", "said", "action"),
    [
        (ElicitResult("accept", {"n": 5}), "5 of them", "accept"),
        (ElicitResult("decline"), "none", "decline"),
        (ElicitResult("cancel"), "ask again later", "cancel"),
    ],
)
def test_each_action_has_a_class(result: ElicitResult, said: str, action: str) -> None:
    answer = answer_of(result, lambda content: int(content["n"]))
    assert (handled(answer), answer.action) == (said, action)
