"""What a client does after ``server/discover``: the table, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from mcpio.engine.client import Initialize, ProbeAgain, Refuse, SettleStateless, judge, revision_to_probe
from mcpio.errors import (
    AuthorizationRequired,
    ConnectFailed,
    ConnectionLost,
    InvalidMessage,
    McpError,
    RequestError,
    RequestTimeout,
    UnexpectedResponse,
)
from mcpio.revisions import HANDSHAKE_REVISIONS, REV_2025_06_18, REV_2025_11_25, REV_2026_07_28, REVISIONS
from mcpio.types import DiscoverResult, ServerCapabilities

ONLY_STATELESS = (REV_2026_07_28,)
NEW, OLD = "2026-07-28", "2025-11-25"


def discovered(*supported: str) -> DiscoverResult:
    return DiscoverResult(supported, ServerCapabilities())


def unsupported(*supported: Any, requested: Any = NEW) -> RequestError:
    return RequestError(-32022, "Unsupported", {"supported": list(supported), "requested": requested})


@pytest.mark.req("ERA-02")
@pytest.mark.parametrize("supported", [(NEW,), (OLD, NEW), (NEW, "2027-01-01")])
def test_result_with_a_common_stateless_revision_settles_it(supported: tuple[str, ...]) -> None:
    assert judge(discovered(*supported), REVISIONS) == SettleStateless(REV_2026_07_28)


@pytest.mark.req("ERA-04", "ERA-16")
@pytest.mark.parametrize("outcome", [discovered(OLD, "2025-06-18"), unsupported("2024-11-05", OLD)])
def test_handshake_revisions_only_lead_to_initialize(outcome: Any) -> None:
    assert judge(outcome, REVISIONS) == Initialize()
    assert judge(outcome, REVISIONS, again=True) == Initialize()


@pytest.mark.req("ERA-16")
@pytest.mark.parametrize("make", [discovered, unsupported])
@pytest.mark.parametrize("supported", [("2027-01-01",), ("2027-01-01", OLD), ("2024-11-05",)])
def test_no_common_revision_is_refused_with_both_lists(make: Any, supported: tuple[str, ...]) -> None:
    verdict = judge(make(*supported), (REV_2025_06_18, REV_2025_11_25, REV_2026_07_28))
    assert isinstance(verdict, Refuse)
    assert verdict.supported == supported
    said = f"the server speaks {', '.join(supported)}, this client 2026-07-28, 2025-11-25, 2025-06-18"
    assert str(verdict.error) == said


def test_result_without_revisions_is_refused() -> None:
    verdict = judge(discovered(), REVISIONS)
    assert isinstance(verdict, Refuse)
    assert "the server speaks no revision" in str(verdict.error)


@pytest.mark.req("VER-02", "ERA-02")
def test_refused_version_is_probed_again_once() -> None:
    assert judge(unsupported(NEW), REVISIONS) == ProbeAgain(REV_2026_07_28)
    verdict = judge(unsupported(NEW), REVISIONS, again=True)
    assert isinstance(verdict, Refuse)
    assert verdict.supported == (NEW,)
    assert isinstance(verdict.error.__cause__, RequestError)


@pytest.mark.req("ERA-09")
@pytest.mark.parametrize(
    "error",
    [
        RequestError(-32022, "Unsupported"),
        RequestError(-32022, "Unsupported", {"supported": [NEW]}),
        RequestError(-32022, "Unsupported", {"supported": NEW, "requested": NEW}),
        unsupported(5),
        unsupported(),
        RequestError(-32021, "too many tasks"),
        RequestError(-32021, "missing", {"requiredCapabilities": []}),
        RequestError(-32020, "mismatch"),
        RequestError(-32601, "Method not found"),
        RequestError(-32602, "Invalid request parameters"),
        RequestError(-32600, "Server not initialized"),
        RequestError(-32000, "Bad Request: Server not initialized"),
    ],
)
def test_other_errors_lead_to_initialize(error: RequestError) -> None:
    assert judge(error, REVISIONS) == Initialize()


@pytest.mark.req("ERA-09")
def test_missing_capability_is_refused() -> None:
    error = RequestError(-32021, "missing", {"requiredCapabilities": {"roots": {}}})
    assert judge(error, REVISIONS) == Refuse(error)


def test_header_mismatch_is_refused_over_http() -> None:
    verdict = judge(RequestError(-32020, "no Mcp-Method"), REVISIONS, over_http=True)
    assert isinstance(verdict, Refuse)
    assert "drops or changes Mcp-… headers" in str(verdict.error)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([f"x{number}" for number in range(100_000)], "x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, ..."),
        (["x" * 100_000], "x" * 200),
        (["\x1b[31m\nred\u202e"], r"\x1b[31m red\u202e"),
    ],
)
def test_revisions_of_the_server_are_quoted_short_and_printable(names: list[str], said: str) -> None:
    data = {"supported": names, "requested": "2026-07-28"}
    for outcome in (RequestError(-32022, "no", data), DiscoverResult(tuple(names), ServerCapabilities())):
        verdict = judge(outcome, REVISIONS)
        assert isinstance(verdict, Refuse)
        assert str(verdict.error).startswith(f"the server speaks {said}, this client 2026-07-28, ")
    data = {"supported": ["2026-07-28", *names], "requested": "2026-07-28"}
    verdict = judge(RequestError(-32022, "no", data), REVISIONS, again=True)
    assert isinstance(verdict, Refuse)
    assert len(str(verdict.error)) < 300


def test_result_of_another_shape_leads_to_initialize() -> None:
    assert judge(InvalidMessage("supportedVersions", "missing"), REVISIONS) == Initialize()


@pytest.mark.req("ERA-02", "ERA-07")
def test_silence_leads_to_initialize_on_a_channel_only() -> None:
    error = RequestTimeout("server/discover", 10.0)
    assert judge(error, REVISIONS) == Initialize()
    assert judge(error, REVISIONS, over_http=True) == Refuse(error)


@pytest.mark.req("ERA-05")
@pytest.mark.parametrize("status", [400, 404, 405, 406, 415, 422])
def test_client_error_without_a_readable_body_leads_to_initialize(status: int) -> None:
    assert judge(UnexpectedResponse(status, "text/html"), REVISIONS, over_http=True) == Initialize()


@pytest.mark.req("ERA-07")
@pytest.mark.parametrize(
    "error",
    [
        UnexpectedResponse(500, "oops"),
        UnexpectedResponse(503, "busy"),
        UnexpectedResponse(429, "slowly"),
        UnexpectedResponse(200, "text/html"),
        AuthorizationRequired("log in"),
        ConnectionLost("gone"),
    ],
)
def test_other_failures_are_refused(error: McpError) -> None:
    assert judge(error, REVISIONS, over_http=True) == Refuse(error)


@pytest.mark.req("ERA-08")
@pytest.mark.parametrize("outcome", [RequestError(-32601, "Method not found"), discovered(OLD)])
def test_client_of_the_stateless_era_only_never_initializes(outcome: Any) -> None:
    verdict = judge(outcome, ONLY_STATELESS)
    assert isinstance(verdict, Refuse)
    assert isinstance(verdict.error, ConnectFailed)
    assert "2026-07-28" in str(verdict.error)


def test_client_of_the_stateless_era_only_names_the_cause() -> None:
    error = RequestError(-32601, "Method not found")
    verdict = judge(error, ONLY_STATELESS)
    assert isinstance(verdict, Refuse)
    assert str(verdict.error) == "the server does not speak 2026-07-28: Method not found (-32601)"
    assert verdict.error.__cause__ is error


@pytest.mark.req("ERA-03")
def test_refused_initialize_is_followed_by_a_probe_if_it_names_a_revision() -> None:
    assert revision_to_probe(unsupported(NEW, requested=OLD), REVISIONS) == REV_2026_07_28
    assert revision_to_probe(unsupported(OLD, requested=OLD), REVISIONS) is None
    assert revision_to_probe(unsupported(NEW, requested=OLD), HANDSHAKE_REVISIONS) is None
    assert revision_to_probe(RequestError(-32602, "no"), REVISIONS) is None


@pytest.mark.req("XERR-07")
def test_numbers_of_drafts_count_with_data_of_their_shape() -> None:
    unsupported = RequestError(-32004, "x", {"supported": ["2026-07-28"], "requested": "DRAFT"})
    assert isinstance(judge(unsupported, REVISIONS), ProbeAgain)
    missing = RequestError(-32003, "x", {"requiredCapabilities": {"roots": {}}})
    assert judge(missing, REVISIONS) == Refuse(missing)
    for code in (-32003, -32004):
        assert isinstance(judge(RequestError(code, "x", {"a": 1}), REVISIONS), Initialize)
