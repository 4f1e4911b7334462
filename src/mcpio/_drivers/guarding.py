"""Protects a server by a ``Guard``: judges the head of each request, and fetches documents for its verifiers."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Any, Final

import attrs

from mcpio._drivers.fetch import fetch
from mcpio._drivers.setup import FaultLog
from mcpio.auth.resource_server import Guard, Refused, ResourceServer
from mcpio.auth.urls import EffectFailed
from mcpio.http.model import Denied, Headers, header_fields

if TYPE_CHECKING:
    from mcpio._drivers.event_loop import EventLoop, Flag
    from mcpio.auth.effects import Fetch
    from mcpio.auth.grant import Grant


class RequestGuard:
    """Admits the requests of one protected server, on any event loop.

    Most verdicts need no wait. Of the requests that wait for a fetch, one makes it, in its own task; if that is
    cancelled, the next one makes it again. So no task outlives the requests.
    """

    def __init__(self, server: ResourceServer, loop: Callable[[], EventLoop], *, wall_clock: Any = time.time) -> None:
        """``loop`` returns the running event loop."""
        self.guard: Guard = Guard(server, entropy=os.urandom)
        self._fields: Final = frozenset(name.encode() for name in server.request_fields)
        self._loop = loop
        self._faults = FaultLog(lambda: loop().now())
        self._wall_clock = wall_clock
        self._requests = 0
        # Each with the time at which its flow is abandoned: its request may be cancelled before it is performed.
        self._to_fetch: deque[tuple[Fetch, float]] = deque()
        self._verdicts: dict[Hashable, Grant | Refused] = {}
        self._waiting: dict[Hashable, Flag] = {}

    def admit(
        self, method: str, target: str, headers: Headers, *, certificate: str | None = None
    ) -> Grant | Denied | Awaitable[Grant | Denied]:
        """Return who sends a request, ``Denied`` for one that is refused, or an awaitable of either.

        ``certificate`` is the SHA-256 of the client's certificate, in hexadecimal.
        """
        self._requests += 1
        wanted = self._fields
        fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers if name in wanted]
        now = self._now()
        self._abandon(now)
        verdict = self.guard.admit(self._requests, fields, target, now, method=method, certificate=certificate)
        return self._wait(self._requests) if verdict is None else self._principal(verdict)

    def _now(self) -> float:
        now = self._loop().now()
        # Again each time: the clock of an event loop may stand still while the machine sleeps.
        self.guard.epoch = self._wall_clock() - now
        return now

    async def _wait(self, request: Hashable) -> Grant | Denied:
        """Wait for the verdict on a request. Each waiting task performs fetches that are due, for all of them."""
        flag = self._waiting[request] = self._loop().signal()
        try:
            while True:
                self._advance()
                if request in self._verdicts:
                    return self._principal(self._verdicts.pop(request))
                if self._to_fetch:
                    await self._fetch(*self._to_fetch.popleft())
                else:
                    await flag.wait()
        finally:
            del self._waiting[request]
            self._verdicts.pop(request, None)
            self._wake()

    async def _fetch(self, effect: Fetch, until: float) -> None:
        """Perform a fetch. If this task is cancelled, another waiting task performs the effect."""
        left = until - self._now()
        if left <= 0:
            return  # the flow is abandoned: nothing awaits the answer
        try:
            response = await fetch(attrs.evolve(effect, timeout=left), self._loop())
        except EffectFailed as error:
            self.guard.failed(effect.token, str(error), self._now())
        except BaseException:
            self._to_fetch.appendleft((effect, until))
            raise
        else:
            self.guard.answer(effect.token, response, self._now())
        finally:
            self._wake()

    def _abandon(self, now: float) -> None:
        """Abandon fetches whose time is over: those of cancelled requests would count as under way for ever."""
        # A flow may answer a failure with a further fetch, which is as late.
        while (deadline := self.guard.next_deadline()) is not None and deadline <= now:
            self.guard.handle_timeout(now)

    def _advance(self) -> None:
        now = self._now()
        self._abandon(now)
        while (effect := self.guard.next_effect()) is not None:
            self._to_fetch.append((effect, now + effect.timeout))
        while (failure := self.guard.next_failure()) is not None:
            # Without a traceback, as the text names the address and the reason; but with that of a broken verifier.
            self._faults.report(f"what verifies tokens could not be fetched: {failure}", failure.__cause__)
        while (admission := self.guard.next_admission()) is not None:
            if admission.request in self._waiting:  # otherwise its task was cancelled
                self._verdicts[admission.request] = admission.verdict

    def _wake(self) -> None:
        """Wake all waiting tasks: to read their outcomes, or to perform a fetch."""
        for flag in self._waiting.values():
            flag.set()

    def _principal(self, verdict: Grant | Refused) -> Grant | Denied:
        if not isinstance(verdict, Refused):
            return verdict
        if verdict.why:
            # The client is told the same for each invalid token, so this line is the only trace of the reason.
            reasons = ", and ".join(map(str, verdict.why))
            kind = ("token", *(each.claim for each in verdict.why))
            self._faults.report(f"a token is refused with status {verdict.status}: {reasons}", None, kind)
        return Denied(verdict.status, verdict.message, header_fields(verdict.headers))
