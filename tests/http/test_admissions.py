"""The memory of checked request heads: which are remembered, for how long, and what differs between alike heads."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from mcpio.http.checks import _LARGEST_KNOWN, _MOST_KNOWN, Admissions, Checks
from mcpio.http.model import Denied, Headers, HttpOptions, RequestHead, ResponseHead

MOST = 1000


@attrs.define
class Endpoint:
    checks: Checks


def admissions() -> Admissions[Endpoint]:
    options = HttpOptions()
    return Admissions({"/mcp": Endpoint(Checks((), ("POST", "GET"), options, MOST))}, options)


def head(
    *fields: tuple[bytes, bytes], method: str = "POST", target: str = "/mcp", principal: Any = None
) -> RequestHead:
    headers: Headers = ((b"host", b"here"), *fields)
    return RequestHead(1, method, target, headers, principal=principal)


def length(number: int | bytes) -> tuple[bytes, bytes]:
    return b"content-length", number if isinstance(number, bytes) else b"%d" % number


def is_remembered(known: Admissions[Endpoint], *heads: RequestHead) -> bool:
    """Return whether the outcome of the first head is that of the last one."""
    outcomes = [known.of(each)[0] for each in heads]
    return outcomes[0] is outcomes[-1]


def test_alike_heads_have_one_outcome_and_their_own_session_event_and_size() -> None:
    known = admissions()
    first = known.of(head(length(5), (b"mcp-session-id", b"s"), (b"last-event-id", b"e1"), principal="ada"))
    second = known.of(head(length(120), (b"mcp-session-id", b"long"), (b"last-event-id", b"e"), principal="bob"))
    third = known.of(head())
    assert first[0] is second[0] is third[0]
    assert (first[1:3], second[1:3], third[1:3]) == (("s", "e1"), ("long", "e"), (None, None))
    request = first[0].request
    assert (request.session_id, request.last_event_id, request.content_length, request.principal) == (None,) * 4
    assert [each[3] - third[3] for each in (first, second)] == [len("5se1"), len("120longe")]
    assert third[3] == admissions().of(head())[3]


@pytest.mark.parametrize(
    "other",
    [
        head(method="GET"),
        head(target="/mcp?a"),
        head((b"host", b"there")),
        head((b"origin", b"https://x.example")),
        head((b"accept", b"*/*")),
        head((b"content-type", b"text/plain")),
        head((b"content-encoding", b"gzip")),
        head((b"mcp-protocol-version", b"2025-11-25")),
    ],
)
def test_head_that_differs_in_a_checked_field_has_an_outcome_of_its_own(other: RequestHead) -> None:
    assert not is_remembered(admissions(), head(), other)


@pytest.mark.parametrize(
    "each",
    [
        head((b"x", b"1"), (b"x", b"1")),
        head(length(b"1" * 10)),
        head(length(b"1a")),
        head(principal=Denied(401, "no")),
        head(length(MOST + 1)),
        head((b"accept", b"x" * _LARGEST_KNOWN)),
    ],
    ids=["field twice", "long length", "no number", "refused", "too long", "large head"],
)
def test_odd_head_is_checked_each_time(each: RequestHead) -> None:
    assert not is_remembered(admissions(), each, each)


@pytest.mark.parametrize("number", [b"1" * 9, b"0" * 8 + b"5", b"0", b"%d" % MOST])
def test_head_with_a_short_length_is_remembered(number: bytes) -> None:
    known = admissions()
    known.of(head())
    each = head(length(number))
    assert is_remembered(known, each, each) is (int(number) <= MOST)
    assert is_remembered(admissions(), each, each) is (int(number) <= MOST)


def test_length_over_the_limit_is_checked_anew_where_an_alike_head_is_known() -> None:
    known = admissions()
    assert is_remembered(known, head(length(MOST)), head(length(MOST)))
    assert not is_remembered(known, head(length(MOST)), head(length(MOST + 1)))


@pytest.mark.parametrize("fields", [(), (length(MOST + 1),)])
def test_address_without_an_endpoint_is_remembered_whatever_the_length(fields: Any) -> None:
    unknown = head(*fields, target="/other")
    assert is_remembered(admissions(), unknown, unknown)


@pytest.mark.parametrize("difference", [0, 1])
def test_largest_head_that_is_remembered(difference: int) -> None:
    varying = (length(5), (b"mcp-session-id", b"s" * 50), (b"last-event-id", b"e" * 20))
    rest = admissions().of(head(*varying, (b"accept", b"")))[3] - len("5") - 50 - 20
    each = head(*varying, (b"accept", b"y" * (_LARGEST_KNOWN - rest + difference)))
    assert is_remembered(admissions(), each, each) is (difference == 0)


def test_memory_of_heads_begins_anew_when_it_is_full() -> None:
    known = admissions()
    heads = [head(target=f"/mcp?{number}") for number in range(_MOST_KNOWN + 1)]
    outcomes = [known.of(each)[0] for each in heads[:-1]]
    assert all(known.of(each)[0] is outcome for each, outcome in zip(heads[:-1], outcomes, strict=True))
    known.of(heads[-1])
    assert known.of(heads[-1])[0] is known.of(heads[-1])[0]
    assert known.of(heads[0])[0] is not outcomes[0]


@pytest.mark.parametrize(
    ("status", "is_status"), [(99, False), (100, True), (999, True), (1000, False), (200.0, False)]
)
def test_status_is_a_whole_number_of_three_digits(status: Any, is_status: bool) -> None:
    if is_status:
        assert ResponseHead(1, status, ()).status == status
    else:
        with pytest.raises(ValueError, match="status must be a number from 100 to 999, not"):
            ResponseHead(1, status, ())


@pytest.mark.parametrize(("method", "target"), [("GET", b"/mcp"), (b"GET", "/mcp")])
def test_method_and_target_are_texts(method: Any, target: Any) -> None:
    with pytest.raises(TypeError, match="must be"):
        RequestHead(1, method, target, ())
