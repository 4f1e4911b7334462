"""Imports what a server may need later, while importing still works.

Modules are imported when they are first used. For a server that is too late: at the limit of open files an import
fails, and it would fail in the middle of one client's connection.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from mcpio import types
from mcpio.framing import json

__all__ = ["preload"]

_LATE: Final = (
    "fractions",
    "mcpio.app.elicitation",
    "mcpio.app.forms",
    "mcpio.app.roots",
    "mcpio.app.sampling",
    "mcpio.app.health",
    "mcpio.app.logs",
    "mcpio.app.middleware",
    "mcpio.app.reporting",
    "mcpio.app.tasks.requester",
    "mcpio.app.session_snapshot",
    "mcpio.codec",
    "mcpio.engine.batches",
    "mcpio.engine.dialect",
    "mcpio.engine.outgoing_tasks",
    "mcpio.observe.redaction",
    "mcpio.engine.snapshot",
    "mcpio.observe.tap",
    "mcpio.profiles",
    "mcpio.refusals",
)
"""What the session of a server imports where it is first used."""


def preload(*more: str) -> None:
    """Import everything that the sessions of a server import late, and ``more``, by their full names."""
    for module in (*(f"mcpio.types.{found.name}" for found in iter_modules(types.__path__)), *_LATE, *more):
        import_module(module)
    json.loads(b"0")  # The library for JSON is chosen, and imported, by its first use.
