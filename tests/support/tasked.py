"""A peer that speaks of tasks in raw JSON, to a server or a client in virtual time."""

from __future__ import annotations

import json
from typing import Any

from linked import Link

from mcpio.engine.table import Role


class Wire:
    """One side of a link by its wire: what is fed to it, and what it says. Ids of requests begin at 100."""

    def __init__(self, link: Link, role: Role = Role.SERVER) -> None:
        self.link = link
        self.role = role
        self._next = 100
        self._seen = 0
        self.said: list[dict[str, Any]] = []
        self.look()

    def look(self) -> list[dict[str, Any]]:
        """Let happen what happens, and return what is new."""
        self.link.run()
        text = self.link.pair.sent(self.role)
        found = [json.loads(line) for line in text[self._seen :].splitlines()]
        self._seen = len(text)
        self.said.extend(found)
        return found

    def feed(self, **message: Any) -> list[dict[str, Any]]:
        """Feed it a message, and return what it says to that."""
        connection = self.link.pair.server if self.role is Role.SERVER else self.link.pair.client
        connection.receive_data(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n", self.link.pair.now)
        return self.look()

    def send(self, method: str, **params: Any) -> int:
        """Ask something, and return the id."""
        self._next += 1
        self.feed(id=self._next, method=method, params=params)
        return self._next

    def answer_to(self, id: int) -> dict[str, Any] | None:
        """Return the answer to a request, ``None`` as long as there is none."""
        found = [each for each in self.said if each.get("id") == id and "method" not in each]
        assert len(found) <= 1
        return found[0] if found else None

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask something, and return the answer: a result, or an error."""
        answer = self.answer_to(self.send(method, **params))
        assert answer is not None, f"{method} is not answered"
        found: dict[str, Any] = answer.get("result") or answer["error"]
        return found

    def begin(self, name: str = "dig", ttl: float | None = None, **params: Any) -> str:
        """Call a tool as a task, and return the id of the task."""
        task = {} if ttl is None else {"ttl": ttl}
        id: str = self.ask("tools/call", name=name, task=task, **params)["task"]["taskId"]
        return id

    def status(self, id: str) -> str:
        """Return the status of a task, or the code of the error."""
        answer = self.ask("tasks/get", taskId=id)
        return str(answer.get("status") or answer["code"])

    def notes(self, name: str) -> list[dict[str, Any]]:
        """Return the params of the notifications of one kind."""
        return [each["params"] for each in self.said if each.get("method") == f"notifications/{name}"]

    def requests(self, method: str) -> list[dict[str, Any]]:
        """Return the requests of one method."""
        return [each for each in self.said if each.get("method") == method]
