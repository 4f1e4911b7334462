"""Views in headless Chromium, in the pages that are shipped: what they get, and what they cannot do to the host."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from browser import chromium

from mcpio import Server
from mcpio.apps import EXTENSIONS, TeardownRequested, ViewEnded, ViewFaulted, ViewLogged, ViewResized
from mcpio.trio import memory_client
from mcpio.types import ClientCapabilities
from mcpio.view_pages import ViewPages

HEAD = """<!doctype html><script>
const send = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
const log = (data) => send({ method: "notifications/message", params: { level: "info", data } });
const hello = { protocolVersion: "2026-01-26", appInfo: { name: "v", version: "1" }, appCapabilities: {} };
addEventListener("message", ({ data }) => {
  if (data.id === "hello") send({ method: "ui/notifications/initialized" });
  if (data.method === "ui/notifications/tool-result") main();
  if (data.method === "ui/resource-teardown" && polite) send({ id: data.id, result: {} });
  if (["wind", "model"].includes(data.id)) {
    log([data.id, data.error ? data.error.code : data.result.content[0].text]);
  }
});
const done = () => send({ method: "ui/notifications/request-teardown" });
send({ id: "hello", method: "ui/initialize", params: hello });
"""

ESCAPES = """
let polite = true;
async function main() {
  const tried = {};
  for (const [name, attempt] of Object.entries({
    sandbox: () => parent.document.title,
    host: () => top.document.title,
    storage: () => localStorage.length,
    leave: () => { top.location = "https://example.com"; },
    evaluate: () => eval("1"),
  })) {
    try { attempt(); tried[name] = "done"; } catch (error) { tried[name] = "refused"; }
  }
  document.addEventListener("securitypolicyviolation", (event) => log(event.effectiveDirective));
  try { await fetch("http://127.0.0.1:1/"); } catch (error) { tried.fetch = "refused"; }
  for (const [tag, name] of [["iframe", "src"], ["img", "src"], ["script", "src"]]) {
    const element = document.createElement(tag);
    element[name] = "http://127.0.0.1:1/";
    document.body.append(element);
  }
  send({ method: "ui/notifications/sandbox-resource-ready", params: { html: "other" } });
  send({ id: "wind", method: "tools/call", params: { name: "wind" } });
  send({ id: "model", method: "tools/call", params: { name: "model" } });
  log(tried);
  setTimeout(done, 300);
}
"""

FLOOD = """
let polite = false;
function main() {
  for (let n = 0; n < 500; n += 1) send({ method: "ui/notifications/size-changed", params: { height: n * 1e6 } });
  for (let n = 0; n < 100; n += 1) send({ id: "wait" + n, method: "tools/call", params: { name: "slow" } });
  done();
}
"""


def show(html: str, profile: Path) -> tuple[Any, list[Any]]:
    """Show a view until it ends; return the result of its tool, and the events."""
    server = Server("s")
    server.view("ui://v", lambda: HEAD + html + "</script><body></body>")

    @server.tool(view="ui://v")
    def now() -> str:
        return "noon"

    @server.tool(visibility=("app",))
    def wind() -> str:
        return "wound"

    @server.tool(visibility=("app",))
    async def slow() -> None:
        await trio.sleep(30)

    @server.tool(visibility=("model",))
    def model() -> str:
        return "for the model"

    events: list[Any] = []
    browsers: list[subprocess.Popen[bytes]] = []

    def browse(url: str) -> None:
        argv = [*chromium(profile), url]
        null = subprocess.DEVNULL
        browsers.append(subprocess.Popen(argv, stdout=null, stderr=null, start_new_session=True))

    async def main() -> Any:
        capabilities = ClientCapabilities(extensions=EXTENSIONS)
        with trio.fail_after(45):
            async with memory_client(server, capabilities=capabilities) as client:
                with ViewPages() as pages:
                    return await pages.show(client, "now", browse=browse, on_event=events.append)

    try:
        return trio.run(main), events
    finally:
        for process in browsers:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.req("APP-13", "APP-14", "APP-15")
def test_view_reaches_neither_the_host_nor_the_network(tmp_path: Path) -> None:
    result, events = show(ESCAPES, tmp_path)
    assert result.content[0].text == "noon"
    logged = [event.data for event in events if isinstance(event, ViewLogged)]
    (tried,) = [each for each in logged if isinstance(each, dict)]
    assert tried == dict.fromkeys(("sandbox", "host", "storage", "leave", "evaluate", "fetch"), "refused")
    directives = {each for each in logged if isinstance(each, str)}
    assert directives == {"connect-src", "frame-src", "img-src", "script-src", "script-src-elem"}
    answers = sorted(each for each in logged if isinstance(each, list))
    assert answers == [["model", -32000], ["wind", "wound"]]
    assert events[-1] == ViewEnded("torn down")


@pytest.mark.req("APP-12")
def test_view_that_floods_and_never_answers_is_removed(tmp_path: Path) -> None:
    result, events = show(FLOOD, tmp_path)
    assert result.content[0].text == "noon"
    assert max(event.height or 0 for event in events if isinstance(event, ViewResized)) == 16384
    assert sum(isinstance(event, ViewFaulted) for event in events) == 36, "requests beyond the limit"
    assert TeardownRequested() in events
    assert events[-1] == ViewEnded("no answer")
