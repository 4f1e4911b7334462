"""Prompts: prepared messages for the user to start from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mcpio import types  # the types of prompts are loaded when there is one
from mcpio.app.awaitables import when_ready
from mcpio.app.contracts import HandlerScope
from mcpio.app.input_required import InputRequired
from mcpio.app.registry.base import InLoop, Mounted, Registry
from mcpio.app.registry.content import block_of
from mcpio.app.registry.function import RegisteredFunction
from mcpio.errors import ErrorCode, InvalidMessage, RequestError
from mcpio.types.content import EmbeddedResource

if TYPE_CHECKING:
    from mcpio.types.prompts import GetPromptRequest, GetPromptResult, Prompt, PromptArgument, PromptMessage

__all__ = ["FunctionPrompt", "Prompts", "prompt_arguments"]


class FunctionPrompt:
    """A prompt and its function."""

    __slots__ = ("completions", "description", "enabled", "endpoint", "mount")

    endpoint: RegisteredFunction
    """The function."""
    description: Prompt
    """The description that clients get."""
    completions: dict[str, RegisteredFunction]
    """The functions that suggest values, by argument."""
    enabled: bool
    """Whether it is offered at the moment. Change it by ``server.prompts.enable`` and ``disable``."""
    mount: Mounted | None
    """The mounted server that it belongs to; ``None`` for one of the server's own."""

    def __init__(self, endpoint: RegisteredFunction, description: Prompt) -> None:
        self.endpoint = endpoint
        self.description = description
        self.completions = {}
        self.enabled = True
        self.mount = None


class Prompts(Registry[FunctionPrompt]):
    """The prompts of a server, by name."""

    def __init__(self, changed: Callable[[], None], *in_loop: InLoop) -> None:
        super().__init__("prompt", changed, *in_loop)

    def get(self, scope: HandlerScope, request: GetPromptRequest) -> Any:
        """Serve ``prompts/get``. Unknown prompts and invalid arguments are protocol errors (PROM-05)."""
        prompt = self.find(request.name, scope)
        if prompt is None:
            raise RequestError(ErrorCode.INVALID_PARAMS, f"Unknown prompt: {request.name:.100}")
        if prompt.mount is not None:
            return prompt.mount.serve(scope, request)
        try:
            keywords = prompt.endpoint.binder.bind_text(request.arguments or {})
        except InvalidMessage as error:
            text = f"Invalid arguments for {request.name:.100}: {error}"
            raise RequestError(ErrorCode.INVALID_PARAMS, text, {"path": error.path}) from error
        return when_ready(prompt.endpoint.call(scope, keywords), lambda value: _result(value, prompt.description))


def prompt_arguments(endpoint: RegisteredFunction) -> tuple[PromptArgument, ...]:
    """Return the arguments of a prompt's function as clients see them (PROM-02)."""
    return tuple(
        types.PromptArgument(parameter.name, parameter.description, parameter.required)
        for parameter in endpoint.binder.parameters
    )


def _result(value: Any, prompt: Prompt) -> GetPromptResult | InputRequired:
    if isinstance(value, types.GetPromptResult | InputRequired):
        return value
    items = value if isinstance(value, list | tuple) else (value,)
    return types.GetPromptResult(tuple(_message(item, prompt) for item in items), prompt.description)


def _message(item: Any, prompt: Prompt) -> PromptMessage:
    """Return a message as it is; text or a content block as a message of the user."""
    if isinstance(item, types.PromptMessage):
        message = item
    else:
        block = block_of(item)
        if block is None:
            raise TypeError(f"prompt {prompt.name}: a message is text, content or a PromptMessage, not {item!r:.100}")
        message = types.PromptMessage("user", block)
    if isinstance(message.content, EmbeddedResource) and message.content.resource.mime_type is None:
        raise TypeError(f"prompt {prompt.name}: a resource in a prompt needs its mime_type")  # PROM-08
    return message
