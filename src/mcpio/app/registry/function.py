"""A registered function: called in the loop's thread, in another thread, or as a coroutine."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from mcpio.app.awaitables import check_nothing_waits, failure_of, is_of_kind, without_partial
from mcpio.app.contracts import HandlerScope
from mcpio.app.schema.signature import Binder

__all__ = ["RegisteredFunction"]


class RegisteredFunction:
    """A function, its signature, and the scopes that calling it needs.

    ``blocking`` runs a plain function in a thread; ``context`` is the class whose parameter is filled in. Raises
    TypeError, with advice, if the function is a generator, cannot be called with named values, or is async and
    ``blocking``.
    """

    __slots__ = ("_blocking", "binder", "function", "hides", "injection", "scopes", "visible")

    scopes: frozenset[str] | Callable[[Any], Iterable[str]] | None
    """The scopes that the token of a request needs, or a function of the typed request that returns them."""
    hides: bool
    """Whether to list the entry only for clients that have the scopes."""
    visible: Callable[[Any], bool] | None
    """Decides by a request's scope whether the entry exists for it; ``None`` if it exists for all."""
    injection: Callable[[HandlerScope, dict[str, Any]], Any] | None
    """Calls it with its dependencies too; ``None`` for a function without any."""

    def __init__(self, function: Callable[..., Any], *, blocking: bool, context: type) -> None:
        if not callable(function):
            raise TypeError(f"expected a function to register, got {function!r:.100}: options are given by name")
        if is_of_kind(inspect.isgeneratorfunction, function) or is_of_kind(inspect.isasyncgenfunction, function):
            raise TypeError(f"{_shown(function)} yields: return a list, and report on the way by Context.progress")
        if blocking and is_of_kind(inspect.iscoroutinefunction, function):
            raise TypeError(f"{_shown(function)} is async and does not block: leave blocking=True out")
        self.function: Callable[..., Any] = function
        self.binder: Binder = Binder(function, context=context)
        self._blocking = blocking
        self.scopes = None
        self.hides = False
        self.visible = None
        self.injection = None

    @property
    def name(self) -> str:
        """The function's name. Raises TypeError if it has none."""
        name = getattr(self.function, "__name__", None)
        if not isinstance(name, str) or name == "<lambda>":
            raise TypeError(f"{self.function!r:.100} has no name of its own: give name=")
        return name

    @property
    def takes_arguments_only(self) -> bool:
        """Whether it has neither a context nor dependencies."""
        return self.injection is None and self.binder.context_parameter is None

    def is_visible(self, scope: HandlerScope) -> bool:
        """Whether the entry exists for a request. If ``visible`` raises, it does not, and the exception is reported."""
        if self.visible is None:
            return True
        try:
            found = self.visible(scope)
            check_nothing_waits(found)
        except BaseException as error:
            scope.driving.report(f"visible= of {self.binder.name}() failed, so it is hidden", failure_of(error))
            return False
        return bool(found)

    def call(self, scope: HandlerScope, keywords: dict[str, Any]) -> Any:
        """Call the function with bound arguments. Returns its result, or an awaitable of it."""
        if self.injection is not None:
            return self.injection(scope, keywords)
        if self.binder.context_parameter is not None:
            keywords[self.binder.context_parameter] = scope.driving.for_thread() if self._blocking else scope
        if self._blocking:
            return scope.run_in_thread(partial(self.function, **keywords))
        return self.function(**keywords)


def _shown(function: Any) -> str:
    function = without_partial(function)
    return f"{getattr(function, '__qualname__', None) or type(function).__qualname__}()"
