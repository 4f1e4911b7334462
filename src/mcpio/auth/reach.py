"""Network addresses that a client may be led to by a peer's URL: the defence against request forgery (SEC-03)."""

from __future__ import annotations

import enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from mcpio.auth.urls import host_of, is_loopback_host

__all__ = ["Reach"]


class Reach(enum.Enum):
    """The addresses that a fetch may connect to: never less public than the MCP server's own.

    Judge the address of the connection, not the host of the URL: a name may resolve to another address between a check
    and the connection. Behind a proxy the address is not known; then judge the host where it is an address.
    """

    PUBLIC = "public"
    """To public addresses only."""
    PRIVATE = "private"
    """To addresses of private networks too."""
    LOOPBACK = "loopback"
    """To this machine too."""

    @classmethod
    def of_address(cls, address: str) -> Reach:
        """Return the reach that goes with an MCP server at this address.

        ``address`` is that of the connection to it, in text. Link-local and other special addresses, and texts
        that are not an address, count as public: a peer gains nothing from them.
        """
        return _kind(address) or cls.PUBLIC

    @classmethod
    def of_url(cls, url: str) -> Reach:
        """Return the reach that goes with an MCP server at this URL, as far as the URL alone tells.

        ``localhost`` and loopback addresses give ``LOOPBACK``, addresses of private networks ``PRIVATE``, and all
        names ``PUBLIC``: use `of_address` where the connection is known.
        """
        host = host_of(url)
        return cls.LOOPBACK if is_loopback_host(host) else cls.of_address(host)

    def allows(self, address: str) -> bool:
        """Return whether a fetch may connect to an address, given as a str without port and brackets.

        Link-local addresses, those of cloud metadata services, multicast, and texts that are not an address are
        never allowed. An IPv6 address that embeds an IPv4 one (mapped, NAT64, 6to4) is judged by the IPv4 address.
        """
        kind = _kind(address)
        return kind is not None and _ORDER.index(kind) <= _ORDER.index(self)


_ORDER: Final = (Reach.PUBLIC, Reach.PRIVATE, Reach.LOOPBACK)


def _kind(text: str) -> Reach | None:
    """Return the reach that an address needs, or ``None`` if no reach allows it."""
    try:
        # A zone, as in fe80::1%eth0, says nothing about the address.
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    address = _embedded(address)
    if any(address in network for network in _LOOPBACK):
        return Reach.LOOPBACK
    if any(address in network for network in _NEVER):
        return None
    return Reach.PRIVATE if any(address in network for network in _PRIVATE) else Reach.PUBLIC


def _embedded(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    if isinstance(address, IPv6Address):
        if any(address in network for network in _LOW_32_BITS) and address not in _NOT_EMBEDDED:
            return IPv4Address(int(address) & 0xFFFFFFFF)
        if address in _6TO4:
            return IPv4Address(int(address) >> 80 & 0xFFFFFFFF)
    return address


def _networks(*texts: str) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(map(ip_network, texts))


# Our own lists and not the properties of ipaddress, whose answers change with the version of Python.
_LOOPBACK: Final = _networks("127.0.0.0/8", "::1/128")
_NEVER: Final = _networks(
    "0.0.0.0/8",
    "169.254.0.0/16",  # link-local, where most clouds have their metadata service
    "100.100.100.200/32",  # Alibaba's
    "168.63.129.16/32",  # Azure's second one, in public space
    "192.0.0.192/32",  # Oracle's
    "fd00:ec2::254/128",  # Amazon's
    "fd20:ce::254/128",  # Google's
    "224.0.0.0/4",
    "240.0.0.0/4",
    "::/128",
    "64:ff9b:1::/48",  # NAT64 with a prefix whose layout only the network knows
    "2001::/32",  # Teredo
    "fe80::/10",
    "ff00::/8",
)
_PRIVATE: Final = _networks(
    "10.0.0.0/8",
    "100.64.0.0/10",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "100::/64",
    "2001:db8::/32",
    "fc00::/7",
    "fec0::/10",
)
_LOW_32_BITS: Final = _networks("::ffff:0:0/96", "::/96", "64:ff9b::/96")
_NOT_EMBEDDED: Final = ip_network("::/127")
"""``::`` and ``::1`` are separate addresses."""
_6TO4: Final = ip_network("2002::/16")
