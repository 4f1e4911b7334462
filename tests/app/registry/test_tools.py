from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any, Literal

import attrs
import pytest
from linked import Link

from mcpio.app.context import Context
from mcpio.app.registry.tools import Tools
from mcpio.app.server import Server
from mcpio.errors import ErrorCode, Refusal, RequestError, ToolError
from mcpio.revisions import HANDSHAKE_REVISIONS, REV_2024_11_05, REV_2025_06_18, Revision
from mcpio.types import AudioContent, CallToolResult, ImageContent, Root, TextContent, ToolUseContent

both = pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])


@attrs.frozen
class Weather:
    """The weather."""

    city: str
    degrees: float


class Colour(enum.Enum):
    RED = "red"


def failing_with(error: Exception, *, later: bool = False, **options: Any) -> Link:
    server = Server("s", **options)

    def at_once() -> None:
        raise error

    async def in_a_task() -> None:
        raise error

    server.tool(in_a_task if later else at_once, name="fail")
    return Link(server, era="handshake")


def returning(value: Any, annotation: Any = None, *, later: bool = False, **options: Any) -> Server:
    server = Server("s")

    def at_once() -> Any:
        return value

    async def in_a_task() -> Any:
        return value

    function = in_a_task if later else at_once
    if annotation is not None:
        function.__annotations__["return"] = annotation
    server.tool(function, name="give", **options)
    return server


# What goes in


@pytest.mark.req("TOOL-07")
def test_arguments_are_bound_to_parameters() -> None:
    server = Server("s")

    @server.tool
    def show(city: str, days: int = 3, kind: Literal["hot", "cold"] = "hot", *, colour: Colour = Colour.RED) -> str:
        return f"{city} {days} {kind} {colour}"

    link = Link(server)
    assert link.text("show", city="Rome") == "Rome 3 hot Colour.RED"
    assert link.text("show", city="Rome", days=5, kind="cold", colour="red") == "Rome 5 cold Colour.RED"


@pytest.mark.req("TOOL-07")
@pytest.mark.parametrize("arguments", [None, {}])
def test_missing_arguments_equal_an_empty_object(arguments: Any) -> None:
    link = Link(returning("done"))
    assert link.do(link.client.call_tool("give", arguments)).content == (TextContent("done"),)


@pytest.mark.req("TOOL-11")
@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS, ids=str)
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "Invalid value in 'show': arguments: missing argument days"),
        ({"days": "5"}, "Invalid value in 'show': arguments.days: expected an integer, got \"5\""),
        ({"days": 5, "more": 1}, "Invalid value in 'show': arguments: unknown argument \"more\""),
    ],
)
def test_mismatched_arguments_give_an_error_result(revision: Revision, arguments: Any, text: str) -> None:
    server, ran = Server("s"), []

    @server.tool
    def show(days: int) -> None:
        ran.append(days)

    link = Link(server, revision=revision)
    assert link.text("show", **arguments).startswith(f"failed: {text}")
    assert ran == []
    assert link.reports == []


@pytest.mark.req("TOOL-05")
def test_given_input_schema_is_validated() -> None:
    server = Server("s")
    schema = {"type": "object", "properties": {"days": {"type": "integer", "minimum": 1}}}

    @server.tool(input_schema=schema)
    def show(days: int = 1) -> int:
        return days

    link = Link(server)
    assert link.do(link.client.list_tools()).tools[0].input_schema == schema
    assert link.call("show", days=2).structured_content == {"result": 2}
    assert link.text("show", days=0) == (
        "failed: Invalid value in 'show': arguments.days: 0 is less than the minimum of 1"
    )
    assert link.reports == []


@pytest.mark.req("SCHEMA-06", "TOOL-11")
def test_arguments_too_expensive_to_check_are_invalid_and_reported() -> None:
    doubling = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(20)}
    server = Server("s")

    @server.tool(
        input_schema={"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**doubling, "d20": {}}}
    )
    def look(a: int) -> None: ...

    link = Link(server)
    reason = "the value takes more than 10000 steps to check"
    assert link.text("look", a=1) == f"failed: Invalid value in 'look': arguments: {reason}"
    assert link.reports == [f"the arguments for look could not be checked: {reason}"]
    assert link.errors == [None]


@pytest.mark.req("TOOL-09")
def test_unknown_tool_is_a_protocol_error() -> None:
    link = Link(returning("done"))
    with pytest.raises(RequestError, match=r"^Unknown tool: other \(-32602\)$") as caught:
        link.call("other")
    assert caught.value.code == ErrorCode.INVALID_PARAMS


# What comes out


@both
@pytest.mark.req("TOOL-08", "TOOL-15")
@pytest.mark.parametrize(
    ("annotation", "value", "structured", "text"),
    [
        (Weather, Weather("Rome", 21.5), {"city": "Rome", "degrees": 21.5}, '{"city":"Rome","degrees":21.5}'),
        (int, 5, {"result": 5}, '{"result":5}'),
        (list[str], ["a"], {"result": ["a"]}, '{"result":["a"]}'),
        (dict[str, int], {"a": 1}, {"a": 1}, '{"a":1}'),
        (bytes, b"hello", {"result": "aGVsbG8="}, '{"result":"aGVsbG8="}'),
        (str, "text", None, "text"),
        (None, {"a": 1}, None, '{"a":1}'),
        (None, Weather("Rome", 21.5), None, '{"city":"Rome","degrees":21.5}'),
    ],
)
def test_typed_result_is_structured(later: bool, annotation: Any, value: Any, structured: Any, text: str) -> None:
    link = Link(returning(value, annotation, later=later), era="handshake")
    assert link.call("give") == CallToolResult((TextContent(text),), structured)
    assert link.reports == []


@pytest.mark.req("TOOL-08")
def test_none_gives_empty_content() -> None:
    assert Link(returning(None), era="handshake").call("give") == CallToolResult(())


def test_content_is_sent_unchanged() -> None:
    image = ImageContent("AAAA", "image/png")
    assert Link(returning([image, "text"])).call("give").content == (image, TextContent("text"))


@pytest.mark.req("TOOL-15")
@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS, ids=str)
def test_older_revisions_get_structured_content_as_text(revision: Revision) -> None:
    link = Link(returning(Weather("Rome", 21.5), Weather), revision=revision)
    result = link.call("give")
    assert result.content == (TextContent('{"city":"Rome","degrees":21.5}'),)
    known = revision >= REV_2025_06_18
    assert result.structured_content == ({"city": "Rome", "degrees": 21.5} if known else None)
    shown = link.do(link.client.list_tools()).tools[0]
    assert (shown.output_schema is not None) is known


def test_structured_results_can_be_disabled() -> None:
    link = Link(returning(Weather("Rome", 21.5), Weather, structured=False), era="handshake")
    assert link.call("give") == CallToolResult((TextContent('{"city":"Rome","degrees":21.5}'),))
    assert link.do(link.client.list_tools()).tools[0].output_schema is None


def test_untyped_return_is_allowed_without_structured_results() -> None:
    assert Link(returning("text", Link, structured=False)).text("give") == "text"


OUTPUT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@both
@pytest.mark.req("TOOL-06", "TOOL-13")
@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({"a": 1}, None),
        (attrs.make_class("Point", ["a"])(1), None),
        (CallToolResult((), {"a": 1}), None),
        (CallToolResult((TextContent("no"),), is_error=True), None),
        ({"a": "1"}, "result.a: '1' is not of type 'integer'"),
        (None, "result: None is not of type 'object'"),
        (CallToolResult((), {"a": "1"}), "result.a: '1' is not of type 'integer'"),
        (CallToolResult(()), "structured_content: missing, though the tool declares an output schema"),
    ],
)
def test_result_is_validated_against_a_given_schema(later: bool, value: Any, fault: str | None) -> None:
    link = Link(returning(value, later=later, output_schema=OUTPUT))
    assert link.do(link.client.list_tools()).tools[0].output_schema == OUTPUT
    result = link.call("give")
    if fault is None:
        assert isinstance(value, CallToolResult) or result.structured_content == {"a": 1}
        assert link.reports == []
    else:
        assert result.is_error
        assert result.content == (TextContent(f"'give' failed: InvalidMessage: {fault}"),)
        assert link.reports == ["the tool 'give' failed"]


@pytest.mark.req("TOOL-13")
@pytest.mark.parametrize(
    ("annotation", "value", "fault"),
    [
        (int, "five", 'result: expected an integer, got "five"'),
        (float, float("nan"), "result: expected a finite number, got nan"),
        (Iterable[int], (number for number in (1, 2)), "result: expected an array, got a value of type generator"),
        (Weather, CallToolResult(()), "structured_content: missing, though the tool declares an output schema"),
    ],
)
def test_result_breaking_its_type_fails_the_tool(annotation: Any, value: Any, fault: str) -> None:
    link = Link(returning(value, annotation))
    assert link.text("give") == f"failed: 'give' failed: InvalidMessage: {fault}"
    assert link.reports == ["the tool 'give' failed"]


def test_tool_may_return_a_call_tool_result() -> None:
    result = CallToolResult((TextContent("fine"),), {"city": "Rome", "degrees": 21.5})
    assert Link(returning(result, Weather), era="handshake").call("give") == result


def test_content_unknown_to_the_revision_becomes_text() -> None:
    sound = AudioContent("AAAA", "audio/wav")
    assert Link(returning(sound)).call("give").content == (sound,)
    link = Link(returning(sound), revision=REV_2024_11_05)
    assert link.text("give") == "[audio/wav, which revision 2024-11-05 lacks]"
    assert link.reports == []


# Failures


@both
@pytest.mark.req("TOOL-10")
@pytest.mark.parametrize(
    ("error", "text", "reported"),
    [
        (ToolError("the oven is cold"), "the oven is cold", False),
        (ToolError(), "'fail' failed", False),
        (ExceptionGroup("nursery", [ToolError("the oven is cold")]), "the oven is cold", False),
        (ValueError("too hot"), "'fail' failed: ValueError: too hot", True),
        (TimeoutError(), "'fail' failed: TimeoutError", True),
        (ExceptionGroup("nursery", [ValueError("too hot")]), "'fail' failed: ValueError: too hot", True),
        (
            ExceptionGroup("nursery", [ValueError("hot"), ExceptionGroup("inner", [ValueError("hot"), KeyError("a")])]),
            "'fail' failed: ValueError: hot; KeyError: 'a'",
            True,
        ),
        (ExceptionGroup("nursery", [ValueError("hot")] * 2), "'fail' failed: ValueError: hot", True),
        (
            ExceptionGroup("nursery", [ValueError(number) for number in range(9)]),
            "'fail' failed: ValueError: 0; ValueError: 1; ValueError: 2; and 6 more",
            True,
        ),
    ],
)
def test_tool_error_is_an_error_result(later: bool, error: Exception, text: str, reported: bool) -> None:
    link = failing_with(error, later=later)
    assert link.call("fail") == CallToolResult((TextContent(text),), is_error=True)
    assert link.reports == ["the tool 'fail' failed"] * reported


@both
@pytest.mark.parametrize(
    ("error", "text"), [(ToolError("the oven is cold"), "the oven is cold"), (ValueError("secret"), "'fail' failed")]
)
def test_exception_text_can_be_masked(later: bool, error: Exception, text: str) -> None:
    link = failing_with(error, later=later, mask_errors=True)
    assert link.text("fail") == f"failed: {text}"


@both
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestError(7, "no"), 7),
        (Refusal(1056, "no"), 1056),
        (ExceptionGroup("nursery", [RequestError(7, "no")]), 7),
    ],
)
def test_protocol_error_is_not_an_error_result(later: bool, error: Exception, code: int) -> None:
    link = failing_with(error, later=later)
    with pytest.raises(RequestError, match=rf"^no \({code}\)$"):
        link.call("fail")
    assert link.reports == []


def test_failure_by_connection_end_is_not_reported() -> None:
    server = Server("s")

    @server.tool
    async def wait(ctx: Context) -> None:
        try:
            await ctx.session.driver.runtime.one_shot().wait()
        finally:
            ctx.session.check_open()

    link = Link(server)
    link.start(link.client.call_tool("wait"))
    link.session.connection.abort()
    link.run()
    assert link.reports == []


def test_masking_of_errors_is_readable() -> None:
    assert [Tools(lambda: None, mask_errors=masked).masks_errors for masked in (True, False)] == [True, False]


ROOT: Any = Root("file:///a")
USE: Any = ToolUseContent("1", "add", {})


@both
@pytest.mark.req("TOOL-08")
@pytest.mark.parametrize("block", [ROOT, USE])
def test_content_of_the_wrong_kind_fails_only_its_call(later: bool, block: Any) -> None:
    link = Link(returning(CallToolResult((TextContent("hi"), block)), later=later), era="handshake")
    with pytest.raises(RequestError) as caught:
        link.call("give")
    assert caught.value.code == ErrorCode.INTERNAL_ERROR
    assert link.reports == ["the result of tools/call 'give' cannot be sent"]
    assert "content[1]: expected TextContent or" in str(link.errors[-1])
    link.do(link.client.ping())
