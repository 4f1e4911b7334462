"""Sealing of request state by encryption, for servers that carry what their clients must not read.

Needs the extra ``mcpio[seal]`` (the package ``cryptography``).
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from mcpio._extras import extra
from mcpio.app.rounds import StateRejected, check_keys, decode64, encode64, key_id

with extra("seal", "mcpio.seals"):
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

__all__ = ["AeadSealer"]


class AeadSealer:
    """Seals with AES-256-GCM: only holders of the keys can make, alter or read a state.

    ``keys`` are at least one, each of 32 bytes or more, and secret. The first one seals, all of them open. Give it to
    ``RequestStates(sealer=AeadSealer(keys))``, in all processes that serve one address.
    """

    __slots__ = ("_first", "_keys")

    conceals: bool = True
    """True: the client cannot read the content."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        ring = check_keys(keys)
        self._keys = {key_id(key): AESGCM(_derived(key)) for key in ring}
        self._first = key_id(ring[0])

    def seal(self, payload: bytes) -> str:
        """Return ``e1.<key>.<nonce and ciphertext>``."""
        head, nonce = f"e1.{self._first}", os.urandom(12)
        return f"{head}.{encode64(nonce + self._keys[self._first].encrypt(nonce, payload, head.encode()))}"

    def open(self, text: str) -> bytes:
        """Return the payload. Raises StateRejected."""
        head, _, body = text.rpartition(".")
        cipher = self._keys.get(head.removeprefix("e1."))
        if cipher is None or not head.startswith("e1."):
            raise StateRejected("it was sealed with an unknown key, or is not a state")
        sealed = decode64(body) if body.isascii() else b""
        # Base64 has digits whose last bits decode to nothing, and decoders skip characters: one text for one state.
        if encode64(sealed) != body:
            raise StateRejected("it is not the text that was sealed")
        try:
            return cipher.decrypt(sealed[:12], sealed[12:], head.encode())
        except (InvalidTag, ValueError):
            raise StateRejected("it was altered") from None


def _derived(key: bytes) -> bytes:
    return HKDF(SHA256(), 32, b"mcpio request state", b"encrypt").derive(key)
