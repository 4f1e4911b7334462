"""A parrot: a tool, a resource, a resource template and a prompt."""

from fastmcp import FastMCP

mcp = FastMCP("Parrot")


@mcp.tool
def say(text: str) -> str:
    """Echo a text."""
    return text


@mcp.resource("parrot://greeting")
def greeting() -> str:
    return "Hello!"


@mcp.resource("parrot://{text}")
def heard(text: str) -> str:
    """Return what the parrot heard."""
    return f"Heard: {text}"


@mcp.prompt("repeat")
def ask_to_repeat(text: str) -> str:
    return f"Repeat after me: {text}"
