"""Runs a world of machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

from mcpio.errors import McpError
from mcpio.testing.simulation.invariants import Invariants, Violation
from mcpio.testing.simulation.network import Network
from mcpio.testing.simulation.parties import Acts, MakeServer, ServerProcess, Site, Visitor
from mcpio.testing.simulation.plan import Act, Mishap, Plan
from mcpio.testing.simulation.world import World

if TYPE_CHECKING:
    from mcpio.app.listening import Listening

SETTLING: Final = 150.0
"""Seconds after which everything that the faults have caused must be over."""
PROMPT: Final = 0.2
"""The longest usual delay with which patient calls are answered in time, in seconds."""
MOST_STEPS: Final = 200_000
"""The most steps of a world. One that takes more is judged not to end."""


@attrs.frozen
class Outcome:
    """The result of running one world."""

    plan: Plan
    """The plan of the world."""
    steps: int
    """How much happened."""
    asked: int
    """How often an invariant was asked."""
    faults: Counter[str]
    """The faults that were injected, by kind."""
    violation: Violation | None
    """The invariant that was broken; ``None`` if all held."""


class Running:
    """One world while it runs."""

    def __init__(self, plan: Plan, make: MakeServer, acts: Acts) -> None:
        self.plan: Final = plan
        self.world: Final = World(plan.seed, shuffles=plan.shuffles)
        self.invariants: Final = Invariants(self.world)
        self.network: Final = Network(self.world, self.invariants)
        self.invariants.is_durable = plan.durable
        self.invariants.is_kind = not plan.mishaps and plan.delay <= PROMPT
        self.network.delay = plan.delay
        self.network.splits = plan.splits
        self.network.duplicates = plan.duplicates
        self._acts: Final = acts
        self.site: Final = Site(plan, make, self.network)
        self.visitors: list[Visitor] = [
            Visitor(self.site, acts, party, f"client {number}") for number, party in enumerate(plan.parties, 1)
        ]
        for mishap in plan.mishaps:
            self.world.at(mishap.at, self.world.network, partial(self._happen, mishap))

    def run(self) -> Outcome:
        """Run it to its end."""
        try:
            self._until(self.plan.calm_at)
            self._calm()
            self._until(self.plan.calm_at + SETTLING)
            self._prove_liveness()
            self._end()
        except Violation:
            pass  # the invariants have it
        finally:
            for process in self.world.processes:
                process.bury()
        invariants = self.invariants
        return Outcome(self.plan, self.world.steps, invariants.asked, self.network.faults, invariants.violation)

    def _until(self, when: float) -> None:
        step, invariants, world = self.world.step, self.invariants, self.world
        while step(when):
            if invariants.violation is not None:
                raise invariants.violation
            if world.steps > MOST_STEPS:
                invariants.broken("liveness", f"more than {MOST_STEPS:,} steps")
        world.now = max(world.now, when)
        invariants.after_step(world.network)  # a call that nothing wakes any more takes no step

    # Faults

    def _happen(self, mishap: Mishap) -> None:
        if getattr(self, f"_{mishap.kind}")(mishap):
            self.network.faults[mishap.kind.replace("_", " ")] += 1

    def _one(self, mishap: Mishap, candidates: list[Any]) -> Any:
        return candidates[mishap.on % len(candidates)] if candidates else None

    def _connection(self, mishap: Mishap) -> Any:
        return self._one(mishap, [*self.site.links(), *self.site.exchanges()])

    def _resets(self, mishap: Mishap) -> bool:
        if (victim := self._connection(mishap)) is not None:
            victim.reset()
        return victim is not None

    def _stalls(self, mishap: Mishap) -> bool:
        if (victim := self._connection(mishap)) is not None:
            victim.stall(mishap.lasts)
        return victim is not None

    def _half_open(self, mishap: Mishap) -> bool:
        if (victim := self._connection(mishap)) is not None:
            victim.cut()
        return victim is not None

    def _kills(self, mishap: Mishap) -> bool:
        victim: ServerProcess | None = self._one(mishap, self.site.up())
        if victim is not None:
            victim.kill()
            self._start_later(victim, mishap.lasts)
        return victim is not None

    def _restarts(self, mishap: Mishap) -> bool:
        victim: ServerProcess | None = self._one(mishap, self.site.up())
        if victim is not None:
            victim.close(mishap.lasts)
            if self.plan.durable:  # a store belongs to one process at a time
                victim.on_over = lambda: self._start_later(victim, 0.1)
            else:
                victim.on_over = lambda: self._leave(victim)
                self._start_later(victim, 0.1)
        return victim is not None

    def _leave(self, old: ServerProcess) -> None:
        self.world.soon(self.world.network, old.kill)

    def _start_later(self, old: ServerProcess, seconds: float) -> None:
        def start() -> None:
            if not old.process.is_dead:
                old.kill()
            self.site.processes.append(ServerProcess(self.site))

        self.world.after(seconds, self.world.network, start)

    def _pauses(self, mishap: Mishap) -> bool:
        victim = self._one(mishap, [*self.site.up(), *self.visitors])
        victim.process.pause(min(mishap.lasts, max(0.0, self.plan.calm_at - self.world.now)))
        return True

    def _vanishing(self, mishap: Mishap) -> bool:
        victim: Visitor = self._one(mishap, self.visitors)
        victim.vanish()
        index = self.visitors.index(victim)
        self.visitors[index] = Visitor(self.site, self._acts, victim.party, f"{victim.name}'")
        return True

    def _clock_jumps(self, mishap: Mishap) -> bool:
        for each in self.site.up():
            each.process.clock_error += mishap.lasts * (1 if mishap.on % 2 else -1)
        return bool(self.site.up())

    def _store_failures(self, mishap: Mishap) -> bool:
        def heal() -> None:
            for store in self.site.stores:
                store.is_failing = False

        for store in self.site.stores:
            store.is_failing = True
        self.world.after(mishap.lasts, self.world.network, heal)
        return bool(self.site.stores)

    # The calm, and the end

    def _calm(self) -> None:
        """End all faults. Half-open connections are reset, so that both ends learn that they are broken."""
        network = self.network
        network.delay, network.splits, network.duplicates = 0.01, 0.0, 0.0
        for each in network.cut:
            each.reset()
        for store in self.site.stores:
            store.is_failing = False

    def _do(self, visitor: Visitor, act: Act) -> None:
        visitor.process.spawn(visitor.perform(act))

    def _prove_liveness(self) -> None:
        """Have every client call, and every listener hear; then have every client admitted anew."""
        invariants, act = self.invariants, Act("touch" if "touch" in self._acts else min(self._acts), timeout=20.0)
        for visitor in self.visitors:
            self._do(visitor, act)  # it may find that its connection is gone
        self._until(self.world.now + 60.0)
        invariants.is_calm = True
        listeners = judged_listeners(self.visitors, invariants)
        for visitor in self.visitors:
            self._do(visitor, act)
        if "touch" in self._acts:
            for size in range(3):
                self._do(self.visitors[0], Act("touch", size=size, timeout=20.0))
        self._until(self.world.now + 30.0)
        while invariants.is_waiting and invariants.violation is None:
            self._until(self.world.now + 1.0)
        judged_news(listeners, invariants)
        self._raise()

    def _end(self) -> None:
        """Close the clients, then the servers, and check that no task, timer or connection remains."""
        for visitor in self.visitors:
            visitor.process.spawn(self._guarded(visitor))
        self._until(self.world.now + 20.0)
        for visitor in self.visitors:
            process = visitor.process
            self.invariants.left(process.name, tasks=process.tasks, timers=process.timers)
            client = visitor.client
            if client is not None:
                self.invariants.left(
                    process.name, requests=len(client.connection.pending.outgoing), handlers=client.health().serving
                )
        self._until(self.world.now + 45.0)  # longer than sessions stay idle
        for server in self.site.up():
            sessions = server.service.host.machine.sessions
            self.invariants.left(server.process.name, sessions=len(sessions), streams=len(server.ends))
            server.close(2.0)
        self._until(self.world.now + 30.0)
        for server in self.site.processes:
            if server.process.is_dead:
                continue
            self.invariants.holds("nothing is left", server.is_over, f"{server.process.name} does not end")
            self.invariants.left(
                server.process.name,
                bytes=server.server.ledger.total,
                sessions=len(server.server.sessions),
                tasks=server.process.tasks,
                timers=server.process.timers,
                exchanges=len(server.service.exchanges),
            )
        self._raise()

    @staticmethod
    async def _guarded(visitor: Visitor) -> None:
        try:
            await visitor.say_goodbye()
        except McpError:
            return

    def _raise(self) -> None:
        if self.invariants.violation is not None:
            raise self.invariants.violation


def judged_listeners(visitors: Iterable[Any], invariants: Invariants) -> list[tuple[Listening, str]]:
    """Return the listeners that must be notified of a change; check why the others ended."""
    listeners: list[tuple[Listening, str]] = []
    for visitor in visitors:
        for listening, uri in visitor.listeners.items():
            if visitor.client is not listening._client or visitor.client.ended is not None:  # noqa: SLF001  a world looks inside
                continue
            is_over = visitor.party.keeps and listening.ended is not None
            invariants.holds("changes", not is_over, f"a listener of {visitor.name} has ended, and is to be kept")
            if listening.ended is None and uri in (listening.honoured.resource_subscriptions or ()):
                listening._waiting.clear()  # noqa: SLF001  what it heard before says nothing of now
                listeners.append((listening, visitor.name))
    return listeners


def judged_news(listeners: Iterable[tuple[Listening, str]], invariants: Invariants) -> None:
    """Judge whether listeners have heard of a change that there was."""
    for listening, owner in listeners:
        is_told = bool(listening._waiting) or listening.ended is not None  # noqa: SLF001  a look that takes nothing
        invariants.holds("changes", is_told, f"a listener of {owner} hears nothing of a change")
