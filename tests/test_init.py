"""The front door: the names are where the table says, type checkers see the same, and nothing is imported early."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

import mcpio

SOURCE = ast.parse(Path(str(mcpio.__file__)).read_text(encoding="utf-8"))


def _imports_for_type_checkers() -> dict[str, str]:
    """Return name -> module, as the block for type checkers has it."""
    (block,) = (node for node in SOURCE.body if isinstance(node, ast.If))
    return {
        alias.name: str(node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("mcpio")
        for alias in node.names
    }


def test_the_list_the_table_and_the_type_checkers_agree() -> None:
    seen = _imports_for_type_checkers()
    assert sorted([*seen, "__version__"]) == sorted(mcpio.__all__)
    for name, module in seen.items():
        assert getattr(mcpio, name) is getattr(import_module(module), name)
        assert module == f"mcpio.{mcpio._MODULES.get(name, 'types')}"


@pytest.mark.parametrize("module", ["errors", "events", "revisions"])
def test_a_module_that_everybody_needs_is_here_in_full(module: str) -> None:
    assert set(import_module(f"mcpio.{module}").__all__) <= set(mcpio.__all__)


def test_the_version_is_that_of_the_package() -> None:
    vars(mcpio).pop("__version__", None)
    assert mcpio.__version__ == version("mcpio")


def test_another_name_is_an_attribute_error_as_of_any_module() -> None:
    with pytest.raises(AttributeError, match="module 'mcpio' has no attribute 'Sever'"):
        mcpio.Sever  # type: ignore[attr-defined]  # noqa: B018  # the mistake is the test
    assert not hasattr(mcpio, "METHODS")


def test_the_names_can_be_completed_before_they_are_used() -> None:
    vars(mcpio).pop("Server", None)
    assert {"Server", "ClientConnection", "__version__", "__name__"} <= set(dir(mcpio))


def _modules_after(statement: str) -> set[str]:
    """Return what a new interpreter has imported after a statement, beyond what it starts with."""
    program = f"import sys\nbefore = set(sys.modules)\n{statement}\nprint(*(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_importing_the_package_imports_nothing_else() -> None:
    assert _modules_after("import mcpio") == {"mcpio", "__future__"}


def test_an_engine_needs_no_event_loop_and_no_application_layer() -> None:
    found = _modules_after("from mcpio import ClientConnection, Implementation, ServerConnection")
    unwanted = {"trio", "asyncio", "anyio", "h11", "wsproto", "ssl", "socket", "mcpio.app", "mcpio.trio"}
    assert not found & unwanted
