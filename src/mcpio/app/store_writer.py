"""Carries out the effects of machines on their stores."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import attrs

from mcpio.app.runtime import settled

if TYPE_CHECKING:
    from mcpio.app.runtime import OneShot, Runtime, Spawned

E = TypeVar("E")
T = TypeVar("T")

BATCH: Final = 256
"""How many effects go to the store at once."""


@attrs.frozen(eq=False)
class _Read:
    """Something to read for a caller, between the effects of the machine."""

    call: Callable[[], Any]
    answered: OneShot


@attrs.define(eq=False)
class _Turn:
    """The task that works now. One that was replaced takes no more effects, and its answers are dropped."""

    runtime: Runtime
    task: Spawned | None = None


class StoreWriter(Generic[E]):
    """Carries out effects by a store, in order: at once, in a thread if it blocks, or in a task if it is async.

    A batch that was cut off is repeated, since nobody knows what became of it: writing twice must do no harm.
    """

    def __init__(
        self,
        store: Any,
        *,
        read: Callable[[E], Callable[[], Any] | None],
        next_effect: Callable[[], E | None],
        done: Callable[[E, Any], None],
        process: Callable[[], object],
    ) -> None:
        """Use a store.

        Args:
            store: The store. Its ``write`` makes a list of changes, and returns an answer for each, or ``None``.
            read: Returns the call for an effect that is no change, and ``None`` for a change.
            next_effect: Returns the next effect, or ``None``.
            done: Takes an effect with its answer, which may be the exception that the store raised.
            process: Acts on what follows from answers that came outside of ``carry_on``.
        """
        self._write: Callable[[list[Any]], Any] = store.write
        self._blocks: bool = store.blocking
        self._waits = self._blocks or inspect.iscoroutinefunction(store.write)
        self._read = read
        self._next_effect = next_effect
        self._done = done
        self._process = process
        self._reads: deque[_Read] = deque()
        self._unwritten: list[E | _Read] = []
        self._turn: _Turn | None = None

    def carry_on(self, runtime: Runtime | None) -> bool:
        """Perform effects, and return whether any were due. If the store waits, a task does it at ``runtime``."""
        if self._turn is not None or (self._waits and runtime is None):
            return False
        batch = self._take()
        if not self._waits or not batch or runtime is None:
            self._note(batch, self._perform(batch))
            return bool(batch)
        self._unwritten = batch
        self._turn = turn = _Turn(runtime)
        turn.task = runtime.spawn(self._work(turn, runtime))
        return False

    def stop(self, runtime: Runtime) -> None:
        """Stop the task that works, if that is at ``runtime``. The next one repeats what this one did not report."""
        if self._turn is not None and self._turn.runtime is runtime:
            self._replace(None)

    def _replace(self, turn: _Turn | None) -> None:
        before, self._turn = self._turn, turn
        if before is not None and before.task is not None:
            before.task.cancel()

    async def finish(self, runtime: Runtime) -> None:
        """Perform all effects in the calling task, in place of the task that works."""
        turn = _Turn(runtime)
        self._replace(turn)
        await self._work(turn, runtime)

    async def read(self, runtime: Runtime, call: Callable[[], Any]) -> Any:
        """Return the store's answer to a call, or raise its exception. If the store blocks, its turn comes in order."""
        if not self._blocks:
            return await settled(call())
        wanted = _Read(call, runtime.one_shot())
        self._reads.append(wanted)
        self._process()
        answer = await wanted.answered.wait()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def _work(self, turn: _Turn, runtime: Runtime) -> None:
        try:
            while self._turn is turn and (batch := self._take()):
                self._unwritten = batch
                if self._blocks:
                    values = await runtime.to_thread(partial(self._perform, batch))
                else:
                    values = [value for calls in self._calls(batch) for value in await _attempt(*calls)]
                if self._turn is not turn:
                    return  # the next turn repeats the batch, and takes the answer
                self._unwritten = []
                self._note(batch, values)
                self._process()
            if self._turn is turn and turn.task is not None:
                # Asked for effects, a machine may find that nothing is left to store, and release what waited for that.
                self._turn = None
                self._process()
        finally:
            if self._turn is turn:
                self._turn = None

    def _take(self) -> list[E | _Read]:
        """Return the next effects, first those that may not have been carried out."""
        batch, self._unwritten = self._unwritten, []
        while len(batch) < BATCH and (effect := self._next_effect()) is not None:
            batch.append(effect)
        while len(batch) < BATCH and self._reads:
            batch.append(self._reads.popleft())
        return batch

    def _calls(self, batch: Iterable[E | _Read]) -> Iterator[tuple[Callable[[], Any], int | None]]:
        """Yield a call for each effect that reads, and for changes that follow each other one with their number."""
        changes: list[Any] = []
        for effect in batch:
            call = effect.call if isinstance(effect, _Read) else self._read(effect)
            if call is None:
                changes.append(effect)
                continue
            if changes:
                yield partial(self._write, changes), len(changes)
                changes = []
            yield call, None
        if changes:
            yield partial(self._write, changes), len(changes)

    def _perform(self, batch: Iterable[E | _Read]) -> list[Any]:
        return [value for call, count in self._calls(batch) for value in _answers(_attempt_now(call), count)]

    def _note(self, batch: Iterable[E | _Read], values: Iterable[Any]) -> None:
        for effect, value in zip(batch, values, strict=True):
            if isinstance(effect, _Read):
                effect.answered.set(value)
            else:
                self._done(effect, value)


async def _attempt(call: Callable[[], Any], count: int | None) -> list[Any]:
    try:
        value = await settled(call())
    except Exception as error:
        value = error
    return _answers(value, count)


def _attempt_now(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return error


def _answers(value: Any, count: int | None) -> list[Any]:
    """Return the answer for each effect of a call."""
    if count is None:
        return [value]
    return [value] * count if value is None or isinstance(value, BaseException) else list(value)
