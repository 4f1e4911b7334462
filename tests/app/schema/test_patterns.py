from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from re import _constants, _parser  # type: ignore[attr-defined]  # nothing public shows a pattern's structure
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpio.app.schema.constraints import Matcher, check_linear

# What people write, and re runs in linear time.
LINEAR = [
    r"",
    r"x",
    r"\S",
    r".+",
    r"(?s).+",
    r"^.{1,2048}$",
    r"^[a-z0-9_-]+$",
    r"^[^/]+(?:/[^/]+)*$",
    r"^[A-Z]{2}\d{4}$",
    r"\d{4}-\d{2}-\d{2}",
    r"^[a-z]+(-[a-z]+)*$",
    r"^(foo|far|baz)$",
    r"^(?:a|b)?c\Z",
    r"^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$",
    r"https?://\S+",
    r"^(/[a-z]+)*/?$",
    r"^\d+[^\d\s]",
    r"^(a|ab)*$",
    r"^.*foo",
    r"^.*?[^a]",
    r"^(?=.*\d)(?=.*[a-z]).{8,}$",
    r"^(?!.*\.\.)[a-z.]+$",
    r"(?i)^[a-z]+-",
    r"^(?i:x+)y",
    r"^(?>a+)b{0}c",
    r"^a++b",
    r"^é+x",
    r"^[é-ü]+x",
    r"^(?:(?:a|b)*c)*$",
    r"\bfoo\b",
    r"^a*",
    r"^a$b",
    r"(?m)^a$",
    r"\b\w+\b",
    r"(x\w*)\b",
    r"[a-z]{1,20}\b",
    r"^[\w.-]+\b",
]

# What re may take longer for.
SLOW = [
    r"^(a+)+$",
    r"(a+)+b",
    r"^(a|a)*$",
    r"^\w+\W+x$",
    r"^(a*)*$",
    r"^(a?){28}a{28}$",
    r"^(?:a{1,9}){1,9}b",
    r"^a*a*b",
    r"[a-z]+@",
    r"foo.*bar",
    r"^(\w+\s?)*$",
    r"^[^@\s]+@[^@\s]+\.[^@\s]+$",
    r"(?i)^(?:[a-z]+K)+$",
    r"(?i)^K+K+$",
    r"(?i)^[^a]+B+$",
    r"(?m)^.*x$",
    r"(?m)^(?s:.)+$\n.+x",
    r"^[^a]+\s+x",
    r"x{500}y",
    r"[b.-]+\b",
    r"\s+(?:\b)",
    r"\d+^",
]

# What re may take longer for, and RE2 cannot run.
REFUSED = [
    r"^(a+)\1$",
    r"^(?:(?=a*b)a)*$",
    r"^(?:a|(?!b*c)b)+$",
    r"^(?:a(?<=aa))+$",
    r"(?x)^ (a+)+ $",
    r"(a+)+\Z",
    r"(?a:\w+)\b",
]


@pytest.mark.req("SCHEMA-06")
@pytest.mark.parametrize("pattern", LINEAR)
def test_deterministic_pattern_runs_in_re(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    check_linear(pattern)
    for text in ("", "a", "foo", "abc-def", "https://x/y", "a\nb", "2025-06-18", "Password1"):
        assert Matcher(pattern).found_in(text) is (re.search(pattern, text) is not None)


@pytest.mark.req("SCHEMA-06")
@pytest.mark.parametrize("pattern", SLOW)
def test_backtracking_pattern_runs_in_re2(pattern: str) -> None:
    with pytest.raises(ValueError, match="can take more than linear time: anchor it with"):
        check_linear(pattern)
    matcher = Matcher(pattern)
    assert not matcher.found_in("a" * 100 + "!")
    for text in ("", "aa", "foo bar", "a@b.c", "AK", "K", "a\nb"):
        assert matcher.found_in(text) is (re.search(pattern, text) is not None)


@pytest.mark.req("SCHEMA-06")
@pytest.mark.parametrize("pattern", SLOW)
def test_backtracking_pattern_without_re2_is_refused(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(ValueError, match=r"can take more than linear time: .*; or install mcpio\[re2\]"):
        Matcher(pattern)


@pytest.mark.parametrize("pattern", REFUSED)
def test_backtracking_pattern_unsupported_by_re2_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"can take more than linear time: .*; RE2 cannot run it either: "):
        Matcher(pattern)


def test_flags_of_a_compiled_pattern_apply_in_both_engines() -> None:
    assert Matcher(re.compile("^a.c$", re.IGNORECASE | re.DOTALL)).found_in("A\nC")
    assert Matcher(re.compile("^(a+)+.c$", re.IGNORECASE | re.DOTALL | re.MULTILINE)).found_in("x\nAA\nC\nx")


@pytest.mark.parametrize("pattern", ["(", "a{2,1}", 5, b"a", re.compile(b"a"), None])
def test_bytes_pattern_is_refused(pattern: Any) -> None:
    with pytest.raises(ValueError, match=r"must be a regular expression|is a regular expression for bytes"):
        Matcher(pattern)


def patterns() -> st.SearchStrategy[str]:
    """Return patterns with everything that the estimate knows, over few characters."""
    characters = st.sampled_from(["a", "b", "[ab]", "[^a]", ".", "\\w", "\\W", "\\b", "k", "(?i:K)"])
    repeats = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,2}", "*?", "+?", "*+", "{2,}"])
    ends = st.sampled_from(["", "$", "!"])

    def larger(smaller: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.builds(lambda part, repeat: f"(?:{part}){repeat}", smaller, repeats),
            st.builds("".join, st.lists(smaller, min_size=2, max_size=4)),
            st.builds(lambda parts: f"(?:{'|'.join(parts)})", st.lists(smaller, min_size=2, max_size=3)),
            st.builds("(?>{})".format, smaller),
        )

    inside = st.recursive(characters, larger, max_leaves=8)
    looks = st.one_of(st.just(""), st.builds("(?={})".format, inside), st.builds("(?!{})".format, inside))
    return st.builds(lambda look, part, end: f"^{look}{part}{end}", looks, inside, ends) | st.builds(
        str.__add__, inside, ends
    )


@pytest.mark.req("SCHEMA-06")
@given(patterns(), st.text("abkK\n-", min_size=1, max_size=4), st.text("ab!\n", max_size=2))
def test_pattern_judged_linear_needs_few_steps(pattern: str, part: str, end: str) -> None:
    try:
        check_linear(pattern)
    except ValueError:
        return
    for length in (20, 80):
        text = part * (length // len(part)) + end
        engine = Backtracking(pattern, text)
        assert engine.search() is (re.search(pattern, text) is not None)
        # The estimate counts the choices; each may take as many steps as the pattern has parts before it fails.
        assert engine.steps <= 100 * (len(text) + 2) * len(pattern)


class Backtracking:
    """Searches as ``re`` does, slowly, and counts the characters that it looks at."""

    def __init__(self, pattern: str, text: str) -> None:
        self.steps = 0
        self._tree = _parser.parse(pattern)
        self._text = text

    def search(self) -> bool:
        anchored = self._tree[:1] == [(_constants.AT, _constants.AT_BEGINNING)]
        starts = range(1 if anchored else len(self._text) + 1)
        return any(True for start in starts for _ in self._sequence(self._tree, 0, start, 0))

    def _sequence(self, items: Any, index: int, at: int, flags: int) -> Iterator[int]:
        if index == len(items):
            yield at
            return
        kind, argument = items[index]
        for end in self._item(kind, argument, at, flags):
            yield from self._sequence(items, index + 1, end, flags)

    def _item(self, kind: Any, argument: Any, at: int, flags: int) -> Iterator[int]:
        match kind:
            case _constants.MAX_REPEAT | _constants.MIN_REPEAT:
                yield from self._repeat(argument, kind is _constants.MIN_REPEAT, at, flags)
            case _constants.POSSESSIVE_REPEAT:
                yield from self._first(self._repeat(argument, False, at, flags))
            case _constants.ATOMIC_GROUP:
                yield from self._first(self._sequence(argument, 0, at, flags))
            case _constants.SUBPATTERN:
                yield from self._sequence(argument[3], 0, at, flags | argument[1])
            case _constants.BRANCH:
                for branch in argument[1]:
                    yield from self._sequence(branch, 0, at, flags)
            case _constants.ASSERT | _constants.ASSERT_NOT:
                found = any(True for _ in self._sequence(argument[1], 0, at, flags))
                if found is (kind is _constants.ASSERT):
                    yield at
            case _constants.AT:
                self.steps += 1
                where = {_constants.AT_BEGINNING: "^", _constants.AT_END: "$", _constants.AT_BOUNDARY: r"\b"}[argument]
                if re.compile(where).match(self._text, at):
                    yield at
            case _:
                self.steps += 1
                if at < len(self._text) and self._fits(kind, argument, self._text[at], flags):
                    yield at + 1

    @staticmethod
    def _first(ends: Iterator[int]) -> Iterator[int]:
        for end in ends:
            yield end
            return

    def _repeat(self, argument: Any, lazy: bool, at: int, flags: int) -> Iterator[int]:
        least, most, body = argument
        if lazy and least == 0:
            yield at
        if most > 0:
            rest = most if most is _constants.MAXREPEAT else most - 1
            for end in self._sequence(body, 0, at, flags):
                if end > at or least > 0:
                    yield from self._repeat((max(0, least - 1), rest, body), lazy, end, flags)
        if not lazy and least == 0:
            yield at

    @staticmethod
    def _fits(kind: Any, argument: Any, character: str, flags: int) -> bool:
        if kind is _constants.ANY:
            return character != "\n"
        if kind is not _constants.IN:
            argument = [(kind, argument)]
        cases = {character, character.swapcase()} if flags & re.IGNORECASE else {character}
        found = any(_is_in(member, case) for member in argument for case in cases)
        return found is (argument[0][0] is not _constants.NEGATE)


def _is_in(member: Any, character: str) -> bool:
    match member:
        case _constants.LITERAL, code:
            return bool(ord(character) == code)
        case _constants.NOT_LITERAL, code:
            return bool(ord(character) != code)
        case _constants.CATEGORY, category:
            return (character.isalnum() or character == "_") is (category is _constants.CATEGORY_WORD)
    return False
