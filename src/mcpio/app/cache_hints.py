"""Cache hints for clients of the stateless era: how long, and in which caches, a result may be kept."""

from __future__ import annotations

from typing import Any, get_args

import attrs

from mcpio._checks import is_amount
from mcpio.types.messages import CacheScope

__all__ = ["CacheHint"]


def _check_ttl(_: object, __: object, ttl: Any) -> None:
    if not is_amount(ttl):
        raise ValueError(f"ttl= takes a number of seconds, 0 or more, not {ttl!r:.100}")


def _check_scope(_: object, __: object, scope: Any) -> None:
    if scope not in get_args(CacheScope):
        raise ValueError(f"scope= takes 'private' or 'public', not {scope!r:.100}")


@attrs.frozen
class CacheHint:
    """How long, and in which caches, clients may reuse a result (CACHE-01). By default, never.

    Notifications of changes end it early, for clients that listen. Raises ValueError for other values.
    """

    ttl: float = attrs.field(default=0.0, validator=_check_ttl)
    """How many seconds the result stays fresh."""
    scope: CacheScope = attrs.field(default="private", validator=_check_scope)
    """``"public"`` if a shared cache may serve the result to any client; ``"private"`` if not. This is not access
    control, which the server has to enforce itself (CACHE-09)."""

    @property
    def members(self) -> dict[str, Any]:
        """The members of a result that say so."""
        return {"ttl_ms": int(self.ttl * 1000), "cache_scope": self.scope}
