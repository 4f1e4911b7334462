"""Our server that asks everything a client may be asked, for the SDK's client."""

from __future__ import annotations

from typing import Annotated, Literal

import attrs
import trio

from mcpio import Context, Server
from mcpio.app import Accepted, Constraints
from mcpio.errors import URLElicitationRequired
from mcpio.trio import serve_stdio
from mcpio.types import CreateMessageRequest, ElicitURLRequest, SamplingMessage, TextContent

server = Server("mcpio", "1")


@attrs.frozen
class Booking:
    to: Annotated[str, "Where to", Constraints(min_length=3)]
    extras: tuple[Literal["meal", "bag"], ...] = ()
    people: int = 1
    note: str | None = None


@server.tool(structured=False)
async def book(ctx: Context) -> str:
    return repr(await ctx.elicit("Where to?", Booking))


@server.tool(structured=False)
async def connect(ctx: Context) -> str:
    answer = await ctx.elicit_url("Log in", "https://example.com/connect", elicitation_id="visit")
    if isinstance(answer, Accepted):
        server.notify_elicitation_complete(answer.value)
    return answer.action


@server.tool(structured=False)
def locked() -> str:
    raise URLElicitationRequired([ElicitURLRequest("Log in", "https://example.com/first", "first")])


@server.tool(structured=False)
async def advise(ctx: Context) -> str:
    def temperature(city: str) -> int:
        """Tell the temperature."""
        return len(city)

    question = SamplingMessage("user", TextContent("How warm is it?"))
    said = await ctx.sample_with_tools(CreateMessageRequest((question,), 100), [temperature])
    return " ".join(block.text for block in said.blocks if isinstance(block, TextContent))


@server.tool(structured=False)
async def places(ctx: Context) -> str:
    return " ".join(root.uri for root in await ctx.roots())


trio.run(serve_stdio, server)
