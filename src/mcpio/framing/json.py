r"""The one place where JSON text is read and written, with one answer for every corner of the format (RPC-22).

The standard library, made strict, is the definition of what is accepted and what is produced. orjson, where it is
installed, does the work whenever both are known to agree, and everything else goes the standard library's way, so a
program meets the same values, the same refusals and the same reasons with either:

- Text is UTF-8. Invalid UTF-8, a byte-order mark, and surrogates without their other half (raw or as ``\ud800``
  escapes) are refused.
- Of two members with one name the last wins.
- ``NaN`` and the infinities are refused, and so is a number too large for a double (``1e400``), because it could only
  become an infinity, which no JSON text can say again. A number too small becomes zero.
- A number without fraction and exponent is an ``int``, exact at any size up to 4,300 digits; longer is refused. Any
  other number is a ``float`` (``1e5`` is ``100000.0``). ``-0`` is the integer zero; ``-0.0`` keeps its sign.
- Arrays and objects nest at most 128 deep, counted over the whole text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from math import isfinite
from typing import Any, Final, NoReturn

__all__ = [
    "BACKEND",
    "MAX_INT_DIGITS",
    "MAX_NESTING",
    "Backend",
    "JsonError",
    "backend",
    "check_nesting",
    "dumps",
    "loads",
]

MAX_NESTING: Final = 128
"""How deep arrays and objects may nest; far beyond real messages, far within every parser's stack."""
MAX_INT_DIGITS: Final = 4300
"""The digits of the longest integer; converting longer ones takes quadratic time, so CPython has the same limit."""

BACKEND: str
"""The library in use, ``"orjson"`` or ``"stdlib"``; looking it up imports the library."""


class JsonError(ValueError):
    """A text is not acceptable JSON; ``reason`` is one short line that says why. The answer to a peer is -32700."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Backend:
    """One way to read and write JSON; ``loads`` and ``dumps`` behave as the functions of this module do."""

    __slots__ = ("dumps", "loads", "name")

    def __init__(
        self, name: str, loads: Callable[[bytes | bytearray | str], Any], dumps: Callable[[Any], bytes]
    ) -> None:
        self.name: str = name
        self.loads: Callable[[bytes | bytearray | str], Any] = loads
        self.dumps: Callable[[Any], bytes] = dumps


def loads(data: bytes | bytearray | str) -> Any:
    """Return the value that a JSON text stands for.

    Whatever the text is, the only exception is `JsonError` (RPC-02, RPC-22).
    """
    return _loads(data)


def dumps(value: Any) -> bytes:
    """Return a value as compact JSON in UTF-8, on one line (STDIO-02).

    Dictionaries with string keys, lists, tuples, strings, integers, finite floats, booleans and ``None`` can be said,
    instances of their subclasses too; an enumeration's member stands for its value and a ``uuid.UUID`` for its text.
    ``TypeError`` (another type, a key that is no string) and ``ValueError`` (NaN, an infinity, a lone surrogate, an
    integer of more than 4,300 digits, nesting over 128) name the place.
    """
    return _dumps(value)


def check_nesting(data: bytes | bytearray, limit: int = MAX_NESTING) -> None:
    """Raise `JsonError` when arrays and objects nest deeper than ``limit`` in a JSON text; linear time."""
    if _nests_deeper(data, limit):
        raise JsonError(f"nested deeper than {limit}")


def backend(name: str) -> Backend:
    """Return a backend by its name. ``ImportError`` when its library is not installed, ``ValueError`` for others."""
    if name == "stdlib":
        return _stdlib()
    if name == "orjson":
        return _orjson()
    raise ValueError(f"no JSON backend is named {name!r}")


# The choice: made by the first use, so that importing this module imports no library (P13).


def __getattr__(name: str) -> Any:
    if name == "BACKEND":
        return _choose().name
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _choose() -> Backend:
    global _loads, _dumps  # noqa: PLW0603  the functions above go straight to the library from here on
    try:
        chosen = backend("orjson")
    except ImportError:
        chosen = backend("stdlib")
    _loads = chosen.loads
    _dumps = chosen.dumps
    return chosen


def _first_loads(data: bytes | bytearray | str) -> Any:
    return _choose().loads(data)


def _first_dumps(value: Any) -> bytes:
    return _choose().dumps(value)


_loads: Callable[[bytes | bytearray | str], Any] = _first_loads
_dumps: Callable[[Any], bytes] = _first_dumps


# The standard library, made strict.


def _stdlib() -> Backend:
    from json import JSONDecodeError, JSONDecoder, JSONEncoder

    decode = JSONDecoder(parse_float=_finite, parse_int=_integer, parse_constant=_refuse_constant).decode
    encode = JSONEncoder(
        ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"), default=_plain
    ).encode

    def stdlib_loads(data: bytes | bytearray | str) -> Any:
        if isinstance(data, str):
            text, data = data, _encoded(data)
        else:
            text = _decoded(data)
        check_nesting(data)
        try:
            value = decode(text)
        except JsonError as error:
            reason = error.reason
        except JSONDecodeError as error:
            reason = _why(text, error.msg, error.pos)
        except ValueError:
            reason = "an integer of more digits than this interpreter converts"
        except RecursionError:
            reason = "nested too deeply for the stack that is left"
        else:
            if "\\" in text and _LONE_SURROGATE.search(text.replace("\\\\", "--")):
                raise JsonError("a surrogate without its other half")
            return value
        # Outside the handler, because the library's exception keeps the whole text alive.
        raise JsonError(reason)

    def stdlib_dumps(value: Any) -> bytes:
        _check(value)
        return encode(value).encode()

    return Backend("stdlib", stdlib_loads, stdlib_dumps)


# For a text that is JSON, and in which pairs of backslashes were replaced.
_LONE_SURROGATE: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)


def _decoded(data: bytes | bytearray) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        reason = f"not UTF-8 at byte {error.start}: {error.reason}"
    raise JsonError(reason)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        reason = f"a surrogate at character {error.start}"
    raise JsonError(reason)


def _why(text: str, message: str, position: int) -> str:
    if not text or text.isspace():
        return "no JSON value"
    if text[0] == "\ufeff":
        return "starts with a byte-order mark"
    # Some of the library's messages end where the position follows: "… starting at".
    return f"{message[0].lower()}{message[1:].removesuffix(' at')} at character {position}"


def _finite(digits: str) -> float:
    value = float(digits)
    if not isfinite(value):
        raise JsonError("a number too large for a double")
    return value


def _integer(digits: str) -> int:
    if len(digits) > MAX_INT_DIGITS and len(digits.lstrip("-")) > MAX_INT_DIGITS:
        raise JsonError(f"an integer of more than {MAX_INT_DIGITS} digits")
    return int(digits)


def _refuse_constant(name: str) -> NoReturn:
    raise JsonError(f"{name} is not JSON")


# orjson, for whatever it agrees on with the above.

# orjson turns integers below -2**63 and above 2**64 - 1 into floats. They have 19 digits or more, which shows in the
# text with all digits made equal.
_DIGITS_AS_ZERO: Final = bytes.maketrans(b"123456789", b"0" * 9)
_MANY_ZEROS: Final = b"0" * 19
_NO_ZERO: Final = re.compile(rb"[^0]")
# A text shorter than this cannot open and close too many brackets.
_SHORT: Final = 2 * MAX_NESTING


def _orjson() -> Backend:
    import orjson

    slow = _stdlib()
    slow_loads, slow_dumps = slow.loads, slow.dumps
    fast_loads, fast_dumps = orjson.loads, orjson.dumps
    # What is passed through goes to _plain, which knows the few types that can be said.
    options = orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME

    def orjson_loads(data: bytes | bytearray | str) -> Any:
        if isinstance(data, str):
            data = _encoded(data)
        bare = data if len(data) < _LARGE else _without_strings(data)
        # find, because the operator "in" first tries to make an integer of the bytes.
        zeros = bare.translate(_DIGITS_AS_ZERO)
        if (place := zeros.find(_MANY_ZEROS)) >= 0 and _begins_integer(zeros, place):
            return slow_loads(data)
        if len(bare) > _SHORT and _nests_deeper(bare, MAX_NESTING):
            return slow_loads(data)
        try:
            return fast_loads(data)
        except ValueError:
            pass
        # Outside the handler, as above. It tells why, and it decides.
        return slow_loads(data)

    def orjson_dumps(value: Any) -> bytes:
        try:
            text = fast_dumps(value, _plain, options)
        except TypeError:
            return slow_dumps(value)
        bare = text if len(text) < _LARGE else _without_strings(text)
        # NaN and the infinities come out as null.
        if bare.find(b"null") >= 0 or (len(bare) > _SHORT and _nests_deeper(bare, MAX_NESTING)):
            _check(value)
        return text

    return Backend("orjson", orjson_loads, orjson_dumps)


_LARGE: Final = 32 * 1024
_FEW_STRINGS: Final = 64


def _without_strings(text: bytes | bytearray) -> bytes | bytearray:
    """Return the text with its strings empty if it has few of them, else the text as it is.

    What is large is most often large for one string, an image or a file, which need not be looked at then.
    """
    if text.find(b"\\") >= 0:
        return text
    outside = []
    end = 0
    for _ in range(_FEW_STRINGS):
        start = text.find(b'"', end)
        if start < 0:
            outside.append(text[end:])
            return b'""'.join(outside)
        outside.append(text[end:start])
        end = text.find(b'"', start + 1) + 1
        if end == 0:
            return text
    return text


def _begins_integer(zeros: bytes | bytearray, place: int) -> bool:
    """Return whether some run of many digits, the first being at ``place``, is more than the digits of a fraction."""
    while place >= 0:
        if zeros[place - 1 : place] != b".":
            return True
        end = _NO_ZERO.search(zeros, place)
        place = zeros.find(_MANY_ZEROS, end.start()) if end else -1
    return False


# Nesting.

_BLOCK: Final = 64
_OPENING: Final = ord("[")
_AS_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_ALL_BUT_MARKS: Final = bytes(sorted(set(range(256)) - set(b'[]{}"')))


def _nests_deeper(data: bytes | bytearray, limit: int) -> bool:
    """Return whether a JSON text nests deeper than that; for any other text, something."""
    # Strings included; split, because it passes long strings much faster than count.
    if len(data.split(b"[", limit + 1)) + len(data.split(b"{", limit + 1)) - 2 <= limit:
        return False
    brackets = _brackets(data)
    depth = 0
    for start in range(0, len(brackets), _BLOCK):
        block = brackets[start : start + _BLOCK]
        opening = block.count(b"[")
        if depth + opening <= limit:
            depth += 2 * opening - len(block)
            continue
        for bracket in block:
            depth += 1 if bracket == _OPENING else -1
            if depth > limit:
                return True
    return False


def _brackets(data: bytes | bytearray) -> bytes:
    """Return the brackets outside strings, as ``[`` and ``]``."""
    if data.find(b"\\") >= 0:
        # Pairs of backslashes first: one that is left before a quotation mark escapes it.
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = bytes(data.translate(_AS_SQUARE, _ALL_BUT_MARKS))
    # Strings without brackets are adjacent quotation marks now. If that pairs off every mark, it did so in order.
    bare = marks.replace(b'""', b"")
    return bare if bare.find(b'"') < 0 else b"".join(marks.split(b'"')[::2])


# Values that can be said.

_INT_BOUND: Final = 10**MAX_INT_DIGITS


def _plain(value: Any) -> Any:
    """Return the plain value that stands for one of a subclass, an enumeration or a UUID."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return dict(value.items())
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if _is_uuid(value):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _is_uuid(value: object) -> bool:
    # By name, because importing uuid for everybody costs more than anybody gets out of it here.
    return type(value).__name__ == "UUID" and type(value).__module__ == "uuid"


class _Unsayable(Exception):
    """A value that cannot be said; on its way up every container adds its part of the path."""

    def __init__(self, kind: type[ValueError | TypeError], reason: str) -> None:
        self.kind = kind
        self.reason = reason
        self.path: list[str] = []


def _check(value: Any) -> None:
    """Raise ``ValueError`` or ``TypeError``, naming the place, for a value that cannot be said."""
    kind: type[ValueError | TypeError]
    try:
        _check_value(value, 0)
    except _Unsayable as error:
        kind, reason = error.kind, error.reason
        place = "".join(reversed(error.path)).removeprefix(".")
    except RecursionError:
        kind, reason, place = ValueError, "nested too deeply for the stack that is left", ""
    else:
        return
    raise kind(f"{place}: {reason}" if place else reason)


def _check_value(value: Any, depth: int) -> None:
    if isinstance(value, Enum):
        _check_value(value.value, depth)
    elif isinstance(value, str):
        _check_text(value, "a string")
    elif isinstance(value, float):
        if not isfinite(value):
            raise _Unsayable(ValueError, f"{value!r} has no form in JSON")
    elif isinstance(value, int):
        if not -_INT_BOUND < value < _INT_BOUND:
            raise _Unsayable(ValueError, f"an integer of more than {MAX_INT_DIGITS} digits")
    elif isinstance(value, dict | list | tuple):
        if depth == MAX_NESTING:
            raise _Unsayable(ValueError, f"nested deeper than {MAX_NESTING}")
        if isinstance(value, dict):
            _check_members(value, depth + 1)
        else:
            _check_items(value, depth + 1)
    elif value is not None and not _is_uuid(value):
        raise _Unsayable(TypeError, f"{type(value).__name__} has no form in JSON")


def _check_members(members: dict[Any, Any], depth: int) -> None:
    for key, item in members.items():
        if not isinstance(key, str):
            raise _Unsayable(TypeError, f"the key {key!r:.50} is not a string")
        _check_text(key, "a key")
        if type(item) is str and item.isascii():
            continue
        try:
            _check_value(item, depth)
        except _Unsayable as error:
            error.path.append(f".{key:.50}")
            raise


def _check_items(items: list[Any] | tuple[Any, ...], depth: int) -> None:
    for index, item in enumerate(items):
        if type(item) is str and item.isascii():
            continue
        try:
            _check_value(item, depth)
        except _Unsayable as error:
            error.path.append(f"[{index}]")
            raise


def _check_text(text: str, what: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _Unsayable(ValueError, f"{what} with a surrogate at character {error.start}") from None
