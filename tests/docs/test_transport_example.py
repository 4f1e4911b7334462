"""The transport that the docs print is one: Trio's errors, whole messages, nothing left open."""

from __future__ import annotations

import runpy
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from tree import ROOT

from mcpio import ConnectionLost, NoBackChannel
from mcpio.trio import open_transport, serve

EXAMPLE = runpy.run_path(str(ROOT / "docs" / "examples" / "transport.py"))
queue_pair: Callable[..., tuple[trio.abc.Channel[str], trio.abc.Channel[str]]] = EXAMPLE["queue_pair"]


def within_trio(main: Callable[[], Awaitable[None]]) -> None:
    trio.run(main)


def test_program_prints_the_documented_output(capsys: pytest.CaptureFixture[str]) -> None:
    trio.run(EXAMPLE["main"])
    assert capsys.readouterr().out == "2 + 3 = 5\n"


def test_program_has_at_most_60_lines() -> None:
    assert len((ROOT / "docs" / "examples" / "transport.py").read_text(encoding="utf-8").splitlines()) <= 60


def test_closed_channel_raises_the_errors_of_trio() -> None:
    async def main() -> None:
        near, far = queue_pair()
        await near.send("last")
        await near.aclose()
        assert await far.receive() == "last"
        with pytest.raises(trio.EndOfChannel):
            await far.receive()
        with pytest.raises(trio.BrokenResourceError):
            await far.send("too late")
        with pytest.raises(trio.ClosedResourceError):
            await near.send("closed")

    within_trio(main)


def test_closing_forcefully_leaves_neither_direction_open() -> None:
    async def main() -> None:
        near, far = queue_pair()
        await trio.aclose_forcefully(near)
        with pytest.raises(trio.BrokenResourceError):
            await far.send("anybody?")
        with pytest.raises(trio.EndOfChannel):
            await far.receive()

    within_trio(main)


def test_calls_work_over_an_unbuffered_channel() -> None:
    async def main() -> None:
        near, far = queue_pair(room=0)
        sums: list[int] = []

        async def add(client: Any, n: int) -> None:
            result = await client.call_tool("add", {"a": n, "b": n})
            sums.append(result.structured_content["result"])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, EXAMPLE["server"], far)
            async with open_transport(near) as client, trio.open_nursery() as calls:
                for n in range(20):
                    calls.start_soon(add, client, n)
        assert sorted(sums) == [2 * n for n in range(20)]

    within_trio(main)


def test_call_fails_when_the_peer_is_gone() -> None:
    async def main() -> None:
        near, far = queue_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, EXAMPLE["server"], far)
            async with open_transport(near, era="handshake") as client:
                await client.ping()
                await trio.aclose_forcefully(far)
                with pytest.raises((ConnectionLost, NoBackChannel)):
                    await client.ping()

    within_trio(main)
