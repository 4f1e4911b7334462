"""Runs worlds with a fault planted into the library: ``python planted.py NUMBER [WORLDS]``, which prints what is found.

The fault is put into the source of a module as it is imported, so that no file changes.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import tomllib
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "simulation" / "plants.toml"


def plants() -> list[dict[str, Any]]:
    """Return the faults."""
    found: list[dict[str, Any]] = tomllib.loads(FILE.read_text())["plant"]
    return found


def planted(source: str, module: str, plant: dict[str, Any]) -> str:
    """Return the source of a module with the fault in it. Raises ValueError if its place is not found."""
    for each in plant["replace"]:
        if each["module"] == module:
            if source.count(each["before"]) != 1:
                raise ValueError(
                    f"{plant['name']}: in {module} its place is there {source.count(each['before'])} times"
                )
            source = source.replace(each["before"], each["after"])
    return source


class Loader(importlib.machinery.SourceFileLoader):
    """Loads a module with the fault in it."""

    plant: dict[str, Any]

    def get_code(self, fullname: str) -> Any:
        """Compile the changed source, past the cache of compiled modules."""
        source = planted(self.get_data(self.path).decode(), fullname, self.plant)
        return compile(source, self.path, "exec", dont_inherit=True)


class Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that a fault is in."""

    def __init__(self, plant: dict[str, Any]) -> None:
        self.plant = plant

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """Return the changed module, or leave it to others."""
        if all(each["module"] != fullname for each in self.plant["replace"]):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert spec is not None
        assert spec.origin is not None
        loader = Loader(fullname, spec.origin)
        loader.plant = self.plant
        return importlib.util.spec_from_loader(fullname, loader)


def main() -> None:
    """Look for the fault."""
    number, worlds = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1500
    sys.meta_path.insert(0, Finder(plants()[number]))
    from mcpio.testing.simulation import explore
    from mcpio.testing.simulation.exploring import smallest

    report = explore(worlds=worlds, stop_after=1)
    if not report.failures:
        print(f"not found in {report.steps:,} steps")
        sys.exit(1)
    print(f"found after {report.worlds:,} worlds and {report.steps:,} steps: {report.failures[0].violation}")
    if "--shrink" in sys.argv:
        smaller = smallest(report.failures[0])
        print(smaller.violation)
        print(smaller.plan.program())


if __name__ == "__main__":
    main()
