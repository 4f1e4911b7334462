"""Optional packages: each extra is guarded where it is imported, by an error that says how to install it."""

from __future__ import annotations

from contextlib import contextmanager

TYPE_CHECKING = False
"""As in ``typing``, which most users of an extra need not import for this."""

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["extra"]


@contextmanager
def extra(name: str, needed_by: str) -> Iterator[None]:
    """Context manager around the imports of an extra.

    ``name`` is the extra's name in pyproject.toml, ``needed_by`` what the program asked for: a module, a class or an
    argument. Raises ImportError in place of ModuleNotFoundError.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or name).partition(".")[0]
        raise ImportError(f"{needed_by} needs {package}: install mcpio[{name}]", name=error.name) from error
