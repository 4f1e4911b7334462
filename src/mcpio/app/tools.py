"""Tools: functions that a server offers to the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mcpio.app.context import Context
from mcpio.app.endpoint import Endpoint
from mcpio.app.plain import to_json
from mcpio.app.registry import Registry
from mcpio.app.results import ResultEncoder
from mcpio.errors import ErrorCode, InvalidMessage, Refusal, RequestError, ToolError
from mcpio.framing import json
from mcpio.types._fields import ABSENT, Payload
from mcpio.types.content import TextContent
from mcpio.types.tools import CallToolRequest, CallToolResult, Tool

__all__ = ["FunctionTool", "Tools"]


class FunctionTool:
    """A tool, and the function behind it."""

    __slots__ = ("_accepts", "_encoder", "_gives", "description", "enabled", "endpoint")

    def __init__(
        self,
        endpoint: Endpoint,
        description: Tool,
        *,
        encoder: ResultEncoder,
        accepts: Callable[[Any], None] | None = None,
        gives: Callable[[Any], None] | None = None,
    ) -> None:
        """Offer it. ``accepts`` and ``gives`` check arguments and structured results against hand-written schemas."""
        self.endpoint = endpoint
        self.description = description
        self.enabled = True
        self._encoder = encoder
        self._accepts = accepts
        self._gives = gives

    def call(self, scope: Context, arguments: Mapping[str, Any]) -> Any:
        """Run the function; return what it returns, or a coroutine for it. ``InvalidMessage`` for bad arguments."""
        if self._accepts is not None:
            self._accepts(arguments)
        return self.endpoint.call(scope, arguments)

    def result(self, value: Any) -> CallToolResult:
        """Return the result for what the function returned. ``InvalidMessage`` when that breaks its own schema."""
        if isinstance(value, CallToolResult):
            if value.structured_content is not ABSENT and not value.is_error and self._gives is not None:
                self._gives(value.structured_content)
            return value
        structured = self._encoder.encode(value)
        if structured is None and self._gives is not None:
            structured = value
        if structured is None:
            return CallToolResult(content_of(value))
        if self._gives is not None:
            self._gives(structured)
        # Clients that know no structured content read the same in a text block (TOOL-15).
        return CallToolResult((TextContent(json.dumps(structured).decode()),), structured)


class Tools(Registry[FunctionTool]):
    """The tools of a server."""

    def __init__(self, changed: Callable[[], None], *, mask_errors: bool) -> None:
        super().__init__("tool", changed)
        self._mask_errors = mask_errors

    def call(self, scope: Context, request: CallToolRequest) -> Any:
        """Serve ``tools/call``. A failure of the tool's own is a result that says so, for the model (TOOL-10)."""
        tool = self.find(request.name)
        if tool is None:
            raise RequestError(ErrorCode.INVALID_PARAMS, f"Unknown tool: {request.name:.100}")
        try:
            value = tool.call(scope, request.arguments or {})
            if hasattr(value, "__await__"):
                return self._await(scope, tool, value)
            return tool.result(value)
        except Exception as error:
            return self._failure(scope, tool, error)

    async def _await(self, scope: Context, tool: FunctionTool, value: Any) -> CallToolResult:
        try:
            return tool.result(await value)
        except Exception as error:
            return self._failure(scope, tool, error)

    def _failure(self, scope: Context, tool: FunctionTool, error: Exception) -> CallToolResult:
        """Return the result that tells the model of a failure; raise what is an error of the protocol."""
        if isinstance(error, RequestError | Refusal):
            raise error
        name = tool.description.name
        if isinstance(error, ToolError):
            text = str(error)
        elif isinstance(error, InvalidMessage):
            text = f"Invalid value in {name}: {error}"
        else:
            scope.session.driver.report(f"the tool {name} failed", error)
            text = f"{name} failed" if self._mask_errors else f"{name} failed: {type(error).__name__}: {error}"
        return CallToolResult((TextContent(text),), is_error=True)


def content_of(value: Any) -> tuple[Any, ...]:
    """Return the content blocks for what a function returned: blocks as they are, text as text, the rest as JSON."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (TextContent(value),)
    if isinstance(value, Payload):
        return (value,)
    if isinstance(value, list | tuple) and value and all(isinstance(item, Payload | str) for item in value):
        return tuple(TextContent(item) if isinstance(item, str) else item for item in value)
    return (TextContent(json.dumps(to_json(value)).decode()),)
