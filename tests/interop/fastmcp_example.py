"""Runs one of fastmcp's own examples as a program, and prints what its tools return as JSON.

    python fastmcp_example.py LIBRARY NAME FOLDER

LIBRARY is ``fastmcp``, or ``mcpio`` for examples that were rewritten. FOLDER has the examples; the environment variable
``EXAMPLE_PACKAGES`` names a directory with packages that they import. What they talk to (a database, a model, lamps, a
television) is played here.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any, Self
from unittest.mock import AsyncMock

Play = Callable[[Any], Awaitable[Any]]
"""Calls the tools of an example over a client of either library."""


def main() -> None:
    """Run the example."""
    library, name, folder = sys.argv[1:]
    sys.path[:0] = [folder, os.path.join(folder, "smart_home", "src")]
    sys.path.append(os.environ["EXAMPLE_PACKAGES"])
    server, play = {"echo": echo, "memory": memory, "smart_home": smart_home}[name]()
    run = with_fastmcp if library == "fastmcp" else with_mcpio
    print(json.dumps(asyncio.run(run(server, play)), sort_keys=True))


# The two libraries.


async def with_fastmcp(server: Any, play: Play) -> Any:
    from fastmcp import Client

    async with Client(server) as client:

        async def call(name: str, /, **arguments: Any) -> Any:
            result = await client.call_tool(name, arguments, raise_on_error=False)
            return outcome(result.is_error, result.structured_content, result.content[0].text)

        async def described() -> Any:
            return {tool.name: properties(tool.input_schema) for tool in await client.list_tools()}

        async def read(uri: str) -> Any:
            return [content.text for content in await client.read_resource(uri)]

        async def prompt(name: str, **arguments: str) -> Any:
            found: Any = await client.get_prompt(name, arguments)
            return [message.content.text for message in found.messages]

        return await play(SimpleNamespace(call=call, described=described, read=read, prompt=prompt))


async def with_mcpio(server: Any, play: Play) -> Any:
    from mcpio.asyncio import memory_client

    async with memory_client(server) as client:

        async def call(name: str, /, **arguments: Any) -> Any:
            # The one name that differs: what is mounted is called prefix__name, not prefix_name.
            result = await client.call_tool(renamed(name), arguments)
            return outcome(result.is_error, result.structured_content, result.text)

        async def described() -> Any:
            return {tool.name.replace("__", "_"): properties(tool.input_schema) async for tool in client.tools()}

        async def read(uri: str) -> Any:
            return [(await client.read_resource(uri)).text]

        async def prompt(name: str, **arguments: str) -> Any:
            found: Any = await client.get_prompt(name, arguments)
            return [message.content.text for message in found.messages]

        return await play(SimpleNamespace(call=call, described=described, read=read, prompt=prompt))


def outcome(is_error: bool | None, structured: Any, text: str) -> list[Any]:
    """Return what a call has come to. Of a text fastmcp makes structured content too."""
    return [bool(is_error), text if is_error or structured in (None, {"result": text}) else structured]


def renamed(name: str) -> str:
    for prefix in ("hue", "fire_tv"):
        if name.startswith(prefix + "_"):
            return f"{prefix}__{name.removeprefix(prefix + '_')}"
    return name


def properties(schema: Mapping[str, Any]) -> Any:
    """Return what both libraries say of a tool's arguments: their names, and which of them must be given."""
    return [sorted(schema.get("properties", {})), sorted(schema.get("required", []))]


# The examples, and what they talk to.


def echo() -> tuple[Any, Play]:
    async def play(peer: Any) -> Any:
        return [
            await peer.described(),
            await peer.call("echo_tool", text="hi"),
            await peer.read("echo://static"),
            await peer.read("echo://hello"),
            await peer.prompt("echo", text="once more"),
        ]

    return importlib.import_module("echo").mcp, play


def memory() -> tuple[Any, Play]:
    class Connection:
        """A connection to a database that holds one memory."""

        async def __aenter__(self) -> Self:
            return self

        async def __aexit__(self, *error: object) -> None:
            pass

        async def fetchrow(self, *query: object) -> Any:
            return {"id": 1}

        async def fetch(self, query: str, *values: object) -> Any:
            row = {"content": "It rains", "summary": "Rain", "importance": 1.0, "access_count": 0}
            return [row] if "SELECT content, summary" in query else []

    class Pool:
        def acquire(self) -> Connection:
            return Connection()

        async def close(self) -> None:
            pass

    async def create_pool(*args: object, **settings: object) -> Pool:
        return Pool()

    async def embed(**settings: object) -> Any:
        return SimpleNamespace(data=[SimpleNamespace(embedding=[0.5, 0.5])])

    model = SimpleNamespace(embeddings=SimpleNamespace(create=embed))
    stand_in("asyncpg", Pool=Pool, create_pool=create_pool)
    stand_in("numpy")
    stand_in("openai", AsyncOpenAI=lambda: model)
    stand_in("pgvector")
    stand_in("pgvector.asyncpg", register_vector=None)
    stand_in("pydantic_ai", Agent=None)

    async def play(peer: Any) -> Any:
        return [
            await peer.described(),
            await peer.call("remember", contents=["It rains", "It pours"]),
            (await peer.call("remember"))[0],
            await peer.call("read_profile"),
        ]

    return importlib.import_module("memory").mcp, play


def smart_home() -> tuple[Any, Play]:
    os.environ |= {"HUE_BRIDGE_IP": "lamps", "HUE_BRIDGE_USERNAME": "us", "FIRE_TV_HOST": "television"}
    phue = importlib.import_module("phue")
    models = importlib.import_module("phue.models")

    lamp, other = {"rid": "d1", "rtype": "device"}, {"rid": "d2", "rtype": "device"}
    bridge = AsyncMock(spec=phue.Bridge)
    bridge.__aenter__.return_value = bridge
    bridge.lights.return_value = [
        models.Light(id="1", type="light", metadata={"name": "desk"}, owner=lamp),
        models.Light(id="2", type="light", metadata={"name": "bed"}, owner=other),
    ]
    services = [{"rid": "g1", "rtype": "grouped_light"}]
    bridge.rooms.return_value = [
        models.Room(id="r1", type="room", metadata={"name": "study"}, children=[lamp], services=services)
    ]
    group = {"rid": "r1", "rtype": "room"}
    bridge.scenes.return_value = [models.Scene(id="s1", type="scene", metadata={"name": "Candle"}, group=group)]
    for verb in (bridge.resources, bridge.set_light, bridge.set_group, bridge.recall_scene):
        verb.return_value = []
    importlib.import_module("smart_home.lights.hue_utils").Bridge = lambda *args, **settings: bridge  # type: ignore[attr-defined]  # played here

    television = AsyncMock()
    television.available = True
    television.device_properties = {"manufacturer": "Amazon", "model": "AFTT"}
    television.installed_apps = ["com.example.films"]
    television.update.return_value = ("idle", "launcher", ["launcher"], None)
    found = AsyncMock(return_value=television)
    importlib.import_module("smart_home.fire_tv.client").setup_android_tv = found  # type: ignore[attr-defined]  # played here

    async def play(peer: Any) -> Any:
        said = [
            await peer.described(),
            await peer.call("hue_read_lights", room="study"),
            await peer.call("hue_read_rooms"),
            await peer.call("hue_read_scenes"),
            await peer.call("hue_set_light", target="desk", state={"on": True}),
            await peer.call("hue_set_room", target="study", state={"brightness": 40}),
            await peer.call("hue_activate_scene", room="study", scene="Candle"),
            await peer.call("fire_tv_read_status"),
            await peer.call("fire_tv_press_home"),
            await peer.call("fire_tv_launch_app", package_id="com.example.films"),
        ]
        failures = [
            await peer.call("hue_set_light", target="attic", state={"on": True}),
            await peer.call("fire_tv_launch_app", package_id="com.example.none"),
        ]
        assert all(failed for failed, _ in failures), failures
        return [*said, [text.rpartition(": ")[2] for _, text in failures], len(bridge.mock_calls) > 10]

    return importlib.import_module("smart_home.hub").hub_mcp, play


def stand_in(name: str, **attributes: Any) -> None:
    """Put a module in the place of one that is not installed."""
    module = ModuleType(name)
    vars(module).update(attributes)
    sys.modules[name] = module


if __name__ == "__main__":
    main()
