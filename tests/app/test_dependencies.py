"""Dependencies of handlers: made once a request, in order, closed after it, hidden from clients, replaced in tests."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any

import attrs
import pytest
import trio
from linked import Link

from mcpio.app.context import Context
from mcpio.app.schema.signature import Depends
from mcpio.app.server import Server
from mcpio.errors import Refusal, RequestError, ToolError
from mcpio.refusals import RefusalCode
from mcpio.revisions import REV_2025_11_25
from mcpio.trio import memory_client
from mcpio.types import PromptReference

LOG: list[str] = []


class Session:
    """What has no form in JSON."""

    def __init__(self, name: str = "real") -> None:
        self.name = name


def settings(ctx: Context) -> dict[str, Any]:
    LOG.append(f"settings for {ctx.method}")
    return {"name": "real"}


Settings = Annotated[dict[str, Any], Depends(settings)]


async def database(known: Settings, ctx: Context) -> AsyncIterator[Session]:
    LOG.append("open database")
    try:
        yield Session(known["name"])
    except ToolError as error:
        LOG.append(f"rolled back for {error}")
        raise
    finally:
        LOG.append("close database")


Database = Annotated[Session, Depends(database)]


def cache(db: Database) -> Iterator[dict[str, str]]:
    LOG.append("open cache")
    yield {"name": db.name}
    LOG.append("close cache")


Cache = Annotated[dict[str, str], Depends(cache)]


@pytest.fixture(autouse=True)
def _empty_log() -> None:
    LOG.clear()


def linked(server: Server, **options: Any) -> Link:
    return Link(server, revision=REV_2025_11_25, **options)


def test_tool_gets_its_dependencies_in_order_and_once() -> None:
    server = Server("s")

    @server.tool
    async def find(cache: Cache, db: Database, known: Settings, name: str) -> str:
        LOG.append("find")
        return f"{name} {cache['name'] == db.name == known['name']}"

    link = linked(server)
    assert link.do(link.client.call_tool("find", {"name": "Ada"}, returns=str)) == "Ada True"
    assert LOG == ["settings for tools/call", "open database", "open cache", "find", "close cache", "close database"]
    [tool] = link.do(link.client.list_tools()).tools
    assert list(tool.input_schema["properties"]) == ["name"]


async def awaited() -> str:
    return "value"


@contextmanager
def managed() -> Iterator[str]:
    yield "value"


@asynccontextmanager
async def async_managed() -> AsyncIterator[str]:
    yield "value"


class Callee:
    def __call__(self) -> str:
        return "value"

    def method(self, ctx: Context) -> str:
        return "value"


class Yielding:
    async def __call__(self, known: Settings) -> AsyncIterator[str]:
        yield "value"


@attrs.frozen
class Repository:
    known: Settings
    text: str = "value"

    def __str__(self) -> str:
        return self.text


@pytest.mark.parametrize(
    "function",
    [
        awaited,
        managed,
        async_managed,
        Callee(),
        Callee().method,
        Yielding(),
        Repository,
        partial(str.upper, "value"),
        lambda: "value",
        partial(managed),
    ],
)
@pytest.mark.parametrize("is_async", [True, False])
def test_every_kind_of_function_gives_a_value(function: Callable[..., Any], is_async: bool) -> None:
    server = Server("s")

    async def slowly(value: Annotated[str, Depends(function)]) -> str:
        return str(value).lower()

    def quickly(value: Annotated[str, Depends(function)]) -> str:
        return str(value).lower()

    server.tool(slowly if is_async else quickly, name="get")
    assert linked(server).text("get") == "value"


def test_prompts_resources_templates_and_completions_have_dependencies() -> None:
    server = Server("s")

    @server.prompt
    def greet(db: Database, who: str) -> str:
        return f"{who} {db.name}"

    @server.resource("s://one")
    def one(db: Database) -> str:
        return db.name

    @server.resource("s://{name}/more")
    async def more(db: Database, name: str) -> str:
        return f"{name} {db.name}"

    @server.completion("who", prompt="greet")
    def known(text: str, db: Database) -> list[str]:
        return [db.name]

    link = linked(server)
    [prompt] = link.do(link.client.list_prompts()).prompts
    assert [argument.name for argument in prompt.arguments] == ["who"]
    assert link.do(link.client.get_prompt("greet", {"who": "Ada"})).messages[0].text == "Ada real"
    assert link.do(link.client.read_resource("s://one")).text == "real"
    assert link.do(link.client.read_resource("s://x/more")).text == "x real"
    found = link.do(link.client.complete(PromptReference("greet"), "who", ""))
    assert found.completion.values == ("real",)
    assert LOG.count("open database") == LOG.count("close database") == 4


def test_blocking_handler_runs_in_a_thread_with_its_dependencies() -> None:
    server = Server("s")

    @server.tool(blocking=True)
    def work(db: Database, ctx: Context) -> str:
        return f"{db.name} {ctx.method}"

    assert linked(server).text("work") == "real tools/call"
    assert LOG[-1] == "close database"


def test_work_of_a_task_has_dependencies() -> None:
    server = Server("s")

    @server.tool(task_support="required")
    async def work(db: Database, ctx: Context) -> str:
        assert ctx.task is not None
        return db.name

    async def main() -> None:
        async with memory_client(server, era="handshake") as client:
            assert (await client.call_tool("work", task=True)).text == "real"

    trio.run(main)
    assert LOG == ["settings for tools/call", "open database", "close database"]


# Failures


def test_failure_of_the_handler_passes_its_dependencies() -> None:
    server = Server("s")

    @server.tool
    def fail(cache: Cache) -> None:
        raise ToolError("no")

    assert linked(server).text("fail") == "failed: no"
    assert LOG[-2:] == ["rolled back for no", "close database"]


def test_failure_of_a_dependency_is_one_of_the_handler() -> None:
    server = Server("s")

    def refused() -> str:
        raise Refusal(RefusalCode.DEPENDENCY_UNAVAILABLE)

    def failing(db: Database) -> str:
        raise ToolError("no cache")

    @server.tool
    def first(value: Annotated[str, Depends(refused)]) -> None: ...

    @server.tool
    def second(value: Annotated[str, Depends(failing)]) -> None: ...

    link = linked(server)
    with pytest.raises(RequestError) as caught:
        link.call("first")
    assert caught.value.code == RefusalCode.DEPENDENCY_UNAVAILABLE
    assert link.text("second") == "failed: no cache"
    assert LOG[-1] == "close database"


def test_dependency_that_hides_a_failure_is_reported() -> None:
    server = Server("s")

    def careless() -> Iterator[None]:
        with suppress(ValueError):
            yield

    @server.tool
    def fail(it: Annotated[None, Depends(careless)]) -> None:
        raise ValueError("lost")

    assert "caught the exception that ended it: raise it again" in linked(server).text("fail")


def test_cancelled_request_closes_its_dependencies() -> None:
    server = Server("s")

    @server.tool
    async def wait(db: Database, ctx: Context) -> None:
        await ctx.session.driver.runtime.one_shot().wait()

    link = linked(server)
    ask = link.start(link.client.call_tool("wait"))
    link.run()
    assert LOG[-1] == "open database"
    ask.cancel()
    link.run()
    assert LOG[-1] == "close database"


def test_client_cannot_give_a_dependency() -> None:
    server = Server("s")

    @server.tool
    def take(db: Database, **others: str) -> str:
        return f"{db.name} {others}"

    assert linked(server).text("take", db="mine", x="y") == "real {'x': 'y'}"


# What is refused at registration


def test_cycle_is_refused_with_its_functions() -> None:
    def one(it: Annotated[str, Depends(lambda: "")]) -> str:
        return it

    def two(it: Annotated[str, Depends(one)]) -> str:
        return it

    one.__annotations__["it"] = Annotated[str, Depends(two)]

    def work(it: Annotated[str, Depends(one)]) -> None: ...

    one.__qualname__, two.__qualname__, work.__qualname__ = "one", "two", "work"
    server = Server("s")
    with pytest.raises(TypeError, match=r"^work\(\): dependencies form a cycle: one\(\) -> two\(\) -> one\(\)$"):
        server.tool(work)
    assert len(server.tools) == 0


@pytest.mark.parametrize("value", [None, "database", Session()])
def test_depends_takes_a_function(value: Any) -> None:
    with pytest.raises(TypeError, match=r"Depends\(\) must get a function, not its result"):
        Depends(value)


def test_parameter_of_a_dependency_that_nothing_gives_is_refused() -> None:
    def needs(size: int) -> str:
        return "x" * size

    def has(size: int = 2, **others: int) -> str:
        return "x" * size

    server = Server("s")
    with pytest.raises(TypeError, match=r"needs\(\), parameter 'size': a dependency takes a Context and other"):

        @server.tool
        def wrong(it: Annotated[str, Depends(needs)]) -> None: ...

    @server.tool
    def right(it: Annotated[str, Depends(has)]) -> str:
        return it

    assert linked(server).text("right") == "xx"


def test_dependency_of_another_library_is_refused() -> None:
    class _Depends: ...

    def wrong(db: Any = _Depends()) -> None: ...  # noqa: B008  # as other libraries have it

    with pytest.raises(TypeError, match=r"the default is a Depends\(\) of another library; import that of mcpio\.app"):
        Server("s").tool(wrong)


def test_dependency_may_be_a_default() -> None:
    def cached(db: Session = Depends(database)) -> str:  # noqa: B008  # as above
        return db.name

    server = Server("s")

    @server.tool
    def who(cached: str = Depends(cached), *, suffix: str = "!") -> str:
        return cached + suffix

    link = linked(server)
    assert link.text("who") == "real!"
    [tool] = link.do(link.client.list_tools()).tools
    assert list(tool.input_schema["properties"]) == ["suffix"]


def test_alias_of_a_type_may_be_a_dependency() -> None:
    alias: Any = SimpleNamespace(__value__=Database)

    def work(db: Any) -> str:
        found: str = db.name
        return found

    work.__annotations__["db"] = alias
    server = Server("s")
    server.tool(work)
    assert linked(server).text("work") == "real"
    assert repr(Depends(database)) == "Depends(database)"


# Tests of others


def test_override_replaces_a_function_within_its_block() -> None:
    server = Server("s")

    @server.tool
    def who(cache: Cache) -> str:
        return cache["name"]

    def fake(known: Settings) -> Session:
        return Session(f"fake {known['name']}")

    link = linked(server)
    with server.overrides({database: fake}):
        assert link.text("who") == "fake real"
        with server.overrides({settings: lambda: {"name": "tested"}}):
            assert link.text("who") == "fake tested"

            @server.tool
            def later(db: Database) -> str:
                return db.name

            assert link.text("later") == "fake tested"
        assert link.text("who") == "fake real"
    assert link.text("who") == link.text("later") == "real"


def test_override_of_an_unused_function_raises() -> None:
    server = Server("s")
    with pytest.raises(ValueError, match=r"no handler depends on database\(\); there are none"):
        server.overrides({database: Session}).__enter__()
    server.tool(lambda: None, name="plain")

    @server.tool
    def who(it: Annotated[str, Depends(awaited)]) -> None: ...

    with pytest.raises(ValueError, match=r"no handler depends on database\(\); there are awaited\(\)"):
        server.overrides({database: Session}).__enter__()
    with pytest.raises(TypeError, match=r"awaited\(\) must be replaced by a function, not by 'text'"):
        server.overrides({awaited: "text"}).__enter__()  # type: ignore[dict-item]  # the mistake


def test_override_that_makes_a_cycle_changes_nothing() -> None:
    server = Server("s")

    @server.tool
    def who(db: Database) -> str:
        return db.name

    def fake(db: Database) -> Session:
        return db

    with pytest.raises(TypeError, match=r"dependencies form a cycle: database\(\) -> database\(\)"):
        server.overrides({database: fake}).__enter__()
    assert linked(server).text("who") == "real"


def test_dependencies_of_a_removed_tool_are_forgotten() -> None:
    server = Server("s")

    @server.tool
    def who(db: Database) -> None: ...

    server.tools.remove("who")
    with pytest.raises(ValueError, match="there are none"):
        server.overrides({database: Session}).__enter__()


def test_tools_for_a_model_have_dependencies() -> None:
    server = Server("s")

    def who(db: Database) -> str:
        return db.name

    assert server.make_tools([who]).find("who").endpoint.injection is not None  # type: ignore[union-attr]  # it is there
