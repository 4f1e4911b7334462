"""What holds for every package whose names are looked up when they are first used."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest


def check_names(package: ModuleType) -> None:
    """Assert that each name is there, and no other."""
    assert all(getattr(package, name) is not None for name in package.__all__)
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="no attribute 'Misspelt'"):
        _ = package.Misspelt


def loaded_by(package: str) -> list[str]:
    """Return the modules of this library that importing a package loads."""
    code = f"import sys, {package}; print(*sorted(name for name in sys.modules if name.startswith('mcpio')))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
