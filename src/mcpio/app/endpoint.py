"""A function of the author's that serves requests: called here, in a thread, or as a coroutine."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mcpio.app.context import Context
from mcpio.app.signature import Binder

__all__ = ["Endpoint", "settle"]


class Endpoint:
    """One function, with what it takes."""

    __slots__ = ("_blocking", "binder", "function")

    def __init__(self, function: Callable[..., Any], *, blocking: bool) -> None:
        """``blocking`` runs a plain function in a thread. Raises ``TypeError`` for what cannot be called by name."""
        if blocking and inspect.iscoroutinefunction(function):
            raise TypeError(f"{function.__qualname__}: an async function does not block; leave blocking=True out")
        self.function = function
        self.binder = Binder(function, context=Context)
        self._blocking = blocking

    def call(self, scope: Context, arguments: Mapping[str, Any]) -> Any:
        """Bind JSON values and call. Returns what the function returns, or a coroutine for it."""
        return self._call(scope, self.binder.bind(arguments))

    def call_with_text(self, scope: Context, arguments: Mapping[str, str | list[str]]) -> Any:
        """Bind values that came as text and call, as ``call`` does."""
        return self._call(scope, self.binder.bind_text(arguments))

    def _call(self, scope: Context, keywords: dict[str, Any]) -> Any:
        if self.binder.context_parameter is not None:
            keywords[self.binder.context_parameter] = scope
        if self._blocking:
            scope.enter_thread()
            return scope.run_in_thread(partial(self.function, **keywords))
        return self.function(**keywords)


def settle(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Return ``convert(value)``, or a coroutine for it where ``value`` is one."""
    return _settled(value, convert) if inspect.isawaitable(value) else convert(value)


async def _settled(value: Any, convert: Callable[[Any], Any]) -> Any:
    return convert(await value)
