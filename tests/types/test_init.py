from __future__ import annotations

import subprocess
import sys

import pytest

import mcpio.types


def loaded_after(statement: str) -> set[str]:
    """Return the modules of the library that a fresh interpreter has loaded after a statement."""
    program = f"import sys\n{statement}\nprint(*(name for name in sys.modules if name.startswith('mcpio')))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.parametrize("name", mcpio.types.__all__)
def test_every_name_resolves(name: str) -> None:
    vars(mcpio.types).pop(name, None)
    found = getattr(mcpio.types, name)
    assert vars(mcpio.types)[name] is found
    assert getattr(found, "__name__", name) in (name, "Annotated", "Literal", "Union", found)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'mcpio\.types' has no attribute 'CallToolRequests'"):
        mcpio.types.CallToolRequests  # type: ignore[attr-defined]  # noqa: B018  # the mistake, and the look-up is the test


def test_dir_shows_names_before_they_are_loaded() -> None:
    assert set(mcpio.types.__all__) <= set(dir(mcpio.types))


def test_importing_the_package_loads_no_feature() -> None:
    assert loaded_after("import mcpio.types") <= {"mcpio", "mcpio._lazy", "mcpio.types"}


def test_a_name_loads_only_its_feature() -> None:
    loaded = loaded_after("from mcpio.types import Tool")
    assert "mcpio.types.features" in loaded
    assert not loaded & {f"mcpio.types.{name}" for name in ("content", "elicitation", "sampling", "tasks", "prompts")}


def test_a_conversation_about_tools_loads_no_other_feature() -> None:
    loaded = loaded_after(
        """
from mcpio.codec import codec
from mcpio.revisions import REV_2025_11_25
from mcpio.types import *
""".replace("import *", "import CallToolRequest, CallToolResult, InitializeRequest, InitializeResult")
        + """
conversion = codec(REV_2025_11_25)
info = {"name": "n", "version": "1"}
raw = {"protocolVersion": "2025-11-25", "capabilities": {"roots": {"listChanged": True}}, "clientInfo": info}
conversion.encode(conversion.decode(raw, InitializeRequest))
raw = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
conversion.encode(conversion.decode(raw, InitializeResult))
conversion.encode(conversion.decode({"name": "echo", "arguments": {}}, CallToolRequest))
conversion.encode(conversion.decode({"content": [{"type": "text", "text": "hi"}]}, CallToolResult))
"""
    )
    features = {name for name in loaded if name.startswith("mcpio.types.") and "._" not in name}
    assert features == {f"mcpio.types.{name}" for name in ("base", "content", "features")}
