"""Trio in a thread, beside a test on asyncio: for servers and relays that exist on Trio only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar

import trio

T = TypeVar("T")


class TrioThread(Generic[T]):
    """Enters a block of Trio's in a thread, for the length of a plain block, which gets what that yields."""

    def __init__(self, block: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._block = block
        self._entered: SimpleQueue[Any] = SimpleQueue()
        self._thread = Thread(target=self._run, name="trio")

    def _run(self) -> None:
        async def main() -> None:
            async with self._block() as value:
                left = trio.Event()
                self._entered.put((value, trio.lowlevel.current_trio_token(), left))
                await left.wait()

        try:
            trio.run(main)
        except BaseException as error:
            self._entered.put(error)

    def __enter__(self) -> T:
        self._thread.start()
        entered = self._entered.get(timeout=20)
        if isinstance(entered, BaseException):
            raise entered
        value, self._token, self._left = entered
        result: T = value
        return result

    def __exit__(self, *_: object) -> None:
        self.call(self._left.set)
        self._thread.join(20)
        assert not self._thread.is_alive()
        if not self._entered.empty():
            raise self._entered.get()

    def call(self, function: Callable[[], object]) -> None:
        """Call a function in Trio's thread, and wait until it has returned."""
        trio.from_thread.run_sync(function, trio_token=self._token)

    def run(self, function: Callable[[], Awaitable[object]]) -> None:
        """Await a function in Trio's thread."""
        trio.from_thread.run(function, trio_token=self._token)
