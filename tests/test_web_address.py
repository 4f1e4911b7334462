from __future__ import annotations

import pytest

from mcpio.web_address import web_address

LOOKS = "the name of the host has letters that may look like others"


@pytest.mark.req("ELIC-18")
@pytest.mark.parametrize(
    ("url", "host", "warnings"),
    [
        ("https://Example.com:8443/a?b=c", "example.com", ()),
        ("http://localhost:3000/", "localhost", ()),
        ("http://127.0.0.1/", "127.0.0.1", ()),
        ("http://[::1]/", "::1", ()),
        ("http://example.com", "example.com", ("the connection is not encrypted",)),
        ("http://127.0.0.1.example.com", "127.0.0.1.example.com", ("the connection is not encrypted",)),
        ("http://127.example", "127.example", ("the connection is not encrypted",)),
        (
            "https://xn--pple-43d.com",
            "xn--pple-43d.com",
            (LOOKS,),
        ),
        ("https://\u0430pple.com", "\u0430pple.com", (LOOKS,)),
        ("https://bank.com@evil.example", "evil.example", ("what stands before the @ is not where the address leads",)),
    ],
)
def test_web_address_is_parsed(url: str, host: str, warnings: tuple[str, ...]) -> None:
    address = web_address(url)
    assert (address.url, address.host, address.warnings) == (url, host, warnings)
    assert address.is_https == url.startswith("https")


@pytest.mark.req("ELIC-14")
@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "/relative",
        "ftp://example.com",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://",
        "https:example.com",
        "https://example.com:port/",
        "https://[::1",
        "https://evil.example\\@good.example",
        "https://exam ple.com",
        "https://example.com/\n",
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="web address"):
        web_address(url)
