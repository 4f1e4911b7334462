"""The transports that the docs show pass the kit for transports, and are short.

That over a message broker is held to the kit in ``tests/interop/test_mosquitto.py``.
"""

from __future__ import annotations

import os
import runpy

import pytest
import trio
from tree import ROOT

from mcpio.testing.transport_kit import Ends, PairHarness, TransportTests

EXAMPLES = ROOT / "docs" / "examples"
TRANSPORTS = ("transport.py", "serial_line.py", "mqtt_channel.py")
LINES = 60
"""What a transport may take (P16)."""

queue_pair = runpy.run_path(str(EXAMPLES / "transport.py"))["queue_pair"]
SerialLine = runpy.run_path(str(EXAMPLES / "serial_line.py"))["SerialLine"]


class Terminal(SerialLine):  # type: ignore[misc, valid-type]  # the class of an example, which has no type here
    """A line that counts the bytes that came."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self.received = 0
        self.more = trio.Event()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        data: bytes = await super().receive_some(max_bytes)
        self.received += len(data)
        self.more.set()
        return data


class Control(SerialLine):  # type: ignore[misc, valid-type]  # as above
    """The end that controls a terminal. When it closes, Linux drops the bytes on their way, which no wire would do.

    So it closes once the terminal has read them, or after a second in which it does not.
    """

    def __init__(self, descriptor: int, terminal: Terminal) -> None:
        super().__init__(descriptor)
        self.terminal = terminal
        self.sent = 0

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await super().send_all(data)
        self.sent += len(data)

    async def aclose(self) -> None:
        try:
            with trio.move_on_after(1):
                while self._descriptor != -1 and self.terminal.received < self.sent:
                    self.terminal.more = trio.Event()
                    await self.terminal.more.wait()
        finally:
            await super().aclose()


def serial_pair() -> Ends:
    """Return two ends of a line: a terminal and whoever controls it."""
    control, terminal = os.openpty()
    other = Terminal(terminal)
    return Control(control, other), other


class TestQueues(TransportTests):
    harness = PairHarness(queue_pair, virtual_time=True, room=65536)


class TestSerialLine(TransportTests):
    harness = PairHarness(serial_pair)


@pytest.mark.parametrize("name", TRANSPORTS)
def test_example_transport_has_at_most_60_lines(name: str) -> None:
    assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) <= LINES
