"""Faults of values: raised at the place of the fault, with the path completed on the way out."""

from __future__ import annotations

from typing import Any, Final, Literal

from mcpio.errors import InvalidMessage

__all__ = ["Family", "Fault", "expected", "path_text", "shown"]

Family = Literal["number", "string", "bytes", "array", "object", "moment"]
"""The constraints that apply to a type: bounds to numbers and to moments (dates and times), lengths to the others."""


class Fault(Exception):
    """A value does not fit its type.

    ``reason`` says what was expected and what was given. ``steps`` is the path from the inside out: each converter of a
    member or an item appends its name or index.
    """

    def __init__(self, reason: str, *steps: str | int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str | int] = list(steps)

    def as_invalid(self, root: str) -> InvalidMessage:
        """Return the error for the caller; its path starts at ``root``."""
        return InvalidMessage(path_text(root, self.steps[::-1]), self.reason)


def expected(what: str, value: Any) -> Fault:
    """Return the fault of a value that is not ``what``, such as ``an integer``."""
    return Fault(f"expected {what}, got {shown(value)}")


def path_text(root: str, steps: list[str | int]) -> str:
    """Return a path as text: ``arguments.items[0].size``. Names that are not identifiers are in brackets."""
    parts = [root]
    for step in steps:
        if isinstance(step, str) and len(step) <= _SHOWN_CHARACTERS and step.isidentifier():
            parts.append(f".{step}" if root or len(parts) > 1 else step)
        else:
            parts.append(f"[{shown(step)}]")
    return "".join(parts)


_SHOWN_CHARACTERS: Final = 60


def shown(value: Any) -> str:
    """Describe a value in terms of JSON, shortened: ``"abc"``, ``5``, ``null``, ``an array``."""
    if isinstance(value, str):
        cut = value if len(value) <= _SHOWN_CHARACTERS else value[:_SHOWN_CHARACTERS] + "…"
        return '"' + cut.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        # Python refuses to format very long integers.
        return str(value) if value.bit_length() <= 200 else f"an integer of {value.bit_length()} bits"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list):
        return "an array"
    if isinstance(value, dict):
        return "an object"
    return f"a value of type {type(value).__name__}"
