"""How one session on asyncio ends: peers that do not read, connections that break, and ``close`` from everywhere."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys

import pytest
from peers import a_server, call, lines
from runners import run_by
from streams import Raw, conversation, joined, raw_client, raw_server, run, run_in_real_time, served, settle

from mcpio import CloseReason, ConnectFailed, ConnectionLost, NoBackChannel
from mcpio.asyncio import connect, open_streams, serve

# Connections that break


@pytest.mark.parametrize("when", ["at once", "later"])
@run_by(run)
async def test_a_handshake_on_a_connection_that_ends_fails(when: str) -> None:
    near, far = await joined()
    raw = Raw(far)
    closing = asyncio.ensure_future(raw.close())
    if when == "at once":
        await closing
    with pytest.raises(ConnectFailed, match=r"^the handshake failed: initialize: the connection ended") as caught:
        await connect(*near, era="handshake")
    await closing
    assert isinstance(caught.value.__cause__, ConnectionLost)
    assert near[1].is_closing()


@run_by(run_in_real_time)
async def test_a_reset_is_a_lost_connection_with_its_cause() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    near = await asyncio.open_connection(*listening.getsockname())
    there, _ = listening.accept()
    listening.close()
    raw = Raw(await asyncio.open_connection(sock=there))
    greeting = asyncio.ensure_future(raw.greet())
    async with open_streams(*near, era="handshake") as client:
        await greeting
        calling = asyncio.ensure_future(client.call_tool("x"))
        await raw.receive()
        there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raw.reset()
        with pytest.raises(ConnectionLost) as caught:
            await calling
        assert isinstance(caught.value.__cause__, ConnectionResetError)
        with pytest.raises(NoBackChannel):
            await client.ping()
        assert client.ended is not None
        assert client.ended.reason is CloseReason.LOST


@run_by(run)
async def test_closed_writer_is_a_lost_connection() -> None:
    near, far = await joined()
    async with served(a_server(), far), open_streams(*near, era="handshake") as client:
        near[1].close()
        with pytest.raises(ConnectionLost):
            await client.ping()


def test_input_sent_before_the_peer_stopped_reading_is_processed() -> None:
    """A server answers and dies: the answer counts, although nothing can be written to it any more."""
    program = "import os, sys; os.close(0); sys.stdout.write(sys.argv[1]); sys.stdout.flush()"
    result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "r", "version": "1"}}

    async def main() -> None:
        argv = [sys.executable, "-c", program, lines({"id": 1, "result": result}).decode()]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe)
        await process.wait()
        assert process.stdout is not None
        assert process.stdin is not None
        client = await connect(process.stdout, process.stdin, era="handshake")
        assert client.server is not None
        await client.aclose()

    run_in_real_time(main)


# Close


@run_by(run)
async def test_the_end_of_the_input_lets_a_server_answer_all() -> None:
    near, far = await joined(narrow=True)
    raw = Raw(near)
    async with served(a_server(), far) as serving:
        await raw.shake_hands()
        await raw.send(call(1, "takes", seconds=100, size=1_000_000))
        raw.writer.write_eof()
        # It reads late, and yet gets all of it.
        await asyncio.sleep(500)
        assert not serving.done()
        answer = await raw.reader.read()
        assert len(answer) > 1_000_000
        assert answer.endswith(b"\n")
        await serving
    await raw.close()


# Peers that do not read


@run_by(run)
async def test_peer_that_does_not_read_delays_no_task_and_no_timeout() -> None:
    server = a_server()
    async with raw_client(server, narrow=True) as (raw, session):
        await raw.send(*[call(number, "large", size=1_000_000) for number in range(1, 5)])
        await settle()
        assert session.connection.stats.queued_bytes > 0
        async with conversation(server) as client:
            assert (await client.call_tool("large", {"size": 1_000_000})).text == "x" * 1_000_000
        assert [(await raw.receive())["id"] for _ in range(4)] == [1, 2, 3, 4]


@run_by(run)
async def test_a_caller_does_not_wait_for_a_server_that_does_not_read() -> None:
    async with raw_server(narrow=True) as (_, client):
        sending = [asyncio.ensure_future(client.call_tool("x", {"text": "x" * 1_000_000}, timeout=3)) for _ in "abc"]
        outcomes = await asyncio.gather(*sending, return_exceptions=True)
        assert {type(outcome).__name__ for outcome in outcomes} == {"RequestTimeout"}
        assert asyncio.get_running_loop().time() == pytest.approx(3)
        client.close(0)


@run_by(run)
async def test_client_that_reads_nothing_is_disconnected_beyond_queued_bytes() -> None:
    async with raw_client(a_server(queued_bytes=1_500_000), narrow=True) as (raw, session):
        await raw.send(*[call(number, "large", size=1_000_000) for number in range(1, 2)])
        await settle()
        await raw.send(*[call(number, "large", size=1_000_000) for number in range(2, 5)])
        await session.driver.wait_closed()
        assert session.ended is not None
        assert session.ended.reason is CloseReason.SLOW_CONSUMER
        # It had 30 seconds, and one for each 4 KiB that the transport still held.
        assert asyncio.get_running_loop().time() == pytest.approx(30 + 1_000_000 / 4096, abs=4)
        await raw.reader.read()


@run_by(run)
async def test_a_peer_that_does_not_read_cannot_put_off_the_end_beyond_the_grace() -> None:
    async with raw_client(a_server(), narrow=True) as (raw, session):
        await raw.send(call(1, "large", size=1_000_000))
        await settle()
        session.close(60)
        session.close(3)
        await session.driver.wait_closed()
        assert asyncio.get_running_loop().time() == pytest.approx(4, abs=1)


def test_flooding_client_is_read_only_as_fast_as_it_reads() -> None:
    async def main() -> None:
        async with raw_client(a_server(), narrow=True) as (raw, session):
            ask = lines(call(1, "large", size=10_000))
            flooding = asyncio.ensure_future(flood(raw, ask))
            await settle()
            assert not flooding.done()
            assert not session.connection.wants_read
            flooding.cancel()
            with pytest.raises(asyncio.CancelledError):
                await flooding

    async def flood(raw: Raw, ask: bytes) -> None:
        for number in range(2, 100_000):
            raw.writer.write(ask.replace(b'"id": 1', b'"id": %d' % number))
            await raw.writer.drain()

    run(main)


# Cancellation


@pytest.mark.parametrize("times", [1, 3])
@run_by(run)
async def test_a_server_that_is_cancelled_closes_its_writer(times: int) -> None:
    near, far = await joined()
    server = a_server()
    raw = Raw(near)
    serving = asyncio.ensure_future(serve(server, *far))
    await raw.shake_hands()
    await raw.send(call(1, "takes", seconds=100))
    await settle()
    (session,) = server.sessions
    for _ in range(times):
        serving.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert await raw.at_end()
    assert session.ended is not None
    assert session.ended.reason is CloseReason.ABORTED
    assert server.sessions == ()
    await session.driver.wait_closed()
    await raw.close()


@pytest.mark.parametrize("turns", range(6))
@run_by(run)
async def test_a_server_that_is_cancelled_at_any_turn_leaves_nothing(turns: int) -> None:
    near, far = await joined()
    serving = asyncio.ensure_future(serve(a_server(), *far))
    for _ in range(turns):
        await asyncio.sleep(0)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    if turns:
        assert await Raw(near).at_end()
    else:
        far[1].close()
    await Raw(near).close()


@pytest.mark.parametrize("turns", range(12))
@run_by(run)
async def test_client_cancelled_while_connecting_leaks_nothing(turns: int) -> None:
    near, far = await joined()
    connecting = asyncio.ensure_future(connect(*near))
    for _ in range(turns):
        await asyncio.sleep(0)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    if turns:
        while await far[0].read(100):
            pass
    else:
        near[1].close()
    await Raw(far).close()


@pytest.mark.parametrize("turns", range(6))
@run_by(run)
async def test_waiting_calls_end_despite_repeated_cancellation_of_the_clients_tasks(turns: int) -> None:
    near, far = await joined()
    async with served(a_server(), far):
        known = asyncio.all_tasks()
        client = await connect(*near)
        tasks = asyncio.all_tasks() - known
        waiting = asyncio.ensure_future(client.call_tool("takes", {"seconds": 1e6}))
        await settle()
        for _ in range(2):
            for task in tasks:
                task.cancel()
            for _ in range(turns):
                await asyncio.sleep(0)
        async with asyncio.timeout(10):
            with pytest.raises(ConnectionLost):
                await waiting
        near[1].close()
