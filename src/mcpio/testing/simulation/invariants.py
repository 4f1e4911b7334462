"""What must hold in every world, whatever the network and the processes do: one line of prose for each."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import attrs

from mcpio.errors import ErrorCode, McpError, RequestError, RequestTimeout
from mcpio.events import ProgressReceived, RequestFailed, RequestReceived, ResponseReceived

if TYPE_CHECKING:
    from mcpio.engine.limits import Ledger
    from mcpio.testing.simulation.world import Process, World

INVARIANTS: Final = {
    "one outcome": "A request has one outcome: an answer or an error, never both and never two.",
    "nothing after the end": "Nothing is reported of a request that has an outcome.",
    "ids": "The id of a request is given out once, on either side.",
    "order": "What belongs to one request arrives in the order in which its handler said it, and once.",
    "program": "What the programs of clients assert holds.",
    "own answers": "A caller gets the answer to its own question, as its own principal.",
    "deadline": "A call ends within its timeout, whatever the network does.",
    "valid requests": "A valid request is not refused as invalid.",
    "errors": "A call fails with an error of this library that is meant for callers.",
    "no faults of ours": "No session, call or transport fails through a fault of the library.",
    "no crash": "No task of the library ends with an exception.",
    "ledger": "The ledger's sum is the sum of what its holders hold, and never negative.",
    "liveness": "Without faults, or once they are switched off, calls succeed, and clients are admitted.",
    "changes": "A listener that a server has acknowledged hears of a change, or that it may have missed one.",
    "acknowledged": "What a server has acknowledged is not lost with a process that kept it in a store.",
    "nothing is left": "When all is closed, there is no task, timer, session, stream or request, and the ledger is 0.",
}
"""The invariants, by name."""

_SLACK: Final = 0.001


class Violation(AssertionError):
    """An invariant was broken."""

    name: str
    """Its name, a key of ``INVARIANTS``."""

    def __init__(self, name: str, what: str, when: float) -> None:
        super().__init__(f"{name}: {what}, after {when:.3f} s ({INVARIANTS[name]})")
        self.name = name


class Planned(BaseException):
    """A fault of a handler that the world planned. It is no ``Exception``, as those of other languages are not."""


class Seen:
    """The requests of one connection that were seen: own ones with an outcome, and the peer's."""

    __slots__ = ("ended", "received")

    def __init__(self) -> None:
        self.ended: set[Any] = set()
        self.received: set[Any] = set()


@attrs.define(eq=False)
class Call:
    """A call of a program."""

    what: str
    owner: Process
    deadline: float
    is_calm: bool
    allowed: float
    is_over: bool = False

    def __str__(self) -> str:
        return f"{self.what} of {self.owner.name}"


class Invariants:
    """Asks the invariants of one world. The first that is broken ends the world."""

    violation: Violation | None
    """The first that was broken."""
    asked: int
    """How often an invariant was asked."""
    is_calm: bool
    """Whether the faults were switched off long ago."""
    is_kind: bool
    """Whether the world has no faults at all."""
    is_durable: bool
    """Whether acknowledged changes survive the end of their process."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.violation = None
        self.asked = 0
        self.is_calm = self.is_durable = self.is_kind = False
        self.ledgers: list[Ledger] = []
        self.losses = 0
        """How many sessions were lost in this world."""
        self._deadlines: list[tuple[float, int, Call]] = []
        self._logs: dict[str, int] = {}
        world.after_step = self.after_step
        world.on_crash = self.crashed

    def broken(self, name: str, what: str) -> None:
        """Record that an invariant is broken."""
        if self.violation is None:
            self.violation = Violation(name, what, self._world.now)

    def holds(self, name: str, is_so: object, what: str) -> None:
        """Ask an invariant."""
        self.asked += 1
        if not is_so:
            self.broken(name, what)

    def left(self, where: str, **counts: int) -> None:
        """Check that every counter is at zero."""
        leftovers = ", ".join(f"{count} {noun}" for noun, count in counts.items() if count)
        self.holds("nothing is left", not leftovers, f"{leftovers} at {where}")

    # After every step

    def after_step(self, process: Process) -> None:
        """Ask what may have changed with any step."""
        self.asked += 1 + len(self.ledgers)
        deadlines = self._deadlines
        while deadlines and (deadlines[0][2].is_over or deadlines[0][0] < self._world.now - _SLACK):
            _, _, call = heapq.heappop(deadlines)
            if call.is_over or call.owner.is_dead:
                continue
            if call.owner.stood_still > call.allowed:
                # The time in which its process was stopped does not count.
                call.deadline += call.owner.stood_still - call.allowed
                call.allowed = call.owner.stood_still
                heapq.heappush(deadlines, (call.deadline, id(call), call))
            else:
                self.broken("deadline", f"{call} still waits")
        for ledger in self.ledgers:
            if ledger.total < 0:
                self.broken("ledger", f"{ledger.total} bytes are held at {process.name}")

    def crashed(self, process: Process, error: BaseException) -> None:
        """Judge an exception that nothing caught."""
        # Ctrl-C, or an exit, is no part of the world. A nursery has put it in a group.
        leaving: BaseException | None = error
        while isinstance(leaving, BaseExceptionGroup):
            part = leaving.subgroup((KeyboardInterrupt, SystemExit))
            leaving = None if part is None else part.exceptions[0]
        if isinstance(leaving, KeyboardInterrupt | SystemExit):
            raise leaving
        if isinstance(error, Violation):
            self.violation = self.violation or error
        elif self.violation is None:
            self.broken("no crash", f"{error!r:.300} in {process.name}")
            self.violation.__cause__ = error  # type: ignore[attr-defined]  # it was just set

    # Events of engines

    def saw(self, seen: Seen, event: Any) -> None:
        """Judge an event of an engine, before it is handled."""
        kind = event.__class__
        if kind is ResponseReceived or kind is RequestFailed:
            self.holds(
                "one outcome", event.id not in seen.ended, f"request {event.id} has a second one: {event!r:.200}"
            )
            seen.ended.add(event.id)
        elif kind is RequestReceived:
            self.holds("ids", event.id not in seen.received, f"an incoming request has the id {event.id} of another")
            seen.received.add(event.id)
        elif kind is ProgressReceived:
            self.holds("nothing after the end", event.id not in seen.ended, f"progress of request {event.id}")

    def reported(self, process: Process, message: str, error: BaseException | None) -> None:
        """Judge what an operator is told."""
        self.asked += 1
        is_expected = error is None or any(isinstance(each, McpError | OSError | Planned) for each in _causes(error))
        if not is_expected or message.startswith(("a session failed", "a call failed", "the transport failed")):
            self.broken("no faults of ours", f"{process.name} reports: {message}: {error!r:.300}")
            if self.violation is not None and self.violation.__cause__ is None:
                self.violation.__cause__ = error

    def lost(self, connection: Any) -> None:
        """Count the loss of a session."""
        del connection
        self.losses += 1

    # Calls of programs

    @property
    def is_waiting(self) -> bool:
        """Whether a call has not ended."""
        return any(not (call.is_over or call.owner.is_dead) for _, _, call in self._deadlines)

    def begin(self, what: str, owner: Process, timeout: float) -> Call:
        """Record that a call begins."""
        call = Call(what, owner, self._world.now + timeout, self.is_calm, owner.stood_still)
        heapq.heappush(self._deadlines, (call.deadline, id(call), call))
        return call

    def end(self, call: Call, error: BaseException | None = None) -> None:
        """Judge how a call ended; ``None`` for a cancellation and for success."""
        self.asked += 1
        call.is_over = True
        if error is None:
            return
        failure = f"{call} failed with {error!r:.300}"
        if isinstance(error, AssertionError):
            self.broken("program", failure)
        elif not isinstance(error, McpError):
            self.broken("errors", failure)
        elif isinstance(error, RequestError) and error.message == "Task not found":
            if self.is_durable:
                self.broken("acknowledged", failure)
        elif isinstance(error, RequestError) and error.code in _INVALID and not error.is_closing():
            self.broken("valid requests", failure)
        elif call.is_calm or (self.is_kind and isinstance(error, RequestTimeout)):
            self.broken("liveness", failure)
        if self.violation is not None and self.violation.__cause__ is None:
            self.violation.__cause__ = error

    def said_in_order(self, token: str, number: int) -> None:
        """Judge the next thing that a handler said."""
        self.holds("order", number > self._logs.get(token, -1), f"{token} said {number} after {self._logs.get(token)}")
        self._logs[token] = number


_INVALID: Final = (ErrorCode.INVALID_REQUEST, ErrorCode.METHOD_NOT_FOUND, ErrorCode.INVALID_PARAMS)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and what caused it, with the parts of groups."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for each in error.exceptions:
                yield from _causes(each)
        error = error.__cause__
