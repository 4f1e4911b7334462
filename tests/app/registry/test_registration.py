from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any, cast

import pytest
from linked import Link
from unchecked import unchecked

from mcpio.app.registry.resources import UriTemplateError
from mcpio.app.schema.validation import SchemaError
from mcpio.app.server import Server
from mcpio.types import Annotations, Icon, Resource, ResourceTemplate, TextContent, Tool, ToolAnnotations, ToolExecution


def echo(text: str) -> str:
    """Say it back.

    Args:
        text: What to say.
    """
    return text


def bare() -> None: ...


class Counter:
    def up(self, by: int = 1) -> int:
        return by


def server() -> Server:
    return Server("s")


# Tools


@pytest.mark.req("TOOL-02", "TOOL-05")
def test_tool_is_described_by_its_function() -> None:
    server = Server("s")
    assert server.tool(echo) is echo
    link = Link(server)
    assert link.do(link.client.list_tools()).tools == (
        Tool(
            "echo",
            {
                "type": "object",
                "properties": {"text": {"type": "string", "description": "What to say."}},
                "required": ["text"],
                "additionalProperties": False,
            },
            "Say it back.",
        ),
    )
    assert link.text("echo", text="hi") == "hi"


def test_tool_is_described_by_its_options() -> None:
    server, icons = Server("s"), (Icon("https://example.com/i.png"),)
    annotations = ToolAnnotations(read_only_hint=True)
    options: Any = {
        "name": "say",
        "title": "Say",
        "description": "Another.",
        "annotations": annotations,
        "icons": icons,
        "meta": {"example.com/a": 1},
    }
    assert server.tool(**options)(bare) is bare
    link = Link(server)
    (shown,) = link.do(link.client.list_tools()).tools
    assert (shown.name, shown.title, shown.description) == ("say", "Say", "Another.")
    assert (shown.annotations, shown.icons, shown.meta) == (annotations, icons, {"example.com/a": 1})
    assert shown.input_schema == {"type": "object", "additionalProperties": False}


def test_omitted_option_equals_none() -> None:
    server = Server("s")
    server.tool(echo, name=None, title=None, description=None, icons=None, meta=None, annotations=None)
    server.tool(echo, name="other", input_schema=None, output_schema=None)
    server.resource("a:b", mime_type=None, size=None, annotations=None, description=None)(bare)
    server.resource("a:c/{text}", size=None)(echo)
    server.prompt(echo, name=None, description=None)
    assert [entry.description.description for entry in server.tools] == ["Say it back."] * 2
    assert [entry.description.name for entry in server.prompts] == ["echo"]


def test_schemas_can_be_given() -> None:
    made, takes, gives = server(), {"type": "object", "properties": {}}, {"type": "object", "required": ["a"]}
    made.tool(input_schema=takes, output_schema=gives, name="give")(lambda: {"a": 1})
    link = Link(made)
    (shown,) = link.do(link.client.list_tools()).tools
    assert (shown.input_schema, shown.output_schema) == (takes, gives)
    assert link.call("give").structured_content == {"a": 1}
    made.tool(lambda: {"a": 1}, name="plain", structured=False)
    assert link.text("plain") == '{"a":1}'


@pytest.mark.req("TOOL-04")
@pytest.mark.parametrize("name", ["get weather", "über", "a,b", "x" * 129, "a/b"])
def test_name_refused_by_some_clients_warns(name: str) -> None:
    server = Server("s")
    with pytest.warns(UserWarning, match=r"may be refused: use 1 to 128 of the characters") as caught:
        server.tool(echo, name=name)
    with pytest.warns(UserWarning, match="may be refused") as second:
        server.tool(name=name + ".")(echo)
    assert {warning.filename for warning in (*caught, *second)} == {__file__}
    assert name in server.tools


@pytest.mark.req("TOOL-04")
@pytest.mark.parametrize("name", ["a", "x" * 128, "A-Z_0.9"])
def test_valid_name_does_not_warn(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Server("s").tool(echo, name=name)


@pytest.mark.parametrize(
    ("register", "kind", "message"),
    [
        (lambda s: s.tool("name"), TypeError, "the handler must be a function, not 'name': options are given by name"),
        (lambda s: s.tool(lambda: 1), TypeError, "has no name of its own: give name="),
        (lambda s: s.tool(echo, titel="x"), TypeError, "unknown option 'titel'; the options are annota"),
        (lambda s: s.tool(titel="x")(echo), TypeError, "unknown option 'titel'"),
        (lambda s: s.prompt(echo, annotations=1), TypeError, "unknown option 'annotations'; the options are"),
        (lambda s: s.resource("a:b", name="x", q=1)(bare), TypeError, "unknown option 'q'"),
        (lambda s: s.prompt("name"), TypeError, "the handler must be a function"),
        (lambda s: s.tool(Counter.up), TypeError, "register the method of an instance"),
        (
            lambda s: s.tool(echo, input_schema={}),
            ValueError,
            'input_schema must have "type": "object" at its root, not None',
        ),
        (lambda s: s.tool(echo, input_schema={"type": 5}), SchemaError, "type"),
        (
            lambda s: s.resource(bare),
            TypeError,
            r"uri must be a str, as in @server.resource\(\"scheme",
        ),
        (lambda s: s.resource("notes"), ValueError, "uri must begin with a scheme, as in notes://today, not 'notes'"),
        (lambda s: s.resource("a b:c"), ValueError, "uri must begin with a scheme"),
        (lambda s: s.resource("a:{b"), UriTemplateError, "a:{b"),
        (lambda s: s.resource("a:{b}{c}"), UriTemplateError, "nothing stands between the values of b and the next"),
        (lambda s: s.resource("a:b")(echo), TypeError, r"echo\(\): the URI has no variable 'text'"),
        (lambda s: s.resource("a:{c}")(bare), TypeError, r"bare\(\): no parameter takes the variable 'c' of the URI"),
        (lambda s: s.resource("a:{text}", size=5)(echo), TypeError, "size must be left out: each resource has its own"),
        (
            lambda s: s.resource("a:b", size=-1)(bare),
            ValueError,
            "a:b: size must be a number of bytes, 0 or more",
        ),
        (lambda s: s.tool(bare, name=5), TypeError, "name must be str, not 5"),
        (lambda s: s.prompt(bare, name=5), TypeError, "name must be str, not 5"),
        (
            lambda s: s.tool(bare, task_support="optional", immediate_response=5),
            TypeError,
            "immediate_response must be str, not 5",
        ),
    ],
)
def test_unusable_registration_is_refused(register: Callable[[Any], Any], kind: type[Exception], message: str) -> None:
    made = server()
    with pytest.raises(kind, match=message):
        register(made)
    assert len(made.tools) + len(made.resources) + len(made.prompts) == 0


# Resources and prompts


@pytest.mark.req("RES-02", "RES-04", "RES-11", "RES-12")
def test_resources_are_listed() -> None:
    made, annotations = server(), Annotations(priority=0.5)
    common: Any = {
        "title": "T",
        "mime_type": "text/plain",
        "annotations": annotations,
        "icons": (Icon("https://example.com/i.png"),),
        "meta": {"example.com/a": 1},
    }

    @made.resource("Notes://Today/", size=5, **common)
    def today() -> str:
        """What is up."""
        return "a note"

    @made.resource("notes://{text}", name="any", description="Any.", **common)
    def note(text: str) -> str:
        return text

    link = Link(made)
    assert link.do(link.client.list_resources()).resources == (
        Resource("Notes://Today/", "today", description="What is up.", size=5, **common),
    )
    assert link.do(link.client.list_resource_templates()).resource_templates == (
        ResourceTemplate("notes://{text}", "any", description="Any.", **common),
    )


def test_template_takes_its_scheme_from_the_uri() -> None:
    made = server()
    made.resource("{+uri}", name="any")(lambda uri: uri)
    link = Link(made)
    (contents,) = link.do(link.client.read_resource("https://example.com/a?b")).contents
    assert contents.text == "https://example.com/a?b"  # type: ignore[union-attr]  # it is text


@pytest.mark.req("PROM-02")
def test_prompts_are_listed() -> None:
    made = server()

    @made.prompt
    def one(text: str) -> str:
        """One."""
        return text

    made.prompt(title="T", name="two", description="Two.", meta={"example.com/a": 1}, blocking=True)(echo)
    link = Link(made)
    first, second = link.do(link.client.list_prompts()).prompts
    assert (first.name, first.description, first.title) == ("one", "One.", None)
    assert (second.name, second.description, second.title) == ("two", "Two.", "T")
    assert second.meta == {"example.com/a": 1}
    (message,) = link.do(link.client.get_prompt("two", {"text": "hi"})).messages
    assert message.content == TextContent("hi")


# What clients could not be told


@pytest.mark.req("ICON-01", "CONT-04")
@pytest.mark.parametrize(
    ("register", "message"),
    [
        (lambda made: made.tool(bare, icons=(Icon("file:///i.png"),)), r"icons\[0\].src: must begin with https://"),
        (lambda made: made.prompt(bare, icons=(Icon("i.png"),)), "must begin with https://"),
        (lambda made: made.resource("a:b", icons=(Icon(""),))(bare), "must begin with https://"),
        (lambda made: made.resource("a:b", annotations=Annotations(priority=7))(bare), "priority: must lie in 0..1"),
        (lambda made: made.resource("a:{text}", annotations=Annotations(last_modified="x"))(echo), "must be an ISO"),
        (
            lambda made: made.tool(bare, annotations=unchecked(ToolAnnotations(), title=5)),
            "annotations.title: expected a string",
        ),
        (lambda made: made.tool(bare, meta={"a": {"b": object()}}), "meta.a.b: object has no form in JSON"),
        (lambda made: made.tool(bare, title="\udcff"), "title: a string with a surrogate"),
        (lambda made: made.tool(bare, description="\udcff"), "description: a string with a surrogate"),
        (lambda made: made.tool(bare, output_schema={"type": "object", "x": {1}}), "output_schema.x: set has no form"),
        (lambda made: made.prompt(bare, meta={"a": b""}), "meta.a: "),
        (lambda made: made.resource("a:b", mime_type="\udcff")(bare), "mime_type: a string with a surrogate"),
    ],
)
def test_unencodable_registration_is_refused(register: Callable[[Server], Any], message: str) -> None:
    made = server()
    made.tool(echo)
    with pytest.raises(ValueError, match=f"clients cannot be told of it: .*{message}"):
        register(made)
    link = Link(made)
    assert [tool.name for tool in link.do(link.client.list_tools()).tools] == ["echo"]


@pytest.mark.req("SCHEMA-07")
def test_given_schema_reaches_the_client_unchanged() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"x": {"$anchor": "n", "type": "null"}, "": {}},
        "properties": {"b": {"$ref": "#n", "x-own": [1.0, 1, {"z": 0, "a": 0}]}, "a": {"oneOf": [True, False]}},
        "additionalProperties": False,
        "default": None,
    }
    made = server()
    made.tool(lambda a, b: None, name="t", input_schema=schema, output_schema=schema)
    link = Link(made)
    (tool,) = link.do(link.client.list_tools()).tools
    assert json.dumps(tool.input_schema) == json.dumps(tool.output_schema) == json.dumps(schema)


@pytest.mark.req("TASK-06")
def test_task_support_is_declared_per_tool() -> None:
    server = Server("s")
    server.tool(echo, name="a", task_support="required", resume=True, immediate_response="soon")
    server.tool(echo, name="b", task_support="forbidden")
    server.tool(echo, name="c")
    found = {tool.description.name: tool.description.execution for tool in server.tools}
    assert found == {"a": ToolExecution("required"), "b": ToolExecution("forbidden"), "c": None}
    with pytest.raises(ValueError, match="task_support must be"):
        server.tool(echo, name="d", task_support=cast("Any", "maybe"))
    with pytest.raises(TypeError, match="resume must be given with task_support='optional' or 'required', not None"):
        server.tool(echo, name="d", resume=True)


OBJECT: dict[str, Any] = {"type": "object"}


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"properties": {"a": {}, "b": {}}}, r"input_schema has the property 'b', which no parameter takes$"),
        ({"properties": {}}, r"input_schema lacks the property 'a', which the function needs$"),
        ({"properties": {"c": {}}}, r"input_schema lacks the property 'a', which the function needs$"),
        ({"properties": {"b": {}}, "allOf": [{}]}, r"input_schema has the property 'b', which no parameter takes$"),
    ],
)
def test_given_schema_not_matching_the_function_is_refused(schema: dict[str, Any], fault: str) -> None:
    def take(a: int, c: int = 0) -> None: ...

    with pytest.raises(TypeError, match=fault):
        Server("s").tool(take, input_schema={**OBJECT, **schema})


@pytest.mark.parametrize(
    "schema", [{}, {"properties": {"a": {}}}, {"properties": {"c": {}}, "allOf": [{"properties": {"a": {}}}]}]
)
def test_given_schema_matching_the_function_is_used(schema: dict[str, Any]) -> None:
    def take(a: int, c: int = 0) -> None: ...

    server = Server("s")
    server.tool(take, input_schema={**OBJECT, **schema})
    assert "take" in server.tools


def test_function_with_var_keywords_matches_any_given_schema() -> None:
    server = Server("s")

    @server.tool(input_schema={"type": "object", "properties": {"name": {"type": "string"}}})
    def take(**others: Any) -> str:
        return str(others)

    assert "take" in server.tools
