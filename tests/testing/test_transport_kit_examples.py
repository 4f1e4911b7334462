"""The transports that the docs show pass the kit for transports, and are short."""

from __future__ import annotations

import itertools
import os
import runpy
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from broker import find_broker, running_broker
from tree import ROOT

from mcpio.testing.transport_kit import CHECKS, Check, Ends, PairHarness, TransportTests, run_check

EXAMPLES = ROOT / "docs" / "examples"
TRANSPORTS = ("transport.py", "serial_line.py", "mqtt_channel.py")
LINES = 60
"""What a transport may take (P16)."""

queue_pair = runpy.run_path(str(EXAMPLES / "transport.py"))["queue_pair"]
SerialLine = runpy.run_path(str(EXAMPLES / "serial_line.py"))["SerialLine"]


def serial_pair() -> Ends:
    """Return two ends of a line: a terminal and whoever controls it."""
    control, terminal = os.openpty()
    return SerialLine(control), SerialLine(terminal)


class TestQueues(TransportTests):
    harness = PairHarness(queue_pair, virtual_time=True, room=65536)


class TestSerialLine(TransportTests):
    harness = PairHarness(serial_pair)


@pytest.fixture(scope="module")
def mqtt() -> Iterator[PairHarness]:
    program = find_broker()
    if program is None:
        pytest.skip("there is no message broker: Debian's package mosquitto has one")
    connect_mqtt = runpy.run_path(str(EXAMPLES / "mqtt_channel.py"))["connect_mqtt"]
    conversations = itertools.count()
    with running_broker(program) as port:

        @asynccontextmanager
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


@pytest.mark.parametrize("check", [check for check in CHECKS if check.applies_to(PairHarness(queue_pair))], ids=str)
def test_topics_of_a_broker(mqtt: PairHarness, check: Check) -> None:
    run_check(check, mqtt)


@pytest.mark.parametrize("name", TRANSPORTS)
def test_it_is_short(name: str) -> None:
    assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) <= LINES
