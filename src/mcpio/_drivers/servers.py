"""Many servers behind one client, and a server in front of others."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, Unpack, overload
from weakref import WeakSet

import attrs

from mcpio import types
from mcpio._drivers import report
from mcpio._drivers.event_loop import CancelScope, EventLoop
from mcpio.app.client import CallOptions, Client, ClientOptions
from mcpio.app.forwarding import HANDSHAKE_ERA, ForwardingServer
from mcpio.app.mounting import Gathered, PublicNames
from mcpio.app.runtime import OneShot, Runtime, Spawned
from mcpio.app.server import Server
from mcpio.app.server_session import ServerSession
from mcpio.app.servers_config import ServerEntry
from mcpio.engine.table import Phase
from mcpio.errors import (
    ConnectFailed,
    ConnectionLost,
    LocalProtocolError,
    McpError,
    NoBackChannel,
    RequestError,
    UnexpectedResponse,
)
from mcpio.methods import declares
from mcpio.restarts import Restarts
from mcpio.revisions import Era
from mcpio.types.base import SKILLS_EXTENSION

if TYPE_CHECKING:
    from mcpio.app.client_skills import Skill
    from mcpio.backoff import Backoff
    from mcpio.restarts import RestartPolicy
    from mcpio.types.features import CallToolResult, GetPromptResult, Prompt, Resource, Tool


# -------------------------------------------------------------------------------------------------------------- servers
# Many servers behind one client, on any event loop.

T = TypeVar("T")

ServerState: TypeAlias = Literal["starting", "ready", "restarting", "failed", "closed"]

ServerSource: TypeAlias = ServerEntry | Callable[..., AbstractAsyncContextManager[Client]]
"""An entry of a configuration, or a function that opens a client with ``ClientOptions``, such as
``partial(open_unix, path)`` or ``partial(memory_client, server)``."""

OnChange: TypeAlias = Callable[[str, str], None]

START_TIMEOUT: Final = 10.0
"""The default of ``start_timeout``, in seconds."""


@asynccontextmanager
async def run_servers(
    loop: EventLoop,
    drivers: Any,
    config: Mapping[str, ServerSource],
    *,
    on_failure: Literal["keep", "raise"] = "keep",
    restart: Backoff | RestartPolicy | None = None,
    start_timeout: float = START_TIMEOUT,
    on_change: OnChange | None = None,
    **options: Unpack[ClientOptions],
) -> AsyncIterator[Servers]:
    """Implement ``open_servers`` on an event loop. ``drivers`` is the module of its functions for clients."""
    if on_failure not in ("keep", "raise"):
        raise ValueError(f"on_failure must be 'keep' or 'raise', not {on_failure!r:.60}")
    servers = Servers(loop, drivers, config, restart, on_change, options)
    try:
        async with loop.group() as runtime:
            running = [runtime.spawn(servers._run(name, runtime)) for name in servers]  # noqa: SLF001  the two are one
            with loop.scope(start_timeout):
                await servers._wait_settled(stop_at_failure=on_failure == "raise")  # noqa: SLF001  likewise
            try:
                if on_failure == "raise":
                    servers._raise_failure()  # noqa: SLF001  likewise
                yield servers
            finally:
                # Each waits for the end of its server, so the group would wait for them.
                for task in running:
                    task.cancel()
    finally:
        servers._close()  # noqa: SLF001  likewise


class Servers:
    """Many servers, each with its own client, and their tools and prompts under public names."""

    def __init__(
        self,
        loop: EventLoop,
        drivers: Any,
        config: Mapping[str, ServerSource],
        policy: Backoff | RestartPolicy | None,
        on_change: OnChange | None,
        options: ClientOptions,
    ) -> None:
        """For ``run_servers``."""
        self._loop = loop
        self._drivers = drivers
        self._config = config
        self._policy = policy
        self._on_change = on_change
        self._options = options
        self._states: dict[str, ServerState] = {name: "starting" for name in config if not _is_disabled(config, name)}
        self._clients: dict[str, Client] = {}
        self._errors: dict[str, McpError] = {}
        self._tools = PublicNames(self._states)
        self._prompts = PublicNames(self._states)
        self._changed = loop.event()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the servers' names, in the order of the configuration."""
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def __getitem__(self, name: str) -> Client:
        """Return the client of a server.

        With ``restart`` a server that was started again has another client. Raises KeyError for an unknown name, and
        ConnectFailed for a server that is not ready, with the reason.
        """
        state = self.state(name)
        if state == "ready":
            return self._clients[name]
        why = None if state == "closed" else self.error(name)
        error = ConnectFailed(f"the server {name!r} is not ready: {why or state}")
        error.__cause__ = why
        raise error

    def state(self, name: str) -> ServerState:
        """Return the state of a server. Raises KeyError for an unknown name."""
        state = self._states[name]
        if state == "ready" and not _is_open(self._clients[name]):
            return "failed" if self._policy is None else "restarting"  # its task has not run yet
        return state

    def error(self, name: str) -> McpError | None:
        """Return why a server failed or is being restarted, or ``None``."""
        client = self._clients.get(name)
        return self._errors.get(name) if client is None or _is_open(client) else _loss_of(client)

    async def ready(self, name: str) -> Client:
        """Wait until a server is ready, and return its client. Raises ConnectFailed if the server has failed."""
        while self.state(name) in ("starting", "restarting"):
            await self._changed.wait()
        return self[name]

    async def tools(self, **call: Unpack[CallOptions]) -> list[Gathered[Tool]]:
        """Return the tools of all servers that are ready, under public names.

        A server whose list fails has none; ``on_change`` or its own calls tell why. All are asked at once.
        """
        return await self._gather(self._tools, _lister("tools", call))

    async def prompts(self, **call: Unpack[CallOptions]) -> list[Gathered[Prompt]]:
        """Return the prompts of all servers that are ready, as ``tools`` does."""
        return await self._gather(self._prompts, _lister("prompts", call))

    async def resources(self, **call: Unpack[CallOptions]) -> list[Gathered[Resource]]:
        """Return the resources of all servers that are ready. Read one with ``servers[it.server].read_resource``."""
        return await self._gather(PublicNames(self._states), _lister("resources", call))

    async def skills(self, **call: Unpack[CallOptions]) -> list[Gathered[Skill]]:
        """Return the skills that the servers list, as ``tools`` does. Nothing of them is read.

        Where a server has two of one name, their public names are made of their URIs.
        """

        async def listed(client: Client) -> list[Skill]:
            has_skills = declares(client.server.capabilities, ("extensions", SKILLS_EXTENSION))
            return [skill async for skill in client.skills(**call)] if has_skills else []

        names = PublicNames(self._states)
        skills = await self._gather(names, listed)
        count = Counter(each.name for each in skills)
        return [
            each if count[each.name] == 1 else attrs.evolve(each, name=names.public(each.server, each.item.uri))
            for each in skills
        ]

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: None = None,
        **call: Unpack[CallOptions],
    ) -> CallToolResult: ...

    @overload
    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, returns: type[T], **call: Unpack[CallOptions]
    ) -> T: ...

    @overload
    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, returns: object, **call: Unpack[CallOptions]
    ) -> Any: ...

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: Any = None,
        **call: Unpack[CallOptions],
    ) -> Any:
        """Call the tool of a public name, at the server that lists it. ``returns`` is as for ``Client.call_tool``.

        Raises LookupError if no server lists it, ConnectFailed if its server is not ready, and as ``Client.call_tool``.
        """
        server = self._tools.server_of(name)
        own_name = await self._own_name(server, self._tools, name, self.tools)
        return await self[server].call_tool(own_name, arguments, returns=returns, **call)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **call: Unpack[CallOptions]
    ) -> GetPromptResult:
        """Fill in the prompt of a public name, at the server that lists it. Raises as ``call_tool``."""
        server = self._prompts.server_of(name)
        own_name = await self._own_name(server, self._prompts, name, self.prompts)
        return await self[server].get_prompt(own_name, arguments, **call)

    async def _own_name(
        self, server: str, names: PublicNames, public: str, refresh: Callable[[], Awaitable[Any]]
    ) -> str:
        """Return the own name of a server's item. Asks for the lists again if it is not known.

        Raises ConnectFailed for a server that is not ready. It may be lost while others list what they offer.
        """
        self[server]
        name = names.find(public)
        if name is None:
            await refresh()
            name = names.find(public)
        if name is None:
            raise names.missing(public)
        return name

    async def _gather(
        self, names: PublicNames, list_items: Callable[[Client], Awaitable[list[T]]]
    ) -> list[Gathered[T]]:
        """Return one kind of item of all servers, in the order of the configuration."""
        by_server: dict[str, list[T]] = {}
        failures: list[Exception] = []

        async def ask(name: str, client: Client) -> None:
            try:
                by_server[name] = await list_items(client)
            except (McpError, LocalProtocolError) as error:
                report(f"the server {name!r} does not list what it offers: {error}", None)
            except Exception as error:
                failures.append(error)  # a mistake of the caller's, such as an unknown option

        async with self._loop.group() as runtime:
            for name in self._states:
                if self.state(name) == "ready":
                    # Its client now: the server may be lost before the task runs.
                    runtime.spawn(ask(name, self._clients[name]))
        if failures:
            raise failures[0]
        gathered = []
        for name in self._states:
            items: list[Any] = by_server.get(name, [])
            if name in by_server:
                names.record(name, (item.name for item in items))
            gathered += [Gathered(names.public(name, item.name), name, item) for item in items]
        return gathered

    # For run_servers

    async def _run(self, name: str, runtime: Runtime) -> None:
        """Keep one server connected, as long as the policy allows."""
        restarts = None if self._policy is None else Restarts(self._policy)
        while True:
            await self._connect(name, restarts)
            deadline = None if restarts is None else restarts.next_deadline()
            if deadline is None:
                return
            await runtime.sleep(max(0.0, deadline - self._loop.now()))

    async def _connect(self, name: str, restarts: Restarts | None) -> None:
        """Connect to a server once, until that ends or fails."""
        is_lost = False
        try:
            async with self._open_client(name) as client:
                self._clients[name] = client
                self._errors.pop(name, None)
                if restarts is not None:
                    restarts.began(self._loop.now())
                self._become(name, "ready")
                await client.driver.wait_closed()
                # Now: the exit of the block may wait for the server's process.
                is_lost = True
                self._lose(name, _loss_of(client), restarts)
            # The block ended without an error, because its connection did. The exit may have learnt more of why.
            failure: McpError = _loss_of(client)
        except ConnectFailed as error:
            failure = error
        except Exception as error:
            # A faulty entry or option, or a source that raises other errors.
            failure = ConnectFailed(
                f"{type(error).__name__}: {error}" if not isinstance(error, ValueError) else str(error)
            )
            failure.__cause__ = error
        if is_lost:
            self._errors[name] = failure
        else:
            self._lose(name, failure, restarts)

    def _lose(self, name: str, error: McpError, restarts: Restarts | None) -> None:
        """Record that a server failed, or was lost, and whether it is started again."""
        self._errors[name] = error
        if restarts is not None:
            restarts.ended(error, self._loop.now(), chance=random.random())  # noqa: S311  jitter is no secret
        is_over = restarts is None or restarts.next_deadline() is None
        self._become(name, "failed" if is_over else "restarting")

    def _open_client(self, name: str) -> AbstractAsyncContextManager[Client]:
        options: Any = {**self._options, "on_notification": partial(self._on_notification, name)}
        source = self._config[name]
        return opener_of(source, self._drivers)(**options)

    def _on_notification(self, name: str, notification: Any) -> None:
        what = _LISTS.get(type(notification).__name__)
        if what is not None:
            self._tell(name, what)
        callback = self._options.get("on_notification")
        if callback is not None:
            callback(notification)

    def _become(self, name: str, state: ServerState) -> None:
        self._states[name] = state
        if state != "ready":
            self._clients.pop(name, None)
        changed, self._changed = self._changed, self._loop.event()
        changed.set()
        self._tell(name, state)

    def _tell(self, name: str, change: str) -> None:
        if self._on_change is None:
            return
        try:
            self._on_change(name, change)
        except Exception as error:
            report(f"on_change failed for the server {name!r}", error)

    def _close(self) -> None:
        """Record that the block has ended, and with it all servers: tasks that wait for one learn so."""
        self._clients.clear()
        self._states.update(dict.fromkeys(self._states, "closed"))
        self._changed.set()

    async def _wait_settled(self, *, stop_at_failure: bool) -> None:
        """Wait until no server is starting; or until one has failed, with ``stop_at_failure``."""
        while "starting" in (states := self._states.values()) or "restarting" in states:
            if stop_at_failure and "failed" in states:
                return
            await self._changed.wait()

    def _raise_failure(self) -> None:
        for name, state in self._states.items():
            if state == "failed":
                self[name]


_LISTS: Final = {
    "ToolListChangedNotification": "tools",
    "PromptListChangedNotification": "prompts",
    "ResourceListChangedNotification": "resources",
}


def _is_disabled(config: Mapping[str, ServerSource], name: str) -> bool:
    try:
        source = config[name]
    except ValueError:
        return False  # a malformed entry is not disabled: it fails, with its reason
    return isinstance(source, ServerEntry) and source.disabled


def opener_of(source: ServerSource, drivers: Any) -> Callable[..., AbstractAsyncContextManager[Client]]:
    """Return the function that opens a client of a source. ``drivers`` is the module of the event loop's functions."""
    if not isinstance(source, ServerEntry):
        return source
    entry = source
    if entry.url is None:
        return partial(drivers.open_stdio, entry.command, env=entry.env, cwd=entry.cwd, stderr="capture")
    if entry.url.startswith(("ws://", "wss://", "ws+unix://", "wss+unix://")):
        return partial(drivers.open_websocket, entry.url, headers=dict(entry.headers))
    from mcpio.http.client import HttpClientOptions

    return partial(drivers.open_http, entry.url, http=HttpClientOptions(headers=dict(entry.headers)))


def _is_open(client: Client) -> bool:
    return client.connection.phase not in (Phase.CLOSING, Phase.CLOSED)


def _loss_of(client: Client) -> ConnectionLost:
    """Return why the connection of a client has ended."""
    try:
        client.check_open()
    except NoBackChannel as error:
        return ConnectionLost(str(error))
    return ConnectionLost("the connection is closed")


def _lister(what: str, call: CallOptions) -> Callable[[Client], Awaitable[list[Any]]]:
    """Return a function that lists all of one kind of a client's server, or nothing where the server has none."""

    async def listed(client: Client) -> list[Any]:
        capabilities: Any = client.server.capabilities
        has_some = isinstance(capabilities, types.ServerCapabilities) and getattr(capabilities, what) is not None
        return [each async for each in getattr(client, what)(**call)] if has_some else []

    return listed


# ------------------------------------------------------------------------------------------------------------- proxying
# A server that has another one answer, and may have that one replaced while its clients stay: on any event loop.

REPLACEMENT_TIMEOUT: Final = 15.0
"""Seconds that a replacement has to start before it counts as failed."""

Watch = Callable[[], Awaitable[object]]

_Opener: TypeAlias = Callable[..., AbstractAsyncContextManager[Client]]


def proxy_server(source: ServerSource, drivers: Any, loop: Callable[[], EventLoop], watch: Watch | None) -> Server:
    """Implement ``proxy`` on the event loop that ``loop`` returns while the server is served.

    ``drivers`` is the module of its functions for clients.
    """
    opener = opener_of(source, drivers)

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[_Upstreams]:
        running = loop()
        async with running.group() as runtime:
            chosen = await _adopt(forwarding, opener)
            limit = None if watch is None else REPLACEMENT_TIMEOUT
            upstreams = _Upstreams(forwarding, chosen, running, runtime, limit)
            try:
                if watch is not None:
                    upstreams.spawn(upstreams.reload_when(watch))
                yield upstreams
            finally:
                upstreams.cancel()

    forwarding = ForwardingServer(lifespan, may_change=watch is not None)
    return forwarding


async def _adopt(server: ForwardingServer, opener: _Opener) -> _Opener:
    """Present a proxy as the server behind it, and return how to open a client for each session.

    With a session where that server has them, even if it serves requests without one too: its handlers can wait for
    answers then. Raises ConnectFailed.
    """
    if not {"era", "options"}.isdisjoint(getattr(opener, "keywords", ())):  # of a partial
        async with opener() as client:
            server.adopt(client.server)
        return opener
    with_session = partial(opener, options=HANDSHAKE_ERA)
    refused: ConnectFailed | None = None
    try:
        async with with_session() as client:
            server.adopt(client.server)
            if _has_session(client):
                return with_session
    except ConnectFailed as error:
        # Only an answer can be due to the era.
        if not isinstance(error.__cause__, RequestError | UnexpectedResponse):
            raise
        refused = error
    try:
        async with opener() as client:
            if client.era is Era.STATELESS:
                server.adopt(client.server)
                return opener
    except ConnectFailed as error:
        failed = refused or error
        raise failed from failed.__cause__
    return with_session


def _has_session(client: Client) -> bool:
    """Whether a server that made a handshake keeps a session, and so can ask. Over HTTP some do not."""
    return getattr(client.driver, "has_session", True)


class _Upstreams:
    """The clients of the server behind a proxy, by the session that each belongs to."""

    def __init__(
        self,
        server: ForwardingServer,
        opener: _Opener,
        loop: EventLoop,
        runtime: Runtime,
        limit: float | None,
    ) -> None:
        """``limit`` is how many seconds the server behind has to start, beyond the limits of ``opener``."""
        self._server = server
        self._opener = opener
        self._limit = limit
        self._loop = loop
        self._runtime = runtime
        self._running: set[Spawned] = set()
        self._links: dict[ServerSession, _Link] = {}
        self._replaced: WeakSet[Client] = WeakSet()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> Spawned:
        """Run a task that ends with the serving."""

        async def run() -> None:
            try:
                await coroutine
            finally:
                self._running.discard(task)

        task = self._runtime.spawn(run())
        self._running.add(task)
        return task

    def cancel(self) -> None:
        """Cancel all tasks, which closes the clients."""
        for task in tuple(self._running):
            task.cancel()

    async def client(self, session: ServerSession) -> Client:
        """Return the client for a session, connected. Raises ConnectFailed."""
        link = self._links.get(session)
        if link is None:
            link = self._links[session] = _Link(self._loop.lock())
        failures = link.failures
        async with link.changing:
            while link.client is None or link.client.connection.closed:
                if link.failures > failures:
                    # An attempt that failed while this request waited counts for it too: otherwise, of many requests
                    # to a server that hangs, the last would wait for as many attempts.
                    raise ConnectFailed(link.failure)
                try:
                    link.client = await self._attempt(session, link)
                except ConnectFailed as error:
                    link.failures += 1
                    link.failure = str(error)
                    raise
            return link.client

    def was_replaced(self, client: Client) -> bool:
        """Whether a client was closed because its server was replaced by a newer one."""
        return client in self._replaced

    def forget(self, session: ServerSession) -> None:
        """Close the client of a session that has ended."""
        link = self._links.pop(session, None)
        if link is not None and link.client is not None:
            link.client.close()

    def tell_roots(self, session: ServerSession) -> None:
        """Notify the server behind a session that its client's roots have changed."""
        link = self._links.get(session)
        if link is not None and link.client is not None:
            with contextlib.suppress(McpError):
                link.client.notify_roots_changed()

    async def reload_when(self, watch: Watch) -> None:
        """Replace the servers of all sessions, each time that ``watch`` returns."""
        while True:
            try:
                await watch()
            except Exception as error:
                report("watch= failed, so the server is replaced no more", error)
                return
            for session, link in self._links.items():
                if link.attempt is not None:
                    attempt, link.attempt = link.attempt, None  # it starts what has changed
                    attempt.cancel()
                if not link.is_due:
                    link.is_due = True
                    self.spawn(self._replace(session, link))

    async def _replace(self, session: ServerSession, link: _Link) -> None:
        """Open a client of the new server for a session, and close the old one. Without a new one the old one stays."""
        # Requests that come now wait for the outcome.
        async with link.changing:
            old, new = link.client, None
            if old is None:
                return
            try:
                while new is None and link.is_due:
                    new = await self._attempt(session, link)
            except McpError as error:
                report(f"the new server does not start, so the old one stays: {error}", None)
                return
            if new is None:
                return
            link.client = new
            self._replaced.add(old)
            old.close(0)
        for changed in (
            types.ToolListChangedNotification(),
            types.ResourceListChangedNotification(),
            types.PromptListChangedNotification(),
        ):
            session.tell(changed)

    async def _attempt(self, session: ServerSession, link: _Link) -> Client | None:
        """Open the client of a session; return ``None`` if another version is to be started. Raises McpError."""
        link.is_due = False
        attempt = link.attempt = self._loop.scope(self._limit)
        try:
            with attempt:
                return await self._open(session)
            if link.attempt is attempt:
                raise ConnectFailed(f"no answer within {self._limit:g} s")
            return None
        finally:
            link.attempt = None

    async def _open(self, session: ServerSession) -> Client:
        """Connect for a session, and restore the state that the last server had of it. Raises ConnectFailed."""
        hosted = self._runtime.one_shot()
        hosting = self.spawn(self._host(self._server.options_for(session), hosted))
        try:
            opened: Client | Exception = await hosted.wait()
            if not isinstance(opened, Exception):
                await self._restore(opened, session)
        except BaseException:
            hosting.cancel()  # cancelled or out of time, also after the handshake: nobody else knows of the client
            raise
        if isinstance(opened, Exception):
            raise opened
        if session not in self._links:
            opened.close()  # the session ended meanwhile
        return opened

    async def _restore(self, client: Client, session: ServerSession) -> None:
        """Send a server the log level and subscriptions that the last one had of a session."""
        with contextlib.suppress(McpError):
            # A stateless server logs for those only that ask for it.
            if client.era is Era.STATELESS or session.log_level != self._server.log_level:
                await client.set_log_level(session.log_level)
            for uri in session.subscriptions:
                await client.subscribe_resource(uri)

    async def _host(self, options: Any, hosted: OneShot) -> None:
        """Keep one client open until it ends. Sets ``hosted`` to it, or to the reason why opening failed."""
        try:
            async with self._opener(**options) as client:
                hosted.set(client)
                await client.driver.wait_closed()
        except Exception as error:
            hosted.set(error)


class _Link:
    """One session's way to the server."""

    __slots__ = ("attempt", "changing", "client", "failure", "failures", "is_due")

    def __init__(self, changing: AbstractAsyncContextManager[object]) -> None:
        """Start without a client. ``changing`` is locked while it is opened or replaced."""
        self.changing = changing
        self.client: Client | None = None
        self.attempt: CancelScope | None = None
        """What cuts off the attempt to open one."""
        self.failures = 0
        """How many attempts to open the only one failed, and why the last of them did."""
        self.failure = ""
        self.is_due = False
        """Whether the server has changed since the last attempt began, and a replacement waits for its turn."""
