"""How one session ends: peers that do not read, transports that break, and ``close`` from everywhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from peers import HELLO, HELLO_INFO, WithRoom, a_server, call, lines, read_to_end, run
from runners import run_by

from mcpio.app.client import Client
from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.errors import ConnectFailed, ConnectionLost, McpError, NoBackChannel
from mcpio.trio import connect, open_transport, serve
from mcpio.trio._drivers import adapter_for, start_client

# Transports that break


class Odd(trio.abc.HalfCloseableStream):
    """A stream whose calls do what a test says."""

    def __init__(self, **calls: Callable[[], Awaitable[Any]]) -> None:
        self.calls = calls

    async def _do(self, name: str) -> Any:
        await trio.lowlevel.checkpoint()
        return await self.calls[name]() if name in self.calls else None

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._do("send_all")

    async def wait_send_all_might_not_block(self) -> None:
        await self._do("wait")

    async def send_eof(self) -> None:
        await self._do("send_eof")

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        data: bytes | None = await self._do("receive_some")
        if data is None:
            await trio.sleep_forever()
        return data or b""

    async def aclose(self) -> None:
        await self._do("aclose")


def raising(error: BaseException) -> Callable[[], Awaitable[Any]]:
    async def call() -> None:
        raise error

    return call


BREAKS = [trio.BrokenResourceError("reset"), trio.ClosedResourceError("closed"), ConnectionResetError("reset")]
FAULTS = [ValueError("a fault"), trio.BusyResourceError("taken"), ExceptionGroup("several", [ValueError("a fault")])]


@pytest.mark.parametrize("error", [*BREAKS, *FAULTS], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("where", ["receive_some", "send_all"])
def test_a_transport_that_raises_is_a_lost_connection_with_a_cause(
    where: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            with pytest.raises(
                ConnectFailed, match=r"^the handshake failed: initialize: the connection ended \(the channel broke\)"
            ) as caught:
                await connect(Odd(**{where: raising(error)}), nursery=nursery, era="handshake")
            assert isinstance(caught.value.__cause__, ConnectionLost)
            assert caught.value.__cause__.__cause__ is error

    run(main)
    assert [record.getMessage() for record in caplog.records] == ["the transport failed"] * (error in FAULTS)


@pytest.mark.parametrize("where", ["send_eof", "aclose"])
@pytest.mark.parametrize("error", [*BREAKS, *FAULTS], ids=lambda error: type(error).__name__)
def test_transport_failure_at_the_end_does_not_prevent_the_end(
    where: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def eof() -> bytes:
        return b""

    async def main() -> None:
        await serve(a_server(), Odd(receive_some=eof, **{where: raising(error)}))

    run(main)
    assert len(caplog.records) <= 1


def test_a_transport_that_never_closes_is_closed_forcefully() -> None:
    cancelled: list[str] = []

    async def hang() -> None:
        try:
            await trio.sleep_forever()
        finally:
            cancelled.append("aclose")

    async def eof() -> bytes:
        return b""

    async def main() -> None:
        await serve(a_server(), Odd(receive_some=eof, aclose=hang))
        assert trio.current_time() == 1

    run(main)
    assert cancelled == ["aclose"]


def test_messages_before_the_peers_end_are_handled() -> None:
    """A server answers and dies: the answer counts, although nothing can be written any more."""
    near, heard = trio.testing.MemorySendStream(), trio.testing.MemoryReceiveStream()
    answers: list[object] = []

    async def greet() -> None:
        await near.get_data()
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": HELLO_INFO}
        heard.put_data(lines({"id": 1, "result": result}))

    async def answer_late() -> None:
        await trio.sleep(0.5)
        heard.put_data(lines({"id": 2, "result": {"content": []}}))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(greet)
            async with open_transport(trio.StapledStream(near, heard), era="handshake") as client:

                async def ask() -> None:
                    answers.append(await client.call_tool("first"))

                nursery.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
                near.send_all_hook = raising(trio.BrokenResourceError("nobody reads"))
                nursery.start_soon(answer_late)
                with pytest.raises(ConnectionLost) as caught:
                    await client.call_tool("second")
                assert isinstance(caught.value.__cause__, trio.BrokenResourceError)
                assert trio.current_time() == 1

    run(main)
    assert len(answers) == 1


# Close


@asynccontextmanager
async def connected(**options: Any) -> AsyncIterator[tuple[Client, trio.Nursery]]:
    """Give a client that is tied to no block, and the nursery of both sides."""
    near, far = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, a_server(), far)
        yield await connect(near, nursery=nursery, **options, era="handshake"), nursery


def test_close_from_a_handler_of_the_session_itself() -> None:
    server = Server("s")

    @server.tool
    async def hang_up(ctx: Context) -> None:
        ctx.session.close(1)
        await trio.sleep_forever()

    async def main() -> None:
        near, far = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, server, far)
            client = await connect(near, nursery=nursery)
            with pytest.raises(ConnectionLost, match=r"^tools/call: the connection ended \(closed by the peer\)$"):
                await client.call_tool("hang_up")
        assert trio.current_time() == 1

    run(main)


def test_close_during_the_handshake() -> None:
    class Hasty(Client):
        async def initialize(self) -> None:
            self.close()
            await super().initialize()

    async def main() -> None:
        near, _ = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            with pytest.raises(ConnectFailed, match=r"^the connection ended while .* \(closed here\)$"):
                await start_client(adapter_for(near), nursery, {}, Hasty)

    run(main)


@run_by(run)
async def test_nothing_is_sent_on_a_closed_connection() -> None:
    async with connected() as (client, _):
        await client.aclose()
        with pytest.raises(NoBackChannel, match=r"^the connection is closed$"):
            await client.ping()
        with pytest.raises(NoBackChannel):
            client.notify_roots_changed()


@pytest.mark.req("LIFE-17")
def test_calls_that_wait_when_the_client_is_closed_are_lost() -> None:
    outcomes: list[McpError] = []

    async def main() -> None:
        async with connected() as (client, nursery):

            async def ask() -> None:
                try:
                    await client.call_tool("never_ends")
                except McpError as error:
                    outcomes.append(error)

            for _ in range(300):
                nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            client.close()
            await client.driver.wait_closed()
            nursery.cancel_scope.cancel()

    run(main)
    assert [str(error) for error in outcomes] == ["tools/call: the connection ended (closed here)"] * 300


@pytest.mark.parametrize("has_room", [True, False])
def test_cancelled_block_still_sends_cancellations(has_room: bool) -> None:
    """Otherwise a server would go on with them until it is killed."""
    near, far = trio.testing.memory_stream_pair()
    server = a_server()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, server, far)
            with trio.move_on_after(1):
                async with open_transport(WithRoom(near, far.receive_stream) if has_room else near) as client:
                    await client.call_tool("never_ends")
        assert trio.current_time() == 1

    run(main)
    assert server.instructions == "cancelled"


@pytest.mark.parametrize("reads_the_call", [True, False])
def test_a_cancelled_block_does_not_wait_long_for_a_peer_that_reads_nothing(reads_the_call: bool) -> None:
    async def greet(far: trio.abc.Stream) -> None:
        await far.receive_some()
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": HELLO_INFO}
        await far.send_all(lines({"id": 1, "result": result}))
        received = b""
        while reads_the_call and b"tools/call" not in received:
            received += await far.receive_some()

    async def main() -> None:
        near, far = trio.testing.lockstep_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(greet, far)
            with trio.move_on_after(1):
                async with open_transport(near, era="handshake") as client:
                    await client.call_tool("never_ends")
        assert 1 <= trio.current_time() <= 1.5

    run(main)


@pytest.mark.parametrize("ends_first", [True, False])
def test_broken_peer_is_not_waited_for(ends_first: bool) -> None:
    over: list[float] = []
    told = trio.Event()

    async def broken() -> None:
        if ends_first:
            await told.wait()
        else:
            told.set()
        raise trio.BrokenResourceError

    said = [lines(HELLO), lines({"method": "notifications/initialized"}, {"id": 1, "method": "ping"}), b""]

    async def say() -> bytes:
        if len(said) == 1:
            if ends_first:
                told.set()
            else:
                await told.wait()
                await trio.lowlevel.checkpoint()
        return said.pop(0)

    async def main() -> None:
        await serve(a_server(), Odd(receive_some=say, send_all=broken))
        over.append(trio.current_time())

    run(main)
    assert over == [pytest.approx(0, abs=0.01)]


# A client that ended its side

INITIALIZED: dict[str, Any] = {"method": "notifications/initialized"}


@pytest.mark.parametrize("seconds", [4.9, 5.1])
@run_by(run)
async def test_end_timeout_bounds_requests_of_a_half_closed_client(seconds: float) -> None:
    near, far = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(serve, a_server(), far, end_timeout=5))
        await near.send_all(lines(HELLO, INITIALIZED, call(1, "takes", seconds=seconds)))
        await trio.testing.wait_all_tasks_blocked()
        await near.send_eof()
        said = await read_to_end(near)
    assert (b'"id":1,"result"' in said) is (seconds < 5)
    assert trio.current_time() == pytest.approx(min(seconds, 5))


def test_handlers_are_cancelled_when_a_client_that_ended_its_side_is_given_up() -> None:
    """Also those of requests that waited for room."""
    server = a_server(incoming_requests=2)

    async def main() -> None:
        near, far = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(serve, server, far, end_timeout=5))
            calls = [call(number, "never_ends") for number in range(1, 9)]
            await near.send_all(lines(HELLO, INITIALIZED, *calls))
            await near.send_eof()
            await read_to_end(near)
        assert trio.current_time() == 5

    run(main)
    assert server.instructions == "cancelled"


@run_by(run)
async def test_half_closed_client_is_answered_without_a_limit_by_default() -> None:
    near, far = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, a_server(), far)
        await near.send_all(lines(HELLO, INITIALIZED, call(1, "takes", seconds=100_000)))
        await near.send_eof()
        assert b'"id":1,"result"' in await read_to_end(near)
