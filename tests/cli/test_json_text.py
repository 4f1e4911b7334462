"""Changes of one member in JSON text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpio.cli.install import MemberTwice, with_member, without_member

ENTRY = {"command": "bake", "args": ["--hot"]}

KEPT = [
    '"limit": 1e400',
    '"digits": 123456789012345678901234567890.10000000000000000000001',
    f'"long": {"9" * 5000}',
    '"lone": "\\ud800"',
    '"twice": 1, "twice": 2',
    '"escaped": "\\u0041\\/"',
    '"odd layout" :[1 ,\n\n 2]',
    '"not": NaN',
]

LAYOUTS = ["{{{0}}}", "{{\n    {0}\n}}\n", '\ufeff {{\r\n\t{0},\r\n\t"s": {{"a": {{}}}}\r\n}}\r\n']


@pytest.mark.parametrize("member", KEPT)
@pytest.mark.parametrize(
    "layout", ["{{{0}}}", "{{\n    {0}\n}}\n", '\ufeff {{\r\n\t{0},\r\n\t"s": {{"a": {{}}}}\r\n}}\r\n']
)
def test_other_text_stays_byte_for_byte(layout: str, member: str) -> None:
    before = layout.format(member)
    added = with_member(before, "s", "b", ENTRY)
    assert member in added
    changed = with_member(added, "s", "b", {"command": "fry"})
    assert (member in changed, "fry" in changed, "bake" in changed) == (True, True, False)
    assert with_member(changed, "s", "b", {"command": "fry"}) == changed
    removed = without_member(changed, "s", "b")
    assert member in removed
    if '"s"' in before:
        assert removed == before
    assert (
        added.count("\r\n") == (added.count("\n") if "\r\n" in before and "\n\n" not in member else 0)
        or "\n\n" in member
    )


@pytest.mark.parametrize(
    "text", ["", "  \n", "\ufeff", "{}", '{"s": {}}', '{"s":{"a":1}}', '{\n "s": {\n  "a": 1\n }\n}']
)
def test_member_is_added_in_every_layout(text: str) -> None:
    before = json.loads(text.removeprefix("\ufeff").strip() or "{}")
    found = json.loads(with_member(text, "s", "bü", ENTRY).removeprefix("\ufeff"))
    assert found == {**before, "s": {**before.get("s", {}), "bü": ENTRY}}


@pytest.mark.parametrize("name", ["a", "b", "c"])
@pytest.mark.parametrize(
    "text", ['{"s": {"a": 1, "b": 2, "c": 3}}', '{"s": {\n "a": 1,\n "b": 2,\n "c": 3\n}, "t": 1}']
)
def test_member_is_removed_from_every_place(text: str, name: str) -> None:
    expected = json.loads(text)
    del expected["s"][name]
    assert json.loads(without_member(text, "s", name)) == expected


def test_last_member_leaves_an_empty_object() -> None:
    assert without_member('{"s": {\n "a": 1\n}, "t": 1}', "s", "a") == '{"s": {}, "t": 1}'


@pytest.mark.parametrize(
    ("text", "line"),
    [('{"s": {},\n"s": {}}', 2), ('{"s": {"b": 1,\n\n"b": 2}}', 3), ('{"s": {"b": 1, "\\u0062": 2}}', 1)],
)
def test_member_that_is_there_twice_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(MemberTwice, match=f"^line {line}: .* is there twice$"):
        with_member(text, "s", "b", ENTRY)


@pytest.mark.parametrize("text", ["[]", "5", '{"s": []}', "{} {}", "{"])
def test_text_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        with_member(text, "s", "b", ENTRY)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
)


@given(
    outer=st.dictionaries(st.text(), VALUES),
    servers=st.dictionaries(st.text(), VALUES),
    name=st.text(),
    indent=st.sampled_from([None, 0, 1, "\t"]),
)
@pytest.mark.long
def test_change_equals_that_of_the_values(outer: dict[str, Any], servers: Any, name: str, indent: Any) -> None:
    outer["s"] = servers
    text = json.dumps(outer, indent=indent, ensure_ascii=False)
    added = with_member(text, "s", name, ENTRY)
    assert json.loads(added) == {**outer, "s": {**servers, name: ENTRY}}
    rest = {key: value for key, value in servers.items() if key != name}
    assert json.loads(without_member(added, "s", name)) == {**outer, "s": rest}
