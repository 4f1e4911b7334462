"""The architecture page: every path on it exists, and every package is on it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "mcpio"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
NAMED = sorted(set(re.findall(r"`((?:\w+/)*\w+(?:/|\.py))`", PAGE)))


@pytest.mark.parametrize("name", NAMED)
def test_named_path_exists(name: str) -> None:
    assert (SOURCE / name).exists() or (ROOT / name).exists()


def test_every_package_is_on_the_page() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert {name for name in packages if f"{name}/" not in PAGE} == set()
