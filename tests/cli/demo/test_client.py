"""The demo's client tells every message with the phase after it, and fails where the conversation does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from mcpio import CallToolRequest, ConnectionLost, Context, RequestError, RequestTimeout, Server
from mcpio.cli.demo import Speaker
from mcpio.cli.demo.view import View
from mcpio.trio import serve
from mcpio.types import PingRequest


class Notes(View):
    """Takes down what it is told to show."""

    def __init__(self) -> None:
        super().__init__(lambda text: None, 80, colour=False)
        self.told: list[tuple[str, str]] = []

    def sent(self, text: str, phase: str, *, is_message: bool = True) -> None:
        self.told.append((_name(f"> {text}"), phase))

    def received(self, text: str, phase: str, *, is_message: bool = True) -> None:
        self.told.append((_name(f"< {text}"), phase))


def _name(text: str) -> str:
    """Return a message's direction and method, ``result`` or ``error``; other texts whole."""
    for word in ("result", "error"):
        if f'"{word}":' in text:
            return text[:2] + word
    return text[:2] + text.partition('"method":"')[2].partition('"')[0] if '"method"' in text else text


def _talk(talk: Callable[[Speaker], Awaitable[None]], *, silent: bool = False) -> list[tuple[str, str]]:
    """Hold a conversation with a server in memory, and return what was shown."""
    server = Server("test")

    @server.tool
    async def tick(ctx: Context) -> None:
        for number in range(1, 10):
            ctx.progress(number)
            await trio.testing.wait_all_tasks_blocked()
        await trio.sleep_forever()

    notes = Notes()

    async def main() -> None:
        near, far = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            if not silent:
                nursery.start_soon(serve, server, far)
            await talk(Speaker(near, notes))

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.01))
    return notes.told


def test_whole_conversation_succeeds() -> None:
    async def talk(client: Speaker) -> None:
        await client.initialize()
        await client.ask(PingRequest())
        await client.close()

    assert _talk(talk) == [
        ("> initialize", "initializing"),
        ("< result", "operating"),
        ("> notifications/initialized", "operating"),
        ("> ping", "operating"),
        ("< result", "operating"),
        ("> (end of input)", "closed"),
        ("< (end of output)", "closed"),
    ]


def test_cancelled_call_ends() -> None:
    async def talk(client: Speaker) -> None:
        await client.initialize()
        await client.ask_and_cancel(CallToolRequest("tick"), after=2)
        await client.ask(PingRequest())
        await client.close()

    told = [what for what, _ in _talk(talk)]
    assert told.count("< notifications/progress") >= 2
    assert "> notifications/cancelled" in told
    assert told.index("> notifications/cancelled") < told.index("> ping")


def test_error_response_raises() -> None:
    async def talk(client: Speaker) -> None:
        await client.initialize()
        with pytest.raises(RequestError):
            await client.ask(CallToolRequest("nothing"))
        await client.close()

    assert ("< error", "operating") in _talk(talk)


def test_silent_server_times_out() -> None:
    async def talk(client: Speaker) -> None:
        with pytest.raises(RequestTimeout):
            await client.initialize()

    assert _talk(talk, silent=True) == [("> initialize", "initializing")]


def test_server_exit_raises() -> None:
    async def main() -> None:
        near, far = trio.testing.memory_stream_pair()
        await far.send_eof()
        with pytest.raises(ConnectionLost):
            await Speaker(near, Notes()).initialize()

    trio.run(main)
