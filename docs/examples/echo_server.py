"""A server over standard input and output: tools, one of them slow, a resource, a prompt."""

from __future__ import annotations

import trio

from mcpio import Context, Server
from mcpio.trio import serve_stdio

server = Server("echo", "1.0", instructions="Repeats a text.")


@server.tool
def echo(text: str) -> str:
    """Echo a text."""
    return text


@server.tool
async def echo_slowly(text: str, ctx: Context, times: int = 3, pause: float = 0.01) -> str:
    """Echo a text several times, with a pause before each."""
    for count in range(1, times + 1):
        await trio.sleep(pause)
        ctx.progress(count, times, text)
    ctx.info(f"said {text!r} {times} times")
    return " ".join([text] * times)


@server.resource("echo://{text}")
def echoed(text: str) -> str:
    """Return the text in the address."""
    return text


@server.prompt
def repeat(text: str) -> str:
    """Ask the model to repeat a text."""
    return f"Say just this: {text}"


if __name__ == "__main__":
    trio.run(serve_stdio, server)
