"""The package itself: a few dozen names, and nothing is imported before one is used."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.metadata import version

import pytest

import mcpio


def test_the_events_are_here_in_full() -> None:
    assert set(import_module("mcpio.events").__all__) <= set(mcpio.__all__)


def test_the_names_are_few_enough_to_be_learnt() -> None:
    assert len(mcpio.__all__) <= 60


def test_the_version_is_that_of_the_package() -> None:
    vars(mcpio).pop("__version__", None)
    assert mcpio.__version__ == version("mcpio")


def test_unknown_name_of_the_package_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'mcpio' has no attribute 'Sever'"):
        mcpio.Sever  # type: ignore[attr-defined]  # noqa: B018  # the mistake is the test
    assert not hasattr(mcpio, "METHODS")


def test_dir_shows_names_before_they_are_used() -> None:
    vars(mcpio).pop("Server", None)
    assert {"Server", "ClientConnection", "__version__", "__name__"} <= set(dir(mcpio))


def _modules_after(statement: str) -> set[str]:
    """Return what a new interpreter has imported after a statement, beyond what it starts with."""
    program = f"import sys\nbefore = set(sys.modules)\n{statement}\nprint(*(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_importing_the_package_imports_nothing_else() -> None:
    assert _modules_after("import mcpio") == {"mcpio", "mcpio._lazy", "__future__"}


def test_an_engine_needs_no_event_loop_and_no_application_layer() -> None:
    found = _modules_after("from mcpio import ClientConnection, Implementation, ServerConnection")
    unwanted = {"trio", "asyncio", "anyio", "h11", "wsproto", "ssl", "socket", "mcpio.app", "mcpio.trio"}
    assert not found & unwanted
