from __future__ import annotations

import pytest

from mcpio.codec import codec
from mcpio.errors import InvalidMessage
from mcpio.revisions import REV_2024_11_05, REV_2025_11_25, REV_2026_07_28, REVISIONS, Revision
from mcpio.types import ListRootsRequest, ListRootsResult, MalformedItem, Root, RootsListChangedNotification


@pytest.mark.req("ROOT-02")
@pytest.mark.parametrize("revision", REVISIONS)
def test_roots_round_trip(revision: Revision) -> None:
    conversion = codec(revision)
    assert conversion.encode(conversion.decode({}, ListRootsRequest)) == {}
    raw = {"roots": [{"uri": "file:///a", "name": "a"}, {"uri": "file:///b"}]}
    result = conversion.decode(raw, ListRootsResult)
    assert result == ListRootsResult((Root("file:///a", "a"), Root("file:///b")))
    assert conversion.encode(result) == raw


def test_metadata_of_a_root_exists_since_2025_06_18() -> None:
    root = Root("file:///a", meta={"x": 1})
    assert codec(REV_2025_11_25).encode(root) == {"uri": "file:///a", "_meta": {"x": 1}}
    assert codec(REV_2024_11_05).encode(root) == {"uri": "file:///a"}


def test_malformed_root_is_set_aside() -> None:
    raw = {"roots": [{"name": "a"}, {"uri": "file:///b"}]}
    result = codec(REV_2025_11_25).decode(raw, ListRootsResult)
    assert result.roots == (Root("file:///b"),)
    assert result.malformed == (MalformedItem(0, {"name": "a"}, "uri: missing"),)
    assert codec(REV_2025_11_25).encode(result) == raw


def test_roots_list_changed_round_trips() -> None:
    assert codec(REV_2025_11_25).encode(RootsListChangedNotification()) == {}
    with pytest.raises(InvalidMessage, match=r"does not exist in 2026-07-28$"):
        codec(REV_2026_07_28).encode(RootsListChangedNotification())


@pytest.mark.req("ROOT-02")
def test_root_elsewhere_is_received_and_never_sent() -> None:
    assert codec(REV_2025_11_25).decode({"uri": "https://a.example"}, Root).uri == "https://a.example"
    for revision in (REV_2025_11_25, REV_2026_07_28):
        with pytest.raises(InvalidMessage, match=r"^roots\[0\]\.uri: must begin with file://, not 'https://a.example'"):
            codec(revision).encode(ListRootsResult((Root("https://a.example"),)))
