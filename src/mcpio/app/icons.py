"""Checks of a peer's icons before a program fetches and shows them (ICON-03). mcpio itself fetches nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import SplitResult, urlsplit

from mcpio.types.content import Icon

__all__ = ["ICON_TYPES", "MAX_DATA_ICON", "icon_fault", "icon_redirect_fault", "icon_type_of"]

ICON_TYPES: Final = ("image/png", "image/jpeg", "image/webp", "image/gif")
"""The image types that ``icon_fault`` accepts (ICON-02). Not ``image/svg+xml``, which may contain scripts."""
MAX_DATA_ICON: Final = 262_144
"""The longest ``data:`` URL that ``icon_fault`` accepts, in characters."""


def icon_fault(icon: Icon, server_url: str | None = None, *, trusted: Iterable[str] = ()) -> str | None:
    """Return why an icon should not be fetched and shown, or ``None``.

    Accepted are ``data:`` URLs with a base64 image, and ``https:`` URLs of the same origin as ``server_url``, the
    address of the server itself, or as one of the URLs in ``trusted``. A server not reached by HTTP has no origin: only
    trusted ones count.

    Fetch the icon without cookies and credentials, with a size limit, follow a redirect only if ``icon_redirect_fault``
    returns ``None``, and check the type of the data by ``icon_type_of``.
    """
    scheme = icon.src.partition(":")[0].lower()
    if scheme == "data":
        return _fault_in_data(icon.src)
    if scheme != "https":
        return f"its address begins with {scheme[:20]!r}, not https: or data:"
    origin = _origin(icon.src)
    if origin is None:
        return "its address makes no sense"
    allowed = {_origin(url) for url in (server_url, *trusted) if url is not None}
    return None if origin in allowed else f"it comes from {origin[1][:100]}, which is not where the server is"


def icon_redirect_fault(src: str, target: str) -> str | None:
    """Return why a redirect of an icon's URL should not be followed, or ``None`` if scheme and origin stay the same."""
    origin = _origin(src)
    return None if origin is not None and origin == _origin(target) else "it leads to another scheme or origin"


def icon_type_of(data: bytes) -> str | None:
    """Return the image type that the first bytes show, regardless of the declared one; ``None`` for others."""
    return next((type for pattern, type in _MAGIC if pattern.match(data)), None)


def _fault_in_data(src: str) -> str | None:
    if len(src) > MAX_DATA_ICON:
        return f"it is longer than {MAX_DATA_ICON} characters"
    match = _DATA.fullmatch(src)
    if match is None:
        return "it is not an image in base64"
    declared_type = match[1].lower().replace("image/jpg", "image/jpeg")
    if declared_type not in ICON_TYPES:
        return f"it is of the type {declared_type[:50]!r}"
    from base64 import b64decode

    try:
        actual_type = icon_type_of(b64decode(match[2][:64], validate=True))
    except ValueError:
        return "it is not an image in base64"
    return None if actual_type == declared_type else f"it says {declared_type} and is {actual_type or 'something else'}"


def _origin(url: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port; ``None`` if the URL is ambiguous or has none."""
    try:
        parts: SplitResult = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not host or parts.username is not None or _ODD.search(url):
        return None
    return parts.scheme, host.rstrip("."), port or _PORTS[parts.scheme]


_PORTS: Final = {"https": 443, "http": 80}
_ODD: Final = re.compile(r"[\x00-\x20\\\x7f]")
"""Characters that browsers and ``urlsplit`` treat differently."""
_DATA: Final = re.compile(r"data:(image/[\w.+-]+);base64,([A-Za-z0-9+/]+={0,2})", re.ASCII | re.IGNORECASE)
_MAGIC: Final = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
)
