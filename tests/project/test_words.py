"""Some words must not stand in the project: paths and hosts of one machine, and silenced checks without a reason."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from tree import ROOT, project_files

# Written with a bracket in each word, so that this file does not find itself.
MACHINE = re.compile(
    r"(?<![\w.~-])/(?:(?:wor[k]|roo[t]|tm[p]|Use[r]s|op[t])(?:/|\b(?=['\"\s]))|hom[e]/(?!user\b|me\b))"
    r"|[A-Z]:\\Use[r]s",
)
HOSTS = re.compile(
    r"pyp[i]\.org|pythonhoste[d]|npmj[s]\.(?:com|org)|deb\.debia[n]|proxy\.golan[g]|crates\.i[o]|anaconda\.or[g]",
    re.IGNORECASE,
)
UNFINISHED = re.compile(r"\b(?:TOD[O]|FIXM[E]|XX[X])\b")
SILENCED = re.compile(r"#\s*(?:type: igno[r]e|no[q]a|pyright: igno[r]e|pragma: no cove[r])")
WITH_REASON = re.compile(
    SILENCED.pattern + r"(?:\[[\w, -]+\]|: ?[A-Z]+\d+(?:, ?[A-Z]+\d+)*)?(?:\s*(?:#|-+|:)\s*|\s{2,})\w.{6,}"
)
SKIPPED = re.compile(r"mark\.(?:ski[p]|xfai[l])\b|pytest\.(?:ski[p]|xfai[l])\(")

TEXTS = [path for path in project_files() if path.suffix not in {".png", ".ico", ".svg"}]


def offences(text: str, pattern: re.Pattern[str], unless: re.Pattern[str] | None = None) -> list[str]:
    """Return the lines, numbered, that the pattern finds, but for those in which ``unless`` is found too."""
    return [
        f"{number}: {line.strip()}"
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line) and not (unless and unless.search(line))
    ]


def _places(pattern: re.Pattern[str], unless: re.Pattern[str] | None = None, suffix: str = "") -> list[str]:
    return [
        f"{path.relative_to(ROOT).as_posix()}:{offence}"
        for path in TEXTS
        if path.name.endswith(suffix)
        for offence in offences(_text(path), pattern, unless)
    ]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def test_no_path_of_one_machine() -> None:
    assert _places(MACHINE) == []


def test_no_host_of_a_package_registry() -> None:
    assert _places(HOSTS) == []


def test_no_todo_is_left() -> None:
    assert _places(UNFINISHED) == []


def test_each_silenced_check_has_its_reason_beside_it() -> None:
    assert _places(SILENCED, unless=WITH_REASON, suffix=".py") == []


def test_no_test_is_skipped() -> None:
    assert _places(SKIPPED, suffix=".py") == []


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (MACHINE, 'open("' + "/ho" + 'me/ann/x")'),
        (MACHINE, "cd " + "/wo" + "rk/main"),
        (MACHINE, "ls " + "/tm" + "p "),
        (HOSTS, "https://" + "pyp" + "i.org/simple"),
        (UNFINISHED, "# TO" + "DO: later"),
        (SILENCED, "x = 1  # no" + "qa: F401"),
        (SILENCED, "x = 1  # type: ig" + "nore[arg-type]"),
        (SKIPPED, "@pytest.mark.sk" + "ip(reason='no')"),
    ],
    ids=map(str, itertools.count()),
)
def test_an_offence_is_found(pattern: re.Pattern[str], line: str) -> None:
    assert offences(line, pattern, WITH_REASON) == [f"1: {line.strip()}"]


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (MACHINE, "file:///home/user/project and /proc/self/fd/1 and src/wo" + "rk/x"),
        (SILENCED, "x = 1  # no" + "qa: F401 - looked up by name in the tests"),
        (SILENCED, "x = 1  # type: ig" + "nore[arg-type]  # a wrong call on purpose"),
    ],
    ids=map(str, itertools.count()),
)
def test_text_in_order_is_not_reported(pattern: re.Pattern[str], line: str) -> None:
    assert offences(line, pattern, WITH_REASON) == []
