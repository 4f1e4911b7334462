"""Sampling: a model that works with tools, the choice of a model, and checks of its messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Unpack

import attrs

from mcpio._checks import is_count
from mcpio.app.awaitables import is_awaitable
from mcpio.app.request_state import canonical, digest
from mcpio.codec import codec
from mcpio.errors import Refusal, RequestError
from mcpio.revisions import REV_2026_07_28
from mcpio.types.content import TextContent
from mcpio.types.sampling import SamplingMessage, ToolChoice, ToolResultContent, ToolUseContent
from mcpio.types.tools import CallToolRequest, CallToolResult

if TYPE_CHECKING:
    from mcpio.app.contracts import AskOptions
    from mcpio.types.sampling import CreateMessageRequest, CreateMessageResult, ModelPreferences

__all__ = ["choose_model", "fault_in_sampled", "sample_with_tools"]


Remember: TypeAlias = Callable[[str, Callable[[], Any]], Awaitable[Any]]
"""Calls a function by a name, unless that was done in an earlier round, and returns its result."""


class SamplingScope(Protocol):
    """The context of a request, as far as sampling needs it."""

    def sample(self, request: CreateMessageRequest, **options: Unpack[AskOptions]) -> Awaitable[CreateMessageResult]:
        """Ask the client's model."""


class ToolSet(Protocol):
    """Tools, as far as a model needs them."""

    def page(self, cursor: str | None, size: int | None) -> Any:
        """Return a page of their descriptions."""

    def call(self, scope: Any, request: CallToolRequest) -> Any:
        """Call one of them."""


async def sample_with_tools(
    scope: SamplingScope,
    request: CreateMessageRequest,
    tools: ToolSet,
    rounds: int,
    options: AskOptions,
    remember: Remember | None = None,
) -> CreateMessageResult:
    """Return the model's final message. See ``Context.sample_with_tools``.

    ``remember`` is ``Context.once``, for a handler that is run again with the answers: its tools are not.
    """
    if not is_count(rounds, 1):
        raise ValueError(
            f"rounds= takes an integer: a model gets one round with its tools at least, not {rounds!r:.60}"
        )
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
        call = partial(_used, scope, tools)
        if remember is not None:
            call = partial(_remembered, remember, call, _name_of(request, result))
        results = tuple([await call(use) for use in uses])
        said = (SamplingMessage("assistant", result.content), SamplingMessage("user", results))
        # A tool choice of "required" applies to the first request only; repeating it would force a tool call each
        # round.
        request = attrs.evolve(request, messages=(*request.messages, *said), tool_choice=None)
        asked += 1


async def _used(scope: SamplingScope, tools: ToolSet, use: ToolUseContent) -> ToolResultContent:
    """Call a tool for the model. A failure becomes a result that tells the model."""
    try:
        result = tools.call(scope, CallToolRequest(use.name, use.input))
        if is_awaitable(result):
            result = await result
    except (RequestError, Refusal) as error:
        result = CallToolResult((TextContent(error.message),), is_error=True)
    given = ("structured_content",) if result.has_structured_content else ()
    return ToolResultContent(use.id, result.content, result.structured_content, is_error=result.is_error, given=given)


async def _remembered(
    remember: Remember, call: Callable[[ToolUseContent], Awaitable[ToolResultContent]], name: str, use: ToolUseContent
) -> ToolResultContent:
    """Call a tool for the model in the first pass that comes here, and return the same result in later ones."""
    own = codec(REV_2026_07_28)

    async def called() -> dict[str, Any]:
        return own.encode(await call(use))

    return own.decode(await remember(f"{name}.{use.id}", called), ToolResultContent)


def _name_of(request: CreateMessageRequest, result: CreateMessageResult) -> str:
    """Return an id for a tool use that is unique in a conversation, since models may reuse ids in each message."""
    own = codec(REV_2026_07_28)
    return digest(canonical([own.encode(request), own.encode(result)]))


def choose_model(preferences: ModelPreferences | None, names: Iterable[str]) -> str | None:
    """Return the first model that matches a hint, by the order of the hints, or ``None`` if none does (SAMP-18).

    ``names`` are the client's models, preferred ones first; the comparison ignores case, and a hint matches as a part
    of a name. If none matches, the priorities or the client decide: hints are advice.
    """
    known = list(names)
    for hint in () if preferences is None else preferences.hints:
        if hint.name:
            part = hint.name.casefold()
            for name in known:
                if part in name.casefold():
                    return name
    return None


def fault_in_sampled(result: CreateMessageResult, request: CreateMessageRequest) -> str | None:
    """Return the fault of a model's message, or ``None``. Tools must be used as ``tool_choice`` says (SAMP-08)."""
    mode = (request.tool_choice.mode if request.tool_choice is not None else None) or "auto"
    uses = any(isinstance(block, ToolUseContent) for block in result.blocks)
    if any(isinstance(block, ToolResultContent) for block in result.blocks):
        return "a model has no tool results to give"
    if uses and (mode == "none" or not request.tools):
        return "the model uses a tool where it may use none"
    if mode == "required" and not uses and result.stop_reason != "maxTokens":
        return "the model uses no tool where it must"
    return None
