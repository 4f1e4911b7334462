"""A protected server: its metadata and challenges, and the machine that admits requests by their tokens."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, cast
from urllib.parse import parse_qs, urlsplit

import attrs

from mcpio._checks import called, checked, is_amount, of_kind, required
from mcpio.auth.effects import Fetch, Flow, FlowContext, Headers, Response
from mcpio.auth.grant import OFFLINE_ACCESS, Grant, format_scopes, included_scopes, missing_scopes
from mcpio.auth.keys import Entropy, Secret, as_secret, base64url
from mcpio.auth.payloads import Moment, bearer_challenge, mapping_of, scopes_of
from mcpio.auth.urls import AuthorizationError, EffectFailed, Reach, canonical_resource, resource_metadata_urls
from mcpio.auth.verifiers import DPOP_ALGORITHMS, InvalidToken, NeedKeys, Verifier
from mcpio.engine.limits import check_time

if TYPE_CHECKING:
    from mcpio.auth.verifiers import ProofChecker

_AGO: Final = float("-inf")
_NEVER: Final = float("inf")

MAX_TOKEN: Final = 16 * 1024
"""The most characters of a token."""
_DPOP: Final = ("off", "allow", "require")
_SCHEMES: Final = {"off": ("bearer",), "allow": ("bearer", "dpop"), "require": ("dpop",)}
WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
MOST_LOADING: Final = 64
"""How many fetches are under way at once."""
KEYS_SECONDS: Final = 5.0
"""How long a request waits for keys."""


@attrs.frozen
class Refused:
    """A request that is not admitted, as an HTTP response. It says the same for every invalid token (AUTH-47)."""

    status: int
    """401 without a valid token, 403 without the scopes, 400 for a malformed request, 503 where keys are missing."""
    message: str
    """For people."""
    headers: Headers = ()
    """``www-authenticate``, where a token would help."""
    why: tuple[InvalidToken, ...] = attrs.field(default=(), eq=False, repr=False)
    """Why a token was refused, for the log of the server; empty without a token."""


def _resource(url: str | None) -> str | None:
    return None if url is None else canonical_resource(url)


def _verifiers(value: Verifier | Iterable[Verifier]) -> tuple[Verifier, ...]:
    verifiers = tuple(value) if isinstance(value, list | tuple) else (cast("Verifier", value),)
    for each in verifiers:
        if not callable(getattr(each, "verify", None)):
            raise TypeError(f"verify must be a verifier, such as ApiKeys or JwtVerifier, or a list, not {each!r:.100}")
    return verifiers


def _texts(value: Iterable[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _scopes(value: Iterable[str]) -> frozenset[str]:
    return scopes_of(value) or frozenset()


def _hierarchy(value: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    hierarchy = mapping_of("hierarchy", value)
    return {scope: scopes_of(included, "hierarchy") or frozenset() for scope, included in hierarchy.items()}


@attrs.frozen(kw_only=True)
class ResourceServer:
    """Requirements and metadata of a protected server (AUTH-07). Raises ValueError for options that conflict."""

    resource: str | None = attrs.field(default=None, converter=_resource)
    """The URL of the MCP endpoint as clients know it: the audience of tokens. Only API keys do without."""
    authorization_servers: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    """The issuers of tokens."""
    verify: tuple[Verifier, ...] = attrs.field(converter=_verifiers)
    """A verifier, or several of which the first that knows a token decides."""
    scopes: frozenset[str] = attrs.field(default=frozenset(), converter=_scopes)
    """The scopes that every request needs."""
    scopes_supported: frozenset[str] = attrs.field(default=frozenset(), converter=_scopes)
    """The scopes that the metadata lists."""
    hierarchy: Mapping[str, Iterable[str]] = attrs.field(factory=dict, converter=_hierarchy)
    """Which scopes a scope includes (AUTH-36)."""
    name: str | None = attrs.field(default=None, validator=of_kind(str, optional=True))
    """The name of the resource, for people."""
    metadata_url: str | None = attrs.field(default=None, validator=of_kind(str, optional=True))
    """The URL of the metadata in challenges: by default that of RFC 9728 at the root of the host, for ``asgi.app`` the
    one below the resource. Every URL serves the same document."""
    dpop: Literal["off", "allow", "require"] = attrs.field(default="off", validator=attrs.validators.in_(_DPOP))
    """Whether tokens may, or must, be bound to a key that each request proves (RFC 9449). Needs the extra ``auth``."""
    dpop_nonces: Secret | None = attrs.field(default=None, converter=attrs.converters.optional(as_secret), repr=False)
    """A key of this server's, the same in all of its processes: proofs then need a nonce that was made with it."""
    mtls: bool = attrs.field(default=False, validator=of_kind(bool))
    """Whether tokens may be bound to the certificate of a client (RFC 8705), which only its connection can show."""
    outlive_token: bool = attrs.field(default=False, validator=of_kind(bool))
    """Whether a listening stream stays open when its token expires. By default it ends, and the client reopens it with
    a new token."""

    def __attrs_post_init__(self) -> None:
        if not self.verify:
            raise ValueError("verify must be one verifier or more, not empty: without one every request is refused")
        needs_metadata = any(each.challenges_with_metadata for each in self.verify)
        if self.mtls and self.resource is not None and self.resource.startswith("http:"):
            raise ValueError(f"resource must begin with https: if mtls=True, not {self.resource!r:.200}")
        if needs_metadata and (self.resource is None or not self.authorization_servers):
            raise ValueError("resource and authorization_servers must be given for tokens: their audience and issuers")
        if self.metadata_url is not None and not (self.metadata_url.isascii() and self.metadata_url.isprintable()):
            raise ValueError(f"metadata_url must be printable ASCII, not {self.metadata_url!r:.200}")

    def document(self) -> dict[str, Any]:
        """Return the protected resource metadata (RFC 9728 §2). Raises ValueError without a resource."""
        if self.resource is None:
            raise ValueError("a server without resource= has no metadata")
        document: dict[str, Any] = {
            "resource": self.resource,
            "authorization_servers": list(self.authorization_servers),
            "bearer_methods_supported": ["header"],
        }
        if self.dpop != "off":
            document["dpop_signing_alg_values_supported"] = list(DPOP_ALGORITHMS)
            document["dpop_bound_access_tokens_required"] = self.dpop == "require"
        if self.mtls:
            document["tls_client_certificate_bound_access_tokens"] = True
        # A refresh token is a matter between a client and its authorization server (AUTH-40).
        if scopes := (self.scopes | self.scopes_supported) - {OFFLINE_ACCESS}:
            document["scopes_supported"] = sorted(scopes)
        if self.name is not None:
            document["resource_name"] = self.name
        return document

    def metadata_paths(self, endpoint: str | None = None) -> tuple[str, ...]:
        """Return the paths at which to serve the document: both well-known ones, and one below the endpoint (AUTH-09).

        The last is for applications that are mounted at a path and cannot serve the root of their host. ``endpoint`` is
        the path that the endpoint has within such an application.
        """
        if self.resource is None:
            return ()
        within = [] if endpoint is None else [WELL_KNOWN, endpoint.rstrip("/") + WELL_KNOWN]
        paths = [urlsplit(url).path for url in resource_metadata_urls(self.resource)]
        return tuple(dict.fromkeys([*paths, urlsplit(self.metadata_url_below or "").path, *within]))

    @property
    def metadata_url_below(self) -> str | None:
        """The URL of the metadata below the resource; ``None`` without a resource."""
        if self.resource is None:
            return None
        endpoint, question_mark, query = self.resource.partition("?")
        return endpoint.rstrip("/") + WELL_KNOWN + question_mark + query

    @property
    def request_fields(self) -> frozenset[str]:
        """The header fields of a request that decide whether it is admitted, in lower case."""
        return frozenset({"authorization", "dpop", *(each.header for each in self.verify)})

    def refusal(self, status: int, message: str, error: str | None = None, scopes: Iterable[str] = ()) -> Refused:
        """Return a refusal with its challenge (AUTH-08, AUTH-32, AUTH-34)."""
        needed = self.scopes | frozenset(scopes)
        metadata = self.metadata_url
        if metadata is None and self.resource is not None:
            metadata = resource_metadata_urls(self.resource)[0]
        fields = []
        for scheme in {"off": ("Bearer",), "allow": ("DPoP", "Bearer"), "require": ("DPoP",)}[self.dpop]:
            challenge = bearer_challenge(
                scheme,
                realm="mcp" if metadata is None else None,
                error=error,
                scope=format_scopes(needed - {OFFLINE_ACCESS}) or None,
                algs=" ".join(DPOP_ALGORITHMS) if scheme == "DPoP" else None,
                resource_metadata=metadata,
            )
            fields.append(("www-authenticate", str(challenge)))
        return Refused(status, message, tuple(fields))

    def insufficient(self, scopes: Iterable[str]) -> Refused:
        """Return the refusal of a request whose token lacks scopes; name all that the request needs (AUTH-34)."""
        return self.refusal(403, "The token has too few scopes", "insufficient_scope", scopes)


@attrs.frozen
class Admission:
    """The verdict on a request that waited for keys."""

    request: Hashable
    """The name that its caller gave it."""
    verdict: Grant | Refused
    """The grant of the request, or the response that refuses it."""


@attrs.define  # One for each request: frozen would cost more than it is worth.
class _Presented:
    """A token, and the parts of its request that bind it."""

    token: Secret
    header: str
    """The header field that it came in: only verifiers for that field see it."""
    is_proved: bool
    """Whether its scheme is ``DPoP``."""
    proof: str | None
    method: str
    target: str
    certificate: str | None
    loaded: frozenset[int] = frozenset()
    """The verifiers that have fetched for it."""


@attrs.define
class _Loading:
    """A flow that fetches data for a verifier, and the requests that wait for it."""

    flow: Flow[None]
    awaited: int = 0
    deadline: float = 0.0
    waiting: list[tuple[Hashable, _Presented]] = attrs.field(factory=list)


class Guard:
    """Admits requests to a protected server. One fetch of keys serves all requests that wait for it.

    After every verb: drain the effects and the admissions, and re-arm the deadline.
    """

    server: ResourceServer
    """The options of the server."""
    epoch: float
    """The Unix time at ``now == 0``. Set it again if the clock of ``now`` may have stopped."""

    def __init__(
        self,
        server: ResourceServer,
        *,
        epoch: float = 0.0,
        reach: Reach | None = None,
        entropy: Entropy = bytes,
    ) -> None:
        self.server: ResourceServer = required("server", server, ResourceServer)
        called("entropy", entropy)
        checked("reach", reach, Reach)
        if not is_amount(epoch, float("-inf")):
            raise TypeError(f"epoch must be a number of seconds, not {epoch!r:.60}")
        self.epoch = epoch
        self._token_fields = frozenset(each.header for each in server.verify)
        self._schemes = _SCHEMES[server.dpop]
        self._url = server.resource or "https://localhost"
        # For the ids of signed assertions, with which a verifier may authenticate.
        self._entropy = entropy
        self._reach = Reach.of_url(self._url) if reach is None else reach
        self._loading: dict[tuple[int, Hashable], _Loading] = {}
        self._effects: deque[Fetch] = deque()
        self._admissions: deque[Admission] = deque()
        # Bounded, for programs that never ask.
        self._failures: deque[AuthorizationError] = deque(maxlen=MOST_LOADING)
        self._tokens = 0
        self._checker: ProofChecker | None = None

    def admit(
        self,
        request: Hashable,
        headers: Headers,
        target: str,
        now: float,
        *,
        method: str = "POST",
        certificate: str | None = None,
    ) -> Grant | Refused | None:
        """Judge a request by its header fields and its target; ``None``: `next_admission` will say.

        Exactly one field may have a token, and the query none (AUTH-05). The audience is always checked (AUTH-37).
        ``certificate`` is the SHA-256 of the client's certificate, in hexadecimal.
        """
        if now.__class__ is not float or not _AGO < now < _NEVER:
            check_time(now)
        presented = self._presented(headers, method, target, certificate)
        return presented if isinstance(presented, Refused) else self._judge(request, presented, now)

    def next_admission(self) -> Admission | None:
        """Return a verdict that was waited for, or ``None``."""
        return self._admissions.popleft() if self._admissions else None

    def next_effect(self) -> Fetch | None:
        """Return a `Fetch` to do, or ``None``."""
        return self._effects.popleft() if self._effects else None

    def next_failure(self) -> AuthorizationError | None:
        """Return why what verifiers need could not be fetched, or ``None``.

        For the log: clients get 503 and no reason, or are served by keys from before. It shows no token.
        """
        return self._failures.popleft() if self._failures else None

    def next_deadline(self) -> float | None:
        """Return when to call `handle_timeout`, or ``None``."""
        return min((each.deadline for each in self._loading.values()), default=None)

    def answer(self, token: int, response: Response, now: float) -> None:
        """Answer a `Fetch`."""
        check_time(now)
        timed = attrs.evolve(required("response", response, Response), at=self.epoch + now)
        self._answer(token, lambda flow: flow.send(timed), now)

    def failed(self, token: int, reason: str, now: float) -> None:
        """Report that a `Fetch` failed."""
        check_time(now)
        self._answer(token, lambda flow: flow.throw(EffectFailed(reason)), now)

    def handle_timeout(self, now: float) -> None:
        """Abandon fetches that take too long; the requests that wait for them are refused with 503."""
        check_time(now)
        for each in [each for each in self._loading.values() if each.deadline <= now]:
            self.failed(each.awaited, "the keys did not come in time", now)

    def _presented(self, headers: Headers, method: str, target: str, certificate: str | None) -> _Presented | Refused:
        # RFC 6750 §5.3: URLs end up in logs and histories.
        if "?" in target and "access_token" in parse_qs(target.partition("?")[2], keep_blank_values=True):
            return self._refusal(400, "A token must not be in the URL", "invalid_request", _IN_URL)
        tokens, proofs = [], []
        for name, value in headers:
            name = name.lower()  # noqa: PLW2901  the name is meant in lower case only
            if name in self._token_fields:
                tokens.append((name, value.strip()))
            elif name == "dpop":
                proofs.append(value.strip())
        if not tokens:
            return self.server.refusal(401, "Authorization is required")
        if len(tokens) > 1:
            # A proxy in front may have judged the other one.
            return self._refusal(400, "One request has one token", "invalid_request", _SEVERAL)
        [(header, token)] = tokens
        is_proved = False
        if header == "authorization":
            scheme, _, token = token.partition(" ")
            scheme, token = scheme.lower(), token.lstrip()
            is_proved = scheme == "dpop"
            if scheme not in self._schemes:
                # Without its value: what comes without a scheme may be a token.
                fault = InvalidToken("the scheme of Authorization", "another one", " or ".join(self._schemes))
                return self._refusal(401, "Authorization is required", None, fault)
            if is_proved and len(proofs) != 1:
                return self._refusal(401, "One request has one proof", "invalid_dpop_proof", _NO_PROOF)
        if len(token) > MAX_TOKEN or _B64TOKEN.fullmatch(token) is None:
            return self._invalid(_NO_TOKEN)
        proof = proofs[0] if is_proved else None
        return _Presented(Secret(token), header, is_proved, proof, method, target, certificate)

    def _judge(self, request: Hashable, shown: _Presented, now: float) -> Grant | Refused | None:
        at, faults = Moment(self.epoch, now), list[InvalidToken]()
        for verifier in self.server.verify:
            if verifier.header != shown.header:
                continue
            verdict = verifier.verify(shown.token, self.server.resource, at)
            if isinstance(verdict, Grant):
                is_bound = verdict.confirmation or shown.is_proved
                if is_bound and (refused := self._unbound(verdict, shown, at)) is not None:
                    return refused
                if self.server.scopes and missing_scopes(verdict.scopes, self.server.scopes, self.server.hierarchy):
                    fault = InvalidToken.of("scope", sorted(verdict.scopes), format_scopes(self.server.scopes))
                    return attrs.evolve(self.server.insufficient(()), why=(fault,))
                if self.server.hierarchy:
                    return attrs.evolve(verdict, scopes=included_scopes(verdict.scopes, self.server.hierarchy))
                return verdict
            if isinstance(verdict, InvalidToken):
                faults.append(verdict)
            elif isinstance(verdict, NeedKeys) and id(verifier) not in shown.loaded:
                return self._load(verifier, request, shown, now)
        return self._invalid(*faults or [_UNKNOWN])

    def _unbound(self, grant: Grant, shown: _Presented, at: Moment) -> Refused | None:
        """Return the refusal of a request that does not prove the key of its bound token, or ``None``."""
        thumbprint = grant.confirmation.get("x5t#S256")
        if thumbprint is not None and (
            not self.server.mtls
            or shown.certificate is None
            or thumbprint != base64url(bytes.fromhex(shown.certificate))
        ):
            is_off = not self.server.mtls
            return self._invalid(_CERTIFICATE_OFF if is_off else _CERTIFICATE)
        key = grant.confirmation.get("jkt")
        if key is None and not shown.is_proved:
            return None
        if key is None or shown.proof is None or self.server.resource is None:
            return self._invalid(_UNBOUND)
        fault = self._proofs().check(
            shown.proof,
            method=shown.method,
            resource=self.server.resource,
            target=shown.target,
            token=shown.token,
            at=at,
            now=at.now,
        )
        if isinstance(fault, str):
            return None if fault == key else self._invalid(_OTHER_KEY)
        if fault.error == "overloaded":
            return _UNAVAILABLE
        refused = self.server.refusal(401, "The proof is not valid", fault.error)
        nonce = () if fault.nonce is None else (("dpop-nonce", fault.nonce),)
        return attrs.evolve(refused, headers=(*refused.headers, *nonce), why=fault.why)

    def _proofs(self) -> ProofChecker:
        if self._checker is None:
            from mcpio.auth.verifiers import ProofChecker  # needs joserfc

            self._checker = ProofChecker(self.server.dpop_nonces)
        return self._checker

    def _invalid(self, *why: InvalidToken) -> Refused:
        # The same for a token that is unknown, expired or for another server: a difference would tell which.
        return self._refusal(401, "The token is not valid", "invalid_token", *why)

    def _refusal(self, status: int, message: str, error: str | None, *why: InvalidToken) -> Refused:
        return attrs.evolve(self.server.refusal(status, message, error), why=why)

    def _load(self, verifier: Verifier, request: Hashable, shown: _Presented, now: float) -> Refused | None:
        key = (id(verifier), verifier.load_key(shown.token))
        loading = self._loading.get(key)
        if loading is not None:
            loading.waiting.append((request, shown))
            return None
        if len(self._loading) >= MOST_LOADING:
            # Unknown tokens come from anyone: they must not make this server flood its authorization server.
            return _UNAVAILABLE
        context = FlowContext(
            server_url=self._url, entropy=self._entropy, now=Moment(self.epoch, now), reach=self._reach
        )
        flow = verifier.load_keys(context, shown.token)
        loading = self._loading[key] = _Loading(flow, deadline=now + KEYS_SECONDS, waiting=[(request, shown)])
        self._advance(key, loading, next, now)
        return None

    def _answer(self, token: int, step: Any, now: float) -> None:
        for key, loading in self._loading.items():
            if loading.awaited == token:
                self._advance(key, loading, step, now)
                return

    def _advance(self, key: tuple[int, Hashable], loading: _Loading, step: Any, now: float) -> None:
        try:
            effect = _fetch_of(step(loading.flow))
        except StopIteration:
            self._finish(key, loading, None, now)
        except AuthorizationError as error:
            self._finish(key, loading, error, now)
        except Exception as error:
            # A mistake in a verifier of the program's must not leave the other requests waiting for ever.
            self._finish(key, loading, _broken(error), now)
        else:
            self._tokens += 1
            loading.awaited = self._tokens
            left = max(0.0, loading.deadline - now)
            self._effects.append(attrs.evolve(effect, token=self._tokens, timeout=left))

    def _finish(
        self, key: tuple[int, Hashable], loading: _Loading, failure: AuthorizationError | None, now: float
    ) -> None:
        """Judge the requests that waited for a flow, which may have failed."""
        del self._loading[key]
        if failure is not None:
            self._failures.append(failure)
        for request, shown in loading.waiting:
            try:
                verdict = self._judge(request, attrs.evolve(shown, loaded=shown.loaded | {key[0]}), now)
            except Exception as error:
                self._failures.append(_broken(error))
                verdict = _UNAVAILABLE
            if failure is not None and isinstance(verdict, Refused):
                # Fail closed, and do not blame the token.
                verdict = _UNAVAILABLE
            if verdict is not None:  # otherwise it waits for another verifier
                self._admissions.append(Admission(request, verdict))


def _fetch_of(effect: Any) -> Fetch:
    if not isinstance(effect, Fetch):
        raise TypeError(f"load_keys may yield Fetch, not {type(effect).__name__}")
    return effect


def _broken(error: Exception) -> AuthorizationError:
    failure = AuthorizationError(f"a verifier raised {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


_IN_URL: Final = InvalidToken("access_token", "in the URL", "a token in a header field")
_SEVERAL: Final = InvalidToken("the token", "there several times", "one header field with a token")
_NO_PROOF: Final = InvalidToken("the proof", "missing, or there several times", "one header field DPoP")
_NO_TOKEN: Final = InvalidToken("the token", "too long, or has other characters", "the form of a bearer token")
_UNKNOWN: Final = InvalidToken("the token", "unknown", "one that verify= accepts")
_CERTIFICATE_OFF: Final = InvalidToken("cnf", "x5t#S256", "none without mtls=True")
_CERTIFICATE: Final = InvalidToken("the certificate", "missing or another one", "the one that cnf.x5t#S256 names")
_UNBOUND: Final = InvalidToken("cnf", "without the key of the request, or the request without a proof", "both or none")
_OTHER_KEY: Final = InvalidToken("the key of the proof", "another one", "the one that cnf.jkt names")
_UNAVAILABLE: Final = Refused(503, "Tokens cannot be verified now", (("retry-after", "30"),))
_B64TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
