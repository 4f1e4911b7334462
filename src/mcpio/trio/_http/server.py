"""``serve_http``: a server over Streamable HTTP."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import attrs
import trio

from mcpio._checks import chosen
from mcpio._drivers import TapSource
from mcpio._drivers.connection_limit import MAX_CONNECTIONS
from mcpio.app.http_host import HttpHost
from mcpio.app.server import Server
from mcpio.http.options import HostPolicy, HttpOptions
from mcpio.trio._http.config import FindPrincipal, HttpTimeouts
from mcpio.trio._http.connection_handler import HttpConnectionConfig, HttpConnectionHandler
from mcpio.trio._http.parsers import ParserName, new_parser
from mcpio.trio._net.listening import Acceptor, address_of, listen_tcp, listen_unix, unix_path_of
from mcpio.trio._net.serving import serve_listeners, until_signalled

if TYPE_CHECKING:
    from mcpio.app.session_snapshot import UnansweredPolicy
    from mcpio.app.session_store import SessionStore
    from mcpio.trio._http.http2.connection import Http2Connection
    from mcpio.trio._websocket.handler import WebSocketTerms
    from mcpio.websocket.options import WebSocketOptions

__all__ = ["HttpListening", "bound_to", "run_http", "serve_http"]


@attrs.frozen
class HttpListening:
    """A server that listens."""

    url: str
    """Where clients find it, ``http+unix://`` for a Unix socket. With ``listeners`` that have no address of their own,
    the path of the endpoint only."""
    port: int | None
    """The port, also where port 0 was asked for; ``None`` for what is no TCP socket."""
    host: HttpHost = attrs.field(repr=False)
    """The sessions. To end it all in order, cancel ``serve_http``."""


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
    task_status: trio.TaskStatus[HttpListening] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve any number of clients over HTTP until cancelled. Then it ends in order, for at most ``grace`` seconds.

    In order means: nothing new is accepted; what runs is answered, or cut off when the grace is over; streams end with
    their last chunk. With ``handle_signals``, SIGINT and SIGTERM begin that, and then end the process: see
    ``terminate_on_signals``. Leave it out where something else in the process looks after signals. With
    ``nursery.start`` it returns what listens.

    Without a policy in ``options``, what the bound address is decides who is served: on loopback, programs on this
    machine, and no pages of other origins. ``unix`` is the path of a Unix socket, in place of ``host`` and ``port``:
    then ``unix_mode`` decides, as ``mode`` does for ``serve_unix``, and no pages are served. ``listeners`` are used in
    place of all that, and are closed in the end; when all of them are closed before, that is the end. With
    ``ssl_context`` it is HTTPS.

    The principal of a request, which its session is bound to, is what ``principal`` says, a function or coroutine
    function of the request's head and the ``SocketPeer``; it may return ``Denied``. Without one it is
    ``SocketPeer.identity``, where ``ssl_context`` asks for a certificate and the client showed one, and otherwise
    ``None``.

    Beyond ``max_connections`` clients wait to be accepted, unless a connection between two requests can be closed for
    them. A number above three quarters of the files that the process may open is lowered, with a warning. A client with
    more than ``max_per_address`` connections from one address is turned away. Heads of requests longer than about
    ``head_bytes`` are refused; bodies by ``Limits.message_bytes``. ``parser`` is ``"h11"``, ``"httptools"``, or
    ``"auto"`` for httptools where that extra is installed and h11 otherwise.
    ``tap`` hears of each session: see ``mcpio.observe.Tap``.

    With ``http2``, for which there is an extra too, clients may speak HTTP/2 beside HTTP/1.1: those that ask for it in
    TLS, for which ``ssl_context`` is set to offer ``h2`` and ``http/1.1``, and without TLS those that begin with it.

    With ``websocket`` the endpoint serves WebSocket too, by the same policy, ``principal`` and limits: a GET that asks
    for it becomes a session of its own, at the same URL with ``ws`` or ``wss``. In the end those sessions are answered
    and closed with 1001. See ``serve_websocket``.

    With a ``store``, such as ``mcpio.stores.SqliteStore``, sessions outlive the process: a client goes on with the next
    one, in the middle of a stream too. ``unanswered`` says what becomes of requests whose handlers died: they fail, or
    their handlers run again.

    Tasks of tools outlive the sessions that began them, and end with this. Raises ``OSError`` when the address cannot
    be had. What the server's lifespan raises leaves as it is. ``ValueError`` and ``ImportError`` for a parser that
    there is not, ``ImportError`` for HTTP/2 without its extra, and ``ValueError`` for options that do not go with a
    store.
    """
    new_parser(parser, head_bytes)  # To fail now, and not at the first client.
    http = chosen("options", options, HttpOptions)
    newer, terms = _http2_for(ssl_context) if http2 else None, _terms(websocket)
    told = HttpConnectionConfig(
        chosen("timeouts", timeouts, HttpTimeouts), head_bytes, parser, newer, principal, tap, store, unanswered, terms
    )
    door = Acceptor(
        max_connections=max_connections,
        max_per_address=max_per_address,
        ssl_context=ssl_context,
        handshake_timeout=told.timeouts.head,
        https_compatible=True,
    )
    scheme = "http" if ssl_context is None else "https"
    with until_signalled(handle_signals, grace):
        async with bound_to(host, port, unix, unix_mode, listeners) as bound:
            name = None if listeners is not None else host
            await run_http(server, bound, name, http, told, door, scheme, grace, task_status.started)


async def run_http(
    server: Server,
    bound: Sequence[trio.abc.Listener[Any]],
    name: str | None,
    options: HttpOptions,
    told: HttpConnectionConfig,
    door: Acceptor,
    scheme: str,
    grace: float,
    started: Callable[[HttpListening], None],
) -> None:
    """Serve on what is bound, which is called by that name if it has one, until cancelled. See ``serve_http``."""
    place = _place(bound[0], name)
    chosen = _policed(options, place)
    url = _url(scheme, place, chosen.path)

    def tell(site: HttpConnectionHandler) -> None:
        started(HttpListening(url, place[1] if isinstance(place, tuple) else None, site.host))

    await serve_listeners(
        server, partial(HttpConnectionHandler, http=chosen, options=told), door, bound, grace=grace, started=tell
    )


def _terms(websocket: WebSocketOptions | None) -> WebSocketTerms | None:
    if websocket is None:
        return None
    from mcpio.trio._websocket.handler import WebSocketTerms  # who does not serve it does not pay for it
    from mcpio.websocket.options import WebSocketOptions

    return WebSocketTerms(chosen("websocket", websocket, WebSocketOptions), is_alone=False, idle_timeout=None)


def _http2_for(ssl_context: ssl.SSLContext | None) -> type[Http2Connection]:
    """Return what speaks HTTP/2, and have TLS offer it. ``ImportError`` where h2 is not installed."""
    try:
        from mcpio.trio._http.http2.connection import Http2Connection
    except ModuleNotFoundError as error:
        raise ImportError("HTTP/2 needs h2: pip install 'mcpio[http2]'", name=error.name) from error
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
    """Give what listens at a place, for the length of a block. See ``serve_http``."""
    if unix is None:
        yield await listen_tcp(host, port) if listeners is None else listeners
        return
    if listeners is not None:
        raise TypeError("give either unix= or listeners=")
    async with listen_unix(unix, unix_mode) as listener:
        yield [listener]


def _place(listener: trio.abc.Listener[Any], name: str | None) -> tuple[str, int] | str | None:
    """Return the host, by that name if it was given one, and the port of a listener; or its path; or ``None``."""
    found = address_of(listener)
    return unix_path_of(listener) if found is None else (name or found[0], found[1])


def _policed(options: HttpOptions, place: tuple[str, int] | str | None) -> HttpOptions:
    if place is None or options.policy != HostPolicy(None, None):
        return options
    policy = HostPolicy.for_unix_socket() if isinstance(place, str) else HostPolicy.for_address(*place)
    return attrs.evolve(options, policy=policy)


def _url(scheme: str, place: tuple[str, int] | str | None, path: str) -> str:
    if place is None:
        return path
    if isinstance(place, str):
        return f"{scheme}+unix://{quote(os.path.abspath(place), safe='')}{path}"
    host, port = place
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{path}"
