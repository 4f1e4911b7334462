"""``mcpio serve --loop asyncio``: for servers whose handlers await asyncio's functions."""

from __future__ import annotations

import argparse
import asyncio
from importlib.util import find_spec
from typing import Any

from mcpio.app.server import Server
from mcpio.cli.exit_status import Exit, Failure
from mcpio.cli.targets import Address
from mcpio.observe.tap import Tap

__all__ = ["check", "serve"]

NOT_SERVED = {
    "websocket": "--loop asyncio serves no WebSocket: leave --loop out, which serves on Trio",
    "tcp": "--loop asyncio serves no TCP: leave --loop out, or use mcpio.asyncio.serving with asyncio.start_server",
    "unix": "--loop asyncio serves no Unix socket by lines: leave --loop out, or use mcpio.asyncio.serving",
    "access_log": "--access-log is for Trio: with --loop asyncio the web server has a log of its own",
    "reload": "--reload runs on Trio, and its child too: leave --loop out",
}
"""The options that cannot be combined with ``--loop asyncio``, with the reason."""


def check(options: argparse.Namespace) -> None:
    """Raise Failure for options that need Trio, and where no web server is installed that HTTP needs."""
    for name, message in NOT_SERVED.items():
        if getattr(options, name):
            raise Failure(Exit.USAGE, message)
    if options.http is not None and _web_server() is None:
        raise Failure(Exit.USAGE, "--http on asyncio needs a web server: pip install uvicorn, or hypercorn")


def serve(server: Server, options: argparse.Namespace, tap: Tap | None) -> None:
    """Serve until the client or a signal ends it. Raises Failure if the web server cannot listen."""
    if options.http is None:
        from mcpio.asyncio import serve_stdio

        asyncio.run(serve_stdio(server, tap=tap, end_with_parent=not options.outlive_parent))
        return
    from mcpio.asgi import app
    from mcpio.cli.listen import open_store
    from mcpio.http.model import HttpOptions

    http = HttpOptions(path=options.path or "/mcp", health=options.health)
    if options.store is None:
        _run(app(server, options=http), options.http)
    else:
        with open_store(options.store) as store:
            _run(app(server, options=http, store=store), options.http)


def _web_server() -> str | None:
    return next((name for name in ("uvicorn", "hypercorn") if find_spec(name) is not None), None)


def _run(application: Any, where: Address | str) -> None:
    if _web_server() == "uvicorn":
        import uvicorn

        place: dict[str, Any] = {"uds": where} if isinstance(where, str) else {"host": where.host, "port": where.port}
        try:
            uvicorn.run(application, ws="none", lifespan="on", **place)
        except SystemExit as error:
            # uvicorn has logged the reason: an address that is taken, or a lifespan that failed.
            raise Failure(Exit.NOT_LOADED, f"cannot serve at {_shown(where)}: see the log of uvicorn") from error
        return
    from hypercorn.asyncio import serve as serve_by_hypercorn
    from hypercorn.config import Config

    config = Config()
    config.bind = [f"unix:{where}" if isinstance(where, str) else f"{where.host}:{where.port}"]
    try:
        asyncio.run(serve_by_hypercorn(application, config))
    except OSError as error:
        raise Failure(Exit.NOT_LOADED, f"cannot listen at {_shown(where)}: {error.strerror or error}") from error


def _shown(where: Address | str) -> str:
    return where if isinstance(where, str) else f"{where.host} port {where.port}"
