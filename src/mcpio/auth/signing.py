"""Signing JSON Web Tokens (RFC 7515): assertions with which a client authenticates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import attrs

from mcpio._checks import required
from mcpio._extras import extra
from mcpio.auth.pkce import Entropy, base64url
from mcpio.auth.secret import Secret
from mcpio.framing.json import dumps

__all__ = ["LocalSigner", "Signer", "load_signer", "new_key", "signed_jwt"]


class Signer(Protocol):
    """A private key, wherever it is kept. `load_signer` makes one of a PEM text."""

    @property
    def algorithm(self) -> str:
        """The algorithm of RFC 7518, such as ``"ES256"``."""

    @property
    def key_id(self) -> str | None:
        """The ``kid`` under which the verifier knows the key; ``None`` to leave it out."""

    def sign(self, data: bytes, /) -> bytes:
        """Return the signature in the form of JWS: for ES256, two numbers of 32 bytes."""


def signed_jwt(
    signer: Signer, claims: Mapping[str, Any], kind: str = "JWT", *, jwk: Mapping[str, str] | None = None
) -> str:
    """Return a signed token with the claims; ``kind`` is its ``typ``, and ``jwk`` the public key to put into it."""
    header: dict[str, Any] = {"alg": signer.algorithm, "typ": kind}
    if jwk is not None:
        header["jwk"] = dict(jwk)
    if signer.key_id is not None:
        header["kid"] = signer.key_id
    signed = ".".join(base64url(dumps(part)) for part in (header, dict(claims)))
    return f"{signed}.{base64url(signer.sign(signed.encode()))}"


@attrs.frozen
class LocalSigner:
    """A `Signer` whose key is in this process."""

    algorithm: str
    key_id: str | None
    public_jwk: Mapping[str, str]
    """The public key, as RFC 7517 has it."""
    sign: Callable[[bytes], bytes] = attrs.field(repr=False)


def load_signer(pem: str | bytes, *, key_id: str | None = None) -> LocalSigner:
    """Return a signer for a private key in PEM: P-256 for ES256, or Ed25519 for EdDSA.

    Needs the package ``cryptography``. The same data always gives the same signature: ES256 signs as RFC 6979 has it.
    Raises ValueError for another key, for one with a password, and for a text that is not PEM; and ImportError without
    the package.
    """
    with extra("auth", "load_signer"):
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

    text = pem.encode() if isinstance(pem, str) else required("pem", pem, bytes)
    try:
        key = serialization.load_pem_private_key(text, password=None)
    except (TypeError, UnsupportedAlgorithm) as error:
        # The package raises TypeError for a key that is encrypted.
        raise ValueError(f"the private key cannot be used: {error}") from error
    if isinstance(key, ed25519.Ed25519PrivateKey):
        raw = key.public_key().public_bytes_raw()
        return LocalSigner("EdDSA", key_id, {"kty": "OKP", "crv": "Ed25519", "x": base64url(raw)}, key.sign)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
        raise ValueError("a signer needs a private key on P-256 or Ed25519")
    elliptic = key

    def sign(data: bytes) -> bytes:
        algorithm = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)
        r, s = decode_dss_signature(elliptic.sign(data, algorithm))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")

    point = elliptic.public_key().public_numbers()
    x, y = (base64url(number.to_bytes(32, "big")) for number in (point.x, point.y))
    return LocalSigner("ES256", key_id, {"kty": "EC", "crv": "P-256", "x": x, "y": y}, sign)


def new_key(entropy: Entropy) -> Secret:
    """Return a new private key on P-256, as PEM. Needs the package ``cryptography``."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    # Sixteen bytes more than the order has make every key as likely as any other (FIPS 186-5, A.2.1).
    number = int.from_bytes(entropy(48), "big") % (_ORDER_OF_P256 - 1) + 1
    key = ec.derive_private_key(number, ec.SECP256R1())
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return Secret(key.private_bytes(*form).decode())


_ORDER_OF_P256 = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
