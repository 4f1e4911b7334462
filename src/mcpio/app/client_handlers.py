"""The client's handlers of its server's requests: they call the program's callbacks, and check the answers.

The engine refuses requests that the client did not declare, before a handler is called.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from mcpio import types  # the types of a feature are loaded when the server uses it
from mcpio.app.awaitables import when_ready
from mcpio.app.context import RequestScope
from mcpio.errors import InvalidMessage

if TYPE_CHECKING:
    from mcpio.app.contracts import Handler
    from mcpio.types.elicitation import ElicitFormRequest, ElicitResult, ElicitSchema, ElicitURLRequest
    from mcpio.types.roots import ListRootsResult, Root
    from mcpio.types.sampling import CreateMessageRequest, CreateMessageResult

__all__ = ["Elicitor", "RootsProvider", "Sampler", "elicitation_handler", "roots_handler", "sampling_handler"]

Sampler: TypeAlias = (
    "Callable[[RequestScope, CreateMessageRequest], CreateMessageResult | Awaitable[CreateMessageResult]]"
)
"""Takes the scope of the request and the typed request, and returns the model's message."""
Elicitor: TypeAlias = (
    "Callable[[RequestScope, ElicitFormRequest | ElicitURLRequest], ElicitResult | Awaitable[ElicitResult]]"
)
"""Takes the scope of the request and the typed request, and returns the user's answer."""
RootsProvider: TypeAlias = "Callable[[], Iterable[Root] | Awaitable[Iterable[Root]]]"
"""Returns the current roots."""


def sampling_handler(sample: Sampler) -> Handler:
    """Return the handler of ``sampling/createMessage``. It checks the model's message (SAMP-08)."""

    def create_message(scope: RequestScope, request: CreateMessageRequest) -> Any:
        return when_ready(sample(scope, request), lambda result: _sampled(result, request))

    return create_message


def elicitation_handler(elicit: Elicitor, visited: Callable[[str], object]) -> Handler:
    """Return the handler of ``elicitation/create``.

    An accepted form gets the defaults of missing fields (ELIC-09), as far as they fit, and is only sent if it fits
    (ELIC-12). ``visited`` is called with the id of each elicitation at a web address before the user is asked.
    """

    def ask_user(scope: RequestScope, request: Any) -> Any:
        # In the stateless era it has no id: the server itself finds out when the user is done (MRTR-15).
        if isinstance(request, types.ElicitURLRequest) and request.elicitation_id is not None:
            visited(request.elicitation_id)
        return when_ready(elicit(scope, request), lambda result: _elicited(result, request))

    return ask_user


def roots_handler(roots: Collection[Root] | RootsProvider) -> Handler:
    """Return the handler of ``roots/list``. Raises ValueError or TypeError for a list of invalid roots."""
    if callable(roots):
        current = roots
        return lambda _, __: when_ready(current(), _roots_result)
    if not isinstance(roots, Collection):
        raise TypeError(f"roots= takes a list, or a function that returns one, not {roots!r:.100}")
    result = _roots_result(roots)
    return lambda _, __: result


def _sampled(result: Any, request: CreateMessageRequest) -> Any:
    from mcpio.app.sampling import fault_in_sampled

    fault = fault_in_sampled(result, request) if isinstance(result, types.CreateMessageResult) else None
    if fault is not None:
        raise ValueError(f"the answer to sampling/createMessage: {fault}")
    return result


def _elicited(result: Any, request: Any) -> Any:
    if not isinstance(result, types.ElicitResult):
        return result  # the engine reports what is wrong with it
    from mcpio.app.elicitation import check_content, defaults_of, fault_in_elicited

    fault = fault_in_elicited(result, request)
    if fault is not None:
        raise ValueError(f"the answer to elicitation/create: {fault}")
    if result.action != "accept" or request.mode != "form":
        return result
    form, given = request.requested_schema, result.content or {}
    # Some servers have defaults that their own forms refuse, such as no text for an address: the user did not enter it.
    fitting = {
        name: value for name, value in defaults_of(form).items() if name not in given and _fits(form, name, value)
    }
    content = {**fitting, **given}
    try:
        check_content(form, content)
    except InvalidMessage as error:
        raise ValueError(f"the answer to elicitation/create: {error}") from None
    return attrs.evolve(result, content=content)


def _fits(form: ElicitSchema, name: str, value: Any) -> bool:
    from mcpio.app.elicitation import check_content

    try:
        check_content(types.ElicitSchema({name: form.properties[name]}), {name: value})
    except InvalidMessage:
        return False
    return True


def _roots_result(roots: Iterable[Root]) -> ListRootsResult:
    """Return the result for roots. Raises ValueError if one is not a ``file://`` URI (ROOT-02)."""
    from mcpio.types.roots import fault_in_root

    found = tuple(roots)
    for root in found:
        if not isinstance(root, types.Root):
            raise TypeError(f"roots= takes Root objects, not {root!r:.100}")
        if (fault := fault_in_root(root.uri)) is not None:
            raise ValueError(f"roots= takes roots: the URI {fault}")
    return types.ListRootsResult(found)
