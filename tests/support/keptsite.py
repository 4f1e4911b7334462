"""``httpsite.Site`` with a store of sessions, which answers when a test lets it, and as the test wants."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from itertools import count
from typing import Any

from httpsite import INFO, Site

from mcpio.app.session_store import MemorySessionStore
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.errors import LocalProtocolError
from mcpio.http.durable import DurableHooks, DurableSessions
from mcpio.http.model import HttpOptions
from mcpio.http.server import HttpServer
from mcpio.http.sessions import HttpSession, SessionEffect, SessionLoad
from mcpio.types.features import ServerCapabilities, ToolsCapability

DRAWN = count(1)
"""No two processes draw the same ids."""


class KeptSite(Site):
    """A machine whose sessions outlive it."""

    def __init__(
        self,
        store: MemorySessionStore | None = None,
        options: HttpOptions | None = None,
        *,
        limits: Limits | None = None,
        epoch: float = 1000.0,
    ) -> None:
        super().__init__(options, limits=limits)
        self.store = MemorySessionStore() if store is None else store
        self.effects: list[SessionEffect] = []
        """All that the machine wanted so far."""
        self.is_late = False
        """Whether the store answers only when ``answer_store`` is called."""
        self.error: Exception | None = None
        """What the store raises."""
        self.unsayable: Any = None
        """What to make part of each session that is saved."""
        self.reports: list[str] = []
        self._waiting: deque[SessionEffect] = deque()
        self._engine = Options(limits=limits or Limits())
        capabilities = ServerCapabilities(tools=ToolsCapability(list_changed=True), logging={})
        self.machine = HttpServer(
            lambda principal: ServerConnection(INFO, capabilities, principal=principal, options=self._engine),
            entropy=lambda size: next(DRAWN).to_bytes(size, "big"),
            options=options,
            limits=limits,
            durable=DurableSessions(
                DurableHooks(save=self._save, restore=self._restore, report=self._report, epoch=epoch)
            ),
        )

    def next_process(self, options: HttpOptions | None = None, **more: Any) -> KeptSite:
        """Return a machine in the same store. This one is dead."""
        return KeptSite(self.store, options, **more)

    def settle(self) -> None:
        """Drain the events, have the store work, and write what there is."""
        while True:
            super().settle()
            effect = self.machine.next_effect()
            if effect is None:
                break
            self.effects.append(effect)
            self._waiting.append(effect)
            if not self.is_late:
                self._answer()
        super().settle()

    def answer_store(self) -> None:
        """Have the store answer what it was asked until now, in order."""
        for _ in range(len(self._waiting)):
            self._answer()
        self.settle()

    def said(self) -> list[str]:
        """Return what the machine wanted of the store so far, by kind, and forget it."""
        said = [type(effect).__name__.removeprefix("Session") for effect in self.effects]
        self.effects.clear()
        return said

    def _carry_on(self) -> bool:
        return False  # what the base class would do at once, is done here when it is to be

    def _answer(self) -> None:
        effect = self._waiting.popleft()
        self.machine.store_done(effect.token, self._work(effect), self.now)

    def _work(self, effect: SessionEffect) -> Any:
        if self.error is not None:
            return self.error
        if isinstance(effect, SessionLoad):
            return self.store.session(effect.key)
        self.store.write([effect])
        return None

    def _save(self, session: HttpSession) -> Mapping[str, Any]:
        engine = session.connection.snapshot(self.now, cookies=lambda _: None)
        return {"engine": engine, **({} if self.unsayable is None else {"more": self.unsayable})}

    def _restore(self, saved: Mapping[str, Any], principal: Hashable, now: float) -> ServerConnection:
        if "engine" not in saved:
            raise LocalProtocolError("no engine")
        return ServerConnection.restore(saved["engine"], now, options=self._engine, principal=principal)

    def _report(self, message: str, error: BaseException) -> None:
        self.reports.append(f"{message}: {error}"[:60])
