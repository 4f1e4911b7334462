"""The authorization code flow with PKCE (OAuth 2.1 §4.1), cut where it waits for a person.

`OAuth.begin` ends with a `PendingAuthorization`, which is a value: it can be stored, and `OAuth.finish` may run in
another process.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import attrs

from mcpio._checks import is_amount, is_count
from mcpio.auth.challenges import Challenge
from mcpio.auth.clients import given_client, register_client
from mcpio.auth.credentials import Credentials
from mcpio.auth.discovery import discover
from mcpio.auth.effects import BindRedirect, Flow, FlowContext
from mcpio.auth.errors import AuthorizationError, EffectFailed, quoted
from mcpio.auth.metadata import AuthorizationServerMetadata
from mcpio.auth.options import AuthorizationOptions
from mcpio.auth.pending import LOGIN_TIMEOUT, PendingAuthorization
from mcpio.auth.pkce import code_challenge, new_state, new_verifier
from mcpio.auth.registration import Registration
from mcpio.auth.scopes import OFFLINE_ACCESS, format_scopes
from mcpio.auth.secret import Secret, as_secret
from mcpio.auth.signing import Signer
from mcpio.auth.token_requests import request_token
from mcpio.auth.urls import check_authorization_url, check_redirect_uri, is_loopback_host

__all__ = ["CALLBACK_PATH", "OAuth"]

CALLBACK_PATH: Final = "/callback"
_LAST_PORT: Final = 65535


def _redirect_uri(uri: str | None) -> str | None:
    return uri if uri is None else check_redirect_uri(uri)


def _amount(_: object, field: attrs.Attribute[float], value: Any) -> None:
    if not is_amount(value):
        raise ValueError(f"{field.name}= takes a number of seconds, 0 or more, not {value!r:.60}")


def _port(_: object, field: attrs.Attribute[int], value: Any) -> None:
    if not is_count(value, 1) or value > _LAST_PORT:
        raise ValueError(f"{field.name}= takes a number from 1 to {_LAST_PORT}, not {value!r:.60}")


@attrs.frozen(kw_only=True)
class OAuth(AuthorizationOptions):
    """Authorization by a person in a browser. Raises ValueError for options that contradict each other."""

    client_id: str | None = None
    """A client that is registered beforehand (AUTH-21)."""
    client_secret: Secret | None = attrs.field(default=None, converter=as_secret)
    """The secret of the client; ``None`` for a public one."""
    auth_method: str | None = None
    """The client's authentication method; ``None`` to choose from the metadata (AUTH-24)."""
    signer: Signer | None = attrs.field(default=None, repr=False)
    """The key of that client, for ``private_key_jwt``."""
    client_metadata_url: str | None = None
    """The https URL of the client's metadata document, its id where the server takes such (AUTH-19)."""
    client_name: str = "mcpio"
    """The name of a client that registers itself."""
    redirect_uri: str | None = attrs.field(default=None, converter=_redirect_uri)
    """The redirect URI that the client is registered with; ``None`` for one on 127.0.0.1. On a loopback host the
    driver listens there, at any port if the URI has none, unless the program has the port already; any other URI is
    that of a hosted client, which receives the redirect itself."""
    port: int | None = attrs.field(default=None, validator=attrs.validators.optional(_port))
    """The port to listen on, for clients whose redirect URI is registered with one; ``None`` for any."""
    login_timeout: float = attrs.field(default=LOGIN_TIMEOUT, validator=_amount)
    """Seconds that a person has to log in."""

    def __attrs_post_init__(self) -> None:
        if self.client_id is None and (self.client_secret is not None or self.signer is not None):
            raise ValueError("client_secret= and signer= belong to a client_id=")
        if self.redirect_uri is not None and self.port is not None:
            raise ValueError("redirect_uri= has its port; port= is for listening on a loopback address")

    def begin(
        self, context: FlowContext, credentials: Credentials | None = None, challenge: Challenge | None = None
    ) -> Flow[PendingAuthorization]:
        """Discover, register, and return a `PendingAuthorization` for a person to complete.

        ``credentials`` are those that are stored, whose client is used again and whose scopes are asked for again;
        ``challenge`` is that of a 401 or 403. Raises AuthorizationError.
        """
        known = credentials or Credentials()
        found = yield from discover(context, self, challenge)
        found.server.check_pkce()
        endpoint = check_authorization_url(found.server.require("authorization_endpoint"))
        found.server.require("token_endpoint")
        client, redirect_uri = yield from self._client(context, found.server, known)
        scopes = found.scopes_to_request(self, known, challenge, refreshable=True)
        verifier, state = new_verifier(context.entropy), new_state(context.entropy)
        query = {
            "response_type": "code",
            "client_id": client.client_id,
            "redirect_uri": redirect_uri,
            "state": state,
            "code_challenge": code_challenge(verifier),
            "code_challenge_method": "S256",
            "resource": found.resource,
        }
        if scopes:
            query["scope"] = format_scopes(scopes)
        if OFFLINE_ACCESS in scopes:
            # Without it OpenID providers ignore the scope (OIDC Core §11).
            query["prompt"] = "consent"
        return PendingAuthorization(
            url=f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}",
            state=state,
            verifier=verifier,
            server=attrs.evolve(found.server, document={}),
            client=client,
            redirect_uri=redirect_uri,
            resource=found.resource,
            scopes=scopes,
            created_at=context.now,
            lifetime=self.login_timeout,
            proof_key=found.proof_key(context, self, known, challenge),
        )

    def finish(
        self,
        context: FlowContext,
        pending: PendingAuthorization,
        callback_url: str,
        credentials: Credentials | None = None,
    ) -> Flow[Credentials]:
        """Exchange the code of a callback URL for tokens and return ``credentials`` with them.

        Raises AuthorizationError as `PendingAuthorization.code` and the token endpoint have it.
        """
        code = pending.code(callback_url)
        token = yield from request_token(
            context,
            pending.server,
            pending.client,
            {
                "grant_type": "authorization_code",
                "code": code.reveal(),
                "redirect_uri": pending.redirect_uri,
                "code_verifier": pending.verifier.reveal(),
            },
            resource=pending.resource,
            scopes=pending.scopes,
            send_scopes=False,
            signer=self.signer,
            proof_key=pending.proof_key,
        )
        known = credentials or Credentials()
        requested = pending.scopes | token.scopes
        return known.authorized(token, pending.server, pending.client, requested, pending.proof_key)

    def _client(
        self, context: FlowContext, server: AuthorizationServerMetadata, known: Credentials
    ) -> Flow[tuple[Registration, str]]:
        """Return the client and its redirect URI, in the order of AUTH-18."""
        registered = known.registrations.get(server.issuer)
        redirect_uri = yield from self._bound_uri(registered)
        if self.client_id is not None:
            if self.issuer is None and any(
                each.client_id == self.client_id and each.issuer != server.issuer
                for each in known.registrations.values()
            ):
                message = (
                    f"the server moved to {quoted(server.issuer)}, where the client may not be registered (AUTH-23)"
                )
                raise AuthorizationError(message, option="issuer=")
            client = given_client(
                server,
                self.client_id,
                self.client_secret,
                can_sign=self.signer is not None,
                auth_method=self.auth_method,
            )
            return client, redirect_uri
        if self.client_metadata_url is not None and server.client_documents:
            return Registration(server.issuer, self.client_metadata_url), redirect_uri
        if registered is not None and _is_current(registered, redirect_uri, context.now):
            return registered, redirect_uri
        if server.registration_endpoint is None:
            message = f"{quoted(server.issuer)} registers no clients by itself: register one with it by hand"
            raise AuthorizationError(message, option="client_id=")
        grant_types = ("authorization_code", "refresh_token")
        client = yield from register_client(context, server, self.client_name, [redirect_uri], grant_types)
        return client, redirect_uri

    def _bound_uri(self, registered: Registration | None) -> Flow[str]:
        """Return the redirect URI, after the driver has bound its port if it is one on this machine."""
        parts = urlsplit(self.redirect_uri or f"http://127.0.0.1{CALLBACK_PATH}")
        host, port = parts.hostname or "", self.port or parts.port
        if self.redirect_uri is not None and not (parts.scheme == "http" and is_loopback_host(host)):
            return self.redirect_uri
        is_fixed = port is not None
        if not is_fixed and registered is not None and registered.redirect_uri is not None:
            port = urlsplit(registered.redirect_uri).port
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        bind = BindRedirect(host=host, port=port, is_fixed=is_fixed, path=path)
        if self.redirect_uri is None or not is_fixed:
            return check_redirect_uri((yield bind))
        # Where the port is taken, a program that receives the redirect itself has it.
        with contextlib.suppress(EffectFailed):
            yield bind
        return self.redirect_uri


def _is_current(client: Registration, redirect_uri: str, now: float) -> bool:
    expires = client.secret_expires_at
    return client.is_dynamic and client.redirect_uri == redirect_uri and (expires is None or now < expires)
