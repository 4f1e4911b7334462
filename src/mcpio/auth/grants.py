"""How a client obtains tokens: discovery, token requests, and a flow for each grant type."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias
from urllib.parse import quote_plus, urlencode, urlsplit

import attrs

from mcpio._checks import is_amount, is_count
from mcpio._printable import printable
from mcpio.auth.effects import (
    AssertionSource,
    BindRedirect,
    Credentials,
    CredentialStore,
    Fetch,
    Flow,
    FlowContext,
    LoadCredentials,
    LockCredentials,
    NeedAssertion,
    Pause,
    Response,
    RestoreCredentials,
    SaveCredentials,
    ShowCode,
    Stored,
    UnlockCredentials,
    check_assertion,
    from_text,
    to_text,
)
from mcpio.auth.grant import OFFLINE_ACCESS, format_scopes, select_scopes
from mcpio.auth.keys import (
    Proofs,
    Secret,
    Signer,
    as_secret,
    base64url,
    code_challenge,
    new_proof_key,
    new_state,
    new_verifier,
    signed_jwt,
)
from mcpio.auth.payloads import (
    LOGIN_TIMEOUT,
    AuthorizationOptions,
    AuthorizationServerMetadata,
    Challenge,
    PendingAuthorization,
    ProtectedResourceMetadata,
    Registration,
    TokenSet,
    filled,
    oauth_error,
    read_document,
    refused_proof,
    text,
)
from mcpio.auth.urls import (
    AuthorizationError,
    EffectFailed,
    FlowAbandoned,
    canonical_resource,
    check_authorization_url,
    check_endpoint,
    check_redirect_uri,
    host_of,
    is_loopback_host,
    issuer_metadata_urls,
    matches_resource,
    origin_of,
    quoted,
    resource_metadata_urls,
)
from mcpio.framing.json import dumps
from mcpio.revisions import LATEST_HANDSHAKE

# -------------------------------------------------------------------------------------------------------------- clients
# The client at the authorization server: how it is registered, and how it authenticates (AUTH-18 to AUTH-24).

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
    supported = [method for method in ("none", *SECRET_METHODS) if method in server.auth_methods]
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


SECRET_METHODS: Final = ("client_secret_basic", "client_secret_post")


def _register(
    context: FlowContext, server: AuthorizationServerMetadata, endpoint: str, document: dict[str, Any]
) -> Flow[Registration]:
    what = "the answer of the registration endpoint"
    headers = (("accept", "application/json"), ("content-type", "application/json"))
    fetch = Fetch(method="POST", url=endpoint, headers=headers, body=dumps(document), reach=context.reach)
    response = _unless_busy((yield fetch), endpoint)
    answer = read_document(response.body, what)
    if response.status not in (200, 201):
        raise oauth_error(answer, what)
    client_id, secret = filled(answer, "client_id", what), filled(answer, "client_secret", what)
    method = filled(answer, "token_endpoint_auth_method", what) or document["token_endpoint_auth_method"]
    if client_id is None:
        raise AuthorizationError(f"{what} has no client_id")
    if method != "none" and (method not in SECRET_METHODS or secret is None):
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


# ------------------------------------------------------------------------------------------------------------ discovery
# Discovery: from a 401 to the metadata of the authorization server (AUTH-10 to AUTH-17).

_GET_REDIRECTS = 3


@attrs.frozen
class Discovered:
    """Result of discovery."""

    server: AuthorizationServerMetadata
    resource: str
    """The text for the parameter ``resource``, as the metadata has it (AUTH-29)."""
    scopes_supported: frozenset[str] = frozenset()
    """The scopes that the protected resource lists."""
    wants_proofs: bool = False
    """Whether the protected resource takes bound tokens only."""

    def proof_key(
        self, context: FlowContext, options: AuthorizationOptions, stored: Credentials, challenge: Challenge | None
    ) -> Secret | None:
        """Return the key to bind the token to: a new one the first time, and ``None`` if it is not to be bound."""
        is_asked = self.wants_proofs or (challenge is not None and challenge.scheme.lower() == "dpop")
        if options.dpop == "off" or (options.dpop == "auto" and not is_asked):
            return None
        return stored.proof_key or new_proof_key(context.entropy)

    def scopes_to_request(
        self,
        options: AuthorizationOptions,
        stored: Credentials,
        challenge: Challenge | None,
        *,
        refreshable: bool = False,
    ) -> frozenset[str]:
        """Return the scopes for an authorization: those of a first one, and all that were requested before (AUTH-35).

        A new token replaces the old one, and must not lose what that one could do.
        """
        challenged = challenge.scopes if challenge is not None else frozenset()
        supported = self.server.scopes_supported
        chosen = select_scopes(options.scopes, challenged, self.scopes_supported, supported, refreshable=refreshable)
        if challenge is not None and challenge.params.get("error") == "insufficient_scope":
            chosen |= challenged
        token = stored.token
        if token is not None and (token.issuer, token.resource) == (self.server.issuer, self.resource):
            chosen |= stored.requested
        return chosen


def discover(
    context: FlowContext, options: AuthorizationOptions, challenge: Challenge | None = None
) -> Flow[Discovered]:
    """Find the authorization server of an MCP server. ``challenge`` is that of its 401 or 403, where there was one.

    Metadata may come from ``context.documents``, but that of the protected resource is fetched again after a 401: its
    authorization server may be another one now. Raises AuthorizationError: temporary for 5xx, 429 and failed fetches,
    which never lead to a fallback.
    """
    if options.metadata is not None:
        issuer = text(options.metadata, "issuer", "metadata=") or ""
        server = AuthorizationServerMetadata.parse(options.metadata, issuer, context.server_url)
        return Discovered(server, options.resource or canonical_resource(context.server_url))
    metadata = yield from _resource_metadata(context, options, challenge)
    if metadata is None:
        server = yield from _server_without_resource_metadata(context, options)
        return Discovered(server, options.resource or canonical_resource(context.server_url))
    if options.issuer is None and not metadata.authorization_servers:
        raise AuthorizationError("the protected resource names no authorization server", option="issuer=")
    issuer = options.issuer or options.choose(metadata.authorization_servers)
    server = yield from _server_metadata(context, issuer)
    resource = options.resource or metadata.resource
    return Discovered(server, resource, metadata.scopes_supported, metadata.dpop_required)


def _resource_metadata(
    context: FlowContext, options: AuthorizationOptions, challenge: Challenge | None
) -> Flow[ProtectedResourceMetadata | None]:
    """Return the metadata, or ``None`` if it is missing and the options allow that."""
    named = challenge.params.get("resource_metadata") if challenge is not None else None
    urls = [*([named] if named is not None else []), *resource_metadata_urls(context.server_url)]
    fault: AuthorizationError | None = None
    all_missing, missing = named is None, list[str]()
    is_step_up = challenge is not None and challenge.params.get("error") == "insufficient_scope"
    for url in dict.fromkeys(urls):
        check_endpoint(url, context.server_url, "resource_metadata")
        response = yield from _get(context, url, may_be_cached=is_step_up)
        if response.status != 200:
            all_missing = all_missing and response.status in (404, 410)
            missing.append(f"{quoted(url)} answers with status {response.status}")
            continue
        try:
            metadata = ProtectedResourceMetadata.parse(read_document(response.body, f"the document at {quoted(url)}"))
        except AuthorizationError as error:
            # At a guessed URL many sites answer with a page instead of a 404.
            if url == named:
                raise
            fault, all_missing = error, False
            continue
        if options.resource is None and not matches_resource(
            metadata.resource, context.server_url, url, options.resource_match
        ):
            message = f"the metadata at {quoted(url)} is that of {quoted(metadata.resource)}, not of this server"
            raise AuthorizationError(message, option="resource=")
        return metadata
    if options.issuer is not None or (all_missing and options.legacy):
        return None
    message = f"the server has no protected resource metadata: {'; '.join(missing)}"
    raise fault or AuthorizationError(message, option="issuer=")


def _server_without_resource_metadata(
    context: FlowContext, options: AuthorizationOptions
) -> Flow[AuthorizationServerMetadata]:
    if options.issuer is not None:
        return (yield from _server_metadata(context, options.issuer))
    base = origin_of(context.server_url)
    for url in issuer_metadata_urls(base):
        response = yield from _get(context, url)
        if response.status == 200:
            document = read_document(response.body, f"the document at {quoted(url)}")
            # Both issuers have this well-known URL, and nothing has named one of them.
            issuer = base + "/" if document.get("issuer") == base + "/" else base
            return AuthorizationServerMetadata.parse(document, issuer, context.server_url)
    return AuthorizationServerMetadata.default(context.server_url)


def _server_metadata(context: FlowContext, issuer: str) -> Flow[AuthorizationServerMetadata]:
    check_endpoint(issuer, context.server_url, "the issuer")
    fault: AuthorizationError | None = None
    missing = list[str]()
    for url in issuer_metadata_urls(issuer):
        response = yield from _get(context, url, may_be_cached=True)
        if response.status != 200:
            missing.append(f"{quoted(url)} answers with status {response.status}")
            continue
        try:
            document = read_document(response.body, f"the document at {quoted(url)}")
        except AuthorizationError as error:
            fault = error
            continue
        # A document of another issuer ends the search: it must not be used, and is a sign of an attack (AUTH-16).
        return AuthorizationServerMetadata.parse(document, issuer, context.server_url)
    message = f"the issuer {quoted(issuer)} has no metadata: {'; '.join(missing)}"
    raise fault or AuthorizationError(message, option="metadata=")


def _get(context: FlowContext, url: str, *, may_be_cached: bool = False) -> Flow[Response]:
    if may_be_cached and (body := context.documents.find(url, context.now)) is not None:
        return Response(200, body=body, at=context.now)
    headers = (("accept", "application/json"), ("mcp-protocol-version", LATEST_HANDSHAKE.name))
    fetch = Fetch(method="GET", url=url, headers=headers, reach=context.reach, redirects=_GET_REDIRECTS)
    response: Response = yield fetch
    if response.status == 200:
        context.documents.keep(url, response.body, response.headers, response.at)
    return _unless_busy(response, url)


def post_form(
    context: FlowContext, url: str, fields: Mapping[str, str], headers: tuple[tuple[str, str], ...] = ()
) -> Flow[Response]:
    """Post a form to an endpoint and return the response. Raises AuthorizationError for 5xx and 429.

    A redirect is not followed: it is the response. The form holds credentials, which are for this endpoint only.
    """
    head = (("accept", "application/json"), ("content-type", "application/x-www-form-urlencoded"), *headers)
    fetch = Fetch(method="POST", url=url, headers=head, body=urlencode(fields).encode(), reach=context.reach)
    response: Response = yield fetch
    return _unless_busy(response, url)


def _unless_busy(response: Response, url: str) -> Response:
    if response.status >= 500 or response.status == 429:
        raise AuthorizationError(f"{quoted(url)} answers with status {response.status}", temporary=True)
    return response


# ------------------------------------------------------------------------------------------------------- token requests
# Requests to the token endpoint, the revocation of tokens, and the refresh (RFC 6749 §6, RFC 7009).


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
        if error.code == "invalid_dpop_proof":
            date = next((value for name, value in response.headers if name == "date"), None)
            raise AuthorizationError(refused_proof("the token endpoint", date, response.at), code=error.code)
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


# -------------------------------------------------------------------------------------------------------------- storage
# Flows over stored credentials, which other machines and processes share: loading, saving, and renewing.
# No refresh token is presented twice (AUTH-41). The whole decision to renew stands under the lock, and before a refresh
# token is presented the record is marked; that write succeeds for one machine only, even where a store cannot lock. So
# the mark of a record that was read without the lock says nothing: another process may be renewing the token.

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
    credentials: Credentials,
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
        renewed = yield from _renew_locked(context, key, credentials, refused, signer, was_stored)
    except AuthorizationError:
        yield UnlockCredentials(key=key)
        raise
    yield UnlockCredentials(key=key)
    return renewed


def _renew_locked(
    context: FlowContext,
    key: str,
    credentials: Credentials,
    refused: TokenSet | None,
    signer: Signer | None,
    was_stored: bool,
) -> Flow[tuple[Credentials, EffectFailed | None]]:
    for _ in range(_TRIES):
        current, version, problem = yield from _current(key, credentials, was_stored)
        if _is_other(current, credentials, context.now):
            return current, None
        if current.refresh_token is None:
            raise AuthorizationError("the refresh token was presented already", code="invalid_grant")
        marked, left = to_text(attrs.evolve(current, spent_at=float(context.now))), to_text(current)
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
            if (error.temporary or error.code == "invalid_dpop_proof") and problem is None:
                # Cancelled, refused for the proof beside it, or without an answer in time. As far as is known, the
                # server has not taken the refresh token: only invalid_grant drops it.
                yield RestoreCredentials(key=key, marked=marked, record=left)
            raise
    raise EffectFailed("the stored credentials change all the time")


def _current(
    key: str, credentials: Credentials, was_stored: bool
) -> Flow[tuple[Credentials, int | None, EffectFailed | None]]:
    """Return the credentials to renew and the version of their record, or why that cannot be read.

    A record that is damaged, or has become unreadable, does not take from this process what it knows.
    """
    try:
        stored, version = yield from load_credentials(key)
    except FlowAbandoned:
        raise
    except EffectFailed as problem:
        return credentials, None, problem
    if version is None and was_stored:
        raise AuthorizationError("the stored credentials were removed by a logout", code="invalid_grant")
    return newest_credentials(stored, credentials), version, None


def newest_credentials(stored: Credentials, credentials: Credentials) -> Credentials:
    """Return stored credentials, or those that this process knows where their token is newer.

    It is where the store failed to save it, or was damaged since.
    """
    if stored.token is None or (
        credentials.token is not None and stored.token.obtained_at < credentials.token.obtained_at
    ):
        return attrs.evolve(credentials, registrations={**stored.registrations, **credentials.registrations})
    return stored


def _mark(key: str, marked: Secret, version: int | None, problem: EffectFailed | None) -> Flow[tuple[bool, int | None]]:
    """Mark the record, unless it cannot be used; return whether no other process has changed it, and its version."""
    if problem is not None:
        return True, None
    version = yield SaveCredentials(key=key, record=marked, version=version)
    return version is not None, version


def _is_other(stored: Credentials, credentials: Credentials, now: float) -> bool:
    """Return whether another process has stored a token that is usable."""
    return stored.token is not None and stored.token != credentials.token and stored.token.is_usable(now)


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


def restore_credentials(store: CredentialStore, effect: RestoreCredentials) -> None:
    """Perform a `RestoreCredentials` with a store, such as `MemoryCredentials`. Raises as the store does."""
    stored = store.load(effect.key)
    if stored is not None and stored.record == effect.marked:
        store.swap(effect.key, effect.record, stored.version)


# --------------------------------------------------------------------------------------------------- authorization code
# The authorization code flow with PKCE (OAuth 2.1 §4.1), cut where it waits for a person.
# `OAuth.begin` ends with a `PendingAuthorization`, which is a value: it can be stored, and `OAuth.finish` may run in
# another process.

CALLBACK_PATH: Final = "/callback"
_LAST_PORT: Final = 65535


def _redirect_uri(uri: str | None) -> str | None:
    return uri if uri is None else check_redirect_uri(uri)


def _amount(_: object, field: attrs.Attribute[float], value: Any) -> None:
    if not is_amount(value):
        raise ValueError(f"{field.name} must be a number of seconds, 0 or more, not {value!r:.60}")


def _port(_: object, field: attrs.Attribute[int], value: Any) -> None:
    if not is_count(value, 1) or value > _LAST_PORT:
        raise ValueError(f"{field.name} must be a number from 1 to {_LAST_PORT}, not {value!r:.60}")


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
        began, before = float(context.now), credentials or Credentials()
        discovered = yield from discover(context, self, challenge)
        discovered.server.check_pkce()
        endpoint = check_authorization_url(discovered.server.require("authorization_endpoint"))
        discovered.server.require("token_endpoint")
        client, redirect_uri = yield from self._client(context, discovered.server, before)
        scopes = discovered.scopes_to_request(self, before, challenge, refreshable=True)
        verifier, state = new_verifier(context.entropy), new_state(context.entropy)
        query = {
            "response_type": "code",
            "client_id": client.client_id,
            "redirect_uri": redirect_uri,
            "state": state,
            "code_challenge": code_challenge(verifier),
            "code_challenge_method": "S256",
            "resource": discovered.resource,
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
            server=attrs.evolve(discovered.server, document={}),
            client=client,
            redirect_uri=redirect_uri,
            resource=discovered.resource,
            scopes=scopes,
            created_at=began,
            lifetime=self.login_timeout,
            proof_key=discovered.proof_key(context, self, before, challenge),
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
        before = credentials or Credentials()
        requested = pending.scopes | token.scopes
        return before.authorized(token, pending.server, pending.client, requested, pending.proof_key)

    def _client(
        self, context: FlowContext, server: AuthorizationServerMetadata, stored: Credentials
    ) -> Flow[tuple[Registration, str]]:
        """Return the client and its redirect URI, in the order of AUTH-18."""
        registered = stored.registrations.get(server.issuer)
        redirect_uri = yield from self._bound_uri(registered)
        if self.client_id is not None:
            if self.issuer is None and any(
                each.client_id == self.client_id and each.issuer != server.issuer
                for each in stored.registrations.values()
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


# ---------------------------------------------------------------------------------------------------------- grant types
# Authorization without a browser: client credentials, workload identity, enterprise-managed, and device codes.

_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_DEVICE_CODE: Final = "urn:ietf:params:oauth:grant-type:device_code"
_TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"
_ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"


_Presented: TypeAlias = tuple[Registration, dict[str, str]]


@attrs.frozen
class _TokenRequest(AuthorizationOptions):
    """A way that takes one request for a token, without a person."""

    def obtain(
        self, context: FlowContext, credentials: Credentials | None = None, challenge: Challenge | None = None
    ) -> Flow[Credentials]:
        """Discover, and return ``credentials`` with a token. Raises AuthorizationError."""
        before = credentials or Credentials()
        discovered = yield from discover(context, self, challenge)
        scopes = discovered.scopes_to_request(self, before, challenge)
        client, grant = yield from self._presented(context, discovered, scopes)
        key = discovered.proof_key(context, self, before, challenge)
        token = yield from request_token(
            context,
            discovered.server,
            client,
            grant,
            resource=discovered.resource,
            scopes=scopes,
            proof_key=key,
            signer=getattr(self, "signer", None),
        )
        return before.authorized(token, discovered.server, client, scopes | token.scopes, key)

    @abstractmethod
    def _presented(self, context: FlowContext, discovered: Discovered, scopes: frozenset[str]) -> Flow[_Presented]:
        """Return the client that asks, and the members of its request that the grant needs."""


@attrs.frozen
class ClientCredentials(_TokenRequest):
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
    assertion: AssertionSource = attrs.field(default=None, validator=check_assertion, repr=False, kw_only=True)
    """Called by drivers for a client assertion, for example a function of a key service."""

    def _presented(self, context: FlowContext, discovered: Discovered, scopes: frozenset[str]) -> Flow[_Presented]:
        yield from ()  # a flow, though it asks for nothing
        method = self.auth_method or (None if self.secret is not None else "private_key_jwt")
        client = given_client(
            discovered.server, self.client_id, self.secret, can_sign=self.signer is not None, auth_method=method
        )
        return client, {"grant_type": "client_credentials"}


@attrs.frozen
class WorkloadIdentity(_TokenRequest):
    """A workload that presents the JWT of its platform (RFC 7523 §2.1): one token request, never repeated (AUTH-52).

    The driver is asked for the JWT.
    """

    client_id: str | None = attrs.field(default=None, kw_only=False)
    """The id of the client at the authorization server."""
    assertion: AssertionSource = attrs.field(default=None, validator=check_assertion, repr=False, kw_only=True)
    """The JWT of the platform, or what drivers call for it."""

    def _presented(self, context: FlowContext, discovered: Discovered, scopes: frozenset[str]) -> Flow[_Presented]:
        issuer = discovered.server.issuer
        assertion: Secret = yield NeedAssertion(
            kind="workload", audience=issuer, client_id=self.client_id, resource=discovered.resource, scopes=scopes
        )
        grant = {"grant_type": _JWT_BEARER, "assertion": assertion.reveal()}
        return Registration(issuer, self.client_id or ""), grant


@attrs.frozen(kw_only=True)
class EnterpriseManaged(_TokenRequest):
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
    assertion: AssertionSource = attrs.field(default=None, validator=check_assertion, repr=False)
    """The id token of the person, or what drivers call for it."""

    def _presented(self, context: FlowContext, discovered: Discovered, scopes: frozenset[str]) -> Flow[_Presented]:
        id_token: Secret = yield NeedAssertion(kind="id_token", audience=self.idp_issuer, client_id=self.idp_client_id)
        assertion = yield from self._identity_assertion(context, discovered, scopes, id_token)
        grant = {"grant_type": _JWT_BEARER, "assertion": assertion.reveal()}
        return given_client(discovered.server, self.client_id, self.client_secret), grant

    def _identity_assertion(
        self, context: FlowContext, discovered: Discovered, scopes: frozenset[str], id_token: Secret
    ) -> Flow[Secret]:
        what = "the answer of the identity provider"
        endpoint = check_endpoint(self.idp_token_endpoint, context.server_url, "idp_token_endpoint=")
        form = {
            "grant_type": _TOKEN_EXCHANGE,
            "requested_token_type": _ID_JAG,
            "subject_token": id_token.reveal(),
            "subject_token_type": _ID_TOKEN,
            "audience": discovered.server.issuer,
            "resource": discovered.resource,
            "client_id": self.idp_client_id,
        }
        if scopes:
            form["scope"] = format_scopes(scopes)
        response = yield from post_form(context, endpoint, form)
        document = read_document(response.body, what)
        if response.status != 200 or document.get("error") is not None:
            raise oauth_error(document, what)
        assertion = text(document, "access_token", what)
        if assertion is None or filled(document, "issued_token_type", what) not in (None, _ID_JAG):
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
        before = credentials or Credentials()
        discovered = yield from discover(context, self, challenge)
        server = discovered.server
        server.require("device_authorization_endpoint")
        client = before.registrations.get(server.issuer)
        if self.client_id is not None:
            client = given_client(server, self.client_id, self.client_secret)
        elif client is None:
            client = yield from register_client(context, server, self.client_name, (), (_DEVICE_CODE, "refresh_token"))
        scopes = discovered.scopes_to_request(self, before, challenge, refreshable=True)
        key = discovered.proof_key(context, self, before, challenge)
        token = yield from self._poll(context, server, client, discovered.resource, scopes, key)
        return before.authorized(token, server, client, scopes | token.scopes, key)

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
    complete = filled(document, "verification_uri_complete", what)
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
