"""The server's end of a conversation."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from mcpio._checks import checked
from mcpio.codec import codec
from mcpio.engine.channel import KEEP, Kind
from mcpio.engine.connection import Connection
from mcpio.engine.envelope import UNKNOWN, invalid_params, unsupported_version
from mcpio.engine.gates import DISCOVER, UNKNOWN_CLIENT, in_handshake
from mcpio.engine.limits import request_size
from mcpio.engine.options import Options
from mcpio.engine.payloads import encode, internal_error, payload_of, to_json
from mcpio.engine.table import Input, Life, Phase, RequestInput, Role
from mcpio.errors import ErrorCode, InvalidMessage, LocalProtocolError, RequestError
from mcpio.events import Answered, CancelReceived, IncomingId, Negotiated, RequestContext
from mcpio.framing import jsonrpc
from mcpio.methods import METHODS
from mcpio.methods import Kind as MethodKind
from mcpio.revisions import REV_2026_07_28, STATELESS_REVISIONS, Revision
from mcpio.types.base import META_PROTOCOL_VERSION
from mcpio.types.features import (
    ClientCapabilities,
    Implementation,
    InitializeRequest,
    InitializeResult,
    ServerCapabilities,
)

if TYPE_CHECKING:
    from mcpio.engine.pending import IncomingDialogue, IncomingRequest
    from mcpio.engine.snapshot import IncomingState, SessionState
    from mcpio.engine.stateless import StatelessServer

__all__ = ["ServerConnection"]


class ServerConnection(Connection):
    """A server: it waits for ``initialize``, answers it automatically, and reports ``Negotiated``.

    Bytes go in by ``receive_data``, events come out of ``events()``, bytes to write out of ``data_to_send()``; time
    goes in with every call and comes out of ``next_deadline()``. It reads no clock and waits for nothing.
    """

    __slots__ = ("_served", "instructions", "principal")

    role = Role.SERVER
    _capabilities_type = ServerCapabilities
    _peer_capabilities_type = ClientCapabilities

    principal: Hashable
    """The principal that was authenticated before the connection came here; goes into every ``RequestContext``."""

    def __init__(
        self,
        info: Implementation,
        capabilities: ServerCapabilities | None = None,
        *,
        instructions: str | None = None,
        principal: Hashable = None,
        options: Options | None = None,
        can_reach: Callable[[Hashable], bool] | None = None,
    ) -> None:
        """``capabilities`` declare what this server offers; requests for anything else are answered with -32601."""
        declared = ServerCapabilities() if capabilities is None else capabilities
        # Made by the first request that may be a stateless one, and again when what is declared changes.
        self._served: StatelessServer | None = None
        super().__init__(info, declared, options=options, can_reach=can_reach)
        self.instructions = checked("instructions", instructions, str)
        self.principal = principal

    def skip_handshake(
        self,
        revision: Revision,
        *,
        capabilities: ClientCapabilities | None = None,
        info: Implementation | None = None,
    ) -> None:
        """Continue as after a handshake, if another connection performed it or each request stands alone.

        Without ``capabilities`` those of the client are unknown: it can be asked for nothing, but error -32042 may
        answer its requests (ELIC-17).
        Raises ``LocalProtocolError`` for a revision that is not among the options', and once the handshake began.
        """
        if revision not in self._options.handshake_revisions:
            raise LocalProtocolError(f"revision {revision} is not spoken here")
        if not self._allows(Input.SEND_SKIP):
            raise LocalProtocolError(f"cannot skip the handshake in phase {self.phase.value}")
        self._step(Input.SEND_SKIP)
        client = UNKNOWN if info is None else info
        declared = UNKNOWN_CLIENT if capabilities is None else capabilities
        self._settle(RequestContext(revision.era, revision, declared, client, None, self.principal, None))
        if self._observers:
            settled = self._dialogue.codec
            self._tell_call(
                "skip_handshake",
                revision=revision.name,
                capabilities=None if capabilities is None else encode(settled, capabilities),
                info=None if info is None else encode(settled, info),
            )

    # Stateless requests

    @property
    def _spoken(self) -> Revision | None:
        return self.revision or (None if self._served is None else self._served.envelopes.revision)

    @property
    def _stateless(self) -> StatelessServer | None:
        """What serves the requests of the stateless era, if it is spoken here."""
        own: Any = self._capabilities
        served = self._served
        if served is not None and served.declared is own:
            return served
        if not self._options.stateless_revisions:
            return None
        from mcpio.engine.stateless import StatelessServer

        self._served = StatelessServer(self.info, own, self._options)
        return self._served

    def _is_served(self, message: jsonrpc.Request, text: bytes | str, via: Hashable) -> bool:
        """Serve a stateless request, or leave one of the handshake era to the base class; return whether it is done."""
        # The era is that of the request, in any phase of the handshake (ERA-10, ERA-14): one that has an envelope, or
        # could have no other meaning, is stateless.
        name, meta = message.method, message.params.get("_meta")
        has_envelope = meta.__class__ is dict and META_PROTOCOL_VERSION in meta
        is_initialize = name == "initialize" and not has_envelope
        if is_initialize and self._options.handshake_revisions:
            return super()._is_served(message, text, via)
        # Looked at first, so that a connection that is asked for no such request holds nothing for them.
        is_stateless = has_envelope or _is_stateless(name, self._options)
        served = self._served if is_stateless else None
        try:
            if is_stateless and (served is None or served.declared is not self._capabilities):
                served = self._stateless
        except LocalProtocolError as fault:
            self._refuse(message, internal_error(fault), via)
            return True
        if served is None:
            return super()._is_served(message, text, via)
        try:
            self._serve(served, message, text, via)
        except RequestError as error:
            if name == "initialize" and (is_initialize or error.code == ErrorCode.METHOD_NOT_FOUND):
                # A client of the handshake era learns which revisions are served (VER-07).
                why = unsupported_version(message.params.get("protocolVersion"), self._options.revisions)
                error = why if is_initialize else RequestError(error.code, error.message, why.data)
            self._refuse(message, error, via)
        return True

    def _serve(self, served: StatelessServer, message: jsonrpc.Request, text: bytes | str, via: Hashable) -> None:
        """Serve a stateless request. Raises RequestError with the answer to one that is refused."""
        name, incoming, channel = message.method, self._incoming, self._channel
        envelope = served.envelopes.read(message.params)
        row = served.row(name, None if channel.life is Life.OPEN else "closing")
        if name == DISCOVER:
            answer = served.discovery(message, self.instructions)
            self._events.append(Answered(name, None, message.raw, via))
            self._answer(answer, via)
            return
        if (incoming.running is not None or not channel.limits.incoming_requests) and (
            why := self._why_not_beside(message, via)
        ):
            raise why
        sender = self.principal if self._sender is KEEP else self._sender
        id, size = IncomingId(incoming.next), request_size(text, channel.limits, channel.held.requests)
        odd = self._oddities()
        record, request = served.admit(message, row, envelope, id, via, sender, size, odd)
        self._begin(record, request, message)

    def _dialogue_and_context(self, state: IncomingState) -> tuple[IncomingDialogue, RequestContext]:
        """Return the dialogue and the context of a running request; a stateless one is recognised by its envelope."""
        if state.envelope is None:
            return super()._dialogue_and_context(state)
        stateless = self._stateless
        if stateless is None:
            raise LocalProtocolError("the snapshot has stateless requests: options must have their revision")
        try:
            envelope = stateless.envelopes.read({"_meta": state.envelope})
        except RequestError as error:
            raise LocalProtocolError(f"malformed snapshot: {error.message}") from error
        revision, level = envelope.revision, envelope.log_level
        context = RequestContext(
            revision.era, revision, envelope.capabilities, envelope.info, level, self.principal, state.via
        )
        if state.listening is None:
            return stateless, context
        from mcpio.engine.stateless import Listening

        listening = Listening(stateless, state.listening.asked)
        listening.honoured = state.listening.honoured
        return listening, context

    def _end_subscriptions(self) -> None:
        if not self._options.stateless_revisions:
            return
        from mcpio.engine.stateless import Listening

        for request in self._incoming:
            if not isinstance(request.dialogue, Listening):
                continue
            what, text = request.dialogue.closing_answer(request)
            # To the program it is as if the client had ended it: an answer all the same is dropped.
            self._incoming.finish(request, RequestInput.RECV_CANCEL)
            self._channel.outbox.put(text, Kind.RESPONSE, via=request.via, related=request.id, last=True)
            self._end_subscription(request, what)
            self._events.append(CancelReceived(request.id, "the connection is closing", {}))

    def _end_subscription(self, request: IncomingRequest, what: RequestInput) -> None:
        if what is not RequestInput.SEND_RESULT or request.via is not None:
            return
        # After the result, since clients take a cancellation that comes first for a lost subscription (SUB-08).
        text = jsonrpc.encode_notification("notifications/cancelled", {"requestId": request.wire_id})
        self._channel.outbox.put(text, Kind.NOTIFICATION, lane=request.id)

    # The handshake

    def _receive_initialize(self, message: jsonrpc.Request, via: Hashable) -> None:
        """Answer ``initialize``, and settle the revision and the client's capabilities. Refuses a second one."""
        if not self._allows(Input.RECV_INITIALIZE):
            self._refuse(message, self._why_no_handshake(), via)
            return
        revision = self._choose(message.params.get("protocolVersion"))
        odd = self._oddities()
        try:
            request = codec(revision).decode(message.params, InitializeRequest, odd)
        except InvalidMessage as error:
            self._refuse(message, invalid_params(error), via)
            return
        try:
            result = payload_of(
                InitializeResult, revision.name, in_handshake(self.capabilities), self.info, self.instructions
            )
            text = to_json(jsonrpc.encode_result, message.id, encode(codec(revision), result))
        except LocalProtocolError as fault:
            self._refuse(message, internal_error(fault), via)
            return
        # The answer is written, so nothing can fail any more: the session begins before its events are reported.
        self._step(Input.RECV_INITIALIZE)
        if odd:
            self._report_odd("initialize", odd, message.raw, via)
        info, capabilities = request.client_info, request.capabilities
        self._settle(RequestContext(revision.era, revision, capabilities, info, None, self.principal, None))
        self._events.append(Negotiated(revision, info, capabilities, None, message.raw))
        # Not in the lane of answers: notifications, which have no request either, must not overtake this one.
        self._channel.outbox.put(text, Kind.RESPONSE, via=via, last=True)
        self._check_outbox()

    def _why_no_handshake(self) -> RequestError:
        if self.phase is Phase.CLOSING:
            return RequestError(ErrorCode.INVALID_REQUEST, "Invalid request: closing", {"reason": "closing"})
        code = self._code("initialized already")
        return RequestError(code, "Invalid request: the session is initialized already")

    def _choose(self, requested: object) -> Revision:
        """Return the requested revision if it is one of the handshake's, or else our newest (LIFE-05, ERA-11)."""
        revision = Revision.parse(requested) if isinstance(requested, str) else None
        return (
            revision if revision is not None and revision in self._options.handshake_revisions else self._options.latest
        )

    def _load(self, state: SessionState, now: float, principal: Hashable) -> None:
        self.principal, self.instructions = principal, state.instructions
        super()._load(state, now, principal)
        if state.spoken is not None:
            revision = {each.name: each for each in STATELESS_REVISIONS}[state.spoken]
            stateless = self._stateless
            if stateless is not None:
                stateless.envelopes.revision = revision


def _is_stateless(name: str, options: Options) -> bool:
    """Return whether a request without an envelope is stateless: no other revision has it, or none is spoken."""
    method = METHODS.get(name)
    is_new = method is not None and method.kind is MethodKind.REQUEST and method.since >= REV_2026_07_28
    return is_new or not options.handshake_revisions
