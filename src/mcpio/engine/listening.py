"""Subscriptions of stateless clients: a request that runs on, and the notifications that belong to it (SUB-01)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, Final

from mcpio.engine.gates import why_not_sent
from mcpio.engine.payloads import check_meta, coalescing_key, encode, encode_error
from mcpio.engine.pending import IncomingRequest
from mcpio.engine.table import RequestInput, Role
from mcpio.errors import ErrorCode, LocalProtocolError, RequestError
from mcpio.framing.json import dumps, loads
from mcpio.framing.jsonrpc import encode_result
from mcpio.methods import Method
from mcpio.types.meta import META_SUBSCRIPTION_ID
from mcpio.types.subscriptions import SubscriptionFilter, SubscriptionsListenResult

if TYPE_CHECKING:
    from mcpio.engine.snapshot import ListeningState
    from mcpio.engine.stateless import StatelessServer

__all__ = ["Listening"]

_FLAGS: Final = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}
_UPDATED: Final = "notifications/resources/updated"
_RESOURCES: Final = "resourceSubscriptions"
_TASK: Final = "notifications/tasks"
_TASKS: Final = "taskIds"


class Listening:
    """The state of one subscription: the requested and the honoured filter, and the id on its messages."""

    __slots__ = ("_server", "asked", "codec", "honoured")

    asked: Mapping[str, Any]
    """The filter of the request."""
    honoured: Mapping[str, Any] | None
    """The part of it that was acknowledged; ``None`` before that."""
    encoder: Final = None
    form: Final[Hashable] = None

    def __init__(self, server: StatelessServer, asked: Mapping[str, Any]) -> None:
        self._server = server
        self.codec = server.codec
        self.asked = asked
        self.honoured = None

    @property
    def listening(self) -> ListeningState:
        """The state of the subscription, as a snapshot has it."""
        from mcpio.engine.snapshot import ListeningState  # few connections are ever written out

        return ListeningState(asked=dict(self.asked), honoured=None if self.honoured is None else dict(self.honoured))

    def acknowledgement(self, request: IncomingRequest, honoured: SubscriptionFilter) -> dict[str, Any]:
        """Return the params of the first message of the subscription (SUB-02). Changes nothing."""
        if self.honoured is not None:
            raise LocalProtocolError(f"the subscription {request.id!r} was acknowledged before")
        if not isinstance(honoured, SubscriptionFilter):
            raise LocalProtocolError(f"what is honoured is a SubscriptionFilter, not a {type(honoured).__name__}")
        members = encode(self.codec, honoured)
        for name, value in members.items():
            asked = self.asked.get(name)
            more = sorted(frozenset(value).difference(asked or ())) if isinstance(value, list) else value
            if more and not (more is True and asked is True):
                raise LocalProtocolError(f"{name}: {more!r:.100} was not asked for")
        return self._stamped(request, {"notifications": members})

    def notification(
        self, request: IncomingRequest, method: Method | None, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the params of a notification, with the id of its subscription (ENV-09).

        Raises ``LocalProtocolError`` for one that was not acknowledged (SUB-03, SUB-06).
        """
        if self.honoured is None:
            raise LocalProtocolError(f"acknowledge the subscription {request.id!r} first")
        if method is not None:
            fault = why_not_sent(method, Role.SERVER, self.codec.revision, self._server.capabilities, None)
            if fault is not None:
                raise LocalProtocolError(fault)
            if method.name in _FLAGS:
                honoured = self.honoured.get(_FLAGS[method.name]) is True
            elif method.name == _TASK:
                honoured = params["taskId"] in self.honoured.get(_TASKS, ())
            else:
                # The resource may lie within one that was subscribed to, which the caller knows.
                honoured = method.name == _UPDATED and bool(self.honoured.get(_RESOURCES))
            if not honoured:
                raise LocalProtocolError(f"the subscription {request.id!r} does not honour {method.name}")
        return self._stamped(request, params)

    def coalescing_key(self, request: IncomingRequest, method: Method | None, params: Mapping[str, Any]) -> Hashable:
        """Return the key that equal notifications coalesce by: within their subscription, since each gets its own."""
        # Of a task only the last state counts.
        is_task = method is not None and method.name == _TASK
        key = (_TASK, params["taskId"]) if is_task else coalescing_key(method, params)
        return None if key is None else (request.id, key)

    def write_result(self, request: IncomingRequest, result: Any) -> Mapping[str, Any]:
        """Return the result that ends the subscription (SUB-08)."""
        if not isinstance(result, SubscriptionsListenResult):
            wanted = SubscriptionsListenResult.__name__
            raise LocalProtocolError(
                f"the result of subscriptions/listen must be a {wanted}, not a {type(result).__name__}"
            )
        self._check_acknowledged(request)
        return self._stamped(request, self._server.write_result(request, result))

    def write_raw_result(self, request: IncomingRequest, result: bytes) -> bytes:
        """Return the JSON text of the result that ends the subscription."""
        self._check_acknowledged(request)
        members = loads(self._server.write_raw_result(request, result))
        check_meta(members)
        stamped = self._stamped(request, members)
        return result if stamped == members else dumps(stamped)

    def closing_answer(self, request: IncomingRequest) -> tuple[RequestInput, bytes]:
        """Return the answer that ends the subscription because this side closes (SUB-08)."""
        if self.honoured is None:
            data = {"reason": "closing"}
            text = encode_error(
                request.wire_id, RequestError(ErrorCode.INVALID_REQUEST, "Invalid request: closing", data)
            )
            return RequestInput.SEND_ERROR, text
        result = self.write_result(request, SubscriptionsListenResult())
        return RequestInput.SEND_RESULT, encode_result(request.wire_id, result)

    def check_error(self, request: IncomingRequest, error: RequestError) -> None:
        """Raise ``LocalProtocolError`` for an error that must not answer the request."""
        self._server.check_error(request, error)

    def _check_acknowledged(self, request: IncomingRequest) -> None:
        if self.honoured is None:
            raise LocalProtocolError(f"acknowledge the subscription {request.id!r} first, or answer with an error")

    def _stamped(self, request: IncomingRequest, members: Mapping[str, Any]) -> dict[str, Any]:
        return {**members, "_meta": {**(members.get("_meta") or {}), META_SUBSCRIPTION_ID: request.wire_id}}
