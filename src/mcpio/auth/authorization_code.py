"""The authorization code flow with PKCE (OAuth 2.1 §4.1), cut where it waits for a person.

`OAuth.begin` ends with a `PendingAuthorization`, which is a value: it can be stored, and `OAuth.finish` may run in
another process.
"""

from __future__ import annotations

import hmac
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import attrs

from mcpio.auth.challenges import Challenge
from mcpio.auth.clients import given_client, register_client
from mcpio.auth.credentials import Credentials, Registration
from mcpio.auth.discovery import discover
from mcpio.auth.effects import BindRedirect, Flow, FlowContext
from mcpio.auth.errors import AuthorizationError, quoted
from mcpio.auth.metadata import AuthorizationServerMetadata
from mcpio.auth.options import AuthorizationOptions
from mcpio.auth.pkce import code_challenge, new_state, new_verifier
from mcpio.auth.scopes import OFFLINE_ACCESS, format_scopes
from mcpio.auth.secret import Secret, as_secret
from mcpio.auth.signing import Signer
from mcpio.auth.token_requests import request_token
from mcpio.auth.tokens import oauth_error
from mcpio.auth.urls import check_authorization_url, check_redirect_uri

__all__ = ["CALLBACK_PATH", "OAuth", "PendingAuthorization"]

CALLBACK_PATH: Final = "/callback"
PENDING_SECONDS: Final = 600.0
"""How long a machine waits for a person."""


@attrs.frozen(kw_only=True)
class PendingAuthorization:
    """An authorization that waits for a person: everything that is needed to finish it, and to check the answer.

    It holds the code verifier, so whoever has it and the callback URL has the tokens: `to_text` writes secrets.
    """

    url: str = attrs.field(repr=False)
    """Where the person logs in. It carries the state."""
    state: str = attrs.field(repr=False)
    """The parameter ``state``."""
    verifier: Secret
    """The code verifier of PKCE."""
    server: AuthorizationServerMetadata
    """The authorization server that was asked: the code goes to its token endpoint only, and ``iss`` must be its
    issuer (AUTH-31)."""
    client: Registration
    """The client that asks."""
    redirect_uri: str
    """Where the browser is sent back to."""
    resource: str
    scopes: frozenset[str]
    """The scopes that were requested."""
    created_at: float
    """In Unix seconds."""

    @property
    def expires_at(self) -> float:
        """Until when an answer is waited for, in Unix seconds."""
        return self.created_at + PENDING_SECONDS

    def matches(self, callback_url: str) -> bool:
        """Tell whether a callback URL has the state of this authorization. Ignore one that has not (AUTH-27)."""
        return self._matches(_parameters(callback_url))

    def code(self, callback_url: str) -> Secret:
        """Return the authorization code of a callback URL, after all checks.

        Raises AuthorizationError for another state, another or a missing issuer (AUTH-31), and for the error of the
        authorization server, whose text is read only after these checks.
        """
        found = _parameters(callback_url)
        if not self._matches(found):
            raise AuthorizationError("the callback URL has another state: it does not belong to this authorization")
        # A plain comparison, and no normalization: RFC 9207 §2.4.
        issuer = found.get("iss")
        if (issuer is None and self.server.iss_supported) or issuer not in (None, self.server.issuer):
            raise AuthorizationError("the callback URL does not come from the authorization server that was asked")
        if "error" in found:
            raise oauth_error(found, "the answer of the authorization server")
        if not found.get("code"):
            raise AuthorizationError("the callback URL has no code")
        return Secret(found["code"])

    def _matches(self, found: dict[str, str]) -> bool:
        state = found.get("state", "").encode("utf-8", "surrogatepass")
        return hmac.compare_digest(state, self.state.encode())


def _parameters(url: str) -> dict[str, str]:
    """Return the query of a URL. Of a parameter that is there twice, nothing: which one counts would be a guess."""
    try:
        pairs = parse_qsl(urlsplit(url.strip()).query, keep_blank_values=True, max_num_fields=100)
    except ValueError:
        return {}
    names = [name for name, _ in pairs]
    return {} if len(set(names)) < len(names) else dict(pairs)


def _redirect_uri(uri: str | None) -> str | None:
    return uri if uri is None else check_redirect_uri(uri)


@attrs.frozen(kw_only=True)
class OAuth(AuthorizationOptions):
    """Authorization by a person in a browser. Raises ValueError for options that contradict each other."""

    client_id: str | None = None
    """A client that is registered beforehand (AUTH-21)."""
    client_secret: Secret | None = attrs.field(default=None, converter=as_secret)
    """The secret of the client; ``None`` for a public one."""
    auth_method: str | None = None
    """How that client authenticates; ``None`` to take what the metadata lists (AUTH-24)."""
    signer: Signer | None = attrs.field(default=None, repr=False)
    """The key of that client, for ``private_key_jwt``."""
    client_metadata_url: str | None = None
    """The https URL of the client's metadata document, its id where the server takes such (AUTH-19)."""
    client_name: str = "mcpio"
    """The name of a client that registers itself."""
    redirect_uri: str | None = attrs.field(default=None, converter=_redirect_uri)
    """Where the browser is sent, for hosted clients; ``None`` to listen on a loopback address."""
    port: int | None = None
    """The port to listen on, for clients whose redirect URI is registered with one; ``None`` for any."""

    def __attrs_post_init__(self) -> None:
        if self.client_id is None and (self.client_secret is not None or self.signer is not None):
            raise ValueError("client_secret= and signer= belong to a client_id=")
        if self.redirect_uri is not None and self.port is not None:
            raise ValueError("redirect_uri= has its port; port= is for listening on a loopback address")

    def begin(
        self, context: FlowContext, credentials: Credentials | None = None, challenge: Challenge | None = None
    ) -> Flow[PendingAuthorization]:
        """Discover, register, and return what a person has to do.

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
        )
        known = credentials or Credentials()
        return known.authorized(token, pending.server, pending.client, pending.scopes | token.scopes)

    def _client(
        self, context: FlowContext, server: AuthorizationServerMetadata, known: Credentials
    ) -> Flow[tuple[Registration, str]]:
        """Return the client and its redirect URI, in the order of AUTH-18."""
        registered = known.registrations.get(server.issuer)
        redirect_uri = self.redirect_uri
        if redirect_uri is None:
            port = self.port
            if port is None and registered is not None and registered.redirect_uri is not None:
                port = urlsplit(registered.redirect_uri).port
            redirect_uri = check_redirect_uri((yield BindRedirect(port=port, path=CALLBACK_PATH)))
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


def _is_current(client: Registration, redirect_uri: str, now: float) -> bool:
    expires = client.secret_expires_at
    return client.is_dynamic and client.redirect_uri == redirect_uri and (expires is None or now < expires)
