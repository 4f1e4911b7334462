"""``mcpio serve`` beyond standard input and output: listen over HTTP, WebSocket, TCP or a Unix socket."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import trio

from mcpio.app.server import Server
from mcpio.cli.exit_status import Exit, Failure
from mcpio.cli.targets import TCP, UNIX, Address

if TYPE_CHECKING:
    from mcpio.stores import SqliteStore
    from mcpio.trio import HttpListening, SocketListening, WebSocketListening

__all__ = ["listen_http", "listen_tcp", "listen_unix", "listen_websocket", "open_store"]

# Each function serves until SIGINT or SIGTERM, prints the address to standard error once it listens, and raises
# Failure if it cannot listen. Imports are local, so that a command loads only the transport that it uses.


def listen_http(
    server: Server,
    where: Address | str,
    *,
    path: str,
    health: str | None,
    store: str | None,
    websocket: bool,
    access_log: bool,
) -> None:
    """Serve over HTTP; ``store`` is the file that keeps sessions."""
    from mcpio.http.model import HttpOptions
    from mcpio.trio import serve_http

    options: dict[str, Any] = {"options": HttpOptions(path=path, health=health), "access_log": access_log}
    if websocket:
        from mcpio.websocket.frames import WebSocketOptions

        options["websocket"] = WebSocketOptions()
    with contextlib.nullcontext() if store is None else open_store(store) as options["store"]:
        announce = _UrlAnnouncement(server.info.name, ["http", "ws"] if websocket else ["http"])
        _run_at(where, partial(serve_http, server, **options), announce)


def listen_websocket(server: Server, where: Address | str, *, path: str) -> None:
    """Serve over WebSocket only."""
    from mcpio.trio import serve_websocket

    _run_at(where, partial(serve_websocket, server, path=path), _UrlAnnouncement(server.info.name, ["ws"]))


def listen_tcp(server: Server, where: Address) -> None:
    """Serve on TCP, one message a line."""
    from mcpio.trio import serve_tcp

    serve = partial(serve_tcp, server, where.port, host=where.host)
    _run(serve, _SocketAnnouncement(server.info.name, ""), f"{where.host} port {where.port}")


def listen_unix(server: Server, path: str) -> None:
    """Serve on a Unix socket, one message a line."""
    from mcpio.trio import serve_unix

    _run(partial(serve_unix, server, path), _SocketAnnouncement(server.info.name, path), path)


def open_store(path: str) -> SqliteStore:
    """Return the store of sessions in a file. Raises Failure if it cannot be opened."""
    import sqlite3

    from mcpio.stores import SqliteStore

    try:
        return SqliteStore(path)
    except (sqlite3.Error, ValueError) as error:
        raise Failure(Exit.NOT_LOADED, f"cannot keep sessions in {path}: {error}") from error


def _run_at(where: Address | str, serve: Any, announcement: _UrlAnnouncement) -> None:
    if isinstance(where, str):
        _run(partial(serve, unix=where), announcement, where)
    else:
        _run(partial(serve, host=where.host, port=where.port), announcement, f"{where.host} port {where.port}")


def _run(serve: Any, announcement: _UrlAnnouncement | _SocketAnnouncement, where: str) -> None:
    try:
        trio.run(partial(serve, handle_signals=True, task_status=announcement))
    except (OSError, UnicodeError) as error:  # UnicodeError: the host cannot be encoded as a host name
        reason = getattr(error, "strerror", None) or error
        raise Failure(Exit.NOT_LOADED, f"cannot listen at {where}: {reason}") from error
    except ValueError as error:
        raise Failure(Exit.USAGE, str(error)) from error


@attrs.frozen
class _UrlAnnouncement:
    """Prints the URLs when the server listens. A Trio task status."""

    name: str
    schemes: Sequence[str]

    def started(self, listening: HttpListening | WebSocketListening) -> None:
        rest = listening.url.removeprefix("http").removeprefix("ws")
        _announce(self.name, " and ".join(scheme + rest for scheme in self.schemes))


@attrs.frozen
class _SocketAnnouncement:
    """Prints the socket's address when the server listens. A Trio task status."""

    name: str
    path: str

    def started(self, listening: SocketListening) -> None:
        host = listening.host
        if host is None:
            _announce(self.name, f"{UNIX}{self.path}")
        else:
            _announce(self.name, f"{TCP}{f'[{host}]' if ':' in host else host}:{listening.port}")


def _announce(name: str, where: str) -> None:
    print(f"mcpio: serving {name!r} at {where}", file=sys.stderr, flush=True)
