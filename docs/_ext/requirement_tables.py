"""Rows of tables with the protocol's rules of some families, and whether the library keeps them.

``PING CANC`` are the rules of these families, ``except PING CANC`` those of all others. The rules are those of
``tests/requirements.toml``, which names the tests that show each one, or says why it is left out.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

MAP = Path(__file__).parents[2] / "tests" / "requirements.toml"


@cache
def read_rules() -> dict[str, dict[str, Any]]:
    """Return every rule by its id: ``rule``, and ``tests`` or ``left_out``."""
    return tomllib.loads(MAP.read_text(encoding="utf-8"))


def rule_rows(wanted: str) -> Iterator[list[str]]:
    """Yield a row for each rule of some families: its id, what it says, what the library does about it."""
    others, named = wanted.startswith("except "), wanted.split()
    for name, rule in read_rules().items():
        if (name.partition("-")[0] in named) is not others:
            left_out = rule.get("left_out")
            yield [f"`{name}`", _plain(rule["rule"]), f"not kept: {_plain(left_out)}" if left_out else "kept"]


def _plain(text: str) -> str:
    """Return a text with what Markdown would read as markup escaped."""
    return re.sub(r"([\\`*_<\[$])", r"\\\1", text)
