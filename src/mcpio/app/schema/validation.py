"""Validation against hand-written JSON Schemas, by the package jsonschema.

The package is imported by the first ``Validator``. Nothing is fetched: a reference out of the schema is refused when
the schema is compiled (SCHEMA-06). ``format`` is an annotation and is not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from mcpio.app.schema.constraints import Matcher, check_linear
from mcpio.app.schema.values import path_text
from mcpio.errors import InvalidMessage, McpError

if TYPE_CHECKING:
    from jsonschema.protocols import Validator as Implementation

__all__ = ["DIALECTS", "SchemaError", "Validator", "ValidatorMissing"]

DIALECTS: Final = {
    "https://json-schema.org/draft/2020-12/schema": "Draft202012Validator",
    "https://json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "http://json-schema.org/draft-07/schema": "Draft7Validator",
    "http://json-schema.org/draft-06/schema": "Draft6Validator",
    "http://json-schema.org/draft-04/schema": "Draft4Validator",
}
"""The dialects that ``$schema`` may name; the first is the default (SCHEMA-01, SCHEMA-02, SCHEMA-05)."""

MAX_DEPTH: Final = 64
"""How deep objects and arrays may be nested in a schema."""
MAX_NODES: Final = 20_000
"""How many objects and arrays a schema may have."""
MAX_STEPS: Final = 10_000
"""How many keywords may be applied to a value of a peer: about 0.1 s. A keyword that visits members or items counts for
more."""
OWN_STEPS: Final = 300_000
"""The same for a value that the program makes: two or three seconds."""

# A peer's schema may be malicious (SCHEMA-06), and checking blocks the event loop.
UNTRUSTED_PARTS: Final = 5_000
"""How many objects, arrays and members of objects a peer's schema may have."""
UNTRUSTED_UNEVALUATED: Final = 10
"""How often ``unevaluatedProperties`` and ``unevaluatedItems`` may occur in a peer's schema: nested, each repeats the
work of the others."""


class SchemaError(McpError, ValueError):
    """A schema is unusable: invalid, of an unknown dialect, too large, or with references out of it."""


class ValidatorMissing(McpError, ImportError):
    """The package jsonschema, which hand-written schemas need, is not installed."""


class Validator:
    """Checks values against one schema, which is copied.

    A check ends after ``max_steps``. Regular expressions that may take more than linear time are refused; those of
    ``patternProperties`` must be ones that ``re`` runs in linear time. With ``trusted=False``, for a peer's schema, the
    bounds are tighter and no regular expression is even compiled: ``pattern`` is ignored and ``patternProperties`` is
    refused.

    Raises SchemaError if the schema is unusable (SCHEMA-03, SCHEMA-04), and ValidatorMissing without the package.
    """

    __slots__ = ("_implementation", "_matchers", "_steps", "dialect")

    def __init__(self, schema: Mapping[str, Any], *, trusted: bool = True, max_steps: int = MAX_STEPS) -> None:
        if not isinstance(schema, Mapping):
            raise SchemaError(f"a schema must be an object, not a {type(schema).__name__}")
        try:
            own = _copied(schema)
            if not trusted:
                _check_stranger(own)
            self._steps = max_steps
            self._matchers = _Matchers()
            self.dialect: str = _dialect_of(own)
            self._implementation = _implementation(own, self.dialect, self._matchers if trusted else None)
        except (ImportError, SchemaError):
            raise
        except RecursionError:
            raise SchemaError("the schema is nested too deeply") from None
        except Exception as error:
            # The packages raise many exceptions for schemas that they do not expect, such as a name that is not a URI.
            raise SchemaError(f"the schema cannot be used: {error}") from error

    def validate(self, value: Any, root: str = "") -> None:
        """Check a JSON value. Raises InvalidMessage with the path from ``root`` to the fault.

        Raises SchemaError if the check takes too long, or the schema refers to itself without end.
        """
        from jsonschema.exceptions import best_match

        try:
            # The package hands the format checker to all of its functions, so it carries the budget too.
            running = self._implementation.evolve(format_checker=_Budget(self._steps, value, self._matchers))
            violation = best_match(islice(running.iter_errors(value), _ERRORS))
        except SchemaError:
            raise
        except RecursionError:
            raise SchemaError("the schema refers to itself without end, or the value is nested too deeply") from None
        except Exception as error:
            raise SchemaError(f"the schema cannot be applied: {error}") from error
        if violation is not None:
            message = violation.message if len(violation.message) <= _REASON else violation.message[:_REASON] + "…"
            raise InvalidMessage(path_text(root, list(violation.absolute_path)), message)


_ERRORS: Final = 20
"""How many faults are compared to find the most telling one."""
_REASON: Final = 300
"""The length of a reason, which may quote the value."""


class _Matchers(dict[str, Matcher]):
    """The regular expressions of a schema, by their text."""

    def __missing__(self, pattern: str) -> Matcher:
        matcher = self[pattern] = Matcher(pattern)
        return matcher


_SHOWN: Final = 1000
"""How many characters or parts of a value the package can quote in a reason, which it formats for each fault, in the
time of one step."""
_AT_ONCE: Final = 20
"""How many entries of a keyword or a value are visited in the time of one step."""


class _Budget:
    """Counts the work for one value."""

    def __init__(self, steps: int, value: Any, matchers: _Matchers) -> None:
        self.matchers = matchers
        self._steps = self._left = steps
        self._entries = steps * _AT_ONCE
        self._weights: dict[int, int] = {}
        self._choices: dict[int, tuple[frozenset[Any], list[Any]]] = {}
        self._weigh(value)
        self.spend_steps(steps - self._entries // _AT_ONCE)

    def spend(self, keyword: Any, instance: Any, steps: int) -> None:
        """Count a number of steps for one keyword, applied to one part of the value."""
        size = len(instance) if isinstance(instance, str) else self._weights.get(id(instance), 0)
        self.spend_steps(steps + size // _SHOWN + (len(keyword) // _AT_ONCE if isinstance(keyword, dict | list) else 0))

    def spend_on_members(self, instance: Any, halves: int) -> None:
        """Count a number of half steps for each member or item of a part."""
        self.spend_steps(len(instance) * halves // 2 if isinstance(instance, dict | list) else 0)

    def spend_on_all(self, instance: Any) -> None:
        """Count a visit of everything inside of a part."""
        self.spend_steps(self._weights.get(id(instance), 0) // _AT_ONCE)

    def spend_steps(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise self._too_much()

    def _too_much(self) -> SchemaError:
        return SchemaError(f"the value takes more than {self._steps} steps to check")

    def is_one_of(self, instance: Any, choices: list[Any]) -> bool:
        """Whether a part of the value is in a list of choices, the same list each time."""
        cached = self._choices.get(id(choices))
        if cached is None:
            plain = frozenset(_key(choice) for choice in choices if not isinstance(choice, dict | list))
            cached = plain, [choice for choice in choices if isinstance(choice, dict | list)]
            self._choices[id(choices)] = cached
        plain, others = cached
        if not isinstance(instance, dict | list):
            return _key(instance) in plain
        self.spend_steps(len(others))
        return any(_are_same(choice, instance) for choice in others)

    def check(self, instance: object, format: str) -> None:  # noqa: A002 - the package's name for it
        """Accept any format."""

    def _weigh(self, part: Any) -> int:
        """Return the size of a part when quoted, and remember it if it matters."""
        if not isinstance(part, dict | list):
            return len(part) if isinstance(part, str) else 1
        # Before the parts inside of it are looked at, and the smallest counts, too.
        self._entries -= 1 + len(part)
        if self._entries < 0:
            raise self._too_much()
        if isinstance(part, dict):
            weight = len(part) + sum(map(self._weigh, part.values()))
        else:
            weight = len(part) + sum(map(self._weigh, part))
        if weight >= _AT_ONCE:
            self._weights[id(part)] = weight
        return weight


# Compiling a schema


def _copied(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a schema within the bounds.

    Keywords that repeat the work of others come last, so that the others were counted before.
    """
    nodes = 0

    def copy(part: Any, depth: int) -> Any:
        nonlocal nodes
        if not isinstance(part, Mapping | list | tuple):
            return part
        nodes += 1
        if depth > MAX_DEPTH:
            raise SchemaError(f"the schema is nested deeper than {MAX_DEPTH}")
        if nodes > MAX_NODES:
            raise SchemaError(f"the schema has more than {MAX_NODES} objects and arrays")
        if isinstance(part, Mapping):
            names = sorted(part, key=_UNEVALUATED.__contains__)
            return {name: copy(part[name], depth + 1) for name in names}
        return [copy(member, depth + 1) for member in part]

    copied: dict[str, Any] = copy(schema, 1)
    return copied


_UNEVALUATED: Final = frozenset({"unevaluatedProperties", "unevaluatedItems"})


def _check_stranger(schema: dict[str, Any]) -> None:
    """Refuse a peer's schema that is too large or too slow."""
    parts = unevaluated = 0
    for part in _containers(schema):
        parts += 1 + len(part)
        if parts > UNTRUSTED_PARTS:
            raise SchemaError(f"the schema from outside has more than {UNTRUSTED_PARTS} parts")
        unevaluated += sum(name in part for name in _UNEVALUATED) if isinstance(part, dict) else 0
        if unevaluated > UNTRUSTED_UNEVALUATED:
            names = " and ".join(sorted(_UNEVALUATED))
            raise SchemaError(f"the schema from outside has {names} more than {UNTRUSTED_UNEVALUATED} times")


def _dialect_of(schema: dict[str, Any]) -> str:
    named = schema.get("$schema", next(iter(DIALECTS)))
    dialect = named.removesuffix("#") if isinstance(named, str) else None
    if dialect not in DIALECTS:
        raise SchemaError(f"the schema's dialect {named!r} is not supported; supported are {', '.join(DIALECTS)}")
    return dialect


def _implementation(schema: dict[str, Any], dialect: str, matchers: _Matchers | None) -> Implementation:
    """Return the package's validator. ``matchers`` collects the regular expressions; without it none may run."""
    trusted = matchers is not None
    try:
        import jsonschema
    except ImportError as error:
        raise ValidatorMissing(
            "schemas written by hand need the package jsonschema: install mcpio[jsonschema]"
        ) from error

    standard = getattr(jsonschema, DIALECTS[dialect])
    try:
        # Even compiling a malicious regular expression can take seconds.
        standard.check_schema(schema, **({} if trusted else {"format_checker": jsonschema.FormatChecker(())}))
    except jsonschema.SchemaError as error:
        raise SchemaError(f"not a valid schema: {path_text('', list(error.absolute_path))}: {error.message}") from None
    own = {id(part) for part in _containers(schema)}
    for part in _reachable(schema, dialect):
        if id(part) not in own:
            # a published meta-schema, which is shared
            continue
        if part.get("$schema", dialect).removesuffix("#") != dialect:
            raise SchemaError(f"a part of the schema has another dialect, {part['$schema']!r}")
        # The package would choose its own validator class, which does not count steps.
        part.pop("$schema", None)
        if matchers is not None:
            _check_patterns(part, matchers)
        elif "patternProperties" in part:
            raise SchemaError("patternProperties of a schema from outside are not run")
    checking: Implementation = _extended(standard, trusted=trusted)(schema, registry=_registry())
    return checking


def _check_patterns(part: dict[str, Any], matchers: _Matchers) -> None:
    """Refuse regular expressions that may take more than linear time."""
    try:
        if "pattern" in part:
            matchers[part["pattern"]]
        # The package uses these with ``re`` itself, in several keywords.
        for pattern in part.get("patternProperties", ()):
            check_linear(pattern)
    except ValueError as error:
        raise SchemaError(str(error)) from None


def _containers(part: Any) -> Iterator[dict[str, Any] | list[Any]]:
    """Yield every object and array in a schema."""
    if isinstance(part, dict | list):
        yield part
        for member in part.values() if isinstance(part, dict) else part:
            yield from _containers(member)


def _reachable(schema: dict[str, Any], dialect: str) -> Iterator[dict[str, Any]]:
    """Yield the schema and every subschema, including those that only references lead to."""
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import specification_with

    specification = specification_with(dialect)
    resource = specification.create_resource(schema)
    base = resource.id() or ""
    waiting = [(resource, _registry().with_resource(base, resource).crawl().resolver(base))]
    seen: set[int] = set()
    while waiting:
        part, resolver = waiting.pop()
        contents = part.contents
        if not isinstance(contents, dict) or id(contents) in seen:
            continue
        seen.add(id(contents))
        inside = resolver.in_subresource(part)
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(reference := contents.get(keyword), str):
                try:
                    target = inside.lookup(reference)
                except Unresolvable:
                    raise SchemaError(f"{keyword} {reference!r} leads nowhere, or out of the schema") from None
                waiting.append((specification.create_resource(target.contents), target.resolver))
        waiting.extend((below, inside) for below in part.subresources())
        yield contents


def _registry() -> Any:
    """Return a registry with the published meta-schemas, which never fetches anything."""
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]  # the package brings no types

    return REGISTRY


# Checking with a budget


def _extended(standard: Any, *, trusted: bool) -> Any:
    """Return the package's validator class with every keyword counted, made once."""
    key = (standard, trusted)
    if key not in _extensions:
        from jsonschema.validators import extend

        own = {"uniqueItems": _unique_items, "enum": _enum, "pattern": _pattern if trusted else _nothing}
        keywords = {name: _counted(name, keyword) for name, keyword in (standard.VALIDATORS | own).items()}
        _extensions[key] = extend(standard, keywords)  # type: ignore[no-untyped-call]  # its stub has no types
    return _extensions[key]


_extensions: dict[tuple[Any, bool], Any] = {}


def _counted(name: str, keyword: Callable[..., Any]) -> Callable[..., Any]:
    steps, halves = _STEPS.get(name, 1), _HALF_STEPS_FOR_MEMBERS.get(name)

    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        budget = validator.format_checker
        budget.spend(value, instance, steps)
        if halves:
            budget.spend_on_members(instance, halves)
        return keyword(validator, value, instance, schema)

    return check


_STEPS: Final = {"$ref": 3, "$dynamicRef": 3, "$recursiveRef": 3, "anyOf": 3, "oneOf": 3}
"""The steps of keywords that take more than one, as measured."""
_HALF_STEPS_FOR_MEMBERS: Final = {
    "additionalItems": 1,
    "additionalProperties": 1,
    "contains": 1,
    "items": 1,
    "patternProperties": 1,
    "prefixItems": 1,
    "propertyNames": 1,
    "unevaluatedItems": 5,
    "unevaluatedProperties": 5,
}
"""Half steps of a keyword for each member or item, without the keywords applied to it, as measured."""


def _pattern(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """Check ``pattern`` in linear time; the package leaves it to ``re``."""
    from jsonschema import ValidationError

    if isinstance(instance, str) and not validator.format_checker.matchers[value].found_in(instance):
        yield ValidationError(f"{instance!r} does not match {value!r}")


def _nothing(validator: Any, value: Any, instance: Any, schema: Any) -> tuple[()]:
    return ()


def _unique_items(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """Check ``uniqueItems`` in linear time; the package compares all pairs of objects."""
    from jsonschema import ValidationError

    if not value or not isinstance(instance, list):
        return
    validator.format_checker.spend_on_all(instance)
    if len({_key(item) for item in instance}) != len(instance):
        yield ValidationError("the items are not all different")


def _enum(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """Check ``enum`` in constant time; the package compares every entry."""
    from jsonschema import ValidationError

    if not validator.format_checker.is_one_of(instance, value):
        yield ValidationError(f"{instance!r} is not one of {value!r}")


def _key(value: Any) -> Any:
    """Return a key that is equal for equal JSON values: ``1`` and ``1.0``, but not ``1`` and ``true``."""
    if isinstance(value, list):
        return "[", *map(_key, value)
    if isinstance(value, dict):
        return "{", frozenset((name, _key(member)) for name, member in value.items())
    return value if isinstance(value, str) else (isinstance(value, bool), value)


def _are_same(one: Any, two: Any) -> bool:
    """Whether two JSON values are equal, in a time bounded by the smaller one."""
    if isinstance(one, list):
        return isinstance(two, list) and len(one) == len(two) and all(map(_are_same, one, two))
    if isinstance(one, dict):
        return (
            isinstance(two, dict) and one.keys() == two.keys() and all(_are_same(one[name], two[name]) for name in one)
        )
    return not isinstance(two, dict | list) and bool(_key(one) == _key(two))
