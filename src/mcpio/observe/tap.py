"""Taps: passive observers of a connection's traffic (P15)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from mcpio.engine.connection import Connection
from mcpio.events import Event

__all__ = ["Observation", "Reporter", "Tap", "add_tap"]

Reporter: TypeAlias = Callable[[str, BaseException | None], None]
"""Tells an operator something, with the exception behind it."""


class Tap:
    """Hears of what passes a connection. Override what you want to hear of; each method here does nothing.

    A tap looks on: it must not call the connection, and must not change what it is given. Its methods are plain
    functions, called without waiting, in the middle of the verb that they tell of. One that raises is switched off:
    the connection goes on as if there had been none. ``now`` is the latest time that the connection was told.
    """

    def opened(self, connection: Connection, now: float) -> None:
        """Begin: the tap was given to this connection. What this raises goes to whoever gave it."""

    def received(self, data: bytes | None, now: float) -> None:
        """Hear that bytes were fed, in the pieces in which they came; ``None`` is the end of file.

        Message channels have no bytes.
        """

    def sent(self, data: bytes | None, now: float) -> None:
        """Hear that a chunk of bytes was pulled, to be written; ``None`` is the half-close."""

    def message_received(self, text: bytes | str, via: Hashable, now: float) -> None:
        """Hear that a whole message is about to be acted on: its JSON, or whatever came in place of that."""

    def message_sent(self, text: bytes, via: Hashable, now: float) -> None:
        """Hear that a whole message was pulled, to be written."""

    def event(self, event: Event, now: float) -> None:
        """Hear that an event was given to the program."""

    def called(self, verb: str, arguments: Mapping[str, Any], now: float) -> None:
        """Hear that a verb that changes something was called, and did not raise. Payloads are in their wire form.

        ``next_event`` is told of here only where it gave nothing. The verbs that answer are told of as ``respond``,
        with the whole message, and only where there was something to answer.
        """


class Observation:
    """A tap on a connection. Made by ``add_tap``."""

    tap: Tap
    """What observes."""
    error: Exception | None
    """What the tap raised, for which it was switched off."""

    def __init__(self, connection: Connection, tap: Tap, report: Reporter | None) -> None:
        self.tap = tap
        self.error = None
        self._connection = connection
        self._report = report

    def stop(self) -> None:
        """Take the tap off. A second time does nothing."""
        self._connection.remove_observer(self)

    def tell(self, what: str, *arguments: Any) -> None:
        """Call a method of the tap. What it raises ends the observation, and is reported once."""
        try:
            _check_nothing_waits(getattr(self.tap, what)(*arguments))
        except Exception as error:
            self.error = error
            self.stop()
            if self._report is not None:
                with suppress(Exception):
                    self._report(f"a tap failed in {what}, and is switched off", error)


def add_tap(connection: Connection, tap: Tap, now: float = 0.0, *, report: Reporter | None = None) -> Observation:
    """Let a tap hear of everything that passes a connection from here on.

    ``now`` is the time on the connection's clock: a recording begins there. ``report`` is called once if the tap fails;
    beside it only ``Observation.error`` tells. Raises what ``tap.opened`` does, and then nothing is observed. A
    connection may have any number of taps; each hears of everything.
    """
    tap.opened(connection, now)
    observation = Observation(connection, tap, report)
    connection.add_observer(observation)
    return observation


def _check_nothing_waits(result: Any) -> None:
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError("a tap's methods are plain functions: nobody awaits what they return")
