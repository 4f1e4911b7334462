"""``open_http``, ``connect_http`` and ``finish_login``: clients of servers over Streamable HTTP."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import trio

from mcpio._drivers.http_client import HttpActor, HttpClientTimeouts, HttpConnectOptions, HttpSetup, carry_over_http
from mcpio.app.client import Client
from mcpio.trio._drivers import TrioClientContext, run_client
from mcpio.trio._event_loop import TrioEventLoop
from mcpio.trio._runtime import TrioRuntime, uninterruptible

if TYPE_CHECKING:
    from mcpio.auth.effects import CredentialStore
    from mcpio.auth.grants import OAuth
    from mcpio.auth.payloads import PendingAuthorization

__all__ = ["HttpClientTimeouts", "connect_http", "open_http"]

uninterruptible(HttpActor)
# Or a KeyboardInterrupt could come between the start of the session and the ``try`` of ``run``.
trio.lowlevel.enable_ki_protection(carry_over_http)


async def connect_http(url: str, *, nursery: trio.Nursery, **options: Unpack[HttpConnectOptions]) -> Client:
    """Return a client that has completed the handshake with the server at a URL.

    Its tasks live in ``nursery`` and never raise. ``http+unix://%2Frun%2Fserver.sock/mcp`` is a server on a Unix
    socket: the path, percent-encoded, stands in place of the host.

    Raises ConnectFailed with the reason as its cause, and ValueError for a malformed URL or option.
    """
    setup = HttpSetup.check(url, options, trio.current_time())
    run = partial(carry_over_http, TrioEventLoop(), setup)
    return await run_client(run, nursery, is_resumed=setup.session.is_resumed)


def open_http(url: str, **options: Unpack[HttpConnectOptions]) -> TrioClientContext[Client]:
    """Return an async context manager that yields a client: ``async with open_http("http://…/mcp") as client``.

    See ``connect_http`` for the arguments.
    """
    return TrioClientContext(lambda nursery: connect_http(url, nursery=nursery, **options))


async def finish_login(
    url: str,
    auth: OAuth,
    pending: PendingAuthorization,
    callback_url: str,
    *,
    credentials: CredentialStore | None = None,
    **transport: Any,
) -> None:
    """Finish a login and store its tokens, where ``open_http`` finds them.

    For web applications: ``open_http(url, auth=OAuth(redirect_uri=…), interaction="never")`` fails with a
    `LoginRequired`, whose ``pending`` another process may finish when the browser comes back.

    Args:
        url: The URL of the MCP server.
        auth: The options with which the login began.
        pending: The login; ``to_text`` and ``from_text`` carry it between processes.
        callback_url: The URL that the browser was sent to.
        credentials: Where the tokens are stored; by default a ``FileCredentials()``.
        transport: ``ssl_context``, ``proxy`` and ``trust_env``, as for ``open_http``.

    Raises AuthorizationError for a URL of another login, and where the authorization server refuses.

    """
    from mcpio._drivers.login import LoginSetup, SingleFlow  # only clients that log in pay for it

    setup = LoginSetup.check(url, {"auth": auth, "credentials": credentials}, **transport)
    await SingleFlow(setup, TrioEventLoop(), TrioRuntime(None)).finish(pending, callback_url)
