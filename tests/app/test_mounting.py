"""Mounted servers: their entries under a prefix, their own state and middleware, and names that cannot collide."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Annotated, Any

import attrs
import pytest
import trio
from linked import Link
from statelessly import accept

from mcpio.app.asking import Accepted
from mcpio.app.context import Context
from mcpio.app.forwarding import ForwardingServer
from mcpio.app.middleware.policies import Cache, for_all
from mcpio.app.schema.signature import Depends
from mcpio.app.server import Server
from mcpio.auth.grant import Grant
from mcpio.engine.options import Options
from mcpio.errors import RequestError, ToolError
from mcpio.revisions import REV_2025_11_25, REV_2026_07_28, REVISIONS, Revision
from mcpio.trio import memory_client
from mcpio.types import (
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitFormRequest,
    ElicitResult,
    ElicitSchema,
    PromptReference,
    ResourceTemplateReference,
    SamplingCapability,
    SamplingMessage,
    ServerCapabilities,
    StringSchema,
    TextContent,
    ToolsCapability,
    ToolUseContent,
)


def clerk() -> str:
    return "clerk"


def library(**options: Any) -> Server:
    server = Server("library", **options)

    @server.tool
    def borrow(title: str) -> str:
        """Borrow a book."""
        if title == "none":
            raise ToolError("no such book")
        return f"{title} is yours"

    @server.prompt
    def review(title: str) -> str:
        return f"Review {title}"

    @server.completion("title", prompt="review")
    def titles(text: str) -> list[str]:
        return ["Emma"]

    @server.resource("books://all")
    def every() -> str:
        return "Emma"

    @server.resource("books://{title}")
    def one(title: str) -> str:
        return f"all of {title}"

    @server.completion("title", resource="books://{title}")
    def known(text: str) -> list[str]:
        return ["Persuasion"]

    return server


def main_server(**options: Any) -> Server:
    return Server("main", options=Options(revisions=REVISIONS), **options)


@pytest.fixture(params=[REV_2025_11_25, REV_2026_07_28], ids=str)
def revision(request: pytest.FixtureRequest) -> Revision:
    found: Revision = request.param
    return found


def tools(link: Link) -> list[str]:
    return [tool.name for tool in link.do(link.client.list_tools()).tools]


def test_everything_of_a_mounted_server_is_offered(revision: Revision) -> None:
    server = main_server()

    @server.tool
    def borrow() -> str:
        return "borrowed from main"

    server.mount(library(), "books")
    link = Link(server, revision=revision)
    client = link.client
    first, second = link.do(client.list_tools()).tools
    assert (first.name, second.name, second.description) == ("borrow", "books__borrow", "Borrow a book.")
    assert link.text("borrow") == "borrowed from main"
    assert link.text("books__borrow", title="Emma") == "Emma is yours"
    assert link.text("books__borrow", title="none") == "failed: no such book"
    assert link.text("books__borrow") == "failed: Invalid value in 'borrow': arguments: missing argument title"
    [prompt] = link.do(client.list_prompts()).prompts
    assert (prompt.name, [each.name for each in prompt.arguments]) == ("books__review", ["title"])
    assert link.do(client.get_prompt("books__review", {"title": "Emma"})).messages[0].text == "Review Emma"
    assert [each.uri for each in link.do(client.list_resources()).resources] == ["books://all"]
    [template] = link.do(client.list_resource_templates()).resource_templates
    assert template.uri_template == "books://{title}"
    assert link.do(client.read_resource("books://all")).text == "Emma"
    assert link.do(client.read_resource("books://Emma")).text == "all of Emma"
    of_prompt = link.do(client.complete(PromptReference("books__review"), "title", ""))
    of_template = link.do(client.complete(ResourceTemplateReference("books://{title}"), "title", ""))
    assert of_prompt.completion.values + of_template.completion.values == ("Emma", "Persuasion")


def test_without_a_prefix_names_stay_as_they_are() -> None:
    server = main_server()
    server.mount(library())
    assert Link(server, revision=REV_2025_11_25).text("borrow", title="Emma") == "Emma is yours"


def test_mounted_server_may_have_mounted_servers() -> None:
    outer, middle, child = main_server(), Server("middle"), library()
    outer.mount(middle, "a")
    middle.mount(child, "b")
    link = Link(outer, revision=REV_2025_11_25)
    assert tools(link) == ["a__b__borrow"]
    assert link.text("a__b__borrow", title="Emma") == "Emma is yours"
    middle.unmount(child)
    assert tools(link) == []
    with pytest.raises(ValueError, match="'library' is not mounted in 'middle'"):
        middle.unmount(library())


def test_changes_of_a_mounted_server_reach_clients_of_both() -> None:
    child, server = library(), main_server()
    server.mount(child, "books")
    told: dict[str, list[str]] = {"child": [], "main": []}

    def linked(name: str, of: Server) -> Link:
        hear = told[name]
        return Link(of, revision=REV_2025_11_25, on_notification=lambda each: hear.append(type(each).__name__))

    links = linked("child", child), linked("main", server)

    def everything() -> list[list[str]]:
        for link in links:
            link.run()
        found = [list(told["child"]), list(told["main"])]
        for each in told.values():
            each.clear()
        return found

    for link in links:
        link.do(link.client.subscribe_resource("books://all"))

    @child.tool
    def give_back() -> str:
        return "thanks"

    assert everything() == [["ToolListChangedNotification"]] * 2
    assert tools(links[1]) == ["books__borrow", "books__give_back"]
    child.tools.disable("give_back")
    assert everything() == [["ToolListChangedNotification"]] * 2
    assert tools(links[1]) == ["books__borrow"]
    child.tools.enable("give_back")
    server.tools.remove("books__give_back")
    child.tools.disable("give_back")
    child.tools.remove("give_back")
    everything()
    child.tools.changed()
    assert everything() == [["ToolListChangedNotification"]] * 2
    assert child.notify_resource_updated("books://all") == 2
    assert everything() == [["ResourceUpdatedNotification"]] * 2
    server.unmount(child)
    assert tools(links[1]) == []
    assert child.notify_resource_updated("books://all") == 1


def test_state_is_that_of_the_servers_own_lifespan() -> None:
    seen: list[str] = []

    def lifespan(name: str) -> Any:
        @asynccontextmanager
        async def around(server: Server) -> AsyncIterator[str]:
            seen.append(f"{name} entered for {server.info.name}")
            yield f"state of {name}"
            seen.append(f"{name} left")

        return around

    inner, middle, plain = Server("inner", lifespan=lifespan("inner")), Server("middle"), Server("plain")
    server = main_server(lifespan=lifespan("main"))

    def state(ctx: Context) -> str:
        return str(ctx.state)

    for each in (inner, middle, plain, server):
        each.tool(state)
    server.tool(state, name="blocking", blocking=True)
    inner.tool(state, name="blocking", blocking=True)
    server.mount(middle, "middle")
    server.mount(plain, "plain")
    middle.mount(inner, "inner")
    server.mount(inner, "again")

    async def main() -> None:
        async with memory_client(server) as client:
            found = {name: (await client.call_tool(name)).text async for tool in client.tools() for name in [tool.name]}
            assert found == {
                "state": "state of main",
                "blocking": "state of main",
                "middle__state": "None",
                "plain__state": "None",
                "middle__inner__state": "state of inner",
                "middle__inner__blocking": "state of inner",
                "again__state": "state of inner",
                "again__blocking": "state of inner",
            }
            late = Server("late", lifespan=lifespan("late"))
            late.tool(state)
            server.mount(late, "late")
            said = (await client.call_tool("late__state")).text
            assert "the lifespan of 'late' was not entered: mount a server before serving begins" in said

    trio.run(main)
    assert seen == ["main entered for main", "inner entered for inner", "inner left", "main left"]


def test_lifespan_of_a_server_that_is_mounted_twice_is_entered_once() -> None:
    entered: list[str] = []

    def lifespan(name: str) -> Any:
        @asynccontextmanager
        async def around(server: Server) -> AsyncIterator[str]:
            entered.append(name)
            yield f"state of {name}"

        return around

    inner, middle, server = Server("inner", lifespan=lifespan("inner")), Server("middle"), Server("main")

    @inner.tool
    def look(ctx: Context) -> str:
        return str(ctx.state)

    @middle.tool
    def rest(ctx: Context) -> str:
        return str(ctx.state)

    middle.mount(inner, "inner")
    server.mount(inner, "direct")
    server.mount(middle, "middle")

    async def main() -> list[str]:
        async with memory_client(server) as client:
            names = ("direct__look", "middle__inner__look", "middle__rest")
            return [(await client.call_tool(name)).text for name in names]

    assert trio.run(main) == ["state of inner", "state of inner", "None"]
    assert entered == ["inner"]
    # A lifespan around those of the mounted servers enters them itself.
    inside: Any = middle.lifespan

    @asynccontextmanager
    async def around_all(server: Server) -> AsyncIterator[Any]:
        async with inside(server) as state:
            yield state

    middle.lifespan = around_all
    server.unmount(inner)
    server.mount(inner, "direct")
    assert trio.run(main) == ["state of inner", "state of inner", "None"]
    assert entered == ["inner", "inner"]


def test_requests_pass_the_middleware_of_both() -> None:
    seen: list[str] = []
    child, server = library(mask_errors=True), main_server()

    def noting(name: str) -> Any:
        async def note(ctx: Context, request: Any, call_next: Any) -> Any:
            seen.append(f"{name} {getattr(request, 'name', '')}")
            return await call_next(request)

        return note

    server.middleware(noting("main"))
    child.middleware(noting("library"))

    @child.tool
    def fail() -> None:
        raise ValueError("secret")

    server.mount(child, "books")
    link = Link(server, revision=REV_2025_11_25)
    assert link.text("books__borrow", title="Emma") == "Emma is yours"
    assert seen == ["main books__borrow", "library borrow"]
    assert link.text("books__fail") == "failed: 'fail' failed"


def test_handler_of_a_mounted_server_asks_the_client(revision: Revision) -> None:
    child, server = Server("child"), main_server()

    @attrs.frozen
    class Name:
        name: str

    @child.tool
    async def greet(ctx: Context) -> str:
        await ctx.become_task()
        answer = await ctx.elicit("Name?", Name)
        assert isinstance(answer, Accepted)
        assert not ctx.cancelled
        return f"Hello {answer.value.name}"

    @child.tool
    async def pass_on(ctx: Context) -> str:
        await ctx.roots()
        return ""

    server.mount(child, "x")

    def refuse() -> Any:
        raise RequestError(-32001, "no roots")

    link = Link(
        server,
        revision=revision,
        elicitation=lambda *_: ElicitResult(**accept(name="Ada")),
        roots=refuse,
    )
    assert link.text("x__greet") == "Hello Ada"
    if revision is REV_2025_11_25:
        # The client's own error is not sent back to it as the server's.
        assert link.text("x__pass_on").startswith("failed: 'pass_on' failed: RequestError: no roots")


def test_dependencies_of_mounted_servers_are_overridden_with_the_whole() -> None:
    child, server = Server("child"), main_server()

    @child.tool
    def who(it: Annotated[str, Depends(clerk)]) -> str:
        return it

    server.mount(child, "x")
    server.mount(child, "y")
    link = Link(server, revision=REV_2025_11_25)
    assert link.text("x__who") == link.text("y__who") == "clerk"
    for each in (child, server):
        with each.overrides({clerk: lambda: "robot"}):
            assert link.text("x__who") == "robot"
    assert link.text("x__who") == "clerk"


def test_scopes_and_visibility_of_a_mounted_server_hold() -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[set[str]]:
        yield {"ada"}

    outer, server, child = main_server(), Server("middle"), Server("child", lifespan=lifespan)
    outer.mount(server, "m")
    server.mount(child, "x")
    assert Link(outer).session.server.scope_rules is None

    @child.tool(scopes="admin", hide=True)
    def purge() -> str:
        return "purged"

    @child.tool(visible=lambda ctx: ctx.grant.subject in ctx.state)
    def burn() -> str:
        return "burned"

    child.require("prompts/get", "admin")

    @child.prompt
    def ask() -> str:
        return "?"

    assert outer.scope_rules is not None

    async def offered(subject: str, *scopes: str) -> list[str]:
        async with memory_client(outer, principal=Grant("i", subject, "c", frozenset(scopes))) as client:
            found = [tool.name async for tool in client.tools()]
            for name in ("m__x__purge", "m__x__burn"):
                if name not in found:
                    with pytest.raises(RequestError):
                        await client.call_tool(name)
                else:
                    assert not (await client.call_tool(name)).is_error
            if "admin" not in scopes:
                with pytest.raises(RequestError, match="too few scopes"):
                    await client.get_prompt("m__x__ask")
            return found

    async def main() -> None:
        assert await offered("ada") == ["m__x__burn"]
        assert await offered("bob", "admin") == ["m__x__purge"]

    trio.run(main)
    other = main_server()
    other.mount(child, "y")
    assert other.scope_rules is not None


# Refused


def test_own_entry_under_the_name_of_a_removed_copy_is_independent() -> None:
    child, server = library(), main_server()
    server.mount(child)
    server.tools.remove("borrow")
    server.tool(clerk, name="borrow")
    child.tools.disable("borrow")
    assert "borrow" in server.tools
    child.tools.remove("borrow")
    assert "borrow" in server.tools
    server.unmount(child)
    assert "borrow" in server.tools


def test_answer_to_a_handler_of_a_mounted_server_is_not_cached() -> None:
    child = Server("child", middleware=[Cache(60, per=for_all, tools=["greet"])])

    @child.tool
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit(ElicitFormRequest("?", ElicitSchema({"name": StringSchema()})))
        return f"Hello {(answer.content or {})['name']}"

    server = main_server()
    server.mount(child)
    for name in ("Ann", "Bob"):

        def answer(scope: Any, request: Any, name: str = name) -> ElicitResult:
            return ElicitResult("accept", {"name": name})

        assert Link(server, revision=REV_2025_11_25, elicitation=answer).text("greet") == f"Hello {name}"


def test_changes_of_a_mounted_server_reach_caches() -> None:
    outer, inner = Cache(60, per=for_all), Cache(60, per=for_all)
    child, server, reads = Server("child", middleware=[inner]), Server("main", middleware=[outer]), []

    @child.resource("r://x")
    def read() -> str:
        reads.append("r://x")
        return str(len(reads))

    server.mount(child)
    link = Link(server, revision=REV_2025_11_25)
    for count in ("1", "2", "3"):
        assert [link.do(link.client.read_resource("r://x")).text for _ in range(2)] == [count, count]
        (child if count == "1" else server).notify_resource_updated("r://x")


def test_sampling_tools_of_a_mounted_server_mask_its_errors() -> None:
    told: list[str] = []

    def secret() -> str:
        raise ValueError("the password is 1234")

    child = Server("child", mask_errors=True)

    @child.tool
    async def think(ctx: Context) -> str:
        request = CreateMessageRequest((SamplingMessage("user", TextContent("?")),), 10)
        return (await ctx.sample_with_tools(request, [secret])).text

    def model(scope: Any, request: CreateMessageRequest) -> CreateMessageResult:
        if len(request.messages) == 1:
            return CreateMessageResult("assistant", ToolUseContent("1", "secret", {}), "m", stop_reason="toolUse")
        told.append(str(request.messages[-1].content))
        return CreateMessageResult("assistant", TextContent("done"), "m")

    server = main_server()
    server.mount(child)
    capabilities = ClientCapabilities(sampling=SamplingCapability(tools={}))
    link = Link(server, revision=REV_2025_11_25, sampling=model, capabilities=capabilities)
    assert link.text("think") == "done"
    assert "1234" not in told[0]


def test_names_that_would_collide_are_refused_with_both_servers() -> None:
    server = main_server()
    server.mount(library(), "books")
    with pytest.raises(ValueError, match="another server is mounted under the prefix 'books'"):
        server.mount(Server("other"), "books")
    other = library()
    text = "the resource 'books://all' of 'library' and that of 'library', which is mounted, would be one"
    with pytest.raises(ValueError, match=text):
        server.mount(other, "other")
    assert len(server.mounts) == 1
    assert "other__borrow" not in server.tools
    with pytest.raises(ValueError, match="there is a tool 'books__borrow' already, of the mounted server 'library'"):
        server.tool(lambda: None, name="books__borrow")


def test_later_registration_that_would_collide_is_refused() -> None:
    outer, server, child = main_server(), Server("middle"), Server("child")
    outer.tool(lambda: None, name="work")
    outer.mount(server)
    server.mount(child)
    with pytest.raises(ValueError, match="the tool 'work' of 'main' and that of 'middle', which is mounted"):
        child.tool(lambda: None, name="work")
    assert (len(child.tools), len(server.tools), len(outer.tools)) == (0, 0, 1)
    child.tool(lambda: None, name="rest")
    assert len(outer.tools) == 2


@pytest.mark.parametrize("prefix", ["", "a b", "a__b", "_a", "a_", "-", "é", "x" * 25, "a.b"])
def test_malformed_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix must have 1 to 24 of the characters"):
        main_server().mount(library(), prefix)


def test_servers_that_would_contain_each_other_are_refused() -> None:
    outer, inner = Server("outer"), Server("inner")
    outer.mount(inner, "x")
    for server, other in ((inner, outer), (outer, outer)):
        with pytest.raises(ValueError, match=f"the server '{other.info.name}' contains '{server.info.name}'"):
            server.mount(other, "y")


def test_invalid_mount_raises() -> None:
    server, child = main_server(), Server("child")
    with pytest.raises(TypeError, match="a proxy answers nothing by itself: use open_servers"):
        server.mount(ForwardingServer(lambda _: nullcontext(), may_change=False), "x")
    with pytest.raises(TypeError, match="server"):
        server.mount("child", "x")  # type: ignore[arg-type]  # the mistake

    @child.tool(task_support="optional")
    async def maybe() -> str:
        return "done"

    server.mount(child, "x")
    link = Link(server, revision=REV_2025_11_25)
    [tool] = link.do(link.client.list_tools()).tools
    assert tool.execution is None
    assert link.text("x__maybe") == "done"

    async def must() -> None: ...

    with pytest.raises(TypeError, match="the tool 'must' of 'child' only runs as a task"):
        child.tool(must, task_support="required")


def test_capabilities_include_mounted_entries() -> None:
    server = main_server()
    assert server.capabilities == ServerCapabilities(logging={})
    server.mount(library(), "books")
    found = server.capabilities
    assert found.tools == ToolsCapability(True)
    assert found.resources is not None
    assert found.prompts is not None
    assert found.completions is not None
