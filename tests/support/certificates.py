"""TLS among tests: an authority that both ends may trust, and what it issues."""

from __future__ import annotations

import ssl
from functools import cache

import trustme


@cache
def authority() -> trustme.CA:
    """Return the one authority: making another takes time."""
    return trustme.CA()


def serving_as(*names: str, asks: ssl.VerifyMode = ssl.CERT_NONE) -> ssl.SSLContext:
    """Return the context of a server of those names. ``asks`` says whether it wants to see a client's certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority().issue_cert(*names).configure_cert(context)
    authority().configure_trust(context)
    context.verify_mode = asks
    return context


def trusting(*, shows: tuple[str, str] | None = None) -> ssl.SSLContext:
    """Return the context of a client that trusts the authority; it may show a certificate: an address, and a name."""
    context = ssl.create_default_context()
    authority().configure_trust(context)
    if shows is not None:
        address, name = shows
        authority().issue_cert(address, common_name=name).configure_cert(context)
    return context


ADA = ("ada@example.org", "ada")
