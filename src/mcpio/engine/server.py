"""The server's end of a conversation."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from mcpio.codec import codec
from mcpio.engine.connection import Connection, invalid_params
from mcpio.engine.gates import UNKNOWN_CLIENT
from mcpio.engine.options import Options
from mcpio.engine.outbox import Kind
from mcpio.engine.payloads import encode, payload_of, to_json
from mcpio.engine.table import Input, Phase, Role
from mcpio.errors import ErrorCode, InvalidMessage, LocalProtocolError, RequestError
from mcpio.events import Negotiated, RequestContext
from mcpio.framing import jsonrpc
from mcpio.revisions import Revision
from mcpio.types.lifecycle import (
    ClientCapabilities,
    Implementation,
    InitializeRequest,
    InitializeResult,
    ServerCapabilities,
)

if TYPE_CHECKING:
    from mcpio.engine.snapshot import SessionState

__all__ = ["ServerConnection"]


class ServerConnection(Connection):
    """A server: it waits for ``initialize``, answers it automatically, and reports ``Negotiated``.

    Bytes go in by ``receive_data``, events come out of ``events()``, bytes to write out of ``data_to_send()``; time
    goes in with every call and comes out of ``next_deadline()``. It reads no clock and waits for nothing.
    """

    __slots__ = ("principal",)

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
        super().__init__(info, declared, options=options, can_reach=can_reach)
        self.instructions = instructions
        self.principal = principal

    def skip_handshake(
        self,
        revision: Revision,
        *,
        capabilities: ClientCapabilities | None = None,
        info: Implementation | None = None,
    ) -> None:
        """Go on as after a handshake that another connection had, or where each request stands alone.

        Without ``capabilities`` those of the client are unknown: it can be asked for nothing, but error -32042 may
        answer its requests (ELIC-17).
        Raises ``LocalProtocolError`` for a revision that is not among the options', and once the handshake began.
        """
        if revision not in self._options.revisions:
            raise LocalProtocolError(f"revision {revision} is not spoken here")
        if not self._allows(Input.SEND_SKIP):
            raise LocalProtocolError(f"cannot skip the handshake in phase {self.phase.value}")
        self._step(Input.SEND_SKIP)
        client = Implementation("unknown", "0") if info is None else info
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

    def _receive_initialize(self, message: jsonrpc.Request, via: Hashable) -> None:
        if not self._allows(Input.RECV_INITIALIZE):
            self._refuse(message, self._why_no_handshake(), via)
            return
        revision = self._choose(message.params.get("protocolVersion"))
        odd: list[str] = []
        try:
            request = codec(revision).decode(message.params, InitializeRequest, odd)
        except InvalidMessage as error:
            self._refuse(message, invalid_params(error), via)
            return
        try:
            result = payload_of(InitializeResult, revision.name, self.capabilities, self.info, self.instructions)
            text = to_json(jsonrpc.encode_result, message.id, encode(codec(revision), result))
        except LocalProtocolError as fault:
            # This side declares something that cannot be encoded: not a fault of the peer's, nor its business.
            failure = RequestError(ErrorCode.INTERNAL_ERROR, "Internal error")
            failure.__cause__ = fault
            self._refuse(message, failure, via)
            return
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
        """Return the requested revision if it is spoken here, or else our newest (LIFE-04, LIFE-05)."""
        revision = Revision.parse(requested) if isinstance(requested, str) else None
        return revision if revision is not None and revision in self._options.revisions else self._options.latest

    def _load(self, state: SessionState, now: float, principal: Hashable) -> None:
        self.principal = principal
        super()._load(state, now, principal)
