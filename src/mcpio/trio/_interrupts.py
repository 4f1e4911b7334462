"""The places where a Ctrl-C may be delivered.

Python raises ``KeyboardInterrupt`` between any two instructions of the main thread. In the middle of an engine or a
driver it would leave a state from which the session cannot end, and a program that waits for that end would hang.
There Trio holds the interrupt back, and raises it at the next checkpoint of the main task. In functions of users, which
may run for long, it is raised at once.
"""

from __future__ import annotations

from types import FunctionType
from typing import TypeVar

from trio.lowlevel import disable_ki_protection, enable_ki_protection

__all__ = ["interruptible", "uninterruptible"]

K = TypeVar("K", bound=type)

interruptible = disable_ki_protection
"""Allow a Ctrl-C to be raised in a function, and in the functions that it calls."""


def uninterruptible(kind: K) -> K:
    """Defer a Ctrl-C in the methods of a class, and in the functions that they call. A class decorator."""
    for member in vars(kind).values():
        if isinstance(member, FunctionType):
            enable_ki_protection(member)
    return kind
