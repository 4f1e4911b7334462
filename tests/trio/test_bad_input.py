"""Bad input from real children: what the caller gets, and who goes on."""

from __future__ import annotations

import os
import sys

import pytest
import trio
from faults import WELCOME
from runners import run_by

from mcpio.engine.options import Options
from mcpio.errors import ConnectFailed, ConnectionLost, NoBackChannel, RequestTimeout
from mcpio.trio import open_stdio

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


@pytest.mark.long
@on_posix
@pytest.mark.req("STDIO-07", "STDIO-12")
@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_call_to_a_flooding_child_is_answered(flood: str) -> None:
    source = f"greet()\nid = next_id()\n{flood}\nanswer(id, {{'content': []}})\nsys.stdin.read()"

    async def main() -> None:
        async with open_stdio(child(source), stderr="capture", era="handshake") as client:
            assert (await client.call_tool("any", timeout=20)).content == ()
            assert len(client.child.stderr_tail) <= 8192

    trio.run(main)


@on_posix
def test_unanswered_call_times_out_and_the_session_continues() -> None:
    source = "greet()\nnext_id()\nnext_id()\nanswer(next_id(), {})\nsys.stdin.read()"

    async def main() -> None:
        async with open_stdio(child(source), era="handshake") as client:
            with pytest.raises(RequestTimeout, match=r"^tools/call: no answer within 0\.1 s$"):
                await client.call_tool("any", timeout=0.1)
            await client.ping(timeout=20)

    trio.run(main)


@pytest.mark.long
@on_posix
@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("sys.stdin.read()", ""),
        (
            "print('Usage: server [options]', flush=True); sys.stdin.read()",
            "; its output is not a message, and begins with 'Usage: server [options]'",
        ),
    ],
    ids=["silent", "noisy"],
)
@run_by(trio.run)
async def test_child_without_a_handshake_raises_connect_failed(source: str, said: str) -> None:
    with pytest.raises(ConnectFailed) as caught:
        async with open_stdio(child(source), options=Options(initialize_timeout=1.5), era="handshake"):
            pytest.fail("there was no handshake")
    assert str(caught.value) == f"the handshake failed: initialize: no answer within 1.5 s{said}"


@on_posix
@run_by(trio.run)
async def test_program_that_is_not_a_server_raises_connect_failed() -> None:
    with pytest.raises(ConnectFailed) as caught:
        async with open_stdio(["echo", "hello"], era="handshake"):
            pytest.fail("there was no handshake")
    assert str(caught.value) == (
        "the handshake failed: initialize: the connection ended (closed by the peer); "
        "its output is not a message, and begins with 'hello': 'echo' exited with status 0"
    )


DEATHS = {
    "in a call": ("next_id()", "exited with status 0"),
    "in a line": ("next_id(); say(b'{\"jsonrpc\"'); os.kill(os.getpid(), 9)", "was ended by SIGKILL"),
    "by closing its ends": ("next_id(); os.close(0); os.close(1); import time; time.sleep(20)", "has not exited"),
}


@on_posix
@pytest.mark.parametrize(("source", "how"), DEATHS.values(), ids=DEATHS)
@run_by(trio.run)
async def test_call_fails_with_the_exit_of_the_child(source: str, how: str) -> None:
    async with open_stdio(child("greet()\n" + source), close_grace=0.1, era="handshake") as client:
        with pytest.raises(ConnectionLost) as caught:
            await client.call_tool("any", timeout=20)
        assert str(caught.value) == (f"tools/call: the connection ended (closed by the peer): {sys.executable!r} {how}")


@on_posix
@run_by(trio.run)
async def test_call_after_the_exit_of_the_child_is_refused() -> None:
    async with open_stdio(child("greet()"), era="handshake") as client:
        await client.driver.wait_closed()
        with pytest.raises(NoBackChannel, match=r"^the connection is closed: '.*' exited with status 0$"):
            await client.call_tool("any")
