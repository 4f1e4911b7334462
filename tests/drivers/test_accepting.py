"""Accepting connections, on each loop: a client that comes as the wait is cancelled is there for the next one."""

from __future__ import annotations

import socket
from typing import Any

from eachloop import Here, each_loop, on_each_loop

__all__ = ["each_loop"]


@on_each_loop
async def test_a_client_that_comes_as_the_wait_is_cancelled_is_not_lost(here: Here) -> None:
    (listener,) = await here.loop.listen("127.0.0.1", 0)
    address = here.loop.socket_of(listener).getsockname()
    for steps in range(8):
        scope, accepted = here.scope(), list[Any]()

        async def accept(scope: Any = scope, accepted: list[Any] = accepted) -> None:
            with scope:
                accepted.append(await here.loop.accept(listener))

        async with here.tasks() as tasks:
            tasks.spawn(accept())
            for _ in range(3):
                await here.checkpoint()
            with socket.create_connection(address):
                for _ in range(steps):
                    await here.checkpoint()
                scope.cancel()
        if not accepted:
            accepted.append(await here.loop.accept(listener))
        await here.loop.abandon(accepted[0])
    await here.loop.close_listener(listener)
