"""Marks parameters that a function fills in: ``Annotated[Session, Depends(open_session)]``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Dependency", "Depends"]


class Dependency:
    """The function that gives a parameter its value."""

    __slots__ = ("function",)

    function: Callable[..., Any]
    """The function that makes the value."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __repr__(self) -> str:
        return f"Depends({getattr(self.function, '__qualname__', self.function)})"


def Depends(function: Callable[..., Any]) -> Any:  # noqa: N802  the name that other frameworks have for it
    """Name the function that gives a parameter its value: ``Annotated[Session, Depends(open_session)]``.

    It may also stand as the default: ``session: Session = Depends(open_session)``. The function is plain or async, or
    yields the value once and cleans up afterwards. Its own parameters are a ``Context`` and other dependencies. It is
    called once for a request, whoever depends on it; clients do not see it. Raises TypeError if it cannot be called.
    """
    if not callable(function):
        raise TypeError(f"Depends() takes a function, not its result: Depends(make), not {function!r:.100}")
    return Dependency(function)
