"""The check of the public names' types complains of what it should, and of nothing else."""

from __future__ import annotations

from typing import Any

from public_types import causes, complaints
from tree import ROOT


def symbol(name: str, *alternatives: str, known: bool = True) -> dict[str, Any]:
    place = {"file": str(ROOT / "a.py"), "range": {"start": {"line": 6}}}
    faults = [] if known else [{"message": "not\n  declared", **place}]
    return {"name": name, "alternateNames": list(alternatives), "isTypeKnown": known, "diagnostics": faults}


def test_members_of_public_names_are_checked() -> None:
    symbols = [symbol("a.deep.X", "a.X"), symbol("a.deep.X.f", known=False), symbol("a.deep.X.__init__", known=False)]
    assert list(complaints(["a.X"], symbols)) == ["a.deep.X.f: not declared", "a.deep.X.__init__: not declared"]


def test_private_names_are_not_checked() -> None:
    symbols = [symbol("a.X"), symbol("a.X._g", known=False), symbol("a.X._g.h", known=False)]
    assert list(complaints(["a.X"], [*symbols, symbol("a.XY", known=False)])) == []


def test_name_invisible_to_type_checkers_is_reported() -> None:
    assert list(complaints(["a.X"], [symbol("a.Y")])) == ["a.X: a type checker does not find it there"]


def test_report_names_the_place() -> None:
    symbols = [symbol("a.X"), symbol("a._Y", known=False)]
    assert list(causes(symbols)) == ["a.py:7: a._Y: not declared"]
