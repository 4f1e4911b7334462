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


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Serve the site; give its address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(SITE))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def page(url: str, profile: Path) -> str:
    """Return a page as the browser has it once its scripts have run."""
    argv = [*chromium(profile), "--virtual-time-budget=20000", "--dump-dom", url]
    run = subprocess.run(argv, capture_output=True, text=True, timeout=55, check=True)
    return unescape(run.stdout)


@pytest.mark.parametrize(
    ("words", "guide"),
    [
        ("Claude", "hosts"),
        ("mcpServers", "hosts"),
        ("image", "images"),
        ("asyncio", "asyncio"),
        ("uvicorn", "deploy"),
        ("Docker", "deploy"),
    ],
)
def test_search_finds_a_guide(words: str, guide: str, address: str, tmp_path: Path) -> None:
    found = page(f"{address}/latest/search.html?q={words}", tmp_path)
    results = found.partition('id="search-results"')[2]
    hits = re.findall(r'<li[^>]*>\s*<a href="([^"#?]+)', results)
    assert f"{guide}.html" in hits, hits


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
