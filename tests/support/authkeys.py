"""Private keys for tests, and the reading of JWTs without a check."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Callable
from typing import Any

from mcpio.framing.json import loads

ED25519 = """-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g
-----END PRIVATE KEY-----
"""


def new_key(kind: str = "P-256") -> str:
    """Return a new private key in PEM."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    makers: dict[str, Callable[[], Any]] = {
        "P-256": lambda: ec.generate_private_key(ec.SECP256R1()),
        "P-384": lambda: ec.generate_private_key(ec.SECP384R1()),
        "Ed25519": ed25519.Ed25519PrivateKey.generate,
        "RSA": lambda: rsa.generate_private_key(65537, 2048),
    }
    key = makers[kind]()
    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem.decode()


def parts(jwt: str) -> list[dict[str, Any]]:
    """Return the header and the claims of a JWT."""
    return [loads(urlsafe_b64decode(part + "==")) for part in jwt.split(".")[:2]]
