"""Handlers that fail by what is no Exception, as extensions in Rust do: each costs its request, and no client more."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from eachloop import EachLoop, Here

from mcpio import Context, RequestError, Server


class Panic(BaseException):
    """What Rust's panics become: PyO3 keeps them from being caught as exceptions."""


FAULTS: dict[str, Callable[[], BaseException]] = {
    "panic": lambda: Panic("a bug"),
    "generator exit": GeneratorExit,
    "cancelled future": asyncio.CancelledError,
    "group": lambda: BaseExceptionGroup("", [Panic("one"), ValueError("two")]),
}


def failing_server(fault: Callable[[], BaseException], *, is_layered: bool) -> Server:
    def fail() -> str:
        raise fault()

    async def fail_at_once() -> str:
        raise fault()

    def fail_to_tell(_: Any) -> bool:
        raise fault()

    def read(name: str) -> str:
        raise fault()

    async def fail_later(ctx: Context) -> str:
        await ctx.sleep(0)
        raise fault()

    async def fail_around(_: Any, request: Any, call_next: Any) -> Any:
        result = await call_next(request)
        if getattr(request, "name", "") == "around":
            raise fault()
        return result

    server = Server("failing", middleware=[fail_around] if is_layered else [])
    server.tool(fail, name="plain")
    server.tool(fail_at_once, name="at_once")
    server.tool(fail_later, name="later")
    server.tool(fail, name="in_a_thread", blocking=True)
    server.tool(lambda: "works", name="around")
    server.tool(lambda: "works", name="works")
    server.tool(lambda: "works", name="invisible", visible=fail_to_tell)
    server.resource("broken://{name}")(read)
    server.prompt(fail_at_once, name="prompt")
    return server


CALLS: dict[str, Callable[[Any], Any]] = {
    name: lambda client, name=name: client.call_tool(name)
    for name in (
        "plain",
        "at_once",
        "later",
        "in_a_thread",
        "around",
    )
} | {
    "resource": lambda client: client.read_resource("broken://it"),
    "prompt": lambda client: client.get_prompt("prompt"),
}


@asynccontextmanager
async def serving(here: Here, kind: str, server: Server) -> AsyncIterator[Callable[..., Any]]:
    """Serve for a block; give what opens a client."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    listener.setblocking(False)
    listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(listener)) if here.is_trio else listener]
    serve = here.drivers.serve_tcp if kind == "tcp" else here.drivers.serve_http
    async with here.tasks() as tasks:
        serving = tasks.spawn(serve(server, listeners=listeners, grace=0))
        if kind == "tcp":
            yield partial(here.drivers.open_tcp, "127.0.0.1", port)
        else:
            yield partial(here.open_http, f"http://127.0.0.1:{port}/mcp")
        serving.cancel()


async def each_costs_its_request(
    here: Here, kind: str, era: str, *, is_layered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    for fault in FAULTS.values():
        server = failing_server(fault, is_layered=is_layered)
        async with serving(here, kind, server) as opened, opened(era=era) as client, opened(era=era) as other:
            for name, call in CALLS.items():
                if name == "around" and not is_layered:
                    continue
                with pytest.raises(RequestError, match=r"^Internal error"):
                    await call(client)
                assert [each for each in caplog.messages if "failed" in each or "cancelled from inside" in each], name
                caplog.clear()
                assert (await other.call_tool("works")).content[0].text == "works"
            assert "invisible" not in [tool.name for tool in (await client.list_tools()).tools]


eras = pytest.mark.parametrize("era", ["handshake", "stateless"])
layers = pytest.mark.parametrize("is_layered", [False, True], ids=["bare", "in middleware"])


@eras
@layers
def test_handler_that_fails_by_no_exception_costs_its_request(
    era: str, is_layered: bool, each_loop: EachLoop, caplog: pytest.LogCaptureFixture
) -> None:
    each_loop.run(lambda here: each_costs_its_request(here, "tcp", era, is_layered=is_layered, caplog=caplog))


@pytest.mark.long
@eras
@layers
def test_handler_that_fails_by_no_exception_over_http_costs_its_request(
    era: str, is_layered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    EachLoop("trio").run(lambda here: each_costs_its_request(here, "http", era, is_layered=is_layered, caplog=caplog))
