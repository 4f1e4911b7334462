"""The annotation of parameters that a function fills in: ``Annotated[Session, Depends(open_session)]``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Depends"]


class Depends:
    """Names the function that gives a parameter its value: ``Annotated[Session, Depends(open_session)]``.

    The function is plain or async, or yields the value once and cleans up afterwards. Its own parameters are a
    ``Context`` and other dependencies. It is called once for a request, whoever depends on it; clients do not see it.
    Raises TypeError if ``function`` cannot be called.
    """

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise TypeError(f"Depends() takes a function, not its result: Depends(make), not {function!r:.100}")
        self.function: Callable[..., Any] = function
        """The function that makes the value."""

    def __repr__(self) -> str:
        return f"Depends({getattr(self.function, '__qualname__', self.function)})"
