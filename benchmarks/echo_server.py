"""The server that the benchmarks drive: a tool ``echo``, and as many others as ``BENCH_TOOLS`` says in all.

python benchmarks/echo_server.py --stdio [--async] [--asyncio]
python benchmarks/echo_server.py --http 8000
python benchmarks/echo_server.py --tcp 4000
python benchmarks/echo_server.py --unix echo.sock
python benchmarks/echo_server.py --websocket 4000
"""

from __future__ import annotations

import argparse
import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import trio

from mcpio import Server
from mcpio.trio import serve_stdio

if TYPE_CHECKING:
    from mcpio.auth import ResourceServer

ISSUER: Final = "https://id.example.com"
RESOURCE: Final = "https://mcp.example.com/mcp"

Answers: TypeAlias = Literal["json", "sse"]
ParserName: TypeAlias = Literal["h11", "httptools"]


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(description="A server with a tool that echoes.")
    transport = parser.add_mutually_exclusive_group(required=True)
    transport.add_argument("--stdio", action="store_true", help="serve the parent process")
    transport.add_argument("--http", type=int, metavar="PORT", help="serve over HTTP, at /mcp")
    transport.add_argument("--tcp", type=int, metavar="PORT", help="serve on TCP, a message a line")
    transport.add_argument("--unix", metavar="PATH", help="serve on a Unix socket, a message a line")
    transport.add_argument("--websocket", type=int, metavar="PORT", help="serve over WebSocket, at /mcp")
    parser.add_argument("--async", dest="is_async", action="store_true", help="make echo an async function")
    parser.add_argument("--sse", action="store_true", help="over HTTP, answer with events always")
    parser.add_argument("--parser", choices=("h11", "httptools"), default="h11", help="what parses HTTP")
    parser.add_argument("--uvicorn", action="store_true", help="over HTTP, serve as an application of uvicorn")
    parser.add_argument("--store", metavar="PATH", help="over HTTP, keep sessions in a file")
    parser.add_argument("--jwks", metavar="PATH", help="over HTTP, admit those who have JWTs by a key of this file")
    parser.add_argument("--asyncio", action="store_true", help="serve the parent process on asyncio")
    options = parser.parse_args()
    server = echo_server(int(os.environ.get("BENCH_TOOLS", "1")), is_async=options.is_async)
    if options.http is not None:
        if options.uvicorn:
            serve_under_uvicorn(server, options.http, options.parser)
            return
        auth = None if options.jwks is None else protection(options.jwks)
        serve_over_http(server, options.http, "sse" if options.sse else "json", options.parser, options.store, auth)
    elif options.stdio and options.asyncio:
        import asyncio

        from mcpio.asyncio import serve_stdio as serve_on_asyncio

        asyncio.run(serve_on_asyncio(server))
    elif options.stdio:
        trio.run(serve_stdio, server)
    elif options.websocket is not None:
        serve_over_websocket(server, options.websocket)
    else:
        serve_on_socket(server, options.tcp, options.unix)


def serve_on_socket(server: Server, port: int | None, path: str) -> None:
    """Serve until the process is ended."""
    from mcpio.trio import serve_tcp, serve_unix

    serve = partial(serve_unix, server, path) if port is None else partial(serve_tcp, server, port)
    trio.run(partial(serve, handle_signals=True))


def serve_over_websocket(server: Server, port: int) -> None:
    """Serve until the process is ended."""
    from mcpio.trio import serve_websocket

    trio.run(partial(serve_websocket, server, port=port, handle_signals=True))


def protection(path: str) -> ResourceServer:
    """Return what a server is protected by: JWTs that are signed by a key of the set in a file."""
    from mcpio.auth import JwtVerifier, ResourceServer

    verify = JwtVerifier(ISSUER, jwks=json.loads(Path(path).read_text()))
    return ResourceServer(resource=RESOURCE, authorization_servers=[ISSUER], verify=verify)


def serve_over_http(
    server: Server,
    port: int,
    answers: Literal["json", "sse"],
    parser: Literal["h11", "httptools"],
    path: str | None,
    auth: ResourceServer | None,
) -> None:
    """Serve until the process is ended."""
    # Here, not above: who serves over standard input and output does not pay for it.
    from mcpio.http.model import HttpOptions
    from mcpio.stores import SqliteStore
    from mcpio.trio import serve_http

    options = HttpOptions(answers=answers)
    store = None if path is None else SqliteStore(path)
    serve = partial(serve_http, server, port=port, options=options, parser=parser, store=store, auth=auth)
    trio.run(partial(serve, handle_signals=True))


def serve_under_uvicorn(server: Server, port: int, parser: ParserName) -> None:
    """Serve until the process is ended."""
    import uvicorn

    from mcpio.asgi import app
    from mcpio.http.model import HttpOptions

    application = app(server, options=HttpOptions(answers="json"))
    uvicorn.run(application, host="127.0.0.1", port=port, http=parser, log_level="error", access_log=False)


def echo_server(tools: int = 1, *, is_async: bool = False) -> Server:
    """Return a server with so many tools."""
    server = Server("echo")
    if is_async:
        server.tool(name="echo")(echo_in_a_task)
    else:
        server.tool(echo)
    for number in range(1, tools):
        server.tool(name=f"tool_{number:03}")(echo)
    return server


def echo(text: str) -> str:
    """Echo the text back to the caller."""
    return text


async def echo_in_a_task(text: str) -> str:
    """Echo the text back to the caller."""
    return text


if __name__ == "__main__":
    main()
