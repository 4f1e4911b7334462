"""Introspection of tokens that only their authorization server can read (RFC 7662)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from mcpio.auth.claims import confirmation_in, is_for, is_number, scopes_in
from mcpio.auth.clients import authenticated
from mcpio.auth.discovery import post_form
from mcpio.auth.documents import read_document
from mcpio.auth.effects import Flow, FlowContext
from mcpio.auth.errors import AuthorizationError, quoted
from mcpio.auth.grant import Grant
from mcpio.auth.registration import Registration
from mcpio.auth.secret import Secret
from mcpio.auth.signing import Signer
from mcpio.auth.urls import check_endpoint
from mcpio.auth.verifiers import NeedKeys

__all__ = ["Introspection"]

_VERDICTS: Final = 1024
_VERDICT_SECONDS: Final = 60.0
_REJECTED_SECONDS: Final = 10.0
"""How long the answer for an inactive token is kept."""


class Introspection:
    """Asks the authorization server about each token, and keeps the answer for at most a minute (AUTH-55).

    ``url`` is the introspection endpoint of ``issuer``. This server is the client ``client_id`` there, and
    authenticates with ``secret`` or, by ``private_key_jwt``, with ``signer``. ``audience`` is what ``aud`` must
    contain, by default the resource of the server; ``any_audience=True`` accepts tokens for other servers, where
    the authorization server issues no ``aud`` and its tokens are for this server alone.

    A token that is revoked is accepted until the kept answer is a minute old. While the authorization server does not
    answer, requests are refused with 503.
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
    ) -> None:
        method = auth_method or ("private_key_jwt" if signer is not None else "client_secret_basic")
        if (secret is None) == (signer is None):
            raise ValueError("introspection needs either secret= or signer=: the endpoint answers known clients only")
        kept = Secret(secret) if isinstance(secret, str) else secret
        self._url = url
        self._client = Registration(issuer, client_id, method, kept)
        self._signer = signer
        self._audience = audience
        self._any_audience = any_audience
        # By the digest of a token: its grant, or None for one that is not active, and until when that holds.
        self._verdicts: OrderedDict[bytes, tuple[Mapping[str, Any] | None, float]] = OrderedDict()

    def load_key(self, token: Secret) -> bytes:
        """Return the digest of the token: one request asks for all that present it."""
        return sha256(token.reveal().encode()).digest()

    def verify(self, token: Secret, resource: str | None, at: float) -> Grant | NeedKeys | None:
        """Return the grant of a token, `NeedKeys` to ask for it, or ``None`` for an invalid token."""
        known = self._verdicts.get(self.load_key(token))
        if known is None or at >= known[1]:
            return NeedKeys.NEED_KEYS
        return None if known[0] is None else self._granted(known[0], resource, at)

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
        claims = answer if answer.get("active") is True else None
        until = context.now + (_REJECTED_SECONDS if claims is None else _VERDICT_SECONDS)
        self._verdicts[self.load_key(token)] = (claims, until)
        if len(self._verdicts) > _VERDICTS:
            self._verdicts.popitem(last=False)

    def _granted(self, claims: Mapping[str, Any], resource: str | None, at: float) -> Grant | None:
        issuer, expires = claims.get("iss", self._client.issuer), claims.get("exp")
        if issuer != self._client.issuer:
            return None
        if expires is not None and not (is_number(expires) and at < expires):
            return None
        begins = claims.get("nbf", at)
        if not is_number(begins) or at < begins:
            return None
        if not self._any_audience and not is_for(claims.get("aud"), self._audience or resource):
            return None
        subject, client = claims.get("sub", claims.get("username")), claims.get("client_id")
        confirmation = confirmation_in(claims)
        if confirmation is None or not isinstance(subject, str | None) or not isinstance(client, str | None):
            return None
        if subject is None and client is None:
            # A session belongs to an identity, and all such tokens would share one.
            return None
        expires_at = None if expires is None else float(expires)
        return Grant(issuer, subject, client, scopes_in(claims, ("scope",)), expires_at, claims, confirmation)
