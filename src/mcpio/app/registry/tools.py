# ruff: noqa: SLF001 - the library uses scopes from inside
"""Tools: functions for the model to call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mcpio.app.contracts import InputRequired
from mcpio.app.registry.base import (
    Entry,
    RegisteredFunction,
    Registry,
    ResultEncoder,
    blocks_of,
    check_texts,
    checked_text,
)
from mcpio.app.reporting import describe_error, failed, intended_answer, loop_hint, text_of, unwrap_group
from mcpio.app.runtime import AWAITABLE, is_awaitable
from mcpio.app.schema.validation import SchemaError
from mcpio.app.schema.values import to_json
from mcpio.errors import CapabilityMissing, ErrorCode, InvalidMessage, RequestError, ToolError
from mcpio.framing import json
from mcpio.revisions import Era
from mcpio.types.content import TextContent
from mcpio.types.features import CallToolRequest, CallToolResult, Tool

if TYPE_CHECKING:
    from mcpio.app.context import RequestScope
    from mcpio.http.model import ParamHeader

__all__ = ["FunctionTool", "Tools"]


class FunctionTool(Entry):
    """A tool and its function."""

    __slots__ = (
        "_encoder",
        "_gives",
        "_has_schema",
        "accepts",
        "becomes_task",
        "immediate_response",
        "param_headers",
        "resumes",
    )

    accepts: Callable[[Any], None] | None
    """Checks the arguments against a hand-written schema: raises InvalidMessage, or SchemaError if it cannot."""
    description: Tool
    resumes: bool
    """Whether an interrupted task of it runs again."""
    immediate_response: str | None
    """A text for the model when a task has begun."""
    becomes_task: bool
    """Whether a stateless client's call is a plain one until the function asks to become a task."""
    param_headers: tuple[ParamHeader, ...]
    """The arguments that header fields repeat over HTTP."""

    def __init__(
        self,
        endpoint: RegisteredFunction,
        description: Tool,
        *,
        encoder: ResultEncoder,
        accepts: Callable[[Any], None] | None = None,
        gives: Callable[[Any], None] | None = None,
        resumes: bool = False,
        immediate_response: str | None = None,
        becomes_task: bool = False,
        param_headers: tuple[ParamHeader, ...] = (),
    ) -> None:
        """Check arguments by ``accepts`` and structured results by ``gives``: hand-written schemas."""
        super().__init__(endpoint, description)
        self.resumes = resumes
        self.immediate_response = immediate_response
        self.becomes_task = becomes_task
        self.param_headers = param_headers
        self._encoder = encoder
        self.accepts = accepts
        self._gives = gives
        self._has_schema = gives is not None or encoder.output_schema is not None

    def result(self, value: Any) -> CallToolResult | InputRequired:
        """Return the result for the function's value. Raises InvalidMessage if it breaks the tool's schema."""
        if value.__class__ is str and not self._has_schema:
            return CallToolResult((TextContent(checked_text(value)),))  # most values
        if isinstance(value, CallToolResult):
            self._check(value)
            return value
        if isinstance(value, InputRequired):
            return value
        given_members: tuple[str, ...] = ()
        if self._gives is None:
            structured = self._encoder.encode(value)
            if structured is None:
                return CallToolResult(blocks_of(value))
        else:
            structured = to_json(value)
            self._gives(structured)
            given_members = ("structured_content",)
        # Clients without structured content read the same JSON in a text block (TOOL-15).
        return CallToolResult((TextContent(json.dumps(structured).decode()),), structured, given=given_members)

    def _check(self, result: CallToolResult) -> None:
        """Check a result that the function made itself: a declared schema must be fulfilled (TOOL-13)."""
        for block in result.content:
            check_texts(block)
        if result.is_error or self.description.output_schema is None:
            return
        if not result.has_structured_content:
            raise InvalidMessage("structured_content", "missing, though the tool declares an output schema")
        if self._gives is not None:
            self._gives(result.structured_content)


class Tools(Registry[FunctionTool]):
    """The tools of a server, by name."""

    def __init__(self, changed: Callable[[], None], *shared: Any, mask_errors: bool) -> None:
        """Take after ``changed`` what a registry does."""
        super().__init__("tool", changed, *shared)
        self._mask_errors = mask_errors

    @property
    def masks_errors(self) -> bool:
        """Whether the texts of exceptions are hidden from clients."""
        return self._mask_errors

    def param_headers(self, name: str) -> tuple[ParamHeader, ...]:
        """Return the arguments of a tool that header fields repeat over HTTP; empty for an unknown tool."""
        tool = self._entries.get(name)
        return () if tool is None or not tool.enabled else tool.param_headers

    def takes_arguments_only(self, request: CallToolRequest) -> bool:
        """Whether a call is the first round of a plain function that sees neither the request nor a dependency."""
        tool = self._entries.get(request.name)
        if tool is None or tool.mount is not None:
            return False
        sees_arguments_only = tool.endpoint.injection is None and tool.endpoint.binder.context_parameter is None
        return sees_arguments_only and request.request_state is None and request.input_responses is None

    def call(self, scope: RequestScope, request: CallToolRequest) -> Any:
        """Serve ``tools/call``. A failure of the tool itself is a result, for the model (TOOL-10)."""
        tool = self._entries.get(request.name)
        if tool is not None and (not tool.enabled or tool.endpoint.visible is not None):
            tool = self.find(request.name, scope)
        if tool is None:
            raise RequestError(ErrorCode.INVALID_PARAMS, f"Unknown tool: {request.name:.100}")
        if tool.mount is not None:
            return tool.mount.serve(scope, request)
        arguments, endpoint = request.arguments or {}, tool.endpoint
        try:
            if tool.accepts is not None:
                tool.accepts(arguments)
            keywords = endpoint.binder.bind(arguments)
        except InvalidMessage as error:
            # The model can correct itself (TOOL-11).
            return failed(f"Invalid value in {request.name!r}: {error}")
        except SchemaError as error:
            # The schema may be at fault as well, so its author is told too.
            scope._report(f"the arguments for {request.name} could not be checked: {error}", None)
            return failed(f"Invalid value in {request.name!r}: arguments: {error}")
        try:
            value = endpoint.function(**keywords) if endpoint.is_plain else endpoint.call(scope, keywords)
            if AWAITABLE.get(value.__class__, True) and is_awaitable(value):
                return self._await(scope, tool, value)
            return tool.result(value)
        except Exception as error:
            return self._failure(scope, tool, error)

    async def _await(self, scope: RequestScope, tool: FunctionTool, value: Any) -> CallToolResult | InputRequired:
        try:
            return tool.result(await value)
        except Exception as error:
            return self._failure(scope, tool, error)
        except BaseExceptionGroup as group:
            # A nursery in which one task left to ask the client, and another failed: the failure counts.
            from mcpio.app.rounds import without_leaving

            rest = without_leaving(group)
            if not isinstance(rest, Exception):
                raise
            return self._failure(scope, tool, rest)

    def _failure(self, scope: RequestScope, tool: FunctionTool, error: Exception) -> CallToolResult:
        """Return the result that tells the model of a failure, or raise a protocol error."""
        failure = unwrap_group(error)
        is_for_model = isinstance(failure, CapabilityMissing) and scope.peer.era is Era.HANDSHAKE
        answer = None if is_for_model else intended_answer(failure, scope.peer)
        if answer is not None and not scope._is_from_peer(failure):
            raise failure
        name = tool.description.name
        if isinstance(failure, ToolError):
            return failed(text_of(failure) or f"{name!r} failed")
        scope._report(f"the tool {name!r} failed", failure)
        hint = loop_hint(failure)
        text = describe_error(failure) + ("" if hint is None else f" ({hint})")
        return failed(f"{name!r} failed" if self._mask_errors else f"{name!r} failed: {text}")
