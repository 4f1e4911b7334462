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
import tomllib
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
        made = {"/searches": SEARCHES % json.dumps(queries()), "/keys": KEYS}
        if self.path not in made:
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(made[self.path].encode())
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
    # A newcomer's question; the name in the navigation; the page and section of the answer.
    ("How do I use my server in Claude Desktop?", "Claude Desktop and other hosts", "hosts#claude-desktop"),
    ("How does a tool return an image?", "Images, sounds and files", "images#images-sounds-and-files"),
    ("How does a tool report its progress?", "Servers", "servers#context"),
    ("How does a tool ask the user?", "Ask the user (elicitation, sampling)", "asking#forms"),
    ("What happens when a client disconnects?", "Serve HTTP", "http#when-a-client-disconnects"),
    ("How large may a message be?", "Limits", "limits#what-people-change"),
    ("How long does a call wait?", "Clients", "clients#timeouts"),
    ("How does it run behind nginx?", "Deploy", "deploy#behind-a-web-server"),
    ("How does it run in a container?", "Deploy", "deploy#container"),
    ("How do I require a token?", "Protect a server (authentication)", "protecting#tokens-of-an-authorization-server"),
    ("How does a client log in?", "OAuth logins", "login#try-it"),
    ("What is error -32042?", "Errors", "errors#errors-on-the-wire"),
    ("How do I test my server?", "Testing", "testing#your-server"),
    ("How do I mount it in FastAPI?", "ASGI", "asgi#in-a-framework"),
    ("How do I move from fastmcp?", "Coming from fastmcp", "coming-from-fastmcp#coming-from-fastmcp"),
    ("How does it run in a program on Qt?", "Your own loop", "own-loop#qt"),
    ("How do I pin a revision?", "Revisions", "revisions#pin-a-revision"),
    ("How do I run several workers?", "Many processes", "many-processes#the-server"),
    (
        "What happens to sessions when the server restarts?",
        "Sessions that outlive the process",
        "http-sessions#requests-in-progress",
    ),
    ("How do tools come from OpenAPI?", "A REST API", "rest-api#a-rest-api"),
    ("How do I serve on a Unix socket?", "Sockets", "sockets#serving"),
    ("How do I put a server in front of another?", "Proxies and gateways", "proxy#proxies-and-gateways"),
    ("How do handlers share a database connection?", "Servers", "servers#lifespan"),
    ("Does a tool take pydantic models?", "Servers", "servers#tools"),
    ("How do I serve HTTPS?", "Serve HTTP", "http#tls"),
    ("How does a server stop without breaking requests?", "Serve HTTP", "http#shutdown"),
    ("How does a tool return typed data?", "Servers", "servers#tools"),
    ("What does the client get when a tool raises?", "Servers", "servers#when-a-tool-fails"),
    ("What ends a child process?", "Standard input and output", "stdio#the-end-of-a-child"),
    ("Which variables does a child get?", "Standard input and output", "stdio#environment"),
    (
        "Does it run on my event loop?",
        "Which driver runs on which event loop",
        "loops#which-driver-runs-on-which-event-loop",
    ),
    ("How does a client hear of changes?", "Clients", "clients#changes"),
    ("How do I export metrics?", "Logs, traces and recordings", "observing#opentelemetry"),
    ("How does a program log in?", "Service accounts and machine clients", "machines#a-secret-or-a-key"),
    ("How do I move from the SDK?", "Coming from the official SDK", "coming-from-the-sdk#clients"),
    ("Where are tasks kept?", "Tasks (long jobs)", "tasks#keeping-them"),
    ("How do I serve skills?", "Skills", "skills#serve"),
    ("How do I write my own transport?", "Write a transport", "transport#write-a-transport"),
    ("Can a web page call my local server?", "Security", "security#who-can-connect"),
    ("How do I limit the calls of each user?", "Limits", "limits#what-people-change"),
    (
        "How do I put several servers behind one address?",
        "Proxies and gateways",
        "proxy#several-servers-behind-one-address",
    ),
    ("What does a host send to my server?", "Watch a host and its server", "relay#watch-a-host-and-its-server"),
    ("What if my timer is late?", "Embed the engine", "embed#deadlines"),
    ("May a tool pass on the caller's token?", "Protect a server (authentication)", "protecting#who-sent-a-request"),
    ("Where does the library log?", "Logs, traces and recordings", "observing#the-log"),
    ("How do I get an access log?", "Logs, traces and recordings", "observing#access-log"),
    ("Which options does a call take?", "Clients", "clients#calls"),
    ("How do I show an HTML page in a host?", "Views (MCP Apps)", "apps#serve"),
    ("How do I call a server from a program without async?", "asyncio", "asyncio#two-shapes-of-lifetime"),
    ("Where does middleware of Starlette go?", "ASGI", "asgi#in-a-framework"),
    ("Is a text converted to a number?", "Servers", "servers#tools"),
    ("Does a timeout end the connection?", "Clients", "clients#timeouts"),
    ("Do tokens of Entra have the right scopes?", "Protect a server (authentication)", "protecting#scopes"),
    ("How do I do something without knowing where to look?", "Questions", "questions#first-steps"),
]

SEARCHES = """<!doctype html><body><script>
const words = %s, frame = document.body.appendChild(document.createElement("iframe"));
frame.onload = () => {
  const page = frame.contentWindow;
  page.eval("search");  // the script of the page has run
  const found = (query) => page.eval(`search(${JSON.stringify(query)}).map(({page}) => INDEX.pages[page][0])`);
  document.body.textContent = JSON.stringify(words.map(found));
};
frame.src = "latest/search.html";
</script>"""
"""A page that makes each search on the page of the search, and then shows which pages each one finds."""

KEYS = """<!doctype html><body><script>
const frame = document.body.appendChild(document.createElement("iframe"));
frame.onload = () => {
  const page = frame.contentWindow, {document: shown, KeyboardEvent} = page;
  const input = shown.querySelector(".search-form input");
  input.focus();
  input.value = "redis";
  input.oninput();
  const focused = ["ArrowDown", "ArrowDown", "ArrowUp", "ArrowUp", "ArrowUp"].map((key) => {
    shown.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
    return [input, ...shown.querySelectorAll(".search-result")].indexOf(shown.activeElement);
  });
  document.body.textContent = JSON.stringify([focused, page.location.search]);
};
frame.src = "latest/search.html";
</script>"""
"""A page that types a word on the page of the search, and presses arrow keys."""

SEARCHED: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("site_questions.toml").read_text(encoding="utf-8")
)


@pytest.fixture(scope="module")
def found(address: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Return the pages that each search finds, the best first."""
    shown = page(f"{address}/searches", tmp_path_factory.mktemp("profile"))
    pages = json.loads(shown.partition("<body>")[2].partition("</body>")[0])
    return dict(zip(queries(), pages, strict=True))


def queries() -> list[str]:
    """Return all words that are searched for."""
    return list(dict.fromkeys([*(words for group in SEARCHED.values() for words in group), *NAMES, "timeout", "zzzz"]))


def test_search_leads_to_the_page_with_the_answer(found: dict[str, list[str]]) -> None:
    answers = {words: pages.split() for group in SEARCHED.values() for words, pages in group.items()}
    first = [words for words, pages in answers.items() if found[words][:1] and found[words][0] in pages]
    early = [words for words, pages in answers.items() if set(found[words][:3]) & set(pages)]
    assert len(first) >= 0.8 * len(answers), sorted(answers.keys() - first)
    assert len(early) >= 0.93 * len(answers), sorted(answers.keys() - early)


NAMES = {
    "MessageTooLarge": "reference/vocabulary",
    "message_too_large": "reference/vocabulary",
    "ServerConnection": "reference/engine",
    "-32042": "errors",
    "request_timeout": "limits",
    "serve_htt": "http",
}


@pytest.mark.parametrize(("name", "answer"), NAMES.items())
def test_search_finds_names_that_are_typed_exactly_or_begun(
    name: str, answer: str, found: dict[str, list[str]]
) -> None:
    assert answer in found[name][:5]


def test_search_shows_guides_before_the_reference(found: dict[str, list[str]]) -> None:
    assert [page for page in found["timeout"][:8] if page.startswith("reference/")] == []
    assert any(page.startswith("reference/") for page in found["timeout"])


def test_search_shows_sections_with_their_first_sentences(address: str, tmp_path: Path) -> None:
    shown = page(f"{address}/latest/search.html?q=keep-alive", tmp_path)
    assert 'href="limits.html#silent-peers-order-and-rates"' in shown
    assert "A peer may vanish without closing its connection." in shown


def test_arrow_keys_move_between_the_words_and_the_results(address: str, tmp_path: Path) -> None:
    shown = page(f"{address}/keys", tmp_path).partition("<body>")[2].partition("</body>")[0]
    assert json.loads(shown) == [[1, 2, 1, 0, 0], "?q=redis"]


def test_search_for_an_unknown_word_finds_nothing(found: dict[str, list[str]]) -> None:
    assert found["zzzz"] == []


@pytest.mark.parametrize(("name", "answer"), [(name, answer) for _, name, answer in QUESTIONS])
def test_navigation_names_the_page_with_the_answer(name: str, answer: str) -> None:
    guide, _, section = answer.partition("#")
    links = re.findall(r'<a class="reference internal" href="([\w-]+)\.html">(.+?)</a>', _text("index"))
    assert (guide, name) in links
    assert f'id="{section}"' in _text(guide)


def _text(guide: str) -> str:
    return (SITE / "latest" / f"{guide}.html").read_text(encoding="utf-8")


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
