"""What a server may ask a client that declared so much, and no more: the same rules for who asks and who is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mcpio.methods import declares
from mcpio.revisions import REV_2025_11_25

if TYPE_CHECKING:
    from mcpio.events import RequestContext
    from mcpio.types.elicitation import ElicitResult
    from mcpio.types.sampling import CreateMessageRequest, CreateMessageResult, SamplingMessage

__all__ = ["advice_on_sampling", "fault_in_elicitation", "fault_in_elicited", "fault_in_sampled", "fault_in_sampling"]


def fault_in_sampling(request: CreateMessageRequest, capabilities: Any) -> str | None:
    """Return what is wrong with asking a client of these capabilities for a message, or ``None``.

    Tools need ``sampling.tools`` (SAMP-05, SAMP-06), and their results stand where they belong (SAMP-09, SAMP-10).
    """
    wants_tools = request.tools is not None or request.tool_choice is not None
    if wants_tools and not declares(capabilities, ("sampling", "tools")):
        return "tools and toolChoice need the capability sampling.tools, which the client did not declare"
    return _fault_in_messages(request.messages)


def advice_on_sampling(request: CreateMessageRequest, peer: RequestContext) -> str | None:
    """Return what a request for a message should do without, though it may be sent, or ``None`` (SAMP-07)."""
    wants = request.include_context
    if (
        wants in (None, "none")
        or peer.revision < REV_2025_11_25
        or declares(peer.capabilities, ("sampling", "context"))
    ):
        return None
    return f"includeContext {wants} is for clients that declare sampling.context, and this one may ignore it"


def fault_in_sampled(result: CreateMessageResult, request: CreateMessageRequest) -> str | None:
    """Return what is wrong with a model's message, or ``None``: tools are used as ``tool_choice`` says (SAMP-08)."""
    from mcpio.types.sampling import ToolResultContent, ToolUseContent

    mode = (request.tool_choice.mode if request.tool_choice is not None else None) or "auto"
    uses = any(isinstance(block, ToolUseContent) for block in result.blocks)
    if any(isinstance(block, ToolResultContent) for block in result.blocks):
        return "a model has no tool results to give"
    if uses and (mode == "none" or not request.tools):
        return "the model uses a tool where it may use none"
    if mode == "required" and not uses and result.stop_reason != "maxTokens":
        return "the model uses no tool where it must"
    return None


def fault_in_elicitation(request: Any, capabilities: Any) -> str | None:
    """Return what is wrong with asking the user of a client of these capabilities, or ``None`` (ELIC-01, ELIC-02)."""
    mode: str = getattr(request, "mode", "form")
    if declares(capabilities, ("elicitation", mode)):
        return None
    return f"mode {mode} needs the capability elicitation.{mode}, which the client did not declare"


def fault_in_elicited(result: ElicitResult, request: Any) -> str | None:
    """Return what is wrong with an answer of the user's, or ``None``: only an accepted form has content (ELIC-10)."""
    if result.content is not None and (result.action != "accept" or request.mode != "form"):
        return "content comes with the action accept of a form, and with nothing else"
    return None


def _fault_in_messages(messages: Sequence[SamplingMessage]) -> str | None:
    """Return what is wrong with the order of tool uses and results, in the words of the specification's examples."""
    from mcpio.types.sampling import ToolResultContent, ToolUseContent

    unanswered: set[str] = set()
    for message in messages:
        results = [block for block in message.blocks if isinstance(block, ToolResultContent)]
        if results and (message.role != "user" or len(results) < len(message.blocks)):
            return "Tool results mixed with other content"
        answered = {block.tool_use_id for block in results}
        if answered != unanswered:
            return "Tool result missing in request" if unanswered - answered else "Tool result without a tool use"
        unanswered = {block.id for block in message.blocks if isinstance(block, ToolUseContent)}
    return "Tool result missing in request" if unanswered else None
