"""Values of results by ``returns=`` and ``into``, and the types of a tool's results by ``returns=``."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from datetime import date
from typing import Annotated, Any, NamedTuple, TypedDict

import attrs
import pydantic
import pytest
from linked import Link

from mcpio.app import client_tools as typed_results
from mcpio.app.server import Server
from mcpio.errors import InvalidMessage, ToolError
from mcpio.revisions import REV_2025_03_26, REV_2025_11_25
from mcpio.types import CallToolResult, ImageContent, TextContent


@attrs.frozen
class City:
    name: str
    founded: date | None = None


@dataclasses.dataclass
class Town:
    name: str


class Road(TypedDict):
    length: float


class Point(NamedTuple):
    x: int
    y: int


class Mayor(pydantic.BaseModel):
    name: str = pydantic.Field(alias="fullName")
    since: date


server = Server("atlas")


@server.tool
def city() -> City:
    return City("Lyon", date(43, 1, 1))


@server.tool
def cities(count: int) -> list[City]:
    return [City(f"{number}") for number in range(count)]


@server.tool
def people() -> int:
    return 520_000


@server.tool
def mayor() -> Mayor:
    return Mayor(fullName="Ada", since=date(2020, 1, 1))


@server.tool
def motto() -> str:
    return "Avant, avant"


@server.tool
def nothing() -> None: ...


@server.tool
def lost() -> City:
    raise ToolError("no map")


LINK = Link(server, revision=REV_2025_11_25)


def test_result_of_a_call_is_of_the_type_that_returns_names() -> None:
    call = LINK.client.call_tool
    assert LINK.do(call("city", returns=City)) == City("Lyon", date(43, 1, 1))
    assert LINK.do(call("cities", {"count": 2}, returns=list[City])) == [City("0"), City("1")]
    assert LINK.do(call("people", returns=int)) == 520_000
    assert LINK.do(call("people", returns=int | None)) == 520_000
    assert LINK.do(call("motto", returns=str)) == "Avant, avant"
    assert LINK.do(call("mayor", returns=Mayor)) == Mayor(fullName="Ada", since=date(2020, 1, 1))
    assert LINK.call("city").into(dict[str, Any]) == {"name": "Lyon", "founded": "0043-01-01"}


def test_impossible_returns_is_refused_before_the_call() -> None:
    called: list[str] = []
    paying = Server("bank")
    paying.tool(lambda: called.append("pay"), name="pay")
    link = Link(paying)
    with pytest.raises(TypeError, match=r"returns=: complex has no JSON Schema"):
        link.do(link.client.call_tool("pay", returns=complex))
    assert called == []


@pytest.mark.parametrize("kind", [City, Town, Road, Point, Mayor])
def test_every_kind_of_class_is_made_from_structured_content(kind: Any) -> None:
    members = {"name": "Lyon"} if kind in (City, Town) else {"length": 2.5} if kind is Road else {"x": 1, "y": 2}
    if kind is Mayor:
        members = {"fullName": "Ada", "since": "2020-01-01"}
    made = CallToolResult((), members).into(kind)
    assert isinstance(made, dict if kind is Road else kind)


def test_result_without_structured_content_is_read_from_its_text() -> None:
    link = Link(server, revision=REV_2025_03_26)
    assert link.call("city").structured_content is None
    assert link.do(link.client.call_tool("city", returns=City)) == City("Lyon", date(43, 1, 1))
    assert link.do(link.client.call_tool("cities", {"count": 1}, returns=list[City])) == [City("0")]
    assert link.do(link.client.call_tool("motto", returns=str)) == "Avant, avant"


def test_value_of_another_server_need_not_be_wrapped() -> None:
    assert CallToolResult((), [1, 2]).into(list[int]) == [1, 2]
    assert CallToolResult((), {"result": 1}).into(dict[str, int]) == {"result": 1}
    assert CallToolResult((), None, given=("structured_content",)).into(int | None) is None  # type: ignore[arg-type]  # a union is no type[T]


def test_failure_of_the_tool_raises_its_text() -> None:
    with pytest.raises(ToolError, match="no map"):
        LINK.do(LINK.client.call_tool("lost", returns=City))
    with pytest.raises(ToolError, match="the tool failed"):
        CallToolResult((), is_error=True).into(City)


@pytest.mark.parametrize(
    ("result", "kind", "message"),
    [
        (CallToolResult((), {"name": 5}), City, r"structuredContent\.name"),
        (CallToolResult((), {"result": [1, "two"]}), list[int], r"structuredContent\.result\[1\]"),
        (CallToolResult((), {"fullName": "Ada"}), Mayor, r"structuredContent\.since"),
        (CallToolResult((TextContent('{"name": 5}'),)), City, r"content\.name"),
        (CallToolResult((TextContent("hello"),)), City, "the text is no JSON: 'hello'"),
        (CallToolResult((TextContent("1"), TextContent("2"))), int, "no single text has the value"),
        (CallToolResult((ImageContent("", "image/png"),)), int, "no single text has the value"),
    ],
)
def test_result_that_does_not_fit_is_an_error_with_its_place(result: CallToolResult, kind: Any, message: str) -> None:
    with pytest.raises(InvalidMessage, match=message):
        result.into(kind)


def test_deep_result_is_an_error() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(InvalidMessage, match="nested too deeply"):
        CallToolResult((), deep).into(_Tree)
    while deep:
        deep = deep.popitem()[1]  # taking it apart from the inside would overflow the stack


@attrs.frozen
class _Tree:
    a: _Tree | None = None


def test_type_that_json_cannot_express_is_refused() -> None:
    with pytest.raises(TypeError, match=r"returns=: complex has no JSON Schema"):
        CallToolResult((), {}).into(complex)


def test_converters_are_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_results, "MOST_TYPES", 2)
    typed_results._converters.clear()
    for kind in (int, str, bool, int):
        assert CallToolResult((), {"result": kind()}).into(kind) == kind()
        assert len(typed_results._converters) <= 2
    unhashable: Any = Annotated[int, ["no hash"]]
    assert CallToolResult((), {"result": 1}).into(unhashable) == 1


def test_results_are_converted_only_with_the_application_layer() -> None:
    program = "from mcpio.types import CallToolResult\nCallToolResult((), {}).into(dict)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert "RuntimeError: a result is made into types by the application layer: import mcpio.app.Client" in done.stderr


def test_returns_of_a_tool_replaces_its_annotation() -> None:
    own = Server("own")

    @own.tool(returns=City)
    def unannotated(of: str):  # type: ignore[no-untyped-def]  # its result is under test
        return {"name": of}

    @own.tool(returns=list[Mayor])
    def loosely() -> Any:
        return [{"fullName": "Ada", "since": "2020-01-01"}]

    @own.tool(returns=str)
    def said() -> City:
        return City("x")

    link = Link(own, revision=REV_2025_11_25)
    [first, second, third] = link.do(link.client.list_tools()).tools
    assert first.output_schema is not None
    assert second.output_schema is not None
    assert first.output_schema["required"] == ["name"]
    assert "fullName" in second.output_schema["properties"]["result"]["items"]["properties"]
    assert third.output_schema is None
    assert link.call("unannotated", of="Lyon").into(City) == City("Lyon")
    assert link.call("loosely").into(list[Mayor])[0].name == "Ada"


def test_result_that_breaks_returns_is_a_failure_of_the_tool() -> None:
    own = Server("own")

    @own.tool(returns=City)
    def wrong() -> Any:
        return {"title": "Lyon"}

    assert "result" in Link(own, revision=REV_2025_11_25).text("wrong")


@pytest.mark.parametrize("options", [{"structured": False}, {"output_schema": {"type": "object"}}])
def test_returns_excludes_options_that_replace_it(options: Any) -> None:
    with pytest.raises(TypeError, match=r"returns= is the type of structured results"):
        Server("s").tool(lambda: None, name="x", returns=City, **options)


def test_returns_that_json_cannot_express_is_refused() -> None:
    with pytest.raises(TypeError, match="complex has no JSON Schema"):
        Server("s").tool(lambda: None, name="x", returns=complex)
