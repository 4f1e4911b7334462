"""A driver's part of a client's authorization: fetches, the credential store, the redirect URI, and the user."""

from __future__ import annotations

import contextlib
import os
import ssl
import sys
import threading
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, Final, Generic, Literal, TypeAlias, TypedDict, TypeVar

import attrs

from mcpio._checks import check_options, chosen
from mcpio._drivers import report
from mcpio._drivers.auth.credential_files import CredentialStore, FileCredentials
from mcpio._drivers.auth.redirect import RedirectReceiver
from mcpio._drivers.event_loop import EventLoop, Flag
from mcpio._drivers.http.fetch import fetch
from mcpio._drivers.terminal import LineReader
from mcpio.app.runtime import Runtime
from mcpio.auth.authorization_code import OAuth
from mcpio.auth.authorizer import Authorized, Authorizer, CredentialsNotSaved, Verdict
from mcpio.auth.credentials import Credentials, MemoryCredentials
from mcpio.auth.effects import (
    AskUser,
    BindRedirect,
    CloseRedirect,
    Effect,
    Fetch,
    Flow,
    FlowContext,
    Headers,
    LoadCredentials,
    LockCredentials,
    NeedAssertion,
    Response,
    RestoreCredentials,
    SaveCredentials,
    ShowCode,
    UnlockCredentials,
)
from mcpio.auth.errors import AuthorizationError, EffectFailed
from mcpio.auth.given import ApiKey, BearerToken
from mcpio.auth.grant_types import ClientCredentials, Device, EnterpriseManaged, WorkloadIdentity
from mcpio.auth.options import AuthorizationOptions
from mcpio.auth.pending import PendingAuthorization
from mcpio.auth.reach import Reach
from mcpio.auth.secret import Secret
from mcpio.auth.storage import load_credentials, restore_credentials, save_credentials
from mcpio.auth.urls import host_of
from mcpio.errors import AuthorizationRequired, ConnectFailed
from mcpio.http.client.options import HttpClientOptions
from mcpio.types import ClientCapabilities

__all__ = [
    "Auth",
    "AuthorizedOpening",
    "LoginDriver",
    "LoginOptions",
    "LoginSetup",
    "SingleFlow",
    "ask_at_terminal",
    "ask_without_browser",
    "declare_extension",
    "with_key",
]

T = TypeVar("T")

Auth: TypeAlias = OAuth | Device | ClientCredentials | WorkloadIdentity | EnterpriseManaged | BearerToken | ApiKey
"""How a client is authorized: the values of ``auth=``."""

_LOCK_POLL: Final = 0.05
"""Seconds between two tries for a lock that another process holds."""
_RESTORE_SECONDS: Final = 5.0
"""Seconds that a cancelled renewal may take to give back what it took from the store."""


class LoginOptions(TypedDict, total=False):
    """Options of authorization."""

    auth: Auth | None
    """How the client is authorized: ``OAuth()`` for a login by a person, or another value of ``mcpio.auth``."""
    credentials: CredentialStore | None
    """The credential store. By default a ``FileCredentials()`` for logins by a person, and none for other methods,
    which can get a new token without one."""
    interaction: Literal["allow", "never"]
    """Whether a person may be asked. With ``"never"``, a LoginRequired has the URL, and the login as ``pending``.
    Reconnections never ask."""
    ask_user: Callable[[AskUser | ShowCode], object] | None
    """Asks a person in place of the browser and the terminal. May return, or be awaited for, the URL that the browser
    was sent to afterwards; ``None`` leaves that to the listener on the loopback address."""


@attrs.frozen
class LoginSetup:
    """The checked options for one server."""

    url: str
    """The URL of the server, with ``http`` or ``https``."""
    method: Any
    store: CredentialStore
    interaction: Literal["allow", "never"]
    ask_user: Callable[[AskUser | ShowCode], object]
    ssl_context: ssl.SSLContext | None
    proxy: str | None
    trust_env: bool

    @classmethod
    def check(cls, url: str, given: Any, *, ssl_context: Any = None, proxy: Any = None, trust_env: bool = False) -> Any:
        """Return the setup, or ``None`` without ``auth=``. Raises TypeError and ValueError for invalid options."""
        check_options(given, LoginOptions.__annotations__)
        method = given.get("auth")
        interaction = given.get("interaction", "allow")
        if interaction not in ("allow", "never"):
            raise ValueError(f"interaction= is 'allow' or 'never', not {interaction!r:.60}")
        if method is None or isinstance(method, ApiKey):
            return None
        if not isinstance(method, AuthorizationOptions):
            raise TypeError(f"auth= takes OAuth(), BearerToken(…) or another way of mcpio.auth, not {method!r:.60}")
        store = given.get("credentials")
        if store is None:
            store = FileCredentials() if isinstance(method, OAuth | Device) else MemoryCredentials()
        ask_user = given.get("ask_user") or ask_at_terminal
        return cls(url, method, store, interaction, ask_user, ssl_context, proxy, trust_env)

    def authorizer(self, runtime: Runtime, now: float, *, interaction: Literal["allow", "never"]) -> Authorizer:
        """Create the machine."""
        return Authorizer(
            self.url,
            self.method,
            entropy=runtime.entropy,
            epoch=runtime.wall_clock() - now,
            interaction=interaction,
        )


def with_key(options: HttpClientOptions, key: ApiKey) -> HttpClientOptions:
    """Return the options with the key among the header fields. Raises ValueError where that field is given already."""
    if any(name.lower() == key.header.lower() for name in options.headers):
        raise ValueError(f"headers: {key.header} and auth= exclude each other: only one of them can be sent")
    return attrs.evolve(options, headers={**options.headers, key.header: key.key.reveal()})


def declare_extension(of_client: dict[str, Any], auth: Any) -> None:
    """Add the extension that a way to be authorized is, if it is one, to a client's ``capabilities=`` (AUTH-42)."""
    if isinstance(auth, AuthorizationOptions) and auth.extension is not None:
        declared = chosen("capabilities", of_client.get("capabilities"), ClientCapabilities)
        extensions = {auth.extension: {}, **(declared.extensions or {})}
        of_client["capabilities"] = attrs.evolve(declared, extensions=extensions)


class SingleFlow:
    """Runs one flow of ``mcpio.auth`` outside of a client: a login that is finished elsewhere, or a revocation."""

    def __init__(self, setup: LoginSetup, loop: EventLoop, runtime: Runtime) -> None:
        self._setup = setup
        self._loop = loop
        self._runtime = runtime
        self.key: str = setup.authorizer(runtime, loop.now(), interaction="never").key
        """The key of the credentials."""

    async def context(self) -> FlowContext:
        """Return the inputs of a flow that begins now."""
        return FlowContext(
            server_url=self._setup.url,
            entropy=self._runtime.entropy,
            now=self._runtime.wall_clock(),
            reach=await reach_of_server(self._setup, self._loop),
        )

    async def run(self, flow: Flow[T]) -> T:
        """Run a flow and return its result. Raises AuthorizationError, and the exceptions of the store."""
        store = self._setup.store
        try:
            effect = next(flow)
            while True:
                answer: Any = None
                match effect:
                    case Fetch():
                        try:
                            response = await fetch_for(self._setup, effect, self._loop, effect.reach)
                        except EffectFailed as error:
                            effect = flow.throw(error)
                            continue
                        answer = attrs.evolve(response, at=self._runtime.wall_clock())
                    case LoadCredentials(key=key):
                        answer = store.load(key)
                    case SaveCredentials(key=key, record=record, version=version):
                        answer = store.swap(key, record, version)
                    case NeedAssertion():
                        answer = await assertion_of(self._setup.method, effect)
                effect = flow.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    async def finish(self, pending: PendingAuthorization, callback_url: str) -> Credentials:
        """Finish a login that waits for a person, store the credentials and return them."""
        known, _ = await self.run(load_credentials(self.key))
        flow = self._setup.method.finish(await self.context(), pending, callback_url, known)
        credentials: Credentials = await self.run(flow)
        await self.run(save_credentials(self.key, credentials))
        return credentials


async def fetch_for(setup: LoginSetup, effect: Fetch, loop: EventLoop, reach: Reach) -> Response:
    """Perform the request of an effect with the options of the setup."""
    return await fetch(
        effect, loop, ssl_context=setup.ssl_context, proxy=setup.proxy, trust_env=setup.trust_env, reach=reach
    )


async def reach_of_server(setup: LoginSetup, loop: EventLoop) -> Reach:
    """Return how far fetches may reach: to private addresses, if those of the server are private.

    A name never gives loopback addresses. Who owns a name could make it resolve to a private address, but then fetches
    are https to hosts with valid certificates.
    """
    found, host = Reach.of_url(setup.url), host_of(setup.url)
    if found is not Reach.PUBLIC or setup.proxy is not None:
        return found
    try:
        addresses = await loop.resolve(host, 443)
    except OSError:
        return found
    kinds = {Reach.of_address(address) for address in addresses}
    return Reach.PRIVATE if kinds == {Reach.PRIVATE} else Reach.PUBLIC


async def assertion_of(method: Any, effect: NeedAssertion) -> Secret:
    """Return the assertion that a method has, or that its function gives. Raises EffectFailed without any."""
    source = method.assertion
    if source is None:
        raise EffectFailed(f"{type(method).__name__} has no assertion= to get a JWT from")
    found = await _awaited(source(effect) if callable(source) else source)
    if isinstance(found, str):
        return Secret(found)
    if not isinstance(found, Secret):
        raise TypeError(f"assertion= returns a str or a Secret, not {type(found).__name__}")
    return found


class LoginDriver:
    """Does the effects of one `Authorizer`, each in a task."""

    def __init__(
        self,
        authorizer: Authorizer,
        setup: LoginSetup,
        loop: EventLoop,
        runtime: Runtime,
        start: Callable[[Callable[[], Awaitable[None]]], None],
        on_answer: Callable[[], object],
    ) -> None:
        """``start`` starts a task, and ``on_answer`` is called after each answer."""
        self._authorizer = authorizer
        self._setup = setup
        self._loop = loop
        self._runtime = runtime
        self._start = start
        self._on_answer = on_answer
        self._receiver: RedirectReceiver | None = None
        self._terminal: LineReader | None = None
        self._store_mutex = threading.Lock()
        self._to_restore: RestoreCredentials | None = None
        self._reach: Reach | None = None
        self._is_locked = False

    def perform(self, effect: Effect) -> None:
        """Perform an effect, now or in a task."""
        if isinstance(effect, CloseRedirect):
            self._stop_asking()
        elif isinstance(effect, RestoreCredentials):
            self._to_restore = effect  # the unlocking that follows does it first
        elif isinstance(effect, UnlockCredentials):
            if self._to_restore is None:
                self._unlock()
            else:
                self._start(self._restore_and_unlock)
        else:
            self._start(lambda: self._perform(effect))

    def tell(self) -> bool:
        """Report that tokens were not stored, and return whether there was a login, which may be that of another user.

        Failures of authorization are those of the calls that wait.
        """
        has_obtained = False
        while (event := self._authorizer.next_event()) is not None:
            if isinstance(event, CredentialsNotSaved):
                report("the credential store failed: tokens are lost with the process", event.error)
            has_obtained = has_obtained or (isinstance(event, Authorized) and event.kind == "obtained")
        return has_obtained

    async def aclose(self) -> None:
        """Abandon what is under way, and release locks and listeners: cancelled or not, in bounded time.

        The tasks that perform effects are cancelled before or after.
        """
        self._authorizer.interrupt()
        while (effect := self._authorizer.next_effect()) is not None:
            if isinstance(effect, RestoreCredentials):
                self._to_restore = effect
        self._stop_asking()
        try:
            if self._to_restore is not None:
                async with self._loop.last_moment(_RESTORE_SECONDS):
                    await self._restore()
        finally:
            self._unlock()

    async def _perform(self, effect: Effect) -> None:
        try:
            await self._answer(effect)
        except AuthorizationError as error:
            self._authorizer.effect_failed(effect.token, str(error), self._loop.now())
        except Exception as error:
            # A store, a browser or a function of the program failed: that fails this login, and nothing else.
            self._authorizer.effect_failed(effect.token, f"{type(error).__name__}: {error}", self._loop.now())
        self._on_answer()

    async def _answer(self, effect: Effect) -> None:
        authorizer, store, token, now = self._authorizer, self._setup.store, effect.token, self._loop.now
        match effect:
            case Fetch():
                response = await self._fetch(effect)
                authorizer.fetched(token, response.status, response.headers, response.body, now())
            case LoadCredentials(key=key):
                authorizer.stored(token, await self._stored(lambda: store.load(key)), now())
            case SaveCredentials(key=key, record=record, version=version):
                saved = await self._stored(lambda: store.swap(key, record, version))
                authorizer.stored(token, saved, now())
            case LockCredentials(key=key):
                while not await self._stored(lambda: store.try_lock(key), lambda: store.unlock(key)):
                    await self._runtime.sleep(_LOCK_POLL)
                self._is_locked = True
                authorizer.stored(token, None, now())
            case BindRedirect():
                authorizer.redirect_bound(token, self._bind(effect), now())
            case NeedAssertion():
                authorizer.asserted(token, await assertion_of(self._setup.method, effect), now())
            case AskUser():
                await self._ask(effect)
            case ShowCode():
                await _awaited(self._setup.ask_user(effect))

    async def _stored(self, function: Callable[[], T], give_back: Callable[[], object] | None = None) -> T:
        """Call the store, in a thread if it blocks. ``give_back`` undoes a call with a true result.

        If this task is cancelled, the call may be made all the same, but none follows it that was made later: a record
        that is restored is the last one. What it acquires is given back, by the thread or here.
        """
        if not self._setup.store.blocking:
            return function()
        call = _ThreadedCall(function, give_back, self._store_mutex)
        try:
            return await self._runtime.to_thread(call.run)
        except BaseException:
            call.leave()
            raise

    async def _restore_and_unlock(self) -> None:
        await self._restore()
        self._unlock()

    async def _restore(self) -> None:
        """Give back the refresh token of a renewal that has ended without an answer."""
        effect, store = self._to_restore, self._setup.store
        if effect is None:
            return
        try:
            await self._stored(lambda: restore_credentials(store, effect))
        except Exception as error:
            report("the credentials of a renewal without an answer were not restored", error)
        self._to_restore = None

    async def _fetch(self, effect: Fetch) -> Response:
        if self._reach is None:
            self._reach = await reach_of_server(self._setup, self._loop)
        return await fetch_for(self._setup, effect, self._loop, self._reach)

    def _bind(self, effect: BindRedirect) -> str:
        """Bind the requested port, or another one unless it is fixed: then the client is registered again."""
        self._stop_asking()
        try:
            self._receiver = RedirectReceiver(effect.host, effect.port, effect.path)
        except OSError as error:
            if effect.port is None or effect.is_fixed:
                raise EffectFailed(f"cannot listen at port {effect.port} of {effect.host}: {error.strerror}") from None
            self._receiver = RedirectReceiver(effect.host, None, effect.path)
        return self._receiver.uri

    def _unlock(self) -> None:
        if self._is_locked:
            self._is_locked = False
            self._setup.store.unlock(self._authorizer.key)

    def _stop_asking(self) -> None:
        """Stop listening for the redirect, and reading from the terminal."""
        open_ones = self._receiver, self._terminal
        self._receiver = self._terminal = None
        for each in open_ones:
            if each is not None:
                each.close()

    async def _ask(self, effect: AskUser) -> None:
        """Ask a person; the redirect of the browser or the URL that the person pastes is the answer."""
        receiver = self._receiver
        if receiver is not None:
            receiver.listen()
            self._start(lambda: self._receive(receiver, effect))
        url = await _awaited(self._setup.ask_user(effect))
        if self._setup.ask_user in (ask_at_terminal, ask_without_browser):
            has_no_browser = self._setup.ask_user is ask_without_browser or is_headless()
            if (has_no_browser or receiver is None) and sys.stdin.isatty():
                # The browser may be on another machine, where the redirect leads nowhere.
                terminal = self._terminal = LineReader()
                url = await self._runtime.to_thread(lambda: _read_pasted(terminal, effect))
            elif receiver is None:
                uri = effect.pending.redirect_uri
                raise EffectFailed(
                    f"nothing listens at the redirect URI {uri}: free its port, or give ask_user= and return the URL "
                    "at which the browser ends"
                )
        if url is not None:
            if not isinstance(url, str):
                raise TypeError(f"ask_user= returns a URL or None, not {type(url).__name__}")
            if not self._authorizer.user_returned(effect.token, url, self._loop.now()):
                report("the URL that was given does not belong to the login that is waited for", None)

    async def _receive(self, receiver: RedirectReceiver, effect: AskUser) -> None:
        url = await self._runtime.to_thread(lambda: receiver.wait(effect.pending))
        if url is not None:
            self._authorizer.user_returned(effect.token, url, self._loop.now())
            self._on_answer()


class AuthorizedOpening:
    """Authorizes the opening requests of one client, one at a time: a session over WebSocket has no other request.

    Only the first session may ask a person to log in: a session that replaces a lost one starts unattended.
    """

    def __init__(self, setup: LoginSetup, loop: EventLoop, runtime: Runtime) -> None:
        self._setup = setup
        self._loop = loop
        self._runtime = runtime
        self._authorizer = setup.authorizer(runtime, loop.now(), interaction=setup.interaction)
        self._openings = 0
        self._was_open = False

    async def open(
        self,
        attempt: Callable[[Headers], Awaitable[tuple[T, str | None]]],
        start: Callable[[Callable[[], Awaitable[None]]], None],
    ) -> T:
        """Call ``attempt`` with the header fields of a token until none is refused, and return its result.

        ``attempt`` also returns the nonce for the next proof. It raises ConnectFailed, caused by an
        AuthorizationRequired where a token is refused. ``start`` starts a task; those that still run when this method
        returns are to be cancelled.

        Raises ConnectFailed, caused by the AuthorizationError if there is no token to be had.
        """
        self._openings += 1
        call = self._openings
        answered = self._loop.signal()
        driver = LoginDriver(self._authorizer, self._setup, self._loop, self._runtime, start, answered.set)
        try:
            while True:
                headers = await self._headers(call, driver, answered)
                try:
                    opened, nonce = await attempt(headers)
                except ConnectFailed as error:
                    refusal = error.__cause__
                    if not isinstance(refusal, AuthorizationRequired):
                        raise
                    await self._refused(call, refusal, driver, answered)
                else:
                    self._authorizer.succeeded(call, nonce=nonce)
                    self._was_open = True
                    return opened
        finally:
            self._authorizer.drop(call)
            await driver.aclose()

    async def _headers(self, call: int, driver: LoginDriver, answered: Flag) -> Headers:
        """Wait for a token and return its header fields."""
        while True:
            headers = self._authorizer.authorize(
                call, "open", self._loop.now(), method="GET", background=self._was_open
            )
            if headers is not None:
                return headers
            await self._wait(driver, answered)

    async def _refused(self, call: int, refusal: AuthorizationRequired, driver: LoginDriver, answered: Flag) -> None:
        """Wait until another token is available. Raises ConnectFailed if none can be obtained."""
        status, now = refusal.status, self._loop.now()
        verdict = self._authorizer.refused(call, status, refusal.challenges, now, nonce=refusal.nonce)
        if isinstance(verdict, AuthorizationError):
            raise _no_opening(verdict) from verdict
        if verdict is Verdict.WAIT:
            await self._wait(driver, answered)

    async def _wait(self, driver: LoginDriver, answered: Flag) -> None:
        """Perform effects until the waiting opening is ready. Raises ConnectFailed if it cannot be authorized."""
        while True:
            while (effect := self._authorizer.next_effect()) is not None:
                driver.perform(effect)
            driver.tell()
            if (ready := self._authorizer.next_ready()) is not None:
                break
            deadline = self._authorizer.next_deadline()
            with self._loop.scope(None if deadline is None else deadline - self._loop.now()):
                await answered.wait()
            self._authorizer.handle_timeout(self._loop.now())
        if ready.error is not None:
            raise _no_opening(ready.error) from ready.error


class _ThreadedCall(Generic[T]):
    """A call of a store in a thread, whose task may be cancelled meanwhile."""

    def __init__(
        self, function: Callable[[], T], give_back: Callable[[], object] | None, in_turn: threading.Lock
    ) -> None:
        self._function = function
        self._give_back = give_back
        self._in_turn = in_turn
        self._mutex = threading.Lock()
        self._left = threading.Event()
        self._must_give_back = False

    def run(self) -> T:
        """Make the call, in a thread. Raises EffectFailed if its task was cancelled before."""
        with self._in_turn:
            if self._left.is_set():
                raise EffectFailed("it was cancelled")
            found = self._function()
            with self._mutex:
                self._must_give_back = bool(found) and self._give_back is not None
            if self._left.is_set():
                self.leave()
        return found

    def leave(self) -> None:
        """Note that the task was cancelled, and give back what the call acquired."""
        with self._mutex:
            self._left.set()
            gives_back, self._must_give_back = self._must_give_back, False
        if gives_back and self._give_back is not None:
            self._give_back()


def _no_opening(error: AuthorizationError) -> ConnectFailed:
    return ConnectFailed(f"the connection is not authorized: {error}")


async def _awaited(value: Any) -> Any:
    return await value if isawaitable(value) else value


def ask_without_browser(effect: AskUser | ShowCode) -> None:
    """Print the URL, or the code for another device, on standard error."""
    if isinstance(effect, ShowCode):
        _print(f"To log in, open {effect.verification_uri} on any device and enter the code {effect.user_code}")
    else:
        _print(f"To log in at {effect.issuer}, open this URL in a browser:\n\n  {effect.url}\n")


def ask_at_terminal(effect: AskUser | ShowCode) -> None:
    """Open the browser, or print the URL if no browser can be opened."""
    if isinstance(effect, ShowCode) or is_headless():
        ask_without_browser(effect)
    else:
        _print(f"Opening a browser to log in at {effect.issuer} …")
        threading.Thread(target=_open_browser, args=[effect.url], daemon=True).start()


def is_headless() -> bool:
    """Whether a browser would be of no use: without a display, over SSH, or in CI."""
    environment = os.environ
    if any(name in environment for name in ("SSH_CONNECTION", "SSH_TTY", "CI")):
        return True
    has_display = "DISPLAY" in environment or "WAYLAND_DISPLAY" in environment
    return sys.platform not in ("win32", "darwin") and not has_display


def _open_browser(url: str) -> None:
    import webbrowser

    with contextlib.suppress(Exception):
        if webbrowser.open(url):
            return
    _print(f"To log in, open this URL in a browser:\n\n  {url}\n")


def _read_pasted(terminal: LineReader, effect: AskUser) -> str | None:
    """Return the URL that a person pastes, if it belongs to the login; ``None`` at the end of the input or question."""
    _print("Then paste the address at which the browser ends, if it shows an error there:")
    while line := terminal.read():
        if effect.pending.matches(line.strip()):
            return line.strip()
        _print("This address does not belong to the login that is waited for; paste the whole address:")
    return None


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
