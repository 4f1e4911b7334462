"""A connection as both roles have it: what came in on one side, and the verbs that send on the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mcpio._checks import chosen
from mcpio.engine.failures import check_error
from mcpio.engine.gates import why_no_task, why_not_asked, why_not_sent
from mcpio.engine.limits import DEFAULT, Default, Timeout
from mcpio.engine.options import Options
from mcpio.engine.outbox import Kind as Queued
from mcpio.engine.payloads import (
    check_meta,
    coalescing_key,
    encode,
    encode_error,
    is_created_task,
    is_notification,
    method_to_send,
    payload_of,
    related_task_of,
    to_json,
    with_progress_token,
    with_related_task,
)
from mcpio.engine.pending import NOT_YET, IncomingRequest, OutgoingRequest, Pending, Unanswered
from mcpio.engine.stateful import Stateful
from mcpio.engine.table import Input, Phase, RequestInput
from mcpio.errors import (
    ConnectionLost,
    LocalProtocolError,
    McpError,
    MessageTooLarge,
    NoBackChannel,
    OutputFull,
    RequestCancelled,
    RequestError,
    RequestTimeout,
)
from mcpio.events import CloseReason, IncomingId, OutgoingId, Peer
from mcpio.framing import jsonrpc
from mcpio.methods import Kind, Method
from mcpio.types.lifecycle import CancelledNotification, Implementation, PingRequest, ProgressNotification

__all__ = ["DEFAULT", "Connection", "Default"]

# Found once, since every message needs them: see the same in ``channel``.
_SEND_PING, _SEND_REQUEST, _SEND_RESULT = Input.SEND_PING, Input.SEND_REQUEST, RequestInput.SEND_RESULT

_LOG = "notifications/message"


class Connection(Stateful):
    """One end of a conversation. See ``ClientConnection`` and ``ServerConnection``.

    The obligation, after every call that is not a mere look: *drain the events, write the chunks, re-arm the deadline.*
    """

    __slots__ = ()

    def __init__(self, info: Implementation, capabilities: Any, *, options: Options | None = None) -> None:
        super().__init__(info, capabilities, chosen("options", options, Options))

    # Requests of our own

    def send_request(
        self,
        request: Any,
        *,
        now: float,
        timeout: Timeout | float | Default | None = DEFAULT,
        cookie: Any = None,
        related_to: IncomingId | None = None,
        progress: bool = False,
    ) -> OutgoingId:
        """Ask the peer. Exactly one ``ResponseReceived`` or ``RequestFailed`` will carry the id that is returned.

        The method follows from the request's type; a ``CustomRequest`` names its own. One with ``task`` asks to become
        a task, where the peer declared that it takes that (2025-11-25): its result is then a ``CreateTaskResult``, or
        the plain one from a peer that would not (TASK-03), and progress goes on until the task is over. ``timeout`` is
        in seconds, or a ``Timeout``, or ``None`` for no limit. ``cookie`` comes back in the events of this request.
        ``related_to`` is the peer's running request on whose behalf this one is sent. ``progress`` asks for
        ``ProgressReceived``.

        Raises ``LocalProtocolError``, and changes nothing, where the phase, the revision, the capabilities or the
        limits forbid it; ``OutputFull`` while too many requests wait to be written; and ``NoBackChannel`` once the
        connection is closing: no answer can come any more (P11).
        Drain the events, write the chunks, re-arm the deadline.
        """
        limit = self._timeout(timeout)
        self._check_room()
        method, name, params = self._checked_request(request)
        parent = None if related_to is None else self._running(related_to)
        self._check_route(parent)
        made, text = self._new_request(self._outgoing.next_id, name, method, params, cookie, parent, progress)
        return self._send_request(made, text, limit, now)

    def send_batch(
        self, items: Iterable[Any], *, now: float, related_to: IncomingId | None = None
    ) -> tuple[OutgoingId | None, ...]:
        """Send requests and notifications in one array, which 2025-03-26 has and no other revision (BATCH-01).

        An item is a payload, or a ``BatchItem`` that gives a request its timeout, its cookie or progress. Returns the
        ids of the requests, and ``None`` in the places of notifications. From here on each request is one of its own,
        with an outcome of its own (BATCH-07), however the peer answers. ``related_to`` is the peer's running request
        that all belong to. Raises as ``send_request`` does, and then nothing of it was sent.
        Drain the events, write the chunks, re-arm the deadline.
        """
        from mcpio.engine.batches import as_item

        batch = [as_item(item) for item in items]
        self._check_batch(len(batch))
        self._check_room()
        parent = None if related_to is None else self._running(related_to)
        self._check_route(parent)
        asked: list[tuple[OutgoingRequest, Timeout]] = []
        texts: list[bytes] = []
        ids: list[OutgoingId | None] = []
        for item in batch:
            id = None if is_notification(item.payload) else OutgoingId(self._outgoing.next_id + len(asked))
            ids.append(id)
            if id is None:
                _, name, params = self._checked_notification(item.payload)
                texts.append(self._notification_text(name, params))
                continue
            method, name, params = self._checked_request(item.payload, len(asked))
            request, text = self._new_request(id, name, method, params, item.cookie, parent, item.progress)
            asked.append((request, self._timeout(item.timeout)))
            texts.append(text)
        batch_text = self._fitting(b"[" + b",".join(texts) + b"]")
        self._advance(now)
        for request, timeout in asked:
            self._outgoing.add(request, timeout, self._now)
        kind = Queued.REQUEST if asked else Queued.NOTIFICATION
        via = None if parent is None else parent.via
        named = tuple(request.id for request, _ in asked)
        self._outbox.put(batch_text, kind, via=via, related=related_to, asked=named)
        self._check_outbox()
        return tuple(ids)

    def cancel_request(self, id: OutgoingId, reason: str | None = None) -> bool:
        """Give up a request of our own: it fails with ``RequestCancelled``, and the peer is told.

        One that asks for a task is cancelled with the task, by ``tasks/cancel``, where the peer takes that, as soon as
        the task has an id (CANC-04): also after its outcome, which was that id, if the task goes on.
        Returns whether there was something to give up; what is over is left alone. Raises
        ``LocalProtocolError`` for an id that was never given out, and for ``initialize`` (LIFE-19).
        Drain the events, write the chunks, re-arm the deadline.
        """
        request = self._outgoing.get(id)
        if request is None:
            if self._outgoing.state_of(id) is None:
                raise LocalProtocolError(f"there never was a request {id!r}")
            return self._give_up_task(id)
        if request.name == "initialize":
            raise LocalProtocolError("initialize cannot be cancelled: close the connection instead")
        text = self._cancellation(request, reason)
        self._fail(request, RequestInput.SEND_CANCEL, RequestCancelled(request.name, reason))
        self._send_cancelled(request, text)
        return True

    def fail_request(self, id: OutgoingId, error: McpError, now: float) -> bool:
        """End a request of our own with ``error``: for transports that know that no answer to it can come any more.

        The peer is told nothing. Returns whether it was still running. Drain the events, re-arm the deadline.
        """
        self._advance(now)
        request = self._outgoing.get(id)
        if request is not None:
            self._fail(request, RequestInput.RECV_LOSS, error)
        return request is not None

    def is_pending(self, id: OutgoingId | IncomingId) -> bool:
        """Return whether a request has no outcome yet: one of our own, or one of the peer's by an ``IncomingId``."""
        table = self._incoming if isinstance(id, IncomingId) else self._outgoing
        return table.get(id) is not None

    # Answers

    def send_result(self, id: IncomingId, result: Any) -> None:
        """Answer a request of the peer's with its typed result, or with a mapping for a ``CustomRequest``.

        One that asked to become a task may be answered with a ``CreateTaskResult`` instead (TASK-09).
        Dropped quietly when the peer cancelled the request, or the connection ended, in the meantime. Raises
        ``LocalProtocolError``, and changes nothing, for a request that was answered before (as far as that is
        remembered) or never came, and for a result of the wrong type. Drain the events, write the chunks.
        """
        request = self._incoming.get(id) or self._to_answer(id)
        if request is None:
            return
        method = request.method
        if method is None:
            if not isinstance(result, Mapping):
                raise LocalProtocolError(f"the result of {request.name} must be a mapping, not {type(result).__name__}")
            check_meta(result)
            raw: Mapping[str, Any] = result
        elif isinstance(result, method.result_type) or (request.wants_task and is_created_task(result)):
            raw = encode(self._codec, result)
        else:
            wanted, got = method.result_type.__name__, type(result).__name__
            raise LocalProtocolError(f"the result of {request.name} must be a {wanted}, not a {got}")
        if request.task is not None:
            raw = with_related_task(raw, request.task)
        if self._accent is not None:
            raw = self._accent.result(request.name, raw)
        self._respond(request, _SEND_RESULT, to_json(jsonrpc.encode_result, request.wire_id, raw))

    def send_raw_result(self, id: IncomingId, result: bytes) -> None:
        """Answer with a result that is JSON already: an object, passed on as it is. Otherwise like ``send_result``."""
        request = self._to_answer(id)
        if request is not None:
            text = to_json(jsonrpc.encode_raw_result, request.wire_id, result)
            self._respond(request, _SEND_RESULT, text)

    def send_error(self, id: IncomingId, error: RequestError) -> None:
        """Answer a request of the peer's with an error. Otherwise like ``send_result``.

        Error -32042 needs a peer that declared ``elicitation.url``, and data that names addresses (ELIC-17).
        """
        request = self._to_answer(id)
        if request is not None:
            check_error(error, self._context, self._codec)
            self._respond(request, RequestInput.SEND_ERROR, encode_error(request.wire_id, error))

    def send_progress(
        self, id: IncomingId, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report how far a request of the peer's is. Does nothing when the peer did not ask, or wants no answer.

        ``message`` is text for people; it is left out in 2024-11-05, which has none (PROG-02). Raises
        ``LocalProtocolError`` for what is no number or text, when ``progress`` does not increase (PROG-04), and when
        the request was answered (PROG-03). Drain the events, write the chunks.
        """
        request = self._to_answer(id)
        if request is None:
            return
        # What cannot be said is refused where nobody asked too, or it would be found out by the first peer that asks.
        token = 0 if request.token is None else request.token
        params = encode(self._codec, payload_of(ProgressNotification, token, progress, total, message))
        if request.token is None:
            return
        if request.task is not None:
            params = with_related_task(params, request.task)
        text = self._notification_text("notifications/progress", params)
        if request.progress is not None and not progress > request.progress:
            raise LocalProtocolError(f"progress must increase, not go from {request.progress} to {progress}")
        request.progress = progress
        self._outbox.put(text, Queued.NOTIFICATION, via=request.via, related=request.id, key=("progress", request.id))
        self._check_outbox()

    def send_notification(self, notification: Any, *, related_to: IncomingId | None = None) -> None:
        """Tell the peer something; ``related_to`` is the peer's request that it belongs to.

        Progress and cancellation have verbs of their own; but progress of a task, whose request is answered, goes here:
        a ``ProgressNotification`` with the task in its ``_meta`` (PROG-07). Dropped quietly when the peer cancelled
        that request. Raises ``LocalProtocolError``, and changes nothing, where the phase, the revision or the
        capabilities forbid it, and ``NoBackChannel`` on a closed connection (P11). Drain the events, write the chunks.
        """
        method, name, params = self._checked_notification(notification)
        parent = None if related_to is None else self._to_answer(related_to)
        if parent is not None and parent.task is not None:
            params = with_related_task(params, parent.task)
        text = self._notification_text(name, params)
        if parent is None and related_to is not None:
            return
        self._check_route(parent)
        self._outbox.put(
            text,
            Queued.LOG if name == _LOG else Queued.NOTIFICATION,
            via=None if parent is None else parent.via,
            related=related_to,
            key=coalescing_key(method, params),
        )
        self._check_outbox()

    # Checks: none of them changes anything

    def _checked_request(self, request: Any, waiting: int = 0) -> tuple[Method | None, str, dict[str, Any]]:
        """Return method, name and params of a request that may be sent now, after ``waiting`` others."""
        method = method_to_send(request, Kind.REQUEST)
        name: str = request.method if method is None else method.name
        self._check_send(_SEND_PING if isinstance(request, PingRequest) else _SEND_REQUEST, method)
        waiting += len(self._outgoing)
        if waiting >= self._limits.outgoing_requests:
            raise LocalProtocolError(f"{waiting} requests wait for an answer already")
        params = encode(self._codec, request)
        if method is not None:
            fault = why_not_asked(name, params, self._codec.revision, self._peer_capabilities)
            if fault is not None:
                raise LocalProtocolError(f"{name}: {fault}")
        if "task" in params and method is not None and method.task_capability:
            self._check_task(method)
        return method, name, params

    def _checked_notification(self, notification: Any) -> tuple[Method | None, str, dict[str, Any]]:
        """Return method, name and params of a notification that may be sent now."""
        method = method_to_send(notification, Kind.NOTIFICATION)
        name: str = notification.method if method is None else method.name
        self._check_send(Input.SEND_LOG if name == _LOG else Input.SEND_NOTIFICATION, method)
        return method, name, encode(self._codec, notification)

    def _notification_text(self, name: str, params: dict[str, Any]) -> bytes:
        said = name if self._accent is None else self._accent.name(name)
        return self._json(jsonrpc.encode_notification, said, params or None)

    def _check_batch(self, size: int) -> None:
        self._check_send(_SEND_PING, None)
        if self._context is None or not self._context.revision.has_batches:
            raise LocalProtocolError("batches are for sessions of 2025-03-26: send the messages one by one")
        if not 1 <= size <= self._limits.batch_items:
            raise LocalProtocolError(f"a batch has 1 to {self._limits.batch_items} items, not {size}")

    def _check_send(self, what: Input, method: Method | None) -> None:
        if not self._allows(what):
            if self._phase is Phase.CLOSING or self._phase is Phase.CLOSED:
                raise NoBackChannel(f"cannot {what.value}: the connection is {self._phase.value}")
            raise LocalProtocolError(f"cannot {what.value} in phase {self._phase.value} as a {self.role.value}")
        if method is not None:
            revision, peer = self._codec.revision, self._peer_capabilities
            fault = why_not_sent(method, self.role, revision, self.capabilities, peer)
            if fault is not None:
                raise LocalProtocolError(fault)

    def _check_task(self, method: Method) -> None:
        fault = why_no_task(method, self._codec.revision, self._peer_capabilities)
        if fault is not None:
            raise LocalProtocolError(fault)

    @property
    def _peer_capabilities(self) -> Any:
        """What the peer declared; ``None`` before the handshake."""
        return None if self._context is None else self._context.capabilities

    def _check_route(self, parent: IncomingRequest | None) -> None:
        if self.can_reach is not None and not self.can_reach(None if parent is None else parent.via):
            what = "the request that it belongs to" if parent is not None else "what belongs to no request"
            raise NoBackChannel(f"the transport has no way to the peer for {what}, and none can come")

    def _running(self, id: IncomingId) -> IncomingRequest:
        request = self._incoming.get(id)
        if request is None:
            raise LocalProtocolError(f"the peer's request {id!r} is not running")
        return request

    def _to_answer(self, id: IncomingId) -> IncomingRequest | None:
        """Return the running request of that id, or ``None`` when nobody wants its answer any more."""
        request = self._incoming.get(id)
        if request is not None:
            return request
        if not 1 <= id < self._incoming.next_id:
            raise LocalProtocolError(f"the peer never sent a request {id!r}")
        if self._phase is not Phase.CLOSED and self._incoming.was_answered(id):
            raise LocalProtocolError(f"the peer's request {id!r} was answered before")
        return None

    def _timeout(self, timeout: Timeout | float | Default | None) -> Timeout:
        if isinstance(timeout, Default):
            return self._options.request_timeout
        try:
            return timeout if isinstance(timeout, Timeout) else Timeout(timeout)
        except ValueError as error:
            raise LocalProtocolError(f"timeout: {error}") from None

    def _json(self, write: Callable[..., bytes], *parts: Any) -> bytes:
        """Return a message to send, as one of the encoders of ``framing.jsonrpc`` writes it."""
        return self._fitting(to_json(write, *parts))

    def _check_room(self) -> None:
        """Refuse a request of our own while many wait to be written."""
        held, limit = self._held, self._limits.queued_bytes // 2
        waiting = self._outbox.own_bytes + held.own + held.unwritten
        if waiting > limit:
            raise OutputFull(waiting, limit)

    def _fitting(self, text: bytes) -> bytes:
        """Return a message to send. Raises ``MessageTooLarge`` for one over the limit."""
        most = self._limits.most_sent
        if len(text) > most:
            raise MessageTooLarge(len(text), most)
        return text

    # Changes: all checks are behind

    def _new_request(
        self,
        id: OutgoingId,
        name: str,
        method: Method | None,
        params: dict[str, Any],
        cookie: Any,
        parent: IncomingRequest | None,
        progress: bool,
    ) -> tuple[OutgoingRequest, bytes]:
        """Return a request and its text. It changes nothing."""
        params = with_progress_token(params, id if progress else None)
        if parent is not None and parent.task is not None:
            params = with_related_task(params, parent.task)
        text = self._json(jsonrpc.encode_request, int(id), name, params or None)
        request = OutgoingRequest(id, name, method, cookie)
        if "_meta" in params:
            request.belongs_to = related_task_of(params)
        if "task" in params and method is not None and method.task_capability:
            request.task = ""
        if progress:
            request.progress = NOT_YET
        if parent is not None:
            request.related, request.via = parent.id, parent.via
        return request, text

    def _send_request(self, request: OutgoingRequest, text: bytes, timeout: Timeout, now: float) -> OutgoingId:
        self._advance(now)
        self._outgoing.add(request, timeout, self._now)
        self._outbox.put(text, Queued.REQUEST, via=request.via, related=request.related, asked=(request.id,))
        self._check_outbox()
        return request.id

    def _cancellation(self, request: OutgoingRequest, reason: str | None) -> bytes | None:
        """Return the notice that a request is given up; ``None`` for one that is to become a task (CANC-04)."""
        if request.task is not None:
            return None
        params = encode(self._codec, payload_of(CancelledNotification, request.id, reason))
        if request.belongs_to is not None:
            params = with_related_task(params, request.belongs_to)
        return self._json(jsonrpc.encode_notification, "notifications/cancelled", params)

    def _send_cancelled(self, request: OutgoingRequest, text: bytes | None) -> None:
        if text is None:
            return
        # In the lane of the request, so that it never overtakes it, but not by an exchange that is over.
        parent = None if request.related is None else self._incoming.get(request.related)
        via, related = (None, None) if parent is None else (parent.via, parent.id)
        self._outbox.put(text, Queued.NOTIFICATION, via=via, related=related, lane=request.related)
        self._check_outbox()

    def _give_up_task(self, id: OutgoingId) -> bool:
        request = None if self._tasks is None else self._tasks.pop(id)
        if request is None:
            return False
        self._cancel_task(request.task or "")
        return True

    def _respond(self, request: IncomingRequest, what: RequestInput, text: bytes) -> None:
        self._fitting(text)
        self._incoming.finish(request, what)
        if self._batches is not None and request.id in self._batches:
            self._release(self._batches.settle(request.id, text))
        else:
            self._outbox.put(text, Queued.RESPONSE, via=request.via, related=request.id, last=True)
            self._check_outbox()

    # What the channel asks for

    def _expire(self, id: int) -> None:
        request = self._outgoing[id]
        total = request.total_at is not None and request.total_at <= self._now
        limit = request.total if total else request.idle
        error = RequestTimeout(request.name, limit or 0.0, "total" if total else "idle")
        self._fail(request, RequestInput.RECV_TIMEOUT, error)
        if request.name == "initialize":
            self._give_up_handshake(error)
        else:
            self._send_cancelled(request, self._cancellation(request, "timeout"))

    def _give_up_handshake(self, error: RequestTimeout) -> None:
        """End, since the peer does not answer (LIFE-19)."""
        self._finish(Input.SEND_ABORT, CloseReason.HANDSHAKE_FAILED, error)

    def _lose_outgoing(self, reason: CloseReason, cause: BaseException | None) -> None:
        for request in self._outgoing:
            error = ConnectionLost(f"{request.name}: the connection ended ({reason.value})")
            error.__cause__ = cause
            self._fail(request, RequestInput.RECV_LOSS, error)
            # From here on every answer is late: which ones are need not be remembered.
            self._outgoing.forget(request.id)
        self._tasks = None

    def _drop_incoming(self) -> None:
        for request in self._incoming:
            self._incoming.finish(request, RequestInput.RECV_LOSS)
        self._batches = None

    @property
    def _owes_answers(self) -> bool:
        return len(self._incoming) > 0

    @property
    def _awaits_answers(self) -> bool:
        return len(self._outgoing) > 0

    # Look

    @property
    def peer(self) -> Peer | None:
        """Who the other side is and what it declared; ``None`` before the handshake."""
        context = self._context
        return None if context is None else Peer(context.info, context.capabilities, self._instructions)

    @property
    def pending(self) -> Pending:
        """The requests that have no outcome yet."""
        return Pending(
            tuple(request.id for request in self._outgoing),
            tuple(request.id for request in self._incoming),
            tuple(request.id for request in self._tasks or ()),
        )

    @property
    def unanswered(self) -> tuple[Unanswered, ...]:
        """The peer's requests that wait for an answer: after ``restore``, the caller must answer or fail them."""
        return tuple(Unanswered(request.id, request.name, request.via) for request in self._incoming)
