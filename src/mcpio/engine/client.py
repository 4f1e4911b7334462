"""The client's end of a conversation."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from mcpio.codec import codec
from mcpio.engine.connection import Connection
from mcpio.engine.inbox import QUOTE
from mcpio.engine.limits import DEFAULT, Default, Timeout
from mcpio.engine.options import Options
from mcpio.engine.outbox import Kind
from mcpio.engine.payloads import encode, payload_of
from mcpio.engine.pending import OutgoingRequest
from mcpio.engine.table import Input, Phase, RequestInput, Role
from mcpio.engine.timers import KEEP_ALIVE_TIMER
from mcpio.errors import ConnectFailed, ErrorCode, InvalidMessage, RequestError, RequestTimeout
from mcpio.events import (
    CancelReceived,
    CloseReason,
    Negotiated,
    OutgoingId,
    RequestContext,
    VersionMismatched,
)
from mcpio.framing import jsonrpc
from mcpio.methods import METHODS
from mcpio.revisions import Revision
from mcpio.types.lifecycle import (
    ClientCapabilities,
    Implementation,
    InitializeRequest,
    InitializeResult,
    ServerCapabilities,
)

__all__ = ["ClientConnection"]


class ClientConnection(Connection):
    """A client: it opens with ``send_initialize``, and may send requests once ``Negotiated`` was reported.

    Bytes go in by ``receive_data``, events come out of ``events()``, bytes to write out of ``data_to_send()``; time
    goes in with every call and comes out of ``next_deadline()``. It reads no clock and waits for nothing.
    """

    __slots__ = ()

    role = Role.CLIENT
    _capabilities_type = ClientCapabilities
    _peer_capabilities_type = ServerCapabilities

    def __init__(
        self,
        info: Implementation,
        capabilities: ClientCapabilities | None = None,
        *,
        options: Options | None = None,
        can_reach: Callable[[Hashable], bool] | None = None,
    ) -> None:
        """``capabilities`` declare what this client serves: only what the program answers."""
        declared = ClientCapabilities() if capabilities is None else capabilities
        super().__init__(info, declared, options=options, can_reach=can_reach)

    def send_initialize(
        self, now: float, *, timeout: Timeout | float | Default | None = DEFAULT, cookie: Any = None
    ) -> OutgoingId:
        """Open the conversation (LIFE-02).

        One ``Negotiated`` follows, with the id that is returned and ``cookie``, or a ``RequestFailed`` and the end of
        the connection. No ``ResponseReceived`` comes for it. ``now`` is in seconds on the caller's monotonic clock.
        Raises ``LocalProtocolError``, and changes nothing, when called twice, and ``NoBackChannel`` on a connection
        that is closing or closed.
        Drain the events, write the chunks, re-arm the deadline.
        """
        options = self._options
        self._check_send(Input.SEND_INITIALIZE, None)
        latest = options.latest
        params = encode(codec(latest), payload_of(InitializeRequest, latest.name, self.capabilities, self.info))
        limit = self._timeout(options.initialize_timeout if isinstance(timeout, Default) else timeout)
        id, method = self._outgoing.next_id, METHODS["initialize"]
        request, text = self._new_request(id, method.name, method, params, cookie, None, progress=False)
        self._send_request(request, text, limit, now)
        if self._allows(Input.SEND_INITIALIZE):
            # It did not fill the output over its limit, which would have been the end.
            self._step(Input.SEND_INITIALIZE)
        if self._observers:
            self._tell_call("send_initialize", timeout=timeout, cookie=cookie)
        return id

    def reset_session(self, now: float) -> None:
        """Forget the session: the server does not know it any more (SESS-06). ``send_initialize`` may follow.

        For transports whose sessions can end before their channel. Outgoing requests fail as lost. Incoming ones end,
        each with a ``CancelReceived``; answers to them and waiting output are dropped quietly. Ids go on counting.
        Until the next handshake ``revision`` and ``peer`` are those of the last one. Does nothing before
        ``send_initialize``, and once the connection is closing. Drain the events, re-arm the deadline.
        """
        self._advance(now)
        self._receive_all()
        self._lose_session(None)
        if self._observers:
            self._tell_call("reset_session")

    def hold(self, now: float) -> None:
        """Stop the timeouts of all requests, while a person is asked to log in. Twice is as once.

        Requests that are sent before ``release`` have their whole time after it. The grace of ``close`` goes on.
        Re-arm the deadline.
        """
        self._advance(now)
        self._outgoing.hold(self._channel.now)
        if self._observers:
            self._tell_call("hold")

    def release(self, now: float) -> None:
        """Let the timeouts of requests go on with what was left of them at ``hold``. Re-arm the deadline."""
        self._advance(now)
        self._outgoing.release(self._channel.now)
        if self._observers:
            self._tell_call("release")

    # With Options.reopens the end of a channel, or of a silent peer, is the end of the session only

    def _lose_channel(self, cause: BaseException | None) -> None:
        if not self._options.reopens or not self._lose_session(cause):
            super()._lose_channel(cause)

    def _give_up(self, reason: CloseReason, cause: RequestTimeout) -> None:
        if not self._options.reopens or not self._lose_session(cause):
            super()._give_up(reason, cause)

    def _lose_session(self, cause: BaseException | None) -> bool:
        """Return to the phase before the handshake, if there is a session to lose; return whether there was."""
        if not self._allows(Input.RECV_SESSION_LOSS):
            return False
        channel = self._channel
        self._step(Input.RECV_SESSION_LOSS)
        self._lose_outgoing(CloseReason.LOST, cause)
        for request in self._incoming:
            self._events.append(CancelReceived(request.id, "the session ended", {}))
        self._drop_incoming()
        channel.outbox.clear()
        channel.inbox.restart()
        channel.timers.clear(KEEP_ALIVE_TIMER)
        return True

    # The answer to initialize

    def _receive_result(self, message: jsonrpc.Result, via: Hashable) -> None:
        request = self._initialize_of(message.id)
        if request is None:
            super()._receive_result(message, via)
            return
        offered = message.result.get("protocolVersion")
        # One that is not a string has no codec; any codec finds the fault.
        revision = Revision.parse(offered) if isinstance(offered, str) else self._options.latest
        if revision is None or revision not in self._options.revisions:
            self._refuse_version(request, message, str(offered))
            return
        odd: list[str] = []
        try:
            result = codec(revision).decode(message.result, InitializeResult, odd)
        except InvalidMessage as error:
            self._fail_unreadable(request, error, message.raw)
            return
        if odd:
            self._report_odd("the result of initialize", odd, message.raw, via)
        self._agree(request, message, revision, result)

    def _receive_error(self, message: jsonrpc.Error, via: Hashable) -> None:
        request = self._initialize_of(message.id)
        if request is None:
            super()._receive_error(message, via)
            return
        error = RequestError(message.code, message.message, message.data)
        self._fail(request, RequestInput.RECV_ERROR, error, message.raw)
        supported = message.data.get("supported") if isinstance(message.data, dict) else None
        if message.code == ErrorCode.INVALID_PARAMS and isinstance(supported, list):
            # The other way to say that there is no revision in common (LIFE-05).
            offered = ", ".join(map(str, supported))[:QUOTE]
            self._events.append(VersionMismatched(self._options.latest.name, offered))
            self._finish(Input.SEND_ABORT, CloseReason.VERSION_MISMATCH, error)
        else:
            self._finish(Input.SEND_ABORT, CloseReason.HANDSHAKE_FAILED, error)

    def _fail_unreadable(self, request: OutgoingRequest, error: InvalidMessage, raw: Any) -> None:
        super()._fail_unreadable(request, error, raw)
        if request.name == "initialize":
            self._finish(Input.SEND_ABORT, CloseReason.HANDSHAKE_FAILED, error)

    def _initialize_of(self, id: int | str | None) -> OutgoingRequest | None:
        """Return our ``initialize`` if ``id`` names it."""
        if self.phase is not Phase.INITIALIZING or not isinstance(id, int):
            return None
        request = self._outgoing.get(id)
        return request if request is not None and request.name == "initialize" else None

    def _agree(
        self, request: OutgoingRequest, message: jsonrpc.Result, revision: Revision, result: InitializeResult
    ) -> None:
        info, capabilities, hint = result.server_info, result.capabilities, result.instructions
        self._step(Input.RECV_INITIALIZE_RESULT)
        self._dialogue.instructions = hint
        self._settle(RequestContext(revision.era, revision, capabilities, info, None, None, None))
        self._outgoing.finish(request, RequestInput.RECV_RESULT)
        self._events.append(Negotiated(revision, info, capabilities, hint, message.raw, request.id, request.cookie))
        text = jsonrpc.encode_notification("notifications/initialized", None)
        self._channel.outbox.put(text, Kind.NOTIFICATION)
        self._check_outbox()

    def _refuse_version(self, request: OutgoingRequest, message: jsonrpc.Result, offered: str) -> None:
        """Disconnect from a server whose revision this client does not speak (LIFE-06, LIFE-23)."""
        requested = self._options.latest.name
        known = ", ".join(revision.name for revision in self._options.revisions)
        error = ConnectFailed(f"the server speaks revision {offered!r:.100}, this client {known}")
        self._fail(request, RequestInput.RECV_ERROR, error, message.raw)
        self._events.append(VersionMismatched(requested, offered))
        self._finish(Input.SEND_ABORT, CloseReason.VERSION_MISMATCH, error)
