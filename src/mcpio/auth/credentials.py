"""Credentials that a client keeps between two runs: registrations, tokens, and the metadata to renew them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import attrs

from mcpio.auth.effects import Stored
from mcpio.auth.metadata import AuthorizationServerMetadata
from mcpio.auth.registration import Registration
from mcpio.auth.secret import Secret
from mcpio.auth.tokens import TokenSet
from mcpio.framing.json import dumps, loads

if TYPE_CHECKING:
    from cattrs import Converter

__all__ = ["Credentials", "MemoryCredentials", "from_text", "to_text"]

T = TypeVar("T")

_VERSION: Final = 1
"""The version of the layout, in every text that is written."""


@attrs.frozen
class Credentials:
    """The credentials of one account at one MCP server."""

    token: TokenSet | None = None
    """The current token."""
    server: AuthorizationServerMetadata | None = None
    """The issuer of the token: a refresh after a restart needs its endpoints."""
    registrations: Mapping[str, Registration] = attrs.field(factory=dict)
    """The clients, by issuer."""
    requested: frozenset[str] = frozenset()
    """All scopes that were requested for the token, so that a further request loses none (AUTH-35)."""
    spent_at: float | None = None
    """When the refresh token was presented, in Unix seconds, and ``None`` once the answer is known. A token that a
    process presented without living to see the answer is presented no second time."""

    proof_key: Secret | None = None
    """The private key of bound tokens, as PEM. A public client's refresh token is bound to it too."""

    def authorized(
        self,
        token: TokenSet,
        server: AuthorizationServerMetadata,
        client: Registration,
        requested: frozenset[str],
        proof_key: Secret | None = None,
    ) -> Self:
        """Return the credentials with a new token; ``proof_key`` is the key that it is bound to."""
        return attrs.evolve(
            self,
            token=token,
            server=attrs.evolve(server, document={}),
            registrations=self.with_registration(client).registrations,
            requested=requested,
            spent_at=None,
            proof_key=proof_key,
        )

    def without_registration(self, issuer: str) -> Self:
        """Return the credentials without the client of an issuer, and without the refresh token that it obtained."""
        registrations = {name: each for name, each in self.registrations.items() if name != issuer}
        token = self.token
        if token is not None and token.issuer == issuer:
            token = attrs.evolve(token, refresh_token=None)
        return attrs.evolve(self, registrations=registrations, token=token)

    def with_registration(self, client: Registration) -> Self:
        """Return the credentials with a client, in place of the one of the same issuer."""
        return attrs.evolve(self, registrations={**self.registrations, client.issuer: client})

    @property
    def refresh_token(self) -> Secret | None:
        """The refresh token, unless it was presented already."""
        return None if self.token is None or self.spent_at is not None else self.token.refresh_token


class MemoryCredentials:
    """Keeps credentials as long as the process lives. A store for drivers: every call returns at once."""

    blocking: bool = False

    def __init__(self) -> None:
        self._stored: dict[str, Stored] = {}
        self._locked: set[str] = set()
        self._last_version = 0

    def load(self, key: str) -> Stored | None:
        """Return the record of a key and its version, or ``None``."""
        return self._stored.get(key)

    def swap(self, key: str, record: Secret, version: int | None) -> int | None:
        """Replace the record of that version. Returns the new version, or ``None`` where another one is stored."""
        found = self._stored.get(key)
        if (found.version if found else None) != version:
            return None
        # Never one from before: a record that was forgotten and stored again is another one.
        self._last_version += 1
        self._stored[key] = Stored(record, self._last_version)
        return self._last_version

    def forget(self, key: str) -> None:
        """Remove the record of a key."""
        self._stored.pop(key, None)

    def keys(self) -> list[str]:
        """Return the keys of all records."""
        return list(self._stored)

    def try_lock(self, key: str) -> bool:
        """Acquire the lock of a key, without waiting. Returns whether it was free."""
        if key in self._locked:
            return False
        self._locked.add(key)
        return True

    def unlock(self, key: str) -> None:
        """Release the lock of a key. Does nothing if it is not held."""
        self._locked.discard(key)


def to_text(value: Any) -> Secret:
    """Return credentials or a pending authorization as one JSON text, with the secrets in it."""
    members = {"version": _VERSION, "value": _converter().unstructure(value)}
    return Secret(dumps(members).decode())


def from_text(kind: type[T], text: Secret) -> T:
    """Return the value that `to_text` wrote. Raises ValueError for another text, whose parts it does not quote."""
    # cattrs raises groups of anything, with the values in their texts.
    with contextlib.suppress(Exception):
        members = loads(text.reveal())
        if members["version"] == _VERSION:
            return _converter().structure(members["value"], kind)
    raise ValueError(f"not a stored {kind.__name__} of version {_VERSION}")


@functools.cache
def _converter() -> Converter:
    # Imported with its first use, because cattrs is slow to import.
    from cattrs import Converter

    converter = Converter(forbid_extra_keys=True, unstruct_collection_overrides={frozenset: sorted})
    converter.register_unstructure_hook(Secret, Secret.reveal)
    converter.register_structure_hook(Secret, lambda value, _: Secret(_text(value)))
    converter.register_structure_hook(str, lambda value, _: _text(value))
    return converter


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value
