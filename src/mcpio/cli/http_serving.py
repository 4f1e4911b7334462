"""``mcpio serve --http`` and ``--websocket``: the address, and serving there."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import trio

from mcpio.app.server import Server
from mcpio.cli.failures import Exit, Failure

if TYPE_CHECKING:
    from mcpio.stores import SqliteStore
    from mcpio.trio import HttpListening, WebSocketListening

__all__ = ["UNIX", "Address", "address", "place", "serve", "serve_websocket"]

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


def serve(
    server: Server, where: Address | str, *, path: str, health: str | None, store: str | None, websocket: bool
) -> None:
    """Serve until SIGINT or SIGTERM, and say on standard error where. ``Failure`` where that cannot be.

    ``store`` is the path of a file for the sessions.
    """
    from mcpio.http.options import HttpOptions
    from mcpio.trio import serve_http

    options: dict[str, Any] = {"options": HttpOptions(path=path, health=health)}
    if websocket:
        from mcpio.websocket.options import WebSocketOptions  # who does not serve it does not pay for it

        options["websocket"] = WebSocketOptions()
    with contextlib.nullcontext() if store is None else _opened(store) as options["store"]:
        _run(partial(serve_http, **options), server, where, ["http", "ws"] if websocket else ["http"])


def _opened(path: str) -> SqliteStore:
    import sqlite3  # who keeps no sessions does not pay for it

    from mcpio.stores import SqliteStore

    try:
        return SqliteStore(path)
    except (sqlite3.Error, ValueError) as error:
        raise Failure(Exit.NOT_LOADED, f"cannot keep sessions in {path}: {error}") from error


def serve_websocket(server: Server, where: Address | str, *, path: str) -> None:
    """Serve over WebSocket only, likewise."""
    from mcpio.trio import serve_websocket

    _run(partial(serve_websocket, path=path), server, where, ["ws"])


def _run(serve: Any, server: Server, where: Address | str, schemes: Sequence[str]) -> None:
    serving = partial(serve, server, handle_signals=True, task_status=_Announcement(server.info.name, schemes))
    if isinstance(where, str):
        serving = partial(serving, unix=where)
    else:
        serving = partial(serving, host=where.host, port=where.port)
    try:
        trio.run(serving)
    except ValueError as error:
        raise Failure(Exit.USAGE, str(error)) from error
    except OSError as error:
        said = where if isinstance(where, str) else f"{where.host} port {where.port}"
        raise Failure(Exit.NOT_LOADED, f"cannot listen at {said}: {error.strerror or error}") from error


@attrs.frozen
class _Announcement:
    """Says that the server listens: what Trio calls a task status."""

    name: str
    schemes: Sequence[str]

    def started(self, listening: HttpListening | WebSocketListening) -> None:
        place = listening.url.removeprefix("http").removeprefix("ws")
        urls = " and ".join(scheme + place for scheme in self.schemes)
        print(f"mcpio: serving {self.name!r} at {urls}", file=sys.stderr, flush=True)
