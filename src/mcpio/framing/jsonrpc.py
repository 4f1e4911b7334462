"""JSON-RPC 2.0 messages, parsed and written (RPC-01 to RPC-15). Independent of methods and revisions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from mcpio.errors import ErrorCode
from mcpio.framing.json import MAX_NESTING, JsonError, check_nesting, dumps, has_more_values, loads

__all__ = [
    "MOST_VALUES",
    "Batch",
    "Error",
    "Malformed",
    "Message",
    "Notification",
    "Request",
    "Result",
    "answered_id",
    "classify",
    "encode_error",
    "encode_kept_result",
    "encode_notification",
    "encode_raw_result",
    "encode_request",
    "encode_result",
    "error_code_in",
    "parse",
    "result_in",
]


MOST_VALUES: Final = 1_000_000
"""The values of the largest message, where the caller sets no limit."""


class _Value:  # noqa: PLW1641  the members are dictionaries, which have no hash
    """Compares and prints by its members, which ``__match_args__`` of its class lists."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return _members(self) == _members(other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={member!r}' for name, member in _members(self).items())})"


def _members(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__match_args__}


class Request(_Value):
    """A request. ``params`` is empty if the message has none; ``raw`` is the whole message."""

    __slots__ = ("id", "method", "params", "raw")
    __match_args__ = ("id", "method", "params", "raw")

    def __init__(self, id: int | str, method: str, params: dict[str, Any], raw: dict[str, Any]) -> None:
        self.id: int | str = id
        self.method: str = method
        self.params: dict[str, Any] = params
        self.raw: dict[str, Any] = raw


class Notification(_Value):
    """A notification. ``params`` is empty if the message has none."""

    __slots__ = ("method", "params", "raw")
    __match_args__ = ("method", "params", "raw")

    def __init__(self, method: str, params: dict[str, Any], raw: dict[str, Any]) -> None:
        self.method: str = method
        self.params: dict[str, Any] = params
        self.raw: dict[str, Any] = raw


class Result(_Value):
    """A response with a result."""

    __slots__ = ("id", "raw", "result")
    __match_args__ = ("id", "result", "raw")

    def __init__(self, id: int | str, result: dict[str, Any], raw: dict[str, Any]) -> None:
        self.id: int | str = id
        self.result: dict[str, Any] = result
        self.raw: dict[str, Any] = raw


class Error(_Value):
    """A response with an error; ``id`` is ``None`` if it names no request (RPC-12).

    ``data`` is ``None`` if the error has none.
    """

    __slots__ = ("code", "data", "id", "message", "raw")
    __match_args__ = ("id", "code", "message", "data", "raw")

    def __init__(
        self,
        id: int | str | None,
        code: int,
        message: str,
        data: Any,
        raw: dict[str, Any],
    ) -> None:
        self.id: int | str | None = id
        self.code: int = code
        self.message: str = message
        self.data: Any = data
        self.raw: dict[str, Any] = raw


class Malformed(_Value):
    """A text or value that is not a message.

    ``code`` is the JSON-RPC code of the fault and ``reason`` one line about it. ``id`` is the id to answer with,
    ``None`` if none could be read. ``answerable`` says whether to answer with an error: yes if it resembles a request,
    or nothing in particular, but never if it resembles a notification or a response (RPC-13). ``raw`` is the value,
    ``None`` if the text is not JSON. ``answers`` is the id of the request that it seems to answer, or ``None``: that
    request will get no better answer.
    """

    __slots__ = ("answerable", "answers", "code", "id", "raw", "reason")
    __match_args__ = ("code", "reason", "id", "answerable", "raw", "answers")

    def __init__(
        self,
        code: int,
        reason: str,
        id: int | str | None,
        answerable: bool,
        raw: Any,
        answers: int | str | None = None,
    ) -> None:
        self.code: int = code
        self.reason: str = reason
        self.id: int | str | None = id
        self.answerable: bool = answerable
        self.raw: Any = raw
        self.answers: int | str | None = answers


class Batch(_Value):
    """A JSON array. ``items`` are its elements: whether they are messages depends on the revision."""

    __slots__ = ("items",)
    __match_args__ = ("items",)

    def __init__(self, items: tuple[Any, ...]) -> None:
        self.items: tuple[Any, ...] = items


Message: TypeAlias = Request | Notification | Result | Error | Malformed | Batch


def parse(text: bytes | str, most_values: int = MOST_VALUES) -> Message:
    """Return the message of a text. Never raises: anything else is a `Malformed`.

    So is a text with more than ``most_values`` values, which is not read.
    """
    if len(text) > most_values and has_more_values(text, most_values):
        fault = f"a message has more than {most_values} values"
        return Malformed(ErrorCode.INVALID_REQUEST, fault, _asked_id(text), True, None, answered_id(text))
    try:
        value = loads(text)
    except JsonError as error:
        return Malformed(ErrorCode.PARSE_ERROR, error.reason, None, True, None, answered_id(text))
    return classify(value)


def answered_id(text: bytes | str) -> int | None:
    """Return the id of the request that an unreadable or unfinished text answers, or ``None`` if it cannot be found.

    It is found if the members have one of the usual orders: the id before the result or error, or at the end. Only the
    first and the last characters are searched. This side's ids are integers, so others are not looked for.
    """
    start, end = _ends(text)
    match = _ID_FIRST.match(start) or (_ID_LAST.search(end) if _ANSWER.match(start) else None)
    return None if match is None else int(match[1])


def _asked_id(text: bytes | str) -> int | str | None:
    """Return the id of a request that is not read, where it is a plain one in a usual place."""
    start, end = _ends(text)
    match = _CALL_ID_FIRST.match(start) or (_CALL_ID_LAST.search(end) if _CALL.match(start) else None)
    if match is None:
        return None
    return int(match[1]) if match[2] is None else match[2]


def _ends(text: bytes | str) -> tuple[str, str]:
    if isinstance(text, str):
        return text[:_GLANCE], text[-_GLANCE:]
    return text[:_GLANCE].decode("latin-1"), text[-_GLANCE:].decode("latin-1")


_GLANCE: Final = 200
_VERSION: Final = r'(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?'
_AT_END: Final = r'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z'
_ANSWER: Final = re.compile(rf'\s*\{{\s*{_VERSION}"(?:result|error)"\s*:')
_ID_FIRST: Final = re.compile(rf'\s*\{{\s*{_VERSION}"id"\s*:\s*(\d{{1,15}})\s*,\s*{_VERSION}"(?:result|error)"\s*:')
_ID_LAST: Final = re.compile(rf'"id"\s*:\s*(\d{{1,15}}){_AT_END}')
_ANY_ID: Final = r'"id"\s*:\s*(?:(\d{1,15})|"([ !#-\[\]-~]{0,100})")'
_CALL: Final = re.compile(rf'\s*\{{\s*{_VERSION}"method"\s*:')
_CALL_ID_FIRST: Final = re.compile(rf'\s*\{{\s*{_VERSION}{_ANY_ID}\s*,\s*{_VERSION}"method"\s*:')
_CALL_ID_LAST: Final = re.compile(rf"{_ANY_ID}{_AT_END}")


def classify(value: Any) -> Message:
    """Return the message of a JSON value, such as an element of a batch. Never raises."""
    if type(value) is not dict:
        if type(value) is list:
            return Batch(tuple(value))
        return _invalid("a message is an object", value, None, answerable=True)
    if "method" in value:
        if "id" not in value:
            return _notification(value)
        id_, method = value["id"], value["method"]
        params: Any = value.get("params")
        # The fast path of nearly all requests: four members of the right types leave no room for a result or an error.
        plain = type(params) is dict and type(method) is str and (type(id_) is int or type(id_) is str)
        if plain and len(value) == 4 and value.get("jsonrpc") == "2.0":
            return Request(id_, method, params, value)
        return _call(value)
    if "result" in value:
        return _result(value)
    if "error" in value:
        return _error(value)
    # With params it is a request without its method. Without params it may be a response without its result, whose id
    # is one of this side's: an answer with that id could hit a request of the peer that has the same id.
    if "params" in value:
        return _invalid("no method, result or error", value, _id(value), answerable=True)
    return _invalid("no method, result or error", value, None, answerable=True, answers=_id(value))


def encode_request(id: int | str, method: str, params: Mapping[str, Any] | None) -> bytes:
    """Return a request as JSON on one line, without a newline. ``None`` leaves ``params`` out.

    This and the other encoders raise ValueError or TypeError, naming the place, for a value without a form in JSON.
    """
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": id, "method": method}
    if params is not None:
        message["params"] = params if type(params) is dict else dict(params)
    return dumps(message)


def encode_notification(method: str, params: Mapping[str, Any] | None) -> bytes:
    """Return a notification as JSON on one line. ``None`` leaves ``params`` out."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params if type(params) is dict else dict(params)
    return dumps(message)


def encode_result(id: int | str, result: Mapping[str, Any]) -> bytes:
    """Return the answer to a request as JSON on one line (RPC-08, RPC-10)."""
    return dumps({"jsonrpc": "2.0", "id": id, "result": result if type(result) is dict else dict(result)})


def encode_kept_result(id: int | str, result_json: bytes) -> bytes:
    """Return the answer to a request from the text that ``result_in`` returned for another answer."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (dumps(id), result_json)


def result_in(answer: bytes) -> bytes:
    """Return the text of the result in an answer that ``encode_result`` made."""
    # An id cannot contain this: quotation marks inside of a string are escaped.
    return answer[answer.index(b'"result":') + 9 : -1]


def error_code_in(answer: bytes) -> int | None:
    """Return the code in a message of ``encode_error``; ``None`` for any other message of this side."""
    match = _ERROR_CODE.match(answer)
    return None if match is None else int(match[1])


_ERROR_CODE: Final = re.compile(rb'\{"jsonrpc":"2\.0","id":(?:-?\d+|"(?:[^"\\]|\\.)*+"),"error":\{"code":(-?\d+)')


def encode_raw_result(id: int | str, result_json: bytes) -> bytes:
    """Return the answer to a request from a result that is JSON text already, byte for byte.

    Raw newlines, which JSON allows between values only, become spaces. Raises ValueError if the text is not one JSON
    object that `loads` accepts.
    """
    try:
        result = loads(result_json)
        check_nesting(result_json, MAX_NESTING - 1)
    except JsonError as error:
        raise ValueError(f"the result is not acceptable JSON: {error.reason}") from None
    if type(result) is not dict:
        raise ValueError(f"a result must be a JSON object, not {_kind(result)}")
    if b"\n" in result_json or b"\r" in result_json:
        result_json = result_json.replace(b"\n", b" ").replace(b"\r", b" ")
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (dumps(id), result_json)


def encode_error(
    id: int | str | None,
    code: int,
    message: str,
    data: Any = None,
    *,
    with_null_id: bool = False,
) -> bytes:
    """Return an error as JSON on one line (RPC-11). ``data`` is left out when it is ``None``.

    An ``id`` of ``None``, which could not be read, is written as ``"id": null`` if ``with_null_id`` is true, and left
    out otherwise: revisions differ in which of the two they allow (RPC-12).
    """
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    if id is None and not with_null_id:
        return dumps({"jsonrpc": "2.0", "error": error})
    return dumps({"jsonrpc": "2.0", "id": id, "error": error})


_NO_PARAMS: Any = object()


def _call(value: dict[str, Any]) -> Request | Malformed:
    id_ = value["id"]
    method = value["method"]
    if type(id_) is not int and type(id_) is not str:
        return _invalid("an id is a string or an integer", value, None, answerable=True)
    if (fault := _envelope_fault(value, method)) is not None:
        return _invalid(fault, value, id_, answerable=True)
    params = value.get("params", _NO_PARAMS)
    if type(params) is dict:
        return Request(id_, method, params, value)
    if params is _NO_PARAMS:
        return Request(id_, method, {}, value)
    return Malformed(ErrorCode.INVALID_PARAMS, "params is not an object", id_, True, value)


def _notification(value: dict[str, Any]) -> Notification | Malformed:
    method = value["method"]
    if (fault := _envelope_fault(value, method)) is not None:
        return _invalid(fault, value, None, answerable=False)
    if "params" not in value:
        return Notification(method, {}, value)
    params = value["params"]
    if type(params) is not dict:
        return Malformed(ErrorCode.INVALID_PARAMS, "params is not an object", None, False, value)
    return Notification(method, params, value)


def _envelope_fault(value: dict[str, Any], method: object) -> str | None:
    if value.get("jsonrpc") != "2.0":
        return 'jsonrpc is not "2.0"'
    if type(method) is not str:
        return "the method is not a string"
    if "result" in value or "error" in value:
        return "both a call and a response"
    return None


def _result(value: dict[str, Any]) -> Result | Malformed:
    id_ = _id(value)
    result = value["result"]
    if value.get("jsonrpc") != "2.0":
        fault = 'jsonrpc is not "2.0"'
    elif "error" in value:
        fault = "both a result and an error"
    elif id_ is None:
        fault = "a result without an id that is a string or an integer"
    elif type(result) is not dict:
        fault = f"a result is an object, not {_kind(result)}"
    else:
        return Result(id_, result, value)
    return _invalid(fault, value, id_, answerable=False, answers=id_)


def _error(value: dict[str, Any]) -> Error | Malformed:
    id_ = _id(value)
    error = value["error"]
    if value.get("jsonrpc") != "2.0":
        fault = 'jsonrpc is not "2.0"'
    elif id_ is None and value.get("id") is not None:
        fault = "an id is a string or an integer"
    elif type(error) is not dict:
        fault = f"an error is an object, not {_kind(error)}"
    elif type(code := error.get("code")) is not int:
        fault = "an error without an integer code"
    elif type(message := error.get("message")) is not str:
        fault = "an error without a message"
    else:
        return Error(id_, code, message, error.get("data"), value)
    return _invalid(fault, value, id_, answerable=False, answers=id_)


def _invalid(
    reason: str, value: Any, id_: int | str | None, *, answerable: bool, answers: int | str | None = None
) -> Malformed:
    return Malformed(ErrorCode.INVALID_REQUEST, reason, id_, answerable, value, answers)


def _id(value: dict[str, Any]) -> int | str | None:
    id_ = value.get("id")
    return id_ if type(id_) is int or type(id_) is str else None


def _kind(value: Any) -> str:
    """Return the JSON name of a value's kind."""
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array"}
    return names.get(type(value), "an object")
