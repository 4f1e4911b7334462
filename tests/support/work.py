"""Counts the work of a call, independently of the machine."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["peak_memory", "steps_of"]


def steps_of(call: Callable[[], Any]) -> int:
    """Return how many instructions of Python code a call takes. What compiled code does in one of them is not seen."""
    steps = 0

    def count(*_: Any) -> None:
        nonlocal steps
        steps += 1

    with _each_instruction(count):
        call()
    return steps


@contextmanager
def _each_instruction(count: Callable[..., None]) -> Iterator[None]:
    """Call a function for each instruction of Python code in the block."""
    if sys.version_info >= (3, 12):
        # Tracing finds no instructions in the first call of a function on Python 3.13.
        monitoring, tool = sys.monitoring, 4
        monitoring.use_tool_id(tool, __name__)
        monitoring.register_callback(tool, monitoring.events.INSTRUCTION, count)
        monitoring.set_events(tool, monitoring.events.INSTRUCTION)
        try:
            yield
        finally:
            monitoring.set_events(tool, 0)
            monitoring.free_tool_id(tool)
        return

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            count()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def peak_memory(call: Callable[[], Any]) -> int:
    """Return the most bytes that a call takes beyond those before it."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
