"""A Trio client inside a loop of callbacks that is not Trio's: what a GUI does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

import trio
from outcome import Outcome

from mcpio import Client, TextContent
from mcpio.trio import open_stdio

SERVER = [sys.executable, str(Path(__file__).parents[1] / "echo_server.py")]


class Window:
    """Stands for a GUI: what happens is put into its queue, and called in its one thread."""

    def __init__(self) -> None:
        self._todo: SimpleQueue[Callable[[], object] | None] = SimpleQueue()

    def call_soon(self, act: Callable[[], object]) -> None:
        """Legal from any thread, as ``root.after_idle`` or a queued signal is."""
        self._todo.put(act)

    def mainloop(self) -> None:
        while (act := self._todo.get()) is not None:
            act()

    def quit(self) -> None:
        self._todo.put(None)


class Echoes:
    """The program's own part: a client that lives in Trio, and a button that does not."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.answers: list[str] = []

    async def main(self) -> None:
        """Run under Trio, as long as the client is needed."""
        async with open_stdio(SERVER) as self.client, trio.open_nursery() as self.nursery:
            self.window.call_soon(self.press)
            self.closed = trio.Event()
            await self.closed.wait()

    def press(self) -> None:
        """Be called by the GUI, in its thread, which is Trio's too."""
        for text in ("one", "two"):
            self.nursery.start_soon(self.ask, self.client, text)

    async def ask(self, client: Client, text: str) -> None:
        result = await client.call_tool("echo", {"text": text})
        self.answers += [each.text for each in result.content if isinstance(each, TextContent)]
        if len(self.answers) == 2:
            self.closed.set()


def run() -> list[str]:
    """Run both loops, one in the other."""
    window = Window()
    echoes = Echoes(window)

    def done(outcome: Outcome[None]) -> None:
        window.quit()
        outcome.unwrap()

    trio.lowlevel.start_guest_run(
        echoes.main, run_sync_soon_threadsafe=window.call_soon, done_callback=done
    )
    window.mainloop()
    return echoes.answers


if __name__ == "__main__":
    print(", ".join(sorted(run())))
