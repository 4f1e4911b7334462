"""Stores that outlive the process, for ``TaskOptions(store=…)`` and ``serve_http(…, store=…)``."""

from mcpio.stores.sqlite import SqliteStore

__all__ = ["SqliteStore"]
