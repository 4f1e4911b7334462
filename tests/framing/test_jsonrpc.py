from __future__ import annotations

import json
import types
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpio.errors import ErrorCode
from mcpio.framing.jsonrpc import (
    Batch,
    Error,
    Malformed,
    Notification,
    Request,
    Result,
    classify,
    encode_error,
    encode_kept_result,
    encode_notification,
    encode_raw_result,
    encode_request,
    encode_result,
    parse,
    result_in,
)

INVALID = ErrorCode.INVALID_REQUEST
PARAMS = ErrorCode.INVALID_PARAMS


def message(**members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", **members}


# Reading


@pytest.mark.req("RPC-01")
@pytest.mark.req("RPC-03")
@pytest.mark.parametrize("id_", [0, 1, -1, 2**53 + 1, 2**64, "", "1", "\u00e9"])
def test_a_request(id_: int | str) -> None:
    raw = message(id=id_, method="tools/call", params={"name": "x"}, more=1)
    assert classify(raw) == Request(id_, "tools/call", {"name": "x"}, raw)
    assert parse(json.dumps(raw)) == parse(json.dumps(raw).encode()) == classify(raw)


@pytest.mark.req("RPC-08")
@pytest.mark.req("RPC-21")
def test_an_id_keeps_its_type_and_all_its_digits() -> None:
    ids = [parse(b'{"jsonrpc":"2.0","method":"m","id":%b}' % text) for text in (b"1", b'"1"', b"123456789012345678901")]
    assert [repr(request.id) for request in ids if isinstance(request, Request)] == [
        "1",
        "'1'",
        "123456789012345678901",
    ]


def test_a_notification() -> None:
    raw = message(method="notifications/x", params={"a": 1})
    assert classify(raw) == Notification("notifications/x", {"a": 1}, raw)


def test_absent_params_are_empty() -> None:
    request, notification = message(id=1, method="ping"), message(method="n")
    assert classify(request) == Request(1, "ping", {}, request)
    assert classify(notification) == Notification("n", {}, notification)


@pytest.mark.req("RPC-10")
def test_a_result() -> None:
    raw = message(id="1", result={})
    assert classify(raw) == Result("1", {}, raw)


@pytest.mark.req("RPC-11")
@pytest.mark.req("RPC-12")
def test_an_error_with_and_without_an_id() -> None:
    error = {"code": -32601, "message": "no", "data": [1]}
    for id_ in (7, "7", None):
        raw = message(id=id_, error=error)
        assert classify(raw) == Error(id_, -32601, "no", [1], raw)
    without = message(error={"code": 1, "message": ""})
    assert classify(without) == Error(None, 1, "", None, without)


NO_IDS: list[Any] = [None, True, 1.0, 1.5, [], {}]
NO_OBJECTS: list[Any] = [[], [1], None, "x", 1]

# What is no message -> code, id to answer with, whether to answer, a part of the reason.
MALFORMED: list[tuple[Any, int, int | str | None, bool, str]] = [
    # Requests
    *((message(id=id_, method="m"), INVALID, None, True, "an id is") for id_ in NO_IDS),
    ({"id": 1, "method": "m"}, INVALID, 1, True, 'jsonrpc is not "2.0"'),
    ({"id": 1, "method": "m", "jsonrpc": "1.0"}, INVALID, 1, True, 'jsonrpc is not "2.0"'),
    ({"id": 1, "method": "m", "jsonrpc": 2.0}, INVALID, 1, True, 'jsonrpc is not "2.0"'),
    ({"id": "a", "method": "m", "jsonrpc": None}, INVALID, "a", True, 'jsonrpc is not "2.0"'),
    (message(id=1, method=2), INVALID, 1, True, "method is not a string"),
    (message(id=1, method=None), INVALID, 1, True, "method is not a string"),
    (message(id=1, method="m", result={}), INVALID, 1, True, "both a call and a response"),
    (message(id=1, method="m", error={}), INVALID, 1, True, "both a call and a response"),
    *((message(id=1, method="m", params=params), PARAMS, 1, True, "params") for params in NO_OBJECTS),
    (message(id=1, params={}), INVALID, 1, True, "no method"),
    # Notifications
    ({"method": "m"}, INVALID, None, False, 'jsonrpc is not "2.0"'),
    (message(method=2), INVALID, None, False, "method is not a string"),
    (message(method="m", result={}), INVALID, None, False, "both a call and a response"),
    *((message(method="m", params=params), PARAMS, None, False, "params") for params in NO_OBJECTS),
    # Results
    ({"id": 1, "result": {}}, INVALID, 1, False, 'jsonrpc is not "2.0"'),
    *((message(id=id_, result={}), INVALID, None, False, "without an id") for id_ in NO_IDS),
    (message(result={}), INVALID, None, False, "without an id"),
    (message(id=1, result="x"), INVALID, 1, False, "a result is an object, not a string"),
    (message(id=1, result=None), INVALID, 1, False, "not null"),
    (message(id=1, result=[]), INVALID, 1, False, "not an array"),
    (message(id=1, result=True), INVALID, 1, False, "not a boolean"),
    (message(id=1, result=1.5), INVALID, 1, False, "not a number"),
    (message(id=1, result={}, error={"code": 1, "message": "m"}), INVALID, 1, False, "both a result and an error"),
    (message(id=1, result={}, error=None), INVALID, 1, False, "both a result and an error"),
    # Errors
    ({"id": 1, "error": {"code": 1, "message": "m"}}, INVALID, 1, False, 'jsonrpc is not "2.0"'),
    (message(id=1.5, error={"code": 1, "message": "m"}), INVALID, None, False, "an id is"),
    (message(id=False, error={"code": 1, "message": "m"}), INVALID, None, False, "an id is"),
    (message(id=1, error="bad"), INVALID, 1, False, "an error is an object, not a string"),
    (message(id=1, error=None), INVALID, 1, False, "an error is an object, not null"),
    (message(id=1, error={"message": "m"}), INVALID, 1, False, "without an integer code"),
    (message(id=1, error={"code": 1.0, "message": "m"}), INVALID, 1, False, "without an integer code"),
    (message(id=1, error={"code": True, "message": "m"}), INVALID, 1, False, "without an integer code"),
    (message(id=1, error={"code": "1", "message": "m"}), INVALID, 1, False, "without an integer code"),
    (message(id=1, error={"code": 1}), INVALID, 1, False, "without a message"),
    (message(id=1, error={"code": 1, "message": None}), INVALID, 1, False, "without a message"),
    # Nothing in particular
    ({}, INVALID, None, True, "no method, result or error"),
    (message(id=1), INVALID, None, True, "no method, result or error"),
    *((value, INVALID, None, True, "a message is an object") for value in (None, True, 0, 1.5, "x")),
]


def _asked_id(value: Any) -> Any:
    """Return the id that a malformed message answers: that of anything but a call, where it has one."""
    is_answer = isinstance(value, dict) and "method" not in value and "params" not in value
    id = value.get("id") if is_answer else None
    return id if type(id) in (int, str) else None


@pytest.mark.req("RPC-01")
@pytest.mark.req("RPC-03")
@pytest.mark.req("RPC-04")
@pytest.mark.req("RPC-09")
@pytest.mark.req("RPC-10")
@pytest.mark.req("RPC-11")
@pytest.mark.req("RPC-13")
@pytest.mark.req("RPC-14")
@pytest.mark.req("RPC-15")
@pytest.mark.parametrize(
    ("value", "code", "id_", "answerable", "reason"), MALFORMED, ids=[str(row[0]) for row in MALFORMED]
)
def test_other_values_are_malformed(
    value: Any, code: int, id_: int | str | None, answerable: bool, reason: str
) -> None:
    malformed = classify(value)
    assert isinstance(malformed, Malformed)
    assert reason in malformed.reason
    answers = _asked_id(value)
    assert malformed == Malformed(code, malformed.reason, id_, answerable, value, answers)
    assert parse(json.dumps(value)) == malformed


@pytest.mark.req("RPC-02")
@pytest.mark.req("RPC-15")
@pytest.mark.req("STDIO-12")
@pytest.mark.parametrize(
    "text", [b"Listening on port 3000", b"", b"{", b'{"a":"\xff"}', b"[" * 200, '"\ud800"', b"NaN"]
)
def test_invalid_json_is_malformed(text: bytes | str) -> None:
    malformed = parse(text)
    assert isinstance(malformed, Malformed)
    assert malformed == Malformed(ErrorCode.PARSE_ERROR, malformed.reason, None, True, None)


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ('{"jsonrpc":"2.0","id":7,"result":{"text":"\\ud800"}}', 7),
        ('{"jsonrpc":"2.0","result":{"text":"\\ud800"},"id":7}', 7),
        ('{"result":{"x":NaN},"jsonrpc":"2.0","id":7}', 7),
        ('{"result":{"x":NaN},"id":7,"jsonrpc":"2.0"}\r', 7),
        (' { "id" : 7 , "jsonrpc" : "2.0" , "error" : {"code":1e999}}', 7),
        ('{"jsonrpc":"2.0","id":7,"result":{"cut off', 7),
        ('{"jsonrpc":"2.0","id":7,"result":"\ud800"}', 7),
        (b'{"jsonrpc":"2.0","id":7,"result":"\xff"}', 7),
        (b'{"result":"\xff","jsonrpc":"2.0","id":7}', 7),
        ('{"result":"' + "x" * 1000 + '\\ud800","id":7}', 7),
        ('{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":NaN}}', None),
        ('{"method":"ping","params":{"result":NaN},"id":7}', None),
        ('{"jsonrpc":"2.0","id":"7","result":NaN}', None),
        ('{"jsonrpc":"2.0","id":7.0,"result":NaN}', None),
        ('{"jsonrpc":"2.0","id":' + "7" * 30 + ',"result":NaN}', None),
        ('{"jsonrpc":"2.0","id":7,"params":{"id":8,"result":NaN}}', None),
        ('{"jsonrpc":"2.0","result":{"cut off', None),
        ("Listening on port 3000", None),
        ("", None),
    ],
)
def test_id_is_found_in_an_unreadable_response(text: bytes | str, answers: int | None) -> None:
    malformed = parse(text)
    assert isinstance(malformed, Malformed)
    assert (malformed.code, malformed.answers) == (ErrorCode.PARSE_ERROR, answers)


@pytest.mark.req("BATCH-01")
@pytest.mark.req("BATCH-05")
def test_batch_keeps_its_elements() -> None:
    assert parse(b"[]") == Batch(())
    assert parse(b'[1,{"a":2},[]]') == Batch((1, {"a": 2}, []))
    assert classify([message(id=1)]) == Batch((message(id=1),))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["2.0", "1.0", "x", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "code", "message", "data"]), inner
        )
    ),
    max_leaves=15,
)


@given(JSON_VALUES)
def test_classify_never_raises(value: Any) -> None:
    found = classify({"jsonrpc": "2.0"} | value if isinstance(value, dict) else value)
    assert isinstance(found, Request | Notification | Result | Error | Malformed | Batch)
    if isinstance(found, Malformed) and isinstance(value, dict):
        assert found.answerable == (
            ("method" in value and "id" in value) or not {"method", "result", "error"} & value.keys()
        )


@given(st.binary(max_size=30))
def test_parse_never_raises(text: bytes) -> None:
    assert isinstance(parse(text), Malformed | Batch)


# Values


def test_messages_compare_by_their_members_and_show_them() -> None:
    raw = message(id=1, method="m")
    request = Request(1, "m", {}, raw)
    assert request == Request(1, "m", {}, dict(raw))
    assert request != Request(2, "m", {}, raw)
    assert request != (1, "m", {}, raw)
    assert Notification("m", {}, {}) != Request(1, "m", {}, {})
    assert repr(request) == f"Request(id=1, method='m', params={{}}, raw={raw!r})"
    assert repr(Batch((1,))) == "Batch(items=(1,))"
    with pytest.raises(TypeError, match="unhashable"):
        hash(request)


def test_messages_match_by_position() -> None:
    found: list[Any] = []
    for raw in (
        message(id=1, method="m", params={"a": 1}),
        message(method="n"),
        message(id=2, result={"b": 2}),
        message(id=3, error={"code": 4, "message": "e"}),
        [5],
        6,
    ):
        match classify(raw):
            case Request(id_, method, params, _):
                found.append((id_, method, params))
            case Notification(method, params, _):
                found.append((method, params))
            case Result(id_, result, _):
                found.append((id_, result))
            case Error(error_id, code, text, data, _):
                found.append((error_id, code, text, data))
            case Malformed(code, reason, _, answerable, value):
                found.append((code, reason, answerable, value))
            case Batch(items):
                found.append(items)
    assert found == [
        (1, "m", {"a": 1}),
        ("n", {}),
        (2, {"b": 2}),
        (3, 4, "e", None),
        (5,),
        (INVALID, "a message is an object", True, 6),
    ]


# Writing


@pytest.mark.req("RPC-01")
@pytest.mark.parametrize("params", [{"a": [1, "\u00e9"]}, types.MappingProxyType({"a": [1, "\u00e9"]})])
def test_encoded_calls(params: Mapping[str, Any]) -> None:
    assert (
        encode_request(1, "m", params) == '{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[1,"\u00e9"]}}'.encode()
    )
    assert encode_notification("n", params) == '{"jsonrpc":"2.0","method":"n","params":{"a":[1,"\u00e9"]}}'.encode()
    assert encode_request("x", "m", None) == b'{"jsonrpc":"2.0","id":"x","method":"m"}'
    assert encode_notification("n", None) == b'{"jsonrpc":"2.0","method":"n"}'
    assert encode_request(1, "m", {}) == b'{"jsonrpc":"2.0","id":1,"method":"m","params":{}}'


@pytest.mark.req("RPC-08")
@pytest.mark.req("RPC-10")
@pytest.mark.parametrize("result", [{}, types.MappingProxyType({})])
def test_encoded_results(result: Mapping[str, Any]) -> None:
    assert encode_result(2**64, result) == b'{"jsonrpc":"2.0","id":18446744073709551616,"result":{}}'
    assert encode_result("1", result) == b'{"jsonrpc":"2.0","id":"1","result":{}}'


@pytest.mark.req("RPC-11")
@pytest.mark.req("RPC-12")
def test_encoded_errors() -> None:
    assert encode_error(1, -1, "no") == b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}'
    assert encode_error(None, -1, "no", 0) == b'{"jsonrpc":"2.0","error":{"code":-1,"message":"no","data":0}}'
    assert encode_error(None, -1, "no", with_null_id=True) == (
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no"}}'
    )
    assert encode_error("1", -1, "no", {}, with_null_id=True) == (
        b'{"jsonrpc":"2.0","id":"1","error":{"code":-1,"message":"no","data":{}}}'
    )


@pytest.mark.parametrize("id", [1, "a", '"result":', "\\"])
def test_result_in_an_answer_is_found_for_any_id(id: int | str) -> None:
    members = {"result": {"result": [1]}}
    text = result_in(encode_result(id, members))
    assert json.loads(text) == members
    assert json.loads(encode_kept_result("b", text)) == {"jsonrpc": "2.0", "id": "b", "result": members}


@pytest.mark.req("STDIO-02")
def test_an_encoded_message_is_one_line() -> None:
    text = {"text": "a\r\nb\u2028c\u2029d\x85e"}
    for line in (
        encode_request("\n", "\r", text),
        encode_notification("\n", text),
        encode_result("\n", text),
        encode_error("\n", 1, "\r\n", text),
        encode_raw_result("\n", b'{\r\n"text":\n"a\\r\\nb"\r}\n'),
    ):
        assert b"\n" not in line
        assert b"\r" not in line
        assert json.loads(line).keys() >= {"jsonrpc"}


def test_value_without_json_form_is_refused_at_its_place() -> None:
    with pytest.raises(ValueError, match=r"result\.content\[0\]\.text: a string with a surrogate"):
        encode_result(1, {"content": [{"text": "\ud800"}]})
    with pytest.raises(ValueError, match=r"params\.a: nan has no form in JSON"):
        encode_request(1, "m", {"a": float("nan")})
    with pytest.raises(TypeError, match=r"params\.a: bytes has no form in JSON"):
        encode_notification("n", {"a": b""})
    with pytest.raises(TypeError, match=r"error\.data: object has no form in JSON"):
        encode_error(1, 1, "m", object())


def test_raw_result_is_forwarded_byte_for_byte() -> None:
    assert encode_raw_result(1, b'{"a": 1.10, "a": 1e2}') == b'{"jsonrpc":"2.0","id":1,"result":{"a": 1.10, "a": 1e2}}'
    assert encode_raw_result("\u00e9", b"{}") == '{"jsonrpc":"2.0","id":"\u00e9","result":{}}'.encode()


def test_newlines_between_the_values_of_a_raw_result_become_spaces() -> None:
    assert encode_raw_result(1, b'{\n\t"a": "\\n",\r\n"b":[\r]\n}') == (
        b'{"jsonrpc":"2.0","id":1,"result":{ \t"a": "\\n",  "b":[ ] }}'
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "not acceptable JSON: no JSON value"),
        (b'{"a":"x\ny"}', "not acceptable JSON: invalid control character"),
        (b'{},"x":{}', "not acceptable JSON: extra data"),
        (b'{}}\n{"jsonrpc":"2.0"', "not acceptable JSON: extra data"),
        (b'{"a":NaN}', "NaN is not JSON"),
        (b'{"a":"\xff"}', "not UTF-8"),
        (b"[]", "a result must be a JSON object, not an array"),
        (b"null", "not null"),
        (b'"x"', "not a string"),
        (b"1", "not a number"),
        (b"1.5", "not a number"),
        (b"false", "not a boolean"),
        (b'{"a":' + b"[" * 127 + b"]" * 127 + b"}", "nested deeper than 127"),
    ],
)
def test_raw_result_that_is_not_an_object_is_refused(text: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        encode_raw_result(1, text)
    assert type(caught.value) is ValueError


def test_a_raw_result_may_nest_as_deep_as_the_message_may() -> None:
    line = encode_raw_result(1, b'{"a":' + b"[" * 126 + b"]" * 126 + b"}")
    assert isinstance(parse(line), Result)


@given(st.integers() | st.text(), st.text(), st.dictionaries(st.text(), st.integers() | st.text()))
def test_encoded_messages_are_parsed_back(id_: int | str, text: str, members: dict[str, Any]) -> None:
    request = message(id=id_, method=text, params=members)
    assert parse(encode_request(id_, text, members)) == Request(id_, text, members, request)
    assert parse(encode_notification(text, members)) == Notification(
        text, members, message(method=text, params=members)
    )
    assert parse(encode_result(id_, members)) == Result(id_, members, message(id=id_, result=members))
    error = {"code": 5, "message": text, "data": members}
    assert parse(encode_error(id_, 5, text, members)) == Error(id_, 5, text, members, message(id=id_, error=error))
