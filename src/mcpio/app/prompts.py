"""Prompts: messages that a server prepares for the user to start from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcpio.app.context import Context
from mcpio.app.endpoint import Endpoint, settle
from mcpio.app.registry import Registry
from mcpio.errors import ErrorCode, InvalidMessage, RequestError
from mcpio.types._fields import Payload
from mcpio.types.content import TextContent
from mcpio.types.prompts import GetPromptRequest, GetPromptResult, Prompt, PromptArgument, PromptMessage

__all__ = ["FunctionPrompt", "Prompts", "prompt_arguments"]


class FunctionPrompt:
    """A prompt, and the function that fills it in."""

    __slots__ = ("description", "enabled", "endpoint")

    def __init__(self, endpoint: Endpoint, description: Prompt) -> None:
        self.endpoint = endpoint
        self.description = description
        self.enabled = True


class Prompts(Registry[FunctionPrompt]):
    """The prompts of a server."""

    def __init__(self, changed: Callable[[], None]) -> None:
        super().__init__("prompt", changed)

    def get(self, scope: Context, request: GetPromptRequest) -> Any:
        """Serve ``prompts/get``. Unknown prompts and bad arguments are errors of the protocol (PROM-05)."""
        prompt = self.find(request.name)
        if prompt is None:
            raise RequestError(ErrorCode.INVALID_PARAMS, f"Unknown prompt: {request.name:.100}")
        try:
            value = prompt.endpoint.call_with_text(scope, request.arguments or {})
        except InvalidMessage as error:
            raise RequestError(ErrorCode.INVALID_PARAMS, f"Prompt {request.name}: {error}") from error
        return settle(value, lambda result: _result(result, prompt.description))


def prompt_arguments(endpoint: Endpoint) -> tuple[PromptArgument, ...]:
    """Return what a prompt's function takes, as clients see it."""
    return tuple(
        PromptArgument(parameter.name, parameter.description, parameter.required)
        for parameter in endpoint.binder.parameters
    )


def _result(value: Any, prompt: Prompt) -> GetPromptResult:
    if isinstance(value, GetPromptResult):
        return value
    items = value if isinstance(value, list | tuple) else (value,)
    return GetPromptResult(tuple(_message(item, prompt) for item in items), prompt.description)


def _message(item: Any, prompt: Prompt) -> PromptMessage:
    """Return a message as it is; text or a content block as the user's."""
    if isinstance(item, PromptMessage):
        return item
    if isinstance(item, str):
        return PromptMessage("user", TextContent(item))
    if isinstance(item, Payload):
        return PromptMessage("user", item)  # type: ignore[arg-type]  # the codec refuses what is no content
    raise TypeError(f"prompt {prompt.name}: a message is text, a content block or a PromptMessage, not {item!r:.100}")
