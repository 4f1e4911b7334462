"""URLs of OAuth: canonical resources, well-known addresses, and which URLs a peer may make a client use.

Issuers and resources are compared and sent as the texts they came as: nothing here writes one anew.
"""

from __future__ import annotations

import re
from typing import Final, Literal
from urllib.parse import SplitResult, urlsplit

from mcpio.auth.errors import AuthorizationError, quoted
from mcpio.web_address import web_address

__all__ = [
    "canonical_resource",
    "check_authorization_url",
    "check_endpoint",
    "check_redirect_uri",
    "host_of",
    "is_loopback_host",
    "issuer_metadata_urls",
    "matches_resource",
    "origin_of",
    "resource_metadata_urls",
]


def canonical_resource(url: str) -> str:
    """Return the canonical URI of an MCP server, for the parameter ``resource`` (AUTH-30, RFC 8707 §2).

    Scheme and host come out in lower case, a default port and the slash of an empty path go; path and query stay as
    they are. Raises ValueError for a URL that is not http or https, has no host, or has a fragment or credentials.
    """
    parts = _split(url)
    if "#" in url:
        raise ValueError(f"a resource has no fragment: {url!r:.100}")
    if "@" in parts.netloc:
        raise ValueError("a resource has no user name or password")
    path = "" if parts.path == "/" and not parts.query else parts.path
    return _origin(parts) + path + (f"?{parts.query}" if parts.query else "")


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL, without path: ``https://mcp.example.com``. Raises ValueError."""
    return _origin(_split(url))


def host_of(url: str) -> str:
    """Return the host of an http or https URL, in lower case and without brackets. Raises ValueError."""
    return _split(url).hostname or ""


def resource_metadata_urls(resource: str) -> tuple[str, ...]:
    """Return where the metadata of a protected resource may be, in the order to try (AUTH-10, RFC 9728 §3.1)."""
    return tuple(dict.fromkeys((_of_resource(resource), _of_resource(origin_of(resource)))))


def issuer_metadata_urls(issuer: str) -> tuple[str, ...]:
    """Return where the metadata of an authorization server may be, in the order to try (AUTH-15).

    RFC 8414 first, then OpenID Connect Discovery with the path inserted and, for an issuer with a path, appended.
    """
    found = [_of_issuer(issuer, "oauth-authorization-server"), _of_issuer(issuer, "openid-configuration")]
    if urlsplit(issuer).path.strip("/"):
        found.append(issuer.rstrip("/") + "/.well-known/openid-configuration")
    return tuple(found)


def matches_resource(
    resource: str, server_url: str, found_at: str, match: Literal["parent", "exact"] = "parent"
) -> bool:
    """Return whether metadata of ``resource``, found at ``found_at``, is valid for the server at ``server_url``.

    It is where the two are equal; an empty path equals ``/``. With ``match="parent"`` it is too where the document
    came from the well-known URL of that very resource, and the resource is of the same origin and a parent of the
    server's URL in whole segments: without a challenge the client would have accepted that document (AUTH-12).
    """
    try:
        wanted, named = canonical_resource(server_url), canonical_resource(resource)
    except ValueError:
        return False
    if wanted == named:
        return True
    if match == "exact" or origin_of(resource) != origin_of(server_url) or found_at != _of_resource(resource):
        return False
    parent = urlsplit(resource)
    return not parent.query and urlsplit(server_url).path.startswith(parent.path.rstrip("/") + "/")


def check_endpoint(url: str, server_url: str, what: str) -> str:
    """Return ``url`` if a client may send requests to it, for the MCP server at ``server_url`` (AUTH-28, SEC-03).

    That is an https URL without credentials, fragment and control characters. http will do only where both the URL
    and the MCP server are on a loopback host. Raises AuthorizationError, which names ``what`` the URL is.
    """
    fault = ""
    try:
        found = web_address(url)
    except ValueError as error:
        fault = str(error)
    else:
        if found.has_user_info or "#" in url or not url.isascii() or _ODD_NUMBER.fullmatch(found.host):
            fault = "it has credentials, a fragment, or a host that is written in an unusual way"
        elif not found.is_https and not (found.is_local and is_loopback_host(host_of(server_url))):
            fault = "it is not https, nor are it and the MCP server both on this machine"
    if fault:
        raise AuthorizationError(f"{what} {quoted(url)} cannot be used: {fault}")
    return url


def check_authorization_url(url: str) -> str:
    """Return ``url`` if it may be opened in a browser (SEC-07).

    That is an http or https URL, http only to a loopback host, without user name, spaces, backslashes and control
    characters. Raises AuthorizationError.
    """
    try:
        found = web_address(url)
    except ValueError as error:
        raise AuthorizationError(f"the authorization URL cannot be opened: {error}") from None
    if found.has_user_info or not url.isascii() or not (found.is_https or found.is_local):
        raise AuthorizationError(f"the authorization URL {quoted(url)} cannot be opened: it is not a plain https URL")
    return url


def check_redirect_uri(uri: str) -> str:
    """Return ``uri`` if an authorization server may send a browser to it: https, or a loopback host (AUTH-28).

    Raises ValueError.
    """
    found = web_address(uri)
    if found.has_user_info or "#" in uri or not (found.is_https or found.is_local):
        raise ValueError(f"a redirect URI is https, or http on a loopback address, not {uri!r:.100}")
    return uri


def is_loopback_host(host: str) -> bool:
    """Return whether a host is ``localhost``, ``::1`` or an address that begins with 127."""
    return host in ("localhost", "::1") or _LOOPBACK.fullmatch(host) is not None


def _split(url: str) -> SplitResult:
    web_address(url)
    return urlsplit(url)


def _origin(parts: SplitResult) -> str:
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    port = "" if parts.port in (None, {"http": 80, "https": 443}[parts.scheme]) else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}"


def _of_issuer(issuer: str, name: str) -> str:
    # RFC 8414 §3.1 drops every last slash; RFC 9728 §3.1 only that of an empty path.
    return _well_known(_split(issuer), name, urlsplit(issuer).path.rstrip("/"))


def _of_resource(resource: str) -> str:
    path = _split(resource).path
    return _well_known(urlsplit(resource), "oauth-protected-resource", "" if path == "/" else path)


def _well_known(parts: SplitResult, name: str, path: str) -> str:
    query = f"?{parts.query}" if parts.query else ""
    return f"{_origin(parts)}/.well-known/{name}{path}{query}"


_LOOPBACK: Final = re.compile(r"127(?:\.[0-9]{1,3}){3}")
# 2130706433 and 0x7f.1 are addresses to some resolvers and names to others. A dotted quad is fine.
_ODD_NUMBER: Final = re.compile(r"(?!(?:(?:0|[1-9][0-9]{0,2})(?:\.|$)){4})(?:[^.]*\.)*(?:[0-9]+|0[xX][0-9a-fA-F]*)\.?")
