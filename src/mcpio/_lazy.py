"""Packages whose names are looked up, and their modules imported, when they are first used (PEP 562)."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
"""As in ``typing``, whose import would take longer than everything that ``import mcpio`` does."""

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, modules: Mapping[str, str], elsewhere: Mapping[str, str] | None = None
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__all__``, ``__getattr__`` and ``__dir__`` of a package.

    ``modules`` has the names of each of its modules, separated by spaces; a module of a package beside it begins with a
    dot. ``elsewhere`` has names that users look for in this package, by where they are, such as "mcpio.trio and
    mcpio.asyncio". A package calls this where type checkers do not look: a ``__getattr__`` would tell them that every
    misspelt name exists. They see the same names imported in the other branch of ``if TYPE_CHECKING``, and a test holds
    the two together.
    """
    homes = {name: module for module, names in modules.items() for name in names.split()}
    others = {name: home for home, names in (elsewhere or {}).items() for name in names.split()}

    def look_up(name: str) -> Any:
        module = homes.get(name)
        if module is None:
            hint = f": it is in {others[name]}" if name in others else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        from importlib import import_module

        value = getattr(import_module(f".{module}", package), name)
        setattr(sys.modules[package], name, value)  # so that it is looked up once
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return sorted(homes), look_up, names
