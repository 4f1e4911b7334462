"""The engine of all stateless requests of one server, whatever carries them (2026-07-28).

It has no phase, no input and no output of its own: a request comes with its message, and what is said for it goes to
its carrier. Requests share nothing but the table of those that run, which knows them by ids of this side (P7).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, NoReturn, Protocol

from mcpio._checks import checked, chosen
from mcpio.codec import BoundedOddities
from mcpio.engine.answers import Answers
from mcpio.engine.connection import ConnectionStats
from mcpio.engine.envelope import Envelope
from mcpio.engine.gates import DISCOVER
from mcpio.engine.limits import Held, request_size
from mcpio.engine.options import Options
from mcpio.engine.payloads import check_declared, to_json
from mcpio.engine.pending import IncomingRequest, Pending, RunningRequests, Unanswered
from mcpio.engine.stateless import Listening, StatelessServer
from mcpio.engine.table import Phase, RequestInput, Role
from mcpio.errors import LocalProtocolError, NoBackChannel, RequestError
from mcpio.events import (
    Answered,
    CancelReceived,
    CloseReason,
    ConnectionClosed,
    IncomingId,
    RequestReceived,
)
from mcpio.framing import jsonrpc
from mcpio.types.features import Implementation, ServerCapabilities

__all__ = ["Carrier", "StatelessEngine"]

_RECV_CANCEL: Final = RequestInput.RECV_CANCEL
_SEND_ERROR: Final = RequestInput.SEND_ERROR


class Carrier(Protocol):
    """Where the output of one stateless request goes: over HTTP, the response to its POST.

    It is the ``via`` of its request.
    """

    def __hash__(self) -> int:
        """Return the hash of this object, no matter what it holds."""

    def put(self, text: bytes, kind: int, key: Hashable) -> None:
        """Send a notification, under the policy of ``outbox.Kind`` and ``key``."""

    def answer(self, text: bytes, *, is_error: bool) -> None:
        """Send the answer, which is the last message."""

    @property
    def takes_notifications(self) -> bool:
        """Whether the client takes any message before the answer."""

    @property
    def held(self) -> Held:
        """The bytes held for the request, as they are now."""


class StatelessEngine(Answers):
    """Admits stateless requests, and sends their answers. It has the verbs of a connection that answer requests.

    What a request may do depends on its envelope alone, and a fault in one never reaches another.
    """

    __slots__ = (
        "_capabilities",
        "_held",
        "_told",
        "dropped_logs",
        "end",
        "info",
        "instructions",
        "is_closing",
        "last_received_at",
        "received_bytes",
        "sent_bytes",
        "served",
    )

    role: Final = Role.SERVER
    revision: Final = None
    peer: Final = None
    principal: Final = None
    has_room: Final = True
    """A carrier that does not take its output holds up no other."""

    info: Implementation
    """The name and version of this server."""
    instructions: str | None
    """The hint for the client's model in the result of ``server/discover``."""
    served: StatelessServer
    """What is served, and the form of results."""
    is_closing: bool
    """Whether ``close`` was called."""
    end: ConnectionClosed | None
    """How it ended; ``None`` before that."""
    last_received_at: float | None
    """When the last request came, on the caller's clock."""
    received_bytes: int
    """Bytes of the messages that came."""
    sent_bytes: int
    """Bytes of the messages that were sent."""
    dropped_logs: int
    """How many log messages carriers dropped because their clients did not read."""

    def __init__(
        self,
        info: Implementation,
        capabilities: ServerCapabilities | None = None,
        *,
        instructions: str | None = None,
        options: Options | None = None,
    ) -> None:
        """``capabilities`` declare what is offered; requests for anything else are refused. One revision is needed."""
        self.info = info
        self.instructions = checked("instructions", instructions, str)
        self._incoming = RunningRequests()
        self._observers = None
        self._held = Held()
        self._told: list[tuple[bytes, Carrier]] = []  # for observers: what was sent by the verb that runs
        self.is_closing = False
        self.end = None
        self.last_received_at = None
        self.received_bytes = self.sent_bytes = self.dropped_logs = 0
        self.offer(ServerCapabilities() if capabilities is None else capabilities, chosen("options", options, Options))

    def offer(self, capabilities: ServerCapabilities, options: Options) -> None:
        """Serve this from now on. Requests that run keep to what they were admitted by."""
        check_declared(self.info, capabilities, ServerCapabilities)
        self._capabilities = capabilities
        self._options = options
        self.served = StatelessServer(self.info, capabilities, options)

    # Requests

    def receive(
        self,
        message: jsonrpc.Request,
        text: bytes,
        envelope: Envelope,
        carrier: Carrier,
        principal: Hashable,
        now: float,
        check: Callable[[], None] | None = None,
    ) -> RequestReceived | None:
        """Admit a request, whose envelope was read; return the event, or ``None`` if it was answered at once.

        ``check`` may refuse it last, by what the transport knows.

        Raises RequestError with the answer to a request that is refused.
        """
        self.last_received_at = now
        self.received_bytes += len(text)
        if self._observers:
            self._tell("message_received", text, carrier)
            self._tell_call("receive_message", text=text, via=carrier)
        event, served, limits = None, self.served, self._options.limits
        try:
            row = served.row(message.method)
            if message.method == DISCOVER:
                answer = served.discovery(message, self.instructions)
                self.sent_bytes += len(answer)
                carrier.answer(answer, is_error=False)
            else:
                # No request to a server is read without a malformed member, so only the count of items matters.
                odd = BoundedOddities(limits.message_items) if len(text) > limits.message_items else []
                id, size = IncomingId(self._incoming.next), request_size(text, limits)
                record, request = served.admit(message, row, envelope, id, carrier, principal, size, odd)
                if check is not None:
                    check()
                self._incoming.add(record)
                self._held.requests += size
                event = RequestReceived(id, request, record.context, message.raw, False)
        except RequestError as refusal:
            if self._observers:
                self._tell("event", Answered(message.method, refusal, message.raw, carrier))
            raise
        if self._observers:
            self._tell("event", event or Answered(message.method, None, message.raw, carrier))
        return event

    def cancel(self, id: IncomingId, reason: str) -> CancelReceived | None:
        """End a request that nobody waits for any more; return the event, or ``None`` if it was answered."""
        request = self._incoming.get(id)
        if request is None:
            return None
        self._retire(request)
        raw = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request.wire_id}}
        event = CancelReceived(id, reason, raw)
        if self._observers:
            # For a replay, that its exchange is over is what a client says elsewhere by this message.
            self._tell_call("receive_message", text=to_json(jsonrpc.encode_notification, *_read(raw)), via=request.via)
            self._tell("event", event)
        return event

    def send_notification(self, notification: Any, *, related_to: IncomingId | None = None) -> None:
        """Send a notification that belongs to a request. Dropped quietly when that is over.

        Raises ``LocalProtocolError``, and changes nothing, where the revision or the capabilities forbid it, and
        without ``related_to``; ``NoBackChannel`` where the client takes no message before the answer.
        """
        if related_to is None:
            raise LocalProtocolError("there is no session: a notification belongs to a request, or a subscription")
        request = self._to_answer(related_to)
        if request is not None:
            self._notify_within(request, notification)

    def send_request(self, request: Any, *_: Any, **__: Any) -> NoReturn:
        """Raise LocalProtocolError: a stateless client is asked by the result of its call."""
        raise LocalProtocolError(f"cannot send a {type(request).__name__}: ask by an InputRequiredResult")

    # The end

    def close(self) -> list[CancelReceived]:
        """End the subscriptions, which would run for ever (SUB-08). The caller admits no further requests."""
        self.is_closing = True
        events = []
        for request in self._incoming:
            if isinstance(request.dialogue, Listening):
                what, text = request.dialogue.closing_answer(request)
                # To the program it is as if the client had ended it: an answer all the same is dropped.
                self._retire(request)
                events.append(CancelReceived(request.id, "the connection is closing", {}))
                self.sent_bytes += len(text)
                self._carrier(request).answer(text, is_error=what is _SEND_ERROR)
        if self._observers:
            self._tell_call("close", grace=None)
            for event in events:
                self._tell("event", event)
        return events

    def finish(self) -> None:
        """Note that no request runs any more, after ``close``."""
        self.end = ConnectionClosed(CloseReason.CLOSED, None)
        if self._observers:
            self._tell_call("abort", cause=None, close_reason=CloseReason.CLOSED.name)
            self._tell("event", self.end)

    # Look

    @property
    def capabilities(self) -> ServerCapabilities:
        """What is offered."""
        return self._capabilities

    @property
    def options(self) -> Options:
        """The options that the caller chose."""
        return self._options

    @property
    def phase(self) -> Phase:
        """``OPERATING``, ``CLOSING`` or ``CLOSED``."""
        return _CLOSED if self.end is not None else _CLOSING if self.is_closing else _OPERATING

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self.end is not None

    @property
    def serving(self) -> int:
        """How many requests run."""
        return len(self._incoming)

    @property
    def pending(self) -> Pending:
        """The requests that have no outcome yet."""
        return Pending((), tuple(request.id for request in self._incoming))

    @property
    def unanswered(self) -> tuple[Unanswered, ...]:
        """The requests that wait for an answer."""
        return tuple(Unanswered(each.id, each.name, each.via, each.context, each.raw) for each in self._incoming)

    def is_pending(self, id: IncomingId) -> bool:
        """Return whether a request has no answer yet."""
        return self._incoming.get(id) is not None

    def size_of(self, id: IncomingId) -> int:
        """Return how many bytes the parameters of a request take; 0 for one that is over."""
        request = self._incoming.get(id)
        return 0 if request is None else request.size

    def held_for(self, id: IncomingId) -> Held:
        """Return the bytes held for a request; those of a request that is over count for nothing."""
        request = self._incoming.get(id)
        return Held() if request is None else self._carrier(request).held

    @property
    def held(self) -> Held:
        """The bytes held for the requests that run. What waits for a client to read is in ``held_for``."""
        return self._held

    @property
    def stats(self) -> ConnectionStats:
        """The counters, as they are now."""
        queued = sum(self._carrier(request).held.output for request in self._incoming)
        return ConnectionStats(self.received_bytes, self.sent_bytes, queued, self.dropped_logs)

    def snapshot(self, now: float, *, cookies: Callable[[Any], int | str | None] | None = None) -> dict[str, Any]:
        """Return the state with which a connection serves the same: where a recording begins."""
        del cookies  # there are no outgoing requests
        from mcpio.engine.server import ServerConnection  # few are ever recorded

        return ServerConnection(
            self.info, self._capabilities, instructions=self.instructions, options=self._options
        ).snapshot(now)

    # Inside

    def _retire(self, request: IncomingRequest) -> None:
        """End a request without an answer of the program's."""
        self._incoming.finish(request, _RECV_CANCEL)
        self._held.requests -= request.size

    def _to_answer(self, id: IncomingId) -> IncomingRequest | None:
        incoming = self._incoming
        request = incoming.get(id)
        if request is None:
            key: object = id  # a caller may have mistaken it
            if not isinstance(key, int) or not 1 <= key < incoming.next:
                raise LocalProtocolError(f"there never was a request {id!r}")
            if incoming.was_answered(id):
                raise LocalProtocolError(f"the request {id!r} was answered before")
        return request

    def _respond(self, request: IncomingRequest, what: RequestInput, text: bytes) -> None:
        self._fitting(text)
        self._incoming.finish(request, what)
        self._held.requests -= request.size
        self.sent_bytes += len(text)
        carrier: Any = request.via
        if self._observers:
            self._told.append((text, carrier))
            self._tell_call("respond", id=request.id, text=text)
        carrier.answer(text, is_error=what is _SEND_ERROR)

    def _put(self, request: IncomingRequest, text: bytes, kind: int, key: Hashable = None) -> None:
        self.sent_bytes += len(text)
        carrier: Any = request.via
        carrier.put(text, kind, key)
        if self._observers:
            self._told.append((text, carrier))

    def _check_route(self, request: IncomingRequest | None) -> None:
        if request is not None and not self._carrier(request).takes_notifications:
            raise NoBackChannel("the transport has no way to the peer for the request that it belongs to")

    def _tell(self, what: str, *arguments: Any) -> None:
        for observer in self._observers or ():
            observer.tell(what, *arguments, self.last_received_at or 0.0)

    def _tell_call(self, verb: str, **arguments: Any) -> None:
        super()._tell_call(verb, **arguments)
        messages, self._told = self._told, []
        for text, carrier in messages:
            self._tell("message_sent", text, carrier)
            self._tell("called", "next_message", {"text": text, "via": carrier})

    @staticmethod
    def _carrier(request: IncomingRequest) -> Carrier:
        carrier: Any = request.via
        known_carrier: Carrier = carrier
        return known_carrier


_OPERATING, _CLOSING, _CLOSED = Phase.OPERATING, Phase.CLOSING, Phase.CLOSED


def _read(raw: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return raw["method"], raw["params"]
