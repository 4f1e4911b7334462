from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio
from linked import Link

from mcpio.app.client import client_connection
from mcpio.app.context import Context, RequestScope
from mcpio.app.server import Server
from mcpio.engine.limits import Timeout
from mcpio.engine.options import Options
from mcpio.engine.table import Role
from mcpio.errors import (
    ConnectFailed,
    ErrorCode,
    LocalProtocolError,
    RemoteProtocolError,
    RequestError,
    RequestTimeout,
)
from mcpio.events import Initialized
from mcpio.revisions import REV_2025_11_25, REV_2026_07_28
from mcpio.trio import memory_client
from mcpio.types import (
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitationCapability,
    ElicitFormRequest,
    ElicitResult,
    ElicitSchema,
    ElicitURLRequest,
    Implementation,
    ListRootsRequest,
    ListToolsResult,
    LoggingMessageNotification,
    PromptReference,
    ReadResourceResult,
    Root,
    RootsCapability,
    RootsListChangedNotification,
    SamplingCapability,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    Tool,
    ToolChoice,
    ToolListChangedNotification,
    ToolUseContent,
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


def returning(value: Any, *, later: bool) -> Callable[..., Any]:
    """Return a function that returns the value, or raises it."""

    def at_once(*_: Any) -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    async def in_a_task(*_: Any) -> Any:
        return at_once()

    return in_a_task if later else at_once


# One call for each method


def test_every_call_has_a_typed_result() -> None:
    link = Link(everything())
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
    link = Link(everything())
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


def test_an_option_that_there_is_not() -> None:
    link = Link(everything())
    with pytest.raises(TypeError, match="timout"):
        link.do(link.client.ping(timout=5))  # type: ignore[call-arg]  # the mistake


def test_a_call_that_takes_too_long() -> None:
    server = Server("s")

    @server.tool
    async def wait(ctx: Context) -> None:
        await ctx.session.driver.runtime.one_shot().wait()

    link = Link(server)
    ask = link.start(link.client.call_tool("wait", timeout=5))
    link.advance(6)
    with pytest.raises(RequestTimeout, match="tools/call: no answer within 5 s"):
        _ = ask.result


def test_what_the_server_is_is_known_after_the_handshake() -> None:
    link = Link(Server("s", "1.0", instructions="Ask."), shake_hands=False)
    with pytest.raises(LocalProtocolError, match=r"^the handshake has not been done: await initialize\(\) first$"):
        _ = link.client.server
    link.do(link.client.initialize())
    assert link.client.server.info == Implementation("s", "1.0")
    assert link.client.server.instructions == "Ask."


def test_a_handshake_that_fails() -> None:
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
    with pytest.raises(ConnectFailed, match=r"^the handshake failed: ") as caught:
        _ = failing.result
    assert caught.value.__cause__ is not None


# Lists


async def all_of(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


@pytest.mark.req("PAGE-01", "PAGE-02", "PAGE-06", "PROM-09")
@pytest.mark.parametrize("page_size", [None, 1, 3, 5])
def test_lists_are_walked_page_by_page(page_size: int | None) -> None:
    link = Link(everything(page_size))
    client = link.client
    assert [tool.name for tool in link.do(all_of(client.tools()))] == ["echo", "tool0", "tool1", "tool2", "tool3"]
    assert [each.uri for each in link.do(all_of(client.resources(timeout=5)))] == ["a:0", "a:1", "a:2", "a:3"]
    templates = link.do(all_of(client.resource_templates()))
    assert [each.uri_template for each in templates] == [f"b:{number}/{{text}}" for number in range(4)]
    assert [prompt.name for prompt in link.do(all_of(client.prompts()))] == [f"prompt{number}" for number in range(4)]


def test_pages_are_asked_for_as_they_are_needed() -> None:
    link = Link(everything(2))

    async def first(count: int) -> list[str]:
        found: list[str] = []
        async for tool in link.client.tools():
            found.append(tool.name)
            if len(found) == count:
                break
        return found

    assert link.do(first(2)) == ["echo", "tool0"]
    assert link.pair.sent(Role.CLIENT).count(b"tools/list") == 1
    assert link.do(first(3)) == ["echo", "tool0", "tool1"]
    assert link.pair.sent(Role.CLIENT).count(b"tools/list") == 3


def paging(*cursors: str | None) -> Link:
    """Return a link to a server that gives one tool a page, and these cursors."""
    server = Server("s")
    server.tool(lambda: None, name="tool")
    asked: list[str | None] = []

    def list_tools(_: Context, request: Any) -> ListToolsResult:
        asked.append(request.cursor)
        return ListToolsResult((Tool(f"tool{len(asked)}", {"type": "object"}),), cursors[len(asked) - 1])

    server.handlers["tools/list"] = list_tools
    link = Link(server)
    link.asked = asked  # type: ignore[attr-defined]  # for the test to look at
    return link


@pytest.mark.req("PAGE-03")
def test_an_empty_cursor_is_not_the_end() -> None:
    link = paging("", None)
    assert [tool.name for tool in link.do(all_of(link.client.tools()))] == ["tool1", "tool2"]
    assert link.asked == [None, ""]  # type: ignore[attr-defined]  # as above


@pytest.mark.req("PAGE-05")
def test_a_list_that_goes_in_circles_is_left() -> None:
    link = paging("a", "b", "a")
    found: list[str] = []

    async def walk() -> None:
        async for tool in link.client.tools():
            found.append(tool.name)  # noqa: PERF401  # it is left in the middle

    with pytest.raises(RemoteProtocolError, match="the cursor 'a' came a second time"):
        link.do(walk())
    assert found == ["tool1", "tool2", "tool3"]


def test_a_page_that_fails_can_be_asked_for_again() -> None:
    server, failures = everything(2), [RequestError(7, "busy")]
    served = server.handlers["tools/list"]

    def sometimes(ctx: Context, request: Any) -> Any:
        if request.cursor is not None and failures:
            raise failures.pop()
        return served(ctx, request)

    server.handlers["tools/list"] = sometimes
    link = Link(server)
    items = link.client.tools()
    names = []

    async def walk() -> None:
        async for tool in items:
            names.append(tool.name)  # noqa: PERF401  # it is left in the middle

    with pytest.raises(RequestError, match="busy"):
        link.do(walk())
    link.do(walk())
    assert names == ["echo", "tool0", "tool1", "tool2", "tool3"]
    link.do(walk())


def test_a_list_that_is_left_early_needs_no_care_under_trio() -> None:
    async def main() -> None:
        async with memory_client(everything(2)) as client:
            async for tool in client.tools():
                assert tool.name == "echo"
                break

    trio.run(main)


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
def test_what_is_given_is_declared(options: Any, declared: ClientCapabilities) -> None:
    assert client_connection(**options).capabilities == declared
    link = Link(Server("s"), **options)
    peer = link.session.connection.peer
    assert peer is not None
    assert peer.capabilities == declared


def test_a_client_says_who_it_is() -> None:
    options = Options(revisions=(REV_2025_11_25,))
    connection = client_connection(info=Implementation("me", "1"), options=options)
    assert (connection.info, connection._options) == (Implementation("me", "1"), options)
    assert client_connection().info == Implementation("mcpio", "0")
    assert REV_2026_07_28 not in connection._options.revisions


async def waits(*_: Any) -> None: ...


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"on_log": waits}, TypeError, "on_log is a plain function, called without waiting, not "),
        ({"on_notification": "told"}, TypeError, "on_notification is a plain function"),
        ({"roots": [Root("https://example.com")]}, ValueError, "the URI of a root begins with file://, not 'https://"),
        ({"roots": ["file:///a"]}, TypeError, "roots are Root objects, not 'file:///a'"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_is_opened(
    options: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        client_connection(**options)


# What a server asks


@both
def test_the_model_answers(later: bool) -> None:
    link = Link(Server("s"), sampling=returning(SAID, later=later))
    assert link.do(link.session.request(SAMPLE)) == SAID


@both
@pytest.mark.req("SAMP-12")
def test_the_user_may_turn_a_request_down(later: bool) -> None:
    no = RequestError(ErrorCode.USER_REJECTED, "User rejected sampling request")
    link = Link(Server("s"), sampling=returning(no, later=later))
    with pytest.raises(RequestError, match=r"^User rejected sampling request \(-1\)$"):
        link.do(link.session.request(SAMPLE))
    assert link.reports == []


@both
@pytest.mark.req("ROOT-04")
@pytest.mark.parametrize(
    ("options", "request_"),
    [({"sampling": ...}, SAMPLE), ({"elicitation": ...}, FORM), ({"roots": ...}, ListRootsRequest())],
)
def test_a_callback_that_fails_is_an_internal_error(later: bool, options: Any, request_: Any) -> None:
    given: Any = dict.fromkeys(options, returning(ValueError("secret"), later=later))
    link = Link(Server("s"), **given)
    with pytest.raises(RequestError, match=r"^Internal error \(-32603\)$"):
        link.do(link.session.request(request_))
    assert str(link.errors[0]) == "secret"


UNSAYABLE = ElicitResult("accept", {"a": object()})  # type: ignore[dict-item]  # the mistake


@both
@pytest.mark.parametrize(("name", "request_"), [("sampling", SAMPLE), ("elicitation", FORM)])
@pytest.mark.parametrize("value", [None, "text", FORM, UNSAYABLE])
def test_an_answer_of_the_wrong_type_is_an_internal_error(later: bool, name: str, request_: Any, value: Any) -> None:
    given: Any = {name: returning(value, later=later)}
    link = Link(Server("s"), **given)
    with pytest.raises(RequestError, match=r"^Internal error \(-32603\)$"):
        link.do(link.session.request(request_))
    assert len(link.reports) == 1


def test_a_callback_sees_who_asks() -> None:
    scopes: list[RequestScope] = []

    def sample(scope: RequestScope, request: CreateMessageRequest) -> CreateMessageResult:
        scopes.append(scope)
        assert request == SAMPLE
        return SAID

    link = Link(Server("s"), sampling=sample)
    link.do(link.session.request(SAMPLE))
    assert scopes[0].peer.info == Implementation("s", "0")
    assert scopes[0].meta == {}


def test_a_slow_callback_is_reported_with_what_to_do() -> None:
    def sample(*_: Any) -> CreateMessageResult:
        link.pair.now += 1
        return SAID

    link = Link(Server("s"), sampling=sample)
    link.do(link.session.request(SAMPLE))
    assert link.reports == ["sampling/createMessage held up everything else for 1000 ms: make its function async"]


@pytest.mark.req("SAMP-06", "SAMP-10")
@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (
            CreateMessageRequest(SAMPLE.messages, 10, tool_choice=ToolChoice()),
            "Invalid params: tools and toolChoice need the capability sampling.tools, which the client did not declare",
        ),
        (
            CreateMessageRequest((SamplingMessage("assistant", ToolUseContent("1", "a", {})),), 10),
            "Invalid params: Tool result missing in request",
        ),
    ],
)
def test_a_request_that_breaks_the_rules_is_not_shown_to_the_model(
    request_: CreateMessageRequest, message: str
) -> None:
    asked: list[Any] = []

    def sample(*asks: Any) -> CreateMessageResult:
        asked.append(asks)
        return SAID

    link = Link(Server("s"), sampling=sample)
    with pytest.raises(RequestError) as caught:
        link.do(link.session.request(request_))
    assert (caught.value.code, caught.value.message, asked) == (ErrorCode.INVALID_PARAMS, message, [])


@pytest.mark.req("ELIC-11")
@pytest.mark.parametrize(
    "answer", [ElicitResult("accept", {"a": 1.5, "b": ("c",)}), ElicitResult("decline"), ElicitResult("cancel")]
)
def test_the_user_answers(answer: ElicitResult) -> None:
    link = Link(Server("s"), elicitation=lambda *_: answer)
    assert link.do(link.session.request(FORM)) == answer


@pytest.mark.req("ELIC-02")
@pytest.mark.parametrize(
    ("declared", "request_", "mode"),
    [
        (None, ElicitURLRequest("Go", "https://example.com", "1"), "url"),
        (ElicitationCapability(url={}), FORM, "form"),
    ],
)
def test_a_mode_that_was_not_declared_is_not_shown_to_the_user(declared: Any, request_: Any, mode: str) -> None:
    asked: list[Any] = []
    capabilities = None if declared is None else ClientCapabilities(elicitation=declared)

    def elicit(*asks: Any) -> ElicitResult:
        asked.append(asks)
        return ElicitResult("accept")

    link = Link(Server("s"), elicitation=elicit, capabilities=capabilities)
    with pytest.raises(RequestError, match=f"mode {mode} needs the capability elicitation.{mode}") as caught:
        link.do(link.session.request(request_))
    assert (caught.value.code, asked) == (ErrorCode.INVALID_PARAMS, [])


@both
@pytest.mark.req("ELIC-10")
def test_content_with_a_refusal_is_the_callbacks_mistake(later: bool) -> None:
    link = Link(Server("s"), elicitation=returning(ElicitResult("decline", {"a": 1}), later=later))
    with pytest.raises(RequestError, match="Internal error"):
        link.do(link.session.request(FORM))
    assert str(link.errors[0]) == (
        "the answer to elicitation/create: content comes with the action accept of a form, and with nothing else"
    )


ROOTS = (Root("file:///a", "A"), Root("file:///b"))


@pytest.mark.req("ROOT-02")
@pytest.mark.parametrize(
    "roots",
    [list(ROOTS), iter(ROOTS), lambda: ROOTS, lambda: iter(ROOTS), returning(ROOTS, later=True)],
    ids=["list", "iterator", "function", "function of an iterator", "async"],
)
def test_roots_are_given_as_a_list_or_a_function(roots: Any) -> None:
    if not callable(roots):
        roots = list(roots)
    link = Link(Server("s"), roots=roots)
    for _ in range(2):
        assert link.do(link.session.request(ListRootsRequest())).roots == ROOTS


@pytest.mark.req("ROOT-03")
def test_roots_may_change() -> None:
    roots = list(ROOTS)
    heard: list[Any] = []
    server = Server("s")
    server.notification_handlers["notifications/roots/list_changed"] = lambda _, told: heard.append(told)
    link = Link(server, roots=lambda: roots)
    roots.pop()
    link.client.notify_roots_changed()
    link.run()
    assert heard == [RootsListChangedNotification()]
    assert link.do(link.session.request(ListRootsRequest())).roots == ROOTS[:1]
    with pytest.raises(LocalProtocolError, match="needs the capability roots"):
        Link(Server("s")).client.notify_roots_changed()


@pytest.mark.req("ROOT-02")
def test_a_root_elsewhere_is_the_clients_mistake() -> None:
    link = Link(Server("s"), roots=lambda: [Root("https://example.com")])
    with pytest.raises(RequestError, match="Internal error"):
        link.do(link.session.request(ListRootsRequest()))
    assert str(link.errors[0]).startswith("the URI of a root begins with file://")


@pytest.mark.req("ELIC-23", "ROOT-04")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("sampling/createMessage", '{"messages":[],"maxTokens":1}'),
        ("elicitation/create", '{"message":"hi","requestedSchema":{"type":"object","properties":{}}}'),
        ("roots/list", "{}"),
        ("custom/method", "{}"),
    ],
)
@pytest.mark.parametrize("declared", [False, True])
def test_what_is_not_served_does_not_exist(method: str, params: str, declared: bool) -> None:
    """Also where a client declared what it does not serve."""
    capabilities = ClientCapabilities(
        sampling=SamplingCapability(), elicitation=ElicitationCapability(), roots=RootsCapability()
    )
    link = Link(Server("s"), capabilities=capabilities if declared else None)
    raw = f'{{"jsonrpc":"2.0","id":"x","method":"{method}","params":{params}}}\n'
    link.pair.client.receive_data(raw.encode(), 0)
    link.run()
    assert f'"Method not found: {method}"'.encode() in link.pair.sent(Role.CLIENT)


# What a server tells


def test_callbacks_hear_of_notifications() -> None:
    logs: list[Any] = []
    others: list[Any] = []
    server = everything()
    link = Link(server, on_log=logs.append, on_notification=others.append)
    silent = Link(server)
    only = Link(server, on_notification=others.append)
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
def test_a_callback_that_fails_is_reported_and_costs_nothing(name: str) -> None:
    given: Any = {name: returning(ValueError("told"), later=False)}
    link = Link(everything(), **given)
    link.session.log("info", "text")
    link.do(link.client.ping())
    assert link.reports == ["the callback for notifications/message failed"]
    assert str(link.errors[0]) == "told"


def test_a_notification_that_a_server_does_not_send() -> None:
    heard: list[Any] = []
    link = Link(everything(), on_notification=heard.append)
    link.client.handle(Initialized({"method": "notifications/initialized"}))
    assert heard == []
