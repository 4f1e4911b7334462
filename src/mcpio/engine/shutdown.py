"""Shutdown of a child process (STDIO-08), as a pure machine: it sends no signals and reads no clock.

The order is the specification's: close the child's standard input and wait; ask its process group to terminate and
wait; kill the group and wait; give up. A child that exits earlier ends the sequence, unless it leaves others behind in
its group: then the sequence goes on for them. A child that exits unasked and leaves others begins it.

*After every call that takes* ``now``, *carry out the actions that* ``next_action()`` *returns, until* ``None``, *and
re-arm the deadline.*
"""

from __future__ import annotations

import enum
from typing import Final

__all__ = ["PROBE_INTERVAL", "Shutdown", "ShutdownAction", "ShutdownPhase"]

PROBE_INTERVAL: Final = 0.02
"""Seconds between two probes of a group without its leader: the system does not report when its last member exits."""


class ShutdownAction(enum.Enum):
    """An action for the caller to carry out."""

    CLOSE_STDIN = "close-stdin"
    """Close this side's end of the child's standard input."""
    TERMINATE = "terminate"
    """Ask every process of the child's group to end: ``SIGTERM``."""
    KILL = "kill"
    """End every process of the child's group: ``SIGKILL``."""
    PROBE = "probe"
    """Check whether the group still has a member, and call ``group_ended`` if it has none."""


class ShutdownPhase(enum.Enum):
    """Progress of the sequence."""

    RUNNING = "running"
    CLOSING = "closing"
    TERMINATING = "terminating"
    KILLING = "killing"
    ENDED = "ended"
    """The child has exited, and no process of its group is left."""
    ABANDONED = "abandoned"
    """A process outlived the kill (stuck in the kernel), and is no longer waited for."""


class Shutdown:
    """Shutdown sequence of one child.

    ``close_grace`` is how many seconds the child has after its input closed, ``terminate_grace`` how many after it was
    asked to terminate, and ``kill_grace`` how many seconds to wait for a killed child before it is given up. Zero
    leaves no time, ``math.inf`` sets no limit.
    """

    __slots__ = ("_actions", "_deadline", "_graces", "_leader_gone", "_phase", "_probe_at")

    def __init__(self, *, close_grace: float = 2.0, terminate_grace: float = 2.0, kill_grace: float = 2.0) -> None:
        graces = {"close_grace": close_grace, "terminate_grace": terminate_grace, "kill_grace": kill_grace}
        for name, seconds in graces.items():
            if not seconds >= 0:
                raise ValueError(f"{name} must be a number of seconds, 0 or more, not {seconds}")
        self._graces = {
            ShutdownPhase.CLOSING: close_grace,
            ShutdownPhase.TERMINATING: terminate_grace,
            ShutdownPhase.KILLING: kill_grace,
        }
        self._phase = ShutdownPhase.RUNNING
        self._actions: list[ShutdownAction] = []
        self._deadline: float | None = None
        self._probe_at: float | None = None
        self._leader_gone = False

    @property
    def longest(self) -> float:
        """How many seconds the sequence takes at most."""
        return sum(self._graces.values())

    @property
    def phase(self) -> ShutdownPhase:
        """The step of the sequence."""
        return self._phase

    @property
    def finished(self) -> bool:
        """Nothing is left to do or to wait for."""
        return self._phase in (ShutdownPhase.ENDED, ShutdownPhase.ABANDONED)

    def close(self, now: float) -> None:
        """Start the sequence. Repeated calls do nothing."""
        if self._phase is ShutdownPhase.RUNNING:
            self._actions.append(ShutdownAction.CLOSE_STDIN)
            self._enter(ShutdownPhase.CLOSING, now)

    def child_exited(self, now: float, *, group_left: bool) -> None:
        """Record that the child exited and was reaped; ``group_left`` says whether its group still has a member."""
        if self.finished or self._leader_gone:
            return
        self._leader_gone = True
        if not group_left:
            self.group_ended()
            return
        self._probe_at = now + PROBE_INTERVAL
        self.close(now)

    def group_ended(self) -> None:
        """Record that no process of the exited child's group is left: the sequence has ended."""
        if self._leader_gone and not self.finished:
            self._finish(ShutdownPhase.ENDED)

    def handle_timeout(self, now: float) -> None:
        """Handle an expired deadline. A late call takes only one step, so that each grace is a full one."""
        # The grace first: when it is over, another probe would only put off the signal.
        if self._deadline is not None and now >= self._deadline:
            self._step(now)
        elif self._probe_at is not None and now >= self._probe_at:
            self._probe_at = now + PROBE_INTERVAL
            self._actions.append(ShutdownAction.PROBE)

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` is due, in seconds on the caller's clock, or ``None``."""
        if self._deadline is None or self._probe_at is None:
            return self._deadline
        return min(self._deadline, self._probe_at)

    def next_action(self) -> ShutdownAction | None:
        """Return the next action, each once, or ``None``."""
        return self._actions.pop(0) if self._actions else None

    def _step(self, now: float) -> None:
        match self._phase:
            case ShutdownPhase.CLOSING:
                self._actions.append(ShutdownAction.TERMINATE)
                self._enter(ShutdownPhase.TERMINATING, now)
            case ShutdownPhase.TERMINATING:
                self._actions.append(ShutdownAction.KILL)
                self._enter(ShutdownPhase.KILLING, now)
            case _:
                self._finish(ShutdownPhase.ABANDONED)

    def _enter(self, phase: ShutdownPhase, now: float) -> None:
        self._phase = phase
        self._deadline = now + self._graces[phase]

    def _finish(self, phase: ShutdownPhase) -> None:
        self._phase = phase
        self._deadline = self._probe_at = None
        # A signal not sent yet would reach no process, or an unrelated one with the same number.
        self._actions.clear()
