# ruff: noqa: SLF001 - sessions have methods for drivers that programs have no use for
"""Options of servers and clients, checked before they serve."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, Unpack

import attrs

from mcpio import _drivers, types
from mcpio._checks import check_options, required
from mcpio._drivers import TapSource
from mcpio._drivers.actor import Actor, TransportAdapter, close_forcefully, store_tasks
from mcpio._drivers.event_loop import Deadlines, EventLoop
from mcpio.app.client import Client, ClientOptions, client_connection
from mcpio.app.reporting import FaultReports, unwrap_group
from mcpio.app.runtime import Driver
from mcpio.app.session import Session
from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.limits import seconds
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase
from mcpio.errors import ConnectFailed, LocalProtocolError
from mcpio.framing import json

if TYPE_CHECKING:
    from mcpio.app.server import Server
    from mcpio.app.session import SavedSession, UnansweredPolicy


# ---------------------------------------------------------------------------------------------------------------- setup
# Session setup: a new connection, a ready-made one, or one restored from a snapshot.

T = TypeVar("T")
S = TypeVar("S", bound=Session)
C = TypeVar("C", bound=Client)


class _Options(TypedDict, total=False):
    snapshot: Mapping[str, Any] | None
    """A value of ``Session.snapshot``: the session continues from there, on this transport and with this clock."""
    unanswered: UnansweredPolicy
    """Whether the peer's requests that were being served run ``"again"``, the default, or ``"fail"``."""
    tap: TapSource | None
    """Hears of everything that passes the connection. See ``mcpio.observe.Tap``."""


class ClientSetupOptions(_Options, total=False):
    """The keyword arguments on setup that all functions for clients take."""

    connection: ClientConnection | None
    """A ready-made connection. One in operation, such as a restored one, continues without a handshake."""


class ServerSetupOptions(_Options, total=False):
    """The keyword arguments on setup that all functions for servers take."""

    connection: ServerConnection | None
    """A ready-made connection. Unanswered requests of the peer on a restored one fail."""
    alone: bool
    """Whether no other client can reach this server, as over stdio: see ``Server.connection``."""
    end_timeout: float | None
    """Seconds that requests have after the client closed its output, because it may still wait for the answers, or be
    gone, which looks the same. After that, their handlers are cancelled. ``None``, the default of most functions, sets
    no limit."""


class ConnectOptions(ClientOptions, ClientSetupOptions, total=False):
    """The keyword arguments of all functions that make a client: those of the client and of its setup."""


@attrs.frozen
class SessionSetup:
    """A connection that is ready to run, with the state that its session resumes."""

    connection: Connection
    saved: SavedSession | None
    unanswered: UnansweredPolicy
    is_resumed: bool
    """Whether the session is restored, so that no handshake is needed."""
    end_timeout: float | None = None
    """Seconds that the peer's requests have after it ended its side; ``None`` for no limit."""

    def resume(self, session: Session) -> None:
        """Continue the session where it left off, if it began earlier."""
        if self.is_resumed:
            session._resume(self.saved, self.unanswered)


def prepare_server(server: Server, principal: Any, now: float, **options: Unpack[ServerSetupOptions]) -> SessionSetup:
    """Return the setup of a server session. Raises LocalProtocolError for a connection that cannot continue."""
    saved = _saved_session(options)
    connection = options.get("connection")
    if connection is None:
        alone = options.get("alone", False)
        connection = server.connection(principal=principal, alone=alone, saved=saved, now=now)
    else:
        required("connection", connection, ServerConnection)
    return _setup(connection, saved, options, now)


def prepare_client(options: ClientOptions, now: float, **setup: Unpack[ClientSetupOptions]) -> SessionSetup:
    """Return the setup of a client. Raises LocalProtocolError for a connection that cannot continue."""
    saved = _saved_session(setup)
    connection = setup.get("connection")
    if connection is None:
        connection = client_connection(**options)
        if saved is not None:
            chosen = connection.options
            connection = saved.connection(ClientConnection, now, options=chosen)
    else:
        required("connection", connection, ClientConnection)
    if connection.phase not in (Phase.NEW, Phase.OPERATING):
        raise LocalProtocolError(f"a client cannot use a connection in phase {connection.phase.value}")
    return _setup(connection, saved, setup, now)


def split_options(options: Mapping[str, Any]) -> tuple[Any, Any]:
    """Split keyword arguments into ``ClientOptions`` and ``ClientSetupOptions``. Raises TypeError for unknown ones."""
    check_options(options, ConnectOptions.__annotations__)
    of_client = {name: value for name, value in options.items() if name in ClientOptions.__annotations__}
    return of_client, {name: value for name, value in options.items() if name not in of_client}


async def carry(
    loop: EventLoop,
    setup: SessionSetup,
    adapter: TransportAdapter,
    make_session: Callable[[Driver], S],
    after_close: Callable[[S], Awaitable[None]] | None = None,
    *,
    deadlines: Deadlines | None = None,
    started: Callable[[S], object] | None = None,
) -> None:
    """Run one session, with its handlers, until it ends; ``deadlines`` are those of its server.

    ``started`` is called with the session before it runs.
    """
    async with loop.group() as runtime:
        own = loop.alarm(runtime, deadlines)
        actor = Actor(
            setup.connection,
            adapter,
            own,
            runtime,
            loop,
            end_timeout=setup.end_timeout,
            owns_deadlines=own is not deadlines,
        )
        session = make_session(actor)
        actor.attach(session, None if after_close is None else partial(after_close, session))
        setup.resume(session)
        if started is not None:
            started(session)
        # In a task: a cancellation of the block reaches the actor and the handlers in the same turn of the loop.
        runtime.spawn(actor.run())


async def serve_adapter(
    loop: EventLoop,
    server: Server,
    adapter: TransportAdapter,
    principal: Any,
    options: ServerSetupOptions,
    started: Callable[[Session], object] | None = None,
) -> None:
    """Serve one client over a transport until the conversation ends; then close the transport.

    Raises TypeError or ValueError for arguments that cannot be served.
    """
    connection: Any = None
    try:
        check_options(options, ServerSetupOptions.__annotations__)
        is_authorized = principal is not None or options.get("connection") is not None
        _drivers.check_authorization(server, is_authorized=is_authorized)
        async with _drivers.lifespan_of(server) as state:
            setup = prepare_server(server, principal, loop.now(), **options)
            connection = setup.connection
            await carry(
                loop,
                setup,
                adapter,
                lambda driver: server.session(connection, driver, state),
                partial(store_tasks, server, loop.last_moment),
                started=started,
            )
    except BaseException:
        # The lifespan may have failed, or have been cancelled, before an actor owned the transport. One that did has
        # ended the connection, and closed the transport.
        if connection is None or not connection.closed:
            await close_forcefully(adapter, loop)
        raise


def client_runner(
    loop: EventLoop,
    adapter: TransportAdapter,
    options: Mapping[str, Any],
    make: Callable[..., C],
    after_close: Callable[[C], Awaitable[None]] | None = None,
) -> tuple[Callable[..., Coroutine[Any, Any, None]], bool]:
    """Return what runs a client until it ends, and whether that needs no handshake.

    ``make(connection, driver, **options)`` makes the client, with which the runner calls its ``started``.
    """
    of_client, for_setup = split_options(options)
    setup = prepare_client(of_client, loop.now(), **for_setup)
    run = partial(carry, loop, setup, adapter, lambda driver: make(setup.connection, driver, **of_client), after_close)
    return run, setup.is_resumed


async def open_in_either_era(start: Callable[[dict[str, Any]], Awaitable[T]], options: Mapping[str, Any]) -> T:
    """Return the client that ``start`` opens with the options, on a new connection.

    Some servers of the handshake era end at the first message that is not ``initialize``. Where the connection ends
    while the server is asked for its era, ``start`` is called again for a connection that begins with the handshake.
    Raises what ``start`` raises.
    """
    try:
        return await start(dict(options))
    except ConnectFailed as error:
        if not error.era_probe or options.get("connection") is not None:
            raise
    return await start({**options, "era": "handshake"})


def _saved_session(options: Any) -> SavedSession | None:
    snapshot = options.get("snapshot")
    unanswered = options.get("unanswered", "again")
    if unanswered not in ("again", "fail"):
        raise ValueError(f"unanswered must be 'again' or 'fail', not {unanswered!r:.100}")
    if snapshot is None:
        return None
    if options.get("connection") is not None:
        raise TypeError("give either connection= or snapshot=")
    from mcpio.app.session import SavedSession

    return SavedSession.read(snapshot)


def _setup(connection: Connection, saved: SavedSession | None, options: Any, now: float) -> SessionSetup:
    _drivers.attach_tap(connection, options.get("tap"), now)
    is_resumed = saved is not None or connection.phase is not Phase.NEW
    end_timeout = seconds("end_timeout", options.get("end_timeout"))
    return SessionSetup(connection, saved, options.get("unanswered", "again"), is_resumed, end_timeout)


# ----------------------------------------------------------------------------------------------------------- preloading
# Imports modules that a server may need later, while importing still works.
# Modules are imported on first use. For a server that may be too late: at the limit of open files an import fails, and
# it would fail in the middle of one client's connection.

_LATE: Final = (
    "fractions",
    "mcpio.app.asking",
    "mcpio.app.foreign_names",
    "mcpio.app.middleware",
    "mcpio.app.mounting",
    "mcpio.app.registry.dependencies",
    "mcpio.app.reporting",
    "mcpio.app.rounds",
    "mcpio.app.session",
    "mcpio.app.subscriptions",
    "mcpio.app.tasks.receiver",
    "mcpio.app.tasks.requester",
    "mcpio.app.views",
    "mcpio.codec",
    "mcpio.engine.dialect",
    "mcpio.engine.snapshot",
    "mcpio.engine.stateless",
    "mcpio.engine.tasks",
    "mcpio.observe.tap",
    "mcpio.profiles",
    "mcpio.refusals",
)
"""The modules that a server session imports on first use."""


def preload(*more: str) -> None:
    """Import every module that server sessions import late, and ``more``, by their full names."""
    for module in (*(f"mcpio.types.{package.name}" for package in iter_modules(types.__path__)), *_LATE, *more):
        import_module(module)
    json.loads(b"0")  # The first use chooses the library for JSON, and imports it.


# ------------------------------------------------------------------------------------------------------------ fault log
# A log of connection faults, throttled by kind, and the containment of such faults.


class FaultLog:
    """Logs faults: the first of each kind with its traceback, later ones throttled and counted.

    Neither a client nor a lack of resources can flood the log that way. See ``FaultReports``.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._log = _Log(clock)
        self._reports = FaultReports()

    def report(self, message: str, error: BaseException | None, kind: Hashable | None = None) -> None:
        """Report a fault. ``kind`` replaces the message as a key if the message quotes the peer."""
        self._reports.report(self._log, message, error, kind)

    @contextmanager
    def contained(self, message: str, cancellation: type[BaseException]) -> Iterator[None]:
        """Context manager that reports an exception of its block in place of raising it.

        The loop's ``cancellation``, SystemExit and KeyboardInterrupt propagate, also from within an exception group.
        """
        try:
            yield
        except BaseException as error:
            _drivers.contain(error, message, lambda text, fault: self.report(text, unwrap_group(fault)), cancellation)


@attrs.frozen
class _Log:
    """Gives ``FaultReports`` the log and a clock."""

    now: Callable[[], float]

    def report(self, message: str, error: BaseException | None) -> None:
        """Write to the log."""
        _drivers.report(message, error)
