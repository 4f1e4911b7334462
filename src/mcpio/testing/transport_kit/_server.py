"""The server that the checks talk to, and a record of what it received."""

from __future__ import annotations

from typing import Any, Final

import attrs

from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.testing.transport_kit._loops import current_loop
from mcpio.types import CreateMessageRequest, SamplingMessage, TextContent
from mcpio.types.base import CustomRequest

ECHO: Final = "kit/echo"
"""A method outside the protocol: answers with its params."""
NOTE: Final = "notifications/kit"
"""A notification that the server records."""


@attrs.define
class Seen:
    """A record of the messages that the kit's server received."""

    calls: list[str] = attrs.field(factory=list)
    """The arguments of the calls of ``echo``."""
    notes: list[int] = attrs.field(factory=list)
    """The numbers of the notifications."""
    waiting: int = 0
    """The number of calls of ``wait`` that started."""
    ended: int = 0
    """The number of them that ended."""
    flooded: bool = False
    """Whether a call of ``flood`` has sent everything."""
    released: Any = None
    """The event that the calls of ``wait`` wait for, if there are any."""

    def release(self) -> None:
        """Release every call of ``wait``."""
        if self.released is not None:
            self.released.set()
            self.released = None

    async def wait_released(self) -> None:
        """Wait for the next ``release``."""
        if self.released is None:
            self.released = current_loop().event()
        await self.released.wait()


def kit_server(seen: Seen | None = None, limits: Limits | None = None) -> Server:
    """Return the kit's server. Where ``Harness.in_process`` is false, another process serves it."""
    seen = seen or Seen()
    server = Server("kit", "1", options=Options(limits=limits or Limits()))
    _add_quick_tools(server, seen)
    _add_slow_tools(server, seen)
    server.handlers[ECHO] = _answer_with_params
    server.notification_handlers[NOTE] = lambda _, note: seen.notes.append(note.params["number"])
    return server


def _add_quick_tools(server: Server, seen: Seen) -> None:
    @server.tool
    def echo(text: str) -> str:
        seen.calls.append(text)
        return text

    @server.tool
    def large(size: int) -> str:
        return counted(size)

    @server.tool
    def measure(text: str) -> int:
        return len(text)

    @server.tool
    def meta(ctx: Context) -> dict[str, Any]:
        return dict(ctx.meta)

    @server.tool(name="report")
    def tell() -> dict[str, Any]:
        return {"calls": seen.calls, "notes": seen.notes, "waiting": seen.waiting, "ended": seen.ended}

    @server.tool
    def talk(ctx: Context, count: int) -> int:
        for number in range(count):
            ctx.info(number)
        ctx.progress(count)
        return count


def _add_slow_tools(server: Server, seen: Seen) -> None:
    """Add the tools that are in progress while something else happens: a cancellation, an end, a slow reader.

    The calls of ``meet`` wait for each other, and then the last one answers first: over a transport that carries one
    request at a time they never end, and over one that pairs answers with requests by their order they get mixed up.
    """
    arrived: dict[int, Any] = {}

    @server.tool
    async def meet(number: int, of: int) -> int:
        arrived[number] = current_loop().event()
        if len(arrived) == of:
            arrived[max(arrived)].set()
        await arrived[number].wait()
        del arrived[number]
        if arrived:
            arrived[max(arrived)].set()
        return number

    @server.tool
    async def wait() -> None:
        seen.waiting += 1
        try:
            await seen.wait_released()
        finally:
            seen.ended += 1

    @server.tool
    async def flood(ctx: Context, count: int, size: int) -> int:
        for number in range(count):
            ctx.info([number, "x" * size])
            await current_loop().runtime.sleep(0.001)
        seen.flooded = True
        return count

    @server.tool
    async def ask(ctx: Context, questions: list[str]) -> list[str]:
        answers: dict[str, str] = {}

        async def put(question: str) -> None:
            request = CreateMessageRequest((SamplingMessage("user", TextContent(question)),), max_tokens=10)
            answers[question] = str((await ctx.sample(request)).content.text)  # type: ignore[union-attr]  # the parrot's

        async with current_loop().tasks() as group:
            for question in questions:
                group.start_soon(put, question)
        return [answers[question] for question in questions]


def _answer_with_params(_: object, request: CustomRequest) -> Any:
    return dict(request.params)


def counted(size: int) -> str:
    """Return a text of ``size`` characters without repetitions, so that missing parts are noticed."""
    words = " ".join(map(str, range(size // 4 + 8)))
    return words[:size]
