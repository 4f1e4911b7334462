"""One session over one stream: requests, and handlers that succeed, fail, block and never end."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import pytest
import trio
from busy import busy_server
from eachloop import EachLoop, Here, on_each_virtual_loop
from peers import call
from rawstream import RawEnd, conversation, raw_client, raw_server

from mcpio import Client, Context, RequestError, RequestTimeout, Server, Timeout
from mcpio.types import PingRequest, PromptReference

# Requests


@pytest.mark.req("TIME-01", "TIME-02")
@on_each_virtual_loop
async def test_timeout_ends_the_call_and_notifies_the_server(here: Here) -> None:
    async with raw_server(here) as (raw, client):
        began = here.now()
        with pytest.raises(RequestTimeout, match=r"^tools/call: no answer within 3 s$"):
            await client.call_tool("slow", timeout=3)
        assert here.now() - began == pytest.approx(3)
        request, cancelled = await raw.receive(), await raw.receive()
        assert cancelled["method"] == "notifications/cancelled"
        assert cancelled["params"]["requestId"] == request["id"]
        with pytest.raises(RequestTimeout):
            await client.ping(timeout=0)


@pytest.mark.req("TIME-03")
@on_each_virtual_loop
async def test_progress_extends_the_idle_limit_but_not_the_total(here: Here) -> None:
    async with raw_server(here) as (raw, client), here.tasks() as tasks:

        async def report() -> None:
            token = (await raw.receive())["params"]["_meta"]["progressToken"]
            for progress in range(1, 100):
                await here.sleep(1)
                params = {"progressToken": token, "progress": progress, "total": 99, "message": "on it"}
                await raw.send({"method": "notifications/progress", "params": params})

        seen: list[tuple[float, float | None, str | None]] = []
        reporting = tasks.spawn(report())
        with pytest.raises(RequestTimeout, match=r"no answer within 10 s$") as caught:
            await client.call_tool("slow", timeout=Timeout(10, idle=2), on_progress=lambda *report: seen.append(report))
        assert caught.value.kind == "total"
        assert seen[:2] == [(1, 99, "on it"), (2, 99, "on it")]
        assert len(seen) in (9, 10)
        reporting.cancel()


def test_failing_progress_callback_does_not_affect_the_call(
    each_virtual_loop: EachLoop, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("s")

    @server.tool
    async def count(ctx: Context) -> int:
        for number in range(3):
            ctx.progress(number)
            await ctx.sleep(1)
        return 3

    def fail(*_: object) -> None:
        raise ValueError("not today")

    async def main(here: Here) -> None:
        async with conversation(here, server) as client:
            result = await client.call_tool("count", on_progress=fail)
            assert result.structured_content == {"result": 3}

    each_virtual_loop.run(main, virtual=True)
    first, *again = [record.getMessage() for record in caplog.records]
    assert first == "a progress callback failed"
    assert again == ["a progress callback failed again: ValueError('not today')"] * 2


# Handlers


async def wait_in_a_group(here: Here, worker: Callable[[], Awaitable[None]]) -> None:
    """Wait in a nursery or task group, as handlers of users have it, beside a task."""
    if here.is_trio:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker)
            await trio.sleep_forever()
    else:
        async with asyncio.TaskGroup() as group:
            group.create_task(worker())  # type: ignore[arg-type]  # it is a coroutine
            await asyncio.sleep(1e6)


@pytest.mark.parametrize("name", ["fails", "fails_later"])
@on_each_virtual_loop
async def test_raising_handler_fails_only_its_request(here: Here, name: str) -> None:
    busy, _ = busy_server()

    @busy.tool
    async def fails_in_a_group() -> None:
        async def worker() -> None:
            await here.sleep(1)
            raise ValueError("the reason")

        await wait_in_a_group(here, worker)

    async with conversation(here, busy) as client:
        result = await client.call_tool(name)
        assert result.is_error
        assert result.text == f"{name!r} failed: ValueError: the reason"
        with pytest.raises(RequestError, match="not at this hour") as caught:
            await client.call_tool("refuses")
        assert (caught.value.code, caught.value.is_retryable()) == (1003, True)
        assert (await client.call_tool("fails_in_a_group")).is_error
        assert (await client.call_tool("echo", {"text": "hi"})).text == "hi"


@pytest.mark.req("CANC-05")
@on_each_virtual_loop
async def test_cancelled_handler_ends_without_an_answer(here: Here) -> None:
    busy, ended = busy_server()
    async with raw_client(here, busy) as (raw, _):
        await raw.send(call(1, "never_ends"))
        await here.settle()
        assert ended == []
        await raw.send({"method": "notifications/cancelled", "params": {"requestId": 1}})
        await raw.send({"id": 2, "method": "ping"})
        assert (await raw.receive())["id"] == 2
        assert ended == ["never_ends"]


@pytest.mark.req("CANC-05")
def test_group_that_fails_during_cancellation_affects_nothing_else(
    each_virtual_loop: EachLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(here: Here) -> None:
        busy, _ = busy_server()
        add_tool_that_fails_when_cancelled(here, busy)
        async with conversation(here, busy) as client:
            with here.scope(1) as scope:
                await client.call_tool("fails_when_cancelled")
            assert scope.cancelled_caught
            assert (await client.call_tool("echo", {"text": "hi"})).text == "hi"

    each_virtual_loop.run(main, virtual=True)
    # On asyncio the cancellation of the handler's task is what its group raises.
    expected = {"trio": ["the task of a handler failed"], "asyncio": ["the tool 'fails_when_cancelled' failed"]}
    assert [record.getMessage() for record in caplog.records] == expected[each_virtual_loop.name]


def add_tool_that_fails_when_cancelled(here: Here, server: Server) -> None:
    @server.tool
    async def fails_when_cancelled() -> None:
        async def worker() -> None:
            try:
                await here.forever()
            finally:
                raise ValueError("while it was being cancelled")

        await wait_in_a_group(here, worker)


@on_each_virtual_loop
async def test_failing_handler_of_a_cancelled_server_raises_no_group(here: Here) -> None:
    busy, _ = busy_server()
    add_tool_that_fails_when_cancelled(here, busy)
    near, far = await here.joined()
    raw = RawEnd(near)
    async with here.tasks() as tasks:

        async def use() -> None:
            await raw.shake_hands()
            await raw.send(call(1, "fails_when_cancelled"))

        tasks.spawn(use())
        with here.scope(5) as scope:
            await here.drivers.serve(busy, *far)
        assert scope.cancelled_caught
        await raw.close()


def test_handlers_in_threads_do_not_delay_others(each_loop: EachLoop) -> None:
    server, release = Server("s"), threading.Event()

    @server.tool(blocking=True)
    def waits(ctx: Context) -> str:
        ctx.progress(1, 2, "waiting")
        release.wait()
        return threading.current_thread().name

    @server.tool
    def releases() -> None:
        release.set()

    async def main(here: Here) -> None:
        async with conversation(here, server, era="handshake") as client, here.tasks() as tasks:
            seen: list[Any] = []

            async def call() -> None:
                seen.append(await client.call_tool("waits", on_progress=lambda *report: seen.append(report)))

            tasks.spawn(call())
            while not seen:
                await client.ping()
            await client.call_tool("releases")
            while len(seen) < 2:
                await client.ping()
            assert seen[0] == (1, 2, "waiting")
            assert seen[1].text != threading.current_thread().name

    each_loop.run(main)


def test_cancelled_thread_is_abandoned(each_loop: EachLoop) -> None:
    server, release = Server("s"), threading.Event()

    @server.tool(blocking=True)
    def waits() -> None:
        release.wait()

    async def main(here: Here) -> None:
        async with conversation(here, server, era="handshake") as client:
            with here.scope(0.01) as scope:
                await client.call_tool("waits")
            assert scope.cancelled_caught
            await client.ping()

    try:
        each_loop.run(main)
    finally:
        release.set()


@pytest.mark.parametrize("name", ["blocks", "awaits"])
@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_threads_change_and_notify_the_server(
    era: Any, name: str, each_loop: EachLoop, caplog: pytest.LogCaptureFixture
) -> None:
    server, inner = Server("s"), Server("inner")
    server.mount(inner, "inner")

    def give(text: str = "") -> str:
        return text

    def complete(text: str) -> list[str]:
        return [text]

    def change(ctx: Context) -> None:
        server.tool(give, name="added")
        server.tools.remove("removed")
        server.tools.disable("added")
        server.tools.enable("added")
        server.tools.changed()
        inner.tool(give, name="within")
        server.unmount(inner)
        server.mount(inner, "again")
        server.resource("a:b")(give)
        server.resource("a:{text}/d")(give)
        server.prompt(give)
        server.completion("text", prompt="give")(complete)
        server.notify_resource_updated("a:b")
        server.notify_elicitation_complete("unknown")
        # What is called in the loop already runs at once.
        ctx.run_in_loop(lambda: ctx.run_in_loop(server.tools.changed))
        ctx.run_in_loop(lambda: ctx.progress(1))

    server.tool(change, name="blocks", blocking=True)

    @server.tool
    async def awaits(ctx: Context) -> None:
        await ctx.run_in_thread(lambda: change(ctx))

    server.tool(give, name="removed")

    async def main(here: Here) -> None:
        reported: list[Any] = []
        async with conversation(here, server, era=era) as client:
            result = await client.call_tool(name, on_progress=lambda *said: reported.append(said))
            assert not result.is_error, result
            assert reported == [(1, None, None)]
            found = [tool.name for tool in (await client.list_tools()).tools]
            assert found == ["blocks", "awaits", "added", "again__within"]

    each_loop.run(main)
    assert caplog.records == []


def test_blocking_handler_is_reported(each_virtual_loop: EachLoop, caplog: pytest.LogCaptureFixture) -> None:
    async def main(here: Here) -> None:
        server = Server("s")

        @server.tool
        def slow(seconds: float) -> None:
            here.jump(seconds)

        async with conversation(here, server) as client:
            await client.call_tool("slow", {"seconds": 0.01})
            await client.call_tool("slow", {"seconds": 0.06})

    each_virtual_loop.run(main, virtual=True)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "held up everything else for 60 ms" in record.getMessage()


CALLS: dict[str, Callable[[Client], Awaitable[Any]]] = {
    "tool": lambda client: client.call_tool("block"),
    "task": lambda client: client.call_tool("task", task=True),
    "resource": lambda client: client.read_resource("a:b"),
    "prompt": lambda client: client.get_prompt("block"),
    "completion": lambda client: client.complete(PromptReference("plain"), "text", ""),
    "middleware": lambda client: client.get_prompt("plain", {"text": "a"}),
}


@pytest.mark.parametrize("era", ["handshake", "stateless"])
@pytest.mark.parametrize("kind", CALLS)
def test_async_handler_that_blocks_between_two_waits_is_reported(
    kind: str, era: Any, each_virtual_loop: EachLoop, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("s")
    loops: list[Here] = []

    async def block(ctx: Context) -> str:
        await ctx.sleep(10)  # Until nothing is imported any more for the first call of this kind.
        for seconds in (0.01, 0.06):
            await ctx.sleep(1)
            loops[0].jump(seconds)
        await ctx.sleep(1)
        return "done"

    async def complete(text: str, _: Any, ctx: Context) -> list[str]:
        return [text + await block(ctx)]

    def plain(text: str) -> str:
        return text

    async def around(ctx: Context, request: Any, call_next: Any) -> Any:
        if kind == "middleware" and ctx.method == "prompts/get":
            await block(ctx)
        return await call_next(request)

    server.tool(block)
    server.tool(block, name="task", task_support="optional")
    server.resource("a:b")(block)
    server.prompt(block)
    server.prompt(plain)
    server.completion("text", prompt="plain")(complete)
    server.middleware(around)

    async def main(here: Here) -> None:
        loops.append(here)
        async with conversation(here, server, era=era) as client:
            await CALLS[kind](client)

    each_virtual_loop.run(main, virtual=True)
    (record,) = caplog.records
    assert "held up everything else for 60 ms: call what blocks by await ctx.run_in_thread(" in record.getMessage()


@pytest.mark.parametrize("name", ["quits", "quits_later"])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
def test_handler_may_end_the_program(name: str, error: BaseException, each_virtual_loop: EachLoop) -> None:
    server = Server("s")

    @server.tool
    def quits() -> None:
        raise error

    @server.tool
    async def quits_later(ctx: Context) -> None:
        await ctx.sleep(1)
        raise error

    async def main(here: Here) -> None:
        near, far = await here.joined()
        raw = RawEnd(near)

        async def use() -> None:
            await raw.shake_hands()
            await raw.send(call(1, name))

        async with here.tasks() as tasks:
            tasks.spawn(use())
            try:
                await here.drivers.serve(server, *far)
            except BaseException as raised:
                caught.append(raised)
            await raw.close()

    caught: list[BaseException] = []
    if each_virtual_loop.name == "asyncio":
        # asyncio raises these two from the loop itself, past every block.
        with pytest.raises(type(error)) as ended:
            each_virtual_loop.run(main, virtual=True)
        assert ended.value is error
    else:
        each_virtual_loop.run(main, virtual=True)
        assert caught == [error]


@pytest.mark.parametrize("times", [1, 2])
def test_failing_session_affects_no_other(
    times: int, each_virtual_loop: EachLoop, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever a handler manages to break: its connection ends, and the others go on."""

    async def main(here: Here) -> None:
        failures: list[object] = []
        busy, _ = busy_server()
        async with conversation(here, busy) as other, raw_client(here, busy) as (raw, session):

            def broken(event: object) -> NoReturn:
                failures.append(event)
                if len(failures) == times:
                    del session._handle  # The one of the class is back.
                raise ValueError("a fault in the library")

            # How it ends is then an event of its own, before the last one.
            session.connection.send_request(PingRequest(), now=here.now())

            session._handle = broken  # type: ignore[method-assign]  # there is no other way to make it fail
            await raw.send(call(1, "echo", text="hi"))
            assert await raw.at_end()
            await session.driver.wait_closed()
            assert session.ended is not None
            assert isinstance(session.ended.cause, ValueError)
            assert (await other.call_tool("echo", {"text": "hi"})).text == "hi"

    each_virtual_loop.run(main, virtual=True)
    assert [record.getMessage() for record in caplog.records] == ["a session failed"] * times
