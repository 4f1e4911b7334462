"""Values checked against JSON Schemas that somebody wrote by hand, with the package ``jsonschema``.

It is imported by the first `Validator`. Nothing is ever fetched: a reference that leaves the schema is refused when
the schema is looked at (SCHEMA-06). ``format`` is an annotation and checks nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from mcpio.app.faults import path_text
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
"""The dialects that ``$schema`` may name; the first is meant where it is absent (SCHEMA-01, SCHEMA-02, SCHEMA-05)."""

MAX_DEPTH: Final = 64
"""How deep objects and arrays may nest in a schema."""
MAX_NODES: Final = 20_000
"""How many objects and arrays a schema may have."""
MAX_STEPS: Final = 300_000
"""How many keywords may be applied to one value: about two seconds, and some 100,000 members or items."""


class SchemaError(McpError, ValueError):
    """A schema cannot be used: it is not valid, of an unknown dialect, too large, or refers to something outside."""


class ValidatorMissing(McpError, ImportError):
    """The package ``jsonschema``, which hand-written schemas need, is not installed."""


class Validator:
    """Checks values against one schema.

    The schema is copied. `SchemaError` when it cannot be used (SCHEMA-03, SCHEMA-04), `ValidatorMissing` without the
    package. With ``trusted`` false, for a schema that a peer wrote, no regular expression of its is run: ``pattern``
    checks nothing and ``patternProperties`` is refused, because a few characters can take Python's ``re`` for ever.
    """

    __slots__ = ("_implementation", "dialect")

    def __init__(self, schema: Mapping[str, Any], *, trusted: bool = True) -> None:
        if not isinstance(schema, Mapping):
            raise SchemaError(f"a schema is an object, not {type(schema).__name__}")
        try:
            own = _copied(schema)
            self.dialect: str = _dialect_of(own)
            self._implementation = _implementation(own, self.dialect, trusted=trusted)
        except (ImportError, SchemaError):
            raise
        except RecursionError:
            raise SchemaError("the schema is nested too deeply") from None
        except Exception as error:
            # Whatever the packages do not expect in a schema, such as a name that is no URI.
            raise SchemaError(f"the schema cannot be used: {error}") from error

    def validate(self, value: Any, root: str = "") -> None:
        """Return when a JSON value fits; otherwise raise `InvalidMessage` with the path from ``root`` to the fault.

        `SchemaError` when the schema takes too long, or refers to itself without end.
        """
        from jsonschema.exceptions import best_match

        # A format checker is what the package hands on to every part of the work, so it carries the budget too.
        running = self._implementation.evolve(format_checker=_Budget())
        try:
            found = best_match(islice(running.iter_errors(value), _ERRORS))
        except SchemaError:
            raise
        except RecursionError:
            raise SchemaError("the schema refers to itself without end, or the value is nested too deeply") from None
        except Exception as error:
            raise SchemaError(f"the schema cannot be applied: {error}") from error
        if found is not None:
            message = found.message if len(found.message) <= _REASON else found.message[:_REASON] + "…"
            raise InvalidMessage(path_text(root, list(found.absolute_path)), message)


_ERRORS: Final = 20
"""How many faults are compared to find the one that says most."""
_REASON: Final = 300
"""How many characters of a reason are kept: it may quote the value."""


class _Budget:
    """Counts the work for one value."""

    def __init__(self) -> None:
        self._left = MAX_STEPS

    def spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise SchemaError(f"the value takes more than {MAX_STEPS} steps to check")

    def check(self, instance: object, format: str) -> None:  # noqa: A002 - the package's name for it
        """Accept any format."""


# Looking at a schema.


def _copied(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy that nobody else can change, of a schema within the bounds."""
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
            return {name: copy(member, depth + 1) for name, member in part.items()}
        return [copy(member, depth + 1) for member in part]

    copied: dict[str, Any] = copy(schema, 1)
    return copied


def _dialect_of(schema: dict[str, Any]) -> str:
    named = schema.get("$schema", next(iter(DIALECTS)))
    dialect = named.removesuffix("#") if isinstance(named, str) else None
    if dialect not in DIALECTS:
        raise SchemaError(f"the schema's dialect {named!r} is not supported; supported are {', '.join(DIALECTS)}")
    return dialect


def _implementation(schema: dict[str, Any], dialect: str, *, trusted: bool) -> Implementation:
    try:
        import jsonschema
    except ImportError as error:
        raise ValidatorMissing(
            "schemas written by hand need the package jsonschema: install mcpio[jsonschema]"
        ) from error

    standard = getattr(jsonschema, DIALECTS[dialect])
    try:
        standard.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise SchemaError(f"not a valid schema: {path_text('', list(error.absolute_path))}: {error.message}") from None
    own = {id(part) for part in _objects(schema)}
    for part in _reachable(schema, dialect):
        if id(part) not in own:
            # A published meta-schema, which everybody shares.
            continue
        if part.get("$schema", dialect).removesuffix("#") != dialect:
            raise SchemaError(f"a part of the schema has another dialect, {part['$schema']!r}")
        # The package would take its own class for it, which counts no steps.
        part.pop("$schema", None)
        if not trusted and "patternProperties" in part:
            raise SchemaError("patternProperties of a schema from outside are not run")
    checking: Implementation = _extended(standard, trusted=trusted)(schema, registry=_registry())
    return checking


def _objects(part: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a schema."""
    if isinstance(part, dict):
        yield part
    if isinstance(part, dict | list):
        for member in part.values() if isinstance(part, dict) else part:
            yield from _objects(member)


def _reachable(schema: dict[str, Any], dialect: str) -> Iterator[dict[str, Any]]:
    """Yield the schema and every part of it that is a schema, those only references lead to included."""
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
    """Return the published meta-schemas, and nothing that could be fetched."""
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]  # the package brings no types

    return REGISTRY


# Checking with a budget.


def _extended(standard: Any, *, trusted: bool) -> Any:
    """Return a package's validator class with every keyword counted, made once."""
    key = (standard, trusted)
    if key not in _extensions:
        from jsonschema.validators import extend

        keywords = {name: _counted(keyword) for name, keyword in standard.VALIDATORS.items()}
        keywords["uniqueItems"] = _counted(_unique_items)
        if not trusted:
            keywords["pattern"] = _counted(_nothing)
        _extensions[key] = extend(standard, keywords)  # type: ignore[no-untyped-call]  # its stub has no types
    return _extensions[key]


_extensions: dict[tuple[Any, bool], Any] = {}


def _counted(keyword: Callable[..., Any]) -> Callable[..., Any]:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        validator.format_checker.spend()
        return keyword(validator, value, instance, schema)

    return check


def _nothing(validator: Any, value: Any, instance: Any, schema: Any) -> tuple[()]:
    return ()


def _unique_items(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """Check ``uniqueItems`` in linear time; the package compares every pair of objects."""
    from jsonschema import ValidationError

    if value and isinstance(instance, list) and len({_key(item) for item in instance}) != len(instance):
        yield ValidationError("the items are not all different")


def _key(value: Any) -> Any:
    """Return what is equal for equal JSON values: ``1`` and ``1.0``, but not ``1`` and ``true``."""
    if isinstance(value, list):
        return "[", *map(_key, value)
    if isinstance(value, dict):
        return "{", frozenset((name, _key(member)) for name, member in value.items())
    return value if isinstance(value, str) else (isinstance(value, bool), value)
