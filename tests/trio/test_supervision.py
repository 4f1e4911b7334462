"""One server over several transports at once, in one nursery: who is there, how each is doing, and what fails alone."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from carriers import CARRIERS, added, make_server, over, run

from mcpio import Client, ConnectionLost, Phase, RequestError, RequestReceived, Server
from mcpio.trio import memory_client, open_transport, serve

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sockets of POSIX")

LISTENING = [kind for kind, carrier in CARRIERS.items() if carrier is not None]


@asynccontextmanager
async def everywhere(server: Server, directory: Path) -> AsyncIterator[dict[str, Client]]:
    """Serve over every transport, and in memory; give a client of each, in the order in which they came."""
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        clients: dict[str, Client] = {}
        for kind in LISTENING:
            place = directory / kind.replace("+", "-")
            place.mkdir()
            connect = await stack.enter_async_context(over(kind, server, place))
            clients[kind] = await connect(nursery=nursery, era="handshake")
        near, far = trio.testing.memory_stream_pair()
        nursery.start_soon(serve, server, far)
        clients["stream"] = await stack.enter_async_context(open_transport(near, era="handshake"))
        clients["memory"] = await stack.enter_async_context(memory_client(server, era="handshake"))
        yield dict(clients)
        for client in clients.values():
            await client.aclose(0)


def test_server_over_every_transport_lists_its_sessions_with_their_health(tmp_path: Path) -> None:
    server = make_server()

    async def main() -> None:
        async with everywhere(server, tmp_path) as clients, trio.open_nursery() as nursery:
            assert len(server.sessions) == len(clients) >= 6
            for client, session in zip(clients.values(), server.sessions, strict=True):
                before = session.health()
                assert await added(client, 1, 2) == 3
                after = session.health()
                assert (before.phase, before.serving, before.asked) == (Phase.OPERATING, 0, 0)
                assert after.received_bytes > before.received_bytes
                assert after.sent_bytes > before.sent_bytes
                assert (after.queued_bytes, after.dropped_logs) == (0, 0)
                assert after.age >= before.age >= 0
                assert after.silent_for is not None
                assert after.silent_for <= after.age
            for client, session in zip(clients.values(), server.sessions, strict=True):
                asked = trio.Event()
                nursery.start_soon(_wait, client, asked)
                await asked.wait()
                assert session.health().serving == 1
            nursery.cancel_scope.cancel()
        assert server.sessions == ()

    run(main)


async def _wait(client: Client, asked: trio.Event) -> None:
    await client.call_tool("wait", on_progress=lambda *_: asked.set(), timeout=None)


@pytest.mark.parametrize("kind", [*LISTENING, "stream"])
def test_failing_session_affects_no_other_on_any_transport(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server()

    async def main() -> None:
        def fail(event: Any) -> None:
            if event.__class__ is RequestReceived:
                raise RuntimeError("a fault in this session")
            handle(event)

        async with everywhere(server, tmp_path) as clients:
            session: Any = dict(zip(clients, server.sessions, strict=True))[kind]
            handle = session._handle
            session._handle = fail
            # Over HTTP the connection outlives the session, and says what became of the request.
            with pytest.raises(RequestError if "http" in kind else ConnectionLost):
                await clients.pop(kind).call_tool("wait", timeout=5)
            for client in clients.values():
                assert await added(client, 1, 2) == 3
            assert session not in server.sessions

    run(main)
    assert "a session failed" in caplog.text


def test_server_continues_over_one_transport_when_another_ends(tmp_path: Path) -> None:
    server = make_server()

    async def main() -> None:
        async with over("unix", server, tmp_path) as connect, trio.open_nursery() as nursery:
            staying = await connect(nursery=nursery)
            async with over("tcp", server, tmp_path) as connect_too:
                leaving = await connect_too(nursery=nursery)
                first, second = server.sessions
            await leaving.driver.wait_closed()
            assert await added(staying, 1, 2) == 3
            assert server.sessions == (first,)
            assert second.health().phase is Phase.CLOSED
            staying.close()

    run(main)
