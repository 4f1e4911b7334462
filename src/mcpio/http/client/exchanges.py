"""The exchanges of a client that are under way, and those that are to begin in a while."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mcpio.engine.timers import Timers
from mcpio.events import OutgoingId
from mcpio.http.client.exchange import ClientExchange, Purpose
from mcpio.http.model import Body, End, RequestHead, RequestItem, Reset

__all__ = ["LEAVING", "ClientExchanges"]

LEAVING: Final = 0
"""The timer of a farewell. Those of calls have the number of their call, which is positive."""


class ClientExchanges:
    """Numbers calls, makes requests of them, and has one timer for each."""

    now: float
    """The time that it was told last."""
    timers: Timers[int]
    """By call, and ``LEAVING``."""
    target: str
    """Where new calls go; nowhere while it is empty."""

    def __init__(self, target: str, headers: Mapping[str, str]) -> None:
        """``headers`` go with every request."""
        self.now = float("-inf")
        self.timers = Timers()
        self.target = target
        self._calls: dict[int, ClientExchange] = {}
        self._later: dict[int, ClientExchange] = {}
        self._items: list[RequestItem] = []
        self._next = 1
        self._headers = tuple((name.lower().encode(), value.encode()) for name, value in headers.items())

    def __len__(self) -> int:
        """Return how many are under way."""
        return len(self._calls)

    def __contains__(self, call: ClientExchange | None) -> bool:
        """Whether a call is under way."""
        return call is not None and call.number in self._calls

    def get(self, exchange: object) -> ClientExchange | None:
        """Return the call whose exchange that is, if it is under way."""
        return self._calls.get(exchange) if isinstance(exchange, int) else None

    def new(
        self, purpose: Purpose, *, text: bytes = b"", asked: tuple[OutgoingId, ...] = (), resumes: str | None = None
    ) -> ClientExchange:
        """Return a call that is not made yet."""
        call = ClientExchange(self._next, purpose, self.target, text=text, asked=asked, resumes=resumes)
        self._next += 1
        return call

    def make(self, call: ClientExchange, session_id: str | None, revision: str | None) -> None:
        """Make a request: for the first time, or again somewhere else."""
        self._calls[call.number] = call
        call.begin(session_id, self.now)
        headers = [*self._headers, *call.headers()]
        if revision is not None:
            headers.append((b"mcp-protocol-version", revision.encode()))
        self._items.append(RequestHead(call.number, call.purpose.method, call.target, headers))
        if call.text:
            self._items.append(Body(call.number, call.text))
        self._items.append(End(call.number))

    def make_later(self, call: ClientExchange, delay: float) -> None:
        """Keep a call until its timer expires: then ``pop_due`` gives it."""
        self._later[call.number] = call
        self.timers.set(call.number, self.now + delay)

    def pop_due(self, number: int) -> ClientExchange | None:
        """Take out a call that was kept."""
        return self._later.pop(number, None)

    def cut(self, call: ClientExchange) -> None:
        """Break an exchange off, or do not begin it."""
        if call.number in self._calls:
            self._items.append(Reset(call.number))
        self.forget(call)

    def cut_all(self, *, but: ClientExchange | None = None) -> None:
        """Break all off, but for one."""
        for call in [*self._calls.values(), *self._later.values()]:
            if call is not but:
                self.cut(call)

    def forget(self, call: ClientExchange) -> None:
        """Note that an exchange is over."""
        self._calls.pop(call.number, None)
        self._later.pop(call.number, None)
        self.timers.clear(call.number)

    def end_soon(self, call: ClientExchange, delay: float) -> None:
        """Give a call so long to end by itself; a call that has not begun is not begun."""
        if call.number in self._calls:
            self.timers.set(call.number, self.now + delay)
        elif call.number in self._later:
            self.forget(call)

    @property
    def collected_bytes(self) -> int:
        """The memory that unfinished messages take."""
        return sum(call.collected_bytes for call in self._calls.values())

    @property
    def longest(self) -> ClientExchange:
        """The call with the longest unfinished message; there is one. Of several, the first."""
        return max(self._calls.values(), key=lambda call: call.collected_bytes)

    def pop_items(self) -> list[RequestItem]:
        """Return what is to be sent, once."""
        items, self._items = self._items, []
        return items

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way or to be sent."""
        return not self._calls and not self._items
