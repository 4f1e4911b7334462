from __future__ import annotations

import re
from typing import Any

import pytest

from mcpio.testing.script import ANYTHING, MORE, Reader, is_complete, mismatch


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{}", {}),
        ("[]", []),
        ("{id: 1, method: tools/call}", {"id": 1, "method": "tools/call"}),
        (
            '{"id":1,"a b":[1,-2.5,1e3,true,false,null,"1"]}',
            {"id": 1, "a b": [1, -2.5, 1000.0, True, False, None, "1"]},
        ),
        ("{a: {b: [{c: d}]}}", {"a": {"b": [{"c": "d"}]}}),
        ('"a\\u00e9\\n \\" }"', 'aé\n " }'),
        ("2025-11-25", "2025-11-25"),
        ("01", "01"),
        ("98765432109876543210", 98765432109876543210),
        ("*", ANYTHING),
        ("{a: *, ...}", {"a": ANYTHING, MORE: True}),
        ("[1, ...]", [1, MORE]),
        ('"..."', "..."),
    ],
)
def test_value_parsed(text: str, value: Any) -> None:
    reader = Reader(text)
    assert reader.value() == value
    reader.end()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "expected a value"),
        ("}", "expected a value, not '}'"),
        ("{a 1}", "expected ':' before '1}'"),
        ("{a: 1 b: 2}", "expected ',' before 'b: 2}'"),
        ("{[: 1}", "expected a name, not '['"),
        ("[1 2]", "expected ',' before '2]'"),
        ("[1", "expected ',' before ''"),
        ('"open', "expected a value, not '\"open'"),
        ('"\\ud800"', "surrogate"),
    ],
)
def test_malformed_value_rejected(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=re.escape(fault)):
        Reader(text).value()


def test_line_read_word_by_word() -> None:
    reader = Reader('  request "tools/call" {a: 1} cookie=a  b = [1] ')
    assert (reader.word("an act"), reader.word("a method")) == ("request", "tools/call")
    assert reader.next_is("{")
    assert not reader.is_option()
    assert reader.value() == {"a": 1}
    assert reader.is_option()
    assert reader.rest == "cookie=a  b = [1]"
    assert reader.options() == {"cookie": "a", "b": [1]}
    reader.end()
    assert reader.at_end


def test_trailing_text_rejected() -> None:
    with pytest.raises(ValueError, match="expected the end of the line, not 'x y'"):
        Reader(" x y").end()
    with pytest.raises(ValueError, match="expected '=' before 'b'"):
        Reader("a b").options()
    reader = Reader(" as it  stands ")
    assert (reader.take_rest(), reader.take_rest()) == ("as it  stands", "")


@pytest.mark.parametrize(
    ("text", "complete"),
    [("{a: [1, {b: x}]}", True), ("{...}", False), ("{a: [*]}", False), ("[1, ...]", False), ("*", False), ("1", True)],
)
def test_pattern_without_placeholders_is_complete(text: str, complete: bool) -> None:
    assert is_complete(Reader(text).value()) is complete


@pytest.mark.parametrize(
    ("text", "value", "fault"),
    [
        ("{a: 1}", {"a": 1}, None),
        ("{a: 1}", {"a": 1.0}, "a is 1.0, not 1"),
        ("{a: 1}", {"a": True}, "a is True, not 1"),
        ("{a: 1}", {"a": "1"}, "a is '1', not 1"),
        ("{a: 1}", {"a": 2}, "a is 2, not 1"),
        ("{a: 1}", [], "the message is [], not {'a': 1}"),
        ("{a: 1}", {}, "a is missing"),
        ("{a: {b: 1}}", {"a": {"b": 2}}, "a.b is 2, not 1"),
        ("{a: {}}", {"a": {"b": 2}}, "a.b is not expected"),
        ("{}", {"b": 2}, "b is not expected"),
        ("{...}", {"b": 2}, None),
        ("{a: *}", {"a": [1, {}]}, None),
        ("[1, 2]", [1, 2], None),
        ("[1, 2]", [1, 3], "[1] is 3, not 2"),
        ("[1]", [1, 2], "the array has 2 items, not 1"),
        ("{a: [1]}", {"a": []}, "a has 0 items, not 1"),
        ("[1, ...]", [1, 2, 3], None),
        ("[1, 2, ...]", [1], "the array has 1 items, not 2"),
        ("[{a: 1}, ...]", [{"a": 2}], "[0].a is 2, not 1"),
    ],
)
def test_value_compared_with_a_pattern(text: str, value: Any, fault: str | None) -> None:
    assert mismatch(Reader(text).value(), value) == fault


def test_placeholders_print_as_written() -> None:
    assert (repr(ANYTHING), repr(MORE)) == ("*", "...")
