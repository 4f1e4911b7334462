"""Types that are one JSON string, number, boolean or null.

Conversion is strict in both directions: ``"5"`` is not an integer, ``1`` is not a boolean. Numbers are as in JSON
Schema: ``1.0`` is an integer, and an integer is a number. Classes whose import is expensive are recognized by name, and
used only through the class in the annotation.
"""

from __future__ import annotations

import re
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from mcpio.app.schema.faults import Fault, expected, shown

if TYPE_CHECKING:
    from mcpio.app.schema.faults import Family

__all__ = ["Scalar", "scalar_for"]


class Scalar:
    """One type as a JSON scalar.

    ``read`` converts the JSON value to the Python value, and ``write`` the reverse; both raise Fault. JSON values of
    the types ``as_is`` need no reading; ``read_kinds`` are the types of JSON values that may fit.
    """

    __slots__ = ("as_is", "family", "name", "read", "read_kinds", "schema", "write")

    def __init__(
        self,
        name: str,
        schema: dict[str, Any],
        read: Callable[[Any], Any],
        write: Callable[[Any], Any],
        kinds: tuple[type, ...],
        *,
        as_is: type | None = None,
        family: Family | None = None,
    ) -> None:
        self.name: str = name
        self.schema: dict[str, Any] = schema
        self.read: Callable[[Any], Any] = read
        self.write: Callable[[Any], Any] = write
        self.read_kinds: frozenset[type] = frozenset(kinds)
        self.as_is: frozenset[type] = frozenset([as_is] if as_is else [])
        self.family: Family | None = family


def scalar_for(kind: Any) -> Scalar | None:
    """Return the scalar of a class, or ``None``. Subclasses do not count: JSON cannot restore them."""
    if not isinstance(kind, type):
        return None
    if (known := _KNOWN.get(kind)) is not None:
        return known
    build = _BY_NAME.get((kind.__module__, kind.__qualname__))
    if build is None:
        return None
    return _KNOWN.setdefault(kind, build(kind))


# Strings, numbers, booleans, null.


def _read_str(value: Any) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    raise expected("a string", value)


def _read_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise expected("true or false", value)


def _read_none(value: Any) -> None:
    if value is not None:
        raise expected("null", value)


def _read_int(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise expected("an integer", value)


def _write_int(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    raise expected("an integer", value)


def _read_float(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            raise Fault(f"{shown(value)} is too large for a floating-point number") from None
        if isfinite(number):
            return number
    raise expected("a finite number" if isinstance(value, float) else "a number", value)


# Bytes.


def _read_bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise expected("a string in base64", value)
    try:
        return a2b_base64(value, strict_mode=True)
    except (Base64Error, ValueError) as error:
        raise Fault(f"expected base64 (RFC 4648, section 4, with padding): {error}") from None


def _write_bytes(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return b2a_base64(value, newline=False).decode("ascii")
    raise expected("bytes", value)


# Classes known by name.


def _datetime(kind: Any) -> Scalar:
    what = "a date and time with a time zone, such as 2025-06-18T09:30:00Z"

    def read(value: Any) -> Any:
        if isinstance(value, str) and _DATE_TIME.fullmatch(value):
            try:
                return kind.fromisoformat(value.upper())
            except ValueError as error:
                raise Fault(f"expected {what}: {error}") from None
        raise expected(what, value)

    def write(value: Any) -> str:
        if not isinstance(value, kind):
            raise expected(what, value)
        if value.utcoffset() is None:
            raise Fault("expected a datetime with a time zone, got one without")
        return str(value.isoformat())

    return Scalar(what, {"type": "string", "format": "date-time"}, read, write, (str,), family="moment")


# RFC 3339, section 5.6, as the format "date-time" has it; an offset has no seconds, and at most six digits count here.
_DATE_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def _date(kind: Any) -> Scalar:
    what = "a date such as 2025-06-18"

    def read(value: Any) -> Any:
        if isinstance(value, str) and _DATE.fullmatch(value):
            try:
                return kind.fromisoformat(value)
            except ValueError as error:
                raise Fault(f"expected {what}: {error}") from None
        raise expected(what, value)

    def write(value: Any) -> str:
        # A datetime is a date to Python, but would be written with a time.
        if type(value) is kind:
            return str(value.isoformat())
        raise expected(what, value)

    return Scalar(what, {"type": "string", "format": "date"}, read, write, (str,), family="moment")


_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _uuid(kind: Any) -> Scalar:
    what = "a UUID such as 123e4567-e89b-12d3-a456-426614174000"

    def read(value: Any) -> Any:
        if isinstance(value, str) and _UUID.fullmatch(value):
            return kind(value)
        raise expected(what, value)

    def write(value: Any) -> str:
        if isinstance(value, kind):
            return str(value)
        raise expected(what, value)

    return Scalar(what, {"type": "string", "format": "uuid"}, read, write, (str,))


_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def _decimal(kind: Any) -> Scalar:
    what = 'a decimal number such as 12.50 or "12.50"'

    def read(value: Any) -> Any:
        if isinstance(value, str):
            if len(value) <= _DECIMAL_LENGTH and _DECIMAL.fullmatch(value):
                return kind(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            return kind(value)
        elif isinstance(value, float) and isfinite(value):
            # As the number was written, not the nearest double.
            return kind(repr(value))
        raise expected(what, value)

    def write(value: Any) -> str:
        if not isinstance(value, kind) or not value.is_finite():
            raise expected("a finite Decimal", value)
        # Looked at before it is written out: a short Decimal such as 1E+999999999 has a very long text.
        longest = max(value.adjusted(), -value.as_tuple().exponent)
        text = format(value, "f") if longest < _DECIMAL_LENGTH else None
        if text is None or len(text) > _DECIMAL_LENGTH:
            raise Fault(f"expected a Decimal of at most {_DECIMAL_LENGTH} characters without an exponent")
        return text

    schema = {"type": ["number", "string"], "maxLength": _DECIMAL_LENGTH, "pattern": f"^{_DECIMAL.pattern}$"}
    return Scalar(what, schema, read, write, (int, float, str), family="number")


# Arithmetic with very many digits is slow, and Python limits the conversion of ints.
_DECIMAL_LENGTH: Final = 1000
# No exponent: a short text must not stand for a number of a billion digits.
_DECIMAL: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")


def _path(kind: Any) -> Scalar:
    what = "a path"

    def read(value: Any) -> Any:
        if isinstance(value, str) and value and "\0" not in value:
            return kind(value)
        raise expected(what, value)

    def write(value: Any) -> str:
        if isinstance(value, kind):
            return str(value)
        raise expected(what, value)

    return Scalar(what, {"type": "string", "minLength": 1}, read, write, (str,))


def _timedelta(kind: Any) -> Scalar:
    what = "a duration such as PT1H30M or P2D, without years and months"

    def read(value: Any) -> Any:
        found = _DURATION.fullmatch(value) if isinstance(value, str) else None
        if found is None or not any(parts := found.groupdict().values()):
            raise expected(what, value)
        weeks, days, hours, minutes, seconds = (float(part or 0) for part in parts)
        try:
            return kind(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
        except OverflowError:
            raise Fault(f"{shown(value)} is too long for a timedelta") from None

    def write(value: Any) -> str:
        if not isinstance(value, kind):
            raise expected(what, value)
        if value < kind(0):
            raise Fault("expected a duration, got a negative timedelta")
        seconds = f"{value.seconds}.{value.microseconds:06}".rstrip("0") if value.microseconds else str(value.seconds)
        days = f"{value.days}D" if value.days else ""
        return f"P{days}T{seconds}S" if value.seconds or value.microseconds or not days else f"P{days}"

    return Scalar(what, {"type": "string", "format": "duration"}, read, write, (str,))


# RFC 3339, appendix A, as the format "duration" has it; the seconds may have a fraction (ISO 8601). A year and a month
# have no fixed length.
_DURATION: Final = re.compile(
    r"P(?:(?P<weeks>[0-9]{1,9})W|(?:(?P<days>[0-9]{1,9})D)?"
    r"(?:T(?=[0-9])(?:(?P<hours>[0-9]{1,9})H)?(?:(?P<minutes>[0-9]{1,9})M)?(?:(?P<seconds>[0-9]{1,9}(?:\.[0-9]{1,6})?)S)?)?)"
)


_KNOWN: Final[dict[Any, Scalar]] = {
    str: Scalar("a string", {"type": "string"}, _read_str, _read_str, (str,), as_is=str, family="string"),
    bool: Scalar("true or false", {"type": "boolean"}, _read_bool, _read_bool, (bool,), as_is=bool),
    int: Scalar("an integer", {"type": "integer"}, _read_int, _write_int, (int, float), as_is=int, family="number"),
    float: Scalar("a number", {"type": "number"}, _read_float, _read_float, (int, float), as_is=float, family="number"),
    type(None): Scalar("null", {"type": "null"}, _read_none, _read_none, (type(None),), as_is=type(None)),
    bytes: Scalar(
        "a string in base64",
        {"type": "string", "contentEncoding": "base64"},
        _read_bytes,
        _write_bytes,
        (str,),
        family="bytes",
    ),
}
_BY_NAME: Final[dict[tuple[str, str], Callable[[Any], Scalar]]] = {
    ("datetime", "datetime"): _datetime,
    ("datetime", "date"): _date,
    ("datetime", "timedelta"): _timedelta,
    ("decimal", "Decimal"): _decimal,
    ("uuid", "UUID"): _uuid,
    # The second place is Python 3.13's.
    **{
        (module, name): _path
        for module in ("pathlib", "pathlib._local")
        for name in ("Path", "PurePath", "PurePosixPath")
    },
}
