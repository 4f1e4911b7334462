"""Faults that are planted into the library: the worlds of the simulation find each of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import planted
import pytest

import mcpio

PLANTS = planted.plants()


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant["name"])
def test_plant_has_its_place_in_the_source(plant: dict[str, Any]) -> None:
    for module in {each["module"] for each in plant["replace"]}:
        found = Path(mcpio.__path__[0], *module.split(".")[1:]).with_suffix(".py").read_text()
        compile(planted.planted(found, module, plant), module, "exec")


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(len(PLANTS)), ids=lambda number: PLANTS[number]["name"])
def test_plant_is_found(number: int) -> None:
    run = subprocess.run(
        [sys.executable, planted.__file__, str(number)], capture_output=True, text=True, timeout=280, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.startswith("found after "), run.stdout
