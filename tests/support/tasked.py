"""A peer that speaks of tasks in raw JSON, to a server or a client in virtual time."""

from __future__ import annotations

import json
from typing import Any

from linked import Link

from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.app.tasks.receiver import TaskOptions
from mcpio.engine.table import Role
from mcpio.engine.tasks import TaskChanged
from mcpio.errors import RequestError
from mcpio.types import CallToolResult, TextContent


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


class Host:
    """A place for tasks beside all sessions, on the runtime of a link."""

    def __init__(self, link: Link) -> None:
        self.runtime = link.runtime
        self.link = link
        self.reports: list[str] = []

    def now(self) -> float:
        return self.link.pair.now

    def report(self, message: str, error: BaseException | None) -> None:
        self.reports.append(message)


class Mine:
    """A server with a tool that digs until it is told to stop, and the wire to it."""

    def __init__(
        self, *, link: dict[str, Any] | None = None, tool: dict[str, Any] | None = None, **options: Any
    ) -> None:
        self.changes: list[TaskChanged] = []
        tasks = TaskOptions(on_change=self.changes.append, **options)
        self.server = Server("mine", tasks=tasks)
        self.digs: list[Any] = []
        self.contexts: list[Context] = []
        self.ended: list[str] = []

        async def dig(ctx: Context, depth: int = 1) -> str:
            self.contexts.append(ctx)
            task: Any = ctx.task
            host = ctx.session.driver if task is None else task.host
            done = host.runtime.one_shot()
            self.digs.append(done)
            try:
                found = await done.wait()
            except BaseException:
                self.ended.append("cancelled")
                raise
            if isinstance(found, Exception):
                raise found
            return f"{found} at {depth}"

        options_of_dig: Any = {"task_support": "optional", **(tool or {})}
        self.server.tool(dig, **options_of_dig)

        @self.server.tool
        def look() -> str:
            return "dark"

        @self.server.tool(task_support="required")
        def sift(how: str = "well") -> CallToolResult:
            if how == "badly":
                raise RequestError(-32001, "no sieve", {"x": 1})
            return CallToolResult((TextContent(how),), is_error=how == "not", meta={"a.b/c": 1})

        self.connect(**(link or {}))

    def connect(self, **options: Any) -> Wire:
        self.link = Link(self.server, **{"era": "handshake", **options})
        self.wire = Wire(self.link)
        return self.wire

    def dug(self, found: Any = "gold") -> None:
        self.digs.pop(0).set(found)
        self.wire.look()
