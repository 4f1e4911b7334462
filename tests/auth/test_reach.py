from __future__ import annotations

import pytest

from mcpio.auth import Reach

PUBLIC = ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1"]
PRIVATE = [
    "10.0.0.1",
    "172.31.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "fd12::1",
    "::ffff:10.0.0.1",
    "2002:a00:1::",
    "203.0.113.9",
]
LOOPBACK = ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"]
NEVER = [
    "169.254.169.254",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "100.100.100.200",
    "168.63.129.16",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "0.0.0.0",
    "::",
    "224.0.0.1",
    "255.255.255.255",
    "ff02::1",
    "2001::1",
    "64:ff9b:1::1",
    "2130706433",
    "0x7f.1",
    "127.1",
    "localhost",
    "",
]


@pytest.mark.req("SEC-03")
@pytest.mark.parametrize(
    ("addresses", "allowed"),
    [
        (PUBLIC, [Reach.PUBLIC, Reach.PRIVATE, Reach.LOOPBACK]),
        (PRIVATE, [Reach.PRIVATE, Reach.LOOPBACK]),
        (LOOPBACK, [Reach.LOOPBACK]),
        (NEVER, []),
    ],
    ids=["public", "private", "loopback", "never"],
)
def test_an_address_is_allowed_by_each_reach_that_goes_so_far(addresses: list[str], allowed: list[Reach]) -> None:
    for address in addresses:
        assert [reach for reach in Reach if reach.allows(address)] == allowed, address


@pytest.mark.req("SEC-03")
def test_the_reach_follows_from_where_the_server_is() -> None:
    assert [Reach.of_address(address) for address in ("8.8.8.8", "10.1.1.1", "::1", "169.254.1.1", "x")] == [
        Reach.PUBLIC,
        Reach.PRIVATE,
        Reach.LOOPBACK,
        Reach.PUBLIC,
        Reach.PUBLIC,
    ]
    urls = ["https://mcp.example.com/mcp", "http://localhost:8000/mcp", "http://[::1]/", "http://10.0.0.1/x"]
    assert [Reach.of_url(url) for url in urls] == [Reach.PUBLIC, Reach.LOOPBACK, Reach.LOOPBACK, Reach.PRIVATE]
