from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from mcpio.app.client_tools import ToolHeaders
from mcpio.errors import RequestError
from mcpio.http.model import ParamHeader
from mcpio.testing import ManualRuntime
from mcpio.types import CallToolRequest, CallToolResult, ListToolsRequest, ListToolsResult, Tool

REGION = ParamHeader("Region", ("region",), "string")
MISMATCH = RequestError(-32020, "Mcp-Param-Region is missing")
DONE = CallToolResult(())


def tool(name: str, header: Any = None) -> Tool:
    annotated = {} if header is None else {"x-mcp-header": header}
    return Tool(name, {"type": "object", "properties": {"region": {"type": "string", **annotated}}})


class Layers:
    """A layer over a server that gives ``results`` in turn."""

    def __init__(self, *results: Any) -> None:
        self.layer: Any = ToolHeaders()
        self.session = self
        self.sent: list[Any] = []
        self._results = list(results)

    async def tools(self, *, fresh: bool | None = None) -> AsyncIterator[Tool]:
        assert fresh
        page = await self.layer(self, ListToolsRequest(), self._send)
        for each in page.tools:
            yield each

    def ask(self, request: Any) -> Any:
        return ManualRuntime().complete(self.layer(self, request, self._send))

    async def _send(self, request: Any) -> Any:
        self.sent.append(request)
        result = self._results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


@pytest.mark.req("HDR-06")
def test_tool_with_an_invalid_annotation_is_set_aside() -> None:
    layers = Layers(ListToolsResult((tool("bad", "a b"), tool("good", "Region"), tool("plain"))))
    page = layers.ask(ListToolsRequest())
    assert [each.name for each in page.tools] == ["good", "plain"]
    (malformed,) = page.malformed
    assert (malformed.index, malformed.raw) == (0, {"name": "bad"})
    assert "is not a name of a header" in malformed.reason
    assert [layers.layer.of(name) for name in ("bad", "good", "plain")] == [(), (REGION,), ()]


def test_headers_are_those_of_the_latest_list() -> None:
    layers = Layers(ListToolsResult((tool("t", "Region"),)), ListToolsResult((tool("t"),)))
    layers.ask(ListToolsRequest())
    assert layers.layer.of("t") == (REGION,)
    layers.ask(ListToolsRequest())
    assert layers.layer.of("t") == ()


@pytest.mark.req("HDR-10")
def test_header_mismatch_lists_the_tools_and_repeats_the_call() -> None:
    layers = Layers(MISMATCH, ListToolsResult((tool("t", "Region"),)), DONE)
    assert layers.ask(CallToolRequest("t")) == DONE
    assert [type(each) for each in layers.sent] == [CallToolRequest, ListToolsRequest, CallToolRequest]
    assert layers.layer.of("t") == (REGION,)


@pytest.mark.req("HDR-10")
def test_second_refusal_is_final() -> None:
    layers = Layers(MISMATCH, ListToolsResult(()), MISMATCH)
    with pytest.raises(RequestError):
        layers.ask(CallToolRequest("t"))
    assert len(layers.sent) == 3


@pytest.mark.parametrize(
    ("request_", "error"), [(ListToolsRequest(), MISMATCH), (CallToolRequest("t"), RequestError(-32602, "no"))]
)
def test_other_errors_are_raised(request_: Any, error: RequestError) -> None:
    layers = Layers(error)
    with pytest.raises(RequestError):
        layers.ask(request_)
    assert len(layers.sent) == 1


def test_number_of_remembered_tool_headers_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpio.app.client_tools.HEADER_BYTES", 200)
    layers = Layers(*[ListToolsResult((tool("a", "Region"), tool("b", "Region")))] * 3)
    for _ in range(3):  # the same tools take no more room
        layers.ask(ListToolsRequest())
    assert [layers.layer.of(name) for name in ("a", "b")] == [(REGION,), ()]
