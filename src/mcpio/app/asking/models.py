"""Which model to take for what a server would like (SAMP-13)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcpio.types.sampling import ModelPreferences

__all__ = ["choose_model"]


def choose_model(preferences: ModelPreferences | None, names: Iterable[str]) -> str | None:
    """Return the name that the first hint to match any of them stands in, or ``None`` when no hint does (SAMP-18).

    ``names`` are the client's models, those it likes best first: of several that a hint matches the first is taken.
    Case makes no difference. Without a match it is for the priorities to say, or for the client: all of it is advice.
    """
    known = list(names)
    for hint in () if preferences is None else preferences.hints:
        if hint.name:
            part = hint.name.casefold()
            for name in known:
                if part in name.casefold():
                    return name
    return None
