"""A catalogue of bad input as the drivers meet it: what the peer is told, what the caller gets, and who goes on.

Which message is good and which is bad is the engine's to say, and its own catalogue has them all. Here each kind passes
through a driver: over streams of Trio and asyncio, and over sockets.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from faulted import Carrier, each_carrier, each_carrier_of_messages
from faults import (
    FROM_CLIENTS,
    FROM_SERVERS,
    GOOD,
    GREETINGS,
    HELLO,
    End,
    a_server,
    answers,
    call,
    converse,
    heard_from,
    line,
    read_line,
    shake_hands,
)
from websocketends import WebSockets

from mcpio import CloseReason, ConnectFailed, ConnectionLost, Limits, McpError, NoBackChannel, Options

# What a client may send


@pytest.mark.req("CANC-06", "CANC-09", "LIFE-13", "STDIO-12")
@pytest.mark.parametrize(("sent", "id", "code", "message"), FROM_CLIENTS.values(), ids=FROM_CLIENTS)
@pytest.mark.parametrize("cut", [False, True], ids=["whole", "byte by byte"])
@each_carrier_of_messages
def test_server_answers_bad_input_and_continues(
    over: Carrier, sent: bytes, id: Any, code: int | None, message: str, cut: bool, tmp_path: Path
) -> None:
    if isinstance(over, WebSockets):
        # What is no text ends a WebSocket, so that it comes as a text that is no JSON.
        message = message.removesuffix(": not UTF-8")

    async def main() -> None:
        async with over.served(a_server(), tmp_path) as client:
            await shake_hands(client)
            size = 1 if cut and len(sent) < 1000 else 10_000
            for start in range(0, len(sent), size):
                await client.send_all(sent[start : start + size])
            *errors, pong = await answers(client)
            assert pong == {"jsonrpc": "2.0", "id": "after", "result": {}}
            assert [(error.get("id"), error["error"]["code"]) for error in errors] == [(id, code)] * (code is not None)
            assert all(error["error"]["message"].startswith(message) for error in errors)

    over.run(main)


@pytest.mark.parametrize("resync", [True, False])
@each_carrier
def test_oversized_message_is_refused(over: Carrier, resync: bool, tmp_path: Path) -> None:
    async def main() -> None:
        async with over.served(a_server(message_bytes=1000, resync=resync), tmp_path) as client:
            await shake_hands(client)
            await client.send_all(call(1, "wait", seconds=1) + b"x" * 2000 + b"\n")
            found = await (answers(client) if resync else heard_from(client))
            assert found[0]["error"]["code"] == -32600
            assert found[0]["error"]["message"] == "Invalid request: a message is longer than 1000 bytes"
            # What runs is answered in either case; then it goes on, or closes.
            assert [message.get("id") for message in found[1:]] == (["after"] if resync else [1, None])

    over.run(main)


@pytest.mark.req("LIFE-11", "LIFE-12")
@each_carrier_of_messages
def test_early_request_is_refused_and_the_handshake_still_works(over: Carrier, tmp_path: Path) -> None:
    async def main() -> None:
        async with over.served(a_server(), tmp_path) as client:
            await client.send_all(call(1, "echo", text="x") + line(id=2, method="ping"))
            refused, pong = await read_line(client), await read_line(client)
            assert refused["error"]["message"] == "Invalid request: not initialized"
            assert pong["result"] == {}
            await client.send_all(line(id=3, method="initialize", params=HELLO) + call(4, "echo", text="x"))
            assert (await read_line(client))["id"] == 3
            assert (await read_line(client))["result"]["content"] == [{"type": "text", "text": "x"}]

    over.run(main)


@each_carrier
def test_half_a_line_at_end_of_file_is_answered_with_a_parse_error(over: Carrier, tmp_path: Path) -> None:
    async def main() -> None:
        async with over.served(a_server(), tmp_path) as client:
            await client.send_all(line(id=0, method="initialize", params=HELLO) + call(1, "echo", text="x")[:-5])
            await client.send_eof()
            assert (await read_line(client))["id"] == 0
            assert (await read_line(client))["error"]["code"] == -32700
            with pytest.raises(EOFError):
                await read_line(client)

    over.run(main)


# What a server may send


@pytest.mark.req("STDIO-12")
@pytest.mark.parametrize(("said", "error"), FROM_SERVERS.values(), ids=FROM_SERVERS)
@each_carrier_of_messages
def test_client_gets_a_result_or_an_exception_and_continues(
    over: Carrier, said: bytes, error: McpError | None, tmp_path: Path
) -> None:
    async def main() -> None:
        async with over.opened(partial(converse, said=[said]), tmp_path) as opened, opened(era="handshake") as client:
            if error is None:
                assert (await client.call_tool("any", timeout=3)).content == ()
            else:
                with pytest.raises(type(error), match=f"^{re.escape(str(error))}"):
                    await client.call_tool("any", timeout=3)
            await client.ping(timeout=3)

    over.run(main)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (line(id=2, result=GOOD)[:-9], CloseReason.END_OF_FILE),
        (b"", CloseReason.END_OF_FILE),
        (b"x" * 2000 + b"\n", CloseReason.MESSAGE_TOO_LARGE),
        (b"x" * 2000, CloseReason.MESSAGE_TOO_LARGE),
    ],
    ids=["truncated", "nothing", "oversized", "endless"],
)
@each_carrier
def test_vanished_server_fails_running_calls_and_refuses_later_ones(
    over: Carrier, said: bytes, reason: CloseReason, tmp_path: Path
) -> None:
    async def main() -> None:
        limits = Options(limits=Limits(message_bytes=1500))
        play = partial(converse, said=[said], ends=reason is CloseReason.END_OF_FILE)
        async with over.opened(play, tmp_path) as opened, opened(options=limits, era="handshake") as client:
            with pytest.raises(ConnectionLost, match=rf"^tools/call: the connection ended \({reason.value}\)$"):
                await client.call_tool("any")
            with pytest.raises(NoBackChannel, match=r"^the connection is closed$"):
                await client.call_tool("any")
        assert client.ended is not None
        assert client.ended.reason is reason

    over.run(main)


@each_carrier
def test_last_line_without_newline_is_a_message(over: Carrier, tmp_path: Path) -> None:
    async def main() -> None:
        play = partial(converse, said=[line(id=2, result=GOOD)[:-1]], ends=True)
        async with over.opened(play, tmp_path) as opened, opened(era="handshake") as client:
            assert (await client.call_tool("any")).content == ()

    over.run(main)


@pytest.mark.req("LIFE-06", "LIFE-18", "LIFE-23")
@pytest.mark.parametrize(("said", "cause", "message"), GREETINGS.values(), ids=GREETINGS)
@each_carrier
def test_failed_handshake_raises_one_exception_and_closes(
    over: Carrier, said: bytes, cause: type[McpError], message: str, tmp_path: Path
) -> None:
    heard: list[str] = []

    async def play(end: End) -> None:
        await end.send_all(said)
        while True:
            heard.append((await read_line(end))["method"])

    async def main() -> None:
        async with over.opened(play, tmp_path) as opened:
            with pytest.raises(ConnectFailed) as caught:
                async with opened(era="handshake"):
                    pytest.fail("there was no handshake")
            assert str(caught.value) == f"the handshake failed: {message}"
            assert type(caught.value.__cause__) is cause

    over.run(main)
    assert heard == ["initialize"]
