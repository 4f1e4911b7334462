"""A page in headless Chromium talks with our server over WebSocket, and a page of a foreign origin does not."""

from __future__ import annotations

import http.server
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from browser import chromium
from listening import serving
from tree import ROOT

FILES = {
    "/page.html": (Path(__file__).with_name("page.html"), "text/html; charset=utf-8"),
    "/browser_client.js": (ROOT / "docs" / "examples" / "browser_client.js", "text/javascript; charset=utf-8"),
}


class Pages(http.server.ThreadingHTTPServer):
    """Serves the page, and takes what it has to say."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Visit)
        self.said: queue.Queue[str] = queue.Queue()
        self.origin = f"http://127.0.0.1:{self.server_address[1]}"


class _Visit(http.server.BaseHTTPRequestHandler):
    server: Pages

    def do_GET(self) -> None:
        path, kind = FILES.get(self.path.partition("?")[0], (None, ""))
        self.send_response(404 if path is None else 200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        if path is not None:
            self.wfile.write(path.read_bytes())

    def do_POST(self) -> None:
        self.server.said.put(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def pages() -> Iterator[Pages]:
    with Pages() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@contextmanager
def visiting(url: str, profile: Path) -> Iterator[None]:
    """Have a browser of its own look at a page."""
    argv = [*chromium(profile), url]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def served(*origins: str) -> Iterator[str]:
    """Serve to pages of these origins; give the address."""
    with serving(Path(__file__).with_name("mcpio_server.py"), "2025-11-25", "ws", *origins) as (url, _):
        yield url.replace("http:", "ws:") + "/mcp"


@pytest.mark.req("XPORT-04")
def test_page_in_a_browser_holds_a_conversation(pages: Pages, tmp_path: Path) -> None:
    with served(pages.origin) as url, visiting(f"{pages.origin}/page.html?server={url}", tmp_path):
        assert pages.said.get(timeout=45).splitlines() == [
            "mcpio speaks 2025-11-25",
            "add echo mixed",
            "done after 3",
            "a long text came back",
            "a page",
            "{}",
            "Method not found: nothing/there (-32601)",
            "the connection is over",
        ]


@pytest.mark.req("XPORT-04", "HTTP-02")
def test_page_of_a_foreign_origin_is_refused(pages: Pages, tmp_path: Path) -> None:
    with served("https://app.example.org") as url, visiting(f"{pages.origin}/page.html?server={url}", tmp_path):
        assert pages.said.get(timeout=45) == f"no connection to {url}"
