"""Stores that outlive the process. Each is given to whatever keeps things: ``TaskOptions(store=…)``."""

from mcpio.stores.sqlite import SqliteTaskStore

__all__ = ["SqliteTaskStore"]
