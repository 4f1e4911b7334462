"""A Trio client in a program with another event loop, such as a GUI's."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

import trio
from outcome import Outcome

from mcpio import McpError
from mcpio.trio import open_stdio

SERVER = [sys.executable, str(Path(__file__).parents[1] / "echo_server.py")]


class Window:
    """A stand-in for a GUI: calls queued functions one by one in its thread."""

    def __init__(self) -> None:
        self._todo: SimpleQueue[Callable[[], object] | None] = SimpleQueue()

    def call_soon(self, act: Callable[[], object]) -> None:
        """Queue a function, from any thread. Trio's guest mode needs such a function."""
        self._todo.put(act)

    def mainloop(self) -> None:
        while (act := self._todo.get()) is not None:
            act()

    def quit(self) -> None:
        self._todo.put(None)


class Echo:
    """A client with a callback interface. The host calls all methods except ``main``."""

    def __init__(
        self, on_open: Callable[[], object], on_answer: Callable[[str], object]
    ) -> None:
        self._on_open, self._on_answer = on_open, on_answer

    async def main(self) -> None:
        """Keep the client open until ``close`` is called. Runs under Trio."""
        async with open_stdio(SERVER) as self._client, trio.open_nursery() as self._nursery:
            self._on_open()
            await trio.sleep_forever()

    def ask(self, text: str) -> None:
        self._nursery.start_soon(self._ask, text)

    def close(self) -> None:
        self._nursery.cancel_scope.cancel()

    async def _ask(self, text: str) -> None:
        try:
            result = await self._client.call_tool("echo", {"text": text})
        except McpError as error:
            self._on_answer(f"failed: {error}")
        else:
            self._on_answer(result.text)


def main() -> None:
    """Open a window, ask when the client is open, and close at the answer."""
    window = Window()

    def on_open() -> None:
        window.call_soon(lambda: echo.ask("hello"))

    def on_answer(text: str) -> None:
        print(f"it says: {text}")
        window.call_soon(echo.close)

    def on_end(outcome: Outcome[None]) -> None:
        window.quit()
        outcome.unwrap()  # Raises the exception that ended the client, if any.

    echo = Echo(on_open, on_answer)
    trio.lowlevel.start_guest_run(
        echo.main, run_sync_soon_threadsafe=window.call_soon, done_callback=on_end
    )
    window.mainloop()


if __name__ == "__main__":
    main()
