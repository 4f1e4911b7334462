"""A server whose tools run as tasks of the extension of 2026-07-28, and stateless clients of it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import attrs
import pytest
from statelessly import EVERYTHING, StatelessClient, accept

from mcpio.app.asking import Accepted
from mcpio.app.context import Context
from mcpio.app.contracts import InputRequired
from mcpio.app.server import Server
from mcpio.app.tasks.receiver import TaskOptions
from mcpio.errors import RequestError
from mcpio.testing import ManualRuntime
from mcpio.types import CallToolResult, ElicitFormRequest, ElicitSchema, StringSchema, TextContent
from mcpio.types.base import TASKS_EXTENSION

__all__ = ["MISSING", "TAKES_TASKS", "Host", "Name", "World", "name"]

T = TypeVar("T")

TAKES_TASKS = attrs.evolve(EVERYTHING, extensions={TASKS_EXTENSION: {}})
MISSING: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}


@attrs.frozen
class Name:
    name: str


class Host:
    """Where tasks run, beside all exchanges."""

    def __init__(self, runtime: ManualRuntime) -> None:
        self.runtime = runtime
        self.reports: list[str] = []

    def now(self) -> float:
        return self.runtime.now

    def report(self, message: str, error: BaseException | None) -> None:
        self.reports.append(f"{message}: {error!r}")


class World:
    """A server with tools, a host for its tasks, and a stateless client that takes tasks."""

    def __init__(self, **options: Any) -> None:
        self.runtime = ManualRuntime()
        self.host = Host(self.runtime)
        self.server = Server("s", tasks=TaskOptions(**options))
        self.seen: list[Any] = []
        self.gates: list[Any] = []
        self._tools()
        tasks: Any = self.server.tasks
        self.tasks = tasks
        tasks.attach(self.host)
        self.client = StatelessClient(self.server, self.runtime, capabilities=TAKES_TASKS)
        self.plain = StatelessClient(self.server, self.runtime)

    def _tools(self) -> None:  # noqa: C901  # one small function after another
        server = self.server

        @server.tool
        def greet(name: str) -> str:
            return f"Hello, {name}!"

        @server.tool(task_support="optional", resume=True)
        async def slow(ctx: Context, seconds: float = 1.0) -> str:
            self.seen.append(ctx.task)
            ctx.progress(1)
            ctx.info("working")
            await ctx.sleep(seconds)
            return "done"

        @server.tool(task_support="required")
        async def fail(ctx: Context, how: str = "tool") -> CallToolResult:
            if how == "protocol":
                raise RequestError(-32001, "no", {"x": 1})
            if how == "bare":
                raise RequestError(-32001, "no")
            return CallToolResult((TextContent("bad"),), is_error=True)

        @server.tool(task_support="required")
        async def ask(ctx: Context, question: str = "Sure?") -> str:
            answer = await ctx.elicit(question, Name)
            return answer.value.name if isinstance(answer, Accepted) else answer.__class__.__name__

        @server.tool(task_support="required")
        async def ask_twice(ctx: Context) -> str:
            found = await ctx.together(ctx.elicit("A?", Name, key="a"), ctx.elicit("B?", Name, key="b"))
            return " ".join(each.value.name for each in found if isinstance(each, Accepted))

        @server.tool(task_support="optional", becomes_task=True)
        async def first_ask(ctx: Context) -> str:
            answer = await ctx.elicit("Who?", Name, key="who")
            self.seen.append(ctx.task)
            await ctx.become_task()
            self.seen.append(ctx.task)
            again = await ctx.elicit("Really?", Name, key="again")
            assert isinstance(answer, Accepted)
            return f"{answer.value.name} {again.__class__.__name__}"

        @server.tool(task_support="optional", becomes_task=True)
        async def never_becomes(kind: str = "return") -> str:
            if kind == "raise":
                raise RequestError(-32001, "no")
            return "at once"

        @server.tool(task_support="required")
        async def ask_by_result(ctx: Context) -> Any:
            if not ctx.answers:
                schema = ElicitSchema({"name": StringSchema()})
                return InputRequired({"who": ElicitFormRequest("Who?", schema)})
            return "known"

    def run(self, coroutine: Coroutine[Any, Any, T], seconds: float = 0.0) -> T:
        """Run a coroutine to its end while at most some time passes."""
        found: list[Any] = []

        async def main() -> None:
            try:
                found.append(await coroutine)
            except RequestError as error:
                found.append(error)

        self.runtime.spawn(main())
        self.runtime.run()
        self.pass_time(seconds)
        assert found, "it still waits"
        if isinstance(found[0], RequestError):
            raise found[0]
        result: T = found[0]
        return result

    def pass_time(self, seconds: float) -> None:
        until = self.runtime.now + seconds
        self.runtime.advance_to(until)
        self.runtime.run()

    def call(self, name: str, seconds: float = 0.0, **arguments: Any) -> dict[str, Any]:
        return self.run(self.client.call(name, arguments), seconds)

    def about(self, method: str, id: str, client: StatelessClient | None = None, **params: Any) -> dict[str, Any]:
        return self.run((client or self.client).request(f"tasks/{method}", {"taskId": id, **params}))

    def get(self, id: str) -> dict[str, Any]:
        return self.about("get", id)

    def refusal(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> tuple[int, Any]:
        with pytest.raises(RequestError) as found:
            call(*arguments, **named)
        return found.value.code, found.value.data


def name(text: str) -> dict[str, Any]:
    return accept(name=text)
