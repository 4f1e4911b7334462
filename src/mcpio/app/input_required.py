"""The result of a handler that asks its client first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from mcpio.methods import method_of

__all__ = ["InputRequired"]


@attrs.frozen
class InputRequired:
    """A handler's result that asks the client first, and has the handler called again with ``Context.answers``.

    For handlers that know their questions beforehand; others use ``Context.elicit`` and its like. Both eras serve it.
    Raises ValueError with neither requests nor a state, and TypeError for values of other types.
    """

    requests: Mapping[str, Any] = attrs.field(factory=dict)
    """The requests by names that you choose: ``ElicitFormRequest``, ``ElicitURLRequest``, ``CreateMessageRequest`` and
    ``ListRootsRequest``."""
    state: bytes | None = None
    """Returned as ``Context.request_state`` when the handler is called again. The client can read it, unless the
    server's ``RequestStates`` encrypt."""

    def __attrs_post_init__(self) -> None:
        if not self.requests and self.state is None:
            raise ValueError("InputRequired takes requests, a state, or both")
        if self.state is not None and not isinstance(self.state, bytes):
            raise TypeError(f"state= takes bytes, not {self.state!r:.60}")
        requests: Mapping[Any, Any] = self.requests
        for key, request in requests.items():
            if not isinstance(key, str) or not _is_question(request):
                raise TypeError(
                    f"requests= takes requests to a client by their names, not {key!r:.60}: {request!r:.60}"
                )


def _is_question(request: Any) -> bool:
    try:
        return method_of(request.__class__).embedded
    except KeyError:
        return False
