"""The transports that the docs show pass the kit for transports, and are short.

That over a message broker is held to the kit in ``tests/interop/test_mosquitto.py``.
"""

from __future__ import annotations

import os
import runpy

import pytest
from tree import ROOT

from mcpio.testing.transport_kit import Ends, PairHarness, TransportTests

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


@pytest.mark.parametrize("name", TRANSPORTS)
def test_example_transport_has_at_most_60_lines(name: str) -> None:
    assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) <= LINES
