"""``open_servers`` on Trio, with child processes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from mcpio.app import ServersConfig
from mcpio.backoff import Backoff
from mcpio.errors import ConnectionLost
from mcpio.trio import Servers, open_servers

PROGRAM = """
import os, sys
from mcpio import Server
server = Server("program", "1")

@server.tool
def pid() -> int:
    return os.getpid()

@server.tool
def die() -> str:
    os._exit(3)
"""


def test_processes_of_a_configuration_killed_and_restarted(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mcpio", "serve", str(tmp_path / "program.py")]
    config = ServersConfig(
        {
            "one": {"command": command},
            "two": {"command": command[0], "args": command[1:], "cwd": str(tmp_path)},
            "garbage": {"command": "echo", "args": ["this is no message"]},
            "none": {"command": "no-such-program"},
            "gone": {"url": "http://127.0.0.1:1/mcp"},
            "gone too": {"url": "ws://127.0.0.1:1/mcp"},
        }
    )

    async def pid(servers: Servers, name: str) -> int:
        await servers.ready(name)
        return int(json.loads((await servers.call_tool(f"{name}__pid")).text)["result"])

    async def main() -> None:
        async with open_servers(config, restart=Backoff(tries=2, base=0.01)) as servers:
            one, two = await pid(servers, "one"), await pid(servers, "two")
            with pytest.raises(ConnectionLost, match="exited with status 3"):
                await servers.call_tool("one__die")
            while servers.state("one") == "ready":
                await trio.testing.wait_all_tasks_blocked()
            assert await pid(servers, "one") not in (one, two)
            assert await pid(servers, "two") == two
            assert servers.state("garbage") == servers.state("gone") == servers.state("gone too") == "failed"
            assert str(servers.error("none")) == "cannot start 'no-such-program': no such program"
            assert "this is no message" in str(servers.error("garbage"))

    trio.run(main)
