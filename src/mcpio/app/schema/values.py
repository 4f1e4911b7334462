"""Types of arguments: their faults, docstrings, fields and scalars."""

from __future__ import annotations

import inspect
import math
import re
import typing
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any, Final, Literal, Protocol

from mcpio.errors import InvalidMessage

# --------------------------------------------------------------------------------------------------------------- faults
# Faults of values: raised at the place of the fault, with the path completed on the way out.

Family = Literal["number", "string", "bytes", "array", "object", "moment"]
"""The constraints that apply to a type: bounds to numbers and to moments (dates and times), lengths to the others."""


class Fault(Exception):
    """A value does not fit its type.

    ``reason`` names the expected value and the actual one. ``steps`` is the path from the inside out: each converter
    of a member or an item appends its name or index.
    """

    def __init__(self, reason: str, *steps: str | int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str | int] = list(steps)

    def as_invalid(self, root: str) -> InvalidMessage:
        """Return the error for the caller; its path starts at ``root``."""
        return InvalidMessage(path_text(root, self.steps[::-1]), self.reason)


def expected(what: str, value: Any) -> Fault:
    """Return the fault of a value that is not ``what``, such as ``an integer``."""
    return Fault(f"expected {what}, got {shown(value)}")


def path_text(root: str, steps: list[str | int]) -> str:
    """Return a path as text: ``arguments.items[0].size``. Names that are not identifiers are in brackets."""
    parts = [root]
    for step in steps:
        if isinstance(step, str) and len(step) <= _SHOWN_CHARACTERS and step.isidentifier():
            parts.append(f".{step}" if root or len(parts) > 1 else step)
        else:
            parts.append(f"[{shown(step)}]")
    return "".join(parts)


_SHOWN_CHARACTERS: Final = 60

MOST_CONVERSIONS: Final = 100_000
"""How many values of one peer's message are converted to types that JSON does not have: at most about 0.3 s."""


class _Work:
    """How many conversions are left. Values that the program itself makes are converted without a bound.

    One for all, since a conversion waits for nothing. Event loops in several threads share it: at worst, two very large
    messages at the same time are one message to it.
    """

    left: float = math.inf


class _TooMuchWork(Exception):
    """A value takes too many conversions. No ``Fault``, because another alternative of a union would then be tried."""


_work: Final = _Work()


def spend(conversions: int) -> None:
    """Count conversions that are about to happen."""
    _work.left -= conversions
    if _work.left < 0:
        raise _TooMuchWork


def read_value(convert: Callable[[Any], Any], value: Any, root: str) -> Any:
    """Convert a value that came from a peer. Raises InvalidMessage if it does not fit, with a path from ``root``."""
    _work.left = MOST_CONVERSIONS
    try:
        return convert(value)
    except Fault as fault:
        raise fault.as_invalid(root) from fault.__cause__
    except _TooMuchWork:
        raise Fault(f"more than {MOST_CONVERSIONS} values to convert; send fewer at once").as_invalid(root) from None
    except RecursionError:
        raise Fault("nested too deeply").as_invalid(root) from None
    finally:
        _work.left = math.inf


def shown(value: Any) -> str:
    """Describe a value in terms of JSON, shortened: ``"abc"``, ``5``, ``null``, ``an array``."""
    if isinstance(value, str):
        cut = value if len(value) <= _SHOWN_CHARACTERS else value[:_SHOWN_CHARACTERS] + "…"
        return '"' + cut.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        # Python refuses to format very long integers.
        return str(value) if value.bit_length() <= 200 else f"an integer of {value.bit_length()} bits"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list):
        return "an array"
    if isinstance(value, dict):
        return "an object"
    return f"a value of type {type(value).__name__}"


# -------------------------------------------------------------------------------------------------------------- foreign
# Foreign types: models of other libraries, and types that a program registers.


class ForeignType(Protocol):
    """Converts the values of some types: see ``register_type``."""

    def matches(self, kind: Any) -> bool:
        """Whether an annotation, or the class of a value, is one of these types."""

    def schema(self, kind: Any, *, output: bool) -> dict[str, Any]:
        """Return the JSON Schema (2020-12) of values read, or with ``output`` written.

        It may contain ``$defs`` and refer to them as ``#/$defs/Name``.
        """

    def read(self, kind: Any, value: Any) -> Any:
        """Return the Python value for a JSON value. Raises ValueError with the reason if it does not fit."""

    def write(self, kind: Any, value: Any) -> Any:
        """Return the JSON value for a Python value. Raises ValueError with the reason if it does not fit."""


def register_type(foreign: ForeignType) -> None:
    """Register types that mcpio does not know, for use in annotations. The last one registered is asked first.

    It applies to all servers of the process. Register types before the functions that use them.
    """
    _registered.insert(0, foreign)


def foreign_for(kind: Any) -> ForeignType | None:
    """Return the converter of a foreign type, or ``None``."""
    return next((foreign for foreign in _registered if foreign.matches(kind)), None)


def read_foreign(foreign: ForeignType, kind: Any, value: Any) -> Any:
    """Read a value, turning its ValueError into a Fault."""
    try:
        return foreign.read(kind, value)
    except ValueError as error:
        raise Fault(str(error)) from error


def write_foreign(foreign: ForeignType, kind: Any, value: Any) -> Any:
    """Write a value, turning its ValueError into a Fault."""
    try:
        return foreign.write(kind, value)
    except ValueError as error:
        raise Fault(str(error)) from error


class _Models:
    """Classes with pydantic's methods, recognized by them, so that pydantic need not be installed."""

    def matches(self, kind: Any) -> bool:
        return isinstance(kind, type) and hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate")

    def schema(self, kind: Any, *, output: bool) -> dict[str, Any]:
        schema: dict[str, Any] = kind.model_json_schema(mode="serialization" if output else "validation")
        return schema

    def read(self, kind: Any, value: Any) -> Any:
        try:
            return kind.model_validate(value)
        except ValueError as error:
            raise _first_of(error) from None

    def write(self, kind: Any, value: Any) -> Any:
        # A dict where a model is declared is validated like input.
        model = value if isinstance(value, kind) else self.read(kind, value)
        return model.model_dump(mode="json", by_alias=True)


def _first_of(error: ValueError) -> Fault:
    errors = getattr(error, "errors", None)
    details = errors() if callable(errors) else []
    if not details:
        return Fault(str(error))
    return Fault(details[0]["msg"], *reversed(details[0]["loc"]))


_registered: list[ForeignType] = [_Models()]


# ------------------------------------------------------------------------------------------------------------ docstring
# Parsing of docstrings: the description of a function, and of each parameter.
# Three styles are understood: sections with a colon (``Args:``, Google's), underlined sections (``Parameters`` over
# ``----------``, NumPy's), and fields (``:param name:``, Sphinx's). Anything else is text.


class Docstring:
    """A parsed docstring.

    ``description`` is the text before the first section, and ``summary`` its first paragraph on one line; ``None`` if
    there is none. ``parameters`` maps parameter names to their descriptions, each on one line.
    """

    __slots__ = ("description", "parameters", "summary")

    def __init__(self, description: str | None, parameters: dict[str, str]) -> None:
        self.description: str | None = description
        self.summary: str | None = _one_line(description.split("\n\n", 1)[0]) if description else None
        self.parameters: dict[str, str] = parameters


def parse_docstring(text: str | None) -> Docstring:
    """Parse a docstring. Any text is accepted; one that is not understood is a description."""
    lines = inspect.cleandoc(text).split("\n") if text else []
    first, *others = _sections(lines)
    parameters: dict[str, str] = {}
    for section in others:
        for name, description in section.entries():
            if description:
                parameters.setdefault(name, description)
    return Docstring("\n".join(first.body).strip() or None, parameters)


class _Section:
    """Lines of a docstring: free text, a titled section in one of the styles, or one field."""

    __slots__ = ("body", "style", "title")

    def __init__(self, style: str, title: str = "") -> None:
        self.style = style
        self.title = title
        self.body: list[str] = []

    def ends_at(self, line: str) -> bool:
        """Whether a line that starts no section ends this one: Google's and Sphinx's are indented."""
        return self.style in ("google", "sphinx") and line[:1].strip() != ""

    def entries(self) -> Iterator[tuple[str, str]]:
        """Yield (parameter, description)."""
        if self.style == "sphinx":
            if match := _FIELD.match("\n".join(self.body)):
                yield match[1], _one_line(match[2])
        elif self.title in _PARAMETERS:
            head = _GOOGLE_HEAD if self.style == "google" else _NUMPY_HEAD
            for entry in self._indented():
                if match := head.match(entry):
                    for name in match[1].split(","):
                        yield name.strip().lstrip("*"), _one_line(match[2])

    def _indented(self) -> Iterator[str]:
        """Yield the lines at the section's margin, each with the deeper lines after it."""
        margin = min((_indent(line) for line in self.body if line.strip()), default=0)
        entry: list[str] = []
        for line in self.body:
            if line.strip() and _indent(line) == margin and entry:
                yield "\n".join(entry)
                entry = []
            entry.append(line.strip())
        yield "\n".join(entry)


# fmt: off
_PARAMETERS: Final = frozenset([
    "args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters",
    "attributes", "fields", "members",
])
_TITLES: Final = _PARAMETERS | frozenset([
    "example", "examples", "note", "notes", "raises", "references", "return", "returns", "see also",
    "warning", "warnings", "yield", "yields",
])
# fmt: on
# "name (type): text" and, with more lines, "name, name : type".
_GOOGLE_HEAD: Final = re.compile(r"(\*{0,2}\w+) *(?:\(.*?\))? *:(.*)", re.DOTALL)
_NUMPY_HEAD: Final = re.compile(r"(\*{0,2}\w+(?: *, *\*{0,2}\w+)*)(?: *:[^\n]*)?(?:\n(.*))?$", re.DOTALL)
_FIELD: Final = re.compile(
    r":(?:param|parameter|arg|argument|key|keyword|ivar|var|cvar) +(?:[^:\n]* )?\*{0,2}(\w+) *:(.*)", re.DOTALL
)
_ANY_FIELD: Final = re.compile(r":[a-zA-Z]+(?: [^:]*)?:")


def _sections(lines: list[str]) -> Iterator[_Section]:
    """Yield the parts of a docstring in order. The first is free text, perhaps empty."""
    section = _Section("text")
    index = 0
    while index < len(lines):
        line = lines[index]
        started = _start(line, lines[index + 1] if index + 1 < len(lines) else "")
        if started is None and section.ends_at(line):
            started = _Section("text")
        if started is not None:
            yield section
            section = started
        if section.style in ("text", "sphinx") or started is None:
            section.body.append(line)
        index += 2 if started is not None and started.style == "numpy" else 1
    yield section


def _start(line: str, following: str) -> _Section | None:
    """Return the section that a line starts, or ``None``."""
    if _ANY_FIELD.match(line):
        return _Section("sphinx")
    words = line.rstrip().lower()
    if words in _TITLES and len(following) >= 3 and not following.strip("-= "):
        return _Section("numpy", words)
    if words.endswith(":") and words[:-1] in _TITLES:
        return _Section("google", words[:-1])
    return None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


# -------------------------------------------------------------------------------------------------------------- records
# Classes that are JSON objects with named members: attrs classes, dataclasses, TypedDict and NamedTuple.

NO_DEFAULT: Final = inspect.Parameter.empty
"""Marks a missing default, or one that a factory makes."""


class Field:
    """One member: its name in JSON (and in the constructor), its attribute, its type and its default."""

    __slots__ = ("annotation", "attribute", "computed", "default", "description", "name", "required")

    def __init__(self, name: str, annotation: Any, *, required: bool, default: Any = NO_DEFAULT) -> None:
        self.name: str = name
        self.attribute: str = name
        self.annotation: Any = annotation
        self.required: bool = required
        self.default: Any = default
        self.description: str | None = None
        # Set by the class itself, so it is written and never read.
        self.computed: bool = False


class Record:
    """A class as its members. ``make`` makes an instance from them; ``kind`` is the class of an instance."""

    __slots__ = ("description", "fields", "kind", "make")

    def __init__(self, kind: type, fields: list[Field], make: Callable[..., Any], documentation: str | None) -> None:
        self.kind: type = kind
        self.fields: list[Field] = fields
        self.make: Callable[..., Any] = make
        parsed = parse_docstring(documentation)
        self.description: str | None = parsed.description
        for field in fields:
            field.description = parsed.parameters.get(field.name)


def record_for(kind: Any, namespace: Mapping[str, Any]) -> Record | None:
    """Return the members of a class, or ``None`` if it is not such a class.

    ``namespace`` adds names for annotations that are strings. Raises NameError if a name is unknown.
    """
    if not isinstance(kind, type):
        return None
    for builds in (_attrs_fields, _dataclass_fields, _typed_dict_fields, _named_tuple_fields):
        fields = builds(kind, namespace)
        if fields is not None:
            make = dict if builds is _typed_dict_fields else kind
            return Record(kind, fields, make, _documentation(kind))
    return None


def attributes_of(kind: type) -> list[tuple[str, str]] | None:
    """Return (name in JSON, attribute) of each member of an attrs class, dataclass or NamedTuple, else ``None``.

    Types are not evaluated.
    """
    if (attributes := getattr(kind, "__attrs_attrs__", None)) is not None:
        return [(attribute.alias, attribute.name) for attribute in attributes]
    if hasattr(kind, "__dataclass_fields__"):
        import dataclasses

        return [(member.name, member.name) for member in dataclasses.fields(kind)]
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return [(name, name) for name in kind._fields]
    return None


def is_payload(kind: Any) -> bool:
    """Whether a class is, or inherits from, a protocol type, whose form depends on the revision."""
    return isinstance(kind, type) and any(base.__module__.startswith("mcpio.types") for base in kind.__mro__)


def evaluate(annotations: Mapping[str, Any], names: dict[str, Any], namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return annotations with strings evaluated; ``names`` are the globals of their module."""
    holder = _Holder()
    holder.__annotations__ = dict(annotations)
    return typing.get_type_hints(holder, names, dict(namespace), include_extras=True)


class _Holder:
    """Carries annotations for ``typing.get_type_hints``."""


def _hints(kind: type, namespace: Mapping[str, Any]) -> dict[str, Any]:
    # A local class is not among the globals of its module.
    return typing.get_type_hints(kind, localns={kind.__name__: kind, **namespace}, include_extras=True)


def _attrs_fields(kind: type, namespace: Mapping[str, Any]) -> list[Field] | None:
    attributes = getattr(kind, "__attrs_attrs__", None)
    if attributes is None:
        return None
    hints = _hints(kind, namespace)
    fields = []
    for attribute in attributes:
        # Recognized by name, so that attrs need not be imported: NOTHING means no default.
        has_default = type(attribute.default).__name__ != "_Nothing"
        fixed = has_default and not hasattr(attribute.default, "takes_self")
        field = Field(
            attribute.alias,
            hints.get(attribute.name, attribute.type if attribute.type is not None else Any),
            required=not has_default,
            default=attribute.default if fixed else NO_DEFAULT,
        )
        field.attribute = attribute.name
        field.computed = not attribute.init
        fields.append(field)
    return fields


def _dataclass_fields(kind: type, namespace: Mapping[str, Any]) -> list[Field] | None:
    if not hasattr(kind, "__dataclass_fields__"):
        return None
    import dataclasses

    hints = _hints(kind, namespace)
    fields = []
    for member in dataclasses.fields(kind):
        fixed = member.default is not dataclasses.MISSING
        required = not fixed and member.default_factory is dataclasses.MISSING
        field = Field(
            member.name, hints[member.name], required=required, default=member.default if fixed else NO_DEFAULT
        )
        field.computed = not member.init
        fields.append(field)
    return fields


def _typed_dict_fields(kind: type, namespace: Mapping[str, Any]) -> list[Field] | None:
    # Recognized by its attributes, since that of typing_extensions is another class.
    if not (issubclass(kind, dict) and hasattr(kind, "__required_keys__") and hasattr(kind, "__total__")):
        return None
    fields = []
    for name, annotation in _hints(kind, namespace).items():
        required = name in kind.__required_keys__
        # If annotations are strings, the class did not see these marks when it was made.
        bare = annotation
        while (mark := _mark(bare)) is not None:
            required = {"Required": True, "NotRequired": False}.get(mark, required)
            bare = bare.__args__[0]
        fields.append(Field(name, bare, required=required))
    return fields


def _mark(annotation: Any) -> str | None:
    name = getattr(typing.get_origin(annotation), "_name", None)
    return name if name in ("Required", "NotRequired", "ReadOnly") else None


def _named_tuple_fields(kind: type, namespace: Mapping[str, Any]) -> list[Field] | None:
    if not (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        return None
    hints = _hints(kind, namespace)
    defaults: dict[str, Any] = getattr(kind, "_field_defaults", {})
    return [
        Field(name, hints.get(name, Any), required=name not in defaults, default=defaults.get(name, NO_DEFAULT))
        for name in kind._fields
    ]


def _documentation(kind: type) -> str | None:
    """Return the class's own docstring: not that of a base class, and not a generated one."""
    text = kind.__dict__.get("__doc__")
    generated = (f"{kind.__name__}(", "Method generated by attrs", "dict(")
    return None if not isinstance(text, str) or text.startswith(generated) else text


# -------------------------------------------------------------------------------------------------------------- scalars
# Types that are one JSON string, number, boolean or null.
# Conversion is strict in both directions: ``"5"`` is not an integer, ``1`` is not a boolean. Numbers are as in JSON
# Schema: ``1.0`` is an integer, and an integer is a number. Classes whose import is expensive are recognized by name,
# and used only through the class in the annotation.


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
    if (cached := _KNOWN.get(kind)) is not None:
        return cached
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
        if math.isfinite(number):
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
        elif isinstance(value, float) and math.isfinite(value):
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
        match = _DURATION.fullmatch(value) if isinstance(value, str) else None
        if match is None or not any(parts := match.groupdict().values()):
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


# ---------------------------------------------------------------------------------------------------------------- plain
# Python values as plain JSON by their own type: for results without a declared type, and defaults in schemas.


def to_json(value: Any) -> Any:
    """Return a value as plain JSON: dicts with str keys, lists, str, numbers, bool and ``None``.

    Instances of attrs classes, dataclasses and NamedTuples become objects, sets become arrays, members of enumerations
    their values, bytes base64; dates, times, decimals and UUIDs become text. Raises InvalidMessage with the place of a
    value that JSON cannot express.
    """
    try:
        return plain(value)
    except Fault as fault:
        raise fault.as_invalid("") from None
    except RecursionError:
        raise Fault("nested too deeply, or contains itself").as_invalid("") from None


def plain(value: Any) -> Any:
    """Convert as ``to_json``, but raise Fault."""
    kind = type(value)
    if isinstance(value, Enum):
        return plain(value.value)
    for base in kind.__mro__:
        if (scalar := scalar_for(base)) is not None:
            return scalar.write(value)
    if isinstance(value, Mapping):
        return _object(value.items())
    if (foreign := foreign_for(kind)) is not None:
        return write_foreign(foreign, kind, value)
    if is_payload(kind):
        raise Fault(f"{kind.__name__} is a message's own part and cannot stand inside other data")
    if (attributes := attributes_of(kind)) is not None:
        return _object((name, getattr(value, attribute)) for name, attribute in attributes)
    if isinstance(value, list | tuple):
        return _array(value)
    if isinstance(value, AbstractSet):
        return _array(in_order(value))
    why = ": was its await forgotten?" if hasattr(value, "__await__") else ""
    raise Fault(f"a value of type {kind.__name__} has no form in JSON{why}")


def in_order(items: AbstractSet[Any]) -> list[Any]:
    """Return the items of a set, sorted if possible, so that every process has the same order."""
    try:
        return sorted(items)
    except TypeError:
        return list(items)


def _object(members: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    copy: dict[str, Any] = {}
    for name, value in members:
        key = plain(name) if isinstance(name, Enum) else name
        if not isinstance(key, str):
            raise expected("a string as the name of a member", key)
        try:
            copy[str.__str__(key)] = plain(value)
        except Fault as fault:
            fault.steps.append(key)
            raise
    return copy


def _array(items: Iterable[Any]) -> list[Any]:
    copy = []
    for index, item in enumerate(items):
        try:
            copy.append(plain(item))
        except Fault as fault:
            fault.steps.append(index)
            raise
    return copy
