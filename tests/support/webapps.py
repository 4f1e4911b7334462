"""Our server under real ASGI servers and frameworks: ``python webapps.py SERVER FRAMEWORK DESCRIPTOR``.

The descriptor is that of a socket that listens.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncGenerator, Callable
from typing import Any

from mcpio import Context, Server
from mcpio.asgi import AsgiApp, app
from mcpio.http.model import HttpOptions
from mcpio.websocket import WebSocketOptions

server = Server("webapps", "1")


@server.tool
def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool
async def steps(count: int, ctx: Context) -> str:
    """Report progress."""
    for number in range(1, count + 1):
        ctx.progress(number, count)
        await ctx.session.driver.runtime.sleep(0.01)
    return "done"


@server.tool(task_support="optional")
async def wait(seconds: float, ctx: Context) -> str:
    """Answer after a while."""
    await ctx.session.driver.runtime.sleep(seconds)
    return "waited"


def endpoints() -> dict[str, AsgiApp]:
    """Return the ways in which the server is served, by path."""
    return {
        "/auto": app(server, websocket=WebSocketOptions()),
        "/sse": app(server, options=HttpOptions(answers="sse")),
        "/alone": app(server, options=HttpOptions(sessions=False)),
    }


# Frameworks: each has the endpoints and, but for the first, a page of its own


def bare(mounts: dict[str, AsgiApp]) -> Any:
    """Be the whole of it."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await mounts["/auto"](scope, receive, send)
        else:
            root = "/" + scope["path"].split("/")[1]
            await mounts[root](scope | {"root_path": root}, receive, send)

    return application


def starlette(mounts: dict[str, AsgiApp]) -> Any:
    """Mount it in Starlette."""
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Mount, Route

    async def page(request: Any) -> Any:
        return PlainTextResponse("a page")

    routes = [Mount(path, mcp) for path, mcp in mounts.items()]
    return Starlette(routes=[Route("/page", page), *routes], lifespan=mounts["/auto"].lifespan)


def fastapi(mounts: dict[str, AsgiApp]) -> Any:
    """Mount it in FastAPI."""
    from fastapi import FastAPI

    application = FastAPI(lifespan=mounts["/auto"].lifespan)

    @application.get("/page")
    async def page() -> str:
        return "a page"

    for path, mcp in mounts.items():
        application.mount(path, mcp)
    return application


def quart(mounts: dict[str, AsgiApp]) -> Any:
    """Put it beside a Quart application."""
    from quart import Quart

    application = Quart(__name__)

    @application.route("/page")
    async def page() -> str:
        return "a page"

    @application.while_serving
    async def serving() -> AsyncGenerator[None, None]:
        async with mounts["/auto"].lifespan():
            yield

    own = application.asgi_app

    async def dispatch(scope: Any, receive: Any, send: Any) -> None:
        root = "/" + scope.get("path", "").split("/")[1] if scope["type"] in ("http", "websocket") else ""
        if root in mounts:
            await mounts[root](scope | {"root_path": root, "path": scope["path"].removeprefix(root)}, receive, send)
        else:
            await own(scope, receive, send)

    application.asgi_app = dispatch  # type: ignore[method-assign]  # as Quart's documentation has it
    return application


FRAMEWORKS: dict[str, Callable[[dict[str, AsgiApp]], Any]] = {
    "bare": bare,
    "starlette": starlette,
    "fastapi": fastapi,
    "quart": quart,
}


# Servers


def uvicorn(application: Any, listening: socket.socket) -> None:
    """Serve by uvicorn."""
    import uvicorn

    uvicorn.Server(uvicorn.Config(application, log_level="warning")).run(sockets=[listening])


def uvicorn_limited(application: Any, listening: socket.socket) -> None:
    """Serve by uvicorn, which cancels requests a second after its end has begun."""
    import uvicorn

    config = uvicorn.Config(application, log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listening])


def hypercorn(application: Any, listening: socket.socket) -> None:
    """Serve by hypercorn on asyncio."""
    import asyncio

    from hypercorn.asyncio import serve

    asyncio.run(serve(application, _hypercorn_config(listening)))


def hypercorn_trio(application: Any, listening: socket.socket) -> None:
    """Serve by hypercorn on Trio."""
    import trio
    from hypercorn.trio import serve

    trio.run(serve, application, _hypercorn_config(listening))


def _hypercorn_config(listening: socket.socket) -> Any:
    from hypercorn.config import Config

    config = Config()
    config.bind = [f"fd://{listening.detach()}"]
    config.loglevel = "WARNING"
    config.graceful_timeout = 1
    return config


SERVERS: dict[str, Callable[[Any, socket.socket], None]] = {
    "uvicorn": uvicorn,
    "uvicorn-limited": uvicorn_limited,
    "hypercorn": hypercorn,
    "hypercorn-trio": hypercorn_trio,
}


if __name__ == "__main__":
    SERVERS[sys.argv[1]](FRAMEWORKS[sys.argv[2]](endpoints()), socket.socket(fileno=int(sys.argv[3])))
