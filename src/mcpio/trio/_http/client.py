"""``open_http`` and ``connect_http``: a client of a server over Streamable HTTP."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, Final, TypedDict, Unpack

import trio

from mcpio._checks import check_options, checked, chosen
from mcpio._drivers import report
from mcpio._drivers.setup import ClientSetupOptions, SessionSetup, prepare_client
from mcpio.app.awaitables import checked_callback
from mcpio.app.client import Client, ClientOptions
from mcpio.app.reconnection import SessionReconnector
from mcpio.app.runtime import checked_grace
from mcpio.engine.client import ClientConnection
from mcpio.errors import LocalProtocolError
from mcpio.http.client.client import HttpClient, HttpClientEvent
from mcpio.http.client.events import ListeningEnded, MessageRefused, SessionLost
from mcpio.http.client.options import HttpClientOptions
from mcpio.http.location import Location
from mcpio.http.model import Body, End, RequestHead, RequestItem
from mcpio.trio._drivers import TrioClientContext, shake_hands
from mcpio.trio._http.client_pool import HttpClientTimeouts, HttpPool
from mcpio.trio._http.proxy import Proxy, find_proxy
from mcpio.trio._interrupts import uninterruptible
from mcpio.trio._nurseries import ungrouped
from mcpio.trio._runtime import TrioRuntime
from mcpio.trio._timekeeper import Timekeeper

__all__ = ["HttpConnectOptions", "connect_http", "open_http"]

LAST_WORDS: Final = 0.5
"""Seconds that a cancelled block gives its server to take note of that."""


class TransportOptions(TypedDict, total=False):
    """What the transport may be given."""

    http: HttpClientOptions | None
    """Header fields, listening, how broken streams are taken up and lost sessions opened anew."""
    on_session_lost: Callable[[], None] | None
    """Hears that the server forgot the session. Calls that waited fail with ``ConnectionLost``; unless ``http`` says
    otherwise, the client then opens another session. A plain function, called without waiting."""
    ssl_context: ssl.SSLContext | None
    """How HTTPS is done; ``None`` trusts what the system trusts."""
    timeouts: HttpClientTimeouts | None
    """How long the server may take."""
    proxy: str | None
    """The URL of an HTTP proxy to go through."""
    trust_env: bool
    """Whether to go through the proxy that the environment names, where ``proxy`` is not given: ``HTTP_PROXY``,
    ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY``, in small letters too."""


class HttpConnectOptions(TransportOptions, ClientOptions, ClientSetupOptions, total=False):
    """The keyword arguments of ``open_http`` and ``connect_http``: of the transport, of the client, how it begins."""


async def connect_http(url: str, *, nursery: trio.Nursery, **options: Unpack[HttpConnectOptions]) -> Client:
    """Return a client that has shaken hands with the server at a URL. Its tasks live in ``nursery`` and never raise.

    ``http+unix://%2Frun%2Fserver.sock/mcp`` is a server on the Unix socket of that path, which is written with percent
    signs in place of the host.

    Raises ``ConnectFailed``; its cause says why. ``ValueError`` for what is no URL, and for other options that make no
    sense.
    """
    given: dict[str, Any] = dict(options)
    check_options(given, HttpConnectOptions.__annotations__)
    transport: Any = {name: given.pop(name) for name in TransportOptions.__annotations__ if name in given}
    of_client: Any = {name: given.pop(name) for name in ClientOptions.__annotations__ if name in given}
    checked_callback("on_session_lost", transport.get("on_session_lost"))
    location = Location.parse(url)
    proxy = find_proxy(location, transport.get("proxy"), trust_env=transport.get("trust_env", False))
    setup = prepare_client(of_client, trio.current_time(), **given)
    _session_id(setup)
    client: Client = await nursery.start(_carry, setup, location, proxy, transport, of_client)
    return client if setup.is_resumed else await shake_hands(client)


def open_http(url: str, **options: Unpack[HttpConnectOptions]) -> TrioClientContext[Client]:
    """Give a client for the length of a block: ``async with open_http("http://…/mcp") as client``.

    See ``connect_http``.
    """
    return TrioClientContext(lambda nursery: connect_http(url, nursery=nursery, **options))


# With protection, a Ctrl-C cannot come between the start of the session and the block of ``run`` that marks its end.
@trio.lowlevel.enable_ki_protection
async def _carry(
    setup: SessionSetup,
    location: Location,
    proxy: Proxy | None,
    transport: TransportOptions,
    options: ClientOptions,
    *,
    task_status: trio.TaskStatus[Client] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Carry one client until it is over."""
    timekeeper = Timekeeper()
    with ungrouped():
        async with trio.open_nursery() as nursery:
            # What carries messages outlives the cancellation of the block, so that the server hears of it.
            carriers = await nursery.start(_shielded)
            try:
                connection: Any = setup.connection
                runtime = TrioRuntime(nursery)
                actor = HttpActor(
                    connection, location, timekeeper, runtime, carriers, proxy, transport, _session_id(setup)
                )
                client = Client(connection, actor, **options)
                actor.attach(client, SessionReconnector(client, transport.get("on_session_lost")))
                setup.resume(client)
                task_status.started(client)
                await actor.run()
            finally:
                carriers.cancel_scope.cancel()
                nursery.cancel_scope.cancel()


async def _shielded(*, task_status: trio.TaskStatus[trio.Nursery]) -> None:
    async with trio.open_nursery() as nursery:
        # Whoever was cancelled by now does not hear of this nursery, and nobody could end it.
        await trio.lowlevel.checkpoint_if_cancelled()
        nursery.cancel_scope.shield = True
        task_status.started(nursery)
        await trio.sleep_forever()


def _session_id(setup: SessionSetup) -> str | None:
    """Return the session that a client goes on in. ``LocalProtocolError`` for what is none."""
    id = None if setup.saved is None else setup.saved.transport.get("session_id")
    if id is not None and not (isinstance(id, str) and id and all("!" <= character <= "~" for character in id)):
        raise LocalProtocolError(f"malformed snapshot: no session id: {id!r:.60}")
    return id


@uninterruptible
class HttpActor:
    """Runs one client until its connection has ended and the server was told, and is its ``Driver``."""

    def __init__(
        self,
        connection: ClientConnection,
        location: Location,
        timekeeper: Timekeeper,
        runtime: TrioRuntime,
        carriers: trio.Nursery,
        proxy: Proxy | None,
        transport: TransportOptions,
        session_id: str | None,
    ) -> None:
        self.runtime = runtime
        self._machine = HttpClient(
            connection,
            location,
            options=chosen("http", transport.get("http"), HttpClientOptions),
            session_id=session_id,
        )
        self._carriers = carriers
        self._pool = HttpPool(
            location,
            start=self._start,
            receive=self._receive,
            wake=self.wake,
            wants_read=self._machine.wants_read,
            ssl_context=checked("ssl_context", transport.get("ssl_context"), ssl.SSLContext),
            timeouts=chosen("timeouts", transport.get("timeouts"), HttpClientTimeouts),
            proxy=proxy,
        )
        self._timekeeper = timekeeper
        self._is_busy = self._is_touched = False
        self._failure: BaseException | None = None
        self._waiting = trio.CancelScope()
        self._ended = trio.Event()
        self._over = trio.Event()
        self._start(timekeeper.run)

    def attach(self, client: Client, renewal: SessionReconnector) -> None:
        """Say who acts on events."""
        self._client = client
        self._driving = client.driving
        self._renewal = renewal
        self._driving.reconnect_by(renewal)

    # The driver of the session

    def now(self) -> float:
        """Return Trio's time."""
        return trio.current_time()

    def wake(self) -> None:
        """Do what there is to do."""
        self._is_touched = True
        if self._is_busy:
            return  # whoever is at it sees this too
        self._is_busy = True
        try:
            while self._is_touched:
                self._is_touched = False
                self._process()
        finally:
            self._is_busy = False
        self._pool.resume()
        self._driving.settle()
        self._timekeeper.arm(self, self._machine.next_deadline())
        if self._machine.closed:
            self._ended.set()

    def save_transport(self) -> dict[str, Any]:
        """Return what a snapshot of the session has to hold of this transport. Raises as ``HttpClient.save`` does."""
        return {"session_id": self._machine.save()}

    def report(self, message: str, error: BaseException | None) -> None:
        """Write to the log, under the name ``mcpio``."""
        report(message, error)

    def handle_timeout(self) -> None:
        """Let deadlines expire. The timekeeper calls this."""
        self._machine.handle_timeout(trio.current_time())
        self.wake()

    def close(self, grace: float) -> None:
        """Close in order, at the loop's next turn. ``LocalProtocolError`` for a grace that makes no sense."""
        limit = checked_grace(grace)
        self.runtime.call_soon(lambda: self._close(limit))

    async def wait_closed(self) -> None:
        """Wait until the connection has ended and the server was told."""
        await self._over.wait()

    async def run(self) -> None:
        """Wait for the end. In a block that is cancelled the session ends at once, and the server gets to know.

        Raises what a callback ended the program with, such as ``SystemExit``.
        """
        try:
            with self._waiting:
                self.wake()
                await self._ended.wait()
        finally:
            await self._end()
        if self._failure is not None:
            raise self._failure

    async def _end(self) -> None:
        """Leave nothing behind, in bounded time: whatever is raised here, ``wait_closed`` returns."""
        with ExitStack() as steps:  # the last is taken first
            steps.callback(self._over.set)
            steps.callback(self.wake)
            steps.callback(self._machine.connection.abort)
            with trio.CancelScope(shield=True, deadline=trio.current_time() + LAST_WORDS):
                # The callers of requests are cancelled in this turn of the loop.
                await trio.lowlevel.checkpoint()
                self._close(0.0)
                await self._ended.wait()

    # Inside

    def _start(self, task: Callable[[], Awaitable[None]]) -> None:
        """Start a task that outlives the cancellation of the block."""
        self._carriers.start_soon(self._guard, task)

    async def _guard(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run such a task. What it raises ends the session, and leaves by ``run``: the others still carry the end."""
        try:
            await task()
        except trio.Cancelled:
            raise
        except BaseException as error:
            self._failure = self._failure or error
            self._waiting.cancel()

    def _receive(self, item: Any) -> None:
        self._machine.receive(item, trio.current_time())

    def _close(self, grace: float | None) -> None:
        self._machine.connection.close(trio.current_time(), grace=grace)
        self.wake()

    def _process(self) -> None:
        self._act_on_events()
        for item in self._machine.requests_to_send(trio.current_time()):
            self._is_touched = True
            self._send(item)
        # To find that nothing is left to send may be what ends the connection, and an event says so.
        self._is_touched |= self._act_on_events()

    def _send(self, item: RequestItem) -> None:
        if isinstance(item, RequestHead):
            self._pool.add(item)
        elif isinstance(item, Body):
            self._pool.add_body(item)
        elif isinstance(item, End):
            self._pool.run(item.exchange)
        else:
            self._pool.cut(item.exchange)

    def _act_on_events(self) -> bool:
        """Act on what happened. Returns whether anything did."""
        is_new = False
        while (event := self._machine.next_event()) is not None:
            is_new = True
            try:
                self._handle(event)
            except Exception as error:
                report("a session failed", error)
                self._machine.connection.abort(error)
        return is_new

    def _handle(self, event: HttpClientEvent) -> None:
        if isinstance(event, SessionLost):
            report("the server does not know the session any more", None)
            self._renewal.begin(event.again_in)
        elif isinstance(event, MessageRefused):
            report("the server did not take a message", event.error)
        elif isinstance(event, ListeningEnded):
            report("what belongs to no request is not heard any more", event.error)
        else:
            self._driving.handle(event)
