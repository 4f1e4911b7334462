"""What a server should not send its users to (ELIC-19)."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, urlsplit

from mcpio.web_address import WebAddress, web_address

__all__ = ["WebAddress", "lint_address", "web_address"]


def lint_address(address: WebAddress) -> list[str]:
    """Return the reasons not to send users to an address, in words (ELIC-19)."""
    found = []
    if address.has_user_info:
        found.append("it carries credentials")
    if not address.is_https and not address.is_local:
        found.append("it is not https")
    given = [name for name, _ in parse_qsl(urlsplit(address.url).query) if name.lower() in _GIVES_ACCESS]
    if given:
        found.append(f"it seems to let in whoever has it ({', '.join(given)})")
    return found


_GIVES_ACCESS: Final = frozenset(
    ["access_token", "api_key", "apikey", "auth", "id_token", "password", "refresh_token", "secret", "session", "token"]
)
