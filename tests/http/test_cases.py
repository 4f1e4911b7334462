"""What a server does over HTTP, whatever adapter stands between: each case runs by every adapter.

What needs no adapter is tested at the machine, in the files beside this one.
"""

from __future__ import annotations

import json

import pytest
from httpwire import RawClient, Serve, everywhere

from mcpio import Context, Server
from mcpio.http.options import HttpOptions


def small_server() -> Server:
    """Return a server with a tool for each kind of answer."""
    server = Server("cases", "1")

    @server.tool
    def echo(text: str) -> str:
        """Return the text."""
        return text

    @server.tool
    async def steps(ctx: Context, count: int) -> str:
        """Report progress, then answer."""
        for number in range(count):
            ctx.progress(number + 1, count)
        return "done"

    @server.tool
    async def wait(ctx: Context, seconds: float) -> str:
        """Answer after a while."""
        await ctx.session.driver.runtime.sleep(seconds)
        return "waited"

    return server


@pytest.mark.req("HTTP-11", "SESS-01", "SESS-02")
@everywhere
async def test_a_quick_answer_is_json(serve: Serve) -> None:
    async with serve(small_server(), HttpOptions()) as wire:
        client = RawClient(wire)
        hello = await client.initialize()
        assert (hello.status, hello.headers["content-type"]) == (200, "application/json")
        assert hello.json["result"]["protocolVersion"] == "2025-11-25"
        assert len(client.headers["mcp-session-id"]) == 32
        answer = await client.call("echo", text="hello")
        assert answer.json["result"]["content"] == [{"type": "text", "text": "hello"}]
        assert "mcp-session-id" not in answer.headers


@pytest.mark.req("HTTP-11", "HTTP-15", "HTTP-16", "HTTP-17", "HTTP-23")
@everywhere
async def test_an_answer_with_progress_is_a_stream_that_ends_with_it(serve: Serve) -> None:
    async with serve(small_server(), HttpOptions()) as wire:
        client = RawClient(wire)
        await client.initialize()
        answer = await client.call("steps", progress="p", count=2)
        assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
        said = answer.new_messages()
        assert [each.get("method", "answer") for each in said] == ["notifications/progress"] * 2 + ["answer"]
        assert said[-1]["id"] == 1
        assert answer.is_over


@pytest.mark.req("HTTP-09")
@everywhere
async def test_a_notification_gets_202_and_no_body(serve: Serve) -> None:
    async with serve(small_server(), HttpOptions()) as wire:
        client = RawClient(wire)
        await client.initialize()
        taken = await client.post(json.loads('{"jsonrpc":"2.0","method":"notifications/initialized"}'))
        assert (taken.status, taken.data, taken.is_over) == (202, b"", True)


@pytest.mark.req("HTTP-11")
@everywhere
async def test_an_answer_that_takes_time_begins_as_a_stream(serve: Serve) -> None:
    async with serve(small_server(), HttpOptions(sse_after=0.5)) as wire:
        client = RawClient(wire)
        await client.initialize()
        answer = await client.call("wait", seconds=2.0)
        assert answer.status == 0
        await wire.pass_time(1.0)
        assert (answer.headers["content-type"], answer.is_over) == ("text/event-stream", False)
        await wire.pass_time(2.0)
        assert [each["id"] for each in answer.new_messages()] == [1]
        assert answer.is_over


@pytest.mark.req("HTTP-09", "CANC-10")
@everywhere
async def test_a_cancellation_is_accepted_and_what_it_cancels_ends_without_an_answer(serve: Serve) -> None:
    async with serve(small_server(), HttpOptions()) as wire:
        client = RawClient(wire)
        await client.initialize()
        call = await client.call("wait", id=7, seconds=60.0)
        params = {"requestId": 7}
        taken = await client.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        assert (taken.status, taken.data, taken.is_over) == (202, b"", True)
        assert (call.status, call.data, call.is_over) == (200, b"", True)
