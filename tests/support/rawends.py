"""A server and a client of ours, each with the far end of its WebSocket in the hands of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import trio
from rawframes import Far, FarClient, FarServer, Lost

from mcpio import Client, ConnectFailed, Limits, Options, Server
from mcpio.trio import open_websocket, serve_websocket
from mcpio.websocket import WebSocketOptions

LIMITS = Limits(message_bytes=16 * 1024 * 1024, high_water=64 * 1024 * 1024)


def played(play: Callable[[], Awaitable[None]], seconds: float = 20) -> None:
    """Run something that ends in time."""

    async def main() -> None:
        with trio.fail_after(seconds):
            await play()

    trio.run(main)


@asynccontextmanager
async def served(server: Server | None = None, **options: Any) -> AsyncIterator[Callable[[], Awaitable[FarClient]]]:
    """Serve for a block; give what dials."""
    site = server or Server("near", "1.0", options=Options(limits=LIMITS))

    async def serve(*, task_status: trio.TaskStatus[Any]) -> None:
        await serve_websocket(site, port=0, task_status=task_status, **options)

    async with trio.open_nursery() as nursery:
        listening = await nursery.start(serve)

        async def dial() -> FarClient:
            return FarClient(await trio.open_tcp_stream("127.0.0.1", listening.port), f"127.0.0.1:{listening.port}")

        yield dial
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def near_server(
    server: Server | None = None,
    fields: dict[str, str] | None = None,
    websocket: WebSocketOptions | None = None,
    **options: Any,
) -> AsyncIterator[FarClient]:
    """Give the far end of a server of ours, after the handshakes of both protocols.

    ``fields`` are those of the request, ``websocket`` and ``options`` those of ``serve_websocket``.
    """
    async with served(server, options=websocket, **options) as dial, await dial() as far:
        await far.open(**(fields or {}))
        yield far


@asynccontextmanager
async def near_client(
    use: Callable[[Client], Awaitable[None]] | None = None, fields: dict[str, str] | None = None, **options: Any
) -> AsyncIterator[FarServer]:
    """Give the far end of a client of ours, after the handshakes of both protocols.

    ``use`` is what the client does; without it, nothing, until the connection is over. ``fields`` are those of the
    answer, and ``options`` those of ``open_websocket``.
    """
    given: dict[str, Any] = {"options": Options(limits=LIMITS), "era": "handshake"} | options

    async def call(url: str) -> None:
        async with open_websocket(url, **given) as client:
            await (use(client) if use is not None else client.driver.wait_closed())

    async with called(call) as far:
        await far.open(**(fields or {}))
        yield far


async def refused(answer: dict[str, str] | bytes, **options: Any) -> ConnectFailed:
    """Return the error of a client of ours that gets an answer with these fields, or these bytes, and cannot use it."""
    errors: list[ConnectFailed] = []

    async def call(url: str) -> None:
        try:
            async with open_websocket(url, **options):
                pass
        except ConnectFailed as error:
            errors.append(error)

    async with called(call) as far:
        with suppress(Lost):
            if isinstance(answer, bytes):
                await far.head()
                await far.send_bytes(answer)
            else:
                await far.open(**answer)
    (error,) = errors
    return error


@asynccontextmanager
async def called(call: Callable[[str], Awaitable[None]]) -> AsyncIterator[FarServer]:
    """Have something call an address, and give the other end of it."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener, trio.open_nursery() as nursery:
        nursery.start_soon(call, f"ws://127.0.0.1:{listener.socket.getsockname()[1]}/mcp")
        async with FarServer(await listener.accept()) as far:
            yield far


ROLES = ("server", "client")
END_OF: dict[str, Callable[..., AbstractAsyncContextManager[Far]]] = {"server": near_server, "client": near_client}
"""What gives the far end of each role of ours."""
