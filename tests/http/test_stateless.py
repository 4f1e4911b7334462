"""How stateless requests are told from those of sessions, and the fields that repeat their bodies."""

from __future__ import annotations

from typing import Any

import pytest

from mcpio.errors import ErrorCode, RequestError
from mcpio.framing import jsonrpc
from mcpio.framing.headers import encode_field
from mcpio.http.model import check_mirrors, check_param_fields, era_of, mirrored_name, param_headers
from mcpio.revisions import Era

H, S = Era.HANDSHAKE, Era.STATELESS
META = {"_meta": {"io.modelcontextprotocol/protocolVersion": None}}
"""The key decides, whatever its value is."""


def request(method: str, **params: Any) -> jsonrpc.Message:
    return jsonrpc.classify({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


def note(**params: Any) -> jsonrpc.Message:
    return jsonrpc.classify({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})


@pytest.mark.req("ERA-10", "ERA-12")
@pytest.mark.parametrize(
    ("message", "version", "era"),
    [
        (request("tools/list", **META), None, S),
        (request("tools/list", **META), "2025-11-25", S),
        (request("initialize", **META), "2025-11-25", S),
        (note(**META), None, S),
        (request("initialize"), "2026-07-28", H),
        (request("initialize"), "v999", H),
        (request("tools/list"), "2026-07-28", S),
        (request("tools/list"), "v999", S),
        (request("tools/list"), "", S),
        (request("tools/list", _meta=5), "2025-11-25", H),
        (request("tools/list", _meta={}), "2024-11-05", H),
        (request("tools/list"), None, H),
        (note(), None, H),
        (note(), "2026-07-28", S),
        (jsonrpc.parse(b"[]"), None, H),
        (jsonrpc.parse(b"[]"), "2026-07-28", S),
        (jsonrpc.parse(b"{"), "2026-07-28", S),
        (jsonrpc.parse(b'{"jsonrpc":"2.0","id":1,"result":{}}'), "2025-06-18", H),
    ],
)
def test_first_rule_that_decides_gives_the_era(message: jsonrpc.Message, version: str | None, era: Era) -> None:
    assert era_of(message, version, {H, S}) is era
    assert era_of(message, version, {H}) is H
    assert era_of(message, version, {S}) is S


FIELDS = [(b"mcp-method", b"tools/call"), (b"mcp-name", b"x"), (b"mcp-other", b"y")]


def fault(request: Any, fields: Any) -> str | None:
    try:
        check_mirrors(request, fields)
    except RequestError as error:
        return f"{error.code} {error.message}".removeprefix("-32020 Header mismatch: ")
    return None


@pytest.mark.req("HDR-02", "HDR-03")
@pytest.mark.parametrize(
    ("method", "member"),
    [
        ("tools/call", "name"),
        ("prompts/get", "name"),
        ("resources/read", "uri"),
        ("tasks/get", "taskId"),
        ("tasks/update", "taskId"),
        ("tasks/cancel", "taskId"),
    ],
)
def test_name_repeats_one_member_of_six_methods(method: str, member: str) -> None:
    named = request(method, **{member: "Grüße"})
    fields = [(b"mcp-method", method.encode()), (b"mcp-name", encode_field("Grüße").encode())]
    assert fault(named, fields) is None
    assert fault(named, fields[:1]) == "Mcp-Name is missing, the body says 'Grüße'"
    assert fault(request(method), fields[:1]) is None  # what is missing in the params is another fault
    assert fault(request(method, **{member: 5}), fields[:1]) is None
    assert fault(request("tools/list"), [(b"mcp-method", b"tools/list"), (b"mcp-name", b"ignored")]) is None


@pytest.mark.req("HDR-03", "HDR-12")
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (FIELDS, None),
        (FIELDS[1:], "Mcp-Method is missing, the body says 'tools/call'"),
        ([*FIELDS, FIELDS[0]], "Mcp-Method is there more than once, the body says 'tools/call'"),
        ([*FIELDS, FIELDS[1]], "Mcp-Name is there more than once, the body says 'x'"),
        ([(b"mcp-method", b"TOOLS/CALL"), FIELDS[1]], "Mcp-Method is 'TOOLS/CALL', the body says 'tools/call'"),
        ([(b"mcp-method", encode_field("ä").encode()), FIELDS[1]], "Mcp-Method is '=?base64?w6Q=?=', the body says"),
        ([FIELDS[0], (b"mcp-name", b"X")], "Mcp-Name is 'X', the body says 'x'"),
        ([FIELDS[0], (b"mcp-name", b"")], "Mcp-Name is '', the body says 'x'"),
        ([FIELDS[0], (b"mcp-name", "ä".encode())], "Mcp-Name is malformed, 'Ã¤': not visible ASCII"),
        ([FIELDS[0], (b"mcp-name", b"\xff\x00")], "Mcp-Name is malformed, 'ÿ\\x00': not visible ASCII"),
        ([FIELDS[0], (b"mcp-name", b"=?base64?eA?=")], "Mcp-Name is malformed, '=?base64?eA?=': "),
        ([FIELDS[0], (b"mcp-name", b"=?base64?/w==?=")], "Mcp-Name is malformed, '=?base64?/w==?=': 'utf-8' codec"),
        ([FIELDS[0], (b"mcp-name", b"=?base64?eA==?=")], None),
    ],
)
def test_fields_that_do_not_repeat_the_body_are_refused(fields: Any, reason: str | None) -> None:
    found = fault(request("tools/call", name="x"), fields)
    assert found is None if reason is None else str(found).startswith(reason), found


ANNOTATED = param_headers(
    {
        "properties": {
            "text": {"type": "string", "x-mcp-header": "Text"},
            "count": {"type": "integer", "x-mcp-header": "Count"},
            "deep": {"properties": {"flag": {"type": "boolean", "x-mcp-header": "Flag"}}},
        }
    }
)


def accepts(arguments: Any, **fields: str) -> bool:
    given = [(f"mcp-param-{name}".encode(), value.encode("latin-1")) for name, value in fields.items()]
    try:
        check_param_fields(ANNOTATED, arguments, given)
    except RequestError as error:
        return error.code != ErrorCode.HEADER_MISMATCH
    return True


@pytest.mark.req("HDR-09", "HDR-12")
@pytest.mark.parametrize(
    ("arguments", "fields", "is_accepted"),
    [
        ({}, {}, True),
        (None, {}, True),
        ({"text": None, "deep": None}, {}, True),
        ({}, {"unknown": "\xff"}, True),
        ({"text": "a"}, {"text": "a"}, True),
        ({"text": "a"}, {}, False),
        ({}, {"text": "a"}, False),
        ({"text": None}, {"text": ""}, False),
        ({"text": ""}, {"text": ""}, True),
        ({"text": "a"}, {"text": "A"}, False),
        ({"text": "Hello"}, {"text": "=?base64?SGVsbG8=?="}, True),
        ({"text": "Hello"}, {"text": "=?base64?SGVsbG8?="}, False),
        ({"text": "Hello"}, {"text": "=?base64?SGVs!!!bG8=?="}, False),
        ({"text": "SGVsbG8="}, {"text": "SGVsbG8="}, True),
        ({"text": "=?base64?SGVsbG8="}, {"text": "=?base64?SGVsbG8="}, True),
        ({"text": "ä"}, {"text": "\xe4"}, False),
        ({"text": "042"}, {"text": "42"}, False),
        ({"count": 42}, {"count": "42"}, True),
        ({"count": 42}, {"count": "42.0"}, True),
        ({"count": 42.0}, {"count": "42"}, True),
        ({"count": -42}, {"count": "-42.000"}, True),
        ({"count": 42}, {"count": "42.5"}, False),
        ({"count": 42}, {"count": "4_2"}, False),
        ({"count": 42}, {"count": "0x2a"}, False),
        ({"count": 2**53 - 1}, {"count": "9007199254740991.0"}, True),
        ({"count": 1.5}, {}, True),  # no integer: the arguments are at fault, not the field
        ({"count": 1.5}, {"count": "1.5"}, False),
        ({"deep": {"flag": True}}, {"flag": "true"}, True),
        ({"deep": {"flag": True}}, {"flag": "True"}, False),
        ({"deep": {"flag": True}}, {"flag": "1"}, False),
        ({"deep": {"flag": False}}, {"flag": "false"}, True),
        ({"text": {"an": "object"}}, {}, True),
    ],
)
def test_arguments_and_their_fields_are_compared(arguments: Any, fields: dict[str, str], is_accepted: bool) -> None:
    assert accepts(arguments, **fields) is is_accepted


@pytest.mark.req("HDR-09")
def test_field_given_twice_is_refused() -> None:
    with pytest.raises(RequestError, match="Mcp-Param-Text is there more than once"):
        check_param_fields(ANNOTATED, {"text": "a"}, [(b"mcp-param-text", b"a")] * 2)


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "x", "uri": "u"}, "x"),
        ("prompts/get", {"name": "x"}, "x"),
        ("resources/read", {"name": "x", "uri": "u"}, "u"),
        ("tasks/cancel", {"taskId": "t"}, "t"),
        ("tools/call", {"name": 5}, None),
        ("tools/call", {}, None),
        ("tools/list", {"name": "x"}, None),
    ],
)
@pytest.mark.req("HDR-02")
def test_name_of_a_request_is_the_member_that_its_method_repeats(method: str, params: Any, name: str | None) -> None:
    assert mirrored_name(method, params) == name
