"""Web addresses: checks before a user is sent to one, and what to show them. Fetches nothing (ELIC-18)."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

import attrs

__all__ = ["WebAddress", "web_address"]


@attrs.frozen
class WebAddress:
    """A web address, parsed and not fetched."""

    url: str
    """The whole address: show all of it."""
    host: str
    """The host, in lower case: show it apart from the rest."""
    is_https: bool
    """Whether the connection is encrypted."""
    is_international: bool
    """Whether the host has letters outside ASCII, written out or in Punycode: it may look just like another."""
    has_user_info: bool
    """Whether a user name or a password precedes the host: it may look like another host."""

    @property
    def is_local(self) -> bool:
        """Whether it leads to this very machine."""
        return self.host in ("localhost", "::1") or _LOOPBACK.fullmatch(self.host) is not None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings to show to the user."""
        warnings = []
        if self.is_international:
            warnings.append("the name of the host has letters that may look like others")
        if self.has_user_info:
            warnings.append("what stands before the @ is not where the address leads")
        if not self.is_https and not self.is_local:
            warnings.append("the connection is not encrypted")
        return tuple(warnings)


def web_address(url: str) -> WebAddress:
    """Parse a web address. Raises ValueError if it is not an absolute ``http`` or ``https`` URL (ELIC-14)."""
    # Browsers and this function must not read the same text in different ways.
    if _ODD.search(url):
        raise ValueError(f"a web address must have no spaces, backslashes or control characters, not {url!r:.100}")
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"a web address must be a URL, not {url!r:.100}: {error}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"a web address must begin with https:// and a host, not {url!r:.100}")
    return WebAddress(
        url,
        host,
        is_https=parts.scheme == "https",
        is_international=not host.isascii() or any(label.startswith("xn--") for label in host.split(".")),
        has_user_info="@" in parts.netloc,
    )


# Addresses alone: names may begin with these digits too, and lead anywhere.
_LOOPBACK: Final = re.compile(r"127(?:\.[0-9]{1,3}){3}")
_ODD: Final = re.compile(r"[\s\\\x00-\x1f\x7f]")
