"""Clients and servers over any transport."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar, Unpack

from mcpio._checks import called
from mcpio._drivers import ClientContext, TapSource, lifespan_of
from mcpio._drivers.actor import TaskHost, TransportAdapter, hosted_tasks
from mcpio._drivers.event_loop import RECEIVE_SIZE, StreamAdapter
from mcpio._drivers.setup import (
    ConnectOptions,
    FaultLog,
    ServerSetupOptions,
    client_runner,
    preload,
    serve_adapter,
)
from mcpio._drivers.socket_server import MAX_CONNECTIONS, ActiveSet, ServingContext, SessionHandler, capped_connections
from mcpio.app.client import Client
from mcpio.app.runtime import checked_grace
from mcpio.asyncio._event_loop import AsyncioEventLoop, limit_buffer
from mcpio.asyncio._runtime import last_moment, settled, tasks_around, ungrouped
from mcpio.engine.connection import Connection
from mcpio.engine.limits import seconds
from mcpio.errors import ConnectionLost, NoBackChannel

if TYPE_CHECKING:
    from mcpio.app.server import Server


# ----------------------------------------------------------------------------------------------------------- transport
# asyncio's reader and writer as a stream.


class ReaderWriterStream:
    """A reader and a writer as one stream.

    A cancellation tears no message: the writer's transport has all of it, or none.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Own the two from now on. Raises TypeError if they are not a StreamReader and a StreamWriter."""
        for name, value, kind in (("reader", reader, asyncio.StreamReader), ("writer", writer, asyncio.StreamWriter)):
            if not isinstance(value, kind):
                raise TypeError(f"a {name} must be an asyncio.{kind.__name__}, not {type(value).__name__}")
        self.get_extra_info: Callable[[str], Any] = writer.get_extra_info
        self._reader = reader
        self._writer = writer
        self._transport = writer.transport
        self._has_more = self._is_closed = False
        limit_buffer(self._transport)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for bytes; ``b""`` at the end."""
        if self._has_more:
            # The reader returns buffered input without a turn of the loop, in which other sessions could run.
            await asyncio.sleep(0)
        size = RECEIVE_SIZE if max_bytes is None else max_bytes
        data = await self._reader.read(size)
        self._has_more = len(data) == size
        return data

    async def send_all(self, data: bytes | memoryview) -> None:
        """Write all of the data: wait until only the system holds any of it."""
        self._check_open()
        self._transport.write(data)
        await self._writer.drain()

    def send_nowait(self, data: bytes) -> int:
        """Accept all of the data if the system has accepted all earlier data, or else none; return how much."""
        self._check_open()
        if self._transport.get_write_buffer_size():
            return 0
        self._transport.write(data)
        return len(data)

    async def send_eof(self) -> None:
        """End the output, when the system has taken all of it. Under TLS, only wait: the input would end too."""
        await self._writer.drain()
        self._check_open()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    async def aclose(self) -> None:
        """Close when the system has taken all of the output; if cancelled, at once."""
        try:
            self._writer.close()
            await self._writer.wait_closed()
        except OSError:
            pass  # how it was lost
        except asyncio.CancelledError:
            self.abort()
            raise
        self._is_closed = True

    def abort(self) -> None:
        """Close the transport without writing its buffer, unless it is closed."""
        if not self._is_closed:
            self._is_closed = True
            self._transport.abort()

    def _check_open(self) -> None:
        if self._transport.is_closing():
            raise ConnectionResetError("the stream is closed")


# -------------------------------------------------------------------------------------------------------------- drivers
# ``serve``, ``serving``, ``connect`` and ``open_streams``: servers and clients over a reader and a writer.

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
    loop = AsyncioEventLoop()
    await serve_adapter(loop, server, StreamAdapter(ReaderWriterStream(reader, writer), loop), principal, beginning)


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
    timeout = seconds("end_timeout", end_timeout)
    preload()
    loop = AsyncioEventLoop()
    async with (
        lifespan_of(server) as state,
        tasks_around() as runtime,
        hosted_tasks(server, TaskHost(runtime, loop.now), state, last_moment),
    ):
        context = ServingContext(server, state, loop, runtime, loop.timekeeper(runtime))
        handler = _ReaderWriterHandler(context, most, tap, timeout)
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
        # A body that met the end of the connection learns what caused it, such as a lifespan whose task failed.
        is_explained = error is None or isinstance(error, ConnectionLost | NoBackChannel)
        if is_explained and not self._task.cancelled():
            with ungrouped():
                self._task.result()


class _ReaderWriterHandler:
    """Serves one session per reader and writer, and rejects those beyond a limit."""

    def __init__(
        self, context: ServingContext, max_connections: int, tap: TapSource | None, end_timeout: float | None
    ) -> None:
        self._sessions = SessionHandler(context, tap=tap, end_timeout=end_timeout)
        self._connections: ActiveSet[ReaderWriterStream] = ActiveSet(context.loop)
        self._loop = context.loop
        self._room = max_connections
        self._faults = FaultLog(context.loop.now)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, principal: Any = None) -> None:
        """Serve a client, and close its writer."""
        stream = ReaderWriterStream(reader, writer)
        if len(self._connections) >= self._room:
            self._faults.report(f"a client was turned away: there are {self._room} connections", None)
            stream.abort()
            return
        self._connections.enter(stream)
        try:
            await self._sessions.serve_session(StreamAdapter(stream, self._loop), principal)
        finally:
            stream.abort()
            self._connections.leave(stream)

    async def end(self, grace: float) -> None:
        """Close all sessions gracefully, and wait until no connection is left."""
        self._sessions.close(grace)
        await settled(asyncio.ensure_future(self._connections.wait_empty()))


async def _start(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, group: asyncio.TaskGroup | None, options: Any
) -> Started[Client]:
    """Return an initialized client over a reader and a writer, and the task that runs its session."""
    stream = ReaderWriterStream(reader, writer)
    return await start_client(StreamAdapter(stream, AsyncioEventLoop()), group, options, Client, abort=stream.abort)


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
        run, is_resumed = client_runner(AsyncioEventLoop(), adapter, options, make, after_close)
        return await run_client(run, group, is_resumed=is_resumed, after=abort)
    except BaseException:
        # Invalid options, or a group that takes no more tasks: no actor owned the transport yet.
        abort()
        raise


async def run_client(
    run: Callable[..., Coroutine[Any, Any, None]],
    group: asyncio.TaskGroup | None,
    *,
    is_resumed: bool,
    after: Callable[[], object] | None = None,
) -> Started[C]:
    """Start ``run`` in a task, and return the client that it starts, initialized, and the task.

    A client whose conversation began earlier needs no handshake. ``after`` is called when the task is done, even if its
    group was cancelled before the task started.
    """
    loop = asyncio.get_running_loop()
    started: asyncio.Future[C] = loop.create_future()

    async def carried() -> None:
        try:
            await run(started=started.set_result)
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


# -------------------------------------------------------------------------------------------------------------- channel
# ``open_channel``, ``connect_channel`` and ``serve_channel``: conversations over two functions that carry messages.

ReceiveMessage: TypeAlias = Callable[[], Awaitable["str | bytes | None"]]
"""Waits for the next message, a whole JSON text; ``None`` is the end. An OSError says that the channel broke. One call
at a time, which may be cancelled: a message must not be lost then."""

SendMessage: TypeAlias = Callable[[str], Awaitable[object]]
"""Sends one message, a whole JSON text. An OSError says that the channel broke."""


def open_channel(
    receive: ReceiveMessage,
    send: SendMessage,
    *,
    close: Callable[[], Awaitable[object]] | None = None,
    **options: Unpack[ConnectOptions],
) -> AsyncioClientContext[Client]:
    """Async context manager that yields a client: ``async with open_channel(receive, send) as client``.

    For what carries whole messages: a WebSocket of another library, a message broker, a browser's port. ``close`` is
    awaited once, when the conversation has ended. See ``ClientOptions``, and ``ClientSetupOptions`` for resumed
    sessions and taps.
    """
    return AsyncioClientContext(lambda: _start_on_channel(receive, send, close, None, options))


async def connect_channel(
    receive: ReceiveMessage,
    send: SendMessage,
    *,
    close: Callable[[], Awaitable[object]] | None = None,
    group: asyncio.TaskGroup | None = None,
    **options: Unpack[ConnectOptions],
) -> Client:
    """Return an initialized client over two functions, tied to no block. See ``open_channel``.

    It ends when it is closed, or with ``group``; without a group it ends with the event loop. Raises ConnectFailed.
    """
    client, _ = await _start_on_channel(receive, send, close, group, options)
    return client


async def serve_channel(
    server: Server,
    receive: ReceiveMessage,
    send: SendMessage,
    *,
    close: Callable[[], Awaitable[object]] | None = None,
    principal: Any = None,
    **beginning: Unpack[ServerSetupOptions],
) -> None:
    """Serve one client over two functions until the conversation ends. See ``open_channel``, and ``serve``."""
    await serve_adapter(AsyncioEventLoop(), server, _Adapter(receive, send, close), principal, beginning)


async def _start_on_channel(
    receive: ReceiveMessage,
    send: SendMessage,
    close: Callable[[], Awaitable[object]] | None,
    group: asyncio.TaskGroup | None,
    options: Any,
) -> Started[Client]:
    return await start_client(_Adapter(receive, send, close), group, options, Client, abort=lambda: None)


class _Adapter:
    """Carries whole messages."""

    unsent = False
    ending = False

    def __init__(
        self, receive: ReceiveMessage, send: SendMessage, close: Callable[[], Awaitable[object]] | None
    ) -> None:
        called("receive", receive, "()")
        called("send", send, "(text)")
        if close is not None:
            called("close", close, "()")
        self._receive = receive
        self._send = send
        self._close = close
        self._clock = asyncio.get_running_loop().time

    async def receive(self, connection: Connection) -> None:
        """Wait for the next message, and feed it or the end."""
        text: object = await _heeded(self._receive())
        if text is not None and not isinstance(text, str | bytes):
            raise TypeError(f"a channel's messages must be str or bytes, not {type(text).__name__}")
        connection.receive_message(text, self._clock())

    def send_now(self, connection: Connection) -> None:
        """Do nothing: a channel does not tell whether ``send`` would wait, so ``send`` does all the writing."""

    async def send(self, connection: Connection) -> None:
        """Send every message that the engine has."""
        while (message := connection.next_message()) is not None:
            connection.set_unwritten(len(message.text))
            await _heeded(self._send(message.text.decode()))
            connection.set_unwritten(0)

    def session_lost(self) -> None:
        """Do nothing: this adapter has only one channel."""

    async def aclose(self) -> None:
        """Close the channel."""
        if self._close is not None:
            close, self._close = self._close, None
            await close()


async def _heeded(call: Awaitable[Any]) -> Any:
    """Await a call of the program, and then heed a cancellation that it swallowed or answered with another error.

    asyncio cancels once: a session that went on would never end.
    """
    try:
        return await call
    finally:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
