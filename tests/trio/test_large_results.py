"""A result that is too large to be sent is the problem of its own call."""

from __future__ import annotations

import contextlib
import json
from functools import partial
from typing import Any

import pytest
import trio
from peers import HELLO, call, lines, run
from runners import run_by

from mcpio.app.server import Server
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.errors import RequestError, RequestTimeout
from mcpio.trio import connect, memory_client, serve

SMALL = Options(limits=Limits(sent_message_bytes=2000))


def a_server(options: Options = SMALL) -> Server:
    server = Server("large", options=options)

    @server.tool
    def text(size: int) -> str:
        return "x" * size

    @server.resource("large://it")
    def it() -> str:
        return "x" * 5000

    return server


def test_too_large_tool_result_becomes_an_error_result_and_the_session_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with memory_client(a_server()) as client:
            large = await client.call_tool("text", {"size": 5000})
            assert large.is_error
            assert large.text.startswith("The result is too large: ")
            assert "2,000 can be sent" in large.text
            assert (await client.call_tool("text", {"size": 5})).text == "xxxxx"

    run(main)
    assert ["cannot be sent" in record.getMessage() for record in caplog.records] == [True]


def test_any_other_large_result_is_an_error_of_its_request(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with memory_client(a_server(), era="handshake") as client:
            with pytest.raises(RequestError, match="The result is too large"):
                await client.read_resource("large://it")
            await client.ping()

    run(main)
    assert len(caplog.records) == 1


@run_by(run)
async def test_reading_client_loses_no_answer_of_any_number_and_size() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    server = a_server(Options(limits=Limits(high_water=4000, queued_bytes=20_000)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, server, theirs)
        asked = [call(id, "text", size=3000) for id in range(1, 101)]
        await ours.send_all(lines(HELLO, {"method": "notifications/initialized"}, *asked))
        data = b""
        while data.count(b"\n") < 101:
            data += await ours.receive_some()
        await ours.aclose()
    answers: list[Any] = [json.loads(line) for line in data.splitlines()]
    assert [answer["id"] for answer in answers] == list(range(101))
    assert all(len(str(answer)) > 3000 for answer in answers[1:])


def test_the_end_of_a_session_whose_client_does_not_read_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        ours, theirs = trio.testing.memory_stream_pair()
        theirs.send_stream.send_all_hook = trio.sleep_forever
        server = a_server(Options(limits=Limits(queued_bytes=20_000)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, server, theirs)
            await ours.send_all(lines(HELLO, {"method": "notifications/initialized"}))
            await ours.send_all(lines(*(call(id, "text", size=30_000) for id in range(1, 6))))

    run(main)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == "a session was ended: its peer left more than 20,000 bytes of output unread"


@pytest.mark.parametrize(
    "arguments", [{"size": 3000}, {"size": 1, "padding": "x" * 3000}], ids=["results", "arguments"]
)
def test_concurrent_calls_of_any_number_and_size_are_answered(arguments: dict[str, Any]) -> None:
    limits = Limits(high_water=4000, queued_bytes=20_000, peer_bytes=80_000)
    server = Server("large", options=Options(limits=limits))

    @server.tool
    async def text(size: int, padding: str = "") -> str:
        await trio.sleep(0.1)
        return "x" * size

    async def main() -> None:
        ours, theirs = trio.testing.memory_stream_pair()
        answered: list[str] = []

        async def ask(client: Any) -> None:
            answered.append((await client.call_tool("text", arguments, timeout=None)).text)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, server, theirs)
            client = await connect(ours, nursery=nursery, options=Options(limits=limits))
            async with trio.open_nursery() as callers:
                for _ in range(100):
                    callers.start_soon(ask, client)
            assert answered == ["x" * int(arguments["size"])] * 100
            await client.aclose()

    run(main)


@run_by(run)
async def test_a_call_that_waits_to_be_sent_has_its_timeout_and_may_be_cancelled() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    limits = Limits(queued_bytes=2000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, a_server(), theirs)
        client = await connect(ours, nursery=nursery, options=Options(limits=limits), era="handshake")
        ours.send_stream.send_all_hook = trio.sleep_forever
        for _ in range(3):
            nursery.start_soon(partial(client.call_tool, "text", {"size": 1, "padding": "x" * 500}, timeout=None))
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(RequestTimeout, match="tools/call"):
            await client.call_tool("text", {"size": 1}, timeout=3)
        with trio.move_on_after(5) as scope:
            await client.call_tool("text", {"size": 1}, timeout=None)
        assert scope.cancelled_caught
        nursery.cancel_scope.cancel()


def test_client_with_the_most_memory_held_is_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("full", options=Options(limits=Limits(total_bytes=40_000)))

    @server.tool
    async def wait(text: str) -> None:
        await trio.sleep_forever()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            clients = []
            for _ in range(3):
                ours, theirs = trio.testing.memory_stream_pair()
                nursery.start_soon(serve, server, theirs)
                await ours.send_all(lines(HELLO, {"method": "notifications/initialized"}))
                await ours.receive_some()
                clients.append(ours)
            await clients[0].send_all(lines(call(1, "wait", text="x")))
            for id in range(1, 4):
                await clients[1].send_all(lines(call(id, "wait", text="x")))
            await trio.testing.wait_all_tasks_blocked()
            assert 0 < server.ledger.total <= 40_000
            for id in range(1, 10):
                with contextlib.suppress(trio.BrokenResourceError):
                    await clients[1].send_all(lines(call(id + 10, "wait", text="x")))
                    await trio.testing.wait_all_tasks_blocked()
            assert len(server.sessions) == 2
            assert await clients[1].receive_some() == b""
            await clients[0].send_all(lines({"id": 9, "method": "ping"}))
            assert b'"id":9' in await clients[0].receive_some()
            nursery.cancel_scope.cancel()
        assert server.ledger.total == 0

    run(main)
    assert "most was held for it" in caplog.text


@run_by(run)
async def test_limit_too_small_for_the_size_error_gives_an_internal_error() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    server = a_server(Options(limits=Limits(sent_message_bytes=500)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, server, theirs)
        id: Any = "i" * 380
        await ours.send_all(lines(HELLO, {"method": "notifications/initialized"}, call(id, "text", size=5000)))
        data = b""
        while data.count(b"\n") < 2:
            data += await ours.receive_some()
        await ours.aclose()
    assert json.loads(data.splitlines()[1])["error"]["message"] == "Internal error"
