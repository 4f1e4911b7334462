"""How a client answers what its server asks: by the callbacks that it was given, within what it declared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from mcpio import types  # those of a feature are loaded when a server asks for it
from mcpio.app.asking import fault_in_elicitation, fault_in_elicited, fault_in_sampling
from mcpio.app.context import RequestScope
from mcpio.app.settling import settle
from mcpio.errors import ErrorCode, RequestError

if TYPE_CHECKING:
    from mcpio.app.session import Handler
    from mcpio.types.elicitation import ElicitFormRequest, ElicitResult, ElicitURLRequest
    from mcpio.types.lifecycle import ClientCapabilities
    from mcpio.types.roots import ListRootsResult, Root
    from mcpio.types.sampling import CreateMessageRequest, CreateMessageResult

__all__ = ["Elicitor", "Rooter", "Sampler", "elicitation_handler", "roots_handler", "sampling_handler"]

Sampler: TypeAlias = (
    "Callable[[RequestScope, CreateMessageRequest], CreateMessageResult | Awaitable[CreateMessageResult]]"
)
"""Takes the scope of the request and what the server asks the model for, and returns the model's message."""
Elicitor: TypeAlias = (
    "Callable[[RequestScope, ElicitFormRequest | ElicitURLRequest], ElicitResult | Awaitable[ElicitResult]]"
)
"""Takes the scope of the request and what the server asks the user for, and returns what the user did."""
Rooter: TypeAlias = "Callable[[], Iterable[Root] | Awaitable[Iterable[Root]]]"
"""Returns the roots as they are now."""


def sampling_handler(sample: Sampler, capabilities: ClientCapabilities) -> Handler:
    """Return what serves ``sampling/createMessage``: the model never sees a request that breaks the rules."""

    def create_message(scope: RequestScope, request: CreateMessageRequest) -> Any:
        _refuse(fault_in_sampling(request, capabilities))
        return sample(scope, request)

    return create_message


def elicitation_handler(elicit: Elicitor, capabilities: ClientCapabilities) -> Handler:
    """Return what serves ``elicitation/create``: the user never sees a mode that was not declared."""

    def ask_user(scope: RequestScope, request: Any) -> Any:
        _refuse(fault_in_elicitation(request, capabilities))
        return settle(elicit(scope, request), lambda result: _elicited(result, request))

    return ask_user


def roots_handler(roots: Collection[Root] | Rooter) -> Handler:
    """Return what serves ``roots/list``. ``ValueError`` and ``TypeError`` for a list of what are no roots."""
    if callable(roots):
        current = roots
        return lambda _, __: settle(current(), _roots_result)
    if not isinstance(roots, Collection):
        raise TypeError(f"roots are a list, or a function that returns one, not {roots!r:.100}")
    result = _roots_result(roots)
    return lambda _, __: result


def _refuse(fault: str | None) -> None:
    if fault is not None:
        raise RequestError(ErrorCode.INVALID_PARAMS, f"Invalid params: {fault}")


def _elicited(result: Any, request: Any) -> Any:
    fault = fault_in_elicited(result, request) if isinstance(result, types.ElicitResult) else None
    if fault is not None:
        raise ValueError(f"the answer to elicitation/create: {fault}")
    return result


def _roots_result(roots: Iterable[Root]) -> ListRootsResult:
    """Return the result for roots. ``ValueError`` for one that is no ``file://`` URI (ROOT-02)."""
    found = tuple(roots)
    for root in found:
        if not isinstance(root, types.Root):
            raise TypeError(f"roots are Root objects, not {root!r:.100}")
        if not root.uri.startswith("file://"):
            raise ValueError(f"the URI of a root begins with file://, not {root.uri!r:.100}")
    return types.ListRootsResult(found)
