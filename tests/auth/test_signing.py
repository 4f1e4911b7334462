from __future__ import annotations

from base64 import urlsafe_b64decode
from typing import Any

import pytest
from authkeys import ED25519, new_key, parts
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from mcpio.auth import load_signer, signed_jwt


def number(text: str) -> int:
    return int.from_bytes(urlsafe_b64decode(text + "=="), "big")


def test_a_signature_with_p_256_is_verified_and_the_same_each_time() -> None:
    pem = new_key()
    signer: Any = load_signer(pem, key_id="k1")
    jwt = signed_jwt(signer, {"sub": "a"}, "at+jwt")
    assert parts(jwt) == [{"alg": "ES256", "typ": "at+jwt", "kid": "k1"}, {"sub": "a"}]
    assert jwt == signed_jwt(load_signer(pem.encode(), key_id="k1"), {"sub": "a"}, "at+jwt")
    signed, _, signature = jwt.rpartition(".")
    raw = urlsafe_b64decode(signature + "==")
    der = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    jwk = signer.public_jwk
    public = ec.EllipticCurvePublicNumbers(number(jwk["x"]), number(jwk["y"]), ec.SECP256R1()).public_key()
    public.verify(der, signed.encode(), ec.ECDSA(hashes.SHA256()))


def test_a_signature_with_ed25519_is_verified() -> None:
    signer: Any = load_signer(ED25519)
    signed, _, signature = signed_jwt(signer, {}).rpartition(".")
    key = load_pem_private_key(ED25519.encode(), None)
    assert isinstance(key, ed25519.Ed25519PrivateKey)
    key.public_key().verify(urlsafe_b64decode(signature + "=="), signed.encode())
    assert parts(f"{signed}.x")[0] == {"alg": "EdDSA", "typ": "JWT"}
    assert signer.public_jwk["crv"] == "Ed25519"


@pytest.mark.parametrize("kind", ["RSA", "P-384"])
def test_another_key_raises(kind: str) -> None:
    with pytest.raises(ValueError, match="P-256 or Ed25519"):
        load_signer(new_key(kind))


def test_the_representation_of_a_signer_hides_the_key() -> None:
    assert "sign=" not in repr(load_signer(ED25519))


def test_key_with_a_password_raises_value_error() -> None:
    key = load_pem_private_key(ED25519.encode(), None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    with pytest.raises(ValueError, match="encrypted"):
        load_signer(pem)
    with pytest.raises(TypeError, match="pem must be"):
        load_signer(None)  # type: ignore[arg-type]  # of another type
