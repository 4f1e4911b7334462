"""Changes of one member in the text of a JSON file: every other byte stays as it is.

To read a file into values and write them again would lose what the values do not hold: duplicate members, the digits
of large numbers, escapes, and the layout.
"""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]  # public by its documentation in the source
from typing import Any, Final

import attrs

__all__ = ["MemberTwice", "with_member", "without_member"]


class MemberTwice(ValueError):
    """A member that is to be changed is there twice: programs differ in which of them they read."""


@attrs.frozen
class _Member:
    name: str
    start: int
    """Where its name begins."""
    value: int
    end: int


def with_member(text: str, outer: str, name: str, value: Any) -> str:
    """Return the text of an object with ``value`` as the member ``name`` of its member ``outer``, an object too.

    Raises ValueError for text that is no JSON object, and MemberTwice.
    """
    unit = found[1] if (found := re.search(r"^([ \t]+)\"", text, re.MULTILINE)) else "  "
    if not text.removeprefix("\ufeff").strip():
        return text + _shown({outer: {name: value}}, unit, "", _newline(text)) + _newline(text)
    start = _top(text)
    parent = _only(text, _members(text, start), outer)
    if parent is None:
        return _inserted(text, start, outer, {name: value}, unit)
    old = _only(text, _members(text, parent.value), name)
    if old is None:
        return _inserted(text, parent.value, name, value, unit)
    if json.loads(text[old.value : old.end]) == value:
        return text
    return text[: old.value] + _shown(value, unit, _indent(text, old.start), _newline(text)) + text[old.end :]


def without_member(text: str, outer: str, name: str) -> str:
    """Return the text without the member ``name`` of its member ``outer``. Both must be there. Raises MemberTwice."""
    parent: Any = _only(text, _members(text, _top(text)), outer)
    members = _members(text, parent.value)
    old: Any = _only(text, members, name)
    place = members.index(old)
    if len(members) == 1:
        return text[: parent.value] + "{}" + text[parent.end :]
    if place == 0:
        return text[: old.start] + text[members[1].start :]
    return text[: members[place - 1].end] + text[old.end :]


def _inserted(text: str, start: int, name: str, value: Any, unit: str) -> str:
    """Return the text with a new last member in the object that begins at ``start``, laid out as the others are."""
    members, newline = _members(text, start), _newline(text)
    key = json.dumps(name, ensure_ascii=False)
    if not members:
        end = text.index("}", start)
        indent = _indent(text, start)
        said = f"{newline}{indent}{unit}{key}: {_shown(value, unit, indent + unit, newline)}{newline}{indent}"
        return text[: start + 1] + said + text[end:]
    before = text[start + 1 : members[0].start]
    at = members[-1].end
    if "\n" not in before:
        return f"{text[:at]}, {key}: {json.dumps(value, ensure_ascii=False)}{text[at:]}"
    indent = before.rpartition("\n")[2]
    return f"{text[:at]},{newline}{indent}{key}: {_shown(value, unit, indent, newline)}{text[at:]}"


def _shown(value: Any, unit: str, indent: str, newline: str) -> str:
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", f"{newline}{indent}")


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent(text: str, at: int) -> str:
    """Return the white space at the beginning of a line."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _top(text: str) -> int:
    start = _next(text, 1 if text.startswith("\ufeff") else 0)
    if _next(text, _DECODER.raw_decode(text, start)[1]) != len(text):
        raise ValueError("something follows the JSON value")
    return start


def _members(text: str, start: int) -> list[_Member]:
    """Return the members of an object that begins at ``start``. Raises ValueError if no well-formed object does."""
    if not text.startswith("{", start):
        raise ValueError("not a JSON object")
    found: list[_Member] = []
    at = _next(text, start + 1)
    while text[at] != "}":
        name, end = scanstring(text, at + 1, True)
        value = _next(text, _next(text, end) + 1)
        _, end = _DECODER.raw_decode(text, value)
        found.append(_Member(name, at, value, end))
        at = _next(text, end)
        if text[at] == ",":
            at = _next(text, at + 1)
    return found


def _next(text: str, at: int) -> int:
    return _SPACE(text, at).end()  # type: ignore[union-attr]  # it matches nothing too


def _only(text: str, members: list[_Member], name: str) -> _Member | None:
    named = [member for member in members if member.name == name]
    if len(named) > 1:
        line = text.count("\n", 0, named[1].start) + 1
        raise MemberTwice(f"line {line}: {json.dumps(name)} is there twice")
    return named[0] if named else None


_SPACE: Final = re.compile(r"[ \t\r\n]*").match
# Numbers as they are: their digits may be more than an integer of Python's may have.
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
