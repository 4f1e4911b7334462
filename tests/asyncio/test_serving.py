"""``serving`` on asyncio: any number of clients, one lifespan, and an end in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
from lifespans import Scope
from peers import call
from runners import run_by
from streams import Raw, conversation, joined, run, settle

from mcpio import CallToolRequest, Context, Server
from mcpio.app import TaskOptions
from mcpio.asyncio import open_streams, serving
from mcpio.observe import Tap

server = Server("s")


def test_many_clients_share_a_lifespan_which_outlives_them() -> None:
    scope = Scope()
    many = Server("s", lifespan=scope)

    @many.tool
    def state(ctx: Context) -> str:
        return str(ctx.state)

    async def main() -> None:
        async with serving(many) as serve_one, asyncio.TaskGroup() as group:
            for _ in range(3):
                near, far = await joined()
                group.create_task(serve_one(*far, principal="ada"))
                async with open_streams(*near) as client:
                    assert (await client.call_tool("state")).text == "the state"
            assert scope.seen == ["entered"]
        assert scope.seen == ["entered", "left"]

    run(main)


async def use_nursery() -> None:
    async with trio.open_nursery():
        pass


@pytest.mark.parametrize(
    "use",
    [
        partial(trio.sleep, 0),
        partial(trio.sleep, 1),
        lambda: trio.Event().wait(),
        trio.open_memory_channel[None](0)[1].receive,
        partial(trio.lowlevel.wait_task_rescheduled, lambda _: trio.lowlevel.Abort.SUCCEEDED),
        partial(trio.to_thread.run_sync, int),
        use_nursery,
    ],
    ids=["sleep-0", "sleep", "event", "channel", "rescheduled", "thread", "nursery"],
)
def test_tool_that_needs_trio_gets_an_error_that_names_asyncio(
    use: Callable[[], Awaitable[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    confused = Server("s")

    @confused.tool
    async def nap() -> None:
        await use()

    @confused.tool
    async def rest(ctx: Context) -> str:
        await ctx.sleep(5)
        return "rested"

    async def main() -> None:
        async with serving(confused) as serve_one, asyncio.TaskGroup() as group:
            near, far = await joined()
            group.create_task(serve_one(*far))
            async with open_streams(*near) as client:
                text = (await client.call_tool("nap")).text
                assert text.startswith("'nap' failed: ")
                assert "there is no Trio loop here" in text
                assert "ctx.sleep()" in text
                assert (await client.call_tool("rest")).text == "rested"

    run(main)
    assert "ctx.sleep()" in caplog.text


@run_by(run)
async def test_serving_a_non_server_raises_type_error() -> None:
    wrong: Any = "server"
    with pytest.raises(TypeError, match=r"^server must be Server, not 'server'$"):
        async with serving(wrong):
            pass


@pytest.mark.parametrize("how", ["left", "raised", "cancelled"])
def test_leaving_the_block_answers_running_requests_and_ends_all_sessions(how: str) -> None:
    many, error = Server("s"), ValueError("in the body")

    @many.tool
    async def takes(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "done"

    serving_one: list[Any] = []

    async def block(far: Any, raw: Raw) -> None:
        async with serving(many, grace=2) as serve_one:
            serving_one.append(serve_one)
            task = asyncio.ensure_future(serve_one(*far))
            await raw.shake_hands()
            await raw.send(call(1, "takes", seconds=1), call(2, "takes", seconds=10))
            await settle()
            if how == "raised":
                raise error
            if how == "cancelled":
                await asyncio.sleep(1e6)
        assert task.done()

    async def main() -> None:
        near, far = await joined()
        raw = Raw(near)
        running = asyncio.ensure_future(block(far, raw))
        await settle()
        await settle()
        if how == "cancelled":
            running.cancel()
        assert (await raw.receive())["id"] == 1
        assert await raw.at_end()
        result = (await asyncio.gather(running, return_exceptions=True))[0]
        assert result is None if how == "left" else result is error if how == "raised" else running.cancelled()
        assert many.sessions == ()
        assert asyncio.get_running_loop().time() == pytest.approx(2, abs=0.6)
        late, end = await joined()
        await serving_one[0](*end)
        assert await Raw(late).at_end()
        await Raw(late).close()
        await raw.close()

    run(main)


@pytest.mark.parametrize("seconds", [50, 70])
def test_requests_of_a_half_closed_client_have_a_minute_by_default(seconds: float) -> None:
    many, ended = Server("s"), []

    @many.tool
    async def takes(seconds: float) -> str:
        try:
            await asyncio.sleep(seconds)
        finally:
            ended.append("ended")
        return "done"

    async def main() -> None:
        async with serving(many) as serve_one, asyncio.TaskGroup() as group:
            near, far = await joined()
            raw = Raw(near)
            group.create_task(serve_one(*far))
            await raw.shake_hands()
            await raw.send(call(1, "takes", seconds=seconds))
            raw.writer.write_eof()
            assert (b'"id":1' in await raw.reader.read()) is (seconds < 60)
            assert asyncio.get_running_loop().time() == pytest.approx(min(seconds, 60), abs=0.6)
            await raw.close()

    run(main)
    assert ended == ["ended"]


def test_clients_beyond_the_limit_are_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving(server, max_connections=1) as serve_one, asyncio.TaskGroup() as group:
            for _ in range(2):
                near, far = await joined()
                group.create_task(serve_one(*far))
                async with open_streams(*near, era="handshake") as client:
                    await client.ping()
                    late, end = await joined()
                    await serve_one(*end)
                    assert await Raw(late).at_end()
                    await Raw(late).close()

    run(main)
    assert caplog.messages[0] == "a client was turned away: there are 1 connections"


@pytest.mark.parametrize(("most", "error"), [("many", TypeError), (-1, ValueError)])
@run_by(run)
async def test_invalid_connection_limit_raises(most: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^max_connections must "):
        async with serving(server, max_connections=most):
            pass


def test_failing_session_start_ends_only_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    class Fails(Tap):
        def opened(self, *args: Any, **keywords: Any) -> None:
            raise ValueError("not today")

    taps = iter([Fails()])

    def next_tap() -> Tap:
        return next(taps, None) or Tap()

    async def main() -> None:
        async with serving(server, tap=next_tap) as serve_one, asyncio.TaskGroup() as group:
            near, far = await joined()
            await serve_one(*far)
            assert await Raw(near).at_end()
            await Raw(near).close()
            near, far = await joined()
            group.create_task(serve_one(*far))
            async with open_streams(*near, era="handshake") as client:
                await client.ping()

    run(main)
    assert [record.getMessage() for record in caplog.records] == ["a session could not be started"]


def test_tasks_outlive_their_sessions_in_a_block() -> None:
    mine, enough = Server("mine", tasks=TaskOptions(poll_interval=0.01)), asyncio.Event()

    @mine.tool(task_support="optional")
    async def dig() -> str:
        await enough.wait()
        return "gold"

    async def main() -> None:
        async with serving(mine) as serve_one, asyncio.TaskGroup() as group:
            near, far = await joined()
            group.create_task(serve_one(*far, principal="ada"))
            async with open_streams(*near, era="handshake") as client:
                task = await client.start_task(CallToolRequest("dig"))
                task.owned = False
            near, far = await joined()
            group.create_task(serve_one(*far, principal="ada"))
            async with open_streams(*near, era="handshake") as client:
                assert (await client.get_task(str(task.id))).status == "working"
                enough.set()
                assert (await client.task_result(str(task.id))).text == "gold"

    run(main)


def test_tasks_end_with_their_session_without_a_block() -> None:
    mine = Server("mine", tasks=TaskOptions(poll_interval=0.01))
    ends: list[str] = []

    @mine.tool(task_support="optional")
    async def dig() -> str:
        try:
            await asyncio.sleep(1e6)
        finally:
            ends.append("over")
        return "gold"

    async def main() -> None:
        async with conversation(mine, era="handshake") as client:
            task = await client.start_task(CallToolRequest("dig"))
            task.owned = False
            await settle()
        assert ends == ["over"]

    run(main)
