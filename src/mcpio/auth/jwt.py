"""Verification of JWT access tokens (RFC 9068) by the keys that their issuer publishes. Needs the package joserfc."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import attrs

from mcpio._checks import checked, is_amount, required
from mcpio._extras import extra
from mcpio.auth.claims import confirmation_in, fault_of_times, is_for, is_number, scopes_in
from mcpio.auth.documents import max_age, read_document, text
from mcpio.auth.effects import Fetch, Flow, FlowContext, Response
from mcpio.auth.errors import AuthorizationError, quoted
from mcpio.auth.grant import Grant
from mcpio.auth.secret import Secret
from mcpio.auth.urls import check_endpoint, issuer_metadata_urls
from mcpio.auth.verifiers import InvalidToken, NeedKeys

if TYPE_CHECKING:
    from joserfc.jwk import Key

__all__ = ["Jwt", "JwtVerifier", "is_signed", "parse_jwt"]

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
_VERDICTS: Final = 1024
_VERDICT_SECONDS: Final = 60.0


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
                raise ValueError(f"the algorithm {name!r} is not supported")
        if not isinstance(jwks, str | Mapping | None):
            raise TypeError(f"jwks= takes the URL of a key set, or the key set as a mapping, not {jwks!r:.100}")
        if not is_amount(leeway):
            raise ValueError(f"leeway= takes a number of seconds from 0 up, not {leeway!r:.100}")
        self._jwks = jwks if isinstance(jwks, str) else None
        self._leeway = leeway
        self._types = frozenset(each.lower() for each in _names("types", types))
        self._scope_claims = _names("scope_claims", scope_claims)
        self._tenants = tenants
        self._only_audience = only_audience
        self._verdicts: OrderedDict[bytes, tuple[Grant, float]] = OrderedDict()
        self._keys: list[tuple[str | None, Key]] = []
        self._fetched_at = self._failed_at = self._fresh_until = float("-inf")
        if isinstance(jwks, Mapping):
            self._keys = _usable_keys(jwks)
            self._fetched_at = self._fresh_until = float("inf")

    def verify(self, token: Secret, resource: str | None, at: float) -> Grant | NeedKeys | InvalidToken:
        """Return the grant of a token, `NeedKeys`, or why it is not valid."""
        # With the resource, in case several servers share the verifier: a verdict is for one audience.
        digest = sha256(f"{resource} {token.reveal()}".encode("utf-8", "surrogatepass")).digest()
        known = self._verdicts.get(digest)
        if known is not None and at < known[1]:
            return known[0]
        found = parse_jwt(token.reveal())
        if found is None:
            return InvalidToken("the token", "something else", "a signed JWT in compact form")
        if (fault := self._fault_of_header(found.header)) is not None:
            return fault
        # The claims first: a token that could not be valid anyway must not make this server fetch keys.
        grant = self._granted(found.claims, resource, at)
        if isinstance(grant, InvalidToken):
            return grant
        keys = self._keys_for(found.header, at)
        if isinstance(keys, NeedKeys):
            return keys
        if not keys:
            return InvalidToken.of("kid", found.header.get("kid"), f"a key of the issuer, {self._key_names()}")
        if not any(is_signed(found, key) for key in keys):
            return InvalidToken("the signature", "wrong", "one by the key that kid names")
        assert grant.expires_at is not None
        self._verdicts[digest] = (grant, min(at + _VERDICT_SECONDS, grant.expires_at + self._leeway))
        if len(self._verdicts) > _VERDICTS:
            self._verdicts.popitem(last=False)
        return grant

    def load_key(self, token: Secret) -> None:
        """Return ``None``: the keys are the same for all tokens."""

    def load_keys(self, context: FlowContext, token: Secret) -> Flow[None]:
        """Fetch the keys. Raises AuthorizationError where that fails; those from before stay in use for a while.

        It fails at once for some seconds after a failure: anyone can make up tokens that ask for keys.
        """
        if context.now < self._failed_at + RETRY_SECONDS:
            raise AuthorizationError("the keys could not be fetched a moment ago", temporary=True)
        # Whatever comes of it, the next unknown kid leads to no other fetch for a while.
        self._fetched_at = context.now
        try:
            response = yield from self._key_set(context)
            self._keys = _usable_keys(read_document(response.body, "the key set"))
        except AuthorizationError:
            self._failed_at = context.now
            raise
        self._fresh_until = context.now + _kept_seconds(response)
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
                found = text(document, "jwks_uri", what)
            except AuthorizationError as error:
                is_temporary = is_temporary or error.temporary
                reasons.append(str(error))
                continue
            if self._tenants is None and document.get("issuer") != self.issuer:
                said = document.get("issuer")
                reasons.append(f"{quoted(url)} is of {quoted(said) if isinstance(said, str) else 'no issuer'}")
            elif found is None:
                reasons.append(f"{quoted(url)} names no jwks_uri")
            else:
                return found
        # Each URL has its own reason: at most of them there is nothing.
        message = f"no keys of the issuer {quoted(self.issuer)}: {'; '.join(reasons)}"
        raise AuthorizationError(message, option="jwks=", temporary=is_temporary)

    def _keys_for(self, header: Mapping[str, Any], at: float) -> list[Key] | NeedKeys:
        name = header.get("kid")
        found = [key for known, key in self._keys if name is None or known in (None, name)]
        may_fetch = at >= self._fetched_at + REFETCH_SECONDS
        if self._fresh_until == float("-inf"):
            # The issuer could not be reached yet. Without keys no token can be blamed.
            return NeedKeys.NEED_KEYS
        if may_fetch and (not found or at >= self._fresh_until):
            return NeedKeys.NEED_KEYS
        return found if at < self._fresh_until + _STALE_SECONDS else []

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
        raise TypeError(f"{option}= takes a collection of names, such as {[value]!r:.100}, not the text {value!r:.100}")
    return tuple(required(option, each, str) for each in value)


def _usable_keys(document: Mapping[str, Any]) -> list[tuple[str | None, Key]]:
    """Return the public signing keys of a key set, with their ids, leaving out what cannot be used."""
    from joserfc.jwk import import_key

    listed = document.get("keys")
    if not isinstance(listed, list) or len(listed) > _MAX_KEYS:
        raise AuthorizationError(f"the key set is not a list of at most {_MAX_KEYS} keys")
    found: list[tuple[str | None, Key]] = []
    for each in listed:
        if not isinstance(each, dict) or each.get("kty") not in ("RSA", "EC", "OKP") or each.get("use", "sig") != "sig":
            continue
        name = each.get("kid")
        try:
            if each["kty"] == "RSA" and not _RSA_BITS[0] <= 8 * len(_decoded(each["n"])) <= _RSA_BITS[1]:
                continue
            public = {member: each[member] for member in ("kty", "n", "e", "crv", "x", "y") if member in each}
            found.append((name if isinstance(name, str) else None, import_key(public)))
        except Exception:  # noqa: S112  a key that a library cannot read is none, for whatever reason
            continue
    return found


def _get(context: FlowContext, url: str) -> Flow[Response]:
    headers = (("accept", "application/json"),)
    response: Response = yield Fetch(method="GET", url=url, headers=headers, reach=context.reach, redirects=3)
    if response.status != 200:
        raise AuthorizationError(f"{quoted(url)} answers with status {response.status}", temporary=True)
    return response


def _kept_seconds(response: Response) -> float:
    shortest, longest = _KEPT
    found = max_age(response.headers)
    return shortest * 5 if found is None else min(max(found, shortest), longest)


def _decoded(part: str) -> bytes:
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))


_COMPACT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
