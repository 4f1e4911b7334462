r"""The one place where JSON text is read and written, with one answer for every corner of the format (RPC-22).

The standard library, made strict, defines what is accepted and what is produced. Where they are installed, msgspec
reads and orjson writes whatever they are known to treat in the same way; everything else takes the standard library's
path. A program sees the same values, the same refusals and the same reasons with any of them:

- Text is UTF-8. Invalid UTF-8, a byte-order mark, and lone surrogates (raw or as ``\ud800`` escapes) are refused.
- Of two members with one name the last wins.
- ``NaN`` and the infinities are refused, and so is a number too large for a double (``1e400``): it could only become
  an infinity, which no JSON text can express. A number too small becomes zero.
- A number without fraction and exponent is an ``int``, exact at any size up to 4,300 digits; a longer one is refused.
  Any other number is a ``float`` (``1e5`` is ``100000.0``). ``-0`` is the integer zero; ``-0.0`` keeps its sign.
- Arrays and objects nest at most 128 deep, counted over the whole text.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from functools import cache
from math import isfinite
from typing import Any, Final, NoReturn, TypeAlias

__all__ = [
    "LIBRARIES",
    "MAX_INT_DIGITS",
    "MAX_NESTING",
    "Backend",
    "JsonError",
    "backend",
    "check_nesting",
    "dumps",
    "dumps_sorted",
    "has_more_values",
    "loads",
]

MAX_NESTING: Final = 128
"""How deep arrays and objects may nest; far beyond real messages, far within every parser's stack."""
MAX_INT_DIGITS: Final = 4300
"""The digits of the longest integer; converting longer ones takes quadratic time, so CPython has the same limit."""

LIBRARIES: tuple[str, str]
"""The libraries that read and write, ``("msgspec", "orjson")`` where both are installed. Asking for it loads them."""

_LARGE: Final = 100_000
"""Bytes of a text that is read without collections of garbage."""

_Loads: TypeAlias = Callable[[bytes | bytearray | str], Any]
_Dumps: TypeAlias = Callable[[Any], bytes]


class JsonError(ValueError):
    """A text is not acceptable JSON; ``reason`` is one short line that says why. The answer to a peer is -32700."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Backend:
    """One way to read and write JSON; ``loads`` and ``dumps`` behave as the functions of this module do."""

    __slots__ = ("dumps", "loads", "name")

    def __init__(self, name: str, loads: _Loads, dumps: _Dumps) -> None:
        self.name: str = name
        self.loads: _Loads = loads
        self.dumps: _Dumps = dumps


def loads(data: bytes | bytearray | str) -> Any:
    """Return the value of a JSON text.

    Raises `JsonError` for any text that is not acceptable, and nothing else (RPC-02, RPC-22).
    """
    if len(data) < _LARGE or not gc.isenabled():
        return _loads(data)
    # While a large text is read, the collector would look through all of its arrays and objects again and again: 0.25 s
    # of 0.32 s for a million of them. None of them can be garbage.
    try:
        gc.disable()  # not before: an interrupt that comes between would leave it so
        return _loads(data)
    finally:
        gc.enable()


def dumps(value: Any) -> bytes:
    """Return a value as compact JSON in UTF-8, on one line (STDIO-02).

    Dictionaries with string keys, lists, tuples, strings, integers, finite floats, booleans and ``None`` have a form in
    JSON, and so have instances of their subclasses; a member of an enumeration is written as its value and a
    ``uuid.UUID`` as its text. Raises ``TypeError`` for another type and for a key that is not a string, ``ValueError``
    for NaN, an infinity, a lone surrogate, an integer of more than 4,300 digits and nesting over 128. The message names
    the place.
    """
    return _dumps(value)


def dumps_sorted(value: Any) -> bytes:
    """Return a value as JSON with sorted members: equal bytes for equal values, with any backend.

    For values to be compared, not sent: as ``dumps``, but NaN and what has no form in JSON need not be refused.
    """
    from json import JSONEncoder

    encoder = JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=_plain_or_mapping)
    return encoder.encode(value).encode(errors="surrogatepass")


def _plain_or_mapping(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else _plain(value)


def check_nesting(data: bytes | bytearray, limit: int = MAX_NESTING) -> None:
    """Raise `JsonError` when arrays and objects nest deeper than ``limit`` in a JSON text; linear time."""
    if _nests_deeper(data, limit):
        raise JsonError(f"nested deeper than {limit}")


def has_more_values(data: bytes | bytearray | str, limit: int) -> bool:
    """Return whether a JSON text has more than ``limit`` values: objects and arrays, and all names and values in them.

    Linear time, and none for a text too short for so many. For anything but JSON the answer has no meaning.
    """
    # Each value but the first follows a comma, a colon, or an opening bracket that has to be closed.
    if len(data) <= 2 * limit:
        return False
    if isinstance(data, str):
        data = data.encode(errors="replace")
    # Those in strings included, which settles it for most texts.
    if len(data) - len(data.translate(None, _BEFORE_VALUES)) < limit:
        return False
    return 1 + sum(map(len, _outside_strings(data, _BEFORE_VALUES))) > limit


def backend(name: str) -> Backend:
    """Return the backend ``"stdlib"``, or ``"compiled"`` for msgspec and orjson.

    Raises ``ImportError`` if a library is not installed, ``ValueError`` for another name.
    """
    if name == "stdlib":
        return Backend(name, _stdlib_loads(), _stdlib_dumps())
    if name == "compiled":
        return Backend(name, _msgspec_loads(), _orjson_dumps())
    raise ValueError(f"the JSON backend must be 'stdlib' or 'compiled', not {name!r:.60}")


# The choice is made by the first use, so that importing this module imports no library (P13).


def __getattr__(name: str) -> Any:
    if name == "LIBRARIES":
        return _choose()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _choose() -> tuple[str, str]:
    """Choose the libraries, each where it is installed, and return their names."""
    global _loads, _dumps  # noqa: PLW0603  the functions above go straight to the library from here on
    reader = writer = "stdlib"
    try:
        _loads = _msgspec_loads()
        reader = "msgspec"
    except ImportError:
        _loads = _stdlib_loads()
    try:
        _dumps = _orjson_dumps()
        writer = "orjson"
    except ImportError:
        _dumps = _stdlib_dumps()
    return reader, writer


def _first_loads(data: bytes | bytearray | str) -> Any:
    _choose()
    return _loads(data)


def _first_dumps(value: Any) -> bytes:
    _choose()
    return _dumps(value)


_loads: _Loads = _first_loads
_dumps: _Dumps = _first_dumps


# The standard library, made strict.


def _stdlib_loads() -> _Loads:
    from json import JSONDecodeError, JSONDecoder

    decode = JSONDecoder(parse_float=_finite, parse_int=_integer, parse_constant=_refuse_constant).decode

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
        # Raised outside the handler: as its context, the library's exception would keep the whole text alive.
        raise JsonError(reason)

    return stdlib_loads


def _stdlib_dumps() -> _Dumps:
    from json import JSONEncoder

    encode = JSONEncoder(
        ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"), default=_plain
    ).encode

    def stdlib_dumps(value: Any) -> bytes:
        # The library writes keys that are not strings, so it cannot be left to find the fault.
        _check(value)
        return encode(value).encode()

    return stdlib_dumps


# For JSON texts whose pairs of backslashes were replaced.
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
    # Some of the library's messages end in "at", for the position that follows.
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


# msgspec and orjson, for whatever they and the standard library agree on.

# A text shorter than this cannot open and close too many brackets.
_SHORT: Final = 2 * MAX_NESTING
# From this length on, looking at a few values is cheaper than looking for ``null`` in their text.
_LONG: Final = 1024
_FEW: Final = MAX_NESTING // 2


def _msgspec_loads() -> _Loads:
    from msgspec import DecodeError
    from msgspec.json import Decoder

    read_float: Callable[[str], Any] = _finite
    with suppress(ImportError):
        from orjson import loads as read_float
    # msgspec itself takes up to 70 µs for a number near the limits of a double, 300 times as long as for others.
    slow_loads, fast_loads = _stdlib_loads(), Decoder(float_hook=read_float).decode

    def msgspec_loads(data: bytes | bytearray | str) -> Any:
        if isinstance(data, str):
            data = _encoded(data)
        # msgspec limits nesting by the stack alone. All else that must be refused, it refuses.
        if len(data) <= _SHORT or not _nests_deeper(data, MAX_NESTING):
            try:
                return fast_loads(data)
            except (DecodeError, ValueError, RecursionError):
                pass
        # Outside the handler, as above. The standard library finds the reason, and it decides.
        return slow_loads(data)

    return msgspec_loads


def _orjson_dumps() -> _Dumps:
    import orjson

    slow_dumps, fast_dumps = _stdlib_dumps(), orjson.dumps
    # Values that are passed through go to _plain, which knows the few types that have a form in JSON.
    options = orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME

    def orjson_dumps(value: Any) -> bytes:
        try:
            text = fast_dumps(value, _plain, options)
        except TypeError:
            return slow_dumps(value)
        # orjson writes NaN and the infinities as null, and has another limit of nesting.
        size = len(text)
        if size >= _LONG and _has_few_values(value):
            return text
        # find, because the operator "in" first tries to make an integer of the bytes.
        if text.find(b"null") >= 0 or (size > _SHORT and _nests_deeper(text, MAX_NESTING)):
            _check(value)
        return text

    return orjson_dumps


def _has_few_values(value: Any) -> bool:
    """Return whether a value holds few others, and no float among them: it cannot nest too deeply then, or hold NaN.

    A long text most often has few values, one of them a long string, which need not be searched then.
    """
    seen = [value]
    for item in seen:  # which grows meanwhile
        kind = item.__class__
        if kind is dict:
            seen += item.values()
        elif kind is list or kind is tuple:
            seen += item
        elif kind not in _WITHOUT_FLOATS:
            return False
        if len(seen) > _FEW:
            return False
    return True


_WITHOUT_FLOATS: Final = frozenset({str, int, bool, type(None)})


# Nesting.

_BLOCK: Final = 64
_OPENING: Final = ord("[")
_AS_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_BEFORE_VALUES: Final = b",:[{"
_PIECE: Final = 1 << 16


def _nests_deeper(data: bytes | bytearray, limit: int) -> bool:
    """Return whether a JSON text nests deeper than ``limit``; for any other text the answer has no meaning."""
    # How many brackets open, those in strings included, settles it for most texts. replace counts them: with nothing
    # to put in their place it finds each by memchr, and passes long strings much faster than count or split.
    size = len(data)
    if 2 * size - len(data.replace(b"[", b"", limit + 1)) - len(data.replace(b"{", b"", limit + 1)) <= limit:
        return False
    depth = 0
    for piece in _outside_strings(data, b"[]{}"):
        brackets = piece.translate(_AS_SQUARE)
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


def _outside_strings(data: bytes | bytearray, marks_kept: bytes) -> Iterator[bytes]:
    """Yield the marks outside strings that are among ``marks_kept``, in pieces."""
    if data.find(b"\\") >= 0:
        # Pairs of backslashes first: one that remains before a quotation mark escapes it.
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = bytes(data.translate(None, _all_but(marks_kept + b'"')))
    # Strings without marks are adjacent quotation marks now. If their removal leaves none, all paired correctly.
    bare = marks.replace(b'""', b"")
    if bare.find(b'"') < 0:
        yield bare
        return
    is_inside = 0
    # Piece by piece, because each part of a split takes 33 bytes and more.
    for start in range(0, len(marks), _PIECE):
        parts = marks[start : start + _PIECE].split(b'"')
        yield b"".join(parts[is_inside::2])
        is_inside ^= (len(parts) - 1) & 1


@cache
def _all_but(marks: bytes) -> bytes:
    return bytes(sorted(set(range(256)) - set(marks)))


# Values that have a form in JSON.

_INT_BOUND: Final = 10**MAX_INT_DIGITS


def _plain(value: Any) -> Any:
    """Return the plain value of an instance of a subclass, a member of an enumeration or a UUID."""
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
    # By name: importing uuid would cost every program more than this check is worth.
    return type(value).__name__ == "UUID" and type(value).__module__ == "uuid"


class _Unwritable(Exception):
    """A value without a form in JSON. On the way up every container adds its part of the path."""

    def __init__(self, kind: type[ValueError | TypeError], reason: str) -> None:
        self.kind = kind
        self.reason = reason
        self.path: list[str] = []


def _check(value: Any) -> None:
    """Raise ValueError or TypeError, naming the place, for a value without a form in JSON."""
    kind: type[ValueError | TypeError]
    try:
        _check_value(value, 0)
    except _Unwritable as error:
        kind, reason = error.kind, error.reason
        path = "".join(reversed(error.path)).removeprefix(".")
    except RecursionError:
        kind, reason, path = ValueError, "nested too deeply for the stack that is left", ""
    else:
        return
    raise kind(f"{path}: {reason}" if path else reason)


def _check_value(value: Any, depth: int) -> None:
    if isinstance(value, Enum):
        _check_value(value.value, depth)
    elif isinstance(value, str):
        _check_text(value, "a string")
    elif isinstance(value, float):
        if not isfinite(value):
            raise _Unwritable(ValueError, f"{value!r} has no form in JSON")
    elif isinstance(value, int):
        if not -_INT_BOUND < value < _INT_BOUND:
            raise _Unwritable(ValueError, f"an integer of more than {MAX_INT_DIGITS} digits")
    elif isinstance(value, dict | list | tuple):
        if depth == MAX_NESTING:
            raise _Unwritable(ValueError, f"nested deeper than {MAX_NESTING}")
        if isinstance(value, dict):
            _check_members(value, depth + 1)
        else:
            _check_items(value, depth + 1)
    elif value is not None and not _is_uuid(value):
        raise _Unwritable(TypeError, f"{type(value).__name__} has no form in JSON")


def _check_members(members: dict[Any, Any], depth: int) -> None:
    for key, item in members.items():
        if not isinstance(key, str):
            raise _Unwritable(TypeError, f"the key {key!r:.50} is not a string")
        _check_text(key, "a key")
        if type(item) is str and item.isascii():
            continue
        try:
            _check_value(item, depth)
        except _Unwritable as error:
            error.path.append(f".{key:.50}")
            raise


def _check_items(items: list[Any] | tuple[Any, ...], depth: int) -> None:
    for index, item in enumerate(items):
        if type(item) is str and item.isascii():
            continue
        try:
            _check_value(item, depth)
        except _Unwritable as error:
            error.path.append(f"[{index}]")
            raise


def _check_text(text: str, what: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _Unwritable(ValueError, f"{what} with a surrogate at character {error.start}") from None
