"""Dependencies of handlers: functions that give parameters their values, called in order, once for each request."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from copy import copy
from enum import Enum, auto
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from mcpio.app.registry.base import RegisteredFunction
from mcpio.app.runtime import is_awaitable, is_of_kind, settled, without_partial
from mcpio.app.schema.signature import injected_parameters, name_of

if TYPE_CHECKING:
    from mcpio.app.context import RequestScope

__all__ = ["Injection", "Injector", "replacing"]


class _Kind(Enum):
    """The value that a dependency's function returns."""

    VALUE = auto()
    MANAGER = auto()
    ASYNC_MANAGER = auto()


class _Step:
    """One call of a dependency's function. ``inputs`` are the earlier steps whose values it takes, by parameter."""

    __slots__ = ("context_parameter", "function", "inputs", "kind")

    def __init__(
        self, function: Callable[..., Any], kind: _Kind, context_parameter: str | None, inputs: dict[str, int]
    ) -> None:
        self.function = function
        self.kind = kind
        self.context_parameter = context_parameter
        self.inputs = inputs

    async def value(self, scope: RequestScope, earlier: list[Any], stack: AsyncExitStack) -> Any:
        """Return the value of the dependency. Its cleanup, if any, goes on the exit stack."""
        keywords = {name: earlier[index] for name, index in self.inputs.items()}
        if self.context_parameter is not None:
            keywords[self.context_parameter] = scope
        value = self.function(**keywords)
        if self.kind is _Kind.MANAGER:
            return stack.enter_context(value)
        if self.kind is _Kind.ASYNC_MANAGER:
            return await stack.enter_async_context(value)
        return await value if is_awaitable(value) else value


class _Plan:
    """The steps that a handler needs, in the order of their dependencies. One function is one step."""

    def __init__(
        self, handler: RegisteredFunction, context: type, replaced: Mapping[Callable[..., Any], Callable[..., Any]]
    ) -> None:
        """Raise TypeError, with the functions, for a cycle or a function that cannot be called."""
        self._context = context
        self._replaced = replaced
        self._indexes: dict[Callable[..., Any], int] = {}
        self.steps: list[_Step] = []
        self.inputs: dict[str, int] = self._inputs(handler.binder.dependencies, [handler.binder.name])

    @property
    def functions(self) -> Iterator[Callable[..., Any]]:
        """The functions of the steps, as ``Depends`` names them."""
        return iter(self._indexes)

    def _inputs(self, dependencies: Mapping[str, Callable[..., Any]], path: list[Any]) -> dict[str, int]:
        return {name: self._index(function, path) for name, function in dependencies.items()}

    def _index(self, function: Callable[..., Any], path: list[Any]) -> int:
        """Return the step of a function, after adding it where it is new. ``path`` leads to it from the handler."""
        if function in self._indexes:
            return self._indexes[function]
        if function in path:
            cycle = [*path[path.index(function) :], function]
            raise TypeError(
                f"{path[0]}(): dependencies form a cycle: {' -> '.join(f'{name_of(it)}()' for it in cycle)}"
            )
        dependency = self._replaced.get(function, function)
        context_parameter, dependencies = injected_parameters(dependency, self._context)
        inputs = self._inputs(dependencies, [*path, function])
        self.steps.append(_Step(*_entered(dependency), context_parameter, inputs))
        self._indexes[function] = len(self.steps) - 1
        return self._indexes[function]


class Injection:
    """Calls a handler with its dependencies."""

    __slots__ = ("__weakref__", "endpoint", "plan")

    endpoint: RegisteredFunction
    """The handler, without this injection."""
    plan: _Plan
    """The dependencies, in order."""

    def __init__(self, endpoint: RegisteredFunction, plan: _Plan) -> None:
        self.endpoint = endpoint
        self.plan = plan

    async def call(self, scope: RequestScope, keywords: dict[str, Any]) -> Any:
        """Call the dependencies and then the handler; close the dependencies, the last one first."""
        plan = self.plan
        stack: AsyncExitStack[bool] = AsyncExitStack()
        async with stack:
            values: list[Any] = []
            for step in plan.steps:
                values.append(await step.value(scope, values, stack))
            # Whatever a client sent under these names is overwritten.
            keywords.update((name, values[index]) for name, index in plan.inputs.items())
            return await settled(self.endpoint.call(scope, keywords))
        name = self.endpoint.binder.name
        raise RuntimeError(
            f"a dependency of {name}() caught the exception that ended it: raise it again when cleaned up"
        )


class Injector:
    """The dependencies of one server's handlers, and the functions that replace them in tests."""

    __slots__ = ("_context", "_injections", "_replaced")

    def __init__(self, context: type) -> None:
        """``context`` is the class of the parameter that gets the request's scope."""
        self._context = context
        self._replaced: Mapping[Callable[..., Any], Callable[..., Any]] = {}
        # Those of handlers that were removed leave with them.
        self._injections: WeakSet[Injection] = WeakSet()

    def inject(self, endpoint: RegisteredFunction) -> None:
        """Pass the dependencies of a handler to it when it is called.

        Raises TypeError if they form a cycle, or a function of theirs cannot be called.
        """
        plain = copy(endpoint)
        injection = Injection(plain, _Plan(plain, self._context, self._replaced))
        endpoint.inject(injection.call)
        self._injections.add(injection)

    @property
    def functions(self) -> set[Callable[..., Any]]:
        """The functions that handlers depend on."""
        return {function for injection in self._injections for function in injection.plan.functions}

    @property
    def replaced(self) -> Mapping[Callable[..., Any], Callable[..., Any]]:
        """The functions that are called in place of others now."""
        return self._replaced

    @replaced.setter
    def replaced(self, functions: Mapping[Callable[..., Any], Callable[..., Any]]) -> None:
        self._replaced = functions
        for injection in self._injections:
            injection.plan = _Plan(injection.endpoint, self._context, functions)


@contextmanager
def replacing(
    injectors: Iterable[Injector], functions: Mapping[Callable[..., Any], Callable[..., Any]]
) -> Iterator[None]:
    """Context manager that replaces functions of dependencies: see ``Server.overrides``."""
    before = {injector: injector.replaced for injector in injectors}
    dependencies = set[Callable[..., Any]]().union(*(injector.functions for injector in before))
    for function, other in functions.items():
        if function not in dependencies:
            raise ValueError(f"no handler depends on {name_of(function)}(); there are {_names(dependencies)}")
        if not callable(other):
            raise TypeError(f"{name_of(function)}() must be replaced by a function, not by {other!r:.100}")
    try:
        for injector, replaced in before.items():
            injector.replaced = {**replaced, **functions}
        yield
    finally:
        for injector, replaced in before.items():
            injector.replaced = replaced


def _names(functions: Iterable[Callable[..., Any]]) -> str:
    return ", ".join(sorted(f"{name_of(each)}()" for each in functions)) or "none"


def _entered(function: Callable[..., Any]) -> tuple[Callable[..., Any], _Kind]:
    """Return what to call for a dependency, and what that returns: a function that yields becomes a context manager."""
    if is_of_kind(inspect.isasyncgenfunction, function):
        return asynccontextmanager(function), _Kind.ASYNC_MANAGER
    if is_of_kind(inspect.isgeneratorfunction, function):
        return contextmanager(function), _Kind.MANAGER
    inner = inspect.unwrap(without_partial(function))
    if inspect.isasyncgenfunction(inner):
        return function, _Kind.ASYNC_MANAGER  # decorated by asynccontextmanager
    if inspect.isgeneratorfunction(inner):
        return function, _Kind.MANAGER
    return function, _Kind.VALUE
