"""``finish_login``: a login that another process began."""

from __future__ import annotations

from typing import Any

from mcpio._drivers.login import CredentialStore, LoginSetup, SingleFlow
from mcpio.auth.grants import OAuth
from mcpio.auth.payloads import PendingAuthorization
from mcpio.trio._event_loop import TrioEventLoop
from mcpio.trio._runtime import TrioRuntime

__all__ = ["finish_login"]


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
    setup = LoginSetup.check(url, {"auth": auth, "credentials": credentials}, **transport)
    await SingleFlow(setup, TrioEventLoop(), TrioRuntime(None)).finish(pending, callback_url)
