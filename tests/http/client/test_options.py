from __future__ import annotations

from typing import Any

import pytest

from mcpio.http.client import HttpClientOptions


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "x"},
        {"content-Length": "1"},
        {"Accept-Encoding": "gzip"},
        {"mcp-session-id": "x"},
        {"": "x"},
        {"a b": "x"},
        {"a\r\nb": "x"},
        {"caf\xe9": "x"},
        {5: "x"},
        {"x": "a\r\nb: c"},
        {"x": "a\0b"},
        {"x": "caf\xe9"},
        {"x": " a"},
        {"x": "a "},
        {"x": ""},
        {"x": 5},
    ],
)
def test_invalid_headers_are_refused_without_quoting_them(headers: dict[Any, Any]) -> None:
    with pytest.raises(ValueError, match="header"):
        HttpClientOptions(headers=headers)


def test_headers_of_another_type_are_refused_without_quoting_them() -> None:
    wrong: Any = [("Authorization", "Bearer secret")]
    with pytest.raises(TypeError, match=r"^headers must be a mapping of names to values, not a list$"):
        HttpClientOptions(headers=wrong)


@pytest.mark.parametrize(
    "given",
    [
        {"reconnect_after": None},
        {"reconnect_after": -1},
        {"reconnect_at_most": "x"},
        {"reconnect_tries": -1},
        {"redirects": 1.5},
        {"max_requests": 0},
        {"tell_timeout": float("inf")},
    ],
)
def test_invalid_numbers_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        HttpClientOptions(**given)


def test_headers_may_be_secrets_and_are_not_shown() -> None:
    options = HttpClientOptions(headers={"Authorization": "Bearer secret", "X-A_b": "a\tb c"})
    assert "secret" not in repr(options)


def test_delays_double_up_to_the_limit() -> None:
    options = HttpClientOptions(reconnect_after=1, reconnect_at_most=10)
    assert [options.delay(tries) for tries in (0, 1, 2, 3, 4, 5000)] == [1, 2, 4, 8, 10, 10]
    assert [options.delay(tries, 3.0) for tries in (0, 1, 2, 3, 4, 5000)] == [3, 3, 3, 4, 8, 10]
    assert options.delay(0, 20.0) == options.delay(5000, 20.0) == 20.0
    assert options.delay(0, 0.0) == 0.1
