from __future__ import annotations

from typing import Any

import pytest

from mcpio.codec import codec
from mcpio.engine.gates import check_error, decoded_error
from mcpio.errors import ErrorCode, LocalProtocolError, RequestError, SamplingRejected, URLElicitationRequired
from mcpio.revisions import REV_2025_06_18, REV_2025_11_25
from mcpio.types import ClientCapabilities, ElicitationCapability, ElicitURLRequest

VISIT = {"mode": "url", "message": "Log in", "url": "https://example.com", "elicitationId": "1"}
CURRENT, OLDER = codec(REV_2025_11_25), codec(REV_2025_06_18)


def error(code: int, data: Any = None) -> tuple[int, str, Any]:
    return code, "no", data


@pytest.mark.req("SAMP-12")
def test_sampling_rejected_by_the_user_has_its_own_class() -> None:
    found = decoded_error(*error(-1, "why"), "sampling/createMessage", CURRENT)
    assert isinstance(found, SamplingRejected)
    assert (found.code, found.message, found.data) == (-1, "no", "why")
    assert type(decoded_error(*error(-1), "tools/call", CURRENT)) is RequestError


@pytest.mark.req("ELIC-17")
def test_url_elicitation_error_carries_typed_requests() -> None:
    data = {"elicitations": [VISIT], "more": 1}
    found = decoded_error(*error(ErrorCode.URL_ELICITATION_REQUIRED, data), "tools/call", CURRENT)
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
def test_unreadable_url_elicitation_data_gives_a_plain_error(data: Any) -> None:
    found = decoded_error(*error(ErrorCode.URL_ELICITATION_REQUIRED, data), "tools/call", CURRENT)
    assert type(found) is RequestError
    assert (found.code, found.data) == (-32042, data)


def test_older_revision_gives_a_plain_error() -> None:
    found = decoded_error(*error(-32042, {"elicitations": [VISIT]}), "tools/call", OLDER)
    assert type(found) is RequestError


WITHOUT = ClientCapabilities()
WITH_FORM = ClientCapabilities(elicitation=ElicitationCapability(form={}))
WITH_URL = ClientCapabilities(elicitation=ElicitationCapability(url={}))


@pytest.mark.req("ELIC-17")
@pytest.mark.parametrize("to", [None, WITHOUT, WITH_FORM])
def test_url_elicitation_error_needs_the_peers_capability(to: ClientCapabilities | None) -> None:
    asks = URLElicitationRequired([ElicitURLRequest("Log in", "https://example.com", "1")])
    with pytest.raises(LocalProtocolError, match=r"^error -32042 needs the capability elicitation\.url"):
        check_error(asks, to, CURRENT)
    check_error(asks, WITH_URL, CURRENT)
    check_error(RequestError(1, "no"), to, CURRENT)


@pytest.mark.req("ELIC-17")
@pytest.mark.parametrize("data", BAD)
def test_url_elicitation_error_without_addresses_is_refused(data: Any) -> None:
    with pytest.raises(LocalProtocolError, match=r"^the data of error -32042: "):
        check_error(RequestError(-32042, "no", data), WITH_URL, CURRENT)
