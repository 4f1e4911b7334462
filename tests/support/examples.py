"""How many examples hypothesis draws."""

from __future__ import annotations

from hypothesis import settings

__all__ = ["examples"]


def examples(count: int) -> int:
    """Return ``count``, times twenty with ``--hypothesis-profile=explore``: a count of its own hides the profile's."""
    most = settings.default.max_examples if settings.default is not None else 100
    return count * most // 100
