"""Handlers that do not end when they are cancelled: nothing can force them, so the log names them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from eachloop import EachLoop, Here

from mcpio import ConnectionLost, Context, NoBackChannel, RequestError, Server
from mcpio._drivers import actor
from mcpio.app import Client, http_host
from mcpio.types import CreateMessageRequest, SamplingMessage, TextContent

NAMES = {
    "handler": "the handler of tools/call 'stubborn'",
    "task": "the task of tools/call",
    "callback": "the handler of sampling/createMessage",
}


@asynccontextmanager
async def over(kind: str, here: Here, server: Server, path: Path, **options: Any) -> AsyncIterator[Client]:
    """Serve and connect for a block, and end the server at its end."""
    if kind == "memory":
        async with here.drivers.memory_client(server, **options) as client:
            yield client
        return
    where: dict[str, Any] = {"path": path / "s"} if kind == "unix" else {"port": 0}
    async with here.listening(kind, server, grace=0.01, **where) as (listening, scope):
        address = path / "s" if kind == "unix" else listening.url
        async with getattr(here.drivers, f"open_{kind}")(address, **options) as client:
            yield client
            scope.cancel()


@pytest.mark.parametrize(
    ("what", "kind", "era"),
    [
        *(("handler", kind, era) for kind in ("memory", "unix", "http") for era in ("handshake", "stateless")),
        ("task", "memory", "handshake"),  # in its session
        ("task", "unix", "stateless"),  # at the server
        ("callback", "memory", "handshake"),
        ("callback", "http", "stateless"),  # in a round
    ],
)
def test_what_swallows_its_cancellation_is_named(
    what: str,
    kind: str,
    era: str,
    each_loop: EachLoop,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (actor, http_host):
        monkeypatch.setattr(module, "HANDLER_CANCEL_TIMEOUT", 0.01)
    server = Server("s", "1")

    def named() -> list[str]:
        return [record.getMessage() for record in caplog.records if "does not end" in record.getMessage()]

    async def main(here: Here) -> None:
        has_begun = here.event()

        async def swallow() -> None:
            try:
                has_begun.set()
                await here.forever()
            except BaseException:
                async with here.loop.last_moment(None):
                    until = here.now() + 3
                    while not named() and here.now() < until:
                        # On asyncio, the end of the session and that of the server each cancel the task.
                        with suppress(BaseException):
                            await here.sleep(0.01)

        @server.tool(task_support="optional" if what == "task" else "forbidden")
        async def stubborn(ctx: Context) -> None:
            if what == "callback":
                await ctx.sample(CreateMessageRequest((SamplingMessage("user", TextContent("?")),), 10))
            else:
                await swallow()

        async def sample(scope: Any, request: CreateMessageRequest) -> str:
            await swallow()
            return ""

        options = {"era": era, "sampling": sample}
        async with here.tasks() as tasks, over(kind, here, server, tmp_path, **options) as client:

            async def call() -> None:
                with pytest.raises((ConnectionLost, NoBackChannel, RequestError)):
                    await client.call_tool("stubborn", task=what == "task")

            tasks.spawn(call())
            await has_begun.wait()
            client.close(0)

    each_loop.run(main)
    assert named() == [f"{NAMES[what]} does not end when it is cancelled, and keeps what serves it from ending"]


@pytest.mark.parametrize("is_task", [False, True])
def test_handler_that_ends_soon_after_its_cancellation_is_not_named(
    is_task: bool, each_virtual_loop: EachLoop, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("s", "1")

    async def main(here: Here) -> None:
        @server.tool(task_support="optional" if is_task else "forbidden")
        async def slow(ctx: Context) -> None:
            try:
                await here.forever()
            finally:
                async with here.loop.last_moment(None):
                    await here.sleep(1)

        async with here.tasks() as tasks, here.drivers.memory_client(server) as client:

            async def call() -> None:
                with pytest.raises((ConnectionLost, RequestError)):
                    await client.call_tool("slow", task=is_task)

            tasks.spawn(call())
            await here.settle()

    each_virtual_loop.run(main, virtual=True)
    assert not caplog.records
