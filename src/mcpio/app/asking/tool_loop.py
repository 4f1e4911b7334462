"""A model that works with tools: it is asked, what it wants is done, and it is asked again, up to a limit (SAMP-15)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import attrs

from mcpio.app.settling import is_awaitable
from mcpio.errors import Refusal, RequestError
from mcpio.types.content import TextContent
from mcpio.types.sampling import SamplingMessage, ToolChoice, ToolResultContent, ToolUseContent
from mcpio.types.tools import CallToolRequest, CallToolResult

if TYPE_CHECKING:
    from mcpio.app.context import AskOptions, Context
    from mcpio.app.offering.tools import Tools
    from mcpio.types.sampling import CreateMessageRequest, CreateMessageResult

__all__ = ["sample_with_tools"]


async def sample_with_tools(
    scope: Context,
    request: CreateMessageRequest,
    functions: Iterable[Callable[..., Any]],
    rounds: int,
    options: AskOptions,
) -> CreateMessageResult:
    """Return the model's last word. See ``Context.sample_with_tools``."""
    if rounds < 1:
        raise ValueError(f"a model gets one round with its tools at least, not {rounds}")
    tools = scope.session.server.make_tools(functions)
    request = attrs.evolve(request, tools=tuple(tools.page(None, None).items))
    key = options.get("key")
    asked = 0
    while True:
        if asked == rounds:
            request = attrs.evolve(request, tool_choice=ToolChoice("none"))
        if key is not None:
            options["key"] = f"{key}.{asked}"
        result = await scope.sample(request, **options)
        uses = [block for block in result.blocks if isinstance(block, ToolUseContent)]
        if not uses:
            return result
        results = tuple([await _used(scope, tools, use) for use in uses])
        said = (SamplingMessage("assistant", result.content), SamplingMessage("user", results))
        # What the model must do once, it need not do for ever.
        request = attrs.evolve(request, messages=(*request.messages, *said), tool_choice=None)
        asked += 1


async def _used(scope: Context, tools: Tools, use: ToolUseContent) -> ToolResultContent:
    """Call a tool for the model, which learns of failures and goes on."""
    try:
        result = tools.call(scope, CallToolRequest(use.name, use.input))
        if is_awaitable(result):
            result = await result
    except (RequestError, Refusal) as error:
        result = CallToolResult((TextContent(error.message),), is_error=True)
    given = ("structured_content",) if result.has_structured_content else ()
    return ToolResultContent(use.id, result.content, result.structured_content, is_error=result.is_error, given=given)
