"""An end that closes while the other still sends: to close a socket over unread input would take the last output."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from certificates import serving_as, trusting
from eachloop import EachLoop, Here

from mcpio import Context, McpError, NoBackChannel, Server
from mcpio.testing.transport_kit._loops import current_loop
from mcpio.testing.transport_kit._server import NOTE
from mcpio.types.base import CustomNotification

pytestmark = pytest.mark.long

ROUNDS = 2
NOTES = 100
SIZE = 8000
"""Together more than a socket holds."""


@pytest.fixture
def received() -> list[int]:
    return []


@pytest.fixture
def server(received: list[int]) -> Server:
    server = Server("here", "1.0")
    server.notification_handlers[NOTE] = lambda _, note: received.append(note.params["number"])

    @server.tool
    async def flood(ctx: Context) -> None:
        for _ in range(200):
            for _ in range(20):
                ctx.info("x" * 2000)
            await current_loop().runtime.sleep(0.001)

    @server.tool
    def last(ctx: Context) -> str:
        ctx.session.close()
        return "x" * NOTES * SIZE

    return server


@asynccontextmanager
async def serving(here: Here, kind: str, server: Server, path: Path) -> AsyncIterator[Any]:
    """Serve for a block; give what returns the block of a client, with a function that connects first."""
    options: dict[str, Any] = {"path": path / "s"} if kind == "unix" else {}
    client: dict[str, Any] = {"era": "handshake"}
    if kind == "tls":
        options["ssl_context"] = serving_as("localhost")
        client |= {"ssl_context": trusting(), "server_hostname": "localhost"}
    async with here.listening("unix" if kind == "unix" else "tcp", server, **options) as (listening, _):

        async def opened() -> Any:
            if kind == "unix":
                return here.drivers.open_unix(path / "s", **client)
            if kind != "streams":
                return here.drivers.open_tcp("127.0.0.1", listening.port, **client)
            if here.is_trio:
                return here.open_client((await trio.open_tcp_stream("127.0.0.1", listening.port),), **client)
            return here.open_client(await asyncio.open_connection("127.0.0.1", listening.port), **client)

        yield opened


KINDS = pytest.mark.parametrize("kind", ["tcp", "unix", "tls", "streams"])


@pytest.mark.req("LIFE-17")
@KINDS
def test_last_messages_of_a_client_arrive_though_the_server_keeps_sending(
    kind: str, server: Server, received: list[int], each_loop: EachLoop, tmp_path: Path
) -> None:
    async def call(client: Any) -> None:
        with pytest.raises(McpError):
            await client.call_tool("flood")

    async def main(here: Here) -> None:
        async with serving(here, kind, server, tmp_path) as opened:
            for _ in range(ROUNDS):
                received.clear()
                async with here.tasks() as tasks, await opened() as client:
                    tasks.spawn(call(client))
                    await here.sleep(0.02)
                    for number in range(NOTES):
                        client.notify(CustomNotification(NOTE, {"number": number, "text": "x" * SIZE}))
                while server.sessions and len(received) < NOTES:
                    await here.sleep(0.01)
                assert received == [*range(NOTES)]

    each_loop.run(main)


@KINDS
def test_last_answer_of_a_server_arrives_though_the_client_keeps_sending(
    kind: str, server: Server, each_loop: EachLoop, tmp_path: Path
) -> None:
    async def notify(here: Here, client: Any) -> None:
        with suppress(NoBackChannel):
            while True:
                for _ in range(20):
                    client.notify(CustomNotification(NOTE, {"number": 0, "text": "x" * 2000}))
                await here.sleep(0.001)

    async def main(here: Here) -> None:
        async with serving(here, kind, server, tmp_path) as opened:
            for _ in range(ROUNDS):
                async with here.tasks() as tasks, await opened() as client:
                    notifying = tasks.spawn(notify(here, client))
                    await here.sleep(0.02)
                    assert len((await client.call_tool("last")).text) == NOTES * SIZE
                    notifying.cancel()

    each_loop.run(main)
