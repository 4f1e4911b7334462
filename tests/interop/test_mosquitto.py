"""The transport over a message broker that the docs show, with a real broker: Debian's ``mosquitto``."""

from __future__ import annotations

import itertools
import runpy
import shutil
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from broker import running_broker
from tree import ROOT

from mcpio.testing.transport_kit import CHECKS, Check, Ends, PairHarness, run_check

OTHERS = ("half_close", "reconnecting")
"""What a channel does not do."""


@pytest.fixture(scope="module")
def mqtt() -> Iterator[PairHarness]:
    program = shutil.which("mosquitto")
    assert program is not None, "there is no message broker: Debian's package mosquitto has one"
    connect_mqtt = runpy.run_path(str(ROOT / "docs" / "examples" / "mqtt_channel.py"))["connect_mqtt"]
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


@pytest.mark.parametrize("check", [check for check in CHECKS if check.name not in OTHERS], ids=str)
def test_check_over_mqtt_topics(mqtt: PairHarness, check: Check) -> None:
    run_check(check, mqtt)
