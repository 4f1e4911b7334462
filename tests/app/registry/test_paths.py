from __future__ import annotations

import pytest

from mcpio.app.registry.base import PathClimbs, UnsafePath, path_segments


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
def test_relative_path_is_split(path: str, segments: tuple[str, ...]) -> None:
    assert path_segments(path) == segments


@pytest.mark.req("RES-10")
@pytest.mark.parametrize("path", ["..", "../a", "a/..", "a/../b", "a\\..\\b", "..\\a", "a/..\\..", "/.."])
def test_path_leading_upwards_is_refused(path: str) -> None:
    with pytest.raises(PathClimbs, match="leads upwards"):
        path_segments(path)


@pytest.mark.req("RES-10")
@pytest.mark.parametrize("path", ["/", "/a", "//a", "a//b", "a//", ".", "./a", "a/.", "a\0", "a\nb", "a\\b", "\x7f"])
def test_absolute_or_odd_path_is_refused(path: str) -> None:
    with pytest.raises(UnsafePath, match="is not a plain relative path"):
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
def test_reserved_windows_names_are_refused(path: str) -> None:
    assert path_segments(path)
    with pytest.raises(UnsafePath):
        path_segments(path, windows=True)


@pytest.mark.parametrize(
    "path", ["a b/c.d", "console", "nulls/auxiliary.txt", "com10", "é", "a~b", "backup-of-it~1.txt", "a~1.json"]
)
def test_ordinary_windows_names_are_accepted(path: str) -> None:
    assert path_segments(path, windows=True) == path_segments(path)
