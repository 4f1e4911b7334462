"""The tables of the machines as drawings and as plain tables.

Both take the name of a table in ``mcpio.engine.table``, ``task_records`` or ``mcpio.auth.authorizer``, and the member
of its keys' first column to show: ``TABLE CLIENT``. A table whose keys have two columns is shown whole, as ``BOTH``.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any

from state_layouts import LAYOUTS
from state_svg import Transition, draw

from mcpio.auth import authorizer as authorization_table
from mcpio.engine import table
from mcpio.engine import tasks as task_records

MODULES = (table, task_records, authorization_table)

Table = Mapping[tuple[enum.Enum, ...], enum.Enum]


def rows(table_name: str, member: str) -> tuple[list[str], list[Transition]]:
    """Return the states of a table in their declared order, and the transitions of one member of its first column."""
    module = next(each for each in MODULES if hasattr(each, table_name))
    all_rows: Table = getattr(module, table_name)
    mine = {key[-2:]: goal for key, goal in all_rows.items() if (key[0].name if len(key) == 3 else "BOTH") == member}
    if not mine:
        raise ValueError(f"{table_name} has no rows for {member}")
    order: list[Any] = list(type(next(iter(mine.values()))))
    used = {state for (state, _), goal in mine.items()} | set(mine.values())
    transitions = [
        Transition(state.name, str(given.value), goal.name)
        for (state, given), goal in sorted(mine.items(), key=lambda row: order.index(row[0][0]))
    ]
    return [state.name for state in order if state in used], transitions


def diagram_rows(table_name: str, member: str) -> Iterator[list[str]]:
    """Yield the rows of the table below a drawing: an input, the states in which it leads to a goal, and the goal."""
    states, transitions = rows(table_name, member)
    sources: dict[tuple[str, str], list[str]] = {}
    for row in transitions:
        sources.setdefault((row.label, "it stays" if row.source == row.goal else f"`{row.goal}`"), []).append(
            row.source
        )
    for (label, goal), where in sources.items():
        missing = [f"`{state}`" for state in states if state not in where]
        is_wide = len(missing) < len(where) - 2
        listed = (
            "any" + (f" but {', '.join(missing)}" if missing else "")
            if is_wide
            else ", ".join(f"`{each}`" for each in where)
        )
        yield [label, listed, goal]


def drawing(table_name: str, member: str) -> str:
    """Return the drawing."""
    states, transitions = rows(table_name, member)
    title = f"{member.capitalize()}: {' → '.join(states)}"
    return draw(states, transitions, title, LAYOUTS.get((table_name, member)))
