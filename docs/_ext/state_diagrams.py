"""The directive ``state-diagram``: one of the engine's tables as a drawing and as a plain table.

    ```{state-diagram} TABLE CLIENT
    ```

The first word names a table of ``mcpio.engine.table`` or ``task_table``, the second the member of its keys' first
column to show.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from state_svg import Transition, draw
from tables import Cell, plain_table

from mcpio.engine import table, task_table

MODULES = (table, task_table)

Table = Mapping[tuple[enum.Enum, enum.Enum, enum.Enum], enum.Enum]


def rows(table_name: str, member: str) -> tuple[list[str], list[Transition]]:
    """Return the states of a table in their declared order, and the transitions of one member of its first column."""
    module = next(each for each in MODULES if hasattr(each, table_name))
    all_rows: Table = getattr(module, table_name)
    mine = {(state, given): goal for (axis, state, given), goal in all_rows.items() if axis.name == member}
    if not mine:
        raise ValueError(f"{table_name} has no rows for {member}")
    order: list[Any] = list(type(next(iter(mine.values()))))
    used = {state for (state, _), goal in mine.items()} | set(mine.values())
    transitions = [
        Transition(state.name, str(given.value), goal.name)
        for (state, given), goal in sorted(mine.items(), key=lambda row: order.index(row[0][0]))
    ]
    return [state.name for state in order if state in used], transitions


class StateDiagram(SphinxDirective):
    """Draws a table, and lists it below for those who cannot see the drawing."""

    required_arguments = 2
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """Return the drawing and the table."""
        for module in MODULES:
            self.env.note_dependency(str(module.__file__))
        states, transitions = rows(*self.arguments)
        title = f"{self.arguments[1].capitalize()}: {' → '.join(states)}"
        drawing = nodes.raw("", draw(states, transitions, title), format="html")
        listed: list[list[Cell]] = [
            [[nodes.literal(text=row.source)], row.label, [nodes.literal(text=row.goal)]] for row in transitions
        ]
        return [drawing, plain_table(["In", "when this happens", "the next is"], listed)]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("state-diagram", StateDiagram)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
