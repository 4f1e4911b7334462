"""Authorization without a browser: client credentials, workload identity, enterprise-managed, and device codes."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import attrs

from mcpio._printable import printable
from mcpio.auth.challenges import Challenge
from mcpio.auth.clients import authenticated, given_client, register_client
from mcpio.auth.credentials import Credentials
from mcpio.auth.discovery import Discovered, discover, post_form
from mcpio.auth.documents import read_document, text
from mcpio.auth.effects import Flow, FlowContext, NeedAssertion, Pause, ShowCode
from mcpio.auth.errors import AuthorizationError
from mcpio.auth.given import AssertionSource
from mcpio.auth.metadata import AuthorizationServerMetadata
from mcpio.auth.options import AuthorizationOptions
from mcpio.auth.registration import Registration
from mcpio.auth.scopes import format_scopes
from mcpio.auth.secret import Secret, as_secret
from mcpio.auth.signing import Signer
from mcpio.auth.token_requests import request_token
from mcpio.auth.tokens import TokenSet, oauth_error
from mcpio.auth.urls import check_authorization_url, check_endpoint

__all__ = ["ClientCredentials", "Device", "EnterpriseManaged", "WorkloadIdentity"]

_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_DEVICE_CODE: Final = "urn:ietf:params:oauth:grant-type:device_code"
_TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"
_ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"


@attrs.frozen
class ClientCredentials(AuthorizationOptions):
    """A machine that is authorized as itself (RFC 6749 §4.4), by a secret, a private key or assertions (AUTH-42).

    Without ``secret`` and ``signer`` the driver is asked for a client assertion each time.
    """

    extension: ClassVar[str | None] = "io.modelcontextprotocol/oauth-client-credentials"
    client_id: str = attrs.field(kw_only=False)
    """The id of the client at the authorization server."""
    secret: Secret | None = attrs.field(default=None, converter=as_secret, kw_only=True)
    """The secret of the client."""
    signer: Signer | None = attrs.field(default=None, repr=False, kw_only=True)
    """The key of the client."""
    auth_method: str | None = attrs.field(default=None, kw_only=True)
    """The client's authentication method; ``None`` to choose from the metadata (AUTH-24)."""
    assertion: AssertionSource = attrs.field(default=None, repr=False, kw_only=True)
    """Called by drivers for a client assertion, for example a function of a key service."""

    def obtain(
        self, context: FlowContext, credentials: Credentials | None = None, challenge: Challenge | None = None
    ) -> Flow[Credentials]:
        """Discover, and return ``credentials`` with a token. Raises AuthorizationError."""
        known = credentials or Credentials()
        found = yield from discover(context, self, challenge)
        method = self.auth_method or (None if self.secret is not None else "private_key_jwt")
        client = given_client(
            found.server, self.client_id, self.secret, can_sign=self.signer is not None, auth_method=method
        )
        scopes = found.scopes_to_request(self, known, challenge)
        key = found.proof_key(context, self, known, challenge)
        token = yield from request_token(
            context,
            found.server,
            client,
            {"grant_type": "client_credentials"},
            resource=found.resource,
            scopes=scopes,
            proof_key=key,
            signer=self.signer,
        )
        return known.authorized(token, found.server, client, scopes | token.scopes, key)


@attrs.frozen
class WorkloadIdentity(AuthorizationOptions):
    """A workload that presents the JWT of its platform (RFC 7523 §2.1): one token request, never repeated (AUTH-52).

    The driver is asked for the JWT.
    """

    client_id: str | None = attrs.field(default=None, kw_only=False)
    """The id of the client at the authorization server."""
    assertion: AssertionSource = attrs.field(default=None, repr=False, kw_only=True)
    """The JWT of the platform, or what drivers call for it."""

    def obtain(
        self, context: FlowContext, credentials: Credentials | None = None, challenge: Challenge | None = None
    ) -> Flow[Credentials]:
        """Discover, and return ``credentials`` with a token. Raises AuthorizationError."""
        known = credentials or Credentials()
        found = yield from discover(context, self, challenge)
        scopes = found.scopes_to_request(self, known, challenge)
        issuer = found.server.issuer
        assertion: Secret = yield NeedAssertion(
            kind="workload", audience=issuer, client_id=self.client_id, resource=found.resource, scopes=scopes
        )
        client = Registration(issuer, self.client_id or "")
        key = found.proof_key(context, self, known, challenge)
        token = yield from request_token(
            context,
            found.server,
            client,
            {"grant_type": _JWT_BEARER, "assertion": assertion.reveal()},
            resource=found.resource,
            scopes=scopes,
            proof_key=key,
        )
        return known.authorized(token, found.server, client, scopes | token.scopes, key)


@attrs.frozen(kw_only=True)
class EnterpriseManaged(AuthorizationOptions):
    """A person's login at the identity provider of an organization opens its MCP servers (AUTH-42).

    The id token is exchanged at the provider for an identity assertion (RFC 8693), and that for an access token at the
    authorization server (RFC 7523). The driver is asked for the id token.
    """

    extension: ClassVar[str | None] = "io.modelcontextprotocol/enterprise-managed-authorization"
    client_id: str
    """The client at the authorization server of the MCP server."""
    client_secret: Secret | None = attrs.field(default=None, converter=as_secret)
    """The secret of the client; ``None`` for a public one."""
    idp_issuer: str
    """The issuer of the identity provider."""
    idp_token_endpoint: str
    """The token endpoint of the identity provider."""
    idp_client_id: str
    """The client at the identity provider."""
    assertion: AssertionSource = attrs.field(default=None, repr=False)
    """The id token of the person, or what drivers call for it."""

    def obtain(
        self, context: FlowContext, credentials: Credentials | None = None, challenge: Challenge | None = None
    ) -> Flow[Credentials]:
        """Discover, exchange twice, and return ``credentials`` with a token. Raises AuthorizationError."""
        known = credentials or Credentials()
        found = yield from discover(context, self, challenge)
        scopes = found.scopes_to_request(self, known, challenge)
        id_token: Secret = yield NeedAssertion(kind="id_token", audience=self.idp_issuer, client_id=self.idp_client_id)
        assertion = yield from self._identity_assertion(context, found, scopes, id_token)
        client = given_client(found.server, self.client_id, self.client_secret)
        key = found.proof_key(context, self, known, challenge)
        token = yield from request_token(
            context,
            found.server,
            client,
            {"grant_type": _JWT_BEARER, "assertion": assertion.reveal()},
            resource=found.resource,
            scopes=scopes,
            proof_key=key,
        )
        return known.authorized(token, found.server, client, scopes | token.scopes, key)

    def _identity_assertion(
        self, context: FlowContext, found: Discovered, scopes: frozenset[str], id_token: Secret
    ) -> Flow[Secret]:
        what = "the answer of the identity provider"
        endpoint = check_endpoint(self.idp_token_endpoint, context.server_url, "idp_token_endpoint=")
        form = {
            "grant_type": _TOKEN_EXCHANGE,
            "requested_token_type": _ID_JAG,
            "subject_token": id_token.reveal(),
            "subject_token_type": _ID_TOKEN,
            "audience": found.server.issuer,
            "resource": found.resource,
            "client_id": self.idp_client_id,
        }
        if scopes:
            form["scope"] = format_scopes(scopes)
        response = yield from post_form(context, endpoint, form)
        document = read_document(response.body, what)
        if response.status != 200 or "error" in document:
            raise oauth_error(document, what)
        assertion = text(document, "access_token", what)
        if assertion is None or text(document, "issued_token_type", what) not in (None, _ID_JAG):
            raise AuthorizationError(f"{what} has no identity assertion")
        return Secret(assertion)


@attrs.frozen(kw_only=True)
class Device(AuthorizationOptions):
    """Authorization by a person on another device, for machines without a browser (RFC 8628, AUTH-53)."""

    client_id: str | None = None
    """A client that is registered beforehand; ``None`` to register one where the server does that."""
    client_secret: Secret | None = attrs.field(default=None, converter=as_secret)
    """The secret of the client; ``None`` for a public one."""
    client_name: str = "mcpio"
    """The name of a client that registers itself."""

    def obtain(
        self, context: FlowContext, credentials: Credentials | None = None, challenge: Challenge | None = None
    ) -> Flow[Credentials]:
        """Show a code, ask until the person has entered it, and return ``credentials`` with a token.

        Raises AuthorizationError, with the code ``"access_denied"`` or ``"expired_token"`` where no token comes of it.
        """
        known = credentials or Credentials()
        found = yield from discover(context, self, challenge)
        server = found.server
        server.require("device_authorization_endpoint")
        client = known.registrations.get(server.issuer)
        if self.client_id is not None:
            client = given_client(server, self.client_id, self.client_secret)
        elif client is None:
            client = yield from register_client(context, server, self.client_name, (), (_DEVICE_CODE, "refresh_token"))
        scopes = found.scopes_to_request(self, known, challenge, refreshable=True)
        key = found.proof_key(context, self, known, challenge)
        token = yield from self._poll(context, server, client, found.resource, scopes, key)
        return known.authorized(token, server, client, scopes | token.scopes, key)

    def _poll(
        self,
        context: FlowContext,
        server: AuthorizationServerMetadata,
        client: Registration,
        resource: str,
        scopes: frozenset[str],
        key: Secret | None,
    ) -> Flow[TokenSet]:
        device_code, interval, expires_at = yield from _show_code(context, server, client, resource, scopes)
        grant = {"grant_type": _DEVICE_CODE, "device_code": device_code.reveal()}
        waited_until = context.now
        while waited_until + interval < expires_at:
            yield Pause(seconds=interval)
            waited_until += interval
            try:
                return (
                    yield from request_token(
                        context,
                        server,
                        client,
                        grant,
                        resource=resource,
                        scopes=scopes,
                        send_scopes=False,
                        proof_key=key,
                    )
                )
            except AuthorizationError as error:
                if error.code == "slow_down":
                    interval += 5
                elif error.temporary:
                    # RFC 8628 §3.5 asks for a backoff where the connection fails.
                    interval *= 2
                elif error.code != "authorization_pending":
                    raise
        raise AuthorizationError("the code was not entered in time", code="expired_token")


def _show_code(
    context: FlowContext,
    server: AuthorizationServerMetadata,
    client: Registration,
    resource: str,
    scopes: frozenset[str],
) -> Flow[tuple[Secret, float, float]]:
    """Show the code that the server gives; return the device code, the seconds between polls, and the expiry."""
    what = "the answer of the device authorization endpoint"
    fields, headers = yield from authenticated(context, client)
    form = {"resource": resource, "client_id": client.client_id, **fields}
    if scopes:
        form["scope"] = format_scopes(scopes)
    endpoint = server.require("device_authorization_endpoint")
    response = yield from post_form(context, endpoint, form, headers)
    document = read_document(response.body, what)
    if response.status != 200:
        raise oauth_error(document, what)
    device_code, user_code, uri = (
        text(document, name, what) for name in ("device_code", "user_code", "verification_uri")
    )
    if device_code is None or user_code is None or uri is None:
        raise AuthorizationError(f"{what} has no code to show")
    complete = text(document, "verification_uri_complete", what)
    lifetime = _seconds(document.get("expires_in"), 600)
    yield ShowCode(
        user_code=printable(user_code[:64]),
        verification_uri=check_authorization_url(uri),
        verification_uri_complete=None if complete is None else check_authorization_url(complete),
        expires_at=context.now + lifetime,
    )
    return Secret(device_code), _seconds(document.get("interval"), 5), context.now + lifetime


def _seconds(value: Any, default: float) -> float:
    """Return a number of seconds from 1 to 3600, or the default for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 1 <= value <= 3600 else default
