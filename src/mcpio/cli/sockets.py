"""Servers on sockets: ``mcpio serve --tcp`` and ``--unix``, and ``tcp://HOST:PORT`` and ``unix:PATH`` for a server."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import trio

from mcpio.app.server import Server
from mcpio.cli.failures import Exit, Failure
from mcpio.cli.http_serving import UNIX, Address, address

if TYPE_CHECKING:
    from mcpio.app.client import Client
    from mcpio.trio import SocketListening
    from mcpio.trio._drivers import TrioClientContext

__all__ = ["SCHEMES", "opened", "serve_tcp", "serve_unix", "target"]

TCP = "tcp://"
SCHEMES = (TCP, UNIX)
"""How a server on a socket begins."""


def target(text: str) -> Address | str:
    """Return where a server is: a host and a port, or a path. ``Failure`` for what says neither."""
    if text.startswith(UNIX):
        path = text.removeprefix(UNIX)
        if not path:
            raise Failure(Exit.USAGE, f"{text!r} names no path: unix:/run/server.sock")
        return path
    try:
        return address(text.removeprefix(TCP).removesuffix("/"))
    except argparse.ArgumentTypeError:
        raise Failure(Exit.USAGE, f"{text!r} names no host and port: tcp://localhost:4000") from None


def opened(text: str, **options: Any) -> TrioClientContext[Client]:
    """Return what opens a client of the server at ``target(text)``."""
    from mcpio.trio import open_tcp, open_unix

    where = target(text)
    return open_unix(where, **options) if isinstance(where, str) else open_tcp(where.host, where.port, **options)


def serve_tcp(server: Server, where: Address) -> None:
    """Serve until SIGINT or SIGTERM, and say on standard error where. ``Failure`` where that cannot be."""
    from mcpio.trio import serve_tcp

    _run(partial(serve_tcp, server, where.port, host=where.host), server, f"{where.host} port {where.port}")


def serve_unix(server: Server, path: str) -> None:
    """Serve until SIGINT or SIGTERM, and say on standard error where. ``Failure`` where that cannot be."""
    from mcpio.trio import serve_unix

    _run(partial(serve_unix, server, path), server, path)


def _run(serve: Any, server: Server, where: str) -> None:
    try:
        trio.run(partial(serve, handle_signals=True, task_status=_Announcement(server.info.name, where)))
    except (OSError, UnicodeError) as error:  # the second for what can be no name of a host
        reason = getattr(error, "strerror", None) or error
        raise Failure(Exit.NOT_LOADED, f"cannot listen at {where}: {reason}") from error


@attrs.frozen
class _Announcement:
    """Says that the server listens: what Trio calls a task status."""

    name: str
    where: str

    def started(self, listening: SocketListening) -> None:
        host = listening.host
        place = (
            f"{UNIX}{self.where}" if host is None else f"{TCP}{f'[{host}]' if ':' in host else host}:{listening.port}"
        )
        print(f"mcpio: serving {self.name!r} at {place}", file=sys.stderr, flush=True)
