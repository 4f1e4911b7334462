"""A server whose tools do well, fail and never end, on any loop."""

from __future__ import annotations

from mcpio import Context, Refusal, Server

__all__ = ["busy_server"]


def busy_server() -> tuple[Server, list[str]]:
    """Return it, and a list of the names of tools that were cut off."""
    server = Server("busy")
    ended: list[str] = []

    @server.tool
    def echo(text: str) -> str:
        return text

    @server.tool
    def fails() -> str:
        raise ValueError("the reason")

    @server.tool
    async def fails_later(ctx: Context) -> str:
        await ctx.session.driver.runtime.sleep(1)
        raise ValueError("the reason")

    @server.tool
    def refuses() -> str:
        raise Refusal(1003, "not at this hour", retryable=True)

    @server.tool
    async def never_ends(ctx: Context) -> None:
        try:
            await ctx.session.driver.runtime.one_shot().wait()
        finally:
            ended.append("never_ends")

    return server, ended
