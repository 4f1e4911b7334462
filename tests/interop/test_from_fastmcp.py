"""Programs that came from fastmcp: how few of their lines differ, and that they do the same. The tables of calls."""

from __future__ import annotations

import asyncio
import difflib
from types import GenericAlias
from typing import Any

import pytest
import trio
from comparisons import AFTER, BEFORE, OURS, faults, loaded, rows
from tree import ROOT

import mcpio.asyncio
from mcpio import Server
from mcpio.trio import memory_client
from mcpio.types import ToolAnnotations

PAGES = ("coming-from-fastmcp.md", "coming-from-the-sdk.md")
CHANGED = {"echo.py": 3, "memory.py": 2, "smart_home.py": 9}


def changed_lines(before: str, after: str) -> int:
    """Return how many lines were replaced, removed or added; a replaced line counts once."""
    blocks = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in blocks if tag != "equal")


@pytest.mark.parametrize("name", CHANGED)
def test_fewer_than_ten_lines_of_a_program_change(name: str) -> None:
    found = changed_lines((BEFORE / name).read_text(), (AFTER / name).read_text())
    assert found == CHANGED[name] < 10
    page = " ".join((ROOT / "docs" / PAGES[0]).read_text(encoding="utf-8").split())
    assert "echo.py`, `memory.py` and `smart_home.py` differ from their originals in 3, 2 and 9 lines" in page


def test_echo_does_the_same() -> None:
    async def main() -> None:
        async with memory_client(loaded(AFTER / "echo.py").mcp) as client:
            assert await client.call_tool("say", {"text": "hi"}, returns=str) == "hi"
            assert (await client.read_resource("parrot://greeting")).text == "Hello!"
            assert (await client.read_resource("parrot://hi")).text == "Heard: hi"
            found = await client.get_prompt("repeat", {"text": "hi"})
            assert found.messages[0].text == "Repeat after me: hi"

    trio.run(main)


def test_smart_home_does_the_same() -> None:
    program = loaded(AFTER / "smart_home.py")

    async def main() -> None:
        async with memory_client(program.home) as client:
            tools = [tool async for tool in client.tools()]
            assert [tool.name for tool in tools] == ["lamps__read", "lamps__switch", "lamps__dim"]
            assert tools[0].annotations == ToolAnnotations(read_only_hint=True, open_world_hint=True)
            assert list(tools[1].input_schema["properties"]) == ["name", "on"]
            lamp = await client.call_tool("lamps__switch", {"name": "kitchen", "on": True}, returns=program.Lamp)
            assert lamp == program.Lamp(name="kitchen", on=True)
            lamps = await client.call_tool("lamps__read", returns=GenericAlias(dict, (str, program.Lamp)))
            assert {name: each.on for name, each in lamps.items()} == {"kitchen": True, "hall": True}
            assert (await client.call_tool("lamps__dim", {"name": "attic", "percent": 5})).text == (
                "there is no lamp 'attic': there are kitchen, hall"
            )

    trio.run(main)


def test_memory_does_the_same_with_the_primitives_of_asyncio() -> None:
    program = loaded(AFTER / "memory.py")

    async def main() -> None:
        server: Server = program.mcp
        async with mcpio.asyncio.memory_client(server) as client:
            [remember, _] = (await client.list_tools()).tools
            assert remember.input_schema["properties"]["contents"]["description"] == "What to store"
            said = await client.call_tool("remember", {"contents": ["The cat sleeps", "the cat sleeps", "It rains"]})
            assert said.text == "Remembered: The cat sleeps\nRemembered: the cat sleeps\nRemembered: It rains"
            found: list[Any] = await client.call_tool("recall", returns=GenericAlias(list, program.Memory))
            assert [(each.content, each.importance) for each in found] == [("the cat sleeps", 2), ("It rains", 1)]

    asyncio.run(main())


@pytest.mark.parametrize("page", PAGES)
def test_mcpio_names_in_the_tables_exist(page: str) -> None:
    found = rows(ROOT / "docs" / page)
    assert len(found) > 20
    assert {row.ours: wrong for row in found if (wrong := faults(row.ours, OURS))} == {}


def test_faults_of_a_table_are_found() -> None:
    assert faults("Serve(x)", OURS) == ["there is no Serve"]
    assert faults("ctx.nothing", OURS) == ["ctx has no nothing"]
    assert faults("@server.tool(title='x', colour='red')", OURS) == ["server.tool() takes no colour="]
