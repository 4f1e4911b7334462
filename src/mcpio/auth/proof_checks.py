"""Proofs of possession (RFC 9449), as a protected server checks them. Needs the package joserfc."""

from __future__ import annotations

import hmac
from collections import deque
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlsplit

import attrs

from mcpio.auth.claims import DPOP_ALGORITHMS, is_number
from mcpio.auth.jwt import is_signed, parse_jwt
from mcpio.auth.pkce import base64url
from mcpio.auth.secret import Secret
from mcpio.auth.verifiers import InvalidToken
from mcpio.framing.json import dumps

__all__ = ["ProofChecker", "ProofFault"]

PROOF_SECONDS: Final = 300.0
"""How far ``iat`` may be from now; and how long a nonce is given out."""
MOST_PROOFS: Final = 262_144
"""How many proofs are remembered. Beyond that, no further ones are accepted until some expire."""
_MAX_PROOF: Final = 8192
_MEMBERS: Final = {"EC": ("crv", "kty", "x", "y"), "OKP": ("crv", "kty", "x"), "RSA": ("e", "kty", "n")}
"""The members of a thumbprint (RFC 7638 §3.2), in its order."""


@attrs.frozen
class ProofFault:
    """Why a proof is not accepted."""

    error: str
    """``invalid_dpop_proof``, ``use_dpop_nonce``, or ``overloaded`` where no more proofs can be remembered."""
    nonce: str | None = None
    """The nonce that the next proof must have."""
    why: tuple[InvalidToken, ...] = ()
    """What is wrong with it, for the log."""


class ProofChecker:
    """Checks proofs, and accepts each only once."""

    def __init__(self, nonces: Secret | None = None) -> None:
        """With ``nonces``, a key of this server's, proofs must have a nonce that it gave out."""
        self._nonces = nonces
        # The digests of accepted proofs, and when each can no longer be accepted: in about that order.
        self._used: set[bytes] = set()
        self._expiries: deque[tuple[float, bytes]] = deque()

    def check(
        self, proof: str, *, method: str, resource: str, target: str, token: Secret, at: float
    ) -> str | ProofFault:
        """Return the key thumbprint of a proof for a request at ``at``, in Unix seconds, or the proof's fault.

        The URL of the proof is that of ``resource``, or ``target`` at its origin: not what ``Host`` says.
        """
        found = parse_jwt(proof) if len(proof) <= _MAX_PROOF else None
        if found is None or found.header.get("typ") != "dpop+jwt" or "crit" in found.header:
            return _fault("form", "another one", "a JWT with typ dpop+jwt and no crit")
        thumbprint = _thumbprint(found.header.get("jwk"))
        if thumbprint is None or found.header.get("alg") not in DPOP_ALGORITHMS:
            return _fault("jwk or alg", "not usable", f"a public key for {', '.join(DPOP_ALGORITHMS)}")
        claims = found.claims
        # RFC 9449 §4.3: htm and htu bind the proof to one request, ath to one token. Without them, a proof that
        # another server saw could be sent here.
        identity, made, digest = (
            claims.get("jti"),
            claims.get("iat"),
            base64url(sha256(token.reveal().encode()).digest()),
        )
        if claims.get("htm") != method:
            return _wrong("htm", claims, method)
        if not _is_url(claims.get("htu"), resource, target):
            return _wrong("htu", claims, resource)
        if not isinstance(identity, str) or not 0 < len(identity) <= 256:
            return _wrong("jti", claims, "a text of at most 256 characters")
        if claims.get("ath") != digest:
            return _fault("ath", "another digest", "that of the token")
        if not is_number(made) or abs(at - made) > PROOF_SECONDS:
            return _wrong("iat", claims, f"at most {PROOF_SECONDS:g} s from now, which is {at:.0f}")
        if not is_signed(found, _key(found.header["jwk"])):
            return _fault("signature", "wrong", "one by its jwk")
        if self._nonces is not None and claims.get("nonce") not in (self._nonce(at), self._nonce(at - PROOF_SECONDS)):
            return ProofFault("use_dpop_nonce", self._nonce(at))
        return self._remember(thumbprint, identity, made + PROOF_SECONDS, at)

    def _remember(self, thumbprint: str, identity: str, until: float, at: float) -> str | ProofFault:
        while self._expiries and self._expiries[0][0] < at:
            self._used.discard(self._expiries.popleft()[1])
        name = sha256(dumps([thumbprint, identity])).digest()[:16]
        if name in self._used:
            return _fault("jti", "one that was used before", "another one for each request")
        if len(self._used) >= MOST_PROOFS:
            # To forget one would let it be used again.
            return ProofFault("overloaded")
        self._used.add(name)
        # Until the last moment at which any of them is accepted, so that the queue is in order.
        self._expiries.append((max(until, at + 2 * PROOF_SECONDS), name))
        return thumbprint

    def _nonce(self, at: float) -> str:
        assert self._nonces is not None
        slot = b"%d" % (at // PROOF_SECONDS)
        return base64url(hmac.digest(self._nonces.reveal().encode(), slot, "sha256")[:16])


def _thumbprint(jwk: Any) -> str | None:
    """Return the thumbprint of a public key (RFC 7638), ``None`` for anything else."""
    if not isinstance(jwk, dict) or "d" in jwk:
        return None
    kind = jwk.get("kty")
    if not isinstance(kind, str) or kind not in _MEMBERS:
        return None
    members = {name: jwk.get(name) for name in _MEMBERS[kind]}
    if not all(isinstance(value, str) and value.isascii() for value in members.values()):
        return None
    return base64url(sha256(dumps(members)).digest())


def _key(jwk: Any) -> Any:
    from joserfc.jwk import import_key

    try:
        return import_key({name: jwk[name] for name in _MEMBERS[jwk["kty"]]})
    except Exception:
        # A key that the library cannot read has signed nothing.
        return None


def _is_url(said: Any, resource: str, target: str) -> bool:
    if not isinstance(said, str) or "?" in said or "#" in said:
        return False
    wanted = urlsplit(resource)
    origin, path = f"{wanted.scheme}://{wanted.netloc}", target.partition("?")[0]
    return said in (resource, resource + "/", origin + path)


def _wrong(claim: str, claims: Mapping[str, Any], expected: str) -> ProofFault:
    return ProofFault(
        "invalid_dpop_proof", why=(InvalidToken.of(f"{claim} of the proof", claims.get(claim), expected),)
    )


def _fault(part: str, found: str, expected: str) -> ProofFault:
    return ProofFault("invalid_dpop_proof", why=(InvalidToken(f"{part} of the proof", found, expected),))
