"""Texts that JSON cannot express, such as names of files that are not UTF-8, and exceptions without a text."""

from __future__ import annotations

from typing import Any

import pytest
from linked import Link

from mcpio import Refusal, RequestError, Server, ToolError
from mcpio.types import CallToolResult, EmbeddedResource, ResourceLink, TextContent, TextResourceContents

NAME = b"caf\xe9".decode("utf-8", "surrogateescape")
SHOWN = "caf\\udce9"
REASON = "ValueError: a text in the result has a surrogate at character 3, which JSON cannot express"


class Textless(RuntimeError):
    def __str__(self) -> str:
        raise ValueError("it has no text")

    __repr__ = __str__


class TextlessToolError(ToolError):
    __str__ = Textless.__str__


eras = pytest.mark.parametrize("era", ["handshake", "stateless"])


def call(outcome: Any, era: Any, **options: Any) -> Any:
    server = Server("s", **options)

    @server.tool(structured=False)
    def tool() -> Any:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    link = Link(server, era=era)
    link.start(link.client.call_tool("tool"))
    return link.call("tool")  # again: the second report of a failure has another form


@eras
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ToolError(f"no {NAME}"), f"no {SHOWN}"),
        (ValueError(f"no {NAME}"), f"'tool' failed: ValueError: no {SHOWN}"),
        (Textless(), "'tool' failed: Textless"),
        (TextlessToolError(), "'tool' failed"),
    ],
)
def test_failure_of_a_tool_reaches_the_model_with_any_text(error: Exception, text: str, era: Any) -> None:
    result = call(error, era)
    assert (result.is_error, result.text) == (True, text)


@eras
@pytest.mark.parametrize("error", [Refusal(1003, f"no {NAME}"), RequestError(5, f"no {NAME}")])
def test_error_reaches_the_client_with_any_text(error: Any, era: Any) -> None:
    with pytest.raises(RequestError) as caught:
        call(error, era)
    assert (caught.value.code, caught.value.message) == (error.code, f"no {SHOWN}")


@eras
@pytest.mark.parametrize(
    "value",
    [
        NAME,
        [TextContent("é"), TextContent(NAME)],
        ResourceLink("file:///cafe", NAME),
        EmbeddedResource(TextResourceContents("file:///cafe", NAME)),
        TextResourceContents("file:///cafe", NAME),
        CallToolResult((TextContent(NAME),)),
    ],
)
def test_result_with_a_surrogate_is_a_failure_of_the_tool(value: Any, era: Any) -> None:
    result = call(value, era)
    assert (result.is_error, result.text) == (True, f"'tool' failed: {REASON}")
    assert call(value, era, mask_errors=True).text == "'tool' failed"
