"""One session over streams of asyncio: requests, handlers, and what either side asks, on a clock that jumps."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from contextlib import suppress
from typing import Any

import attrs
import pytest
from busy import busy_server
from peers import call
from streams import Raw, conversation, joined, raw_client, raw_server, run, run_in_real_time, served, settle

from mcpio import Context, RequestError, RequestTimeout, Server, TextContent, Timeout
from mcpio.asyncio import open_streams, serve
from mcpio.types import CreateMessageRequest, CreateMessageResult, ElicitResult, Root, SamplingMessage

# Requests


@pytest.mark.req("CANC-01", "STDIO-02")
@pytest.mark.parametrize("turns", range(0, 40, 2))
def test_cancelled_call_truncates_no_message(turns: int) -> None:
    """Wherever in the writing of its request a caller is cancelled, the server reads whole lines."""
    received: list[dict[str, Any]] = []

    async def main() -> None:
        async with raw_server(narrow=True) as (raw, client):
            calling = asyncio.ensure_future(client.call_tool("slow", {"text": "x" * 100_000}))
            for _ in range(turns):
                await asyncio.sleep(0)
                await raw.reader.read(0)
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
            raw.reader._limit = 1 << 20  # type: ignore[attr-defined]  # how long a line may be, which has no setter
            if turns:
                received.extend([await raw.receive(), await raw.receive()])
            client.close()
            assert await raw.at_end()

    run(main)
    if turns:
        assert [message["method"] for message in received] == ["tools/call", "notifications/cancelled"]
        assert received[1]["params"]["requestId"] == received[0]["id"]


@pytest.mark.req("TIME-01", "TIME-02")
def test_timeout_ends_the_call_and_notifies_the_server() -> None:
    async def main() -> None:
        clock = asyncio.get_running_loop().time
        async with raw_server() as (raw, client):
            began = clock()
            with pytest.raises(RequestTimeout, match=r"^tools/call: no answer within 3 s$"):
                await client.call_tool("slow", timeout=3)
            assert clock() - began == pytest.approx(3)
            request, cancelled = await raw.receive(), await raw.receive()
            assert cancelled["method"] == "notifications/cancelled"
            assert cancelled["params"]["requestId"] == request["id"]
            with pytest.raises(RequestTimeout):
                await client.ping(timeout=0)

    run(main)


class NoTimersForThePast(asyncio.SelectorEventLoop):
    """A loop on which what is due at once has a handle that knows no time: uvloop is one."""

    def call_at(  # type: ignore[override]  # which arguments go with which callback is nothing to a test
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> Any:
        if when <= self.time():
            return self.call_soon(callback, *args, context=context)
        return super().call_at(when, callback, *args, context=context)


def test_expired_deadline_starts_no_timer() -> None:
    async def main() -> None:
        async with raw_server() as (_, client):
            for outcome in await asyncio.gather(*(client.ping(timeout=0) for _ in range(3)), return_exceptions=True):
                assert isinstance(outcome, RequestTimeout)
            for _ in range(3):
                client.close(0)
            await client.aclose(0)

    with asyncio.Runner(loop_factory=NoTimersForThePast) as runner:
        runner.run(main())


@pytest.mark.req("TIME-03")
def test_progress_puts_off_the_idle_limit_but_not_the_total() -> None:
    async def main() -> None:
        async with raw_server() as (raw, client):

            async def report() -> None:
                token = (await raw.receive())["params"]["_meta"]["progressToken"]
                for progress in range(1, 100):
                    await asyncio.sleep(1)
                    params = {"progressToken": token, "progress": progress}
                    await raw.send({"method": "notifications/progress", "params": params})

            seen: list[float] = []
            reporting = asyncio.ensure_future(report())
            with pytest.raises(RequestTimeout, match=r"no answer within 10 s$") as caught:
                await client.call_tool(
                    "slow", timeout=Timeout(10, idle=2), on_progress=lambda *all: seen.append(all[0])
                )
            assert caught.value.kind == "total"
            assert len(seen) in (9, 10)
            reporting.cancel()
            with suppress(asyncio.CancelledError):
                await reporting

    run(main)


def test_a_timeout_of_asyncio_cancels_the_call() -> None:
    async def main() -> None:
        async with raw_server() as (raw, client):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2):
                    await client.call_tool("slow")
            assert [(await raw.receive())["method"] for _ in "ab"] == ["tools/call", "notifications/cancelled"]

    run(main)


# Handlers

busy, ended = busy_server()


@busy.tool
async def fails_in_a_group() -> None:
    async def worker() -> None:
        await asyncio.sleep(1)
        raise ValueError("the reason")

    async with asyncio.TaskGroup() as group:
        group.create_task(worker())
        await asyncio.sleep(100)


@busy.tool
async def fails_when_cancelled() -> None:
    async def worker() -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            raise ValueError("while it was being cancelled")

    async with asyncio.TaskGroup() as group:
        group.create_task(worker())


@pytest.mark.parametrize("name", ["fails", "fails_later"])
def test_raising_handler_fails_only_its_request(name: str) -> None:
    async def main() -> None:
        async with conversation(busy) as client:
            result = await client.call_tool(name)
            assert result.is_error
            assert result.text == f"{name} failed: ValueError: the reason"
            with pytest.raises(RequestError, match="not at this hour") as caught:
                await client.call_tool("refuses")
            assert (caught.value.code, caught.value.is_retryable()) == (1003, True)
            assert (await client.call_tool("fails_in_a_group")).is_error
            assert (await client.call_tool("echo", {"text": "hi"})).text == "hi"

    run(main)


@pytest.mark.req("CANC-05")
def test_a_cancelled_handler_ends_and_is_not_answered() -> None:
    async def main() -> None:
        async with raw_client(busy) as (raw, _):
            ended.clear()
            await raw.send(call(1, "never_ends"))
            await settle()
            assert ended == []
            await raw.send({"method": "notifications/cancelled", "params": {"requestId": 1}})
            await raw.send({"id": 2, "method": "ping"})
            assert (await raw.receive())["id"] == 2
            assert ended == ["never_ends"]

    run(main)


@pytest.mark.req("CANC-05")
def test_handler_that_raises_during_cancellation_affects_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with conversation(busy) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await client.call_tool("fails_when_cancelled")
            assert (await client.call_tool("echo", {"text": "hi"})).text == "hi"

    run(main)
    assert len(caplog.records) <= 1


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
        async with conversation(server, era="handshake") as client:
            seen: list[Any] = []
            calling = asyncio.ensure_future(client.call_tool("waits", on_progress=lambda *report: seen.append(report)))
            while not seen:
                await client.ping()
            await client.call_tool("releases")
            result = await calling
            assert seen == [(1, 2, "waiting")]
            assert result.text != threading.current_thread().name

    run_in_real_time(main)


def test_blocking_handler_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")

    @server.tool
    def slow(seconds: float) -> None:
        asyncio.get_running_loop()._jumping.now += seconds  # type: ignore[attr-defined]  # the clock that jumps

    async def main() -> None:
        async with conversation(server) as client:
            await client.call_tool("slow", {"seconds": 0.04})
            await client.call_tool("slow", {"seconds": 0.06})

    run(main)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "held up everything else for 60 ms" in record.getMessage()


@pytest.mark.parametrize("name", ["quits", "quits_later"])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
def test_a_handler_may_end_the_program(name: str, error: BaseException) -> None:
    server = Server("s")

    @server.tool
    def quits() -> None:
        raise error

    @server.tool
    async def quits_later() -> None:
        await asyncio.sleep(1)
        raise error

    async def main() -> None:
        near, far = await joined()
        serving = asyncio.ensure_future(serve(server, *far))
        async with open_streams(*near) as client:
            await client.call_tool(name)
        await serving

    with pytest.raises(type(error)) as caught:
        run(main)
    assert caught.value is error


def test_plain_handler_that_reads_a_cancelled_future_fails_only_its_request(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")

    @server.tool
    def asks() -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        future.result()

    @server.tool
    def goes_on() -> str:
        return "on"

    async def main() -> None:
        near, far = await joined()
        async with served(server, far), open_streams(*near) as client:
            with pytest.raises(RequestError, match="Internal error"):
                await client.call_tool("asks")
            assert (await client.call_tool("goes_on")).content == (TextContent("on"),)

    run(main)
    assert "the handler of tools/call 'asks' was cancelled from inside" in caplog.text


class Odd(BaseException):
    pass


@pytest.mark.parametrize("name", ["fails_oddly", "fails_oddly_later"])
def test_base_exception_propagates_from_serve_unwrapped(name: str) -> None:
    server, error = Server("s"), Odd()

    @server.tool
    def fails_oddly() -> None:
        raise error

    @server.tool
    async def fails_oddly_later() -> None:
        await asyncio.sleep(1)
        raise error

    async def main() -> None:
        near, far = await joined()
        raw = Raw(near)
        serving = asyncio.ensure_future(serve(server, *far))
        await raw.shake_hands()
        await raw.send(call(1, name))
        with pytest.raises(Odd) as caught:
            await serving
        assert caught.value is error
        await raw.reader.read()
        await raw.close()

    run(main)


# What the server asks


@attrs.frozen
class Who:
    name: str


def test_handler_sends_requests_and_notifications_to_the_client() -> None:
    server, logs = Server("s"), list[str]()

    @server.tool
    async def ask(ctx: Context) -> list[str]:
        ctx.info("asking")
        ctx.progress(1)
        request = CreateMessageRequest((SamplingMessage("user", TextContent("hello")),), max_tokens=10)
        message, answer, roots = await asyncio.gather(ctx.sample(request), ctx.elicit("Who?", Who), ctx.roots())
        return [message.model, type(answer).__name__, roots[0].uri]

    async def sampling(_: object, request: CreateMessageRequest) -> CreateMessageResult:
        await asyncio.sleep(1)
        return CreateMessageResult("assistant", TextContent("hi"), "m")

    async def main() -> None:
        seen: list[float] = []
        options: dict[str, Any] = {
            "sampling": sampling,
            "roots": [Root("file:///here")],
            "elicitation": lambda *_: ElicitResult("decline"),
            "on_log": lambda note: logs.append(str(note.data)),
        }
        async with conversation(server, **options, era="handshake") as client:
            result = await client.call_tool("ask", on_progress=lambda *report: seen.append(report[0]))
            assert result.structured_content == {"result": ["m", "Declined", "file:///here"]}, result.text
        assert seen == [1]
        assert logs == ["asking"]

    run(main)


def test_cancelled_server_cancels_its_own_requests() -> None:
    """Its handlers are cancelled with it, and what they waited for is cancelled at the client, before the end."""
    server = Server("s")

    @server.tool
    async def ask(ctx: Context) -> None:
        await ctx.roots()

    async def main() -> None:
        near, far = await joined()
        raw = Raw(near)
        async with served(server, far) as serving:
            await raw.shake_hands(roots={})
            await raw.send(call(1, "ask"))
            assert (await raw.receive())["method"] == "roots/list"
            serving.cancel()
            assert (await raw.receive())["method"] == "notifications/cancelled"
            assert await raw.at_end()
        assert server.sessions == ()
        await raw.close()

    run(main)


def test_sys_exit_of_a_callback_ends_the_program() -> None:
    """What ``sys.exit`` raises in a client's callback ends the program too."""

    async def main() -> None:
        async with raw_server(on_notification=lambda _: sys.exit(4)) as (raw, client):
            await raw.send({"method": "notifications/tools/list_changed"})
            await client.ping()

    with pytest.raises(SystemExit) as caught:
        run(main)
    assert caught.value.code == 4
