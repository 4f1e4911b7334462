"""Results of tools as values of types that the caller names: ``returns=`` and ``CallToolResult.into``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from mcpio.app.schema.builder import SchemaBuilder
from mcpio.app.schema.faults import Fault
from mcpio.errors import InvalidMessage, ToolError
from mcpio.framing.json import JsonError, loads
from mcpio.types.content import TextContent

if TYPE_CHECKING:
    from mcpio.app.schema.converters import Converter
    from mcpio.types.tools import CallToolResult

__all__ = ["MOST_TYPES", "check_type", "result_into"]

MOST_TYPES: Final = 256
"""How many types are remembered with their converters. Beyond, all are forgotten."""

_WRAPPER: Final = "result"


def result_into(result: CallToolResult, kind: Any) -> Any:
    """Return the value of a result as a type: see ``CallToolResult.into``."""
    if result.is_error:
        raise ToolError(result.text or "the tool failed")
    converter, is_object = _converter(kind)
    where, value = "structuredContent", result.structured_content
    if not result.has_structured_content:
        if kind is str:
            return result.text
        where, value = "content", _json_of(result)
    if not is_object and isinstance(value, Mapping) and value.keys() == {_WRAPPER}:
        # A value that is no object is sent as the only member of one.
        where, value = f"{where}.{_WRAPPER}", value[_WRAPPER]
    try:
        return converter.convert(value)
    except Fault as fault:
        raise fault.as_invalid(where) from fault.__cause__
    except RecursionError:
        raise Fault("nested too deeply").as_invalid(where) from None


def check_type(kind: Any) -> None:
    """Raise TypeError for a type that no result can be made into."""
    _converter(kind)


def _json_of(result: CallToolResult) -> Any:
    """Return the JSON in the one text block: servers before 2025-06-18 have no structured content."""
    block = result.content[0] if len(result.content) == 1 else None
    if not isinstance(block, TextContent):
        raise InvalidMessage("structuredContent", f"missing, and no single text has the value: {result.content!r:.100}")
    try:
        return loads(block.text)
    except JsonError:
        raise InvalidMessage("structuredContent", f"missing, and the text is no JSON: {block.text!r:.100}") from None


def _converter(kind: Any) -> tuple[Converter, bool]:
    """Return the converter of a type, and whether its values are objects. Raises TypeError for other types."""
    try:
        found = _converters.get(kind)
    except TypeError:
        return _made(kind)  # it cannot be hashed, such as Annotated with a list
    if found is None:
        if len(_converters) >= MOST_TYPES:
            _converters.clear()
        found = _converters[kind] = _made(kind)
    return found


def _made(kind: Any) -> tuple[Converter, bool]:
    builder = SchemaBuilder("returns=")
    converter = builder.converter(kind)
    return converter, builder.complete(converter.schema).get("type") == "object"


_converters: Final[dict[Any, tuple[Converter, bool]]] = {}
