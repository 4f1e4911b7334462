"""Our server with the tools that every peer's server here has: ``python common_server.py stdio``, or ``http``.

Over HTTP it prints its URL first.
"""

from __future__ import annotations

import sys

import trio

from mcpio import Context, Server, ToolError
from mcpio.trio import serve_http, serve_stdio
from mcpio.types import ElicitFormRequest, ElicitSchema, StringSchema

server = Server("mcpio", "1")


@server.tool
def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def count(to: int, ctx: Context) -> str:
    for number in range(1, to + 1):
        ctx.progress(number, to, f"step {number}")
        await trio.sleep(0.05)  # a report that arrives together with the result is lost on the TypeScript client
    return "done"


@server.tool
async def greet(ctx: Context) -> str:
    form = ElicitSchema({"name": StringSchema()}, ("name",))
    answer = await ctx.elicit(ElicitFormRequest("Who are you?", form))
    return f"{answer.action} {(answer.content or {}).get('name')}"


@server.tool
def fail() -> str:
    raise ToolError("as it should")


async def main() -> None:
    if sys.argv[1] == "stdio":
        await serve_stdio(server)
        return
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    print(f"http://127.0.0.1:{listener.socket.getsockname()[1]}/mcp", flush=True)
    await serve_http(server, listeners=[listener])


if __name__ == "__main__":
    trio.run(main)
