"""Servers on sockets: a client has to say something, and one that did keeps its place."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from carriers import added, make_server
from runners import run_by
from triowire import MemoryListener, in_virtual_time

from mcpio.trio import open_transport, serve_tcp


@asynccontextmanager
async def listening(**options: Any) -> AsyncIterator[MemoryListener]:
    """Serve for a block."""
    listener = MemoryListener()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(serve_tcp, make_server(), listeners=[listener], **options))
        yield listener
        nursery.cancel_scope.cancel()


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.mark.parametrize("said", [b"", b'{"jsonrpc":', b"\n", b"\n" * 100])
@run_by(in_virtual_time)
async def test_client_without_a_first_message_is_disconnected(said: bytes) -> None:
    async with listening() as listener:
        client = listener.connect()
        await client.send_all(said)
        with trio.fail_after(10.1):
            assert await client.receive_some() == b""
        assert trio.current_time() >= 10


@pytest.mark.parametrize(
    "said",
    [
        line(id=1, method="initialize", params=HELLO),
        line(id=1, method="ping"),
        line(id=1, method="tools/list", params={"_meta": META}),
        line(id=1, method="tools/call", params={"_meta": META, "name": "wait", "arguments": {}}),
    ],
    ids=["initialize", "ping", "stateless", "stateless and unanswered"],
)
@run_by(in_virtual_time)
async def test_client_with_a_first_message_stays_connected(said: bytes) -> None:
    async with listening() as listener:
        client = listener.connect()
        await trio.sleep(9)
        await client.send_all(said)
        with trio.move_on_after(1000) as scope:
            while await client.receive_some():
                pass
        assert scope.cancelled_caught


@run_by(in_virtual_time)
async def test_the_time_for_the_first_message_can_be_chosen() -> None:
    async with listening(first_message_timeout=None) as listener:
        client = listener.connect()
        with trio.move_on_after(1000) as scope:
            await client.receive_some()
        assert scope.cancelled_caught
    async with listening(first_message_timeout=3) as listener:
        with trio.fail_after(3.1):
            assert await listener.connect().receive_some() == b""


@run_by(in_virtual_time)
async def test_silent_clients_cannot_take_all_places_for_long() -> None:
    async with listening(max_connections=5) as listener:
        silent = [listener.connect() for _ in range(5)]
        with trio.fail_after(11):
            async with open_transport(listener.connect()) as client:
                assert await added(client, 1, 2) == 3
        for each in silent:
            assert await each.receive_some() == b""
