"""Relaxed JSON for conversation scripts, with placeholders for parts that are not compared.

``{id: 1, result: {content: [{type: text, text: "hello, you"}], ...}}``: a bare word is a string unless it is ``true``,
``false``, ``null`` or a number. ``*`` matches any value; ``...`` at the end of an object or array allows more members.
"""

from __future__ import annotations

import re
from typing import Any, Final

from mcpio.framing.json import JsonError, loads

__all__ = ["ANYTHING", "MORE", "Reader", "is_complete", "mismatch"]


class _Placeholder:
    """A placeholder in a pattern."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


ANYTHING: Final = _Placeholder("*")
"""Matches every value."""
MORE: Final = _Placeholder("...")
"""The last item of an array, or a key of an object: allows more items or members."""

_TOKEN = re.compile(r'\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<mark>[{}\[\],:=])|(?P<word>[^\s{}\[\],:="]+))')
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?P<fraction>\.\d+)?(?P<exponent>[eE][+-]?\d+)?")
_CONSTANTS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None, "*": ANYTHING, "...": MORE}


class Reader:
    """Reads the words and values of a line one by one. Methods raise ValueError for unexpected text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    @property
    def at_end(self) -> bool:
        """Whether the line is consumed."""
        return not self._text[self._at :].strip()

    @property
    def rest(self) -> str:
        """The unread rest."""
        return self._text[self._at :].strip()

    def take_rest(self) -> str:
        """Read the rest."""
        rest, self._at = self.rest, len(self._text)
        return rest

    def next_is(self, mark: str) -> bool:
        """Whether ``mark``, such as ``"{"``, comes next."""
        return self._text[self._at :].lstrip().startswith(mark)

    def word(self, what: str) -> str:
        """Read a bare word or a string; ``what`` names it in the error."""
        kind, text = self._take(what)
        if kind == "mark":
            raise ValueError(f"expected {what}, not {text!r}")
        return _unquoted(text) if kind == "string" else text

    def value(self) -> Any:
        """Read a value."""
        kind, text = self._take("a value")
        if kind == "string":
            return _unquoted(text)
        if kind == "word":
            return _meaning(text)
        if text == "{":
            return self._object()
        if text == "[":
            return self._array()
        raise ValueError(f"expected a value, not {text!r}")

    def options(self) -> dict[str, Any]:
        """Read ``name=value`` until the end."""
        found = {}
        while not self.at_end:
            name = self.word("name=value")
            self._expect("=")
            found[name] = self.value()
        return found

    def is_option(self) -> bool:
        """Whether ``name=`` comes next."""
        return re.match(r"\s*\w+=", self._text[self._at :]) is not None

    def end(self) -> None:
        """Raise ValueError if text is left."""
        if not self.at_end:
            raise ValueError(f"did not expect {self.rest!r}")

    def _object(self) -> dict[Any, Any]:
        members: dict[Any, Any] = {}
        while not self._skip("}"):
            if members:
                self._expect(",")
            key = self.word("a name")
            if key == "...":
                members[MORE] = True
                continue
            self._expect(":")
            members[key] = self.value()
        return members

    def _array(self) -> list[Any]:
        items: list[Any] = []
        while not self._skip("]"):
            if items:
                self._expect(",")
            items.append(self.value())
        return items

    def _skip(self, mark: str) -> bool:
        if not self.next_is(mark):
            return False
        self._take(mark)
        return True

    def _expect(self, mark: str) -> None:
        if not self._skip(mark):
            raise ValueError(f"expected {mark!r} before {self.rest!r}")

    def _take(self, what: str) -> tuple[str, str]:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match.lastgroup is None:
            raise ValueError(f"expected {what}" + (f", not {self.rest!r}" if self.rest else ""))
        self._at = match.end()
        return match.lastgroup, match[match.lastgroup]


def is_complete(pattern: Any) -> bool:
    """Whether a pattern contains no placeholder."""
    if isinstance(pattern, dict):
        return MORE not in pattern and all(map(is_complete, pattern.values()))
    if isinstance(pattern, list):
        return all(map(is_complete, pattern))
    return not isinstance(pattern, _Placeholder)


def mismatch(pattern: Any, value: Any, path: str = "") -> str | None:
    """Describe where a JSON value differs from a pattern, or return ``None``. 1, 1.0 and true differ."""
    if pattern is ANYTHING:
        return None
    if type(pattern) is not type(value):
        return f"{path or 'the message'} is {value!r:.200}, not {pattern!r:.200}"
    if isinstance(pattern, dict):
        return _object_mismatch(pattern, value, path)
    if isinstance(pattern, list):
        return _array_mismatch(pattern, value, path)
    return None if pattern == value else f"{path} is {value!r:.200}, not {pattern!r:.200}"


def _object_mismatch(pattern: dict[Any, Any], value: dict[str, Any], path: str) -> str | None:
    wanted = {key: each for key, each in pattern.items() if key is not MORE}
    prefix = f"{path}." if path else ""
    for key, each in wanted.items():
        if key not in value:
            return f"{prefix}{key} is missing"
        fault = mismatch(each, value[key], f"{prefix}{key}")
        if fault is not None:
            return fault
    more = [key for key in value if key not in wanted]
    return f"{prefix}{more[0]} is not expected" if more and MORE not in pattern else None


def _array_mismatch(pattern: list[Any], value: list[Any], path: str) -> str | None:
    is_open = bool(pattern) and pattern[-1] is MORE
    wanted = pattern[:-1] if is_open else pattern
    if len(value) < len(wanted) or (len(value) > len(wanted) and not is_open):
        return f"{path or 'the array'} has {len(value)} items, not {len(wanted)}"
    pairs = enumerate(zip(wanted, value, strict=False))
    return next((fault for at, (each, item) in pairs if (fault := mismatch(each, item, f"{path}[{at}]"))), None)


def _unquoted(text: str) -> str:
    try:
        value: str = loads(text)
    except JsonError as error:
        raise ValueError(f"{text}: {error.reason}") from None
    return value


def _meaning(word: str) -> Any:
    if word in _CONSTANTS:
        return _CONSTANTS[word]
    number = _NUMBER.fullmatch(word)
    if number is None:
        return word
    return float(word) if number["fraction"] or number["exponent"] else int(word)
