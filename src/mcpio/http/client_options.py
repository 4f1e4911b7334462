"""What whoever connects over HTTP may choose."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from mcpio.engine.limits import seconds

__all__ = ["HttpClientOptions"]

_OWN = frozenset(
    {
        "accept",
        "connection",
        "content-length",
        "content-type",
        "host",
        "last-event-id",
        "mcp-protocol-version",
        "mcp-session-id",
        "transfer-encoding",
    }
)


def _usable(_: object, __: object, headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if name.lower() in _OWN:
            raise ValueError(f"the header {name} is the client's own to set")
        if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
            raise ValueError(f"{name!r:.60} is no name of a header")
        if not all(character == "\t" or " " <= character <= "~" for character in value):
            raise ValueError(f"the value of the header {name} contains what is no printable ASCII")


@attrs.frozen(kw_only=True)
class HttpClientOptions:
    """Choices of a client."""

    headers: Mapping[str, str] = attrs.field(factory=dict, validator=_usable, repr=False)
    """Header fields of every request, such as ``Authorization``. ``ValueError`` for those that cannot be."""
    listen: bool = True
    """Whether to listen for what belongs to no request, where the server offers that (HTTP-26)."""
    fall_back: bool = True
    """Whether to try the HTTP+SSE transport of 2024-11-05 where a server knows no other (FALL-07)."""
    reconnect_after: float = 1.0
    """Seconds before a broken stream is taken up again, where the server does not say; each time twice as many."""
    reconnect_at_most: float = 30.0
    """Seconds that this may grow to."""
    reconnect_tries: int = 5
    """How often in a row a stream is taken up without anything coming of it, before it is given up."""
    redirects: int = 5
    """How many redirects in a row are followed, within the server's origin (HTTP-38)."""

    def __attrs_post_init__(self) -> None:
        for name in ("reconnect_after", "reconnect_at_most"):
            if seconds(getattr(self, name)) is None:
                raise ValueError(f"{name} must be a number of seconds")
