"""The names of ``mcpio.http``, each imported when it is first used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import mcpio.http


def test_every_name_is_there_and_no_other() -> None:
    assert sorted(mcpio.http.__all__) == sorted(" ".join(mcpio.http._HOME.values()).split())
    assert all(getattr(mcpio.http, name) is not None for name in mcpio.http.__all__)
    assert set(mcpio.http.__all__) <= set(dir(mcpio.http))
    with pytest.raises(AttributeError, match="no attribute 'HttpSrever'"):
        _ = mcpio.http.HttpSrever  # type: ignore[attr-defined]  # misspelt on purpose


def test_the_package_itself_loads_nothing() -> None:
    code = "import sys, mcpio.http; print(*sorted(name for name in sys.modules if name.startswith('mcpio')))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == ["mcpio", "mcpio._lazy", "mcpio.http"]
