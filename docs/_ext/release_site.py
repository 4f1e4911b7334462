"""Build the documentation as a site with a directory for each release.

    python docs/_ext/release_site.py build/site

builds the pages of this checkout into ``build/site/VERSION``, and beside it writes ``latest``, a copy of the newest
release's directory; ``versions.json``, the list of all, newest first, from which each page fills its choice of
versions; and ``index.html``, which leads to ``latest``. Directories of other releases stay as they are: to publish,
build into a directory that holds them.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

from sphinx.cmd.build import main as sphinx_build

__all__ = ["add_release", "main", "releases"]

DOCS = Path(__file__).parents[1]
REDIRECT = (
    '<!doctype html><meta charset="utf-8"><title>mcpio</title><meta http-equiv="refresh" content="0; url=latest/">\n'
)


def releases(site: Path) -> list[str]:
    """Return the releases that a site has, newest first."""
    found = [path.name for path in site.iterdir() if re.match(r"\d+\.\d", path.name) and (path / "index.html").exists()]
    return sorted(found, key=_order, reverse=True)


def _order(release: str) -> tuple[list[int], bool, str]:
    """Order 0.10 behind 0.9, and 1.0rc1 before 1.0."""
    numbers = re.match(r"[\d.]+", release)
    assert numbers is not None
    rest = release[numbers.end() :]
    return [int(number) for number in numbers[0].strip(".").split(".")], not rest, rest


def add_release(built: Path, site: Path, release: str) -> None:
    """Make built pages a release of a site, in place of those of the same version."""
    site.mkdir(parents=True, exist_ok=True)
    _replace(built, site / release)
    newest, *_ = known = releases(site)
    _replace(site / newest, site / "latest")
    (site / "versions.json").write_text(json.dumps(known) + "\n", encoding="utf-8")
    (site / "index.html").write_text(REDIRECT, encoding="utf-8")


def _replace(source: Path, goal: Path) -> None:
    if goal.exists():
        shutil.rmtree(goal)
    shutil.copytree(source, goal, ignore=shutil.ignore_patterns(".buildinfo", ".doctrees"))


def main() -> int:
    """Build the pages and add them to the site."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("site", type=Path, help="the site's directory")
    site = parser.parse_args().site
    built = site / ".build"
    flags = ["--fail-on-warning", "--keep-going", "--quiet", "--no-color", "--fresh-env", "--jobs=auto"]
    status = sphinx_build([*flags, "-d", str(built / ".doctrees"), str(DOCS), str(built)])
    if status == 0:
        add_release(built, site, version("mcpio"))
    shutil.rmtree(built, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
