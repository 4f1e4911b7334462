"""Payloads to send: their method, their wire form and their JSON. No function here touches a connection.

Each raises ``LocalProtocolError`` for a payload that must not, or cannot, be sent.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, TypeVar

from mcpio._checks import required
from mcpio.codec import Codec, codec
from mcpio.errors import ErrorCode, InvalidMessage, LocalProtocolError, RequestError
from mcpio.framing import jsonrpc
from mcpio.framing.json import dumps
from mcpio.methods import METHODS, TASK_EXTENSION_METHODS, Kind, Method, method_of
from mcpio.revisions import LATEST_HANDSHAKE, REVISIONS
from mcpio.types.base import META_RELATED_TASK, CustomNotification, CustomRequest, RawNotification, RawRequest
from mcpio.types.features import Implementation, ProgressNotification

__all__ = [
    "check_declared",
    "check_meta",
    "coalescing_key",
    "encode",
    "encode_error",
    "is_created_task",
    "is_notification",
    "method_to_send",
    "not_json",
    "payload_of",
    "related_task_of",
    "to_json",
    "with_progress_token",
    "with_related_task",
]

P = TypeVar("P")


def method_to_send(payload: Any, kind: Kind) -> Method | None:
    """Return the method of a payload; ``None`` for a custom one, outside the protocol."""
    method = _BY_CLASS.get(payload.__class__)
    if method is not None and method.kind is kind:
        return method
    if isinstance(payload, CustomRequest if kind is Kind.REQUEST else CustomNotification):
        _check_custom(payload)
        return None
    try:
        method = method_of(payload.__class__)
    except KeyError:
        method = None
    if method is None and isinstance(payload, RawRequest if kind is Kind.REQUEST else RawNotification):
        return _raw_method(payload, kind)
    if method is None or method.kind is not kind:
        raise LocalProtocolError(f"payload must be a {kind.value}, not {type(payload).__name__}")
    if method.name in _OWN_VERBS and not _is_progress_of_task(payload):
        raise LocalProtocolError(f"{method.name} is sent by {_OWN_VERBS[method.name]}")
    if method.name not in _OWN_VERBS:
        _BY_CLASS[payload.__class__] = method
    return method


def is_created_task(result: Any) -> bool:
    """Return whether a result says that the request became a task (TASK-09)."""
    from mcpio.types.tasks import CreateTaskResult

    return isinstance(result, CreateTaskResult)


def is_notification(payload: Any) -> bool:
    """Return whether a payload is a notification. Values that are not payloads are not."""
    if isinstance(payload, CustomNotification | RawNotification):
        return True
    try:
        return method_of(payload.__class__).kind is Kind.NOTIFICATION
    except KeyError:
        return False


def payload_of(cls: type[P], *members: Any) -> P:
    """Return a payload of the caller's members. Raises ``LocalProtocolError`` for one of the wrong type."""
    try:
        return cls(*members)
    except TypeError as error:
        raise LocalProtocolError(str(error)) from error


def encode(codec: Codec, payload: Any) -> dict[str, Any]:
    """Return params or a result as a new object, in the revision of ``codec``."""
    try:
        members = codec.encode(payload)
    except InvalidMessage as error:
        raise LocalProtocolError(f"{type(payload).__name__}: {error}") from error
    if "_meta" in members and payload.__class__ not in _RAW:
        check_meta(members)
    return members


def check_declared(info: Implementation, capabilities: Any, kind: type[Any]) -> None:
    """Raise TypeError for a description of this side of the wrong kind, and ``LocalProtocolError`` for one with faults.

    What the opening cannot say would fail at each peer's first message. Equal objects come with each connection of a
    server, and are looked at once.
    """
    key = id(info), id(capabilities)
    if key in _CHECKED:
        return
    required("info", info, Implementation)
    required("capabilities", capabilities, kind)
    for own in (codec(LATEST_HANDSHAKE), codec(REVISIONS[-1])):
        to_json(dumps, [encode(own, info), encode(own, capabilities)])
    if len(_CHECKED) >= _MOST_CHECKED:
        _CHECKED.clear()
    _CHECKED[key] = info, capabilities


_CHECKED: Final[dict[tuple[int, int], object]] = {}
"""The objects that were checked; as long as they are here, their ids are no others'."""
_MOST_CHECKED: Final = 64


def check_meta(members: Mapping[str, Any]) -> None:
    """Check the keys of ``_meta`` (META-07). Reserved ones pass: extensions of the protocol define some."""
    meta = members.get("_meta")
    if meta is None:
        return
    if not isinstance(meta, Mapping):
        raise LocalProtocolError(f"_meta must be an object, not {meta!r:.100}")
    if meta:
        # The rules are loaded by the first message that has any.
        from mcpio.types.base import fault_in_meta

        fault = fault_in_meta(meta)
        if fault is not None:
            raise LocalProtocolError(fault)


def with_progress_token(params: dict[str, Any], token: int | None) -> dict[str, Any]:
    """Return the params with ``token`` as their progress token; with ``None``, check that they have none.

    A token that the caller chose could be that of another request (PROG-01).
    """
    meta = params.get("_meta") or {}
    if token is not None:
        return {**params, "_meta": {**meta, "progressToken": token}}
    if "progressToken" in meta:
        raise LocalProtocolError("ask for progress with progress=True: the token is not for the caller to choose")
    return params


def with_related_task(members: Mapping[str, Any], task_id: str) -> dict[str, Any]:
    """Return params or a result with the mark of the task that they belong to, unless they have one (TASK-28)."""
    return {**members, "_meta": {META_RELATED_TASK: {"taskId": task_id}, **(members.get("_meta") or {})}}


def related_task_of(params: Mapping[str, Any]) -> str | None:
    """Return the task that params say they belong to, or ``None``."""
    mark = (params.get("_meta") or {}).get(META_RELATED_TASK)
    task_id = mark.get("taskId") if isinstance(mark, Mapping) else None
    return task_id if isinstance(task_id, str) else None


def internal_error(fault: LocalProtocolError) -> RequestError:
    """Return the answer where this side declares something that cannot be encoded: the reason is not for the peer."""
    failure = RequestError(ErrorCode.INTERNAL_ERROR, "Internal error")
    failure.__cause__ = fault
    return failure


def encode_error(wire_id: int | str, error: RequestError) -> bytes:
    """Return the answer that a request failed (RPC-11)."""
    if not isinstance(error, RequestError):
        raise LocalProtocolError(f"a request must fail with a RequestError, not a {type(error).__name__}")
    if error.code.__class__ is not int or not isinstance(error.message, str):
        raise LocalProtocolError(
            f"an error must have an integer and a text, not {error.code!r:.100}, {error.message!r:.100}"
        )
    return to_json(_error_json, wire_id, error)


def to_json(write: Callable[..., bytes], *parts: Any) -> bytes:
    """Return the text that an encoder of ``framing.jsonrpc`` writes."""
    try:
        return write(*parts)
    except (TypeError, ValueError) as error:
        raise not_json(error) from error


def not_json(error: Exception) -> LocalProtocolError:
    """Return the error for parts of a message that JSON cannot express."""
    return LocalProtocolError(f"not expressible in JSON: {error}")


def coalescing_key(method: Method | None, params: Mapping[str, Any]) -> Hashable:
    """Return the key that equal notifications coalesce by, or ``None`` where each one counts."""
    if method is None:
        return None
    if method.name.endswith("/list_changed"):
        return method.name
    if method.name == "notifications/progress":
        return (method.name, params["progressToken"])
    return (method.name, params["uri"]) if method.name == "notifications/resources/updated" else None


_RAW = (RawRequest, RawNotification)

_BY_CLASS: dict[type, Method] = {}
"""The methods of the payload classes that were sent before, so that each class is looked into once."""

_OWN_VERBS = {
    "initialize": "send_initialize",
    "notifications/progress": "send_progress",
    "notifications/cancelled": "cancel_request",
    "notifications/initialized": "the engine itself",
    "notifications/subscriptions/acknowledged": "acknowledge",
}


def _check_custom(payload: CustomRequest | CustomNotification) -> None:
    """Refuse methods of the protocol: they have types, and gates that a bare name would bypass (CAP-05).

    Some names are those of an extension in another revision; which one is spoken, the connection checks.
    """
    _check_named(payload)
    is_ambiguous = isinstance(payload, CustomRequest) and payload.method in TASK_EXTENSION_METHODS
    if payload.method in METHODS and not is_ambiguous:
        raise LocalProtocolError(f"{payload.method} is a method of the protocol: send its own type")


def _check_named(payload: Any) -> None:
    method, params = payload.method, payload.params
    if not isinstance(method, str) or not method:
        raise LocalProtocolError(f"a method must be a name, not {method!r:.100}")
    if not isinstance(params, Mapping):
        raise LocalProtocolError(f"the params of {method:.100} must be a mapping, not {params!r:.100}")


def _is_progress_of_task(payload: Any) -> bool:
    """Return whether it reports progress of a request that was answered with a task (PROG-07)."""
    return isinstance(payload, ProgressNotification) and META_RELATED_TASK in payload.meta


def _raw_method(payload: RawRequest | RawNotification, kind: Kind) -> Method | None:
    """Return the method of a raw payload that is passed on. Its members are not checked."""
    _check_named(payload)
    method = METHODS.get(payload.method)
    if method is not None and method.kind is not kind:
        raise LocalProtocolError(f"payload must be a {kind.value}, not {method.name}")
    if payload.method in _OWN_VERBS:
        raise LocalProtocolError(f"{payload.method} is sent by {_OWN_VERBS[payload.method]}")
    if not isinstance(payload.params.get("_meta", {}), Mapping):
        raise LocalProtocolError(f"_meta must be an object, not {payload.params['_meta']!r:.100}")
    return method


def _error_json(wire_id: int | str, error: RequestError) -> bytes:
    return jsonrpc.encode_error(wire_id, error.code, error.message, error.data)
