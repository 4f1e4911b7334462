"""Metadata documents: of protected resources (RFC 9728), of authorization servers (RFC 8414), and of clients (CIMD)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import attrs

from mcpio.auth.documents import flag, text, texts
from mcpio.auth.errors import AuthorizationError, quoted
from mcpio.auth.scopes import parse_scopes
from mcpio.auth.urls import check_endpoint, check_redirect_uri, origin_of
from mcpio.web_address import web_address

__all__ = ["AuthorizationServerMetadata", "ProtectedResourceMetadata", "client_metadata"]


@attrs.frozen
class ProtectedResourceMetadata:
    """Protected resource metadata (RFC 9728 §2)."""

    resource: str
    """The identifier of the resource, as it was written. It goes into the parameter ``resource`` unchanged."""
    authorization_servers: tuple[str, ...] = ()
    """Issuers of tokens for it; choosing one is the client's part (AUTH-13)."""
    scopes_supported: frozenset[str] = frozenset()
    """Scopes that requests may need."""
    dpop_required: bool = False
    """Whether it takes DPoP-bound tokens only (``dpop_bound_access_tokens_required``)."""
    document: Mapping[str, Any] = attrs.field(factory=dict, repr=False, eq=False)
    """The whole document, with the members that have no attribute here."""

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """Read a document. Raises AuthorizationError for one without ``resource``, or with a member of another type."""
        what = "the metadata of the protected resource"
        resource = text(document, "resource", what)
        if resource is None:
            raise AuthorizationError(f"{what} does not say of which resource it is", option="resource=")
        return cls(
            resource,
            texts(document, "authorization_servers", what) or (),
            _scopes(document, what),
            flag(document, "dpop_bound_access_tokens_required", what),
            document,
        )


@attrs.frozen
class AuthorizationServerMetadata:
    """Authorization server metadata (RFC 8414 §2). A missing endpoint is ``None``."""

    issuer: str
    """The identifier, as it was written; it is compared as a text."""
    authorization_endpoint: str | None = None
    """The URL for a person's browser."""
    token_endpoint: str | None = None
    """The URL for token requests."""
    registration_endpoint: str | None = None
    """The URL for client registration (RFC 7591)."""
    revocation_endpoint: str | None = None
    """The URL for token revocation (RFC 7009)."""
    device_authorization_endpoint: str | None = None
    """The URL for device codes (RFC 8628)."""
    scopes_supported: frozenset[str] = frozenset()
    """The scopes that it lists."""
    auth_methods: tuple[str, ...] = ("client_secret_basic",)
    """How clients may authenticate at the token endpoint; the default is that of RFC 8414."""
    code_challenge_methods: tuple[str, ...] | None = None
    """The methods of PKCE; ``None`` where the document does not say."""
    iss_supported: bool = False
    """Whether authorization responses carry ``iss`` (RFC 9207)."""
    client_documents: bool = False
    """Whether a client id may be the URL of a metadata document (AUTH-48)."""
    is_default: bool = False
    """Whether the server has no metadata, and the endpoints are the defaults of 2025-03-26 (AUTH-17)."""
    document: Mapping[str, Any] = attrs.field(factory=dict, repr=False, eq=False)
    """The whole document, with the members that have no attribute here."""

    @classmethod
    def parse(cls, document: Mapping[str, Any], issuer: str, server_url: str) -> Self:
        """Read the document that was found at a well-known URL of ``issuer``, for the MCP server at ``server_url``.

        Raises AuthorizationError for the document of another issuer (AUTH-16), for endpoints that may not be used
        (AUTH-28), and for members of another type.
        """
        what = "the metadata of the authorization server"
        # RFC 8414 §3.3: otherwise a document could pair the issuer of an honest server with the endpoints of another.
        if (found := text(document, "issuer", what)) != issuer:
            said = "no issuer" if found is None else f"the issuer {quoted(found)}"
            raise AuthorizationError(f"{what} at {quoted(issuer)} names {said}", option="issuer=")
        endpoints: dict[str, Any] = {
            name: None if (url := text(document, name, what)) is None else check_endpoint(url, server_url, name)
            for name in _ENDPOINTS
        }
        return cls(
            issuer,
            **endpoints,
            scopes_supported=_scopes(document, what),
            auth_methods=texts(document, "token_endpoint_auth_methods_supported", what) or ("client_secret_basic",),
            code_challenge_methods=texts(document, "code_challenge_methods_supported", what),
            iss_supported=flag(document, "authorization_response_iss_parameter_supported", what),
            client_documents=flag(document, "client_id_metadata_document_supported", what),
            document=document,
        )

    @classmethod
    def default(cls, server_url: str) -> Self:
        """Return the endpoints of a server without metadata, in the words of 2025-03-26 (AUTH-17)."""
        base = origin_of(server_url)
        for name in ("authorize", "token", "register"):
            check_endpoint(f"{base}/{name}", server_url, f"the default endpoint /{name}")
        return cls(
            base,
            authorization_endpoint=f"{base}/authorize",
            token_endpoint=f"{base}/token",
            registration_endpoint=f"{base}/register",
            auth_methods=("none",),
            is_default=True,
        )

    def require(self, name: str) -> str:
        """Return an endpoint by its attribute. Raises AuthorizationError where the server has none."""
        url: str | None = getattr(self, name)
        if url is None:
            raise AuthorizationError(
                f"the authorization server {quoted(self.issuer)} has no {name}", option="metadata="
            )
        return url

    def check_pkce(self) -> None:
        """Raise AuthorizationError unless the server promises PKCE with S256 (AUTH-26).

        Default endpoints pass: they have no metadata in which to say so, and S256 is used with them all the same.
        """
        if not self.is_default and "S256" not in (self.code_challenge_methods or ()):
            raise AuthorizationError(
                f"the metadata of {quoted(self.issuer)} does not list S256 in code_challenge_methods_supported",
                option="metadata=",
            )


def client_metadata(client_id: str, client_name: str, redirect_uris: Sequence[str], **more: Any) -> dict[str, Any]:
    """Return the document to host at ``client_id``, which then identifies the client (AUTH-19).

    ``more`` has further members, such as ``logo_uri`` or ``jwks_uri``. Raises ValueError for an id that is not an
    https URL with a path, for no redirect URI, and for one that is neither https nor on a loopback host.
    """
    found = web_address(client_id)
    if not found.is_https or found.has_user_info or "#" in client_id or client_id.count("/") < 3:
        raise ValueError(f"a client id is an https URL with a path, not {client_id!r:.100}")
    if client_id.endswith(found.host + "/"):
        raise ValueError(f"a client id is an https URL with a path, not {client_id!r:.100}")
    if not redirect_uris:
        raise ValueError("a client needs one redirect URI at least")
    return {
        "client_id": client_id,
        "client_name": client_name,
        "redirect_uris": [check_redirect_uri(uri) for uri in redirect_uris],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        **more,
    }


_ENDPOINTS = (
    "authorization_endpoint",
    "token_endpoint",
    "registration_endpoint",
    "revocation_endpoint",
    "device_authorization_endpoint",
)


def _scopes(document: Mapping[str, Any], what: str) -> frozenset[str]:
    """Return the scopes that a document lists. Some servers put several into one text; malformed ones are left out."""
    listed = texts(document, "scopes_supported", what) or ()
    return frozenset(scope for each in listed for scope in parse_scopes(each))
