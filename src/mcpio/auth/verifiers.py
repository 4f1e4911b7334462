"""How a server judges a token: API keys, JWTs, introspection, and proofs of possession."""

from __future__ import annotations

import enum
import hmac
import re
import reprlib
from base64 import urlsafe_b64decode
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeGuard, TypeVar
from urllib.parse import urlsplit

import attrs

from mcpio._checks import called, checked, is_amount, required
from mcpio._extras import extra
from mcpio._printable import printable
from mcpio.auth.effects import Fetch, Flow, FlowContext, Response
from mcpio.auth.grant import Grant, parse_scopes
from mcpio.auth.grants import SECRET_METHODS, authenticated, post_form
from mcpio.auth.keys import Entropy, Secret, Signer, as_secret, base64url
from mcpio.auth.payloads import TOKEN, Registration, elapsed, mapping_of, max_age, read_document, scopes_of, text
from mcpio.auth.urls import AuthorizationError, check_endpoint, issuer_metadata_urls, quoted
from mcpio.framing.json import dumps

if TYPE_CHECKING:
    from joserfc.jwk import Key


# --------------------------------------------------------------------------------------------------------------- claims
# Claims of access tokens, as JWTs and introspection answers have them.

DPOP_ALGORITHMS: Final = ("ES256", "EdDSA", "PS256", "RS256")
"""The algorithms of proofs: never an HMAC, whose key the proof itself would publish."""


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a claim is a number that a time can be."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**53


def fault_of_times(claims: Mapping[str, Any], at: float, leeway: float) -> InvalidToken | None:
    """Return why a token is not valid at a time by ``exp`` and ``nbf``, if they are there, or ``None``."""
    expires, begins = claims.get("exp"), claims.get("nbf", at)
    if expires is not None and not (is_number(expires) and at < expires + leeway):
        return InvalidToken.of("exp", expires, f"a time after now, which is {at:.0f}")
    if not is_number(begins) or at < begins - leeway:
        return InvalidToken.of("nbf", begins, f"a time before now, which is {at:.0f}")
    return None


def is_for(audience: Any, wanted: str | None, *, alone: bool = False) -> bool:
    """Return whether ``aud`` names ``wanted``; with ``alone``, only that (AUTH-37)."""
    named = [audience] if isinstance(audience, str) else audience
    if wanted is None or not isinstance(named, list) or wanted not in named:
        return False
    return len(named) == 1 or not alone


def scopes_in(claims: Mapping[str, Any], names: Iterable[str]) -> frozenset[str]:
    """Return the scopes of the claims with these names: texts, or lists of texts."""
    scopes: set[str] = set()
    for name in names:
        value = claims.get(name)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, str):
                scopes |= parse_scopes(each)
    return frozenset(scopes)


def confirmation_in(claims: Mapping[str, Any]) -> Mapping[str, str] | None:
    """Return the key that a token is bound to (RFC 7800 §3.1), ``{}`` if unbound, ``None`` if not understood."""
    bound = claims.get("cnf")
    if bound is None:
        return {}
    # To ignore an unknown method would accept a bound token from whoever stole it.
    if not isinstance(bound, Mapping) or not bound or not set(bound) <= {"x5t#S256", "jkt"}:
        return None
    return dict(bound) if all(isinstance(value, str) for value in bound.values()) else None


# -------------------------------------------------------------------------------------------------------- kept verdicts
# Verdicts that are kept for a while, so that most requests need neither a signature check nor another server.

MOST_VERDICTS: Final = 16_384
"""How many verdicts a verifier keeps."""
MOST_VERDICT_BYTES: Final = 16 * 1024 * 1024
"""How many bytes the tokens or answers behind them have together."""
MOST_OF_ONE: Final = 1024
"""How many of them are of one principal: a further one replaces its own least recently used one."""
_VERDICT_SECONDS: Final = 60.0

V = TypeVar("V")


@attrs.frozen
class _Kept(Generic[V]):
    verdict: V
    since: float
    principal: Hashable
    size: int


class _Verdicts(Generic[V]):
    """Verdicts by the digest of a token. The least recently used ones make room for further ones."""

    def __init__(self, seconds: float, most_of_one: int = MOST_OF_ONE) -> None:
        self._seconds = seconds
        self._most_of_one = most_of_one
        self._kept: OrderedDict[bytes, _Kept[V]] = OrderedDict()
        self._of: dict[Hashable, OrderedDict[bytes, None]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: bytes, at: float) -> V | None:
        """Return a verdict that is not too old, or ``None``."""
        kept = self._kept.get(key)
        if kept is None or elapsed(kept.since, at) >= self._seconds:
            return None
        self._kept.move_to_end(key)
        self._of[kept.principal].move_to_end(key)
        return kept.verdict

    def keep(self, key: bytes, verdict: V, at: float, principal: Hashable, size: int) -> None:
        """Keep a verdict, in place of the earlier one of its key."""
        self.drop(key)
        self._kept[key] = _Kept(verdict, at, principal, size)
        own = self._of.setdefault(principal, OrderedDict())
        own[key] = None
        self._bytes += size
        if len(own) > self._most_of_one:
            self.drop(next(iter(own)))
        # The newest one stays, however large it is: its request is about to be judged by it.
        while len(self) > MOST_VERDICTS or (self._bytes > MOST_VERDICT_BYTES and len(self) > 1):
            self.drop(next(iter(self._kept)))

    def drop(self, key: bytes) -> None:
        """Forget a verdict, if there is one."""
        kept = self._kept.pop(key, None)
        if kept is None:
            return
        self._bytes -= kept.size
        own = self._of[kept.principal]
        del own[key]
        if not own:
            del self._of[kept.principal]

    def clear(self) -> None:
        """Forget all verdicts."""
        self._kept.clear()
        self._of.clear()
        self._bytes = 0


# ------------------------------------------------------------------------------------------------------------ verifiers
# Verifiers of bearer tokens: their interface, and API keys.


class NeedKeys(enum.Enum):
    """Verdict of a verifier that must fetch keys first, or ask for the token."""

    NEED_KEYS = "need keys"


@attrs.frozen
class InvalidToken:
    """Why a token is not valid, for the log of the server. Its sender never learns it (AUTH-47)."""

    claim: str
    """The claim, or the part of the token or request, that is wrong."""
    found: str
    """Its value, shortened, with unusual characters escaped."""
    expected: str
    """What would be accepted."""

    @classmethod
    def of(cls, claim: str, value: Any, expected: str) -> InvalidToken:
        """Return the fault of a claim; ``None`` is a claim that is missing."""
        if value is None:
            return cls(claim, "missing", expected)
        return cls(claim, quoted(value) if isinstance(value, str) else printable(_short.repr(value)), expected)

    def __str__(self) -> str:
        return f"{self.claim} is {self.found}, expected {self.expected}"


class Verifier(Protocol):
    """Verifies tokens for a protected server. It keeps state, so each server needs its own."""

    @property
    def challenges_with_metadata(self) -> bool:
        """Whether a client gets such tokens from an authorization server, which the challenge then points to."""

    @property
    def header(self) -> str:
        """The header field that has the token, in lower case; ``authorization`` is read as ``Bearer``."""

    def verify(self, token: Secret, resource: str | None, at: float) -> Grant | NeedKeys | InvalidToken | None:
        """Return the grant of a token at ``at``, in Unix seconds. A verifier that wraps another passes it on unchanged.

        For a token that is not valid for this server, return `InvalidToken` with the reason, or ``None``. ``resource``
        is this server, which must be among the token's audiences. Never raises for a token.
        """

    def load_key(self, token: Secret) -> Hashable:
        """Return what to load for a token: requests for which it is equal wait for one flow."""

    def load_keys(self, context: FlowContext, token: Secret) -> Flow[None]:
        """Fetch the data that the verification of a token needs. Raises AuthorizationError if that fails."""


def _header_name(value: str) -> str:
    """Return the name of a field in lower case, in which fields of requests are compared with it."""
    if TOKEN.fullmatch(required("header", value, str)) is None:
        raise ValueError(f"ApiKeys: header must be the name of a header field, not {value!r:.60}")
    return value.lower()


def _scopes_by_subject(value: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    return {subject: scopes_of(scopes) or frozenset() for subject, scopes in mapping_of("scopes", value).items()}


def _by_digest(value: Mapping[str, str]) -> Mapping[str, str]:
    return mapping_of("principals", value)


@attrs.frozen
class ApiKeys:
    """Static keys, of which only digests are kept (AUTH-57).

    Raises ValueError for a malformed digest or header name, and TypeError for an option of another type.

    Keys are looked up by digest, so the time of a lookup reveals nothing about a key.
    """

    principals: Mapping[str, str] = attrs.field(repr=False, converter=_by_digest)
    """Digest -> the subject of the grant; `api_key_digest` makes the digests."""
    _header: str = attrs.field(default="authorization", converter=_header_name)
    scopes: Mapping[str, frozenset[str]] = attrs.field(factory=dict, converter=_scopes_by_subject)
    """Subject -> the scopes of its keys."""

    @property
    def header(self) -> str:
        """The header field with the key: ``authorization`` as ``Bearer``, or another field such as ``x-api-key``."""
        return self._header  # of a field with a converter, pyright does not believe that it is text

    @property
    def challenges_with_metadata(self) -> bool:
        """False: API keys are not issued on demand."""
        return False

    def __attrs_post_init__(self) -> None:
        for digest in self.principals:
            if len(required("principals", digest, str)) != 64 or not set(digest) <= set("0123456789abcdef"):
                # Without the text, which may be the key itself.
                raise ValueError("principals must have SHA-256 digests as keys: 64 hexadecimal digits, in lower case")

    def verify(self, token: Secret, resource: str | None, at: float) -> Grant | InvalidToken:
        """Return the grant of a key, or that it is unknown."""
        subject = self.principals.get(api_key_digest(token))
        if subject is None:
            return _UNKNOWN_KEY
        return Grant(None, subject, scopes=self.scopes.get(subject, frozenset()))

    def load_key(self, token: Secret) -> None:
        """Return ``None``: nothing is fetched."""

    def load_keys(self, context: FlowContext, token: Secret) -> Flow[None]:
        """Do nothing: API keys need no fetch."""
        yield from ()


_UNKNOWN_KEY: Final = InvalidToken("the API key", "unknown", "one whose digest is in ApiKeys")
_short: Final = reprlib.Repr()
_short.maxstring = 100


def new_api_key(entropy: Entropy) -> Secret:
    """Return a new key of 256 bits, to be shown once. Keep its digest."""
    return Secret("mcp_" + base64url(entropy(32)))


def api_key_digest(key: Secret | str) -> str:
    """Return the digest of a key, for `ApiKeys`."""
    text = key.reveal() if isinstance(key, Secret) else key
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# ------------------------------------------------------------------------------------------------------------------ jwt
# Verification of JWT access tokens (RFC 9068) by the keys that their issuer publishes. Needs the package joserfc.

ALGORITHMS: Final = ("RS256", "PS256", "ES256", "EdDSA")
REFETCH_SECONDS: Final = 30.0
"""How long after a fetch of keys an unknown ``kid`` leads to no other fetch."""
RETRY_SECONDS: Final = 5.0
"""How long after a failed fetch there is no other one while there are no keys at all."""
_KEPT: Final = (60.0, 86400.0)
"""Bounds of the time that keys are kept, in seconds; ``Cache-Control`` chooses within them."""
_STALE_SECONDS: Final = 86400.0
"""How long keys are used beyond that while they cannot be fetched."""
_MAX_KEYS: Final = 100
_RSA_BITS: Final = (2048, 8192)


class JwtVerifier:
    """Verifies JWTs of one issuer, with its published keys (AUTH-37, AUTH-58).

    ``issuer`` is compared with ``iss``. ``tenants`` judges ``iss`` instead, for issuers that have one for each tenant.
    ``audience`` is what ``aud`` must contain, by default the resource of the server. ``algorithms`` lists what is
    accepted: never ``none``, and never an HMAC, whose key would be public. ``jwks`` is the URL of the key set or the
    key set itself; ``None`` to find the URL in the issuer's metadata. ``leeway`` is in seconds. ``types`` are the
    values of ``typ``, and ``scope_claims`` the claims that have the scopes. With ``only_audience=True`` a token for
    several audiences is refused.

    Raises TypeError and ValueError for an option that is of another type or not supported, and ImportError without the
    package joserfc.
    """

    challenges_with_metadata: bool = True
    """True: clients get such tokens from an authorization server."""
    header: str = "authorization"
    """The header field that has the token."""
    issuer: str
    """What ``iss`` is compared with."""

    def __init__(
        self,
        issuer: str,
        *,
        audience: str | None = None,
        algorithms: Iterable[str] = ALGORITHMS,
        jwks: str | Mapping[str, Any] | None = None,
        leeway: float = 30.0,
        types: Iterable[str] = ("at+jwt", "JWT"),
        scope_claims: Iterable[str] = ("scope", "scp"),
        tenants: Callable[[str], bool] | None = None,
        only_audience: bool = False,
    ) -> None:
        with extra("auth", "JwtVerifier"):
            from joserfc.jws import JWSRegistry

        self.issuer = required("issuer", issuer, str)
        self._audience = checked("audience", audience, str)
        self._algorithms = frozenset(_names("algorithms", algorithms))
        for name in self._algorithms:
            if not name.startswith(("RS", "PS", "ES", "Ed")) or name not in JWSRegistry.algorithms:
                raise ValueError(f"algorithms must have public keys, as RS256 and ES256 do, not {name!r:.60}")
        if not isinstance(jwks, str | Mapping | None):
            raise TypeError(f"jwks must be the URL of a key set, or the key set as a mapping, not {jwks!r:.100}")
        if not is_amount(leeway):
            raise ValueError(f"leeway must be a number of seconds from 0 up, not {leeway!r:.100}")
        self._jwks = jwks if isinstance(jwks, str) else None
        self._leeway = leeway
        self._types = frozenset(each.lower() for each in _names("types", types))
        self._scope_claims = _names("scope_claims", scope_claims)
        self._tenants = None if tenants is None else called("tenants", tenants, "(issuer)")
        self._only_audience = only_audience
        self._verdicts = _Verdicts[Grant](_VERDICT_SECONDS)
        self._keys: list[tuple[str | None, Key]] = []
        # Moments, of the last fetch, of its failure, and of the keys in use, which are fresh for some seconds.
        self._fetched_at = self._failed_at = self._keys_at = float("-inf")
        self._fresh_seconds = 0.0
        # Keys that are given never age: a token with an unknown key id is refused, and nothing is fetched.
        if isinstance(jwks, Mapping):
            self._keys = _usable_keys(jwks)
            self._fetched_at = self._keys_at = float("inf")

    def verify(self, token: Secret, resource: str | None, at: float) -> Grant | NeedKeys | InvalidToken:
        """Return the grant of a token, `NeedKeys`, or why it is not valid."""
        # With the resource, in case several servers share the verifier: a verdict is for one audience.
        digest = sha256(f"{resource} {token.reveal()}".encode("utf-8", "surrogatepass")).digest()
        kept = self._verdicts.find(digest, at)
        if kept is not None and kept.expires_at is not None and at < kept.expires_at + self._leeway:
            return kept
        jwt = parse_jwt(token.reveal())
        if jwt is None:
            return InvalidToken("the token", "something else", "a signed JWT in compact form")
        if (fault := self._fault_of_header(jwt.header)) is not None:
            return fault
        # The claims first: a token that could not be valid anyway must not make this server fetch keys.
        grant = self._granted(jwt.claims, resource, at)
        if isinstance(grant, InvalidToken):
            return grant
        keys = self._keys_for(jwt.header, at)
        if isinstance(keys, NeedKeys):
            return keys
        if not keys:
            return InvalidToken.of("kid", jwt.header.get("kid"), f"a key of the issuer, {self._key_names()}")
        if not any(is_signed(jwt, key) for key in keys):
            return InvalidToken("the signature", "wrong", "one by the key that kid names")
        self._verdicts.keep(digest, grant, at, grant, len(token.reveal()))
        return grant

    def load_key(self, token: Secret) -> None:
        """Return ``None``: the keys are the same for all tokens."""

    def load_keys(self, context: FlowContext, token: Secret) -> Flow[None]:
        """Fetch the keys. Raises AuthorizationError where that fails; those from before stay in use for a while.

        It fails at once for some seconds after a failure: anyone can make up tokens that ask for keys.
        """
        if elapsed(self._failed_at, context.now) < RETRY_SECONDS:
            raise AuthorizationError("the keys could not be fetched a moment ago", temporary=True)
        # Whatever comes of it, the next unknown kid leads to no other fetch for a while.
        self._fetched_at = context.now
        try:
            response = yield from self._key_set(context)
            self._keys = _usable_keys(read_document(response.body, "the key set"))
        except AuthorizationError:
            self._failed_at = context.now
            raise
        self._keys_at, self._fresh_seconds = context.now, _kept_seconds(response)
        # A key that was withdrawn must not live on in verdicts.
        self._verdicts.clear()

    def _key_set(self, context: FlowContext) -> Flow[Response]:
        url = self._jwks
        if url is None:
            url = yield from self._key_set_url(context)
        check_endpoint(url, context.server_url, "jwks_uri")
        return (yield from _get(context, url))

    def _key_set_url(self, context: FlowContext) -> Flow[str]:
        what, reasons = "the metadata of the authorization server", list[str]()
        is_temporary = False
        for url in issuer_metadata_urls(check_endpoint(self.issuer, context.server_url, "the issuer")):
            try:
                document = read_document((yield from _get(context, url)).body, what)
                address = text(document, "jwks_uri", what)
            except AuthorizationError as error:
                is_temporary = is_temporary or error.temporary
                reasons.append(str(error))
                continue
            if self._tenants is None and document.get("issuer") != self.issuer:
                issuer = document.get("issuer")
                reasons.append(f"{quoted(url)} is of {quoted(issuer) if isinstance(issuer, str) else 'no issuer'}")
            elif address is None:
                reasons.append(f"{quoted(url)} names no jwks_uri")
            else:
                return address
        # Each URL has its own reason: at most of them there is nothing.
        message = f"no keys of the issuer {quoted(self.issuer)}: {'; '.join(reasons)}"
        raise AuthorizationError(message, option="jwks=", temporary=is_temporary)

    def _keys_for(self, header: Mapping[str, Any], at: float) -> list[Key] | NeedKeys:
        name = header.get("kid")
        keys = [key for key_id, key in self._keys if name is None or key_id in (None, name)]
        may_fetch, age = elapsed(self._fetched_at, at) >= REFETCH_SECONDS, elapsed(self._keys_at, at)
        if self._keys_at == float("-inf"):
            # The issuer could not be reached yet. Without keys no token can be blamed.
            return NeedKeys.NEED_KEYS
        if may_fetch and (not keys or age >= self._fresh_seconds):
            return NeedKeys.NEED_KEYS
        return keys if age < self._fresh_seconds + _STALE_SECONDS else []

    def _key_names(self) -> str:
        names = [quoted(name, 60) for name, _ in self._keys[:10] if name is not None]
        return f"one of {', '.join(names)}" if names else "of which none has a name"

    def _fault_of_header(self, header: Mapping[str, Any]) -> InvalidToken | None:
        kind, name = header.get("typ"), header.get("alg")
        # crit names extensions that must be understood, and none is. jku, x5u and jwk would let the sender choose the
        # key: they are ignored.
        if not isinstance(name, str) or name not in self._algorithms:
            return InvalidToken.of("alg", name, f"one of algorithms=, {', '.join(sorted(self._algorithms))}")
        if not isinstance(kind, str) or kind.lower().removeprefix("application/") not in self._types:
            return InvalidToken.of("typ", kind, f"one of types=, {', '.join(sorted(self._types))}")
        if "crit" in header:
            return InvalidToken.of("crit", header["crit"], "none")
        return None

    def _granted(self, claims: Mapping[str, Any], resource: str | None, at: float) -> Grant | InvalidToken:
        issuer, expires, subject = claims.get("iss"), claims.get("exp"), claims.get("sub")
        is_issuer = isinstance(issuer, str) and (
            self._tenants(issuer) if self._tenants is not None else issuer == self.issuer
        )
        if not isinstance(issuer, str) or not is_issuer:
            wanted = quoted(self.issuer) if self._tenants is None else "an issuer that tenants= accepts"
            return InvalidToken.of("iss", issuer, wanted)
        if not is_number(expires):
            return InvalidToken.of("exp", expires, "a number of seconds")
        if (fault := fault_of_times(claims, at, self._leeway)) is not None:
            return fault
        if not isinstance(subject, str):
            return InvalidToken.of("sub", subject, "a text")
        # An id token is for the client that logged the user in, and no token for an API.
        for name in ("nonce", "at_hash", "c_hash"):
            if name in claims:
                return InvalidToken(name, "present, as in an id token", "an access token")
        wanted_audience = self._audience or resource
        if not is_for(claims.get("aud"), wanted_audience, alone=self._only_audience):
            alone = " alone" if self._only_audience else ""
            return InvalidToken.of("aud", claims.get("aud"), f"{quoted(wanted_audience or '')}{alone}")
        confirmation = confirmation_in(claims)
        if confirmation is None:
            return InvalidToken.of("cnf", claims.get("cnf"), "x5t#S256 or jkt")
        client = claims.get("client_id", claims.get("azp"))
        client = client if isinstance(client, str) else None
        scopes = scopes_in(claims, self._scope_claims)
        return Grant(issuer, subject, client, scopes, float(expires), claims, confirmation)


@attrs.frozen
class Jwt:
    """A JSON Web Token in its parts, unverified."""

    header: Mapping[str, Any]
    claims: Mapping[str, Any]
    signed: bytes
    signature: bytes


def parse_jwt(token: str) -> Jwt | None:
    """Return the parts of a signed token in compact form, ``None`` for anything else. Nothing is verified."""
    if _COMPACT.fullmatch(token) is None:
        return None
    signed, _, signature = token.rpartition(".")
    try:
        header, claims = (read_document(_decoded(part), "a part of the token") for part in signed.split("."))
        return Jwt(header, claims, signed.encode(), _decoded(signature))
    except (AuthorizationError, ValueError):
        return None


def is_signed(token: Jwt, key: Key) -> bool:
    """Return whether a token is signed with a key, by the algorithm that its header names and the key is for."""
    from joserfc.jws import JWSRegistry

    algorithm = JWSRegistry.algorithms[token.header["alg"]]
    try:
        # The key must be of the algorithm's type: otherwise the sender's choice of "alg" decides how it is used.
        algorithm.check_key(key)
        return algorithm.verify(token.signed, token.signature, key)
    except Exception:
        # Any exception of the library means that the token is not valid.
        return False


def _names(option: str, value: Iterable[str]) -> tuple[str, ...]:
    """Return the names of an option. Raises TypeError for one text, whose characters would count as names."""
    if isinstance(value, str):
        raise TypeError(
            f"{option} must be a collection of names, such as {[value]!r:.100}, not the text {value!r:.100}"
        )
    return tuple(required(option, each, str) for each in value)


def _usable_keys(document: Mapping[str, Any]) -> list[tuple[str | None, Key]]:
    """Return the public signing keys of a key set, with their ids, leaving out what cannot be used."""
    from joserfc.jwk import import_key

    members = document.get("keys")
    if not isinstance(members, list) or len(members) > _MAX_KEYS:
        raise AuthorizationError(f"the key set is not a list of at most {_MAX_KEYS} keys")
    keys: list[tuple[str | None, Key]] = []
    for each in members:
        if not isinstance(each, dict) or each.get("kty") not in ("RSA", "EC", "OKP") or each.get("use", "sig") != "sig":
            continue
        name = each.get("kid")
        try:
            if each["kty"] == "RSA" and not _RSA_BITS[0] <= 8 * len(_decoded(each["n"])) <= _RSA_BITS[1]:
                continue
            public = {member: each[member] for member in ("kty", "n", "e", "crv", "x", "y") if member in each}
            keys.append((name if isinstance(name, str) else None, import_key(public)))
        except Exception:  # noqa: S112  a key that a library cannot read is none, for whatever reason
            continue
    return keys


def _get(context: FlowContext, url: str) -> Flow[Response]:
    headers = (("accept", "application/json"),)
    response: Response = yield Fetch(method="GET", url=url, headers=headers, reach=context.reach, redirects=3)
    if response.status != 200:
        raise AuthorizationError(f"{quoted(url)} answers with status {response.status}", temporary=True)
    return response


def _kept_seconds(response: Response) -> float:
    shortest, longest = _KEPT
    age = max_age(response.headers)
    return shortest * 5 if age is None else min(max(age, shortest), longest)


def _decoded(part: str) -> bytes:
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))


_COMPACT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


# -------------------------------------------------------------------------------------------------------- introspection
# Introspection of tokens that only their authorization server can read (RFC 7662).

_SIGNER_METHODS: Final = ("private_key_jwt",)
_REJECTED_SECONDS: Final = 10.0
"""How long the answer for an inactive token is kept."""


class Introspection:
    """Asks the authorization server about each token, and keeps the answer for at most a minute (AUTH-55).

    ``url`` is the introspection endpoint of ``issuer``. This server is the client ``client_id`` there, and
    authenticates with ``secret`` or, by ``private_key_jwt``, with ``signer``. ``audience`` is what ``aud`` must
    contain, by default the resource of the server; ``any_audience=True`` accepts tokens for other servers, where
    the authorization server issues no ``aud`` and its tokens are for this server alone. ``leeway`` is how many seconds
    the clocks of the two may differ, for ``exp`` and ``nbf``.

    A token that is revoked is accepted until the kept answer is a minute old. While the authorization server does not
    answer, requests are refused with 503.

    Raises ValueError without exactly one of ``secret`` and ``signer``, and for an ``auth_method`` that does not use it.
    """

    challenges_with_metadata: bool = True
    """True: clients get such tokens from an authorization server."""
    header: str = "authorization"
    """The header field that has the token."""

    def __init__(
        self,
        url: str,
        *,
        issuer: str,
        client_id: str,
        secret: Secret | str | None = None,
        signer: Signer | None = None,
        auth_method: str | None = None,
        audience: str | None = None,
        any_audience: bool = False,
        leeway: float = 30.0,
    ) -> None:
        if (secret is None) == (signer is None):
            raise ValueError("give either secret= or signer=: the introspection endpoint answers known clients only")
        usable = _SIGNER_METHODS if signer is not None else SECRET_METHODS
        method = auth_method or usable[0]
        if method not in usable:
            option = "signer=" if signer is not None else "secret="
            raise ValueError(f"auth_method must be {' or '.join(map(repr, usable))} with {option}, not {method!r:.100}")
        if not is_amount(leeway):
            raise ValueError(f"leeway must be a number of seconds from 0 up, not {leeway!r:.100}")
        self._leeway = leeway
        self._url = required("url", url, str)
        self._client = Registration(
            required("issuer", issuer, str), required("client_id", client_id, str), method, as_secret(secret)
        )
        self._signer = signer
        self._audience = checked("audience", audience, str)
        self._any_audience = any_audience
        # The claims of active tokens. Inactive ones have a table of their own: anyone can make some up, and they must
        # not push out the answers for the tokens of others.
        self._active = _Verdicts[Mapping[str, Any]](_VERDICT_SECONDS)
        self._rejected = _Verdicts[InvalidToken](_REJECTED_SECONDS, most_of_one=MOST_VERDICTS)

    def load_key(self, token: Secret) -> bytes:
        """Return the digest of the token: one request asks for all that present it."""
        return sha256(token.reveal().encode()).digest()

    def verify(self, token: Secret, resource: str | None, at: float) -> Grant | NeedKeys | InvalidToken:
        """Return the grant of a token, `NeedKeys` to ask for it, or why it is not valid."""
        key = self.load_key(token)
        claims = self._active.find(key, at)
        if claims is not None:
            return self._granted(claims, resource, at)
        return self._rejected.find(key, at) or NeedKeys.NEED_KEYS

    def load_keys(self, context: FlowContext, token: Secret) -> Flow[None]:
        """Ask for a token. Raises AuthorizationError where the authorization server gives no answer."""
        endpoint = check_endpoint(self._url, context.server_url, "the introspection endpoint")
        fields, headers = yield from authenticated(context, self._client, self._signer)
        form = {"token": token.reveal(), "token_type_hint": "access_token", **fields}
        response = yield from post_form(context, endpoint, form, headers)
        if response.status != 200:
            raise AuthorizationError(f"{quoted(endpoint)} answers with status {response.status}", temporary=True)
        answer = read_document(response.body, "the answer of the introspection endpoint")
        # Anything but true is a token that is not active.
        key, is_active = self.load_key(token), answer.get("active") is True
        # The other table may have the answer from before, which the new one replaces.
        self._active.drop(key)
        self._rejected.drop(key)
        if is_active:
            principal = repr([answer.get(name) for name in ("sub", "username", "client_id")])
            self._active.keep(key, answer, context.now, principal, len(response.body))
        else:
            self._rejected.keep(key, _INACTIVE, context.now, None, 0)

    def _granted(self, claims: Mapping[str, Any], resource: str | None, at: float) -> Grant | InvalidToken:
        issuer, expires, audience = claims.get("iss", self._client.issuer), claims.get("exp"), claims.get("aud")
        if issuer != self._client.issuer:
            return InvalidToken.of("iss", issuer, quoted(self._client.issuer))
        if (fault := fault_of_times(claims, at, self._leeway)) is not None:
            return fault
        wanted = self._audience or resource
        if not self._any_audience and not is_for(audience, wanted):
            return InvalidToken.of("aud", audience, quoted(wanted or ""))
        subject, client = claims.get("sub", claims.get("username")), claims.get("client_id")
        confirmation = confirmation_in(claims)
        if confirmation is None:
            return InvalidToken.of("cnf", claims.get("cnf"), "x5t#S256 or jkt")
        # A session belongs to an identity, and all tokens without one would share it.
        for name, value in (("sub", subject), ("client_id", client)):
            if not isinstance(value, str | None) or (subject is None and client is None):
                return InvalidToken.of(name, value, "a text, here or in the other of sub and client_id")
        expires_at = None if expires is None else float(expires)
        return Grant(issuer, subject, client, scopes_in(claims, ("scope",)), expires_at, claims, confirmation)


_INACTIVE: Final = InvalidToken("the token", "not active", "one that the authorization server knows")


# --------------------------------------------------------------------------------------------------------- proof checks
# Proofs of possession (RFC 9449), as a protected server checks them. Needs the package joserfc.

PROOF_SECONDS: Final = 300.0
"""How far ``iat`` may be from now; and how long a nonce is given out."""
MOST_PROOFS: Final = 262_144
"""How many proofs are remembered. Beyond that, no further ones are accepted until some expire."""
_MAX_PROOF: Final = 8192
_MEMBERS: Final = {"EC": ("crv", "kty", "x", "y"), "OKP": ("crv", "kty", "x"), "RSA": ("e", "kty", "n")}
"""The members of a thumbprint (RFC 7638 §3.2), in its order."""


@attrs.frozen
class ProofFault:
    """Why a proof is not accepted."""

    error: str
    """``invalid_dpop_proof``, ``use_dpop_nonce``, or ``overloaded`` where no more proofs can be remembered."""
    nonce: str | None = None
    """The nonce that the next proof must have."""
    why: tuple[InvalidToken, ...] = ()
    """What is wrong with it, for the log."""


class ProofChecker:
    """Checks proofs, and accepts each only once."""

    def __init__(self, nonces: Secret | None = None) -> None:
        """With ``nonces``, a key of this server's, proofs must have a nonce that it gave out."""
        self._nonces = nonces
        # The digests of accepted proofs, and when each can no longer be accepted: in that order.
        self._used: set[bytes] = set()
        self._expiries: deque[tuple[float, bytes]] = deque()

    def check(
        self, proof: str, *, method: str, resource: str, target: str, token: Secret, at: float, now: float
    ) -> str | ProofFault:
        """Return the key thumbprint of a proof for a request at ``at``, in Unix seconds, or the proof's fault.

        ``now`` is the same time on a monotonic clock: however the wall clock is set, a proof stays used for its life.
        The URL of the proof is that of ``resource``, or ``target`` at its origin: not what ``Host`` says.
        """
        jwt = parse_jwt(proof) if len(proof) <= _MAX_PROOF else None
        if jwt is None or jwt.header.get("typ") != "dpop+jwt" or "crit" in jwt.header:
            return _fault("form", "another one", "a JWT with typ dpop+jwt and no crit")
        thumbprint = _thumbprint(jwt.header.get("jwk"))
        if thumbprint is None or jwt.header.get("alg") not in DPOP_ALGORITHMS:
            return _fault("jwk or alg", "not usable", f"a public key for {', '.join(DPOP_ALGORITHMS)}")
        claims = jwt.claims
        # RFC 9449 §4.3: htm and htu bind the proof to one request, ath to one token. Without them, a proof that
        # another server saw could be sent here.
        identity, made, digest = (
            claims.get("jti"),
            claims.get("iat"),
            base64url(sha256(token.reveal().encode()).digest()),
        )
        if claims.get("htm") != method:
            return _wrong("htm", claims, method)
        if not _is_url(claims.get("htu"), resource, target):
            return _wrong("htu", claims, resource)
        if not isinstance(identity, str) or not 0 < len(identity) <= 256:
            return _wrong("jti", claims, "a text of at most 256 characters")
        if claims.get("ath") != digest:
            return _fault("ath", "another digest", "that of the token")
        if not is_number(made) or abs(at - made) > PROOF_SECONDS:
            return _wrong("iat", claims, f"at most {PROOF_SECONDS:g} s from now, which is {at:.0f}")
        if not is_signed(jwt, _key(jwt.header["jwk"])):
            return _fault("signature", "wrong", "one by its jwk")
        if self._nonces is not None and claims.get("nonce") not in (self._nonce(at), self._nonce(at - PROOF_SECONDS)):
            return ProofFault("use_dpop_nonce", self._nonce(at))
        return self._remember(thumbprint, identity, now)

    def _remember(self, thumbprint: str, identity: str, now: float) -> str | ProofFault:
        while self._expiries and self._expiries[0][0] < now:
            self._used.discard(self._expiries.popleft()[1])
        name = sha256(dumps([thumbprint, identity])).digest()[:16]
        if name in self._used:
            return _fault("jti", "one that was used before", "another one for each request")
        if len(self._used) >= MOST_PROOFS:
            # To forget one would let it be used again.
            return ProofFault("overloaded")
        self._used.add(name)
        # Until the last moment at which any of them is accepted, so that the queue is in order.
        self._expiries.append((now + 2 * PROOF_SECONDS, name))
        return thumbprint

    def _nonce(self, at: float) -> str:
        assert self._nonces is not None
        slot = b"%d" % (at // PROOF_SECONDS)
        return base64url(hmac.digest(self._nonces.reveal().encode(), slot, "sha256")[:16])


def _thumbprint(jwk: Any) -> str | None:
    """Return the thumbprint of a public key (RFC 7638), ``None`` for anything else."""
    if not isinstance(jwk, dict) or "d" in jwk:
        return None
    kind = jwk.get("kty")
    if not isinstance(kind, str) or kind not in _MEMBERS:
        return None
    members = {name: jwk.get(name) for name in _MEMBERS[kind]}
    if not all(isinstance(value, str) and value.isascii() for value in members.values()):
        return None
    return base64url(sha256(dumps(members)).digest())


def _key(jwk: Any) -> Any:
    from joserfc.jwk import import_key

    try:
        return import_key({name: jwk[name] for name in _MEMBERS[jwk["kty"]]})
    except Exception:
        # A key that the library cannot read has signed nothing.
        return None


def _is_url(url: Any, resource: str, target: str) -> bool:
    if not isinstance(url, str) or "?" in url or "#" in url:
        return False
    wanted = urlsplit(resource)
    origin, path = f"{wanted.scheme}://{wanted.netloc}", target.partition("?")[0]
    return url in (resource, resource + "/", origin + path)


def _wrong(claim: str, claims: Mapping[str, Any], expected: str) -> ProofFault:
    return ProofFault(
        "invalid_dpop_proof", why=(InvalidToken.of(f"{claim} of the proof", claims.get(claim), expected),)
    )


def _fault(part: str, actual: str, expected: str) -> ProofFault:
    return ProofFault("invalid_dpop_proof", why=(InvalidToken(f"{part} of the proof", actual, expected),))
