"""One of several processes of a server, behind a balancer: ``balanced_server.py PORT``.

They share three things: the keys of the request state (``STATE_KEYS``), and in Redis
(``REDIS_URL``) the bus of changes and the store of tasks. Clients see one server, at
``PUBLIC_HOST``.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import partial

import coredis
import trio

from mcpio import ConnectFailed, Context, Server
from mcpio.app import Accepted, RequestStates, TaskOptions
from mcpio.http import HostPolicy, HttpOptions
from mcpio.stores.redis import RedisStore
from mcpio.trio import serve_http

PUBLIC_HOST = os.environ.get("PUBLIC_HOST", "127.0.0.1:8000")
REDIS_URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")
LEASE = float(os.environ.get("LEASE", "30"))


@dataclass
class Amount:
    loaves: int


@dataclass
class Confirmation:
    sure: bool


async def main(port: int) -> None:
    # The first key signs, all of them verify.
    keys = [bytes.fromhex(key) for key in os.environ["STATE_KEYS"].split()]
    async with (
        RedisStore(REDIS_URL, lease=LEASE) as store,
        coredis.Redis.from_url(REDIS_URL) as database,
    ):
        server = Server(
            "bakery",
            "1.0",
            states=RequestStates(keys),
            tasks=TaskOptions(store=store, poll_interval=0.2),
            changes=store.changes,
        )

        @server.tool
        async def order(cake: str, ctx: Context) -> str:
            """Order loaves. Two rounds of questions: how many, and whether that is right."""
            amount = await ctx.elicit(f"How many loaves of {cake}?", Amount)
            if not isinstance(amount, Accepted):
                return "nothing was ordered"
            sure = await ctx.elicit(f"Order {amount.value.loaves}?", Confirmation)
            is_sure = isinstance(sure, Accepted) and sure.value.sure
            return f"{amount.value.loaves} {cake} ordered" if is_sure else "nothing was ordered"

        @server.tool(task_support="required", resume=True)
        async def bake(seconds: float, ctx: Context) -> str:
            """Bake cakes. If the process dies, another one starts again."""
            await ctx.sleep(seconds)
            return (
                "baked, at the second attempt" if ctx.task and ctx.task.is_resumed else "baked"
            )

        @server.tool(task_support="required")
        async def deliver(seconds: float, ctx: Context) -> str:
            """Deliver cakes. If the process dies, the task fails: its progress is unknown."""
            await ctx.sleep(seconds)
            return "delivered"

        @server.resource("bakery://counter")
        async def counter() -> str:
            """List the cakes on the counter."""
            return (await database.get("counter") or b"nothing").decode()

        @server.tool
        async def put_out(cake: str) -> str:
            """Put a cake on the counter."""
            await database.set("counter", cake)
            server.notify_resource_updated("bakery://counter")
            return "put out"

        @server.tool
        async def process(ctx: Context, seconds: float = 0) -> str:
            """Return the process id of the answering process, after some seconds."""
            await ctx.sleep(seconds)
            return str(os.getpid())

        options = HttpOptions(
            policy=HostPolicy.for_address("127.0.0.1", port, hosts=[PUBLIC_HOST]),
            sessions=False,
            health="/health",
        )
        await serve_http(server, port, options=options, handle_signals=True, drain=2, grace=5)


if __name__ == "__main__":
    try:
        trio.run(partial(main, int(sys.argv[1])))
    except ConnectFailed as error:  # RedisStore(wait=60) waits for Redis
        sys.exit(str(error))
