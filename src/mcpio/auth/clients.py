"""The client at the authorization server: how it is registered, and how it authenticates (AUTH-18 to AUTH-24)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote_plus

from mcpio.auth.documents import read_document, text
from mcpio.auth.effects import Fetch, Flow, FlowContext, NeedAssertion, Response
from mcpio.auth.errors import AuthorizationError, quoted
from mcpio.auth.metadata import AuthorizationServerMetadata
from mcpio.auth.pkce import base64url
from mcpio.auth.registration import Registration
from mcpio.auth.secret import Secret
from mcpio.auth.signing import Signer, signed_jwt
from mcpio.auth.tokens import oauth_error
from mcpio.auth.urls import host_of, is_loopback_host
from mcpio.framing.json import dumps

__all__ = ["authenticated", "given_client", "register_client"]

_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ASSERTION_LIFETIME: Final = 300


def given_client(
    server: AuthorizationServerMetadata,
    client_id: str,
    client_secret: Secret | None = None,
    *,
    can_sign: bool = False,
    auth_method: str | None = None,
) -> Registration:
    """Return the registration of a client that the program brings (AUTH-21).

    Its method is what the program says, or else the first of these that the server takes: ``private_key_jwt`` where it
    can sign, ``client_secret_basic`` and ``client_secret_post`` where it has a secret (AUTH-24). Raises
    AuthorizationError where the server takes none of them.
    """
    usable = ["private_key_jwt"] if can_sign else []
    if client_secret is not None:
        usable += ["client_secret_basic", "client_secret_post"]
    if auth_method is None:
        auth_method = next((each for each in usable or ["none"] if each in server.auth_methods), None)
    if auth_method is None and not usable:
        # A public client has nothing to prove, and many servers do not list "none".
        auth_method = "none"
    if auth_method is None:
        message = f"the authorization server takes {', '.join(map(quoted, server.auth_methods))} at its token endpoint"
        raise AuthorizationError(message, option="auth_method=")
    return Registration(server.issuer, client_id, auth_method, client_secret)


def register_client(
    context: FlowContext,
    server: AuthorizationServerMetadata,
    client_name: str,
    redirect_uris: Sequence[str],
    grant_types: Sequence[str],
) -> Flow[Registration]:
    """Register a client dynamically (RFC 7591), with the ``application_type`` that its redirect URIs ask for (AUTH-22).

    It is registered with the other type where the server refuses the redirect URIs or the metadata. Raises
    AuthorizationError where the server refuses both, or assigns a method of authentication that is not supported.
    """
    endpoint = server.require("registration_endpoint")
    supported = [method for method in ("none", *_SECRET_METHODS) if method in server.auth_methods]
    is_native = all(is_loopback_host(host_of(uri)) for uri in redirect_uris)
    document: dict[str, Any] = {
        "client_name": client_name,
        "redirect_uris": list(redirect_uris),
        "grant_types": list(grant_types),
        "response_types": ["code"] if redirect_uris else [],
        "token_endpoint_auth_method": supported[0] if supported else "none",
    }
    types = ("native", "web") if is_native else ("web", "native")
    for application_type in types:
        try:
            return (yield from _register(context, server, endpoint, {**document, "application_type": application_type}))
        except AuthorizationError as error:
            if error.code not in ("invalid_redirect_uri", "invalid_client_metadata") or application_type == types[1]:
                raise
    raise AssertionError  # pragma: no cover - the last of the types returns or raises


_SECRET_METHODS: Final = ("client_secret_basic", "client_secret_post")


def _register(
    context: FlowContext, server: AuthorizationServerMetadata, endpoint: str, document: dict[str, Any]
) -> Flow[Registration]:
    what = "the answer of the registration endpoint"
    headers = (("accept", "application/json"), ("content-type", "application/json"))
    fetch = Fetch(method="POST", url=endpoint, headers=headers, body=dumps(document), reach=context.reach)
    response: Response = yield fetch
    if response.status >= 500 or response.status == 429:
        raise AuthorizationError(f"{quoted(endpoint)} answers with status {response.status}", temporary=True)
    answer = read_document(response.body, what)
    if response.status not in (200, 201):
        raise oauth_error(answer, what)
    client_id, secret = text(answer, "client_id", what), text(answer, "client_secret", what)
    method = text(answer, "token_endpoint_auth_method", what) or document["token_endpoint_auth_method"]
    if client_id is None:
        raise AuthorizationError(f"{what} has no client_id")
    if method != "none" and (method not in _SECRET_METHODS or secret is None):
        raise AuthorizationError(f"{what} assigns {quoted(method)}, which this client cannot do", option="client_id=")
    expires = answer.get("client_secret_expires_at")
    return Registration(
        server.issuer,
        client_id,
        method,
        None if secret is None else Secret(secret),
        # 0 means never (RFC 7591 §3.2.1).
        float(expires) if isinstance(expires, int) and not isinstance(expires, bool) and 0 < expires < 2**53 else None,
        document["redirect_uris"][0] if document["redirect_uris"] else None,
        is_dynamic=True,
    )


def authenticated(
    context: FlowContext, client: Registration, signer: Signer | None = None
) -> Flow[tuple[dict[str, str], tuple[tuple[str, str], ...]]]:
    """Return the form fields and the header fields with which a client authenticates (AUTH-24).

    Without a signer, ``private_key_jwt`` asks the driver for an assertion, whose audience is the issuer.
    """
    secret = client.client_secret
    if client.auth_method == "client_secret_basic" and secret is not None:
        # Both are form-encoded first (RFC 6749 §2.3.1). The id may be in the form too (§3.2.1): servers made with
        # package mcp refuse a form without it.
        pair = f"{quote_plus(client.client_id)}:{quote_plus(secret.reveal())}"
        return {"client_id": client.client_id}, (("authorization", "Basic " + b64encode(pair.encode()).decode()),)
    if client.auth_method == "client_secret_post" and secret is not None:
        return {"client_id": client.client_id, "client_secret": secret.reveal()}, ()
    if client.auth_method == "private_key_jwt":
        assertion = yield from _client_assertion(context, client, signer)
        fields = {"client_assertion_type": _ASSERTION_TYPE, "client_assertion": assertion.reveal()}
        return {"client_id": client.client_id, **fields}, ()
    # A workload may be known by its assertion alone.
    return ({"client_id": client.client_id} if client.client_id else {}), ()


def _client_assertion(context: FlowContext, client: Registration, signer: Signer | None) -> Flow[Secret]:
    if signer is None:
        answer: Secret = yield NeedAssertion(kind="client", audience=client.issuer, client_id=client.client_id)
        return answer
    now = int(context.now)
    claims = {
        "iss": client.client_id,
        "sub": client.client_id,
        "aud": client.issuer,
        "jti": base64url(context.entropy(16)),
        "iat": now,
        "exp": now + _ASSERTION_LIFETIME,
    }
    return Secret(signed_jwt(signer, claims))
