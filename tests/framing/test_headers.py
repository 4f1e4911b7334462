from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpio.framing.headers import decode_field, encode_field


@pytest.mark.req("HDR-08")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("", ""),
        ("two words", "two words"),
        ("a\tb", "=?base64?YQli?="),
        ("=?base64?no end", "=?base64?no end"),
        ("=?BASE64?YQ==?=", "=?BASE64?YQ==?="),
    ],
)
def test_text_has_one_value(text: str, value: str) -> None:
    assert encode_field(text) == value
    assert decode_field(value) == text


@pytest.mark.parametrize(
    "value",
    [
        " a",
        "a\tb",
        "ä",
        "=?base64?%%%?=",
        "=?base64?YQ?=",
        "=?base64?YR==?=",
        "=?base64?/w==?=",
        "=?base64?YQ==\n?=",
    ],
)
def test_malformed_value_raises(value: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_field(value)


@pytest.mark.parametrize("value", ["=?base64?=", "=?base64?"])
def test_value_without_both_markers_is_literal(value: str) -> None:
    assert decode_field(value) == value


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_every_text_survives(text: str) -> None:
    value = encode_field(text)
    assert decode_field(value) == text
    assert value == value.strip()
    assert value.isascii()
