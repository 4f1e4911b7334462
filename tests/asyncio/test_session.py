"""One session over streams of asyncio: requests, handlers, and what either side asks, on a clock that jumps."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import attrs
import pytest
from peers import call
from runners import run_by
from streams import Raw, conversation, joined, raw_server, run, served

from mcpio import Context, RequestError, RequestTimeout, Server, TextContent
from mcpio.asyncio import open_streams
from mcpio.types import CreateMessageRequest, CreateMessageResult, ElicitResult, Root, SamplingMessage

# Requests


@pytest.mark.req("CANC-01", "STDIO-02")
@pytest.mark.parametrize("turns", range(0, 40, 2))
def test_cancelled_call_truncates_no_message(turns: int) -> None:
    """Wherever in the writing of its request a caller is cancelled, the server reads whole lines."""
    received: list[dict[str, Any]] = []

    async def main() -> None:
        async with raw_server(narrow=True) as (raw, client):
            calling = asyncio.Task(client.call_tool("slow", {"text": "x" * 100_000}))  # starts later, also where eager
            for _ in range(turns):
                await asyncio.sleep(0)
                await raw.reader.read(0)
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
            if turns:
                received.extend([await raw.receive(), await raw.receive()])
            client.close()
            assert await raw.at_end()

    run(main)
    if turns:
        assert [message["method"] for message in received] == ["tools/call", "notifications/cancelled"]
        assert received[1]["params"]["requestId"] == received[0]["id"]


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


@run_by(run)
async def test_a_timeout_of_asyncio_cancels_the_call() -> None:
    async with raw_server() as (raw, client):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await client.call_tool("slow")
        assert [(await raw.receive())["method"] for _ in "ab"] == ["tools/call", "notifications/cancelled"]


# Handlers


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
