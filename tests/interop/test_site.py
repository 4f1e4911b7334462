"""Headless Chromium reads the built site: its search finds what newcomers look for, and its pages have their versions.

``MCPIO_SITE`` is the directory that ``docs/_ext/release_site.py`` has filled.
"""

from __future__ import annotations

import http.server
import importlib
import inspect
import json
import os
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from html import unescape
from pathlib import Path

import pytest
from browser import chromium
from sphinx.util.inventory import InventoryFile
from tree import settings

import mcpio.trio

SITE = Path(os.environ.get("MCPIO_SITE", ""))

pytestmark = pytest.mark.timeout(180)  # on a busy machine a browser takes long to start


class _Site(http.server.SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path != "/searches":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write((SEARCHES % json.dumps([words for _, _, words, _ in QUESTIONS])).encode())
        return None

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Serve the site; give its address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Site, directory=str(SITE))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def page(url: str, profile: Path) -> str:
    """Return a page as the browser has it once its scripts have run."""
    argv = [*chromium(profile), "--virtual-time-budget=20000", "--dump-dom", url]
    run = subprocess.run(argv, capture_output=True, text=True, timeout=170, check=True)
    return unescape(run.stdout)


QUESTIONS = [
    # A newcomer's question; the name in the navigation; words for the search; the page and section of the answer.
    ("How do I use my server in Claude Desktop?", "Hosts", "claude desktop", "hosts#claude-desktop"),
    ("How does a tool return an image?", "Images, sounds and files", "image", "images#images-sounds-and-files"),
    ("How does a tool report its progress?", "Servers", "progress", "servers#context"),
    ("How does a tool ask the user?", "Asking the client", "elicitation", "asking#forms"),
    ("What happens when a client disconnects?", "Serve HTTP", "disconnect", "http#when-a-client-disconnects"),
    ("How large may a message be?", "Limits", "message size", "limits#what-people-change"),
    ("How long does a call wait?", "Clients", "timeout", "clients#timeouts"),
    ("How does it run behind nginx?", "Deploy", "nginx", "deploy#behind-a-web-server"),
    ("How does it run in a container?", "Deploy", "Docker", "deploy#container"),
    ("How do I require a token?", "Protect a server", "token", "protecting#tokens-of-an-authorization-server"),
    ("How does a client log in?", "Logins", "oauth", "login#try-it"),
    ("What is error -32042?", "Errors", "32042", "errors#errors-on-the-wire"),
    ("How do I test my server?", "Testing", "pytest", "testing#your-server"),
    ("How do I mount it in FastAPI?", "ASGI", "FastAPI", "asgi#in-a-framework"),
    (
        "How do I move from fastmcp?",
        "Coming from fastmcp",
        "fastmcp",
        "coming-from-fastmcp#coming-from-fastmcp",
    ),
    ("How does it run in a program on Qt?", "Your own loop", "qt", "own-loop#qt"),
    ("How do I pin a revision?", "Revisions", "pin", "revisions#pin-a-revision"),
    ("How do I run several workers?", "Many processes", "workers", "many-processes#the-server"),
    (
        "What happens to sessions when the server restarts?",
        "Sessions that outlive the process",
        "restart",
        "http-sessions#requests-in-progress",
    ),
    ("How do tools come from OpenAPI?", "A REST API", "openapi", "rest-api#a-rest-api"),
    ("How do I serve on a Unix socket?", "Sockets", "unix socket", "sockets#serving"),
    ("How do I put a server in front of another?", "Proxy", "proxy", "proxy#proxy"),
    ("How do handlers share a database connection?", "Servers", "lifespan", "servers#lifespan"),
    ("Does a tool take pydantic models?", "Servers", "pydantic", "servers#tools"),
    ("How do I serve HTTPS?", "Serve HTTP", "tls", "http#tls"),
    ("How does a server stop without breaking requests?", "Serve HTTP", "graceful", "http#shutdown"),
    ("How does a tool return typed data?", "Servers", "structured output", "servers#tools"),
    ("What does the client get when a tool raises?", "Servers", "raise error", "servers#when-a-tool-fails"),
    ("What ends a child process?", "Standard input and output", "child process", "stdio#the-end-of-a-child"),
    ("Which variables does a child get?", "Standard input and output", "environment variable", "stdio#environment"),
    (
        "Does it run on my event loop?",
        "Which driver runs on which event loop",
        "event loop",
        "loops#which-driver-runs-on-which-event-loop",
    ),
    ("How does a client hear of changes?", "Clients", "subscribe", "clients#changes"),
    ("How do I export metrics?", "Observing", "prometheus", "observing#opentelemetry"),
    (
        "How does a program log in?",
        "Service accounts and machine clients",
        "client credentials",
        "machines#a-secret-or-a-key",
    ),
    ("How do I move from the SDK?", "Coming from the official SDK", "migrate", "coming-from-the-sdk#clients"),
    ("Where are tasks kept?", "Tasks", "task store", "tasks#keeping-them"),
    ("How do I serve skills?", "Skills", "skills", "skills#serve"),
    ("How do I write my own transport?", "Write a transport", "own transport", "transport#write-a-transport"),
]

SEARCHES = """<!doctype html><body><script>
const words = %s, frame = document.body.appendChild(document.createElement("iframe"));
async function until(ready) { while (!ready()) await new Promise((resolve) => setTimeout(resolve, 5)); }
async function search() {
  await until(() => frame.contentWindow.eval("typeof Search") === "object");
  const page = frame.contentWindow, results = page.document.getElementById("search-results"), first = [];
  page.eval("DOCUMENTATION_OPTIONS").SHOW_SEARCH_SUMMARY = false;
  await until(() => page.eval("Search").hasIndex());
  for (const query of words) {
    results.replaceChildren();
    page.eval("Search").performSearch(query);
    first.push(results.querySelector("li a")?.getAttribute("href") ?? "");
  }
  document.body.textContent = JSON.stringify(first);
}
frame.onload = search;
frame.src = "latest/search.html";
</script>"""
"""A page that makes each search on the page of the search, and then shows where the first results lead."""


def test_search_leads_first_to_the_page_with_the_answer(address: str, tmp_path: Path) -> None:
    shown = page(f"{address}/searches", tmp_path).partition("<body>")[2].partition("</body>")[0]
    found = [href.partition(".html")[0] for href in json.loads(shown)]
    assert found == [answer.partition("#")[0] for *_, answer in QUESTIONS]


@pytest.mark.parametrize(("name", "answer"), [(name, answer) for _, name, _, answer in QUESTIONS])
def test_navigation_names_the_page_with_the_answer(name: str, answer: str) -> None:
    guide, _, section = answer.partition("#")
    links = re.findall(r'<a class="reference internal" href="([\w-]+)\.html">(.+?)</a>', _text("index"))
    assert (guide, name) in links
    assert f'id="{section}"' in _text(guide)


def _text(guide: str) -> str:
    return (SITE / "latest" / f"{guide}.html").read_text(encoding="utf-8")


def test_search_shows_pages_before_members_of_classes(address: str, tmp_path: Path) -> None:
    found = page(f"{address}/latest/search.html?q=timeout", tmp_path).partition('id="search-results"')[2]
    hits = re.findall(r"<li.*?</li>", found, re.DOTALL)
    members = [bool(re.search(r"\(Python (?:attribute|property|method),", hit)) for hit in hits]
    first = members.index(True)
    assert first >= 20
    # Sphinx puts further entries of the general index behind all that it scores.
    assert sum(not is_member for is_member in members[first:]) <= 1


def test_page_offers_the_versions_of_the_site(address: str, tmp_path: Path) -> None:
    choice = (
        page(f"{address}/latest/quickstart.html", tmp_path)
        .partition('<select class="versions"')[2]
        .partition("</select>")[0]
    )
    assert re.findall(r'<option value="([^"]+)"', choice) == [
        "latest",
        *json.loads((SITE / "versions.json").read_text()),
    ]
    assert re.search(r'<option value="latest" selected', choice)


def test_home_of_the_site_leads_to_the_latest_release(address: str, tmp_path: Path) -> None:
    assert "<h1>mcpio<" in page(f"{address}/", tmp_path)


def test_inventory_has_every_public_name_once() -> None:
    inventory = InventoryFile.loads((SITE / "latest" / "objects.inv").read_bytes(), uri="").data
    known = Counter(name for kind, items in inventory.items() if kind.startswith("py:") for name in items)
    assert [name for name, count in known.items() if count > 1] == []
    for module in map(importlib.import_module, settings()["tool"]["mcpio"]["public-modules"]):
        for name in module.__all__:
            value = getattr(module, name)
            # What the drivers of both loops share is documented as a name of mcpio.trio.
            home = mcpio.trio if getattr(mcpio.trio, name, None) is value else module
            assert known[f"{home.__name__}.{name}"] == 1 or inspect.ismodule(value), f"{module.__name__}.{name}"


def test_plain_pages_lie_beside_the_pages() -> None:
    folder = SITE / "latest"
    listed = re.findall(r"\]\(([^)]+)\)", (folder / "llms.txt").read_text(encoding="utf-8"))
    assert "quickstart.md" in listed
    assert [file for file in listed if not (folder / file).is_file()] == []
