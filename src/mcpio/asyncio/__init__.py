"""The drivers for asyncio: the application layer over any ``StreamReader`` and ``StreamWriter``, and nothing else.

``serve`` and ``serving`` are for servers, of one client and of many; ``open_streams`` and ``connect`` for clients, in a
block and tied to none. What opens streams, asyncio has: ``start_server``, ``open_connection``, ``start_unix_server``,
``create_subprocess_exec``. ``AsyncioRuntime`` is the seam on which the application layer stands. A name is looked up,
and its module imported, when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpio._lazy import names_by_use

if TYPE_CHECKING:
    from mcpio.asyncio._drivers import ServeStreams, connect, open_streams, serve, serving
    from mcpio.asyncio._runtime import AsyncioRuntime

__all__ = ["AsyncioRuntime", "ServeStreams", "connect", "open_streams", "serve", "serving"]

_HOME = {
    "_drivers": "ServeStreams connect open_streams serve serving",
    "_runtime": "AsyncioRuntime",
}
"""The module of each name."""

if not TYPE_CHECKING:
    __getattr__, __dir__ = names_by_use(__name__, _HOME)
