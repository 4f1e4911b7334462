# ruff: noqa: SLF001 - sessions have methods for drivers that programs have no use for
"""The parties of a world: server processes behind one address, and clients whose programs use them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from mcpio._drivers import lifespan_of
from mcpio._drivers.actor import TaskHost
from mcpio.app.changes import Changed
from mcpio.app.client import Client, client_connection
from mcpio.app.http_host import HttpHost
from mcpio.app.reconnection import SessionReconnector
from mcpio.app.runtime import Turns
from mcpio.app.session_store import MemorySessionStore
from mcpio.app.tasks.store import MemoryTaskStore
from mcpio.engine.options import Options
from mcpio.engine.table import Phase
from mcpio.errors import ConnectFailed, ConnectionLost, McpError, ToolError
from mcpio.http.client import HttpClient, HttpClientOptions, Location
from mcpio.http.model import HttpOptions, RequestHead
from mcpio.testing.simulation.network import HttpEnd, HttpService, Link, Network, PipeEnd
from mcpio.testing.simulation.world import Process
from mcpio.types.asking import ElicitResult
from mcpio.types.content import TextContent

if TYPE_CHECKING:
    from mcpio.app.listening import Listening
    from mcpio.app.server import Server
    from mcpio.testing.manual_runtime import ManualTask
    from mcpio.testing.simulation.invariants import Invariants
    from mcpio.testing.simulation.plan import Act, Party, Plan

Acts: TypeAlias = "dict[str, Callable[[Visit], Awaitable[None]]]"
MakeServer: TypeAlias = "Callable[[Site], Server]"

URIS: Final = ("note://1", "note://2", "note://3")
"""The resources of the server that is exercised."""
GRACE: Final = 2.0
"""Seconds that a server has to end gracefully."""
LONGEST: Final = 200.0
"""Seconds in which a program must end once the faults are switched off, beside the timeouts of its act."""
_LOCATION: Final = Location.parse("http://server/mcp")


class FailingStore:
    """A store that takes time, in a thread, and that raises while it fails."""

    blocking = True

    def __init__(self, store: Any) -> None:
        self._store = store
        self.is_failing = False

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if not callable(attribute) or name == "subscribe":
            return attribute

        def call(*arguments: Any) -> Any:
            if self.is_failing:
                raise OSError("the disk is full")
            return attribute(*arguments)

        return call


class Site:
    """The server processes behind one address, and the stores that they share."""

    def __init__(self, plan: Plan, make: MakeServer, network: Network) -> None:
        self.plan: Final = plan
        self.network: Final = network
        self.world: Final = network.world
        self.make: Final = make
        self.stores: list[FailingStore] = []
        self.session_store: FailingStore | None = None
        self.task_store: Any = None
        if plan.durable:
            self.session_store = FailingStore(MemorySessionStore())
            self.task_store = FailingStore(MemoryTaskStore())
            self.stores = [self.session_store, self.task_store]
        self._listeners: list[tuple[Process, Callable[[Changed], None]]] = []
        self._sticky: dict[str, HttpService] = {}
        self._making: Process | None = None
        self.started = 0
        self.processes: list[ServerProcess] = [ServerProcess(self) for _ in range(plan.processes)]

    def bus(self) -> Any:
        """Return the bus of changes that all processes share, for a server that is being made."""
        process = self._making
        assert process is not None
        return _Bus(self, process)

    def new_server(self, process: Process) -> Server:
        """Return a server for a process."""
        self._making = process
        return self.make(self)

    def listening(self, process: Process, callback: Callable[[Changed], None]) -> None:
        """Have a process hear of changes."""
        self._listeners.append((process, callback))

    def spread(self, origin: Process, change: Changed) -> None:
        """Tell all processes of a change: this one at once, others soon."""
        self._listeners = [each for each in self._listeners if not each[0].is_dead]
        for process, callback in self._listeners:
            if process is origin:
                callback(change)
            else:
                self.world.after(self.network.lag(), process, partial(callback, change))

    def up(self) -> list[ServerProcess]:
        """Return the processes that accept connections."""
        return [each for each in self.processes if each.is_up]

    def connect(self, end: PipeEnd, principal: Any) -> None:
        """Connect a client to one of the processes. Raises ConnectFailed."""
        up = self.up()
        if not up:
            raise ConnectFailed("cannot connect to the server: connection refused")
        self.network.chance.choice(up).accept(end, principal)

    def route(self, head: RequestHead) -> HttpService | None:
        """Return the process for a request: that of its session, as balancers do, or any.

        If that has ended, the session belongs to another from then on: two processes never serve it at once.
        """
        up = [each.service for each in self.up()]
        session = next((value.decode() for name, value in head.headers if name == b"mcp-session-id"), None)
        service = None if session is None else self._sticky.get(session)
        if up and service not in up:
            service = self.network.chance.choice(up)
            if session is not None:
                self._sticky[session] = service
        return service if up else None

    def learn(self, session: str, service: HttpService | None) -> None:
        """Learn which process keeps a session."""
        if service is not None:
            self._sticky[session] = service

    def links(self) -> list[Link]:
        """Return all streams that are open."""
        return [link for each in self.processes for link in each.links()]

    def exchanges(self) -> list[Any]:
        """Return all HTTP exchanges that are under way at a process."""
        return [exchange for each in self.processes for exchange in each.service.exchanges.values()]


class _Bus:
    """The bus of changes, as one process sees it."""

    def __init__(self, site: Site, process: Process) -> None:
        self._site = site
        self._process = process

    def publish(self, change: Changed) -> None:
        self._site.spread(self._process, change)

    def subscribe(self, callback: Callable[[Changed], None]) -> Callable[[], None]:
        self._site.listening(self._process, callback)
        return lambda: None


class ServerProcess:
    """One server process: its sessions over streams, and those over HTTP."""

    def __init__(self, site: Site) -> None:
        site.started += 1
        self.site: Final = site
        self.network: Final = site.network
        self.process: Final = Process(site.world, f"server {site.started}")
        self.process._drawn = site.started << 64  # no two processes draw the same
        self.server: Final = site.new_server(self.process)
        self.ends: dict[PipeEnd, None] = {}
        self.is_up = False
        self.is_over = False
        self._stop = self.process.one_shot()
        self._grace: float | None = None
        self.on_over: Callable[[], object] = lambda: None
        self.service = HttpService(site.network, self.process)
        self.network.invariants.ledgers.append(self.server.ledger)
        self.process.spawn(self._serve())

    async def _serve(self) -> None:
        host = TaskHost(self.process, lambda: self.site.world.now)
        host.report = partial(self.network.invariants.reported, self.process)  # type: ignore[method-assign]  # its reports are judged, not logged
        async with lifespan_of(self.server) as state:
            tasks = self.server.tasks
            if tasks is not None:
                tasks.attach(host, state)
            self._begin(state)
            await self._stop
            await self._drain()
            if tasks is not None:
                tasks.stop(host)
                await tasks.flush(host)
                tasks.detach(host)
        self.is_over = True
        self.on_over()

    def _begin(self, state: Any) -> None:
        plan, site = self.site.plan, self.site
        options = HttpOptions(session_idle=30.0, resume_within=10.0, keep_alive=40.0)
        self.service.host = HttpHost(
            self.server,
            self.process,
            clock=lambda: site.world.now,
            on_ready=self.service.note_ready,
            on_deadline=self.service.note_deadline,
            report=partial(self.network.invariants.reported, self.process),
            options=options,
            state=state,
            store=site.session_store if plan.durable else None,
        )
        self._state = state
        self.is_up = True

    def accept(self, end: PipeEnd, principal: Any) -> None:
        """Accept a connection."""
        connection = self.server.connection(principal=principal)
        far = PipeEnd(self.network, self.process, connection)
        far.session = self.server.session(connection, far, self._state)
        far.end_timeout = 10.0
        far.on_over = lambda: self.ends.pop(far, None)
        self.ends[far] = None
        Link(self.network, end, far)
        self.network.world.soon(self.process, far.turn)

    def links(self) -> list[Link]:
        """Return the streams that are open."""
        return [end.link for end in self.ends if end.link is not None]

    def close(self, grace: float) -> None:
        """End gracefully."""
        self.is_up = False
        self._grace = grace
        self.process.call_soon(lambda: self._stop.set(None))

    async def _drain(self) -> None:
        grace = self._grace or 0.0
        self.service.host.close(grace)
        for end in tuple(self.ends):
            end.close(grace)
        until = self.site.world.now + grace + 1.0
        while (self.ends or not self.service.host.machine.closed) and self.site.world.now < until:
            await self.process.sleep(0.2)
        for link in self.links():
            link.reset()
        for exchange in tuple(self.service.exchanges.values()):
            exchange.reset()
        await self.process.sleep(10.0)

    def kill(self) -> None:
        """End as ``kill -9`` does. The system closes its connections."""
        self.is_up = False
        self.process.kill()
        for link in self.links():
            link.reset()
        for exchange in tuple(self.service.exchanges.values()):
            exchange.forget_server()
        self.service.exchanges.clear()
        self.network.invariants.ledgers.remove(self.server.ledger)


# -------------------------------------------------------------------------------------------------------------- clients


class Visitor:
    """A client program: it opens a client, and its tasks use it; where the client is lost, it opens another."""

    def __init__(self, site: Site, acts: Acts, party: Party, name: str) -> None:
        self.site: Final = site
        self.party: Final = party
        self.name: Final = name
        self.principal: Final = f"principal of {name}"
        self.network: Final = site.network
        self.invariants: Final = site.network.invariants
        self.process: Final = Process(site.world, name)
        self.process._drawn = hash_of(name) << 64  # no two processes draw the same
        self.listeners: dict[Listening, str] = {}
        self.client: Client | None = None
        self._driver: PipeEnd | HttpEnd | None = None
        self.acts: Final = acts
        self.performed = 0
        self._turns = Turns(self.process)
        self._doing: set[ManualTask] = set()
        for lane in party.lanes:
            self.process.spawn(self._walk(lane))

    async def _walk(self, lane: Sequence[Act]) -> None:
        for act in lane:
            await self.process.sleep(act.after)
            if self.site.world.now >= self.site.plan.calm_at:
                return
            await self.perform(act)

    async def perform(self, act: Act) -> None:
        """Do one thing, in a task that can be cancelled, and wait for its end."""
        done = self.process.one_shot()

        async def run() -> None:
            try:
                await perform(self, act)
            finally:
                done.set(None)

        task = self.process.spawn(run())
        timer = None if act.cancel is None else self.process.call_later(act.cancel, task.cancel)
        await done
        if timer is not None:
            timer.cancel()

    async def open(self) -> Client:
        """Return the client, a new one if there is none. Raises McpError."""
        async with self._turns:
            if self.client is None or self.client.ended is not None or self._is_closing(self.client):
                self.client = None
                self.client = await (self._open_http() if self.party.carrier == "http" else self._open_pipe())
            return self.client

    @staticmethod
    def _is_closing(client: Client) -> bool:
        return client.connection.phase in (Phase.CLOSING, Phase.CLOSED)

    def _options(self) -> dict[str, Any]:
        reopens = self.party.keeps and self.party.carrier == "pipe"
        return {
            "era": self.party.era,
            "options": Options(reopens=reopens, initialize_timeout=10.0, probe_timeout=3.0),
            "elicitation": partial(answer_as, self),
            "on_log": partial(noted, self.invariants, self),
        }

    async def _open_pipe(self) -> Client:
        options = self._options()
        connection = client_connection(**options)
        end = self._driver = PipeEnd(self.network, self.process, connection)
        client = Client(connection, end, **options)
        end.session = client
        if self.party.keeps:
            end.reconnector = SessionReconnector(client, None)
            client._reconnector = end.reconnector
            end.on_lost = lambda: self._lost(client, end)
        self.site.connect(end, self.principal)
        return await self._open(client)

    async def _open_http(self) -> Client:
        options = self._options()
        connection = client_connection(**options)
        end = self._driver = HttpEnd(self.network, self.process, self.principal, self.site.route, self.site.learn)
        machine = HttpClient(
            connection,
            _LOCATION,
            options=HttpClientOptions(reinitialize=self.party.keeps),
            param_headers=lambda name: client._param_headers(name),  # noqa: PLW0108  it is made below
        )
        end.attach(machine)
        client = Client(connection, end, **options)
        end.session = client
        end.reconnector = SessionReconnector(client, None)
        client._reconnector = end.reconnector
        return await self._open(client)

    async def _open(self, client: Client) -> Client:
        try:
            await client.initialize()
        except BaseException:
            client.close(0)
            raise
        return client

    def _lost(self, client: Client, end: PipeEnd) -> None:
        """Connect again, as a client that lasts does."""
        reconnector, connection = end.reconnector, client.connection
        assert reconnector is not None
        self.invariants.lost(connection)
        if connection.phase is not Phase.NEW or connection.peer is None:
            connection.connection_lost(ConnectionLost("the connection was lost"), self.site.world.now)
            end.wake()
            return
        reconnector.lose()
        reconnector.tell()
        self.process.spawn(self._connect_again(client, end, reconnector))

    async def _connect_again(self, client: Client, end: PipeEnd, reconnector: SessionReconnector) -> None:
        connection, wait = client.connection, 0.05
        for _ in range(30):
            await self.process.sleep(wait)
            wait = min(5.0, wait * 2)
            if self._is_closing(client):
                reconnector.give_up()
                return
            try:
                self.site.connect(end, self.principal)
            except ConnectFailed:
                continue
            link = end.link
            try:
                await reconnector.open()
            except McpError as error:
                if self._is_closing(client):
                    reconnector.give_up(error)
                elif end.link is link and link is not None:
                    link.drop(end)
                    end.lose(ConnectionLost("no session on the new connection"))
            return
        failure = ConnectFailed("the server cannot be reached")
        reconnector.give_up(failure)
        connection.connection_lost(failure, self.site.world.now)
        end.wake()

    # The end

    def vanish(self) -> None:
        """End as ``kill -9`` does."""
        self.process.kill()
        driver = self._driver
        if isinstance(driver, PipeEnd) and driver.link is not None:
            driver.link.drop(driver)
        elif isinstance(driver, HttpEnd):
            for exchange in tuple(driver.exchanges.values()):
                exchange.cancel()

    async def say_goodbye(self) -> None:
        """Close everything."""
        for listening in tuple(self.listeners):
            listening.close()
        self.listeners.clear()
        if self.client is not None:
            await self.client.aclose(1.0)


@attrs.frozen
class Visit:
    """One act of a program, with the client and the checks that it uses."""

    client: Client
    act: Act
    token: str
    visitor: Visitor
    invariants: Invariants

    @property
    def uri(self) -> str:
        """The URI of the resource that the act is about."""
        return URIS[self.act.size % len(URIS)]

    @property
    def own(self) -> str:
        """The text that the server must answer to this act."""
        return f"{self.token} for {self.visitor.principal}"

    async def call(self, tool: str, on_progress: Any = None, /, **arguments: Any) -> str:
        """Call a tool, and return its text. Raises ToolError if it failed."""
        result = await self.client.call_tool(tool, arguments, timeout=self.act.timeout, on_progress=on_progress)
        block = result.content[0]
        text = block.text if isinstance(block, TextContent) else ""
        if result.is_error:
            raise ToolError(text)
        return text

    def check(self, answer: str, expected: str) -> None:
        """Judge an answer."""
        self.invariants.holds("own answers", answer == expected, f"{answer!r:.100} in place of {expected!r:.100}")


def answer_as(visitor: Visitor, scope: Any, request: Any) -> ElicitResult:
    """Answer a question of the server, as the user of one client."""
    del scope, request
    return ElicitResult("accept", {"name": visitor.name})


def noted(invariants: Invariants, visitor: Visitor, message: Any) -> None:
    """Judge a log message of the server."""
    data = message.data
    if isinstance(data, dict) and "act" in data:
        invariants.holds("own answers", data["act"].startswith(visitor.name + "."), f"{visitor.name} hears {data}")
        invariants.said_in_order(data["act"], data["step"])


def hash_of(name: str) -> int:
    """Return a number for a name, the same in every run."""
    return 1000 + int.from_bytes(name.encode(), "big") % 1_000_003


async def perform(visitor: Visitor, act: Act) -> None:
    """Do one thing with the client of a visitor, and judge how it ends."""
    visitor.performed += 1
    token, invariants, site = f"{visitor.name}.{visitor.performed}", visitor.invariants, visitor.site
    # While there are faults, nothing limits how many calls a program makes, and each may last until its timeout.
    faulty = max(0.0, site.plan.calm_at - site.world.now)
    call = invariants.begin(act.what, visitor.process, faulty + 3 * act.timeout + act.lasts + LONGEST)
    error: BaseException | None = None
    try:
        client = await visitor.open()
        await visitor.acts[act.what](Visit(client, act, token, visitor, invariants))
    except Exception as failure:
        error = failure
    finally:
        invariants.end(call, error)
