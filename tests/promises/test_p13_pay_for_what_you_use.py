"""P13: neither ``import mcpio`` nor a conversation loads an event loop, transport or framework."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

FOREIGN = {
    "trio",
    "anyio",
    "asyncio",
    "h11",
    "h2",
    "wsproto",
    "httpx",
    "starlette",
    "pydantic",
    "ssl",
    "mcp",
    "opentelemetry",
}

CONVERSATION = """
from mcpio.testing import pair
from mcpio.engine.server import ServerConnection
from mcpio.types import (
    CallToolRequest, CallToolResult, Implementation, ServerCapabilities, TextContent, ToolsCapability
)
capabilities = ServerCapabilities(tools=ToolsCapability())
link = pair(server=ServerConnection(Implementation("s", "1"), capabilities))
link.on_event = lambda side, event: (
    type(event).__name__ == "RequestReceived" and side.send_result(event.id, CallToolResult((TextContent("hi"),)))
)
link.handshake()
link.client.send_request(CallToolRequest("t", {"a": 1}), now=0.0)
link.run()
assert link.client_events[-1].result.content[0].text == "hi"
"""


@pytest.mark.parametrize(
    "program",
    [
        "import mcpio",
        "from mcpio import *",
        "import mcpio.types; mcpio.types.CallToolResult; mcpio.types.ElicitRequest; mcpio.types.GetTaskRequest",
        CONVERSATION,
    ],
    ids=["import", "every name", "types", "a conversation"],
)
def test_import_loads_no_event_loop_or_framework(program: str) -> None:
    assert _loaded(program) & FOREIGN == set()


def test_import_loads_no_other_module_of_the_library() -> None:
    loaded = {name for name in _loaded("import mcpio") if name.startswith("mcpio")}
    assert loaded == {"mcpio", "mcpio._lazy"}


def test_conversation_loads_only_features_it_uses() -> None:
    loaded = {name for name in _loaded(CONVERSATION) if name.startswith("mcpio.")}
    assert "mcpio.types.features" in loaded
    assert not {"mcpio.types.asking", "mcpio.app"} & loaded


APPLICATION = """
import trio
from mcpio import Server
from mcpio.trio import memory_client
server = Server("s")
server.tool(lambda: "hi", name="t")
async def main():
    async with memory_client(server) as client:
        assert (await client.call_tool("t")).content[0].text == "hi"
trio.run(main)
"""
ON_ASYNCIO = """
import asyncio, socket
from mcpio import Server
from mcpio.asyncio import open_streams, serve
server = Server("s")
server.tool(lambda: "hi", name="t")
async def main():
    near, far = [await asyncio.open_connection(sock=end) for end in socket.socketpair()]
    serving = asyncio.ensure_future(serve(server, *far))
    async with open_streams(*near) as client:
        assert (await client.call_tool("t")).content[0].text == "hi"
    await serving
asyncio.run(main())
"""
MIDDLEWARE = {f"mcpio.app.middleware{name}" for name in ("", ".policies")}
UNUSED = {f"mcpio.{name}" for name in ("backoff", "profiles", "refusals", "restarts")}
TASKS = {
    *(f"mcpio.app.tasks.{name}" for name in ("receiver", "requester", "store")),
    *("mcpio.engine.tasks", "mcpio.types.tasks"),
}
RESERVED = MIDDLEWARE | UNUSED | TASKS


def test_modules_that_programs_do_not_load_exist() -> None:
    assert not [name for name in RESERVED if find_spec(name) is None]


PROGRAMS = pytest.mark.parametrize("program", [APPLICATION, ON_ASYNCIO], ids=["trio", "asyncio"])


@PROGRAMS
def test_tool_call_loads_no_middleware_refusals_or_tasks(program: str) -> None:
    sessions = program.replace("memory_client(server)", 'memory_client(server, era="handshake")')
    sessions = sessions.replace("open_streams(*near)", 'open_streams(*near, era="handshake")')
    assert sessions != program
    assert not RESERVED & _loaded(sessions)


@PROGRAMS
def test_stateless_tool_call_loads_no_refusals_or_tasks(program: str) -> None:
    # Rounds of questions and cached results are layers around a request, as middleware is.
    loaded = _loaded(program)
    assert "mcpio.engine.stateless" in loaded
    assert not (RESERVED - {"mcpio.app.middleware"}) & loaded


def test_asyncio_driver_loads_no_trio() -> None:
    loaded = _loaded(ON_ASYNCIO)
    assert not (FOREIGN - {"asyncio", "ssl"}) & loaded
    assert not {name for name in loaded if name.startswith("mcpio.trio")}
    assert not {"asyncio", "mcpio.app"} & _loaded("import mcpio.asyncio")


def _loaded(program: str) -> set[str]:
    """Return the modules a program loads beyond those of an empty program."""
    listing = "\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    runs = [
        set(json.loads(subprocess.run([sys.executable, "-c", text + listing], capture_output=True, check=True).stdout))
        for text in ("", program)
    ]
    return runs[1] - runs[0]
