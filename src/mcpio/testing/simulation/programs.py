"""Worlds of whole programs: real clients and servers on Trio, in one run with a simulated network, clock and threads.

The drivers run as they are. What they ask of the system is replaced while a world runs: the functions of Trio that
connect and listen, its threads, its clock, the order in which it runs tasks, and random bytes. All of it follows from
the plan and its seed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from mcpio.backoff import Backoff
from mcpio.engine.options import Options
from mcpio.engine.table import Phase
from mcpio.errors import ConnectFailed, McpError
from mcpio.http.client import HttpClientOptions
from mcpio.http.model import HttpOptions
from mcpio.observe.tap import Tap
from mcpio.testing.simulation.invariants import Invariants, Seen
from mcpio.testing.simulation.parties import answer_as, noted, perform
from mcpio.testing.simulation.plan import Act, Mishap, Plan
from mcpio.testing.simulation.running import PROMPT, SETTLING, Outcome, judged_listeners, judged_news
from mcpio.testing.simulation.trio_world import MOST_STEPS, TrioNetwork, TrioWorld, replaced
from mcpio.trio import connect_http, connect_tcp, serve_http, serve_tcp

if TYPE_CHECKING:
    from mcpio.app.client import Client
    from mcpio.app.listening import Listening
    from mcpio.app.server import Server
    from mcpio.testing.simulation.parties import Acts, MakeServer
    from mcpio.testing.simulation.plan import Carrier, Party

_PORTS: Final[dict[Carrier, int]] = {"pipe": 7000, "http": 8000}
_HOST: Final = "127.0.0.1"


def run_programs(plan: Plan, make: MakeServer, acts: Acts) -> Outcome:
    """Run a world of whole programs to its end, or until an invariant is broken."""
    return _Programs(plan, make, acts).run()


class _Watch(Tap):
    """Shows the events of a connection to the invariants."""

    def __init__(self, invariants: Invariants) -> None:
        self._invariants = invariants
        self._seen = Seen()

    def event(self, event: Any, now: float) -> None:
        """Judge an event."""
        del now
        self._invariants.saw(self._seen, event)


class _Reports(logging.Handler):
    """Shows what an operator is told to the invariants."""

    def __init__(self, world: TrioWorld, invariants: Invariants) -> None:
        super().__init__()
        self._world = world
        self._invariants = invariants

    def emit(self, record: logging.LogRecord) -> None:
        """Judge a report."""
        error = record.exc_info[1] if record.exc_info else None
        self._invariants.reported(self._world, record.getMessage(), error)  # type: ignore[arg-type]  # it has a name


class _Host:
    """The program of a server: it serves at one port, and begins anew when it was restarted."""

    def __init__(self, programs: _Programs, carrier: Carrier) -> None:
        self.server: Server
        self.is_over = False
        self._programs = programs
        self._carrier = carrier
        self._scope = trio.CancelScope()
        self._begins_anew = True

    async def live(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Serve until closed."""
        started: Any = task_status
        while self._begins_anew:
            self.server = self._programs.make(self._programs)  # type: ignore[arg-type]  # what a site has, for one process
            ledgers = self._programs.invariants.ledgers
            ledgers.append(self.server.ledger)
            with trio.CancelScope() as self._scope:
                await self._serve(started)
            started = trio.TASK_STATUS_IGNORED
            # One that ends early may hold the results of tasks.
            host: _Host = self  # type checkers think that it still begins anew
            held = 0 if host._begins_anew else self.server.ledger.total
            self._programs.invariants.left("a server that has ended", bytes=held, sessions=len(self.server.sessions))
            ledgers.remove(self.server.ledger)
            await trio.sleep(0.1)
        self.is_over = True

    async def _serve(self, task_status: trio.TaskStatus[Any]) -> None:
        watch: Any = partial(_Watch, self._programs.invariants)
        port = _PORTS[self._carrier]
        if self._carrier == "pipe":
            await serve_tcp(self.server, port, tap=watch, end_timeout=10.0, grace=2.0, task_status=task_status)
        else:
            options = HttpOptions(session_idle=30.0, resume_within=10.0, keep_alive=40.0)
            await serve_http(
                self.server,
                port,
                principal=_principal,
                options=options,
                tap=watch,
                grace=2.0,
                task_status=task_status,
            )

    def end(self, *, begins_anew: bool) -> None:
        """End gracefully."""
        self._begins_anew = begins_anew
        self._scope.cancel()


def _principal(head: Any, peer: object) -> str | None:
    del peer
    return next((value.decode() for name, value in head.headers if name == b"x-principal"), None)


class _Caller:
    """The program of a client: it opens a client, and its tasks use it; where the client is lost, it opens another.

    It has what acts ask of a ``mcpio.testing.simulation.parties.Visitor``, and of its process.
    """

    stood_still = 0.0
    is_dead = False

    def __init__(self, programs: _Programs, party: Party, name: str) -> None:
        self.site: Final = programs
        self.acts: Final = programs.acts
        self.party: Final = party
        self.name: Final = name
        self.principal: Final = f"principal of {name}" if party.carrier == "http" else None
        self.invariants: Final = programs.invariants
        self.process: Final[Any] = self
        self.listeners: dict[Listening, str] = {}
        self.client: Client | None = None
        self.is_over = False
        self._turns = trio.Lock()
        self._scope = trio.CancelScope()
        self.performed = 0
        self._nursery: trio.Nursery
        self.sleep = trio.sleep

    async def live(self) -> None:
        """Run the tasks, until it ends."""
        with self._scope:
            async with trio.open_nursery() as self._nursery:
                for lane in self.party.lanes:
                    self._nursery.start_soon(self._walk, lane)
                await trio.sleep_forever()
        self.is_over = True
        if self.client is not None:
            left = {"requests": len(self.client.connection.pending.outgoing), "handlers": self.client.health().serving}
            self.invariants.left(self.name, **left)

    def vanish(self) -> None:
        """Cancel all of it."""
        self._scope.cancel()

    async def _walk(self, lane: Sequence[Act]) -> None:
        for act in lane:
            await trio.sleep(act.after)
            if trio.current_time() >= self.site.plan.calm_at:
                return
            await self.perform(act)

    async def perform(self, act: Act) -> None:
        """Do one thing, until it is done or cancelled."""
        with trio.CancelScope() as scope:
            if act.cancel is not None:
                scope.deadline = trio.current_time() + act.cancel
            if act.steps is not None:
                self.site.world.cancel_after(act.steps, scope)
            await perform(self, act)  # type: ignore[arg-type]  # as said above

    async def open(self) -> Client:
        """Return the client, and open it first if it is not open. Raises McpError."""
        async with self._turns:
            client = self.client
            if client is None or client.ended is not None or client.connection.phase in (Phase.CLOSING, Phase.CLOSED):
                self.client = None
                self.client = await self._connect()
            assert self.client is not None
            return self.client

    async def _connect(self) -> Client:
        keeps = self.party.keeps
        options: dict[str, Any] = {
            "era": self.party.era,
            "options": Options(initialize_timeout=10.0, probe_timeout=3.0),
            "elicitation": partial(answer_as, self.process),
            "on_log": partial(noted, self.invariants, self.process),
            "tap": partial(_Watch, self.invariants),
            "nursery": self._nursery,
            "on_session_lost": lambda: None,
        }
        port = _PORTS[self.party.carrier]
        if self.party.carrier == "http":
            headers = {"x-principal": str(self.principal)}
            options["http"] = HttpClientOptions(reinitialize=keeps, headers=headers)
            return await connect_http(f"http://{_HOST}:{port}/mcp", **options)
        if keeps:
            options["reconnect"] = Backoff(0.05, tries=30, cap=5.0, also=(ConnectFailed,))
        return await connect_tcp(_HOST, port, **options)

    async def say_goodbye(self) -> None:
        """Close everything, and end."""
        for listening in tuple(self.listeners):
            listening.close()
        self.listeners.clear()
        if self.client is not None:
            with suppress(McpError):
                await self.client.aclose(1.0)
        self._scope.cancel()


class _Programs:
    """One world of programs while it runs. For the function that makes a server, it is the site of one process."""

    task_store = None

    def __init__(self, plan: Plan, make: MakeServer, acts: Acts) -> None:
        self.plan: Final = plan
        self.make: Final = make
        self.acts: Final = acts
        self.world: Final = TrioWorld(plan.seed)
        self.invariants: Final = Invariants(self.world)  # type: ignore[arg-type]  # it has the time, and the steps
        self.world.has_ended = lambda: self.invariants.violation is not None
        self.invariants.is_kind = not plan.mishaps and plan.delay <= PROMPT
        self.network: Final = TrioNetwork(self.world.chance, plan.delay, plan.splits)
        self.faults: Counter[str] = Counter()
        self._nursery: trio.Nursery

    def bus(self) -> None:
        """Return no bus: there is one process."""
        return

    def run(self) -> Outcome:
        """Run it to its end."""
        logger, reports = logging.getLogger("mcpio"), _Reports(self.world, self.invariants)
        was = logger.propagate
        with ExitStack() as stack:
            stack.callback(setattr, logger, "propagate", was)
            stack.callback(logger.removeHandler, reports)
            logger.addHandler(reports)
            logger.propagate = False
            replaced(stack, trio, "open_tcp_stream", self.network.connect)
            replaced(stack, trio, "open_tcp_listeners", self.network.listen)
            self.world.run(self._live)
        if self.world.steps > MOST_STEPS:
            self.invariants.broken("liveness", f"more than {MOST_STEPS:,} steps")
        if self.world.is_stuck:
            self.invariants.broken("liveness", "all tasks wait for each other")
        invariants = self.invariants
        return Outcome(self.plan, self.world.steps, invariants.asked, self.faults, invariants.violation)

    async def _live(self) -> None:
        async with trio.open_nursery() as self._nursery:
            start = self._nursery.start_soon
            self.hosts = [_Host(self, carrier) for carrier in sorted({each.carrier for each in self.plan.parties})]
            for host in self.hosts:
                await self._nursery.start(host.live)
            self.callers = [_Caller(self, party, f"client {at}") for at, party in enumerate(self.plan.parties, 1)]
            for caller in self.callers:
                start(caller.live)
            for mishap in self.plan.mishaps:
                start(self._happen, mishap)
            await trio.sleep_until(self.plan.calm_at)
            self._calm()
            await trio.sleep(SETTLING)
            await self._prove_liveness()
            await self._end()
            self._nursery.cancel_scope.cancel()

    # Faults

    async def _happen(self, mishap: Mishap) -> None:
        await trio.sleep_until(mishap.at)
        if mishap.kind == "vanishing":
            index = mishap.on % len(self.callers)
            old = self.callers[index]
            old.vanish()
            self.callers[index] = _Caller(self, old.party, f"{old.name}'")
            self._nursery.start_soon(self.callers[index].live)
        elif mishap.kind == "restarts":
            self.hosts[mishap.on % len(self.hosts)].end(begins_anew=True)
        elif mishap.kind == "clock_jumps":
            self.world.wall_error += mishap.lasts * (1 if mishap.on % 2 else -1)
        else:
            links = tuple(self.network.links)
            if not links:
                return
            link = links[mishap.on % len(links)]
            if mishap.kind == "resets":
                link.reset()
            elif mishap.kind == "stalls":
                link.stall(mishap.lasts)
            elif mishap.kind == "half_open":
                link.cut()
            else:
                return  # machines can be killed, and stores fail, at the level of machines
        self.faults[mishap.kind.replace("_", " ")] += 1

    def _calm(self) -> None:
        """End all faults. Half-open connections are reset, so that both ends learn that they are broken."""
        self.network.delay, self.network.splits = 0.01, 0.0
        for link in tuple(self.network.links):
            if link.is_cut:
                link.reset()

    # The calm, and the end

    async def _prove_liveness(self) -> None:
        """Check that every client can call and every listener is notified, also over a new connection."""
        act = Act("touch" if "touch" in self.acts else min(self.acts), timeout=20.0)
        for caller in self.callers:
            self._nursery.start_soon(caller.perform, act)  # it may find that its connection is gone
        await trio.sleep(60.0)
        self.invariants.is_calm = True
        listeners = judged_listeners(self.callers, self.invariants)
        for caller in self.callers:
            self._nursery.start_soon(caller.perform, act)
        if "touch" in self.acts:
            for caller in self.callers:
                for size in range(3):
                    self._nursery.start_soon(caller.perform, Act("touch", size=size, timeout=20.0))
        await trio.sleep(30.0)
        while self.invariants.is_waiting:  # noqa: ASYNC110  calls end without telling
            await trio.sleep(1.0)
        judged_news(listeners, self.invariants)

    async def _end(self) -> None:
        """Close the clients, then the servers, and check that no task, timer or connection remains."""
        for caller in self.callers:
            self._nursery.start_soon(caller.say_goodbye)
        await trio.sleep(65.0)  # longer than sessions stay idle
        for caller in self.callers:
            self.invariants.holds("nothing is left", caller.is_over, f"{caller.name} does not end")
        for host in self.hosts:
            self.invariants.left("a server without clients", sessions=len(host.server.sessions))
            host.end(begins_anew=False)
        await trio.sleep(30.0)
        for host in self.hosts:
            self.invariants.holds("nothing is left", host.is_over, "a server does not end")
        self.invariants.left("the network", connections=len(self.network.links))
