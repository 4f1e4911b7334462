"""Prompts, and the completion of their arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from mcpio import types  # the types of prompts are loaded when there is one
from mcpio.app.contracts import InputRequired
from mcpio.app.registry.base import Edition, Entry, InLoop, RegisteredFunction, Registry, block_of
from mcpio.app.registry.resources import FunctionTemplate, Resources
from mcpio.app.runtime import when_ready
from mcpio.errors import ErrorCode, InvalidMessage, RequestError
from mcpio.types.content import EmbeddedResource

if TYPE_CHECKING:
    from mcpio.app.context import RequestScope
    from mcpio.types.features import (
        CompleteRequest,
        CompleteResult,
        Completion,
        GetPromptRequest,
        GetPromptResult,
        Prompt,
        PromptArgument,
        PromptMessage,
    )


# -------------------------------------------------------------------------------------------------------------- prompts
# Prompts: prepared messages for the user to start from.


class FunctionPrompt(Entry):
    """A prompt and its function."""

    __slots__ = ("completions",)

    description: Prompt
    completions: dict[str, RegisteredFunction]
    """The functions that suggest values, by argument."""

    def __init__(self, endpoint: RegisteredFunction, description: Prompt) -> None:
        super().__init__(endpoint, description)
        self.completions = {}


class Prompts(Registry[FunctionPrompt]):
    """The prompts of a server, by name."""

    def __init__(self, changed: Callable[[], None], in_loop: InLoop, edition: Edition) -> None:
        super().__init__("prompt", changed, in_loop, edition)

    def get(self, scope: RequestScope, request: GetPromptRequest) -> Any:
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
        return when_ready(
            prompt.endpoint.call(scope, keywords), lambda value: _prompt_result(value, prompt.description)
        )


def prompt_arguments(endpoint: RegisteredFunction) -> tuple[PromptArgument, ...]:
    """Return the arguments of a prompt's function as clients see them (PROM-02)."""
    return tuple(
        types.PromptArgument(parameter.name, parameter.description, parameter.required)
        for parameter in endpoint.binder.parameters
    )


def _prompt_result(value: Any, prompt: Prompt) -> GetPromptResult | InputRequired:
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
            raise TypeError(
                f"prompt {prompt.name}: a message must be text, content or a PromptMessage, not {item!r:.100}"
            )
        message = types.PromptMessage("user", block)
    if isinstance(message.content, EmbeddedResource) and message.content.resource.mime_type is None:
        raise TypeError(f"prompt {prompt.name}: a resource in a prompt must have a mime_type, not None")  # PROM-08
    return message


# ----------------------------------------------------------------------------------------------------------- completion
# Completion: suggestions for the arguments of prompts and of resource templates.

MOST_VALUES: Final = 100
"""How many values an answer may have (COMP-04)."""

Completed: TypeAlias = FunctionPrompt | FunctionTemplate


def best_matches(text: str, candidates: Iterable[str]) -> list[str]:
    """Return the candidates that fit a text, the best first: for completion functions (COMP-06, COMP-07).

    First those that begin with the text, then those that contain it, then those that contain its characters in order,
    as ``config`` does ``cfg``; each group in the given order. Case is ignored.
    """
    wanted = text.casefold()
    ranked: tuple[list[str], list[str], list[str]] = ([], [], [])
    for candidate in candidates:
        folded = candidate.casefold()
        if folded.startswith(wanted):
            ranked[0].append(candidate)
        elif wanted in folded:
            ranked[1].append(candidate)
        elif _is_scattered(wanted, folded):
            ranked[2].append(candidate)
    return [candidate for group in ranked for candidate in group]


def _is_scattered(wanted: str, text: str) -> bool:
    rest = iter(text)
    return all(character in rest for character in wanted)


class Completions:
    """The functions that suggest values. Each belongs to a prompt or template, and is removed with it."""

    def __init__(self, prompts: Prompts, resources: Resources, edition: Edition) -> None:
        self._edition = edition
        self._prompts = prompts
        self._resources = resources

    def __bool__(self) -> bool:
        """Whether any are registered, including those of disabled prompts and templates."""
        owners: list[Completed] = [*self._prompts.everything(), *self._resources.templates.everything()]
        return any(owner.completions for owner in owners)

    def add_to_prompt(self, name: str, argument: str, endpoint: RegisteredFunction) -> None:
        """Register the function for an argument of a prompt. Raises as ``Server.completion`` does."""
        prompt = self._prompts.entry(name)  # disabled ones too: they may be enabled later
        if prompt is None:
            raise ValueError(f"there is no prompt {name!r} to complete: register it first")
        _add(
            prompt,
            f"prompt {name!r}",
            [parameter.name for parameter in prompt.description.arguments],
            argument,
            endpoint,
        )
        self._edition.number += 1

    def add_to_template(self, template: str, variable: str, endpoint: RegisteredFunction) -> None:
        """Register the function for a variable of a template. Raises as ``Server.completion`` does."""
        entry = self._resources.templates.entry(template)
        if entry is None:
            raise ValueError(f"there is no resource template {template!r} to complete: register it first")
        _add(entry, f"resource template {template!r}", entry.template.variables, variable, endpoint)
        self._edition.number += 1

    def complete(self, scope: RequestScope, request: CompleteRequest) -> Any:
        """Serve ``completion/complete``. An argument without a function has no suggestions.

        Raises RequestError if the prompt, template or resource does not exist (COMP-05).
        """
        owner = self._owner(scope, request)
        if owner is not None and owner.mount is not None:
            return owner.mount.serve(scope, request)
        endpoint = None if owner is None else owner.completions.get(request.argument.name)
        if endpoint is None:
            return types.CompleteResult(types.Completion((), 0, False))
        chosen = {} if request.context is None else dict(request.context.arguments or {})
        names = [parameter.name for parameter in endpoint.binder.parameters]
        keywords = dict(zip(names, (request.argument.value, chosen), strict=False))
        return when_ready(endpoint.call(scope, keywords), lambda value: _completion_result(value, endpoint.binder.name))

    def _owner(self, scope: RequestScope, request: CompleteRequest) -> Completed | None:
        """Return the prompt or template that a request names; ``None`` for a resource at one URI."""
        reference = request.ref
        if isinstance(reference, types.PromptReference):
            prompt = self._prompts.find(reference.name, scope)
            if prompt is None:
                raise RequestError(ErrorCode.INVALID_PARAMS, f"Unknown prompt: {reference.name:.100}")
            return prompt
        entry = self._resources.templates.find(reference.uri, scope)
        if entry is None and self._resources.static.find(reference.uri, scope) is None:
            raise RequestError(ErrorCode.INVALID_PARAMS, f"Unknown resource template: {reference.uri:.200}")
        return entry


def _add(owner: Completed, noun: str, arguments: Iterable[str], argument: str, endpoint: RegisteredFunction) -> None:
    if argument not in arguments:
        raise ValueError(f"{noun} has no argument {argument!r}: it has {', '.join(arguments) or 'none'}")
    if argument in owner.completions:
        raise ValueError(f"there is a completion for {argument!r} of {noun} already")
    if not 1 <= len(endpoint.binder.parameters) <= 2:
        raise TypeError(f"{endpoint.binder.name}() must take the text so far, and at most the arguments chosen already")
    owner.completions[argument] = endpoint


def _completion_result(value: CompleteResult | Completion | Iterable[str], name: str) -> CompleteResult:
    """Return the result for a function's suggestions: the first ones, and their number (COMP-04)."""
    if isinstance(value, types.CompleteResult):
        return attrs.evolve(value, completion=_cut(value.completion))
    if isinstance(value, types.Completion):
        return types.CompleteResult(_cut(value))
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"{name}(): a completion must return a list of texts, not {value!r:.100}")
    values = tuple(value)
    return types.CompleteResult(_cut(types.Completion(values, len(values), False)))


def _cut(completion: Completion) -> Completion:
    if len(completion.values) <= MOST_VALUES:
        return completion
    total = len(completion.values) if completion.total is None else completion.total
    return attrs.evolve(completion, values=completion.values[:MOST_VALUES], total=total, has_more=True)
