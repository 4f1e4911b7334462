"""Names that are looked up when they are first used."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from mcpio._lazy import names_by_use


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a package of two modules, none of which is imported."""
    found = ModuleType("mcpio_example")
    for name in ("first", "second"):
        part = ModuleType(f"mcpio_example.{name}")
        part.__dict__.update({"Apple": 1, "Pear": 2} if name == "first" else {"Plum": 3})
        monkeypatch.setitem(sys.modules, part.__name__, part)
    monkeypatch.setitem(sys.modules, "mcpio_example", found)
    look_up, names = names_by_use("mcpio_example", {"first": "Apple Pear", "second": "Plum"})
    vars(found).update(__getattr__=look_up, __dir__=names)
    return found


def test_a_name_is_looked_up_once(package: ModuleType) -> None:
    assert "Plum" not in vars(package)
    assert (package.Apple, package.Pear, package.Plum) == (1, 2, 3)
    assert vars(package)["Plum"] == 3


def test_names_are_there_before_they_are_looked_up(package: ModuleType) -> None:
    assert {"Apple", "Pear", "Plum", "__name__"} <= set(dir(package))


def test_a_name_that_there_is_not(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match=r"^module 'mcpio_example' has no attribute 'Cherry'$"):
        _ = package.Cherry
