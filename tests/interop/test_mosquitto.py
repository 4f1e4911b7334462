"""The transport over a message broker that the docs show, with a real broker: Debian's ``mosquitto``."""

from __future__ import annotations

import contextlib
import itertools
import runpy
import shutil
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import trio
from broker import running_broker
from tree import ROOT

from mcpio.testing.transport_kit import CHECKS, Check, Ends, PairHarness, run_check

EXAMPLE = ROOT / "docs" / "examples" / "mqtt_channel.py"
NO_BROKER = "there is no message broker: Debian's package mosquitto has one"
OTHERS = ("half_close", "reconnecting")
"""What a channel does not do."""


@pytest.fixture(scope="module")
def mqtt() -> Iterator[PairHarness]:
    program = shutil.which("mosquitto")
    assert program is not None, NO_BROKER
    connect_mqtt = runpy.run_path(str(EXAMPLE))["connect_mqtt"]
    conversations = itertools.count()
    with running_broker(program) as port:

        @contextlib.asynccontextmanager
        async def mqtt_pair() -> AsyncIterator[Ends]:
            number = next(conversations)
            near = await connect_mqtt("127.0.0.1", port, f"{number}/to", f"{number}/back")
            far = await connect_mqtt("127.0.0.1", port, f"{number}/back", f"{number}/to")
            for end in (near, far):  # Small packets would wait for each other.
                end._client.socket().setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield near, far

        async def lose(_: Any, far: Any) -> None:
            """Cut the server off from the broker, which then says so for it."""
            if (connection := far._client.socket()) is not None:
                connection.shutdown(socket.SHUT_RDWR)
            await trio.lowlevel.checkpoint()

        yield PairHarness(mqtt_pair, lose=lose)


@pytest.mark.parametrize("check", [check for check in CHECKS if check.name not in OTHERS], ids=str)
def test_check_over_mqtt_topics(mqtt: PairHarness, check: Check) -> None:
    run_check(check, mqtt)


def test_end_that_closes_right_after_it_has_sent_loses_nothing() -> None:
    """To close a socket over unread input resets it, and the broker loses the messages that it has not read yet."""
    connect_mqtt = runpy.run_path(str(EXAMPLE))["connect_mqtt"]
    program = shutil.which("mosquitto")
    assert program is not None, NO_BROKER

    async def conversation(port: int, number: int) -> list[int]:
        near = await connect_mqtt("127.0.0.1", port, f"{number}/to", f"{number}/back")
        far = await connect_mqtt("127.0.0.1", port, f"{number}/back", f"{number}/to")
        received: list[int] = []

        async def read() -> None:
            with contextlib.suppress(trio.EndOfChannel):
                while True:
                    received.append(int(await far.receive()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            for message in range(50):
                await near.send(b"%d" % message)
            await near.aclose()
        await far.aclose()
        return received

    async def main(port: int) -> None:
        for number in range(10):  # Without the wait for the broker, about every third loses some.
            assert await conversation(port, number) == [*range(50)]

    with running_broker(program) as port:
        trio.run(main, port)
