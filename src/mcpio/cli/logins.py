"""``mcpio login``, ``logout`` and ``auth``, and the stored credentials as the other commands use them."""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from mcpio._drivers.login import (
    FileCredentials,
    LoginSetup,
    SingleFlow,
    ask_at_terminal,
    ask_without_browser,
    unreadable_files,
)
from mcpio.auth import (
    AuthorizationError,
    AuthorizationServerMetadata,
    Challenge,
    Credentials,
    Device,
    Fetch,
    Flow,
    MemoryCredentials,
    OAuth,
    Response,
    Secret,
    TokenSet,
    canonical_resource,
    discover,
    from_text,
    parse_challenges,
    revoke,
)
from mcpio.auth.grant import format_scopes
from mcpio.cli.exit_status import CREDENTIALS, Exit, Failure, failure_of, in_flags
from mcpio.cli.output import Console
from mcpio.errors import McpError
from mcpio.framing.json import dumps
from mcpio.http.client import Location
from mcpio.revisions import LATEST_HANDSHAKE
from mcpio.trio import open_http, run_until_signalled
from mcpio.trio._event_loop import TrioEventLoop
from mcpio.trio._runtime import TrioRuntime


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    command = parser.get_default("command")
    if command == "auth":
        parser.usage = "%(prog)s list\n       %(prog)s show URL [options]\n       %(prog)s doctor URL [options]"
        parser.add_argument("action", choices=("list", "show", "doctor"), help="what to do")
    parser.add_argument("url", metavar="URL", nargs="?" if command == "auth" else None, help="the URL of a server")
    parser.add_argument("--account", default="default", help="a name of your own, for several accounts at one server")
    if command == "auth":
        parser.add_argument("--resource", help="doctor: check with this resource")
        parser.add_argument("--issuer", help="doctor: check with this authorization server")
    elif command == "logout":
        parser.add_argument(
            "--revoke", action="store_true", help="have the authorization server revoke the tokens first"
        )
    else:
        _add_login_options(parser)


def _add_login_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scope", action="append", metavar="SCOPE", help="a scope to ask for; may be repeated")
    parser.add_argument("--device", action="store_true", help="show a code to enter on another device")
    parser.add_argument("--no-browser", action="store_true", help="print the URL, and take the pasted one")
    parser.add_argument("--client-id", metavar="ID", help="a client that is registered with the authorization server")
    parser.add_argument(
        "--client-secret-file", type=Path, metavar="FILE", help="a file whose only line is the client's secret"
    )
    parser.add_argument("--port", type=int, help="the port of the client's registered redirect URI")
    parser.add_argument("--redirect-uri", metavar="URI", help="that URI, if it is not http://127.0.0.1:PORT/callback")
    parser.add_argument("--resource", help="the resource to ask a token for, where the server's metadata is wrong")
    parser.add_argument("--issuer", help="the authorization server, where the server's metadata is wrong")


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    console = Console()
    if options.command == "login":
        return run_until_signalled(partial(_login, options, console), timeout=None)
    if options.command == "logout":
        return _logout(options, console)
    if options.action == "list":
        store = _store()
        keys, unreadable = tuple(store.keys()), unreadable_files(store)
        if not keys and not unreadable:
            console.note("no account is logged in anywhere; mcpio login URL logs in")
        for key in keys:
            url, _, account = key.partition(" ")
            console.result(f"{url}  {account}")
        if unreadable:
            raise Failure(Exit.USAGE, "; ".join(unreadable))
        return Exit.DONE
    if options.url is None:
        raise Failure(Exit.USAGE, f"no URL given; see mcpio auth {options.action} --help")
    key = _key_of(options)
    if options.action == "show":
        return _show(options, console, key)
    return run_until_signalled(partial(_examine, options, console), timeout=None)


# ----------------------------------------------------------------------------------------------------- login and logout


async def _login(options: argparse.Namespace, console: Console) -> int:
    key = _key_of(options)
    credentials = _LoginStore()
    # A file that cannot be used, or a place that takes none, is reported before the user is asked to log in.
    credentials.check()
    _read(key)
    try:
        async with open_http(
            options.url,
            auth=_method(options),
            credentials=credentials,
            ask_user=ask_without_browser if options.no_browser else ask_at_terminal,
        ) as client:
            # There may be a record without a token, of a login that was not finished.
            if _token(key) is None and client.connection.peer is not None:
                # Some servers shake hands with every client.
                await client.list_tools()
    except McpError as error:
        credentials.raise_failure()
        failure = failure_of(error, by_url=True)
        # The advice to log in is for the other commands.
        raise Failure(failure.status, failure.message.removesuffix(CREDENTIALS)) from error
    credentials.raise_failure()
    token = _token(key)
    if token is None:
        console.note("the server asks for no login")
        return Exit.DONE
    console.result(f"logged in to {options.url} as account {options.account!r}, by {token.issuer}")
    if token.scopes:
        console.result(f"scopes: {format_scopes(token.scopes)}")
    console.result(_expiry(token, time.time()))
    return Exit.DONE


class _LoginStore(FileCredentials):
    """The store, which remembers that it could not write: a client goes on with a token that is not stored."""

    def __init__(self) -> None:
        _store()  # raises Failure without a home directory
        super().__init__()
        self._failure: OSError | None = None

    def check(self) -> None:
        """Raise Failure if the directory takes no file."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            with NamedTemporaryFile(dir=self.path) as file:
                file.write(bytes(8192))  # more than a token has: a full disk is noticed too
                file.flush()
        except OSError as error:
            self._failure = error
            self.raise_failure()

    def swap(self, key: str, record: Secret, version: int | None) -> int | None:
        """Replace a record, and remember if that fails."""
        try:
            return super().swap(key, record, version)
        except OSError as error:
            self._failure = error
            raise

    def raise_failure(self) -> None:
        """Raise Failure if a record could not be stored."""
        if self._failure is not None:
            reason = self._failure.strerror or self._failure
            raise Failure(Exit.UNWRITABLE, f"cannot store the login in {self.path}: {reason}") from self._failure


def _token(key: str) -> TokenSet | None:
    stored = _read(key)
    return None if stored is None else stored.token


def _method(options: argparse.Namespace) -> OAuth | Device:
    method_options: dict[str, Any] = {
        "account": options.account,
        "scopes": options.scope,
        "resource": options.resource,
        "issuer": options.issuer,
        "client_id": options.client_id,
        "client_secret": _secret(options.client_secret_file),
    }
    try:
        if options.device:
            return Device(**method_options)
        return OAuth(**method_options, port=options.port, redirect_uri=options.redirect_uri)
    except ValueError as error:
        raise Failure(Exit.USAGE, in_flags(str(error))) from error


def _secret(file: Path | None) -> Secret | None:
    if file is None:
        return None
    try:
        return Secret(file.read_text().strip())
    except (OSError, UnicodeError) as error:
        raise Failure(Exit.USAGE, f"--client-secret-file: cannot read {str(file)!r}: {error}") from error


def _logout(options: argparse.Namespace, console: Console) -> int:
    key = _key_of(options)
    stored = _read(key)
    if stored is None:
        console.note(f"account {options.account!r} is not logged in to {options.url}")
        return Exit.DONE
    if options.revoke:
        try:
            revoked = run_until_signalled(partial(_revoke, options, stored), timeout=None)
        except AuthorizationError as error:
            raise Failure(Exit.REFUSED, f"the tokens were not revoked, and are kept: {error}") from error
        console.result("the tokens were revoked" if revoked else "the authorization server revokes no tokens")
    _forget(key)
    console.result(f"logged out of {options.url}")
    return Exit.DONE


async def _revoke(options: argparse.Namespace, credentials: Credentials) -> bool:
    flow = _flow(options.url, OAuth(account=options.account), _store())
    return await flow.run(revoke(await flow.context(), credentials))


def _flow(url: str, method: OAuth, credentials: Any) -> SingleFlow:
    return SingleFlow(
        LoginSetup.check(url, {"auth": method, "credentials": credentials}), TrioEventLoop(), TrioRuntime(None)
    )


# ------------------------------------------------------------------------------------------- what is stored, and doctor


def _show(options: argparse.Namespace, console: Console, key: str) -> int:
    """Print the stored credentials without their secrets."""
    stored = _read(key)
    if stored is None:
        raise Failure(Exit.NOT_FOUND, f"account {options.account!r} is not logged in to {options.url}")
    for issuer, client in stored.registrations.items():
        origin = "registered by itself" if client.is_dynamic else "given"
        console.result(f"client at {issuer}: {client.client_id} ({origin}, {client.auth_method})")
    token = stored.token
    if token is None:
        console.result("no token")
        return Exit.DONE
    console.result(f"token by {token.issuer} for {token.resource}")
    console.result(f"scopes: {format_scopes(token.scopes) or 'none'}")
    console.result(_expiry(token, time.time()))
    return Exit.DONE


async def _examine(options: argparse.Namespace, console: Console) -> int:
    """Print each step of discovery, its result, and the option that helps if it fails."""
    method = OAuth(resource=options.resource, issuer=options.issuer)
    flow = _flow(options.url, method, MemoryCredentials())
    context = await flow.context()
    try:
        challenge = await flow.run(_probe(options.url, context.reach, console))
        if challenge is None:
            return Exit.DONE
        discovered = await flow.run(_print_responses(discover(context, method, challenge), console))
        console.result(f"ok: the resource is {discovered.resource}")
        console.result(f"ok: the authorization server is {discovered.server.issuer}")
        _judge(discovered.server, console)
        discovered.server.check_pkce()
    except AuthorizationError as error:
        console.result(f"failed: {in_flags(str(error))}")
        return Exit.REFUSED
    console.result("ok: a login can begin")
    return Exit.DONE


def _probe(url: str, reach: Any, console: Console) -> Flow[Challenge | None]:
    """Return the challenge of a server, after printing how it answers without a token; ``None`` if it wants none."""
    params = {
        "protocolVersion": LATEST_HANDSHAKE.name,
        "capabilities": {},
        "clientInfo": {"name": "mcpio", "version": "1"},
    }
    body = dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    headers = (("content-type", "application/json"), ("accept", "application/json, text/event-stream"))
    response: Response = yield Fetch(method="POST", url=url, headers=headers, body=body, reach=reach)
    fields = [value for name, value in response.headers if name == "www-authenticate"]
    console.result(f"the server answers without a token with status {response.status}")
    if response.status not in (401, 403):
        console.result("ok: it asks for no login, at least not to initialize")
        return None
    challenge = next((each for each in parse_challenges(fields) if each.is_oauth), None)
    no_challenge = "it sends no challenge, as some servers of 2025-03-26 do"
    console.result(f"ok: it sends the challenge {_format_challenge(challenge)}" if challenge else no_challenge)
    return challenge or Challenge("Bearer", {})


def _format_challenge(challenge: Challenge) -> str:
    """Return a challenge as it is sent, or its parts where the server sends what no field may hold."""
    try:
        return str(challenge)
    except ValueError:
        return f"{challenge.scheme} {dict(challenge.params)!a}"


def _print_responses(flow: Flow[Any], console: Console) -> Flow[Any]:
    """Run a flow, and print the status of each response."""
    effect = next(flow)
    while True:
        answer = yield effect
        if isinstance(effect, Fetch):
            console.result(f"  {effect.method} {effect.url}: status {answer.status}")
        try:
            effect = flow.send(answer)
        except StopIteration as end:
            return end.value


def _judge(server: AuthorizationServerMetadata, console: Console) -> None:
    if server.client_documents:
        console.result("ok: clients may be metadata documents")
    if server.registration_endpoint is not None:
        console.result("ok: clients register themselves")
    elif not server.client_documents:
        console.result("clients do not register themselves: give --client-id to mcpio login")
    if server.is_default:
        console.result("it has no metadata: the endpoints are those of 2025-03-26")
    console.result(f"clients authenticate by {', '.join(server.auth_methods)}")
    for name, purpose in (
        ("device_authorization_endpoint", "logins by a code: mcpio login --device"),
        ("revocation_endpoint", "revocation: mcpio logout --revoke"),
    ):
        if getattr(server, name) is not None:
            console.result(f"ok: it has {purpose}")


# ----------------------------------------------------------------------------------------------- the stored credentials


def _store() -> FileCredentials:
    """Return the store of the command line: that of `open_http` by default. Raises Failure without a home directory."""
    try:
        return FileCredentials()
    except RuntimeError as error:
        # Containers run programs as users that have neither HOME nor an entry in /etc/passwd.
        raise Failure(Exit.USAGE, "no place to keep logins: set HOME, or MCPIO_HOME to a directory") from error


def _has_place() -> bool:
    try:
        FileCredentials()
    except RuntimeError:
        return False
    return True


def _key_of(options: argparse.Namespace) -> str:
    """Return the key of the credentials. Raises Failure for a URL that is not one of a server over HTTP."""
    try:
        Location.parse(options.url)
        return f"{canonical_resource(options.url)} {options.account}"
    except ValueError as error:
        raise Failure(Exit.USAGE, str(error)) from error


def _read(key: str) -> Credentials | None:
    """Return the stored credentials of a key, or ``None``. Raises Failure for a file that cannot be used."""
    try:
        stored = _store().load(key)
        return None if stored is None else from_text(Credentials, stored.record)
    except OSError as error:
        # Without strerror it is the store's own text.
        reason = f"cannot read the login of {key}: {error.strerror}" if error.strerror else str(error)
        raise Failure(Exit.USAGE, reason) from error
    except ValueError as error:
        raise Failure(Exit.USAGE, str(error)) from error


def _forget(key: str) -> None:
    """Remove the stored credentials of a key. Raises Failure if that fails."""
    try:
        _store().forget(key)
    except OSError as error:
        raise Failure(Exit.UNWRITABLE, f"cannot remove the login of {key}: {error.strerror or error}") from error


def login_for(url: str, account: str | None) -> OAuth | None:
    """Return the authorization for a URL from the stored credentials of an account, if any.

    Without ``account`` it is the default one. Raises Failure if an account is named that is not logged in.
    """
    try:
        key = f"{canonical_resource(url)} {account or 'default'}"
    except ValueError:
        return None
    if account is None and not _has_place():
        return None  # where no login can be stored, there is no stored login
    if _read(key) is None:
        if account is not None:
            raise Failure(Exit.USAGE, f"account {account!r} is not logged in: mcpio login {url} --account {account}")
        return None
    return OAuth(account=account or "default")


def token_for(url: str, account: str | None) -> str | None:
    """Return the stored access token of an account, for a command that sends raw messages."""
    token = None if login_for(url, account) is None else _token(f"{canonical_resource(url)} {account or 'default'}")
    return None if token is None else token.access_token.reveal()


def _expiry(token: TokenSet, now: float) -> str:
    """Return in words how long a token is valid, and whether it can be renewed."""
    if token.expires_at is None:
        life = "does not say when it expires"
    elif token.expires_at <= now:
        life = "has expired"
    else:
        life = f"expires in {round(token.expires_at - now)} s"
    return f"the token {life}, and {'renews itself' if token.refresh_token is not None else 'cannot be renewed'}"
