"""Completion: suggestions for the arguments of prompts and of resource templates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mcpio.app.context import Context
from mcpio.app.endpoint import settle
from mcpio.errors import ErrorCode, RequestError
from mcpio.types.completion import CompleteRequest, CompleteResult, Completion, PromptReference

__all__ = ["Completions"]

MOST = 100
"""How many values one answer may have (COMP-04)."""


class Completions:
    """The functions that suggest values, by reference and argument."""

    def __init__(self) -> None:
        self._functions: dict[tuple[str, str, str], Callable[..., Any]] = {}

    def __len__(self) -> int:
        return len(self._functions)

    def add(self, kind: str, key: str, argument: str, function: Callable[..., Any]) -> None:
        """Register what suggests values for an argument of a prompt (``"prompt"``) or template (``"resource"``)."""
        if (kind, key, argument) in self._functions:
            raise ValueError(f"there is a completion for {argument!r} of {kind} {key!r} already")
        self._functions[kind, key, argument] = function

    def complete(self, known: Callable[[str, str], bool], scope: Context, request: CompleteRequest) -> Any:
        """Serve ``completion/complete``. ``known`` tells whether there is such a prompt or template (COMP-05)."""
        kind, key = _target(request)
        if not known(kind, key):
            raise RequestError(ErrorCode.INVALID_PARAMS, f"Unknown {kind}: {key:.200}")
        function = self._functions.get((kind, key, request.argument.name))
        if function is None:
            return CompleteResult(Completion(()))
        chosen = {} if request.context is None else dict(request.context.arguments or {})
        return settle(function(request.argument.value, chosen), _result)


def _target(request: CompleteRequest) -> tuple[str, str]:
    reference = request.ref
    return ("prompt", reference.name) if isinstance(reference, PromptReference) else ("resource", reference.uri)


def _result(value: CompleteResult | Iterable[str]) -> CompleteResult:
    if isinstance(value, CompleteResult):
        return value
    values = tuple(value)
    return CompleteResult(Completion(values[:MOST], len(values), len(values) > MOST))
