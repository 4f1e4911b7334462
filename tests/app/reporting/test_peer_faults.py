from __future__ import annotations

from typing import Any

from linked import Link

from mcpio.app.reporting import PeerFaults
from mcpio.app.server import Server
from mcpio.errors import RemoteProtocolError
from mcpio.events import CloseReason, ConnectionClosed, NoiseReceived, ProtocolViolated

BANNER = NoiseReceived("Listening\n on stdio\x1b[0m", 22)


class Operator:
    """A driver, as far as it reports."""

    def __init__(self) -> None:
        self.time = 0.0
        self.reports: list[str] = []
        self.runtime: Any = None

    def now(self) -> float:
        return self.time

    def report(self, message: str, error: BaseException | None) -> None:
        assert error is None
        self.reports.append(message)

    def wake(self) -> None: ...

    def close(self, grace: float) -> None: ...

    async def wait_closed(self) -> None: ...


def test_faults_are_logged_in_one_line() -> None:
    operator = Operator()
    faults = PeerFaults(operator)
    faults.note(BANNER)
    faults.note(ProtocolViolated(RemoteProtocolError("no id"), {"jsonrpc": "2.0", "x": "y" * 10**6}, None))
    faults.end()
    first, second = operator.reports
    assert first == r"a line that is not a message, 22 bytes: 'Listening\n on stdio\x1b[0m'"
    assert second.startswith("the peer broke a rule: no id; it sent {'jsonrpc': '2.0', 'x': 'yyy")
    assert len(second) < 120


def test_many_faults_are_throttled_in_the_log() -> None:
    operator = Operator()
    faults = PeerFaults(operator)
    for _ in range(1000):
        faults.note(BANNER)
    assert len(operator.reports) == 10
    operator.time = 10.0
    for _ in range(5):
        faults.note(BANNER)
    assert len(operator.reports) == 11
    assert operator.reports[-1].endswith(" (990 more of its faults were not reported)")
    faults.end()
    assert operator.reports[-1] == "the peer is gone (4 more of its faults were not reported)"


def test_both_sides_report_violations_of_the_other() -> None:
    link = Link(Server("s"))
    link.client._handle(BANNER)
    link.session._handle(ProtocolViolated(RemoteProtocolError("no id"), {}, None))
    link.client._handle(ConnectionClosed(CloseReason.CLOSED, None))
    assert link.reports == [
        r"a line that is not a message, 22 bytes: 'Listening\n on stdio\x1b[0m'",
        "the peer broke a rule: no id; it sent {}",
    ]
