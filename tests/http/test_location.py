from __future__ import annotations

import pytest

from mcpio.http.location import Location


@pytest.mark.parametrize(
    ("url", "authority", "target"),
    [
        ("http://localhost", "localhost", "/"),
        ("http://localhost:80/mcp", "localhost", "/mcp"),
        ("https://Example.COM:8443/a/b?x=1#fragment", "example.com:8443", "/a/b?x=1"),
        ("http://[::1]:8000/mcp", "[::1]:8000", "/mcp"),
        ("http://b\xfccher.example/", "xn--bcher-kva.example", "/"),
    ],
)
def test_a_url_says_where_a_server_is(url: str, authority: str, target: str) -> None:
    location = Location.parse(url)
    assert (location.authority, location.target) == (authority, target)
    assert location.url == f"{location.scheme}://{authority}{target}"
    assert location.at("/x").url == f"{location.scheme}://{authority}/x"


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("localhost:8000/mcp", "begins with http"),
        ("ftp://localhost/", "begins with http"),
        ("", "begins with http"),
        ("http:///mcp", "names no host"),
        ("http://user@localhost/", "must not contain credentials"),
        ("http://:secret@localhost/", "must not contain credentials"),
        ("http://a b/", "a host that cannot be"),
        ("http://a{}/", "a host that cannot be"),
        ("http://localhost/a b", "is not encoded"),
        ("http://localhost/\xe9", "is not encoded"),
        ("http://localhost/\x7f", "is not encoded"),
        ("http://localhost:99999/", "Port out of range"),
        ("http://[::1/", "Invalid IPv6 URL"),
    ],
)
def test_what_is_wrong_with_a_url_is_said(url: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        Location.parse(url)


@pytest.mark.req("HTTP-38")
def test_a_reference_leads_on_within_the_origin_only() -> None:
    here = Location.parse("https://example.com/a/b?x=1")
    found = {
        reference: here.join(reference) for reference in ("", "c", "/c", "?y", "https://example.com:443/z", "../..")
    }
    assert [None if each is None else each.target for each in found.values()] == [
        "/a/b?x=1",
        "/a/c",
        "/c",
        "/a/b?y",
        "/z",
        "/",
    ]
    for reference in ("http://example.com/", "https://example.com:8/", "//example.org/", "https://[", "javascript:1"):
        assert here.join(reference) is None
