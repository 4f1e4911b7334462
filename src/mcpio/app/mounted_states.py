"""The values that the lifespans of a server and of its mounted servers yielded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

__all__ = ["MountedStates", "own_state"]


@attrs.frozen
class MountedStates:
    """The state of a server, and those of the servers that are mounted in it."""

    own: Any
    mounted: Mapping[Any, Any]
    """The states by server; of those that have a lifespan."""


def own_state(state: Any) -> Any:
    """Return a server's own state, from the values that the lifespans yielded."""
    return state.own if state.__class__ is MountedStates else state
