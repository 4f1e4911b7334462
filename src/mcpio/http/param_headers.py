"""``Mcp-Param-*``: arguments of tools that HTTP header fields repeat, for proxies that do not read bodies (HDR-05)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from mcpio.framing.headers import encode_field
from mcpio.http.model import Headers
from mcpio.http.stateless import check_field

__all__ = ["ANNOTATION", "ParamHeader", "check_param_fields", "param_fields", "param_headers"]

ANNOTATION: Final = "x-mcp-header"
"""The member of a property's schema that names the header."""

_TYPES: Final = ("string", "integer", "boolean")
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_DATA: Final = ("const", "default", "enum", "examples")
"""Keywords whose values are not schemas."""
_MAPS: Final = ("$defs", "definitions", "dependentSchemas", "patternProperties")
"""Keywords whose values are schemas by names."""


@attrs.frozen
class ParamHeader:
    """An annotated property of a tool's input schema."""

    name: str
    """The name of the header after ``Mcp-Param-``."""
    path: tuple[str, ...]
    """The keys that lead to the argument, from the root."""
    type: str
    """``"string"``, ``"integer"`` or ``"boolean"``."""


def param_headers(input_schema: Mapping[str, Any]) -> tuple[ParamHeader, ...]:
    """Return the annotated properties of a tool's input schema.

    Raises ValueError for an annotation that breaks a rule (HDR-05): clients over HTTP leave such a tool out (HDR-06).
    """
    found: list[ParamHeader] = []
    names: set[str] = set()
    for path, schema in _annotated(input_schema, ()):
        header = _header(path, schema)
        if header.name.lower() in names:
            raise ValueError(f"{_where(path)}: the header {header.name!r:.60} is named twice")
        names.add(header.name.lower())
        found.append(header)
    return tuple(found)


def param_fields(headers: tuple[ParamHeader, ...], arguments: Mapping[str, Any] | None) -> list[tuple[bytes, bytes]]:
    """Return the header fields for a call: none for an argument that is absent or null (HDR-07)."""
    fields = []
    for header in headers:
        text = _text_of(_value_of(header, arguments))
        if text is not None:
            fields.append((f"mcp-param-{header.name.lower()}".encode(), encode_field(text).encode()))
    return fields


def check_param_fields(headers: tuple[ParamHeader, ...], arguments: Any, fields: Headers) -> None:
    """Raise RequestError if the fields of a call do not repeat its arguments (HDR-09, HDR-12).

    Names of ``fields`` are in lower case; those that no property is annotated with are ignored.
    """
    for header in headers:
        value = _value_of(header, arguments)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        check_field(fields, f"Mcp-Param-{header.name}", _text_of(value), number=is_number)


def _value_of(header: ParamHeader, arguments: Any) -> Any:
    value = arguments
    for key in header.path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _text_of(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, str | int) else None


def _annotated(schema: Any, path: tuple[str, ...] | None) -> Iterator[tuple[tuple[str, ...] | None, Mapping[str, Any]]]:
    """Yield each annotated schema, with its path if only ``properties`` lead to it."""
    if isinstance(schema, list | tuple):
        for each in schema:
            yield from _annotated(each, None)
    if not isinstance(schema, Mapping):
        return
    if ANNOTATION in schema:
        yield path, schema
    for keyword, value in schema.items():
        if keyword == "properties" and isinstance(value, Mapping):
            for name, each in value.items():
                yield from _annotated(each, None if path is None else (*path, name))
        elif keyword in _MAPS and isinstance(value, Mapping):
            yield from _annotated(list(value.values()), None)
        elif keyword not in _DATA:
            yield from _annotated(value, None)


def _header(path: tuple[str, ...] | None, schema: Mapping[str, Any]) -> ParamHeader:
    name, type = schema[ANNOTATION], schema.get("type")
    if not path:
        raise ValueError(f"{ANNOTATION} {name!r:.60} is not on a property that only `properties` lead to")
    if not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
        raise ValueError(f"{_where(path)}: {ANNOTATION} {name!r:.60} is not a name of a header")
    if isinstance(type, list) and "null" in type:
        type = next((each for each in type if each != "null"), None) if len(type) == 2 else type
    if type not in _TYPES:
        raise ValueError(f"{_where(path)}: {ANNOTATION} is for {', '.join(_TYPES)}, not for type {type!r:.60}")
    return ParamHeader(name, path, type)


def _where(path: tuple[str, ...] | None) -> str:
    return f"the property {'.'.join(path or ())!r:.100}"
