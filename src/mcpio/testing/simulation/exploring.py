"""Runs worlds until a time limit and returns the failures: ``simulate`` for tests, ``explore`` for figures."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from mcpio._checks import called, checked, is_amount, is_count, items_of
from mcpio.testing.simulation.invariants import Violation
from mcpio.testing.simulation.plan import Act, Carrier, Era, Faults, Level, Party, Plan, drawn, one_of
from mcpio.testing.simulation.running import Outcome, Running
from mcpio.testing.simulation.workload import ACTS, exercised_server

if TYPE_CHECKING:
    from mcpio.app.client import Client
    from mcpio.app.server import Server
    from mcpio.testing.simulation.parties import Acts, MakeServer, Site, Visit

Program: TypeAlias = "Callable[[Client], Awaitable[object]]"
"""Something that a client does: an async function. It may fail with any ``McpError``; what it asserts must hold."""


@attrs.frozen
class Report:
    """The results of all worlds of one run."""

    worlds: int
    """How many were run."""
    steps: int
    """How much happened in them: see ``mcpio.testing.simulation.world.World``."""
    asked: int
    """How often an invariant was checked."""
    faults: Counter[str]
    """The faults that were injected, by kind."""
    failures: tuple[Outcome, ...]
    """The worlds in which an invariant was broken, each with its plan."""
    seconds: float
    """The processor time that it took."""

    def __str__(self) -> str:
        injected = ", ".join(f"{count:,} {kind}" for kind, count in self.faults.most_common()) or "none"
        seeds = ", ".join(str(outcome.plan.seed) for outcome in self.failures) or "none"
        return (
            f"{self.worlds:,} worlds, {self.steps:,} steps in {self.seconds:.0f} s of processor time\n"
            f"faults injected: {injected}\ninvariants asked: {self.asked:,}\nseeds that failed: {seeds}"
        )


def explore(
    server: Callable[[], Server] | None = None,
    clients: Sequence[Program] = (),
    *,
    seconds: float = 1.0,
    worlds: int | None = None,
    seed: int = 0,
    faults: Faults | None = None,
    era: Era | None = None,
    carrier: Carrier | None = None,
    level: Level = "machines",
    stop_after: int | None = None,
) -> Report:
    """Run worlds one after the other, and count. The arguments are those of ``simulate``.

    ``worlds`` is how many to run, in place of a time; ``stop_after`` is how many failures are enough.
    """
    make, acts = _workload(server, clients)
    # Infinity is a meaning: until it is stopped.
    if not (is_amount(seconds) or seconds == inf) or seconds <= 0:
        raise ValueError(f"seconds must be a number above 0, not {seconds!r:.100}")
    for name, count in (("worlds", worlds), ("stop_after", stop_after)):
        if count is not None and not is_count(count, 1):
            raise ValueError(f"{name} must be an integer of at least 1, not {count!r:.100}")
    if not is_count(seed, -(1 << 63)):
        raise ValueError(f"seed must be an integer, not {seed!r:.100}")
    checked("faults", faults, Faults)
    for name, value, kind in (("era", era, Era), ("carrier", carrier, Carrier)):
        if value is not None:
            one_of(name, value, kind)
    one_of("level", level, Level)
    began = time.process_time()
    count = steps = requests = 0
    injected: Counter[str] = Counter()
    failures: list[Outcome] = []
    harm = Faults.harsh() if faults is None else faults
    while count < worlds if worlds is not None else time.process_time() - began < seconds:
        plan = drawn(seed + count, harm, tuple(acts), era=era, carrier=carrier, level=level)
        outcome = run_plan(plan, make, acts)
        count, steps, requests = count + 1, steps + outcome.steps, requests + outcome.asked
        injected += outcome.faults
        if outcome.violation is not None:
            failures.append(outcome)
            if stop_after is not None and len(failures) >= stop_after:
                break
    return Report(count, steps, requests, injected, tuple(failures), time.process_time() - began)


def simulate(
    server: Callable[[], Server],
    clients: Sequence[Program],
    *,
    seconds: float = 1.0,
    worlds: int | None = None,
    seed: int = 0,
    faults: Faults | None = None,
    era: Era | None = None,
    carrier: Carrier | None = None,
    level: Level = "machines",
) -> Report:
    """Run a server with clients in worlds of all kinds, and look for one in which something goes wrong.

    Each world has its own servers, clients, network and clock, all virtual. Without an event loop, which is the default
    and the fastest, handlers wait by ``ctx.sleep`` and by what this library gives them.

    Args:
        server: Makes the server of a process. Each world begins with new ones, and so does a process after a crash.
        clients: What clients do. In each world some of them run, at the same time, again and again.
        seconds: For how much processor time to look.
        worlds: How many worlds to run, in place of ``seconds``.
        seed: The first seed. The same seed gives the same worlds.
        faults: The faults; by default all, as in ``Faults.harsh()``.
        era: The era of all clients; by default both.
        carrier: ``"pipe"`` or ``"http"`` for all clients; by default both.
        level: ``"machines"`` runs worlds as above, without an event loop. ``"programs"`` runs whole programs on Trio:
            the drivers too, and handlers and clients may wait by what Trio has, start tasks, and use locks and threads.

    Raises:
        Violation: A program asserted what does not hold, or an invariant of the protocol is broken. Its notes have the
            smallest plan that was found for it.

    """
    report = explore(
        server,
        clients,
        seconds=seconds,
        worlds=worlds,
        seed=seed,
        faults=faults,
        era=era,
        carrier=carrier,
        level=level,
        stop_after=1,
    )
    for failure in report.failures:
        make, acts = _workload(server, clients)
        parties = _written(server, clients)
        # A server or program that looks at the real time, or at random numbers, may pass when it runs again.
        again = run_plan(failure.plan, make, acts)
        smaller = smallest(failure, make, acts) if again.violation else again
        outcome, how = (smaller, "made smaller") if smaller.violation else (failure, "which passes when it runs again")
        assert outcome.violation is not None
        outcome.violation.add_note(f"seed {failure.plan.seed}, {how}:\n{outcome.plan.program(parties)}")
        raise outcome.violation
    return report


def rerun(plan: Plan, server: Callable[[], Server] | None = None, clients: Sequence[Program] = ()) -> None:
    """Run the world of a plan, as the note of a violation shows it.

    Args:
        plan: The plan.
        server: What ``simulate`` was called with; ``None`` for the server and the programs of this library.
        clients: What ``simulate`` was called with.

    Raises:
        Violation: An invariant is broken.

    """
    violation = run_plan(plan, *_workload(server, clients)).violation
    if violation is not None:
        raise violation


def run_plan(plan: Plan, make: MakeServer = exercised_server, acts: Acts = ACTS) -> Outcome:
    """Run a world to its end, or until an invariant is broken."""
    if plan.level == "programs":
        from mcpio.testing.simulation.programs import run_programs  # it loads Trio

        return run_programs(plan, make, acts)
    return Running(plan, make, acts).run()


def smallest(failure: Outcome, make: MakeServer = exercised_server, acts: Acts = ACTS) -> Outcome:
    """Return the outcome of a smaller plan that breaks the same invariant."""

    def fails_alike(plan: Any) -> bool:
        return _is_like(run_plan(plan, make, acts).violation, failure.violation)

    return run_plan(shrunk(failure.plan, fails_alike), make, acts)


def _is_like(one: Violation | None, other: Violation | None) -> bool:
    if one is None or other is None:
        return False
    return one.name == other.name and type(one.__cause__) is type(other.__cause__)


def _workload(server: Callable[[], Server] | None, clients: Sequence[Program]) -> tuple[MakeServer, Acts]:
    if server is None:
        return exercised_server, ACTS
    called("server", server, "()")
    clients = items_of("clients", clients)
    if not clients:
        raise ValueError("clients must be one or more async functions that take a client, not none")

    def make(site: Site) -> Server:
        del site
        return server()

    def act(program: Program) -> Callable[[Visit], Awaitable[None]]:
        async def perform(visit: Visit) -> None:
            await program(visit.client)

        return perform

    acts: Acts = {}
    for program in clients:
        name = getattr(called("clients", program, "(client)"), "__name__", "program")
        acts[f"{name} {len(acts) + 1}" if name in acts else name] = act(program)
    return make, acts


def _written(server: Callable[[], Server], clients: Sequence[Program]) -> str:
    """Return the arguments of ``rerun`` after the plan, or their names where a function has none."""
    first, *others = (getattr(each, "__name__", "") for each in (server, *clients))
    is_named = all(map(str.isidentifier, (first, *others)))
    return f", {first}, [{', '.join(others)}]" if is_named else ", server, clients"


# ------------------------------------------------------------------------------------------------------------ shrinking
# The plan of a failing world made smaller, while the same invariant is broken.


def shrunk(plan: Plan, fails: Callable[[Plan], bool], most: int = 400) -> Plan:
    """Return a smaller plan for which ``fails`` holds too, after ``most`` tries."""
    tries = 0
    while True:
        for smaller in _smaller(plan):
            tries += 1
            if tries > most:
                return plan
            # Each part that is left out changes the draws of the seed, so another seed may fail.
            candidate = next((each for each in _reseeded(smaller) if fails(each)), None)
            if candidate is not None:
                plan = candidate
                break
        else:
            return plan


def _reseeded(plan: Plan) -> Iterator[Plan]:
    yield plan
    for seed in range(3):
        yield attrs.evolve(plan, seed=seed)


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Yield plans with less in them, those with much less first."""
    for parties in _without(plan.parties):
        if parties:
            yield attrs.evolve(plan, parties=parties)
    for mishaps in _without(plan.mishaps):
        yield attrs.evolve(plan, mishaps=mishaps)
    for index, party in enumerate(plan.parties):
        for lanes in _smaller_lanes(party):
            parties = (*plan.parties[:index], attrs.evolve(party, lanes=lanes), *plan.parties[index + 1 :])
            yield attrs.evolve(plan, parties=parties)
    for field in attrs.fields(Plan)[3:]:
        if field.name != "level" and getattr(plan, field.name) != field.default:
            plain: Any = {field.name: field.default}
            yield attrs.evolve(plan, **plain)
    for index, party in enumerate(plan.parties):
        for number, lane in enumerate(party.lanes):
            for at, act in enumerate(lane):
                for plainer in _plainer(act):
                    plainer_lane = (*lane[:at], plainer, *lane[at + 1 :])
                    lanes = (*party.lanes[:number], plainer_lane, *party.lanes[number + 1 :])
                    parties = (*plan.parties[:index], attrs.evolve(party, lanes=lanes), *plan.parties[index + 1 :])
                    yield attrs.evolve(plan, parties=parties)


def _smaller_lanes(party: Party) -> Iterator[tuple[tuple[Act, ...], ...]]:
    yield from _without(party.lanes)
    for index, lane in enumerate(party.lanes):
        for rest in _without(lane):
            yield (*party.lanes[:index], rest, *party.lanes[index + 1 :])


def _without(values: tuple[object, ...]) -> Iterator[tuple]:  # type: ignore[type-arg]  # of the same kind
    """Yield a tuple without a half, a quarter and so on, to single items."""
    size = len(values)
    while size > 0:
        size //= 2
        step = max(size, 1)
        for start in range(0, len(values), step):
            yield (*values[:start], *values[start + step :])
        if size <= 1:
            return


def _plainer(act: Act) -> Iterator[Act]:
    for field in attrs.fields(Act)[1:]:
        if getattr(act, field.name) != field.default:
            plain: Any = {field.name: field.default}
            yield attrs.evolve(act, **plain)
