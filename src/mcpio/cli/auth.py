"""``mcpio auth``: show stored credentials, and the authorization of a server."""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any

from mcpio._drivers.login import LoginSetup, SingleFlow
from mcpio.auth import (
    AuthorizationError,
    AuthorizationServerMetadata,
    Challenge,
    Fetch,
    Flow,
    MemoryCredentials,
    OAuth,
    Response,
    discover,
    parse_challenges,
)
from mcpio.auth.grant import format_scopes
from mcpio.cli import stored
from mcpio.cli.exit_status import Exit, Failure, in_flags
from mcpio.cli.output import Console
from mcpio.framing.json import dumps
from mcpio.revisions import LATEST_HANDSHAKE
from mcpio.trio import run_until_signalled
from mcpio.trio._event_loop import TrioEventLoop
from mcpio.trio._runtime import TrioRuntime

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.usage = "%(prog)s list\n       %(prog)s show URL [options]\n       %(prog)s doctor URL [options]"
    parser.add_argument("action", choices=("list", "show", "doctor"), help="what to do")
    parser.add_argument("url", nargs="?", metavar="URL", help="the URL of a server")
    parser.add_argument("--account", default="default", help="a name of your own, for several accounts at one server")
    parser.add_argument("--resource", help="doctor: check with this resource")
    parser.add_argument("--issuer", help="doctor: check with this authorization server")


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    console = Console()
    if options.action == "list":
        keys = tuple(stored.store().keys())
        if not keys:
            console.note("no account is logged in anywhere; mcpio login URL logs in")
        for key in keys:
            url, _, account = key.partition(" ")
            console.result(f"{url}  {account}")
        return Exit.DONE
    if options.url is None:
        raise Failure(Exit.USAGE, f"no URL given; see mcpio auth {options.action} --help")
    key = stored.key_of(options)
    if options.action == "show":
        return _show(options, console, key)
    return run_until_signalled(partial(_examine, options, console), timeout=None)


def _show(options: argparse.Namespace, console: Console, key: str) -> int:
    """Print the stored credentials without their secrets."""
    found = stored.read(key)
    if found is None:
        raise Failure(Exit.NOT_FOUND, f"account {options.account!r} is not logged in to {options.url}")
    for issuer, client in found.registrations.items():
        how = "registered by itself" if client.is_dynamic else "given"
        console.result(f"client at {issuer}: {client.client_id} ({how}, {client.auth_method})")
    token = found.token
    if token is None:
        console.result("no token")
        return Exit.DONE
    console.result(f"token by {token.issuer} for {token.resource}")
    console.result(f"scopes: {format_scopes(token.scopes) or 'none'}")
    console.result(stored.expiry(token, time.time()))
    return Exit.DONE


async def _examine(options: argparse.Namespace, console: Console) -> int:
    """Print each step of discovery, its result, and the option that helps if it fails."""
    method = OAuth(resource=options.resource, issuer=options.issuer)
    setup = LoginSetup.check(options.url, {"auth": method, "credentials": MemoryCredentials()})
    flow = SingleFlow(setup, TrioEventLoop(), TrioRuntime(None))
    context = await flow.context()
    try:
        challenge = await flow.run(_asked(options.url, context.reach, console))
        if challenge is None:
            return Exit.DONE
        found = await flow.run(_told(discover(context, method, challenge), console))
        console.result(f"ok: the resource is {found.resource}")
        console.result(f"ok: the authorization server is {found.server.issuer}")
        _judge(found.server, console)
        found.server.check_pkce()
    except AuthorizationError as error:
        console.result(f"failed: {in_flags(str(error))}")
        return Exit.REFUSED
    console.result("ok: a login can begin")
    return Exit.DONE


def _asked(url: str, reach: Any, console: Console) -> Flow[Challenge | None]:
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
    console.result(f"ok: it sends the challenge {_written(challenge)}" if challenge else no_challenge)
    return challenge or Challenge("Bearer", {})


def _written(challenge: Challenge) -> str:
    """Return a challenge as it is sent, or its parts where the server sends what no field may hold."""
    try:
        return str(challenge)
    except ValueError:
        return f"{challenge.scheme} {dict(challenge.params)!a}"


def _told(flow: Flow[Any], console: Console) -> Flow[Any]:
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
    for name, what in (
        ("device_authorization_endpoint", "logins by a code: mcpio login --device"),
        ("revocation_endpoint", "revocation: mcpio logout --revoke"),
    ):
        if getattr(server, name) is not None:
            console.result(f"ok: it has {what}")
