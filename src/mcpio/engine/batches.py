"""Batches (2025-03-26): the items of an outgoing one, and the joined answers to incoming ones."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

import attrs

from mcpio.engine.limits import DEFAULT, Default, Timeout

if TYPE_CHECKING:
    from mcpio.engine.snapshot import BatchState

__all__ = ["BatchItem", "Batches", "JoinedAnswers", "as_item"]


@attrs.frozen
class BatchItem:
    """One request of a batch with options; a bare payload has the defaults."""

    payload: Any
    """The request, or a notification, to which the options do not apply."""
    timeout: Timeout | float | Default | None = DEFAULT
    """Seconds, a ``Timeout``, or ``None`` for no limit."""
    cookie: Any = None
    """Comes back in the events of this request."""
    progress: bool = False
    """Whether to ask for ``ProgressReceived``."""


def as_item(item: Any) -> BatchItem:
    """Return an item for a bare payload."""
    return item if isinstance(item, BatchItem) else BatchItem(item)


@attrs.frozen
class JoinedAnswers:
    """All answers to one batch."""

    text: bytes
    """One JSON array."""
    via: Hashable
    """The exchange that brought the batch."""
    ids: tuple[int, ...]
    """Our keys of its requests."""


class _Open:
    """A received batch without all of its answers."""

    __slots__ = ("answers", "ids", "running", "via")

    def __init__(self, via: Hashable) -> None:
        self.via: Hashable = via
        self.ids: list[int] = []
        self.running: set[int] = set()
        self.answers: list[bytes] = []


class Batches:
    """The received batches whose answers wait for each other."""

    __slots__ = ("_by_request", "_receiving", "size")

    size: int
    """Bytes of the answers that wait."""

    def __init__(self) -> None:
        self._by_request: dict[int, _Open] = {}
        self._receiving: _Open | None = None
        self.size = 0

    def __bool__(self) -> bool:
        return bool(self._by_request) or self._receiving is not None

    def begin(self, via: Hashable) -> None:
        """Start to receive a batch."""
        self._receiving = _Open(via)

    def admit(self, ids: Iterable[int]) -> None:
        """Add requests of the batch that is being received."""
        batch = self._receiving
        if batch is not None:
            for id in ids:
                self._by_request[id] = batch
                batch.ids.append(id)
                batch.running.add(id)

    def collect(self, text: bytes) -> bool:
        """Keep an automatic answer if a batch is being received; return whether one is being received."""
        if self._receiving is None:
            return False
        self._keep(self._receiving, text)
        return True

    def end(self) -> JoinedAnswers | None:
        """Finish receiving the batch. Returns its answers if they are complete."""
        batch, self._receiving = self._receiving, None
        return None if batch is None else self._finished(batch)

    def __contains__(self, id: int) -> bool:
        return id in self._by_request

    def settle(self, id: int, text: bytes | None) -> JoinedAnswers | None:
        """Record the answer to a request, ``None`` if it gets none. Returns the answers if they are complete."""
        batch = self._by_request.pop(id)
        batch.running.discard(id)
        if text is not None:
            self._keep(batch, text)
        return None if batch is self._receiving else self._finished(batch)

    def save(self) -> list[BatchState]:
        """Return the batches that wait for answers."""
        from mcpio.engine.snapshot import BatchState  # few connections are ever written out

        open_batches = {id(batch): batch for batch in self._by_request.values()}.values()
        return [
            BatchState(
                via=batch.via,  # type: ignore[arg-type]  # that of its requests, which the connection has checked
                ids=list(batch.ids),
                running=sorted(batch.running),
                answers=[text.decode() for text in batch.answers],
            )
            for batch in open_batches
        ]

    def load(self, states: list[BatchState]) -> None:
        """Restore the result of ``save``."""
        for state in states:
            batch = _Open(state.via)
            batch.ids += state.ids
            batch.running |= set(state.running)
            self._by_request |= dict.fromkeys(state.running, batch)
            for text in state.answers:
                self._keep(batch, text.encode())

    def _keep(self, batch: _Open, text: bytes) -> None:
        batch.answers.append(text)
        self.size += len(text)

    def _finished(self, batch: _Open) -> JoinedAnswers | None:
        if batch.running or not batch.answers:
            return None  # a batch of notifications gets no reply (BATCH-05)
        self.size -= sum(map(len, batch.answers))
        return JoinedAnswers(b"[" + b",".join(batch.answers) + b"]", batch.via, tuple(batch.ids))
