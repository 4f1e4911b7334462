"""Flows over stored credentials, which other machines and processes share: loading, saving, and renewing.

No refresh token is presented twice (AUTH-41). The whole decision to renew stands under the lock, and before a refresh
token is presented the record is marked; that write succeeds for one machine only, even where a store cannot lock. So
the mark of a record that was read without the lock says nothing: another process may be renewing the token.
"""

from __future__ import annotations

from typing import Final, Protocol

import attrs

from mcpio.auth.credentials import Credentials, from_text, to_text
from mcpio.auth.effects import (
    Flow,
    FlowContext,
    LoadCredentials,
    LockCredentials,
    Pause,
    RestoreCredentials,
    SaveCredentials,
    Stored,
    UnlockCredentials,
)
from mcpio.auth.errors import AuthorizationError, EffectFailed, FlowAbandoned
from mcpio.auth.secret import Secret
from mcpio.auth.signing import Signer
from mcpio.auth.token_requests import refresh
from mcpio.auth.tokens import TokenSet

__all__ = ["load_credentials", "newest_credentials", "renew_credentials", "restore_credentials", "save_credentials"]

_TRIES: Final = 3


def load_credentials(key: str) -> Flow[tuple[Credentials, int | None]]:
    """Return the stored credentials and their version. A record that cannot be read counts as empty."""
    stored: Stored | None = yield LoadCredentials(key=key)
    if stored is None:
        return Credentials(), None
    try:
        return from_text(Credentials, stored.record), stored.version
    except ValueError:
        return Credentials(), stored.version


def save_credentials(key: str, credentials: Credentials) -> Flow[None]:
    """Replace the stored credentials, but keep the registrations of other issuers.

    Raises EffectFailed where the store fails.
    """
    for _ in range(_TRIES):
        stored, version = yield from load_credentials(key)
        merged = attrs.evolve(credentials, registrations={**stored.registrations, **credentials.registrations})
        if (yield SaveCredentials(key=key, record=to_text(merged), version=version)) is not None:
            return
    raise EffectFailed("the stored credentials change all the time")


def renew_credentials(
    context: FlowContext,
    key: str,
    known: Credentials,
    refused: TokenSet | None,
    signer: Signer | None = None,
    *,
    was_stored: bool = False,
) -> Flow[tuple[Credentials, EffectFailed | None]]:
    """Return credentials with another token than ``refused``: a stored one of another process, or a renewed one.

    The error beside them says why the renewed token could not be stored; it is of use all the same. ``refused`` is
    ``None`` where the known token is merely about to expire; ``was_stored`` says that a record of the known token was
    stored, so that its absence means a logout. Raises AuthorizationError as `refresh` does, with the code
    ``"invalid_grant"`` after a logout and where the refresh token was presented already; a temporary failure of the
    store is one too.
    """
    yield LockCredentials(key=key)
    try:
        found = yield from _renew_locked(context, key, known, refused, signer, was_stored)
    except AuthorizationError:
        yield UnlockCredentials(key=key)
        raise
    yield UnlockCredentials(key=key)
    return found


def _renew_locked(
    context: FlowContext,
    key: str,
    known: Credentials,
    refused: TokenSet | None,
    signer: Signer | None,
    was_stored: bool,
) -> Flow[tuple[Credentials, EffectFailed | None]]:
    for _ in range(_TRIES):
        current, version, problem = yield from _current(key, known, was_stored)
        if _is_other(current, known, context.now):
            return current, None
        if current.refresh_token is None:
            raise AuthorizationError("the refresh token was presented already", code="invalid_grant")
        marked, left = to_text(attrs.evolve(current, spent_at=context.now)), to_text(current)
        try:
            is_marked, version = yield from _mark(key, marked, version, problem)
            if not is_marked:
                continue
            renewed = yield from _patiently(context, current, refused, signer)
            if problem is not None:
                return renewed, problem
            left = to_text(renewed)
            return (yield from _saved(context, key, renewed, left, version))
        except AuthorizationError as error:
            if error.temporary and problem is None:
                # Cancelled, or without an answer in time. As far as is known, the server has not taken the refresh
                # token: only invalid_grant drops it.
                yield RestoreCredentials(key=key, marked=marked, record=left)
            raise
    raise EffectFailed("the stored credentials change all the time")


def _current(
    key: str, known: Credentials, was_stored: bool
) -> Flow[tuple[Credentials, int | None, EffectFailed | None]]:
    """Return the credentials to renew and the version of their record, or why that cannot be read.

    A record that is damaged, or has become unreadable, does not take from this process what it knows.
    """
    try:
        stored, version = yield from load_credentials(key)
    except FlowAbandoned:
        raise
    except EffectFailed as problem:
        return known, None, problem
    if version is None and was_stored:
        raise AuthorizationError("the stored credentials were removed by a logout", code="invalid_grant")
    return newest_credentials(stored, known), version, None


def newest_credentials(stored: Credentials, known: Credentials) -> Credentials:
    """Return stored credentials, or those that this process knows where their token is newer.

    It is where the store failed to save it, or was damaged since.
    """
    if stored.token is None or (known.token is not None and stored.token.obtained_at < known.token.obtained_at):
        return attrs.evolve(known, registrations={**stored.registrations, **known.registrations})
    return stored


def _mark(key: str, marked: Secret, version: int | None, problem: EffectFailed | None) -> Flow[tuple[bool, int | None]]:
    """Mark the record, unless it cannot be used; return whether no other process has changed it, and its version."""
    if problem is not None:
        return True, None
    version = yield SaveCredentials(key=key, record=marked, version=version)
    return version is not None, version


def _is_other(stored: Credentials, known: Credentials, now: float) -> bool:
    """Return whether another process has stored a token that is usable."""
    return stored.token is not None and stored.token != known.token and stored.token.is_usable(now)


def _saved(
    context: FlowContext, key: str, renewed: Credentials, record: Secret, version: int | None
) -> Flow[tuple[Credentials, EffectFailed | None]]:
    """Store renewed credentials, but never over a login or a logout of the meantime."""
    try:
        if (yield SaveCredentials(key=key, record=record, version=version)) is not None:
            return renewed, None
        stored, _ = yield from load_credentials(key)
    except FlowAbandoned:
        raise
    except EffectFailed as error:
        return renewed, error
    return stored if _is_other(stored, renewed, context.now) else renewed, None


def _patiently(
    context: FlowContext, current: Credentials, refused: TokenSet | None, signer: Signer | None
) -> Flow[Credentials]:
    """Refresh, and retry after a pause if the server is busy, unless the old token is still usable."""
    token = current.token
    waits = refused is not None or token is None or not token.is_usable(context.now)
    for attempt in range(_TRIES):
        try:
            return (yield from refresh(context, current, signer))
        except AuthorizationError as error:
            if not error.temporary or isinstance(error, FlowAbandoned) or not waits or attempt == _TRIES - 1:
                raise
        yield Pause(seconds=2.0**attempt)
    raise AssertionError  # pragma: no cover - the last attempt returns or raises


class _Records(Protocol):
    """The part of a store that `restore_credentials` uses."""

    def load(self, key: str) -> Stored | None: ...

    def swap(self, key: str, record: Secret, version: int | None) -> int | None: ...


def restore_credentials(store: _Records, effect: RestoreCredentials) -> None:
    """Perform a `RestoreCredentials` with a store, such as `MemoryCredentials`. Raises as the store does."""
    found = store.load(effect.key)
    if found is not None and found.record == effect.marked:
        store.swap(effect.key, effect.record, found.version)
