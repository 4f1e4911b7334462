"""Which constraints annotated-types can say, which of ours it cannot, and what importing it costs.

pip install annotated-types
python benchmarks/constraint_packages.py
"""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from typing import Annotated, Any

from mcpio.app import Constraints
from mcpio.app.schema.builder import json_schema


def main() -> None:
    """Compare and print."""
    at: Any = import_module("annotated_types")
    cases: list[tuple[str, Any, Any, Any]] = [
        ("bounds", int, Constraints(ge=1, lt=10), at.Interval(ge=1, lt=10)),
        ("multiple", int, Constraints(multiple_of=5), at.MultipleOf(5)),
        ("length", str, Constraints(min_length=1, max_length=9), at.Len(1, 9)),
        ("pattern", str, Constraints(pattern="^[a-z]+$"), None),
        ("format", str, Constraints(format="email"), None),
    ]
    for name, kind, ours, theirs in cases:
        schema = json_schema(Annotated[kind, ours])
        same = "no such constraint" if theirs is None else json_schema(Annotated[kind, theirs]) == schema
        print(f"{name:10} {schema!s:60} the same by annotated-types: {same}")
    for wrong in ({"min_length": -1}, {"ge": "1"}, {"multiple_of": 0}):
        try:
            Constraints(**wrong)
            ours_said = "accepted until it is used"
        except ValueError as error:
            ours_said = f"refused where it is written: {error}"
        made = at.MinLen(-1) if "min_length" in wrong else at.Ge("1") if "ge" in wrong else at.MultipleOf(0)
        print(f"{wrong!s:20} ours {ours_said}; annotated-types accepts {made}")
    code = "import dataclasses, typing, time as t; began = t.perf_counter(); import annotated_types"
    code += "; print(t.perf_counter() - began)"
    print(f"import {min(float(subprocess.check_output([sys.executable, '-c', code])) for _ in range(7)) * 1000:.1f} ms")


if __name__ == "__main__":
    main()
