"""Counts the work of a call, independently of the machine."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["peak_memory", "steps_of"]


def steps_of(call: Callable[[], Any]) -> int:
    """Return how many instructions of Python code a call takes. What compiled code does in one of them is not seen."""
    steps = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        steps += event == "opcode"
        return trace

    before = sys.gettrace()
    # Python 3.13 sends no such events before some frame had asked for them when tracing began.
    sys._getframe().f_trace_opcodes = True
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return steps


def peak_memory(call: Callable[[], Any]) -> int:
    """Return the most bytes that a call takes beyond those before it."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
