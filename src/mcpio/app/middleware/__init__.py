"""Middleware for incoming and outgoing requests: one mechanism for both.

A middleware is an async function of three parameters: the scope of the request, the typed request, and the function
that passes it on. It returns the typed result::

    async def timing(ctx, request, call_next):
        began = ctx.now()
        try:
            return await call_next(request)
        finally:
            print(ctx.method, ctx.now() - began)

It may pass on another request, return another result, pass nothing on, or pass it on several times. An exception has
the same effect as one of the handler: ``Refusal`` and ``RequestError`` are the answer, others an internal error.

A request that becomes a task passes through twice: once as the request, whose result is the task, and once as the work
of the task, with ``ctx.task`` set and its real result.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from mcpio._checks import called
from mcpio.app.contracts import CallNext, Handler, Middleware
from mcpio.app.runtime import is_awaitable, is_of_kind

__all__ = ["CallNext", "Middleware", "checked_middleware", "wrapped"]


def checked_middleware(middleware: Iterable[Any]) -> tuple[Middleware, ...]:
    """Return middleware as a tuple, the outermost first. Raises TypeError if one is not an async function."""
    if not isinstance(middleware, Iterable):
        raise TypeError(f"middleware must be a list, not {middleware!r:.100}")
    layers = tuple(middleware)
    for layer in layers:
        if not is_of_kind(inspect.iscoroutinefunction, layer):
            raise TypeError(f"middleware must be an async function of (ctx, request, call_next), not {layer!r:.100}")
        called("middleware", layer, "(ctx, request, call_next)")
    return layers


def wrapped(handler: Handler, layers: Sequence[Middleware]) -> Handler:
    """Return a handler that passes through the layers, the outermost first, and then to ``handler``."""
    for layer in reversed(layers):
        handler = partial(_pass_through, layer, handler)
    return handler


async def _pass_through(layer: Middleware, inner: Handler, scope: Any, request: Any) -> Any:
    async def call_next(request: Any) -> Any:
        result = inner(scope, request)
        return await result if is_awaitable(result) else result

    return await layer(scope, request, call_next)
