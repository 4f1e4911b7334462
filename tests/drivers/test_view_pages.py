"""The pages that show views: what a browser may ask of them, and what it may not."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from eachloop import EachLoop, Here, on_each_loop

import mcpio.view_pages
from mcpio.app.server import Server
from mcpio.apps import EXTENSIONS, ViewEnded
from mcpio.types import ClientCapabilities
from mcpio.view_pages import ViewPage, ViewPages

HELLO = {"id": 0, "method": "ui/initialize", "params": {"appInfo": {"name": "a", "version": "1"}}}
READY = {"method": "ui/notifications/initialized"}


def clock() -> Server:
    server = Server("clock")
    server.view("ui://clock", lambda: "<p>noon", connect=["https://a.com"], permissions=["camera"], border=True)

    @server.tool(view="ui://clock", title="Clock")
    def now() -> str:
        return "noon"

    @server.tool
    def plain() -> str:
        return "plain"

    return server


class Browser:
    """A browser that asks for one page."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.origin, self.path = f"{parts.scheme}://{parts.netloc}", parts.path
        self.authority = parts.netloc

    def ask(self, method: str, rest: str = "", body: str | None = None, **headers: str) -> tuple[int, str, Any]:
        connection = http.client.HTTPConnection(self.authority, timeout=30)
        path = rest if rest.startswith("/") else self.path + (f"/{rest}" if rest else "")
        given = {"Origin": self.origin, **headers} if method == "POST" else headers
        connection.request(method, path, body, given)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, text, response.headers

    def put(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            assert self.ask("POST", "messages", json.dumps({"jsonrpc": "2.0", **message}))[0] == 204

    def messages(self) -> list[Any]:
        status, text, _ = self.ask("GET", "messages")
        return [json.loads(each) for each in json.loads(text)] if status == 200 else []


Visit = Callable[[Browser], None]


def run_in_browser(each_loop: EachLoop, visit: Visit, **options: Any) -> tuple[Any, list[Any]]:
    """Show the view while a browser, in a thread, does what it does; return the result and the events."""
    events: list[Any] = []
    results: list[Any] = []

    async def main(here: Here) -> None:
        capabilities = ClientCapabilities(extensions=EXTENSIONS)
        async with (
            here.drivers.memory_client(clock(), capabilities=capabilities) as client,
            here.tasks() as tasks,
        ):
            with ViewPages() as pages:

                async def browse(url: str) -> None:
                    await tasks.to_thread(lambda: visit(Browser(url)))

                results.append(
                    await pages.show(
                        client, "now", browse=lambda url: tasks.spawn(browse(url)), on_event=events.append, **options
                    )
                )

    each_loop.run(main)
    return results[0], events


@pytest.mark.req("APP-11", "APP-14")
def test_view_gets_its_result_and_the_program_too(each_loop: EachLoop) -> None:
    said: list[Any] = []

    def visit(browser: Browser) -> None:
        status, text, _ = browser.ask("GET", "view")
        shown = json.loads(text)
        assert status == 200
        assert (shown["title"], shown["html"], shown["allow"], shown["border"]) == (
            "Clock",
            "<p>noon",
            "camera *",
            True,
        )
        browser.put(HELLO, READY)
        while not said or said[-1].get("method") != "ui/notifications/tool-result":
            said.extend(browser.messages())
        assert browser.ask("POST", "gone", "")[0] == 204

    result, events = run_in_browser(each_loop, visit, grant=("camera",))
    assert result.content[0].text == "noon"
    assert [each.get("method", each.get("id")) for each in said] == [
        0,
        "ui/notifications/tool-input",
        "ui/notifications/tool-result",
    ]
    assert events[-1] == ViewEnded("lost")


@pytest.mark.req("APP-14", "APP-15")
def test_pages_have_their_policies_and_show_a_view_once(each_loop: EachLoop) -> None:
    seen: dict[str, Any] = {}

    def visit(browser: Browser) -> None:
        try:
            seen["host"] = browser.ask("GET")
            seen["script"] = browser.ask("GET", "/host.js")
            sandbox = json.loads(browser.ask("GET", "view")[1])["sandbox"]
            seen["again"] = browser.ask("GET", "view")
            other = Browser(sandbox)
            seen["origins"] = (browser.origin, other.origin)
            seen["sandbox"] = other.ask("GET")
            seen["refused"] = [
                browser.ask("GET", "/wrong/view")[0],
                browser.ask("GET", "other")[0],
                browser.ask("GET", Host="evil.example.com")[0],
                other.ask("GET", "view")[0],
                browser.ask("POST", "messages", "{}", Origin="https://evil.example.com")[0],
                browser.ask("POST", "other", "{}")[0],
                browser.ask("POST", "messages", None, **{"Content-Length": "99999999"})[0],
                browser.ask("POST", "messages", None, **{"Content-Length": "no"})[0],
            ]
        finally:
            browser.ask("POST", "gone", "")

    result, _ = run_in_browser(each_loop, visit)
    assert result is None
    host, sandbox = seen["origins"]
    assert host != sandbox
    assert f"frame-src {sandbox}; frame-ancestors 'none'" in seen["host"][2]["Content-Security-Policy"]
    assert seen["script"][0] == 200
    assert seen["again"][0] == 410
    policy = seen["sandbox"][2]["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self' 'unsafe-inline'; ")
    assert policy.endswith(f"; connect-src https://a.com; frame-src 'none'; base-uri 'self'; object-src 'none'; "
                           f"frame-ancestors {host}")  # fmt: skip
    assert seen["refused"] == [404, 404, 404, 404, 404, 404, 413, 413]


def test_page_that_asks_for_nothing_more_is_taken_for_closed(
    each_loop: EachLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcpio.view_pages, "_SILENCE", 0.0)

    def look(browser: Browser) -> None:
        browser.ask("GET", "view")

    result, events = run_in_browser(each_loop, look)
    assert result is None
    assert events == [ViewEnded("lost")]


@on_each_loop
async def test_tool_without_a_view_is_not_shown(here: Here) -> None:
    async with here.drivers.memory_client(clock()) as client:
        with pytest.raises(RuntimeError, match="enter it first"):
            ViewPages().add(client, "", {})
        with ViewPages() as pages:
            for name in ("plain", "nothing"):
                with pytest.raises(LookupError, match="with a view"):
                    await pages.show(client, name, browse=lambda url: None)


@pytest.mark.long
@on_each_loop
async def test_output_is_bounded_and_ends_with_the_page(here: Here) -> None:
    async with here.drivers.memory_client(clock()) as client, here.tasks() as tasks:
        with ViewPages() as pages:
            page: ViewPage = pages.add(client, "<p>", {})
            big = json.dumps("x" * 5_000_000)
            await page.send(big)
            await page.send(big)
            sent = []

            async def send() -> None:
                await page.send("5")
                sent.append(True)

            tasks.spawn(send())
            await here.sleep(0)
            assert not sent
            assert len(await tasks.to_thread(Browser(page.url).messages)) == 2
            while not sent:
                await here.sleep(0)
            page.close()
            page.close()
            assert await page.receive() is None
            with pytest.raises(BrokenPipeError):
                await page.send("late")


def test_crowd_of_connections_is_turned_away() -> None:
    def ask(connection: http.client.HTTPConnection) -> int:
        connection.request("GET", "/nothing")
        return connection.getresponse().status

    with ViewPages() as pages:
        authority = urlsplit(pages._servers[0].origin).netloc
        crowd = [http.client.HTTPConnection(authority, timeout=10) for _ in range(65)]
        for each in crowd:
            each.connect()
        assert ask(crowd[0]) == 404
        with pytest.raises((ConnectionError, http.client.BadStatusLine)):
            ask(crowd[-1])
        for each in crowd:
            each.close()
