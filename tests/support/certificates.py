"""TLS among tests: an authority that both ends may trust, and what it issues."""

from __future__ import annotations

import datetime as dt
import ssl
from collections.abc import Sequence
from functools import cache
from typing import Any

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


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


def showing(subject: x509.Name, alternatives: Sequence[x509.GeneralName] = ()) -> ssl.SSLContext:
    """Return the context of a client that trusts the authority, and shows a certificate with just these names."""
    issuer = x509.load_pem_x509_certificate(authority().cert_pem.bytes())
    signing: Any = serialization.load_pem_private_key(authority().private_key_pem.bytes(), None)
    key = ec.generate_private_key(ec.SECP256R1())
    start = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - dt.timedelta(hours=1))
        .not_valid_after(start + dt.timedelta(hours=1))
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
    )
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=not list(subject))
    encoded = builder.sign(signing, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    context = trusting()
    trustme.LeafCert(secret, encoded, []).configure_cert(context)
    return context


ADA = ("ada@example.org", "ada")
