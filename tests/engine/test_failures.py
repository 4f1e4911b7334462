from __future__ import annotations

from typing import Any

import pytest

from mcpio.codec import codec
from mcpio.engine.failures import check_error, decoded_error
from mcpio.errors import ErrorCode, LocalProtocolError, RequestError, SamplingRejected, URLElicitationRequired
from mcpio.events import RequestContext
from mcpio.framing import jsonrpc
from mcpio.revisions import REV_2025_06_18, REV_2025_11_25, Era
from mcpio.types import ClientCapabilities, ElicitationCapability, ElicitURLRequest, Implementation

VISIT = {"mode": "url", "message": "Log in", "url": "https://example.com", "elicitationId": "1"}
CURRENT, OLDER = codec(REV_2025_11_25), codec(REV_2025_06_18)


def error(code: int, data: Any = None) -> jsonrpc.Error:
    return jsonrpc.Error(1, code, "no", data, {})


@pytest.mark.req("SAMP-12")
def test_the_users_refusal_has_a_class() -> None:
    found = decoded_error(error(-1, "why"), "sampling/createMessage", CURRENT)
    assert isinstance(found, SamplingRejected)
    assert (found.code, found.message, found.data) == (-1, "no", "why")
    assert type(decoded_error(error(-1), "tools/call", CURRENT)) is RequestError


@pytest.mark.req("ELIC-17")
def test_addresses_to_visit_first_have_a_class() -> None:
    data = {"elicitations": [VISIT], "more": 1}
    found = decoded_error(error(ErrorCode.URL_ELICITATION_REQUIRED, data), "tools/call", CURRENT)
    assert isinstance(found, URLElicitationRequired)
    assert found.elicitations == (ElicitURLRequest("Log in", "https://example.com", "1"),)
    assert (found.message, found.data) == ("no", data)


BAD: list[Any] = [
    None,
    "text",
    {},
    {"elicitations": []},
    {"elicitations": [{**VISIT, "elicitationId": None}]},
    {"elicitations": [{name: value for name, value in VISIT.items() if name != "elicitationId"}]},
    {"elicitations": [VISIT, {**VISIT, "mode": "form"}]},
    {"elicitations": [{**VISIT, "url": 5}]},
]


@pytest.mark.req("ELIC-17")
@pytest.mark.parametrize("data", BAD)
def test_addresses_that_make_no_sense_are_an_error_like_others(data: Any) -> None:
    found = decoded_error(error(ErrorCode.URL_ELICITATION_REQUIRED, data), "tools/call", CURRENT)
    assert type(found) is RequestError
    assert (found.code, found.data) == (-32042, data)


def test_an_older_revision_has_no_such_error() -> None:
    found = decoded_error(error(-32042, {"elicitations": [VISIT]}), "tools/call", OLDER)
    assert type(found) is RequestError


def context(elicitation: ElicitationCapability | None) -> RequestContext:
    capabilities = ClientCapabilities(elicitation=elicitation)
    return RequestContext(Era.HANDSHAKE, REV_2025_11_25, capabilities, Implementation("c", "1"), None, None, None)


WITH_URL = context(ElicitationCapability(url={}))


@pytest.mark.req("ELIC-17")
@pytest.mark.parametrize("to", [None, context(None), context(ElicitationCapability(form={}))])
def test_who_declared_no_visits_is_not_sent_on_one(to: RequestContext | None) -> None:
    asks = URLElicitationRequired([ElicitURLRequest("Log in", "https://example.com", "1")])
    with pytest.raises(LocalProtocolError, match=r"^error -32042 needs the capability elicitation\.url"):
        check_error(asks, to, CURRENT)
    check_error(asks, WITH_URL, CURRENT)
    check_error(RequestError(1, "no"), to, CURRENT)


@pytest.mark.req("ELIC-17")
@pytest.mark.parametrize("data", BAD)
def test_the_code_is_for_nothing_else(data: Any) -> None:
    with pytest.raises(LocalProtocolError, match=r"^the data of error -32042: "):
        check_error(RequestError(-32042, "no", data), WITH_URL, CURRENT)
