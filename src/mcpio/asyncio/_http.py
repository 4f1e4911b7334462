"""``open_http``, ``connect_http`` and ``finish_login``: clients of servers over Streamable HTTP."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from mcpio._drivers.http_client import HttpClientTimeouts, HttpConnectOptions, HttpSetup, carry_over_http
from mcpio.app.client import Client
from mcpio.asyncio._drivers import AsyncioClientContext, Started, run_client
from mcpio.asyncio._event_loop import AsyncioEventLoop
from mcpio.asyncio._runtime import AsyncioRuntime

if TYPE_CHECKING:
    from mcpio.auth.effects import CredentialStore
    from mcpio.auth.grants import OAuth
    from mcpio.auth.payloads import PendingAuthorization

__all__ = ["HttpClientTimeouts", "connect_http", "open_http"]


async def connect_http(
    url: str, *, group: asyncio.TaskGroup | None = None, **options: Unpack[HttpConnectOptions]
) -> Client:
    """Return a client that has completed the handshake with the server at a URL.

    It is tied to no block, and any task may close it. It ends when it is closed, or with ``group``, in which its tasks
    run and never raise; without a group it ends with the event loop. ``http+unix://%2Frun%2Fserver.sock/mcp`` is a
    server on a Unix socket: the path, percent-encoded, stands in place of the host.

    Raises ConnectFailed with the reason as its cause, and ValueError for a malformed URL or option.
    """
    client, _ = await _start(url, group, options)
    return client


def open_http(url: str, **options: Unpack[HttpConnectOptions]) -> AsyncioClientContext[Client]:
    """Return an async context manager that yields a client: ``async with open_http("http://…/mcp") as client``.

    See ``connect_http`` for the arguments.
    """
    return AsyncioClientContext(lambda: _start(url, None, options))


async def _start(url: str, group: asyncio.TaskGroup | None, options: Any) -> Started[Client]:
    setup = HttpSetup.check(url, options, asyncio.get_running_loop().time())
    run = partial(carry_over_http, AsyncioEventLoop(), setup)
    return await run_client(run, group, is_resumed=setup.session.is_resumed)


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

    Takes and raises what ``mcpio.trio.finish_login`` does.
    """
    from mcpio._drivers.login import LoginSetup, SingleFlow  # only clients that log in pay for it

    setup = LoginSetup.check(url, {"auth": auth, "credentials": credentials}, **transport)
    await SingleFlow(setup, AsyncioEventLoop(), AsyncioRuntime(None)).finish(pending, callback_url)
