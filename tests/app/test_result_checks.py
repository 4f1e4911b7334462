from __future__ import annotations

import sys
from typing import Any, cast

import pytest
from linked import Link

from mcpio.app import client_tools
from mcpio.app.client import client_connection
from mcpio.app.client_tools import CheckResults, ResultChecks
from mcpio.app.schema.validation import ValidatorMissing
from mcpio.app.server import Server
from mcpio.errors import InvalidMessage
from mcpio.types import CallToolResult, ListToolsResult, TextContent, Tool

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def tool(schema: dict[str, Any] | None = NUMBER) -> Tool:
    return Tool("count", {"type": "object"}, output_schema=schema)


def result(structured: Any = None, *, is_error: bool = False) -> CallToolResult:
    return CallToolResult((TextContent("x"),), structured, is_error=is_error)


def fault(checks: ResultChecks, tool: Tool, result: CallToolResult) -> str | None:
    try:
        checks.check(tool, result)
    except InvalidMessage as error:
        return str(error)
    return None


@pytest.mark.req("TOOL-14")
@pytest.mark.parametrize(
    ("schema", "found", "wrong"),
    [
        (NUMBER, result({"n": 1}), None),
        (NUMBER, result({"n": "1"}), "structuredContent.n: '1' is not of type 'integer'"),
        (NUMBER, result({}), "structuredContent: 'n' is a required property"),
        (NUMBER, result(), "structuredContent: missing, though the tool declares an output schema"),
        (NUMBER, result(is_error=True), None),
        (None, result({"n": "1"}), None),
    ],
)
def test_result_is_checked_against_the_output_schema(
    schema: dict[str, Any] | None, found: CallToolResult, wrong: str | None
) -> None:
    reports: list[str] = []
    assert fault(ResultChecks("raise", reports.append), tool(schema), found) == wrong
    assert reports == []
    assert fault(ResultChecks("report", reports.append), tool(schema), found) is None
    assert reports == ([] if wrong is None else [f"the result of the tool 'count' breaks its output schema: {wrong}"])


@pytest.mark.req("SCHEMA-03")
@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({**NUMBER, "$schema": "https://example.com/mine"}, "dialect 'https://example.com/mine' is not supported"),
        ({**NUMBER, "$ref": "https://example.com/other"}, "leads nowhere, or out of the schema"),
        ({"type": "nonsense"}, "not a valid schema"),
    ],
)
def test_invalid_output_schema_is_reported_once_and_skips_the_check(schema: dict[str, Any], reason: str) -> None:
    reports: list[str] = []
    checks = ResultChecks("raise", reports.append)
    broken = tool(schema)
    for _ in range(3):
        assert fault(checks, broken, result({"n": "1"})) is None
    assert len(reports) == 1
    assert reports[0].startswith("the result of the tool 'count' cannot be checked: ")
    assert reason in reports[0]
    assert fault(checks, broken, result()) is not None
    assert fault(checks, tool(), result({"n": "1"})) is not None


def test_validator_of_a_tool_is_built_once() -> None:
    checks = ResultChecks("raise", str)
    known = tool()
    for _ in range(3):
        assert fault(checks, known, result({"n": 1})) is None
        assert checks._validators["count"][0] is known.output_schema
    before = checks._validators["count"][1]
    assert fault(checks, known, result({"n": 1})) is None
    assert checks._validators["count"][1] is before
    assert fault(checks, tool({"type": "object"}), result({})) is None


@pytest.mark.req("TOOL-14", "TOOL-20")
def test_kept_validators_are_bounded_by_the_bytes_of_their_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_tools, "TOOL_BYTES", 1000)
    checks = ResultChecks("raise", print)
    for number in range(100):
        schema = {**NUMBER, "description": "x" * 300}
        checks.check(Tool(f"t{number}", {}, output_schema=schema), result({"n": 1}))
        assert len(checks._validators) <= 2
    checks.check(Tool("large", {}, output_schema={**NUMBER, "description": "x" * 3000}), result({"n": 1}))
    assert list(checks._validators) == ["large"]


@pytest.mark.parametrize("policy", ["raise", "report", None])
def test_check_results_decides_whether_to_raise_or_report(policy: CheckResults | None) -> None:
    server = Server("s")
    promised = {"type": "object", "properties": {"n": {"type": "integer"}}}

    @server.tool(structured=False)
    def count() -> CallToolResult:
        return CallToolResult((), {"n": "many"})

    server.handlers["tools/list"] = lambda ctx, request: ListToolsResult((tool(promised),))
    link = Link(server, check_results=policy)
    call = link.start(link.client.call_tool("count"))
    assert call.state == ("failed" if policy == "raise" else "returned")
    assert isinstance(call.error, InvalidMessage) == (policy == "raise")
    assert len(link.reports) == (1 if policy == "report" else 0)
    hidden = link.start(link.client.call_tool("other"))
    assert "Unknown tool: other" in str(hidden.error)


def test_unchecked_calls_do_not_list_tools() -> None:
    server = Server("s")
    server.tool(lambda: None, name="nothing")
    server.handlers["tools/list"] = lambda ctx, request: pytest.fail("the list was asked for")
    link = Link(server)
    link.call("nothing")


def test_unknown_policy_raises() -> None:
    with pytest.raises(ValueError, match='"raise" or "report", not True'):
        client_connection(check_results=cast("Any", True))


def test_missing_jsonschema_raises_before_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(ValidatorMissing, match=r"install mcpio\[jsonschema\]"):
        client_connection(check_results="raise")


def test_invalid_output_schema_is_reported_once_by_a_client() -> None:
    server = Server("s")

    @server.tool(structured=False)
    def count() -> CallToolResult:
        return CallToolResult((), {"n": 1})

    server.handlers["tools/list"] = lambda ctx, request: ListToolsResult((tool({"type": "nonsense"}),))
    link = Link(server, check_results="raise")
    for _ in range(2):
        assert link.call("count").structured_content == {"n": 1}
    (report,) = link.reports
    assert report.startswith("the result of the tool 'count' cannot be checked: ")
