"""The directive ``requirements``: the protocol's rules of some families, and whether the library keeps them.

    ```{requirements} PING CANC
    ```

lists those of these families, and ``except PING CANC`` those of all others.
The rules are those of ``tests/requirements.toml``, which names the tests that show each one, or says why it is left
out.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from tables import Cell, plain_table

MAP = Path(__file__).parents[2] / "tests" / "requirements.toml"


def read_rules() -> dict[str, dict[str, Any]]:
    """Return every rule by its id: ``rule``, and ``tests`` or ``left_out``."""
    return tomllib.loads(MAP.read_text(encoding="utf-8"))


def rule_rows(wanted: str) -> Iterator[list[Cell]]:
    """Yield a row for each rule of some families: its id, what it says, what the library does about it."""
    others, named = wanted.startswith("except "), wanted.split()
    for name, rule in read_rules().items():
        if (name.partition("-")[0] in named) is not others:
            left_out = rule.get("left_out")
            yield [[nodes.literal(text=name)], rule["rule"], f"not kept: {left_out}" if left_out else "kept"]


class Requirements(SphinxDirective):
    """Lists the rules of some families."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        self.env.note_dependency(str(MAP))
        rows = list(rule_rows(self.arguments[0]))
        if not rows:
            raise self.error(f"there are no rules {self.arguments[0]}")
        return [plain_table(["Rule", "What it says", "Here"], rows)]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("requirements", Requirements)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
