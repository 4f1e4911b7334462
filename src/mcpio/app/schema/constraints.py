"""Constraints of `Annotated`, and regular expressions that take linear time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from math import inf, isfinite
from operator import or_
from re import _constants, _parser  # type: ignore[attr-defined]  # nothing public shows a pattern's structure
from typing import Any, Final, Literal

from mcpio.app.schema.values import Family, Fault, expected

# ------------------------------------------------------------------------------------------------------------- patterns
# Regular expressions of an author, run on text from a peer in a time that grows linearly with the text.
# Python's ``re`` backtracks: some patterns take it quadratic or exponential time on texts that do not match. `Matcher`
# therefore looks at the parsed pattern first. ``re`` runs it only when the next character decides every repetition and
# every choice that a long text can make the engine take back; RE2, which never backtracks, runs the others where it is
# installed. See docs/decisions/patterns.md.

_MOST_STEPS: Final = 100
"""How often ``re`` may look at each character of a text, by the estimate of `_Estimate`."""


class Matcher:
    """Tells whether a regular expression matches somewhere in a text.

    Raises ValueError if the pattern is not a regular expression for text, and if neither ``re`` can run it in linear
    time nor RE2 at all.
    """

    __slots__ = ("_find", "pattern")

    pattern: str
    """The regular expression."""

    def __init__(self, pattern: str | re.Pattern[str]) -> None:
        compiled = _compiled(pattern)
        search = _linear_search(compiled)
        self.pattern = compiled.pattern
        self._find = _re2_search(compiled) if search is None else search

    def found_in(self, text: str) -> bool:
        """Whether the pattern matches somewhere in ``text``."""
        return self._find(text) is not None


def check_linear(pattern: str) -> None:
    """Return when ``re`` can search for a pattern in linear time; otherwise raise ``ValueError``."""
    if _linear_search(_compiled(pattern)) is None:
        raise ValueError(_explanation(pattern))


def _compiled(pattern: Any) -> re.Pattern[str]:
    try:
        compiled: re.Pattern[Any] = re.compile(pattern)
    except (re.error, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"pattern must be a regular expression, not {pattern!r:.300}: {error}") from error
    if not isinstance(compiled.pattern, str):
        text = f"pattern={pattern!r:.300} is a regular expression for bytes, not for text"
        raise ValueError(text)  # noqa: TRY004  # ValueError, as for every other invalid constraint
    return compiled


def _linear_search(compiled: re.Pattern[str]) -> Callable[[str], object] | None:
    """Return the method of ``re`` that searches in linear time; ``None`` where it may take longer."""
    items = list(_parser.parse(compiled.pattern, compiled.flags))
    estimate = _Estimate(compiled.flags)
    anchored = estimate.is_anchored(items)
    parts = [items]
    while anchored and _looks_ahead(items[1:]):
        # At the beginning of the text a look ahead happens only once.
        parts.append(items.pop(1)[1][1])
    estimates = [estimate.of(part, follow=0, rest=0) for part in parts]
    # A pattern that is not anchored is tried at each position.
    steps = sum(ways if anchored else ways * max(1, width) for ways, width in estimates)
    if steps > _MOST_STEPS:
        return None
    return compiled.match if anchored else compiled.search


def _looks_ahead(items: Any) -> bool:
    return bool(items) and items[0][0] in (_constants.ASSERT, _constants.ASSERT_NOT) and items[0][1][0] == 1


def _re2_search(compiled: re.Pattern[str]) -> Callable[[str], object]:
    """Return RE2's search for a pattern that ``re`` is too slow for."""
    explanation = _explanation(compiled.pattern)
    try:
        import re2  # type: ignore[import-untyped]  # the package brings no types
    except ImportError:
        raise ValueError(f"{explanation}; or install mcpio[re2]") from None
    flags = "".join(letter for flag, letter in _RE2_FLAGS.items() if compiled.flags & flag)
    options = re2.Options()
    options.log_errors = False
    try:
        search: Callable[[str], object] = re2.compile(f"(?{flags}:{compiled.pattern})", options).search
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        raise ValueError(f"{explanation}; RE2 cannot run it either: {reason}") from None
    return search


def _explanation(pattern: str) -> str:
    return (
        f"pattern={pattern!r:.300} can take more than linear time: anchor it with ^, and let the next character "
        "decide whether a repetition goes on, as in ^[a-z]+(-[a-z]+)*$"
    )


# RE2 refuses "x", and so a verbose pattern, whose spaces it would take for characters.
_RE2_FLAGS: Final = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s", re.VERBOSE: "x"}


# Sets of characters are integers, with one bit for each ASCII character. They may have bits too many but none too few:
# then a pattern is taken for slower than it is.


def _bits(characters: str) -> int:
    return sum(1 << ord(character) for character in set(characters))


_ASCII: Final = [chr(code) for code in range(128)]
_OTHERS: Final = 1 << 128
"""Every character outside of ASCII."""
_ANY: Final = (1 << 129) - 1
_END: Final = 1 << 129
"""The end of the text."""
_REST: Final = 1 << 130
"""The follower of a part of a pattern, to see whether the part can be empty."""
_LETTERS: Final = _bits("".join(filter(str.isalpha, _ASCII)))
_DIGITS: Final = _bits("0123456789")
_SPACES: Final = _bits("".join(filter(str.isspace, _ASCII)))
_WORDS: Final = _LETTERS | _DIGITS | _bits("_")
_UNSURE: Final = _OTHERS | _bits("\x1c\x1d\x1e\x1f")
"""Characters that a class and its complement may both match, depending on flags or on the character."""
_CATEGORIES: Final = {
    _constants.CATEGORY_DIGIT: _DIGITS | _OTHERS,
    _constants.CATEGORY_NOT_DIGIT: _ANY & ~_DIGITS,
    _constants.CATEGORY_SPACE: _SPACES | _OTHERS,
    _constants.CATEGORY_NOT_SPACE: _ANY & ~_SPACES | _UNSURE,
    _constants.CATEGORY_WORD: _WORDS | _OTHERS,
    _constants.CATEGORY_NOT_WORD: _ANY & ~_WORDS,
}
_REPEATS: Final = frozenset({_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT})
_BEGINNINGS: Final = [(_constants.AT, where) for where in (_constants.AT_BEGINNING, _constants.AT_BEGINNING_STRING)]
_ENDS: Final = frozenset({_constants.AT_END, _constants.AT_END_STRING})


_BOUNDARY: Final = (_constants.AT, _constants.AT_BOUNDARY)
_WORD: Final = [(_constants.IN, [(_constants.CATEGORY, _constants.CATEGORY_WORD)])]


def _takes_words(item: Any) -> bool:
    r"""Whether an item ends like ``\w+``, which takes all characters up to the end of a word."""
    kind, argument = item
    if kind is _constants.SUBPATTERN:
        _, added, removed, items = argument
        return not added and not removed and len(items) > 0 and _takes_words(items[-1])
    return kind is _constants.MAX_REPEAT and argument[1] is _constants.MAXREPEAT and list(argument[2]) == _WORD


class _Estimate:
    """Estimates how often ``re`` looks at one character of a text, from a parsed pattern.

    A choice (to repeat or to go on, to take one alternative or another) that the next character decides is cheap to
    take back: the other way fails at once. Each other choice multiplies the ways through the text.
    """

    def __init__(self, flags: int) -> None:
        self._flags = flags

    def is_anchored(self, items: Any) -> bool:
        """Whether a pattern begins with the beginning of the text."""
        return any(items[:1] == [begin] for begin in _BEGINNINGS) and not self._flags & re.MULTILINE

    def of(self, items: Any, *, follow: int, rest: float) -> tuple[float, float]:
        """Return the most ways through a text, and how many characters the items can consume.

        ``follow`` is what may come next, and 0 where the whole pattern has matched: what cannot fail any more is never
        taken back. ``rest`` is how many characters the rest of the pattern can take.
        """
        ways: float = 1
        width: float = 0
        for position, item in reversed(list(enumerate(items))):
            if not follow and item == _BOUNDARY and position and _takes_words(items[position - 1]):
                continue  # it always matches: after the last character of a word
            factor, taken = self._of_one(item[0], item[1], follow, rest + width)
            ways *= factor
            width += taken
            follow = self.first([item], follow)
        return ways, width

    def _of_one(self, kind: Any, argument: Any, follow: int, rest: float) -> tuple[float, float]:
        if kind in _REPEATS:
            least, most, body = argument
            return self._of_repeat(least, most, body, follow, rest)
        match kind:
            case _constants.LITERAL | _constants.NOT_LITERAL | _constants.ANY | _constants.IN:
                return 1, 1
            case _constants.AT:
                return 1, 0
            case _constants.SUBPATTERN:
                return self._within(argument).of(argument[3], follow=follow, rest=rest)
            case _constants.ATOMIC_GROUP:
                return self.of(argument, follow=follow, rest=rest)
            case _constants.BRANCH:
                return self._of_branch(argument[1], follow, rest)
        # A back reference takes a text of any length; what looks around may do so at every position.
        return inf, inf

    def _of_branch(self, branches: Any, follow: int, rest: float) -> tuple[float, float]:
        estimates = [self.of(branch, follow=follow, rest=rest) for branch in branches]
        firsts = [self.first(branch, follow) for branch in branches]
        decided = sum(firsts) == reduce(or_, firsts)
        return (max if decided else sum)(ways for ways, _ in estimates), max(width for _, width in estimates)

    def _of_repeat(self, least: int, most: Any, body: Any, follow: int, rest: float) -> tuple[float, float]:
        first = self.first(body, 0)
        if most == 1:
            ways, width = self.of(body, follow=follow, rest=rest)
            return (ways + 1 if not least and first & follow else ways), width
        # Within a repetition, the rest is more of the same.
        ways, width = self.of(body, follow=first | follow, rest=inf)
        decided = least == most or not first & follow
        if self.first(body, _REST) & _REST:
            ways = inf  # an empty body can repeat at every position
        elif most is not _constants.MAXREPEAT:
            ways = ways ** min(most, _MOST_STEPS) * (1 if decided else min(most - least + 1, max(1, rest)))
        elif ways > 1:
            ways = inf
        elif not decided:
            ways = max(1, rest)  # each place to stop tries the rest once more
        # The last repetition of all needs no more than its least.
        times = least if not follow else inf if most is _constants.MAXREPEAT else most
        return ways, width * times if width and times else 0

    def first(self, items: Any, follow: int) -> int:
        """Return the characters with which the items can begin; ``follow`` is what comes next where they are empty."""
        for kind, argument in reversed(items):
            follow = self._first_of_one(kind, argument, follow)
        return follow

    def _first_of_one(self, kind: Any, argument: Any, follow: int) -> int:
        if kind in _REPEATS:
            least, _, body = argument
            return self.first(body, follow) | (0 if least else follow)
        match kind:
            case _constants.AT if argument in _ENDS:
                # In the middle of a pattern this matches at two places of a text at most: they need no counting.
                return _END | (_bits("\n") | follow if self._flags & re.MULTILINE else follow & _REST)
            case _constants.AT:
                # It takes no character, but can fail, even as the last item: what is before it is then taken back.
                return follow or _ANY | _END
            case _constants.SUBPATTERN:
                return self._within(argument).first(argument[3], follow)
            case _constants.ATOMIC_GROUP:
                return self.first(argument, follow)
            case _constants.BRANCH:
                return reduce(or_, (self.first(branch, follow) for branch in argument[1]))
            case _constants.LITERAL | _constants.NOT_LITERAL | _constants.ANY | _constants.IN:
                return self._characters(kind, argument)
        return _ANY | _END | follow

    def _characters(self, kind: Any, argument: Any) -> int:
        """Return the set of characters that an item takes one of."""
        match kind:
            case _constants.ANY:
                return _ANY if self._flags & re.DOTALL else _ANY & ~_bits("\n")
            case _constants.LITERAL:
                members = [(kind, argument)]
            case _constants.NOT_LITERAL:
                members = [(_constants.NEGATE, None), (_constants.LITERAL, argument)]
            case _:
                members = argument
        negated = members[0][0] is _constants.NEGATE
        accepted = reduce(or_, (_member(*member) for member in members[negated:]), 0)
        ignores_case = self._flags & re.IGNORECASE
        if ignores_case:
            accepted |= _bits("".join(c.swapcase() for c in _ASCII if accepted >> ord(c) & 1))
        if negated:
            accepted = _ANY & ~accepted | _UNSURE
        if ignores_case and accepted & (_LETTERS | _OTHERS):
            accepted |= _OTHERS | _bits("iIkKsS")  # letters outside of ASCII are other cases of these
        return accepted

    def _within(self, argument: Any) -> _Estimate:
        """Return the estimate for the content of a group, which may have flags."""
        _, added, removed, _ = argument
        return _Estimate((self._flags | added) & ~removed) if added or removed else self


def _member(kind: Any, argument: Any) -> int:
    match kind:
        case _constants.CATEGORY:
            return _CATEGORIES[argument]
        case _constants.RANGE:
            low, high = argument
        case _:
            low = high = argument
    return _bits("".join(_ASCII[low : high + 1])) | (_OTHERS if high >= len(_ASCII) else 0)


# ---------------------------------------------------------------------------------------------------------- constraints
# Constraints in ``Annotated``: ``Constraints``, and objects of other libraries with the same attributes.


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
_ALIASES: Final = ("alias", "validation_alias", "serialization_alias")
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
    if type(item).__name__ == "FieldInfo" and any(getattr(item, name, None) for name in _ALIASES):
        raise ValueError("the alias of a pydantic Field is read in pydantic models only: name the parameter itself so")
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
            raise ValueError(f"{name} must be a whole number of at least 0, not {limit!r:.60}")
    elif name == "format":
        if limit not in ("email", "uri"):
            raise ValueError(f"format must be 'email' or 'uri', not {limit!r:.60}; a date has the type datetime.date")
    elif name == "multiple_of" and (not _is_number(limit) or limit <= 0):
        raise ValueError(f"multiple_of must be a finite number above 0, not {limit!r:.60}")
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
            raise ValueError(f"{name} must be a finite number, not {limit!r:.60}")
        keywords = {keyword: limit}
    else:
        if type(limit) is not moment or getattr(limit, "tzinfo", True) is None:
            raise ValueError(f"{name} must be a {moment.__name__}, with a zone if it has a time, not {limit!r:.60}")
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
    schema_limit = -(-limit // 3) * 4 if family == "bytes" else limit
    least = name == "min_length"
    words = "at least" if least else "at most"

    def check(value: Any) -> None:
        if (len(value) < limit) if least else (len(value) > limit):
            raise Fault(f"expected {words} {limit} {unit}, got {len(value)}")

    return Rule({("min" if least else "max") + suffix: schema_limit}, check)


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

        from mcpio.app.schema.values import scalar_for

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
