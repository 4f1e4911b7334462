"""The inputs that are kept of each target: those that broke something once, and few that reach much code."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any, Final

from counting import PACKAGE

FOLDER: Final = Path(__file__).parent / "corpus"
MOST_BYTES: Final = 6000
"""The size to which the inputs of a target are reduced, those that broke something aside."""
_FAULTS: Final = "# Inputs that broke something once"
_OTHERS: Final = "# Inputs that reach much of the code"


def read(target: str) -> tuple[list[bytes], list[bytes]]:
    """Return the inputs of a target that broke something once, and the others."""
    faults, others = list[bytes](), list[bytes]()
    found = others
    for line in (FOLDER / f"{target}.txt").read_text(encoding="ascii").splitlines():
        if line.startswith("#"):
            found = faults if line == _FAULTS else others
        else:
            found.append(ast.literal_eval(line))
    return faults, others


def read_all(target: str) -> list[bytes]:
    """Return all inputs of a target, those that broke something once first."""
    faults, others = read(target)
    return [*faults, *others]


def write(target: str, faults: Iterable[bytes], others: Iterable[bytes]) -> None:
    """Write the inputs of a target: a line for each, as Python writes bytes."""
    lines = [_FAULTS, *map(repr, faults), _OTHERS, *map(repr, sorted(others, key=lambda data: (len(data), data)))]
    (FOLDER / f"{target}.txt").write_text("\n".join(lines) + "\n", encoding="ascii")


def reduced(function: Callable[[bytes], None], inputs: Iterable[bytes]) -> list[bytes]:
    """Return few of the inputs that reach nearly all that all of them do: first those with the most for their size."""
    reached = {data: _steps_between_lines(function, data) for data in dict.fromkeys(inputs)}
    kept: list[bytes] = []
    size = 0
    while reached:
        best = max(reached, key=lambda data: (len(reached[data]) / (len(data) + 40), data))
        gained = reached.pop(best)
        if gained and size + len(best) <= MOST_BYTES:
            kept.append(best)
            size += len(best)
            reached = {data: rest for data, steps in reached.items() if (rest := steps - gained)}
    return kept


def _steps_between_lines(function: Callable[[bytes], None], data: bytes) -> set[tuple[Any, int, int]]:
    """Return which lines of the library follow which as a target takes an input."""
    found: set[tuple[Any, int, int]] = set()
    last: dict[FrameType, int] = {}

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            found.add((frame.f_code, last.get(frame, 0), frame.f_lineno))
            last[frame] = frame.f_lineno
        elif event == "return":
            last.pop(frame, None)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(data)
    finally:
        sys.settrace(before)
    return found
