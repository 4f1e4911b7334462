"""``proxy``: a server that has another one answer, and may have that one replaced while its clients stay."""

from __future__ import annotations

import mcpio.trio as drivers
from mcpio._drivers.servers import ServerSource, Watch, proxy_server
from mcpio.app.server import Server
from mcpio.trio._event_loop import TrioEventLoop

__all__ = ["proxy"]


def proxy(source: ServerSource, *, watch: Watch | None = None) -> Server:
    """Return a server that has another server answer everything.

    Serve it like any other: ``trio.run(serve_stdio, proxy(ServerEntry(command=("server",))))``. Each session here has
    one session there, so progress, cancellation, questions to the user and the model, and subscriptions pass through.
    The other server is connected to once at the start, for its name and its capabilities, then once for each session.
    One that has died is started again for the next request. One that is stateless only serves the sessions here without
    sessions of its own. Tasks are not passed on.

    ``watch`` is an async function that returns when the other server is to be replaced: a new one is started for each
    session, and takes its place if it shakes hands within 15 s; sessions, subscriptions and log levels stay, and
    clients are told that all lists have changed. Requests in flight fail with an error that says so. A replacement that
    does not start is reported, and the old server stays.

    Serving raises ConnectFailed if the other server does not start.
    """
    return proxy_server(source, drivers, TrioEventLoop, watch)
