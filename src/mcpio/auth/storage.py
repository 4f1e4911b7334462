"""Flows over stored credentials, which other machines and processes share: loading, saving, and renewing.

No refresh token is presented twice (AUTH-41). The whole decision to renew stands under the lock, and before a refresh
token is presented the record says so; that write succeeds for one machine only, even where a store cannot lock.
"""

from __future__ import annotations

from typing import Final

import attrs

from mcpio.auth.credentials import Credentials, from_text, to_text
from mcpio.auth.effects import (
    Flow,
    FlowContext,
    LoadCredentials,
    LockCredentials,
    Pause,
    SaveCredentials,
    Stored,
    UnlockCredentials,
)
from mcpio.auth.errors import AuthorizationError, EffectFailed
from mcpio.auth.signing import Signer
from mcpio.auth.token_requests import refresh
from mcpio.auth.tokens import TokenSet

__all__ = ["load_credentials", "renew_credentials", "save_credentials"]

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
    context: FlowContext, key: str, known: Credentials, refused: TokenSet | None, signer: Signer | None = None
) -> Flow[tuple[Credentials, EffectFailed | None]]:
    """Return credentials with another token than ``refused``: a stored one of another process, or a renewed one.

    The error beside them says why the renewed token could not be stored; it is of use all the same. ``refused`` is
    ``None`` where the known token is merely about to expire. Raises AuthorizationError as `refresh` does, with the
    code ``"invalid_grant"`` where the refresh token was presented already; a temporary failure of the store is one too.
    """
    yield LockCredentials(key=key)
    try:
        found = yield from _renew_locked(context, key, known, refused, signer)
    except AuthorizationError:
        yield UnlockCredentials(key=key)
        raise
    yield UnlockCredentials(key=key)
    return found


def _renew_locked(
    context: FlowContext, key: str, known: Credentials, refused: TokenSet | None, signer: Signer | None
) -> Flow[tuple[Credentials, EffectFailed | None]]:
    current, version = yield from _claim(context, key, known)
    if current.token != known.token and current.token is not None and current.token.is_usable(context.now):
        return current, None
    renewed = yield from _patiently(context, key, current, version, refused, signer)
    try:
        if (yield SaveCredentials(key=key, record=to_text(renewed), version=version)) is None:
            yield from save_credentials(key, renewed)
    except EffectFailed as error:
        return renewed, error
    return renewed, None


def _claim(context: FlowContext, key: str, known: Credentials) -> Flow[tuple[Credentials, int | None]]:
    """Mark the refresh token as presented and return the credentials, or return those with another process's token."""
    for _ in range(_TRIES):
        current, version = yield from load_credentials(key)
        if version is None:
            current = known
        other = current.token is not None and current.token != known.token
        if other and current.token is not None and current.token.is_usable(context.now):
            return current, version
        if current.refresh_token is None:
            raise AuthorizationError("the refresh token was presented already", code="invalid_grant")
        spent = attrs.evolve(current, spent_at=context.now)
        version = yield SaveCredentials(key=key, record=to_text(spent), version=version)
        if version is not None:
            return current, version
    raise EffectFailed("the stored credentials change all the time")


def _patiently(
    context: FlowContext,
    key: str,
    current: Credentials,
    version: int | None,
    refused: TokenSet | None,
    signer: Signer | None,
) -> Flow[Credentials]:
    """Refresh, and retry after a pause if the server is busy, unless the old token is still usable."""
    token = current.token
    waits = refused is not None or token is None or not token.is_usable(context.now)
    for attempt in range(_TRIES):
        try:
            return (yield from refresh(context, current, signer))
        except AuthorizationError as error:
            if not error.temporary:
                raise
            if not waits or attempt == _TRIES - 1:
                # The server has not taken the refresh token, as far as is known: only invalid_grant drops it.
                yield SaveCredentials(key=key, record=to_text(current), version=version)
                raise
        yield Pause(seconds=2.0**attempt)
    raise AssertionError  # pragma: no cover - the last attempt returns or raises
