"""Size is a symptom: a long file, a long function or deep nesting usually hides a part that is missing."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from tree import ROOT, python_files

FILE_LINES = 500
FUNCTION_LINES = 50
"""Without the docstring: what is said to a caller makes a function no harder to follow."""
NESTING = 4

EXCEPTIONS: dict[str, str] = {}
"""``path`` or ``path::function`` -> why it is better whole. An entry that is no longer needed fails the test."""

_BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def oversized(source: str) -> Iterator[tuple[str, str]]:
    """Yield (function, or "" for the file; what is too large about it)."""
    if (lines := len(source.splitlines())) > FILE_LINES:
        yield "", f"{lines} lines"
    for name, function in _functions(ast.parse(source), ""):
        if (lines := _length(function)) > FUNCTION_LINES:
            yield name, f"{lines} lines"
        if (depth := _depth(function)) > NESTING:
            yield name, f"{depth} levels deep"


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(node):
        name = f"{prefix}{child.name}" if isinstance(child, (*_FUNCTIONS, ast.ClassDef)) else prefix
        if isinstance(child, _FUNCTIONS):
            yield name, child
        yield from _functions(child, f"{name}." if name != prefix else prefix)


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    lines = (function.end_lineno or 0) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        first = function.body[0]
        lines -= (first.end_lineno or 0) - first.lineno + 1
    return lines


def _depth(node: ast.AST) -> int:
    """Return how deep blocks stand in blocks. An ``elif`` stands beside its ``if``, a ``case`` belongs to its match."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        is_elif = isinstance(child, ast.If) and isinstance(node, ast.If) and child.col_offset == node.col_offset
        is_level = isinstance(child, (*_BLOCKS, *_FUNCTIONS)) and not is_elif
        deepest = max(deepest, _depth(child) + is_level)
    return deepest


def _all_oversized() -> dict[str, str]:
    found: dict[str, str] = {}
    for path in python_files():
        for name, what in oversized(path.read_text(encoding="utf-8")):
            found[f"{path.relative_to(ROOT).as_posix()}{'::' if name else ''}{name}"] = what
    return found


def test_nothing_is_oversized_without_a_reason() -> None:
    found = _all_oversized()
    assert {place: what for place, what in found.items() if place not in EXCEPTIONS} == {}
    assert {place for place in EXCEPTIONS if place not in found} == set()
    assert all(EXCEPTIONS.values())


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("x = 1\n" * 501, [("", "501 lines")]),
        ("def f():\n" + "    x = 1\n" * 50, [("f", "51 lines")]),
        ('def f():\n    """Say.\n    """\n' + "    x = 1\n" * 49, []),
        ("class A:\n    def f(self):\n" + "        x = 1\n" * 50, [("A.f", "51 lines")]),
        ("def f():\n if a:\n  for b in c:\n   while d:\n    with e:\n     if g: pass", [("f", "5 levels deep")]),
        ("def f():\n if a: pass\n elif b: pass\n elif c: pass\n elif d: pass\n elif e: pass", []),
        ("def f():\n match a:\n  case 1:\n   try:\n    x\n   finally:\n    y", []),
    ],
    ids=map(str, itertools.count()),
)
def test_what_is_oversized_is_found(source: str, found: list[tuple[str, str]]) -> None:
    assert list(oversized(source)) == found


def test_the_check_sees_the_library() -> None:
    assert Path("src/mcpio/errors.py") in {path.relative_to(ROOT) for path in python_files()}
