"""One session over one stream: requests, handlers and peers of every temper, on a clock that jumps."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from busy import busy_server
from peers import run

from mcpio.app.client import Client
from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.app.session import Session
from mcpio.engine.limits import Timeout
from mcpio.errors import RequestError, RequestTimeout
from mcpio.trio import open_transport, serve
from mcpio.types import PingRequest
from mcpio.types.content import TextContent
from mcpio.types.tools import CallToolResult

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}


@asynccontextmanager
async def conversation(server: Server, **options: Any) -> AsyncIterator[Client]:
    near, far = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, server, far)
        async with open_transport(near, **options) as client:
            yield client


class Raw:
    """The far end of a stream by hand: JSON in, JSON out."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.unread = b""
        self.has_greeted = trio.Event()

    async def send(self, *messages: dict[str, Any]) -> None:
        await self.stream.send_all(b"".join(json.dumps({"jsonrpc": "2.0", **m}).encode() + b"\n" for m in messages))

    async def receive(self) -> dict[str, Any]:
        while b"\n" not in self.unread:
            data = await self.stream.receive_some()
            assert data, f"the end came after {self.unread!r}"
            self.unread += data
        line, _, self.unread = self.unread.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    async def at_end(self) -> bool:
        return not self.unread and not await self.stream.receive_some()

    async def shake_hands(self) -> None:
        await self.send({"id": "hello", "method": "initialize", "params": HELLO})
        assert (await self.receive())["id"] == "hello"
        await self.send({"method": "notifications/initialized"})

    async def greet(self) -> None:
        """Be the server of a handshake."""
        request = await self.receive()
        result = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "raw", "version": "1"},
        }
        await self.send({"id": request["id"], "result": result})
        assert (await self.receive())["method"] == "notifications/initialized"
        self.has_greeted.set()

    def call(self, id: Any, name: str, **arguments: Any) -> dict[str, Any]:
        return {"id": id, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


@asynccontextmanager
async def raw_client(server: Server) -> AsyncIterator[tuple[Raw, Session]]:
    near, far = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        session = await nursery.start(serve, server, far)
        raw = Raw(near)
        await raw.shake_hands()
        yield raw, session
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def raw_server(**options: Any) -> AsyncIterator[tuple[Raw, Client]]:
    near, far = trio.testing.memory_stream_pair()
    raw = Raw(far)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(raw.greet)
        async with open_transport(near, **options) as client:
            await raw.has_greeted.wait()
            yield raw, client


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


# Requests


class ByThrees(trio.abc.ReceiveStream):
    """The reading end of a stream, which takes three bytes at a time."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self.stream = stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return bytes(await self.stream.receive_some(3))

    async def aclose(self) -> None:
        await self.stream.aclose()


@pytest.mark.req("CANC-01", "STDIO-02")
@pytest.mark.parametrize("turns", range(0, 120, 8))
def test_cancelled_call_truncates_no_message(turns: int) -> None:
    """Wherever in the writing of its request a caller is cancelled, the server reads whole lines."""
    received: list[dict[str, Any]] = []

    async def main() -> None:
        near, far = trio.testing.lockstep_stream_pair()
        # A writer waits until every byte is read.
        raw = Raw(trio.StapledStream(far.send_stream, ByThrees(far.receive_stream)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(raw.greet)
            async with open_transport(near, era="handshake") as client, trio.open_nursery() as calls:
                await raw.has_greeted.wait()
                nursery.start_soon(read_all, raw)
                calls.start_soon(client.call_tool, "slow", {"text": "x" * 100})
                for _ in range(turns):
                    await trio.lowlevel.checkpoint()
                calls.cancel_scope.cancel()

    async def read_all(raw: Raw) -> None:
        while not received or received[-1]["method"] != "notifications/cancelled":
            received.append(await raw.receive())
        assert await raw.at_end()

    run(main)
    assert [message["method"] for message in received] == ["tools/call", "notifications/cancelled"]
    assert received[1]["params"]["requestId"] == received[0]["id"]


@pytest.mark.req("TIME-01", "TIME-02")
def test_timeout_ends_the_call_and_notifies_the_server() -> None:
    async def main() -> None:
        async with raw_server(era="handshake") as (raw, client):
            began = trio.current_time()
            with pytest.raises(RequestTimeout, match=r"^tools/call: no answer within 3 s$"):
                await client.call_tool("slow", timeout=3)
            assert trio.current_time() - began == 3
            request, cancelled = await raw.receive(), await raw.receive()
            assert cancelled["method"] == "notifications/cancelled"
            assert cancelled["params"]["requestId"] == request["id"]
            with pytest.raises(RequestTimeout):
                await client.ping(timeout=0)

    run(main)


@pytest.mark.req("TIME-03")
def test_progress_puts_off_the_idle_limit_but_not_the_total() -> None:
    async def main() -> None:
        async with raw_server(era="handshake") as (raw, client), trio.open_nursery() as nursery:

            async def report() -> None:
                request = await raw.receive()
                token = request["params"]["_meta"]["progressToken"]
                for progress in range(1, 100):
                    await trio.sleep(1)
                    params = {"progressToken": token, "progress": progress, "total": 99, "message": "on it"}
                    await raw.send({"method": "notifications/progress", "params": params})

            seen: list[tuple[float, float | None, str | None]] = []
            nursery.start_soon(report)
            with pytest.raises(RequestTimeout, match=r"no answer within 10 s$") as caught:
                await client.call_tool(
                    "slow", timeout=Timeout(10, idle=2), on_progress=lambda *report: seen.append(report)
                )
            assert caught.value.kind == "total"
            assert seen[:2] == [(1, 99, "on it"), (2, 99, "on it")]
            assert len(seen) in (9, 10)
            nursery.cancel_scope.cancel()

    run(main)


def test_failing_progress_callback_does_not_affect_the_call(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")

    @server.tool
    async def count(ctx: Context) -> int:
        for number in range(3):
            ctx.progress(number)
            await trio.sleep(1)
        return 3

    def fail(*_: object) -> None:
        raise ValueError("not today")

    async def main() -> None:
        async with conversation(server) as client:
            result = await client.call_tool("count", on_progress=fail)
            assert result.structured_content == {"result": 3}

    run(main)
    first, *again = [record.getMessage() for record in caplog.records]
    assert first == "a progress callback failed"
    assert again == ["a progress callback failed again: ValueError('not today')"] * 2


# Handlers

busy, ended = busy_server()


@busy.tool
async def fails_in_a_nursery() -> None:
    async def worker() -> None:
        await trio.sleep(1)
        raise ValueError("the reason")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker)
        await trio.sleep_forever()


@busy.tool
async def fails_when_cancelled() -> None:
    async def worker() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("while it was being cancelled")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker)
        await trio.sleep_forever()


@pytest.mark.parametrize("name", ["fails", "fails_later"])
def test_raising_handler_fails_only_its_request(name: str) -> None:
    async def main() -> None:
        async with conversation(busy) as client:
            result = await client.call_tool(name)
            assert result.is_error
            assert text_of(result) == f"{name} failed: ValueError: the reason"
            with pytest.raises(RequestError, match="not at this hour") as caught:
                await client.call_tool("refuses")
            assert (caught.value.code, caught.value.is_retryable()) == (1003, True)
            result = await client.call_tool("fails_in_a_nursery")
            assert result.is_error
            assert text_of(await client.call_tool("echo", {"text": "hi"})) == "hi"

    run(main)


@pytest.mark.req("CANC-05")
def test_a_cancelled_handler_ends_and_is_not_answered() -> None:
    async def main() -> None:
        async with raw_client(busy) as (raw, _):
            ended.clear()
            await raw.send(raw.call("a", "never_ends"))
            await trio.testing.wait_all_tasks_blocked()
            assert ended == []
            await raw.send({"method": "notifications/cancelled", "params": {"requestId": "a"}})
            await raw.send({"id": "b", "method": "ping"})
            assert (await raw.receive())["id"] == "b"
            assert ended == ["never_ends"]

    run(main)


@pytest.mark.req("CANC-05")
def test_handler_that_raises_during_cancellation_affects_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with conversation(busy) as client:
            with trio.move_on_after(1) as scope:
                await client.call_tool("fails_when_cancelled")
            assert scope.cancelled_caught
            assert text_of(await client.call_tool("echo", {"text": "hi"})) == "hi"

    run(main)
    assert [record.getMessage() for record in caplog.records] == ["the task of a handler failed"]


def test_failing_handler_of_a_cancelled_server_raises_no_group() -> None:
    async def main() -> None:
        near, far = trio.testing.memory_stream_pair()
        raw = Raw(near)
        with trio.move_on_after(5) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve, busy, far)
                await raw.shake_hands()
                await raw.send(raw.call(1, "fails_when_cancelled"))
        assert scope.cancelled_caught

    run(main)


def test_handlers_in_threads_do_not_delay_others() -> None:
    server, release = Server("s"), threading.Event()

    @server.tool(blocking=True)
    def waits(ctx: Context) -> str:
        ctx.progress(1, 2, "waiting")
        release.wait()
        return threading.current_thread().name

    @server.tool
    def releases() -> None:
        release.set()

    async def main() -> None:
        async with conversation(server, era="handshake") as client, trio.open_nursery() as nursery:
            seen: list[Any] = []

            async def call() -> None:
                seen.append(await client.call_tool("waits", on_progress=lambda *report: seen.append(report)))

            nursery.start_soon(call)
            while not seen:
                await client.ping()
            await client.call_tool("releases")
            while len(seen) < 2:
                await client.ping()
            assert seen[0] == (1, 2, "waiting")
            assert seen[1].content[0].text != threading.current_thread().name

    trio.run(main)


def test_a_cancelled_thread_is_abandoned() -> None:
    server, release = Server("s"), threading.Event()

    @server.tool(blocking=True)
    def waits() -> None:
        release.wait()

    async def main() -> None:
        async with conversation(server, era="handshake") as client:
            with trio.move_on_after(0.01) as scope:
                await client.call_tool("waits")
            assert scope.cancelled_caught
            await client.ping()

    try:
        trio.run(main)
    finally:
        release.set()


def test_blocking_handler_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    server, clock = Server("s"), trio.testing.MockClock(autojump_threshold=0)

    @server.tool
    def slow(seconds: float) -> None:
        clock.jump(seconds)

    async def main() -> None:
        async with conversation(server) as client:
            await client.call_tool("slow", {"seconds": 0.04})
            await client.call_tool("slow", {"seconds": 0.06})

    trio.run(main, clock=clock)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "held up everything else for 60 ms" in record.getMessage()


@pytest.mark.parametrize("when", ["at once", "later"])
def test_a_handler_may_end_the_program(when: str) -> None:
    server = Server("s")

    @server.tool
    def quits() -> None:
        sys.exit(3)

    @server.tool
    async def quits_later() -> None:
        await trio.sleep(1)
        sys.exit(3)

    async def main() -> None:
        near, far = trio.testing.memory_stream_pair()
        raw = Raw(near)
        lines = [{"id": 0, "method": "initialize", "params": HELLO}, raw.call(1, "quits")]
        if when == "later":
            lines[1] = raw.call(1, "quits_later")
        await raw.send(*lines)
        await serve(server, far)

    with pytest.raises(SystemExit) as caught:
        run(main)
    assert caught.value.code == 3


@pytest.mark.parametrize("times", [1, 2])
def test_failing_session_affects_no_other(times: int, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever a handler manages to break: its connection ends, and the others go on."""

    async def main() -> None:
        failures: list[object] = []
        async with conversation(busy) as other, raw_client(busy) as (raw, session):

            def broken(event: object) -> None:
                failures.append(event)
                if len(failures) == times:
                    del session._handle  # The one of the class is back.
                raise ValueError("a fault in the library")

            # How it ends is then an event of its own, before the last one.
            session.connection.send_request(PingRequest(), now=trio.current_time())

            session._handle = broken  # type: ignore[method-assign]  # there is no other way to make it fail
            await raw.send(raw.call(1, "echo", text="hi"))
            assert await raw.at_end()
            await session.driver.wait_closed()
            assert session.ended is not None
            assert isinstance(session.ended.cause, ValueError)
            assert text_of(await other.call_tool("echo", {"text": "hi"})) == "hi"

    run(main)
    assert [record.getMessage() for record in caplog.records] == ["a session failed"] * times
