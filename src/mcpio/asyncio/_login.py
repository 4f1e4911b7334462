"""``finish_login``: a login that another process began."""

from __future__ import annotations

from typing import Any

from mcpio._drivers.login import CredentialStore, LoginSetup, SingleFlow
from mcpio.asyncio._event_loop import AsyncioEventLoop
from mcpio.asyncio._runtime import AsyncioRuntime
from mcpio.auth.grants import OAuth
from mcpio.auth.payloads import PendingAuthorization

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

    Takes and raises what ``mcpio.trio.finish_login`` does.
    """
    setup = LoginSetup.check(url, {"auth": auth, "credentials": credentials}, **transport)
    await SingleFlow(setup, AsyncioEventLoop(), AsyncioRuntime(None)).finish(pending, callback_url)
