"""The one endpoint of Streamable HTTP: POST, GET and DELETE, with sessions or without."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Protocol, TypeAlias

import attrs

from mcpio.engine.ledger import parsed_size
from mcpio.engine.limits import Limits
from mcpio.engine.server import ServerConnection
from mcpio.errors import ErrorCode, InvalidMessage, RemoteProtocolError
from mcpio.events import Event, ProtocolViolated, RequestFailed, RequestReceived
from mcpio.framing import jsonrpc
from mcpio.http.checks import MCP_CHECKS, Checks, Rejection
from mcpio.http.model import Headers
from mcpio.http.options import HttpOptions
from mcpio.http.server.registry import NO_SESSION, OVERLOADED, Sessions
from mcpio.http.server.sessions import JSON, Exchange, HttpSession, Stream
from mcpio.http.server.streams import is_running, session_headers
from mcpio.revisions import REV_2025_03_26, Revision
from mcpio.types.lifecycle import ServerCapabilities

__all__ = ["CLOSING", "TOO_MANY_REQUESTS", "TOO_MANY_SESSIONS", "Connect", "Endpoint", "Mcp"]

LATER: Final[Headers] = ((b"retry-after", b"5"),)
CLOSING: Final = Rejection(503, "Service unavailable: the server is closing", ErrorCode.INTERNAL_ERROR)
STORE_FAILED: Final = Rejection(
    503, "Service unavailable: sessions cannot be stored", ErrorCode.INTERNAL_ERROR, ((b"retry-after", b"1"),)
)
TOO_MANY_REQUESTS: Final = Rejection(503, "Service unavailable: too many requests", ErrorCode.INTERNAL_ERROR, LATER)
TOO_MANY_SESSIONS: Final = Rejection(503, "Service unavailable: too many sessions", ErrorCode.INTERNAL_ERROR, LATER)


Connect: TypeAlias = Callable[[Hashable], ServerConnection]
"""Makes an engine, for a client with that principal."""


class Endpoint(Protocol):
    """What serves the requests for one path."""

    rules: Checks
    """What it asks of them."""

    def admit(self, exchange: Exchange) -> Rejection | None:
        """Look at the head of a request that keeps the rules; return why it is not served, or ``None``."""

    def serve(self, exchange: Exchange) -> None:
        """Act on a whole request that was admitted."""


class Mcp:
    """The endpoint."""

    def __init__(self, connect: Connect, options: HttpOptions, limits: Limits, sessions: Sessions) -> None:
        methods: tuple[str, ...] = ("POST", "GET", "DELETE") if options.listening else ("POST", "DELETE")
        self._connect = connect
        self._options = options
        self._limits = limits
        self._sessions = sessions
        if not options.sessions:
            methods = ("POST",)
        self.rules: Checks = Checks(MCP_CHECKS, methods, options, limits.message_bytes)

    def admit(self, exchange: Exchange) -> Rejection | None:
        """Require that the session that is named is one of ours, and of whoever asks (SESS-04, SESS-05, SESS-09)."""
        request = exchange.request
        if request.session_id is None or not self._options.sessions:
            if request.method != "POST":
                return _SESSION_REQUIRED
            return OVERLOADED if self._sessions.is_overloaded else None
        session = self._sessions.find(request.session_id, exchange.principal)
        if session is None and self._sessions.look_up(exchange):
            return None
        if session is None or session.is_legacy:
            return NO_SESSION
        if session.is_stuck and request.method != "DELETE":
            return STORE_FAILED
        revision = session.connection.revision
        if request.version is not None and revision is not None and request.version != revision.name:
            return Rejection(400, f"Invalid request: this session speaks {revision}, not {request.version}")
        if request.method != "DELETE" and len(session.exchanges) >= self._limits.streams:
            return _TOO_MANY_STREAMS
        self._sessions.enter(session, exchange)
        return None

    def serve(self, exchange: Exchange) -> None:
        """Act on a request: a message, the wish to listen, or the end of a session."""
        session = exchange.session
        if session is None:
            # Only a POST needs none.
            self._post_first(exchange)
        elif not self._sessions.is_open(session):
            # It ended while the request came.
            exchange.reject(self._sessions.closed_response(session))
        elif exchange.request.method == "POST":
            if len(session.streams) >= self._limits.streams:
                exchange.reject(_TOO_MANY_STREAMS)
            else:
                self._feed(exchange, session, exchange.take_body())
        elif exchange.request.method == "GET":
            self._sessions.streams.listen(session, exchange)
            self._sessions.flush(session)
        else:
            exchange.respond(204, session_headers(session, exchange))
            self._sessions.end(session)

    # A message

    def _post_first(self, exchange: Exchange) -> None:
        """Act on a message that comes without a session: one begins with it."""
        body = exchange.take_body()
        message = jsonrpc.parse(body)
        begun = self._begin_session(exchange, message)
        if isinstance(begun, Rejection):
            exchange.reject(begun, _id_to_answer(message))
        else:
            begun.declared = parsed_size(body)
            self._sessions.enter(begun, exchange)
            self._feed(exchange, begun, body)

    def _begin_session(self, exchange: Exchange, message: jsonrpc.Message) -> HttpSession | Rejection:
        """Begin a session for a request that names none, or say why not."""
        is_initialize = isinstance(message, jsonrpc.Request) and message.method == "initialize"
        if isinstance(message, jsonrpc.Malformed):
            return Rejection(400, message.reason, message.code)
        if self._options.sessions and not is_initialize:
            return _SESSION_REQUIRED
        if self._sessions.is_closing:
            return CLOSING
        if self._options.sessions:
            if not self._sessions.make_room():
                return TOO_MANY_SESSIONS
        elif self._sessions.unnamed >= self._limits.exchanges:
            # Those count too whose clients are gone.
            return TOO_MANY_REQUESTS
        connection = self._connect(exchange.principal)
        connection.capabilities = _within_reach(connection.capabilities, self._options)
        version = exchange.request.version
        # Of a client that says nothing, and whose handshake we do not know, the one that had no such field (HTTP-32).
        revision = REV_2025_03_26 if version is None else Revision.parse(version)
        if not is_initialize or version is not None:
            if revision is None or revision not in connection.options.revisions:
                return Rejection(400, f"Invalid request: revision {revision} is not served here")
            if not is_initialize:
                connection.skip_handshake(revision)
        return self._sessions.begin(connection, exchange.principal)

    def _feed(self, exchange: Exchange, session: HttpSession, body: bytes) -> None:
        """Hand a message to the engine, and tell from what becomes of it what the response is."""
        connection, streams = session.connection, self._sessions.streams
        stream = streams.open(session, exchange)
        connection.receive_message(body, streams.now, via=stream.via)
        events = self._sessions.drain(session)
        if len(events) == 1 and _is_request(events[0], stream):
            # As mostly: what follows from it follows from its answer.
            if exchange.answers == "sse":
                streams.begin(session, stream)
            self._sessions.settle(session)
            return
        # Room for a message may be room for requests that waited before.
        events = [event for event in events if not isinstance(event, RequestReceived) or _is_request(event, stream)]
        stream.is_deferred = connection.has_deferred(stream.via)
        faults = [fault for event in events if (fault := _fault_in(event)) is not None]
        if session.id is None and self._options.sessions and connection.revision is not None:
            self._sessions.name(session)
        if faults and len(faults) == len(events):
            self._refuse(exchange, session, stream, faults[0])
        elif not is_running(session, stream) and stream.via not in connection.pending_exchanges():
            # Notifications and responses (HTTP-09).
            exchange.respond(202, session_headers(session, exchange))
            streams.close(session, stream)
        elif exchange.answers == "sse":
            streams.begin(session, stream)
        self._sessions.flush(session)

    def _refuse(self, exchange: Exchange, session: HttpSession, stream: Stream, fault: RemoteProtocolError) -> None:
        """Answer what is no message, or none that can be accepted (HTTP-10, HTTP-13)."""
        answer = session.connection.next_message(via=stream.via)
        self._sessions.streams.close(session, stream)
        if answer is not None:
            exchange.respond(400, (JSON, *session_headers(session, exchange)), answer.text)
        else:
            exchange.reject(Rejection(400, str(fault), fault.code))


def _id_to_answer(message: jsonrpc.Message) -> int | str | None:
    """Return the id that an error in answer to a message has, ``None`` for none (RPC-12, RPC-13)."""
    if isinstance(message, jsonrpc.Request):
        return message.id
    return message.id if isinstance(message, jsonrpc.Malformed) and message.answerable else None


def _fault_in(event: Event) -> RemoteProtocolError | None:
    """Return why a message could not be accepted, or ``None``: it was none, or an answer that makes no sense."""
    if isinstance(event, ProtocolViolated):
        return event.error
    if isinstance(event, RequestFailed) and isinstance(event.error, InvalidMessage):
        return RemoteProtocolError(f"Invalid request: {event.error}", code=ErrorCode.INVALID_REQUEST)
    return None


def _is_request(event: Event, stream: Stream) -> bool:
    return isinstance(event, RequestReceived) and event.context.via == stream.via


def _within_reach(declared: ServerCapabilities, options: HttpOptions) -> ServerCapabilities:
    """Return the capabilities that the transport can keep; the engine refuses what belongs to the others.

    Without listening, nothing can be said outside a request: no change of a list, no update of a resource. Without
    sessions, a log level is forgotten with the request that sets it.
    """
    if options.sessions and options.listening:
        return declared
    tools, prompts, resources = declared.tools, declared.prompts, declared.resources
    return attrs.evolve(
        declared,
        tools=tools and attrs.evolve(tools, list_changed=None),
        prompts=prompts and attrs.evolve(prompts, list_changed=None),
        resources=resources and attrs.evolve(resources, list_changed=None, subscribe=None),
        logging=declared.logging if options.sessions else None,
    )


_SESSION_REQUIRED: Final = Rejection(400, "Invalid request: Mcp-Session-Id is required: initialize first")
_TOO_MANY_STREAMS: Final = Rejection(
    503, "Service unavailable: too many requests in this session", ErrorCode.INTERNAL_ERROR, LATER
)
