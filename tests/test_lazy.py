from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

import mcpio
from mcpio._lazy import lazy_names


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a package of two modules, none of which is imported."""
    found = ModuleType("mcpio_example")
    for name in ("first", "second"):
        part = ModuleType(f"mcpio_example.{name}")
        part.__dict__.update({"Apple": 1, "Pear": 2} if name == "first" else {"Plum": 3})
        monkeypatch.setitem(sys.modules, part.__name__, part)
    monkeypatch.setitem(sys.modules, "mcpio_example", found)
    names, look_up, listed = lazy_names("mcpio_example", {"second": "Plum", "first": "Apple Pear"})
    vars(found).update(__all__=names, __getattr__=look_up, __dir__=listed)
    return found


def test_name_is_resolved_once(package: ModuleType) -> None:
    assert "Plum" not in vars(package)
    assert (package.Apple, package.Pear, package.Plum) == (1, 2, 3)
    assert vars(package)["Plum"] == 3


def test_dir_shows_names_before_they_are_looked_up(package: ModuleType) -> None:
    assert package.__all__ == ["Apple", "Pear", "Plum"]
    assert {"Apple", "Pear", "Plum", "__name__"} <= set(dir(package))


def test_an_unknown_name_is_an_attribute_error(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match=r"^module 'mcpio_example' has no attribute 'Cherry'$"):
        _ = package.Cherry


def test_foreign_name_raises_an_error_with_its_package() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'open_stdio': it is in mcpio.trio and mcpio.asyncio$"):
        _ = mcpio.open_stdio  # type: ignore[attr-defined]  # what is shown


def test_names_are_where_the_errors_of_the_package_say() -> None:
    lookup: Any = vars(mcpio)["__getattr__"]
    others = inspect.getclosurevars(lookup).nonlocals["others"]
    assert len(others) > 20
    for name, places in others.items():
        for package in re.findall(r"mcpio\.(?!asgi)\w+", places):
            assert name in importlib.import_module(package).__all__, (name, package)


def test_importing_the_module_imports_nothing_else() -> None:
    program = "import sys; before = set(sys.modules); import mcpio._lazy; print(*sorted(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["__future__", "mcpio", "mcpio._lazy"]
