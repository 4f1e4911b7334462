"""fastmcp's own examples, rewritten by the table of docs/coming-from-fastmcp.md: they do the same as before."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FASTMCP = Path(os.environ["MCPIO_FASTMCP_DIR"])
"""fastmcp's source distribution, and in ``packages`` what its example smart_home imports."""
PROGRAM = Path(__file__).with_name("fastmcp_example.py")

SERVER = {
    "from mcp_types import ToolAnnotations": "from mcpio.types import ToolAnnotations",
    "from fastmcp import FastMCP": "from mcpio import Server",
    "from fastmcp.dependencies import Depends": "from mcpio.app import Depends",
    "from fastmcp.exceptions import ToolError": "from mcpio import ToolError",
    "READ = ToolAnnotations(readOnlyHint=True, openWorldHint=True)": (
        "READ = ToolAnnotations(read_only_hint=True, open_world_hint=True)"
    ),
    "    readOnlyHint=False, destructiveHint=False, idempotentHint=False, openWorldHint=True": (
        "    read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=True"
    ),
}
LIFESPAN = {
    "from fastmcp import Context, FastMCP": "from mcpio import Context, Server",
    "from fastmcp.dependencies import CurrentContext": None,
    "from fastmcp.server.lifespan import lifespan": None,
    "@lifespan": "@asynccontextmanager",
    "@asynccontextmanager": None,
}
CHANGES: dict[str, dict[str, str | None]] = {
    "echo.py": {
        "from fastmcp import FastMCP": "from mcpio import Server",
        'mcp = FastMCP("Echo Server")': 'mcp = Server("Echo Server")',
        '@mcp.prompt("echo")': '@mcp.prompt(name="echo")',
    },
    "memory.py": {
        "import fastmcp": "from pathlib import Path",
        "from fastmcp import FastMCP": "from mcpio import Server",
        'mcp = FastMCP("memory")': 'mcp = Server("memory")',
        '    fastmcp.settings.home / os.environ.get("USER", "anon") / "memory"': '    Path("memory")',
    },
    "smart_home/src/smart_home/hub.py": {
        "from fastmcp import FastMCP": "from mcpio import Server",
        'hub_mcp = FastMCP("Smart home")': 'hub_mcp = Server("Smart home")',
        'hub_mcp.mount(lights_mcp, namespace="hue")': 'hub_mcp.mount(lights_mcp, "hue")',
        'hub_mcp.mount(fire_tv_mcp, namespace="fire_tv")': 'hub_mcp.mount(fire_tv_mcp, "fire_tv")',
    },
    "smart_home/src/smart_home/lights/server.py": {**SERVER, "lights_mcp = FastMCP(": "lights_mcp = Server("},
    "smart_home/src/smart_home/lights/hue_utils.py": {
        **LIFESPAN,
        "async def hue_lifespan(server: FastMCP) -> AsyncIterator[dict[str, Bridge]]:": (
            "async def hue_lifespan(server: Server) -> AsyncIterator[dict[str, Bridge]]:"
        ),
        "async def get_bridge(ctx: Context = CurrentContext()) -> AsyncIterator[Bridge]:": (
            "async def get_bridge(ctx: Context) -> AsyncIterator[Bridge]:"
        ),
        '    yield ctx.lifespan_context["bridge"]': '    yield ctx.state["bridge"]',
    },
    "smart_home/src/smart_home/fire_tv/server.py": {**SERVER, "fire_tv_mcp = FastMCP(": "fire_tv_mcp = Server("},
    "smart_home/src/smart_home/fire_tv/client.py": {
        **LIFESPAN,
        "from fastmcp.exceptions import ToolError": "from mcpio import ToolError",
        "    server: FastMCP,": "    server: Server,",
        "    ctx: Context = CurrentContext(),": "    ctx: Context,",
        '    connection = ctx.lifespan_context["fire_tv"]': '    connection = ctx.state["fire_tv"]',
    },
}
"""The lines to change in each file; ``None`` removes one."""


@pytest.mark.parametrize("name", ["echo", "memory", "smart_home"])
def test_rewritten_example_does_what_fastmcp_does(name: str, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    shutil.copytree(FASTMCP / "examples", theirs)
    shutil.copytree(FASTMCP / "examples", ours)
    for path, changes in CHANGES.items():
        rewrite(ours / path, changes)
    assert results("mcpio", name, ours) == results("fastmcp", name, theirs)


@pytest.mark.parametrize("path", list(CHANGES))
def test_fewer_than_ten_lines_of_a_file_change(path: str) -> None:
    lines = (FASTMCP / "examples" / path).read_text(encoding="utf-8").splitlines()
    assert 0 < sum(line in CHANGES[path] for line in lines) < 10


def rewrite(file: Path, changes: dict[str, str | None]) -> None:
    """Change lines of a file. Each must occur there."""
    lines = file.read_text(encoding="utf-8").splitlines()
    assert changes.keys() <= set(lines), f"{file.name} has changed: {changes.keys() - set(lines)}"
    kept = [changes.get(line, line) for line in lines]
    file.write_text("\n".join(line for line in kept if line is not None) + "\n", encoding="utf-8")


def results(library: str, name: str, folder: Path) -> Any:
    run = subprocess.run(
        [sys.executable, PROGRAM, library, name, folder],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "EXAMPLE_PACKAGES": str(FASTMCP / "packages")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])
