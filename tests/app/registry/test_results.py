from __future__ import annotations

import collections.abc
import inspect
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypedDict

import attrs
import pytest
from jsonschema import Draft202012Validator

from mcpio.app.registry.base import result_encoder
from mcpio.app.schema.constraints import Constraints
from mcpio.errors import InvalidMessage
from mcpio.types.content import ImageContent, TextContent
from mcpio.types.features import CallToolResult


@attrs.frozen
class Weather:
    degrees: float
    tags: frozenset[str] = frozenset()


@dataclass
class Tree:
    children: list[Tree]


class Movie(TypedDict):
    title: str


class Pair(NamedTuple):
    left: int
    right: str


@pytest.mark.parametrize(
    "annotation",
    [
        str,
        None,
        type(None),
        Any,
        object,
        inspect.Parameter.empty,
        str | None,
        TextContent,
        CallToolResult,
        TextContent | ImageContent | str,
        list[TextContent],
        list[TextContent | str],
        tuple[ImageContent, ...],
        collections.abc.Sequence[TextContent] | None,
        Annotated[str, "what was said"],
        Annotated[list[TextContent], "blocks"],
    ],
)
def test_text_and_content_have_no_output_schema(annotation: Any) -> None:
    encoder = result_encoder(annotation)
    assert encoder.output_schema is None
    assert not encoder.is_wrapped
    assert encoder.encode("anything") is None


@pytest.mark.parametrize(
    ("annotation", "value", "structured"),
    [
        (Weather, Weather(20.5, frozenset("ba")), {"degrees": 20.5, "tags": ["a", "b"]}),
        (Weather, {"degrees": 20}, {"degrees": 20.0}),
        (Tree, Tree([Tree([])]), {"children": [{"children": []}]}),
        (Movie, {"title": "x"}, {"title": "x"}),
        (Pair, Pair(1, "a"), {"left": 1, "right": "a"}),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (dict, {"a": [1]}, {"a": [1]}),
    ],
)
def test_object_is_its_own_structured_content(annotation: Any, value: Any, structured: Any) -> None:
    encoder = result_encoder(annotation)
    assert not encoder.is_wrapped
    assert encoder.encode(value) == structured
    assert encoder.output_schema is not None
    assert encoder.output_schema["type"] == "object"
    Draft202012Validator(encoder.output_schema).validate(structured)


@pytest.mark.parametrize(
    ("annotation", "value", "said"),
    [
        (int, 5, 5),
        (list[int], [1, 2], [1, 2]),
        (list[str], ["a"], ["a"]),
        (list, [1, "a"], [1, "a"]),
        (int | None, None, None),
        (Weather | Pair, Pair(1, "a"), {"left": 1, "right": "a"}),
        (list[Weather], (Weather(1.0),), [{"degrees": 1.0, "tags": []}]),
    ],
)
def test_other_values_are_wrapped(annotation: Any, value: Any, said: Any) -> None:
    encoder = result_encoder(annotation)
    assert encoder.is_wrapped
    assert encoder.encode(value) == {"result": said}
    assert encoder.output_schema is not None
    assert encoder.output_schema["required"] == ["result"]
    Draft202012Validator(encoder.output_schema).validate({"result": said})


def test_schema_definitions_are_at_the_root() -> None:
    assert result_encoder(list[Pair]).output_schema == {
        "type": "object",
        "properties": {"result": {"type": "array", "items": {"$ref": "#/$defs/Pair"}}},
        "required": ["result"],
        "$defs": {
            "Pair": {
                "type": "object",
                "properties": {"left": {"type": "integer"}, "right": {"type": "string"}},
                "required": ["left", "right"],
                "additionalProperties": False,
            }
        },
    }


@pytest.mark.parametrize(
    ("annotation", "value", "error"),
    [
        (Weather, Weather("hot"), 'result.degrees: expected a number, got "hot"'),  # type: ignore[arg-type]  # wrong on purpose
        (list[Pair], [Pair(1, "a"), 5], "result[1]: expected a Pair, got 5"),
        (Movie, {"title": "x", "year": 1}, 'result: unknown member "year"; the members are title'),
        (dict[str, float], {"a": float("nan")}, "result.a: expected a finite number, got nan"),
        (Annotated[int, Constraints(le=5)], 6, "result: expected a value at most 5, got 6"),
        (int, None, "result: expected an integer, got null"),
    ],
)
def test_result_breaking_its_type_is_refused_with_its_path(annotation: Any, value: Any, error: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        result_encoder(annotation).encode(value)
    assert str(caught.value) == error


def test_cyclic_result_is_refused() -> None:
    tree = Tree([])
    tree.children.append(tree)
    with pytest.raises(InvalidMessage, match="result: nested too deeply, or contains itself"):
        result_encoder(Tree).encode(tree)


def test_return_type_without_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^f\(\), the result: complex has no JSON Schema"):
        result_encoder(complex, where="f(), the result")
