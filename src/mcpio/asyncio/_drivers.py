"""``serve``, ``serving``, ``connect`` and ``open_streams``: servers and clients over a reader and a writer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar, Unpack

import attrs

from mcpio._checks import check_options
from mcpio._drivers import ClientContext, TapSource, check_authorization, lifespan_of
from mcpio._drivers.actor import Deadlines, Timed, TransportAdapter
from mcpio._drivers.fault_log import FaultLog
from mcpio._drivers.preloading import preload
from mcpio._drivers.setup import (
    ConnectOptions,
    ServerSetupOptions,
    SessionSetup,
    prepare_client,
    prepare_server,
    split_options,
)
from mcpio._drivers.sockets.connection_limit import MAX_CONNECTIONS, capped_connections
from mcpio._drivers.sockets.sessions import ActiveSet, SessionHandler
from mcpio._drivers.task_host import TaskHost, hosted_tasks, store_tasks
from mcpio.app.client import Client
from mcpio.app.runtime import Driver, checked_grace
from mcpio.app.session import Session
from mcpio.asyncio._actor import Alarm, AsyncioActor
from mcpio.asyncio._event_loop import AsyncioEventLoop
from mcpio.asyncio._runtime import AsyncioRuntime
from mcpio.asyncio._tasks import last_moment, settled, tasks_around, ungrouped
from mcpio.asyncio._transport import ReaderWriterAdapter
from mcpio.engine.limits import seconds

if TYPE_CHECKING:
    from mcpio.app.server import Server
    from mcpio.app.server_session import ServerSession

__all__ = [
    "AsyncioClientContext",
    "AsyncioServingContext",
    "ServeStreams",
    "Started",
    "carry",
    "check_serving",
    "connect",
    "open_streams",
    "run_client",
    "serve",
    "serve_adapter",
    "serving",
    "start_client",
]

S = TypeVar("S", bound=Session)
C = TypeVar("C", bound=Client)

Started: TypeAlias = tuple[C, "asyncio.Task[None]"]
"""A client, and the task that runs its session."""

_RUNNING: set[asyncio.Task[None]] = set()
"""The tasks of clients without a group. The event loop itself keeps only weak references to tasks."""


async def serve(
    server: Server,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    *,
    principal: Any = None,
    **beginning: Unpack[ServerSetupOptions],
) -> None:
    """Serve one client over a reader and a writer until the conversation ends; then close the writer.

    ``principal`` is the authenticated caller, which handlers see. See ``ServerSetupOptions`` for resumed sessions and
    for taps. ``server.sessions`` holds the session while it runs. Nothing that the client does raises here; what the
    server's lifespan raises propagates unwrapped. Raises LocalProtocolError if ``connection`` or ``snapshot`` cannot be
    continued.

    For many clients ``serving`` enters the lifespan once.
    """
    check_serving(server, principal, beginning)
    adapter = ReaderWriterAdapter(reader, writer)
    await serve_adapter(server, adapter, principal, beginning, abort=adapter.abort)


def check_serving(server: Server, principal: Any, beginning: Any) -> None:
    """Raise TypeError or ValueError for arguments that cannot be served."""
    check_options(beginning, ServerSetupOptions.__annotations__)
    check_authorization(server, is_authorized=principal is not None or beginning.get("connection") is not None)


async def serve_adapter(
    server: Server, adapter: TransportAdapter, principal: Any, beginning: Any, *, abort: Callable[[], object]
) -> None:
    """Serve one client over a transport until the conversation ends. See ``serve``, and ``start_client``."""
    try:
        async with lifespan_of(server) as state:
            setup = prepare_server(server, principal, asyncio.get_running_loop().time(), **beginning)
            await carry(
                setup, adapter, partial(_session, server, setup, state), partial(store_tasks, server, last_moment)
            )
    finally:
        # The lifespan may have failed, or have been cancelled, before an actor owned the transport.
        abort()


class ServeStreams(Protocol):
    """Serves one of many clients until its session ends; yielded by ``serving``.

    Nothing that the client does raises here. ``principal`` is the authenticated caller.
    """

    async def __call__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, principal: Any = None
    ) -> None:
        """Serve a client, and close its writer."""


@asynccontextmanager
async def serving(
    server: Server,
    *,
    max_connections: int = MAX_CONNECTIONS,
    grace: float = 0.5,
    end_timeout: float | None = 60.0,
    tap: TapSource | None = None,
) -> AsyncIterator[ServeStreams]:
    """Async context manager that yields a function which serves any number of clients.

    Pass the function to ``asyncio.start_server`` or ``asyncio.start_unix_server``. The server's lifespan is entered
    once, for all sessions. Tasks of tools outlive the sessions that started them, and end with the block. A session
    that fails costs only itself. ``tap`` observes each session.

    At the end of the block, no further client is served, running requests have ``grace`` seconds to be answered, and
    then all sessions end. What the body and the lifespan raise propagates unwrapped.

    After a client ended its side of the connection, its requests have ``end_timeout`` seconds, ``None`` for no limit.
    It may wait for the answers, or be gone, which looks the same.

    Beyond ``max_connections``, clients are rejected, which is logged. The number is lowered, with a warning, to three
    quarters of the files that the process may open: at that limit asyncio could accept nothing, and would log without
    end.
    """
    most = capped_connections(max_connections)
    checked_grace(grace)
    timeout = seconds(end_timeout)
    preload()
    loop = AsyncioEventLoop()
    async with (
        lifespan_of(server) as state,
        tasks_around() as runtime,
        hosted_tasks(server, TaskHost(runtime, loop.now), state, last_moment),
    ):
        handler = _ReaderWriterHandler(AsyncioServingContext(server, state, loop), most, tap, timeout)
        try:
            yield handler.serve
        finally:
            await handler.end(grace)


async def connect(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    *,
    group: asyncio.TaskGroup | None = None,
    **options: Unpack[ConnectOptions],
) -> Client:
    """Return an initialized client over a reader and a writer.

    It is tied to no block. It ends when it is closed, or with ``group``, in which its tasks run and never raise;
    without a group it ends with the event loop. See ``ClientOptions``, and ``ClientSetupOptions`` for resumed sessions
    and taps.

    Raises ConnectFailed, with the writer closed.
    """
    client, _ = await _start(reader, writer, group, options)
    return client


def open_streams(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, **options: Unpack[ConnectOptions]
) -> AsyncioClientContext[Client]:
    """Async context manager that yields a client: ``async with open_streams(…) as client``. See ``connect``."""
    return AsyncioClientContext(lambda: _start(reader, writer, None, options))


class AsyncioClientContext(ClientContext, Generic[C]):
    """Async context manager that yields a client. An exception of the body propagates unwrapped."""

    def __init__(self, start: Callable[[], Awaitable[Started[C]]]) -> None:
        self._start = start
        self._is_open = False

    async def __aenter__(self) -> C:
        """Connect. Raises ConnectFailed, after cleaning up."""
        if self._is_open:
            raise RuntimeError("this context manager is in use: make another for a second client")
        self._is_open = True
        try:
            self._client, self._task = await self._start()
        except BaseException:
            self._is_open = False
            raise
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the client, and wait until all its tasks have ended. In a cancelled block, they are cancelled too."""
        self._client.close()
        if isinstance(error, asyncio.CancelledError):
            # As in a cancelled nursery: a server that has vanished is not waited for.
            self._task.cancel()
        await settled(self._task)
        self._is_open = False
        if error is None and not self._task.cancelled():
            self._task.result()


@attrs.frozen
class AsyncioServingContext:
    """``mcpio._drivers.sockets.sessions.ServingContext`` for asyncio."""

    server: Server
    state: Any
    loop: AsyncioEventLoop

    def deadlines(self) -> Deadlines:
        """Return a new timer."""
        return _SilenceAlarm(asyncio.get_running_loop())

    async def carry(
        self, setup: SessionSetup, adapter: TransportAdapter, make_session: Callable[[Driver], ServerSession]
    ) -> None:
        """Run one session."""
        await carry(setup, adapter, make_session)


class _SilenceAlarm(Alarm):
    """A timer that does not keep its session alive once it is stopped."""

    def arm(self, timed: Timed, deadline: float | None) -> None:
        """Fire at a deadline; ``None`` stops the timer."""
        if deadline is None:
            self.stop()
        else:
            super().arm(timed, deadline)


class _ReaderWriterHandler:
    """Serves one session per reader and writer, and rejects those beyond a limit."""

    def __init__(
        self, context: AsyncioServingContext, max_connections: int, tap: TapSource | None, end_timeout: float | None
    ) -> None:
        self._sessions = SessionHandler(context, tap=tap, end_timeout=end_timeout)
        self._connections: ActiveSet[ReaderWriterAdapter] = ActiveSet(context.loop)
        self._room = max_connections
        self._faults = FaultLog(context.loop.now)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, principal: Any = None) -> None:
        """Serve a client, and close its writer."""
        adapter = ReaderWriterAdapter(reader, writer)
        if len(self._connections) >= self._room:
            self._faults.report(f"a client was turned away: there are {self._room} connections", None)
            adapter.abort()
            return
        self._connections.enter(adapter)
        try:
            await self._sessions.serve_session(adapter, principal)
        finally:
            adapter.abort()
            self._connections.leave(adapter)

    async def end(self, grace: float) -> None:
        """Close all sessions gracefully, and wait until no connection is left."""
        self._sessions.close(grace)
        await settled(asyncio.ensure_future(self._connections.wait_empty()))


def _session(server: Server, setup: SessionSetup, state: Any, driver: Driver) -> Session:
    connection: Any = setup.connection
    return server.session(connection, driver, state)


async def _start(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, group: asyncio.TaskGroup | None, options: Any
) -> Started[Client]:
    """Return an initialized client over a reader and a writer, and the task that runs its session."""
    adapter = ReaderWriterAdapter(reader, writer)
    return await start_client(adapter, group, options, Client, abort=adapter.abort)


async def start_client(
    adapter: TransportAdapter,
    group: asyncio.TaskGroup | None,
    options: Mapping[str, Any],
    make: Callable[..., C],
    after_close: Callable[[C], Awaitable[None]] | None = None,
    *,
    abort: Callable[[], object],
) -> Started[C]:
    """Return an initialized client, made by ``make(connection, driver, **options)``, and the task of its session.

    ``abort`` closes the transport at once, unless it is closed.
    """
    try:
        of_client, how = split_options(options)
        setup = prepare_client(of_client, asyncio.get_running_loop().time(), **how)

        def carrying(started: asyncio.Future[C]) -> Coroutine[Any, Any, None]:
            return carry(
                setup,
                adapter,
                lambda driver: make(setup.connection, driver, **of_client),
                after_close,
                started=started,
            )

        return await run_client(carrying, group, is_resumed=setup.is_resumed, after=abort)
    except BaseException:
        # Invalid options, or a group that takes no more tasks: no actor owned the transport yet.
        abort()
        raise


async def run_client(
    carry: Callable[[asyncio.Future[C]], Coroutine[Any, Any, None]],
    group: asyncio.TaskGroup | None,
    *,
    is_resumed: bool,
    after: Callable[[], object] | None = None,
) -> Started[C]:
    """Start the task ``carry(started)``, which sets the future to a client, and return that client, initialized.

    A client whose conversation began earlier needs no handshake. ``after`` is called when the task is done, even if its
    group was cancelled before the task started.
    """
    loop = asyncio.get_running_loop()
    started: asyncio.Future[C] = loop.create_future()

    async def carried() -> None:
        try:
            await carry(started)
        except Exception as error:
            if started.done():
                raise
            started.set_exception(error)

    running = carried()
    try:
        task = (group or loop).create_task(running)
    except RuntimeError:
        running.close()
        raise
    _RUNNING.add(task)
    task.add_done_callback(_RUNNING.discard)
    task.add_done_callback(lambda _: started.cancel())
    if after is not None:
        task.add_done_callback(lambda _: after())
    client: C | None = None
    try:
        client = await asyncio.shield(started)
        if not is_resumed:
            await client.initialize()
    except BaseException:
        if client is None:
            task.cancel()
        else:
            client.close(0)
        await settled(task)
        raise
    return client, task


async def carry(
    setup: SessionSetup,
    adapter: TransportAdapter,
    make_session: Callable[[Driver], S],
    after_close: Callable[[S], Awaitable[None]] | None = None,
    *,
    started: asyncio.Future[S] | None = None,
) -> None:
    """Run one session, with its handlers, until it ends."""
    with ungrouped():
        async with asyncio.TaskGroup() as group:
            actor = AsyncioActor(setup.connection, adapter, AsyncioRuntime(group), end_timeout=setup.end_timeout)
            session = make_session(actor)
            actor.attach(session, None if after_close is None else partial(after_close, session))
            setup.resume(session)
            if started is not None:
                started.set_result(session)
            group.create_task(actor.run())
            # From here on the group waits, and cancels both the actor and the handlers when it is cancelled: the actor
            # has started by then, so that it ends gracefully.
            await asyncio.sleep(0)
