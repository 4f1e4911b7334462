"""Taps: passive observers of a connection's traffic (P15)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from mcpio.engine.connection import Connection
from mcpio.engine.stateless_engine import StatelessEngine
from mcpio.events import Event

__all__ = ["Observation", "Reporter", "Tap", "add_tap"]

Reporter: TypeAlias = Callable[[str, BaseException | None], None]
"""Reports a problem to the operator, with its exception."""


class Tap:
    """Observer of a connection. Override the methods you need; the ones here do nothing.

    A tap must not call the connection, and must not change its arguments. Its methods are plain functions that the
    connection calls in the middle of its verbs. A tap that raises is removed, and the connection goes on without it.
    ``now`` is the latest time that was given to the connection.
    """

    def opened(self, connection: Connection | StatelessEngine, now: float) -> None:
        """Handle being added to a connection, or to the engine of the stateless requests of an HTTP server.

        An exception goes to the caller of ``add_tap``.
        """

    def received(self, data: bytes | None, now: float) -> None:
        """Handle bytes that were fed, in the pieces in which they came; ``None`` is the end of file.

        Never called on message channels.
        """

    def sent(self, data: bytes | None, now: float) -> None:
        """Handle a chunk of bytes that was pulled to be written; ``None`` is the half-close."""

    def message_received(self, text: bytes, via: Hashable, now: float) -> None:
        """Handle a message before the connection acts on it: its bytes, valid or not; if too long, their beginning."""

    def message_sent(self, text: bytes, via: Hashable, now: float) -> None:
        """Handle a message that was pulled to be written."""

    def event(self, event: Event, now: float) -> None:
        """Handle an event that the program pulled."""

    def called(self, verb: str, arguments: Mapping[str, Any], now: float) -> None:
        """Handle a call of a verb that changes the connection, once it has succeeded. Payloads are in their wire form.

        ``next_event`` is reported here only when it returned ``None``. The verbs that answer are reported as
        ``respond``, with the whole message, and only if the answer was still wanted.
        """


class Observation:
    """One tap on one connection. Returned by ``add_tap``."""

    tap: Tap
    """The tap."""
    error: Exception | None
    """The exception for which the tap was removed."""

    def __init__(self, connection: Connection | StatelessEngine, tap: Tap, report: Reporter | None) -> None:
        self.tap = tap
        self.error = None
        self._connection = connection
        self._report = report

    def stop(self) -> None:
        """Remove the tap. Repeated calls do nothing."""
        self._connection.remove_observer(self)

    def tell(self, what: str, *arguments: Any) -> None:
        """Call a method of the tap. An exception removes the tap, and is reported once."""
        try:
            _check_nothing_waits(getattr(self.tap, what)(*arguments))
        except Exception as error:  # in the middle of a verb, which must neither fail nor stop half-way
            self.error = error
            self.stop()
            if self._report is not None:
                with suppress(Exception):
                    self._report(f"a tap failed in {what}, and is switched off", error)


def add_tap(
    connection: Connection | StatelessEngine, tap: Tap, now: float = 0.0, *, report: Reporter | None = None
) -> Observation:
    """Add a tap to a connection. A connection may have any number of them.

    ``now`` is the time on the connection's clock: a recording begins there. ``report`` is called once if the tap fails,
    and ``Observation.error`` has the exception. If ``tap.opened`` raises, the tap is not added.
    """
    tap.opened(connection, now)
    observation = Observation(connection, tap, report)
    connection.add_observer(observation)
    return observation


def _check_nothing_waits(result: Any) -> None:
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError("a tap's methods are plain functions: their results are not awaited")
