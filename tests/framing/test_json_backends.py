from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpio.framing.json import backend, check_nesting, has_more_values

COMPILED = importlib.util.find_spec("msgspec") is not None and importlib.util.find_spec("orjson") is not None
BACKENDS = [backend("stdlib")] + [backend("compiled")] * COMPILED


def outcome(function: Callable[[Any], Any], argument: Any) -> tuple[str, str]:
    try:
        return "value", repr(function(argument))
    except (TypeError, ValueError) as error:
        return type(error).__name__, str(error)


def assert_agreement(text: bytes) -> None:
    outcomes = [outcome(each.loads, text) for each in BACKENDS]
    assert outcomes == outcomes[:1] * len(outcomes)
    assert outcomes[0][0] in {"value", "JsonError"}


TOKENS = [
    *rb'[ ] { } : , " "a" "a": \ \u \ud800 \udc00 \" \\ 0 1 - . e E5 + 1e308 00 true null NaN Infinity'.split(),
    *(b" ", b"\n", b"\t", b"\x00", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", "\u00e9".encode(), "\U0001f600".encode()),
    *(b"9" * 19, b"9" * 20, b"[" * 128, b"]" * 128, b'"' + b"[" * 130 + b'"'),
]


@pytest.mark.req("RPC-22")
@given(st.lists(st.sampled_from(TOKENS), max_size=14).map(b"".join))
@settings(max_examples=examples(400))
def test_the_backends_agree_on_anything_made_of_tokens(text: bytes) -> None:
    assert_agreement(text)
    assert_agreement(b"[" + text + b"]")
    assert_agreement(b'{"a":"' + text + b'"}')
    assert_agreement(b'["' + b"7" * 40_000 + b'",' + text + b"]")


@given(st.binary(max_size=12))
def test_the_backends_agree_on_any_bytes(text: bytes) -> None:
    assert_agreement(text)
    assert_agreement(b'"' + text + b'"')


@given(st.from_regex(rb"-?[0-9]{1,25}(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,4})?", fullmatch=True))
@settings(max_examples=examples(300))
def test_the_backends_agree_on_any_number(text: bytes) -> None:
    assert_agreement(text)
    assert_agreement(b"[0." + text.lstrip(b"-") + b"," + text + b"]")


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(2**62, 2**66) | st.floats(allow_nan=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=5), children, max_size=4),
    max_leaves=12,
)


@pytest.mark.req("RPC-02")
@pytest.mark.req("STDIO-02")
@given(JSON_VALUES)
def test_a_value_survives_from_any_backend_to_any_other(value: Any) -> None:
    outcomes = [outcome(each.dumps, value) for each in BACKENDS]
    if outcomes[0][0] == "value":
        for writer in BACKENDS:
            text = writer.dumps(value)
            assert b"\n" not in text
            assert b"\r" not in text
            assert {repr(reader.loads(text)) for reader in BACKENDS} == {repr(value)}
    else:
        assert outcomes == outcomes[:1] * len(outcomes)
        assert "inf has no form in JSON" in outcomes[0][1]


BRACKETED = st.recursive(
    st.text('[]{}"\\a', max_size=6),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text('[]{}"\\', max_size=3), children),
    max_leaves=20,
)


def depth(value: object) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@given(BRACKETED, st.integers(0, 5))
@settings(max_examples=examples(300))
def test_nesting_is_counted_outside_strings_only(value: Any, limit: int) -> None:
    text = BACKENDS[0].dumps(value)
    assert (outcome(lambda text: check_nesting(text, limit), text)[0] == "value") == (depth(value) <= limit)


def values_in(value: object) -> int:
    """Return how many values and names there are; an empty object or array counts as two."""
    if isinstance(value, dict):
        return max(2, 1 + sum(1 + values_in(member) for member in value.values()))
    return max(2, 1 + sum(map(values_in, value))) if isinstance(value, list) else 1


@given(BRACKETED | JSON_VALUES.filter(lambda value: outcome(BACKENDS[0].dumps, value)[0] == "value"))
@settings(max_examples=examples(300))
def test_values_are_counted_outside_strings_only(value: Any) -> None:
    count = values_in(value)
    text = BACKENDS[0].dumps(value)
    for form in (text, bytearray(text), text.decode()):
        assert not has_more_values(form, count)
        assert len(form) <= 2 * (count - 1) or has_more_values(form, count - 1)


def test_values_are_counted_over_a_long_text() -> None:
    text = b'["' + b'[,","' * 100_000 + b'"]'
    assert not has_more_values(text, 200_003)
    assert has_more_values(b"[" + b"0," * 100_000 + b"0]", 100_001)
    assert not has_more_values(b"[" + b"0," * 100_000 + b"0]", 100_002)
