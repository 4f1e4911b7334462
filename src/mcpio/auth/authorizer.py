"""The client's machine: it authorizes calls to one MCP server, and runs at most one flow at a time for all of them."""

from __future__ import annotations

import contextlib
import enum
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from types import NoneType
from typing import Any, Final, Literal, TypeAlias, TypeVar

import attrs

from mcpio._checks import called, checked, is_amount, required
from mcpio.auth.effects import (
    AskUser,
    BearerToken,
    BindRedirect,
    CloseRedirect,
    Credentials,
    Effect,
    Fetch,
    Flow,
    FlowContext,
    Headers,
    LoadCredentials,
    LockCredentials,
    NeedAssertion,
    Pause,
    Response,
    RestoreCredentials,
    SaveCredentials,
    ShowCode,
    Stored,
    UnlockCredentials,
)
from mcpio.auth.grant import format_scopes, missing_scopes
from mcpio.auth.grants import (
    ClientCredentials,
    Device,
    EnterpriseManaged,
    OAuth,
    WorkloadIdentity,
    load_credentials,
    newest_credentials,
    renew_credentials,
    save_credentials,
)
from mcpio.auth.keys import Entropy, Proofs, Secret
from mcpio.auth.payloads import (
    Challenge,
    DocumentCache,
    LoginRequired,
    Moment,
    PendingAuthorization,
    TokenSet,
    parse_challenges,
    refused_proof,
)
from mcpio.auth.urls import (
    AuthorizationError,
    EffectFailed,
    FlowAbandoned,
    Reach,
    canonical_resource,
    check_redirect_uri,
)
from mcpio.engine.limits import check_time
from mcpio.errors import LocalProtocolError

# ---------------------------------------------------------------------------------------------------------------- table
# The states of a client's authorization at one MCP server, as a table, which alone decides the next state.
# An input named ``SEND_…`` is something the program does, one named ``RECV_…`` something that it learns: from a server,
# a store, a person or the clock. A missing row is therefore a ``LocalProtocolError`` for ``SEND_…``; the machine makes
# no ``RECV_…`` without a row.


class AuthorizationState(enum.Enum):
    """State of the authorization."""

    COLD = "cold"
    """The stored credentials have not been read."""
    LOADING = "loading"
    """The stored credentials are being read."""
    OPEN = "open"
    """No token, and the server has not asked for one. A server that needs no token is never probed."""
    READY = "ready"
    """A token is available."""
    RENEWING = "renewing"
    """A token is being obtained by the refresh token."""
    OBTAINING = "obtaining"
    """A token is being obtained by a whole flow: discovery, registration, authorization."""
    ASKING = "asking"
    """A person is asked to log in. Only this state may last for minutes; timeouts of requests are paused in it."""
    FAILED = "failed"
    """The last flow failed. All calls fail with its error for a while: otherwise each of them would open a browser."""
    CLOSED = "closed"
    """The program closed the machine."""


class AuthorizationInput(enum.Enum):
    """An event that can change the state."""

    SEND_AUTHORIZE = "authorize a call"
    SEND_INTERRUPT = "end a flow that the driver does no effects for"
    SEND_CLOSE = "close"
    RECV_TOKEN = "have a token"
    RECV_NOTHING = "have no token"
    RECV_DUE = "need another token, with a refresh token"
    RECV_UNAUTHORIZED = "need another token, without a refresh token"
    RECV_INSUFFICIENT_SCOPE = "need more scopes"
    RECV_KEPT = "keep the old token for now"
    RECV_INVALID_GRANT = "lose the refresh token"
    RECV_INVALID_CLIENT = "lose the registration"
    RECV_PENDING = "need a person"
    RECV_ANSWER = "have the person's answer"
    RECV_FAILURE = "fail"
    RECV_COOLED = "let some time pass"


def _table() -> dict[tuple[AuthorizationState, AuthorizationInput], AuthorizationState]:
    S, I = AuthorizationState, AuthorizationInput  # noqa: E741, N806  short names keep the rows readable
    table = {
        (S.COLD, I.SEND_AUTHORIZE): S.LOADING,
        (S.LOADING, I.RECV_TOKEN): S.READY,
        (S.LOADING, I.RECV_DUE): S.RENEWING,
        (S.LOADING, I.RECV_NOTHING): S.OPEN,
        # A token that the program has is sent at once; all others only to servers that ask for one.
        (S.LOADING, I.RECV_UNAUTHORIZED): S.OBTAINING,
        (S.OPEN, I.RECV_UNAUTHORIZED): S.OBTAINING,
        (S.READY, I.RECV_DUE): S.RENEWING,
        (S.READY, I.RECV_UNAUTHORIZED): S.OBTAINING,
        # A refresh never gets more scopes (RFC 6749 §6), so a step-up is a whole flow (AUTH-35).
        (S.READY, I.RECV_INSUFFICIENT_SCOPE): S.OBTAINING,
        (S.READY, I.RECV_FAILURE): S.FAILED,
        (S.RENEWING, I.RECV_TOKEN): S.READY,
        (S.RENEWING, I.RECV_KEPT): S.READY,
        (S.RENEWING, I.RECV_INVALID_GRANT): S.OBTAINING,
        (S.RENEWING, I.RECV_INVALID_CLIENT): S.OBTAINING,
        (S.RENEWING, I.RECV_FAILURE): S.FAILED,
        (S.OBTAINING, I.RECV_TOKEN): S.READY,
        (S.OBTAINING, I.RECV_PENDING): S.ASKING,
        (S.OBTAINING, I.RECV_INVALID_CLIENT): S.OBTAINING,
        (S.OBTAINING, I.RECV_FAILURE): S.FAILED,
        (S.ASKING, I.RECV_ANSWER): S.OBTAINING,
        (S.ASKING, I.RECV_FAILURE): S.FAILED,
        (S.FAILED, I.RECV_COOLED): S.COLD,
    }
    for state in (S.LOADING, S.RENEWING, S.OBTAINING, S.ASKING):
        table[state, I.SEND_INTERRUPT] = S.COLD
    for state in S:
        table[state, I.SEND_CLOSE] = S.CLOSED
        if state not in (S.COLD, S.CLOSED):
            table[state, I.SEND_AUTHORIZE] = state
    return table


AUTHORIZATION_TABLE = _table()
"""(state, input) -> the next state."""


# ----------------------------------------------------------------------------------------------------------- authorizer
# The client's machine: it authorizes calls to one MCP server, and runs at most one flow at a time for all of them.
# A program asks `Authorizer.authorize` for the header fields of a call, reports refusals with `Authorizer.refused`,
# does the effects, and makes the calls that `Authorizer.next_ready` names. After every verb: drain the effects, the
# ready calls and the events, and re-arm the deadline.

_AGO: Final = float("-inf")
_NEVER: Final = float("inf")

T = TypeVar("T")

Method: TypeAlias = OAuth | ClientCredentials | WorkloadIdentity | EnterpriseManaged | Device | BearerToken
"""A way to be authorized, with its options."""

FAILED_SECONDS: Final = 30.0
"""How long all calls fail with the error of a flow before another flow is begun."""
STEP_UPS: Final = 2
"""How often one operation may ask for more scopes before it must succeed (AUTH-35)."""
_KEPT_SECONDS: Final = 5.0
"""How long a renewal that was early rests after a temporary failure."""
_STORE_SECONDS: Final = 30.0
_LOCK_SECONDS: Final = 60.0
"""How long to wait while another process renews the token: longer than a renewal can take."""
_ASSERTION_SECONDS: Final = 300.0


class Verdict(enum.Enum):
    """Verdict on a refused call."""

    RETRY = "retry"
    """Repeat the call at once: another token is available already."""
    WAIT = "wait"
    """Keep the call until `Authorizer.next_ready` returns it."""


@attrs.frozen
class Ready:
    """A call that no longer has to wait."""

    call: Hashable
    error: AuthorizationError | None = None
    """Why the call fails; ``None`` to make it now, with the fields that `Authorizer.authorize` returns."""


@attrs.frozen
class Authorized:
    """A token was obtained."""

    kind: Literal["obtained", "renewed", "loaded"]
    """Whether it came from a flow, from a renewal or from the store."""
    issuer: str
    """The authorization server."""
    scopes: frozenset[str]
    """The scopes."""
    expires_at: float | None
    """In Unix seconds."""


@attrs.frozen
class AuthorizationFailed:
    """A flow failed, and all calls fail for a while."""

    error: AuthorizationError
    """The failure."""


@attrs.frozen
class CredentialsNotSaved:
    """The store failed. The token is used all the same, and lost with the process."""

    error: EffectFailed
    """The failure."""


AuthorizationEvent: TypeAlias = Authorized | AuthorizationFailed | CredentialsNotSaved


@attrs.define
class _Call:
    operation: Hashable
    is_background: bool
    """Whether no caller waits for it, so that a person must not be asked on its behalf."""
    generation: int = -1
    """The generation of the token that it was last made with."""
    renewed: bool = False
    obtained: bool = False
    has_nonce: bool = False
    has_proof: bool = False
    """Whether it was last made with a proof."""
    promised: int = -1
    """The generation of the token that it waited for. It is made with that one, however short its life is."""
    needed: frozenset[str] = frozenset()
    """The scopes of its last challenge."""
    challenge: Challenge | None = None


class Authorizer:
    """Authorizes the calls to one MCP server for one account.

    ``method`` says how; ``entropy`` returns unpredictable bytes; ``epoch`` is the Unix time at ``now == 0``.
    ``interaction="never"`` fails where a person is needed, with the URL in the error, for instance in an unattended
    reconnect. ``reach`` says which addresses fetches may lead to; ``None`` to judge by the URL of the server.

    All times named ``now`` are seconds on one monotonic clock of the caller's. Raises ValueError for a URL that is not
    that of an MCP server.
    """

    epoch: float
    """The Unix time at ``now == 0``. Set it again if the clock of ``now`` may have stopped, as while a machine sleeps:
    proofs and expiry times depend on it."""

    def __init__(
        self,
        server_url: str,
        method: Method,
        *,
        entropy: Entropy,
        epoch: float = 0.0,
        interaction: Literal["allow", "never"] = "allow",
        reach: Reach | None = None,
    ) -> None:
        self.server_url: str = required("server_url", server_url, str)
        called("entropy", entropy)
        if not is_amount(epoch, float("-inf")):
            raise TypeError(f"epoch must be a number of seconds, not {epoch!r:.60}")
        if interaction not in ("allow", "never"):
            raise ValueError(f"interaction must be 'allow' or 'never', not {interaction!r:.60}")
        if not isinstance(getattr(method, "account", None), str):
            raise TypeError(f"method must be a way to log in, such as OAuth, not {method!r:.60}")
        checked("reach", reach, Reach)
        self.key: str = f"{canonical_resource(server_url)} {method.account}"
        """The key of the credentials in stores: the server and the account."""
        self._method = method
        self._entropy = entropy
        self.epoch = epoch
        self._interaction = interaction
        self._reach = Reach.of_url(server_url) if reach is None else reach
        self._state = AuthorizationState.COLD
        self._credentials = Credentials()
        # Whether a record of the token was stored. If it is gone later, that was a logout.
        self._was_stored = False
        self._generation = 0
        self._origin: Literal["obtained", "renewed", "loaded"] = "loaded"
        self._is_proven = False
        self._error: AuthorizationError | None = None
        self._renew_not_before = float("-inf")
        self._reregistered = False
        self._nonce: str | None = None
        self._dropped: set[str] = set()
        self._documents = DocumentCache()

        self._calls: dict[Hashable, _Call] = {}
        self._waiting: dict[Hashable, None] = {}
        self._step_ups: dict[Hashable, int] = {}
        self._ready: deque[Ready] = deque()
        self._effects: deque[Effect] = deque()
        self._events: deque[AuthorizationEvent] = deque()

        self._flow: Flow[Any] | None = None
        self._flow_context: FlowContext | None = None
        self._on_result: Callable[[Any, float], None] = _ignore
        self._awaited: Effect | None = None
        self._deadline: float | None = None
        self._tokens = 0
        self._challenge: Challenge | None = None
        self._pending: PendingAuthorization | None = None
        self._shows_code = False
        self._is_bound = False
        # By the token of an effect that was given up: what undoes it, should it be done all the same.
        self._late: dict[int, Effect] = {}

    # What a program looks at.

    @property
    def state(self) -> AuthorizationState:
        """State of the authorization."""
        return self._state

    @property
    def pending(self) -> PendingAuthorization | None:
        """The authorization that waits for a person, for a program that stores it; ``None`` outside of ``ASKING``."""
        return self._pending

    # Calls.

    @property
    def waits_for_person(self) -> bool:
        """Whether a person is at work: at an authorization URL, or with a code on another device."""
        return self._pending is not None or self._shows_code

    def authorize(
        self,
        call: Hashable,
        operation: Hashable,
        now: float,
        *,
        method: str = "POST",
        url: str | None = None,
        background: bool = False,
    ) -> Headers | None:
        """Return the header fields that authorize a call, or ``None``: keep the call until `next_ready` names it.

        ``call`` identifies the call, and ``operation`` its kind, such as the method and the name of the tool: step-ups
        are counted for each operation. ``method`` and ``url`` are those of the HTTP request, for proofs of possession;
        by default it is a POST to the server. ``background`` calls, such as those of a reconnection, never have a
        person asked: where one is needed, they fail with the URL in the error. Empty fields mean that no token is
        needed so far. Report the end of every call with `refused`, `succeeded` or `drop`.

        Raises LocalProtocolError once closed, and for a call that waits already.
        """
        if now.__class__ is not float or not _AGO < now < _NEVER:
            check_time(now)
        if (self._state, AuthorizationInput.SEND_AUTHORIZE) not in AUTHORIZATION_TABLE:
            raise LocalProtocolError("the authorizer is closed")
        if call in self._waiting:
            raise LocalProtocolError("the call waits already")
        self.handle_timeout(now)
        if self._error is not None and self._error.url is not None and not background and self._interaction == "allow":
            # A flow on behalf of the background failed for want of a person, who may be asked now.
            self._cool()
        entry = self._calls.setdefault(call, _Call(operation, background))
        self._admit(now, entry)
        if self._state in _SENDING:
            return self._headers(entry, method, url or self.server_url, now)
        self._waiting[call] = None
        if self._state is AuthorizationState.FAILED:
            self._release(self._error)
        return None

    def refused(
        self,
        call: Hashable,
        status: int,
        challenges: Iterable[str],
        now: float,
        *,
        nonce: str | None = None,
        date: str | None = None,
    ) -> Verdict | AuthorizationError:
        """Return the verdict on a call answered with 401 or 403; ``challenges`` are its ``WWW-Authenticate`` fields.

        ``nonce`` is the value of its ``DPoP-Nonce``, and ``date`` that of its ``Date``, by which the error for a
        refused proof tells how far the clocks are apart. An error is the call's outcome. A 403 without an OAuth
        challenge is one, because no token would help; so is a refused proof, since the token is fine.
        Raises LocalProtocolError for a call that was not authorized here, or waits.
        """
        check_time(now)
        fields = tuple(challenges)
        entry = self._calls.get(call)
        if entry is None or call in self._waiting:
            raise LocalProtocolError("only a call that was made can be refused")
        self.handle_timeout(now)
        parsed = parse_challenges(fields)
        challenge = next((each for each in parsed if each.is_oauth), None)
        # A 401 without any challenge breaks RFC 9110, and servers of 2025-03-26 do so.
        lacks_token = status == 401 and (challenge is not None or not parsed)
        lacks_scope = status == 403 and challenge is not None and challenge.params.get("error") == "insufficient_scope"
        if self._state is AuthorizationState.CLOSED or not (lacks_token or lacks_scope):
            return self._refusal(call, f"the server answers with status {status}", status, fields)
        if nonce is not None:
            self._nonce = nonce
            if challenge is not None and challenge.params.get("error") == "use_dpop_nonce" and not entry.has_nonce:
                # The token is fine; the proof lacked the nonce, which is no reason for a login (RFC 9449 §9).
                entry.has_nonce = True
                return Verdict.RETRY
        if entry.has_proof and challenge is not None and challenge.params.get("error") == "invalid_dpop_proof":
            # Neither another token nor a login would help: the next proof would be refused as well.
            return self._refusal(call, refused_proof("the server", date, self.epoch + now), status, fields)
        entry.challenge = challenge
        if self._state is AuthorizationState.FAILED and self._error is not None:
            del self._calls[call]
            return self._error
        if self._state in _SENDING:
            if entry.generation < self._generation:
                return Verdict.RETRY
            problem = self._need_scopes(entry, now) if lacks_scope else self._need_token(entry, now)
            if problem:
                return self._refusal(call, problem, status, fields)
        else:
            self._admit(now, entry)
        self._waiting[call] = None
        return Verdict.WAIT

    def succeeded(self, call: Hashable, *, nonce: str | None = None) -> None:
        """Report that a call was neither answered with 401 nor 403: its budgets are as at first again.

        ``nonce`` is the value of ``DPoP-Nonce`` in its response, for the proofs of the next calls.
        """
        self._nonce = nonce or self._nonce
        entry = self._calls.pop(call, None)
        if entry is not None:
            self._is_proven = self._is_proven or entry.generation == self._generation
            self._step_ups.pop(entry.operation, None)

    def drop(self, call: Hashable) -> None:
        """Forget a call that its caller cancelled. A flow that it started continues."""
        self._calls.pop(call, None)
        self._waiting.pop(call, None)
        self._ready = deque(each for each in self._ready if each.call != call)

    # Results.

    def next_ready(self) -> Ready | None:
        """Return a call that waits no longer, or ``None``."""
        return self._ready.popleft() if self._ready else None

    def next_effect(self) -> Effect | None:
        """Return an effect to do, or ``None``. All but those without an answer are answered by their ``token``."""
        return self._effects.popleft() if self._effects else None

    def next_event(self) -> AuthorizationEvent | None:
        """Return the next event, for user interfaces and logs, or ``None``. Events hold no secrets."""
        return self._events.popleft() if self._events else None

    def next_deadline(self) -> float | None:
        """Return when to call `handle_timeout`, or ``None``."""
        return self._deadline

    # Answers. Those to an effect that is no longer awaited are ignored.

    def answer(self, token: int, value: Any, now: float) -> bool:
        """Answer an effect with what its class says, such as a `Response` to a `Fetch`. Returns whether it was taken.

        An `AskUser` takes the URL that the browser was sent to, or ``None`` where the person does not want to log in. A
        URL with another state changes nothing, so that no other page can end a login: keep waiting (AUTH-27).

        Raises TypeError for a value of another type, and ValueError for a URI that is not a redirect URI.
        """
        check_time(now)
        effect = self._awaited
        if effect is None or effect.token != token:
            undo = self._late.pop(token, None)
            # Another login may have bound its redirect since.
            if undo is not None and not (isinstance(undo, CloseRedirect) and self._is_bound):
                self._put(undo)
            return False
        kind = _ANSWERS[type(effect)]
        if not isinstance(value, kind):
            names = " or ".join(each.__name__ for each in kind).replace("NoneType", "None")
            raise TypeError(f"a {type(effect).__name__} is answered by {names}, not by {type(value).__name__}")
        answer: Any = value
        match effect:
            case AskUser():
                return self._returned(answer, now)
            case BindRedirect():
                check_redirect_uri(answer)
                self._is_bound = True
            case Fetch():
                answer = attrs.evolve(answer, at=self.epoch + now)
        self._send(answer, now)
        return True

    def failed(self, token: int, reason: str, now: float) -> None:
        """Report that an effect failed: no route, the store is broken, the port is taken. ``reason`` is for people."""
        check_time(now)
        self._late.pop(token, None)
        if self._awaited is None or self._awaited.token != token:
            return
        if isinstance(self._awaited, AskUser):
            self._fail(EffectFailed(reason), now)
        else:
            self._throw(EffectFailed(reason), now)

    def handle_timeout(self, now: float) -> None:
        """Handle expired deadlines. Early and repeated calls do nothing."""
        if now.__class__ is not float or not _AGO < now < _NEVER:
            check_time(now)
        if self._deadline is None or now < self._deadline:
            return
        self._deadline = None
        if self._state is AuthorizationState.FAILED:
            self._cool()
        elif isinstance(self._awaited, Pause):
            self._send(None, now)
        elif isinstance(self._awaited, AskUser):
            # Where the server has forgotten the client, the person sees an error page and nothing comes back.
            self._drop_client(self._awaited.issuer)
            self._fail(AuthorizationError("the login was not completed in time", code="expired"), now)
        else:
            self._note_late()
            self._throw(EffectFailed(f"{type(self._awaited).__name__} has no answer in time"), now)

    def close(self, now: float) -> None:
        """Close: waiting calls fail, and pending effects are void. Further calls do nothing."""
        check_time(now)
        if self._state is AuthorizationState.CLOSED:
            return
        self._enter(AuthorizationInput.SEND_CLOSE)
        self._abandon()
        self._release(AuthorizationError("the client was closed"))

    def interrupt(self) -> None:
        """Abandon the flow that is under way: its effects are no longer done, as the driver was cancelled.

        Waiting calls are dropped. Do the effects that follow. The next call begins with the stored credentials.
        """
        if (self._state, AuthorizationInput.SEND_INTERRUPT) in AUTHORIZATION_TABLE:
            self._enter(AuthorizationInput.SEND_INTERRUPT)
            self._abandon()
            for call in list(self._waiting):
                self.drop(call)

    # The decisions.

    def _returned(self, callback_url: str | None, now: float) -> bool:
        """Go on with the answer of a person. Returns whether it belongs to this login."""
        pending = self._pending
        assert pending is not None
        if callback_url is None:
            self._fail(AuthorizationError("the person did not log in", code="access_denied"), now)
            return True
        if not pending.matches(callback_url):
            return False
        self._enter(AuthorizationInput.RECV_ANSWER)
        self._stop_asking()
        self._start(self._finish(pending, callback_url, now), self._obtained, now)
        return True

    def _admit(self, now: float, entry: _Call) -> None:
        """Start the work that must precede a call: loading the credentials, or an early renewal."""
        was_cold = self._state is AuthorizationState.COLD
        self._enter(AuthorizationInput.SEND_AUTHORIZE)
        token = self._credentials.token
        if was_cold:
            self._start(load_credentials(self.key), self._take_loaded, now)
        elif (
            self._state is AuthorizationState.READY
            and token is not None
            and token.is_due(self.epoch + now)
            # A token that lives for less time than it takes to store it would be renewed for ever, and never sent.
            and entry.promised < self._generation
            and now >= self._renew_not_before
            and token.refresh_token is not None
        ):
            self._renew(None, now)

    def _need_token(self, entry: _Call, now: float) -> str:
        """Start to obtain another token after a 401. Returns why that is impossible, or an empty str."""
        token = self._credentials.token
        is_new = self._state is AuthorizationState.READY and not self._is_proven
        may_renew = not entry.renewed and not (is_new and self._origin != "loaded")
        has_refresh_token = token is not None and token.refresh_token is not None
        if may_renew and self._state is AuthorizationState.READY and has_refresh_token:
            entry.renewed = True
            self._renew(token, now)
            return ""
        if entry.obtained:
            return _refusal(token)
        if is_new and self._origin == "obtained":
            # A token fresh from a login, which no call has succeeded with: another login would not help.
            self._fail(AuthorizationError(_refusal(token)), now)
            return _refusal(token)
        entry.obtained = True
        self._enter(AuthorizationInput.RECV_UNAUTHORIZED)
        self._obtain(entry.challenge, now)
        return ""

    def _need_scopes(self, entry: _Call, now: float) -> str:
        """Start to obtain more scopes after a 403. Returns why that is impossible, or an empty str."""
        challenge = entry.challenge
        if challenge is None or not challenge.scopes:
            return "the token has too few scopes, and the server does not name those that are needed"
        tries = self._step_ups.get(entry.operation, 0)
        if tries >= STEP_UPS:
            return f"the token has too few scopes, though {format_scopes(challenge.scopes)} was asked for"
        try:
            if not self._method.may_step_up(challenge.scopes):
                return f"the token lacks {format_scopes(challenge.scopes)}, and on_step_up= refuses to ask for more"
        except AuthorizationError as error:
            return str(error)
        self._step_ups[entry.operation] = tries + 1
        entry.needed = challenge.scopes
        if self._state is AuthorizationState.OPEN:
            self._enter(AuthorizationInput.RECV_UNAUTHORIZED)
        else:
            self._enter(AuthorizationInput.RECV_INSUFFICIENT_SCOPE)
        self._obtain(challenge, now)
        return ""

    def _take_loaded(self, result: tuple[Credentials, int | None], now: float) -> None:
        stored, credentials, version = self._without_dropped(result[0]), self._credentials, result[1]
        if version is None and self._was_stored:
            credentials = attrs.evolve(credentials, token=None)  # a logout removed the record
        newest = newest_credentials(stored, credentials)
        self._credentials = attrs.evolve(newest, registrations={**stored.registrations, **credentials.registrations})
        self._was_stored = version is not None and stored.token is not None
        self._use_known(now)

    def _use_known(self, now: float) -> None:
        """Use the known token, renew it, or have none."""
        token = self._credentials.token
        if token is not None and token.is_usable(self.epoch + now):
            self._adopt(self._credentials, "loaded")
        elif token is not None and token.refresh_token is not None:
            # Even one that another process has marked: whether that one lives shows under the lock.
            self._renew(None, now)
        elif isinstance(self._method, BearerToken):
            self._enter(AuthorizationInput.RECV_UNAUTHORIZED)
            self._obtain(None, now)
        else:
            self._enter(AuthorizationInput.RECV_NOTHING)
            self._release(None)

    def _renew(self, refused: TokenSet | None, now: float) -> None:
        self._enter(AuthorizationInput.RECV_DUE)
        flow = self._renewing(self._credentials, refused, now, was_stored=self._was_stored)
        self._start(flow, lambda credentials, _: self._adopt(credentials, "renewed"), now)

    def _renewing(
        self, credentials: Credentials, refused: TokenSet | None, now: float, *, was_stored: bool
    ) -> Flow[Credentials]:
        signer = self._method.signer if isinstance(self._method, OAuth) else None
        context = self._context(now)
        renewed, problem = yield from renew_credentials(
            context, self.key, credentials, refused, signer, was_stored=was_stored
        )
        if problem is not None:
            self._events.append(CredentialsNotSaved(problem))
        else:
            self._was_stored = True
        return renewed

    def _obtain(self, challenge: Challenge | None, now: float) -> None:
        self._challenge = challenge
        self._start(self._obtaining(challenge, now), self._obtained, now)

    def _obtaining(self, challenge: Challenge | None, now: float) -> Flow[Credentials | PendingAuthorization]:
        stored, _ = yield from self._stored_credentials()
        token, own = stored.token, self._credentials.token
        is_usable = token is not None and token.is_usable(self.epoch + now)
        if (
            token is not None
            and (is_usable or token.refresh_token is not None)
            and (own is None or token.access_token != own.access_token)
            and (challenge is None or not missing_scopes(token.scopes, challenge.scopes))
        ):
            # Another process was authorized already.
            if is_usable:
                self._was_stored = True
                return stored
            try:
                return (yield from self._renewing(stored, None, now, was_stored=True))
            except AuthorizationError as error:
                if error.code != "invalid_grant":
                    raise
        if isinstance(self._method, OAuth):
            return (yield from self._method.begin(self._context(now), self._credentials, challenge))
        if isinstance(self._method, Device) and not self._may_ask:
            raise AuthorizationError("a person has to enter a code, and interaction is not allowed")
        credentials = yield from self._method.obtain(self._context(now), self._credentials, challenge)
        return (yield from self._save(credentials))

    def _finish(self, pending: PendingAuthorization, callback_url: str, now: float) -> Flow[Credentials]:
        assert isinstance(self._method, OAuth)
        credentials = yield from self._method.finish(self._context(now), pending, callback_url, self._credentials)
        return (yield from self._save(credentials))

    def _stored_credentials(self) -> Flow[tuple[Credentials, int | None]]:
        try:
            return (yield from load_credentials(self.key))
        except EffectFailed:
            return Credentials(), None

    def _save(self, credentials: Credentials) -> Flow[Credentials]:
        try:
            yield from save_credentials(self.key, credentials)
            self._was_stored = True
        except FlowAbandoned:
            raise
        except EffectFailed as error:
            self._was_stored = False
            self._events.append(CredentialsNotSaved(error))
        return credentials

    def _obtained(self, result: Credentials | PendingAuthorization, now: float) -> None:
        if isinstance(result, Credentials):
            self._adopt(result, "obtained")
            return
        # A login that is tried again uses the client that this one registered.
        self._credentials = self._credentials.with_registration(result.client)
        if not self._may_ask:
            self._fail(LoginRequired(result), now)
            return
        self._enter(AuthorizationInput.RECV_PENDING)
        self._pending = result
        self._await(
            AskUser(
                url=result.url,
                pending=result,
                expires_at=result.expires_at,
                issuer=result.server.issuer,
                client_id=result.client.client_id,
                scopes=result.scopes,
                resource=result.resource,
            ),
            result.expires_at - self.epoch,
        )

    def _adopt(self, credentials: Credentials, kind: Literal["obtained", "renewed", "loaded"]) -> None:
        token = credentials.token
        assert token is not None
        is_new = kind != "loaded" and token != self._credentials.token
        self._credentials = credentials
        self._generation += 1
        self._origin, self._is_proven = kind, False
        self._reregistered = False
        self._enter(AuthorizationInput.RECV_TOKEN)
        self._stop_asking()
        self._events.append(Authorized(kind, token.issuer, token.scopes, token.expires_at))
        for name in list(self._waiting):
            entry = self._calls[name]
            # A stored token may be renewed early; a new one is not, before it was sent.
            entry.promised = self._generation if is_new else -1
            if entry.generation >= 0:
                # It was refused, and the flow that another call began was its chance too.
                entry.renewed, entry.obtained = True, entry.obtained or kind == "obtained"
            if missing := missing_scopes(token.scopes, entry.needed):
                del self._waiting[name]
                del self._calls[name]
                error = AuthorizationError(_lacking(token, missing), code="insufficient_scope", status=403)
                self._ready.append(Ready(name, error))
        self._release(None)

    def _flow_failed(self, error: AuthorizationError, now: float) -> None:
        """Choose the next step after a failed flow."""
        token = self._credentials.token
        if self._state is AuthorizationState.LOADING:
            self._events.append(CredentialsNotSaved(EffectFailed(str(error))))
            self._use_known(now)
        elif error.code in ("invalid_client", "unauthorized_client") and self._may_register_again():
            self._reregistered = True
            self._enter(AuthorizationInput.RECV_INVALID_CLIENT)
            self._obtain(self._challenge, now)
        elif self._state is AuthorizationState.RENEWING and error.code == "invalid_grant":
            self._credentials = attrs.evolve(self._credentials, spent_at=self.epoch + now)
            self._enter(AuthorizationInput.RECV_INVALID_GRANT)
            self._obtain(self._any_challenge(), now)
        elif (
            self._state is AuthorizationState.RENEWING
            and error.temporary
            and token is not None
            and token.is_usable(self.epoch + now)
            and not any(self._calls[name].generation == self._generation for name in self._waiting)
        ):
            # It was renewed early, and no call was refused with it.
            self._renew_not_before = now + _KEPT_SECONDS
            self._enter(AuthorizationInput.RECV_KEPT)
            self._release(None)
        else:
            self._fail(error, now)

    def _cool(self) -> None:
        """Leave the state ``FAILED``."""
        self._error = self._deadline = None
        self._enter(AuthorizationInput.RECV_COOLED)

    @property
    def _may_ask(self) -> bool:
        """Whether a person may be asked: the program allows it, and a caller waits."""
        waiting = [self._calls[name] for name in self._waiting]
        return self._interaction == "allow" and not (waiting and all(each.is_background for each in waiting))

    def _fail(self, error: AuthorizationError, now: float) -> None:
        self._enter(AuthorizationInput.RECV_FAILURE)
        self._abandon()
        # They may be why it failed.
        self._documents.clear()
        self._error = error
        self._deadline = now + FAILED_SECONDS
        self._events.append(AuthorizationFailed(error))
        self._release(error)

    def _may_register_again(self) -> bool:
        """Drop a dynamic registration, at most once for each login; return whether it was dropped."""
        if self._reregistered:
            return False
        dropped = [self._drop_client(issuer) for issuer in list(self._credentials.registrations)]
        return any(dropped)

    def _drop_client(self, issuer: str) -> bool:
        """Forget the client at an issuer if it is dynamic. Returns whether it was."""
        client = self._credentials.registrations.get(issuer)
        if client is None or not client.is_dynamic:
            return False
        self._dropped.add(client.client_id)
        self._credentials = self._credentials.without_registration(issuer)
        return True

    def _without_dropped(self, stored: Credentials) -> Credentials:
        """Return stored credentials without the clients that were dropped since they were stored."""
        for issuer, client in stored.registrations.items():
            if client.client_id in self._dropped:
                stored = stored.without_registration(issuer)
        return stored

    def _any_challenge(self) -> Challenge | None:
        """Return the challenge of a call that waits."""
        challenges = (self._calls[name].challenge for name in self._waiting)
        return next((challenge for challenge in challenges if challenge is not None), None)

    def _refusal(self, call: Hashable, message: str, status: int, fields: tuple[str, ...]) -> AuthorizationError:
        del self._calls[call]
        return AuthorizationError(message, status=status, challenges=fields)

    def _headers(self, entry: _Call, method: str, url: str, now: float) -> Headers:
        token = self._credentials.token
        entry.generation, entry.promised, entry.has_proof = self._generation, -1, False
        if self._state is AuthorizationState.OPEN or token is None:
            return ()
        text, key = token.access_token.reveal(), self._credentials.proof_key
        if not token.is_bound or key is None:
            return (("authorization", "Bearer " + text),)
        entry.has_proof = True
        proofs = Proofs(key, self._entropy)
        proof = proofs.proof(method, url, self.epoch + now, token=token.access_token, nonce=self._nonce)
        return (("authorization", "DPoP " + text), ("dpop", proof))

    # The one flow.

    def _context(self, now: float) -> FlowContext:
        self._flow_context = FlowContext(
            server_url=self.server_url,
            entropy=self._entropy,
            now=Moment(self.epoch, now),
            reach=self._reach,
            documents=self._documents,
        )
        return self._flow_context

    def _enter(self, entered: AuthorizationInput) -> None:
        self._state = AUTHORIZATION_TABLE[self._state, entered]

    def _start(self, flow: Flow[T], on_result: Callable[[T, float], None], now: float) -> None:
        self._flow, self._on_result = flow, on_result
        self._shows_code = False
        self._advance(flow, lambda: next(flow), now)

    def _send(self, answer: Any, now: float) -> None:
        flow = self._flow
        assert flow is not None
        self._advance(flow, lambda: flow.send(answer), now)

    def _throw(self, error: EffectFailed, now: float) -> None:
        flow = self._flow
        assert flow is not None
        self._advance(flow, lambda: flow.throw(error), now)

    def _advance(self, flow: Flow[Any], step: Callable[[], Effect], now: float) -> None:
        """Run the flow to the next effect that is answered, or to its end."""
        self._awaited, self._deadline = None, None
        if self._flow_context is not None:
            self._flow_context.now = Moment(self.epoch, now)
        try:
            effect = step()
            while isinstance(effect, _UNANSWERED):
                self._shows_code = self._shows_code or isinstance(effect, ShowCode)
                self._put(effect)
                effect = flow.send(None)
        except StopIteration as end:
            self._flow = None
            self._on_result(end.value, now)
        except AuthorizationError as error:
            self._flow = None
            self._flow_failed(error, now)
        else:
            self._await(effect, now + _patience(effect))

    def _await(self, effect: Effect, deadline: float) -> None:
        self._tokens += 1
        self._awaited = attrs.evolve(effect, token=self._tokens)
        self._deadline = deadline
        if not isinstance(effect, Pause):
            self._effects.append(self._awaited)

    def _put(self, effect: Effect) -> None:
        self._tokens += 1
        self._effects.append(attrs.evolve(effect, token=self._tokens))

    def _note_late(self) -> None:
        """Remember what undoes the effect that is given up: a lock or a redirect that nothing would end."""
        if isinstance(self._awaited, LockCredentials):
            self._late[self._awaited.token] = UnlockCredentials(key=self.key)
        elif isinstance(self._awaited, BindRedirect):
            self._late[self._awaited.token] = CloseRedirect()

    def _abandon(self) -> None:
        """Abandon the flow and release its lock and redirect."""
        flow, self._flow = self._flow, None
        self._note_late()
        self._awaited, self._deadline = None, None
        self._effects = deque(each for each in self._effects if isinstance(each, _UNANSWERED))
        if flow is not None:
            with contextlib.suppress(AuthorizationError, StopIteration):
                effect = flow.throw(FlowAbandoned())
                while isinstance(effect, _UNANSWERED):
                    self._put(effect)
                    effect = flow.send(None)
            flow.close()
        self._stop_asking()

    def _stop_asking(self) -> None:
        is_asking = self._is_bound or self._pending is not None
        self._pending, self._shows_code, self._is_bound = None, False, False
        self._awaited, self._deadline = None, None
        if is_asking:
            self._put(CloseRedirect())

    def _release(self, error: AuthorizationError | None) -> None:
        """Resume all waiting calls, or fail them with ``error``."""
        for name in self._waiting:
            if error is not None:
                self._calls.pop(name, None)
            self._ready.append(Ready(name, error))
        self._waiting.clear()


def _refusal(token: TokenSet | None) -> str:
    """Say that a server refuses a token that it should accept. One from elsewhere has no issuer."""
    origin = "was just obtained" if token is None or token.issuer else "was given"
    return f"the server refuses the token that {origin}"


def _lacking(token: TokenSet, missing: Collection[str]) -> str:
    """Say that a token lacks scopes. The scopes of one from elsewhere are unknown: it may have some of them."""
    if token.issuer:
        return f"the authorization server did not grant {format_scopes(missing)}"
    which = "one or more of " if len(missing) > 1 else ""
    return f"the token that was given lacks {which}{format_scopes(missing)}"


def _patience(effect: Effect) -> float:
    """Return how many seconds an answer may take."""
    match effect:
        case Fetch(timeout=seconds) | Pause(seconds=seconds):
            return seconds
        case LockCredentials():
            return _LOCK_SECONDS
        case NeedAssertion():
            return _ASSERTION_SECONDS
        case _:
            return _STORE_SECONDS


def _ignore(result: Any, now: float) -> None:
    """Ignore a result."""


_UNANSWERED: Final = (RestoreCredentials, UnlockCredentials, CloseRedirect, ShowCode)
_SENDING: Final = (AuthorizationState.OPEN, AuthorizationState.READY)
_ANSWERS: Final[Mapping[type, tuple[type, ...]]] = {
    Fetch: (Response,),
    LockCredentials: (NoneType,),
    LoadCredentials: (Stored, NoneType),
    SaveCredentials: (int, NoneType),
    BindRedirect: (str,),
    NeedAssertion: (Secret,),
    AskUser: (str, NoneType),
}
"""The types of the answers that effects take."""
