"""Rules for a client's answers to sampling and elicitation: the same for the client and for the server.

What may be asked in the first place is the engine's to say (``mcpio.engine.gates``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcpio.types.elicitation import ElicitResult
    from mcpio.types.sampling import CreateMessageRequest, CreateMessageResult

__all__ = ["fault_in_elicited", "fault_in_sampled"]


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


def fault_in_elicited(result: ElicitResult, request: Any) -> str | None:
    """Return what is wrong with an answer of the user's, or ``None``: only an accepted form has content (ELIC-10)."""
    if result.content is not None and (result.action != "accept" or request.mode != "form"):
        return "content comes with the action accept of a form, and with nothing else"
    return None
