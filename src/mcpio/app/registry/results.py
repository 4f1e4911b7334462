"""Results of tools: which are structured, their schema, and their conversion to JSON."""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from mcpio.app.schema.builder import SchemaBuilder
from mcpio.app.schema.faults import Fault
from mcpio.app.schema.plain import plain
from mcpio.app.schema.records import is_payload

__all__ = ["ResultEncoder", "result_encoder"]


class ResultEncoder:
    """Converts results of one type. ``output_schema`` is ``None`` if they are not structured.

    An object is its own structured content (TOOL-06); ``is_wrapped`` says that another value is sent as the only
    member, ``result``, of one.
    """

    __slots__ = ("_convert", "is_wrapped", "output_schema")

    def __init__(
        self, output_schema: dict[str, Any] | None, convert: Callable[[Any], Any], *, is_wrapped: bool
    ) -> None:
        self.output_schema: dict[str, Any] | None = output_schema
        self.is_wrapped: bool = is_wrapped
        self._convert = convert

    def encode(self, value: Any) -> dict[str, Any] | None:
        """Return the structured content for a result; ``None`` if results are not structured.

        The value is checked against its type, and so against the schema (TOOL-13). Raises InvalidMessage with the
        place; its path starts with ``result``.
        """
        if self.output_schema is None:
            return None
        try:
            found = self._convert(value)
        except Fault as fault:
            raise fault.as_invalid("result") from fault.__cause__
        except RecursionError:
            raise Fault("nested too deeply, or contains itself").as_invalid("result") from None
        structured: dict[str, Any] = {_WRAPPER: found} if self.is_wrapped else found
        return structured


def result_encoder(
    annotation: Any, *, where: str = "the result", namespace: Mapping[str, Any] | None = None
) -> ResultEncoder:
    """Return the encoder for results of a type.

    Text, content blocks, the protocol's own results, ``None`` and unannotated results are not structured. Any other
    type has a schema. Raises TypeError, with ``where``, if JSON cannot express the type.
    """
    if _is_unstructured(annotation):
        return ResultEncoder(None, plain, is_wrapped=False)
    builder = SchemaBuilder(where, output=True, namespace=namespace)
    converter = builder.converter(annotation)
    schema = builder.complete(converter.schema)
    if schema.get("type") == "object":
        return ResultEncoder(schema, converter.convert, is_wrapped=False)
    wrapped = {"type": "object", "properties": {_WRAPPER: converter.schema}, "required": [_WRAPPER]}
    return ResultEncoder(builder.complete(wrapped), converter.convert, is_wrapped=True)


_WRAPPER: Final = "result"
_TEXT: Final = (str, type(None), None, Any, object, inspect.Parameter.empty)
_LISTS: Final = (list, tuple, collections.abc.Sequence, collections.abc.Iterable)


def _is_unstructured(annotation: Any) -> bool:
    """Whether a result is meant for reading: text, content, or anything. A list of text is data."""
    parts = list(_parts(annotation, in_list=False))
    items = [part for part, in_list in parts if in_list]
    return all(part in _TEXT or is_payload(part) for part, _ in parts) and (
        not items or any(is_payload(item) for item in items)
    )


def _parts(annotation: Any, *, in_list: bool) -> Iterator[tuple[Any, bool]]:
    """Yield the types in unions and lists, and whether each is in a list."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        yield from _parts(annotation.__origin__, in_list=in_list)
    elif origin is typing.Union or origin is types.UnionType:
        for member in annotation.__args__:
            yield from _parts(member, in_list=in_list)
    elif origin in _LISTS:
        for item in annotation.__args__:
            if item is not ...:
                yield from _parts(item, in_list=True)
    else:
        yield annotation, in_list
