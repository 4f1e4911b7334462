"""Stores that outlive the process: ``TaskOptions(store=…)`` and ``serve_http(…, store=…)`` take one."""

from mcpio.stores.sqlite import SqliteStore

__all__ = ["SqliteStore"]
