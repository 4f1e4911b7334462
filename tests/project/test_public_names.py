"""The public surface: every name exists and says what it is, has one home, and looks the same from every side."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections import defaultdict
from pathlib import Path

import pytest
from tree import modules, settings

MODULES = settings()["tool"]["mcpio"]["public-modules"]
LAZY = [name for name, path in modules().items() if re.search(r"__all__, __getattr__, __dir__ =", path.read_text())]


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_exists_once(name: str) -> None:
    module = importlib.import_module(name)
    assert len(set(module.__all__)) == len(module.__all__)
    assert [public for public in module.__all__ if not hasattr(module, public)] == []
    assert [public for public in module.__all__ if public.startswith("_") and public != "__version__"] == []


@pytest.mark.parametrize("name", MODULES)
def test_every_public_class_and_function_has_a_docstring(name: str) -> None:
    module = importlib.import_module(name)
    values = [getattr(module, public) for public in module.__all__]
    named = [value for value in values if inspect.isclass(value) or inspect.isroutine(value)]
    assert [value for value in named if not (value.__doc__ or "").strip()] == []


def test_every_public_name_has_one_home() -> None:
    homes = defaultdict(set)
    for module in MODULES:
        for name in importlib.import_module(module).__all__:
            homes[name].add(module)
    # The drivers of two event loops have functions of the same name, which do the same.
    drivers = {"mcpio.asyncio", "mcpio.trio"}
    assert {name: found for name, found in homes.items() if len(found) > 1 and found != drivers} == {}


def test_the_names_of_the_package_itself_are_those_of_public_modules() -> None:
    package = importlib.import_module("mcpio")
    for name in set(package.__all__) - {"__version__"}:
        homes = [importlib.import_module(module) for module in MODULES]
        assert [vars(home)[name] for home in homes if name in home.__all__ and getattr(home, name)] == [
            getattr(package, name)
        ]


def test_packages_that_look_names_up_are_found() -> None:
    assert {"mcpio", "mcpio.types", "mcpio.engine", "mcpio.trio"} <= set(LAZY)


@pytest.mark.parametrize("name", LAZY)
def test_type_checkers_and_completion_see_the_names_of_a_package(name: str) -> None:
    package = importlib.import_module(name)
    homes = _seen_by_type_checkers(Path(str(package.__file__)))
    assert sorted(homes) == sorted(set(package.__all__) - {"__version__"})
    assert set(package.__all__) <= set(dir(package))
    for public, home in homes.items():
        assert getattr(package, public) is getattr(importlib.import_module(home), public)


def _seen_by_type_checkers(source: Path) -> dict[str, str]:
    """Return the names that a package imports for type checkers, with their modules."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    found = {}
    for node in block.body:
        if isinstance(node, ast.ImportFrom):
            home = str(node.module)
            names = [alias.name for alias in node.names]
            for name in importlib.import_module(home).__all__ if names == ["*"] else names:
                found[name] = home
    return found
