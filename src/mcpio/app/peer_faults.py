"""What a peer does wrong, told to the operator: as often as helps, and no oftener."""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, Final

from mcpio.app.throttle import Throttle
from mcpio.events import NoiseReceived

if TYPE_CHECKING:
    from mcpio.app.runtime import Driver
    from mcpio.events import ProtocolViolated

__all__ = ["PeerFaults"]

_BURST: Final = 10
_PER_SECOND: Final = 0.1
"""Ten reports at once, and then one every ten seconds: a peer that floods cannot flood the log."""


class PeerFaults:
    """Reports the faults of one peer, and counts those that are left out."""

    __slots__ = ("_driver", "_throttle")

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._throttle = Throttle(_PER_SECOND, _BURST)

    def note(self, event: ProtocolViolated | NoiseReceived) -> None:
        """Report what the engine found."""
        if isinstance(event, NoiseReceived):
            self.report(f"a line that is no message, {event.size} bytes: {event.text!r}")
        else:
            self.report(f"the peer broke a rule: {event.error}; it sent {reprlib.repr(event.raw)}")

    def report(self, text: str) -> None:
        """Report something that the peer is to blame for, unless there have been too many of late."""
        if self._throttle.admits(self._driver.now()):
            self._driver.report(text + self._left_out(), None)

    def end(self) -> None:
        """Say how many were left out since the last report."""
        if self._throttle.held_back:
            self._driver.report(f"the peer is gone{self._left_out()}", None)

    def _left_out(self) -> str:
        count, self._throttle.held_back = self._throttle.held_back, 0
        return f" ({count} more of its faults were not reported)" if count else ""
