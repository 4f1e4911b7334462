"""Verifiers of bearer tokens: their interface, and API keys."""

from __future__ import annotations

import enum
import re
import reprlib
from collections.abc import Hashable, Iterable, Mapping
from hashlib import sha256
from typing import Any, Final, Protocol

import attrs

from mcpio._checks import required
from mcpio._printable import printable
from mcpio.auth.effects import Flow, FlowContext
from mcpio.auth.errors import quoted
from mcpio.auth.grant import Grant
from mcpio.auth.options import mapping_of, scopes_of
from mcpio.auth.pkce import Entropy, base64url
from mcpio.auth.secret import Secret

__all__ = ["ApiKeys", "InvalidToken", "NeedKeys", "Verifier", "api_key_digest", "new_api_key"]

_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


class NeedKeys(enum.Enum):
    """Verdict of a verifier that must fetch keys first, or ask for the token."""

    NEED_KEYS = "need keys"


@attrs.frozen
class InvalidToken:
    """Why a token is not valid, for the log of the server. Its sender never learns it (AUTH-47)."""

    claim: str
    """The claim, or the part of the token or request, that is wrong."""
    found: str
    """Its value, shortened, with unusual characters escaped."""
    expected: str
    """What would be accepted."""

    @classmethod
    def of(cls, claim: str, value: Any, expected: str) -> InvalidToken:
        """Return the fault of a claim; ``None`` is a claim that is missing."""
        if value is None:
            return cls(claim, "missing", expected)
        return cls(claim, quoted(value) if isinstance(value, str) else printable(_short.repr(value)), expected)

    def __str__(self) -> str:
        return f"{self.claim} is {self.found}, expected {self.expected}"


class Verifier(Protocol):
    """Verifies tokens for a protected server. It keeps state, so each server needs its own."""

    @property
    def challenges_with_metadata(self) -> bool:
        """Whether a client gets such tokens from an authorization server, which the challenge then points to."""

    @property
    def header(self) -> str:
        """The header field that has the token, in lower case; ``authorization`` is read as ``Bearer``."""

    def verify(self, token: Secret, resource: str | None, at: float) -> Grant | NeedKeys | InvalidToken | None:
        """Return the grant of a token at ``at``, in Unix seconds.

        For a token that is not valid for this server, return `InvalidToken` with the reason, or ``None``. ``resource``
        is this server, which must be among the token's audiences. Never raises for a token.
        """

    def load_key(self, token: Secret) -> Hashable:
        """Return what to load for a token: requests for which it is equal wait for one flow."""

    def load_keys(self, context: FlowContext, token: Secret) -> Flow[None]:
        """Fetch the data that the verification of a token needs. Raises AuthorizationError if that fails."""


def _header_name(value: str) -> str:
    """Return the name of a field in lower case, in which fields of requests are compared with it."""
    if _NAME.fullmatch(required("header", value, str)) is None:
        raise ValueError(f"ApiKeys: {value!r:.60} is not a valid header name")
    return value.lower()


def _scopes_by_subject(value: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    return {subject: scopes_of(scopes) or frozenset() for subject, scopes in mapping_of("scopes", value).items()}


def _by_digest(value: Mapping[str, str]) -> Mapping[str, str]:
    return mapping_of("principals", value)


@attrs.frozen
class ApiKeys:
    """Static keys, of which only digests are kept (AUTH-57).

    Raises ValueError for a malformed digest or header name, and TypeError for an option of another type.

    Keys are looked up by digest, so the time of a lookup reveals nothing about a key.
    """

    principals: Mapping[str, str] = attrs.field(repr=False, converter=_by_digest)
    """Digest -> the subject of the grant; `api_key_digest` makes the digests."""
    _header: str = attrs.field(default="authorization", converter=_header_name)
    scopes: Mapping[str, frozenset[str]] = attrs.field(factory=dict, converter=_scopes_by_subject)
    """Subject -> the scopes of its keys."""

    @property
    def header(self) -> str:
        """The header field with the key: ``authorization`` as ``Bearer``, or another field such as ``x-api-key``."""
        return self._header  # of a field with a converter, pyright does not believe that it is text

    @property
    def challenges_with_metadata(self) -> bool:
        """False: API keys are not issued on demand."""
        return False

    def __attrs_post_init__(self) -> None:
        for digest in self.principals:
            if len(required("principals", digest, str)) != 64 or not set(digest) <= set("0123456789abcdef"):
                raise ValueError("a digest is SHA-256 in 64 hexadecimal digits, in lower case")

    def verify(self, token: Secret, resource: str | None, at: float) -> Grant | InvalidToken:
        """Return the grant of a key, or that it is unknown."""
        subject = self.principals.get(api_key_digest(token))
        if subject is None:
            return _UNKNOWN_KEY
        return Grant(None, subject, scopes=self.scopes.get(subject, frozenset()))

    def load_key(self, token: Secret) -> None:
        """Return ``None``: nothing is fetched."""

    def load_keys(self, context: FlowContext, token: Secret) -> Flow[None]:
        """Do nothing: API keys need no fetch."""
        yield from ()


_UNKNOWN_KEY: Final = InvalidToken("the API key", "unknown", "one whose digest is in ApiKeys")
_short: Final = reprlib.Repr()
_short.maxstring = 100


def new_api_key(entropy: Entropy) -> Secret:
    """Return a new key of 256 bits, to be shown once. Keep its digest."""
    return Secret("mcp_" + base64url(entropy(32)))


def api_key_digest(key: Secret | str) -> str:
    """Return the digest of a key, for `ApiKeys`."""
    text = key.reveal() if isinstance(key, Secret) else key
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
