from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest
from linked import Link

from mcpio.app.context import Context
from mcpio.app.registry.base import RegisteredFunction
from mcpio.app.server import Server


class Doubler:
    """Doubles."""

    def __init__(self, factor: int = 2) -> None:
        self.factor = factor

    def method(self, value: int) -> int:
        return value * self.factor

    async def waits(self, value: int) -> int:
        return value * self.factor

    def __call__(self, value: int) -> int:
        return value * self.factor


class Waiter:
    async def __call__(self, value: int) -> int:
        return value * 2


def plain(value: int) -> int:
    return value * 2


def with_context(value: int, ctx: Context) -> tuple[int, Context]:
    return value * 2, ctx


def more(factor: int, value: int) -> int:
    return value * factor


SCOPE: Any = object()


@pytest.mark.parametrize(
    "function",
    [plain, Doubler().method, Doubler(), partial(more, 2), partial(Doubler().method), lambda value: value * 2],
)
def test_plain_function_is_called_inline(function: Callable[..., Any]) -> None:
    endpoint = RegisteredFunction(function, blocking=False, context=Context)
    assert endpoint.call(SCOPE, {"value": 21}) == 42
    assert [parameter.name for parameter in endpoint.binder.parameters][-1] == "value"


@pytest.mark.parametrize("function", [Doubler().waits, Waiter(), partial(Doubler().waits)])
def test_async_function_returns_a_coroutine(function: Callable[..., Any]) -> None:
    assert asyncio.run(RegisteredFunction(function, blocking=False, context=Context).call(SCOPE, {"value": 21})) == 42


def test_context_argument_is_passed() -> None:
    endpoint = RegisteredFunction(with_context, blocking=False, context=Context)
    assert [parameter.name for parameter in endpoint.binder.parameters] == ["value"]
    assert endpoint.call(SCOPE, {"value": 1}) == (2, SCOPE)


def test_blocking_function_runs_in_a_thread() -> None:
    server = Server("s")
    turns = []

    @server.tool(blocking=True)
    def blocks(value: int, ctx: Context) -> int:
        turns.append("in the thread")
        ctx.progress(1)
        return value * 2

    link = Link(server)
    result = link.client.call_tool("blocks", {"value": 21}, on_progress=lambda *report: turns.append("progress"))
    assert link.do(result).structured_content == {"result": 42}
    assert turns == ["in the thread", "progress"]


@pytest.mark.parametrize(
    ("function", "name"), [(plain, "plain"), (Doubler().method, "method"), (Doubler().waits, "waits")]
)
def test_name_of_each_callable(function: Callable[..., Any], name: str) -> None:
    assert RegisteredFunction(function, blocking=False, context=Context).name == name


@pytest.mark.parametrize("function", [lambda value: value, partial(plain), Doubler()])
def test_callable_without_a_name_needs_one(function: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"has no name of its own: give name=$"):
        _ = RegisteredFunction(function, blocking=False, context=Context).name


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (Doubler().waits, "Doubler.waits"),
        (partial(Doubler().waits), "Doubler.waits"),
        (Waiter(), "Waiter"),
    ],
)
def test_blocking_async_function_is_refused(function: Callable[..., Any], name: str) -> None:
    with pytest.raises(TypeError, match=rf"^{name}\(\) is async and does not block: leave blocking=True out$"):
        RegisteredFunction(function, blocking=True, context=Context)


def yields() -> Iterator[int]:
    yield 1


async def yields_later() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("function", [yields, yields_later, partial(yields)])
def test_generator_function_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"^yields\w*\(\) yields: return a list, and report on the way by Context"):
        RegisteredFunction(function, blocking=False, context=Context)


@pytest.mark.parametrize("value", ["echo", 5, None])
def test_non_callable_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^the handler must be a function, not .*: options are given by name$"):
        RegisteredFunction(value, blocking=False, context=Context)


def test_unbound_method_is_refused() -> None:
    with pytest.raises(TypeError, match="register the method of an instance"):
        RegisteredFunction(Doubler.method, blocking=False, context=Context)
