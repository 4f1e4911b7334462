from __future__ import annotations

import pytest

from mcpio.app.registry.paths import PathClimbs, UnsafePath, path_segments


@pytest.mark.parametrize(
    ("path", "segments"),
    [
        ("", ()),
        ("a", ("a",)),
        ("a/b c/é.txt", ("a", "b c", "é.txt")),
        ("a/", ("a",)),
        ("..a/b..", ("..a", "b..")),
        ("...", ("...",)),
        ("%2e%2e", ("%2e%2e",)),
        ("con/nul.txt", ("con", "nul.txt")),
        ("~", ("~",)),
    ],
)
def test_a_plain_path_is_taken_apart(path: str, segments: tuple[str, ...]) -> None:
    assert path_segments(path) == segments


@pytest.mark.req("RES-10")
@pytest.mark.parametrize("path", ["..", "../a", "a/..", "a/../b", "a\\..\\b", "..\\a", "a/..\\..", "/.."])
def test_a_path_that_leads_upwards_is_told(path: str) -> None:
    with pytest.raises(PathClimbs, match="leads upwards"):
        path_segments(path)


@pytest.mark.req("RES-10")
@pytest.mark.parametrize("path", ["/", "/a", "//a", "a//b", "a//", ".", "./a", "a/.", "a\0", "a\nb", "a\\b", "\x7f"])
def test_what_is_no_plain_relative_path_is_told(path: str) -> None:
    with pytest.raises(UnsafePath, match="is no plain relative path"):
        path_segments(path)


@pytest.mark.req("RES-10")
@pytest.mark.parametrize(
    "path",
    [
        "C:",
        "c:a",
        "a:stream",
        "a/nul",
        "CON.txt",
        "aux .x",
        "com1",
        "lpt9.tar.gz",
        "a.",
        "a ",
        "a?",
        "CONOUT$",
        "com²",
        "GIT~1",
        "a/b~12.htm",
        "A~B~1",
    ],
)
def test_on_windows_some_names_mean_something_else(path: str) -> None:
    assert path_segments(path)
    with pytest.raises(UnsafePath):
        path_segments(path, windows=True)


@pytest.mark.parametrize(
    "path", ["a b/c.d", "console", "nulls/auxiliary.txt", "com10", "é", "a~b", "backup-of-it~1.txt", "a~1.json"]
)
def test_on_windows_most_names_do_not(path: str) -> None:
    assert path_segments(path, windows=True) == path_segments(path)
