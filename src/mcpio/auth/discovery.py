"""Discovery: from a 401 to the metadata of the authorization server (AUTH-10 to AUTH-17)."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

import attrs

from mcpio.auth.challenges import Challenge
from mcpio.auth.credentials import Credentials
from mcpio.auth.documents import read_document, text
from mcpio.auth.dpop import new_proof_key
from mcpio.auth.effects import Fetch, Flow, FlowContext, Response
from mcpio.auth.errors import AuthorizationError, quoted
from mcpio.auth.metadata import AuthorizationServerMetadata, ProtectedResourceMetadata
from mcpio.auth.options import AuthorizationOptions
from mcpio.auth.scopes import select_scopes
from mcpio.auth.secret import Secret
from mcpio.auth.urls import (
    canonical_resource,
    check_endpoint,
    issuer_metadata_urls,
    matches_resource,
    origin_of,
    resource_metadata_urls,
)
from mcpio.revisions import LATEST_HANDSHAKE

__all__ = ["Discovered", "discover", "post_form"]

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
        self, context: FlowContext, options: AuthorizationOptions, known: Credentials, challenge: Challenge | None
    ) -> Secret | None:
        """Return the key to bind the token to: a new one the first time, and ``None`` if it is not to be bound."""
        is_asked = self.wants_proofs or (challenge is not None and challenge.scheme.lower() == "dpop")
        if options.dpop == "off" or (options.dpop == "auto" and not is_asked):
            return None
        return known.proof_key or new_proof_key(context.entropy)

    def scopes_to_request(
        self,
        options: AuthorizationOptions,
        known: Credentials,
        challenge: Challenge | None,
        *,
        refreshable: bool = False,
    ) -> frozenset[str]:
        """Return the scopes for an authorization: those of a first one, and all that were requested before (AUTH-35).

        A new token replaces the old one, and must not lose what that one could do.
        """
        challenged = challenge.scopes if challenge is not None else frozenset()
        listed = self.server.scopes_supported
        chosen = select_scopes(options.scopes, challenged, self.scopes_supported, listed, refreshable=refreshable)
        if challenge is not None and challenge.params.get("error") == "insufficient_scope":
            chosen |= challenged
        token = known.token
        if token is not None and (token.issuer, token.resource) == (self.server.issuer, self.resource):
            chosen |= known.requested
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
