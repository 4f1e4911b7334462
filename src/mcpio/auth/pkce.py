"""Proof Key for Code Exchange (RFC 7636), with S256 only, and the ``state`` of an authorization request."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import TypeAlias

from mcpio.auth.secret import Secret

__all__ = ["Entropy", "base64url", "code_challenge", "new_state", "new_verifier"]

Entropy: TypeAlias = Callable[[int], bytes]
"""Returns that many unpredictable bytes: ``secrets.token_bytes`` in programs, a counter in tests."""


def new_verifier(entropy: Entropy) -> Secret:
    """Return a code verifier: 43 characters that carry 256 bits (AUTH-25)."""
    return Secret(base64url(entropy(32)))


def code_challenge(verifier: Secret) -> str:
    """Return the S256 challenge of a code verifier."""
    return base64url(sha256(verifier.reveal().encode()).digest())


def new_state(entropy: Entropy) -> str:
    """Return a ``state`` of 128 bits (AUTH-27)."""
    return base64url(entropy(16))


def base64url(data: bytes) -> str:
    """Return bytes in the URL-safe alphabet of Base64, without padding (RFC 7515 §2)."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()
