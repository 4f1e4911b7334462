"""A tool that reports its progress, and stops when its call is cancelled."""

from __future__ import annotations

import trio

from mcpio import Context, Server
from mcpio.trio import memory_client

server = Server("bakery", "1.0")


@server.tool
async def bake(loaves: int, ctx: Context) -> str:
    """Bake some loaves, one after the other."""
    print("the oven is on")
    try:
        for number in range(1, loaves + 1):
            await trio.sleep(0.01)
            ctx.progress(number, loaves, f"loaf {number}")
    finally:
        print("the oven is off")  # when it was cancelled, too
    return f"{loaves} loaves"


def show(progress: float, total: float | None, message: str | None) -> None:
    print(f"  {message} of {total}")


async def main() -> None:
    async with memory_client(server) as client:
        result = await client.call_tool("bake", {"loaves": 2}, on_progress=show)
        print(result.text)

        with trio.CancelScope() as scope:

            def enough(progress: float, total: float | None, message: str | None) -> None:
                show(progress, total, message)
                if progress == 3:
                    scope.cancel()

            await client.call_tool("bake", {"loaves": 1000}, on_progress=enough)
    print(f"given up: {scope.cancelled_caught}")


if __name__ == "__main__":
    trio.run(main)
