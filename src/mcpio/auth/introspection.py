"""Introspection of tokens that only their authorization server can read (RFC 7662)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, TypeVar

from mcpio._checks import checked, is_amount, required
from mcpio.auth.claims import confirmation_in, fault_of_times, is_for, scopes_in
from mcpio.auth.clients import authenticated
from mcpio.auth.discovery import post_form
from mcpio.auth.documents import read_document
from mcpio.auth.effects import Flow, FlowContext
from mcpio.auth.errors import AuthorizationError, quoted
from mcpio.auth.grant import Grant
from mcpio.auth.registration import Registration
from mcpio.auth.secret import Secret, as_secret
from mcpio.auth.signing import Signer
from mcpio.auth.urls import check_endpoint
from mcpio.auth.verifiers import InvalidToken, NeedKeys

__all__ = ["Introspection"]

T = TypeVar("T")

_VERDICTS: Final = 1024
"""How many answers of each kind are kept."""
_VERDICT_SECONDS: Final = 60.0
_SECRET_METHODS: Final = ("client_secret_basic", "client_secret_post")
_SIGNER_METHODS: Final = ("private_key_jwt",)
_REJECTED_SECONDS: Final = 10.0
"""How long the answer for an inactive token is kept."""


class Introspection:
    """Asks the authorization server about each token, and keeps the answer for at most a minute (AUTH-55).

    ``url`` is the introspection endpoint of ``issuer``. This server is the client ``client_id`` there, and
    authenticates with ``secret`` or, by ``private_key_jwt``, with ``signer``. ``audience`` is what ``aud`` must
    contain, by default the resource of the server; ``any_audience=True`` accepts tokens for other servers, where
    the authorization server issues no ``aud`` and its tokens are for this server alone. ``leeway`` is how many seconds
    the clocks of the two may differ, for ``exp`` and ``nbf``.

    A token that is revoked is accepted until the kept answer is a minute old. While the authorization server does not
    answer, requests are refused with 503.

    Raises ValueError without exactly one of ``secret`` and ``signer``, and for an ``auth_method`` that does not use it.
    """

    challenges_with_metadata: bool = True
    """True: clients get such tokens from an authorization server."""
    header: str = "authorization"
    """The header field that has the token."""

    def __init__(
        self,
        url: str,
        *,
        issuer: str,
        client_id: str,
        secret: Secret | str | None = None,
        signer: Signer | None = None,
        auth_method: str | None = None,
        audience: str | None = None,
        any_audience: bool = False,
        leeway: float = 30.0,
    ) -> None:
        if (secret is None) == (signer is None):
            raise ValueError("introspection needs either secret= or signer=: the endpoint answers known clients only")
        usable = _SIGNER_METHODS if signer is not None else _SECRET_METHODS
        method = auth_method or usable[0]
        if method not in usable:
            given = "signer=" if signer is not None else "secret="
            raise ValueError(f"auth_method= is {' or '.join(map(repr, usable))} with {given}, not {method!r:.100}")
        if not is_amount(leeway):
            raise ValueError(f"leeway= takes a number of seconds from 0 up, not {leeway!r:.100}")
        self._leeway = leeway
        self._url = required("url", url, str)
        self._client = Registration(
            required("issuer", issuer, str), required("client_id", client_id, str), method, as_secret(secret)
        )
        self._signer = signer
        self._audience = checked("audience", audience, str)
        self._any_audience = any_audience
        # By the digest of a token: its claims, and until when they hold. Inactive tokens have a table of their own:
        # anyone can make some up, and they must not push out the answers for the tokens of others.
        self._active: OrderedDict[bytes, tuple[Mapping[str, Any], float]] = OrderedDict()
        self._rejected: OrderedDict[bytes, tuple[None, float]] = OrderedDict()

    def load_key(self, token: Secret) -> bytes:
        """Return the digest of the token: one request asks for all that present it."""
        return sha256(token.reveal().encode()).digest()

    def verify(self, token: Secret, resource: str | None, at: float) -> Grant | NeedKeys | InvalidToken:
        """Return the grant of a token, `NeedKeys` to ask for it, or why it is not valid."""
        key = self.load_key(token)
        known = self._active.get(key) or self._rejected.get(key)
        if known is None or at >= known[1]:
            return NeedKeys.NEED_KEYS
        return _INACTIVE if known[0] is None else self._granted(known[0], resource, at)

    def load_keys(self, context: FlowContext, token: Secret) -> Flow[None]:
        """Ask for a token. Raises AuthorizationError where the authorization server gives no answer."""
        endpoint = check_endpoint(self._url, context.server_url, "the introspection endpoint")
        fields, headers = yield from authenticated(context, self._client, self._signer)
        form = {"token": token.reveal(), "token_type_hint": "access_token", **fields}
        response = yield from post_form(context, endpoint, form, headers)
        if response.status != 200:
            raise AuthorizationError(f"{quoted(endpoint)} answers with status {response.status}", temporary=True)
        answer = read_document(response.body, "the answer of the introspection endpoint")
        # Anything but true is a token that is not active.
        key, is_active = self.load_key(token), answer.get("active") is True
        # The other table may have the answer from before, which the new one replaces.
        self._active.pop(key, None)
        self._rejected.pop(key, None)
        if is_active:
            _keep(self._active, key, (answer, context.now + _VERDICT_SECONDS))
        else:
            _keep(self._rejected, key, (None, context.now + _REJECTED_SECONDS))

    def _granted(self, claims: Mapping[str, Any], resource: str | None, at: float) -> Grant | InvalidToken:
        issuer, expires, audience = claims.get("iss", self._client.issuer), claims.get("exp"), claims.get("aud")
        if issuer != self._client.issuer:
            return InvalidToken.of("iss", issuer, quoted(self._client.issuer))
        if (fault := fault_of_times(claims, at, self._leeway)) is not None:
            return fault
        wanted = self._audience or resource
        if not self._any_audience and not is_for(audience, wanted):
            return InvalidToken.of("aud", audience, quoted(wanted or ""))
        subject, client = claims.get("sub", claims.get("username")), claims.get("client_id")
        confirmation = confirmation_in(claims)
        if confirmation is None:
            return InvalidToken.of("cnf", claims.get("cnf"), "x5t#S256 or jkt")
        # A session belongs to an identity, and all tokens without one would share it.
        for name, value in (("sub", subject), ("client_id", client)):
            if not isinstance(value, str | None) or (subject is None and client is None):
                return InvalidToken.of(name, value, "a text, here or in the other of sub and client_id")
        expires_at = None if expires is None else float(expires)
        return Grant(issuer, subject, client, scopes_in(claims, ("scope",)), expires_at, claims, confirmation)


_INACTIVE: Final = InvalidToken("the token", "not active", "one that the authorization server knows")


def _keep(verdicts: OrderedDict[bytes, T], key: bytes, verdict: T) -> None:
    verdicts[key] = verdict
    if len(verdicts) > _VERDICTS:
        verdicts.popitem(last=False)
