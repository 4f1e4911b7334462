"""An MCP server in an aiohttp application, beside its other routes."""

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

from aiohttp import web

from mcpio import Context, Server
from mcpio.asgi import app

server = Server("loud", "1.0")


@server.tool
async def shout(text: str, ctx: Context) -> str:
    """Return a text in capital letters."""
    ctx.progress(1, 2)
    return text.upper()


application = app(server)
calls: set[asyncio.Task[None]] = set()
"""Running calls. Those of clients that disconnected go on: they may come back for answers."""


async def serve_mcp(request: web.Request) -> web.StreamResponse:
    """Pass one request to the ASGI application, and its response to the client as it comes."""
    assert request.transport is not None
    scope = {
        "type": "http",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "query_string": request.query_string.encode(),
        "headers": request.raw_headers,
        "server": request.transport.get_extra_info("sockname")[:2],
        "client": request.transport.get_extra_info("peername")[:2],
    }
    response, gone, more = web.StreamResponse(), asyncio.Event(), True

    async def receive() -> dict[str, Any]:
        nonlocal more
        try:
            if more:
                body = await request.content.readany()
                more = not request.content.at_eof()
                return {"type": "http.request", "body": body, "more_body": more}
            await gone.wait()
        except ConnectionError:
            pass
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        try:
            if message["type"] == "http.response.start":
                response.set_status(message["status"])
                for name, value in message["headers"]:
                    response.headers.add(name.decode(), value.decode("latin-1"))
                await response.prepare(request)
            elif message["body"]:
                await response.write(message["body"])
        except ConnectionError:
            gone.set()

    call = asyncio.create_task(application(scope, receive, send))
    calls.add(call)
    call.add_done_callback(calls.discard)
    try:
        await asyncio.shield(call)
    finally:
        gone.set()  # aiohttp cancels the handler of a client that disconnects
    return response


async def lifespan(_: web.Application) -> AsyncIterator[None]:
    """Run the server's background work: idle sessions and tasks outlive their requests."""
    async with application.lifespan():
        yield


async def shut_down(_: web.Application) -> None:
    """End all streams, before aiohttp waits for its handlers."""
    application.close()


def make_site() -> web.Application:
    """Return the application with all its routes."""
    site = web.Application()
    site.router.add_route("*", "/mcp", serve_mcp)
    site.cleanup_ctx.append(lifespan)
    site.on_shutdown.append(shut_down)
    return site


if __name__ == "__main__":
    web.run_app(make_site(), host="127.0.0.1", port=8000, handler_cancellation=True)
