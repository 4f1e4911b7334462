"""Requests to the token endpoint, the revocation of tokens, and the refresh (RFC 6749 §6, RFC 7009)."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from mcpio.auth.clients import authenticated
from mcpio.auth.credentials import Credentials
from mcpio.auth.discovery import post_form
from mcpio.auth.documents import read_document
from mcpio.auth.dpop import Proofs
from mcpio.auth.effects import Flow, FlowContext, Response
from mcpio.auth.metadata import AuthorizationServerMetadata
from mcpio.auth.registration import Registration
from mcpio.auth.scopes import format_scopes
from mcpio.auth.secret import Secret
from mcpio.auth.signing import Signer
from mcpio.auth.tokens import TokenSet, oauth_error

__all__ = ["refresh", "request_token", "revoke"]


def request_token(
    context: FlowContext,
    server: AuthorizationServerMetadata,
    client: Registration,
    grant: Mapping[str, str],
    *,
    resource: str,
    scopes: frozenset[str],
    send_scopes: bool = True,
    signer: Signer | None = None,
    refresh_token: Secret | None = None,
    proof_key: Secret | None = None,
) -> Flow[TokenSet]:
    """Send a token request and return the tokens. ``grant`` has the fields of the grant, ``grant_type`` among them.

    The request always names the resource (AUTH-29). With a ``proof_key`` the token may come bound to it; the server may
    ask for a nonce, once. Raises AuthorizationError, with the OAuth code of the answer.
    """
    fields, headers = yield from authenticated(context, client, signer)
    form = {**grant, "resource": resource, **fields}
    if scopes and send_scopes:
        form["scope"] = format_scopes(scopes)
    endpoint = server.require("token_endpoint")
    if proof_key is None:
        response = yield from post_form(context, endpoint, form, headers)
    else:
        response = yield from _post_with_proof(context, endpoint, form, headers, Proofs(proof_key, context.entropy))
    if response.status != 200:
        what = f"the answer of the token endpoint, with status {response.status},"
        error = oauth_error(read_document(response.body, what), what)
        error.temporary = error.code == "temporarily_unavailable"
        raise error
    return TokenSet.parse(
        response.body,
        response.at,
        issuer=server.issuer,
        resource=resource,
        client_id=client.client_id,
        scopes=scopes,
        refresh_token=refresh_token,
        has_proof=proof_key is not None,
    )


def _post_with_proof(
    context: FlowContext, url: str, form: Mapping[str, str], headers: tuple[tuple[str, str], ...], proofs: Proofs
) -> Flow[Response]:
    """Post a form with a proof, and once more with the nonce that the server asks for (RFC 9449 §8)."""
    response = yield from post_form(context, url, form, (*headers, ("dpop", proofs.proof("POST", url, context.now))))
    nonce = next((value for name, value in response.headers if name == "dpop-nonce"), None)
    if response.status != 400 or nonce is None:
        return response
    if read_document(response.body, "the answer of the token endpoint").get("error") != "use_dpop_nonce":
        return response
    again = proofs.proof("POST", url, context.now, nonce=nonce)
    return (yield from post_form(context, url, form, (*headers, ("dpop", again))))


def refresh(context: FlowContext, credentials: Credentials, signer: Signer | None = None) -> Flow[Credentials]:
    """Renew the token of credentials by its refresh token and return the new credentials (AUTH-41).

    The refresh token stays if the answer brings no other. Raises AuthorizationError; with the code
    ``"invalid_grant"`` the refresh token is of no use any more. Raises ValueError without a refresh token.
    """
    token, server, refresh_token = credentials.token, credentials.server, credentials.refresh_token
    client = credentials.registrations.get(token.issuer) if token is not None else None
    if token is None or server is None or client is None or refresh_token is None:
        raise ValueError("these credentials have no refresh token")
    # Without "scope" the server grants what it granted before; a refresh never asks for more (RFC 6749 §6).
    renewed = yield from request_token(
        context,
        server,
        client,
        {"grant_type": "refresh_token", "refresh_token": refresh_token.reveal()},
        resource=token.resource,
        scopes=token.scopes,
        send_scopes=False,
        signer=signer,
        refresh_token=refresh_token,
        proof_key=credentials.proof_key if token.is_bound else None,
    )
    return attrs.evolve(credentials, token=renewed, spent_at=None)


def revoke(context: FlowContext, credentials: Credentials, signer: Signer | None = None) -> Flow[bool]:
    """Revoke the tokens of credentials, as a logout does (AUTH-54). Returns whether the server said it did.

    Returns False where there is no token, or the server has no endpoint for it. A server that does not know a token
    answers as if it had revoked it (RFC 7009 §2.2). Raises AuthorizationError where a request fails.
    """
    token, server = credentials.token, credentials.server
    if token is None or server is None or server.revocation_endpoint is None:
        return False
    client = credentials.registrations.get(token.issuer) or Registration(token.issuer, token.client_id)
    revoked = True
    # The refresh token first: many servers revoke the access tokens of its family with it.
    for kind, secret in (("refresh_token", token.refresh_token), ("access_token", token.access_token)):
        if secret is not None:
            fields, headers = yield from authenticated(context, client, signer)
            form = {"token": secret.reveal(), "token_type_hint": kind, **fields}
            response = yield from post_form(context, server.revocation_endpoint, form, headers)
            revoked = revoked and response.status == 200
    return revoked
