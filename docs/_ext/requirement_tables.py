"""The directive ``requirements``: the protocol's rules of one family, and whether the library keeps them.

    ```{requirements} PING
    ```

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


def families() -> list[str]:
    """Return the families of rules, in the order of the map."""
    return list(dict.fromkeys(rule.partition("-")[0] for rule in read_rules()))


def rule_rows(family: str) -> Iterator[list[Cell]]:
    """Yield a row for each rule of a family: its id, what it says, what the library does about it."""
    for name, rule in read_rules().items():
        if name.partition("-")[0] == family:
            left_out = rule.get("left_out")
            yield [[nodes.literal(text=name)], rule["rule"], f"not kept: {left_out}" if left_out else "kept"]


class Requirements(SphinxDirective):
    """Lists the rules of one family."""

    required_arguments = 1

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
