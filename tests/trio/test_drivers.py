"""Clients and servers over every kind of transport, in both shapes of lifetime, and what leaves their blocks."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from lifespans import Scope
from peers import run
from runners import run_by

from mcpio.app.client import Client
from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.app.session import Session
from mcpio.errors import NoBackChannel, RequestError
from mcpio.events import CloseReason
from mcpio.trio import connect, memory_client, open_transport, serve
from mcpio.types.content import TextContent

server = Server("drivers")


@server.tool
def echo(text: str) -> str:
    return text


@server.tool
async def never_ends() -> None:
    await trio.sleep_forever()


class Joined(trio.abc.Channel[Any]):
    """Two halves of memory channels as one channel of whole messages."""

    def __init__(self, send: trio.MemorySendChannel[Any], receive: trio.MemoryReceiveChannel[Any]) -> None:
        self.halves = send, receive

    async def send(self, value: Any) -> None:
        await self.halves[0].send(value)

    async def receive(self) -> Any:
        return await self.halves[1].receive()

    async def aclose(self) -> None:
        for half in self.halves:
            half.close()
        await trio.lowlevel.checkpoint()


def channels(buffer: int = 0) -> tuple[Joined, Joined]:
    there, here = trio.open_memory_channel[Any](buffer), trio.open_memory_channel[Any](buffer)
    return Joined(there[0], here[1]), Joined(here[0], there[1])


def sockets() -> tuple[trio.SocketStream, trio.SocketStream]:
    near, far = socket.socketpair()
    return tuple(trio.SocketStream(trio.socket.from_stdlib_socket(each)) for each in (near, far))  # type: ignore[return-value]  # two of them


def tls() -> tuple[trio.SSLStream[Any], trio.SSLStream[Any]]:
    """Two ends of an encrypted stream that need no certificate."""
    contexts = [ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)]
    for context in contexts:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("AECDH:@SECLEVEL=0")
    near, far = trio.testing.memory_stream_pair()
    return trio.SSLStream(near, contexts[0]), trio.SSLStream(far, contexts[1], server_side=True)


TRANSPORTS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "memory streams": trio.testing.memory_stream_pair,
    "lockstep streams": trio.testing.lockstep_stream_pair,
    "channels": channels,
    "channels with a buffer": lambda: channels(10),
    "sockets": sockets,
    "TLS": tls,
}
over_each = pytest.mark.parametrize("make", TRANSPORTS.values(), ids=TRANSPORTS)


@asynccontextmanager
async def served(transport: Any, server: Server = server) -> AsyncIterator[trio.Nursery]:
    """Serve a transport, and see that what was started ends by itself."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, server, transport)
        yield nursery


async def says(client: Client, text: str) -> str:
    (block,) = (await client.call_tool("echo", {"text": text})).content
    assert isinstance(block, TextContent)
    return block.text


# Transports


@over_each
@run_by(trio.run)
async def test_a_client_for_the_length_of_a_block(make: Callable[[], tuple[Any, Any]]) -> None:
    near, far = make()
    async with served(far):
        async with open_transport(near, era="handshake") as client:
            assert client.server.info.name == "drivers"
            assert await says(client, "é\u2028\n" * 50_000) == "é\u2028\n" * 50_000
            with trio.move_on_after(0.01):
                await client.call_tool("never_ends")
            await client.ping()
        with pytest.raises(NoBackChannel):
            await client.ping()


@over_each
@run_by(trio.run)
async def test_connected_client_works_outside_a_block(make: Callable[[], tuple[Any, Any]]) -> None:
    near, far = make()
    async with served(far) as nursery:
        client = await connect(near, nursery=nursery)
        assert await says(client, "hi") == "hi"
        await client.aclose()
        assert client.ended is not None
        assert client.ended.reason is CloseReason.CLOSED


@pytest.mark.parametrize("binary", [False, True])
@run_by(run)
async def test_binary_option_decides_what_a_channel_carries(binary: bool) -> None:
    near, far = channels(10)
    kinds: list[type] = []
    for end in (near, far):

        async def send(value: Any, send: Any = end.send) -> None:
            kinds.append(type(value))
            await send(value)

        end.send = send  # type: ignore[method-assign]  # to look at what passes
    async with served(far), open_transport(near, binary=binary) as client:
        assert await says(client, "hi") == "hi"
    assert set(kinds) == {bytes if binary else str}


def test_non_transport_raises_type_error() -> None:
    wrong: Any = object()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            with pytest.raises(TypeError, match="a transport must be"):
                await connect(wrong, nursery=nursery)
            with pytest.raises(TypeError, match="a transport must be"):
                await serve(server, wrong)
            with pytest.raises(TypeError, match="a transport must be"):
                async with open_transport(wrong):
                    pass

    run(main)


# Lifetimes


@run_by(run)
async def test_serve_under_start_gives_the_session() -> None:
    near, far = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        session: Session = await nursery.start(serve, server, far)
        async with open_transport(near, era="handshake") as client:
            await client.ping()
            assert session in server.sessions
            assert session.connection.peer is not None
    assert session.ended is not None
    assert session not in server.sessions


def test_lifespan_error_propagates_from_start() -> None:
    error = ValueError("no database")

    async def main() -> None:
        near, far = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            broken = Server("s", lifespan=Scope(enter=error))
            with pytest.raises(ValueError, match="no database") as caught:
                await nursery.start(serve, broken, far)
            assert caught.value is error
            assert await near.receive_some() == b""

    run(main)


def test_client_outside_trio_raises_runtime_error() -> None:
    async def main() -> None:
        async with open_transport(trio.testing.memory_stream_pair()[0]):
            pass

    with pytest.raises(RuntimeError, match=r"need Trio, as in trio\.run\(main\); on asyncio, take mcpio\.asyncio"):
        asyncio.run(main())


# What leaves a block


def test_body_error_propagates_from_a_cancelled_block() -> None:
    error = ValueError("in the middle of it")

    async def main() -> None:
        near, far = trio.testing.memory_stream_pair()
        async with served(far):
            with trio.CancelScope() as scope:
                with pytest.raises(ValueError, match="in the middle") as caught:
                    await fail(near, scope)
                assert caught.value is error

    async def fail(near: trio.abc.Stream, scope: trio.CancelScope) -> None:
        async with open_transport(near):
            scope.cancel()
            raise error

    run(main)


@run_by(run)
async def test_failed_call_propagates_through_the_nursery_of_its_caller() -> None:
    near, far = trio.testing.memory_stream_pair()
    async with served(far), open_transport(near, era="handshake") as client:
        with pytest.RaisesGroup(RequestError):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "none")
                nursery.start_soon(client.call_tool, "never_ends")
        await client.ping()


@run_by(run)
async def test_client_ends_with_its_cancelled_nursery() -> None:
    near, far = trio.testing.memory_stream_pair()
    async with served(far):
        async with trio.open_nursery() as nursery:
            client = await connect(near, nursery=nursery)
            nursery.cancel_scope.cancel()
        assert client.ended is not None
        assert client.ended.reason is CloseReason.ABORTED
        client.close()
        await client.aclose()


async def use_task_group() -> None:
    async with asyncio.TaskGroup():
        pass


@pytest.mark.parametrize(
    "use",
    [
        lambda: asyncio.sleep(0),
        lambda: asyncio.sleep(1),
        lambda: asyncio.Event().wait(),
        lambda: asyncio.Queue().get(),
        lambda: asyncio.gather(asyncio.sleep(0)),
        lambda: asyncio.to_thread(int),
        use_task_group,
    ],
    ids=["sleep-0", "sleep", "event", "queue", "gather", "thread", "group"],
)
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:There is no current event loop:DeprecationWarning")
def test_tool_that_needs_asyncio_gets_an_error_that_names_trio(use: Callable[[], Awaitable[Any]]) -> None:
    confused = Server("s")

    @confused.tool
    async def nap() -> None:
        await use()

    @confused.tool
    async def rest(ctx: Context) -> str:
        await ctx.sleep(5)
        return "rested"

    async def main() -> None:
        async with memory_client(confused) as client:
            assert "there is no asyncio loop here" in (await client.call_tool("nap")).text
            assert (await client.call_tool("rest")).text == "rested"

    run(main)
    # Before Python 3.14, ``gather`` makes an event loop where there is none.
    with contextlib.suppress(RuntimeError):
        asyncio.get_event_loop().close()
    asyncio.set_event_loop(None)
