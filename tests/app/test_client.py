from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from handlers import returning
from linked import Link
from waits import Wait

from mcpio.app.client import Client, client_connection
from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.engine.limits import Timeout
from mcpio.engine.options import Options
from mcpio.engine.table import Role
from mcpio.errors import (
    AuthorizationRequired,
    ConnectFailed,
    InvalidMessage,
    LocalProtocolError,
    RequestError,
    RequestTimeout,
    UnexpectedResponse,
)
from mcpio.events import Initialized, OutgoingId
from mcpio.revisions import REV_2025_11_25, REV_2026_07_28
from mcpio.types import (
    CallToolRequest,
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitationCapability,
    ElicitFormRequest,
    ElicitResult,
    ElicitSchema,
    Implementation,
    ListToolsResult,
    LoggingMessageNotification,
    MalformedItem,
    PromptReference,
    ReadResourceResult,
    Root,
    RootsCapability,
    SamplingCapability,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    Tool,
    ToolListChangedNotification,
)

both = pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
SAMPLE = CreateMessageRequest((SamplingMessage("user", TextContent("hello")),), 10)
FORM = ElicitFormRequest("hi", ElicitSchema({}))
WITH_TOOLS = SamplingCapability(tools={})
SAID = CreateMessageResult("assistant", TextContent("hi"), "model")


def everything(page_size: int | None = None) -> Server:
    server = Server("s", page_size=page_size)

    @server.tool
    def echo(text: str, ctx: Context) -> str:
        ctx.progress(1, 2, "half")
        return f"{text} {dict(ctx.meta)}"

    for number in range(4):
        server.tool(lambda: None, name=f"tool{number}")
        server.resource(f"a:{number}", name=f"a{number}")(lambda: "contents")
        server.resource(f"b:{number}/{{text}}", name=f"b{number}")(lambda text: text)
        server.prompt(lambda text="": f"Say {text}", name=f"prompt{number}")
    server.completion("text", prompt="prompt0")(lambda value: [value + "!"])
    return server


# One call for each method


def test_every_call_has_a_typed_result() -> None:
    link = Link(everything(), era="handshake")
    client = link.client
    assert link.text("echo", text="hi") == "hi {}"
    assert isinstance(link.do(client.list_tools()), ListToolsResult)
    assert [each.uri for each in link.do(client.list_resources()).resources][:1] == ["a:0"]
    assert len(link.do(client.list_resource_templates()).resource_templates) == 4
    assert link.do(client.read_resource("a:1")) == ReadResourceResult((TextResourceContents("a:1", "contents"),))
    assert len(link.do(client.list_prompts()).prompts) == 4
    (message,) = link.do(client.get_prompt("prompt1", {"text": "hi"})).messages
    assert message.content == TextContent("Say hi")
    completed = link.do(client.complete(PromptReference("prompt0"), "text", "a", chosen={"b": "c"}))
    assert completed.completion.values == ("a!",)
    for call in (
        client.ping(),
        client.set_log_level("error"),
        client.subscribe_resource("a:1"),
        client.unsubscribe_resource("a:1"),
    ):
        link.do(call)


def test_every_call_takes_options() -> None:
    link = Link(everything(), era="handshake")
    seen: list[Any] = []
    meta = {"example.com/trace": 1}
    result = link.do(
        link.client.call_tool(
            "echo", {"text": "hi"}, meta=meta, timeout=Timeout(5), on_progress=lambda *said: seen.append(said)
        )
    )
    # The progress token stands beside what the caller gave.
    assert result.content == (TextContent("hi {'example.com/trace': 1, 'progressToken': 2}"),)
    assert seen == [(1, 2, "half")]
    for call in (
        link.client.ping(meta=meta, timeout=5),
        link.client.list_tools(meta=meta, timeout=None, on_progress=None),
        link.client.read_resource("a:1", meta=None),
        link.client.get_prompt("prompt0", meta=meta),
    ):
        link.do(call)
    assert link.pair.sent(Role.CLIENT).count(b"example.com/trace") == 4


def test_unknown_call_option_raises() -> None:
    link = Link(everything(), era="handshake")
    with pytest.raises(
        TypeError, match=r"^unknown option 'timout'; the options are fresh, meta, on_progress, retry, timeout\. "
    ):
        link.do(link.client.ping(timout=5))  # type: ignore[call-arg]  # the mistake
    with pytest.raises(TypeError, match=r"unknown option 'a'; .* Arguments go in one mapping: {'a': \.\.\.}$"):
        link.do(link.client.call_tool("add", a=1, timeout=5))  # type: ignore[call-overload]  # as above


def test_call_without_an_answer_times_out() -> None:
    server = Server("s")

    @server.tool
    async def wait(ctx: Context) -> None:
        await ctx.session.driver.runtime.one_shot().wait()

    link = Link(server)
    ask = link.start(link.client.call_tool("wait", timeout=5))
    link.advance(6)
    with pytest.raises(RequestTimeout, match="tools/call: no answer within 5 s"):
        _ = ask.result


def test_server_info_is_known_after_the_handshake() -> None:
    link = Link(Server("s", "1.0", instructions="Ask."), shake_hands=False)
    with pytest.raises(LocalProtocolError, match=r"^the handshake has not been done: await initialize\(\) first$"):
        _ = link.client.server
    link.do(link.client.initialize())
    assert link.client.server.info == Implementation("s", "1.0")
    assert link.client.server.instructions == "Ask."


def test_failed_handshake_raises_connect_failed() -> None:
    link = Link(Server("s"), shake_hands=False)
    ask = link.start(link.client.initialize())
    assert ask.state == "returned"
    with pytest.raises(LocalProtocolError):
        link.do(link.client.initialize())
    lost = Link(Server("s"), shake_hands=False)
    lost.pair.stall(Role.SERVER)
    failing = lost.start(lost.client.initialize())
    lost.pair.lose(OSError("cut"))
    lost.run()
    with pytest.raises(ConnectFailed, match=r"^the connection ended while the server was asked for") as caught:
        _ = failing.result
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("era", ["auto", "stateless", "handshake"])
def test_message_of_a_failed_opening_names_its_stage(era: Any) -> None:
    for error, said in (
        (UnexpectedResponse(500, "text/html"), "status 500: text/html"),
        (RequestTimeout("x", 3), "x: no answer within 3 s"),
    ):
        failing, link = opening(era)
        link.client.connection.fail_request(OutgoingId(1), error, 0.0)
        link.run()
        stage = "the handshake failed: " if era == "handshake" else "the server could not be asked for its revisions: "
        assert str(failing.error) == stage + said
        assert failing.error is not None
        assert failing.error.__cause__ is error


@pytest.mark.parametrize("era", ["auto", "stateless", "handshake"])
def test_message_without_a_connection_names_no_stage(era: Any) -> None:
    refused = ConnectFailed("cannot connect to example.com: Connection refused")
    refused.__cause__ = ConnectionRefusedError("refused")
    for error in (refused, AuthorizationRequired("log in")):
        failing, link = opening(era)
        link.client.connection.fail_request(OutgoingId(1), error, 0.0)
        link.run()
        assert str(failing.error) == str(error)


def opening(era: Any) -> tuple[Wait[None], Link]:
    """Return the opening of a client over HTTP, which waits, and its link."""
    link = Link(Server("s"), shake_hands=False, era=era)
    link.client.connection.over_http = True
    link.pair.stall(Role.SERVER)
    return link.start(link.client.initialize()), link


# Lists


async def all_of(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


@pytest.mark.req("PAGE-01", "PAGE-02", "PAGE-06", "PROM-09")
@pytest.mark.parametrize("page_size", [None, 1, 3, 5])
def test_iterators_fetch_all_pages(page_size: int | None) -> None:
    link = Link(everything(page_size))
    client = link.client
    assert [tool.name for tool in link.do(all_of(client.tools()))] == ["echo", "tool0", "tool1", "tool2", "tool3"]
    assert [each.uri for each in link.do(all_of(client.resources(timeout=5)))] == ["a:0", "a:1", "a:2", "a:3"]
    templates = link.do(all_of(client.resource_templates()))
    assert [each.uri_template for each in templates] == [f"b:{number}/{{text}}" for number in range(4)]
    assert [prompt.name for prompt in link.do(all_of(client.prompts()))] == [f"prompt{number}" for number in range(4)]


# What is declared


@pytest.mark.req("CAP-04", "SAMP-01", "ROOT-01", "ELIC-01")
@pytest.mark.parametrize(
    ("options", "declared"),
    [
        ({}, ClientCapabilities()),
        ({"sampling": None, "elicitation": None, "roots": None, "capabilities": None}, ClientCapabilities()),
        ({"sampling": print}, ClientCapabilities(sampling=SamplingCapability())),
        ({"elicitation": print}, ClientCapabilities(elicitation=ElicitationCapability())),
        ({"roots": []}, ClientCapabilities(roots=RootsCapability(True))),
        (
            {
                "sampling": print,
                "roots": list,
                "capabilities": ClientCapabilities(sampling=SamplingCapability(tools={})),
            },
            ClientCapabilities(sampling=SamplingCapability(tools={}), roots=RootsCapability(True)),
        ),
        (
            {"capabilities": ClientCapabilities(experimental={"a": {}}, roots=RootsCapability(False))},
            ClientCapabilities(experimental={"a": {}}, roots=RootsCapability(False)),
        ),
    ],
)
def test_given_options_are_declared(options: Any, declared: ClientCapabilities) -> None:
    assert client_connection(**options, era="handshake").capabilities == declared
    link = Link(Server("s"), **options, era="handshake")
    peer = link.session.connection.peer
    assert peer is not None
    assert peer.capabilities == declared


def test_client_info_is_sent() -> None:
    options = Options(revisions=(REV_2025_11_25,))
    connection = client_connection(info=Implementation("me", "1"), options=options)
    assert (connection.info, connection._options) == (Implementation("me", "1"), options)
    assert client_connection().info == Implementation("mcpio", "0")
    assert REV_2026_07_28 not in connection._options.revisions


async def waits(*_: Any) -> None: ...


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"on_log": waits}, TypeError, "on_log must be a plain function, called without waiting, not "),
        ({"on_notification": "told"}, TypeError, "on_notification must be a plain function"),
        (
            {"roots": [Root("https://example.com")]},
            ValueError,
            "roots: the URI must begin with file://, not 'https://",
        ),
        ({"info": "me"}, TypeError, "^info must be Implementation, not 'me'"),
        ({"capabilities": {"roots": {}}}, TypeError, "^capabilities must be ClientCapabilities, not "),
        ({"sampling": 5}, TypeError, r"^sampling must be a function of \(scope, request\), not 5"),
        ({"elicitation": "ask"}, TypeError, r"^elicitation must be a function of \(scope, request\), not 'ask'"),
        ({"tasks": True}, TypeError, "^tasks must be TaskOptions, not True"),
        ({"retry": 3}, TypeError, "^retry must be Backoff, not 3"),
        ({"roots": ["file:///a"]}, TypeError, "roots must be Root objects, not 'file:///a'"),
    ],
)
def test_invalid_options_are_refused_before_opening(options: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        client_connection(**options)


# What a server asks


@pytest.mark.req("SAMP-16")
def test_server_requests_are_answered_by_callbacks() -> None:
    server = Server("s")

    @server.tool
    async def ask(ctx: Context) -> str:
        said = await ctx.sample(SAMPLE)
        chosen = await ctx.elicit(FORM)
        return f"{said.model} {chosen.action} {await ctx.roots()}"

    link = Link(server, sampling=lambda *_: SAID, elicitation=lambda *_: ElicitResult("decline"), roots=[])
    assert link.text("ask") == "model decline ()"
    link.client.notify_roots_changed()


def test_declared_method_without_a_handler_is_not_found() -> None:
    link = Link(Server("s"), capabilities=ClientCapabilities(sampling=SamplingCapability()), era="handshake")
    with pytest.raises(RequestError, match=r"^Method not found: sampling/createMessage \(-32601\)$"):
        link.do(link.session.request(SAMPLE))
    assert link.reports == []


# What a server tells


def test_callbacks_receive_notifications() -> None:
    logs: list[Any] = []
    others: list[Any] = []
    server = everything()
    link = Link(server, on_log=logs.append, on_notification=others.append, era="handshake")
    silent = Link(server, era="handshake")
    only = Link(server, on_notification=others.append, era="handshake")
    for each in (link, silent, only):
        each.session.log("info", "text")
        each.run()
    message = LoggingMessageNotification("info", "text")
    assert (logs, others) == ([message], [message])
    others.clear()
    server.tools.remove("tool0")
    for each in (link, silent, only):
        each.run()
    assert others == [ToolListChangedNotification()] * 2


@pytest.mark.parametrize("name", ["on_log", "on_notification"])
def test_failing_callback_is_reported_and_the_session_continues(name: str) -> None:
    given: Any = {name: returning(ValueError("told"), later=False)}
    link = Link(everything(), **given, era="handshake")
    link.session.log("info", "text")
    link.do(link.client.ping())
    assert link.reports == ["the callback for notifications/message failed"]
    assert str(link.errors[0]) == "told"


def test_notification_of_the_other_role_reaches_no_callback() -> None:
    heard: list[Any] = []
    link = Link(everything(), on_notification=heard.append)
    link.client._handle(Initialized({"method": "notifications/initialized"}))
    assert heard == []


# Tools by name, and what they return


def test_tool_is_found_in_the_cached_list() -> None:
    server = everything()
    link = Link(server)

    async def names() -> list[str]:
        found = [await link.client.tool(name) for name in ("echo", "tool0", "more")]
        return [tool.name for tool in found if tool is not None]

    assert link.do(names()) == ["echo", "tool0"]
    server.tool(lambda: None, name="more")
    link.run()
    assert link.do(names()) == ["echo", "tool0", "more"]


def test_results_are_checked_with_check_results() -> None:
    server = everything()
    wrong = Tool("tool0", {"type": "object"}, output_schema={"type": "object", "required": ["n"]})
    server.handlers["tools/list"] = lambda ctx, request: ListToolsResult((wrong,))
    assert not Link(server).call("tool0").is_error
    link = Link(server, check_results="raise")
    with pytest.raises(InvalidMessage, match="structuredContent: missing"):
        link.call("tool0")
    with pytest.raises(RequestError, match="Unknown tool"):
        link.call("none")


def test_malformed_items_are_reported() -> None:
    server = everything()
    bad = MalformedItem(0, {"name": 5}, "")
    server.handlers["tools/list"] = lambda ctx, request: ListToolsResult((), malformed=(bad,))
    link = Link(server)

    async def count() -> int:
        return len([tool async for tool in link.client.tools()])

    assert link.do(count()) == 0
    assert len(link.reports) == 1


def odd(value: Any) -> Any:
    """Hide the kind of a value from type checkers."""
    return value


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (lambda client: client.call_tool(odd(5)), "name must be a str, not 5"),
        (lambda client: client.call_tool("echo", odd("x")), "arguments must be a mapping, not 'x'"),
        (lambda client: client.call_tool("echo", timeout=odd("5")), "timeout must be a number of seconds, a Timeout"),
        (lambda client: client.call_tool("echo", timeout=odd(True)), "timeout must be a number of seconds"),
        (lambda client: client.call_tool("echo", meta=odd(5)), "meta must be a mapping, not 5"),
        (lambda client: client.call_tool("echo", retry=odd("x")), "retry must be a bool, not 'x'"),
        (lambda client: client.call_tool("echo", task=odd("x")), "task must be a bool"),
        (lambda client: client.list_tools(odd(5)), "cursor must be a str, not 5"),
        (lambda client: client.read_resource(odd(5)), "uri must be a str, not 5"),
        (lambda client: client.subscribe_resource(odd(5)), "uri must be a str, not 5"),
        (lambda client: client.get_prompt(odd(5)), "name must be a str, not 5"),
        (
            lambda client: client.complete(odd("a"), "b", "c"),
            "ref must be PromptReference or Res",
        ),
        (lambda client: client.complete(PromptReference("a"), odd(5), "c"), "name must be a str, not 5"),
        (lambda client: client.set_log_level(odd(5)), "level must be a str, not 5"),
        (lambda client: client.request(5), "request must be a request of mcpio.types, not 5"),
    ],
)
def test_argument_of_the_wrong_type_raises_type_error_with_its_name(call: Any, fault: str) -> None:
    link = Link(everything(), era="handshake")
    with pytest.raises(TypeError) as caught:
        link.do(call(link.client))
    assert fault in str(caught.value)
    link.do(link.client.ping())


def test_invalid_timeout_raises_value_error_with_its_name() -> None:
    link = Link(everything(), era="handshake")
    with pytest.raises(ValueError, match=r"^timeout must be a number of seconds, 0 or more, or None, not -1$"):
        link.do(link.client.ping(timeout=-1))


@pytest.mark.parametrize("rounds", [-1, 1.5, "x"])
def test_invalid_rounds_raise_value_error_with_their_name(rounds: Any) -> None:
    link = Link(everything(), era="stateless")
    with pytest.raises(ValueError, match=r"^rounds must be an integer of 0 or more, not "):
        link.do(link.client.request(CallToolRequest("echo"), rounds=rounds))


def test_a_notification_of_the_wrong_kind_is_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"^notification must be a notification of mcpio.types, not 5$"):
        Link(everything()).client.notify(5)


@pytest.mark.parametrize("arguments", [(Server("s"),), (Server("s"), None), ("http://localhost/mcp",)])
def test_client_constructed_directly_raises_with_the_functions_to_use(arguments: Any) -> None:
    with pytest.raises(TypeError, match=r"memory_client\(server\).*open_stdio.*open_http\(url\)"):
        Client(*arguments)
