"""The map from the protocol's rules to the tests that show them: reading it, and writing it anew from the markers.

Run as a program it brings ``tests/requirements.toml`` up to date with the markers in the tests.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from tree import ROOT, project_files

from mcpio.cli.rules.table import TABLE

MAP = ROOT / "tests" / "requirements.toml"

FAMILIES = {
    "RPC": 22,
    "BATCH": 7,
    "META": 7,
    "LIFE": 23,
    "CAP": 7,
    "TIME": 4,
    "PING": 5,
    "CANC": 10,
    "PROG": 9,
    "PAGE": 6,
    "STDIO": 13,
    "TOOL": 24,
    "CONT": 7,
    "RES": 12,
    "PROM": 9,
    "COMP": 7,
    "LOG": 9,
    "SAMP": 18,
    "ROOT": 6,
    "ELIC": 24,
    "TASK": 38,
    "ICON": 5,
    "SCHEMA": 9,
    "HTTP": 39,
    "SESS": 10,
    "RESUME": 8,
    "FALL": 7,
    "XPORT": 5,
    "AUTH": 58,
    "SEC": 12,
    "ENV": 16,
    "VER": 8,
    "PAT": 8,
    "MRTR": 19,
    "SUB": 13,
    "CACHE": 10,
    "SSTD": 6,
    "SHTTP": 9,
    "HDR": 12,
    "XERR": 7,
    "EXT": 6,
    "SKILL": 27,
    "APP": 15,
    "XTASK": 18,
    "GONE": 10,
    "ERA": 16,
}
"""How many rules each family has; they are numbered from 1."""

RAW_MESSAGES = "tests/cli/rules/test_table.py::test_own_servers_keep_every_rule_of_the_table"
"""The test that tries the table of raw messages, whose rows name their rules."""

UNUSED = {f"SKILL-{number}" for number in range(12, 20)} | {f"APP-0{number}" for number in range(4, 10)}
"""Numbers without a rule."""


def all_ids() -> list[str]:
    """Return every id that the map must have, in the order of the families."""
    every = [f"{family}-{number:02}" for family, count in FAMILIES.items() for number in range(1, count + 1)]
    return [id for id in every if id not in UNUSED]


def read_map() -> dict[str, dict[str, Any]]:
    """Return the map: id -> its ``rule``, and ``tests`` or ``left_out``."""
    return tomllib.loads(MAP.read_text(encoding="utf-8"))


def marked_tests() -> dict[str, list[str]]:
    """Return, for each id in a marker, a conversation's ``req:`` line or the table of raw messages, its tests.

    They have pytest's names.
    """
    found = {requirement: {RAW_MESSAGES} for row in TABLE for requirement in row.rules.split()}
    for path in project_files():
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8") if name.startswith("tests/") else ""
        if name.startswith("tests/conversations/"):
            for line in re.findall(r"^req: *(.+)$", text, re.MULTILINE):
                for requirement in line.split():
                    found.setdefault(requirement, set()).add(name)
        elif path.name.startswith("test_") and path.suffix == ".py":
            for test, requirement in markers(text):
                found.setdefault(requirement, set()).add(f"{name}::{test}")
    return {requirement: sorted(tests) for requirement, tests in found.items()}


def markers(source: str) -> Iterator[tuple[str, str]]:
    """Yield (test, id) for every ``pytest.mark.req`` on or inside a test function or class, ("", id) elsewhere."""
    yield from _markers(ast.parse(source), "")


def _markers(node: ast.AST, test: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.req":
        yield from ((test, str(ast.literal_eval(argument))) for argument in node.args)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and child.name.startswith("test_"):
            yield from _markers(child, f"{test}{child.name}")
        elif isinstance(child, ast.ClassDef) and child.name.startswith("Test"):
            yield from _markers(child, f"{child.name}::")
        elif isinstance(child, ast.Assign) and (name := ast.unparse(child.targets[0])).startswith("Test"):
            yield from _markers(child, name)
        else:
            yield from _markers(child, test)


def rewritten(text: str, marked: Mapping[str, list[str]]) -> str:
    """Return the map's text with every ``tests`` list as the markers have it. The rest stays as it is."""

    def section(match: re.Match[str]) -> str:
        tests = marked.get(match["id"], [])
        listed = "".join(f'\n  "{test}",' for test in tests)
        return f"{match['head']}tests = [{listed}{chr(10) if tests else ''}]\n"

    pattern = r"(?P<head>^\[(?P<id>[A-Z]+-\d+)\]\nrule = [^\n]*\n)tests = \[[^\]]*\]\n"
    return re.sub(pattern, section, text, flags=re.MULTILINE)


if __name__ == "__main__":
    MAP.write_text(rewritten(MAP.read_text(encoding="utf-8"), marked_tests()), encoding="utf-8")
