"""Rows of tables with the protocol's rules of some families, and whether the library keeps them.

A family has the first part of its rules' ids for a name: ``PING`` has ``PING-01``. The rules are those of
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


def rule_rows(family: str) -> Iterator[list[str]]:
    """Yield a row for each rule of a family: its id, what it says, what the library does about it."""
    for name, rule in read_rules().items():
        if name.partition("-")[0] == family:
            left_out = rule.get("left_out")
            yield [f"`{name}`", _plain(rule["rule"]), f"not kept: {_plain(left_out)}" if left_out else "kept"]


def left_out_rows() -> Iterator[list[str]]:
    """Yield a row for each rule that is not kept: its id, what it says, and why."""
    for name, rule in read_rules().items():
        if "left_out" in rule:
            yield [f"`{name}`", _plain(rule["rule"]), _plain(rule["left_out"])]


def _plain(text: str) -> str:
    """Return a text with what Markdown would read as markup escaped, but for code."""
    return "`".join(
        part if number % 2 else re.sub(r"([\\*_<\[$])", r"\\\1", part) for number, part in enumerate(text.split("`"))
    )
