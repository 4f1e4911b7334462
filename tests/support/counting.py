"""What work costs, in lines of mcpio or in processor time: a clock counts what others do on the machine, too."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import mcpio

PACKAGE = str(Path(mcpio.__file__).parent) + os.sep
"""How the names of mcpio's own files begin, wherever it is, and whatever the folders above it are called."""


def lines_passed(work: Callable[[], object]) -> int:
    """Return how many lines of mcpio a call passes."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()  # that of a measurement of coverage
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def processor_seconds(works: Iterable[Callable[[], object]]) -> float:
    """Return the least processor time among calls that do the same, since other work can only add to it."""
    found = []
    for work in works:
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)
