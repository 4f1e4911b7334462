"""Handlers whose own task the program cancels: only the library's cancellations leave a request without an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from loops import under_asyncio, under_eager_asyncio
from runners import run_by
from streams import joined, run

from mcpio import Context, McpError, Server
from mcpio.app import TaskOptions
from mcpio.app.runtime import Runtime, is_stopping
from mcpio.asyncio import AsyncioRuntime, connect, memory_client, serve
from mcpio.types import CallToolRequest, ElicitFormRequest, ElicitSchema

eras = pytest.mark.parametrize("era", ["handshake", "stateless"])


async def cancel_oneself() -> str:
    task: Any = asyncio.current_task()
    task.cancel()
    await asyncio.sleep(3600)
    return "never"


async def callback(*_: Any) -> Any:
    await cancel_oneself()


def make_server() -> Server:
    server = Server("s", tasks=TaskOptions())
    server.tool(cancel_oneself, name="tool")
    server.tool(cancel_oneself, name="task", task_support="required")
    server.resource("r://1")(cancel_oneself)
    server.prompt(cancel_oneself, name="prompt")

    @server.tool
    async def asks(ctx: Context) -> str:
        return str(await ctx.elicit(ElicitFormRequest("?", ElicitSchema({}))))

    return server


async def task_result(client: Any) -> Any:
    return await (await client.start_task(CallToolRequest("task"))).result()


REQUESTS: dict[str, Callable[[Any], Any]] = {
    "tool": lambda client: client.call_tool("tool"),
    "task": task_result,
    "resource": lambda client: client.read_resource("r://1"),
    "prompt": lambda client: client.get_prompt("prompt"),
}


@eras
@pytest.mark.parametrize("name", REQUESTS)
def test_handler_whose_task_the_program_cancels_answers(name: str, era: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with memory_client(make_server(), era=era) as client, asyncio.timeout(5):
            with pytest.raises(McpError, match="Internal error"):
                await REQUESTS[name](client)

    run(main)
    assert "was cancelled from inside" in caplog.text


@eras
@run_by(run)
async def test_callback_whose_task_the_program_cancels_fails_its_question(era: Any) -> None:
    async with memory_client(make_server(), era=era, elicitation=callback) as client, asyncio.timeout(5):
        if era == "handshake":
            assert (await client.call_tool("asks")).is_error
            return
        # The client's own call asks the user.
        with pytest.raises(McpError, match="cancelled from inside"):
            await client.call_tool("asks")


@pytest.mark.parametrize("how", ["main ends", "serving is cancelled"])
def test_handler_that_ends_with_its_server_does_not_answer(how: str, caplog: pytest.LogCaptureFixture) -> None:
    server, began = Server("s"), asyncio.Event()

    @server.tool
    async def waits() -> None:
        began.set()
        await asyncio.sleep(3600)

    async def main() -> None:
        near, far = await joined()
        serving = asyncio.ensure_future(serve(server, *far))
        client = await connect(*near)
        calling = asyncio.ensure_future(client.call_tool("waits"))
        await began.wait()
        if how == "serving is cancelled":
            serving.cancel()
            await asyncio.wait([serving])
            await asyncio.wait([calling])

    asyncio.run(main())
    assert "cancelled from inside" not in caplog.text


@pytest.mark.parametrize("run_loop", [under_asyncio, under_eager_asyncio])
@pytest.mark.parametrize("end", ["handle", "group", "loop"])
def test_end_of_a_task_by_its_owner_is_told_from_the_programs(run_loop: Any, end: str) -> None:
    seen: dict[str, bool] = {}

    async def waits(runtime: Runtime, name: str) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            seen[name] = await is_stopping(runtime)

    async def owner() -> None:
        async with asyncio.TaskGroup() as group:
            runtime = AsyncioRuntime(group)
            owned = runtime.spawn(waits(runtime, "owned"))
            before = asyncio.all_tasks()
            runtime.spawn(waits(runtime, "own"))
            (task,) = asyncio.all_tasks() - before
            await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.wait([task])
            if end == "handle":
                owned.cancel()
            elif end == "group":
                raise ValueError("the body fails")
            else:
                await asyncio.sleep(3600)

    async def main(_: Runtime) -> None:
        task = asyncio.ensure_future(owner())
        await asyncio.wait([task], timeout=0.05)
        if end == "loop":
            for each in asyncio.all_tasks() - {asyncio.current_task()}:
                each.cancel()
        await asyncio.wait([task])

    run_loop(main)
    assert seen == {"own": False, "owned": True}
