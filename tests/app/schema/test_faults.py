from __future__ import annotations

from typing import Any

import pytest

from mcpio.app.schema.values import Fault, expected, path_text, shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("abc", '"abc"'),
        ('say "hi"\n\\', '"say \\"hi\\"\\n\\\\"'),
        ("x" * 100, '"' + "x" * 60 + '…"'),
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (-5, "-5"),
        (2**999, "an integer of 1000 bits"),
        (1.5, "1.5"),
        ([1], "an array"),
        ({}, "an object"),
        (b"x", "a value of type bytes"),
    ],
)
def test_values_are_shown_as_json(value: Any, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize(
    ("root", "steps", "text"),
    [
        ("arguments", [], "arguments"),
        ("arguments", ["items", 0, "size"], "arguments.items[0].size"),
        ("arguments", ["two words"], 'arguments["two words"]'),
        ("arguments", ["x" * 61], 'arguments["' + "x" * 60 + '…"]'),
        ("", ["a", "b"], "a.b"),
        ("", [3, "b"], "[3].b"),
        ("", [], ""),
    ],
)
def test_path_names_the_position(root: str, steps: list[str | int], text: str) -> None:
    assert path_text(root, steps) == text


def test_fault_collects_its_path_while_propagating() -> None:
    fault = Fault("too small", "size")
    fault.steps.append(2)
    fault.steps.append("items")
    error = fault.as_invalid("arguments")
    assert (error.path, error.reason, error.revision) == ("arguments.items[2].size", "too small", None)
    assert str(error) == "arguments.items[2].size: too small"


def test_fault_names_expected_and_actual_value() -> None:
    assert expected("an integer", "5").reason == 'expected an integer, got "5"'
