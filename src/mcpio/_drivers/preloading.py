"""Imports modules that a server may need later, while importing still works.

Modules are imported on first use. For a server that may be too late: at the limit of open files an import fails, and
it would fail in the middle of one client's connection.
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
    "mcpio.app.foreign_names",
    "mcpio.app.forms",
    "mcpio.app.roots",
    "mcpio.app.sampling",
    "mcpio.app.health",
    "mcpio.app.logs",
    "mcpio.app.middleware",
    "mcpio.app.mounting",
    "mcpio.app.registry.dependencies",
    "mcpio.app.reporting",
    "mcpio.app.rounds",
    "mcpio.app.subscriptions",
    "mcpio.app.tasks.extension",
    "mcpio.app.tasks.requester",
    "mcpio.app.session_snapshot",
    "mcpio.codec",
    "mcpio.engine.batches",
    "mcpio.engine.dialect",
    "mcpio.engine.listening",
    "mcpio.engine.outgoing_tasks",
    "mcpio.engine.stateless",
    "mcpio.observe.redaction",
    "mcpio.engine.snapshot",
    "mcpio.observe.tap",
    "mcpio.profiles",
    "mcpio.refusals",
)
"""The modules that a server session imports on first use."""


def preload(*more: str) -> None:
    """Import every module that server sessions import late, and ``more``, by their full names."""
    for module in (*(f"mcpio.types.{found.name}" for found in iter_modules(types.__path__)), *_LATE, *more):
        import_module(module)
    json.loads(b"0")  # The first use chooses the library for JSON, and imports it.
