"""Documents, challenges, registrations and tokens: what authorization servers send, checked."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Literal, Self, TypeVar
from urllib.parse import parse_qsl, urlsplit

import attrs

from mcpio._checks import of_kind, required, takes
from mcpio.auth.grant import as_scopes, format_scopes, parse_scopes
from mcpio.auth.keys import Secret
from mcpio.auth.urls import AuthorizationError, check_endpoint, check_redirect_uri, origin_of, quoted
from mcpio.framing.json import JsonError, check_nesting, loads
from mcpio.web_address import web_address

# -------------------------------------------------------------------------------------------------------------- moments
# Times of caches and rests. A wall clock may be set back by any amount, which must not prolong them.


class Moment(float):
    """A time in Unix seconds that also has the monotonic time of the same moment.

    Expiry dates are compared with the former, ages are measured by the latter (see `elapsed`).
    """

    __slots__ = ("now",)
    now: float

    def __new__(cls, epoch: float, now: float) -> Self:
        """Return the moment ``now`` of a monotonic clock that began at ``epoch``."""
        moment = super().__new__(cls, epoch + now)
        moment.now = now
        return moment


def elapsed(since: float, at: float) -> float:
    """Return the seconds between two times in Unix seconds.

    Between moments, the wall clock counts only where it says more: monotonic clocks may stop while a machine sleeps.
    """
    seconds = at - since
    if isinstance(since, Moment) and isinstance(at, Moment):
        return max(seconds, at.now - since.now)
    return seconds


# ------------------------------------------------------------------------------------------------------------ documents
# JSON documents of a peer: bounded in size and depth, read member by member with their types checked, and cached.

MAX_DOCUMENT: Final = 256 * 1024
"""The most bytes of a metadata document, a token answer or a key set."""
_MAX_DEPTH: Final = 16
_KEPT_SECONDS: Final = (300.0, 86400.0)
_KEPT_DOCUMENTS: Final = 16
_MAX_AGE: Final = re.compile(r"(?:^|[ ,])max-age=([0-9]{1,10})(?![0-9])", re.IGNORECASE)


class DocumentCache:
    """Metadata documents by URL, for as long as their ``Cache-Control`` says: 5 minutes to a day.

    Those with ``no-store`` are not kept. Holds 16 documents, the latest ones. Times are Unix seconds.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[bytes, float, float]] = {}

    def keep(self, url: str, body: bytes, headers: Iterable[tuple[str, str]], now: float) -> None:
        """Keep a document, in place of the earlier one of its URL."""
        self._kept.pop(url, None)
        fields = list(headers)
        if any(name.lower() == "cache-control" and "no-store" in value.lower() for name, value in fields):
            return
        shortest, longest = _KEPT_SECONDS
        self._kept[url] = body, now, min(max(max_age(fields) or 0.0, shortest), longest)
        if len(self._kept) > _KEPT_DOCUMENTS:
            del self._kept[next(iter(self._kept))]

    def find(self, url: str, now: float) -> bytes | None:
        """Return the document of a URL, or ``None``."""
        body, since, seconds = self._kept.get(url, (None, 0.0, 0.0))
        return body if elapsed(since, now) < seconds else None

    def clear(self) -> None:
        """Forget all documents."""
        self._kept.clear()


def read_document(body: bytes, what: str) -> dict[str, Any]:
    """Return the JSON object of a body. Raises AuthorizationError, which names ``what`` it is, for anything else."""
    if len(body) > MAX_DOCUMENT:
        raise AuthorizationError(f"{what} has more than {MAX_DOCUMENT} bytes")
    try:
        check_nesting(body, _MAX_DEPTH)
        document = loads(body)
    except JsonError as error:
        raise AuthorizationError(f"{what} is not JSON: {error.reason}") from None
    if not isinstance(document, dict):
        raise AuthorizationError(f"{what} is not a JSON object")
    return document


def max_age(headers: Iterable[tuple[str, str]]) -> float | None:
    """Return the seconds of ``max-age`` in ``Cache-Control``, or ``None`` where it has none (RFC 9111 §5.2.2.1)."""
    for name, value in headers:
        if name.lower() == "cache-control" and (match := _MAX_AGE.search(value)):
            return float(match[1])
    return None


def unix_time(date: str | None) -> float | None:
    """Return the time of a ``Date`` field in Unix seconds, ``None`` for another text (RFC 9110 §5.6.7)."""
    match = _DATE.fullmatch(date or "")
    if match is None:
        return None
    day, month, *rest = match.groups()
    try:
        year, hour, minute, second = map(int, rest)
        return datetime(year, 1 + _MONTHS.index(month), int(day), hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        return None


_DATE: Final = re.compile("[A-Z][a-z]{2}, ([0-9]{2}) ([A-Z][a-z]{2}) ([0-9]{4}) ([0-9]{2}):([0-9]{2}):([0-9]{2}) GMT")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def text(document: Mapping[str, Any], name: str, what: str) -> str | None:
    """Return a member that is a text, ``None`` where it is absent or null. Raises AuthorizationError."""
    value = document.get(name)
    if value is None or (isinstance(value, str) and value):
        return value
    raise AuthorizationError(f"{what}: {name} is not a text")


def filled(document: Mapping[str, Any], name: str, what: str) -> str | None:
    """Return a member as `text` does, and ``None`` also where it is empty, as some servers write an absent one."""
    return None if document.get(name) == "" else text(document, name, what)


def texts(document: Mapping[str, Any], name: str, what: str) -> tuple[str, ...] | None:
    """Return a member that is a list of texts, ``None`` where it is absent or null. Raises AuthorizationError."""
    value = document.get(name)
    if value is None:
        return None
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    raise AuthorizationError(f"{what}: {name} is not a list of texts")


def flag(document: Mapping[str, Any], name: str, what: str) -> bool:
    """Return a member that is a boolean, false where it is absent or null. Raises AuthorizationError."""
    value = document.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise AuthorizationError(f"{what}: {name} is not a boolean")


# -------------------------------------------------------------------------------------------------------------- options
# Options that every way to be authorized shares.

T = TypeVar("T")


def mapping_of(option: str, value: Mapping[str, T]) -> Mapping[str, T]:
    """Return the value of an option. Raises TypeError if it is not a mapping."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{option} must be a mapping, not {value!r:.100}")
    return value


def scopes_of(value: Iterable[str] | None, option: str = "scopes") -> frozenset[str] | None:
    """Return scopes as a set. Raises ValueError for a scope that no request can carry.

    Raises TypeError for one text, whose characters would count as scopes, and for a scope of another type.
    """
    if isinstance(value, str):
        raise TypeError(
            f"{option} must be a collection of scopes, such as {value.split()!r}, not the text {value!r:.100}"
        )
    if value is None:
        return None
    scopes = frozenset(required(option, each, str) for each in value)
    format_scopes(scopes)
    return scopes


@attrs.frozen(kw_only=True)
class AuthorizationOptions:
    """Options of every way to be authorized. All checks are strict unless one of these says otherwise."""

    extension: ClassVar[str | None] = None
    """The extension of the protocol that this way is, which clients declare in their capabilities (AUTH-42)."""
    account: str = attrs.field(default="default", validator=of_kind(str))
    """A name of the program's own, for several accounts at one server."""
    scopes: frozenset[str] | None = attrs.field(default=None, converter=scopes_of)
    """The scopes to ask for first; ``None`` to take those that the server names (AUTH-33)."""
    resource: str | None = attrs.field(default=None, validator=of_kind(str, optional=True))
    """The value of ``resource`` in requests, in place of the one in the metadata (AUTH-12)."""
    resource_match: Literal["parent", "exact"] = attrs.field(
        default="parent", validator=attrs.validators.in_(("parent", "exact"))
    )
    """Whether metadata found at the well-known URL of a parent of the server's URL is valid. ``"exact"`` is for hosts
    that are shared by servers that do not trust each other (AUTH-12)."""
    issuer: str | None = attrs.field(default=None, validator=of_kind(str, optional=True))
    """The authorization server to use, in place of the one that the protected resource names."""
    choose_issuer: Callable[[tuple[str, ...]], str] = attrs.field(
        default=lambda issuers: issuers[0], validator=takes("(issuers)"), repr=False
    )
    """Chooses among several authorization servers (AUTH-13); by default, the first."""
    on_step_up: Callable[[frozenset[str]], bool] | None = attrs.field(
        default=None, validator=takes("(scopes)", optional=True), repr=False
    )
    """Called with the scopes that a server asks for where a token has too few. Returns whether to ask for a token with
    them; by default that is always so, and with a false answer the call fails (AUTH-35)."""
    metadata: Mapping[str, Any] | None = attrs.field(default=None, repr=False)
    """The metadata of the authorization server, with the members of RFC 8414; then discovery is skipped."""
    dpop: Literal["auto", "require", "off"] = attrs.field(
        default="auto", validator=attrs.validators.in_(("auto", "require", "off"))
    )
    """Whether tokens are bound to a key of this client (RFC 9449, AUTH-51): where the server asks for it, always, or
    never. Bound tokens need the extra ``auth``."""
    legacy: bool = True
    """Whether a server without any metadata may be its own authorization server, as 2025-03-26 has it (AUTH-17)."""

    def choose(self, issuers: tuple[str, ...]) -> str:
        """Return what `choose_issuer` chooses. Raises AuthorizationError where it raises."""
        try:
            return self.choose_issuer(issuers)
        except Exception as error:
            raise AuthorizationError(f"choose_issuer= raised {type(error).__name__}: {error}") from error

    def may_step_up(self, scopes: frozenset[str]) -> bool:
        """Return what `on_step_up` decides. Raises AuthorizationError where it raises."""
        try:
            return self.on_step_up is None or bool(self.on_step_up(scopes))
        except Exception as error:
            raise AuthorizationError(f"on_step_up= raised {type(error).__name__}: {error}") from error


# ------------------------------------------------------------------------------------------------------------- metadata
# Metadata documents: of protected resources (RFC 9728), of authorization servers (RFC 8414), and of clients (CIMD).


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
        if (stated := text(document, "issuer", what)) != issuer:
            names = "no issuer" if stated is None else f"the issuer {quoted(stated)}"
            raise AuthorizationError(f"{what} at {quoted(issuer)} names {names}", option="issuer=")
        endpoints: dict[str, Any] = {
            name: None if (url := filled(document, name, what)) is None else check_endpoint(url, server_url, name)
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
    address = web_address(client_id)
    if not address.is_https or address.has_user_info or "#" in client_id or client_id.count("/") < 3:
        raise ValueError(f"a client id must be an https URL with a path, not {client_id!r:.100}")
    if client_id.endswith(address.host + "/"):
        raise ValueError(f"a client id must be an https URL with a path, not {client_id!r:.100}")
    if not redirect_uris:
        raise ValueError("redirect_uris must be one URI or more, not an empty collection")
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
    supported = texts(document, "scopes_supported", what) or ()
    return frozenset(scope for each in supported for scope in parse_scopes(each))


# ----------------------------------------------------------------------------------------------------------- challenges
# ``WWW-Authenticate`` challenges (RFC 9110 §11): parsing those of a server, and writing this library's.


@attrs.frozen
class Challenge:
    """One challenge: the credentials that a server accepts in ``Authorization``.

    A challenge has parameters or, in schemes such as ``Negotiate``, one token; never both.
    """

    scheme: str
    """The scheme as it was written; schemes compare without case."""
    params: Mapping[str, str] = attrs.field(factory=dict)
    """The parameters: names in lower case, values without quotation marks. Of two with one name, the first."""
    token68: str | None = None
    """The token of a challenge without parameters."""

    @property
    def is_oauth(self) -> bool:
        """Whether an OAuth access token answers the challenge: the scheme is ``Bearer`` or ``DPoP``."""
        return self.scheme.lower() in ("bearer", "dpop")

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes that the request needs (AUTH-32)."""
        return parse_scopes(self.params.get("scope", ""))

    def __str__(self) -> str:
        """Return the value of the header field. Raises ValueError for parts that a field cannot carry."""
        if TOKEN.fullmatch(self.scheme) is None:
            raise ValueError(f"a scheme must be a token, not {self.scheme!r:.60}")
        if self.token68 is not None:
            if _BASE64.fullmatch(self.token68) is None:
                raise ValueError(f"the token of a challenge must be base64, not {self.token68!r:.60}")
            return f"{self.scheme} {self.token68}"
        return " ".join([self.scheme, ", ".join(_parameter(*each) for each in self.params.items())]).rstrip()


def bearer_challenge(scheme: str = "Bearer", **params: str | None) -> Challenge:
    """Return a challenge of a protected resource (RFC 6750 §3, RFC 9728 §5.1), without parameters that are ``None``."""
    return Challenge(scheme, {name: value for name, value in params.items() if value is not None})


def parse_challenges(fields: Iterable[str]) -> tuple[Challenge, ...]:
    """Return the challenges of all ``WWW-Authenticate`` fields of a response, in order (AUTH-11).

    Takes what RFC 9110 allows, and parameters that are separated by spaces alone, which some servers send. Never
    raises: a field that breaks off gives the challenges in front of the fault.
    """
    return tuple(challenge for field in fields for challenge in _challenges(field))


def _challenges(field: str) -> Iterator[Challenge]:
    position = _SEPARATOR.match(field).end()  # type: ignore[union-attr]  # it matches the empty text too
    while match := _SCHEME.match(field, position):
        scheme, position = match[0], match.end()
        params: dict[str, str] = {}
        # A parameter before a token: "a=b" is both, and only the whole rest up to a comma can be a token.
        if token := _TOKEN68.match(field, position):
            yield Challenge(scheme, token68=token["token"])
            position = token.end()
        else:
            while parameter := _PARAMETER.match(field, position):
                name, plain, text = parameter.group("name", "plain", "text")
                params.setdefault(name.lower(), _ESCAPED.sub(r"\1", text) if plain is None else plain)
                position = parameter.end()
            yield Challenge(scheme, params)
        separator = _SEPARATOR.match(field, position)
        position = separator.end() if separator else position


def _parameter(name: str, value: str) -> str:
    if TOKEN.fullmatch(name) is None or _LINE.fullmatch(value) is None:
        raise ValueError(f"the parameter {name!r:.60} must be printable ASCII")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}="{escaped}"'


_LETTERS: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
TOKEN: Final = re.compile(_LETTERS)
"""A token of RFC 9110, such as the name of a header field."""
_LINE: Final = re.compile(r"[ -~]*")
_SEPARATOR: Final = re.compile(r"[ \t,]*+")
# A name with "=" behind it is a parameter whose challenge broke off, and never a scheme.
_SCHEME: Final = re.compile(_LETTERS + r"(?=[ \t,]|$)(?![ \t]*+=)")
_BASE64: Final = re.compile(r"[A-Za-z0-9\-._~+/]++=*+")
_TOKEN68: Final = re.compile(rf"[ \t]++(?P<token>{_BASE64.pattern})[ \t]*+(?=,|$)(?![ \t]*=)")
# RFC 9110 has URLs in quotation marks, but some servers send them without.
_PARAMETER: Final = re.compile(
    rf'[ \t,]*+(?P<name>{_LETTERS})[ \t]*+=[ \t]*+(?:(?P<plain>[!#-+\--~]++)|"(?P<text>(?:[^"\\]|\\.)*+)")'
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


# --------------------------------------------------------------------------------------------------------- registration
# Clients as authorization servers know them.


@attrs.frozen
class Registration:
    """A client as an authorization server knows it. It is used with that server only (AUTH-23)."""

    issuer: str
    """The authorization server."""
    client_id: str
    """The id of the client at the authorization server."""
    auth_method: str = "none"
    """How the client authenticates at the token endpoint (AUTH-24)."""
    client_secret: Secret | None = None
    """The secret of the client; ``None`` for a public one."""
    secret_expires_at: float | None = None
    """In Unix seconds; ``None`` for never."""
    redirect_uri: str | None = None
    """The URI that was registered; ``None`` where any registered one will do, or none is needed."""
    is_dynamic: bool = False
    """Whether the client registered itself, and may do so again (RFC 7591)."""


# --------------------------------------------------------------------------------------------------------------- tokens
# Tokens of a client, and the answers of a token endpoint (RFC 6749 §5).

_SKEW = 60.0
"""Seconds before the expiry at which a token is renewed, for tokens that live ten minutes or longer."""


@attrs.frozen
class TokenSet:
    """An access token with all that is needed to use and to renew it. Times are in Unix seconds."""

    access_token: Secret
    """The token that calls carry."""
    issuer: str
    """The authorization server that issued it: it is used with no other (AUTH-06, AUTH-23)."""
    resource: str
    """The resource that it is for."""
    client_id: str
    """The client that it was issued to."""
    obtained_at: float
    """When it came, in Unix seconds."""
    expires_at: float | None = None
    """When it expires; ``None`` where the server did not say. Absolute, so that it outlives a restart."""
    refresh_token: Secret | None = None
    """The token that renews it, or ``None``."""
    scopes: frozenset[str] = attrs.field(default=frozenset(), converter=as_scopes)
    """The scopes that were granted."""
    is_bound: bool = False
    """Whether it is sent with proofs of possession (RFC 9449)."""

    @classmethod
    def parse(
        cls,
        body: bytes,
        at: float,
        *,
        issuer: str,
        resource: str,
        client_id: str,
        scopes: frozenset[str],
        refresh_token: Secret | None = None,
        has_proof: bool = False,
    ) -> Self:
        """Read the answer of a token endpoint that came at the time ``at``, in Unix seconds.

        ``scopes`` are those that were requested, which an answer without ``scope`` grants; ``refresh_token`` is kept
        by an answer without one; ``has_proof`` says that the request had a proof, so that the token may be bound.

        Raises AuthorizationError for an answer that is an error whatever its status, that
        has no usable access token, or whose ``token_type`` is not ``Bearer``, or ``DPoP`` for a proof.
        """
        what = "the answer of the token endpoint"
        document = read_document(body, what)
        if document.get("error") is not None:
            raise oauth_error(document, what)
        access_token, kind = text(document, "access_token", what), text(document, "token_type", what)
        if access_token is None or not access_token.isascii() or not access_token.isprintable() or " " in access_token:
            raise AuthorizationError(f"{what} has no access token that a header field can carry")
        if kind is None:
            raise AuthorizationError(f"{what} has no token_type, which must be Bearer or DPoP (RFC 6749 §5.1)")
        is_bound = has_proof and kind.lower() == "dpop"
        if not is_bound and kind.lower() != "bearer":
            raise AuthorizationError(f"{what} has a token of the type {quoted(kind)}; this client uses Bearer")
        renewing, granted = filled(document, "refresh_token", what), filled(document, "scope", what)
        lifetime = _lifetime(document.get("expires_in"))
        return cls(
            Secret(access_token),
            issuer,
            resource,
            client_id,
            at,
            None if lifetime is None else at + lifetime,
            refresh_token if renewing is None else Secret(renewing),
            scopes if granted is None else parse_scopes(granted),
            is_bound,
        )

    def is_usable(self, at: float) -> bool:
        """Return whether the token has not expired."""
        return self.expires_at is None or at < self.expires_at

    def is_due(self, at: float) -> bool:
        """Return whether to renew the token: in its last 60 s, or the last tenth of a shorter life."""
        if self.expires_at is None:
            return False
        return at >= self.expires_at - min(_SKEW, 0.1 * (self.expires_at - self.obtained_at))


def refused_proof(server: str, date: str | None, at: float) -> str:
    """Say that a proof was refused, and how far the clocks are apart by the ``Date`` of the answer, which came ``at``.

    A wrong clock is why nearly all refused proofs are: ``iat`` is valid for a few minutes only.
    """
    message = f"{server} refuses the DPoP proof (invalid_dpop_proof), not the token"
    validity = "a proof is valid for a few minutes only"
    if (sent_at := unix_time(date)) is None:
        return f"{message}: compare the clocks of both, as {validity}"
    ahead = sent_at - at
    if abs(ahead) < 60:
        return f"{message}, though its clock agrees with this one"
    direction = "ahead of" if ahead > 0 else "behind"
    return f"{message}: its clock is {abs(ahead):.0f} s {direction} this one, and {validity}"


def oauth_error(document: Mapping[str, Any], what: str) -> AuthorizationError:
    """Return the error that an OAuth endpoint answered with (RFC 6749 §5.2). Its texts are quoted and cut."""
    code = document.get("error")
    code = code if isinstance(code, str) else "?"
    description = document.get("error_description")
    more = f", which it explains so: {quoted(description)}" if isinstance(description, str) and description else ""
    return AuthorizationError(f"{what} is the error {quoted(code, 60)}{more}", code=code)


def _lifetime(value: Any) -> float | None:
    """Return the seconds of ``expires_in``, or ``None`` if it is absent or invalid."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 12:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _LONGEST:
        return None
    return float(value)


_LONGEST = 100 * 365 * 86400.0


# -------------------------------------------------------------------------------------------------------------- pending
# Authorizations that wait for a person: values that another process may finish.

LOGIN_TIMEOUT: Final = 600.0
"""Seconds that a person has to log in, unless the program says otherwise."""


@attrs.frozen(kw_only=True)
class PendingAuthorization:
    """An authorization that waits for a person, with all state needed to check the answer and finish.

    It holds the code verifier: together with the callback URL it gives the tokens, so `to_text` writes secrets.
    """

    url: str = attrs.field(repr=False)
    """The URL at which the person logs in. It contains the state."""
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
    """The redirect URI."""
    resource: str
    scopes: frozenset[str]
    """The scopes that were requested."""
    created_at: float
    """In Unix seconds."""
    proof_key: Secret | None = None
    """The private key to which the token will be bound, as PEM."""
    lifetime: float = LOGIN_TIMEOUT
    """Seconds from then that the person has."""

    @property
    def expires_at(self) -> float:
        """Until when an answer is waited for, in Unix seconds."""
        return self.created_at + self.lifetime

    def matches(self, callback_url: str) -> bool:
        """Return whether a callback URL has the state of this authorization. Ignore it otherwise (AUTH-27)."""
        return self._matches(_parameters(callback_url))

    def code(self, callback_url: str) -> Secret:
        """Return the authorization code of a callback URL, after all checks.

        Raises AuthorizationError for another state, another or a missing issuer (AUTH-31), and for the error of the
        authorization server, whose text is read only after these checks.
        """
        parameters = _parameters(callback_url)
        if not self._matches(parameters):
            # RFC 6749 §10.12: the code of an attacker would log this person in to the attacker's account.
            raise AuthorizationError("the callback URL has another state: it does not belong to this authorization")
        # A plain comparison, and no normalization: RFC 9207 §2.4. It stops the mix-up attack, in which a code of one
        # authorization server is sent to the token endpoint of another.
        issuer = parameters.get("iss")
        if (issuer is None and self.server.iss_supported) or issuer not in (None, self.server.issuer):
            raise AuthorizationError("the callback URL does not come from the authorization server that was asked")
        if parameters.get("error"):
            raise oauth_error(parameters, "the answer of the authorization server")
        if not parameters.get("code"):
            raise AuthorizationError("the callback URL has no code")
        return Secret(parameters["code"])

    def _matches(self, parameters: dict[str, str]) -> bool:
        state = parameters.get("state", "").encode("utf-8", "surrogatepass")
        return hmac.compare_digest(state, self.state.encode())


class LoginRequired(AuthorizationError):
    """A person has to log in, and interaction is not allowed.

    ``url`` is where, and ``pending`` the login, which another process may finish.
    """

    def __init__(self, pending: PendingAuthorization) -> None:
        super().__init__("a person has to log in, and interaction is not allowed", url=pending.url)
        self.pending = pending


def _parameters(url: str) -> dict[str, str]:
    """Return the query of a URL, without parameters that occur twice: choosing one would be a guess."""
    try:
        pairs = parse_qsl(urlsplit(url.strip()).query, keep_blank_values=True, max_num_fields=100)
    except ValueError:
        return {}
    names = [name for name, _ in pairs]
    return {} if len(set(names)) < len(names) else dict(pairs)
