"""A client's side of the stateless era: every request carries its context, and every result names its type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcpio.codec import codec
from mcpio.engine.gates import Capabilities, check_question, decoded_error
from mcpio.engine.handshake import Handshake
from mcpio.engine.payloads import encode
from mcpio.engine.pending import OutgoingRequest
from mcpio.engine.table import Role
from mcpio.errors import InvalidMessage, RequestError
from mcpio.events import RequestContext
from mcpio.framing import jsonrpc
from mcpio.methods import declares
from mcpio.revisions import Revision
from mcpio.types.discovery import DiscoverResult
from mcpio.types.inputs import InputRequiredResult
from mcpio.types.lifecycle import ClientCapabilities, Implementation
from mcpio.types.meta import (
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_LOG_LEVEL,
    META_PROTOCOL_VERSION,
    META_SERVER_INFO,
    TASKS_EXTENSION,
)

__all__ = ["UNKNOWN_SERVER", "StatelessClient", "server_info"]

UNKNOWN_SERVER: Final = Implementation("unknown", "0")
"""The info of a server that sends no name and version."""

_COMPLETE: Final = "complete"
_INPUT_REQUIRED: Final = "input_required"
_TASK: Final = "task"


class StatelessClient(Handshake):
    """A client's knowledge of a stateless server, in place of a handshake session.

    Its phase is ``OPERATING`` as soon as the era is settled; the server never asks, so there is nothing to admit.
    """

    __slots__ = ("_envelope", "_identity", "_own", "log_level", "takes_tasks")

    log_level: str | None
    """The least severe log messages to request with each request; ``None`` for none (GONE-04)."""
    takes_tasks: bool
    """Whether a call may be answered by a task (XTASK-03)."""

    def __init__(self, info: Implementation, revision: Revision, *, identify: bool) -> None:
        super().__init__(Role.CLIENT, None)
        self.codec = codec(revision)
        self.log_level = None
        self.takes_tasks = False
        self._own: Capabilities = ClientCapabilities()
        self._identity: dict[str, Any] | None = encode(self.codec, info) if identify else None
        # The envelope of every request, made by the first one that needs it.
        self._envelope: dict[str, Any] | None = None

    def revision_of(self, name: str) -> Revision:
        """Return the revision of a snapshot: the one that is spoken."""
        return {self.codec.revision.name: self.codec.revision}[name]

    def discovered(self, result: DiscoverResult, own: ClientCapabilities) -> None:
        """Start operating, with the server's description; ``own`` are the capabilities of this side."""
        revision, info = self.codec.revision, server_info(result.meta, self.codec.revision)
        self.settle(RequestContext(revision.era, revision, result.capabilities, info, None, None, None), own)
        self.instructions = result.instructions

    def declare(self, own: Capabilities) -> None:
        """Set the capabilities of this side."""
        super().declare(own)
        self._own, self._envelope = own, None
        self.takes_tasks = declares(own, ("extensions", TASKS_EXTENSION))

    def stamped(self, params: dict[str, Any], own: Capabilities) -> dict[str, Any]:
        """Return params with the envelope (ENV-01, ENV-02, ENV-08)."""
        envelope = self._envelope
        if envelope is None:
            envelope = {
                META_PROTOCOL_VERSION: self.codec.revision.name,
                META_CLIENT_CAPABILITIES: encode(self.codec, own),
            }
            if self._identity is not None:
                envelope[META_CLIENT_INFO] = self._identity
            self._envelope = envelope
        meta = {**(params.get("_meta") or {}), **envelope}
        if self.log_level is not None:
            meta[META_LOG_LEVEL] = self.log_level
        return {**params, "_meta": meta}

    def read_result(self, request: OutgoingRequest, result: dict[str, Any], odd: list[str]) -> Any:
        """Return the typed result of a request. Raises and adds to ``odd`` as ``Codec.decode``.

        Raises RemoteProtocolError for a question that must not be asked of this side (MRTR-04).
        """
        method = request.method
        kind = result.get("resultType", _COMPLETE)  # earlier servers leave it out (ENV-11)
        if kind == _INPUT_REQUIRED and method is not None and method.may_ask:
            asked = self.codec.decode(result, InputRequiredResult, odd)
            if not asked.input_requests and asked.request_state is None:
                fault = "'input_required' needs inputRequests or requestState"
                raise InvalidMessage("", fault, self.codec.revision.name)
            for question in (asked.input_requests or {}).values():
                check_question(question, self._own, self.codec)
            return asked
        if kind == _TASK and request.name == "tools/call" and self.takes_tasks:
            from mcpio.types.task_extension import CreatedTask  # few servers have tasks

            return self.codec.decode(result, CreatedTask, odd)
        if kind != _COMPLETE:
            raise InvalidMessage(
                "resultType", f"{kind!r:.100} does not answer {request.name}", self.codec.revision.name
            )
        return result if method is None else self.codec.decode(result, method.result_type, odd)

    def read_error(self, request: OutgoingRequest, message: jsonrpc.Error) -> RequestError:
        """Return the error that answers a request."""
        return decoded_error(message.code, message.message, message.data, request.name, self.codec)


def server_info(meta: Mapping[str, Any], revision: Revision) -> Implementation:
    """Return the name and version that a result has in its ``_meta``: self-reported, and never a reason to fail."""
    said = meta.get(META_SERVER_INFO)
    try:
        return codec(revision).decode(said, Implementation) if isinstance(said, dict) else UNKNOWN_SERVER
    except InvalidMessage:
        return UNKNOWN_SERVER
