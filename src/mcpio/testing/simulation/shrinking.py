"""Makes the plan of a failing world smaller, while the same invariant is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs

from mcpio.testing.simulation.plan import Act, Party, Plan


def shrunk(plan: Plan, fails: Callable[[Plan], bool], most: int = 400) -> Plan:
    """Return a smaller plan for which ``fails`` holds too, after ``most`` tries."""
    tries = 0
    while True:
        for smaller in _smaller(plan):
            tries += 1
            if tries > most:
                return plan
            # What follows from the seed changes with every part that is left out, so that another seed may fail.
            candidate = next((each for each in _reseeded(smaller) if fails(each)), None)
            if candidate is not None:
                plan = candidate
                break
        else:
            return plan


def _reseeded(plan: Plan) -> Iterator[Plan]:
    yield plan
    for seed in range(3):
        yield attrs.evolve(plan, seed=seed)


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Yield plans with less in them, those with much less first."""
    for parties in _without(plan.parties):
        if parties:
            yield attrs.evolve(plan, parties=parties)
    for mishaps in _without(plan.mishaps):
        yield attrs.evolve(plan, mishaps=mishaps)
    for index, party in enumerate(plan.parties):
        for lanes in _smaller_lanes(party):
            parties = (*plan.parties[:index], attrs.evolve(party, lanes=lanes), *plan.parties[index + 1 :])
            yield attrs.evolve(plan, parties=parties)
    for field in attrs.fields(Plan)[3:]:
        if field.name != "level" and getattr(plan, field.name) != field.default:
            plain: Any = {field.name: field.default}
            yield attrs.evolve(plan, **plain)
    for index, party in enumerate(plan.parties):
        for number, lane in enumerate(party.lanes):
            for at, act in enumerate(lane):
                for plainer in _plainer(act):
                    plainer_lane = (*lane[:at], plainer, *lane[at + 1 :])
                    lanes = (*party.lanes[:number], plainer_lane, *party.lanes[number + 1 :])
                    parties = (*plan.parties[:index], attrs.evolve(party, lanes=lanes), *plan.parties[index + 1 :])
                    yield attrs.evolve(plan, parties=parties)


def _smaller_lanes(party: Party) -> Iterator[tuple[tuple[Act, ...], ...]]:
    yield from _without(party.lanes)
    for index, lane in enumerate(party.lanes):
        for rest in _without(lane):
            yield (*party.lanes[:index], rest, *party.lanes[index + 1 :])


def _without(values: tuple[object, ...]) -> Iterator[tuple]:  # type: ignore[type-arg]  # of the same kind
    """Yield a tuple without a half, a quarter and so on, to single items."""
    size = len(values)
    while size > 0:
        size //= 2
        step = max(size, 1)
        for start in range(0, len(values), step):
            yield (*values[:start], *values[start + step :])
        if size <= 1:
            return


def _plainer(act: Act) -> Iterator[Act]:
    for field in attrs.fields(Act)[1:]:
        if getattr(act, field.name) != field.default:
            plain: Any = {field.name: field.default}
            yield attrs.evolve(act, **plain)
