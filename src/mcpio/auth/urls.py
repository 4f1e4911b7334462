"""Addresses of authorization: checked, compared, and bounded in where they may lead."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, Literal
from urllib.parse import SplitResult, urlsplit

from mcpio._printable import printable
from mcpio.errors import AuthorizationRequired
from mcpio.web_address import web_address

# --------------------------------------------------------------------------------------------------------------- errors
# Failures of authorization on the client's side.


class AuthorizationError(AuthorizationRequired):
    """Authorization was tried and failed.

    ``code`` is the OAuth error code where the authorization server gave one (``"access_denied"``), else ``None``.
    ``option`` names the option that lets the same attempt pass, else ``None``. ``url`` is where a person can go on,
    where the flow needs one and interaction is not allowed.
    ``temporary`` tells whether the same attempt may succeed later with nothing changed: the network failed, or a server
    was busy. No text of it shows a secret.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        option: str | None = None,
        url: str | None = None,
        temporary: bool = False,
        status: int = 401,
        challenges: Iterable[str] = (),
    ) -> None:
        hint = f"; the option {option} lets it pass" if option else ""
        super().__init__(message + hint, status=status, challenges=challenges)
        self.code = code
        self.option = option
        self.url = url
        self.temporary = temporary


class EffectFailed(AuthorizationError):
    """An effect failed: no answer came, or the store raised. ``temporary`` is true."""

    def __init__(self, message: str) -> None:
        super().__init__(message, temporary=True)


class FlowAbandoned(EffectFailed):
    """Nothing is done for a flow any more. It may yield effects without an answer, to clean up."""

    def __init__(self) -> None:
        super().__init__("it was cancelled")


def quoted(text: str, limit: int = 200) -> str:
    """Return a peer's text in quotation marks, cut to ``limit`` characters, with invisible characters escaped."""
    return repr(printable(text[:limit]).replace("\n", " ").replace("\t", " "))


# ----------------------------------------------------------------------------------------------------------------- urls
# URLs of OAuth: canonical resources, well-known addresses, and which URLs a peer may make a client use.
# Issuers and resources are compared and sent as the texts they came as: nothing here writes one anew.


def canonical_resource(url: str) -> str:
    """Return the canonical URI of an MCP server, for the parameter ``resource`` (AUTH-30, RFC 8707 §2).

    Scheme and host come out in lower case, a default port and the slash of an empty path go; path and query stay as
    they are. Raises ValueError for a URL that is not http or https, has no host, or has a fragment or credentials.
    """
    parts = _split(url)
    if "#" in url:
        raise ValueError(f"a resource must have no fragment: {url!r:.100}")
    if "@" in parts.netloc:
        raise ValueError("a resource must have no user name and no password")
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
    urls = [_of_issuer(issuer, "oauth-authorization-server"), _of_issuer(issuer, "openid-configuration")]
    if urlsplit(issuer).path.strip("/"):
        urls.append(issuer.rstrip("/") + "/.well-known/openid-configuration")
    return tuple(urls)


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
        address = web_address(url)
    except ValueError as error:
        fault = str(error)
    else:
        if address.has_user_info or "#" in url or not url.isascii() or _ODD_NUMBER.fullmatch(address.host):
            fault = "it has credentials, a fragment, or a host that is written in an unusual way"
        elif not address.is_https and not (address.is_local and is_loopback_host(host_of(server_url))):
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
        address = web_address(url)
    except ValueError as error:
        raise AuthorizationError(f"the authorization URL cannot be opened: {error}") from None
    if address.has_user_info or not url.isascii() or not (address.is_https or address.is_local):
        raise AuthorizationError(f"the authorization URL {quoted(url)} cannot be opened: it is not a plain https URL")
    return url


def check_redirect_uri(uri: str) -> str:
    """Return ``uri`` if an authorization server may send a browser to it: https, or a loopback host (AUTH-28).

    Raises ValueError.
    """
    address = web_address(uri)
    if address.has_user_info or "#" in uri or not (address.is_https or address.is_local):
        raise ValueError(f"a redirect URI must be https, or http on a loopback address, not {uri!r:.100}")
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


# ---------------------------------------------------------------------------------------------------------------- reach
# Network addresses that a client may be led to by a peer's URL: the defence against request forgery (SEC-03).


class Reach(enum.Enum):
    """The addresses that a fetch may connect to: never less public than the MCP server's own.

    Judge the address of the connection, not the host of the URL: a name may resolve to another address between a check
    and the connection. Behind a proxy the address is not known; then judge the host where it is an address.
    """

    PUBLIC = "public"
    """To public addresses only."""
    PRIVATE = "private"
    """To addresses of private networks too."""
    LOOPBACK = "loopback"
    """To this machine too."""

    @classmethod
    def of_address(cls, address: str) -> Reach:
        """Return the reach that goes with an MCP server at this address.

        ``address`` is that of the connection to it, in text. Link-local and other special addresses, and texts
        that are not an address, count as public: a peer gains nothing from them.
        """
        return _kind(address) or cls.PUBLIC

    @classmethod
    def of_url(cls, url: str) -> Reach:
        """Return the reach that goes with an MCP server at this URL, as far as the URL alone tells.

        ``localhost`` and loopback addresses give ``LOOPBACK``, addresses of private networks ``PRIVATE``, and all
        names ``PUBLIC``: use `of_address` where the connection is known.
        """
        host = host_of(url)
        return cls.LOOPBACK if is_loopback_host(host) else cls.of_address(host)

    def allows(self, address: str) -> bool:
        """Return whether a fetch may connect to an address, given as a str without port and brackets.

        Link-local addresses, those of cloud metadata services, multicast, and texts that are not an address are
        never allowed. An IPv6 address that embeds an IPv4 one (mapped, NAT64, 6to4) is judged by the IPv4 address.
        """
        kind = _kind(address)
        return kind is not None and _ORDER.index(kind) <= _ORDER.index(self)


_ORDER: Final = (Reach.PUBLIC, Reach.PRIVATE, Reach.LOOPBACK)


def _kind(text: str) -> Reach | None:
    """Return the reach that an address needs, or ``None`` if no reach allows it."""
    try:
        # A zone, as in fe80::1%eth0, says nothing about the address.
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    address = _embedded(address)
    if any(address in network for network in _LOOPBACK_NETWORKS):
        return Reach.LOOPBACK
    if any(address in network for network in _NEVER):
        return None
    return Reach.PRIVATE if any(address in network for network in _PRIVATE) else Reach.PUBLIC


def _embedded(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    if isinstance(address, IPv6Address):
        if any(address in network for network in _LOW_32_BITS) and address not in _NOT_EMBEDDED:
            return IPv4Address(int(address) & 0xFFFFFFFF)
        if address in _6TO4:
            return IPv4Address(int(address) >> 80 & 0xFFFFFFFF)
    return address


def _networks(*texts: str) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(map(ip_network, texts))


# Our own lists and not the properties of ipaddress, whose answers change with the version of Python.
_LOOPBACK_NETWORKS: Final = _networks("127.0.0.0/8", "::1/128")
_NEVER: Final = _networks(
    "0.0.0.0/8",
    "169.254.0.0/16",  # link-local, where most clouds have their metadata service
    "100.100.100.200/32",  # Alibaba's
    "168.63.129.16/32",  # Azure's second one, in public space
    "192.0.0.192/32",  # Oracle's
    "fd00:ec2::254/128",  # Amazon's
    "fd20:ce::254/128",  # Google's
    "224.0.0.0/4",
    "240.0.0.0/4",
    "::/128",
    "64:ff9b:1::/48",  # NAT64 with a prefix whose layout only the network knows
    "2001::/32",  # Teredo
    "fe80::/10",
    "ff00::/8",
)
_PRIVATE: Final = _networks(
    "10.0.0.0/8",
    "100.64.0.0/10",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "100::/64",
    "2001:db8::/32",
    "fc00::/7",
    "fec0::/10",
)
_LOW_32_BITS: Final = _networks("::ffff:0:0/96", "::/96", "64:ff9b::/96")
_NOT_EMBEDDED: Final = ip_network("::/127")
"""``::`` and ``::1`` are separate addresses."""
_6TO4: Final = ip_network("2002::/16")
