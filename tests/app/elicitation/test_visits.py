from __future__ import annotations

import pytest

from mcpio.app.asking import MOST_URL_ELICITATIONS, UrlElicitations
from mcpio.errors import ConnectionLost
from mcpio.testing import ManualRuntime


def waiting(runtime: ManualRuntime, visits: UrlElicitations, id: str) -> list[str]:
    seen: list[str] = []

    async def wait() -> None:
        try:
            await visits.wait_for(id, runtime.one_shot())
        except ConnectionLost as error:
            seen.append(str(error))
        else:
            seen.append("done")

    runtime.spawn(wait())
    runtime.run()
    return seen


@pytest.mark.req("ELIC-16")
def test_elicitation_completes_once() -> None:
    visits = UrlElicitations()
    assert not visits.finish("a")
    visits.begin("a")
    assert "a" in visits
    assert not visits.is_done("a")
    assert visits.finish("a")
    assert not visits.finish("a")
    assert not visits.begin("a")
    assert visits.is_done("a")


def test_withdrawn_visit_is_unknown() -> None:
    visits = UrlElicitations()
    assert visits.begin("a")
    visits.withdraw("a")
    visits.withdraw("never begun")
    assert "a" not in visits


def test_completion_wakes_all_waiters() -> None:
    runtime, visits = ManualRuntime(), UrlElicitations()
    visits.begin("a")
    visits.begin("b")
    first, second, other = (waiting(runtime, visits, id) for id in ("a", "a", "b"))
    visits.finish("a")
    runtime.run()
    assert (first, second, other) == (["done"], ["done"], [])
    visits.fail_waiters(ConnectionLost("gone"))
    runtime.run()
    assert other == ["gone"]


def test_oldest_elicitations_without_waiters_are_forgotten() -> None:
    runtime, visits = ManualRuntime(), UrlElicitations()
    visits.begin("first")
    seen = waiting(runtime, visits, "first")
    for number in range(MOST_URL_ELICITATIONS):
        visits.begin(str(number))
    assert "first" in visits
    assert "0" not in visits
    assert "1" in visits
    visits.finish("first")
    runtime.run()
    assert seen == ["done"]


def test_elicitations_with_waiters_exceed_the_bound() -> None:
    runtime, visits = ManualRuntime(), UrlElicitations()
    for number in range(MOST_URL_ELICITATIONS):
        visits.begin(str(number))
        waiting(runtime, visits, str(number))
    visits.begin("more")
    assert "0" in visits
    visits.fail_waiters(ConnectionLost("gone"))
    runtime.run()


def test_known_elicitations_can_be_saved() -> None:
    visits = UrlElicitations()
    visits.begin("open")
    visits.begin("done")
    visits.finish("done")
    assert visits.save() == {"open": False, "done": True}
