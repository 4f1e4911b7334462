"""Each rule of the protocol has its tests, each test that claims a rule is on the map, and what is left out says why.

``python tests/project/requirement_map.py`` writes the lists of tests anew. With ``MCPIO_STRICT_REQUIREMENTS=1``, as CI
has it, a rule without tests fails too.
"""

from __future__ import annotations

import ast
import os
import re
from functools import cache

import pytest
from requirement_map import FAMILIES, all_ids, marked_tests, markers, read_map, rewritten
from tree import ROOT, modules

MAP = read_map()


def test_the_map_has_every_rule_of_the_families_in_order_and_then_others() -> None:
    required, others = list(MAP)[: len(all_ids())], list(MAP)[len(all_ids()) :]
    assert required == all_ids()
    assert [requirement for requirement in others if not MAP[requirement].get("tests")] == []


@pytest.mark.parametrize("requirement", MAP)
def test_every_rule_has_a_text_and_tests_or_a_reason(requirement: str) -> None:
    entry = MAP[requirement]
    assert entry.keys() in ({"rule", "tests"}, {"rule", "left_out"})
    assert len(entry["rule"]) > 10
    assert len(entry.get("left_out", "a reason")) > 5


def test_the_map_and_the_markers_agree() -> None:
    mapped = {requirement: sorted(entry["tests"]) for requirement, entry in MAP.items() if entry.get("tests")}
    marked = marked_tests()
    assert marked.keys() <= MAP.keys(), "a marker names a rule that the map does not have"
    assert mapped == marked, "run tests/project/requirement_map.py"


def test_every_listed_test_exists() -> None:
    listed = {test for entry in MAP.values() for test in entry.get("tests", [])}
    assert {test for test in listed if not _exists(test)} == set()


def test_no_rule_lacks_tests() -> None:
    pending = [requirement for requirement, entry in MAP.items() if entry.get("tests") == []]
    assert not pending or os.environ.get("MCPIO_STRICT_REQUIREMENTS") != "1", f"no test shows {', '.join(pending)}"


def _exists(test: str) -> bool:
    name, *path = test.split("::")
    if not (ROOT / name).is_file() or not path:
        return name.startswith("tests/conversations/") and (ROOT / name).is_file()
    body = _body(name)
    for part in path:
        defined = {node.name: node.body for node in body if isinstance(node, _DEFINITIONS)}
        defined |= {ast.unparse(node.targets[0]): [] for node in body if isinstance(node, ast.Assign)}
        if part not in defined:
            return False
        body = defined[part]
    return True


@cache
def _body(name: str) -> list[ast.stmt]:
    return ast.parse((ROOT / name).read_text(encoding="utf-8")).body


_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def test_markers_are_found_on_functions_methods_and_parameters() -> None:
    source = """
@pytest.mark.req("RPC-01", "RPC-02")
def test_a(): ...

class TestB:
    @pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.req("RPC-03"))])
    def test_c(self, x): ...

TestD = pytest.mark.req("RPC-05")(Machine.TestCase)

pytestmark = pytest.mark.req("RPC-04")
"""
    assert list(markers(source)) == [
        ("test_a", "RPC-01"),
        ("test_a", "RPC-02"),
        ("TestB::test_c", "RPC-03"),
        ("TestD", "RPC-05"),
        ("", "RPC-04"),
    ]


def test_only_the_lists_of_tests_are_rewritten() -> None:
    text = '# Kept.\n\n[A-01]\nrule = "x"\ntests = [\n  "old",\n]\n\n[A-02]\nrule = "y"\nleft_out = "z"\n'
    new = rewritten(text, {"A-01": ["tests/a.py::test_1", "tests/b.py::test_2"], "A-02": ["tests/c.py::test_3"]})
    assert new == text.replace('  "old",\n', '  "tests/a.py::test_1",\n  "tests/b.py::test_2",\n')
    assert rewritten(new, {}) == text.replace('[\n  "old",\n]', "[]")


def test_the_sources_name_only_rules_that_exist() -> None:
    pattern = re.compile(rf"\b(?:{'|'.join(FAMILIES)})-\d+\b")
    named = {found for path in modules().values() for found in pattern.findall(path.read_text(encoding="utf-8"))}
    assert named <= set(MAP)
