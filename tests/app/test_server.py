from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from linked import Link

from mcpio.app.changes import LocalChanges
from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.errors import ErrorCode, LocalProtocolError, RequestError
from mcpio.revisions import REV_2024_11_05
from mcpio.trio import memory_client
from mcpio.types import (
    CustomRequest,
    Icon,
    Implementation,
    PromptListChangedNotification,
    PromptReference,
    PromptsCapability,
    ResourceListChangedNotification,
    ResourcesCapability,
    ResourceTemplateReference,
    ServerCapabilities,
    TextContent,
    ToolListChangedNotification,
    ToolsCapability,
)


def echo(text: str) -> str:
    """Say it back.

    Args:
        text: What to say.
    """
    return text


def bare() -> None: ...


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def up(self, by: int = 1) -> int:
        """Count."""
        self.count += by
        return self.count


def server() -> Server:
    return Server("s")


# Who the server is


def test_server_info_is_sent() -> None:
    icons = (Icon("https://example.com/i.png"),)
    server = Server(
        "s",
        "1.2",
        title="S",
        description="Serves.",
        icons=icons,
        website_url="https://example.com",
        instructions="Ask.",
    )
    link = Link(server)
    assert link.client.server.info == Implementation(
        "s", "1.2", title="S", description="Serves.", icons=icons, website_url="https://example.com"
    )
    assert link.client.server.instructions == "Ask."


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"log_level": "warn"}, "level must be one of .*, not 'warn'"),
        ({"page_size": 0}, "page_size must be a whole number of at least 1, or None, not 0"),
        ({"page_size": "9"}, "page_size must be a whole number of at least 1, or None, not '9'"),
    ],
)
def test_invalid_server_arguments_raise(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Server("s", **options)


@pytest.mark.parametrize(
    ("option", "kind"),
    [("name", "str"), ("version", "str"), ("instructions", "str"), ("capabilities", "ServerCapabilities")],
)
def test_server_info_of_the_wrong_kind_raises(option: str, kind: str) -> None:
    wrong: dict[str, Any] = {"name": "s", option: 5}
    with pytest.raises(TypeError, match=rf"^{option} must be {kind}, not 5$"):
        Server(**wrong)


async def yields(server: Server) -> Any:
    yield


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lifespan": yields}, "^lifespan must be a function that .* @contextlib.asynccontextmanager"),
        ({"lifespan": 5}, "^lifespan must be a function"),
        ({"icons": ["i.png"]}, "^icons must be Icon, not 'i.png'"),
        ({"changes": 5}, "^changes must be a bus with publish and subscribe, or False, not 5"),
        ({"states": 5}, "^states must be RequestStates, not 5"),
        ({"tasks": True}, "^tasks must be TaskOptions, not True"),
    ],
)
def test_server_options_of_the_wrong_kind_raise(options: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Server("s", **options)


def test_empty_bus_is_the_bus() -> None:
    class Bus(LocalChanges):
        def __len__(self) -> int:
            return 0

    bus = Bus()
    assert Server("s", changes=bus).changes is bus


def test_a_server_has_options_for_its_connections() -> None:
    made = Server("s", options=Options(limits=Limits(incoming_requests=0)))
    made.tool(echo)
    with pytest.raises(RequestError, match="Too many requests at once"):
        Link(made).call("echo", text="hi")


# Registration


def test_every_way_to_register_works() -> None:
    server, counter = Server("s"), Counter()

    @server.tool
    def one() -> str:
        return "1"

    @server.tool()
    def two() -> str:
        return "2"

    @server.tool(title="Three")
    async def three() -> str:
        return "3"

    @server.prompt
    def plain() -> str:
        return "text"

    @server.prompt(title="Fancy")
    def fancy() -> str:
        return "text"

    assert "plain" in server.prompts
    assert "fancy" in server.prompts
    server.tool(counter.up)
    server.tool(partial(counter.up, by=10), name="up_ten")
    server.tool(lambda: "6", name="six")
    link = Link(server)
    assert [link.text(name) for name in ("one", "two", "three", "six")] == ["1", "2", "3", "6"]
    assert link.call("up").structured_content == {"result": 1}
    assert link.call("up_ten").structured_content == {"result": 11}
    assert link.call("up", by=5).structured_content == {"result": 16}


def test_sampling_tools_are_not_listed_by_the_server() -> None:
    server = Server("s", mask_errors=True)

    def add(a: int, b: int) -> int:
        return a + b

    tools = server.make_tools([add])
    assert [tool.name for tool in tools.page(None, None).items] == ["add"]
    assert (tools.masks_errors, list(server.tools)) == (True, [])


@pytest.mark.req("TOOL-04")
def test_duplicate_names_are_refused() -> None:
    server = Server("s")
    server.tool(echo)
    server.prompt(echo)
    server.resource("a:b")(bare)
    server.resource("a:c/{text}")(echo)
    for again, message in (
        (lambda: server.tool(echo), "there is a tool 'echo' already"),
        (lambda: server.prompt(echo), "there is a prompt 'echo' already"),
        (lambda: server.resource("a:b")(bare), "there is a resource 'a:b' already"),
        (lambda: server.resource("a:c/{text}")(echo), "there is a resource template 'a:c/{text}' already"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            again()


# Lists


@pytest.mark.req("PAGE-01", "PAGE-04", "TOOL-02", "RES-02", "RES-04", "PROM-02")
@pytest.mark.parametrize(("size", "pages"), [(None, 1), (2, 3), (5, 1), (100, 1)])
def test_lists_come_in_pages(size: int | None, pages: int) -> None:
    made = Server("s", page_size=size)
    for number in range(5):
        made.tool(bare, name=f"tool{number}")
        made.prompt(bare, name=f"prompt{number}")
        made.resource(f"a:{number}")(bare)
        made.resource(f"b:{number}/{{text}}")(echo)
    link = Link(made)

    async def walk(ask: Callable[..., Any], member: str) -> tuple[int, list[Any]]:
        asked, found, cursor = 0, [], None
        while True:
            page = await ask(cursor)
            asked += 1
            found += getattr(page, member)
            cursor = page.next_cursor
            if cursor is None:
                return asked, found

    client = link.client
    for ask, member in (
        (client.list_tools, "tools"),
        (client.list_prompts, "prompts"),
        (client.list_resources, "resources"),
        (client.list_resource_templates, "resource_templates"),
    ):
        asked, found = link.do(walk(ask, member))
        assert asked == pages
        assert len({repr(each) for each in found}) == 5


@pytest.mark.parametrize(("options", "sizes"), [({}, [200, 1]), ({"page_size": None}, [201])])
def test_long_list_comes_in_pages_unless_all_of_it_is_asked_for(options: Any, sizes: list[int]) -> None:
    made = Server("s", **options)
    for number in range(201):
        made.tool(bare, name=f"tool{number}")
    link, found, cursor = Link(made), list[int](), None
    while not found or cursor is not None:
        page = link.do(link.client.list_tools(cursor))
        found.append(len(page.tools))
        cursor = page.next_cursor
    assert found == sizes


@pytest.mark.req("PAGE-04")
@pytest.mark.parametrize("call", ["list_tools", "list_prompts", "list_resources", "list_resource_templates"])
def test_a_cursor_that_was_never_given_out_is_refused(call: str) -> None:
    made = Server("s", page_size=1)
    for number in range(2):
        made.tool(bare, name=f"tool{number}")
        made.prompt(bare, name=f"prompt{number}")
        made.resource(f"a:{number}")(bare)
    link = Link(made)
    cursor = link.do(link.client.list_tools()).next_cursor
    for wrong in ["nonsense", ""] + ([] if call == "list_tools" else [cursor]):
        with pytest.raises(RequestError, match="Invalid cursor") as caught:
            link.do(getattr(link.client, call)(wrong))
        assert caught.value.code == ErrorCode.INVALID_PARAMS


# Capabilities


@pytest.mark.req("CAP-03", "TOOL-01", "RES-01", "PROM-01", "LOG-01")
def test_registered_features_are_declared() -> None:
    made = server()
    assert made.capabilities == ServerCapabilities(logging={})
    made.tool(bare)
    assert made.capabilities == ServerCapabilities(tools=ToolsCapability(True), logging={})
    made.prompt(bare)
    made.resource("a:b")(bare)
    assert made.capabilities == ServerCapabilities(
        tools=ToolsCapability(True),
        prompts=PromptsCapability(True),
        resources=ResourcesCapability(True, True),
        logging={},
    )
    made.tools.disable("bare")
    assert made.capabilities.tools == ToolsCapability(True)
    made.tools.remove("bare")
    assert made.capabilities == ServerCapabilities(
        prompts=PromptsCapability(True), resources=ResourcesCapability(True, True), logging={}
    )
    other = server()
    other.resource("a:{text}")(echo)
    assert other.capabilities.resources is not None


@pytest.mark.req("CAP-03", "LOG-01")
@pytest.mark.parametrize("era", ["stateless", "handshake"])
def test_server_without_log_level_declares_no_logging_and_drops_messages(era: Any) -> None:
    made = Server("s", log_level=None)
    heard: list[Any] = []

    @made.tool
    def say(ctx: Context) -> str:
        ctx.error("x")
        ctx.session.log("error", "y")
        return "done"

    link = Link(made, era=era, on_log=heard.append)
    assert link.text("say") == "done"
    assert (made.capabilities.logging, heard, link.reports) == (None, [], [])


@pytest.mark.req("CAP-03")
def test_explicit_capabilities_are_kept() -> None:
    declared = ServerCapabilities(
        tools=ToolsCapability(), prompts=PromptsCapability(False), completions={}, experimental={"a": {}}
    )
    made = Server("s", capabilities=declared)
    made.prompt(bare)
    assert made.capabilities == ServerCapabilities(
        tools=ToolsCapability(), prompts=PromptsCapability(False), completions={}, experimental={"a": {}}, logging={}
    )
    link = Link(made)
    assert link.do(link.client.list_tools()).tools == ()


# The session's own settings


@pytest.mark.req("RES-06", "RES-09")
def test_subscription_needs_an_existing_resource() -> None:
    made = server()
    made.resource("a:b")(bare)
    link = Link(made, era="handshake")
    link.do(link.client.subscribe_resource("a:b"))
    assert made.notify_resource_updated("a:b") == 1
    with pytest.raises(RequestError, match="Resource not found"):
        link.do(link.client.subscribe_resource("a:c"))
    link.do(link.client.unsubscribe_resource("a:b"))
    assert made.notify_resource_updated("a:b") == 0


@pytest.mark.req("LOG-03")
def test_a_client_chooses_the_level_of_log_messages() -> None:
    link = Link(server(), era="handshake")
    link.do(link.client.set_log_level("error"))
    assert link.session.log_level == "error"


# Completions


def test_arguments_of_prompts_and_templates_are_completed() -> None:
    made = server()
    made.prompt(echo)
    made.resource("a:{text}")(echo)
    for options in ({"prompt": "echo"}, {"resource": "a:{text}", "blocking": True}):

        @made.completion("text", **options)
        def suggest(value: str) -> list[str]:
            return [value + "!"]

        assert suggest("a") == ["a!"]
    link = Link(made)
    for reference in (PromptReference("echo"), ResourceTemplateReference("a:{text}")):
        assert link.do(link.client.complete(reference, "text", "hi")).completion.values == ("hi!",)
    with pytest.raises(TypeError, match=r"^give either prompt= or resource=$"):
        made.completion("text")


# Changes while sessions are open


@pytest.mark.req("TOOL-16", "RES-08", "PROM-07")
def test_changes_are_broadcast() -> None:
    made, heard = server(), []
    made.tool(bare)
    made.prompt(bare)
    made.resource("a:b")(bare)
    link = Link(made, on_notification=lambda told: heard.append(type(told)))
    for change, kind in (
        (lambda: made.tool(echo), ToolListChangedNotification),
        (lambda: made.tools.disable("echo"), ToolListChangedNotification),
        (lambda: made.tools.enable("echo"), ToolListChangedNotification),
        (lambda: made.tools.remove("echo"), ToolListChangedNotification),
        (lambda: made.prompt(echo), PromptListChangedNotification),
        (lambda: made.resource("a:{text}")(echo), ResourceListChangedNotification),
        (lambda: made.resources.static.remove("a:b"), ResourceListChangedNotification),
    ):
        heard.clear()
        change()
        link.run()
        assert heard == [kind]
    assert [tool.name for tool in link.do(link.client.list_tools()).tools] == ["bare"]


@pytest.mark.req("TOOL-16", "TOOL-01")
def test_undeclared_changes_are_not_sent() -> None:
    made = server()
    first: list[Any] = []
    second: list[Any] = []
    early = Link(made, on_notification=first.append, era="handshake")
    made.tool(echo)
    late = Link(made, on_notification=second.append, era="handshake")
    made.tool(bare)
    early.run()
    late.run()
    assert first == []
    assert second == [ToolListChangedNotification()]
    assert early.reports == []
    with pytest.raises(LocalProtocolError, match="needs the capability tools"):
        early.call("echo", text="hi")


@pytest.mark.req("TOOL-16")
def test_list_declared_constant_is_not_broadcast() -> None:
    made = Server("s", capabilities=ServerCapabilities(tools=ToolsCapability(list_changed=False)))
    heard: list[Any] = []
    link = Link(made, on_notification=heard.append)
    made.tool(echo)
    link.run()
    assert heard == []
    assert link.text("echo", text="hi") == "hi"


def test_changes_during_a_call_are_sent_after_it() -> None:
    made = server()
    heard: list[Any] = []

    @made.tool
    def more() -> str:
        for number in range(3):
            made.tool(echo, name=f"echo{number}")
        return "done"

    link = Link(made, on_notification=heard.append, era="handshake")
    assert link.text("more") == "done"
    assert heard == [ToolListChangedNotification()]


# Sessions


def test_a_server_serves_several_sessions_at_once() -> None:
    made = server()

    @made.tool
    async def who(ctx: Context) -> str:
        await ctx.run_in_thread(lambda: None)
        return f"{ctx.state} {ctx.peer.info.name} {ctx.peer.revision}"

    links = [
        Link(made, state="one", info=Implementation("a", "1"), era="handshake"),
        Link(made, state="two", info=Implementation("b", "1"), revision=REV_2024_11_05, era="handshake"),
    ]
    assert list(made.sessions) == [link.session for link in links]
    asks = [link.start(link.client.call_tool("who")) for link in links]
    assert [ask.result.content for ask in asks] == [
        (TextContent("one a 2025-11-25"),),
        (TextContent("two b 2024-11-05"),),
    ]
    links[0].client.connection.abort()
    links[0].run()
    assert list(made.sessions) == [links[1].session]
    made.forget(links[0].session)


def test_session_end_during_a_broadcast_is_harmless() -> None:
    made = server()
    made.resource("a:b")(bare)
    links = [Link(made, era="handshake") for _ in range(3)]
    for link in links:
        link.do(link.client.subscribe_resource("a:b"))
    told = links[0].session.tell

    def tell_and_end(notification: Any, **options: Any) -> bool:
        links[1].session.connection.abort()
        links[1].run()
        return told(notification, **options)

    links[0].session.tell = tell_and_end  # type: ignore[method-assign]  # a driver may do so much at once
    assert made.notify_resource_updated("a:b") == 2
    assert len(made.sessions) == 2


def test_the_lifespan_gives_the_state_of_the_sessions() -> None:
    entered: list[Server] = []

    @asynccontextmanager
    async def lifespan(made: Server) -> AsyncIterator[dict[str, int]]:
        entered.append(made)
        yield {"answer": 42}

    made = Server("s", lifespan=lifespan)

    @made.tool
    def answer(ctx: Context) -> int:
        found: int = ctx.state["answer"]
        return found

    async def main() -> None:
        async with memory_client(made) as client:
            assert (await client.call_tool("answer")).structured_content == {"result": 42}

    trio.run(main)
    assert entered == [made]


# Custom methods


def test_a_method_outside_the_protocol_is_served() -> None:
    made = server()

    def reverse(ctx: Context, request: CustomRequest) -> Mapping[str, Any]:
        return {"text": request.params["text"][::-1], "state": ctx.state}

    early = Link(made, era="handshake")
    made.handlers["text/reverse"] = reverse
    link = Link(made, state=1, era="handshake")
    request = CustomRequest("text/reverse", {"text": "abc"})
    assert link.do(link.client.request(request)) == {"text": "cba", "state": 1}
    with pytest.raises(RequestError, match="Method not found"):
        early.do(early.client.request(request))


def test_methods_named_in_the_options_are_kept() -> None:
    made = Server("s", options=Options(custom_methods=frozenset({"a/b"})))
    assert made.connection()._options.custom_methods == {"a/b"}
    made.handlers["a/b"] = made.handlers["c/d"] = lambda _, __: {}
    assert made.connection()._options.custom_methods == {"a/b", "c/d"}


def test_a_method_of_the_protocol_can_be_served_in_another_way() -> None:
    made = server()
    made.tool(echo)
    served = made.handlers["tools/call"]
    seen: list[str] = []

    def watch(ctx: Context, request: Any) -> Any:
        seen.append(request.name)
        return served(ctx, request)

    made.handlers["tools/call"] = watch
    assert Link(made).text("echo", text="hi") == "hi"
    assert seen == ["echo"]
