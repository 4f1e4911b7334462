"""HTTP servers."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Callable, Hashable
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict
from urllib.parse import quote

import attrs

from mcpio._checks import check_options, chosen
from mcpio._drivers import TapSource, attach_tap, check_authorization, checked_auth, denying, report
from mcpio._drivers.actor import name_stubborn_handlers
from mcpio._drivers.event_loop import RECEIVE_SIZE, ByteStream, CancelScope, EventLoop, end_output
from mcpio._drivers.http_parsers import (
    BadRequest,
    FindPrincipal,
    HttpTimeouts,
    ParsedHead,
    Parser,
    ParserEvent,
    ParserMark,
    ParserName,
    ResponseWriter,
    new_parser,
    plain_text,
)
from mcpio._drivers.serving import Endpoint, Host, address_of, exit_timer, serve_listeners, until_signalled
from mcpio._drivers.setup import preload
from mcpio._drivers.socket_server import MAX_CONNECTIONS, Acceptor, ActiveSet, ServingContext, SocketPeer
from mcpio._extras import extra
from mcpio.app.http_host import HttpHost
from mcpio.app.runtime import Runtime, Spawned
from mcpio.app.server import Server
from mcpio.engine.server import ServerConnection
from mcpio.http.checks import Rejection
from mcpio.http.lifecycle import LINGER, TIMEOUTS, Action, Input, Lifecycle, State
from mcpio.http.model import (
    Answer,
    Body,
    End,
    HostPolicy,
    HttpOptions,
    RequestHead,
    RequestItem,
    Reset,
    ResponseHead,
    ResponseItem,
)

if TYPE_CHECKING:
    from mcpio._drivers.http2 import Http2Connection
    from mcpio._drivers.websocket_handler import WebSocketConfig, WebSocketHandler
    from mcpio.app.session import UnansweredPolicy
    from mcpio.app.session_store import SessionStore
    from mcpio.auth.resource_server import ResourceServer
    from mcpio.websocket.frames import WebSocketOptions
    from mcpio.websocket.opening import AcceptedHandshake


# ----------------------------------------------------------------------------------------------------------- connection
# One HTTP/1.1 connection of a server: a parser on one side, the HTTP machine on the other.
# The events that are allowed, and their consequences, are the table of ``mcpio.http.lifecycle``: this adapter
# reports what it read and wrote, and carries out the ``Action`` that comes back.

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

_IN_BODY: Final = (State.BODY, State.EARLY)
_ANSWERING: Final = (State.EARLY, State.ANSWER)
_OVER: Final = (State.DRAINING, State.CLOSED)


class HttpConnection:
    """Serves the requests of one connection, one after the other.

    One task reads, and goes on reading while a response is under way, to notice a client that disconnects. Responses
    are written where the host drains, as far as the socket takes them at once; only the rest costs a task, which waits
    for a client that reads slowly.
    """

    def __init__(
        self,
        stream: ByteStream,
        host: HttpHost,
        parser: Parser,
        loop: EventLoop,
        *,
        peer: SocketPeer,
        timeouts: HttpTimeouts,
        find_principal: FindPrincipal | None = None,
        websockets: WebSocketHandler | None = None,
    ) -> None:
        """Without ``find_principal`` the identity in the client's certificate is the principal.

        With ``websockets`` a client may upgrade to WebSocket.
        """
        self.peer = peer
        self._stream = stream
        self._loop = loop
        self._host = host
        self._parser = parser
        self._responses = ResponseWriter()
        self._timeouts = timeouts
        self._find_principal = find_principal
        self._websockets = websockets
        self._needs_lookup = find_principal is not None or websockets is not None
        self._principal = peer.identity
        self._send_nowait: Callable[[bytes], int] | None = getattr(self._stream, "send_nowait", None)
        self._life = Lifecycle(timeouts, host.clock())
        # Holds the reader, with the deadline of the state that it waits in.
        self._scope = loop.scope()
        self._armed = self._scope.deadline
        self._requests = 0
        self._is_retired = False
        # The request under way: the machine's name for it while its response has more to pull; its head until the
        # head of the response is encoded; and what was read of it and not handed over.
        self._exchange: Hashable = None
        self._head: ParsedHead | None = None
        self._request: RequestHead | None = None
        self._pieces: list[bytes] = []
        # Output that the socket did not take, which the writing task begins with.
        self._unsent = b""
        self._is_writing = False
        self._tasks: Runtime
        self._writer: Spawned | None = None
        # A response is written where it is produced, once; what follows is left to the task, so that everything a
        # handler sends in one turn of the loop goes out in one write.
        self._may_write_now = True
        # Input after the request under way, beyond what the parser holds: at most one more read.
        self._ahead = b""
        self._ahead_scope: CancelScope | None = None
        # Set when a response is out, or all output is: the reader may wait for either.
        self._progress = loop.signal()

    # From the connection handler, in the loop's own thread

    @property
    def is_idle(self) -> bool:
        """Whether it has served a request, and no other has begun or arrived."""
        return self._life.state is State.IDLE and not self._has_more and not self._has_arrived

    def wake(self, exchange: Hashable) -> None:
        """Write the host's output of a response. The host calls this in its drain."""
        if exchange != self._exchange or self._is_writing:
            return  # the task that writes pulls until there is nothing left
        if self._may_write_now:
            self._may_write_now = False
            self._write_now()
        else:
            self._write_later(b"")

    def retire(self) -> None:
        """Serve one more request, or the one that has begun, and no other: its answer says so."""
        self._is_retired = True

    def close(self) -> None:
        """Serve the request that has begun, and no other."""
        if self._life.is_resting and (self._has_more or self._has_arrived):
            # A request has begun that the reader has not come to: it is served.
            self._step(Input.RECV_BYTES)
        if self._step(Input.SEND_CLOSE) is Action.CLOSE:
            self._scope.cancel()

    def abort(self) -> None:
        """End the connection."""
        self._step(Input.RECV_LOSS)
        self._scope.cancel()

    # The reader

    async def run(self, data: bytes = b"") -> None:
        """Serve until the connection ends; never raises for the client's input. ``data`` was read earlier."""
        if data:
            self._parser.feed(data)
        try:
            async with self._loop.group() as self._tasks:
                try:
                    with self._scope:
                        try:
                            await self._serve()
                        except BadRequest as error:
                            self._act(Input.RECV_INVALID, error.status, str(error))
                        except self._loop.broken:
                            self._step(Input.RECV_LOSS)
                    state = self._life.state
                    # All who cancel the scope take a step to the end before, so this was its deadline.
                    if state not in _OVER and TIMEOUTS[state] is not None:
                        self._act(Input.TIMEOUT, 408, f"the {state.value} of the request took too long")
                    elif state not in _OVER:
                        # The awaited bytes came in the same turn, but a scope that is cancelled stays so.
                        self._step(Input.RECV_LOSS)
                    if self._life.state is State.DRAINING:
                        await self._linger()
                finally:
                    # Handlers that go on may produce output before the group is left, which takes no more tasks.
                    self._lose()
                    if self._writer is not None:
                        self._writer.cancel()
        finally:
            with contextlib.suppress(*self._loop.broken):
                async with self._loop.last_moment(LINGER):
                    await self._stream.aclose()

    async def _serve(self) -> None:
        """Read requests and write responses until the connection is over."""
        life, parser = self._life, self._parser
        while (state := life.state) not in _OVER:
            if state is State.ANSWER:
                if self._has_more:
                    self._arm()  # the deadline of the request does not hold for the response
                    await self._read_ahead()
                    continue
            elif (event := parser.next_event()) is not None:
                if self._needs_lookup and isinstance(event, ParsedHead):
                    await self._look_up(event)
                else:
                    self._take(event)
                if life.state is not State.IDLE or event is not ParserMark.END:
                    continue
                if self._has_more:
                    # A client that pipelines without end must not keep the loop from the others.
                    await self._loop.checkpoint()
                    continue
            else:
                self._continue()
            self._arm()
            if self._ahead:
                data, self._ahead = self._ahead, b""
            else:
                # In ANSWER too: the end of input is how a client that gives up is noticed.
                data = bytes(await self._stream.receive_some(RECEIVE_SIZE))
            parser.feed(data)
            if life.state in _IN_BODY:
                # Every byte earns time, framing included: the parser reports those of the body only.
                life.step(Input.RECV_BYTES, self._host.clock(), len(data))
            elif not data and life.state is State.ANSWER:
                self._step(Input.RECV_LOSS)

    @property
    def _has_more(self) -> bool:
        return bool(self._ahead) or self._parser.has_more

    @property
    def _has_arrived(self) -> bool:
        """Whether the system has input, or its end, that the reader has not been given."""
        return self._loop.is_readable(self._stream)

    async def _read_ahead(self) -> None:
        """Wait for the end of the response; behind pipelined input too, the end of input is noticed.

        What is read is kept until the parser has no more, and is no more than one read gives: a client that sends more
        meanwhile is held back, and its end is noticed only after the response.
        """
        room = RECEIVE_SIZE - len(self._ahead)
        if not room:
            await self._progress.wait()
            return
        with self._loop.scope() as self._ahead_scope:  # cancelled when the response is out
            data = bytes(await self._stream.receive_some(room))
            self._ahead += data
            if not data:
                self._step(Input.RECV_LOSS)
        self._ahead_scope = None

    def _take(self, event: ParserEvent) -> None:
        if isinstance(event, ParsedHead):
            self._begin(event, self._principal)
        elif isinstance(event, bytes):
            if self._head is not None:
                self._head.expects = False  # the client does not wait for leave
            self._pieces.append(event)
        elif event is ParserMark.END:
            now = self._host.clock()
            self._life.step(Input.RECV_END if self._life.state in _IN_BODY else Input.RECV_REQUEST, now)
            self._hand_over(now)
        else:
            self._step(Input.RECV_LOSS)

    async def _look_up(self, head: ParsedHead) -> None:
        """Find out whose a request is, and whether it asks for WebSocket, before the machine gets it."""
        principal = self._principal
        if self._find_principal is not None:
            item = RequestHead(None, head.method, head.target, head.headers, principal)
            lookup = self._find_principal(item, self.peer)
            if isawaitable(lookup):
                self._step(Input.SEND_LOOKUP)
                self._arm()
                lookup = await lookup
            principal = lookup
        if self._websockets is not None:
            item = RequestHead(None, head.method, head.target, head.headers, principal)
            answer = self._websockets.answer(item, is_current=head.is_current)
            if answer is not None:
                await self._leave_http(self._websockets, head, answer, principal)
                return
        self._begin(head, principal)

    def _begin(self, head: ParsedHead, principal: Hashable) -> None:
        self._requests += 1
        self._head, self._exchange, self._may_write_now = head, (self, self._requests), True
        if not head.keeps_alive:
            self._life.is_last = True
        self._request = RequestHead(self._exchange, head.method, head.target, head.headers, principal)

    def _continue(self) -> None:
        """Pass an incomplete request to the machine; unless it is rejected, send ``100 Continue`` if asked to."""
        if self._exchange is None:
            if self._parser.has_more and self._life.state is not State.HEAD:
                self._step(Input.RECV_BYTES)
            return
        if self._life.state not in _IN_BODY:
            self._step(Input.RECV_HEAD)
        self._hand_over()
        if self._life.state is State.BODY and self._head is not None and self._head.expects:
            self._head.expects = False
            self._write(CONTINUE)

    async def _leave_http(
        self, websockets: WebSocketHandler, head: ParsedHead, answer: AcceptedHandshake | Rejection, principal: Hashable
    ) -> None:
        """Answer a request for WebSocket: the connection continues in that protocol, or ends."""
        if isinstance(answer, Rejection):
            self._step(Input.RECV_HEAD)
            self._step(Input.SEND_HEAD)
            self._step(Input.SEND_LAST)
            self._write(self._responses.rejection(head, answer))
            return
        if self._life.state is not State.LOOKUP:
            self._step(Input.SEND_LOOKUP)
        self._step(Input.SEND_UPGRADE)
        self._arm()  # no deadline of HTTP holds for the WebSocket, which runs within the same scope
        await self._send(self._responses.upgrade(answer.headers))
        await websockets.carry(self._stream, self._parser.take_rest() + self._ahead, answer, principal)

    def _hand_over(self, ended_at: float | None = None) -> None:
        """Pass what one read brought to the machine together. It may answer within this call.

        ``ended_at`` is the time, if that was the end of the request.
        """
        head, pieces = self._request, self._pieces
        self._request, self._pieces = None, []
        if ended_at is not None and head is not None and len(pieces) == 1:
            answer = self._host.serve(head, pieces[0], ended_at)
            if answer is not None:
                self._answer(answer)
            return
        items: list[RequestItem] = [] if head is None else [head]
        items += [Body(self._exchange, piece) for piece in pieces]
        if ended_at is not None:
            items.append(End(self._exchange))
        if items:
            self._host.receive(*items)

    def _answer(self, answer: Answer) -> None:
        """Write a whole response."""
        head, self._head, self._exchange = self._head, None, None
        if self._is_retired:
            self._life.is_last = True
        responses = self._responses
        try:
            data = responses.head(head, answer.status, answer.headers, closes=self._life.is_last)
        except Exception as error:
            self._host.report_fault("a response could not be written", error)
            self.abort()
            return
        self._write(data + responses.body(answer.body))
        if not self._is_writing:
            self._finish()

    def _act(self, event: Input, status: int, message: str) -> None:
        """Step, and answer where the table says so: a request that cannot be served, or that comes too slowly."""
        if self._step(event) is not Action.REFUSE:
            return
        self._lose()
        headers, body = plain_text(message)
        self._write(self._responses.head(None, status, headers, closes=True) + body)

    async def _linger(self) -> None:
        """End the output, and read for a while: closing over unread bytes could take the answer from the client."""
        while self._is_writing:
            await self._progress.wait()
        with self._loop.scope(LINGER), contextlib.suppress(*self._loop.broken):
            await end_output(self._stream)
            while await self._stream.receive_some(RECEIVE_SIZE):
                pass

    def _step(self, event: Input) -> Action:
        return self._life.step(event, self._host.clock())

    def _arm(self) -> None:
        """Set the reader's deadline to that of the state."""
        deadline, armed = self._life.deadline, self._armed
        # Between two requests, up to a second early will do: setting a deadline costs more than the comparison.
        if deadline != armed and not (self._life.state is State.IDLE and 0 <= deadline - armed < 1):
            self._scope.deadline = self._armed = deadline

    # Writing

    def _write_now(self) -> None:
        """Write the host's output of the response, as much as the socket accepts."""
        while self._exchange is not None and (data := self._pull()) is not None:
            self._write(data)
            if self._is_writing:
                return
        self._finish()

    def _write(self, data: bytes) -> None:
        """Write without waiting, where the stream can; start a task for the rest."""
        if self._is_writing:
            # A client at fault is answered while ``100 Continue`` may still be on its way: one writer at a time.
            self._unsent += data
            return
        sent = 0
        if self._send_nowait is not None:
            try:
                sent = self._send_nowait(data)
            except Exception:
                sent = 0  # not lost: the task that writes the rest meets it again
        if sent < len(data):
            self._write_later(data[sent:])

    def _write_later(self, unsent: bytes) -> None:
        """Start the task that writes the rest that the socket did not accept, and then further output."""
        self._is_writing = True
        self._unsent += unsent
        self._writer = self._tasks.spawn(self._write_rest())

    async def _write_rest(self) -> None:
        """Write the bytes that the socket did not accept at once, then the further output of the response."""
        try:
            # Nothing is waited for between an empty pull and the end of _is_writing, so no wake is lost in between.
            # Nothing follows a write that took too long: how much of it was sent is unknown, and a gap is misread.
            while self._life.state is not State.CLOSED:
                data: bytes | None = self._unsent
                self._unsent = b""
                if data or (self._exchange is not None and (data := self._pull())):
                    await self._send(data)
                elif self._exchange is None or data is None:
                    break
        except Exception as error:
            if not isinstance(error, self._loop.broken):
                self._host.report_fault("a connection failed", error)
            self.abort()
        finally:
            self._is_writing, self._may_write_now = False, True
            self._progress.set()
        self._finish()

    def _pull(self) -> bytes | None:
        """Pull the next piece of the response as bytes; ``None`` if no output is ready.

        A piece is about 64 KiB, the most that is held here beside one read: the rest stays in the machine, which
        counts it in ``held.unwritten``.
        """
        # Contained: the host calls this in its drain, for all sessions, and a response that cannot be encoded costs
        # only its own connection.
        try:
            items = self._host.responses_to_send(self._exchange)
            data = b"".join([self._encode(item) for item in items]) if items else None
        except Exception as error:
            self._host.report_fault("a response could not be written", error)
            self.abort()
            return None
        return data

    def _encode(self, item: ResponseItem) -> bytes:
        """Return a part of a response as bytes, and record it in the lifecycle of the connection."""
        if isinstance(item, Body):
            return self._responses.body(item.data)
        if isinstance(item, ResponseHead):
            is_complete = self._life.state is State.ANSWER
            if not is_complete:
                self._step(Input.SEND_HEAD)
            head, self._head = self._head, None
            if self._is_retired:
                self._life.is_last = True
            # A response that comes before the end of its request is the last one: where the rest of the body ends and
            # the next request begins is known only by reading all of it.
            return self._responses.head(head, item.status, item.headers, closes=self._life.is_last or not is_complete)
        self._exchange = None
        if isinstance(item, End):
            return self._responses.end()
        self._step(Input.SEND_RESET)
        self._scope.cancel()
        return b""

    def _finish(self) -> None:
        """Continue with the next request, or the end, if a whole response is written."""
        if self._exchange is not None or self._life.state not in _ANSWERING:
            return  # more of the response is to come, or this was 100 Continue or the answer to a client at fault
        if self._step(Input.SEND_END) is Action.REUSE:
            self._parser.next_cycle()
            self._arm()
            if self._ahead_scope is not None:
                self._ahead_scope.cancel()
        else:
            self._scope.cancel()
        self._progress.set()

    async def _send(self, data: bytes) -> None:
        """Write, for as long as the client may take to read."""
        with self._loop.scope(self._timeouts.to_read(len(data))) as scope:
            await self._stream.send_all(data)
        if scope.cancelled_caught:
            self.abort()

    def _lose(self) -> None:
        """Report to the machine that the exchange has no more input or output."""
        self._request, self._pieces = None, []
        if self._exchange is not None:
            exchange, self._exchange = self._exchange, None
            self._head = None
            self._host.receive(Reset(exchange))


# --------------------------------------------------------------------------------------------------------------- server
# ``serve_http``: a server over Streamable HTTP, and the connections of its clients.


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


class HttpServingOptions(TypedDict, total=False):
    """The keyword arguments that ``serve_http`` and ``serve_websocket`` share."""

    principal: FindPrincipal | None
    """A function or coroutine function that takes a request's head and the ``SocketPeer``, and returns the principal,
    to which the session is bound, or ``Denied``. The default is ``SocketPeer.identity`` where ``ssl_context`` asks for
    a certificate and the client has sent one, and otherwise ``None``."""
    auth: ResourceServer | None
    """Takes the place of ``principal``: admits requests by their tokens, and its metadata is served; handlers find the
    grant of their request in ``ctx.grant``. A WebSocket ends with 1008 when the token of its handshake expires."""
    timeouts: HttpTimeouts | None
    """How long a client may take. For a WebSocket, ``head`` limits the time for the handshake."""
    max_connections: int
    """How many connections there may be at once: 768 by default, and at most three quarters of the files that the
    process may open, which is logged. Further clients wait to be accepted, unless a connection between two requests can
    be closed for them."""
    max_per_address: int | None
    """How many of them one address may have; a further one is closed. ``None``, the default, sets no limit."""
    head_bytes: int
    """About how long the head of a request may be; 65536 by default. Bodies are bounded by ``Limits.message_bytes``."""
    parser: ParserName
    """``"h11"``, ``"httptools"``, or ``"auto"``, the default, for httptools where that extra is installed and h11
    otherwise."""
    tap: TapSource | None
    """Hears of each session. See ``mcpio.observe.Tap``."""
    handle_signals: bool
    """Whether SIGINT and SIGTERM start the end, and then end the process: see ``terminate_on_signals``. Leave it out
    where other code of the process handles signals."""
    grace: float
    """Seconds that running requests have at the end to be answered, 0.5 by default."""


class ServeHttpOptions(HttpServingOptions, total=False):
    """The keyword arguments of ``serve_http``."""

    options: HttpOptions | None
    """Choices of HTTP. Without a policy in them, the bound address decides who is served: on loopback, programs on this
    machine, and no pages of other origins."""
    http2: bool
    """Whether clients may speak HTTP/2 beside HTTP/1.1, which needs the extra of that name: over TLS by ALPN, for which
    ``ssl_context`` is set to offer ``h2`` and ``http/1.1``, and without TLS by beginning with it."""
    websocket: WebSocketOptions | None
    """Serves WebSocket at the endpoint too, under the same policy, ``principal`` and limits: a GET that asks for it
    becomes a session, at the same URL with ``ws`` or ``wss``. At the end those sessions are answered and closed with
    1001. See ``serve_websocket``."""
    store: SessionStore | None
    """Makes sessions outlive the process, as ``mcpio.stores.SqliteStore`` does: a client continues with the next one,
    even in the middle of a stream."""
    unanswered: UnansweredPolicy
    """With a ``store``, whether requests whose handlers died fail, as by default, or run again."""
    access_log: bool
    """Whether the log ``mcpio.access`` gets a line for each request when its response has ended: method, path, status,
    time, bytes of the body, and the client's address. Requests of which no head could be read, and those that become a
    WebSocket, have none."""
    drain: float
    """For a server behind a balancer: seconds that the open connections serve on, at most, before the graceful end.
    Each ends with the answer to its next request, which says so. Stateless clients that listen get their answer at the
    beginning, and listen again elsewhere. 0 by default."""


async def serve_http(
    server: Server,
    endpoint: Endpoint,
    where: Host,
    ssl_context: ssl.SSLContext | None,
    options: ServeHttpOptions,
    started: Callable[[HttpListening], None],
) -> None:
    """Serve clients over HTTP until cancelled. See ``mcpio.trio.serve_http``."""
    check_options(options, ServeHttpOptions.__annotations__)
    config = checked_config(
        server,
        options,
        http2=_http2_for(ssl_context) if options.get("http2", False) else None,
        store=options.get("store"),
        unanswered=options.get("unanswered", "fail"),
        websocket=_websocket_config(options.get("websocket")),
        access_log=options.get("access_log", False),
    )
    http = chosen("options", options.get("options"), HttpOptions)
    drain = options.get("drain", 0.0)
    await run_http(server, endpoint, where, ssl_context, config, http, "http", options, started, drain)


def checked_config(server: Server, options: HttpServingOptions, **more: Any) -> HttpConnectionConfig:
    """Return the config of the connections. Raises TypeError or ValueError for what cannot be served."""
    parser, head_bytes = options.get("parser", "auto"), options.get("head_bytes", 65536)
    principal, auth = options.get("principal"), options.get("auth")
    new_parser(parser, head_bytes)  # fails here rather than at the first client
    checked_auth(auth, principal, "(head, peer)")
    check_authorization(server, is_authorized=principal is not None or auth is not None)
    return HttpConnectionConfig(
        timeouts=chosen("timeouts", options.get("timeouts"), HttpTimeouts),
        head_bytes=head_bytes,
        parser=parser,
        find_principal=principal,
        auth=auth,
        tap=options.get("tap"),
        **more,
    )


async def run_http(
    server: Server,
    endpoint: Endpoint,
    where: Host,
    ssl_context: ssl.SSLContext | None,
    config: HttpConnectionConfig,
    options: HttpOptions,
    scheme: str,
    serving: HttpServingOptions,
    started: Callable[[HttpListening], None],
    drain: float = 0.0,
) -> None:
    """Serve until cancelled; ``scheme`` is that of URLs without TLS. See ``serve_http``."""
    loop, grace = where.loop, serving.get("grace", 0.5)
    acceptor = Acceptor(
        loop,
        max_connections=serving.get("max_connections", MAX_CONNECTIONS),
        max_per_address=serving.get("max_per_address"),
        ssl_context=ssl_context,
        handshake_timeout=config.timeouts.head,
        https_compatible=True,
        owns_listeners=endpoint.listeners is None,
    )
    timer = exit_timer(grace, drain)
    with until_signalled(loop, serving.get("handle_signals", False), timer):
        preload(*where.late)  # before clients can connect, who would wait for it
        async with endpoint.bound() as bound:
            address = address_of(bound[0], loop)
            if isinstance(address, tuple) and endpoint.listeners is None and endpoint.host:
                address = endpoint.host, address[1]
            http = _with_policy(options, address)
            url = _url(scheme if ssl_context is None else f"{scheme}s", address, http.path)

            def listening(handler: HttpConnectionHandler) -> None:
                started(HttpListening(url, address[1] if isinstance(address, tuple) else None, handler.host))

            new_handler = partial(HttpConnectionHandler, http=http, config=config)
            await serve_listeners(
                server, new_handler, acceptor, bound, where, grace=grace, drain=drain, timer=timer, started=listening
            )


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
    access_log: bool = False


AnyConnection: TypeAlias = "HttpConnection | Http2Connection"


class HttpConnectionHandler:
    """The connections of one server, and the host of all sessions."""

    def __init__(self, context: ServingContext, http: HttpOptions, config: HttpConnectionConfig) -> None:
        self._config = config
        self._deadlines = deadlines = context.deadlines
        self._loop = context.loop
        self._connections: ActiveSet[AnyConnection] = ActiveSet(context.loop)
        self._is_closing = False
        self._is_retiring = False
        new_host = HttpHost
        if config.access_log:
            from mcpio._drivers.access_log import LoggedHost as new_host  # noqa: N813 - only who asks pays for it
        self.host = host = new_host(
            context.server,
            context.runtime,
            clock=context.loop.now,
            on_ready=self._wake,
            on_deadline=lambda deadline: deadlines.arm(host, deadline),
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
            from mcpio._drivers.guarding import RequestGuard  # only protected servers pay for them

            guard = RequestGuard(config.auth, lambda: context.loop)
            self._find_principal = lambda head, peer: guard.admit(
                head.method, head.target, head.headers, certificate=peer.fingerprint
            )
        if self._find_principal is not None:
            self._find_principal = denying(
                self._find_principal, host.report_fault, context.loop, config.timeouts.lookup
            )
        self._websockets: WebSocketHandler | None = None
        if config.websocket is not None:
            from mcpio._drivers.websocket_handler import WebSocketHandler  # only servers with WebSocket pay for it

            self._websockets = WebSocketHandler(
                context,
                http,
                config.websocket,
                config.tap,
                ends_with_token=config.auth is not None and not config.auth.outlive_token,
            )

    async def receive(self, stream: ByteStream, peer: SocketPeer) -> None:
        """Serve one connection until it ends, in the version that its client speaks, and close its stream."""
        try:
            connection, data = await self._recognise(stream, peer)
        except TimeoutError:
            await self._loop.abort(stream)  # no version is known in which it could be told
            return
        except BaseException:
            await self._loop.abort(stream)
            raise
        if self._is_closing:
            # It closed while the first bytes were waited for, when the connection was in no list to be closed from.
            await self._loop.abort(stream)
            return
        self._connections.enter(connection)
        if self._is_retiring:
            connection.retire()
        try:
            await connection.run(data)
        finally:
            self._connections.leave(connection)

    async def _recognise(self, stream: ByteStream, peer: SocketPeer) -> tuple[AnyConnection, bytes]:
        """Return a connection for the version that a client speaks, and the bytes read to find out."""
        config, data = self._config, b""
        if config.http2 is not None:
            is_http2, data = await config.http2.recognise(stream, config.timeouts.head, self._loop)
            if is_http2:
                return self._new_http2(config.http2, stream, peer), data
        return self._new_http1(stream, peer), data

    def _new_http1(self, stream: ByteStream, peer: SocketPeer) -> HttpConnection:
        config = self._config
        return HttpConnection(
            stream,
            self.host,
            new_parser(config.parser, config.head_bytes),
            self._loop,
            peer=peer,
            timeouts=config.timeouts,
            find_principal=self._find_principal,
            websockets=self._websockets,
        )

    def _new_http2(self, new: type[Http2Connection], stream: ByteStream, peer: SocketPeer) -> Http2Connection:
        config = self._config
        return new(
            stream,
            self.host,
            self._loop,
            head_bytes=config.head_bytes,
            peer=peer,
            timeouts=config.timeouts,
            deadlines=self._deadlines,
            find_principal=self._find_principal,
        )

    def make_room(self) -> None:
        """Close a connection between two requests, if any."""
        idle = next((connection for connection in self._connections if connection.is_idle), None)
        if idle is not None:
            idle.abort()

    def retire(self) -> None:
        """Make each connection end with its next answer, which says so.

        The answer to a listen request has begun without saying so. It ends here rather than with the connection: a
        client or a balancer takes that for free when the answer is complete, and its next request must not be lost.
        """
        self._is_retiring = True
        for connection in self._connections:
            connection.retire()
        self.host.finish_listening()

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
        """Wait until no connection is left."""
        await self._connections.wait_empty()

    async def finish(self) -> None:
        """Cut off the handlers that still run, and name those that do not end."""
        self.host.close(0)
        self.host.handle_timeout()
        self._deadlines.arm(self.host, None)
        await name_stubborn_handlers(self._loop, *self.host.take_sessions())

    def _attach_tap(self, connection: ServerConnection) -> None:
        try:
            attach_tap(connection, self._config.tap, self._loop.now())
        except Exception as error:
            self.host.report_fault("a tap cannot be attached to a session", error)

    def _wake(self, exchange: Hashable) -> None:
        connection: AnyConnection
        connection, _ = exchange  # type: ignore[misc]  # connections name their exchanges by pairs that begin with them
        try:
            connection.wake(exchange)
        except Exception as error:
            # Contained here: the host drains for all sessions, and may have been called by another connection.
            self.host.report_fault("a response could not be written", error)
            connection.abort()


def _websocket_config(websocket: WebSocketOptions | None) -> WebSocketConfig | None:
    if websocket is None:
        return None
    from mcpio._drivers.websocket_handler import WebSocketConfig  # only servers with WebSocket pay for it
    from mcpio.websocket.frames import WebSocketOptions

    return WebSocketConfig(chosen("websocket", websocket, WebSocketOptions), is_alone=False, idle_timeout=None)


def _http2_for(ssl_context: ssl.SSLContext | None) -> type[Http2Connection]:
    """Return the class for HTTP/2 connections, and let TLS offer it. Raises ImportError if h2 is not installed."""
    with extra("http2", "http2=True"):
        from mcpio._drivers.http2 import Http2Connection
    if ssl_context is not None:
        ssl_context.set_alpn_protocols(["h2", "http/1.1"])
    return Http2Connection


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
