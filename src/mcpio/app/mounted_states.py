"""What the lifespans of a server and of the servers mounted in it yielded."""

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
    """Return the state of a server itself, from what its lifespan yielded."""
    return state.own if state.__class__ is MountedStates else state
