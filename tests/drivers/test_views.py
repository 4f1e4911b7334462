"""Views over the drivers of both event loops: through a proxy, from servers of both eras."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from eachloop import EachLoop, Here

from mcpio import Client, Server
from mcpio.app import ServerEntry
from mcpio.apps import EXTENSIONS, ViewConnection, csp_of, html_of, pump, view_uri_of
from mcpio.types import ClientCapabilities

SHOWS = ClientCapabilities(extensions=EXTENSIONS)
PAGE = "<!doctype html><title>Clock</title>"
CLOCK = f"""
from mcpio import Context, Server
import mcpio.trio

server = Server("clock")
server.view("ui://clock", lambda: {PAGE!r}, connect=["https://time.example.com"], permissions=["camera"], border=True)

@server.tool(view="ui://clock")
def now(ctx: Context, zone: str) -> str:
    return f"noon in {{zone}}" if ctx.shows_views else "text"

@server.tool(visibility=("app",))
def wind(turns: int) -> str:
    return "wound " * turns
"""


def clock() -> Server:
    found: dict[str, Any] = {}
    exec(compile(CLOCK, "clock.py", "exec"), found)
    server: Server = found["server"]
    return server


def in_a_hall() -> Server:
    """Return a server that the clock is mounted in."""
    hall = Server("hall")
    hall.mount(clock(), "hall")
    return hall


class ScriptedView:
    """A view that says hello, calls a tool once it has the result, and is closed once it has that answer."""

    def __init__(self, here: Here, tool: str) -> None:
        self.heard: list[Any] = []
        self._here = here
        hello = {"appInfo": {"name": "view", "version": "1"}, "appCapabilities": {}}
        self._says: list[tuple[int, dict[str, Any] | None]] = [
            (0, {"id": 0, "method": "ui/initialize", "params": hello}),
            (1, {"method": "ui/notifications/initialized"}),
            (3, {"id": 1, "method": "tools/call", "params": {"name": tool, "arguments": {"turns": 2}}}),
            (4, None),
        ]
        self._changed = here.event()

    async def receive(self) -> str | None:
        heard, message = self._says.pop(0)
        while len(self.heard) < heard:
            self._changed = self._here.event()
            await self._changed.wait()
        return None if message is None else json.dumps({"jsonrpc": "2.0", **message})

    async def send(self, value: str, /) -> None:
        self.heard.append(json.loads(value))
        self._changed.set()


async def offered(client: Client) -> Any:
    """Return all that a client learns of the views of a server."""
    tools = [tool async for tool in client.tools()]
    (resource,) = [each async for each in client.resources()]
    return tools, resource, await client.read_resource(resource.uri)


@pytest.mark.req("APP-01", "APP-02", "APP-03")
@pytest.mark.parametrize("era", ["handshake", "stateless"])
@pytest.mark.parametrize("make", [clock, in_a_hall])
def test_view_behind_a_proxy_is_as_without_it(
    each_virtual_loop: EachLoop, make: Callable[[], Server], era: str
) -> None:
    async def main(here: Here) -> None:
        open_client = here.drivers.memory_client
        async with open_client(make(), era=era, capabilities=SHOWS) as client:
            direct = await offered(client)
        proxy = here.drivers.proxy(partial(open_client, make(), era=era))
        async with open_client(proxy, capabilities=SHOWS) as client:
            assert client.server.capabilities.extensions == {"io.modelcontextprotocol/ui": {}}
            proxied = await offered(client)
            assert proxied == direct
            await show(here, client, proxied)
        async with open_client(proxy) as client:
            assert (await client.call_tool(proxied[0][0].name, {"zone": "Rome"})).text == "text"

    each_virtual_loop.run(main)


@pytest.mark.long
@pytest.mark.req("APP-02", "APP-03", "APP-13")
@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_view_of_a_process_is_shown_through_a_proxy(each_loop: EachLoop, tmp_path: Path, era: str) -> None:
    program = tmp_path / "clock.py"
    program.write_text(f"{CLOCK}\nimport trio\ntrio.run(mcpio.trio.serve_stdio, server)\n")
    command = (sys.executable, str(program))

    async def main(here: Here) -> None:
        source: Any = ServerEntry(command=command)
        if era == "stateless":
            source = partial(here.drivers.open_stdio, command, era=era)
        async with here.drivers.memory_client(here.drivers.proxy(source), capabilities=SHOWS) as client:
            await show(here, client, await offered(client))

    each_loop.run(main)


async def show(here: Here, client: Client, offer: Any) -> None:
    """Show the clock to a view of ours, which winds it."""
    tools, _, contents = offer
    now, wind = tools
    html, meta = html_of(contents)
    assert (html, view_uri_of(now)) == (PAGE, "ui://clock")
    assert "connect-src https://time.example.com;" in csp_of(meta)
    assert meta["ui"]["permissions"] == {"camera": {}}
    view = ScriptedView(here, wind.name)
    result = await pump(ViewConnection(now, tools), client, view, {"zone": "Rome"})
    assert result is not None
    assert result.text == "noon in Rome"
    assert [each.get("method") for each in view.heard] == [
        None,
        "ui/notifications/tool-input",
        "ui/notifications/tool-result",
        None,
    ]
    assert view.heard[-1]["result"]["content"] == [{"type": "text", "text": "wound wound "}]
    assert not view.heard[-1]["result"].get("isError")
