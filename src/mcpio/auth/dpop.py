"""Proofs of possession for bound tokens (RFC 9449), as a client makes them."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256

import attrs

from mcpio.auth.errors import AuthorizationError
from mcpio.auth.pkce import Entropy, base64url
from mcpio.auth.secret import Secret
from mcpio.auth.signing import LocalSigner, load_signer, new_key, signed_jwt

__all__ = ["Proofs", "new_proof_key"]


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
