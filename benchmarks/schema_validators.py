"""What checking a value against a JSON Schema costs with each library that can, and what each gets right.

    python benchmarks/schema_validators.py                  times, for whatever is importable
    python benchmarks/schema_validators.py --suite DIR      also the official test-suite: DIR holds draft2020-12/*.json

Knows jsonschema, fastjsonschema and jsonschema-rs, and ``mcpio.app.schema.validation``, which bounds the work of the
first.
Times are the best of several rounds.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import subprocess
import sys
import timeit
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

Check = Callable[[Any], bool]

LATEST = "https://json-schema.org/draft/2020-12/schema"
ONE_TEXT = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}
ITEM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "size": {"type": "integer", "minimum": 0},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    },
    "required": ["name"],
    "additionalProperties": False,
}
ITEMS = {
    "type": "object",
    "properties": {"items": {"type": "array", "items": {"$ref": "#/$defs/item"}}},
    "required": ["items"],
    "$defs": {"item": ITEM},
}
TWENTY = {"items": [{"name": "x", "size": 3, "tags": ["a", "b"]}] * 20}


def _jsonschema(schema: Any) -> Check:
    from jsonschema import Draft202012Validator
    from referencing import Registry

    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema, registry=Registry())
    return lambda value: next(validator.iter_errors(value), None) is None


def _mcpio(schema: Any) -> Check:
    from mcpio.app.schema.validation import Validator
    from mcpio.errors import InvalidMessage

    # A tool's schema is an object; the suite also has true and false.
    validator = Validator(schema if isinstance(schema, dict) else {"allOf": [schema]})

    def check(value: Any) -> bool:
        try:
            validator.validate(value)
        except InvalidMessage:
            return False
        return True

    return check


def _fastjsonschema(schema: Any) -> Check:
    library = importlib.import_module("fastjsonschema")
    compiled = library.compile(schema, use_formats=False)

    def check(value: Any) -> bool:
        try:
            compiled(value)
        except library.JsonSchemaValueException:
            return False
        return True

    return check


def _jsonschema_rs(schema: Any) -> Check:
    check: Check = importlib.import_module("jsonschema_rs").Draft202012Validator(schema).is_valid
    return check


LIBRARIES: dict[str, tuple[str, Callable[[Any], Check]]] = {
    "jsonschema": ("jsonschema", _jsonschema),
    "mcpio, with jsonschema": ("jsonschema", _mcpio),
    "fastjsonschema": ("fastjsonschema", _fastjsonschema),
    "jsonschema-rs": ("jsonschema_rs", _jsonschema_rs),
}


def main() -> None:
    """Measure, and ask the test-suite where one is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", type=Path, help="the folder of the official test-suite that has draft2020-12/")
    suite = parser.parse_args().suite
    libraries = {name: each for name, each in LIBRARIES.items() if importlib.util.find_spec(each[0])}
    print(f"{'':<24}{'import, ms':>12}{'build, µs':>12}{'1 text, µs':>12}{'20 items, µs':>14}")
    for name, (module, build) in libraries.items():
        small, large = build(ONE_TEXT), build(ITEMS)
        figures = [
            _import_time("mcpio.app.schema.validation, jsonschema" if build is _mcpio else module) * 1e3,
            _best(partial(build, ITEMS), 20),
            _best(partial(small, {"text": "x"}), 5000),
            _best(partial(large, TWENTY), 100),
        ]
        print(f"{name:<24}{figures[0]:>12.1f}{figures[1]:>12.0f}{figures[2]:>12.2f}{figures[3]:>14.1f}")
    for name, (_, build) in libraries.items() if suite else ():
        right, wrong = _answers(build, suite)
        print(f"{name:<24}{right} of {right + wrong} answers of the test-suite right")


def _best(call: Callable[[], object], number: int) -> float:
    return min(timeit.repeat(call, number=number, repeat=7)) / number * 1e6


def _import_time(modules: str) -> float:
    program = f"import time; start = time.perf_counter(); import {modules}; print(time.perf_counter() - start)"
    runs = (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True) for _ in "1234567"
    )
    return min(float(run.stdout) for run in runs)


def _answers(build: Callable[[Any], Check], suite: Path) -> tuple[int, int]:
    """Return how many answers are right and wrong; a schema that is refused gives wrong ones."""
    right = wrong = 0
    for schema, tests in _cases(suite):
        try:
            check = build(schema)
            found = [check(test["data"]) == test["valid"] for test in tests]
        except Exception:  # whatever a library raises for a schema of the suite
            found = [False] * len(tests)
        right += sum(found)
        wrong += len(found) - sum(found)
    return right, wrong


def _cases(suite: Path) -> Iterator[tuple[Any, list[Any]]]:
    for file in sorted((suite / "draft2020-12").glob("*.json")):
        for case in json.loads(file.read_text(encoding="utf-8")):
            # Those need a server with other schemas.
            if "localhost:1234" not in json.dumps(case["schema"]):
                schema = case["schema"]
                yield {"$schema": LATEST, **schema} if isinstance(schema, dict) else schema, case["tests"]


if __name__ == "__main__":
    main()
