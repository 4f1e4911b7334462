"""Servers whose one method does what a test says, and the request for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from linked import Link

from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.types import CustomRequest

ACT = CustomRequest("test/act", {})

both = pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])


def serving(handler: Callable[[Context, CustomRequest], Any]) -> Server:
    """Return a server whose method ``test/act`` is this handler."""
    server = Server("s")
    server.handlers["test/act"] = handler
    return server


def failing_with(error: BaseException, *, later: bool) -> Server:
    """Return a server whose method ``test/act`` fails, at once or in a task."""

    async def fail_later() -> None:
        raise error

    def fail(_: Context, __: CustomRequest) -> Any:
        if later:
            return fail_later()
        raise error

    return serving(fail)


def waiting() -> tuple[Server, list[Any]]:
    """Return a server whose method ``test/act`` waits for ever, and what happens to it."""
    seen: list[Any] = []

    async def wait(ctx: Context) -> Any:
        seen.append(ctx)
        try:
            await ctx.session.driver.runtime.one_shot().wait()
        finally:
            seen.append("over")
            ctx.session.check_open()  # a failure at the end of the connection is no news

    return serving(lambda ctx, _: wait(ctx)), seen


def act(link: Link) -> Any:
    return link.do(link.client.request(ACT))
