"""An authorization server for tests: OAuth 2.1 in memory, as a machine that answers requests by meaning.

It approves every login, keeps everything in memory, and is for tests alone. It checks what a
strict server checks, so that a client's mistake shows; `AuthorizationFaults` has what goes
wrong with servers outside of tests.
"""

from __future__ import annotations

import hmac
import itertools
from base64 import b64decode
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Final
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit

import attrs

from mcpio.auth.effects import Fetch, Headers, Response
from mcpio.auth.grant import format_scopes, missing_scopes, parse_scopes
from mcpio.auth.keys import Entropy, Signer, base64url, signed_jwt
from mcpio.auth.payloads import Challenge, bearer_challenge
from mcpio.auth.urls import (
    check_redirect_uri,
    host_of,
    is_loopback_host,
    issuer_metadata_urls,
    resource_metadata_urls,
)
from mcpio.framing.json import JsonError, dumps, loads


@attrs.define(kw_only=True)
class AuthorizationFaults:
    """Faults that a test switches on. Attributes may change between two requests."""

    iss: str | None = None
    """The ``iss`` of callback URLs in place of the issuer; the empty text to leave it out."""
    issuer: str | None = None
    """The ``issuer`` in the metadata, if it differs from the server's."""
    code_challenge_methods: list[str] | None = attrs.field(factory=lambda: ["S256"])
    """The PKCE methods in the metadata; ``None`` leaves the member out."""
    resource: str | None = None
    """The ``resource`` in the protected resource metadata, if it differs from the server's."""
    status: int | None = None
    """A status with which every request to the token endpoint is answered, such as 503."""
    lost_answers: bool = False
    """Whether answers of the token endpoint are lost after the request was served; they come back as status 502."""
    html: bool = False
    """Whether every answer is an HTML page with status 200."""
    huge: bool = False
    """Whether every answer is larger than a client reads."""
    redirect: str | None = None
    """The ``location`` of a redirect with which every request is answered: 302 to a GET, 307 to a POST."""
    slow: float = 0.0
    """Seconds that every answer takes: `respond` returns at once, with the time of the answer in `Response.at`, and
    the program that carries the requests waits until then."""
    without_resource_metadata: bool = False
    """Whether the protected resource metadata is missing, as in 2025-03-26."""
    without_metadata: bool = False
    """Whether the metadata of the authorization server is missing too."""


@attrs.frozen
class IssuedToken:
    """An access token as the server knows it."""

    text: str = attrs.field(repr=False)
    client_id: str
    """The id of the client at the authorization server."""
    subject: str
    """The client to which it was issued."""
    resource: str
    scopes: frozenset[str]
    """The scopes."""
    expires_at: float
    """When it expires, in Unix seconds."""
    family: int
    """The authorization that it comes from; a reused refresh token ends all tokens of its family."""


@attrs.define
class _Client:
    client_id: str
    secret: str | None = attrs.field(repr=False)
    redirect_uris: tuple[str, ...]
    grant_types: tuple[str, ...]
    auth_method: str


@attrs.define
class _Granted:
    """The grant behind a code, a device code or a refresh token."""

    client_id: str
    resource: str
    scopes: frozenset[str]
    family: int
    challenge: str = ""
    redirect_uri: str = ""
    expires_at: float = float("inf")
    used: bool = False
    approved: bool = True
    denied: bool = False
    polled_at: float = float("-inf")


class _Refused(Exception):
    def __init__(self, code: str, status: int = 400) -> None:
        super().__init__(code)
        self.code = code
        self.status = status


def _counted(salt: str) -> Entropy:
    counter = itertools.count()
    return lambda size: sha256(f"{next(counter)} {salt}".encode()).digest()[:size]


class AuthorizationServer:
    """An authorization server that also serves the metadata of one protected resource, and judges its tokens.

    Hand it each `Fetch` of a client with `respond`, and open an authorization URL with `approve`. Times are Unix
    seconds. ``auth_methods`` are those of the token endpoint, ``clients`` the registered clients as id -> secret (or
    ``None``), ``client_documents`` the metadata documents of clients by URL, and ``assertions`` a function that returns
    the claims of a JWT or ``None``: it verifies client assertions and the JWTs of the grant jwt-bearer. With a
    ``signer``, access tokens are JWTs (RFC 9068).
    """

    def __init__(
        self,
        issuer: str = "https://as.example.com",
        resource: str = "https://mcp.example.com/mcp",
        *,
        scopes: tuple[str, ...] = (),
        resource_scopes: tuple[str, ...] = (),
        auth_methods: tuple[str, ...] = ("none", "client_secret_basic", "client_secret_post"),
        clients: Mapping[str, str | None] | None = None,
        client_documents: Mapping[str, Mapping[str, Any]] | None = None,
        assertions: Callable[[str], Mapping[str, Any] | None] = lambda jwt: None,
        signer: Signer | None = None,
        registers: bool = True,
        refreshes: bool = True,
        lifetime: float = 3600.0,
        entropy: Entropy | None = None,
    ) -> None:
        self.issuer = issuer
        self.resource = resource
        self.faults: AuthorizationFaults = AuthorizationFaults()
        """The faults that are switched on. They may be changed at any time."""
        self.requests: list[Fetch] = []
        """All requests, oldest first."""
        self.authorizations: list[dict[str, str]] = []
        """The parameters of all authorization requests."""
        self.registered: list[dict[str, Any]] = []
        """The documents of all dynamic registrations."""
        self.reused: list[int] = []
        """The families in which a refresh token was presented twice."""
        self._scopes, self._resource_scopes = scopes, resource_scopes
        self._auth_methods = auth_methods
        self._documents = dict(client_documents or {})
        self._assertions = assertions
        self._signer = signer
        self._registers, self._refreshes, self._lifetime = registers, refreshes, lifetime
        self._entropy = entropy or _counted(issuer)
        self._clients = {
            name: _Client(name, secret, ("*",), tuple(_GRANTS), "*") for name, secret in (clients or {}).items()
        }
        self._codes: dict[str, _Granted] = {}
        self._devices: dict[str, _Granted] = {}
        self._user_codes: dict[str, _Granted] = {}
        self._refresh_tokens: dict[str, _Granted] = {}
        self._tokens: dict[str, IssuedToken] = {}
        # All tokens that descend from one login are a family: a refresh token that is used twice ends the whole of it.
        self._families = 0
        self._dead: set[int] = set()

    # Calls for tests

    def respond(self, request: Fetch, now: float) -> Response:
        """Answer a request to the authorization server, or for the metadata of the resource."""
        self.requests.append(request)
        return attrs.evolve(self._response(request, now), at=now + self.faults.slow)

    def approve(self, url: str, now: float, *, deny: bool = False) -> str:
        """Open an authorization URL as a person does, and return the URL that the browser is sent back to.

        Raises ValueError for a request that the server does not redirect, because its client, its redirect URI or the
        endpoint is not known (OAuth 2.1 §4.1.2.1).
        """
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        self.authorizations.append(query)
        client = self._find_client(query.get("client_id", ""))
        uri = query.get("redirect_uri", "")
        if url.partition("?")[0] != self.issuer + "/authorize" or client is None or not _may_redirect(client, uri):
            raise ValueError("the request is for another endpoint, client or redirect URI")
        answer = {"state": query["state"]} if "state" in query else {}
        iss = self.issuer if self.faults.iss is None else self.faults.iss
        if iss:
            answer["iss"] = iss
        try:
            answer["code"] = self._new_code(client, query, now, denied=deny)
        except _Refused as refused:
            answer["error"] = refused.code
            answer["error_description"] = "<script>alert(1)</script>"
        return f"{uri}{'&' if '?' in uri else '?'}{urlencode(answer)}"

    def approve_device(self, user_code: str, *, deny: bool = False) -> None:
        """Enter a user code as a person does. Raises KeyError for an unknown code."""
        granted = self._user_codes[user_code]
        granted.approved, granted.denied = not deny, deny

    def accepts(self, headers: Headers, now: float, needed: frozenset[str] = frozenset()) -> Challenge | IssuedToken:
        """Judge the ``Authorization`` of a request to the protected resource: the token, or the challenge to send.

        The challenge has ``error="insufficient_scope"`` where the status is 403, and stands for 401 otherwise.
        """
        metadata = resource_metadata_urls(self.resource)[0]
        authorization = next((value for name, value in headers if name.lower() == "authorization"), None)
        if authorization is None:
            return bearer_challenge(resource_metadata=metadata)
        token = self._tokens.get(authorization.removeprefix("Bearer "))
        if token is None or now >= token.expires_at or token.family in self._dead or token.resource != self.resource:
            return bearer_challenge(error="invalid_token", resource_metadata=metadata)
        if missing_scopes(token.scopes, needed):
            scope = format_scopes(needed)
            return bearer_challenge(error="insufficient_scope", scope=scope, resource_metadata=metadata)
        return token

    def forget_clients(self) -> None:
        """Forget all clients, as servers do that keep dynamic registrations for a while."""
        self._clients.clear()

    def expire_refresh_tokens(self) -> None:
        """Revoke all refresh tokens."""
        self._refresh_tokens.clear()

    def expire_tokens(self) -> None:
        """Revoke all access tokens."""
        self._tokens.clear()

    # Routes.

    def _response(self, request: Fetch, now: float) -> Response:
        if self.faults.html:
            return Response(200, (("content-type", "text/html"),), b"<!doctype html>")
        if self.faults.huge:
            return Response(200, (("content-type", "application/json"),), b'{"x":"' + b"x" * (1 << 19) + b'"}')
        if self.faults.redirect is not None:
            return Response(302 if request.method == "GET" else 307, (("location", self.faults.redirect),))
        handler = self._routes().get((request.method, request.url))
        if handler is None:
            return Response(404)
        try:
            status, document = handler(request, now)
        except _Refused as refused:
            status, document = refused.status, {"error": refused.code}
        cache_control = "max-age=3600" if request.method == "GET" else "no-store"
        headers = (("content-type", "application/json"), ("cache-control", cache_control))
        return Response(status, headers, b"" if document is None else dumps(document))

    def _routes(self) -> dict[tuple[str, str], Callable[[Fetch, float], tuple[int, Any]]]:
        base = self.issuer
        routes: dict[tuple[str, str], Callable[[Fetch, float], tuple[int, Any]]] = {
            ("POST", base + "/token"): self._token,
            ("POST", base + "/revoke"): self._revoke,
            ("POST", base + "/introspect"): self._introspect,
            ("POST", base + "/device"): self._device,
        }
        if self._registers:
            routes["POST", base + "/register"] = self._register
        if self._signer is not None:
            routes["GET", base + "/jwks"] = lambda request, now: (200, self._jwks())
        if not self.faults.without_metadata:
            routes["GET", issuer_metadata_urls(self.issuer)[0]] = lambda request, now: (200, self._metadata())
        if not self.faults.without_resource_metadata:
            url = resource_metadata_urls(self.resource)[0]
            routes["GET", url] = lambda request, now: (200, self._resource_metadata())
        return routes

    def _metadata(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "issuer": self.faults.issuer or self.issuer,
            "authorization_endpoint": self.issuer + "/authorize",
            "token_endpoint": self.issuer + "/token",
            "revocation_endpoint": self.issuer + "/revoke",
            "introspection_endpoint": self.issuer + "/introspect",
            "device_authorization_endpoint": self.issuer + "/device",
            "response_types_supported": ["code"],
            "grant_types_supported": list(_GRANTS),
            "token_endpoint_auth_methods_supported": list(self._auth_methods),
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": bool(self._documents),
        }
        if self._registers:
            document["registration_endpoint"] = self.issuer + "/register"
        if self._signer is not None:
            document["jwks_uri"] = self.issuer + "/jwks"
        if self._scopes:
            document["scopes_supported"] = list(self._scopes)
        if self.faults.code_challenge_methods is not None:
            document["code_challenge_methods_supported"] = self.faults.code_challenge_methods
        return document

    def _resource_metadata(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "resource": self.faults.resource or self.resource,
            "authorization_servers": [self.issuer],
            "bearer_methods_supported": ["header"],
        }
        if self._resource_scopes:
            document["scopes_supported"] = list(self._resource_scopes)
        return document

    def _jwks(self) -> dict[str, Any]:
        signer: Any = self._signer
        return {"keys": [{**signer.public_jwk, "kid": signer.key_id, "use": "sig", "alg": signer.algorithm}]}

    # Clients.

    def _register(self, request: Fetch, now: float) -> tuple[int, Any]:
        try:
            document = loads(request.body or b"")
        except JsonError:
            raise _Refused("invalid_client_metadata") from None
        if not isinstance(document, dict):
            raise _Refused("invalid_client_metadata")
        self.registered.append(document)
        uris = document.get("redirect_uris", [])
        method = document.get("token_endpoint_auth_method", "client_secret_basic")
        if method not in self._auth_methods:
            raise _Refused("invalid_client_metadata")
        is_native = document.get("application_type") == "native"
        if any(not _is_redirect_uri(uri) or is_native != is_loopback_host(host_of(uri)) for uri in uris):
            raise _Refused("invalid_redirect_uri")
        name = "client-" + base64url(self._entropy(8))
        secret = None if method == "none" else base64url(self._entropy(16))
        grants = document.get("grant_types", ["authorization_code"])
        self._clients[name] = _Client(name, secret, tuple(uris), tuple(grants), method)
        # All that was registered, so also what the client left to the server (RFC 7591 §3.2.1).
        answer = {**document, "client_id": name, "token_endpoint_auth_method": method, "grant_types": grants}
        return 201, answer if secret is None else {**answer, "client_secret": secret, "client_secret_expires_at": 0}

    def _find_client(self, client_id: str) -> _Client | None:
        """Return a registered client, or the one whose metadata document has this URL (AUTH-20)."""
        document = self._documents.get(client_id)
        if document is not None and document.get("client_id") == client_id and document.get("client_name"):
            return _Client(client_id, None, tuple(document.get("redirect_uris", ())), tuple(_GRANTS), "none")
        return self._clients.get(client_id)

    def _authenticated(self, request: Fetch, form: Mapping[str, str]) -> _Client:
        """Return the client of a request, whose method must be its own and one that the server lists (AUTH-24)."""
        client_id, secret, method = form.get("client_id", ""), form.get("client_secret"), "none"
        header = next((value for name, value in request.headers if name == "authorization"), None)
        if header is not None:
            try:
                pair = b64decode(header.removeprefix("Basic "), validate=True).decode()
            except ValueError:
                raise _Refused("invalid_client", 401) from None
            client_id, _, secret = (unquote_plus(part) for part in pair.partition(":"))
            method = "client_secret_basic"
        elif secret is not None:
            method = "client_secret_post"
        elif "client_assertion" in form:
            method = "private_key_jwt"
            claims = self._assertions(form["client_assertion"]) or {}
            if claims.get("sub") != client_id or claims.get("aud") != self.issuer:
                raise _Refused("invalid_client", 401)
        client = self._find_client(client_id)
        if client is None or method not in self._auth_methods or client.auth_method not in ("*", method):
            raise _Refused("invalid_client", 401)
        if method.startswith("client_secret") and not hmac.compare_digest(client.secret or "", secret or "-"):
            raise _Refused("invalid_client", 401)
        if method == "none" and client.secret is not None:
            raise _Refused("invalid_client", 401)
        return client

    # Authorization and tokens.

    def _new_code(self, client: _Client, query: Mapping[str, str], now: float, *, denied: bool) -> str:
        if query.get("response_type") != "code":
            raise _Refused("unsupported_response_type")
        if query.get("code_challenge_method") != "S256" or len(query.get("code_challenge", "")) != 43:
            raise _Refused("invalid_request")
        if query.get("resource") != self.resource:
            raise _Refused("invalid_target")
        scopes = self._allowed(parse_scopes(query.get("scope", "")))
        if denied:
            raise _Refused("access_denied")
        code = base64url(self._entropy(16))
        self._codes[code] = _Granted(
            client.client_id,
            self.resource,
            # Without prompt=consent, OpenID providers ignore the scope (OIDC Core §11).
            scopes if query.get("prompt") == "consent" else scopes - {"offline_access"},
            self._new_family(),
            query["code_challenge"],
            query["redirect_uri"],
            now + 60,
        )
        return code

    def _token(self, request: Fetch, now: float) -> tuple[int, Any]:
        if self.faults.status is not None:
            return self.faults.status, {"error": "server_error"}
        form = _form(request)
        grant = _GRANTS.get(form.get("grant_type", ""))
        if grant is None:
            raise _Refused("unsupported_grant_type")
        if (
            grant == "jwt_bearer"
            and "client_id" not in form
            and not any(n == "authorization" for n, _ in request.headers)
        ):
            client = _Client("", None, (), tuple(_GRANTS), "none")
        else:
            client = self._authenticated(request, form)
        if form["grant_type"] not in client.grant_types:
            raise _Refused("unauthorized_client")
        if form.get("resource") != self.resource:
            raise _Refused("invalid_target")
        answer = getattr(self, f"_by_{grant}")(client, form, now)
        return (502, None) if self.faults.lost_answers else (200, answer)

    def _by_code(self, client: _Client, form: Mapping[str, str], now: float) -> dict[str, Any]:
        granted = self._codes.get(form.get("code", ""))
        if granted is None or now >= granted.expires_at or granted.client_id != client.client_id:
            raise _Refused("invalid_grant")
        if granted.used:
            # A code that comes twice was stolen: what the first one gave is taken back (OAuth 2.1 §4.1.3).
            self._dead.add(granted.family)
            raise _Refused("invalid_grant")
        verifier = form.get("code_verifier", "")
        challenge = base64url(sha256(verifier.encode()).digest())
        if granted.challenge != challenge or granted.redirect_uri != form.get("redirect_uri"):
            raise _Refused("invalid_grant")
        granted.used = True
        return self._issue(granted, client, now)

    def _by_refresh(self, client: _Client, form: Mapping[str, str], now: float) -> dict[str, Any]:
        granted = self._refresh_tokens.get(form.get("refresh_token", ""))
        if granted is None or granted.client_id != client.client_id or granted.family in self._dead:
            raise _Refused("invalid_grant")
        if granted.used:
            # One of the two presenters is a thief, and which one is unknown (OAuth 2.1 §4.3.1).
            self.reused.append(granted.family)
            self._dead.add(granted.family)
            raise _Refused("invalid_grant")
        granted.used = True
        return self._issue(granted, client, now)

    def _by_client(self, client: _Client, form: Mapping[str, str], now: float) -> dict[str, Any]:
        if client.secret is None and "client_assertion" not in form:
            raise _Refused("unauthorized_client")
        scopes = self._allowed(parse_scopes(form.get("scope", "")))
        granted = _Granted(client.client_id, self.resource, scopes, self._new_family())
        return self._issue(granted, client, now, refreshes=False)

    def _by_jwt_bearer(self, client: _Client, form: Mapping[str, str], now: float) -> dict[str, Any]:
        claims = self._assertions(form.get("assertion", ""))
        if claims is None or claims.get("aud") != self.issuer or now >= claims.get("exp", now + 1):
            raise _Refused("invalid_grant")
        scopes = self._allowed(parse_scopes(form.get("scope", "")))
        granted = _Granted(client.client_id, self.resource, scopes, self._new_family())
        return self._issue(granted, client, now, refreshes=False)

    def _by_device(self, client: _Client, form: Mapping[str, str], now: float) -> dict[str, Any]:
        granted = self._devices.get(form.get("device_code", ""))
        if granted is None or granted.used or granted.client_id != client.client_id:
            raise _Refused("invalid_grant")
        early, granted.polled_at = now < granted.polled_at + 5, now
        if now >= granted.expires_at:
            raise _Refused("expired_token")
        if granted.denied:
            raise _Refused("access_denied")
        if not granted.approved:
            raise _Refused("slow_down" if early else "authorization_pending")
        granted.used = True
        return self._issue(granted, client, now)

    def _device(self, request: Fetch, now: float) -> tuple[int, Any]:
        form = _form(request)
        client = self._authenticated(request, form)
        if _DEVICE not in client.grant_types:
            raise _Refused("unauthorized_client")
        scopes = self._allowed(parse_scopes(form.get("scope", "")))
        granted = _Granted(client.client_id, self.resource, scopes, self._new_family(), expires_at=now + 600)
        granted.approved = False
        device_code, user_code = base64url(self._entropy(16)), base64url(self._entropy(4)).upper()
        self._devices[device_code] = self._user_codes[user_code] = granted
        uri = self.issuer + "/activate"
        return 200, {
            "device_code": device_code,
            "user_code": user_code,
            "verification_uri": uri,
            "verification_uri_complete": f"{uri}?user_code={user_code}",
            "expires_in": 600,
        }

    def _issue(self, granted: _Granted, client: _Client, now: float, *, refreshes: bool = True) -> dict[str, Any]:
        scopes, subject = granted.scopes, "client" if granted.challenge == "" else "ada"
        text = base64url(self._entropy(16)) if self._signer is None else self._jwt(granted, subject, now)
        token = IssuedToken(
            text, client.client_id, subject, granted.resource, scopes, now + self._lifetime, granted.family
        )
        self._tokens[text] = token
        answer: dict[str, Any] = {"access_token": text, "token_type": "Bearer", "expires_in": int(self._lifetime)}
        if scopes:
            answer["scope"] = format_scopes(scopes)
        # As OpenID providers do: where offline_access is known, only who asked for it gets a refresh token.
        wanted = "offline_access" in scopes or "offline_access" not in self._scopes
        if refreshes and self._refreshes and wanted and _REFRESH in client.grant_types:
            refresh_token = base64url(self._entropy(16))
            self._refresh_tokens[refresh_token] = attrs.evolve(granted, used=False)
            answer["refresh_token"] = refresh_token
        return answer

    def _jwt(self, granted: _Granted, subject: str, now: float) -> str:
        claims = {
            "iss": self.issuer,
            "sub": subject,
            "aud": granted.resource,
            "client_id": granted.client_id,
            "iat": int(now),
            "exp": int(now + self._lifetime),
            "jti": base64url(self._entropy(8)),
            "scope": format_scopes(granted.scopes),
        }
        assert self._signer is not None
        return signed_jwt(self._signer, claims, "at+jwt")

    def _revoke(self, request: Fetch, now: float) -> tuple[int, Any]:
        form = _form(request)
        self._authenticated(request, form)
        token = form.get("token", "")
        revoked = self._refresh_tokens.get(token) or self._tokens.get(token)
        if revoked is not None:
            self._dead.add(revoked.family)
        return 200, None

    def _introspect(self, request: Fetch, now: float) -> tuple[int, Any]:
        form = _form(request)
        self._authenticated(request, form)
        token = self._tokens.get(form.get("token", ""))
        if token is None or now >= token.expires_at or token.family in self._dead:
            return 200, {"active": False}
        claims = {"iss": self.issuer, "sub": token.subject, "aud": token.resource, "client_id": token.client_id}
        return 200, {"active": True, **claims, "scope": format_scopes(token.scopes), "exp": int(token.expires_at)}

    def _allowed(self, scopes: frozenset[str]) -> frozenset[str]:
        if self._scopes and not scopes <= set(self._scopes):
            raise _Refused("invalid_scope")
        return scopes

    def _new_family(self) -> int:
        self._families += 1
        return self._families


def _form(request: Fetch) -> dict[str, str]:
    return dict(parse_qsl((request.body or b"").decode("utf-8", "replace"), keep_blank_values=True))


def _is_redirect_uri(uri: Any) -> bool:
    try:
        return isinstance(uri, str) and bool(check_redirect_uri(uri))
    except ValueError:
        return False


def _may_redirect(client: _Client, uri: str) -> bool:
    """Return whether a redirect URI is registered, ignoring the port of loopback addresses (RFC 8252 §7.3)."""
    if not _is_redirect_uri(uri):
        return False
    if client.redirect_uris == ("*",) or uri in client.redirect_uris:
        return True
    return is_loopback_host(host_of(uri)) and any(
        is_loopback_host(host_of(each)) and urlsplit(each).path == urlsplit(uri).path for each in client.redirect_uris
    )


_DEVICE: Final = "urn:ietf:params:oauth:grant-type:device_code"
_REFRESH: Final = "refresh_token"
_GRANTS: Final = {
    "authorization_code": "code",
    _REFRESH: "refresh",
    "client_credentials": "client",
    "urn:ietf:params:oauth:grant-type:jwt-bearer": "jwt_bearer",
    _DEVICE: "device",
}
