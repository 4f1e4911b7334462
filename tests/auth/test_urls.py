from __future__ import annotations

import pytest

from mcpio.auth import (
    AuthorizationError,
    canonical_resource,
    check_authorization_url,
    issuer_metadata_urls,
    resource_metadata_urls,
)
from mcpio.auth.urls import check_endpoint, check_redirect_uri, matches_resource

SERVER = "https://mcp.example.com/mcp"
LOCAL = "http://127.0.0.1:8000/mcp"


@pytest.mark.req("AUTH-30")
@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://mcp.example.com/mcp", "https://mcp.example.com/mcp"),
        ("HTTPS://MCP.Example.com/Mcp", "https://mcp.example.com/Mcp"),
        ("https://mcp.example.com", "https://mcp.example.com"),
        ("https://mcp.example.com/", "https://mcp.example.com"),
        ("https://mcp.example.com/?a=1", "https://mcp.example.com/?a=1"),
        ("https://mcp.example.com:443/mcp/", "https://mcp.example.com/mcp/"),
        ("https://mcp.example.com:8443", "https://mcp.example.com:8443"),
        ("http://localhost:80/mcp?x=%2F", "http://localhost/mcp?x=%2F"),
        ("http://[::1]:8000/mcp", "http://[::1]:8000/mcp"),
    ],
)
def test_a_resource_has_one_canonical_form(url: str, expected: str) -> None:
    assert canonical_resource(url) == expected


@pytest.mark.req("AUTH-30")
@pytest.mark.parametrize(
    "url",
    ["mcp.example.com", "https://mcp.example.com#f", "https://", "ftp://x", "https://a:b@c/", "https://a b/", "/mcp"],
)
def test_malformed_resource_raises(url: str) -> None:
    with pytest.raises(ValueError, match=r"resource|web address"):
        canonical_resource(url)


@pytest.mark.req("AUTH-10")
@pytest.mark.parametrize(
    ("resource", "paths"),
    [
        ("https://a.example/mcp", ["/mcp", ""]),
        ("https://a.example/x/y?z=1", ["/x/y?z=1", ""]),
        ("https://a.example/mcp/", ["/mcp/", ""]),
        ("https://a.example", [""]),
        ("https://a.example/", [""]),
    ],
)
def test_the_metadata_of_a_resource_is_at_its_path_and_at_the_root(resource: str, paths: list[str]) -> None:
    base = "https://a.example/.well-known/oauth-protected-resource"
    assert list(resource_metadata_urls(resource)) == [base + path for path in paths]


@pytest.mark.req("AUTH-15")
def test_the_metadata_of_an_issuer_is_tried_in_order() -> None:
    assert issuer_metadata_urls("https://a.example/t1") == (
        "https://a.example/.well-known/oauth-authorization-server/t1",
        "https://a.example/.well-known/openid-configuration/t1",
        "https://a.example/t1/.well-known/openid-configuration",
    )
    two = (
        "https://a.example/.well-known/oauth-authorization-server",
        "https://a.example/.well-known/openid-configuration",
    )
    assert issuer_metadata_urls("https://a.example") == two
    assert issuer_metadata_urls("https://a.example/") == two


@pytest.mark.req("AUTH-12")
@pytest.mark.parametrize(
    ("resource", "found_at", "parent", "exact"),
    [
        (SERVER, "anywhere", True, True),
        ("https://mcp.example.com", "/.well-known/oauth-protected-resource", True, False),
        ("https://mcp.example.com/", "/.well-known/oauth-protected-resource", True, False),
        ("https://mcp.example.com", "/.well-known/oauth-protected-resource/mcp", False, False),
        ("https://mcp.example.com", "/custom", False, False),
        ("https://mcp.example.com/m", "/.well-known/oauth-protected-resource/m", False, False),
        ("https://mcp.example.com/mcp/deeper", "/.well-known/oauth-protected-resource/mcp/deeper", False, False),
        ("https://evil.example.com/mcp", "/.well-known/oauth-protected-resource/mcp", False, False),
        ("https://mcp.example.com?x=1", "/.well-known/oauth-protected-resource?x=1", False, False),
        ("http://mcp.example.com", "/.well-known/oauth-protected-resource", False, False),
        ("https://mcp.example.com/mcp#f", "anywhere", False, False),
        ("nonsense", "anywhere", False, False),
    ],
)
def test_metadata_is_for_the_server_or_its_parent(resource: str, found_at: str, parent: bool, exact: bool) -> None:
    found_at = "https://mcp.example.com" + found_at
    assert matches_resource(resource, SERVER, found_at) is parent
    assert matches_resource(resource, SERVER, found_at, "exact") is exact


@pytest.mark.req("AUTH-12")
def test_an_empty_path_equals_a_slash() -> None:
    assert matches_resource("https://mcp.example.com/", "https://mcp.example.com", "anywhere", "exact")


@pytest.mark.req("AUTH-28", "SEC-03")
@pytest.mark.parametrize(
    ("url", "server", "allowed"),
    [
        ("https://as.example/token", SERVER, True),
        ("https://as.example:8443/token?x=1", SERVER, True),
        ("https://10.0.0.1/token", SERVER, True),
        ("http://as.example/token", SERVER, False),
        ("http://127.0.0.1:9000/token", SERVER, False),
        ("http://127.0.0.1:9000/token", LOCAL, True),
        ("http://localhost:9000/token", LOCAL, True),
        ("http://[::1]:9000/token", LOCAL, True),
        ("http://as.example/token", LOCAL, False),
        ("http://127.evil.example/token", LOCAL, False),
        ("https://user@as.example/token", SERVER, False),
        ("https://as.example/token#f", SERVER, False),
        ("https://as.example/tok en", SERVER, False),
        ("https://as.example\\@evil.example/", SERVER, False),
        ("https://2130706433/token", SERVER, False),
        ("https://0x7f.1/token", SERVER, False),
        ("https://127.1/token", SERVER, False),
        ("https://0177.0.0.1/token", SERVER, False),
        ("https://4chan.example/token", SERVER, True),
        ("https://ä.example/token", SERVER, False),
        ("file:///etc/passwd", SERVER, False),
        ("//as.example/token", SERVER, False),
        ("", SERVER, False),
    ],
)
def test_an_endpoint_is_https_or_on_loopback_with_the_server(url: str, server: str, allowed: bool) -> None:
    if allowed:
        assert check_endpoint(url, server, "token_endpoint") == url
    else:
        with pytest.raises(AuthorizationError, match=r"^token_endpoint .* cannot be used"):
            check_endpoint(url, server, "token_endpoint")


@pytest.mark.req("SEC-07")
@pytest.mark.parametrize("url", ["https://as.example/authorize?x=1", "http://localhost:8000/a", "http://127.0.0.1/a"])
def test_a_plain_authorization_url_may_be_opened(url: str) -> None:
    assert check_authorization_url(url) == url


@pytest.mark.req("SEC-07")
@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "JavaScript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "vbscript:x",
        "http://as.example/authorize",
        "https://user:pw@as.example/",
        "https://as.example/a b",
        "https://as.example/\nx",
        "https://as.example/\x00",
        "https://as.example\\x",
        "https://ä.example/",
        "-h",
        "https:",
        "$(touch x)",
    ],
)
def test_any_other_authorization_url_is_refused(url: str) -> None:
    with pytest.raises(AuthorizationError, match="cannot be opened"):
        check_authorization_url(url)


@pytest.mark.req("AUTH-28")
def test_a_redirect_uri_is_https_or_on_loopback() -> None:
    for uri in ("https://app.example/cb", "http://127.0.0.1:3118/callback", "http://[::1]:1/cb", "http://localhost/cb"):
        assert check_redirect_uri(uri) == uri
    for uri in ("http://app.example/cb", "https://app.example/cb#f", "https://a@app.example/cb", "app:/cb"):
        with pytest.raises(ValueError, match=r"redirect URI|web address"):
            check_redirect_uri(uri)
