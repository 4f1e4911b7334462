from __future__ import annotations

import pickle
from typing import Any

import pytest

from mcpio.refusals import FIRST_REFUSAL, LAST_REFUSAL, RefusalCode, category_of, find_refusal

RANGES = {
    "queue": (1001, 1010),
    "auth": (1011, 1020),
    "validation": (1021, 1035),
    "path": (1036, 1045),
    "entity": (1046, 1055),
    "rate-limit": (1056, 1065),
    "transport": (1066, 1075),
    "server-state": (1076, 1085),
    "health": (1086, 1089),
}
RETRYABLE = {1001, 1002, 1004, 1005, 1056, 1057, 1058, 1060, 1067, 1069, 1077, 1078, 1080, *range(1086, 1090)}


@pytest.mark.parametrize("category", RANGES)
def test_e7_each_of_the_nine_categories_has_its_range(category: str) -> None:
    first, last = RANGES[category]
    assert {category_of(code) for code in range(first, last + 1)} == {category}


def test_ranges_are_contiguous() -> None:
    assert [code for first, last in RANGES.values() for code in range(first, last + 1)] == list(
        range(FIRST_REFUSAL, LAST_REFUSAL + 1)
    )


@pytest.mark.parametrize("code", [1000, 1090, 1099, 0, -32603])
def test_e8_codes_from_1090_are_not_refusals(code: int) -> None:
    with pytest.raises(ValueError, match="a refusal code must lie between 1001 and 1089"):
        category_of(code)


def test_category_of_anything_else_raises_value_error() -> None:
    wrong: Any = "x"
    with pytest.raises(ValueError, match="a refusal code must lie between 1001 and 1089, not 'x'"):
        category_of(wrong)


def test_the_table_has_every_assigned_code_once_and_in_order() -> None:
    codes = [int(code) for code in RefusalCode.__members__.values()]
    assert len(codes) == 51
    assert codes == sorted(set(codes))
    assert codes[0] == FIRST_REFUSAL
    assert codes[-1] == LAST_REFUSAL
    assert len({code.meaning for code in RefusalCode}) == 51


@pytest.mark.parametrize("code", RefusalCode, ids=lambda code: code.name)
def test_refusal_rows_are_consistent(code: RefusalCode) -> None:
    assert find_refusal(int(code)) is code
    assert code.category == category_of(int(code))
    assert code.severity in ("warn", "error", "critical")
    assert code.http_status in (400, 401, 403, 404, 409, 413, 415, 429, 503)
    # A fault of the request itself stays one, however often it is sent.
    assert not code.retryable or code.http_status in (429, 503)
    assert (code.category == "rate-limit") <= (code.http_status == 429)
    assert (code.category in ("server-state", "health")) <= (code.http_status == 503)


def test_a37_the_codes_after_which_a_client_may_try_again() -> None:
    assert {int(code) for code in RefusalCode if code.retryable} == RETRYABLE


def test_code_found_by_number_and_by_name() -> None:
    found = find_refusal(1056)
    assert found is RefusalCode.RATE_LIMIT_EXCEEDED is RefusalCode["RATE_LIMIT_EXCEEDED"]
    assert (found.meaning, found.http_status, found.severity, found.retryable, found.category) == (
        "Rate limit exceeded",
        429,
        "error",
        True,
        "rate-limit",
    )
    assert pickle.loads(pickle.dumps(found)) is found
    assert find_refusal(1006) is None
