"""What a tool's context gives: a tool that calls it, and what it asks its client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from linked import Link

from mcpio import Context, Server
from mcpio.types import (
    CreateMessageRequest,
    CreateMessageResult,
    ElicitFormRequest,
    ElicitSchema,
    SamplingMessage,
    StringSchema,
    TextContent,
)

__all__ = ["ELICIT", "SAMPLE", "captured", "said"]

SAMPLE = CreateMessageRequest((SamplingMessage("user", TextContent("hello")),), 10)
ELICIT = ElicitFormRequest("Who are you?", ElicitSchema({"name": StringSchema()}))


def said(text: str) -> CreateMessageResult:
    """Return what the client's model answers."""
    return CreateMessageResult("assistant", TextContent(text), "model")


def captured(function: Callable[[Context], Any], **options: Any) -> tuple[Any, Link]:
    """Call a tool that runs the function with its context; return what that returned or raised, and the link."""
    server, found = Server("s"), []

    @server.tool
    async def tool(ctx: Context) -> None:
        try:
            value = function(ctx)
            found.append(await value if hasattr(value, "__await__") else value)
        except Exception as error:
            found.append(error)

    link = Link(server, **options)
    link.call("tool")
    return found[0], link
