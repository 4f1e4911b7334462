"""What our docstring parser and the package docstring-parser find in the same texts, and how long they take.

pip install docstring-parser
python benchmarks/docstring_parsers.py
"""

from __future__ import annotations

import subprocess
import sys
import timeit
from importlib import import_module
from typing import Any

from mcpio.app.schema.values import parse_docstring

GOOGLE = """Find notes.

Args:
    query (str): what to look for,
        in plain words
    *rest: more words

Returns:
    query: the query that was used
"""
NUMPY = """Find notes.

Parameters
----------
query : str
    What to look for.
low, high : int, optional
    The bounds.
"""
SPHINX = ":param str query: what to look for,\n    in plain words\n:keyword flag: a switch\n:returns: nothing\nText."
CASES = {
    "Google": (GOOGLE, {"query": "what to look for, in plain words", "rest": "more words"}),
    "NumPy": (NUMPY, {"query": "What to look for.", "low": "The bounds.", "high": "The bounds."}),
    "Sphinx": (SPHINX, {"query": "what to look for, in plain words", "flag": "a switch"}),
    "Google inside of text": ("Find.\n\nArgs:\n    a: one\n\nThen more text.", {"a": "one"}),
    "not a section: 'Note: ...'": ("Note: this is text.", {}),
    "not a section: 'Returns: ...'": ("Returns: what it says on the same line", {}),
    "not an entry": ("Args:\n    a: one\n    not an entry\n", {"a": "one"}),
}


def main() -> None:
    """Compare and print."""
    theirs: Any = import_module("docstring_parser")

    def found_by_package(text: str) -> tuple[str, dict[str, str]]:
        parsed = theirs.parse(text)
        parameters = {
            name.strip().lstrip("*"): " ".join(each.description.split())
            for each in parsed.params
            for name in each.arg_name.split(",")
            if each.description
        }
        return "\n\n".join(filter(None, (parsed.short_description, parsed.long_description))), parameters

    for name, (text, parameters) in CASES.items():
        ours = parse_docstring(text)
        try:
            description, other = found_by_package(text)
        except Exception as error:  # what it raises is part of the comparison
            description, other = repr(error), {}
        kept = (
            "text kept" if (ours.description or "") == description else f"text {description!r} for {ours.description!r}"
        )
        print(f"{name:34} ours {ours.parameters == parameters!s:6} package {other == parameters!s:6} {other} {kept}")
    for name, call in {"ours": lambda: parse_docstring(GOOGLE), "package": lambda: theirs.parse(GOOGLE)}.items():
        print(f"{name:10} {min(timeit.repeat(call, number=500, repeat=9)) / 500 * 1e6:6.0f} µs a docstring")
    for module in ("mcpio.app.schema.values", "docstring_parser"):
        code = f"import inspect, re, time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
        times = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(7)]
        print(f"import {module:30} {min(times) * 1000:5.1f} ms")


if __name__ == "__main__":
    main()
