from __future__ import annotations

import subprocess
import sys

import pytest

import mcpio
from mcpio import app


def test_every_public_name_resolves() -> None:
    for name in app.__all__:
        assert getattr(app, name) is not None
        assert name in dir(app)


def test_the_names_that_most_programs_need_are_the_same_everywhere() -> None:
    for name in ("Client", "Context", "Server"):
        assert getattr(app, name) is getattr(mcpio, name)


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'mcpio.app' has no attribute 'Sever'$"):
        _ = app.Sever  # type: ignore[attr-defined]  # the mistake


def test_nothing_is_loaded_before_it_is_used() -> None:
    program = """
import sys
import mcpio.app
assert [name for name in sys.modules if name.startswith("mcpio.app.")] == []
mcpio.app.Runtime
print(*[name for name in sys.modules if name.startswith("mcpio.app.")])
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["mcpio.app.runtime"]
