"""``mcpio serve --http``: the address, and serving there."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio

from mcpio.app.server import Server
from mcpio.cli.failures import Exit, Failure

if TYPE_CHECKING:
    from mcpio.trio import HttpListening

__all__ = ["UNIX", "Address", "address", "place", "serve"]

UNIX = "unix:"
"""How the path of a Unix socket begins."""

DEFAULT_HOST = "127.0.0.1"
"""Nobody but programs on this machine can reach it."""

MOST = 65535
"""The last port."""


@attrs.frozen
class Address:
    """Where to listen."""

    host: str
    port: int


def address(text: str) -> Address:
    """Read ``[HOST:]PORT``; the host may be an IPv6 address, in brackets or not. For ``argparse``."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is no port, and no host and port: 8000 or 0.0.0.0:8000")
    return Address(host.removeprefix("[").removesuffix("]") or DEFAULT_HOST, int(port))


def place(text: str) -> Address | str:
    """Read ``[HOST:]PORT``, or ``unix:PATH``, which is the path of a Unix socket. For ``argparse``."""
    path = text.removeprefix(UNIX)
    return path if path and path != text else address(text)


def serve(server: Server, where: Address | str, *, path: str, health: str | None) -> None:
    """Serve until SIGINT or SIGTERM, and say on standard error where. ``Failure`` where that cannot be."""
    from mcpio.http.options import HttpOptions
    from mcpio.trio import serve_http

    try:
        options = HttpOptions(path=path, health=health)
        serving = partial(serve_http, server, options=options, handle_signals=True)
        if isinstance(where, str):
            serving = partial(serving, unix=where)
        else:
            serving = partial(serving, host=where.host, port=where.port)
        trio.run(partial(serving, task_status=_Announcement(server.info.name)))
    except ValueError as error:
        raise Failure(Exit.USAGE, str(error)) from error
    except OSError as error:
        said = where if isinstance(where, str) else f"{where.host} port {where.port}"
        raise Failure(Exit.NOT_LOADED, f"cannot listen at {said}: {error}") from error


@attrs.frozen
class _Announcement:
    """Says that the server listens: what Trio calls a task status."""

    name: str

    def started(self, listening: HttpListening) -> None:
        print(f"mcpio: serving {self.name!r} at {listening.url}", file=sys.stderr, flush=True)
