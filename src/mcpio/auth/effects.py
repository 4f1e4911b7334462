"""Effects: the requests of a flow to its driver, as data. Fetches, stored credentials, redirects, people.

A flow is a generator: it yields effects, takes their answers, and returns its result. `run` drives one with a function
that blocks. An effect that fails is thrown into the flow as an `EffectFailed`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import attrs

from mcpio.auth.documents import MAX_DOCUMENT, DocumentCache
from mcpio.auth.errors import EffectFailed
from mcpio.auth.pkce import Entropy
from mcpio.auth.reach import Reach
from mcpio.auth.secret import Secret

if TYPE_CHECKING:
    from mcpio.auth.pending import PendingAuthorization

__all__ = [
    "AskUser",
    "BindRedirect",
    "CloseRedirect",
    "Effect",
    "Fetch",
    "Flow",
    "FlowContext",
    "Headers",
    "LoadCredentials",
    "LockCredentials",
    "NeedAssertion",
    "Pause",
    "Response",
    "RestoreCredentials",
    "SaveCredentials",
    "ShowCode",
    "Stored",
    "UnlockCredentials",
    "run",
]

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


@attrs.frozen(kw_only=True)
class FlowContext:
    """The inputs that every flow shares."""

    server_url: str
    """The URL of the MCP server, as the program gave it."""
    entropy: Entropy
    """Returns that many unpredictable bytes."""
    now: float
    """The time at which the flow begins, in Unix seconds."""
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
