from __future__ import annotations

import attrs
import pytest

from mcpio.http.client import Location


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
def test_url_is_parsed_into_a_location(url: str, authority: str, target: str) -> None:
    location = Location.parse(url)
    assert (location.authority, location.target) == (authority, target)
    assert location.url == f"{location.scheme}://{authority}{target}"
    assert location.at("/x").url == f"{location.scheme}://{authority}/x"


@pytest.mark.parametrize(
    ("url", "unix", "target"),
    [
        ("http+unix://%2Frun%2Fserver.sock/mcp", "/run/server.sock", "/mcp"),
        ("http+unix://server%20%C3%A9.sock", "server \xe9.sock", "/"),
        ("http+unix://%2Fa?x=1", "/a", "/?x=1"),
    ],
)
def test_a_url_may_name_a_unix_socket(url: str, unix: str, target: str) -> None:
    location = Location.parse(url)
    assert (location.unix, location.target, location.authority) == (unix, target, "localhost")
    assert (location.place, location.at("/x").unix) == (unix, unix)
    assert Location.parse(url.replace("http", "https", 1)) == attrs.evolve(location, scheme="https", port=443)
    assert Location.parse("http://localhost:80/").place == "localhost"


@pytest.mark.req("HTTP-38")
def test_a_reference_leads_from_a_unix_socket_to_that_socket_only() -> None:
    here = Location.parse("http+unix://%2Fa/mcp")
    assert here.join("/x") == here.join("http://localhost/x") == here.join("http+unix://%2Fa/x") == here.at("/x")
    assert here.join("http+unix://%2Fb/x") is None
    assert Location.parse("http://localhost/").join("http+unix://%2Fb/x") is None


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("localhost:8000/mcp", "must begin with http"),
        ("ftp://localhost/", "must begin with http"),
        ("", "must begin with http"),
        ("http:///mcp", "must name a host"),
        ("http+unix:///mcp", "must name its socket, as in http"),
        ("http://localhost:0/", "must have a port from 1 to 65535"),
        ("http+unix://a%00/mcp", "must name its socket"),
        ("http://user@localhost/", "must not contain credentials"),
        ("http://:secret@localhost/", "must not contain credentials"),
        ("http://a b/", "must have the name or address of a host"),
        ("http://a{}/", "must have the name or address of a host"),
        ("http://localhost/a b", "must have spaces and other characters percent-encoded"),
        ("http://localhost/\xe9", "must have spaces and other characters percent-encoded"),
        ("http://localhost/\x7f", "must have spaces and other characters percent-encoded"),
        ("http://localhost:99999/", "Port out of range"),
        ("http://[::1/", "Invalid IPv6 URL"),
    ],
)
def test_invalid_url_raises_with_its_fault(url: str, fault: str) -> None:
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
