"""A connection that asks a silent peer whether it is there, where ``Options.keep_alive`` says so (PING-02, PING-03)."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from mcpio.engine.connection import Connection
from mcpio.engine.keep_alive import KEEP_ALIVE, KeepAlive
from mcpio.engine.options import Options
from mcpio.engine.table import Input
from mcpio.errors import LocalProtocolError, RequestTimeout
from mcpio.events import CloseReason, RequestContext
from mcpio.types.lifecycle import Implementation, PingRequest

__all__ = ["KEEP_ALIVE_TIMER", "Alive"]

KEEP_ALIVE_TIMER: Final = -1
"""The timer key of the next look at how long the peer has been silent. Requests have positive keys."""


class Alive(Connection):
    """The pings go out, and come to an end, as requests of our own whose cookie is ``KEEP_ALIVE``."""

    __slots__ = ("_pinged_at", "_pings")

    def __init__(self, info: Implementation, capabilities: object, *, options: Options | None = None) -> None:
        super().__init__(info, capabilities, options=options)
        self._pings = 0  # that nothing followed
        self._pinged_at = 0.0

    def _settle(self, context: RequestContext) -> None:
        super()._settle(context)
        policy = self._options.keep_alive
        if policy is not None:
            self._pings = 0
            self._timers.set(KEEP_ALIVE_TIMER, self._now + policy.interval)

    def _expire(self, id: int) -> None:
        policy = self._options.keep_alive
        if id != KEEP_ALIVE_TIMER or policy is None:
            if self._outgoing.get(id) is not None:  # else it was lost a moment ago, with a peer that was given up
                super()._expire(id)
        # Where there are exchanges, the peer comes and goes as it likes.
        elif self.can_reach is None:
            self._look_after_peer(policy)

    def _look_after_peer(self, policy: KeepAlive) -> None:
        heard = self._heard_at
        if heard > self._pinged_at:
            self._pings = 0
        due = heard + policy.interval
        if not self._pings and due > self._now:
            self._timers.set(KEEP_ALIVE_TIMER, due)
        elif self._pings >= policy.failures:
            self._end_unresponsive(RequestTimeout("ping", policy.timeout, "total"))
        elif self._allows(Input.SEND_PING):
            self._ping(policy)

    def _ping(self, policy: KeepAlive) -> None:
        self._pings += 1
        self._pinged_at = self._now
        # Before the request, which may fill the output over its limit, and so be the end.
        self._timers.set(KEEP_ALIVE_TIMER, self._now + policy.timeout)
        with suppress(LocalProtocolError):  # Too many requests wait already: they tell as much.
            super().send_request(PingRequest(), now=self._now, timeout=policy.timeout, cookie=KEEP_ALIVE)

    def _end_unresponsive(self, cause: RequestTimeout) -> None:
        """Give up on a peer that does not answer (PING-05)."""
        self._finish(Input.SEND_ABORT, CloseReason.UNRESPONSIVE, cause)

    def _finish(self, what: Input, reason: CloseReason, cause: BaseException | None) -> None:
        super()._finish(what, reason, cause)
        self._timers.clear(KEEP_ALIVE_TIMER)
