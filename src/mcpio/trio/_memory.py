"""``memory_client``: a client of a server in this process, for tests."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import trio

from mcpio._checks import check_options
from mcpio._drivers import TapSource, checked_server
from mcpio._drivers.memory import MemoryEnd, MemoryPair, carry_in_memory
from mcpio.app.client import Client, ClientOptions
from mcpio.trio._drivers import TrioClientContext, run_client
from mcpio.trio._event_loop import TrioEventLoop
from mcpio.trio._runtime import uninterruptible

if TYPE_CHECKING:
    from mcpio.app.server import Server

__all__ = ["memory_client"]

uninterruptible(MemoryPair)
uninterruptible(MemoryEnd)


def memory_client(
    server: Server, *, principal: Any = None, tap: TapSource | None = None, **options: Unpack[ClientOptions]
) -> TrioClientContext[Client]:
    """Async context manager that yields a client of a server in this process.

    The server's lifespan is entered for the block. When the client is closed, handlers that still run are cancelled,
    since no client is left to read their answers. ``principal`` is who the client acts for, such as a
    ``mcpio.auth.Grant``. ``tap`` is attached to the client's connection.
    """
    checked_server(server)
    return TrioClientContext(lambda nursery: _connect(server, nursery, options, principal, tap))


async def _connect(
    server: Server, nursery: trio.Nursery, options: ClientOptions, principal: Any, tap: TapSource | None
) -> Client:
    check_options(options, ClientOptions.__annotations__)
    run = partial(carry_in_memory, TrioEventLoop(), server, options, principal, tap)
    return await run_client(run, nursery, is_resumed=False)
