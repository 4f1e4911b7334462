from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

import pydantic
import pytest

from mcpio.app.schema.constraints import Constraints
from mcpio.app.schema.signature import Binder
from mcpio.errors import InvalidMessage

if TYPE_CHECKING:
    from decimal import Decimal as Missing

    import mcpio.app.context as elsewhere

T = TypeVar("T")


class Context(Generic[T]):
    pass


class SpecialContext(Context[int]):
    pass


@dataclass
class Item:
    name: str
    size: int = 1


def echo(text: str) -> str:
    """Say it again.

    Word for word.

    Args:
        text: what to say
    """
    return text


def nothing() -> None:
    pass


def search(  # type: ignore[no-untyped-def]  # of one parameter nothing is said
    query: str,
    items: list[Item],
    limit: Annotated[int, "at most"] = 10,
    *,
    since: date | None = None,
    untyped=None,
) -> dict[str, int]:
    return {}


def open_ended(first: int, **others: float) -> None:
    pass


class Tool:
    """A tool that is an object."""

    def __call__(self, size: int) -> int:
        """Measure."""
        return size

    def method(self, size: int) -> int:
        return size


def wrapping(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def nested(depth: int) -> Any:
    value: Any = None
    for _ in range(depth):
        value = {"inner": value}
    return value


@dataclass
class Nest:
    inner: Nest | None


def nest(value: Nest) -> None:
    pass


def test_arguments_have_an_object_schema() -> None:
    binder = Binder(search)
    assert binder.input_schema == {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
            "limit": {"type": "integer", "description": "at most", "default": 10},
            "since": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "default": None},
            "untyped": {"default": None},
        },
        "required": ["query", "items"],
        "additionalProperties": False,
        "$defs": {
            "Item": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "size": {"type": "integer", "default": 1}},
                "required": ["name"],
                "additionalProperties": False,
            }
        },
    }
    assert binder.return_annotation == dict[str, int]


def test_function_without_parameters_refuses_arguments() -> None:
    binder = Binder(nothing)
    assert binder.input_schema == {"type": "object", "additionalProperties": False}
    assert binder.bind({}) == {}
    assert binder.return_annotation is type(None)


def test_docstring_describes_function_and_parameters() -> None:
    binder = Binder(echo)
    assert binder.summary == "Say it again."
    assert binder.description == "Say it again.\n\nWord for word."
    (parameter,) = binder.parameters
    assert (parameter.name, parameter.required, parameter.description) == ("text", True, "what to say")
    assert parameter.schema == {"type": "string", "description": "what to say"}
    assert Binder(nothing).description is None


def test_arguments_are_converted_to_annotated_types() -> None:
    bound = Binder(search).bind({"query": "x", "items": [{"name": "a"}], "since": "2025-01-02", "untyped": [1]})
    assert bound == {"query": "x", "items": [Item("a")], "since": date(2025, 1, 2), "untyped": [1]}


@pytest.mark.parametrize(
    ("function", "arguments", "error"),
    [
        (echo, {}, "arguments: missing argument text"),
        (echo, {"text": 5}, "arguments.text: expected a string, got 5"),
        (echo, {"txt": "x"}, 'arguments: unknown argument "txt"; the arguments are text; missing: text'),
        (nothing, {"a": 1}, 'arguments: unknown argument "a"; there are no arguments'),
        (search, {"query": "x", "items": [{"size": 1}]}, "arguments.items[0]: missing member name"),
        (search, {"query": "x", "items": [], "limit": "5"}, 'arguments.limit: expected an integer, got "5"'),
        (open_ended, {"first": 1, "more": "x"}, 'arguments.more: expected a number, got "x"'),
    ],
)
def test_mismatched_argument_is_refused_with_its_path(
    function: Callable[..., Any], arguments: dict[str, Any], error: str
) -> None:
    with pytest.raises(InvalidMessage) as caught:
        Binder(function).bind(arguments)
    assert str(caught.value) == error


def test_unknown_names_go_to_var_keywords() -> None:
    binder = Binder(open_ended)
    assert binder.input_schema["additionalProperties"] == {"type": "number"}
    assert binder.bind({"first": 1, "second": 2}) == {"first": 1, "second": 2.0}


@pytest.mark.parametrize("bind", [Binder(nest).bind, Binder(nest).bind_text], ids=["json", "text"])
def test_unbounded_nesting_is_refused(bind: Callable[[Any], Any]) -> None:
    assert bind({"value": nested(50)})
    with pytest.raises(InvalidMessage, match="arguments: nested too deeply"):
        bind({"value": nested(5000)})


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (str, "5", "5"),
        (int, "5", 5),
        (float, "5", 5.0),
        (bool, "true", True),
        (int | None, "null", None),
        (int | str, "5", "5"),
        (date, "2025-01-02", date(2025, 1, 2)),
        (list[int], "[1, 2]", [1, 2]),
        (list[str], ["a", "5"], ["a", "5"]),
        (list[int | str], ["5"], ["5"]),
        (list[int], ["1", "2"], [1, 2]),
        (set[float] | None, ["1", "0.5"], {1.0, 0.5}),
        (Literal["a", "b"], "a", "a"),
        (Item, '{"name": "x"}', Item("x")),
        (Any, "5", "5"),
    ],
)
def test_mismatched_str_argument_is_parsed_as_json(annotation: Any, text: Any, value: Any) -> None:
    def function(it: Any) -> None:
        pass

    function.__annotations__["it"] = annotation
    assert Binder(function).bind_text({"it": text}) == {"it": value}


@pytest.mark.parametrize(
    ("annotation", "texts", "error"),
    [
        (list[int], ["1", "two"], '[1]: expected an integer, got "two"'),
        (list[Annotated[str, Constraints(max_length=2)]], ["1", "two"], "[1]: expected at most 2 characters, got 3"),
    ],
)
def test_text_that_is_no_item_of_a_list_is_refused(annotation: Any, texts: list[str], error: str) -> None:
    def function(it: Any) -> None:
        pass

    function.__annotations__["it"] = annotation
    with pytest.raises(InvalidMessage) as caught:
        Binder(function).bind_text({"it": texts})
    assert str(caught.value) == f"arguments.it{error}"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("abc", 'arguments.limit: expected an integer, got "abc"'),
        ('"5"', 'arguments.limit: expected an integer, got "5"'),
    ],
)
def test_mismatched_str_argument_is_refused(text: str, error: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        Binder(search).bind_text({"query": "x", "items": "[]", "limit": text})
    assert str(caught.value) == error
    with pytest.raises(InvalidMessage, match='unknown argument "other"'):
        Binder(echo).bind_text({"text": "x", "other": "y"})


# The context.


def plain(ctx: Context[Any], size: int) -> None:
    pass


def optional(size: int, ctx: Context[str] | None = None) -> None:
    pass


def marked(ctx: Annotated[SpecialContext, "mine"], size: int) -> None:
    pass


def unresolved(ctx: elsewhere.Context | None, size: int) -> None:
    pass


def generic(size: int, ctx: elsewhere.Context[int]) -> None:  # type: ignore[type-arg]  # the real one has no parameter
    pass


def quoted(ctx: "Context[int]", size: int) -> None:  # noqa: UP037 - text within text
    pass


@pytest.mark.parametrize("function", [plain, optional, marked, unresolved, generic, quoted])
def test_context_parameter_is_not_in_the_schema(function: Callable[..., Any]) -> None:
    binder = Binder(function, context=Context)
    assert binder.context_parameter == "ctx"
    assert list(binder.input_schema["properties"]) == ["size"]
    assert binder.bind({"size": 1}) == {"size": 1}


def test_function_without_context_has_no_context_parameter() -> None:
    assert Binder(echo, context=Context).context_parameter is None


# Other callables.


def test_methods_callables_and_wrapped_functions_are_bound() -> None:
    tool = Tool()
    for function in (tool, tool.method, wrapping(tool.method), functools.partial(tool.method)):
        assert Binder(function).bind({"size": 1}) == {"size": 1}
    assert Binder(tool).name == "Tool"
    assert Binder(tool).description == "Measure."
    assert Binder(functools.partial(echo)).name == "echo"


def test_partial_keeps_its_remaining_parameters() -> None:
    binder = Binder(functools.partial(search, items=[]))
    assert binder.input_schema["required"] == ["query"]


def test_local_names_can_be_passed() -> None:
    class Local:
        pass

    def function(it: list[Local]) -> Local:
        return it[0]

    assert Binder(lambda it: it).return_annotation is Any
    with pytest.raises(TypeError, match="Local has no JSON Schema"):
        Binder(function, namespace={"Local": Local})
    with pytest.raises(TypeError, match=r"parameter 'it': cannot evaluate the annotation 'list\[Local\]'"):
        Binder(function)


# What cannot be called by name.


def positional(size: int, /) -> None:
    pass


def starred(*sizes: int) -> None:
    pass


def two_contexts(one: Context[Any], two: Context[Any]) -> None:
    pass


def missing(what: Missing) -> None:
    pass


def no_result() -> Missing:
    raise NotImplementedError


def complex_one(what: complex) -> None:
    pass


def broken(what: Any) -> None:
    pass


broken.__annotations__["what"] = "1 +"


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (positional, "positional(), parameter 'size': arguments are given by name; remove the '/' after it"),
        (starred, "starred(), parameter 'sizes': arguments are given by name; take a list instead of *sizes"),
        (two_contexts, "two_contexts(): both 'one' and 'two' ask for the context; keep one"),
        (missing, "missing(), parameter 'what': cannot evaluate the annotation 'Missing': name 'Missing' is not"),
        (no_result, "no_result(), the result: cannot evaluate the annotation 'Missing'"),
        (complex_one, "complex_one(), argument 'what': complex has no JSON Schema: use str,"),
        (broken, "broken(), parameter 'what': cannot evaluate the annotation"),
        (Tool.method, "Tool.method(): a method needs its object; register the method of an instance"),
        (dict, "dict(): no signature found for builtin type <class 'dict'>; wrap it in a function"),
    ],
)
def test_positional_only_function_is_refused_with_advice(function: Callable[..., Any], error: str) -> None:
    with pytest.raises(TypeError) as caught:
        Binder(function, context=Context)
    assert str(caught.value).startswith(error)


def by_pydantic(
    name: str = pydantic.Field(description="Whose"),
    size: int = pydantic.Field(5, ge=1, le=9, description="How large"),
    tags: list[str] = pydantic.Field(default_factory=list, max_length=2),  # noqa: B008  # as users write it
    rest: Any = pydantic.Field(None),  # noqa: B008  # the same
) -> None:
    """Take what pydantic describes."""


def test_default_that_is_a_pydantic_field_describes_the_parameter() -> None:
    schema = Binder(by_pydantic).input_schema
    assert schema["required"] == ["name"]
    assert schema["properties"] == {
        "name": {"type": "string", "description": "Whose"},
        "size": {"type": "integer", "minimum": 1, "maximum": 9, "default": 5, "description": "How large"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "rest": {"default": None},
    }


def test_default_of_a_pydantic_field_is_given_where_the_argument_is_omitted() -> None:
    binder = Binder(by_pydantic)
    bound = binder.bind({"name": "Ada"})
    assert bound == {"name": "Ada", "size": 5, "tags": [], "rest": None}
    assert binder.bind({"name": "Ada"})["tags"] is not bound["tags"]
    assert binder.bind_text({"name": "Ada", "size": "7"}) == {"name": "Ada", "size": 7, "tags": [], "rest": None}
    with pytest.raises(InvalidMessage, match="size"):
        binder.bind({"name": "Ada", "size": 0})
    with pytest.raises(InvalidMessage, match="name"):
        binder.bind({})


def test_simple_function_loads_no_converter_library() -> None:
    """Nothing that only some types need is imported for the others (P13)."""
    program = (
        "import sys; from mcpio.app.schema.signature import Binder\n"
        "def echo(text: str, sizes: list[int]) -> str: ...\n"
        "assert Binder(echo).bind({'text': 'x', 'sizes': [1]})\n"
        "others = {'cattrs', 'attrs', 'dataclasses', 'decimal', 'uuid', 'fractions', 'jsonschema', 'pydantic'}\n"
        "print(sorted(others & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip() == "[]"
