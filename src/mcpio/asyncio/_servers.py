"""``open_servers`` and ``proxy``: many servers behind one client, and one server behind another."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal, Unpack

import mcpio.asyncio as drivers
from mcpio._drivers.servers import (
    START_TIMEOUT,
    OnChange,
    Servers,
    ServerSource,
    ServerState,
    Watch,
    proxy_server,
    run_servers,
)
from mcpio.app.client import ClientOptions
from mcpio.app.server import Server
from mcpio.asyncio._event_loop import AsyncioEventLoop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcpio.backoff import Backoff
    from mcpio.restarts import RestartPolicy

__all__ = ["ServerSource", "ServerState", "Servers", "open_servers"]


@asynccontextmanager
async def open_servers(
    config: Mapping[str, ServerSource],
    *,
    on_failure: Literal["keep", "raise"] = "keep",
    restart: Backoff | RestartPolicy | None = None,
    start_timeout: float = START_TIMEOUT,
    on_change: OnChange | None = None,
    **options: Unpack[ClientOptions],
) -> AsyncIterator[Servers]:
    """Async context manager that connects to many servers at once: ``async with open_servers(config) as servers``.

    ``config`` is a ``ServersConfig``, or any mapping of names to sources. Disabled entries are left out. The block
    begins when each server is ready or has failed, or after ``start_timeout`` seconds: a slower server joins later. A
    server that fails does not affect the others; with ``on_failure="raise"`` the first failure at the start raises its
    ConnectFailed. With ``restart`` a server that was lost, or did not start, is started again by that policy.

    ``on_change`` is a plain function, called with a server's name and its new state, or ``"tools"``, ``"prompts"`` or
    ``"resources"`` when the server reports that this list has changed. ``options`` are those of every client.
    """
    async with run_servers(
        AsyncioEventLoop(),
        drivers,
        config,
        on_failure=on_failure,
        restart=restart,
        start_timeout=start_timeout,
        on_change=on_change,
        **options,
    ) as servers:
        yield servers


def proxy(source: ServerSource, *, watch: Watch | None = None) -> Server:
    """Return a server that has another server answer everything.

    Serve it like any other: ``asyncio.run(serve_stdio(proxy(ServerEntry(command=("server",)))))``. Each session here
    has one session there, so progress, cancellation, questions to the user and the model, and subscriptions pass
    through.
    The other server is connected to once at the start, for its name and its capabilities, then once for each session.
    One that has died is started again for the next request. One that is stateless only serves the sessions here without
    sessions of its own. Tasks are not passed on.

    ``watch`` is an async function that returns when the other server is to be replaced: a new one is started for each
    session, and takes its place if it shakes hands within 15 s; sessions, subscriptions and log levels stay, and
    clients are told that all lists have changed. Requests in flight fail with an error that says so. A replacement that
    does not start is reported, and the old server stays.

    Serving raises ConnectFailed if the other server does not start.
    """
    return proxy_server(source, drivers, AsyncioEventLoop, watch)
