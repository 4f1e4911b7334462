"""``serve_http``: a server over Streamable HTTP, and the connections of its clients."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

import attrs
import trio

from mcpio._checks import chosen
from mcpio._drivers import TapSource, attach_tap, check_authorization, checked_auth, report
from mcpio._drivers.sockets.accepting import Acceptor
from mcpio._drivers.sockets.connection_limit import MAX_CONNECTIONS
from mcpio._drivers.sockets.sessions import ActiveSet
from mcpio._extras import extra
from mcpio.app.http_host import HttpHost
from mcpio.app.server import Server
from mcpio.engine.server import ServerConnection
from mcpio.http.options import HostPolicy, HttpOptions
from mcpio.trio._http.config import FindPrincipal, HttpTimeouts
from mcpio.trio._http.connection import HttpConnection
from mcpio.trio._http.parsers import ParserName, new_parser
from mcpio.trio._net.listening import (
    SocketPeer,
    address_of,
    given_listeners,
    listen_tcp,
    listen_unix,
    new_acceptor,
    unix_path_of,
)
from mcpio.trio._net.serving import ServingContext, serve_listeners, until_signalled

if TYPE_CHECKING:
    from mcpio.app.session_snapshot import UnansweredPolicy
    from mcpio.app.session_store import SessionStore
    from mcpio.auth.resource_server import ResourceServer
    from mcpio.trio._http.http2.connection import Http2Connection
    from mcpio.trio._websocket.handler import WebSocketConfig, WebSocketHandler
    from mcpio.websocket.options import WebSocketOptions

__all__ = ["HttpConnectionConfig", "HttpConnectionHandler", "HttpListening", "bound_to", "run_http", "serve_http"]


@attrs.frozen
class HttpListening:
    """A server that listens."""

    url: str
    """The URL for clients, ``http+unix://`` for a Unix socket. With ``listeners`` that have no address, only the path
    of the endpoint."""
    port: int | None
    """The bound port, also where port 0 was requested; ``None`` unless it is a TCP socket."""
    host: HttpHost = attrs.field(repr=False)
    """The sessions. To end them gracefully, cancel ``serve_http``."""


async def serve_http(
    server: Server,
    port: int = 8000,
    *,
    host: str = "127.0.0.1",
    unix: str | os.PathLike[str] | None = None,
    unix_mode: int = 0o600,
    listeners: Sequence[trio.abc.Listener[Any]] | None = None,
    options: HttpOptions | None = None,
    ssl_context: ssl.SSLContext | None = None,
    principal: FindPrincipal | None = None,
    auth: ResourceServer | None = None,
    timeouts: HttpTimeouts | None = None,
    max_connections: int = MAX_CONNECTIONS,
    max_per_address: int | None = None,
    head_bytes: int = 65536,
    parser: ParserName = "auto",
    http2: bool = False,
    websocket: WebSocketOptions | None = None,
    tap: TapSource | None = None,
    store: SessionStore | None = None,
    unanswered: UnansweredPolicy = "fail",
    handle_signals: bool = False,
    grace: float = 0.5,
    drain: float = 0.0,
    task_status: trio.TaskStatus[HttpListening] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve any number of clients over HTTP until cancelled, then end gracefully for at most ``grace`` seconds.

    Gracefully means: no new connection is accepted, running requests are answered or cut off when the grace is over,
    and streams end with their last chunk. With ``drain``, for a server behind a balancer, the open connections serve on
    for at most so many seconds before that: each ends with the answer to its next request, which says so. With
    ``handle_signals``, SIGINT and SIGTERM start that, and then end the process: see ``terminate_on_signals``. Leave it
    out where other code of the process handles signals. With ``nursery.start`` it returns an HttpListening.

    Without a policy in ``options``, the bound address decides who is served: on loopback, programs on this machine, and
    no pages of other origins. ``unix`` is the path of a Unix socket, in place of ``host`` and ``port``; there
    ``unix_mode`` decides, as ``mode`` does for ``serve_unix``, and no pages are served. ``listeners`` replace all of
    these. They are closed at the end; if all of them are closed earlier, the server ends. With ``ssl_context`` it is
    HTTPS.

    A session is bound to the principal of its requests. ``principal`` is a function or coroutine function that takes a
    request's head and the ``SocketPeer`` and returns it; it may return ``Denied``. The default is
    ``SocketPeer.identity``, where ``ssl_context`` requests a certificate and the client sent one, and otherwise
    ``None``. ``auth`` takes its place: a ``mcpio.auth.ResourceServer`` admits requests by their tokens, and its
    metadata is served; handlers find the grant of their request in ``ctx.grant``.

    Beyond ``max_connections`` clients wait to be accepted, unless a connection between two requests can be closed for
    them. A number above three quarters of the files that the process may open is lowered, with a warning. A client with
    more than ``max_per_address`` connections from one address is rejected. Request heads longer than about
    ``head_bytes`` are rejected, bodies by ``Limits.message_bytes``. ``parser`` is ``"h11"``, ``"httptools"``, or
    ``"auto"`` for httptools where that extra is installed and h11 otherwise. ``tap`` is attached to each session: see
    ``mcpio.observe.Tap``.

    With ``http2``, which needs the extra of that name, clients may speak HTTP/2 beside HTTP/1.1: over TLS by ALPN, for
    which ``ssl_context`` is set to offer ``h2`` and ``http/1.1``, and without TLS by beginning with it.

    With ``websocket`` the endpoint serves WebSocket too, under the same policy, ``principal`` and limits: a GET that
    asks for it becomes a session, at the same URL with ``ws`` or ``wss``. At the end those sessions are answered and
    closed with 1001. See ``serve_websocket``.

    With a ``store``, such as ``mcpio.stores.SqliteStore``, sessions outlive the process: a client continues with the
    next one, even in the middle of a stream. ``unanswered`` decides whether requests whose handlers died fail or run
    again.

    Tasks of tools outlive the sessions that began them, and end with the server. An exception of the server's lifespan
    propagates unwrapped.

    Raises:
        OSError: If the address cannot be bound.
        ValueError: For an unknown parser, for options that a store excludes, for ``auth`` beside ``principal``, and for
            a server with scopes that has neither.
        ImportError: If the parser, or the extra for HTTP/2, is not installed.

    """
    new_parser(parser, head_bytes)  # fails here rather than at the first client
    checked_auth(auth, principal)
    check_authorization(server, is_authorized=principal is not None or auth is not None)
    http = chosen("options", options, HttpOptions)
    config = HttpConnectionConfig(
        timeouts=chosen("timeouts", timeouts, HttpTimeouts),
        head_bytes=head_bytes,
        parser=parser,
        http2=_http2_for(ssl_context) if http2 else None,
        find_principal=principal,
        auth=auth,
        tap=tap,
        store=store,
        unanswered=unanswered,
        websocket=_websocket_config(websocket),
    )
    acceptor = new_acceptor(
        max_connections=max_connections,
        max_per_address=max_per_address,
        ssl_context=ssl_context,
        handshake_timeout=config.timeouts.head,
        https_compatible=True,
    )
    scheme = "http" if ssl_context is None else "https"
    with until_signalled(handle_signals, grace, drain):
        async with bound_to(host, port, unix, unix_mode, listeners) as bound:
            name = None if listeners is not None else host
            await run_http(server, bound, name, http, config, acceptor, scheme, grace, task_status.started, drain)


async def run_http(
    server: Server,
    bound: Sequence[trio.abc.Listener[Any]],
    name: str | None,
    options: HttpOptions,
    config: HttpConnectionConfig,
    acceptor: Acceptor,
    scheme: str,
    grace: float,
    started: Callable[[HttpListening], None],
    drain: float = 0.0,
) -> None:
    """Serve on bound listeners until cancelled; ``name`` is the host that was asked for. See ``serve_http``."""
    address = _address(bound[0], name)
    http = _with_policy(options, address)
    url = _url(scheme, address, http.path)

    def listening(handler: HttpConnectionHandler) -> None:
        started(HttpListening(url, address[1] if isinstance(address, tuple) else None, handler.host))

    new_handler = partial(HttpConnectionHandler, http=http, config=config)
    await serve_listeners(server, new_handler, acceptor, bound, grace=grace, drain=drain, started=listening)


@attrs.frozen(kw_only=True)
class HttpConnectionConfig:
    """The arguments of ``serve_http`` that concern connections."""

    timeouts: HttpTimeouts
    head_bytes: int
    parser: ParserName
    http2: type[Http2Connection] | None = None
    find_principal: FindPrincipal | None
    auth: ResourceServer | None = None
    tap: TapSource | None = None
    store: SessionStore | None = None
    unanswered: UnansweredPolicy = "fail"
    websocket: WebSocketConfig | None = None


AnyConnection: TypeAlias = "HttpConnection | Http2Connection"


class HttpConnectionHandler:
    """The connections of one server, and the host of all sessions."""

    def __init__(self, context: ServingContext, http: HttpOptions, config: HttpConnectionConfig) -> None:
        self._config = config
        self._timekeeper = context.timekeeper
        self._connections: ActiveSet[AnyConnection] = ActiveSet(context.loop)
        self._is_closing = False
        self._is_retiring = False
        self.host = host = HttpHost(
            context.server,
            context.runtime,
            clock=trio.lowlevel.current_clock().current_time,  # trio.current_time looks the clock up at each call
            on_ready=_wake,
            on_deadline=lambda deadline: context.timekeeper.arm(host, deadline),
            report=report,
            options=http,
            state=context.state,
            on_connection=None if config.tap is None else self._attach_tap,
            store=config.store,
            unanswered=config.unanswered,
            protected=config.auth,
        )
        self._find_principal = config.find_principal
        if config.auth is not None:
            from mcpio._drivers.auth.guarding import RequestGuard  # only protected servers pay for them
            from mcpio.trio._event_loop import TrioEventLoop

            guard = RequestGuard(config.auth, TrioEventLoop)
            self._find_principal = lambda head, peer: guard.admit(
                head.method, head.target, head.headers, certificate=peer.fingerprint
            )
        self._websockets: WebSocketHandler | None = None
        if config.websocket is not None:
            from mcpio.trio._websocket.handler import WebSocketHandler  # only servers with WebSocket pay for it

            self._websockets = WebSocketHandler(
                context,
                http,
                config.websocket,
                config.tap,
                ends_with_token=config.auth is not None and not config.auth.outlive_token,
            )

    async def receive(self, stream: trio.abc.Stream, peer: SocketPeer) -> None:
        """Serve one connection until it ends, in the version that its client speaks, and close its stream."""
        try:
            connection, data = await self._recognise(stream, peer)
        except trio.TooSlowError:
            await trio.aclose_forcefully(stream)  # no version is known in which it could be told
            return
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        if self._is_closing:
            # It closed while the first bytes were waited for, when the connection was in no list to be closed from.
            await trio.aclose_forcefully(stream)
            return
        self._connections.enter(connection)
        if self._is_retiring:
            connection.retire()
        try:
            await connection.run(data)
        finally:
            self._connections.leave(connection)

    async def _recognise(self, stream: trio.abc.Stream, peer: SocketPeer) -> tuple[AnyConnection, bytes]:
        """Return a connection for the version that a client speaks, and the bytes read to find out."""
        config, data = self._config, b""
        if config.http2 is not None:
            is_http2, data = await config.http2.recognise(stream, config.timeouts.head)
            if is_http2:
                return self._new_http2(config.http2, stream, peer), data
        return self._new_http1(stream, peer), data

    def _new_http1(self, stream: trio.abc.Stream, peer: SocketPeer) -> HttpConnection:
        config = self._config
        return HttpConnection(
            stream,
            self.host,
            new_parser(config.parser, config.head_bytes),
            peer=peer,
            timeouts=config.timeouts,
            find_principal=self._find_principal,
            websockets=self._websockets,
        )

    def _new_http2(self, new: type[Http2Connection], stream: trio.abc.Stream, peer: SocketPeer) -> Http2Connection:
        config = self._config
        return new(
            stream,
            self.host,
            head_bytes=config.head_bytes,
            peer=peer,
            timeouts=config.timeouts,
            timekeeper=self._timekeeper,
            find_principal=self._find_principal,
        )

    def make_room(self) -> None:
        """Close a connection between two requests, if any."""
        idle = next((connection for connection in self._connections if connection.is_idle), None)
        if idle is not None:
            idle.abort()

    def retire(self) -> None:
        """Make each connection end with its next answer."""
        self._is_retiring = True
        for connection in self._connections:
            connection.retire()

    def close(self, grace: float) -> None:
        """Reject new requests, and answer running ones within ``grace`` seconds."""
        self._is_closing = True
        self.host.close(grace)
        if self._websockets is not None:
            self._websockets.close(grace)
        for connection in self._connections:
            try:
                connection.close()
            except Exception as error:
                report("a connection could not be closed gracefully", error)
                connection.abort()

    async def wait_empty(self) -> None:
        """Wait until no connection is left, then cut off the handlers that still run: no client could hear of them."""
        await self._connections.wait_empty()
        self.host.close(0)
        self.host.handle_timeout()

    def _attach_tap(self, connection: ServerConnection) -> None:
        try:
            attach_tap(connection, self._config.tap, trio.current_time())
        except Exception as error:
            report("a tap cannot be attached to a session", error)


def _wake(exchange: Hashable) -> None:
    connection: AnyConnection
    connection, _ = exchange  # type: ignore[misc]  # connections name their exchanges by pairs that begin with them
    try:
        connection.wake(exchange)
    except Exception as error:
        # Contained here: the host drains for all sessions, and may have been called by another connection.
        report("a response could not be written", error)
        connection.abort()


def _websocket_config(websocket: WebSocketOptions | None) -> WebSocketConfig | None:
    if websocket is None:
        return None
    from mcpio.trio._websocket.handler import WebSocketConfig  # only servers with WebSocket pay for it
    from mcpio.websocket.options import WebSocketOptions

    return WebSocketConfig(chosen("websocket", websocket, WebSocketOptions), is_alone=False, idle_timeout=None)


def _http2_for(ssl_context: ssl.SSLContext | None) -> type[Http2Connection]:
    """Return the class for HTTP/2 connections, and let TLS offer it. Raises ImportError if h2 is not installed."""
    with extra("http2", "http2=True"):
        from mcpio.trio._http.http2.connection import Http2Connection
    if ssl_context is not None:
        ssl_context.set_alpn_protocols(["h2", "http/1.1"])
    return Http2Connection


@asynccontextmanager
async def bound_to(
    host: str,
    port: int,
    unix: str | os.PathLike[str] | None,
    unix_mode: int,
    listeners: Sequence[trio.abc.Listener[Any]] | None,
) -> AsyncIterator[Sequence[trio.abc.Listener[Any]]]:
    """Async context manager that yields the listeners for these arguments of ``serve_http``."""
    if unix is None:
        yield await listen_tcp(host, port) if listeners is None else given_listeners(listeners)
        return
    if listeners is not None:
        raise TypeError("give either unix= or listeners=")
    async with listen_unix(unix, unix_mode) as listener:
        yield [listener]


def _address(listener: trio.abc.Listener[Any], name: str | None) -> tuple[str, int] | str | None:
    """Return host and port of a TCP listener, or the path of a Unix one. ``name`` replaces the host."""
    found = address_of(listener)
    return unix_path_of(listener) if found is None else (name or found[0], found[1])


def _with_policy(options: HttpOptions, address: tuple[str, int] | str | None) -> HttpOptions:
    """Return the options with a host policy for the bound address, unless they have one."""
    if address is None or options.policy != HostPolicy(None, None):
        return options
    policy = HostPolicy.for_unix_socket() if isinstance(address, str) else HostPolicy.for_address(*address)
    return attrs.evolve(options, policy=policy)


def _url(scheme: str, address: tuple[str, int] | str | None, path: str) -> str:
    if address is None:
        return path
    if isinstance(address, str):
        return f"{scheme}+unix://{quote(os.path.abspath(address), safe='')}{path}"
    host, port = address
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{path}"
