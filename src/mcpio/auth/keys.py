"""Secrets, PKCE, signatures and proofs of possession."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, NoReturn, Protocol, TypeAlias, final

import attrs

from mcpio._checks import required, takes
from mcpio._extras import extra
from mcpio.auth.urls import AuthorizationError
from mcpio.framing.json import dumps

# --------------------------------------------------------------------------------------------------------------- secret
# Secret texts, hidden from logs, tracebacks and representations.


@final
class Secret:
    """A secret text: a token, a password, a code verifier.

    `reveal` is the only way to the text: ``repr``, ``str`` and string formatting hide it, and pickling raises
    TypeError, so that a secret reaches a file or another process only where a program writes `reveal`. Two secrets
    are equal if their texts are; the comparison takes the same time wherever they differ. Raises TypeError for what is
    not a str.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            # Without the value: it is likely to be a secret.
            raise TypeError(f"a Secret must be made of a str, not {type(text).__name__}")
        self._text = text

    def reveal(self) -> str:
        """Return the text."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(…)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        # Bytes, because compare_digest takes only ASCII as text; a peer may have sent a lone surrogate.
        mine, theirs = (each.reveal().encode("utf-8", "surrogatepass") for each in (self, other))
        return hmac.compare_digest(mine, theirs)

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled: pickle what reveal() returns, where that is meant")


def as_secret(value: str | Secret | None) -> Secret | None:
    """Return a text as a secret; a `Secret` or ``None`` unchanged."""
    return value if value is None or isinstance(value, Secret) else Secret(value)


# ----------------------------------------------------------------------------------------------------------------- pkce
# Proof Key for Code Exchange (RFC 7636), with S256 only, and the ``state`` of an authorization request.

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


# -------------------------------------------------------------------------------------------------------------- signing
# Signing JSON Web Tokens (RFC 7515): assertions with which a client authenticates.


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
    sign: Callable[[bytes], bytes] = attrs.field(validator=takes("(data)"), repr=False)


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
        raise ValueError(f"the private key must be on P-256 or Ed25519, not {type(key).__name__}")
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


# ----------------------------------------------------------------------------------------------------------------- dpop
# Proofs of possession for bound tokens (RFC 9449), as a client makes them.


def new_proof_key(entropy: Entropy) -> Secret:
    """Return a private key for proofs, as PEM. Raises AuthorizationError without the package ``cryptography``."""
    try:
        return new_key(entropy)
    except ImportError:
        raise AuthorizationError("tokens bound by DPoP need mcpio[auth]", option="dpop=") from None


@attrs.frozen
class Proofs:
    """Makes the proofs of one key."""

    key: Secret
    """The private key, as PEM."""
    entropy: Entropy = attrs.field(repr=False)

    def proof(self, method: str, url: str, at: float, *, token: Secret | None = None, nonce: str | None = None) -> str:
        """Return a new proof for a request to ``url`` at ``at``, in Unix seconds.

        ``token`` is the access token that the request carries. Every proof has another ``jti``, so none may be sent
        twice.
        """
        signer = _signer(self.key.reveal())
        claims: dict[str, str | int] = {
            "jti": base64url(self.entropy(16)),
            "htm": method,
            "htu": url.partition("#")[0].partition("?")[0],
            "iat": int(at),
        }
        if token is not None:
            claims["ath"] = base64url(sha256(token.reveal().encode()).digest())
        if nonce is not None:
            claims["nonce"] = nonce
        return signed_jwt(signer, claims, "dpop+jwt", jwk=signer.public_jwk)


@lru_cache(maxsize=16)
def _signer(pem: str) -> LocalSigner:
    return load_signer(pem)
