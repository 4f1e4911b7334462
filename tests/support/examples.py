"""How many examples hypothesis draws."""

from __future__ import annotations

from hypothesis import settings

__all__ = ["examples"]


def examples(count: int) -> int:
    """Return ``count`` in the profile "steady", and in proportion in the others: a count of its own hides theirs."""
    most = settings.default.max_examples if settings.default is not None else 100
    return max(1, count * most // 100)
