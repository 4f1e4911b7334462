"""The verbs that answer the peer's requests, for engines that receive them: connections, and stateless requests."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from mcpio.engine.channel import Kind as Queued
from mcpio.engine.gates import LISTEN
from mcpio.engine.payloads import (
    encode,
    encode_error,
    method_to_send,
    not_json,
    payload_of,
    to_json,
    with_related_task,
)
from mcpio.engine.table import RequestInput
from mcpio.errors import LocalProtocolError, MessageTooLarge, RequestError
from mcpio.events import IncomingId
from mcpio.framing import jsonrpc
from mcpio.methods import Kind
from mcpio.types.features import ProgressNotification

if TYPE_CHECKING:
    from mcpio.engine.options import Options
    from mcpio.engine.pending import IncomingDialogue, IncomingRequest, RunningRequests
    from mcpio.engine.stateless import Listening, StatelessServer
    from mcpio.types.features import SubscriptionFilter

__all__ = ["LOG", "Answers", "Observer"]

LOG: Final = "notifications/message"

# Looked up once, since every message needs them: before Python 3.12 an enumeration finds its members by a slow path.
_SEND_RESULT, _SEND_ERROR = RequestInput.SEND_RESULT, RequestInput.SEND_ERROR


class Observer(Protocol):
    """Observes everything that passes an engine, and changes nothing. See ``mcpio.observe``."""

    def tell(self, what: str, *arguments: Any) -> None:
        """Handle one observation: the name of a method of ``mcpio.observe.Tap``, and its arguments."""


class Answers:
    """Answers to the peer's requests. Every verb validates first, then mutates, then emits (P3)."""

    __slots__ = ("_incoming", "_observers", "_options")

    _incoming: RunningRequests
    _observers: tuple[Observer, ...] | None
    _options: Options

    # For subclasses

    @abstractmethod
    def _to_answer(self, id: IncomingId) -> IncomingRequest | None:
        """Return the running request of that id, or ``None`` when its answer is not wanted any more."""

    @abstractmethod
    def _respond(self, request: IncomingRequest, what: RequestInput, text: bytes) -> None:
        """Retire a request, and send the text of its answer. Raises MessageTooLarge, and changes nothing."""

    @abstractmethod
    def _put(self, request: IncomingRequest, text: bytes, kind: int, key: Hashable = None) -> None:
        """Send a notification that belongs to a request."""

    @abstractmethod
    def _check_route(self, request: IncomingRequest | None) -> None:
        """Raise NoBackChannel if no notification of a request can reach the peer."""

    @abstractmethod
    def _tell(self, what: str, *arguments: Any) -> None:
        """Tell the observers."""

    # Answers

    def send_result(self, id: IncomingId, result: Any, *, kept: dict[Any, bytes] | None = None) -> None:
        """Answer an incoming request with its typed result, or with a mapping for a ``CustomRequest``.

        One that asked to become a task may be answered with a ``CreateTaskResult`` instead (TASK-09).
        Dropped quietly when the peer cancelled the request, or the connection ended, in the meantime. Raises
        ``LocalProtocolError``, and changes nothing, for a request that was answered before (as far as that is
        remembered) or never came, and for a result of the wrong type. Drain the events, write the chunks.

        ``kept`` is for a result that is sent again and again, such as a page of a list: it keeps the JSON text of the
        result for each form that peers get it in. Always give the same mapping with the same result.
        """
        running = self._incoming.running
        # The lookup of ``_to_answer`` comes first and without calls, since nearly every request still runs.
        request = (None if running is None else running.get(id)) or self._to_answer(id)
        if request is not None:
            # The result of a request that belongs to a task carries the task's id, so its text is not shared.
            form = None if kept is None or request.task is not None else request.dialogue.form
            if kept is not None and form in kept:
                self._respond(request, _SEND_RESULT, jsonrpc.encode_kept_result(request.wire_id, kept[form]))
                return
            members = request.dialogue.write_result(request, result)
            try:
                text = jsonrpc.encode_result(request.wire_id, members)
            except (TypeError, ValueError) as error:
                raise not_json(error) from error
            if kept is not None and form is not None:
                kept[form] = jsonrpc.result_in(text)
            self._respond(request, _SEND_RESULT, text)

    def send_raw_result(self, id: IncomingId, result: bytes) -> None:
        """Answer with a result that is JSON already: an object, passed on as it is. Otherwise like ``send_result``."""
        request = self._to_answer(id)
        if request is not None:
            raw = request.dialogue.write_raw_result(request, result)
            text = to_json(jsonrpc.encode_raw_result, request.wire_id, raw)
            self._respond(request, _SEND_RESULT, text)

    def send_error(self, id: IncomingId, error: RequestError) -> None:
        """Answer an incoming request with an error. Otherwise like ``send_result``.

        Error -32042 needs a peer that declared ``elicitation.url``, and data that names addresses (ELIC-17).
        """
        request = self._to_answer(id)
        if request is not None:
            request.dialogue.check_error(request, error)
            self._respond(request, _SEND_ERROR, encode_error(request.wire_id, error))

    def send_progress(
        self, id: IncomingId, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress of an incoming request. Does nothing if the peer asked for no reports, or cancelled it.

        ``message`` is text for people; it is left out in 2024-11-05, which has none (PROG-02). Raises
        ``LocalProtocolError`` for arguments of the wrong type, when ``progress`` does not increase (PROG-04), and when
        the request was answered (PROG-03). Drain the events, write the chunks.
        """
        request = self._to_answer(id)
        if request is not None:
            self._send_progress(request, progress, total, message)
        if self._observers:
            self._tell_call("send_progress", id=id, progress=progress, total=total, message=message)

    def acknowledge(self, id: IncomingId, honoured: SubscriptionFilter) -> None:
        """Start a subscription by answering ``subscriptions/listen`` (SUB-02): ``honoured`` is part of its filter.

        Its notifications go by ``send_notification`` with ``related_to=id``, and its result ends it; the engine adds
        the id of the subscription to each. Dropped quietly when the client ended it in the meantime. Raises
        ``LocalProtocolError``, and changes nothing, for a request of another method, for a second time, and for more
        than the request asked for; and ``NoBackChannel`` as ``send_notification``. Drain the events, write the chunks.
        """
        from mcpio.engine.stateless import Listening

        request = self._to_answer(id)
        if request is not None:
            dialogue = request.dialogue
            if not isinstance(dialogue, Listening):
                raise LocalProtocolError(f"acknowledge must answer {LISTEN}, not {request.name}")
            params = dialogue.acknowledgement(request, honoured)
            text = self._notification_text(dialogue, "notifications/subscriptions/acknowledged", params)
            self._check_route(request)
            dialogue.honoured = params["notifications"]
            self._put(request, text, Queued.NOTIFICATION)
            if self._observers:
                self._tell_call("acknowledge", id=id, honoured=params["notifications"])

    def is_acknowledged(self, id: IncomingId) -> bool:
        """Return whether a subscription was acknowledged, as one from a snapshot may have been."""
        request = self._incoming.get(id)
        return request is not None and getattr(request.dialogue, "honoured", None) is not None

    @property
    def is_serving(self) -> bool:
        """Whether a request of the peer's runs."""
        return self._incoming.running is not None

    # Observers

    def add_observer(self, observer: Observer) -> None:
        """Add ``observer``, which observes everything from now on. ``mcpio.observe.add_tap`` is the usual way.

        Raises TypeError for an object without ``tell``.
        """
        if not callable(getattr(observer, "tell", None)):
            raise TypeError(f"observer must be an object with tell(), not {observer!r:.60}")
        self._observers = (*(self._observers or ()), observer)

    def remove_observer(self, observer: Observer) -> None:
        """Remove ``observer``. Does nothing if it was not added."""
        self._observers = tuple(each for each in self._observers or () if each is not observer) or None

    def _tell_call(self, verb: str, **arguments: Any) -> None:
        self._tell("called", verb, arguments)

    # Inside

    def _send_progress(
        self, request: IncomingRequest, progress: float, total: float | None, message: str | None
    ) -> None:
        """Send ``notifications/progress``, if the peer asked for it. Raises LocalProtocolError unless it increases."""
        # Arguments of the wrong type are refused for a peer that did not ask too, not only for the first that asks.
        token = 0 if request.token is None else request.token
        dialogue = request.dialogue
        params = encode(dialogue.codec, payload_of(ProgressNotification, token, progress, total, message))
        if request.token is None or request.name == LISTEN:
            return  # a subscription carries what was subscribed to only (SUB-06)
        if request.task is not None:
            params = with_related_task(params, request.task)
        text = self._notification_text(dialogue, "notifications/progress", params)
        if request.progress is not None and not progress > request.progress:
            raise LocalProtocolError(f"progress must increase, not go from {request.progress} to {progress}")
        request.progress = progress
        self._put(request, text, Queued.NOTIFICATION, ("progress", request.id))

    def _notify_within(self, request: IncomingRequest, notification: Any) -> None:
        """Send a notification of a stateless request, if its client wants it."""
        dialogue = cast("StatelessServer | Listening", request.dialogue)
        method = method_to_send(notification, Kind.NOTIFICATION)
        name: str = notification.method if method is None else method.name
        params = encode(dialogue.codec, notification)
        wanted = dialogue.notification(request, method, params)
        key = dialogue.coalescing_key(request, method, params)
        params = params if wanted is None else wanted
        text = self._notification_text(dialogue, name, params)
        if wanted is not None:
            self._check_route(request)
            self._put(request, text, Queued.LOG if name == LOG else Queued.NOTIFICATION, key)
        if self._observers:
            self._tell_call("send_notification", method=name, params=params, related_to=request.id)

    def _notification_text(self, dialogue: IncomingDialogue, name: str, params: dict[str, Any]) -> bytes:
        encoder = dialogue.encoder
        return self._json(jsonrpc.encode_notification, name if encoder is None else encoder.name(name), params or None)

    def _json(self, write: Callable[..., bytes], *parts: Any) -> bytes:
        """Return a message to send, as one of the encoders of ``framing.jsonrpc`` writes it."""
        return self._fitting(to_json(write, *parts))

    def _fitting(self, text: bytes) -> bytes:
        """Return a message to send. Raises ``MessageTooLarge`` for one over the limit."""
        limits = self._options.limits
        most = limits.sent_message_bytes  # ``most_sent`` is a property, and this runs for each message
        if len(text) > (limits.message_bytes if most is None else most):
            raise MessageTooLarge(len(text), limits.most_sent)
        return text
