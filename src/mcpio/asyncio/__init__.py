"""The drivers for asyncio: the application layer over any ``StreamReader`` and ``StreamWriter``.

``serve`` and ``serving`` are for servers of one client and of many; ``open_streams`` and ``connect`` are for clients,
tied to a block or to none. asyncio itself opens the streams: ``start_server``, ``open_connection``,
``start_unix_server``, ``create_subprocess_exec``. ``AsyncioRuntime`` implements ``mcpio.app.runtime``. A name is looked
up, and its module imported, on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpio._lazy import lazy_names

if TYPE_CHECKING:
    from mcpio.asyncio._drivers import ServeStreams as ServeStreams
    from mcpio.asyncio._drivers import connect as connect
    from mcpio.asyncio._drivers import open_streams as open_streams
    from mcpio.asyncio._drivers import serve as serve
    from mcpio.asyncio._drivers import serving as serving
    from mcpio.asyncio._runtime import AsyncioRuntime as AsyncioRuntime

    __all__: list[str]
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "_drivers": "ServeStreams connect open_streams serve serving",
            "_runtime": "AsyncioRuntime",
        },
    )
