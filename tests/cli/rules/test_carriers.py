"""Raw messages are carried to servers that send too much, break off or say nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
import trio.testing
from rawtalk import in_virtual_time

from mcpio.cli.rules import trial
from mcpio.cli.rules.judges import object_result
from mcpio.cli.rules.rows import Conversation, Reply, Row, notification, request
from mcpio.cli.rules.trial import HttpCarrier, LineCarrier, Trial, try_rows
from mcpio.http.client import Location
from mcpio.revisions import REV_2025_11_25

Peer = Callable[[Any], Awaitable[None]]


def reply_of(peer: Peer, kind: str, *, is_request: bool = True) -> Reply:
    """Return what a carrier makes of a server that is a coroutine."""
    found: list[Reply] = []

    async def main() -> None:
        near, far = trio.testing.memory_stream_pair()

        async def dial() -> Any:
            await trio.lowlevel.checkpoint()
            return near

        carrier = (
            LineCarrier(near, timeout=5)
            if kind == "stream"
            else HttpCarrier(Location.parse("http://localhost/mcp"), timeout=5, dial=dial)
        )
        talk = Conversation(REV_2025_11_25, carrier.kind)
        sent = talk.dress(request("ping") if is_request else notification("notifications/x"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer, far)
            found.append(await carrier.exchange(sent, talk.fence))
            nursery.cancel_scope.cancel()

    in_virtual_time(main)
    return found[0]


async def says_nothing(stream: Any) -> None:
    await trio.sleep_forever()


async def closes(stream: Any) -> None:
    await stream.receive_some()
    await stream.aclose()


def floods(start: bytes, line: bytes) -> Peer:
    async def peer(stream: Any) -> None:
        await stream.receive_some()
        await stream.send_all(start)
        with suppress(trio.BrokenResourceError):
            while True:
                await stream.send_all(line)

    return peer


@pytest.mark.parametrize("is_request", [True, False])
def test_silent_server_ends_a_wait(is_request: bool) -> None:
    assert reply_of(says_nothing, "stream", is_request=is_request) == Reply()


def test_silent_http_server_is_told() -> None:
    assert reply_of(says_nothing, "http").ended == "no response within 5 s"


def test_closed_connection_is_told() -> None:
    assert reply_of(closes, "stream").ended == "the server closed the connection"
    assert reply_of(closes, "http").ended.startswith("no response: ")


def test_flooding_server_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "MAX_BYTES", 1000)
    assert "MiB" in reply_of(floods(b"", b"{}\n" * 100), "stream").ended
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    reply = reply_of(floods(head, b"data: {}\n\n" * 50), "http")
    assert reply.status == 200
    assert len(reply.raw) < 1000


def test_server_that_opens_once_leaves_rows_untried() -> None:
    count = 0

    @asynccontextmanager
    async def connect() -> AsyncIterator[LineCarrier]:
        nonlocal count
        count += 1
        near, far = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(opens if count == 1 else closes, far)
            yield LineCarrier(near, timeout=5)
            nursery.cancel_scope.cancel()

    async def main() -> None:
        rows = [Row(name, "", "", object_result, (request("ping"),)) for name in "abc"]
        trials.append(await try_rows(connect, rows, revisions=[REV_2025_11_25]))

    trials: list[Trial] = []
    in_virtual_time(main)
    assert trials[0].untried == {REV_2025_11_25: 2}


async def opens(stream: Any) -> None:
    """Answer initialize, and close the connection at ping."""
    await stream.receive_some()
    result = b'{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}'
    await stream.send_all(b'{"jsonrpc":"2.0","id":1,"result":' + result + b"}\n")
    while (data := bytes(await stream.receive_some())).find(b"ping") < 0 and data:
        pass
    await stream.send_all(b'{"jsonrpc":"2.0","id":2,"result":{}}\n')
    await stream.receive_some()
    await stream.aclose()


def test_late_answer_to_a_notification_is_seen() -> None:
    async def peer(stream: Any) -> None:
        await stream.receive_some()
        await stream.send_all(b'{"jsonrpc":"2.0","id":1,"result":{}}\n')
        await stream.send_all(b'{"jsonrpc":"2.0","id":null,"result":{}}\n')
        await trio.sleep_forever()

    assert reply_of(peer, "stream", is_request=False).raw == (b'{"jsonrpc":"2.0","id":null,"result":{}}',)
