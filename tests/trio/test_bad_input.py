"""A catalogue of bad input as the drivers meet it: what the peer is told, what the caller gets, and who goes on.

Which message is good and which is bad is the engine's to say, and its own catalogue has them all. Here each kind passes
through a driver: over memory streams, and from real children.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from faults import (
    FROM_CLIENTS,
    FROM_SERVERS,
    GOOD,
    GREETINGS,
    HELLO,
    WELCOME,
    a_server,
    answers,
    call,
    converse,
    line,
    read_line,
    shake_hands,
)

from mcpio.app.client import Client
from mcpio.app.server import Server
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.errors import (
    ConnectFailed,
    ConnectionLost,
    McpError,
    NoBackChannel,
    RequestTimeout,
)
from mcpio.trio import open_stdio, open_transport, serve


def run(main: Callable[[], Awaitable[None]]) -> None:
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


# What a client may send


@asynccontextmanager
async def raw_client(server: Server) -> AsyncIterator[trio.StapledStream[Any, Any]]:
    near, far = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, server, far)
        await shake_hands(near)
        yield near
        nursery.cancel_scope.cancel()


@pytest.mark.req("CANC-06", "CANC-09", "LIFE-13", "STDIO-12")
@pytest.mark.parametrize(("sent", "id", "code", "message"), FROM_CLIENTS.values(), ids=FROM_CLIENTS)
@pytest.mark.parametrize("cut", [False, True], ids=["whole", "byte by byte"])
def test_a_server_answers_what_is_wrong_and_goes_on(
    sent: bytes, id: Any, code: int | None, message: str, cut: bool
) -> None:
    async def main() -> None:
        async with raw_client(a_server()) as client:
            size = 1 if cut and len(sent) < 1000 else 10_000
            for start in range(0, len(sent), size):
                await client.send_all(sent[start : start + size])
            *errors, pong = await answers(client)
            assert pong == {"jsonrpc": "2.0", "id": "after", "result": {}}
            assert [(error.get("id"), error["error"]["code"]) for error in errors] == [(id, code)] * (code is not None)
            assert all(error["error"]["message"].startswith(message) for error in errors)

    run(main)


@pytest.mark.parametrize("resync", [True, False])
def test_a_message_over_the_limit_is_refused(resync: bool) -> None:
    async def main() -> None:
        async with raw_client(a_server(message_bytes=1000, resync=resync)) as client:
            await client.send_all(call(1, "wait", seconds=1) + b"x" * 2000 + b"\n")
            found = await answers(client)
            assert found[0]["error"]["code"] == -32600
            assert found[0]["error"]["message"] == "Invalid request: a message is longer than 1000 bytes"
            # What runs is answered in either case; then it goes on, or closes.
            assert [message.get("id") for message in found[1:]] == (["after"] if resync else [1, None])

    run(main)


@pytest.mark.req("LIFE-11", "LIFE-12")
def test_a_request_before_the_handshake_is_refused_and_the_handshake_works() -> None:
    async def main() -> None:
        near, far = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, a_server(), far)
            await near.send_all(call(1, "echo", text="x") + line(id=2, method="ping"))
            refused, pong = await read_line(near), await read_line(near)
            assert refused["error"]["message"] == "Invalid request: not initialized"
            assert pong["result"] == {}
            await near.send_all(line(id=3, method="initialize", params=HELLO) + call(4, "echo", text="x"))
            assert (await read_line(near))["id"] == 3
            assert (await read_line(near))["result"]["content"] == [{"type": "text", "text": "x"}]
            await near.send_eof()

    run(main)


def test_a_client_that_goes_in_the_middle_of_a_line_is_told_that_it_was_none() -> None:
    async def main() -> None:
        near, far = trio.testing.memory_stream_pair()
        await near.send_all(line(id=0, method="initialize", params=HELLO) + call(1, "echo", text="x")[:-5])
        await near.send_eof()
        await serve(a_server(), far)
        assert (await read_line(near))["id"] == 0
        assert (await read_line(near))["error"]["code"] == -32700
        with pytest.raises(trio.EndOfChannel):
            await read_line(near)

    run(main)


# What a server may send


@asynccontextmanager
async def raw_server(*said: bytes, ends: bool = False, **options: Any) -> AsyncIterator[Client]:
    """Give a client of a server that answers the first request after the handshake with what it is told to say."""
    near, far = trio.testing.memory_stream_pair()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(converse, far, said, ends)
        async with open_transport(near, **options) as client:
            yield client
            nursery.cancel_scope.cancel()


@pytest.mark.req("STDIO-12")
@pytest.mark.parametrize(("said", "error"), FROM_SERVERS.values(), ids=FROM_SERVERS)
def test_a_client_gets_an_answer_or_an_exception_and_goes_on(said: bytes, error: McpError | None) -> None:
    async def main() -> None:
        async with raw_server(said) as client:
            if error is None:
                assert (await client.call_tool("any", timeout=3)).content == ()
            else:
                with pytest.raises(type(error), match=f"^{re.escape(str(error))}"):
                    await client.call_tool("any", timeout=3)
            await client.ping(timeout=3)

    run(main)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (line(id=2, result=GOOD)[:-9], "closed by the peer"),
        (b"", "closed by the peer"),
        (b"x" * 2000 + b"\n", "a message over the limit"),
        (b"x" * 2000, "a message over the limit"),
    ],
    ids=["truncated", "nothing", "oversized", "endless"],
)
def test_a_server_that_goes_loses_the_calls(said: bytes, message: str) -> None:
    async def main() -> None:
        limits = Options(limits=Limits(message_bytes=1500))
        async with raw_server(said, ends="over" not in message, options=limits) as client:
            with pytest.raises(ConnectionLost, match=rf"^tools/call: the connection ended \({message}\)$"):
                await client.call_tool("any")

    run(main)


def test_a_last_line_without_its_end_is_a_message() -> None:
    async def main() -> None:
        async with raw_server(line(id=2, result=GOOD)[:-1], ends=True) as client:
            assert (await client.call_tool("any")).content == ()

    run(main)


@pytest.mark.req("LIFE-06", "LIFE-18", "LIFE-23")
@pytest.mark.parametrize(("said", "cause", "message"), GREETINGS.values(), ids=GREETINGS)
def test_a_handshake_that_goes_wrong_is_one_exception_and_the_end(
    said: bytes, cause: type[McpError], message: str
) -> None:
    async def main() -> None:
        near, far = trio.testing.memory_stream_pair()
        await far.send_all(said)
        with pytest.raises(ConnectFailed) as caught:
            async with open_transport(near):
                pytest.fail("there was no handshake")
        assert str(caught.value) == f"the handshake failed: {message}"
        assert isinstance(caught.value.__cause__, cause)
        assert (await read_line(far))["method"] == "initialize"
        with pytest.raises(trio.EndOfChannel):
            await read_line(far)

    run(main)


# Real children

RAW = """
import json, os, sys

def say(data):
    while data:
        data = data[os.write(1, data):]

def answer(id, result):
    say(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode() + b"\\n")

def greet():
    answer(json.loads(sys.stdin.readline())["id"], %r)
    sys.stdin.readline()

def next_id():
    return json.loads(sys.stdin.readline()).get("id")
"""


def child(source: str) -> list[str]:
    return [sys.executable, "-S", "-c", RAW % WELCOME + source]


on_posix = pytest.mark.skipif(os.name != "posix", reason="processes of POSIX")

FLOODS = {
    "noise on standard output": "say(b'noise\\n' * 50_000)",
    "one line of noise": "say(b'x' * 10_000_000 + b'\\n')",
    "noise on standard error": "os.write(2, b'noise\\n' * 1_000_000)",
    "a line without an end on standard error": "os.write(2, b'x' * 5_000_000)",
    "notifications": """say(b'{"jsonrpc":"2.0","method":"notifications/none","params":{}}\\n' * 20_000)""",
    "answers to nothing": """say(b'{"jsonrpc":"2.0","id":77,"result":{}}\\n' * 20_000)""",
}


@on_posix
@pytest.mark.req("STDIO-07", "STDIO-12")
@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_a_child_that_floods_is_answered_all_the_same(flood: str) -> None:
    source = f"greet()\nid = next_id()\n{flood}\nanswer(id, {{'content': []}})\nsys.stdin.read()"

    async def main() -> None:
        async with open_stdio(child(source), stderr="capture") as client:
            assert (await client.call_tool("any", timeout=20)).content == ()
            assert len(client.child.stderr_tail) <= 8192

    trio.run(main)


@on_posix
def test_a_child_that_never_answers_a_call_costs_that_call() -> None:
    source = "greet()\nnext_id()\nnext_id()\nanswer(next_id(), {})\nsys.stdin.read()"

    async def main() -> None:
        async with open_stdio(child(source)) as client:
            with pytest.raises(RequestTimeout, match=r"^tools/call: no answer within 0\.1 s$"):
                await client.call_tool("any", timeout=0.1)
            await client.ping(timeout=20)

    trio.run(main)


@on_posix
@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("sys.stdin.read()", ""),
        (
            "print('Usage: server [options]', flush=True); sys.stdin.read()",
            "; its output is no message, and begins with 'Usage: server [options]'",
        ),
    ],
    ids=["silent", "noisy"],
)
def test_a_child_that_never_shakes_hands(source: str, said: str) -> None:
    async def main() -> None:
        with pytest.raises(ConnectFailed) as caught:
            async with open_stdio(child(source), options=Options(initialize_timeout=0.5)):
                pytest.fail("there was no handshake")
        assert str(caught.value) == f"the handshake failed: initialize: no answer within 0.5 s{said}"

    trio.run(main)


@on_posix
def test_a_program_that_is_no_server() -> None:
    async def main() -> None:
        with pytest.raises(ConnectFailed) as caught:
            async with open_stdio(["echo", "hello"]):
                pytest.fail("there was no handshake")
        assert str(caught.value) == (
            "the handshake failed: initialize: the connection ended (closed by the peer); "
            "its output is no message, and begins with 'hello': 'echo' exited with status 0"
        )

    trio.run(main)


DEATHS = {
    "in a call": ("next_id()", "exited with status 0"),
    "in a line": ("next_id(); say(b'{\"jsonrpc\"'); os.kill(os.getpid(), 9)", "was ended by SIGKILL"),
    "by closing its ends": ("next_id(); os.close(0); os.close(1); import time; time.sleep(20)", "has not exited"),
}


@on_posix
@pytest.mark.parametrize(("source", "how"), DEATHS.values(), ids=DEATHS)
def test_a_child_that_dies(source: str, how: str) -> None:
    async def main() -> None:
        async with open_stdio(child("greet()\n" + source), close_grace=0.1) as client:
            with pytest.raises(ConnectionLost) as caught:
                await client.call_tool("any", timeout=20)
            assert str(caught.value) == (
                f"tools/call: the connection ended (closed by the peer): {sys.executable!r} {how}"
            )

    trio.run(main)


@on_posix
def test_a_child_that_dies_between_calls() -> None:
    async def main() -> None:
        async with open_stdio(child("greet()")) as client:
            await client.driver.wait_closed()
            with pytest.raises(NoBackChannel, match=r"^the connection is closed: '.*' exited with status 0$"):
                await client.call_tool("any")

    trio.run(main)
