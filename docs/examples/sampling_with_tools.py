"""A tool that lets the client's model work: with two functions, for three rounds at most."""

from __future__ import annotations

import trio

from mcpio import ClientCapabilities, Context, Server, TextContent
from mcpio.app import RequestScope
from mcpio.trio import memory_client
from mcpio.types import (
    CreateMessageRequest,
    CreateMessageResult,
    SamplingCapability,
    SamplingMessage,
    ToolResultContent,
    ToolUseContent,
)

server = Server("weather", "1.0")


def temperature(city: str) -> int:
    """Return the temperature in a city, in degrees Celsius."""
    return {"Oslo": 4, "Rome": 21}[city]


def warmer(first: int, second: int) -> bool:
    """Return whether the first of two temperatures is higher."""
    return first > second


@server.tool
async def advise(question: str, ctx: Context) -> str:
    """Answer a question about the weather."""
    message = SamplingMessage("user", TextContent(question))
    request = CreateMessageRequest((message,), max_tokens=200)
    answer = await ctx.sample_with_tools(request, [temperature, warmer], rounds=3)
    return answer.text


def shown(block: object) -> str:
    """Return a function's result as the text that the model reads."""
    return block.text if isinstance(block, ToolResultContent) else ""


def think(scope: RequestScope, request: CreateMessageRequest) -> CreateMessageResult:
    """Stand in for a model: look both cities up, then answer."""
    if len(request.messages) == 1:
        print("tools:", *[tool.name for tool in request.tools or ()])
        looked_up = tuple(
            ToolUseContent(city, "temperature", {"city": city}) for city in ("Oslo", "Rome")
        )
        return CreateMessageResult("assistant", looked_up, "a-model", "toolUse")
    print("results:", *[shown(block) for block in request.messages[-1].blocks])
    return CreateMessageResult("assistant", TextContent("Go to Rome."), "a-model", "endTurn")


async def main() -> None:
    can = ClientCapabilities(sampling=SamplingCapability(tools={}))
    async with memory_client(server, sampling=think, capabilities=can) as client:
        print((await client.call_tool("advise", {"question": "Oslo or Rome?"})).text)


if __name__ == "__main__":
    trio.run(main)
