"""Constraints in ``Annotated``: ``Constraints``, and objects of other libraries with the same attributes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from math import isfinite
from typing import Any, Final, Literal

from mcpio.app.schema.faults import Family, Fault, expected
from mcpio.app.schema.patterns import Matcher

__all__ = ["FORMATS", "Constraints", "check_format", "collect", "description_of"]


class Constraints:
    """Limits for a value: ``Annotated[int, Constraints(ge=1, le=10)]``.

    ``ge``, ``gt``, ``le`` and ``lt`` bound numbers, dates and times; ``multiple_of`` is for numbers; ``min_length`` and
    ``max_length`` count the characters of a str, the bytes of ``bytes``, the items of an array and the members of an
    object; ``pattern`` is a regular expression that is searched for in a str, and ``format`` is ``"email"`` or
    ``"uri"``. They become keywords of the JSON Schema, and are checked before a handler sees the value.

    Objects of other libraries with attributes of these names, such as those of ``annotated_types``, work as well.
    Raises ValueError for an invalid limit, and for a pattern that may take more than linear time.
    """

    __slots__ = ("format", "ge", "gt", "le", "lt", "max_length", "min_length", "multiple_of", "pattern")

    def __init__(
        self,
        *,
        ge: Any = None,
        gt: Any = None,
        le: Any = None,
        lt: Any = None,
        multiple_of: float | None = None,
        min_length: int | None = None,
        max_length: int | None = None,
        pattern: str | re.Pattern[str] | None = None,
        format: Literal["email", "uri"] | None = None,  # noqa: A002 - the keyword's name
    ) -> None:
        self.ge: Any = ge
        self.gt: Any = gt
        self.le: Any = le
        self.lt: Any = lt
        self.multiple_of: float | None = multiple_of
        self.min_length: int | None = min_length
        self.max_length: int | None = max_length
        self.pattern: str | re.Pattern[str] | None = pattern
        self.format: str | None = format
        for _ in _limits_of(self):
            pass

    def __repr__(self) -> str:
        return f"Constraints({', '.join(f'{name}={getattr(self, name)!r}' for name, _ in _limits_of(self))})"


def collect(metadata: Iterable[Any]) -> list[tuple[str, Any]]:
    """Return the constraints in an annotation's metadata, as (name, limit). Other metadata is ignored (PEP 593).

    Groups (an ``Interval``, a pydantic ``Field``) are expanded. Raises ValueError for an invalid limit.
    """
    return [limit for item in metadata for member in _members(item) for limit in _limits_of(member)]


def description_of(metadata: Iterable[Any]) -> str | None:
    """Return the description in an annotation's metadata: a str, or that of a documenting object."""
    for item in metadata:
        if isinstance(item, str):
            return item
        if not isinstance(item, type):
            for name in ("documentation", "description"):
                if isinstance(text := getattr(item, name, None), str):
                    return text
    return None


class Rule:
    """One constraint on one family of types: its JSON Schema keywords, and its check of the Python value."""

    __slots__ = ("check", "keywords")

    def __init__(self, keywords: dict[str, Any], check: Callable[[Any], None]) -> None:
        self.keywords: dict[str, Any] = keywords
        self.check: Callable[[Any], None] = check


def rule(name: str, limit: Any, family: Family | None, kind: type | None) -> Rule | None:
    """Return the rule of a constraint for a family, or ``None`` if it does not apply.

    ``kind`` is the type of a moment: a date is compared with dates only. Raises ValueError if the limit does not fit.
    """
    if family is None:
        return None
    if name in _BOUNDS and family in ("number", "moment"):
        return _bound(name, limit, kind if family == "moment" else None)
    if name == "multiple_of" and family == "number":
        return Rule({"multipleOf": limit}, _multiple_check(limit))
    if name in ("min_length", "max_length") and family in _COUNTED:
        return _length(name, limit, family)
    if name == "pattern" and family == "string":
        return Rule({"pattern": limit.pattern}, _pattern_check(limit))
    if name == "format" and family == "string":
        return Rule({"format": limit}, lambda value: check_format(limit, value))
    return None


# Finding constraints.

_BOUNDS: Final[dict[str, tuple[str, str]]] = {
    "ge": ("minimum", "at least"),
    "gt": ("exclusiveMinimum", "greater than"),
    "le": ("maximum", "at most"),
    "lt": ("exclusiveMaximum", "less than"),
}
_NAMES: Final = (*_BOUNDS, "multiple_of", "min_length", "max_length", "pattern")


def _members(item: Any) -> Iterator[Any]:
    """Yield the item, and the members of a group."""
    if isinstance(item, str | type):
        return
    group = getattr(item, "metadata", None)
    yield item
    if isinstance(group, list | tuple):
        for member in group:
            yield from _members(member)


def _limits_of(item: Any) -> Iterator[tuple[str, Any]]:
    for name in _NAMES:
        limit = getattr(item, name, None)
        if limit is not None and not callable(limit):
            yield name, _sensible(name, limit)
    # In other libraries an attribute of this name has other meanings.
    if isinstance(item, Constraints) and item.format is not None:
        yield "format", _sensible("format", item.format)


def _sensible(name: str, limit: Any) -> Any:
    if name == "pattern":
        return Matcher(limit)
    if name in ("min_length", "max_length"):
        if not _is_number(limit) or not isinstance(limit, int) or limit < 0:
            raise ValueError(f"{name}={limit!r} is not a length")
    elif name == "format":
        if limit not in ("email", "uri"):
            raise ValueError(f"format={limit!r} is neither 'email' nor 'uri'; dates are said by their types")
    elif name == "multiple_of" and (not _is_number(limit) or limit <= 0):
        raise ValueError(f"multiple_of={limit!r} is not a positive number")
    return limit


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


# Rules.


def _bound(name: str, limit: Any, moment: type | None) -> Rule:
    keyword, words = _BOUNDS[name]
    if moment is None:
        if not _is_number(limit):
            raise ValueError(f"{name}={limit!r} is not a finite number")
        keywords = {keyword: limit}
    else:
        if type(limit) is not moment or getattr(limit, "tzinfo", True) is None:
            raise ValueError(f"{name}={limit!r} is not a {moment.__name__}, with a time zone if it has a time")
        keywords = {}
    what = f"a value {words} {limit.isoformat() if moment else limit}"

    def check(value: Any) -> None:
        # Not the opposite comparison: NaN must fail, and every comparison with it is false.
        if not _COMPARE[name](value, limit):
            raise expected(what, value if moment is None else value.isoformat())

    return Rule(keywords, check)


_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "ge": lambda value, limit: value >= limit,
    "gt": lambda value, limit: value > limit,
    "le": lambda value, limit: value <= limit,
    "lt": lambda value, limit: value < limit,
}


def _multiple_check(divisor: float) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if isinstance(value, int) and isinstance(divisor, int):
            fits = value % divisor == 0
        else:
            # Compared as decimal fractions: 0.3 is a multiple of 0.1, although the nearest doubles are not.
            from fractions import Fraction

            fits = Fraction(str(value)) % Fraction(str(divisor)) == 0
        if not fits:
            raise expected(f"a multiple of {divisor}", value)

    return check


_COUNTED: Final[dict[Family, tuple[str, str]]] = {
    "string": ("Length", "characters"),
    "bytes": ("Length", "bytes"),
    "array": ("Items", "items"),
    "object": ("Properties", "members"),
}


def _length(name: str, limit: int, family: Family) -> Rule:
    suffix, unit = _COUNTED[family]
    # Base64 encodes three bytes as four characters.
    said = -(-limit // 3) * 4 if family == "bytes" else limit
    least = name == "min_length"
    words = "at least" if least else "at most"

    def check(value: Any) -> None:
        if (len(value) < limit) if least else (len(value) > limit):
            raise Fault(f"expected {words} {limit} {unit}, got {len(value)}")

    return Rule({("min" if least else "max") + suffix: said}, check)


def _pattern_check(matcher: Matcher) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if not matcher.found_in(value):
            raise expected(f"a string that matches {matcher.pattern}", value)

    return check


def check_format(name: str, text: str) -> None:
    """Check a text against a format. Raises Fault if it does not fit; unknown formats are ignored."""
    check = FORMATS.get(name)
    if check is not None:
        check(text)


def _by_pattern(what: str, pattern: str) -> Callable[[Any], None]:
    fits = re.compile(pattern).fullmatch

    def check(text: Any) -> None:
        if fits(text) is None:
            raise expected(what, text)

    return check


def _by_class(name: str) -> Callable[[Any], None]:
    def check(text: Any) -> None:
        # The scalar of the class defines the format.
        import datetime as dt

        from mcpio.app.schema.scalars import scalar_for

        scalar: Any = scalar_for(getattr(dt, name))
        scalar.read(text)

    return check


FORMATS: Final[dict[str, Callable[[Any], None]]] = {
    # Anything stricter would refuse addresses that work.
    "email": _by_pattern("an e-mail address", r"[^@\s]+@[^@\s]+"),
    # RFC 3986, section 3: a scheme, and no spaces.
    "uri": _by_pattern("a URI such as https://example.com", r"[A-Za-z][A-Za-z0-9+.-]*:\S+"),
    "date": _by_class("date"),
    "date-time": _by_class("datetime"),
}
