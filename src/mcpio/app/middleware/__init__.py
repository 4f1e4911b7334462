"""What stands around requests: those that a session serves, and those that a client sends. One mechanism for both.

A middleware is an async function of three parameters: what it may know of the request, the typed request, and the
function that goes on with it. It returns the typed result::

    async def timing(ctx, request, call_next):
        began = ctx.now()
        try:
            return await call_next(request)
        finally:
            print(ctx.method, ctx.now() - began)

It may go on with another request, return another result, not go on at all, or go on several times. What it raises is
what the handler would have raised: ``Refusal`` and ``RequestError`` are the answer, anything else an internal error.

A request that becomes a task goes through twice: once by itself, with the task for its result, and once more as the
work of the task, with ``ctx.task`` set and its real result.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from mcpio.app.awaitables import is_awaitable, is_of_kind
from mcpio.engine.payloads import method_to_send
from mcpio.methods import Kind

if TYPE_CHECKING:
    from mcpio.app.client import Client
    from mcpio.app.session import Handler

__all__ = ["CallNext", "Middleware", "OutgoingCall", "checked_middleware", "send_through", "wrapped"]

CallNext: TypeAlias = Callable[[Any], Awaitable[Any]]
"""Takes the request to go on with, and returns its typed result."""
Middleware: TypeAlias = Callable[[Any, Any, CallNext], Awaitable[Any]]
"""An async function, or an object with an async ``__call__``. Its first argument is the ``Context`` of a request that a
server serves, the ``RequestScope`` of one that a client serves, and the ``OutgoingCall`` of one that a client sends."""


class OutgoingCall:
    """One request that a client sends, as middleware sees it."""

    __slots__ = ("method", "retry", "session")

    method: str
    """The request's method."""
    session: Client
    """The client that sends it."""
    retry: bool | None
    """What the caller said about sending it again: ``None`` for nothing."""

    def __init__(self, method: str, session: Client, retry: bool | None) -> None:
        self.method = method
        self.session = session
        self.retry = retry

    def now(self) -> float:
        """Return the time, in seconds on the clock of whatever carries the session."""
        return self.session.driver.now()


def checked_middleware(found: Iterable[Any]) -> tuple[Middleware, ...]:
    """Return middleware, the outermost first. ``TypeError`` says what to do about what is none."""
    layers = tuple(found)
    for layer in layers:
        if not is_of_kind(inspect.iscoroutinefunction, layer):
            raise TypeError(f"middleware is an async function of (ctx, request, call_next), not {layer!r:.100}")
    return layers


def wrapped(handler: Handler, layers: Sequence[Middleware]) -> Handler:
    """Return a handler that goes through the layers, the outermost first, and then to ``handler``."""
    for layer in reversed(layers):
        handler = partial(_through, layer, handler)
    return handler


async def send_through(
    layers: Sequence[Middleware],
    client: Client,
    request: Any,
    retry: bool | None,
    send: Callable[[Any], Coroutine[Any, Any, Any]],
) -> Any:
    """Send a client's request through the layers, and return its result. ``LocalProtocolError`` for no request."""
    method = method_to_send(request, Kind.REQUEST)
    call = OutgoingCall(request.method if method is None else method.name, client, retry)
    return await wrapped(lambda _, changed: send(changed), layers)(call, request)


async def _through(layer: Middleware, inner: Handler, scope: Any, request: Any) -> Any:
    async def call_next(request: Any) -> Any:
        result = inner(scope, request)
        return await result if is_awaitable(result) else result

    return await layer(scope, request, call_next)
