"""What a flow asks its driver to do, and the credentials that it keeps."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, TypeAlias, TypeVar

import attrs

from mcpio._checks import called
from mcpio.auth.keys import Entropy, Secret, as_secret
from mcpio.auth.payloads import (
    MAX_DOCUMENT,
    TOKEN,
    AuthorizationOptions,
    AuthorizationServerMetadata,
    Challenge,
    DocumentCache,
    Registration,
    TokenSet,
)
from mcpio.auth.urls import AuthorizationError, EffectFailed, Reach
from mcpio.framing.json import dumps, loads

if TYPE_CHECKING:
    from cattrs import Converter

    from mcpio.auth.payloads import PendingAuthorization


# -------------------------------------------------------------------------------------------------------------- effects
# Effects: the requests of a flow to its driver, as data. Fetches, stored credentials, redirects, people.
# A flow is a generator: it yields effects, takes their answers, and returns its result. `run` drives one with a
# function that blocks. An effect that fails is thrown into the flow as an `EffectFailed`.

T = TypeVar("T")

Headers: TypeAlias = Sequence[tuple[str, str]]
"""Header fields as (name, value), names in lower case."""

FETCH_TIMEOUT: Final = 10.0


@attrs.frozen(kw_only=True)
class Fetch:
    """Make an HTTP request. The answer is a `Response`, of any status."""

    method: Literal["GET", "POST"]
    url: str
    """An absolute URL, already checked: https, or http on loopback."""
    headers: Headers = attrs.field(default=(), repr=False)
    """The header fields. They may hold credentials."""
    body: bytes | None = attrs.field(default=None, repr=False)
    """The whole body. It may hold credentials."""
    timeout: float = FETCH_TIMEOUT
    """Seconds for the whole exchange."""
    max_bytes: int = MAX_DOCUMENT
    """The most bytes of a body to read; one byte more is a failure."""
    reach: Reach = Reach.PUBLIC
    """Which addresses the connection may lead to. Ask `Reach.allows` with the connected address."""
    redirects: int = 0
    """How many redirects may be followed, within the origin of the URL. A further one is the response."""
    token: int = 0
    """The name of the effect within its machine."""


@attrs.frozen
class Response:
    """An HTTP response as a whole."""

    status: int
    headers: Headers = attrs.field(default=(), repr=False)
    """The header fields, names in lower case."""
    body: bytes = attrs.field(default=b"", repr=False)
    """The body."""
    at: float = 0.0
    """When it came, in Unix seconds: the lifetimes of tokens are counted from here."""


@attrs.frozen(kw_only=True)
class LockCredentials:
    """Acquire the lock of ``key``, waiting for other machines and processes. The answer is ``None``."""

    key: str
    """The key of the record: the server and the account."""
    token: int = 0
    """The name of the effect within its machine."""


@attrs.frozen(kw_only=True)
class UnlockCredentials:
    """Release the lock of ``key``. Takes no answer."""

    key: str
    """The key of the record: the server and the account."""
    token: int = 0
    """The name of the effect within its machine."""


@attrs.frozen(kw_only=True)
class LoadCredentials:
    """Read the credentials stored under ``key``. The answer is `Stored`, or ``None`` if none are stored."""

    key: str
    """The key of the record: the server and the account."""
    token: int = 0
    """The name of the effect within its machine."""


@attrs.frozen(kw_only=True)
class SaveCredentials:
    """Store a record if the stored version is still ``version``.

    The answer is the new version, or ``None`` where another version is stored, and nothing was changed.
    """

    key: str
    """The key of the record: the server and the account."""
    record: Secret
    """The record as one text."""
    version: int | None
    """The version to replace; ``None`` if nothing is stored yet."""
    token: int = 0
    """The name of the effect within its machine."""


@attrs.frozen(kw_only=True)
class RestoreCredentials:
    """Replace the stored record by ``record`` if it is still ``marked``: see `restore_credentials`. Takes no answer.

    A renewal marks the record before it presents the refresh token. One that was cancelled or had no answer gives the
    token back by this effect, before it releases the lock.
    """

    key: str
    """The key of the record: the server and the account."""
    marked: Secret
    """The record of the renewal that has ended."""
    record: Secret
    """The record that replaces it."""
    token: int = 0
    """The name of the effect within its machine."""


@attrs.frozen
class Stored:
    """A stored record and its version, which is different after every change."""

    record: Secret
    """The record as one text."""
    version: int


@attrs.frozen(kw_only=True)
class BindRedirect:
    """Listen for the redirect of a browser on a loopback address. The answer is the redirect URI with its port.

    It comes before the client is registered, so that the registered URI is the bound one.
    """

    host: str = "127.0.0.1"
    """The host of the URI: a loopback address, or ``localhost``, which is both 127.0.0.1 and ::1."""
    port: int | None
    """The port that is wanted, because it is registered or was given; ``None`` for any."""
    is_fixed: bool = False
    """Whether another port is of no use, because the client was registered with this one by hand."""
    path: str
    """The path of the URI, and its query if it has one."""
    token: int = 0
    """The name of the effect within its machine."""


@attrs.frozen(kw_only=True)
class CloseRedirect:
    """Stop listening for the redirect, and asking the person. Takes no answer."""

    token: int = 0
    """The name of the effect within its machine."""


@attrs.frozen(kw_only=True)
class AskUser:
    """Ask a person to log in at ``url``: open a browser, or print the URL and read a pasted callback URL.

    The answer is the URL that the browser was sent to afterwards. Show the other attributes beside the URL.
    """

    url: str
    pending: PendingAuthorization
    """The state of the flow, which another process may finish."""
    expires_at: float
    """Until when the machine waits, in Unix seconds."""
    issuer: str
    """The authorization server."""
    client_id: str
    """The id of the client at the authorization server."""
    scopes: frozenset[str]
    """The scopes."""
    resource: str
    token: int = 0
    """The name of the effect within its machine."""


@attrs.frozen(kw_only=True)
class ShowCode:
    """Show a person a code to enter at ``verification_uri`` on another device (RFC 8628 §3.3). Takes no answer."""

    user_code: str
    """The code to enter."""
    verification_uri: str
    """The URL at which to enter it."""
    verification_uri_complete: str | None
    """The same with the code in it, for a QR code, where the server gives one."""
    expires_at: float
    """In Unix seconds."""
    token: int = 0
    """The name of the effect within its machine."""


@attrs.frozen(kw_only=True)
class NeedAssertion:
    """Get a JWT from a key service, a platform or an identity provider. The answer is the JWT as a `Secret`."""

    kind: Literal["client", "workload", "id_token", "access_token"]
    """A client assertion (RFC 7523 §2.2), a workload's own token (§2.1), the id token of a person, or a token that is
    sent as it is."""
    audience: str
    """The issuer that the JWT is for: its ``aud``."""
    client_id: str | None = None
    """Its ``iss`` and ``sub`` where it is a client assertion."""
    resource: str | None = None
    scopes: frozenset[str] = frozenset()
    """The scopes."""
    token: int = 0
    """The name of the effect within its machine."""


@attrs.frozen(kw_only=True)
class Pause:
    """Wait for some seconds. The answer is ``None``."""

    seconds: float
    """How many seconds."""
    token: int = 0
    """The name of the effect within its machine."""


Effect: TypeAlias = (
    Fetch
    | LockCredentials
    | UnlockCredentials
    | LoadCredentials
    | SaveCredentials
    | RestoreCredentials
    | BindRedirect
    | CloseRedirect
    | AskUser
    | ShowCode
    | NeedAssertion
    | Pause
)

Flow: TypeAlias = Generator[Effect, Any, T]
"""A flow that returns a ``T``, or raises an `AuthorizationError`."""


@attrs.define(kw_only=True)
class FlowContext:
    """The inputs that every flow shares."""

    server_url: str
    """The URL of the MCP server, as the program gave it."""
    entropy: Entropy
    """Returns that many unpredictable bytes."""
    now: float
    """The time, in Unix seconds, by which the flow dates proofs, assertions and tokens. Set it to the present before
    each answer: a person may take minutes to log in, and servers refuse a proof that is older."""
    reach: Reach = Reach.PUBLIC
    """Which addresses its fetches may lead to."""
    documents: DocumentCache = attrs.field(factory=DocumentCache, repr=False)
    """The metadata that flows have fetched before."""


def run(flow: Flow[T], perform: Callable[[Effect], Any]) -> T:
    """Run a flow to its end and return its result; ``perform`` blocks and returns the answer of each effect.

    An `EffectFailed` that ``perform`` raises goes into the flow. Raises AuthorizationError where the flow fails.
    """
    try:
        effect = next(flow)
        while True:
            try:
                answer = perform(effect)
            except EffectFailed as error:
                effect = flow.throw(error)
            else:
                effect = flow.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


# ---------------------------------------------------------------------------------------------------------- credentials
# Credentials that a client keeps between two runs: registrations, tokens, and the metadata to renew them.

_VERSION: Final = 1
"""The version of the layout, in every text that is written."""


@attrs.frozen
class Credentials:
    """The credentials of one account at one MCP server."""

    token: TokenSet | None = None
    """The current token."""
    server: AuthorizationServerMetadata | None = None
    """The issuer of the token: a refresh after a restart needs its endpoints."""
    registrations: Mapping[str, Registration] = attrs.field(factory=dict)
    """The clients, by issuer."""
    requested: frozenset[str] = frozenset()
    """All scopes that were requested for the token, so that a further request loses none (AUTH-35)."""
    spent_at: float | None = None
    """When the refresh token was presented, in Unix seconds, and ``None`` once the answer is known. A token that a
    process presented without living to see the answer is presented no second time."""

    proof_key: Secret | None = None
    """The private key of bound tokens, as PEM. A public client's refresh token is bound to it too."""

    def authorized(
        self,
        token: TokenSet,
        server: AuthorizationServerMetadata,
        client: Registration,
        requested: frozenset[str],
        proof_key: Secret | None = None,
    ) -> Self:
        """Return the credentials with a new token; ``proof_key`` is the key that it is bound to."""
        return attrs.evolve(
            self,
            token=token,
            server=attrs.evolve(server, document={}),
            registrations=self.with_registration(client).registrations,
            requested=requested,
            spent_at=None,
            proof_key=proof_key,
        )

    def without_registration(self, issuer: str) -> Self:
        """Return the credentials without the client of an issuer, and without the refresh token that it obtained."""
        registrations = {name: each for name, each in self.registrations.items() if name != issuer}
        token = self.token
        if token is not None and token.issuer == issuer:
            token = attrs.evolve(token, refresh_token=None)
        return attrs.evolve(self, registrations=registrations, token=token)

    def with_registration(self, client: Registration) -> Self:
        """Return the credentials with a client, in place of the one of the same issuer."""
        return attrs.evolve(self, registrations={**self.registrations, client.issuer: client})

    @property
    def refresh_token(self) -> Secret | None:
        """The refresh token, unless it was presented already."""
        return None if self.token is None or self.spent_at is not None else self.token.refresh_token


class CredentialStore(Protocol):
    """Keeps credentials by key. `MemoryCredentials` is one, and so are the classes of ``mcpio.stores``."""

    def load(self, key: str) -> Stored | None:
        """Return the record of a key and its version, or ``None``."""

    def swap(self, key: str, record: Secret, version: int | None) -> int | None:
        """Replace the record of that version. Returns the new version, or ``None`` where another one is stored."""

    def forget(self, key: str) -> None:
        """Remove the record of a key."""

    def keys(self) -> list[str]:
        """Return the keys of all records."""

    def try_lock(self, key: str) -> bool:
        """Acquire the lock of a key, without waiting. Returns whether it was free."""

    def unlock(self, key: str) -> None:
        """Release the lock of a key. Does nothing if it is not held."""

    @property
    def blocking(self) -> bool:
        """Whether its calls may take long, and belong into a thread."""


class MemoryCredentials:
    """Keeps credentials as long as the process lives. A store for drivers: every call returns at once."""

    blocking: bool = False

    def __init__(self) -> None:
        self._stored: dict[str, Stored] = {}
        self._locked: set[str] = set()
        self._last_version = 0

    def load(self, key: str) -> Stored | None:
        """Return the record of a key and its version, or ``None``."""
        return self._stored.get(key)

    def swap(self, key: str, record: Secret, version: int | None) -> int | None:
        """Replace the record of that version. Returns the new version, or ``None`` where another one is stored."""
        stored = self._stored.get(key)
        if (stored.version if stored else None) != version:
            return None
        # Never one from before: a record that was forgotten and stored again is another one.
        self._last_version += 1
        self._stored[key] = Stored(record, self._last_version)
        return self._last_version

    def forget(self, key: str) -> None:
        """Remove the record of a key."""
        self._stored.pop(key, None)

    def keys(self) -> list[str]:
        """Return the keys of all records."""
        return list(self._stored)

    def try_lock(self, key: str) -> bool:
        """Acquire the lock of a key, without waiting. Returns whether it was free."""
        if key in self._locked:
            return False
        self._locked.add(key)
        return True

    def unlock(self, key: str) -> None:
        """Release the lock of a key. Does nothing if it is not held."""
        self._locked.discard(key)


def to_text(value: Any) -> Secret:
    """Return credentials or a pending authorization as one JSON text, with the secrets in it."""
    members = {"version": _VERSION, "value": _converter().unstructure(value)}
    return Secret(dumps(members).decode())


def from_text(kind: type[T], text: Secret) -> T:
    """Return the value that `to_text` wrote. Raises ValueError for another text, whose parts it does not quote."""
    # cattrs raises groups of anything, with the values in their texts.
    with contextlib.suppress(Exception):
        members = loads(text.reveal())
        if members["version"] == _VERSION:
            return _converter().structure(members["value"], kind)
    raise ValueError(f"not a stored {kind.__name__} of version {_VERSION}")


@functools.cache
def _converter() -> Converter:
    # Imported with its first use, because cattrs is slow to import.
    from cattrs import Converter

    converter = Converter(forbid_extra_keys=True, unstruct_collection_overrides={frozenset: sorted})
    converter.register_unstructure_hook(Secret, Secret.reveal)
    converter.register_structure_hook(Secret, lambda value, _: Secret(_text(value)))
    converter.register_structure_hook(str, lambda value, _: _text(value))
    return converter


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


# ---------------------------------------------------------------------------------------------------------------- given
# Credentials that the program has already: tokens from elsewhere, and API keys.

AssertionSource = str | Secret | Callable[[NeedAssertion], object] | None
"""A JWT or token, or a function that returns one or can be awaited for it. It is called each time one is needed."""


def check_assertion(owner: object, _: object, value: Any) -> None:
    """Raise TypeError for a value that is neither a token nor a function that returns one: an attrs validator."""
    if isinstance(value, str | Secret | None):
        return
    if not callable(value):
        # Without the value, which may be a credential.
        kind = type(value).__name__
        raise TypeError(f"the token of {type(owner).__name__} must be a str, a Secret or a function, not a {kind}")
    called("assertion", value, "(need)")


@attrs.frozen
class BearerToken(AuthorizationOptions):
    """A token from elsewhere, such as a vault or another login.

    ``assertion`` is the token, or a function that is called for it: at the first call, and after a 401.
    """

    assertion: str | Secret | Callable[[NeedAssertion], object] = attrs.field(repr=False, kw_only=False)
    """The token, or what to call for one."""

    @assertion.validator
    def _check_assertion(self, _: object, value: object) -> None:
        if value is None:
            raise TypeError("the token of BearerToken must be a str, a Secret or a function, not None")
        check_assertion(self, _, value)

    def obtain(
        self, context: FlowContext, credentials: Credentials | None = None, challenge: Challenge | None = None
    ) -> Flow[Credentials]:
        """Ask the driver for the token and return ``credentials`` with it."""
        assertion: Secret = yield NeedAssertion(kind="access_token", audience=context.server_url)
        text = assertion.reveal()
        if not (text and text.isascii() and text.isprintable()) or " " in text:
            raise AuthorizationError("the token that was given cannot stand in a header field")
        token = TokenSet(assertion, "", context.server_url, "", float(context.now))
        return attrs.evolve(credentials or Credentials(), token=token)


@attrs.frozen
class ApiKey:
    """A key in a header field of every request. Raises ValueError for a key that is not a valid field value."""

    header: str
    """The name of the field, such as ``"x-api-key"``."""
    key: Secret = attrs.field(converter=as_secret)
    """The key."""

    def __attrs_post_init__(self) -> None:
        text = self.key.reveal()
        if TOKEN.fullmatch(self.header) is None:
            raise ValueError(f"ApiKey: header must be the name of a header field, not {self.header!r:.60}")
        if not (text and text.isascii() and text.isprintable()) or text != text.strip():
            raise ValueError("ApiKey: key must be printable ASCII without surrounding space")
